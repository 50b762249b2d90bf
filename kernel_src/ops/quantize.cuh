/*
 * quantize.cuh: elements divided by scales that are given, into 8 bits, and back:
 *
 *   quantize     y = x / scale, which saturates
 *   dequantize   y = x * scale
 *
 * Each thread makes a vector of y (flat.cuh), or some that lie a block apart.  `group` elements of
 * y that lie side by side share a scale.  Scales lie side by side, or apart: those of the groups of
 * a row scale_step from each other, and the first ones of rows scale_row.
 */
#pragma once
#include "common/flat.cuh"
#include "common/quantize.cuh"

/* Returns the number of the scale of element e.  GROUP 0: there is one scale. */
template <typename Index, i64 GROUP>
struct QuantizeGroups {
	DEVICE Index of(Index e) const
	{
		return GROUP == 0 ? 0 : e / static_cast<Index>(GROUP ? GROUP : 1);
	}
	/* Do the elements of a vector share a scale, wherever it begins? */
	template <int V>
	DEVICE bool whole(Index) const
	{
		return GROUP % V == 0;
	}
};

struct QuantizeGroupsAny {
	Divisor<u64> group;
	bool lone;

	DEVICE u64 of(u64 e) const
	{
		return lone ? 0 : group.quotient(e);
	}
	template <int V>
	DEVICE bool whole(u64 e) const
	{
		return lone || of(e) == of(e + V - 1);
	}
};

/* The same of scales that lie apart, of which a row has GROUPS. */
template <typename Index, i64 GROUP, i64 GROUPS>
struct QuantizeGroupsApart : QuantizeGroups<Index, GROUP> {
	i64 scale_row, scale_step;

	DEVICE QuantizeGroupsApart(i64 scale_row, i64 scale_step)
		: scale_row(scale_row), scale_step(scale_step)
	{
	}
	DEVICE i64 of(Index e) const
	{
		const Index number = QuantizeGroups<Index, GROUP>::of(e);
		const Index row = number / static_cast<Index>(GROUPS);
		return static_cast<i64>(row) * scale_row +
			   static_cast<i64>(number - row * static_cast<Index>(GROUPS)) * scale_step;
	}
};

struct QuantizeGroupsAnyApart : QuantizeGroupsAny {
	Divisor<u64> groups;
	i64 scale_row, scale_step;

	DEVICE QuantizeGroupsAnyApart(const QuantizeGroupsAny &all, const Divisor<u64> &groups,
								  i64 scale_row, i64 scale_step)
		: QuantizeGroupsAny(all), groups(groups), scale_row(scale_row), scale_step(scale_step)
	{
	}
	DEVICE i64 of(u64 e) const
	{
		const u64 number = QuantizeGroupsAny::of(e), row = groups.quotient(number);
		return static_cast<i64>(row) * scale_row +
			   static_cast<i64>(number - row * groups.size) * scale_step;
	}
};

template <bool BACK, typename T, int V>
DEVICE void quantize_scale(float scale, float (&values)[V])
{
	if constexpr (BACK) {
#pragma unroll
		for (int j = 0; j < V; j++)
			values[j] *= scale;
	} else {
		QuantizeScale<T>(scale).divide(values);
	}
}

/* The vector at e. */
template <bool BACK, int V, int WAY, class ROWS, class X, class GROUPS, typename OUT>
DEVICE void quantize_vector(const ROWS &rows, const X &x, const GROUPS &groups, const float *scale,
							OUT *y, typename ROWS::Number e, typename ROWS::Number elements)
{
	typedef typename ROWS::Number Number;
	typedef typename X::Element T;
	const FlatPlace<ROWS, V> place(rows, e, elements);
	float values[V];

	flat_load<WAY>(rows, place, x, elements, values);
	if (groups.template whole<V>(e)) {
		quantize_scale<BACK, T>(scale[groups.of(e)], values);
	} else {
#pragma unroll
		for (int j = 0; j < V; j++) {
			const Number at = e + static_cast<Number>(j);
			float one[1] = {values[j]};
			quantize_scale<BACK, T>(scale[groups.of(at < elements ? at : elements - 1)], one);
			values[j] = one[0];
		}
	}
	flat_store(y, e, elements, values);
}

/* COUNT vectors from e on, `apart` elements apart: all are whole, none lies in two rows, and each
 * has one scale.  Scales come first, or the vectors would be waited for before. */
template <bool BACK, int V, int COUNT, class ROWS, class X, class GROUPS, typename OUT>
DEVICE void quantize_vectors(const ROWS &rows, const X &x, const GROUPS &groups, const float *scale,
							 OUT *y, typename ROWS::Number e, typename ROWS::Number apart)
{
	typedef typename ROWS::Number Number;
	typedef typename X::Element T;
	constexpr int bytes = V * static_cast<int>(sizeof(T)), to = V * static_cast<int>(sizeof(OUT));
	float by[COUNT];
	u32 words[COUNT][vec_words<bytes>];

#pragma unroll
	for (int u = 0; u < COUNT; u++)
		by[u] = scale[groups.of(e + static_cast<Number>(u) * apart)];
#pragma unroll
	for (int u = 0; u < COUNT; u++) {
		const Number at = e + static_cast<Number>(u) * apart, row = rows.row(at);
		vec_load<bytes>(x.start + x.at(row, rows.column(at, row)), words[u]);
	}
#pragma unroll
	for (int u = 0; u < COUNT; u++) {
		float values[V];
		u32 out[vec_words<to>];
		element_unpack<T>(words[u], values);
		quantize_scale<BACK, T>(by[u], values);
		element_pack<OUT>(values, out);
		vec_store<to>(y + e + static_cast<Number>(u) * apart, out);
	}
}

/* ---- Kernels: COLUMNS and the lists as in flat.cuh ---- */

/* All of y.  COUNT: vectors of a thread, a block's apart. */
template <typename OUT, bool BACK, int V, int COUNT, int WAY, int THREADS, bool LOOP, i64 GROUP,
		  class ROWS, class X, class GROUPS>
DEVICE void quantize_all(const ROWS &rows, const X &x, const GROUPS &groups, const float *scale,
						 OUT *y, i64 elements)
{
	typedef typename ROWS::Number Index;
	constexpr Index apart = THREADS * V, block = COUNT * apart;
	const Index end = static_cast<Index>(elements), all = static_cast<Index>(gridDim.x) * block;

#pragma unroll 1
	for (Index first = static_cast<Index>(blockIdx.x) * block; first < end; first += all) {
		const Index mine = first + static_cast<Index>(threadIdx.x) * V;
		if (WAY == FLAT_WHOLE && GROUP % V == 0 && first + block <= end) {
			quantize_vectors<BACK, V, COUNT>(rows, x, groups, scale, y, mine, apart);
		} else {
#pragma unroll 1
			for (Index e = mine; e < end && e < first + block; e += apart)
				quantize_vector<BACK, V, WAY>(rows, x, groups, scale, y, e, end);
		}
		if (!LOOP)
			break;
	}
}

template <typename T, typename OUT, bool BACK, int V, int COUNT, int WAY, int THREADS, bool LOOP,
		  i64 GROUP, i64 COLUMNS, class DIMS, i64 X_STEP, class X, typename Index>
__global__ LAUNCH_BOUNDS(THREADS) void quantize(const T *x, const float *scale, OUT *y,
												i64 elements)
{
	quantize_all<OUT, BACK, V, COUNT, WAY, THREADS, LOOP, GROUP>(
		FlatRows<Index, COLUMNS>{}, FlatOperand<T, X_STEP, DIMS, X>{x},
		QuantizeGroups<Index, GROUP>{}, scale, y, elements);
}

template <typename T, typename OUT, bool BACK, int V, int COUNT, int WAY, int THREADS, bool LOOP,
		  i64 GROUP, i64 GROUPS, i64 COLUMNS, class DIMS, i64 X_STEP, class X, typename Index>
__global__ LAUNCH_BOUNDS(THREADS) void quantize_apart(const T *x, const float *scale, OUT *y,
													  i64 elements, i64 scale_row, i64 scale_step)
{
	quantize_all<OUT, BACK, V, COUNT, WAY, THREADS, LOOP, GROUP>(
		FlatRows<Index, COLUMNS>{}, FlatOperand<T, X_STEP, DIMS, X>{x},
		QuantizeGroupsApart<Index, GROUP, GROUPS>(scale_row, scale_step), scale, y, elements);
}

#define QUANTIZE_THREADS 256 /* of a block of the generic kernels, at most */
#define QUANTIZE_SPACE                                                                     \
	DIVIDE_PARAMS(u64, group), u32 one, DIVIDE_PARAMS(u64, columns), u32 lone, i64 x_step, \
		SPACE_SIZES(u64), SPACE_STRIDES(of_x)

template <typename T, typename OUT, bool BACK, int V, int WAY>
__global__ __launch_bounds__(QUANTIZE_THREADS) void quantize_generic(const T *x, const float *scale,
																	 OUT *y, u64 elements,
																	 QUANTIZE_SPACE)
{
	const FlatAny rows = {DIVIDE_MADE(u64, columns), lone != 0};
	const QuantizeGroupsAny groups = {DIVIDE_MADE(u64, group), one != 0};

	flat_each<V, true>(elements, [&](u64 e) {
		quantize_vector<BACK, V, WAY>(rows, FLAT_OPERAND(T, x, x_step, of_x), groups, scale, y, e,
									  elements);
	});
}

template <typename T, typename OUT, bool BACK, int V, int WAY>
__global__ __launch_bounds__(QUANTIZE_THREADS) void quantize_apart_generic(
	const T *x, const float *scale, OUT *y, u64 elements, i64 scale_row, i64 scale_step,
	DIVIDE_PARAMS(u64, groups), QUANTIZE_SPACE)
{
	const FlatAny rows = {DIVIDE_MADE(u64, columns), lone != 0};
	const QuantizeGroupsAnyApart apart({DIVIDE_MADE(u64, group), one != 0},
									   DIVIDE_MADE(u64, groups), scale_row, scale_step);

	flat_each<V, true>(elements, [&](u64 e) {
		quantize_vector<BACK, V, WAY>(rows, FLAT_OPERAND(T, x, x_step, of_x), apart, scale, y, e,
									  elements);
	});
}
