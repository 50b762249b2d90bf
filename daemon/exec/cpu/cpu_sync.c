/*
 * cpu_sync: barriers of a block and collectives of a warp.  A thread that comes early waits; the
 * last one computes the results of all.  Threads that have exited count as arrived, as on a GPU.
 * cpu_stall.c tells why a block stalls.
 */
#include "cpu_worker.h"

#include <string.h>

/* ---- Barriers ---- */

static unsigned long long barrier_result(const struct cpu_worker *worker,
										 enum kiln_cpu_barrier kind, unsigned arrived)
{
	switch (kind) {
	case KILN_CPU_SYNC_COUNT:
		return (unsigned long long)worker->barrier_sum;
	case KILN_CPU_SYNC_AND:
		return (unsigned)worker->barrier_sum == arrived;
	case KILN_CPU_SYNC_OR:
		return worker->barrier_sum != 0;
	case KILN_CPU_SYNC:
	case KILN_CPU_BARRIER_COUNT:
		break;
	}
	return 0;
}

/* All live threads are at the barrier: wakes them, in order. */
static void release_barrier(struct cpu_worker *worker)
{
	enum kiln_cpu_barrier kind = worker->threads[worker->barrier_first].barrier;
	unsigned long long result = barrier_result(worker, kind, worker->barrier_waiting);
	for (unsigned k = 0; k < worker->next_thread; k++) {
		unsigned i = cpu_order(worker, k);
		if (worker->threads[i].state != CPU_THREAD_BARRIER)
			continue;
		worker->threads[i].result = result;
		cpu_block_wake(worker, i);
	}
	worker->barrier_waiting = 0;
	worker->barrier_sum = 0;
}

int cpu_barrier(struct kiln_cpu_state *state, enum kiln_cpu_barrier kind, int predicate,
				const char *file, int line)
{
	struct cpu_worker *worker = (struct cpu_worker *)state;
	struct cpu_thread *self = &worker->threads[worker->current];
	if (worker->barrier_waiting == 0)
		worker->barrier_first = worker->current;
	const struct cpu_thread *first = &worker->threads[worker->barrier_first];
	if (worker->barrier_waiting > 0 && first->barrier != kind)
		cpu_block_fail(worker,
					   "thread (%u,%u,%u) is in %s at %s:%d while thread (%u,%u,%u) waits in %s "
					   "at %s:%d: all threads must come to the same barrier",
					   self->index.x, self->index.y, self->index.z, cpu_barrier_names[kind], file,
					   line, first->index.x, first->index.y, first->index.z,
					   cpu_barrier_names[first->barrier], first->file, first->line);
	self->state = CPU_THREAD_BARRIER;
	self->barrier = kind;
	self->file = file;
	self->line = line;
	worker->barrier_sum += predicate != 0;
	if (++worker->barrier_waiting == worker->live)
		release_barrier(worker);
	cpu_block_wait(worker);
	return (int)self->result;
}

/* ---- Collectives ---- */

/* Returns the lane from which this lane reads in a shuffle: itself, where the source lies
 * outside of its segment. */
static unsigned source_lane(const struct kiln_cpu_call *call, unsigned lane)
{
	unsigned width = (unsigned)call->width, operand = (unsigned)call->operand;
	unsigned first = lane & ~(width - 1), last = first + width - 1;
	switch (call->kind) {
	case KILN_CPU_SHFL:
		return first | (operand & (width - 1));
	case KILN_CPU_SHFL_UP:
		return operand > lane - first ? lane : lane - operand;
	case KILN_CPU_SHFL_DOWN:
		return operand > last - lane ? lane : lane + operand;
	default: /* SHFL_XOR */
		return (lane ^ operand) > last ? lane : lane ^ operand;
	}
}

static unsigned long long reduce_two(const struct kiln_cpu_call *call, unsigned long long x,
									 unsigned long long y)
{
	uint32_t a = (uint32_t)x, b = (uint32_t)y;
	bool less = call->is_signed ? (int32_t)a < (int32_t)b : a < b;
	switch (call->kind) {
	case KILN_CPU_REDUCE_ADD:
		return a + b;
	case KILN_CPU_REDUCE_MIN:
		return less ? a : b;
	case KILN_CPU_REDUCE_MAX:
		return less ? b : a;
	case KILN_CPU_REDUCE_AND:
		return a & b;
	case KILN_CPU_REDUCE_OR:
		return a | b;
	default: /* REDUCE_XOR */
		return a ^ b;
	}
}

/* Computes a result that all lanes of the group get. */
static unsigned long long common_result(const struct cpu_thread *warp, uint32_t group,
										const struct kiln_cpu_call *call)
{
	uint32_t votes = 0;
	unsigned long long reduced = 0;
	bool begun = false;
	for (unsigned lane = 0; lane < CPU_WARP; lane++) {
		if (!(group >> lane & 1))
			continue;
		unsigned long long value = warp[lane].call.value;
		votes |= (uint32_t)(value != 0) << lane;
		reduced = begun ? reduce_two(call, reduced, value) : value;
		begun = true;
	}
	switch (call->kind) {
	case KILN_CPU_BALLOT:
		return votes;
	case KILN_CPU_ANY:
		return votes != 0;
	case KILN_CPU_ALL:
		return votes == group;
	case KILN_CPU_WARP_SYNC:
		return 0;
	case KILN_CPU_CONVERGE:
		return group;
	default:
		return reduced;
	}
}

static unsigned long long lane_result(const struct cpu_thread *warp, uint32_t group, unsigned lane)
{
	const struct kiln_cpu_call *call = &warp[lane].call;
	if (call->kind == KILN_CPU_MATCH_ANY) {
		uint32_t same = 0;
		for (unsigned i = 0; i < CPU_WARP; i++)
			if (group >> i & 1 && warp[i].call.value == call->value)
				same |= 1u << i;
		return same;
	}
	unsigned source = source_lane(call, lane);
	return group >> source & 1 ? warp[source].call.value : call->value;
}

static void release_group(struct cpu_worker *worker, unsigned warp_number, uint32_t group,
						  const struct kiln_cpu_call *call)
{
	struct cpu_thread *warp = &worker->threads[warp_number * CPU_WARP];
	bool per_lane = call->kind == KILN_CPU_MATCH_ANY ||
					(call->kind >= KILN_CPU_SHFL && call->kind <= KILN_CPU_SHFL_XOR);
	unsigned long long common = per_lane ? 0 : common_result(warp, group, call);
	for (unsigned lane = 0; lane < CPU_WARP; lane++) {
		if (!(group >> lane & 1))
			continue;
		warp[lane].result = per_lane ? lane_result(warp, group, lane) : common;
		cpu_block_wake(worker, warp_number * CPU_WARP + lane);
	}
	worker->warps[warp_number].waiting &= ~group;
}

/* Lets the lanes of this call go if all live ones of its mask are in the same collective. */
static bool release_if_complete(struct cpu_worker *worker, unsigned warp_number,
								const struct kiln_cpu_call *call)
{
	const struct cpu_thread *warp = &worker->threads[warp_number * CPU_WARP];
	uint32_t group = call->mask & worker->warps[warp_number].live;
	if (call->kind == KILN_CPU_CONVERGE || (worker->warps[warp_number].waiting & group) != group)
		return false;
	for (unsigned lane = 0; lane < CPU_WARP; lane++)
		if (group >> lane & 1 &&
			(warp[lane].call.kind != call->kind || warp[lane].call.mask != call->mask))
			return false;
	release_group(worker, warp_number, group,
				  &(struct kiln_cpu_call){
					  .kind = call->kind,
					  .is_signed = call->is_signed,
				  });
	return true;
}

static void check_call(struct cpu_worker *worker, const struct kiln_cpu_call *call)
{
	const struct kiln_cpu_dim *index = &worker->state.thread;
	unsigned lane = worker->current % CPU_WARP;
	if (!(call->mask >> lane & 1))
		cpu_block_fail(worker,
					   "thread (%u,%u,%u), lane %u, calls %s at %s:%d with mask 0x%08x, which "
					   "lacks its own lane",
					   index->x, index->y, index->z, lane, cpu_collective_names[call->kind],
					   call->file, call->line, call->mask);
	bool is_shuffle = call->kind >= KILN_CPU_SHFL && call->kind <= KILN_CPU_SHFL_XOR;
	bool is_power = call->width > 0 && (call->width & (call->width - 1)) == 0;
	if (is_shuffle && (!is_power || call->width > CPU_WARP))
		cpu_block_fail(worker,
					   "thread (%u,%u,%u) calls %s at %s:%d with width %d, which is no power of "
					   "two up to 32",
					   index->x, index->y, index->z, cpu_collective_names[call->kind], call->file,
					   call->line, call->width);
}

unsigned long long cpu_collective(struct kiln_cpu_state *state, const struct kiln_cpu_call *call)
{
	struct cpu_worker *worker = (struct cpu_worker *)state;
	struct cpu_thread *self = &worker->threads[worker->current];
	unsigned warp = worker->current / CPU_WARP;
	check_call(worker, call);
	self->state = CPU_THREAD_WARP;
	self->call = *call;
	self->file = call->file;
	self->line = call->line;
	worker->warps[warp].waiting |= 1u << worker->current % CPU_WARP;
	release_if_complete(worker, warp, &self->call);
	cpu_block_wait(worker);
	return self->result;
}

/* ---- Exits and stalls ---- */

void cpu_sync_exit(struct cpu_worker *worker)
{
	unsigned warp = worker->current / CPU_WARP;
	worker->warps[warp].live &= ~(1u << worker->current % CPU_WARP);
	if (worker->barrier_waiting > 0 && worker->barrier_waiting == worker->live)
		release_barrier(worker);
	uint32_t waiting = worker->warps[warp].waiting;
	for (unsigned lane = 0; lane < CPU_WARP; lane++)
		if (waiting >> lane & 1 && worker->warps[warp].waiting >> lane & 1)
			release_if_complete(worker, warp, &worker->threads[warp * CPU_WARP + lane].call);
}

/* The lanes that wait in __activemask at the same place are the active ones. */
static bool release_converged(struct cpu_worker *worker, unsigned warp_number)
{
	struct cpu_thread *warp = &worker->threads[warp_number * CPU_WARP];
	uint32_t waiting = worker->warps[warp_number].waiting, group = 0;
	const struct cpu_thread *first = NULL;
	for (unsigned lane = 0; lane < CPU_WARP; lane++) {
		if (!(waiting >> lane & 1) || warp[lane].call.kind != KILN_CPU_CONVERGE)
			continue;
		if (!first)
			first = &warp[lane];
		if (warp[lane].line == first->line && strcmp(warp[lane].file, first->file) == 0)
			group |= 1u << lane;
	}
	if (!first)
		return false;
	release_group(worker, warp_number, group, &(struct kiln_cpu_call){.kind = KILN_CPU_CONVERGE});
	return true;
}

void cpu_sync_stall(struct cpu_worker *worker)
{
	bool released = false;
	for (unsigned warp = 0; warp * CPU_WARP < worker->thread_count; warp++)
		released |= release_converged(worker, warp);
	if (!released)
		cpu_stall_report(worker);
}
