/*
 * softmax_backward.cuh: the backward of softmax and log_softmax, along rows.
 *
 *   softmax_backward_rows      a group of threads holds each row
 *   softmax_backward_cluster   a cluster of blocks holds each row
 *
 * Rows are numbered by DIMS, all but the slowest dimension; Y, DY and DX are their strides.
 */
#pragma once
#include "common/index.cuh"
#include "common/softmax_backward.cuh"

template <class SHAPE, bool LOG, bool LOOP, i64 Y_STEP, i64 DY_STEP, i64 DX_STEP, class DIMS,
		  class Y, class DY, class DX, typename Index, typename T, typename Compute>
DEVICE void softmax_backward_held(const T *y, const T *dy, T *dx, Compute scale, i64 rows)
{
	const i64 step[2] = {Y_STEP, DY_STEP};
	row_each<SHAPE, LOOP, Index>(rows, [&](Index row, bool here) {
		const T *const from[2] = {y + index_offset<i64>(row, DIMS{}, Y{}),
								  dy + index_offset<i64>(row, DIMS{}, DY{})};
		softmax_backward_row<SHAPE, LOG>(from, step, dx + index_offset<i64>(row, DIMS{}, DX{}),
										 DX_STEP, scale, SoftmaxAll<Compute>{}, here);
	});
}

template <class SHAPE, bool LOG, bool LOOP, i64 Y_STEP, i64 DY_STEP, i64 DX_STEP, class DIMS,
		  class Y, class DY, class DX, typename Index, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void softmax_backward_rows(const T *y, const T *dy, T *dx,
																	Compute scale, i64 rows)
{
	softmax_backward_held<SHAPE, LOG, LOOP, Y_STEP, DY_STEP, DX_STEP, DIMS, Y, DY, DX, Index>(
		y, dy, dx, scale, rows);
}

template <class SHAPE, bool LOG, bool LOOP, i64 Y_STEP, i64 DY_STEP, i64 DX_STEP, class DIMS,
		  class Y, class DY, class DX, typename Index, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads)
	CLUSTER_OF(SHAPE::cluster) void softmax_backward_cluster(const T *y, const T *dy, T *dx,
															 Compute scale, i64 rows)
{
	softmax_backward_held<SHAPE, LOG, LOOP, Y_STEP, DY_STEP, DX_STEP, DIMS, Y, DY, DX, Index>(
		y, dy, dx, scale, rows);
}
