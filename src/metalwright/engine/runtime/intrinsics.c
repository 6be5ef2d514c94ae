// What a kernel calls while it runs: meeting points, and values that cross lanes.
#include "context.h"

void __mw_barrier(mw_context *context, u32 flags, u32 site) {
  context->barrier_flags = flags;
  mw_fiber_yield(context, MW_AT_BARRIER, site);
}

// Offers a value to the other lanes and waits for theirs; returns the lanes that took part.
u32 __mw_exchange(mw_context *context, const void *value, u32 bytes, u32 site) {
  __builtin_memcpy(context->current->offered, value, bytes);
  mw_fiber_yield(context, MW_AT_EXCHANGE, site);
  return context->active;
}

// The values of the last exchange, MW_EXCHANGE_BYTES apart; those of lanes that took no part are not set.
const void *__mw_gathered(mw_context *context) { return context->gathered; }

// Whether a lane of `members` has folded these values already; the next that asks is told so.
u32 __mw_folded(mw_context *context, u32 members) {
  u32 known = context->folded == members;
  context->folded = members;
  return known;
}

u32 __mw_lane(mw_context *context) { return context->current->lane; }

// What a matrix of a simdgroup is made of lies in all lanes: `active`, which took part, must be every one.
void __mw_whole_simdgroup(mw_context *context, u32 active, u32 site) {
  if (!__mw_checked || active == ~0u) return;
  mw_fault fault = {0};
  fault.kind = MW_FAULT_LANES;
  fault.site = site;
  fault.object = active;
  mw_fail(context, fault);
}

// A tensor operation of one simdgroup runs in whole ones, one of more in a threadgroup of just so many.
void __mw_scope(mw_context *context, u32 simdgroups, u32 site) {
  if (!__mw_checked) return;
  const u32 *size = context->current->thread.group_size;
  u32 threads = size[0] * size[1] * size[2];
  if (simdgroups == 1 ? threads % MW_LANES == 0 : threads == simdgroups * MW_LANES) return;
  mw_fault fault = {0};
  fault.kind = MW_FAULT_SCOPE;
  fault.site = site;
  fault.object = simdgroups;
  fault.size = threads;
  mw_fail(context, fault);
}

_Noreturn void __mw_trap(mw_context *context, u32 site) {
  mw_fault fault = {0};
  fault.kind = MW_FAULT_TRAP;
  fault.site = site;
  mw_fail(context, fault);
}

_Noreturn void __mw_too_deep(mw_context *context, u32 function, u32 depth, u32 site) {
  mw_fault fault = {0};
  fault.kind = MW_FAULT_DEPTH;
  fault.site = site;
  fault.object = function;
  fault.size = depth;
  mw_fail(context, fault);
}

// How far a format may be read. Checked, it must be a constant of the program; otherwise it is taken on trust.
static u64 mw_text_bytes(mw_context *context, const char *format) {
  if (!__mw_checked) return ~0ull;
  for (u32 i = 0; i < __mw_constant_count; i++) {
    u64 offset = (u64)format - (u64)__mw_constants[i].start;
    if (offset < __mw_constants[i].bytes) return __mw_constants[i].bytes - offset;
  }
  mw_fault fault = {0};
  fault.kind = MW_FAULT_WILD;
  fault.site = ~0u;
  fault.size = 1;
  fault.offset = (long long)(u64)format;
  mw_fail(context, fault);
}

// One line of os_log. Arguments arrive widened to 64 bits, each with a letter that tells its kind.
void __mw_log(mw_context *context, u32 level, const char *format, const u64 *values, const char *kinds, u32 count) {
  mw_launch *launch = context->launch;
  u64 length = 0, most = mw_text_bytes(context, format);
  while (length < most && format[length]) length++;
  u64 bytes = (sizeof(mw_log_record) + length + 1 + count * 9 + 7) / 8 * 8;
  u64 at = __atomic_fetch_add(&launch->log_used, bytes, __ATOMIC_RELAXED);
  if (at + bytes > launch->log_bytes) return;  // the launcher sees that log_used went past the end
  mw_log_record *record = (mw_log_record *)(launch->log + at);
  char *text = (char *)(record + 1);
  record->bytes = (u32)bytes;
  record->level = level;
  record->count = count;
  record->format_bytes = (u32)length;
  mw_position(&context->current->thread, record->position);
  for (u32 i = 0; i < count; i++) {
    __builtin_memcpy(text + i * 8, &values[i], 8);
    text[count * 8 + i] = kinds[i];
  }
  __builtin_memcpy(text + count * 9, format, length);
  text[count * 9 + length] = 0;
}
