/*
 * cross_entropy_generic.cuh: the loss of rows of logits, and its gradient if asked for, for sizes
 * and strides that are known when the kernel is launched.
 *
 * V: elements that move at once, 16 bytes of them or one (row_any.cuh).
 */
#pragma once
#include "common/cross_entropy.cuh"
#include "common/softmax_any.cuh"
#include "common/space.cuh"

template <class ROW, class MASK>
struct CrossEntropyAny : SoftmaxAny<ROW, true, MASK> {
	typedef SoftmaxAny<ROW, true, MASK> Any;
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	static constexpr int V = ROW::length, count = ROW::count;
	using Any::Any;
	using Any::mask;
	using Any::row;
	using Any::word;

	DEVICE Compute total(i64 step) const
	{
		Compute total = 0;

#pragma unroll
		for (int u = 0; u < count; u++) {
			const i64 n = step * count + u;
			Compute value[V];
			if (!row.has(n))
				continue;
			this->terms(this->marks[u], n, word[u], value);
#pragma unroll
			for (int j = 0; j < V; j++)
				total += row.live(n, j) ? value[j] : Compute(0);
		}
		return total;
	}

	DEVICE void store_slope(i64 step, T *to, Compute largest, Compute rest,
							const CrossEntropySlope<Compute> &slope) const
	{
#pragma unroll
		for (int u = 0; u < count; u++) {
			const i64 n = step * count + u;
			Compute value[V], power[V];
			if (!row.has(n))
				continue;
			this->terms(this->marks[u], n, word[u], value);
#pragma unroll
			for (int j = 0; j < V; j++)
				power[j] = softmax_exp2_flush((value[j] - largest) * this->scale.exponent) * rest;
			slope.template apply<true>(row.column(n), mask, value, power);
			row_store(row, n, to, power);
		}
	}

	DEVICE void store_nothing(i64 step, T *to) const
	{
		constexpr Compute nothing[V] = {};

#pragma unroll
		for (int u = 0; u < count; u++)
			if (row.has(step * count + u))
				row_store(row, step * count + u, to, nothing);
	}
};

template <typename T, int V, typename Compute = typename element<T>::compute>
__global__ __launch_bounds__(ROW_ANY_THREADS, 1) void cross_entropy_generic(
	CROSS_ENTROPY_PARAMS(T, void, Compute), u32 wide, i64 columns, u32 shift, i64 x_step,
	SPACE_SIZES(u64), SPACE_STRIDES(of_x), SPACE_STRIDES(of_target))
{
	typedef RowAny<T, V, 4> Row;
	typedef CrossEntropyCap<Compute> Mask;
	const Space<2, u64> space = {SPACE_SIZES_MADE(u64),
								 {SPACE_STRIDES_MADE(of_x), SPACE_STRIDES_MADE(of_target)}};
	const GroupAny group = {shift};
	const int threads = static_cast<int>(blockDim.x);
	const Mask mask(cap);
	auto call = CROSS_ENTROPY_MADE(T, Compute, columns);

	call.begin();
	const auto target_of = [&](i64 number) {
		i64 at[2];
		space.at(static_cast<u64>(number), at);
		return cross_entropy_any(target, wide, at[1]);
	};
	call.template count_first<ROW_ANY_THREADS>(threads, target_of);
	const auto row_of = [&](i64 number, bool here) {
		i64 at[2], step = 0;
		space.at(static_cast<u64>(number), at);
		const CrossEntropyTarget mine =
			cross_entropy_target(cross_entropy_any(target, wide, at[1]), ignore, columns);
		const T *const from = x + at[0];
		CrossEntropyAny<Row, Mask> held(Row(from, columns, group),
										SoftmaxScale<Compute>{1, Compute(SOFTMAX_LOG2E), 1}, mask);
		SoftmaxExact<Compute> sum = {0, 0};
		SoftmaxSum<Compute> all = {held.nothing(), 0};
		Compute hit = 0, total = 0;

		if (mine.column >= 0)
			hit = mask.term(0, 0, element_load<Compute>(from + mine.column * x_step), Compute(1));
#pragma unroll 1
		do {
			held.fetch(step, from, x_step);
			if (smoothing != 0)
				total += held.total(step);
			held.join(step, all.largest, sum);
		} while (held.row.step(++step) < columns);
		all.sum = sum.sum;
		all = group.reduce(all, held.scale.exponent);
		if (smoothing != 0)
			total = group.reduce(SoftmaxTotal<Compute>{total}).sum;
		const Compute log_sum = cross_entropy_log(all.sum);
		if (here && group.thread() == 0)
			call.end_row(number, mine, log_sum, all.largest, total, hit);
		if (!grad)
			return;
		const CrossEntropySlope<Compute> slope(mine, all.largest + log_sum, call.factor(target_of),
											   smoothing, square,
											   1 / static_cast<Compute>(columns));
		const Compute rest = inverse_near(all.sum) * slope.power;
		__syncthreads(); /* the target's element is read */
		if (!here)
			return;
#pragma unroll 1
		for (; step-- > 0;) {
			held.fetch(step, from, x_step);
			if (mine.live)
				held.store_slope(step, grad + number * columns, all.largest, rest, slope);
			else
				held.store_nothing(step, grad + number * columns);
		}
	};
	if (rows > 0)
		row_any_each(group, rows, row_of);
	call.template end<ROW_ANY_THREADS>(threads);
}
