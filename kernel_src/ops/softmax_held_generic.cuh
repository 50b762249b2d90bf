/*
 * softmax_held_generic.cuh: softmax and its logarithm along rows that threads hold, for sizes and
 * strides that are known when the kernel is launched.  Columns are 1 apart.
 */
#pragma once
#include "common/row_held.cuh"
#include "common/softmax_rows.cuh"

template <class SHAPE, bool LOG, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ HELD_BOUNDS(SHAPE) void softmax_held_generic(const T *x, T *y, Compute before,
														Compute exponent, Compute after, i64 rows,
														i64 columns, SPACE_SIZES(u64),
														SPACE_STRIDES(of_x), SPACE_STRIDES(of_y))
{
	const Space<2, u64> space = {SPACE_SIZES_MADE(u64),
								 {SPACE_STRIDES_MADE(of_x), SPACE_STRIDES_MADE(of_y)}};

	row_each<SHAPE, true, i64>(rows, [&](i64 number, bool here) {
		i64 at[2];
		space.at(static_cast<u64>(number), at);
		const typename SHAPE::row row(x + at[0], columns, SHAPE::group::thread());
		softmax_row_of<SHAPE, LOG>(row, x + at[0], 1, y + at[1], 1,
								   SoftmaxScale<Compute>{before, exponent, after},
								   SoftmaxAll<Compute>{}, here);
	});
}
