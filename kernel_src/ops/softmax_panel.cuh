/*
 * softmax_panel.cuh: softmax, its logarithm and their backward over a dimension that is not the
 * last, each element read once.  Parameters as in softmax_strided.cuh.
 *
 *   softmax_panel           a block holds each panel, or as much of it as it can
 *   softmax_panel_cluster   a cluster of blocks holds each panel
 */
#pragma once
#include "common/softmax_panel.cuh"

template <class SHAPE, bool LOG, bool LOOP, i64 X_STEP, i64 Y_STEP, i64 X_SIDE, i64 Y_SIDE,
		  class DIMS, class X, class Y, typename Index, typename T, typename Compute>
DEVICE void softmax_panels(const T *x, T *y, Compute before, Compute exponent, Compute after,
						   i64 tiles)
{
	DYN_SHARED(b128, slots);
	panel_begin<SHAPE>();
	strided_each<SHAPE, LOOP, Index>(tiles, [&](Index outer, Index inner, bool here) {
		const i64 side = static_cast<i64>(inner);
		softmax_panel_rows<SHAPE, LOG>(
			x + index_offset<i64>(outer, DIMS{}, X{}) + side * X_SIDE, X_STEP,
			y + index_offset<i64>(outer, DIMS{}, Y{}) + side * Y_SIDE, Y_STEP,
			SoftmaxScale<Compute>{before, exponent, after}, here, SHAPE::inner - side, slots);
	});
}

template <class SHAPE, bool LOG, bool LOOP, i64 X_STEP, i64 Y_STEP, i64 X_SIDE, i64 Y_SIDE,
		  class DIMS, class X, class Y, typename Index, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads,
							 SHAPE::blocks) void softmax_panel(const T *x, T *y, Compute before,
															   Compute exponent, Compute after,
															   i64 tiles)
{
	softmax_panels<SHAPE, LOG, LOOP, X_STEP, Y_STEP, X_SIDE, Y_SIDE, DIMS, X, Y, Index>(
		x, y, before, exponent, after, tiles);
}

template <class SHAPE, bool LOG, bool LOOP, i64 X_STEP, i64 Y_STEP, i64 X_SIDE, i64 Y_SIDE,
		  class DIMS, class X, class Y, typename Index, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads, SHAPE::blocks)
	CLUSTER_OF(SHAPE::cluster) void softmax_panel_cluster(const T *x, T *y, Compute before,
														  Compute exponent, Compute after,
														  i64 tiles)
{
	softmax_panels<SHAPE, LOG, LOOP, X_STEP, Y_STEP, X_SIDE, Y_SIDE, DIMS, X, Y, Index>(
		x, y, before, exponent, after, tiles);
}

template <class SHAPE, bool LOG, bool LOOP, i64 Y_STEP, i64 DY_STEP, i64 DX_STEP, i64 Y_SIDE,
		  i64 DY_SIDE, i64 DX_SIDE, class DIMS, class Y, class DY, class DX, typename Index,
		  typename T, typename Compute>
DEVICE void softmax_backward_panels(const T *y, const T *dy, T *dx, Compute scale, i64 tiles)
{
	DYN_SHARED(b128, slots);
	const i64 step[2] = {Y_STEP, DY_STEP};
	panel_begin<SHAPE>();
	strided_each<SHAPE, LOOP, Index>(tiles, [&](Index outer, Index inner, bool here) {
		const i64 side = static_cast<i64>(inner);
		const T *const from[2] = {y + index_offset<i64>(outer, DIMS{}, Y{}) + side * Y_SIDE,
								  dy + index_offset<i64>(outer, DIMS{}, DY{}) + side * DY_SIDE};
		softmax_backward_panel_rows<SHAPE, LOG>(
			from, step, dx + index_offset<i64>(outer, DIMS{}, DX{}) + side * DX_SIDE, DX_STEP,
			scale, here, SHAPE::inner - side, slots);
	});
}

template <class SHAPE, bool LOG, bool LOOP, i64 Y_STEP, i64 DY_STEP, i64 DX_STEP, i64 Y_SIDE,
		  i64 DY_SIDE, i64 DX_SIDE, class DIMS, class Y, class DY, class DX, typename Index,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads,
							 SHAPE::blocks) void softmax_backward_panel(const T *y, const T *dy,
																		T *dx, Compute scale,
																		i64 tiles)
{
	softmax_backward_panels<SHAPE, LOG, LOOP, Y_STEP, DY_STEP, DX_STEP, Y_SIDE, DY_SIDE, DX_SIDE,
							DIMS, Y, DY, DX, Index>(y, dy, dx, scale, tiles);
}

template <class SHAPE, bool LOG, bool LOOP, i64 Y_STEP, i64 DY_STEP, i64 DX_STEP, i64 Y_SIDE,
		  i64 DY_SIDE, i64 DX_SIDE, class DIMS, class Y, class DY, class DX, typename Index,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads, SHAPE::blocks)
	CLUSTER_OF(SHAPE::cluster) void softmax_backward_panel_cluster(const T *y, const T *dy, T *dx,
																   Compute scale, i64 tiles)
{
	softmax_backward_panels<SHAPE, LOG, LOOP, Y_STEP, DY_STEP, DX_STEP, Y_SIDE, DY_SIDE, DX_SIDE,
							DIMS, Y, DY, DX, Index>(y, dy, dx, scale, tiles);
}
