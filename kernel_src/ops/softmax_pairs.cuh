/*
 * softmax_pairs.cuh: softmax and log_softmax of short rows of an odd number of halves, which lie
 * one behind the other.  Parameters as in softmax_staged.cuh.
 */
#pragma once
#include "common/softmax_pairs.cuh"

template <class SHAPE, bool LOG, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void softmax_pairs(const T *x, T *y, Compute before,
															Compute exponent, Compute after,
															i64 rows)
{
	pairs_each<SHAPE, LOG, 0>(
		x, y, SoftmaxScale<Compute>{before, exponent, after}, rows,
		[](i64, u8 *) { return SoftmaxAll<Compute>{}; });
}
