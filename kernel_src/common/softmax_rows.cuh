/*
 * softmax_rows.cuh: softmax of rows that threads hold: in registers and slots of shared memory, by
 * part of a warp up to a cluster of blocks (row.cuh).
 *
 * One pass finds the largest and the sum together: each thread takes its own largest first, and
 * partial sums are scaled down to the largest of all when they meet (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax", 2018).  Where there is room for it, elements are converted
 * once and their powers take their place; otherwise each pass begins with the elements again.
 *
 * Slots are gone through in rolled loops, or the compiler would bring all of them into registers.
 */
#pragma once
#include "common/row.cuh"
#include "common/softmax.cuh"

template <class SHAPE, bool LOG, class MASK>
struct SoftmaxRows {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::template words<1> Words;
	typedef SoftmaxNumber<Compute> Number;
	static constexpr int V = Row::length;
	static constexpr int held = Row::held, kept = Words::kept;
	typedef typename MASK::template Held<V> Marks;
	/* What is kept is kept in the type to compute in; halves take twice the registers then. */
	static constexpr bool wide = sizeof(T) >= 4 || (kept == held && kept * V <= 32);
	static constexpr bool in_place = wide && !LOG;

	const MASK mask;
	const SoftmaxScale<Compute> scale;
	const Row row;
	const decltype(softmax_part(row, mask)) part;
	Words words;
	Marks marks[kept ? kept : 1];
	Compute value[wide && kept ? kept : 1][V];

	DEVICE SoftmaxRows(const T *x, const SoftmaxScale<Compute> &scale, const MASK &mask,
					   void *slots)
		: mask(mask), scale(scale), row(x, SHAPE::group::thread(), SHAPE::group::slice()),
		  part(softmax_part(row, mask)), words(slots)
	{
	}

	DEVICE void fetch(const T *x, i64 step)
	{
		const T *const from[1] = {x};
		const i64 steps[1] = {step};

		words.fetch(part, from, steps);
		if constexpr (MASK::partial) {
#pragma unroll
			for (int n = 0; n < kept; n++)
				if (row.has(n))
					mask.fetch(marks[n], row.column(n));
		}
		words.arrive();
	}

	/* The largest term of this thread. */
	DEVICE Compute largest()
	{
		Compute found = MASK::partial ? Number::least() : Number::lowest();

#pragma unroll
		for (int n = 0; n < kept; n++) {
			if (!part.has(n))
				continue;
			terms(marks[n], n, value[wide ? n : 0]);
			raise(marks[n], n, value[wide ? n : 0], found);
		}
		if constexpr (kept < held) {
#pragma unroll 1
			for (int n = kept; n < held; n++) {
				Compute term[V];
				Marks mark;
				if (!part.has(n))
					continue;
				mask.fetch(mark, row.column(n));
				terms(mark, n, term);
				raise(mark, n, term, found);
			}
		}
		return found;
	}

	/* The sum of this thread's powers. */
	DEVICE Compute sum(Compute largest)
	{
		Compute sum = 0;

#pragma unroll
		for (int n = 0; n < kept; n++) {
			if (!part.has(n))
				continue;
			if constexpr (!wide)
				terms(marks[n], n, value[0]);
			add(marks[n], n, largest, value[wide ? n : 0], sum);
		}
		if constexpr (kept < held) {
#pragma unroll 1
			for (int n = kept; n < held; n++) {
				Compute x[V];
				Marks mark;
				if (!part.has(n))
					continue;
				mask.fetch(mark, row.column(n));
				terms(mark, n, x);
				add(mark, n, largest, x, sum);
				if constexpr (in_place)
					words.put(n, 0, x);
			}
		}
		return sum;
	}

	/* mine: the largest that sum() was given; all: of the row. */
	DEVICE void store(T *y, i64 step, Compute mine, const SoftmaxSum<Compute> &all)
	{
		const Compute dead = all.largest == Number::least() ? mask.empty() : Compute(0);
		Compute rest = LOG ? softmax_log(all.sum) : softmax_inverse(all.sum);

		if constexpr (in_place)
			rest *= all.fading(all.largest, mine, scale.exponent);
#pragma unroll
		for (int n = 0; n < kept; n++) {
			if (!row.has(n))
				continue;
			if constexpr (!wide)
				terms(marks[n], n, value[0]);
			finish(marks[n], n, all.largest, rest, dead, value[wide ? n : 0]);
			row_store(row, n, y, value[wide ? n : 0], step);
		}
		if constexpr (kept < held) {
#pragma unroll 1
			for (int n = kept; n < held; n++) {
				Compute x[V];
				Marks mark;
				if (!row.has(n))
					continue;
				mask.fetch(mark, row.column(n));
				if constexpr (in_place)
					words.get(n, 0, x);
				else
					terms(mark, n, x);
				finish(mark, n, all.largest, rest, dead, x);
				row_store(row, n, y, x, step);
			}
		}
	}

  private:
	DEVICE void terms(const Marks &mark, int n, Compute (&x)[V]) const
	{
		words.get(n, 0, x);
#pragma unroll
		for (int j = 0; j < V; j++)
			x[j] = mask.term(mark, j, x[j], scale.before);
	}

	DEVICE void raise(const Marks &mark, int n, const Compute (&term)[V], Compute &largest) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			if constexpr (!MASK::partial)
				largest = row.live(n, j) ? fmax(largest, term[j]) : largest;
			else if (row.live(n, j) && mask.live(mark, row.column(n), j))
				largest = fmax(largest, fmax(term[j], Number::lowest()));
		}
	}

	/* Terms become powers, which join the sum. */
	DEVICE void add(const Marks &mark, int n, Compute largest, Compute (&x)[V], Compute &sum) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			const Compute power = softmax_exp2_flush((x[j] - largest) * scale.exponent);
			if (row.live(n, j) && mask.live(mark, row.column(n), j))
				sum += power;
			if constexpr (in_place)
				x[j] = power;
		}
	}

	/* x: powers if they are in place, else terms.  rest: the logarithm of the sum, or what powers
	 * are multiplied with. */
	DEVICE void finish(const Marks &mark, int n, Compute largest, Compute rest, Compute dead,
					   Compute (&x)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			if constexpr (in_place)
				x[j] *= rest;
			else if constexpr (LOG)
				x[j] = fma(x[j] - largest, scale.after, -rest);
			else
				x[j] = softmax_exp2((x[j] - largest) * scale.exponent) * rest;
			if constexpr (MASK::partial)
				x[j] = mask.live(mark, row.column(n), j) ? x[j] : dead;
		}
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
	SoftmaxRows<SHAPE, LOG, MASK> held(x, scale, mask, slots);

	held.fetch(x, x_step);
	const Compute mine = held.largest();
	SoftmaxSum<Compute> all = {mine, held.sum(mine)};
	all = SHAPE::group::template reduce<0>(all, scale.exponent);
	if (here)
		held.store(y, y_step, mine, all);
}
