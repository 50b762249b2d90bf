/*
 * softmax_stream.cuh: softmax and its logarithm along rows, each of which a block reads twice.
 * Parameters as in softmax.cuh.
 */
#pragma once
#include "common/index.cuh"
#include "common/softmax_stream.cuh"

template <class ROW, bool LOG, bool LOOP, i64 X_STEP, i64 Y_STEP, class DIMS, class X, class Y,
		  typename Index, typename T = typename ROW::Element,
		  typename Compute = typename ROW::Compute>
__global__ LAUNCH_BOUNDS(ROW::threads) void softmax_stream(const T *x, T *y, Compute before,
														   Compute exponent, Compute after,
														   i64 rows)
{
	row_each<ROW, LOOP, Index>(
		rows,
		[&](Index row, bool) {
			softmax_stream_row<ROW, LOG>(x + index_offset<i64>(row, DIMS{}, X{}), X_STEP,
										 y + index_offset<i64>(row, DIMS{}, Y{}), Y_STEP,
										 SoftmaxScale<Compute>{before, exponent, after},
										 SoftmaxAll<Compute>{});
		});
}
