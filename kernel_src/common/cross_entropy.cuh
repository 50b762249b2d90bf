/*
 * cross_entropy.cuh: the loss of a row of logits against the number of a class, and its gradient.
 *
 *   z     x, or cap * tanh(x / cap)
 *   lse   the logarithm of the sum of exp(z)
 *   loss  (1 - smoothing) * (lse - z[target]) + smoothing * (lse - the mean of z) + square * lse^2
 *   grad  (exp(z - lse) * (1 + 2 * square * lse) - smoothing / columns - (1 - smoothing at target))
 *         * the derivative of z
 *
 * A row whose target is `ignore` has loss, lse and gradient 0.  A target that names no class is a
 * stray: it is counted for the host, and its row has no number.
 *
 * The mean is that of the rows which are not ignored.  Gradients are divided by how many they are,
 * which must be known before the last row is read: block 0 counts all targets, and each block waits
 * for that when its own row is read.  Blocks begin in their order, so that nobody waits long; where
 * they do not, a block that has waited long enough counts by itself.
 */
#pragma once
#include "common/async.cuh"
#include "common/indices.cuh"
#include "common/softmax_vector.cuh"
#include "common/total.cuh"

enum { CROSS_ENTROPY_MEAN, CROSS_ENTROPY_SUM, CROSS_ENTROPY_NONE };

/* ---- Soft cap ---- */

DEVICE float cross_entropy_tanh(float x)
{
	return fmaf(inverse_near(1 + softmax_exp2(x * 2.88539008f)), -2.0f, 1.0f);
}
DEVICE double cross_entropy_tanh(double x)
{
	return tanh(x);
}

/* Says what z is, as the mask of a softmax.  cap 0: x. */
template <typename Compute>
struct CrossEntropyCap : SoftmaxAll<Compute> {
	Compute cap, inverse;

	DEVICE explicit CrossEntropyCap(Compute cap) : cap(cap), inverse(1 / cap)
	{
	}
	template <class HELD>
	DEVICE Compute term(const HELD &, int, Compute x, Compute) const
	{
		return cap == 0 ? x : cap * cross_entropy_tanh(x * inverse);
	}
	DEVICE Compute slope(Compute z) const
	{
		const Compute t = z * inverse;
		return cap == 0 ? Compute(1) : fma(-t, t, Compute(1));
	}
};
template <typename Compute>
struct CrossEntropyPlain : SoftmaxAll<Compute> {
	DEVICE explicit CrossEntropyPlain(Compute)
	{
	}
	DEVICE Compute slope(Compute) const
	{
		return 1;
	}
};

/* ---- Logarithms ---- */

/* The logarithm of a sum of powers: wrong by 2^-22 of itself, or of 1 where it is near 0. */
DEVICE float cross_entropy_log(float x)
{
#if KILN_CPU
	return logf(x);
#else
	float y;
	asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y * 0.693147181f;
#endif
}
DEVICE double cross_entropy_log(double x)
{
	return log(x);
}

/* ---- Targets ---- */

struct CrossEntropyTarget {
	i64 column;       /* -1: none */
	bool live, stray; /* not ignored; names no class */
};

template <typename Target>
DEVICE CrossEntropyTarget cross_entropy_target(Target target, i64 ignore, i64 columns)
{
	const i64 column = static_cast<i64>(target);
	const bool live = column != ignore;
	const bool stray = live && static_cast<u64>(column) >= static_cast<u64>(columns);
	return {live && !stray ? column : -1, live, stray};
}

/* target: of 8 bytes each if wide, else of 4. */
DEVICE i64 cross_entropy_any(const void *target, u32 wide, i64 at)
{
	return wide ? static_cast<const i64 *>(target)[at] : static_cast<const i32 *>(target)[at];
}

template <typename Compute>
DEVICE Compute cross_entropy_no_number()
{
	return SoftmaxNumber<Compute>::least() - SoftmaxNumber<Compute>::least();
}

/* ---- A row's gradient ---- */

template <typename Compute>
struct CrossEntropySlope {
	Compute power; /* factor of exp(z - lse) */
	Compute each;  /* is taken off every column */
	Compute hot;   /* is taken off the target's, besides */
	CrossEntropyTarget target;

	/* by: the factor of the row.  share: what a column has of all. */
	DEVICE CrossEntropySlope(const CrossEntropyTarget &target, Compute lse, Compute by,
							 Compute smoothing, Compute square, Compute share)
		: target(target)
	{
		if (target.stray)
			by = cross_entropy_no_number<Compute>();
		power = fma(2 * square, lse, Compute(1)) * by;
		each = smoothing * share * by;
		hot = (1 - smoothing) * by;
	}

	/* Powers of V columns of a row that is not ignored become gradients; z are what they were made
	 * of.  SMOOTH: there may be smoothing. */
	template <bool SMOOTH, int V, typename Column, class MASK>
	DEVICE void apply(Column column, const MASK &mask, const Compute (&z)[V],
					  Compute (&value)[V]) const
	{
		typedef typename index_choose<(sizeof(Column) == 8), u64, u32>::type Place;
		const Place at = static_cast<Place>(target.column) - static_cast<Place>(column);

		if constexpr (SMOOTH) {
#pragma unroll
			for (int j = 0; j < V; j++)
				value[j] -= each;
		}
		if (at < static_cast<Place>(V)) {
#pragma unroll
			for (int j = 0; j < V; j++)
				value[j] -= j == static_cast<int>(at) ? hot : Compute(0);
		}
#pragma unroll
		for (int j = 0; j < V; j++)
			value[j] *= mask.slope(z[j]);
	}
};

/* ---- A call, and what a block has of it ---- */

/* In scratch, behind the counter of total_of(): one more than how many rows count, once known. */
#define CROSS_ENTROPY_KNOWN 8
#define CROSS_ENTROPY_LOOKS 65536 /* at that, before a block counts by itself */

template <typename T, typename Compute>
struct CrossEntropy {
	const T *x;
	Compute *loss, *lse;
	i64 *count;
	T *grad;
	u64 *report;
	u8 *scratch; /* 0: there is no sum and no count */
	i64 rows, columns, ignore;
	Compute smoothing, square, cap;
	u32 reduction;

	/* The one is this thread's, the other this block's. */
	Compute sum, by;
	u32 valid;
	u32 strays;
	bool known, left, last; /* has the block left its part; was it last */

	DEVICE void begin()
	{
		sum = 0;
		by = 1;
		valid = 0;
		strays = 0;
		known = !grad || reduction != CROSS_ENTROPY_MEAN;
		left = last = false;
		/* Most blocks begin when it is known already, and need not ask when they know their row. */
		if (!known && threadIdx.x == 0)
			async_copy16(counted(), scratch);
	}

	/* Counts the rows that are not ignored, in block 0.  target(row) says the target of one.  All
	 * threads come. */
	template <int MOST, typename Of>
	DEVICE void count_first(int threads, Of target)
	{
		Compute unused = 0;
		i64 mine = 0;

		if (known || blockIdx.x != 0)
			return;
#pragma unroll 4
		for (i64 row = threadIdx.x; row < rows; row += threads)
			mine += static_cast<i64>(target(row)) != ignore;
		total_join<MOST>(unused, mine, threads / 32);
		if (threadIdx.x == 0) {
			atomicExch(known_at(), static_cast<u64>(mine) + 1);
			__threadfence(); /* the last block clears it when it has seen this block's part */
		}
		__syncthreads();
	}

	/* The factor of gradients, once it is known.  All threads come. */
	template <typename Of>
	DEVICE Compute factor(Of target)
	{
		if (known)
			return by;
		if (threadIdx.x == 0) {
			async_wait_all();
			u64 seen = counted()[1];
#pragma unroll 1
			for (int look = 0; seen == 0 && look < CROSS_ENTROPY_LOOKS; look++)
				seen = atomicAdd(known_at(), 0ull);
			if (seen == 0) {
				seen = 1;
#pragma unroll 1
				for (i64 row = 0; row < rows; row++)
					seen += static_cast<i64>(target(row)) != ignore;
			}
			counted()[1] = seen;
		}
		__syncthreads();
		by = inverse_near(static_cast<Compute>(counted()[1] - 1));
		known = true;
		return by;
	}

	/* A row's results, by one of its threads. */
	DEVICE void end_row(i64 row, const CrossEntropyTarget &target, Compute log_sum, Compute largest,
						Compute total, Compute hit)
	{
		const Compute all = largest + log_sum;
		Compute found = (1 - smoothing) * (log_sum - (hit - largest));

		if (smoothing != 0)
			found += smoothing * (log_sum + (largest - total / static_cast<Compute>(columns)));
		if (square != 0)
			found += square * all * all;
		if (target.stray)
			found = cross_entropy_no_number<Compute>();
		end_row(row, target, target.live ? found : Compute(0), target.live ? all : Compute(0));
	}
	DEVICE void end_row(i64 row, const CrossEntropyTarget &target, Compute found, Compute all)
	{
		if (lse)
			lse[row] = all;
		if (reduction == CROSS_ENTROPY_NONE)
			loss[row] = found;
		sum += found;
		valid += target.live;
		strays += target.stray;
	}

	/* If one thread has all that the block found.  Before gradients are stored, or it would wait
	 * for them too. */
	DEVICE void leave(bool mine)
	{
		if (scratch && mine && !left)
			last = total_leave(sum, valid, scratch);
		left = true;
	}

	/* All threads of all blocks come.  THREAD: the one that leave() takes; -1: there is none. */
	template <int MOST, int THREAD = -1, int AT_ONCE = TOTAL_AT_ONCE>
	DEVICE void end(int threads)
	{
		if (report)
			indices_report(report, strays);
		if (!scratch)
			return;
		if constexpr (THREAD >= 0) {
			leave(threadIdx.x == THREAD);
			if (!total_gather<MOST, AT_ONCE>(sum, valid, last, threads, scratch))
				return;
		} else if (!total_of<MOST, AT_ONCE>(sum, valid, threads, scratch)) {
			return;
		}
		if (threadIdx.x != 0)
			return;
		if (reduction != CROSS_ENTROPY_NONE)
			*loss = reduction == CROSS_ENTROPY_MEAN ? sum / static_cast<Compute>(valid) : sum;
		if (count)
			*count = valid;
		*known_at() = 0;
	}

	/* The first 16 bytes of scratch, as this block has seen them. */
	static DEVICE u64 *counted()
	{
		__shared__ b128 bytes;
		return reinterpret_cast<u64 *>(&bytes);
	}
	DEVICE u64 *known_at() const
	{
		return reinterpret_cast<u64 *>(scratch + CROSS_ENTROPY_KNOWN);
	}
};

/* Left to itself, ptxas spills a few words to make room for a block more.  On sm_90 it does so for
 * skewed rows, several rows a block and f64 alone, and others are faster its own way. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define CROSS_ENTROPY_BOUNDS(SHAPE, skewed) \
	__launch_bounds__(SHAPE::threads,       \
					  (skewed) || SHAPE::rows > 1 || sizeof(typename SHAPE::Element) == 8 ? 1 : 0)
#else
#define CROSS_ENTROPY_BOUNDS(SHAPE, skewed) __launch_bounds__(SHAPE::threads, 1)
#endif

#define CROSS_ENTROPY_PARAMS(T, Target, Compute)                                           \
	const T *x, const Target *target, Compute *loss, Compute *lse, i64 *count, T *grad,    \
		u64 *report, u8 *scratch, i64 rows, i64 ignore, Compute smoothing, Compute square, \
		Compute cap, u32 reduction
#define CROSS_ENTROPY_MADE(T, Compute, columns)                                                    \
	CrossEntropy<T, Compute>                                                                       \
	{                                                                                              \
		x, loss, lse, count, grad, report, scratch, rows, columns, ignore, smoothing, square, cap, \
			reduction, 0, 0, 0, 0, false, false, false                                             \
	}
