/*
 * act_mul_quantize.cuh: rows of v = act(x) * other, divided by a scale and stored in 8 bits.  The
 * scale is given, or the row's own, or each group of GROUP columns has its own.
 *
 *   act_mul_quantize_flat      a vector a thread, where no scale is that of a row
 *   act_mul_quantize           a group of threads holds each row of v
 *   act_mul_quantize_stream    a block reads each row again whenever it needs it
 *   act_mul_quantize_generic   does so for sizes, strides and an activation that are known at the
 *                              launch
 *
 * v is never rounded before it is divided.
 */
#pragma once
#include "common/act.cuh"
#include "common/index.cuh"
#include "common/quantize_row.cuh"
#include "common/space.cuh"

/* Without other x has both: rows of other begin `half` elements behind those of x. */
#define ACT_QUANTIZE_OPERANDS(T, OUT)                                                   \
	const T *x, const T *other, const float *given, OUT *y, float *scales, float share, \
		float more, float least, i64 scale_row, i64 scale_step, i64 rows, i64 half

/* Where a row begins. */
#define ACT_QUANTIZE_INPUTS(x_at, other_at, x_step, other_step)                     \
	const T *const from[2] = {x + (x_at), (other ? other : x + half) + (other_at)}; \
	const i64 step[2] = {x_step, other_step};
#define ACT_QUANTIZE_ROW(y_at, lead)                                                         \
	QuantizeRow<OUT>                                                                         \
	{                                                                                        \
		given, y + (y_at), scales ? scales + static_cast<i64>(number) * scale_row : nullptr, \
			scale_step, QuantizeLimits{share, more, least}, lead, here                       \
	}

/* v of a vector of x and of other. */
template <int ACT>
struct ActQuantize {
	template <int V>
	DEVICE void operator()(const float (&values)[2][V], float (&v)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			float value, unused;
			act_of<ACT>(values[0][j], value, unused);
			v[j] = values[1][j] * value;
		}
	}
};

struct ActQuantizeAny {
	u32 act;

	DEVICE float of(float x, float other) const
	{
		float value, unused;
		act_of(act, x, value, unused);
		return other * value;
	}
	template <int V>
	DEVICE void operator()(const float (&values)[2][V], float (&v)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++)
			v[j] = of(values[0][j], values[1][j]);
	}
};

/* v of a row that threads hold. */
template <class ROW>
struct ActQuantizeHeld {
	const ROW &row;
	float (&held)[ROW::held][ROW::length];

	template <typename Body>
	DEVICE void each(const Body &body) const
	{
#pragma unroll
		for (int n = 0; n < ROW::held; n++)
			if (row.has(n))
				body(n, held[n]);
	}
};

/* v of a row that is read again each time. */
template <class ROW, class MAKE>
struct ActQuantizeRead {
	const ROW &row;
	typename ROW::Column steps;
	const typename ROW::Element *const (&from)[2];
	const i64 (&step)[2];
	const MAKE &make;

	template <typename Body>
	DEVICE void each(const Body &body) const
	{
		quantize_read(row, steps, from, step, make, body);
	}
};

/* Rows are whole vectors of V elements, and whole groups, of which neighbouring lanes have one
 * vector each; GROUP 0: the scale is given. */
template <typename T, typename OUT, int V, int THREADS, int ACT, i64 GROUP, i64 COLUMNS, class DIMS,
		  class X, class OTHER, typename Index>
__global__ LAUNCH_BOUNDS(THREADS) void act_mul_quantize_flat(ACT_QUANTIZE_OPERANDS(T, OUT))
{
	constexpr int bytes = V * static_cast<int>(sizeof(T));
	constexpr int lanes = GROUP ? static_cast<int>(GROUP / V) : 1;
	constexpr Index columns = static_cast<Index>(COLUMNS);
	static_assert(COLUMNS % V == 0 && (lanes & (lanes - 1)) == 0 && lanes <= 32, "whole vectors");
	const Index e =
		(static_cast<Index>(blockIdx.x) * THREADS + static_cast<Index>(threadIdx.x)) * V;
	const bool here = e < static_cast<Index>(rows) * columns;
	const Index number = (here ? e : 0) / columns, column = here ? e - number * columns : 0;
	u32 word[2][vec_words<bytes>];
	float values[2][V], v[V], found = 0;

	if (GROUP == 0)
		found = *given;
	vec_load<bytes>(x + index_offset<i64>(number, DIMS{}, X{}) + column, word[0]);
	vec_load<bytes>(
		(other ? other : x + half) + index_offset<i64>(number, DIMS{}, OTHER{}) + column, word[1]);
#pragma unroll
	for (int i = 0; i < 2; i++)
		element_unpack<T>(word[i], values[i]);
	ActQuantize<ACT>()(values, v);
	if constexpr (GROUP > 0) {
		QuantizeMost most = QuantizeMost::none();
#pragma unroll
		for (int j = 0; j < V; j++)
			most.take(v[j]);
		found = QuantizeLimits{share, more, least}.scale(group_butterfly<lanes>(most));
	}
	if (!here)
		return;
	if (scales) {
		if (GROUP > 0 && threadIdx.x % lanes == 0)
			scales[static_cast<i64>(number) * scale_row +
				   static_cast<i64>(column / static_cast<Index>(GROUP ? GROUP : 1)) * scale_step] =
				found;
		if (GROUP == 0 && column == 0)
			scales[static_cast<i64>(number) * scale_row] = found;
	}
	QuantizeNear(found).divide(v);
	u32 out[vec_words<V>];
	element_pack<OUT>(v, out);
	vec_store<V>(y + e, out);
}

template <class SHAPE, typename OUT, int ACT, bool LOOP, i64 X_STEP, i64 OTHER_STEP, class DIMS,
		  class X, class OTHER, class Y, typename Index, typename T = typename SHAPE::Element>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void act_mul_quantize(ACT_QUANTIZE_OPERANDS(T, OUT))
{
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	constexpr int V = Row::length;

	row_each<SHAPE, LOOP, Index>(rows, [&](Index number, bool here) {
		ACT_QUANTIZE_INPUTS((index_offset<i64>(number, DIMS{}, X{})),
							(index_offset<i64>(number, DIMS{}, OTHER{})), X_STEP, OTHER_STEP)
		const Row row(from[0], Group::thread(), Group::slice());
		typename SHAPE::template words<2> words(nullptr);
		float held[Row::held][V];
		words.fetch(row, from, step);
		words.each(row,
				   [&](int n, const float(&values)[2][V]) { ActQuantize<ACT>()(values, held[n]); });
		quantize_row<int>(
			row, ACT_QUANTIZE_ROW((index_offset<i64>(number, DIMS{}, Y{})), Group::thread() == 0),
			ActQuantizeHeld<Row>{row, held},
			[](const QuantizeMost &most) { return Group::template reduce<0>(most); });
	});
}

template <class ROW, typename OUT, int ACT, bool LOOP, i64 X_STEP, i64 OTHER_STEP, class DIMS,
		  class X, class OTHER, class Y, typename Index, typename T = typename ROW::Element>
__global__ LAUNCH_BOUNDS(ROW::threads) void act_mul_quantize_stream(ACT_QUANTIZE_OPERANDS(T, OUT))
{
	row_each<ROW, LOOP, Index>(
		rows,
		[&](Index number, bool here) {
			ACT_QUANTIZE_INPUTS((index_offset<i64>(number, DIMS{}, X{})),
								(index_offset<i64>(number, DIMS{}, OTHER{})), X_STEP, OTHER_STEP)
			const ROW row(from[0]);
			const ActQuantize<ACT> make = {};
			quantize_row<typename ROW::Column>(
				row, ACT_QUANTIZE_ROW((index_offset<i64>(number, DIMS{}, Y{})), threadIdx.x == 0),
				ActQuantizeRead<ROW, ActQuantize<ACT>>{row, ROW::steps(), from, step, make},
				[](const QuantizeMost &most) { return ROW::group::template reduce<0>(most); });
		});
}

/* whole: rows and groups are whole aligned vectors of V, of which 2^lanes make a group. */
template <typename T, int V, typename OUT>
__global__ __launch_bounds__(ROW_ANY_THREADS, 1) void act_mul_quantize_generic(
	ACT_QUANTIZE_OPERANDS(T, OUT), u32 act, i64 group, i64 columns, u32 shift, u32 whole, u32 lanes,
	i64 x_step, i64 other_step, SPACE_SIZES(u64), SPACE_STRIDES(of_x), SPACE_STRIDES(of_other),
	SPACE_STRIDES(of_y))
{
	const Space<3, u64> space = {
		SPACE_SIZES_MADE(u64),
		{SPACE_STRIDES_MADE(of_x), SPACE_STRIDES_MADE(of_other), SPACE_STRIDES_MADE(of_y)}};
	const GroupAny threads = {shift};
	const ActQuantizeAny one = {act};

	row_any_each(threads, rows, [&](i64 number, bool here) {
		i64 at[3], steps = 0;
		space.at(static_cast<u64>(number), at);
		ACT_QUANTIZE_INPUTS(at[0], at[1], x_step, other_step)
		const QuantizeRow<OUT> to = ACT_QUANTIZE_ROW(at[2], threads.thread() == 0);
		if (V > 1 && whole) {
			quantize_row_groups_vectors<V>(
				threads, columns, lanes, to, [&](i64 column, float(&v)[V]) {
					constexpr int bytes = V * static_cast<int>(sizeof(T));
					float values[2][V];
#pragma unroll
					for (int i = 0; i < 2; i++) {
						u32 words[vec_words<bytes>];
						vec_load<bytes>(from[i] + column, words);
						element_unpack<T>(words, values[i]);
					}
					one(values, v);
				});
			return;
		}
		if (group > 0) {
			quantize_row_groups_any(threads, columns, group, to, [&](i64 column) {
				return one.of(element_load<float>(from[0] + column * step[0]),
							  element_load<float>(from[1] + column * step[1]));
			});
			return;
		}
		const RowAny<T, V, 2> row(from[0], columns, threads);
		while (row.step(steps) < columns)
			steps++;
		quantize_row<i64>(
			row, to, ActQuantizeRead<RowAny<T, V, 2>, ActQuantizeAny>{row, steps, from, step, one},
			[&](const QuantizeMost &most) { return threads.reduce(most); });
	});
}
