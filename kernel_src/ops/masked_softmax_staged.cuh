/*
 * masked_softmax_staged.cuh: masked softmax and its backward of rows that come and go by way of
 * shared memory (row_staged.cuh).  Parameters as in masked_softmax.cuh.
 */
#pragma once
#include "common/mask.cuh"
#include "common/row_staged.cuh"
#include "common/softmax_backward.cuh"
#include "common/softmax_rows.cuh"

template <class SHAPE, class MASK, class PLACE, typename Index,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__
LAUNCH_BOUNDS(SHAPE::threads) void masked_softmax_staged(const T *x, typename MASK::Given given,
														 T *y, Compute before, Compute exponent,
														 Compute after, i64 rows)
{
	const T *const from[1] = {x};
	T *const to[1] = {y};

	row_staged_each<SHAPE>(from, to, rows, [&](T *const(&piece)[1], i64 first, int row, bool here) {
		const MASK mask = PLACE::template at<MASK>(given, static_cast<Index>(first + row));
		T *const start = piece[0] + row * static_cast<int>(SHAPE::row::columns);
		softmax_row<SHAPE, false>(start, 1, start, 1,
								  SoftmaxScale<Compute>{before, exponent, after}, mask, here);
	});
}

template <class SHAPE, class MASK, class PLACE, typename Index,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void masked_softmax_backward_staged(
	const T *y, const T *dy, typename MASK::Given given, T *dx, Compute scale, i64 rows)
{
	const T *const from[2] = {y, dy};
	T *const to[2] = {dx, nullptr};
	const i64 step[2] = {1, 1};

	row_staged_each<SHAPE>(from, to, rows, [&](T *const(&piece)[2], i64 first, int row, bool here) {
		const MASK mask = PLACE::template at<MASK>(given, static_cast<Index>(first + row));
		const int at = row * static_cast<int>(SHAPE::row::columns);
		const T *const start[2] = {piece[0] + at, piece[1] + at};
		softmax_backward_row<SHAPE, false>(start, step, piece[0] + at, 1, scale, mask, here);
	});
}
