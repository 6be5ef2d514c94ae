// Fibers: each thread of a threadgroup has a stack of its own, and a switch costs a few nanoseconds.
#include "context.h"

// Saves the registers that a call preserves, stores the stack pointer and continues on the other stack.
// On x86-64 by a jump: a return is predicted to go back to where the call came from, and here it never does.
__attribute__((naked, noinline)) static void mw_switch(void **save, void *load) {
#if defined(__x86_64__)
  __asm__("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
          "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
          "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n popq %rcx\n jmpq *%rcx");
#elif defined(__aarch64__)
  __asm__("sub sp, sp, #160\n"
          "stp x19, x20, [sp, #0]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n"
          "stp x25, x26, [sp, #48]\n stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n"
          "stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n"
          "stp d12, d13, [sp, #128]\n stp d14, d15, [sp, #144]\n"
          "mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
          "ldp x19, x20, [sp, #0]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n"
          "ldp x25, x26, [sp, #48]\n ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n"
          "ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n"
          "ldp d12, d13, [sp, #128]\n ldp d14, d15, [sp, #144]\n"
          "add sp, sp, #160\n ret");
#else
#error "fibers are written for x86-64 and arm64"
#endif
}

// The first code of a new fiber: its context and body wait in registers that mw_switch restores.
__attribute__((naked, noinline)) static void mw_begin(void) {
#if defined(__x86_64__)
  __asm__("movq %r12, %rdi\n callq *%r13\n ud2");
#elif defined(__aarch64__)
  __asm__("mov x0, x19\n blr x20\n brk #1");
#endif
}

static void mw_body(mw_context *context) {
  __mw_entry(&context->current->thread, context->buffers, context);
  mw_fiber_yield(context, MW_DONE, 0);
  __builtin_trap();  // nobody resumes a fiber that is done
}

// Lays out a stack so that the first switch to it calls a body; returns its stack pointer.
static void *mw_lay_out(char *top, void *body, void *argument) {
  void **frame = (void **)((u64)top & ~(u64)63);
#if defined(__x86_64__)
  frame -= 9;  // so that mw_begin finds the stack as the ABI wants it before a call: a multiple of 16
  frame[0] = 0;         // r15
  frame[1] = 0;         // r14
  frame[2] = body;      // r13
  frame[3] = argument;  // r12
  frame[4] = 0;         // rbx
  frame[5] = 0;         // rbp
  frame[6] = (void *)mw_begin;
  frame[7] = 0;
#elif defined(__aarch64__)
  frame -= 20;
  for (int i = 0; i < 20; i++) frame[i] = 0;
  frame[0] = argument;           // x19
  frame[1] = body;               // x20
  frame[11] = (void *)mw_begin;  // x30
#endif
  return frame;
}

void mw_fiber_prepare(mw_context *context, u32 index) {
  // Frames at the same offset of every stack would share their few cache sets: shift each by some lines.
  u64 colour = (u64)(index % 61) * 64;
  char *top = context->worker->stacks + (u64)(index + 1) * context->worker->stack_bytes - colour;
  mw_fiber_at(context, index)->stack_pointer = mw_lay_out(top, (void *)mw_body, context);
}

void mw_fiber_resume(mw_context *context, mw_fiber *fiber) {
  context->current = fiber;
  mw_switch(&context->scheduler, fiber->stack_pointer);
}

void mw_fiber_yield(mw_context *context, enum mw_state state, u32 site) {
  mw_fiber *fiber = context->current;
  if (__mw_watched) mw_settle(context);
  fiber->state = state;
  fiber->site = site;
  mw_switch(&fiber->stack_pointer, context->scheduler);
}

// A checked kernel is scheduled on a stack of its own, so that it can be left standing while the launcher looks at
// the clock and at signals. Left for good, it simply is not called again.
typedef struct {
  mw_worker *worker;
  mw_launch *launch;
} mw_start_arguments;

static void mw_schedule(mw_start_arguments *given) {
  mw_worker *worker = given->worker;
  mw_run_groups(given->launch, worker);
  worker->paused = 0;
  mw_switch(&worker->scheduler, worker->launcher);
  __builtin_trap();  // nobody resumes a scheduler that is done
}

// Begins, or goes on with, a launch; comes back when it is done or pauses.
void mw_start(mw_worker *worker, mw_launch *launch) {
  if (!worker->paused) {
    mw_start_arguments *given = (mw_start_arguments *)worker->scheduler_stack;  // the far end of the stack
    given->worker = worker;
    given->launch = launch;
    char *top = worker->scheduler_stack + MW_SCHEDULER_BYTES;
    worker->scheduler = mw_lay_out(top, (void *)mw_schedule, given);
  }
  mw_switch(&worker->launcher, worker->scheduler);
}

void mw_pause(mw_worker *worker) {
  worker->paused = 1;
  mw_switch(&worker->scheduler, worker->launcher);
}
