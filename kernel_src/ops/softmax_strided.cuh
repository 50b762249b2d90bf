/*
 * softmax_strided.cuh: softmax, its logarithm and their backward over a dimension that is not the
 * last.
 *
 * X_STEP: from column to column of x; X_SIDE: from a row to the one beside it; DIMS and X number
 * the others, as in softmax.cuh.  Kernels ask for one block a multiprocessor: otherwise the
 * compiler spills registers to have as many blocks as it thinks best.
 */
#pragma once
#include "common/softmax_strided.cuh"

template <class SHAPE, bool LOG, bool LOOP, i64 X_STEP, i64 Y_STEP, i64 X_SIDE, i64 Y_SIDE,
		  class DIMS, class X, class Y, typename Index, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads,
							 1) void softmax_strided(const T *x, T *y, Compute before,
													 Compute exponent, Compute after, i64 tiles)
{
	strided_each<SHAPE, LOOP, Index>(
		tiles,
		[&](Index outer, Index inner, bool here) {
			softmax_strided_rows<SHAPE, LOG>(
				x + index_offset<i64>(outer, DIMS{}, X{}) + static_cast<i64>(inner) * X_SIDE,
				X_STEP,
				y + index_offset<i64>(outer, DIMS{}, Y{}) + static_cast<i64>(inner) * Y_SIDE,
				Y_STEP, SoftmaxScale<Compute>{before, exponent, after}, here);
		});
}

template <class SHAPE, bool LOG, bool LOOP, i64 Y_STEP, i64 DY_STEP, i64 DX_STEP, i64 Y_SIDE,
		  i64 DY_SIDE, i64 DX_SIDE, class DIMS, class Y, class DY, class DX, typename Index,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads,
							 1) void softmax_backward_strided(const T *y, const T *dy, T *dx,
															  Compute scale, i64 tiles)
{
	const i64 step[2] = {Y_STEP, DY_STEP};
	strided_each<SHAPE, LOOP, Index>(tiles, [&](Index outer, Index inner, bool here) {
		const i64 side = static_cast<i64>(inner);
		const T *const from[2] = {y + index_offset<i64>(outer, DIMS{}, Y{}) + side * Y_SIDE,
								  dy + index_offset<i64>(outer, DIMS{}, DY{}) + side * DY_SIDE};
		softmax_backward_strided_rows<SHAPE, LOG>(
			from, step, dx + index_offset<i64>(outer, DIMS{}, DX{}) + side * DX_SIDE, DX_STEP,
			scale, here);
	});
}
