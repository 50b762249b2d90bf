/*
 * cpu_fiber: the switch of stacks: by hand on x86-64, where swapcontext with its two system calls
 * would cost forty times as much; by ucontext elsewhere.  Knows nothing of kernels.
 */
#include "cpu_fiber.h"

#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#endif

#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
void cpu_stack_forget(void *stack, size_t bytes)
{
	__asan_unpoison_memory_region(stack, bytes);
}
#else
void cpu_stack_forget(void *stack, size_t bytes)
{
	(void)stack;
	(void)bytes;
}
#endif

#if CPU_FIBER_NATIVE

void cpu_fiber_jump(void **save, void *stack_pointer);
void cpu_fiber_start(void);

/* Saves the registers that a called function must preserve; kernels leave the floating-point modes
 * alone. */
__asm__(".text\n"
		".p2align 4\n"
		".globl cpu_fiber_jump\n"
		".hidden cpu_fiber_jump\n"
		".type cpu_fiber_jump, @function\n"
		"cpu_fiber_jump:\n"
		"\tpushq %rbp\n"
		"\tpushq %rbx\n"
		"\tpushq %r12\n"
		"\tpushq %r13\n"
		"\tpushq %r14\n"
		"\tpushq %r15\n"
		"\tmovq %rsp, (%rdi)\n"
		"\tmovq %rsi, %rsp\n"
		"\tpopq %r15\n"
		"\tpopq %r14\n"
		"\tpopq %r13\n"
		"\tpopq %r12\n"
		"\tpopq %rbx\n"
		"\tpopq %rbp\n"
		"\tret\n"
		".size cpu_fiber_jump, .-cpu_fiber_jump\n"
		".globl cpu_fiber_start\n"
		".hidden cpu_fiber_start\n"
		".type cpu_fiber_start, @function\n"
		"cpu_fiber_start:\n"
		"\tmovq %r12, %rdi\n"
		"\tcallq *%r13\n"
		"\tud2\n"
		".size cpu_fiber_start, .-cpu_fiber_start\n");

void cpu_context_make(struct cpu_context *context, void *stack, size_t bytes, void (*entry)(void *),
					  void *argument)
{
	uintptr_t top = ((uintptr_t)stack + bytes) & ~(uintptr_t)15;
	uintptr_t *frame = (uintptr_t *)top - 7;
	frame[0] = frame[1] = 0; /* r15, r14 */
	frame[2] = (uintptr_t)entry;
	frame[3] = (uintptr_t)argument;
	frame[4] = frame[5] = 0; /* rbx, rbp: the end of a backtrace */
	frame[6] = (uintptr_t)cpu_fiber_start;
	context->stack_pointer = frame;
}

void cpu_context_switch(struct cpu_context *from, struct cpu_context *to)
{
	cpu_fiber_jump(&from->stack_pointer, to->stack_pointer);
}

#else

/* makecontext passes ints only: a pointer goes in two halves. */
static void start(unsigned entry_high, unsigned entry_low, unsigned argument_high,
				  unsigned argument_low)
{
	void (*entry)(void *) = (void (*)(void *))(uintptr_t)((uint64_t)entry_high << 32 | entry_low);
	entry((void *)(uintptr_t)((uint64_t)argument_high << 32 | argument_low));
}

void cpu_context_make(struct cpu_context *context, void *stack, size_t bytes, void (*entry)(void *),
					  void *argument)
{
	uint64_t code = (uintptr_t)entry, data = (uintptr_t)argument;
	getcontext(&context->context);
	context->context.uc_stack.ss_sp = stack;
	context->context.uc_stack.ss_size = bytes;
	context->context.uc_link = NULL;
	makecontext(&context->context, (void (*)(void))start, 4, (unsigned)(code >> 32), (unsigned)code,
				(unsigned)(data >> 32), (unsigned)data);
}

void cpu_context_switch(struct cpu_context *from, struct cpu_context *to)
{
	swapcontext(&from->context, &to->context);
}

#endif
