/*
 * softmax_rows.cuh: softmax of rows that threads hold: in registers and slots of shared memory, by
 * part of a warp up to a cluster of blocks (row.cuh).
 *
 * One pass finds the largest and the sum together: each thread takes its own largest first, and
 * merging two partial sums scales the one with the smaller largest down (Milakov and Gimelshein,
 * "Online normalizer calculation for softmax", 2018).  Elements of 4 and 8 bytes give their place to
 * their powers; halves are too coarse for them, so they are raised twice.
 */
#pragma once
#include "common/row.cuh"
#include "common/softmax.cuh"

/* A row up to the column where its mask ends. */
template <class ROW>
struct SoftmaxPart {
	const ROW &row;
	i64 end;

	DEVICE bool has(int n) const
	{
		return row.has(n) && column(n) < end;
	}
	DEVICE int column(int n) const
	{
		return row.column(n);
	}
};

template <class SHAPE, bool LOG, class MASK>
struct SoftmaxRows {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	typedef typename SHAPE::template words<1> Words;
	typedef SoftmaxNumber<Compute> Number;
	static constexpr int V = Row::length;
	static constexpr int kept = Words::kept;
	typedef typename MASK::template Held<V> Marks;
	/* Powers take the place of elements. */
	static constexpr bool in_place = !LOG && sizeof(T) >= 4;

	const Row row;
	const SoftmaxPart<Row> part;
	const SoftmaxScale<Compute> scale;
	const MASK &mask;
	Words words;
	Marks marks[kept ? kept : 1];

	DEVICE SoftmaxRows(const T *x, const SoftmaxScale<Compute> &scale, const MASK &mask,
					   void *slots)
		: row(x, Group::thread(), Group::slice()), part{row, mask.limit()}, scale(scale),
		  mask(mask), words(slots)
	{
	}

	/* Calls body(n, values, marks) for each vector of which something is read. */
	template <class PART, typename Body>
	DEVICE void each(const PART &range, Body body)
	{
		words.each_kept(range,
						[&](int n, Compute(&values)[1][V]) { body(n, values[0], marks[n]); });
		words.each_slot(range, [&](int n, Compute(&values)[1][V]) {
			Marks mark;
			mask.fetch(mark, row.column(n));
			body(n, values[0], mark);
		});
	}

	DEVICE bool live(const Marks &mark, int n, int j) const
	{
		return row.live(n, j) && mask.live(mark, row.column(n), j);
	}

	DEVICE void fetch(const T *x, i64 step)
	{
		const T *const from[1] = {x};
		const i64 steps[1] = {step};
		words.fetch(part, from, steps);
#pragma unroll
		for (int n = 0; n < kept; n++)
			if (row.has(n))
				mask.fetch(marks[n], row.column(n));
		words.arrive();
	}

	DEVICE Compute largest()
	{
		Compute found = MASK::partial ? Number::least() : Number::lowest();
		each(part, [&](int n, Compute(&x)[V], const Marks &mark) {
#pragma unroll
			for (int j = 0; j < V; j++) {
				if (!live(mark, n, j))
					continue;
				Compute term = mask.term(mark, j, x[j], scale.before);
				if (MASK::partial)
					term = fmax(term, Number::lowest());
				found = fmax(found, term);
			}
		});
		return found;
	}

	DEVICE Compute sum(Compute largest)
	{
		Compute sum = 0;
		each(part, [&](int n, Compute(&x)[V], const Marks &mark) {
#pragma unroll
			for (int j = 0; j < V; j++) {
				const Compute distance = mask.distance(mark, j, x[j], scale.before, largest);
				const Compute power = softmax_exp2_flush(distance * scale.exponent);
				if (live(mark, n, j))
					sum += power;
				x[j] = power;
			}
			if constexpr (in_place)
				words.put(n, 0, x);
		});
		return sum;
	}

	DEVICE void store(T *y, i64 step, Compute mine, const SoftmaxSum<Compute> &all)
	{
		const Compute rest =
			LOG ? softmax_log(all.sum)
				: (in_place ? all.fading(all.largest, mine, scale.exponent) : 1) / all.sum;
		const Compute dead = all.largest == Number::least() ? mask.empty() : Compute(0);
		each(row, [&](int n, Compute(&x)[V], const Marks &mark) {
			Compute out[V];
#pragma unroll
			for (int j = 0; j < V; j++) {
				const Compute distance = mask.distance(mark, j, x[j], scale.before, all.largest);
				if constexpr (LOG)
					out[j] = fma(distance, scale.after, -rest);
				else if constexpr (in_place)
					out[j] = x[j] * rest;
				else
					out[j] = softmax_exp2(distance * scale.exponent) * rest;
				if (MASK::partial && !mask.live(mark, row.column(n), j))
					out[j] = dead;
			}
			row_store(row, n, y, out, step);
		});
	}
};

/*
 * One row: x and y are where it begins, columns x_step and y_step apart.  here: it is there, else
 * x is a row to read for nothing.  All threads of the block must come.
 */
template <class SHAPE, bool LOG, class MASK>
DEVICE void softmax_row(const typename SHAPE::Element *x, i64 x_step, typename SHAPE::Element *y,
						i64 y_step, const SoftmaxScale<typename SHAPE::Compute> &scale,
						const MASK &mask, bool here)
{
	typedef typename SHAPE::Compute Compute;
	DYN_SHARED(b128, slots);
	SoftmaxRows<SHAPE, LOG, MASK> rows(x, scale, mask, slots);

	rows.fetch(x, x_step);
	SoftmaxSum<Compute> all;
	const Compute mine = rows.largest();
	all.largest = mine;
	all.sum = rows.sum(mine);
	all = SHAPE::group::template reduce<0>(all, scale.exponent);
	if (here)
		rows.store(y, y_step, mine, all);
}
