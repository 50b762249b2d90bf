/*
 * earlier.cuh: the later blocks of a launch wait for the earlier ones, which wait for nobody.
 *
 * Devices begin blocks by their numbers; on the cpu device blocks are numbered when they begin.
 */
#pragma once
#include "common/types.cuh"

/* Words of scratch memory that are 0 between launches; planners know this. */
#define EARLIER_STATE 128

/* Adds one to a counter.  A thread that sees so also sees what this thread wrote before, and what
 * those threads wrote that this one has met since. */
DEVICE void earlier_add(u32 *counter)
{
#if KILN_CPU
	__threadfence();
	atomicAdd(counter, 1u);
#else
	asm volatile("red.release.gpu.add.u32 [%0], %1;" ::"l"(counter), "r"(1u) : "memory");
#endif
}

DEVICE u32 earlier_seen(u32 *counter)
{
#if KILN_CPU
	const u32 seen = atomicAdd(counter, 0u);
	__threadfence();
#else
	u32 seen;
	asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
#endif
	return seen;
}

struct Earlier {
	u32 *ended, *passed, *begun; /* earlier blocks; later ones that have seen so; that run */

	explicit DEVICE Earlier(void *scratch)
		: ended(static_cast<u32 *>(scratch)), passed(ended + 32), begun(ended + 64)
	{
	}

	DEVICE u32 block() const
	{
#if KILN_CPU
		__shared__ u32 number;
		if (threadIdx.x == 0)
			number = atomicAdd(begun, 1u);
		__syncthreads();
		return number;
#else
		return blockIdx.x;
#endif
	}

	/* All threads of an earlier block come when they have written what others wait for. */
	DEVICE void end() const
	{
		__syncthreads();
		if (threadIdx.x == 0) {
			__threadfence();
			atomicAdd(ended, 1u);
		}
	}

	DEVICE void wait(u32 blocks) const
	{
		while (earlier_seen(ended) < blocks)
			;
	}

	/* One thread of each later block comes when it has waited.  True in the last: nobody will wait
	 * any more when that block's threads have. */
	DEVICE bool pass(u32 blocks) const
	{
		return atomicAdd(passed, 1u) + 1 == blocks;
	}

	DEVICE void clear() const
	{
		*ended = *passed = *begun = 0;
	}
};
