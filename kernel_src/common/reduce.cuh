/*
 * reduce.cuh: the reductions.  Each is a struct of
 *
 *   Taken, Real           what an element and the launch's number are
 *   Value                 what is known of some elements; merge() and none() as group.cuh has them
 *   take(value, in, index, real)          one or more elements that follow one another, in order;
 *                                         the first has the number `index`
 *   take_one(value, x, index, count, inverse, real)   number `count` of those that the value has,
 *                                                     with inverse = 1 / count
 *   counted(value, count)                 after all calls of take_one and take_some: how many there
 *                                         were
 *   located                               take() notes where the first of several elements is; the
 *                                         place of the result itself is found in the end
 *   pivoted                               take and take_one are given the row's first element as
 *                                         `real`; take_some(value, in, count, inverse, real) takes
 *                                         some at once, of a value that has `count`, with
 *                                         inverse = 1 / what it has then
 *   finish(value, real)                   the result, before it is rounded
 */
#pragma once
#include "common/inverse.cuh"
#include "common/reduce_input.cuh"
#include "common/softmax_exp.cuh"

DEVICE float reduce_infinity(float)
{
	return __uint_as_float(0x7f800000u);
}
DEVICE double reduce_infinity(double)
{
	return __longlong_as_double(0x7ff0000000000000ll);
}
/* The largest of a type of integers. */
DEVICE int reduce_infinity(int)
{
	return 0x7fffffff;
}
DEVICE i64 reduce_infinity(i64)
{
	return 0x7fffffffffffffffll;
}
/* The value that any other is above, or (LEAST) below. */
template <bool LEAST, typename Taken>
DEVICE Taken reduce_worst()
{
	const Taken most = reduce_infinity(Taken());
	if constexpr (reduce_same<Taken, int> || reduce_same<Taken, i64>)
		return LEAST ? most : -most - 1;
	else
		return LEAST ? most : -most;
}

/* The larger, or the smaller; a NaN if one of them is. */
template <bool LEAST, typename Taken>
DEVICE Taken reduce_better(Taken a, Taken b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	if constexpr (reduce_same<Taken, float>) {
		float out;
		if constexpr (LEAST)
			asm("min.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
		else
			asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
		return out;
	}
#endif
	return (LEAST ? b < a : b > a) || b != b ? b : a;
}

/* The shares that all kinds have: most take their elements one by one and count nothing. */
template <class R, typename T>
struct ReduceBase {
	typedef typename reduce_type<T>::Taken Taken;
	typedef typename element<T>::compute Real;
	static constexpr bool pivoted = false, located = false;

	template <class Value, int N, typename Number>
	static DEVICE void take(Value &value, const Taken (&in)[N], Number index, Real real)
	{
#pragma unroll
		for (int i = 0; i < N; i++)
			R::take_one(value, in[i], index + i, Number(0), Real(0), real);
	}
	template <class Value, typename Number>
	static DEVICE void counted(Value &, Number)
	{
	}
};

/* ---- Sums and products ---- */

/* The sum, divided by `real` where elements are floats. */
template <typename T>
struct ReduceSum : ReduceBase<ReduceSum<T>, T> {
	typedef typename reduce_type<T>::Taken Taken;
	typedef typename reduce_type<T>::Sum Sum;
	typedef typename element<T>::compute Real;
	struct Value {
		Sum sum;
		DEVICE void merge(const Value &other)
		{
			sum += other.sum;
		}
		static DEVICE Value none()
		{
			return {0};
		}
	};
	template <int N, typename Number>
	static DEVICE void take(Value &value, const Taken (&in)[N], Number, Real)
	{
		if constexpr (reduce_type<T>::small) {
			int sum = 0;
#pragma unroll
			for (int i = 0; i < N; i++)
				sum += in[i];
			value.sum += static_cast<Sum>(static_cast<i64>(sum));
		} else {
#pragma unroll
			for (int i = 0; i < N; i++)
				value.sum += static_cast<Sum>(in[i]);
		}
	}
	template <typename Number>
	static DEVICE void take_one(Value &value, Taken x, Number, Number, Real, Real)
	{
		value.sum += static_cast<Sum>(x);
	}
	static DEVICE auto finish(const Value &value, Real real)
	{
		if constexpr (reduce_type<T>::integer)
			return value.sum;
		else
			return value.sum / real;
	}
};

template <typename T>
struct ReduceProd : ReduceBase<ReduceProd<T>, T> {
	typedef typename reduce_type<T>::Taken Taken;
	typedef typename reduce_type<T>::Sum Sum;
	typedef typename element<T>::compute Real;
	struct Value {
		Sum product;
		DEVICE void merge(const Value &other)
		{
			product *= other.product;
		}
		static DEVICE Value none()
		{
			return {1};
		}
	};
	template <typename Number>
	static DEVICE void take_one(Value &value, Taken x, Number, Number, Real, Real)
	{
		value.product *= static_cast<Sum>(x);
	}
	static DEVICE Sum finish(const Value &value, Real)
	{
		return value.product;
	}
};

/* ---- The largest and the smallest ---- */

template <typename T, bool LEAST>
struct ReduceMost : ReduceBase<ReduceMost<T, LEAST>, T> {
	typedef typename reduce_type<T>::Taken Taken;
	typedef typename element<T>::compute Real;
	struct Value {
		Taken most;
		DEVICE void merge(const Value &other)
		{
			most = reduce_better<LEAST>(most, other.most);
		}
		static DEVICE Value none()
		{
			return {reduce_worst<LEAST, Taken>()};
		}
	};
	template <typename Number>
	static DEVICE void take_one(Value &value, Taken x, Number, Number, Real, Real)
	{
		value.most = reduce_better<LEAST>(value.most, x);
	}
	static DEVICE Taken finish(const Value &value, Real)
	{
		return value.most;
	}
};

/* The place of the largest or least: the first NaN, or else the first of those that are equal.  The
 * type Where holds any number, and the largest of its type stands for none. */
template <typename T, bool LEAST, typename Where>
struct ReduceArg : ReduceBase<ReduceArg<T, LEAST, Where>, T> {
	typedef typename reduce_type<T>::Taken Taken;
	typedef typename element<T>::compute Real;
	static constexpr bool located = true;
	/* Is b to be taken instead of a, which came before? */
	static DEVICE bool above(Taken a, Taken b)
	{
		return (LEAST ? b < a : b > a) | ((b != b) & (a == a));
	}
	struct Value {
		Taken most;
		Where where;
		DEVICE void merge(const Value &other)
		{
			const bool tie = (other.most == most) | ((other.most != other.most) & (most != most));
			const bool takes = above(most, other.most) | (tie & (other.where < where));
			most = takes ? other.most : most;
			where = takes ? other.where : where;
		}
		static DEVICE Value none()
		{
			return {reduce_worst<LEAST, Taken>(), reduce_infinity(Where())};
		}
	};
	template <typename Number>
	static DEVICE void take_one(Value &value, Taken x, Number index, Number, Real, Real)
	{
		if (above(value.most, x) | (value.where == reduce_infinity(Where())))
			value = {x, static_cast<Where>(index)};
	}
	template <int N, typename Number>
	static DEVICE void take(Value &value, const Taken (&in)[N], Number index, Real)
	{
		Taken most = in[0];
#pragma unroll
		for (int i = 1; i < N; i++)
			most = reduce_better<LEAST>(most, in[i]);
		take_one(value, most, index, Number(0), Real(0), Real(0));
	}
	/* Is x what the value was taken for? */
	static DEVICE bool is(const Value &value, Taken x)
	{
		return (x == value.most) | (x != x);
	}
	static DEVICE i64 finish(const Value &value, Real)
	{
		return value.where;
	}
};

/* Is any element not 0; or, ALL, are all? */
template <typename T, bool ALL>
struct ReduceAnyOf : ReduceBase<ReduceAnyOf<T, ALL>, T> {
	typedef typename reduce_type<T>::Taken Taken;
	typedef typename element<T>::compute Real;
	struct Value {
		u32 found; /* one that is not 0; ALL: one that is */
		DEVICE void merge(const Value &other)
		{
			found |= other.found;
		}
		static DEVICE Value none()
		{
			return {0};
		}
	};
	template <typename Number>
	static DEVICE void take_one(Value &value, Taken x, Number, Number, Real, Real)
	{
		value.found |= (x != 0) != ALL;
	}
	static DEVICE u32 finish(const Value &value, Real)
	{
		return (value.found != 0) != ALL;
	}
};

/* ---- Norms ---- */

#define REDUCE_NORM_SUM 1    /* of magnitudes */
#define REDUCE_NORM_SQUARE 2 /* the root of the sum of squares */
#define REDUCE_NORM_POWER 3  /* of powers real; 0: how many are not 0 */

template <typename T, int KIND>
struct ReduceNorm : ReduceBase<ReduceNorm<T, KIND>, T> {
	typedef typename element<T>::compute Taken, Real;
	typedef typename ReduceSum<T>::Value Value;

	template <typename Number>
	static DEVICE void take_one(Value &value, Taken x, Number, Number, Real, Real real)
	{
		if constexpr (KIND == REDUCE_NORM_SUM)
			value.sum += fabs(x);
		else if constexpr (KIND == REDUCE_NORM_SQUARE)
			value.sum = fma(x, x, value.sum);
		else
			value.sum += real == 0 ? static_cast<Real>(x != 0) : pow(fabs(x), real);
	}
	static DEVICE Real finish(const Value &value, Real real)
	{
		if constexpr (KIND == REDUCE_NORM_SUM)
			return value.sum;
		else if constexpr (KIND == REDUCE_NORM_SQUARE)
			return sqrt(value.sum);
		else
			return real == 0 ? value.sum : pow(value.sum, 1 / real);
	}
};

/* The largest or the smallest magnitude. */
template <typename T, bool LEAST>
struct ReduceNormMost : ReduceBase<ReduceNormMost<T, LEAST>, T> {
	typedef typename element<T>::compute Taken, Real;
	typedef typename ReduceMost<T, LEAST>::Value Value;

	template <typename Number>
	static DEVICE void take_one(Value &value, Taken x, Number, Number, Real, Real)
	{
		value.most = reduce_better<LEAST>(value.most, static_cast<Taken>(fabs(x)));
	}
	static DEVICE Real finish(const Value &value, Real)
	{
		return !LEAST && value.most < 0 ? Real(0) : value.most; /* below 0: there was nothing */
	}
};

/* ---- The logarithm of a sum of exponentials ---- */

template <typename Real>
DEVICE Real reduce_exp(Real x)
{
	return softmax_exp2(x * Real(SOFTMAX_LOG2E));
}

/* Those of no more than 0; results below the smallest normal number may be 0. */
template <typename Real>
DEVICE Real reduce_exp_flush(Real x)
{
	return softmax_exp2_flush(x * Real(SOFTMAX_LOG2E));
}

/* Wrong by 2^-22 at most where the result is near 0. */
DEVICE float reduce_log(float x)
{
#if KILN_CPU
	return logf(x);
#else
	float y;
	asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y * 0.69314718f;
#endif
}
DEVICE double reduce_log(double x)
{
	return log(x);
}

template <typename T>
struct ReduceLogsumexp : ReduceBase<ReduceLogsumexp<T>, T> {
	typedef typename element<T>::compute Taken, Real;
	struct Value {
		Real most, sum; /* the largest, and the sum of exp(x - most) */
		DEVICE void add(Real other_most, Real other_sum)
		{
			/* The difference of equal infinities would be a NaN. */
			const Real fading =
				most == other_most ? Real(1) : reduce_exp_flush(-fabs(most - other_most));
			const bool rises = other_most > most;
			sum = rises ? fma(sum, fading, other_sum) : fma(other_sum, fading, sum);
			most = rises ? other_most : most;
		}
		DEVICE void merge(const Value &other)
		{
			add(other.most, other.sum);
		}
		static DEVICE Value none()
		{
			return {-reduce_infinity(Real()), 0};
		}
	};
	template <typename Number>
	static DEVICE void take_one(Value &value, Taken x, Number, Number, Real, Real)
	{
		value.add(x, 1);
	}
	template <int N, typename Number>
	static DEVICE void take(Value &value, const Taken (&in)[N], Number index, Real real)
	{
		if constexpr (N == 1) {
			take_one(value, in[0], index, index, real, real);
		} else {
			Real most = in[0], sum = 0;
#pragma unroll
			for (int i = 1; i < N; i++)
				most = fmax(most, in[i]);
			/* Distances to an infinity say nothing; those to 0 come to it, or to nothing. */
			const Real from = fabs(most) == reduce_infinity(Real()) ? 0 : most;
#pragma unroll
			for (int i = 0; i < N; i++)
				sum += reduce_exp_flush(in[i] - from);
			value.add(most, sum);
		}
	}
	static DEVICE Real finish(const Value &value, Real)
	{
		return value.most + reduce_log(value.sum);
	}
};

/* ---- The variance ---- */

/* The sum of squared distances from the mean, divided by `real`.  Elements are taken as distances
 * from the row's first, so that a mean far from 0 costs no bits. */
template <typename T>
struct ReduceVar : ReduceBase<ReduceVar<T>, T> {
	typedef typename element<T>::compute Taken, Real;
	static constexpr bool pivoted = true;
	struct Value {
		Real count, mean, squares;
		/* Chan's combination. */
		DEVICE void merge(const Value &other)
		{
			const Real all = count + other.count;
			const Real inverse = all > 0 ? inverse_near(all) : 0;
			const Real apart = other.mean - mean;
			mean = fma(apart, other.count * inverse, mean);
			squares += fma(apart * apart, count * other.count * inverse, other.squares);
			count = all;
		}
		static DEVICE Value none()
		{
			return {0, 0, 0};
		}
	};
	/* Welford's step. */
	template <typename Number>
	static DEVICE void take_one(Value &value, Taken x, Number, Number, Real inverse, Real first)
	{
		const Real apart = x - first - value.mean;
		value.mean = fma(apart, inverse, value.mean);
		value.squares = fma(apart, x - first - value.mean, value.squares);
	}
	template <typename Number>
	static DEVICE void counted(Value &value, Number count)
	{
		value.count = static_cast<Real>(count);
	}
	/* Two passes over what is held. */
	template <int N>
	static DEVICE Value of(const Taken (&in)[N], Real first)
	{
		Value these = {Real(N), 0, 0};
		Real apart[N];
#pragma unroll
		for (int i = 0; i < N; i++) {
			apart[i] = in[i] - first;
			these.mean += apart[i];
		}
		these.mean *= Real(1) / Real(N);
#pragma unroll
		for (int i = 0; i < N; i++) {
			apart[i] -= these.mean;
			these.squares = fma(apart[i], apart[i], these.squares);
		}
		return these;
	}
	template <int N, typename Number>
	static DEVICE void take(Value &value, const Taken (&in)[N], Number, Real first)
	{
		value.merge(of(in, first));
	}
	/* Chan's combination, whose divisor is that of others, too. */
	template <int N, typename Number>
	static DEVICE void take_some(Value &value, const Taken (&in)[N], Number count, Real inverse,
								 Real first)
	{
		const Value these = of(in, first);
		const Real apart = these.mean - value.mean, share = Real(N) * inverse;
		value.mean = fma(apart, share, value.mean);
		value.squares += fma(apart * apart, static_cast<Real>(count) * share, these.squares);
	}
	static DEVICE Real finish(const Value &value, Real real)
	{
		return value.squares / real;
	}
};
