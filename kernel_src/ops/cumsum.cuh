/*
 * cumsum.cuh: the cumulative sum and its like, as scans (scan.cuh): sums, products, the largest and
 * the smallest with their numbers, logarithms of sums of exponentials; the gradients of those that
 * are scans.  f16 and bf16 are computed in f32 and rounded once; integers wrap.
 */
#pragma once
#include "common/reduce.cuh"
#include "common/scan.cuh"

/* The shares that most have: one input and one output of type T. */
template <typename T, typename Real>
struct ScanPlain {
	typedef T A, Y;
	typedef ScanNone B, C, Z;
	typedef Real Result;
	static constexpr bool ahead = false, chunks = false;
};

/* The type to add and multiply in: that of integers is unsigned. */
template <typename T>
struct scan_number {
	typedef typename element<T>::compute type;
};
template <>
struct scan_number<i32> {
	typedef u32 type;
};
template <>
struct scan_number<i64> {
	typedef u64 type;
};

template <typename T, bool PRODUCT>
struct ScanSum : ScanPlain<T, typename scan_number<T>::type> {
	typedef typename scan_number<T>::type Number;
	struct Value {
		Number number;
		DEVICE void merge(const Value &next)
		{
			number = PRODUCT ? number * next.number : number + next.number;
		}
	};
	static DEVICE Value none()
	{
		return {Number(PRODUCT ? 1 : 0)};
	}
	template <class Held>
	static DEVICE void clear(Held &held, int v)
	{
		scan_set<T>(held.a, v, Number(PRODUCT ? 1 : 0));
	}
	template <class Held>
	static DEVICE Value value(const Held &held, int v, i64, bool)
	{
		return {scan_get<T, Number>(held.a, v)};
	}
	template <class Out, class Held>
	static DEVICE void result(Out &out, const Held &, int v, const Value &before, const Value &upto,
							  bool exclusive)
	{
		out.y[v] = exclusive ? before.number : upto.number;
	}
};

/* The largest or, LEAST, the smallest, with the number of the last of equals; a NaN stays until the
 * next one.  Place: the type of numbers within a row. */
template <typename T, bool LEAST, typename Place>
struct ScanBest : ScanPlain<T, typename reduce_type<T>::Taken> {
	typedef i64 Z;
	typedef typename reduce_type<T>::Taken Number;
	struct Value {
		Number best;
		Place place;
		DEVICE void merge(const Value &next)
		{
			const bool takes =
				(next.best != next.best) | (LEAST ? next.best <= best : next.best >= best);
			best = takes ? next.best : best;
			place = takes ? next.place : place;
		}
	};
	static DEVICE Value none()
	{
		return {reduce_worst<LEAST, Number>(), Place(-1)};
	}
	template <class Held>
	static DEVICE void clear(Held &held, int v)
	{
		scan_set<T>(held.a, v, reduce_worst<LEAST, Number>());
	}
	template <class Held>
	static DEVICE Value value(const Held &held, int v, i64 index, bool)
	{
		return {scan_get<T, Number>(held.a, v), static_cast<Place>(index)};
	}
	template <class Out, class Held>
	static DEVICE void result(Out &out, const Held &, int v, const Value &before, const Value &upto,
							  bool exclusive)
	{
		out.y[v] = exclusive ? before.best : upto.best;
		out.z[v] = exclusive ? before.place : upto.place;
	}
};

/*
 * In chunks, whose exponentials are all taken as distances from one number: all vectors that lanes
 * hold.  A distance that would lose bits of the sums before the largest element
 * leaves the chunk to be merged.
 */
template <typename T>
struct ScanLog : ScanPlain<T, typename element<T>::compute> {
	typedef typename element<T>::compute Real;
	typedef typename ReduceLogsumexp<T>::Value Value;
	static constexpr bool chunks = sizeof(Real) == 4;
	static constexpr int most_apart = 16; /* of the first element from the largest */
	static constexpr int near_apart = 3;  /* by which a short logarithm is good enough */

	/* HELD times N elements of a thread: the exponentials added up from the chunk's first to each
	 * of them, and to what is before each N of them; the chunk's sum. */
	template <int HELD, int N>
	struct Chunk {
		Real upto[HELD][N], before[HELD], most, first, sum;
		DEVICE Value all() const
		{
			return {most, sum};
		}
	};

	static DEVICE Value none()
	{
		return Value::none();
	}
	template <class Held>
	static DEVICE void clear(Held &held, int v)
	{
		scan_set<T>(held.a, v, -reduce_infinity(Real()));
	}
	template <class Held>
	static DEVICE Value value(const Held &held, int v, i64, bool)
	{
		return {scan_get<T, Real>(held.a, v), 1};
	}
	template <class Out, class Held>
	static DEVICE void result(Out &out, const Held &, int v, const Value &before, const Value &upto,
							  bool exclusive)
	{
		out.y[v] = ReduceLogsumexp<T>::finish(exclusive ? before : upto, 0);
	}

	/* Makes a chunk of HELD times N elements of each of WIDTH lanes, of which N follow those of the
	 * lane before; parts: of each N of all lanes, the elements up to this lane's last.  false: it
	 * is to be merged. */
	template <int WIDTH, int HELD, int N>
	static DEVICE bool chunk(const Real (&x)[HELD][N], int lane, Chunk<HELD, N> &out,
							 Value (&parts)[HELD])
	{
		const Real infinity = reduce_infinity(Real());
		Real most = x[0][0], sum[HELD];

#pragma unroll
		for (int h = 0; h < HELD; h++)
#pragma unroll
			for (int i = 0; i < N; i++)
				most = fmax(most, x[h][i]);
#pragma unroll
		for (int far = WIDTH / 2; far > 0; far /= 2)
			most = fmax(most, __shfl_xor_sync(0xffffffffu, most, far, WIDTH));
		out.first = WIDTH > 1 ? scan_from<WIDTH>(x[0][0], 0) : x[0][0];
		out.most = most;
		const bool good =
			most == -infinity || (most < infinity && most - out.first <= Real(most_apart));
		/* Lanes that merge meet, so all of a warp do, also where each has a row. */
		if (!__all_sync(0xffffffffu, good))
			return false;
		const Real from = most == -infinity ? Real(0) : most;
		out.sum = 0;
#pragma unroll
		for (int h = 0; h < HELD; h++) {
			sum[h] = 0;
#pragma unroll
			for (int i = 0; i < N; i++)
				out.upto[h][i] = sum[h] += reduce_exp_flush(x[h][i] - from);
#pragma unroll
			for (int far = 1; far < WIDTH; far *= 2) {
				const Real more = scan_from_before<WIDTH>(sum[h], far);
				sum[h] += lane >= far ? more : Real(0);
			}
			parts[h] = {most, sum[h]};
			out.before[h] = out.sum;
			if constexpr (WIDTH > 1) {
				const Real others = scan_from_before<WIDTH>(sum[h], 1);
				out.before[h] += lane > 0 ? others : Real(0);
			}
			out.sum += WIDTH > 1 ? scan_from<WIDTH>(sum[h], WIDTH - 1) : sum[h];
			if (WIDTH > 1 || h > 0) {
#pragma unroll
				for (int i = 0; i < N; i++)
					out.upto[h][i] += out.before[h];
			}
		}
		return true;
	}

	/* give(h, i, y): the result of element i of N number h, with `before` before the chunk, which
	 * is no infinity. */
	template <int HELD, int N, typename Give>
	static DEVICE void spread(const Chunk<HELD, N> &chunk, const Value &before, bool exclusive,
							  Give give)
	{
		const Real most = fmax(before.most, chunk.most);
		const Real from = most == -reduce_infinity(Real()) ? Real(0) : most;
		const Real share = before.sum * reduce_exp_flush(before.most - from);
		const Real scale = reduce_exp_flush(chunk.most - from);
		const bool near = fmax(before.most, chunk.first) >= from - Real(near_apart);

#pragma unroll
		for (int h = 0; h < HELD; h++) {
#pragma unroll
			for (int i = 0; i < N; i++) {
				const Real upto = !exclusive ? chunk.upto[h][i]
								  : i > 0    ? chunk.upto[h][i > 0 ? i - 1 : 0]
											 : chunk.before[h];
				const Real sum = fma(upto, scale, share);
				give(h, i, from + (near ? reduce_log(sum) : softmax_log(sum)));
			}
		}
	}
};

/* ---- Gradients, which go the other way: x, y, dy -> dx ---- */

template <typename T>
struct ScanGradient {
	typedef T A, B, C, Y;
	typedef ScanNone Z;
	typedef typename element<T>::compute Result;
	static constexpr bool chunks = false;
};

/*
 * dx[j] = y[j - 1] * (dy[j] + x[j + 1] * (dy[j + 1] + x[j + 2] * ...)): the products of what is
 * before and of what is behind, so that no zero is divided by.  Each element x makes of what
 * follows, t, the sum x * t + x * dy, or x * t + dy where y is exclusive and has j's own result one
 * element earlier; of two such, one follows the other.
 */
template <typename T>
struct ScanProductGradient : ScanGradient<T> {
	typedef typename element<T>::compute Real;
	static constexpr bool ahead = true;
	struct Value {
		Real times, sum;
		DEVICE void merge(const Value &next)
		{
			sum = fma(next.times, sum, next.sum);
			times *= next.times;
		}
	};
	static DEVICE Value none()
	{
		return {1, 0};
	}
	template <class Held>
	static DEVICE void clear(Held &held, int v)
	{
		scan_set<T>(held.a, v, Real(1));
		scan_set<T>(held.b, v, Real(1));
		scan_set<T>(held.c, v, Real(0));
	}
	template <class Held>
	static DEVICE Value value(const Held &held, int v, i64, bool exclusive)
	{
		const Real x = scan_get<T, Real>(held.a, v), dy = scan_get<T, Real>(held.c, v);
		return {x, exclusive ? dy : x * dy};
	}
	template <class Out, class Held>
	static DEVICE void result(Out &out, const Held &held, int v, const Value &before, const Value &,
							  bool exclusive)
	{
		const Real behind = exclusive ? before.sum : before.sum + scan_get<T, Real>(held.c, v);
		out.y[v] = scan_get<T, Real>(held.b, v) * behind;
	}
};

/*
 * dx[j] = the sum of dy[k] * exp(x[j] - y[k]).  A value knows the sum of dy[k] * exp(y - y[k]),
 * with y of the last element that was merged: y rises along x's row, so that no factor is above 1
 * but for roundings.
 */
template <typename T>
struct ScanLogGradient : ScanGradient<T> {
	typedef typename element<T>::compute Real;
	static constexpr bool ahead = false;
	struct Value {
		Real y, sum;
		DEVICE void merge(const Value &next)
		{
			/* The difference of equal infinities would be a NaN. */
			const Real fading = next.y == y ? Real(1) : reduce_exp_flush(next.y - y);
			sum = sum == 0 ? next.sum : fma(sum, fading, next.sum);
			y = next.y;
		}
	};
	static DEVICE Value none()
	{
		return {reduce_infinity(Real()), 0};
	}
	template <class Held>
	static DEVICE void clear(Held &held, int v)
	{
		scan_set<T>(held.a, v, Real(0));
		scan_set<T>(held.b, v, reduce_infinity(Real()));
		scan_set<T>(held.c, v, Real(0));
	}
	template <class Held>
	static DEVICE Value value(const Held &held, int v, i64, bool)
	{
		return {scan_get<T, Real>(held.b, v), scan_get<T, Real>(held.c, v)};
	}
	template <class Out, class Held>
	static DEVICE void result(Out &out, const Held &held, int v, const Value &before,
							  const Value &upto, bool exclusive)
	{
		const Real x = scan_get<T, Real>(held.a, v);
		/* Numbers are chosen: one of two structures by its address would lie in memory. */
		const Real sum = exclusive ? before.sum : upto.sum, y = exclusive ? before.y : upto.y;
		/* An element that adds nothing has no gradient, even where all are such. */
		const bool nothing = sum == 0 || x == -reduce_infinity(Real());
		out.y[v] = nothing ? Real(0) : sum * reduce_exp(x - y);
	}
};
