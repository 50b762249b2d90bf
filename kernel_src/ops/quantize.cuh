/*
 * quantize.cuh: elements divided by scales that are given, into 8 bits, and back:
 *
 *   quantize     y = x / scale, which saturates
 *   dequantize   y = x * scale
 *
 * Each thread makes one vector of y (flat.cuh).  `group` elements of y that lie side by side share
 * a scale, and scales lie side by side.
 */
#pragma once
#include "common/flat.cuh"
#include "common/quantize.cuh"

/* Which scale element e has.  GROUP 0: there is one. */
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

template <bool BACK, int V>
DEVICE void quantize_scale(float scale, float (&values)[V])
{
	if constexpr (BACK) {
#pragma unroll
		for (int j = 0; j < V; j++)
			values[j] *= scale;
	} else {
		QuantizeScale(scale).divide(values);
	}
}

template <bool BACK, int V, int WAY, bool LOOP, class ROWS, class X, class GROUPS, typename OUT>
DEVICE void quantize_of(const ROWS &rows, const X &x, const GROUPS &groups, const float *scale,
						OUT *y, typename ROWS::Number elements)
{
	typedef typename ROWS::Number Number;

	flat_each<V, LOOP>(elements, [&](Number e) {
		const FlatPlace<ROWS, V> place(rows, e, elements);
		float values[V];
		flat_load<WAY>(rows, place, x, elements, values);
		if (groups.template whole<V>(e)) {
			quantize_scale<BACK>(scale[groups.of(e)], values);
		} else {
#pragma unroll
			for (int j = 0; j < V; j++) {
				const Number at = e + static_cast<Number>(j);
				float one[1] = {values[j]};
				quantize_scale<BACK>(scale[groups.of(at < elements ? at : elements - 1)], one);
				values[j] = one[0];
			}
		}
		flat_store(y, e, elements, values);
	});
}

/* ---- Kernels: COLUMNS and the lists as in flat.cuh ---- */

template <typename T, typename OUT, bool BACK, int V, int WAY, int THREADS, bool LOOP, i64 GROUP,
		  i64 COLUMNS, class DIMS, i64 X_STEP, class X, typename Index>
__global__ LAUNCH_BOUNDS(THREADS) void quantize(const T *x, const float *scale, OUT *y,
												i64 elements)
{
	quantize_of<BACK, V, WAY, LOOP>(FlatRows<Index, COLUMNS>{}, FlatOperand<T, X_STEP, DIMS, X>{x},
									QuantizeGroups<Index, GROUP>{}, scale, y,
									static_cast<Index>(elements));
}

#define QUANTIZE_THREADS 256 /* of a block of the generic kernel, at most */

template <typename T, typename OUT, bool BACK, int V, int WAY>
__global__ __launch_bounds__(QUANTIZE_THREADS) void quantize_generic(
	const T *x, const float *scale, OUT *y, u64 elements, DIVIDE_PARAMS(u64, group), u32 one,
	DIVIDE_PARAMS(u64, columns), u32 lone, i64 x_step, SPACE_SIZES(u64), SPACE_STRIDES(of_x))
{
	quantize_of<BACK, V, WAY, true>(
		FlatAny{DIVIDE_MADE(u64, columns), lone != 0}, FLAT_OPERAND(T, x, x_step, of_x),
		QuantizeGroupsAny{DIVIDE_MADE(u64, group), one != 0}, scale, y, elements);
}
