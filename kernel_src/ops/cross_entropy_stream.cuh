/*
 * cross_entropy_stream.cuh: the loss of rows of logits that a block goes over in steps, and for the
 * gradient once more, from the end to the beginning.  Parameters as in cross_entropy.cuh.
 */
#pragma once
#include "common/cross_entropy.cuh"
#include "common/cross_entropy_bounded.cuh"
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

	/* A step of one vector is asked for before the threads work on the step before it. */
	static constexpr bool early = count == 1;
	u32 next[early ? count : 1][ROW::words];

	DEVICE void ask(Column step, const T *x, i64 apart)
	{
		if constexpr (early)
			if (row.has(step))
				vec_load<ROW::bytes>(row_place<V>(x, row.column(step), apart), next[0]);
	}
	/* Does as fetch(); if steps are early, takes the one that was asked for, and asks for the
	 * next. */
	DEVICE void fetch_next(Column step, const T *x, i64 apart)
	{
		if constexpr (early) {
			u32 now[ROW::words];
#pragma unroll
			for (int w = 0; w < ROW::words; w++)
				now[w] = next[0][w];
			if (step + 1 < ROW::steps())
				ask(step + 1, x, apart);
			if (row.has(step)) {
				this->terms(this->marks[0], step, now, value[0]);
			} else {
#pragma unroll
				for (int j = 0; j < V; j++)
					value[0][j] = Stream::Limits::least();
			}
		} else {
			this->fetch(step, x, apart);
		}
	}

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

/* A multiprocessor has as many blocks with a list as have 1024 threads. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define CROSS_ENTROPY_STREAM_BOUNDS(ROW, CAP)                                               \
	__launch_bounds__(ROW::threads, (CAP) == CROSS_ENTROPY_LISTED ? 1024 / ROW::threads     \
									: ROW::skewed || sizeof(typename ROW::Element) == 8 ? 1 \
																						: 0)
#else
#define CROSS_ENTROPY_STREAM_BOUNDS(ROW, CAP) CROSS_ENTROPY_BOUNDS(ROW, ROW::skewed)
#endif

/* The struct that sums powers under a soft cap of a kind; those of other kinds need none. */
template <class ROW, int CAP, bool LONG>
struct CrossEntropyBounds {
	struct type {
		struct Step {
		};
		DEVICE explicit type(typename ROW::Compute)
		{
		}
	};
};
template <class ROW, bool LONG>
struct CrossEntropyBounds<ROW, CROSS_ENTROPY_BOUNDED, LONG> {
	typedef CrossEntropyBounded<ROW, LONG> type;
};
template <class ROW, bool LONG>
struct CrossEntropyBounds<ROW, CROSS_ENTROPY_LISTED, LONG> {
	typedef CrossEntropyListed<ROW> type;
};

template <class ROW, bool GRAD, bool SMOOTH, int CAP, bool LONG, bool LOOP, typename Target,
		  i64 X_STEP, class DIMS, class X, class TARGETS, typename Index,
		  typename T = typename ROW::Element, typename Compute = typename ROW::Compute>
__global__
CROSS_ENTROPY_STREAM_BOUNDS(ROW,
							CAP) void cross_entropy_stream(CROSS_ENTROPY_PARAMS(T, Target, Compute))
{
	typedef typename ROW::Column Column;
	typedef typename index_choose<(CAP != CROSS_ENTROPY_UNCAPPED), CrossEntropyCap<Compute>,
								  CrossEntropyPlain<Compute>>::type Mask;
	typedef typename CrossEntropyBounds<ROW, CAP, LONG>::type Bounded;
	constexpr i64 columns = ROW::columns;
	auto call = CROSS_ENTROPY_MADE(T, Compute, columns);
	const Mask mask(cap);

	const auto target_of = [&](i64 number) {
		return target[index_offset<i64>(static_cast<Index>(number), DIMS{}, TARGETS{})];
	};
	call.begin();
	if constexpr (GRAD)
		call.template count_first<ROW::threads>(ROW::threads, target_of);
	const Bounded bounded(cap);
	row_each<ROW, LOOP, Index>(rows, [&](Index number, bool) {
		const Target named = target_of(static_cast<i64>(number));
		const T *const from = x + index_offset<i64>(number, DIMS{}, X{});
		T *const to = grad + static_cast<i64>(number) * columns;
		const bool first = threadIdx.x == 0;
		CrossEntropyStream<ROW, Mask> held(
			from, SoftmaxScale<Compute>{1, Compute(SOFTMAX_LOG2E), 1}, mask);
		SoftmaxExact<Compute> sum = {0, 0};
		SoftmaxSum<Compute> all = {held.nothing(), 0};
		Compute hit = 0, total = 0;

		typename Bounded::Step now, next;
		/* The target and the first step are asked for at once, though a row that is ignored is read
		 * for nothing. */
		if constexpr (CAP >= CROSS_ENTROPY_BOUNDED)
			bounded.fetch(held.row, 0, from, X_STEP, next);
		else
			held.ask(0, from, X_STEP);
		const CrossEntropyTarget at = cross_entropy_target(named, ignore, columns);
		if (!at.live) {
			if constexpr (GRAD)
				held.store_nothing(to);
			if (first)
				call.end_row(static_cast<i64>(number), at, Compute(0), Compute(0));
			return;
		}
		/* The target's element is asked for now, and looked at when the row is done. */
		u32 hits[vec_words<sizeof(T)>] = {};
		const auto take_hit = [&] {
			if (first && at.column >= 0)
				hit = mask.term(0, 0, element_at<T, Compute>(hits, 0), Compute(1));
		};
		if (first && at.column >= 0)
			vec_load<sizeof(T)>(from + at.column * X_STEP, hits);
		if constexpr (CAP >= CROSS_ENTROPY_BOUNDED) {
			all.largest = bounded.shift();
#pragma unroll 1
			for (Column step = 0; step < ROW::steps(); step++) {
				bounded.move(next, now);
				if (step + 1 < ROW::steps())
					bounded.fetch(held.row, step + 1, from, X_STEP, next);
				sum.add(bounded.template sum<SMOOTH>(held.row, step, now, total));
			}
			take_hit();
		} else {
#pragma unroll 1
			for (Column step = 0; step < ROW::steps(); step++) {
				held.fetch_next(step, from, X_STEP);
				if constexpr (SMOOTH)
					total += held.total(step);
				held.join(step, all.largest, sum);
			}
			take_hit();
		}
		all.sum = sum.sum;
		all = ROW::group::template reduce<0>(all, held.scale.exponent);
		if constexpr (SMOOTH)
			total = ROW::group::template reduce<1>(SoftmaxTotal<Compute>{total}).sum;
		const Compute log_sum = cross_entropy_log(all.sum);
		if (first)
			call.end_row(static_cast<i64>(number), at, log_sum, all.largest, total, hit);
		if constexpr (GRAD) {
			const CrossEntropySlope<Compute> slope(at, all.largest + log_sum,
												   call.factor(target_of), smoothing, square,
												   Compute(1) / columns);
			const Compute rest = inverse_near(all.sum) * slope.power;
			if constexpr (!LOOP)
				call.leave(first);
#pragma unroll 1
			for (Column step = ROW::steps(); step-- > 0;) {
				held.fetch(step, from, X_STEP);
				held.template store_slope<SMOOTH>(step, to, all.largest, rest, slope);
			}
		}
	});
	/* With more parts at once, the gradient's loops would take more registers. */
	call.template end<ROW::threads, LOOP ? -1 : 0, GRAD ? 1 : TOTAL_AT_ONCE>(ROW::threads);
}
