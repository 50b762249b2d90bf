/*
 * softmax_rows.cuh: softmax of rows that threads hold: in registers and slots of shared memory, by
 * part of a warp up to a cluster of blocks (row.cuh).
 *
 * One pass finds the largest and the sum together: each thread takes its own largest first, and
 * partial sums are scaled down to the largest of all when they meet (Milakov and Gimelshein,
 * "Online normalizer calculation for softmax", 2018).  Elements in registers are converted once,
 * and powers take their place there.
 *
 * Slots are worked on as they come, and their elements are raised twice.  Loops over slots are
 * rolled, or the compiler would bring all of them into registers.
 */
#pragma once
#include "common/row.cuh"
#include "common/softmax_vector.cuh"

/* Have halves with a flag each few threads a row, that hold some vectors?  These have more to
 * compute than to move. */
template <class SHAPE, class MASK>
constexpr bool softmax_flagged =
	MASK::flagged && !MASK::counts && SHAPE::slots == 0 && !SHAPE::row::skewed &&
	SHAPE::row::length % 4 == 0 && SHAPE::row::held > 1 && SHAPE::threads / SHAPE::rows <= 32;
/* Are powers made in one operation?  Of halves in slots, which are raised twice, and of those. */
template <class SHAPE, bool LOG, class MASK>
constexpr bool softmax_levels = sizeof(typename SHAPE::Element) == 2 && !LOG &&
								(SHAPE::slots > 0 || softmax_flagged<SHAPE, MASK>);

template <class SHAPE, bool LOG, class MASK>
struct SoftmaxRows : SoftmaxVectors<typename SHAPE::row, LOG, MASK,
									softmax_levels<SHAPE, LOG, MASK>, SHAPE::slots == 0> {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::template words<1> Words;
	static constexpr bool levels = softmax_levels<SHAPE, LOG, MASK>;
	typedef SoftmaxVectors<Row, LOG, MASK, levels, SHAPE::slots == 0> Vectors;
	typedef typename Vectors::Marks Marks;
	typedef typename Vectors::Level Level;
	/* Slots that are worked on at once, and come as one batch. */
	static constexpr int once = Vectors::paired ? 2 : 1;
	static constexpr int V = Row::length;
	static constexpr int held = Row::held, kept = Words::kept;
	/* Does sum() put powers into slots, where that costs no accuracy? */
	static constexpr bool put_back = !LOG && sizeof(T) >= 4;
	/* Are addresses made from the first vector's?  Of many small ones each would take its time. */
	static constexpr bool near = V <= 2 || (Row::skewed && SHAPE::threads / SHAPE::rows <= 32);
	/* Does the vector that comes last have its terms first?  Otherwise the compiler begins to work
	 * on the first before loads of a mask that others need are under way. */
	static constexpr bool turned = MASK::partial && !MASK::prefix && !Row::skewed && V > 2;
	using Vectors::mask;
	using Vectors::row;
	using Vectors::scale;

	Words words;
	Marks marks[kept ? kept : 1];
	Compute value[kept ? kept : 1][V]; /* terms or numbers, then powers */
	Compute fix;                       /* of powers that gather() made */

	DEVICE SoftmaxRows(const Row &row, const SoftmaxScale<Compute> &scale, const MASK &mask,
					   void *slots)
		: Vectors(row, scale, mask), words(slots)
	{
	}

	/* Begins to bring in the row. */
	DEVICE void begin(const T *x, i64 step)
	{
		if constexpr (MASK::partial)
			fetch_part(softmax_part(row, mask), x, step);
		else
			fetch_part(row, x, step);
		if constexpr (MASK::between && kept > 0) {
			typename MASK::template Around<V> around[kept];
#pragma unroll
			for (int n = 0; n < kept; n++)
				if (row.has(n))
					mask.fetch_around(around[n], row.column(0), n * Row::apart, Row::sure(n));
#pragma unroll
			for (int n = 0; n < kept; n++)
				if (row.has(n))
					mask.cut(around[n], marks[n], row.column(0));
		} else if constexpr (MASK::partial) {
#pragma unroll
			for (int n = 0; n < kept; n++)
				if (row.has(n))
					mask.fetch(marks[n], row.column(0), n * Row::apart, Row::sure(n));
		}
	}
	DEVICE void fetch(const T *x, i64 step)
	{
		begin(x, step);
		if constexpr (kept < held)
			words.arrive();
	}

	/* The largest term of this thread and the sum of its powers, of a row that is still coming. */
	DEVICE SoftmaxSum<Compute> gather()
	{
		if constexpr (levels)
			return gather_levels();
		else
			return gather_terms();
	}

	/* The largest term of this thread. */
	DEVICE Compute largest()
	{
		Compute found = this->nothing();

		raise_kept(found);
		if constexpr (kept < held) {
#pragma unroll 1
			for (int n = kept; n < held; n++) {
				Slot at;
				if (!this->reads(n))
					continue;
				open(at, n);
				this->raise(at.mark, n, at.value, found);
			}
		}
		return found;
	}

	/* The sum of this thread's powers. */
	DEVICE Compute sum(Compute largest)
	{
		Compute sum = 0;

		if constexpr (MASK::partial) /* there may be nothing */
			largest = fmax(largest, Vectors::Limits::lowest());
#pragma unroll
		for (int n = 0; n < kept; n++)
			if (row.has(n))
				this->add(largest, value[n], sum);
		if constexpr (kept < held) {
#pragma unroll 1
			for (int n = kept; n < held; n++) {
				Slot at;
				if (!this->reads(n))
					continue;
				open(at, n);
				this->add(largest, at.value, sum);
				if constexpr (put_back)
					words.put_slot(n, 0, at.value);
			}
		}
		return sum;
	}

	/* mine: the largest term that gather() found; all: of the row. */
	DEVICE void store(T *y, i64 step, Compute mine, const SoftmaxSum<Compute> &all)
	{
		const Compute dead = this->dead(all), rest = this->rest(all);
		Compute kept_rest = rest;

		if constexpr (!LOG) /* powers are those of this thread's largest */
			kept_rest *= all.fading(all.largest, mine, scale.exponent) * fix;
		/* Powers of what takes no part are 0, and stay so by any factor that is a number. */
		if constexpr (!MASK::partial)
			store_kept<false>(y, step, all.largest, kept_rest, dead);
		else if (MASK::again && all.sum > 0 && rest > 0)
			store_kept<false>(y, step, all.largest, kept_rest, dead);
		else
			store_kept<true>(y, step, all.largest, kept_rest, dead);
		if constexpr (kept < held) {
			const Level level = this->level_of(all);
			const Compute slot_rest = levels ? rest * level.fix() : rest;
#pragma unroll 1
			for (int n = kept; n < held; n++) {
				Slot at;
				if (!row.has(n))
					continue;
				if constexpr (levels)
					raise_slot(level, n, at.mark, at.value);
				else
					open(at, n);
				this->template finish<levels>(all.largest, slot_rest, at.value);
				if constexpr (MASK::partial)
					this->bury(at.mark, n, dead, at.value);
				row_store(row, n, y, at.value, step);
			}
		}
	}

  protected:
	/* Makes terms of what is in registers; `largest` becomes that of all so far. */
	DEVICE void raise_kept(Compute &largest)
	{
#pragma unroll
		for (int i = 0; i < kept; i++) {
			const int n = turned ? kept - 1 - i : i;
			if (!row.has(n))
				continue;
			this->terms(marks[n], n, words.word[n][0], value[n]);
			this->raise(marks[n], n, value[n], largest);
		}
	}

	DEVICE SoftmaxSum<Compute> gather_terms()
	{
		SoftmaxSum<Compute> mine = {this->nothing(), 0};

		fix = 1;
		if constexpr (kept < held) {
#pragma unroll 1
			for (int n = kept; n < held; n++) {
				await_batch();
				gather_slot(n, mine);
			}
		}
		Compute found = mine.largest;
		raise_kept(found);
		if constexpr (kept < held)
			mine.sum *= mine.fading(found, mine.largest, scale.exponent);
		const Compute finite = MASK::partial ? fmax(found, Vectors::Limits::lowest()) : found;
#pragma unroll
		for (int n = 0; n < kept; n++)
			if (row.has(n))
				this->add(finite, value[n], mine.sum);
		mine.largest = found;
		return mine;
	}

	/* As gather_terms(), at levels. */
	DEVICE SoftmaxSum<Compute> gather_levels()
	{
		Compute top = Vectors::Limits::least(), sum = 0, more = 0;
		Level level(top, this->factor());

		if constexpr (kept < held) {
#pragma unroll 1
			for (int n = kept; n < held; n += once) {
				await_batch();
				gather_slots(n, top, level, sum);
			}
		}
		if constexpr (Vectors::paired)
			number_pairs(top);
		else
			number_kept(top);
		const Level last(top, this->factor());
		last.part(value);
#pragma unroll
		for (int n = 0; n < kept; n++)
			if (row.has(n))
				this->lift(last, value[n], more);
		fix = last.fix();
		return {top * this->unit(), fma(sum, last.from(level), more) * fix};
	}
	/* Makes numbers of what is in registers; `largest` becomes that of all so far. */
	DEVICE void number_kept(Compute &largest)
	{
#pragma unroll
		for (int n = 0; n < kept; n++)
			if (row.has(n))
				this->numbers(marks[n], words.word[n][0], value[n]);
		this->turn(value);
#pragma unroll
		for (int n = 0; n < kept; n++) {
			if (!row.has(n))
				continue;
			this->leave_out(marks[n], n, value[n]);
			this->raise(marks[n], n, value[n], largest);
		}
	}
	/* Does as number_kept(), by way of pairs. */
	DEVICE void number_pairs(Compute &largest)
	{
		if constexpr (Vectors::paired) {
			u32 pair = element_pair<T>::least;
#pragma unroll
			for (int i = 0; i < kept; i++) {
				const int n = turned ? kept - 1 - i : i;
				if (!row.has(n))
					continue;
				this->pairs(marks[n], n, words.word[n][0]);
				pair = this->raise_pairs(words.word[n][0], pair);
			}
			largest = fmax(largest, this->larger_of(pair));
#pragma unroll
			for (int n = 0; n < kept; n++)
				if (row.has(n))
					element_unpack<T>(words.word[n][0], value[n]);
		}
	}
	/* Waits for the next batch of slots.  An empty batch takes its place, so that the number of
	 * those that are left is a constant. */
	static DEVICE void await_batch()
	{
		async_batch();
		async_wait_but<(held - kept + once - 1) / once>();
	}
	/* Slots from number n on join the sum of powers at a level. */
	DEVICE void gather_slots(int n, Compute &top, Level &level, Compute &sum) const
	{
		if constexpr (Vectors::paired) {
			u32 raw[once][Row::words];
#pragma unroll
			for (int g = 0; g < once; g++)
				open_pairs(n + g, raw[g]);
			u32 pair = raw[0][0];
#pragma unroll
			for (int g = 0; g < once; g++)
				pair = this->raise_pairs(raw[g], pair);
			top = fmax(top, this->larger_of(pair));
			const Level next(top, this->factor());
			Compute more[once] = {};
#pragma unroll
			for (int g = 0; g < once; g++) {
				Compute x[1][V];
				element_unpack<T>(raw[g], x[0]);
				next.part(x);
				this->lift(next, x[0], more[g]);
			}
			sum = fma(sum, next.from(level), more[0] + more[1]);
			level = next;
		} else {
			gather_slot(n, top, level, sum);
		}
	}
	/* The pairs of a slot: -inf where the row has none. */
	DEVICE void open_pairs(int n, u32 (&raw)[Row::words]) const
	{
		if constexpr (Vectors::paired) {
			if (n < held && this->reads(n)) {
				Marks mark;
				mask.fetch(mark, row.column(n));
				words.take_slot(n, 0, raw);
				this->pairs(mark, n, raw);
				return;
			}
#pragma unroll
			for (int w = 0; w < Row::words; w++)
				raw[w] = element_pair<T>::least;
		}
	}
	/* A slot joins the sum of powers at a level. */
	DEVICE void gather_slot(int n, Compute &top, Level &level, Compute &sum) const
	{
		Compute x[1][V], more = 0;
		Marks mark;

		if (!this->reads(n))
			return;
		open_numbers(mark, n, x);
		this->raise(mark, n, x[0], top);
		const Level next(top, this->factor());
		next.part(x);
		this->lift(next, x[0], more);
		sum = fma(sum, next.from(level), more);
		level = next;
	}
	DEVICE void open_numbers(Marks &mark, int n, Compute (&x)[1][V]) const
	{
		u32 raw[Row::words];

		mask.fetch(mark, row.column(n));
		words.take_slot(n, 0, raw);
		if constexpr (Vectors::paired) {
			this->pairs(mark, n, raw);
			element_unpack<T>(raw, x[0]);
		} else {
			this->numbers(mark, raw, x[0]);
			this->turn(x);
			this->leave_out(mark, n, x[0]);
		}
	}
	/* Powers of a slot that are to be multiplied with one number for all. */
	DEVICE void raise_slot(const Level &level, int n, Marks &mark, Compute (&out)[V]) const
	{
		Compute x[1][V];

		open_numbers(mark, n, x);
		level.part(x);
		level.powers(x[0], out);
	}

	/* Stores what is in registers.  BURY: elements that take no part are given their value. */
	template <bool BURY>
	DEVICE void store_kept(T *y, i64 step, Compute largest, Compute rest, Compute dead)
	{
#pragma unroll
		for (int n = 0; n < kept; n++) {
			if (!row.has(n))
				continue;
			this->template finish<!LOG>(largest, rest, value[n]);
			if constexpr (BURY && MASK::again) {
				Marks mark;
				mask.fetch(mark, row.column(0), n * Row::apart, Row::sure(n));
				this->bury(mark, n, dead, value[n]);
			} else if constexpr (BURY) {
				this->bury(marks[n], n, dead, value[n]);
			}
			if constexpr (near)
				row_store(RowNear<Row, Row>{row, row}, n,
						  y + static_cast<i64>(row.column(0)) * step, value[n], step);
			else
				row_store(row, n, y, value[n], step);
		}
	}

	template <class PART>
	DEVICE void fetch_part(const PART &part, const T *x, i64 step)
	{
		if constexpr (kept < held) {
#pragma unroll
			for (int n = kept; n < held; n++) {
				words.fetch_slot(part, n, 0, x);
				if ((n - kept) % once == once - 1 || n == held - 1)
					async_batch();
			}
		}
		if constexpr (near)
			words.fetch_kept(RowNear<Row, PART>{part, row}, 0,
							 x + static_cast<i64>(row.column(0)) * step, step);
		else
			words.fetch_kept(part, 0, x, step);
	}

	/* A slot joins the sum. */
	DEVICE void gather_slot(int n, SoftmaxSum<Compute> &mine) const
	{
		Compute found = mine.largest, more = 0;
		Slot at;

		if (!this->reads(n))
			return;
		open(at, n);
		this->raise(at.mark, n, at.value, found);
		const Compute finite = MASK::partial ? fmax(found, Vectors::Limits::lowest()) : found;
		this->add(finite, at.value, more);
		mine.sum = fma(mine.sum, mine.fading(found, mine.largest, scale.exponent), more);
		mine.largest = found;
	}

	/* A vector that is in a slot; open() brings it and makes terms of it. */
	struct Slot {
		Marks mark;
		u32 raw[Row::words];
		Compute value[V];
	};
	DEVICE void open(Slot &at, int n) const
	{
		mask.fetch(at.mark, row.column(n));
		words.take_slot(n, 0, at.raw);
		this->terms(at.mark, n, at.raw, at.value);
	}
};

/*
 * One row: x and y are where it begins, columns x_step and y_step apart.  here: it is there, else
 * x is a row to read for nothing.  All threads of the block must come.
 */
template <class SHAPE, bool LOG, class MASK>
DEVICE void softmax_row_of(const typename SHAPE::row &row, const typename SHAPE::Element *x,
						   i64 x_step, typename SHAPE::Element *y, i64 y_step,
						   const SoftmaxScale<typename SHAPE::Compute> &scale, const MASK &mask,
						   bool here)
{
	typedef typename SHAPE::Compute Compute;
	DYN_SHARED(b128, slots);
	SoftmaxRows<SHAPE, LOG, MASK> held(row, scale, mask, slots);

	held.begin(x, x_step);
	const SoftmaxSum<Compute> mine = held.gather(),
							  all = SHAPE::group::template reduce<0>(mine, scale.exponent);
	if (here)
		held.store(y, y_step, mine.largest, all);
}

template <class SHAPE, bool LOG, class MASK>
DEVICE void softmax_row(const typename SHAPE::Element *x, i64 x_step, typename SHAPE::Element *y,
						i64 y_step, const SoftmaxScale<typename SHAPE::Compute> &scale,
						const MASK &mask, bool here)
{
	softmax_row_of<SHAPE, LOG>(
		typename SHAPE::row(x, SHAPE::group::thread(), SHAPE::group::slice()), x, x_step, y, y_step,
		scale, mask, here);
}
