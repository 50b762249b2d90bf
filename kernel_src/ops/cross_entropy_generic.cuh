/*
 * cross_entropy_generic.cuh: the loss of rows of logits, and its gradient if asked for, for sizes
 * and strides that are known when the kernel is launched.
 *
 * V: elements that move at once, 16 bytes of them or one (row_any.cuh).  Of a thread's `places` in
 * shared memory each has a step (row_ring.cuh).
 */
#pragma once
#include "common/cross_entropy.cuh"
#include "common/row_ring.cuh"
#include "common/softmax_vector.cuh"
#include "common/space.cuh"

template <class ROW, class MASK>
struct CrossEntropyAny : SoftmaxVectors<ROW, true, MASK> {
	typedef SoftmaxVectors<ROW, true, MASK> Vectors;
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	static constexpr int V = ROW::length, count = ROW::count;
	using Vectors::mask;
	using Vectors::row;
	using Vectors::scale;
	using Vectors::Vectors;

	/* A step joins what came before.  total: of all terms, if there is smoothing. */
	DEVICE void join(const RowSteps<ROW, 1> &words, i64 step, bool smooth, Compute &largest,
					 SoftmaxExact<Compute> &sum, Compute &total)
	{
		Compute value[count][V], found = largest, more = 0;

#pragma unroll
		for (int u = 0; u < count; u++) {
			const i64 n = step * count + u;
			if (!row.has(n))
				continue;
			z(words, u, n, value[u]);
			this->raise({}, n, value[u], found);
#pragma unroll
			for (int j = 0; j < V; j++)
				total += smooth && row.live(n, j) ? value[u][j] : Compute(0);
		}
#pragma unroll
		for (int u = 0; u < count; u++)
			if (row.has(step * count + u))
				this->add(found, value[u], more);
		sum.scale(SoftmaxSum<Compute>::fading(found, largest, scale.exponent));
		sum.add(more);
		largest = found;
	}

	DEVICE void store_slope(const RowSteps<ROW, 1> &words, i64 step, T *to, Compute largest,
							Compute rest, const CrossEntropySlope<Compute> &slope) const
	{
#pragma unroll
		for (int u = 0; u < count; u++) {
			const i64 n = step * count + u;
			Compute value[V], power[V];
			if (!row.has(n))
				continue;
			z(words, u, n, value);
#pragma unroll
			for (int j = 0; j < V; j++)
				power[j] = softmax_exp2_flush((value[j] - largest) * scale.exponent) * rest;
			slope.template apply<true>(row.column(n), mask, value, power);
#pragma unroll
			for (int j = 0; j < V; j++)
				power[j] = slope.target.live ? power[j] : Compute(0);
			row_store(row, n, to, power);
		}
	}

  private:
	DEVICE void z(const RowSteps<ROW, 1> &words, int u, i64 n, Compute (&value)[V]) const
	{
		u32 raw[ROW::words];
		words.take(u, 0, raw);
		this->terms({}, n, raw, value);
	}
};

/* Two blocks find the registers on sm_90; elsewhere halves would spill some words. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define CROSS_ENTROPY_ANY_BOUNDS(T) __launch_bounds__(ROW_ANY_THREADS, sizeof(T) == 8 ? 1 : 2)
#else
#define CROSS_ENTROPY_ANY_BOUNDS(T) __launch_bounds__(ROW_ANY_THREADS, 1)
#endif

/* CAPPED: z may be other than x. */
template <typename T, int V, bool CAPPED, typename Compute = typename element<T>::compute>
__global__ CROSS_ENTROPY_ANY_BOUNDS(T) void cross_entropy_generic(
	CROSS_ENTROPY_PARAMS(T, void, Compute), u32 wide, i64 columns, u32 shift, i64 x_step,
	u32 places, SPACE_SIZES(u64), SPACE_STRIDES(of_x), SPACE_STRIDES(of_target))
{
	typedef RowAny<T, V, V == 1 ? 4 : 1> Row;
	typedef
		typename index_choose<CAPPED, CrossEntropyCap<Compute>, CrossEntropyPlain<Compute>>::type
			Mask;
	DYN_SHARED(b128, shared);
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
		const T *const from[1] = {x + at[0]};
		const i64 apart[1] = {x_step};
		CrossEntropyAny<Row, Mask> row(Row(from[0], columns, group),
									   SoftmaxScale<Compute>{1, Compute(SOFTMAX_LOG2E), 1}, mask);
		RowSteps<Row, 1> words(shared, places);
		SoftmaxExact<Compute> sum = {0, 0};
		SoftmaxSum<Compute> all = {row.nothing(), 0};
		Compute hit = 0, total = 0;

		words.begin(row.row, from);
		if (mine.column >= 0)
			hit =
				mask.term(0, 0, element_load<Compute>(from[0] + mine.column * x_step), Compute(1));
#pragma unroll 1
		do {
			words.next(row.row, from, apart, step);
			row.join(words, step, smoothing != 0, all.largest, sum, total);
		} while (row.row.step(++step) < columns);
		all.sum = sum.sum;
		all = group.reduce(all, row.scale.exponent);
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
		for (;; words.back(row.row, from, apart, step - 1)) {
			row.store_slope(words, step - 1, grad + number * columns, all.largest, rest, slope);
			if (--step == 0)
				break;
		}
	};
	if (rows > 0)
		row_any_each(group, rows, row_of);
	call.template end<ROW_ANY_THREADS>(threads);
}
