/*
 * cpu_stall: writes which thread waits for which, and where, when none of a block can go on.
 */
#include "cpu_worker.h"

#include <stdio.h>

#define KILN_CPU_NAME(name, text) text,
const char *const cpu_barrier_names[KILN_CPU_BARRIER_COUNT] = {KILN_CPU_BARRIERS(KILN_CPU_NAME)};
const char *const cpu_collective_names[KILN_CPU_COLLECTIVE_COUNT] = {
	KILN_CPU_COLLECTIVES(KILN_CPU_NAME)};
#undef KILN_CPU_NAME

/* Writes "waits in __syncthreads at file:12". */
static void describe_wait(const struct cpu_thread *thread, char *text, size_t size)
{
	if (thread->state == CPU_THREAD_BARRIER)
		snprintf(text, size, "waits in %s at %s:%d", cpu_barrier_names[thread->barrier],
				 thread->file, thread->line);
	else
		snprintf(text, size, "waits in %s with mask 0x%08x at %s:%d",
				 cpu_collective_names[thread->call.kind], thread->call.mask, thread->file,
				 thread->line);
}

/* Returns a live lane of the thread's mask that is not in the same collective, or NULL. */
static const struct cpu_thread *missing_lane(const struct cpu_worker *worker, unsigned number)
{
	const struct cpu_thread *self = &worker->threads[number];
	unsigned first = number / CPU_WARP * CPU_WARP;
	uint32_t group = self->call.mask & worker->warps[number / CPU_WARP].live;
	for (unsigned lane = 0; lane < CPU_WARP; lane++) {
		const struct cpu_thread *other = &worker->threads[first + lane];
		if (group >> lane & 1 &&
			(other->state != CPU_THREAD_WARP || other->call.kind != self->call.kind ||
			 other->call.mask != self->call.mask))
			return other;
	}
	return NULL;
}

void cpu_stall_report(struct cpu_worker *worker)
{
	/* If all threads were at the barrier, they would go on: so some lane waits for another. */
	for (unsigned i = 0; i < worker->thread_count; i++) {
		const struct cpu_thread *self = &worker->threads[i];
		if (self->state != CPU_THREAD_WARP)
			continue;
		const struct cpu_thread *other = missing_lane(worker, i);
		if (!other)
			continue;
		char mine[120], theirs[120];
		describe_wait(self, mine, sizeof(mine));
		describe_wait(other, theirs, sizeof(theirs));
		cpu_block_fail(worker, "thread (%u,%u,%u) %s for thread (%u,%u,%u), which %s",
					   self->index.x, self->index.y, self->index.z, mine, other->index.x,
					   other->index.y, other->index.z, theirs);
	}
	cpu_block_fail(worker, "no thread can go on");
}
