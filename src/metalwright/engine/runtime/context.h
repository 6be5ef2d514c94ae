// The state of one worker while it runs threadgroups, and what the runtime's files share.
#ifndef METALWRIGHT_CONTEXT_H
#define METALWRIGHT_CONTEXT_H

#include "abi.h"

// As <metal_compute> numbers mem_flags.
enum { MW_MEM_DEVICE = 1, MW_MEM_THREADGROUP = 2 };

enum mw_state { MW_READY, MW_AT_BARRIER, MW_AT_EXCHANGE, MW_DONE, MW_POLLING };

// The largest value that lanes exchange: a vector of four 64-bit elements.
enum { MW_EXCHANGE_BYTES = 32 };

// One thread of a threadgroup while it runs or waits.
typedef struct {
  void *stack_pointer;
  u32 state;
  u32 site;   // where it waits, or loops
  u32 lane;
  u32 index;  // in its threadgroup, in the order of the lanes
  u8 offered[MW_EXCHANGE_BYTES];
  mw_thread thread;
} mw_fiber;

_Static_assert(sizeof(mw_fiber) <= MW_FIBER_BYTES, "abi.h promises this size to the launcher");

// A write over another thread's value: a race, unless it writes the same. That is known when it has been done.
typedef struct {
  const char *word;
  mw_event event;
} mw_pending;

enum { MW_PENDING = 12 };  // a vector of four words over a write and two reads of each

typedef struct mw_context {
  const mw_buffer *buffers;
  char *arena;
  char *threadgroup_arguments[MW_THREADGROUP_ARGUMENTS];
  mw_fiber *current;
  void *scheduler;  // stack pointer of the scheduler while a fiber runs
  u32 fiber_count;
  u32 aborted;
  u32 fuel;  // loop rounds, of whichever threads, until the launcher is asked whether to go on
  mw_launch *launch;
  mw_worker *worker;
  u32 active;       // lanes that took part in the exchange that was resolved last
  u32 group;            // number of the threadgroup in the grid
  u32 barrier_flags;    // of the barrier that the threads wait at
  u32 barriers;         // that this threadgroup has passed
  u32 epochs[2];        // barriers that ordered device memory, and threadgroup memory
  u32 exchanges[MW_LANES];  // of each simdgroup
  u32 pending_count;
  mw_pending pending[MW_PENDING];
  u32 folded;       // lanes whose values have been folded since: to the row behind theirs
  u8 gathered[MW_LANES + 1][MW_EXCHANGE_BYTES];
} mw_context;

// What hardly ever runs stays out of the kernel's own code.
#define MW_SELDOM __attribute__((cold, noinline))

// Facts about the kernel, defined beside it by the engine's passes.
extern const u32 __mw_checked;      // accesses, barriers and loops report to the runtime
extern const u32 __mw_watched;      // accesses are observed, too
extern const u32 __mw_arena_bytes;  // of the threadgroup variables, without [[threadgroup(n)]] arguments
extern const u32 __mw_uses_fibers;  // there are points where threads meet, or the kernel is checked
typedef struct { char *start; u64 bytes; } mw_constant;  // a variable: of the program, or of one thread
extern const mw_constant __mw_constants[];  // the constants in the program's own memory
extern const u32 __mw_constant_count;
void __mw_entry(const mw_thread *thread, const mw_buffer *buffers, mw_context *context);

static inline mw_fiber *mw_fiber_at(mw_context *context, u32 index) {
  return (mw_fiber *)(context->worker->fibers + (u64)index * MW_FIBER_BYTES);
}

// fiber.c
void mw_fiber_prepare(mw_context *context, u32 index);
void mw_fiber_resume(mw_context *context, mw_fiber *fiber);
void mw_fiber_yield(mw_context *context, enum mw_state state, u32 site);
void mw_start(mw_worker *worker, mw_launch *launch);
void mw_pause(mw_worker *worker);

// observe.c
void mw_settle(mw_context *context);
void mw_begin_observing(mw_context *context, u64 group);

// scheduler.c
void mw_position(const mw_thread *thread, u32 position[3]);
void mw_run_groups(mw_launch *launch, mw_worker *worker);
void mw_report(mw_context *context, mw_fault fault);
MW_SELDOM _Noreturn void mw_fail(mw_context *context, mw_fault fault);

#endif
