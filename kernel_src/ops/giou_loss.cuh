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

/* Of a whole block: in the first warp.  All threads come; Number is that of the count. */
template <int THREADS, typename Compute, typename Number>
DEVICE void giou_join(Compute &sum, Number &count)
{
	constexpr int warps = THREADS / 32;
	__shared__ Compute sums[warps];
	__shared__ Number counts[warps];
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
			count = giou_warp_sum(thread < warps ? counts[thread] : static_cast<Number>(0));
		}
	}
}

/* What all blocks left, added up by FINISH threads, which all come. */
template <int FINISH, typename Compute>
DEVICE void giou_finish(const GiouPart<Compute> *parts, u32 blocks, Compute *loss, i64 *count)
{
	constexpr u32 at_once = 8;
	Compute sum = 0;
	i64 valid = 0;

#pragma unroll 1
	for (u32 first = threadIdx.x; first < blocks; first += at_once * FINISH) {
		u32 words[at_once][sizeof(Compute) / 2] = {};
#pragma unroll
		for (u32 i = 0; i < at_once; i++)
			if (first + i * FINISH < blocks)
				vec_load<2 * sizeof(Compute)>(parts + first + i * FINISH, words[i]);
#pragma unroll
		for (u32 i = 0; i < at_once; i++) {
			if constexpr (sizeof(Compute) == 8)
				sum += element_at<f64, Compute>(words[i], 0);
			else
				sum += element_at<f32, Compute>(words[i], 0);
			valid += words[i][sizeof(Compute) / 4];
		}
	}
	giou_join<FINISH>(sum, valid);
	if (threadIdx.x != 0)
		return;
	*loss = sum / static_cast<Compute>(valid > 1 ? valid : 1);
	if (count)
		*count = valid;
}

/* BOTH: predictions without a valid target are read, too.  FINISH: 32, or all threads of the last
 * block.  LOOP: the grid is smaller than the pairs. */
template <class PRED, class TARGET, bool RAGGED, i64 MOST, bool CLAMP, bool BOTH, int THREADS,
		  int FINISH, typename Number, bool LOOP,
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
	u32 valid = 0;
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
	giou_join<THREADS>(sum, valid);
	if (threadIdx.x == 0) {
		parts[blockIdx.x] = GiouPart<Compute>{sum, valid};
		last = last_of(reinterpret_cast<u32 *>(scratch), gridDim.x);
	}
	if constexpr (FINISH == 32) {
		if (threadIdx.x >= 32 || !__shfl_sync(0xffffffffu, last, 0))
			return;
	} else {
		if (!__syncthreads_or(last))
			return;
	}
	giou_finish<FINISH>(parts, gridDim.x, loss, count);
}
