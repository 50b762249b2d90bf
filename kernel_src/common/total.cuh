/*
 * total.cuh: the sum of what threads have, in one launch and always in the same order.
 *
 * A block puts together what its threads have and leaves it in scratch memory; the block that is
 * done last adds up what all have left, in the order of their numbers.
 */
#pragma once
#include "common/last.cuh"
#include "common/types.cuh"

/* The part of a block, which counts to less than 2^32. */
template <typename Compute>
struct alignas(2 * sizeof(Compute)) TotalPart {
	Compute sum;
	u32 count;
};

/* The sum over a warp; the same in all lanes. */
template <typename T>
DEVICE T total_warp(T value)
{
#pragma unroll
	for (int lanes = 16; lanes > 0; lanes /= 2)
		value += __shfl_xor_sync(0xffffffffu, value, lanes);
	return value;
}

DEVICE u32 total_warp(u32 value)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
	return total_warp<u32>(value);
#else
	return __reduce_add_sync(0xffffffffu, value);
#endif
}

/* The sum over the lanes of a warp up to this one. */
DEVICE u32 total_upto(u32 value, int lane)
{
#pragma unroll
	for (int far = 1; far < 32; far *= 2) {
		const u32 other = __shfl_up_sync(0xffffffffu, value, far);
		value += lane >= far ? other : 0;
	}
	return value;
}

/* Adds up the sums of a whole block, in its first warp.  All threads come. */
template <int MOST, typename Compute, typename Count>
DEVICE void total_join(Compute &sum, Count &count, const int warps)
{
	__shared__ Compute sums[MOST / 32];
	__shared__ Count counts[MOST / 32];
	const int thread = static_cast<int>(threadIdx.x);

	sum = total_warp(sum);
	count = total_warp(count);
	if (warps > 1) {
		if (thread % 32 == 0) {
			sums[thread / 32] = sum;
			counts[thread / 32] = count;
		}
		__syncthreads();
		if (thread < 32) {
			sum = total_warp(thread < warps ? sums[thread] : static_cast<Compute>(0));
			count = total_warp(thread < warps ? counts[thread] : static_cast<Count>(0));
		}
	}
}

/* Leaves the part of a block, by one thread of it.  True in the block that is last to do so. */
template <typename Compute>
DEVICE bool total_leave(Compute sum, u32 count, u8 *scratch)
{
	TotalPart<Compute> *const parts = reinterpret_cast<TotalPart<Compute> *>(scratch + 256);

	parts[blockIdx.x] = TotalPart<Compute>{sum, count};
	return last_of(reinterpret_cast<u32 *>(scratch), gridDim.x);
}

/* All threads of a block come; last: one of them has left its part last.  True in that block, whose
 * first thread has the totals then. */
template <int MOST, typename Compute, typename Count>
DEVICE bool total_gather(Compute &sum, Count &count, bool last, const int threads,
						 const u8 *scratch)
{
	const TotalPart<Compute> *const parts =
		reinterpret_cast<const TotalPart<Compute> *>(scratch + 256);

	if (!__syncthreads_or(last))
		return false;
	sum = 0;
	count = 0;
#pragma unroll 1
	for (u32 i = threadIdx.x; i < gridDim.x; i += static_cast<u32>(threads)) {
		sum += parts[i].sum;
		count += parts[i].count;
	}
	total_join<MOST>(sum, count, threads / 32);
	return true;
}

/*
 * All threads of all blocks come, each with its sum and how many it counted; MOST of a block, which
 * has `threads`.  scratch: 256 bytes for the counter, and a part for each block.  True in the block
 * that is done last, whose first thread has the totals then.
 */
template <int MOST, typename Compute, typename Count>
DEVICE bool total_of(Compute &sum, Count &count, const int threads, u8 *scratch)
{
	TotalPart<Compute> *const parts = reinterpret_cast<TotalPart<Compute> *>(scratch + 256);
	int last = 0;

	/* First of this block, then, in the last block, of all blocks. */
#pragma unroll 1
	for (int pass = 0;; pass++) {
		total_join<MOST>(sum, count, threads / 32);
		if (pass == 1)
			return true;
		if (threadIdx.x == 0) {
			parts[blockIdx.x] = TotalPart<Compute>{sum, static_cast<u32>(count)};
			last = last_of(reinterpret_cast<u32 *>(scratch), gridDim.x);
		}
		if (!__syncthreads_or(last))
			return false;
		sum = 0;
		count = 0;
#pragma unroll 1
		for (u32 i = threadIdx.x; i < gridDim.x; i += static_cast<u32>(threads)) {
			sum += parts[i].sum;
			count += parts[i].count;
		}
	}
}
