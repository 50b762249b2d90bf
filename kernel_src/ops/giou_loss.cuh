/*
 * giou_loss.cuh: the sum of giou over the valid pairs, divided by how many they are (by 1 if there
 * are none), in one launch and always in the same order.
 *
 * A thread has one pair or some; how they are added up is in total.cuh.
 */
#pragma once
#include "common/box.cuh"
#include "common/element.cuh"
#include "common/types.cuh"

/* BOTH: predictions without a valid target are read, too, EACH pairs of a thread at once.  LOOP:
 * the grid is smaller than the pairs. */
template <class PRED, class TARGET, bool RAGGED, i64 MOST, bool CLAMP, bool BOTH, int EACH,
		  int THREADS, typename Number, bool LOOP,
		  typename Compute = typename element<typename PRED::Element>::compute>
__global__ __launch_bounds__(THREADS) void giou_loss(const typename PRED::Element *pred,
													 const typename TARGET::Element *target,
													 const i32 *offsets, Compute *loss, i64 *count,
													 u8 *scratch, i64 pairs, i64 boxes)
{
	static_assert(BOTH || EACH == 1, "a pair that waits for its target is alone");
	typedef BoxPairs<PRED, TARGET, RAGGED, MOST> Pairs;
	const Pairs all{pred, target, offsets, boxes};
	const Number end = static_cast<Number>(pairs);
	Number pair =
		static_cast<Number>(blockIdx.x) * (EACH * THREADS) + static_cast<Number>(threadIdx.x);
	Compute sum = 0;
	typename index_choose<(sizeof(Number) == 4), u32, i64>::type valid = 0;

	while (pair < end) {
		if constexpr (BOTH) {
			Compute a[EACH][4], b[EACH][4];
			bool here[EACH];
#pragma unroll
			for (int j = 0; j < EACH; j++) {
				const Number mine = pair + static_cast<Number>(j * THREADS);
				here[j] = all.load_both(mine < end ? mine : pair, a[j], b[j]) && mine < end;
			}
#pragma unroll
			for (int j = 0; j < EACH; j++) {
				const Compute value = typename Pairs::template Pair<CLAMP>(a[j], b[j]).giou();
				sum += here[j] ? value : 0;
				valid += here[j];
			}
		} else {
			Compute a[4], b[4];
			if (all.load(pair, a, b)) {
				sum += typename Pairs::template Pair<CLAMP>(a, b).giou();
				valid++;
			}
		}
		if constexpr (!LOOP)
			break;
		pair += static_cast<Number>(gridDim.x) * (EACH * THREADS);
	}
	giou_finish<THREADS>(sum, valid, THREADS, scratch, loss, count);
}
