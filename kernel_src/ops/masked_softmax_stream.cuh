/*
 * masked_softmax_stream.cuh: masked softmax along rows, each of
 * which a block reads twice.  Parameters as in masked_softmax.cuh.
 */
#pragma once
#include "common/index.cuh"
#include "common/mask.cuh"
#include "common/softmax_stream.cuh"

template <class ROW, class MASK, class PLACE, bool LOOP, i64 X_STEP, class DIMS, class X,
		  typename Index, typename T = typename ROW::Element,
		  typename Compute = typename ROW::Compute>
__global__ LAUNCH_BOUNDS(ROW::threads) void masked_softmax_stream(const T *x,
																  typename MASK::Given given, T *y,
																  Compute before, Compute exponent,
																  Compute after, i64 rows)
{
	row_each<ROW, LOOP, Index>(
		rows,
		[&](Index row, bool) {
			const MASK mask = PLACE::template at<MASK>(given, row);
			softmax_stream_row<ROW, false>(x + index_offset<i64>(row, DIMS{}, X{}), X_STEP,
										   y + static_cast<i64>(row) * ROW::columns, 1,
										   SoftmaxScale<Compute>{before, exponent, after}, mask);
		});
}
