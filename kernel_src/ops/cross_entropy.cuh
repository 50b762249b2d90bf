/*
 * cross_entropy.cuh: the loss of rows of logits, and its gradient if asked for, in one launch.
 *
 *   cross_entropy_rows      a group of threads holds each row
 *   cross_entropy_cluster   a cluster of blocks holds each row
 *
 * The gradient may lie where the logits do: all of a row is read before any of it is written.  Rows
 * are numbered by DIMS, all but the slowest dimension; X and TARGETS are their strides.
 */
#pragma once
#include "common/cross_entropy.cuh"
#include "common/index.cuh"
#include "common/softmax_rows.cuh"

template <class SHAPE, bool GRAD, bool SMOOTH>
struct CrossEntropyRows : SoftmaxRows<SHAPE, !GRAD, CrossEntropyPlain<typename SHAPE::Compute>> {
	typedef typename SHAPE::Compute Compute;
	typedef CrossEntropyPlain<Compute> Mask;
	typedef SoftmaxRows<SHAPE, !GRAD, Mask> Rows;
	typedef typename SHAPE::Element T;
	static constexpr int V = Rows::V, kept = Rows::kept, held = Rows::held;
	using Rows::mask;
	using Rows::row;
	using Rows::Rows;
	using Rows::value;
	using Rows::words;
	typedef typename SHAPE::row Row;

	/* As that of softmax, but that vectors lie at constant distances from the first. */
	DEVICE void fetch(const T *x, i64 step)
	{
		if constexpr (Rows::near) {
			Rows::fetch(x, step);
		} else {
			this->fetch_part(RowNear<Row, Row>{row, row}, x + row.column(0), step);
			if constexpr (kept < held)
				words.arrive();
		}
	}

	/* The largest term of this thread: of halves, two at a time. */
	DEVICE Compute largest()
	{
		typedef element_pair<T> Pair;
		if constexpr (!Pair::known || Row::skewed || V % 2 != 0) {
			return Rows::largest();
		} else {
			u32 most = Pair::least;
			Compute two[2];
#pragma unroll
			for (int n = 0; n < kept; n++) {
				if (!row.has(n))
					continue;
				this->terms(this->marks[n], n, words.word[n][0], value[n]);
#pragma unroll
				for (int w = 0; w < V / 2; w++)
					most = Pair::larger(most, words.word[n][0][w]);
			}
			each_slot([&](int n) {
				u32 raw[Row::words];
				words.take_slot(n, 0, raw);
#pragma unroll
				for (int w = 0; w < V / 2; w++)
					most = Pair::larger(most, raw[w]);
			});
			element_unpack<T>(&most, two);
			return fmax(this->nothing(), fmax(two[0], two[1]));
		}
	}

	/* As that of softmax, but that slots go by twos. */
	DEVICE Compute sum(Compute largest)
	{
		Compute sum = 0;

#pragma unroll
		for (int n = 0; n < kept; n++)
			if (row.has(n))
				this->add(largest, value[n], sum);
		each_slot([&](int n) {
			typename Rows::Slot at;
			this->open(at, n);
			this->terms(at.mark, n, at.raw, at.value);
			this->add(largest, at.value, sum);
			if constexpr (GRAD && Rows::put_back)
				words.put_slot(n, 0, at.value);
		});
		return sum;
	}

	/* The sum of this thread's terms, between largest() and sum(). */
	DEVICE Compute total() const
	{
		Compute total = 0;

#pragma unroll
		for (int n = 0; n < kept; n++)
			if (row.has(n))
				add_live(n, value[n], total);
		each_slot([&](int n) {
			typename Rows::Slot at;
			this->open(at, n);
			this->terms(at.mark, n, at.raw, at.value);
			add_live(n, at.value, total);
		});
		return total;
	}

	/* mine: the largest that sum() was given. */
	DEVICE void store_slope(T *to, Compute mine, const SoftmaxSum<Compute> &all,
							const CrossEntropySlope<Compute> &slope)
	{
		const Compute rest = this->rest(all) * slope.power;
		const Compute kept_rest = rest * all.fading(all.largest, mine, this->scale.exponent);

#pragma unroll
		for (int n = 0; n < kept; n++) {
			if (!row.has(n))
				continue;
			this->template finish<true>(all.largest, kept_rest, value[n]);
			slope.template apply<SMOOTH>(row.column(n), mask, value[n], value[n]);
			row_store(row, n, to, value[n]);
		}
		each_slot([&](int n) {
			typename Rows::Slot at;
			this->open(at, n);
			if constexpr (Rows::put_back) {
				element_unpack<T>(at.raw, at.value);
				this->template finish<true>(all.largest, kept_rest, at.value);
			} else {
				this->terms(at.mark, n, at.raw, at.value);
#pragma unroll
				for (int j = 0; j < V; j++)
					at.value[j] =
						softmax_exp2_flush((at.value[j] - all.largest) * this->scale.exponent) *
						rest;
			}
			slope.template apply<SMOOTH>(row.column(n), mask, at.value, at.value);
			row_store(row, n, to, at.value);
		});
	}

	DEVICE void store_nothing(T *to) const
	{
		constexpr Compute nothing[V] = {};

#pragma unroll 1
		for (int n = 0; n < held; n++)
			if (row.has(n))
				row_store(row, n, to, nothing);
	}

  private:
	/* Calls body(n) for every vector in a slot: two at a time, so long as all threads have one. */
	template <typename Body>
	DEVICE void each_slot(Body body) const
	{
		constexpr int sure =
			SHAPE::cluster > 1 || Row::skewed
				? 0
				: static_cast<int>(Row::columns / (SHAPE::group::threads / SHAPE::rows * V));
		constexpr int whole = sure < kept ? kept : sure < held ? sure : held;

		if constexpr (whole > kept) {
#pragma unroll 2
			for (int n = kept; n < whole; n++)
				body(n);
		}
		if constexpr (held > whole) {
#pragma unroll 1
			for (int n = whole; n < held; n++)
				if (row.has(n))
					body(n);
		}
	}

	DEVICE void add_live(int n, const Compute (&term)[V], Compute &total) const
	{
#pragma unroll
		for (int j = 0; j < V; j++)
			total += row.live(n, j) ? term[j] : Compute(0);
	}
};

template <class SHAPE, bool GRAD, bool SMOOTH, bool LOOP, i64 X_STEP, class DIMS, class X,
		  class TARGETS, typename Index, typename Target, typename T, typename Compute>
DEVICE void cross_entropy_held(CrossEntropy<T, Compute> call, const Target *target)
{
	typedef typename SHAPE::group Group;
	typedef typename SHAPE::row Row;
	constexpr i64 columns = Row::columns;
	/* The thread that makes the loss of its row: in the warp that has the fewest elements, for the
	 * others wait for it. */
	constexpr int leader = SHAPE::rows == 1 ? SHAPE::group::threads - 32 : 0;
	constexpr bool alone = SHAPE::rows == 1 && !LOOP;
	DYN_SHARED(b128, slots);

	const auto target_of = [&](i64 number) {
		return target[index_offset<i64>(static_cast<Index>(number), DIMS{}, TARGETS{})];
	};
	call.begin();
	if constexpr (GRAD)
		call.template count_first<SHAPE::threads>(SHAPE::threads, target_of);
	row_each<SHAPE, LOOP, Index>(call.rows, [&](Index number, bool here) {
		const Target named = target_of(static_cast<i64>(number));
		const T *const x = call.x + index_offset<i64>(number, DIMS{}, X{});
		T *const to = call.grad + static_cast<i64>(number) * columns;
		const bool first =
			here && Group::thread() == leader && Group::slice() == SHAPE::cluster - 1;
		CrossEntropyRows<SHAPE, GRAD, SMOOTH> held(
			Row(x, Group::thread(), Group::slice()),
			SoftmaxScale<Compute>{1, Compute(SOFTMAX_LOG2E), 1},
			CrossEntropyPlain<Compute>(call.cap), slots);
		u32 hit_raw[vec_words<sizeof(T)>] = {};
		Compute hit[1], total = 0;

		/* Both at once, though a row that is ignored is read for nothing. */
		held.fetch(x, X_STEP);
		const CrossEntropyTarget at = cross_entropy_target(named, call.ignore, columns);
		if constexpr (SHAPE::rows == 1 && SHAPE::cluster == 1) {
			if (!at.live) {
				if constexpr (GRAD)
					held.store_nothing(to);
				if (first)
					call.end_row(static_cast<i64>(number), at, Compute(0), Compute(0));
				return;
			}
		}
		const Compute mine = held.largest();
		/* Behind the row's elements, which mine is made of: the target's number has to come first.
		 * It is looked at when it has had time to come, too. */
		if (first && at.column >= 0 && mine >= SoftmaxNumber<Compute>::lowest())
			vec_load<sizeof(T)>(x + at.column * X_STEP, hit_raw);
		if constexpr (SMOOTH)
			total = held.total();
		SoftmaxSum<Compute> all = {mine, held.sum(mine)};
		all = Group::template reduce<0>(all, held.scale.exponent);
		if constexpr (SMOOTH)
			total = Group::template reduce<1>(SoftmaxTotal<Compute>{total}).sum;
		Compute log_sum = 0;
		if (first || (GRAD && call.square != 0))
			log_sum = cross_entropy_log(all.sum);
		if (first) {
			element_unpack<T>(hit_raw, hit);
			call.end_row(static_cast<i64>(number), at, log_sum, all.largest, total, hit[0]);
		}
		if constexpr (GRAD) {
			const CrossEntropySlope<Compute> slope(at, all.largest + log_sum,
												   call.factor(target_of), call.smoothing,
												   call.square, Compute(1) / columns);
			if constexpr (alone)
				call.leave(threadIdx.x == leader);
			__syncwarp(); /* the target's element is read */
			if (here && at.live)
				held.store_slope(to, mine, all, slope);
			else if (here)
				held.store_nothing(to);
		}
	});
	call.template end<SHAPE::threads, alone ? leader : -1, GRAD ? 1 : TOTAL_AT_ONCE>(
		SHAPE::threads);
}

template <class SHAPE, bool GRAD, bool SMOOTH, bool LOOP, typename Target, i64 X_STEP, class DIMS,
		  class X, class TARGETS, typename Index, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ CROSS_ENTROPY_BOUNDS(SHAPE, SHAPE::row::skewed) void cross_entropy_rows(
	CROSS_ENTROPY_PARAMS(T, Target, Compute))
{
	cross_entropy_held<SHAPE, GRAD, SMOOTH, LOOP, X_STEP, DIMS, X, TARGETS, Index>(
		CROSS_ENTROPY_MADE(T, Compute, SHAPE::row::columns), target);
}

template <class SHAPE, bool GRAD, bool SMOOTH, bool LOOP, typename Target, i64 X_STEP, class DIMS,
		  class X, class TARGETS, typename Index, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ CROSS_ENTROPY_BOUNDS(SHAPE, SHAPE::row::skewed)
	CLUSTER_OF(SHAPE::cluster) void cross_entropy_cluster(CROSS_ENTROPY_PARAMS(T, Target, Compute))
{
	cross_entropy_held<SHAPE, GRAD, SMOOTH, LOOP, X_STEP, DIMS, X, TARGETS, Index>(
		CROSS_ENTROPY_MADE(T, Compute, SHAPE::row::columns), target);
}
