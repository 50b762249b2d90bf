/*
 * cross_entropy_backward.cuh: the gradient of the loss of rows of logits, whose logarithms of sums
 * the forward has found.  Each thread makes one vector (flat.cuh).  The gradient may lie where the
 * logits do.  The generic kernel takes sizes, strides and the type of targets as arguments.
 */
#pragma once
#include "common/cross_entropy.cuh"
#include "common/flat.cuh"

#define CROSS_ENTROPY_WIDE 4 /* beside the reduction: targets of the generic kernel have 8 bytes */
#define CROSS_ENTROPY_BACKWARD_THREADS 256 /* of a block of the generic kernel, at most */

/* The numbers that all rows have. */
template <typename Compute>
struct CrossEntropyBack {
	const Compute *lse, *dloss;
	const i64 *count; /* of rows that share dloss; nullptr: each has its own, or all of it */
	i64 columns, ignore;
	Compute smoothing, square, part; /* part: of a row that a column has */

	DEVICE i64 shares() const
	{
		return count ? *count : 1;
	}
};

/* target(row) says the target of a row, at(row, lse, dloss) where these two are. */
template <int V, int WAY, bool LOOP, class ROWS, class X, class MASK, typename T, typename Compute,
		  typename Of, typename At>
DEVICE void cross_entropy_backward_of(const ROWS &rows, const X &x, const MASK &mask, T *dx,
									  u64 *report, typename ROWS::Number elements,
									  const CrossEntropyBack<Compute> &back, Of target, At at)
{
	typedef typename ROWS::Number Number;
	u32 strays = 0;

	flat_each<V, LOOP>(elements, [&](Number e) {
		const FlatPlace<ROWS, V> place(rows, e, elements);
		if (place.single) {
			Compute value[V], z[V];
			/* All is read before it is known whether the row is ignored: no load waits. */
			i64 lse_at, dloss_at;
			u32 words[vec_words<V * sizeof(T)>];
			at(place.row, lse_at, dloss_at);
			const auto named = target(place.row);
			const i64 shares = back.shares();
			const Compute lse = back.lse[lse_at], dloss = back.dloss[dloss_at];
			flat_load<WAY>(rows, place, x, elements, z);
			const CrossEntropyTarget mine = cross_entropy_target(named, back.ignore, back.columns);
			strays += mine.stray && place.column == 0;
			const CrossEntropySlope<Compute> slope(
				mine, lse, dloss * inverse_near(static_cast<Compute>(shares)), back.smoothing,
				back.square, back.part);
#pragma unroll
			for (int j = 0; j < V; j++) {
				z[j] = mask.term(0, 0, z[j], Compute(1));
				value[j] = softmax_exp2_flush((z[j] - lse) * Compute(SOFTMAX_LOG2E)) * slope.power;
			}
			slope.template apply<true>(place.column, mask, z, value);
			element_pack<T>(value, words);
#pragma unroll
			for (int w = 0; w < vec_words<V * sizeof(T)>; w++)
				words[w] = mine.live ? words[w] : 0;
			vec_store<V * sizeof(T)>(dx + e, words);
			return;
		}
#pragma unroll 1
		for (int j = 0; j < V && e + static_cast<Number>(j) < elements; j++) {
			const Number row = rows.row(e + j), column = rows.column(e + j, row);
			const CrossEntropyTarget mine =
				cross_entropy_target(target(row), back.ignore, back.columns);
			i64 lse_at, dloss_at;
			at(row, lse_at, dloss_at);
			const Compute lse = back.lse[lse_at];
			const CrossEntropySlope<Compute> slope(
				mine, lse, back.dloss[dloss_at] * inverse_near(static_cast<Compute>(back.shares())),
				back.smoothing, back.square, back.part);
			const Compute z[1] = {
				mask.term(0, 0, element_load<Compute>(x.start + x.at(row, column)), Compute(1))};
			Compute one[1] = {softmax_exp2_flush((z[0] - lse) * Compute(SOFTMAX_LOG2E)) *
							  slope.power};
			slope.template apply<true>(column, mask, z, one);
			one[0] = mine.live ? one[0] : Compute(0);
			element_store(dx + e + j, one[0]);
			strays += mine.stray && column == 0;
		}
	});
	if (report)
		indices_report(report, strays);
}

#define CROSS_ENTROPY_BACK_PARAMS(T, Target, Compute)                                             \
	const T *x, const Target *target, const Compute *lse, const i64 *count, const Compute *dloss, \
		T *dx, u64 *report, i64 elements, i64 ignore, Compute smoothing, Compute square,          \
		Compute cap, u32 reduction
#define CROSS_ENTROPY_BACK_MADE(Compute, columns)                                             \
	CrossEntropyBack<Compute>                                                                 \
	{                                                                                         \
		lse, dloss, (reduction & 3) == CROSS_ENTROPY_MEAN ? count : nullptr, columns, ignore, \
			smoothing, square, 1 / static_cast<Compute>(columns)                              \
	}

template <typename T, int V, int WAY, bool CAP, int THREADS, bool LOOP, typename Target,
		  i64 COLUMNS, class DIMS, i64 X_STEP, class X, class TARGETS, class LSE, class DLOSS,
		  typename Index, typename Compute = typename element<T>::compute>
__global__ LAUNCH_BOUNDS(THREADS) void cross_entropy_backward(CROSS_ENTROPY_BACK_PARAMS(T, Target,
																						Compute))
{
	typedef
		typename index_choose<CAP, CrossEntropyCap<Compute>, CrossEntropyPlain<Compute>>::type Mask;

	cross_entropy_backward_of<V, WAY, LOOP>(
		FlatRows<Index, COLUMNS>{}, FlatOperand<T, X_STEP, DIMS, X>{x}, Mask(cap), dx, report,
		static_cast<Index>(elements), CROSS_ENTROPY_BACK_MADE(Compute, COLUMNS),
		[&](Index row) { return target[index_offset<i64>(row, DIMS{}, TARGETS{})]; },
		[](Index row, i64 &lse_at, i64 &dloss_at) {
			lse_at = index_offset<i64>(row, DIMS{}, LSE{});
			dloss_at = index_offset<i64>(row, DIMS{}, DLOSS{});
		});
}

template <typename T, int V, int WAY, typename Compute = typename element<T>::compute>
__global__ __launch_bounds__(CROSS_ENTROPY_BACKWARD_THREADS) void cross_entropy_backward_generic(
	CROSS_ENTROPY_BACK_PARAMS(T, void, Compute), DIVIDE_PARAMS(u64, columns), i64 x_step,
	SPACE_SIZES(u64), SPACE_STRIDES(of_x), SPACE_STRIDES(of_target), SPACE_STRIDES(of_lse),
	SPACE_STRIDES(of_dloss))
{
	const Space<3, u64> space = {
		SPACE_SIZES_MADE(u64),
		{SPACE_STRIDES_MADE(of_target), SPACE_STRIDES_MADE(of_lse), SPACE_STRIDES_MADE(of_dloss)}};

	cross_entropy_backward_of<V, WAY, true>(
		FlatAny{DIVIDE_MADE(u64, columns), false}, FLAT_OPERAND(T, x, x_step, of_x),
		CrossEntropyCap<Compute>(cap), dx, report, static_cast<u64>(elements),
		CROSS_ENTROPY_BACK_MADE(Compute, static_cast<i64>(columns_size)),
		[&](u64 row) {
			i64 at[3];
			space.at(row, at);
			return cross_entropy_any(target, reduction & CROSS_ENTROPY_WIDE, at[0]);
		},
		[&](u64 row, i64 &lse_at, i64 &dloss_at) {
			i64 at[3];
			space.at(row, at);
			lse_at = at[1];
			dloss_at = at[2];
		});
}
