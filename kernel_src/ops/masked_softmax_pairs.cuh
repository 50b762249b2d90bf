/*
 * masked_softmax_pairs.cuh: masked softmax of short rows of halves, which lie one behind the other,
 * with a flag for each element.  Parameters as in masked_softmax_staged.cuh.
 */
#pragma once
#include "common/mask.cuh"
#include "common/softmax_pairs.cuh"

template <class SHAPE, class MASK, class PLACE, typename Index,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void masked_softmax_pairs(const T *x,
																   typename MASK::Given given, T *y,
																   Compute before, Compute exponent,
																   Compute after, i64 rows)
{
	constexpr int threads = SHAPE::threads / SHAPE::rows;

	pairs_each<SHAPE, false, pairs_aside<MASK::bytes, threads>()>(
		x, y, SoftmaxScale<Compute>{before, exponent, after}, rows, [&](i64 row, u8 *memory) {
			const MASK mask = PLACE::template at<MASK>(given, static_cast<Index>(row));
			return MASK(
				row_aside<threads, MASK::bytes, true>(memory, mask.start, SHAPE::group::thread()),
				0, 1);
		});
}
