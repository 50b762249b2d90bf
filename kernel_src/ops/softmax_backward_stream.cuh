/*
 * softmax_backward_stream.cuh: the backward of softmax and its logarithm along rows, each of which
 * a block reads twice.  Parameters as in softmax_backward.cuh.
 */
#pragma once
#include "common/index.cuh"
#include "common/softmax_backward_stream.cuh"

template <class ROW, bool LOG, bool LOOP, i64 Y_STEP, i64 DY_STEP, i64 DX_STEP, class DIMS, class Y,
		  class DY, class DX, typename Index, typename T = typename ROW::Element,
		  typename Compute = typename ROW::Compute>
__global__ LAUNCH_BOUNDS(ROW::threads) void softmax_backward_stream(const T *y, const T *dy, T *dx,
																	Compute scale, i64 rows)
{
	const i64 step[2] = {Y_STEP, DY_STEP};
	row_each<ROW, LOOP, Index>(rows, [&](Index row, bool) {
		const T *const from[2] = {y + index_offset<i64>(row, DIMS{}, Y{}),
								  dy + index_offset<i64>(row, DIMS{}, DY{})};
		softmax_backward_stream_row<ROW, LOG>(from, step, dx + index_offset<i64>(row, DIMS{}, DX{}),
											  DX_STEP, scale, SoftmaxAll<Compute>{});
	});
}
