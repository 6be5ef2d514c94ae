// What checked mode calls before an access and at the end of each round of a loop. How an access is made is told by
// bits: 1 it writes, 2 it is atomic, 4 nobody uses what it reads, 8 what it writes depends on what was there.
#include "context.h"

// A kernel has hundreds of accesses: what becomes part of it for each is a comparison, and what follows a wrong one is
// here once, behind one call that never returns.
static mw_fault mw_access_fault(u32 kind, u32 site, u32 write, u32 object, const char *at, const char *start,
                                u64 object_bytes, u64 size) {
  mw_fault fault = {0};
  fault.kind = kind;
  fault.site = site;
  fault.write = write;
  fault.object = object;
  fault.size = (u32)size;
  fault.offset = at - start;
  fault.object_bytes = object_bytes;
  return fault;
}

static int mw_inside(const char *at, u64 size, const char *start, u64 bytes) {
  u64 offset = (u64)at - (u64)start;
  return (offset <= bytes) & (size <= bytes - offset);
}

static int mw_misaligned(const char *at, u64 align) { return ((u64)at & (align - 1)) != 0; }

MW_SELDOM _Noreturn static void mw_fail_alignment(mw_context *context, const char *at, u64 size, u64 align, u32 site,
                                                  u32 write) {
  mw_fail(context, mw_access_fault(MW_FAULT_MISALIGNED, site, write, (u32)align, at, 0, 0, size));
}

MW_SELDOM _Noreturn static void mw_fail_buffer(mw_context *context, const char *at, u64 size, u64 align, u32 site,
                                               u32 write, u32 index) {
  const mw_buffer *buffer = &context->buffers[index];
  int inside = mw_inside(at, size, buffer->data, buffer->bytes);
  if (inside && mw_misaligned(at, align)) mw_fail_alignment(context, at, size, align, site, write);
  u32 kind = inside ? MW_FAULT_READ_ONLY : MW_FAULT_BUFFER;
  mw_fail(context, mw_access_fault(kind, site, write, index, at, buffer->data, buffer->bytes, size));
}

MW_SELDOM _Noreturn static void mw_fail_object(mw_context *context, const char *at, u64 size, u64 align, u32 site,
                                               u32 write, u32 kind, const char *start, u64 bytes, u32 object) {
  if (!mw_inside(at, size, start, bytes))
    mw_fail(context, mw_access_fault(kind, site, write, object, at, start, bytes, size));
  if (write && kind == MW_FAULT_CONSTANT)
    mw_fail(context, mw_access_fault(MW_FAULT_READ_ONLY, site, write, ~0u, at, start, bytes, size));
  mw_fail_alignment(context, at, size, align, site, write);
}

static int mw_may_touch(const mw_buffer *buffer, u32 write) { return !write || buffer->writable; }

static void mw_note_written(const mw_buffer *buffer, const char *at, u64 size, u32 write) {
  if (write && buffer->written) __builtin_memset(buffer->written + (at - buffer->data), 1, size);
}

// An access whose pointer was made from buffer argument `index`.
void __mw_check_buffer(mw_context *context, char *at, u64 size, u64 align, u32 site, u32 how, u32 index) {
  u32 write = how & 1;
  const mw_buffer *buffer = &context->buffers[index];
  if (!mw_inside(at, size, buffer->data, buffer->bytes) || mw_misaligned(at, align) || !mw_may_touch(buffer, write))
    mw_fail_buffer(context, at, size, align, site, write, index);
  mw_note_written(buffer, at, size, write);
  if (__mw_watched) mw_watch_buffer(context, index, at, size, site, how);
}

// An access whose pointer was made from a variable of known place and size: threadgroup, private or constant.
void __mw_check_object(mw_context *context, char *at, u64 size, u64 align, u32 site, u32 how, u32 kind, char *start,
                       u64 bytes, u32 object) {
  u32 write = how & 1;
  if (!mw_inside(at, size, start, bytes) || mw_misaligned(at, align) || (write && kind == MW_FAULT_CONSTANT))
    mw_fail_object(context, at, size, align, site, write, kind, start, bytes, object);
  if (__mw_watched && (kind == MW_FAULT_THREADGROUP || kind == MW_FAULT_THREADGROUP_ARGUMENT))
    mw_watch_arena(context, at, size, site, how);
}

// An access whose pointer was made from [[threadgroup(number)]], whose size the launch says.
void __mw_check_threadgroup_argument(mw_context *context, char *at, u64 size, u64 align, u32 site, u32 how,
                                     u32 number) {
  char *start = context->threadgroup_arguments[number];
  u64 bytes = context->launch->threadgroup_bytes[number];
  __mw_check_object(context, at, size, align, site, how, MW_FAULT_THREADGROUP_ARGUMENT, start, bytes, number);
}

// An access whose pointer may come from several places: it must lie in something that the thread may touch.
// `privates` are the thread's own variables: the rest of its stack holds what keeps the process alive.
void __mw_check_anything(mw_context *context, char *at, u64 size, u64 align, u32 site, u32 how,
                         const mw_constant *privates, u32 private_count) {
  u32 write = how & 1;
  const mw_launch *launch = context->launch;
  if (mw_misaligned(at, align)) mw_fail_alignment(context, at, size, align, site, write);
  for (u32 i = 0; i < launch->buffer_count; i++) {
    const mw_buffer *buffer = &context->buffers[i];
    if (!mw_inside(at, size, buffer->data, buffer->bytes)) continue;
    if (!mw_may_touch(buffer, write)) mw_fail_buffer(context, at, size, align, site, write, i);
    mw_note_written(buffer, at, size, write);
    if (__mw_watched) mw_watch_buffer(context, i, at, size, site, how);
    return;
  }
  if (mw_inside(at, size, context->arena, context->worker->arena_bytes)) {
    if (__mw_watched) mw_watch_arena(context, at, size, site, how);
    return;
  }
  for (u32 i = 0; i < private_count; i++)
    if (mw_inside(at, size, privates[i].start, privates[i].bytes)) return;
  if (!write) {
    // an exchange's values, and the program's constants
    if (mw_inside(at, size, (char *)context->gathered, sizeof context->gathered)) return;
    if (mw_inside(at, size, (char *)&context->current->thread, sizeof(mw_thread))) return;
    for (u32 i = 0; i < __mw_constant_count; i++)
      if (mw_inside(at, size, __mw_constants[i].start, __mw_constants[i].bytes)) return;
  }
  mw_fail(context, mw_access_fault(MW_FAULT_WILD, site, write, ~0u, at, 0, 0, size));
}

MW_SELDOM _Noreturn static void mw_fail_division(mw_context *context, u32 site) {
  mw_fault fault = {0};
  fault.kind = MW_FAULT_DIVISION;
  fault.site = site;
  mw_fail(context, fault);
}

// An integer division; `zero` tells whether its divisor, or one of them, is zero.
void __mw_check_divisor(mw_context *context, u32 zero, u32 site) {
  if (zero) mw_fail_division(context, site);
}

MW_SELDOM static void mw_poll(mw_context *context, u32 site) { mw_fiber_yield(context, MW_POLLING, site); }

// The end of one round of a loop.
void __mw_loop(mw_context *context, u32 site) {
  if (--context->fuel == 0) mw_poll(context, site);
}
