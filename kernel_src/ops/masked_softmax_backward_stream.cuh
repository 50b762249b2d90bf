/*
 * masked_softmax_backward_stream.cuh: the backward of masked softmax along rows, each of
 * which a block reads twice.  Parameters as in masked_softmax_backward.cuh.
 */
#pragma once
#include "common/index.cuh"
#include "common/mask.cuh"
#include "common/softmax_backward_stream.cuh"

template <class ROW, class MASK, class PLACE, bool LOOP, i64 Y_STEP, i64 DY_STEP, class DIMS,
		  class Y, class DY, typename Index, typename T = typename ROW::Element,
		  typename Compute = typename ROW::Compute>
__global__ LAUNCH_BOUNDS(ROW::threads) void masked_softmax_backward_stream(
	const T *y, const T *dy, typename MASK::Given given, T *dx, Compute scale, i64 rows)
{
	const i64 step[2] = {Y_STEP, DY_STEP};
	row_each<ROW, LOOP, Index>(rows, [&](Index row, bool) {
		const MASK mask = PLACE::template at<MASK>(given, row);
		const T *const from[2] = {y + index_offset<i64>(row, DIMS{}, Y{}),
								  dy + index_offset<i64>(row, DIMS{}, DY{})};
		softmax_backward_stream_row<ROW, false>(
			from, step, dx + static_cast<i64>(row) * ROW::columns, 1, scale, mask);
	});
}
