/*
 * masked_softmax.cuh: softmax over the elements of a row that a mask leaves, 0 at the others.
 *
 *   masked_softmax_rows      a group of threads holds each row
 *   masked_softmax_cluster   a cluster of blocks holds each row
 *
 * Rows are numbered by DIMS, all but the slowest dimension; X are their strides in x, y is
 * contiguous.  PLACE: mask.cuh.
 */
#pragma once
#include "common/index.cuh"
#include "common/mask.cuh"
#include "common/row_lined.cuh"
#include "common/softmax_rows.cuh"

template <class SHAPE, class MASK, class PLACE, bool LOOP, i64 X_STEP, class DIMS, class X,
		  typename Index, typename T, typename Compute>
DEVICE void masked_softmax_held(const T *x, typename MASK::Given given, T *y, Compute before,
								Compute exponent, Compute after, i64 rows)
{
	typedef typename SHAPE::group Group;
	typedef typename index_choose<SHAPE::row::skewed, RowLined<SHAPE>, SHAPE>::type Shape;

	row_each<SHAPE, LOOP, Index>(rows, [&](Index number, bool here) {
		const Index row = PLACE::template taken<MASK>(number);
		const MASK mask = PLACE::template at<MASK>(given, row);
		T *const to = y + static_cast<i64>(row) * SHAPE::row::columns;
		softmax_row_of<Shape, false>(typename Shape::row(to, Group::thread(), Group::slice()),
									 x + index_offset<i64>(row, DIMS{}, X{}), X_STEP, to, 1,
									 SoftmaxScale<Compute>{before, exponent, after}, mask, here);
	});
}

template <class SHAPE, class MASK, class PLACE, bool LOOP, i64 X_STEP, class DIMS, class X,
		  typename Index, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void masked_softmax_rows(const T *x,
																  typename MASK::Given given, T *y,
																  Compute before, Compute exponent,
																  Compute after, i64 rows)
{
	masked_softmax_held<SHAPE, MASK, PLACE, LOOP, X_STEP, DIMS, X, Index>(x, given, y, before,
																		  exponent, after, rows);
}

template <class SHAPE, class MASK, class PLACE, bool LOOP, i64 X_STEP, class DIMS, class X,
		  typename Index, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads)
	CLUSTER_OF(SHAPE::cluster) void masked_softmax_cluster(const T *x, typename MASK::Given given,
														   T *y, Compute before, Compute exponent,
														   Compute after, i64 rows)
{
	masked_softmax_held<SHAPE, MASK, PLACE, LOOP, X_STEP, DIMS, X, Index>(x, given, y, before,
																		  exponent, after, rows);
}
