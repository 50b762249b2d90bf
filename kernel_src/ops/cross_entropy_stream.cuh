/*
 * cross_entropy_stream.cuh: the loss of rows of logits that a block goes over in steps, and for the
 * gradient once more, from the end to the beginning.  Parameters as in cross_entropy.cuh.
 */
#pragma once
#include "common/cross_entropy.cuh"
#include "common/index.cuh"
#include "common/softmax_stream.cuh"

template <class ROW, class MASK>
struct CrossEntropyStream : SoftmaxStream<ROW, true, MASK> {
	typedef SoftmaxStream<ROW, true, MASK> Stream;
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	typedef typename ROW::Column Column;
	static constexpr int V = ROW::length, count = ROW::count;
	using Stream::mask;
	using Stream::row;
	using Stream::Stream;
	using Stream::value;

	/* The sum of a step's terms. */
	DEVICE Compute total(Column step) const
	{
		Compute total = 0;

#pragma unroll
		for (int u = 0; u < count; u++) {
			if (!row.has(step * count + u))
				continue;
#pragma unroll
			for (int j = 0; j < V; j++)
				total += row.live(step * count + u, j) ? value[u][j] : Compute(0);
		}
		return total;
	}

	template <bool SMOOTH>
	DEVICE void store_slope(Column step, T *to, Compute largest, Compute rest,
							const CrossEntropySlope<Compute> &slope) const
	{
#pragma unroll
		for (int u = 0; u < count; u++) {
			const Column n = step * count + u;
			Compute power[V];
			if (!row.has(n))
				continue;
#pragma unroll
			for (int j = 0; j < V; j++)
				power[j] =
					softmax_exp2_flush((value[u][j] - largest) * this->scale.exponent) * rest;
			slope.template apply<SMOOTH>(row.column(n), mask, value[u], power);
			row_store(row, n, to, power);
		}
	}

	DEVICE void store_nothing(T *to) const
	{
		constexpr Compute nothing[V] = {};

#pragma unroll 1
		for (Column n = 0; n < ROW::steps() * count; n++)
			if (row.has(n))
				row_store(row, n, to, nothing);
	}
};

template <class ROW, bool GRAD, bool SMOOTH, bool CAP, bool LOOP, typename Target, i64 X_STEP,
		  class DIMS, class X, class TARGETS, typename Index, typename T = typename ROW::Element,
		  typename Compute = typename ROW::Compute>
__global__ CROSS_ENTROPY_BOUNDS(ROW, ROW::skewed) void cross_entropy_stream(
	CROSS_ENTROPY_PARAMS(T, Target, Compute))
{
	typedef typename ROW::Column Column;
	typedef
		typename index_choose<CAP, CrossEntropyCap<Compute>, CrossEntropyPlain<Compute>>::type Mask;
	constexpr i64 columns = ROW::columns;
	auto call = CROSS_ENTROPY_MADE(T, Compute, columns);
	const Mask mask(cap);

	const auto target_of = [&](i64 number) {
		return target[index_offset<i64>(static_cast<Index>(number), DIMS{}, TARGETS{})];
	};
	call.begin();
	if constexpr (GRAD)
		call.template count_first<ROW::threads>(ROW::threads, target_of);
	row_each<ROW, LOOP, Index>(rows, [&](Index number, bool) {
		const CrossEntropyTarget at =
			cross_entropy_target(target_of(static_cast<i64>(number)), ignore, columns);
		const T *const from = x + index_offset<i64>(number, DIMS{}, X{});
		T *const to = grad + static_cast<i64>(number) * columns;
		const bool first = threadIdx.x == 0;
		CrossEntropyStream<ROW, Mask> held(
			from, SoftmaxScale<Compute>{1, Compute(SOFTMAX_LOG2E), 1}, mask);
		SoftmaxExact<Compute> sum = {0, 0};
		SoftmaxSum<Compute> all = {held.nothing(), 0};
		Compute hit = 0, total = 0;

		if (!at.live) {
			if constexpr (GRAD)
				held.store_nothing(to);
			if (first)
				call.end_row(static_cast<i64>(number), at, Compute(0), Compute(0));
			return;
		}
		if (first && at.column >= 0)
			hit = mask.term(0, 0, element_load<Compute>(from + at.column * X_STEP), Compute(1));
#pragma unroll 1
		for (Column step = 0; step < ROW::steps(); step++) {
			held.fetch(step, from, X_STEP);
			if constexpr (SMOOTH)
				total += held.total(step);
			held.join(step, all.largest, sum);
		}
		all.sum = sum.sum;
		all = ROW::group::template reduce<0>(all, held.scale.exponent);
		if constexpr (SMOOTH)
			total = ROW::group::template reduce<1>(SoftmaxTotal<Compute>{total}).sum;
		const Compute log_sum = softmax_log(all.sum);
		if (first)
			call.end_row(static_cast<i64>(number), at, log_sum, all.largest, total, hit);
		if constexpr (GRAD) {
			const CrossEntropySlope<Compute> slope(at, all.largest + log_sum,
												   call.factor(target_of), smoothing, square,
												   Compute(1) / columns);
			const Compute rest = softmax_inverse(all.sum) * slope.power;
#pragma unroll 1
			for (Column step = ROW::steps(); step-- > 0;) {
				held.fetch(step, from, X_STEP);
				held.template store_slope<SMOOTH>(step, to, all.largest, rest, slope);
			}
		}
	});
	call.template end<ROW::threads>(ROW::threads);
}
