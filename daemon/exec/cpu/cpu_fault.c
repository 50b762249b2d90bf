/*
 * cpu_fault: handles the fault of a kernel.  The signal handler writes which thread touched which
 * operand, marks the device as broken and parks the worker for ever; then the broker replaces the
 * process.
 *
 * The handler formats text, which is not async-signal-safe in general.  It may do so here, because
 * it interrupts kernels alone, and kernels call nothing that holds a lock.  Any other fault ends
 * the process.
 */
#include "cpu_module.h"
#include "cpu_work.h"
#include "cpu_worker.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define SIGNAL_STACK_BYTES (64u << 10)

static _Thread_local struct cpu_worker *fault_worker;

/* Tells "reads" or "writes", if the machine says which. */
static const char *access_name(const void *context)
{
#if defined(__x86_64__)
	const ucontext_t *machine = context;
	if (machine->uc_mcontext.gregs[REG_TRAPNO] == 14) /* page fault: bit 1 of its error code */
		return machine->uc_mcontext.gregs[REG_ERR] & 2 ? "writes" : "reads";
#else
	(void)context;
#endif
	return "uses";
}

static const char *instruction(const void *context)
{
#if defined(__x86_64__)
	const ucontext_t *machine = context;
	return (const char *)(uintptr_t)machine->uc_mcontext.gregs[REG_RIP];
#else
	(void)context;
	return NULL;
#endif
}

/* Returns the operand in whose guards the address is, or that is nearest; the one behind the last
 * is scratch memory; -1: none is near. */
static int near_operand(const struct cpu_work *work, uintptr_t address)
{
	int found = -1;
	uint64_t best = CPU_GUARD_BYTES;
	for (int i = 0; i <= work->operand_count; i++) {
		uintptr_t base = (uintptr_t)work->operands[i].base;
		uint64_t bytes = work->operands[i].bytes;
		uint64_t far = address < base ? base - address : address - base - bytes;
		/* Inside of an operand: faults there have another cause. */
		if (base == 0 || cpu_is_within(address, 1, work->operands[i].base, bytes) || far > best)
			continue;
		best = far;
		found = i;
	}
	return found;
}

static size_t describe_address(const struct cpu_worker *worker, uintptr_t address, char *text,
							   size_t size, size_t used)
{
	const struct cpu_work *work = worker->work;
	if (address < 4096)
		return util_append(text, size, used, "address %#" PRIxPTR ", a null pointer", address);
	if (cpu_is_within(address, 1, worker->shared, worker->shared_bytes))
		return cpu_describe_end("dynamic shared memory", worker->state.shared, work->shared_bytes,
								address, text, size, used);
	int operand = near_operand(work, address);
	if (operand < 0)
		return util_append(text, size, used, "an address that is in no operand");
	return cpu_describe_operand(work, operand, address, text, size, used);
}

static void describe_fault(const struct cpu_worker *worker, int number, const siginfo_t *info,
						   const void *context, char *text, size_t size)
{
	const struct kiln_cpu_dim *block = &worker->state.block, *thread = &worker->state.thread;
	uintptr_t address = (uintptr_t)info->si_addr;
	size_t used = util_append(text, size, 0, "block (%u,%u,%u), thread (%u,%u,%u): ", block->x,
							  block->y, block->z, thread->x, thread->y, thread->z);
	if (number == SIGSYS)
		used = util_append(text, size, used, "%s (system call %d), which no kernel may",
						   sandbox_deed(info->si_syscall), info->si_syscall);
	else if (number == SIGFPE)
		used = util_append(text, size, used, "divides an integer by zero, or overflows doing so");
	else if (number == SIGSEGV && info->si_code == SI_KERNEL)
		used = util_append(text, size, used,
						   "uses an address that is not aligned for a vector access, or that no "
						   "process can have");
	else if (cpu_is_within(address, 1, worker->stacks, worker->stacks_bytes))
		used =
			util_append(text, size, used, "overflows its stack of %u KiB", CPU_STACK_BYTES >> 10);
	else {
		used = util_append(text, size, used, "%s ", access_name(context));
		used = describe_address(worker, address, text, size, used);
	}
	const struct kiln_cpu_module *about = worker->work->module->about;
	used = util_append(text, size, used, " (kernel %s)", about->name);
	if (!about->variables && (number == SIGSEGV || number == SIGBUS))
		util_append(text, size, used, "; `kiln run ... --check` names the line of a bad access");
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	struct cpu_worker *worker = fault_worker;
	if (!worker || !worker->work || !worker->work->module) {
		signal(number, SIG_DFL); /* the fault happens again on return, and ends the process */
		if (number == SIGSYS)
			raise(number); /* a forbidden system call does not happen again */
		return;
	}
	char text[KERNEL_ERROR_MAX];
	describe_fault(worker, number, info, context, text, sizeof(text));
	/* If another worker fails the work just now, its sentence has to be whole before anybody reads.
	 */
	if (!cpu_work_fail_at(worker->work, KILN_EDEVICE, text, instruction(context)))
		while (atomic_load(&worker->work->status) == KILN_OK)
			sched_yield();
	struct cpu_work *none = NULL;
	atomic_compare_exchange_strong(&worker->device->broken, &none, worker->work);
	uint64_t one = 1;
	ssize_t written = write(worker->device->event_fd, &one, sizeof(one));
	(void)written;
	for (;;)
		pause();
}

int cpu_fault_install(char error[KERNEL_ERROR_MAX])
{
	static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGSYS};
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigfillset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], &action, NULL) != 0)
			return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO, "no handler for signal %d: %s",
							 numbers[i], strerror(errno));
	return KILN_OK;
}

int cpu_fault_enter(struct cpu_worker *worker)
{
	void *stack =
		mmap(NULL, SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED)
		return KILN_ENOMEM;
	stack_t use = {.ss_sp = stack, .ss_size = SIGNAL_STACK_BYTES};
	if (sigaltstack(&use, NULL) != 0) {
		munmap(stack, SIGNAL_STACK_BYTES);
		return KILN_EIO;
	}
	worker->signal_stack = stack;
	fault_worker = worker;
	return KILN_OK;
}

void cpu_fault_leave(struct cpu_worker *worker)
{
	if (!worker->signal_stack)
		return;
	stack_t none = {.ss_flags = SS_DISABLE};
	sigaltstack(&none, NULL);
	munmap(worker->signal_stack, SIGNAL_STACK_BYTES);
	worker->signal_stack = NULL;
	fault_worker = NULL;
}
