// What checked mode calls before an access and at the end of each round of a loop.
#include "context.h"

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

static void mw_check_alignment(mw_context *context, const char *at, u64 size, u64 align, u32 site, u32 write) {
  if ((u64)at & (align - 1))
    mw_fail(context, mw_access_fault(MW_FAULT_MISALIGNED, site, write, (u32)align, at, 0, 0, size));
}

static int mw_inside(const char *at, u64 size, const char *start, u64 bytes) {
  u64 offset = (u64)at - (u64)start;
  return offset <= bytes && size <= bytes - offset;
}

static void mw_touch_buffer(mw_context *context, const mw_buffer *buffer, u32 index, char *at, u64 size, u32 site,
                            u32 write) {
  if (!write) return;
  if (!buffer->writable)
    mw_fail(context, mw_access_fault(MW_FAULT_READ_ONLY, site, write, index, at, buffer->data, buffer->bytes, size));
  if (buffer->written) __builtin_memset(buffer->written + (at - buffer->data), 1, size);
}

// An access whose pointer was made from buffer argument `index`.
void __mw_check_buffer(mw_context *context, char *at, u64 size, u64 align, u32 site, u32 write, u32 index) {
  const mw_buffer *buffer = &context->buffers[index];
  if (!mw_inside(at, size, buffer->data, buffer->bytes))
    mw_fail(context, mw_access_fault(MW_FAULT_BUFFER, site, write, index, at, buffer->data, buffer->bytes, size));
  mw_check_alignment(context, at, size, align, site, write);
  mw_touch_buffer(context, buffer, index, at, size, site, write);
}

// An access whose pointer was made from a variable of known place and size: threadgroup, private or constant.
void __mw_check_object(mw_context *context, char *at, u64 size, u64 align, u32 site, u32 write, u32 kind, char *start,
                       u64 bytes, u32 object) {
  if (!mw_inside(at, size, start, bytes))
    mw_fail(context, mw_access_fault(kind, site, write, object, at, start, bytes, size));
  if (write && kind == MW_FAULT_CONSTANT)
    mw_fail(context, mw_access_fault(MW_FAULT_READ_ONLY, site, write, ~0u, at, start, bytes, size));
  mw_check_alignment(context, at, size, align, site, write);
}

// An access whose pointer was made from [[threadgroup(number)]], whose size the launch says.
void __mw_check_threadgroup_argument(mw_context *context, char *at, u64 size, u64 align, u32 site, u32 write,
                                     u32 number) {
  char *start = context->threadgroup_arguments[number];
  u64 bytes = context->launch->threadgroup_bytes[number];
  __mw_check_object(context, at, size, align, site, write, MW_FAULT_THREADGROUP_ARGUMENT, start, bytes, number);
}

// An access whose pointer may come from several places: it must lie in something that the thread may touch.
// `privates` are the thread's own variables: the rest of its stack holds what keeps the process alive.
void __mw_check_anything(mw_context *context, char *at, u64 size, u64 align, u32 site, u32 write,
                         const mw_constant *privates, u32 private_count) {
  const mw_launch *launch = context->launch;
  mw_check_alignment(context, at, size, align, site, write);
  for (u32 i = 0; i < launch->buffer_count; i++) {
    const mw_buffer *buffer = &context->buffers[i];
    if (!mw_inside(at, size, buffer->data, buffer->bytes)) continue;
    mw_touch_buffer(context, buffer, i, at, size, site, write);
    return;
  }
  if (mw_inside(at, size, context->arena, context->worker->arena_bytes)) return;
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

// An integer division; `zero` tells whether its divisor, or one of them, is zero.
void __mw_check_divisor(mw_context *context, u32 zero, u32 site) {
  if (!zero) return;
  mw_fault fault = {0};
  fault.kind = MW_FAULT_DIVISION;
  fault.site = site;
  mw_fail(context, fault);
}

// The end of one round of a loop.
void __mw_loop(mw_context *context, u32 site) {
  if (--context->fuel == 0) mw_fiber_yield(context, MW_POLLING, site);
}
