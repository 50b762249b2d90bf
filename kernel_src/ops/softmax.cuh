/*
 * softmax.cuh: y = exp(scale * x - m) / sum of the same over a row, m the row's largest, and its
 * logarithm, along rows.
 *
 *   softmax_rows      a group of threads holds each row
 *   softmax_cluster   a cluster of blocks holds each row
 *
 * Rows are numbered by DIMS, all but the slowest dimension; X and Y are their strides.
 */
#pragma once
#include "common/index.cuh"
#include "common/row_lined.cuh"
#include "common/softmax_rows.cuh"

template <class SHAPE, bool LOG, bool LOOP, i64 X_STEP, i64 Y_STEP, class DIMS, class X, class Y,
		  typename Index, typename T, typename Compute>
DEVICE void softmax_held(const T *x, T *y, Compute before, Compute exponent, Compute after,
						 i64 rows)
{
	typedef typename SHAPE::group Group;
	typedef typename index_choose<SHAPE::row::skewed, RowLined<SHAPE>, SHAPE>::type Shape;

	row_each<SHAPE, LOOP, Index>(rows, [&](Index row, bool here) {
		T *const to = y + index_offset<i64>(row, DIMS{}, Y{});
		softmax_row_of<Shape, LOG>(typename Shape::row(to, Group::thread(), Group::slice()),
								   x + index_offset<i64>(row, DIMS{}, X{}), X_STEP, to, Y_STEP,
								   SoftmaxScale<Compute>{before, exponent, after},
								   SoftmaxAll<Compute>{}, here);
	});
}

template <class SHAPE, bool LOG, bool LOOP, i64 X_STEP, i64 Y_STEP, class DIMS, class X, class Y,
		  typename Index, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void softmax_rows(const T *x, T *y, Compute before,
														   Compute exponent, Compute after,
														   i64 rows)
{
	softmax_held<SHAPE, LOG, LOOP, X_STEP, Y_STEP, DIMS, X, Y, Index>(x, y, before, exponent, after,
																	  rows);
}

template <class SHAPE, bool LOG, bool LOOP, i64 X_STEP, i64 Y_STEP, class DIMS, class X, class Y,
		  typename Index, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads)
	CLUSTER_OF(SHAPE::cluster) void softmax_cluster(const T *x, T *y, Compute before,
													Compute exponent, Compute after, i64 rows)
{
	softmax_held<SHAPE, LOG, LOOP, X_STEP, Y_STEP, DIMS, X, Y, Index>(x, y, before, exponent, after,
																	  rows);
}
