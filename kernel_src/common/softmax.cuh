/*
 * softmax.cuh: the arithmetic of softmax, and what says which elements of a row take part.
 *
 * With d the distance of scale * x from the row's largest, y = exp(d) / sum of exp(d) and its
 * logarithm is d - log(sum).  The distance is that of elements, not of their multiples: x times a
 * power of two (with the sign of scale) is exact, so is the difference of neighbours, the largest
 * is at 0, and what is left of the factor is multiplied last.  Large offsets cost no bits, and
 * nothing overflows that is finite in the end.
 *
 * A mask says which elements take part:
 *
 *   static constexpr bool partial   whether elements can be left out; if not, live() says true
 *   static constexpr bool counts    whether empty() is anything but 0
 *   static constexpr bool prefix    whether limit() is what leaves columns out
 *   static constexpr bool linear    whether term() is before * x
 *   static constexpr bool flagged   whether it is a flag for each element
 *   static constexpr bool between   whether fetch_around() and cut() do what fetch() does
 *   static constexpr bool again     whether a second fetch costs fewer registers than what is held
 *   template <int V> struct Held    what a thread keeps of it for V elements that lie together
 *   limit() const, a column         the columns from there on are left out, and x is not read there
 *   void fetch(Held<V> &, column, ahead, sure) const
 *                                   fills one for the V columns from column + ahead on, ahead being
 *                                   a multiple of V; sure: all of these are in the row
 *   bool live(const Held<V> &, column, j) const       does column + j take part?
 *   Compute term(const Held<V> &, j, x, before) const         before * x and what the mask adds
 *   Compute empty() const           all elements of a row in which none takes part
 *
 * Columns are of any signed type.  In skewed rows some of a vector's columns may be outside the
 * row: fetch must not read a mask there, and nothing asks for them.
 */
#pragma once
#include "common/element.cuh"
#include "common/group.cuh"
#include "common/inverse.cuh"
#include "common/softmax_exp.cuh"
#include "common/types.cuh"

template <typename Compute>
struct SoftmaxNumber;
template <>
struct SoftmaxNumber<float> {
	static DEVICE float least()
	{
		return __uint_as_float(0xff800000u); /* -inf */
	}
	static DEVICE float lowest()
	{
		return __uint_as_float(0xff7fffffu); /* finite */
	}
};
template <>
struct SoftmaxNumber<double> {
	static DEVICE double least()
	{
		return __longlong_as_double(static_cast<i64>(0xfff0000000000000ull));
	}
	static DEVICE double lowest()
	{
		return __longlong_as_double(static_cast<i64>(0xffefffffffffffffull));
	}
};

/* The mask of those that have none. */
template <typename Compute>
struct SoftmaxAll {
	static constexpr bool partial = false, counts = false, prefix = false, again = true;
	static constexpr bool linear = true, flagged = false, between = false;
	template <int V>
	struct Held {
	};

	DEVICE i64 limit() const
	{
		return 0x7fffffffffffffffll;
	}
	template <class HELD>
	DEVICE void fetch(HELD &, i64, int = 0, bool = false) const
	{
	}
	template <class HELD>
	DEVICE bool live(const HELD &, i64, int) const
	{
		return true;
	}
	template <class HELD>
	DEVICE Compute term(const HELD &, int, Compute x, Compute before) const
	{
		return x * before;
	}
	DEVICE Compute empty() const
	{
		return 0;
	}
};

/* ---- Sums ---- */

/*
 * Powers of numbers x below the largest, top: 2^(factor * (x - top)), made as
 * 2^(factor * x - shift), in one operation.  The part that rounding leaves of shift is a factor of
 * all these powers and of their sum: fix() takes it back.  It must not be large, so with a shift
 * that is too far numbers are made distances first.
 */
template <typename T, typename Compute>
struct SoftmaxLevel {
	typedef SoftmaxNumber<Compute> Limits;
	Compute top, factor, shift; /* shift: 0 where it is too far */
	bool far;

	DEVICE SoftmaxLevel(Compute top, Compute factor) : top(top), factor(factor)
	{
		far = !(most(T{}) < Compute(1 << 20));
		shift = far ? Compute(0) : fmax(top * factor, Limits::lowest());
	}
	/* Makes distances from the largest of numbers, if powers are to be made of these. */
	template <int N, int V>
	DEVICE void part(Compute (&x)[N][V]) const
	{
		const Compute half = base() * Compute(0.5);

		if (!far)
			return;
			/* In halves that do not overflow: so much that the compiler branches around it. */
#pragma unroll
		for (int n = 0; n < N; n++) {
#pragma unroll
			for (int j = 0; j < V; j++) {
				x[n][j] = fma(x[n][j], Compute(0.5), -half);
				x[n][j] += x[n][j];
			}
		}
	}
	/* Takes numbers that went through part(), of this level or below. */
	template <int V>
	DEVICE void powers(const Compute (&x)[V], Compute (&out)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++)
			out[j] = softmax_exp2_flush(fma(x[j], factor, -shift));
	}
	DEVICE Compute fix() const
	{
		return softmax_exp2_flush(left());
	}
	/* Returns what powers at another level are multiplied with; the largest is no lower here. */
	DEVICE Compute from(const SoftmaxLevel &other) const
	{
		if (far || other.far)
			return softmax_exp2_flush(fma(other.top - base(), factor, other.left() - left()));
		return softmax_exp2_flush(other.shift - shift);
	}

  private:
	/* The largest shift that there may be. */
	DEVICE Compute most(f16) const
	{
		return factor * Compute(65504);
	}
	template <typename Other>
	DEVICE Compute most(Other) const
	{
		return fabs(top * factor);
	}
	DEVICE Compute base() const
	{
		return fmax(top, Limits::lowest());
	}
	/* Returns the part of the shift that rounding left. */
	DEVICE Compute left() const
	{
		return far || !(top > Limits::least()) ? Compute(0) : fma(-top, factor, shift);
	}
};

/* Distances are made like this: before * x - largest; times exponent: exponents of 2; times after:
 * what is to be raised to e.  before is a power of two or its negative, or 0. */
template <typename Compute>
struct SoftmaxScale {
	Compute before, exponent, after;
};

/* The largest of some terms, and the sum of 2^(exponent * (term - largest)). */
template <typename Compute>
struct SoftmaxSum {
	Compute largest, sum;

	/* Nothing takes part.  As soon as something does, largest is at least lowest(). */
	static DEVICE SoftmaxSum none()
	{
		return {SoftmaxNumber<Compute>::least(), 0};
	}
	/* Returns the factor of a sum when the largest rises; the difference of nothing to nothing must
	 * not be a NaN. */
	static DEVICE Compute fading(Compute all, Compute mine, Compute exponent)
	{
		return softmax_exp2_flush((mine - fmax(all, SoftmaxNumber<Compute>::lowest())) * exponent);
	}
};

/* Over lanes: the largest first, so that each sum is scaled once.  A NaN among the terms is in the
 * sum, for fmax passes it over. */
template <int WIDTH, typename Compute>
DEVICE SoftmaxSum<Compute> group_butterfly(SoftmaxSum<Compute> mine, Compute exponent)
{
	Compute all = mine.largest, sum;

#pragma unroll
	for (int lanes = WIDTH / 2; lanes > 0; lanes /= 2)
		all = fmax(all, group_from(all, lanes));
	sum = mine.sum * mine.fading(all, mine.largest, exponent);
#pragma unroll
	for (int lanes = WIDTH / 2; lanes > 0; lanes /= 2)
		sum += group_from(sum, lanes);
	return {all, sum};
}

/* A sum and what it lost to rounding. */
template <typename Compute>
struct SoftmaxExact {
	Compute sum, lost;

	DEVICE void scale(Compute by)
	{
		sum *= by;
		lost *= by;
	}
	DEVICE void add(Compute value)
	{
		const Compute more = value - lost, all = sum + more;
		lost = all - all == 0 ? (all - sum) - more : 0; /* not of infinities */
		sum = all;
	}
};

template <typename Compute>
struct SoftmaxTotal {
	Compute sum;

	static DEVICE SoftmaxTotal none()
	{
		return {0};
	}
	DEVICE void merge(const SoftmaxTotal &other)
	{
		sum += other.sum;
	}
};

/* A row up to the column where its mask ends. */
template <class ROW, typename End>
struct SoftmaxPart {
	ROW row;
	End end;

	template <typename Number>
	DEVICE bool has(Number n) const
	{
		return row.has(n) && row.column(n) < end;
	}
	template <typename Number>
	DEVICE Number column(Number n) const
	{
		return row.column(n);
	}
};

template <class ROW, class MASK>
DEVICE auto softmax_part(const ROW &row, const MASK &mask)
{
	if constexpr (MASK::partial)
		return SoftmaxPart<ROW, decltype(mask.limit())>{row, mask.limit()};
	else
		return row;
}

/* dx of one element. */
template <bool LOG, typename Compute>
DEVICE Compute softmax_derivative(Compute y, Compute dy, Compute sum, Compute scale)
{
	if (LOG)
		return fma(-softmax_exp2(y * Compute(SOFTMAX_LOG2E)), sum, dy) * scale;
	return (dy - sum) * (y * scale);
}
