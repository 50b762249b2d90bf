/*
 * cpu_fiber: switches between stacks of one host thread.  Knows nothing of kernels.
 */
#ifndef KILN_DAEMON_CPU_FIBER_H
#define KILN_DAEMON_CPU_FIBER_H

#include <stddef.h>

#if defined(__x86_64__) && !defined(KILN_CPU_UCONTEXT)
#define CPU_FIBER_NATIVE 1
struct cpu_context {
	void *stack_pointer;
};
#else
#define CPU_FIBER_NATIVE 0
#include <ucontext.h>
struct cpu_context {
	ucontext_t context;
};
#endif

/* Makes a context that calls entry(argument) on this stack when it is first switched to.  entry
 * never returns. */
void cpu_context_make(struct cpu_context *context, void *stack, size_t bytes, void (*entry)(void *),
					  void *argument);
/* Tells AddressSanitizer, where it watches, that no frame is left on these stacks. */
void cpu_stack_forget(void *stack, size_t bytes);
/* Leaves the running context in from, and goes on in to. */
void cpu_context_switch(struct cpu_context *from, struct cpu_context *to);

#endif
