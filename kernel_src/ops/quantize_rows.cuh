/*
 * quantize_rows.cuh: rows divided by scales of their own, into 8 bits: scale = the row's largest
 * magnitude / the largest number of the type, but at least `least`.  A row is a row of the tensor,
 * or a group of its elements.
 *
 *   quantize_rows           a group of threads holds each row
 *   quantize_rows_stream    a block reads each row twice
 *   quantize_rows_generic   does so for sizes and strides that are known at the launch
 *
 * Rows are numbered by DIMS, all but the slowest dimension; X and Y are their strides.  GROUPS of
 * them make a row of the tensor: its scales begin scale_row apart from the next row's, and lie
 * scale_step apart.
 */
#pragma once
#include "common/index.cuh"
#include "common/quantize_row.cuh"
#include "common/row.cuh"
#include "common/row_any.cuh"
#include "common/row_stream.cuh"
#include "common/space.cuh"

/* Where the scale of row or group `number` is. */
DEVICE i64 quantize_scale_at(i64 number, i64 groups, i64 scale_row, i64 scale_step)
{
	const i64 row = groups == 1 ? number : number / groups;

	return row * scale_row + (number - row * groups) * scale_step;
}

template <class SHAPE, bool LOOP, i64 X_STEP, class DIMS, class X, class Y, typename Index,
		  typename OUT, i64 GROUPS, typename T = typename SHAPE::Element>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void quantize_rows(const T *x, OUT *y, float *scales,
															float share, float more, float least,
															i64 scale_row, i64 scale_step, i64 rows)
{
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	constexpr int V = Row::length;
	DYN_SHARED(b128, slots);

	row_each<SHAPE, LOOP, Index>(rows, [&](Index number, bool here) {
		const T *const from[1] = {x + index_offset<i64>(number, DIMS{}, X{})};
		OUT *const to = y + index_offset<i64>(number, DIMS{}, Y{});
		const i64 step[1] = {X_STEP};
		const Row row(from[0], Group::thread(), Group::slice());
		typename SHAPE::template words<1> words(slots);
		QuantizeMost mine = QuantizeMost::none();

		if constexpr (V > 1 && SHAPE::slots == 0) {
#pragma unroll
			for (int n = 0; n < Row::held; n++)
				if (row.has(n))
					vec_load<Row::bytes>(from[0] + row.first + (row.column(n) - row.first),
										 words.word[n][0]);
		} else {
			words.fetch(row, from, step);
			words.arrive();
		}
		words.each(row,
				   [&](int n, float(&values)[1][V]) { quantize_take(row, n, values[0], mine); });
		mine = Group::template reduce<0>(mine);
		if (!here)
			return;
		const float found = QuantizeLimits{share, more, least}.scale(mine);
		const QuantizeScale<T> scale(found);
		if (scales && Group::thread() == 0)
			scales[quantize_scale_at(static_cast<i64>(number), GROUPS, scale_row, scale_step)] =
				found;
		words.each(row, [&](int n, float(&values)[1][V]) {
			scale.divide(values[0]);
			quantize_store(row, n, to, values[0]);
		});
	});
}

/* The second time the row is read from its end, so that what was read last is still near. */
template <class ROW, typename T, typename OUT, typename Reduce>
DEVICE void quantize_steps(const ROW &row, typename ROW::Column steps, const T *x, i64 x_step,
						   OUT *y, float *scale_to, const QuantizeLimits &limits, bool here,
						   Reduce reduce)
{
	typedef typename ROW::Column Column;
	constexpr int V = ROW::length;
	const T *const from[1] = {x};
	const i64 apart[1] = {x_step};
	QuantizeMost mine = QuantizeMost::none();
	RowStep<ROW, 1> held;

#pragma unroll 1
	for (Column step = 0; step < steps; step++) {
		held.fetch(row, step, from, apart);
		held.each(row, step, [&](Column n, int, float(&values)[1][V]) {
			quantize_take(row, n, values[0], mine);
		});
	}
	mine = reduce(mine);
	if (!here)
		return;
	const float found = limits.scale(mine);
	const QuantizeScale<T> scale(found);
	if (scale_to)
		*scale_to = found;
#pragma unroll 1
	for (Column step = steps; step-- > 0;) {
		if (step < steps - 1)
			held.fetch(row, step, from, apart);
		held.each(row, step, [&](Column n, int, float(&values)[1][V]) {
			scale.divide(values[0]);
			quantize_store(row, n, y, values[0]);
		});
	}
}

template <class ROW, bool LOOP, i64 X_STEP, class DIMS, class X, class Y, typename Index,
		  typename OUT, i64 GROUPS, typename T = typename ROW::Element>
__global__ LAUNCH_BOUNDS(ROW::threads) void quantize_rows_stream(const T *x, OUT *y, float *scales,
																 float share, float more,
																 float least, i64 scale_row,
																 i64 scale_step, i64 rows)
{
	row_each<ROW, LOOP, Index>(
		rows,
		[&](Index number, bool here) {
			const T *const from = x + index_offset<i64>(number, DIMS{}, X{});
			quantize_steps(
				ROW(from), ROW::steps(), from, X_STEP, y + index_offset<i64>(number, DIMS{}, Y{}),
				scales && threadIdx.x == 0
					? scales +
						  quantize_scale_at(static_cast<i64>(number), GROUPS, scale_row, scale_step)
					: nullptr,
				QuantizeLimits{share, more, least}, here,
				[](const QuantizeMost &mine) { return ROW::group::template reduce<0>(mine); });
		});
}

template <typename T, int V, typename OUT>
__global__ __launch_bounds__(ROW_ANY_THREADS, 1) void quantize_rows_generic(
	const T *x, OUT *y, float *scales, float share, float more, float least, i64 scale_row,
	i64 scale_step, i64 rows, i64 columns, u32 shift, i64 x_step, i64 groups, SPACE_SIZES(u64),
	SPACE_STRIDES(of_x), SPACE_STRIDES(of_y))
{
	const Space<2, u64> space = {SPACE_SIZES_MADE(u64),
								 {SPACE_STRIDES_MADE(of_x), SPACE_STRIDES_MADE(of_y)}};
	const GroupAny group = {shift};

	row_any_each(group, rows, [&](i64 number, bool here) {
		i64 at[2];
		space.at(static_cast<u64>(number), at);
		const RowAny<T, V, 4> row(x + at[0], columns, group);
		i64 steps = 0;
		while (row.step(steps) < columns)
			steps++;
		quantize_steps(row, steps, x + at[0], x_step, y + at[1],
					   scales && group.thread() == 0
						   ? scales + quantize_scale_at(number, groups, scale_row, scale_step)
						   : nullptr,
					   QuantizeLimits{share, more, least}, here,
					   [&](const QuantizeMost &mine) { return group.reduce(mine); });
	});
}
