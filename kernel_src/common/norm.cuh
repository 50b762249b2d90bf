/*
 * norm.cuh: mean and squared deviations of a row, and the affine map behind them, for operators
 * that normalize rows.
 *
 * Nothing is ever taken from squares of the elements themselves.  A group's threads first agree on
 * a pivot, which is the mean but for rounding, and then add up the differences to it and their
 * squares.  The sum of the differences corrects the mean.  So a deviation of 0.001 loses nothing
 * beside a mean of 10000, though 32 bits cannot hold such a mean.  Warps and blocks are put
 * together by the rule of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for
 * computing sample variances", 1979).
 */
#pragma once
#include "common/group.cuh"
#include "common/types.cuh"

/* Bytes of an element of gamma or the like, 0 for void: it is left out. */
template <class T>
constexpr int norm_bytes = static_cast<int>(sizeof(T));
template <>
constexpr int norm_bytes<void> = 0;
template <class T>
constexpr bool norm_given = norm_bytes<T> > 0;

/*
 * A product for itself.  All that concerns a pivot must see the same number; joined with a sum, its
 * product would not be rounded.
 */
DEVICE float norm_product(float a, float b)
{
	return __fmul_rn(a, b);
}
DEVICE double norm_product(double a, double b)
{
	return __dmul_rn(a, b);
}

/* About 1 / x. */
DEVICE float norm_inverse(float x)
{
	return __fdividef(1.0f, x);
}

DEVICE float norm_rsqrt(float x)
{
	return rsqrtf(x);
}

#if !KILN_CPU

/* The device's own first guess, good to 20 bits, and steps of Newton's: short, and without a
 * call. */
DEVICE double norm_inverse(double x)
{
	double guess;
	asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(guess) : "d"(x));
	return guess * (2.0 - guess * x);
}

DEVICE double norm_rsqrt(double x)
{
	/* A guess takes what is below the normal numbers for 0. */
	const double up = x < 0x1p-1022 ? 0x1p54 : 1.0;
	double guess;
	x *= up * up;
	asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(guess) : "d"(x));
#pragma unroll 1
	for (int step = 0; step < 3; step++) {
		const double error = fma(-guess * x, guess, 1.0);
		/* 0, infinity and NaN have their answer. */
		guess = error == error ? fma(guess * 0.5, error, guess) : guess;
	}
	return guess * up;
}

#else

DEVICE double norm_inverse(double x)
{
	return 1.0 / x;
}

DEVICE double norm_rsqrt(double x)
{
	return rsqrt(x);
}

#endif

/* N sums over WIDTH lanes. */
template <int WIDTH, int N, typename Compute>
DEVICE void norm_sum(Compute (&value)[N])
{
#pragma unroll
	for (int lanes = WIDTH / 2; lanes > 0; lanes /= 2) {
#pragma unroll
		for (int i = 0; i < N; i++)
			value[i] += __shfl_xor_sync(0xffffffffu, value[i], lanes);
	}
}

/* The numbers of N rows. */
template <typename Compute, int N>
struct NormSums {
	Compute row[N];

	static DEVICE NormSums none()
	{
		return {};
	}
};

template <int WIDTH, typename Compute, int N>
DEVICE NormSums<Compute, N> group_butterfly(NormSums<Compute, N> mine)
{
	norm_sum<WIDTH>(mine.row);
	return mine;
}

/* A summary of some elements: how many, a number near their mean, and the sums of the differences
 * to it and of their squares. */
template <typename Compute>
struct NormPart {
	Compute count, pivot, sum, squares;

	static DEVICE NormPart none()
	{
		return {};
	}
	/* Returns the same with another pivot. */
	DEVICE NormPart from(Compute other) const
	{
		const Compute off = pivot - other, moved = fma(count, off, sum);
		return {count, other, moved, fma(off, sum + moved, squares)};
	}
	DEVICE void merge(const NormPart &other)
	{
		const Compute all = count + other.count;
		const Compute share = all > 0 ? norm_inverse(all) : Compute(0);
		const NormPart a = from(fma((other.pivot - pivot) * other.count, share, pivot));
		const NormPart b = other.from(a.pivot);
		*this = {all, a.pivot, a.sum + b.sum, a.squares + b.squares};
	}
};

/* Combines the parts of all lanes of WIDTH; they get the same bits. */
template <int WIDTH, typename Compute>
DEVICE NormPart<Compute> group_butterfly(NormPart<Compute> mine)
{
	Compute total[2] = {mine.count, mine.count * mine.pivot};
	norm_sum<WIDTH>(total);
	mine = mine.from(total[0] > 0 ? norm_product(total[1], norm_inverse(total[0])) : Compute(0));
	Compute sums[2] = {mine.sum, mine.squares};
	norm_sum<WIDTH>(sums);
	return {total[0], mine.pivot, sums[0], sums[1]};
}

/* The parts of N rows, all of as many elements: sums and, behind them, squares. */
template <typename Compute, int N>
struct NormParts {
	Compute count, pivot[N], sums[2 * N];
};

/*
 * Combines COUNT parts in shared memory; EQUAL: they have equally many elements.  All lanes get the
 * same bits.
 */
template <int COUNT, bool EQUAL, typename Compute, int N>
DEVICE void norm_collect(const NormParts<Compute, N> *from, NormParts<Compute, N> &all)
{
	constexpr int width = group_width<COUNT>;
	const int lane = static_cast<int>(threadIdx.x) % width;
	const bool there = COUNT == width || lane < COUNT;
	const NormParts<Compute, N> &part = from[there ? lane : 0];
	const Compute count = there ? part.count : Compute(0);
	Compute share = Compute(1) / Compute(COUNT);

	if constexpr (!EQUAL) {
		Compute number[1] = {count};
		norm_sum<width>(number);
		all.count = number[0];
		share = norm_inverse(number[0]);
	} else {
		all.count *= COUNT;
	}
#pragma unroll
	for (int i = 0; i < N; i++)
		all.pivot[i] = EQUAL ? (there ? part.pivot[i] : Compute(0)) : part.pivot[i] * count;
	norm_sum<width>(all.pivot);
#pragma unroll
	for (int i = 0; i < N; i++) {
		all.pivot[i] = norm_product(all.pivot[i], share);
		const Compute off = part.pivot[i] - all.pivot[i], sum = there ? part.sums[i] : Compute(0);
		all.sums[i] = fma(count, off, sum);
		all.sums[N + i] = there ? fma(off, sum + all.sums[i], part.sums[N + i]) : Compute(0);
	}
	norm_sum<width>(all.sums);
}

/* A row's answer: its normalized elements are (x - pivot) * rstd + shift. */
template <typename Compute>
struct NormRow {
	Compute shift, mean, rstd;
};

/* Finds the figures of a row for elements less `pivot`, each column being a part of `share`: the
 * sums of the distances from `middle` and of their squares. */
template <typename Compute>
DEVICE NormRow<Compute> norm_row_of(Compute share, Compute middle, Compute sum, Compute squares,
									Compute pivot, Compute eps)
{
	const Compute off = sum * share, variance = fma(-off, sum, squares) * share;
	/* Less than nothing by rounding; a NaN stays. */
	const Compute rstd = norm_rsqrt((variance < 0 ? Compute(0) : variance) + eps);
	return {((pivot - middle) - off) * rstd, middle + off, rstd};
}
template <i64 COLUMNS, typename Compute>
DEVICE NormRow<Compute> norm_row(Compute middle, Compute sum, Compute squares, Compute pivot,
								 Compute eps)
{
	constexpr Compute share = Compute(1) / Compute(COLUMNS);
	return norm_row_of(share, middle, sum, squares, pivot, eps);
}

/* Does so without a mean, from the sum of the squares. */
template <typename Compute>
DEVICE NormRow<Compute> norm_row_rms_of(Compute share, Compute squares, Compute eps)
{
	return {0, 0, norm_rsqrt(fma(squares, share, eps))};
}
template <i64 COLUMNS, typename Compute>
DEVICE NormRow<Compute> norm_row_rms(Compute squares, Compute eps)
{
	return norm_row_rms_of(Compute(1) / Compute(COLUMNS), squares, eps);
}
