// Runs the threadgroups of a launch. Simdgroups of a threadgroup progress one after another, each as far as it
// can go before the next begins, and so do the lanes inside one: the order that shows a missing barrier best.
#include "context.h"

// Between two pauses for the launcher: rounds of loops, or threads that have ended. Some milliseconds of either.
enum { MW_FUEL = 1 << 20, MW_THREADS = 1 << 16 };

void mw_position(const mw_thread *thread, u32 position[3]) {
  for (int axis = 0; axis < 3; axis++)
    position[axis] = thread->group[axis] * thread->full_size[axis] + thread->local[axis];
}

// Records a fault of the current thread and stops every worker; the first one reported is kept.
void mw_report(mw_context *context, mw_fault fault) {
  mw_launch *launch = context->launch;
  if (!__atomic_exchange_n(&launch->fault_taken, 1, __ATOMIC_ACQ_REL)) {
    mw_position(&context->current->thread, fault.position);
    launch->fault = fault;
  }
  __atomic_store_n(&launch->stop, 1, __ATOMIC_RELEASE);
  context->aborted = 1;
}

// Reports and never returns to the kernel: its stack is abandoned where it stands.
_Noreturn void mw_fail(mw_context *context, mw_fault fault) {
  mw_report(context, fault);
  for (;;) mw_fiber_yield(context, MW_DONE, fault.site);
}

// Lets the launcher look around; where it wants to stop, the current thread is the one that is reported.
static int mw_may_go_on(mw_context *context, u32 site) {
  mw_launch *launch = context->launch;
  mw_pause(context->worker);
  if (!__atomic_load_n(&launch->stop, __ATOMIC_ACQUIRE)) return 1;
  mw_fault fault = {0};
  fault.kind = MW_FAULT_STOPPED;
  fault.site = site;
  mw_report(context, fault);
  return 0;
}

// Lets one thread run until it waits or ends, pausing whenever it has looped for long.
static void mw_run_thread(mw_context *context, mw_fiber *fiber) {
  mw_fiber_resume(context, fiber);
  while (fiber->state == MW_POLLING && !context->aborted) {
    if (!mw_may_go_on(context, fiber->site)) return;
    fiber->state = MW_READY;
    context->fuel = MW_FUEL;
    mw_fiber_resume(context, fiber);
  }
}

// Lets the lanes that wait at the earliest exchange have each other's values. Lanes at a later one wait on:
// they have taken the other side of a branch, or left a loop, and the earlier lanes will come to them.
static int mw_resolve_exchange(mw_context *context, u32 first, u32 count) {
  u32 site = ~0u;
  for (u32 i = first; i < first + count; i++) {
    const mw_fiber *fiber = mw_fiber_at(context, i);
    if (fiber->state == MW_AT_EXCHANGE && fiber->site < site) site = fiber->site;
  }
  if (site == ~0u) return 0;
  context->active = 0;
  context->folded = 0;
  context->exchanges[first / MW_LANES]++;
  for (u32 i = first; i < first + count; i++) {
    mw_fiber *fiber = mw_fiber_at(context, i);
    if (fiber->state != MW_AT_EXCHANGE || fiber->site != site) continue;
    context->active |= 1u << fiber->lane;
    __builtin_memcpy(context->gathered[fiber->lane], fiber->offered, MW_EXCHANGE_BYTES);
    fiber->state = MW_READY;
  }
  return 1;
}

static void mw_run_simdgroup(mw_context *context, u32 first, u32 count) {
  int reverse = context->launch->reverse;
  do {
    for (u32 i = 0; i < count; i++) {
      mw_fiber *fiber = mw_fiber_at(context, first + (reverse ? count - 1 - i : i));
      if (fiber->state != MW_READY) continue;
      mw_run_thread(context, fiber);
      if (context->aborted) return;
    }
  } while (mw_resolve_exchange(context, first, count));
}

// Every thread waits at a barrier or has ended: lets those that wait go on. Returns 0 when all have ended.
static int mw_release_barrier(mw_context *context) {
  u32 waiting = 0;
  const mw_fiber *one = 0, *other = 0;
  for (u32 i = 0; i < context->fiber_count; i++) {
    mw_fiber *fiber = mw_fiber_at(context, i);
    if (fiber->state != MW_AT_BARRIER) continue;
    if (!one) one = fiber;
    if (fiber->site != one->site) other = fiber;
    waiting++;
  }
  if (!waiting) return 0;
  if (__mw_checked && (other || waiting != context->fiber_count)) {
    mw_fault fault = {0};
    fault.kind = MW_FAULT_BARRIER;
    fault.site = one->site;
    fault.other_site = other ? other->site : ~0u;
    context->current = (mw_fiber *)one;
    mw_report(context, fault);
    return 0;
  }
  for (u32 i = 0; i < context->fiber_count; i++) {
    mw_fiber *fiber = mw_fiber_at(context, i);
    if (fiber->state == MW_AT_BARRIER) fiber->state = MW_READY;
  }
  context->barriers++;
  if (context->barrier_flags & MW_MEM_DEVICE) context->epochs[MW_PLACE_BUFFER]++;
  if (context->barrier_flags & MW_MEM_THREADGROUP) context->epochs[MW_PLACE_THREADGROUP]++;
  return 1;
}

static void mw_run_on_fibers(mw_context *context, const mw_thread *first) {
  u32 index = 0;
  mw_thread thread = *first;
  for (u32 z = 0; z < first->group_size[2]; z++)
    for (u32 y = 0; y < first->group_size[1]; y++)
      for (u32 x = 0; x < first->group_size[0]; x++, index++) {
        mw_fiber *fiber = mw_fiber_at(context, index);
        thread.local[0] = x;
        thread.local[1] = y;
        thread.local[2] = z;
        fiber->thread = thread;
        fiber->state = MW_READY;
        fiber->lane = index % MW_LANES;
        fiber->index = index;
        mw_fiber_prepare(context, index);
      }
  context->fiber_count = index;
  u32 simdgroups = (index + MW_LANES - 1) / MW_LANES;
  do {
    for (u32 i = 0; i < simdgroups; i++) {
      u32 start = (context->launch->reverse ? simdgroups - 1 - i : i) * MW_LANES;
      u32 count = index - start < MW_LANES ? index - start : MW_LANES;
      mw_run_simdgroup(context, start, count);
      if (context->aborted) return;
    }
  } while (mw_release_barrier(context));
}

// Threads that never meet need no stacks of their own: a plain loop, which LLVM can widen.
static void mw_run_directly(mw_context *context, const mw_thread *first) {
  const mw_buffer *buffers = context->buffers;
  for (u32 z = 0; z < first->group_size[2]; z++)
    for (u32 y = 0; y < first->group_size[1]; y++)
      for (u32 x = 0; x < first->group_size[0]; x++) {
        mw_thread thread = *first;
        thread.local[0] = x;
        thread.local[1] = y;
        thread.local[2] = z;
        __mw_entry(&thread, buffers, context);
      }
}

static void mw_run_group(mw_context *context, u64 index) {
  const mw_launch *launch = context->launch;
  mw_thread first = {0};
  first.group[0] = (u32)(index % launch->groups[0]);
  first.group[1] = (u32)(index / launch->groups[0] % launch->groups[1]);
  first.group[2] = (u32)(index / launch->groups[0] / launch->groups[1]);
  for (int axis = 0; axis < 3; axis++) {
    u32 left = launch->grid_size[axis] - first.group[axis] * launch->group_size[axis];
    first.group_size[axis] = left < launch->group_size[axis] ? left : launch->group_size[axis];
    first.full_size[axis] = launch->group_size[axis];
    first.grid_size[axis] = launch->grid_size[axis];
    first.groups[axis] = launch->groups[axis];
  }
  // What a threadgroup finds in its memory is anything: NaN for every float type, -1 for integers.
  __builtin_memset(context->arena, 0xff, context->worker->arena_bytes);
  if (__mw_watched) mw_begin_observing(context, index);
  if (__mw_uses_fibers)
    mw_run_on_fibers(context, &first);
  else
    mw_run_directly(context, &first);
}

// Runs threadgroups until none is left or somebody asks to stop.
void mw_run_groups(mw_launch *launch, mw_worker *worker) {
  mw_context context;
  context.buffers = launch->buffers;
  context.arena = worker->arena;
  context.current = 0;
  context.scheduler = 0;
  context.fiber_count = 0;
  context.aborted = 0;
  context.launch = launch;
  context.worker = worker;
  context.active = 0;
  context.folded = 0;
  context.pending_count = 0;
  if (__mw_watched) __builtin_memset(worker->arena_shadow, 0, (worker->arena_bytes + 3) / 4 * MW_SHADOW_BYTES);
  context.fuel = MW_FUEL;
  u64 ended = 0;
  char *next = worker->arena + __mw_arena_bytes;
  for (u32 i = 0; i < launch->threadgroup_count; i++) {
    next = (char *)(((u64)next + 15) & ~(u64)15);
    context.threadgroup_arguments[i] = next;
    next += launch->threadgroup_bytes[i];
  }
  for (;;) {
    u64 begin = __atomic_fetch_add(&launch->group_next, launch->group_chunk, __ATOMIC_RELAXED);
    if (begin >= launch->group_total) return;
    u64 end = begin + launch->group_chunk;
    if (end > launch->group_total) end = launch->group_total;
    for (u64 i = begin; i < end; i++) {
      if (__atomic_load_n(&launch->stop, __ATOMIC_ACQUIRE)) return;
      mw_run_group(&context, launch->reverse ? launch->group_total - 1 - i : i);
      if (context.aborted) return;
      ended += context.fiber_count;
      if (__mw_checked && ended >= MW_THREADS) {
        ended = 0;
        if (!mw_may_go_on(&context, ~0u)) return;
      }
    }
  }
}

// Called by each worker of a launch, again and again until it returns 0.
__attribute__((visibility("default"))) u32 mw_run(mw_launch *launch, mw_worker *worker) {
  if (!__mw_checked) {
    mw_run_groups(launch, worker);
    return 0;
  }
  mw_start(worker, launch);
  return worker->paused;
}
