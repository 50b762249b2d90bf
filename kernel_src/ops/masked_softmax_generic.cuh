/*
 * masked_softmax_generic.cuh: masked softmax and its backward, for sizes, strides and masks that
 * are known when the kernel is launched.
 *
 *   masked_softmax_generic            MASK: MaskAnyFlags or MaskAnyAdded (mask_any.cuh)
 *   masked_softmax_backward_generic   the same
 *
 * V: elements that move at once, 16 bytes of them or one (row_any.cuh).  The output is contiguous.
 */
#pragma once
#include "common/mask_any.cuh"
#include "common/softmax_any.cuh"
#include "common/space.cuh"

#define MASK_ANY_PARAMS \
	const void *mask, i64 mask_step, i64 diagonal, u32 kind, u32 keep, u32 empty, u32 type
#define MASK_ANY_MADE                                      \
	{                                                      \
		mask, mask_step, diagonal, kind, keep, empty, type \
	}

template <typename T, int V, class MASK, typename Compute = typename element<T>::compute>
__global__ __launch_bounds__(ROW_ANY_THREADS / 2, 1) void masked_softmax_generic(
	const T *x, T *y, MASK_ANY_PARAMS, Compute before, Compute exponent, Compute after, i64 rows,
	i64 columns, u32 shift, i64 x_step, SPACE_SIZES(u64), SPACE_STRIDES(of_x),
	SPACE_STRIDES(of_mask))
{
	typedef RowAny<T, V, 2> Row;
	const Space<2, u64> space = {SPACE_SIZES_MADE(u64),
								 {SPACE_STRIDES_MADE(of_x), SPACE_STRIDES_MADE(of_mask)}};
	const MaskAnyGiven given = MASK_ANY_MADE;
	const GroupAny group = {shift};

	row_any_each(group, rows, [&](i64 row, bool here) {
		i64 at[2];
		space.at(static_cast<u64>(row), at);
		softmax_any_row<Row, false>(group, x + at[0], x_step, y + row * columns, 1, columns,
									SoftmaxScale<Compute>{before, exponent, after},
									MASK(given, at[1], columns), here);
	});
}

template <typename T, int V, class MASK, typename Compute = typename element<T>::compute>
__global__ __launch_bounds__(ROW_ANY_THREADS / 2, 1) void masked_softmax_backward_generic(
	const T *y, const T *dy, T *dx, MASK_ANY_PARAMS, Compute scale, i64 rows, i64 columns,
	u32 shift, i64 y_step, i64 dy_step, SPACE_SIZES(u64), SPACE_STRIDES(of_y), SPACE_STRIDES(of_dy),
	SPACE_STRIDES(of_mask))
{
	typedef RowAny<T, V, 2> Row;
	const Space<3, u64> space = {
		SPACE_SIZES_MADE(u64),
		{SPACE_STRIDES_MADE(of_y), SPACE_STRIDES_MADE(of_dy), SPACE_STRIDES_MADE(of_mask)}};
	const MaskAnyGiven given = MASK_ANY_MADE;
	const GroupAny group = {shift};
	const i64 step[2] = {y_step, dy_step};

	row_any_each(group, rows, [&](i64 row, bool here) {
		i64 at[3];
		space.at(static_cast<u64>(row), at);
		const T *const from[2] = {y + at[0], dy + at[1]};
		softmax_backward_any_row<Row, false>(group, from, step, dx + row * columns, 1, columns,
											 scale, MASK(given, at[2], columns), here);
	});
}
