/*
 * giou_loss.cuh: the sum of giou over the valid pairs, divided by how many they are (by 1 if there
 * are none), in one launch and always in the same order.
 *
 * A thread has one pair, a block puts together what its threads have and leaves it in scratch
 * memory; the block that is done last adds up what all have left, in the order of their numbers.
 */
#pragma once
#include "common/box.cuh"
#include "common/element.cuh"
#include "common/last.cuh"
#include "common/types.cuh"

/* Of what a block has: less than 2^32 pairs. */
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

/* Of a whole block: in the first warp.  All threads come. */
template <int THREADS, typename Compute, typename Count>
DEVICE void giou_join(Compute &sum, Count &count)
{
	constexpr int warps = THREADS / 32;
	__shared__ Compute sums[warps];
	__shared__ Count counts[warps];
	const int thread = static_cast<int>(threadIdx.x);

	sum = giou_warp_sum(sum);
	count = giou_warp_sum(count);
	if constexpr (warps > 1) {
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

/* BOTH: predictions without a valid target are read, too.  LOOP: the grid is smaller than the
 * pairs. */
template <class PRED, class TARGET, bool RAGGED, i64 MOST, bool CLAMP, bool BOTH, int THREADS,
		  typename Number, bool LOOP,
		  typename Compute = typename element<typename PRED::Element>::compute>
__global__ __launch_bounds__(THREADS) void giou_loss(const typename PRED::Element *pred,
													 const typename TARGET::Element *target,
													 const i32 *offsets, Compute *loss, i64 *count,
													 u8 *scratch, i64 pairs, i64 boxes)
{
	const BoxPairs<PRED, TARGET, RAGGED, MOST> all{pred, target, offsets, boxes};
	GiouPart<Compute> *const parts = reinterpret_cast<GiouPart<Compute> *>(scratch + 256);
	Number pair = static_cast<Number>(blockIdx.x) * THREADS + static_cast<Number>(threadIdx.x);
	Compute sum = 0;
	typename index_choose<(sizeof(Number) == 4), u32, i64>::type valid = 0;
	int last = 0;

	while (pair < static_cast<Number>(pairs)) {
		Compute a[4], b[4];
		if constexpr (BOTH) {
			const bool here = all.load_both(pair, a, b);
			const Compute value = BoxPair<Compute, CLAMP>(a, b).giou();
			sum += here ? value : 0;
			valid += here;
		} else if (all.load(pair, a, b)) {
			sum += BoxPair<Compute, CLAMP>(a, b).giou();
			valid++;
		}
		if constexpr (!LOOP)
			break;
		pair += static_cast<Number>(gridDim.x) * THREADS;
	}
	/* First of this block's pairs, then, in the last block, of all blocks. */
#pragma unroll 1
	for (int pass = 0;; pass++) {
		giou_join<THREADS>(sum, valid);
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
		for (u32 i = threadIdx.x; i < gridDim.x; i += THREADS) {
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
