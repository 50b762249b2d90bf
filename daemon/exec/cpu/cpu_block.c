/*
 * cpu_block: runs the threads of one block on one worker.  A fiber runs threads one after another.
 * The worker takes another fiber only when a thread must wait, so a kernel without barriers never
 * switches. cpu_sync.c decides when a thread waits and when it goes on.
 */
#include "cpu_module.h"
#include "cpu_work.h"
#include "cpu_worker.h"
#include "daemon/base/util.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RUBBISH 0xff /* fills shared memory of checked kernels: not a number, and no index */

static size_t shared_usable_bytes(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	return (CPU_SHARED_OPTIN + page - 1) / page * page;
}

static void *reserve_region(size_t bytes)
{
	void *map = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return map == MAP_FAILED ? NULL : map;
}

int cpu_block_prepare(struct cpu_worker *worker, char error[KERNEL_ERROR_MAX])
{
	size_t guard = CPU_REGION_GUARD, usable = shared_usable_bytes();
	worker->stacks_bytes = CPU_MAX_THREADS * (CPU_STACK_BYTES + guard);
	worker->shared_bytes = usable + 2 * guard;
	worker->stacks = reserve_region(worker->stacks_bytes);
	worker->shared = reserve_region(worker->shared_bytes);
	if (worker->stacks && worker->shared &&
		mprotect(worker->shared + guard, usable, PROT_READ | PROT_WRITE) == 0)
		return KILN_OK;
	int why = errno;
	cpu_block_release(worker);
	return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM,
					 "no address space for the stacks of a cpu worker: %s (ulimit -v)",
					 strerror(why));
}

void cpu_block_release(struct cpu_worker *worker)
{
	cpu_stack_forget(worker->stacks, worker->fiber_count * (CPU_STACK_BYTES + CPU_REGION_GUARD));
	if (worker->stacks)
		munmap(worker->stacks, worker->stacks_bytes);
	if (worker->shared)
		munmap(worker->shared, worker->shared_bytes);
	worker->stacks = worker->shared = NULL;
}

/* ---- Switching ---- */

static void switch_to_fiber(struct cpu_worker *worker, struct cpu_fiber *fiber)
{
	struct cpu_fiber *from = worker->running;
	if (fiber == from)
		return;
	worker->running = fiber;
	cpu_context_switch(&from->context, &fiber->context);
}

static void switch_to_base(struct cpu_worker *worker)
{
	struct cpu_fiber *from = worker->running;
	worker->running = NULL;
	cpu_context_switch(&from->context, &worker->base);
}

/* Resumes the thread that has been ready for longest. */
static void resume_next(struct cpu_worker *worker)
{
	unsigned thread = worker->ready[worker->ready_head];
	worker->ready_head = (worker->ready_head + 1) % CPU_MAX_THREADS;
	worker->ready_count--;
	worker->current = thread;
	worker->state.thread = worker->threads[thread].index;
	switch_to_fiber(worker, worker->threads[thread].fiber);
}

/* ---- Fibers ---- */

/* Starts the next thread of the block; x runs fastest, unless another order is asked for. */
static void begin_thread(struct cpu_worker *worker)
{
	unsigned number = cpu_order(worker, worker->next_thread++);
	struct kiln_cpu_dim *index = &worker->state.thread;
	const struct kiln_cpu_dim *size = &worker->state.block_size;
	index->x = number % size->x;
	index->y = number / size->x % size->y;
	index->z = number / size->x / size->y;
	worker->current = number;
	worker->start_next = false;
	worker->threads[number].index = *index;
	worker->threads[number].state = CPU_THREAD_RUNS;
}

/* Ready threads come before new ones: a warp that ends first leaves its fibers to the next one. */
static bool may_start(const struct cpu_worker *worker)
{
	return worker->next_thread < worker->thread_count &&
		   (worker->ready_count == 0 || worker->start_next);
}

/* The fiber has no thread to run: others go on, or the block has ended. */
static void leave_fiber(struct cpu_worker *worker)
{
	worker->running->next = worker->free;
	worker->free = worker->running;
	if (worker->ready_count == 0 && worker->live > 0)
		cpu_sync_stall(worker);
	if (worker->ready_count > 0) {
		/* The thread to resume has a fiber of its own, so this one stays on the free list. */
		resume_next(worker);
		return;
	}
	switch_to_base(worker);
}

static void fiber_main(void *argument)
{
	struct cpu_worker *worker = argument;
	for (;;) {
		while (may_start(worker)) {
			begin_thread(worker);
			worker->work->module->entry(worker->work->args);
			worker->threads[worker->current].state = CPU_THREAD_EXITED;
			worker->live--;
			cpu_sync_exit(worker);
		}
		leave_fiber(worker);
	}
}

static void make_fiber(struct cpu_worker *worker, unsigned number)
{
	uint8_t *stack =
		worker->stacks + number * (CPU_STACK_BYTES + CPU_REGION_GUARD) + CPU_REGION_GUARD;
	/* If all stacks began at the same offset of a page, they would share a few cache sets. */
	size_t bytes = CPU_STACK_BYTES - number % 16 * 64;
	cpu_context_make(&worker->fibers[number].context, stack, bytes, fiber_main, worker);
}

static struct cpu_fiber *take_fiber(struct cpu_worker *worker)
{
	struct cpu_fiber *fiber = worker->free;
	if (fiber) {
		worker->free = fiber->next;
		return fiber;
	}
	unsigned number = worker->fiber_count;
	uint8_t *slot = worker->stacks + number * (CPU_STACK_BYTES + CPU_REGION_GUARD);
	if (mprotect(slot + CPU_REGION_GUARD, CPU_STACK_BYTES, PROT_READ | PROT_WRITE) != 0)
		return NULL;
	make_fiber(worker, number);
	worker->fiber_count++;
	return &worker->fibers[number];
}

/* A block was left in the middle: makes all fibers anew, because nothing on their stacks counts. */
static void reset_fibers(struct cpu_worker *worker)
{
	worker->free = NULL;
	cpu_stack_forget(worker->stacks, worker->fiber_count * (CPU_STACK_BYTES + CPU_REGION_GUARD));
	for (unsigned i = 0; i < worker->fiber_count; i++) {
		make_fiber(worker, i);
		worker->fibers[i].next = worker->free;
		worker->free = &worker->fibers[i];
	}
}

/* ---- For cpu_sync.c ---- */

void cpu_block_wake(struct cpu_worker *worker, unsigned thread)
{
	worker->threads[thread].state = CPU_THREAD_RUNS;
	worker->ready[(worker->ready_head + worker->ready_count++) % CPU_MAX_THREADS] =
		(uint16_t)thread;
}

void cpu_block_wait(struct cpu_worker *worker)
{
	worker->threads[worker->current].fiber = worker->running;
	if (may_start(worker)) {
		struct cpu_fiber *fiber = take_fiber(worker);
		if (!fiber)
			cpu_block_fail(worker, "no memory for the stack of another thread: %s",
						   strerror(errno));
		switch_to_fiber(worker, fiber);
		return;
	}
	if (worker->ready_count == 0)
		cpu_sync_stall(worker);
	resume_next(worker);
}

void cpu_block_fail(struct cpu_worker *worker, const char *format, ...)
{
	char text[KERNEL_ERROR_MAX];
	const struct kiln_cpu_dim *block = &worker->state.block;
	size_t used =
		util_append(text, sizeof(text), 0, "block (%u,%u,%u): ", block->x, block->y, block->z);
	va_list args;
	va_start(args, format);
	int n = vsnprintf(text + used, sizeof(text) - used, format, args);
	va_end(args);
	if (n > 0 && used + (size_t)n < sizeof(text))
		util_append(text, sizeof(text), used + (size_t)n, " (kernel %s)",
					worker->work->module->about->name);
	cpu_block_leave(worker, text);
}

void cpu_block_leave(struct cpu_worker *worker, const char *sentence)
{
	cpu_work_fail(worker->work, KILN_EDEVICE, sentence);
	for (;;) /* nobody resumes this fiber: it is made anew */
		switch_to_base(worker);
}

/* ---- A block ---- */

/* The memory ends at the guard, but for the bytes that align its start. */
void *cpu_block_shared(const struct cpu_worker *worker)
{
	return worker->shared + CPU_REGION_GUARD + shared_usable_bytes() -
		   (worker->work->shared_bytes + 15u) / 16u * 16u;
}

static void begin_block(struct cpu_worker *worker, uint64_t linear)
{
	const struct cpu_work *work = worker->work;
	struct kiln_cpu_state *state = &worker->state;
	state->grid = work->grid;
	state->block_size = work->block_size;
	state->block.x = (unsigned)(linear % work->grid.x);
	state->block.y = (unsigned)(linear / work->grid.x % work->grid.y);
	state->block.z = (unsigned)(linear / work->grid.x / work->grid.y);
	state->shared = cpu_block_shared(worker);
	if (work->module->about->variables)
		memset(state->shared, RUBBISH, work->shared_bytes);

	unsigned count = work->block_size.x * work->block_size.y * work->block_size.z;
	worker->thread_count = worker->live = count;
	cpu_order_begin(worker, linear);
	worker->next_thread = 0;
	worker->ready_head = worker->ready_count = 0;
	worker->start_next = false;
	worker->barrier_waiting = 0;
	worker->barrier_sum = 0;
	for (unsigned warp = 0; warp * CPU_WARP < count; warp++) {
		unsigned lanes = count - warp * CPU_WARP;
		worker->warps[warp].live = lanes < CPU_WARP ? (1u << lanes) - 1 : UINT32_MAX;
		worker->warps[warp].waiting = 0;
	}
}

bool cpu_block_run(struct cpu_worker *worker, uint64_t linear)
{
	begin_block(worker, linear);
	struct cpu_fiber *fiber = take_fiber(worker);
	if (!fiber) {
		cpu_work_fail(worker->work, KILN_ENOMEM, "no memory for the stack of a kernel's thread");
		return false;
	}
	worker->running = fiber;
	cpu_context_switch(&worker->base, &fiber->context);
	if (worker->live == 0)
		return true;
	reset_fibers(worker);
	return false;
}
