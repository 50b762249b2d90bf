/*
 * cpu_order: the order in which the threads of a block run, and the blocks of a launch.  An unusual
 * order gives other results where a barrier is missing.
 */
#include "cpu_work.h"
#include "cpu_worker.h"

static unsigned greatest_divisor(unsigned a, unsigned b)
{
	while (b) {
		unsigned rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

/* Each order is a line through the numbers of the threads: number = step * k + first, modulo
 * their count. */
void cpu_order_begin(struct cpu_worker *worker, uint64_t block)
{
	unsigned count = worker->thread_count;
	worker->order_step = 1;
	worker->order_first = 0;
	if (worker->device->order == DEVICE_REVERSED) {
		worker->order_step = worker->order_first = count - 1;
	} else if (worker->device->order == DEVICE_SHUFFLED) {
		uint64_t random = (block + 1) * UINT64_C(0x9e3779b97f4a7c15);
		random ^= random >> 29;
		worker->order_first = (unsigned)(random >> 8) % count;
		worker->order_step = (unsigned)(random >> 32) % count;
		while (greatest_divisor(count, worker->order_step) != 1)
			worker->order_step = (worker->order_step + 1) % count;
	}
}

unsigned cpu_order(const struct cpu_worker *worker, unsigned k)
{
	return (k * worker->order_step + worker->order_first) % worker->thread_count;
}

uint64_t cpu_order_block(const struct cpu_worker *worker, uint64_t k)
{
	return worker->device->order == DEVICE_REVERSED ? worker->work->total - 1 - k : k;
}
