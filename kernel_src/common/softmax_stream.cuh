/*
 * softmax_stream.cuh: softmax and its backward of rows that are read twice: by a block, first for
 * the sum, then from the end to the beginning, so that what was read last is still near.
 *
 * The first time each thread keeps a largest and a sum, which is scaled down whenever the largest
 * rises.  Sums of steps are added with what rounding lost before, for there may be many of them.
 */
#pragma once
#include "common/row_stream.cuh"
#include "common/softmax.cuh"

template <class ROW, class MASK, int STREAMS>
struct SoftmaxStep {
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	typedef typename ROW::Column Column;
	static constexpr int V = ROW::length;
	static constexpr bool partial = MASK::partial;
	typedef typename MASK::template Held<V> Marks;

	const ROW row;
	const MASK mask;
	const decltype(softmax_part(row, mask)) part;
	RowStep<ROW, STREAMS> words;
	Marks marks[ROW::count];

	DEVICE SoftmaxStep(const T *start, const MASK &mask)
		: row(start), mask(mask), part(softmax_part(row, mask))
	{
	}

	DEVICE void fetch(Column step, const T *const (&from)[STREAMS], const i64 (&apart)[STREAMS])
	{
		words.fetch(part, step, from, apart);
#pragma unroll
		for (int u = 0; u < ROW::count; u++) {
			const Column n = step * ROW::count + u;
			if (MASK::partial && row.has(n))
				mask.fetch(marks[u], row.column(n));
		}
	}

	DEVICE bool live(Column n, int u, int j) const
	{
		return row.live(n, j) & mask.live(marks[u], row.column(n), j);
	}
};

/* The sum of one step joins the sum so far. */
template <class STEP, typename Compute>
DEVICE void softmax_stream_add(const STEP &at, typename STEP::Column step,
							   const SoftmaxScale<Compute> &scale, Compute &largest,
							   SoftmaxExact<Compute> &sum)
{
	constexpr int V = STEP::V;
	Compute found = largest, more = 0;

	at.words.each(at.part, step, [&](typename STEP::Column n, int u, Compute(&x)[1][V]) {
#pragma unroll
		for (int j = 0; j < V; j++) {
			Compute term = at.mask.term(at.marks[u], j, x[0][j], scale.before);
			if (STEP::partial)
				term = fmax(term, SoftmaxNumber<Compute>::lowest());
			found = fmax(found, at.live(n, u, j) ? term : SoftmaxNumber<Compute>::least());
		}
	});
	at.words.each(at.part, step, [&](typename STEP::Column n, int u, Compute(&x)[1][V]) {
#pragma unroll
		for (int j = 0; j < V; j++) {
			const Compute distance = at.mask.distance(at.marks[u], j, x[0][j], scale.before, found);
			const Compute power = softmax_exp2_flush(distance * scale.exponent);
			more += at.live(n, u, j) ? power : Compute(0);
		}
	});
	const Compute fading = SoftmaxSum<Compute>::fading(found, largest, scale.exponent);
	sum.scale(fading);
	sum.add(more);
	largest = found;
}

template <class STEP, bool LOG, typename T, typename Compute>
DEVICE void softmax_stream_store(const STEP &at, typename STEP::Column step, T *y, i64 y_step,
								 const SoftmaxScale<Compute> &scale, const SoftmaxSum<Compute> &all,
								 Compute rest, Compute dead)
{
	constexpr int V = STEP::V;

	at.words.each(at.row, step, [&](typename STEP::Column n, int u, Compute(&x)[1][V]) {
		Compute out[V];
#pragma unroll
		for (int j = 0; j < V; j++) {
			const Compute distance =
				at.mask.distance(at.marks[u], j, x[0][j], scale.before, all.largest);
			out[j] = LOG ? fma(distance, scale.after, -rest)
						 : softmax_exp2(distance * scale.exponent) * rest;
			out[j] = at.mask.live(at.marks[u], at.row.column(n), j) ? out[j] : dead;
		}
		row_store(at.row, n, y, out, y_step);
	});
}

/* One row, by a block: as softmax_row. */
template <class ROW, bool LOG, class MASK>
DEVICE void softmax_stream_row(const typename ROW::Element *x, i64 x_step, typename ROW::Element *y,
							   i64 y_step, const SoftmaxScale<typename ROW::Compute> &scale,
							   const MASK &mask)
{
	typedef typename ROW::Compute Compute;
	typedef typename ROW::Column Column;
	typedef SoftmaxStep<ROW, MASK, 1> Step;
	const typename ROW::Element *const from[1] = {x};
	const i64 apart[1] = {x_step};
	Step at(x, mask);
	SoftmaxExact<Compute> sum = {0, 0};
	Compute largest =
		MASK::partial ? SoftmaxNumber<Compute>::least() : SoftmaxNumber<Compute>::lowest();

#pragma unroll 1
	for (Column step = 0; step < ROW::steps(mask.limit()); step++) {
		at.fetch(step, from, apart);
		softmax_stream_add(at, step, scale, largest, sum);
	}
	SoftmaxSum<Compute> all = {largest, sum.sum};
	all = ROW::group::template reduce<0>(all, scale.exponent);
	const Compute rest = LOG ? softmax_log(all.sum) : 1 / all.sum;
	const Compute dead = all.largest == SoftmaxNumber<Compute>::least() ? mask.empty() : Compute(0);
#pragma unroll 1
	for (Column step = ROW::steps(); step-- > 0;) {
		at.fetch(step, from, apart);
		softmax_stream_store<Step, LOG>(at, step, y, y_step, scale, all, rest, dead);
	}
}
