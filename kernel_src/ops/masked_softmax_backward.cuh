/*
 * masked_softmax_backward.cuh: dx = scale * y * (dy - sum(dy * y)) over the elements of a row that
 * a mask leaves, 0 at the others.
 *
 *   masked_softmax_backward_rows      a group of threads holds each row
 *   masked_softmax_backward_cluster   a cluster of blocks holds each row
 *
 * Rows are numbered by DIMS, all but the slowest dimension; Y and DY are their strides,
 * dx is contiguous.  PLACE: mask.cuh.  Masks that are added need no kernel here.
 */
#pragma once
#include "common/index.cuh"
#include "common/mask.cuh"
#include "common/softmax_backward.cuh"

template <class SHAPE, class MASK, class PLACE, bool LOOP, i64 Y_STEP, i64 DY_STEP, class DIMS,
		  class Y, class DY, typename Index, typename T, typename Compute>
DEVICE void masked_softmax_backward_held(const T *y, const T *dy, typename MASK::Given given, T *dx,
										 Compute scale, i64 rows)
{
	const i64 step[2] = {Y_STEP, DY_STEP};
	row_each<SHAPE, LOOP, Index>(rows, [&](Index row, bool here) {
		const MASK mask = PLACE::template at<MASK>(given, row);
		const T *const from[2] = {y + index_offset<i64>(row, DIMS{}, Y{}),
								  dy + index_offset<i64>(row, DIMS{}, DY{})};
		softmax_backward_row<SHAPE, false>(
			from, step, dx + static_cast<i64>(row) * SHAPE::row::columns, 1, scale, mask, here);
	});
}

template <class SHAPE, class MASK, class PLACE, bool LOOP, i64 Y_STEP, i64 DY_STEP, class DIMS,
		  class Y, class DY, typename Index, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void masked_softmax_backward_rows(
	const T *y, const T *dy, typename MASK::Given given, T *dx, Compute scale, i64 rows)
{
	masked_softmax_backward_held<SHAPE, MASK, PLACE, LOOP, Y_STEP, DY_STEP, DIMS, Y, DY, Index>(
		y, dy, given, dx, scale, rows);
}

template <class SHAPE, class MASK, class PLACE, bool LOOP, i64 Y_STEP, i64 DY_STEP, class DIMS,
		  class Y, class DY, typename Index, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads)
	CLUSTER_OF(SHAPE::cluster) void masked_softmax_backward_cluster(const T *y, const T *dy,
																	typename MASK::Given given,
																	T *dx, Compute scale, i64 rows)
{
	masked_softmax_backward_held<SHAPE, MASK, PLACE, LOOP, Y_STEP, DY_STEP, DIMS, Y, DY, Index>(
		y, dy, given, dx, scale, rows);
}
