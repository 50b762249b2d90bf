/*
 * softmax_vector.cuh: what softmax does with the elements of one vector, wherever they are held: as
 * terms, as powers, as results.
 */
#pragma once
#include "common/index.cuh"
#include "common/softmax.cuh"

/* Leaves out, or makes 0, the halves that flags do: bytes that are 0, or are not. */
template <bool KEEP>
DEVICE void softmax_leave_out(u32 flags, u32 other, u32 &low, u32 &high)
{
	const u32 set = ((flags & 0x7f7f7f7fu) + 0x7f7f7f7fu) | flags; /* in the top bit of each */
	const u32 a = element_spread(set, 0), b = element_spread(set, 1);

	low = KEEP ? (low & a) | (other & ~a) : (low & ~a) | (other & a);
	high = KEEP ? (high & b) | (other & ~b) : (high & ~b) | (other & b);
}

/* ROW numbers vectors, says where they are and which of their elements are in the row (row.cuh,
 * row_stream.cuh).  LEVELS: powers are made in one operation.  FLAGS: with flags, too, what takes
 * no part is left out while halves are pairs. */
template <class ROW, bool LOG, class MASK, bool LEVELS = false, bool FLAGS = false>
struct SoftmaxVectors {
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	typedef SoftmaxNumber<Compute> Limits;
	static constexpr int V = ROW::length;
	typedef typename MASK::template Held<V> Marks;
	static constexpr bool linear = MASK::linear && LEVELS; /* are numbers not terms? */
	/* Terms with a mask may be larger than any half. */
	typedef SoftmaxLevel<typename index_choose<linear, T, Compute>::type, Compute> Level;
	/* Are numbers left out and compared while they are pairs of halves? */
	static constexpr bool paired =
		linear && element_pair<T>::known && V % 2 == 0 && !MASK::counts &&
		(!MASK::partial || MASK::prefix || (MASK::flagged && FLAGS && V % 4 == 0));

	const MASK mask;
	const SoftmaxScale<Compute> scale;
	const ROW row;

	DEVICE SoftmaxVectors(const ROW &row, const SoftmaxScale<Compute> &scale, const MASK &mask)
		: mask(mask), scale(scale), row(row)
	{
	}

	/* Is anything of vector n to be read? */
	template <typename Number>
	DEVICE bool reads(Number n) const
	{
		if constexpr (MASK::partial)
			return row.has(n) && row.column(n) < mask.limit();
		else
			return row.has(n);
	}

	/* Returns the largest term before any is looked at. */
	static DEVICE Compute nothing()
	{
		return MASK::partial ? Limits::least() : Limits::lowest();
	}

	/* Is all of vector n in the row, and in front of where the mask ends? */
	template <typename Number>
	DEVICE bool whole(Number n) const
	{
		bool is = true;

		if constexpr (ROW::skewed)
			is = row.inside(n);
		if constexpr (MASK::prefix)
			is = is && row.column(n) + V <= mask.limit();
		return is;
	}

	/* The terms of vector n; -inf for what takes no part. */
	template <typename Number>
	DEVICE void terms(const Marks &mark, Number n, const u32 *raw, Compute (&out)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++)
			out[j] = mask.term(mark, j, element_at<T, Compute>(raw, j), scale.before);
		leave_out(mark, n, out);
	}

	/* Its numbers, of which terms are a multiple that is a power of two, before turn() and
	 * leave_out(). */
	DEVICE void numbers(const Marks &mark, const u32 *raw, Compute (&out)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			const Compute x = element_at<T, Compute>(raw, j);
			out[j] = linear ? x : mask.term(mark, j, x, scale.before);
		}
	}
	/* Brings numbers of which terms are a negative multiple into the order of these. */
	template <int N>
	DEVICE void turn(Compute (&x)[N][V]) const
	{
		if (!linear || scale.before >= 0)
			return;
#pragma unroll
		for (int n = 0; n < N; n++) {
#pragma unroll
			for (int j = 0; j < V; j++)
				x[n][j] = -x[n][j];
		}
	}
	/* Makes -inf of what takes no part. */
	template <typename Number>
	DEVICE void leave_out(const Marks &mark, Number n, Compute (&out)[V]) const
	{
		constexpr bool edge = MASK::prefix && V > 2;
		if constexpr (MASK::partial && !edge) {
#pragma unroll
			for (int j = 0; j < V; j++)
				out[j] = mask.live(mark, row.column(n), j) ? out[j] : Limits::least();
		}
		if constexpr (ROW::skewed || edge) {
			if (!whole(n)) {
#pragma unroll
				for (int j = 0; j < V; j++)
					out[j] = row.live(n, j) && (!edge || mask.live(mark, row.column(n), j))
								 ? out[j]
								 : Limits::least();
			}
		}
	}
	/* Brings the numbers of a vector, which are pairs, into the order of terms, and makes -inf of
	 * those that take no part. */
	template <typename Number>
	DEVICE void pairs(const Marks &mark, Number n, u32 (&raw)[ROW::words]) const
	{
		constexpr u32 least = element_pair<T>::least;
		if (scale.before < 0) {
#pragma unroll
			for (int w = 0; w < V / 2; w++)
				raw[w] ^= 0x80008000u;
		}
		if constexpr (MASK::flagged) {
#pragma unroll
			for (int w = 0; w < V / 4; w++)
				softmax_leave_out<MASK::keep>(mark.word[w], least, raw[2 * w], raw[2 * w + 1]);
		}
		if constexpr (ROW::skewed || MASK::prefix) {
			if (whole(n))
				return;
#pragma unroll
			for (int j = 0; j < V; j++) {
				const u32 half = 0xffffu << j % 2 * 16;
				if (!row.live(n, j) || (MASK::prefix && !mask.live(mark, row.column(n), j)))
					raw[j / 2] = (raw[j / 2] & ~half) | (least & half);
			}
		}
	}
	/* Returns the larger halves, of `largest` and of all pairs. */
	static DEVICE u32 raise_pairs(const u32 (&raw)[ROW::words], u32 largest)
	{
#pragma unroll
		for (int w = 0; w < V / 2; w++)
			largest = element_pair<T>::larger(largest, raw[w]);
		return largest;
	}
	static DEVICE Compute larger_of(u32 pair)
	{
		return fmax(element_at<T, Compute>(&pair, 0), element_at<T, Compute>(&pair, 1));
	}
	/* The term of a number 1. */
	DEVICE Compute unit() const
	{
		return linear ? fabs(scale.before) : Compute(1);
	}
	DEVICE Compute factor() const
	{
		return unit() * scale.exponent;
	}
	/* The level of a whole row. */
	DEVICE Level level_of(const SoftmaxSum<Compute> &all) const
	{
		return Level(linear ? all.largest * (Compute(1) / unit()) : all.largest, factor());
	}

	/* The largest term of vector n joins the largest so far. */
	template <typename Number>
	DEVICE void raise(const Marks &mark, Number n, const Compute (&term)[V], Compute &largest) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			if constexpr (MASK::counts) {
				const Compute finite = fmax(term[j], Limits::lowest());
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

	/* Numbers become powers, which join the sum; or do not, where numbers are needed again. */
	DEVICE void lift(const Level &level, Compute (&x)[V], Compute &sum) const
	{
		Compute power[V];

		level.powers(x, power);
#pragma unroll
		for (int j = 0; j < V; j++) {
			sum += power[j];
			if constexpr (!LOG)
				x[j] = power[j];
		}
	}
	/* Powers or terms become results.  rest: the logarithm of the sum, or what powers are
	 * multiplied with. */
	template <bool POWERS>
	DEVICE void finish(Compute largest, Compute rest, Compute (&x)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++)
			if constexpr (POWERS)
				x[j] *= rest;
			else if constexpr (LOG)
				x[j] = fma(x[j] - largest, scale.after, -rest);
			else
				x[j] = softmax_exp2((x[j] - largest) * scale.exponent) * rest;
	}

	/* Gives elements that take no part the value dead. */
	template <typename Number>
	DEVICE void bury(const Marks &mark, Number n, Compute dead, Compute (&x)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++)
			x[j] = mask.live(mark, row.column(n), j) ? x[j] : dead;
	}

	/* Returns the number that finish() takes. */
	DEVICE Compute rest(const SoftmaxSum<Compute> &all) const
	{
		if constexpr (LOG)
			return softmax_log(all.sum);
		else
			return inverse_near(all.sum);
	}
	/* Returns the result of an element that takes no part. */
	DEVICE Compute dead(const SoftmaxSum<Compute> &all) const
	{
		if constexpr (MASK::partial)
			return all.largest == Limits::least() ? mask.empty() : Compute(0);
		else
			return 0;
	}
};
