/*
 * softmax_generic.cuh: softmax, its logarithm and their backward along rows, for sizes and strides
 * that are known when the kernel is launched.
 *
 *   softmax_generic            y of x
 *   softmax_backward_generic   dx of y and dy
 *
 * V: elements that move at once, 16 bytes of them or one (row_any.cuh).
 */
#pragma once
#include "common/softmax_any.cuh"
#include "common/space.cuh"

template <typename T, int V, bool LOG, typename Compute = typename element<T>::compute>
__global__ __launch_bounds__(ROW_ANY_THREADS, 1) void softmax_generic(
	const T *x, T *y, Compute before, Compute exponent, Compute after, i64 rows, i64 columns,
	u32 shift, i64 x_step, i64 y_step, SPACE_SIZES(u64), SPACE_STRIDES(of_x), SPACE_STRIDES(of_y))
{
	typedef RowAny<T, V, 4> Row;
	const Space<2, u64> space = {SPACE_SIZES_MADE(u64),
								 {SPACE_STRIDES_MADE(of_x), SPACE_STRIDES_MADE(of_y)}};
	const GroupAny group = {shift};

	row_any_each(group, rows, [&](i64 row, bool here) {
		i64 at[2];
		space.at(static_cast<u64>(row), at);
		softmax_any_row<Row, LOG>(group, x + at[0], x_step, y + at[1], y_step, columns,
								  SoftmaxScale<Compute>{before, exponent, after},
								  SoftmaxAll<Compute>{}, here);
	});
}

template <typename T, int V, bool LOG, typename Compute = typename element<T>::compute>
__global__ __launch_bounds__(ROW_ANY_THREADS, 1) void softmax_backward_generic(
	const T *y, const T *dy, T *dx, Compute scale, i64 rows, i64 columns, u32 shift, i64 y_step,
	i64 dy_step, i64 dx_step, SPACE_SIZES(u64), SPACE_STRIDES(of_y), SPACE_STRIDES(of_dy),
	SPACE_STRIDES(of_dx))
{
	typedef RowAny<T, V, 2> Row;
	const Space<3, u64> space = {
		SPACE_SIZES_MADE(u64),
		{SPACE_STRIDES_MADE(of_y), SPACE_STRIDES_MADE(of_dy), SPACE_STRIDES_MADE(of_dx)}};
	const GroupAny group = {shift};
	const i64 step[2] = {y_step, dy_step};

	row_any_each(group, rows, [&](i64 row, bool here) {
		i64 at[3];
		space.at(static_cast<u64>(row), at);
		const T *const from[2] = {y + at[0], dy + at[1]};
		softmax_backward_any_row<Row, LOG>(group, from, step, dx + at[2], dx_step, columns, scale,
										   SoftmaxAll<Compute>{}, here);
	});
}
