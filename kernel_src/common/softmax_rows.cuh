/*
 * softmax_rows.cuh: softmax of rows that threads hold: in registers and slots of shared memory, by
 * part of a warp up to a cluster of blocks (row.cuh).
 *
 * One pass finds the largest and the sum together: each thread takes its own largest first, and
 * partial sums are scaled down to the largest of all when they meet (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax", 2018).  What is in registers is converted once, and powers
 * take the place of elements there.  In slots they do so only where that costs no accuracy; halves
 * are raised twice.
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
	/* Whether powers are put into slots. */
	static constexpr bool put_back = !LOG && sizeof(T) >= 4;

	const MASK mask;
	const SoftmaxScale<Compute> scale;
	const Row row;
	const decltype(softmax_part(row, mask)) part;
	Words words;
	Marks marks[kept ? kept : 1];
	Compute value[kept ? kept : 1][V]; /* terms, then powers */

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
			if (!row.has(n))
				continue;
			terms(marks[n], n, words.word[n][0], value[n]);
			raise(marks[n], n, value[n], found);
		}
		if constexpr (kept < held) {
#pragma unroll 1
			for (int n = kept; n < held; n++) {
				Slot at;
				if (!part.has(n))
					continue;
				open(at, n);
				terms(at.mark, n, at.raw, at.value);
				raise(at.mark, n, at.value, found);
			}
		}
		return found;
	}

	/* The sum of this thread's powers. */
	DEVICE Compute sum(Compute largest)
	{
		Compute sum = 0;

		if constexpr (MASK::partial) /* there may be nothing */
			largest = fmax(largest, Number::lowest());
#pragma unroll
		for (int n = 0; n < kept; n++)
			if (row.has(n))
				add(largest, value[n], sum);
		if constexpr (kept < held) {
#pragma unroll 1
			for (int n = kept; n < held; n++) {
				Slot at;
				if (!part.has(n))
					continue;
				open(at, n);
				terms(at.mark, n, at.raw, at.value);
				add(largest, at.value, sum);
				if constexpr (put_back)
					words.put_slot(n, 0, at.value);
			}
		}
		return sum;
	}

	/* mine: the largest that sum() was given; all: of the row. */
	DEVICE void store(T *y, i64 step, Compute mine, const SoftmaxSum<Compute> &all)
	{
		const Compute dead = all.largest == Number::least() ? mask.empty() : Compute(0);
		const Compute rest = LOG ? softmax_log(all.sum) : softmax_inverse(all.sum);
		const Compute fading = LOG ? 1 : all.fading(all.largest, mine, scale.exponent);

#pragma unroll
		for (int n = 0; n < kept; n++) {
			if (!row.has(n))
				continue;
			finish<!LOG>(all.largest, LOG ? rest : rest * fading, value[n]);
			bury(marks[n], n, dead, value[n]);
			row_store(row, n, y, value[n], step);
		}
		if constexpr (kept < held) {
#pragma unroll 1
			for (int n = kept; n < held; n++) {
				Slot at;
				if (!row.has(n))
					continue;
				open(at, n);
				if constexpr (put_back)
					element_unpack<T>(at.raw, at.value);
				else
					terms(at.mark, n, at.raw, at.value);
				finish<put_back>(all.largest, put_back ? rest * fading : rest, at.value);
				bury(at.mark, n, dead, at.value);
				row_store(row, n, y, at.value, step);
			}
		}
	}

  private:
	/* A vector that is in a slot. */
	struct Slot {
		Marks mark;
		u32 raw[Row::words];
		Compute value[V];
	};
	DEVICE void open(Slot &at, int n) const
	{
		mask.fetch(at.mark, row.column(n));
		words.take_slot(n, 0, at.raw);
	}

	/* The terms of vector n; -inf for what takes no part. */
	DEVICE void terms(const Marks &mark, int n, const u32 *raw, Compute (&out)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			out[j] = mask.term(mark, j, element_at<T, Compute>(raw, j), scale.before);
			if constexpr (MASK::partial)
				out[j] = mask.live(mark, row.column(n), j) ? out[j] : Number::least();
		}
		if constexpr (Row::skewed) {
			if (!row.inside(n)) {
#pragma unroll
				for (int j = 0; j < V; j++)
					out[j] = row.live(n, j) ? out[j] : Number::least();
			}
		}
	}

	/* The largest term of vector n joins the largest so far. */
	DEVICE void raise(const Marks &mark, int n, const Compute (&term)[V], Compute &largest) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			if constexpr (MASK::counts) {
				const Compute finite = fmax(term[j], Number::lowest());
				const bool live = row.live(n, j) & mask.live(mark, row.column(n), j);
				largest = fmax(largest, live ? finite : term[j]);
			} else {
				largest = fmax(largest, term[j]);
			}
		}
	}

	/* Terms become powers, which join the sum; or do not, where terms are needed again. */
	DEVICE void add(Compute largest, Compute (&x)[V], Compute &sum) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			const Compute power = softmax_exp2_flush((x[j] - largest) * scale.exponent);
			sum += power;
			if constexpr (!LOG)
				x[j] = power;
		}
	}

	/* Powers or terms become results.  rest: the logarithm of the sum, or what powers are
	 * multiplied with. */
	template <bool POWERS>
	DEVICE void finish(Compute largest, Compute rest, Compute (&x)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			if constexpr (POWERS)
				x[j] *= rest;
			else if constexpr (LOG)
				x[j] = fma(x[j] - largest, scale.after, -rest);
			else
				x[j] = softmax_exp2((x[j] - largest) * scale.exponent) * rest;
		}
	}

	/* What takes no part. */
	DEVICE void bury(const Marks &mark, int n, Compute dead, Compute (&x)[V]) const
	{
		if constexpr (MASK::partial) {
#pragma unroll
			for (int j = 0; j < V; j++)
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
