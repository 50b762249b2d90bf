/*
 * last.cuh: tells which block is done last; one thread of each block asks.
 */
#pragma once
#include "common/types.cuh"

/*
 * Is this the last of `count` blocks to ask?  A thread that is given the answer then sees what
 * their asking threads wrote before.  The counter is 0 before the first, and again after the last.
 */
DEVICE bool last_of(u32 *counter, u32 count)
{
#if KILN_CPU
	__threadfence();
	const u32 before = atomicInc(counter, count - 1);
	__threadfence();
#else
	/* One instruction orders what two fences would. */
	u32 before;
	asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;"
				 : "=r"(before)
				 : "l"(counter), "r"(count - 1)
				 : "memory");
#endif
	return before == count - 1;
}
