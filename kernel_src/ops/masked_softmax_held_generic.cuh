/*
 * masked_softmax_held_generic.cuh: masked softmax of rows that threads hold, for sizes, strides and
 * masks that are known when the kernel is launched.  Columns of x are 1 apart, the output is
 * contiguous, and nothing is added.
 */
#pragma once
#include "common/mask_any.cuh"
#include "common/row_held.cuh"
#include "common/softmax_rows.cuh"

/* Flags take more registers than HELD_BOUNDS leaves. */
#define MASKED_HELD_BOUNDS(SHAPE) \
	__launch_bounds__(SHAPE::threads, SHAPE::threads < 512 ? 512 / SHAPE::threads : 1)

template <class SHAPE, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ MASKED_HELD_BOUNDS(SHAPE) void masked_softmax_held_generic(
	const T *x, T *y, const void *mask, i64 mask_step, i64 diagonal, u32 kind, u32 keep, u32 empty,
	u32 type, Compute before, Compute exponent, Compute after, i64 rows, i64 columns,
	SPACE_SIZES(u64), SPACE_STRIDES(of_x), SPACE_STRIDES(of_mask))
{
	const Space<2, u64> space = {SPACE_SIZES_MADE(u64),
								 {SPACE_STRIDES_MADE(of_x), SPACE_STRIDES_MADE(of_mask)}};
	const MaskAnyGiven given = {mask, mask_step, diagonal, kind, keep, empty, type};

	row_each<SHAPE, true, i64>(rows, [&](i64 number, bool here) {
		i64 at[2];
		space.at(static_cast<u64>(number), at);
		const typename SHAPE::row row(x + at[0], columns, SHAPE::group::thread());
		softmax_row_of<SHAPE, false>(row, x + at[0], 1, y + number * columns, 1,
									 SoftmaxScale<Compute>{before, exponent, after},
									 MaskAnyFlags<T, int>(given, at[1], columns), here);
	});
}
