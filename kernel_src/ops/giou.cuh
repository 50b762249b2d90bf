/*
 * giou.cuh: the generalized intersection over union of pairs of boxes, one pair a thread; 0 where a
 * pair is not valid.  Its derivative is in giou_backward.cuh, its mean in giou_loss.cuh.
 */
#pragma once
#include "common/box.cuh"
#include "common/element.cuh"
#include "common/types.cuh"

/* LOOP: the grid is smaller than the pairs. */
template <class PRED, class TARGET, bool CLAMP, int THREADS, typename Number, bool LOOP>
__global__ __launch_bounds__(THREADS) void giou_pairs(const typename PRED::Element *pred,
													  const typename TARGET::Element *target,
													  typename PRED::Element *y, i64 pairs)
{
	typedef BoxPairs<PRED, TARGET, false, 1> Pairs;
	typedef typename Pairs::Compute Compute;
	const Pairs all{pred, target, nullptr, 0};
	Number pair = static_cast<Number>(blockIdx.x) * THREADS + static_cast<Number>(threadIdx.x);

	while (pair < static_cast<Number>(pairs)) {
		Compute a[4], b[4], value = 0;
		if (all.load(pair, a, b))
			value = typename Pairs::template Pair<CLAMP>(a, b).giou();
		element_store(y + pair, value);
		if constexpr (!LOOP)
			break;
		pair += static_cast<Number>(gridDim.x) * THREADS;
	}
}
