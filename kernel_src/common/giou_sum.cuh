/*
 * giou_sum.cuh: the mean of what threads have, in one launch and always in the same order.
 *
 * A block puts together what its threads have and leaves it in scratch memory; the block that is
 * done last adds up what all have left, in the order of their numbers.
 */
#pragma once
#include "common/last.cuh"
#include "common/types.cuh"

/* The part of a block, which has less than 2^32 pairs. */
template <typename Compute>
struct alignas(2 * sizeof(Compute)) GiouPart {
	Compute sum;
	u32 count;
};

/* The sum over a warp; the same in all lanes. */
template <typename T>
DEVICE T giou_warp_sum(T value)
{
#pragma unroll
	for (int lanes = 16; lanes > 0; lanes /= 2)
		value += __shfl_xor_sync(0xffffffffu, value, lanes);
	return value;
}

DEVICE u32 giou_warp_sum(u32 value)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
	return giou_warp_sum<u32>(value);
#else
	return __reduce_add_sync(0xffffffffu, value);
#endif
}

/* Adds up the sums of a whole block, in its first warp.  All threads come. */
template <int MOST, typename Compute, typename Count>
DEVICE void giou_join(Compute &sum, Count &count, const int warps)
{
	__shared__ Compute sums[MOST / 32];
	__shared__ Count counts[MOST / 32];
	const int thread = static_cast<int>(threadIdx.x);

	sum = giou_warp_sum(sum);
	count = giou_warp_sum(count);
	if (warps > 1) {
		if (thread % 32 == 0) {
			sums[thread / 32] = sum;
			counts[thread / 32] = count;
		}
		__syncthreads();
		if (thread < 32) {
			sum = giou_warp_sum(thread < warps ? sums[thread] : static_cast<Compute>(0));
			count = giou_warp_sum(thread < warps ? counts[thread] : static_cast<Count>(0));
		}
	}
}

/*
 * All threads of all blocks come, each with its sum and how many it has; MOST of a block, which has
 * `threads`.  scratch: 256 bytes for the counter, and a part for each block.
 */
template <int MOST, typename Compute, typename Count>
DEVICE void giou_finish(Compute sum, Count valid, const int threads, u8 *scratch, Compute *loss,
						i64 *count)
{
	GiouPart<Compute> *const parts = reinterpret_cast<GiouPart<Compute> *>(scratch + 256);
	int last = 0;

	/* First of this block's pairs, then, in the last block, of all blocks. */
#pragma unroll 1
	for (int pass = 0;; pass++) {
		giou_join<MOST>(sum, valid, threads / 32);
		if (pass == 1)
			break;
		if (threadIdx.x == 0) {
			parts[blockIdx.x] = GiouPart<Compute>{sum, static_cast<u32>(valid)};
			last = last_of(reinterpret_cast<u32 *>(scratch), gridDim.x);
		}
		if (!__syncthreads_or(last))
			return;
		sum = 0;
		valid = 0;
#pragma unroll 1
		for (u32 i = threadIdx.x; i < gridDim.x; i += static_cast<u32>(threads)) {
			sum += parts[i].sum;
			valid += parts[i].count;
		}
	}
	if (threadIdx.x == 0) {
		*loss = sum / static_cast<Compute>(valid > 1 ? valid : 1);
		if (count)
			*count = static_cast<i64>(valid);
	}
}
