/*
 * cpu_runtime: the table of functions that kernels on the cpu device call.
 */
#include "cpu_worker.h"

#include <math.h>
#include <time.h>

static void yield(struct kiln_cpu_state *state)
{
	struct cpu_worker *worker = (struct cpu_worker *)state;
	/* One of those not yet started may be what the caller waits for. */
	worker->start_next = worker->next_thread < worker->thread_count;
	cpu_block_wake(worker, worker->current);
	cpu_block_wait(worker);
}

static void fail_block(struct kiln_cpu_state *state, const char *what, const char *file, int line)
{
	struct cpu_worker *worker = (struct cpu_worker *)state;
	cpu_block_fail(worker, "thread (%u,%u,%u): %s at %s:%d", state->thread.x, state->thread.y,
				   state->thread.z, what, file, line);
}

static unsigned long long nanoseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
}

#define KILN_CPU_MATH(single, real) .single = single, .real = real,
const struct kiln_cpu_runtime cpu_runtime = {.barrier = cpu_barrier,
											 .collective = cpu_collective,
											 .yield = yield,
											 .fail = fail_block,
											 .clock = nanoseconds,
											 .print = cpu_print,
											 .check = cpu_check,
											 .fmaf = fmaf,
											 .fma = fma,
											 .ldexpf = ldexpf,
											 .ldexp = ldexp,
											 KILN_CPU_MATH_1(KILN_CPU_MATH)
												 KILN_CPU_MATH_2(KILN_CPU_MATH)};
