/*
 * giou_loss.cuh: the sum of giou over the valid pairs, divided by how many they are (by 1 if there
 * are none), in one launch and always in the same order.
 *
 * A thread has one pair; how they are added up is in total.cuh.
 */
#pragma once
#include "common/box.cuh"
#include "common/element.cuh"
#include "common/types.cuh"

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
	Number pair = static_cast<Number>(blockIdx.x) * THREADS + static_cast<Number>(threadIdx.x);
	Compute sum = 0;
	typename index_choose<(sizeof(Number) == 4), u32, i64>::type valid = 0;

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
	giou_finish<THREADS>(sum, valid, THREADS, scratch, loss, count);
}
