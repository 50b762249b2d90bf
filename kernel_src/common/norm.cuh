/*
 * norm.cuh: mean and squared deviations of a row, and the affine map behind them, for operators that
 * normalize rows.
 *
 * Nothing is ever taken from squares of the elements themselves.  A group's threads first agree on
 * a pivot, which is the mean but for rounding, and then add up the differences to it and their
 * squares.  What the differences add up to corrects the mean; so a mean of 10000 costs a deviation
 * of 0.001 nothing, though 32 bits cannot hold such a mean.  Warps and blocks are put together by
 * the rule of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for computing
 * sample variances", 1979).
 */
#pragma once
#include "common/group.cuh"
#include "common/types.cuh"

/* Is an operand of this element type there? */
template <class T>
constexpr bool norm_given = true;
template <>
constexpr bool norm_given<void> = false;

/* The product, not joined with a sum: a merge must be the same from both sides. */
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
DEVICE double norm_inverse(double x)
{
	return 1.0 / x;
}

DEVICE float norm_rsqrt(float x)
{
	return rsqrtf(x);
}
DEVICE double norm_rsqrt(double x)
{
	return rsqrt(x);
}

/* Sums of N numbers each. */
template <typename Compute, int N>
struct NormSums {
	Compute sum[N];

	static DEVICE NormSums none()
	{
		return {};
	}
	DEVICE void merge(const NormSums &other)
	{
#pragma unroll
		for (int i = 0; i < N; i++)
			sum[i] += other.sum[i];
	}
};

/* Of some elements: how many, a number near their mean, and the sums of the differences to it and
 * of their squares. */
template <typename Compute>
struct NormPart {
	Compute count, pivot, sum, squares;

	DEVICE void merge(const NormPart &other)
	{
		const Compute all = count + other.count;
		const Compute share = all > 0 ? norm_inverse(all) : Compute(0);
		const Compute middle = norm_product(
			norm_product(count, pivot) + norm_product(other.count, other.pivot), share);
		const NormPart a = from(middle), b = other.from(middle);
		*this = {all, middle, a.sum + b.sum, a.squares + b.squares};
	}
	/* The same with another pivot. */
	DEVICE NormPart from(Compute other) const
	{
		const Compute off = pivot - other, moved = fma(count, off, sum);
		return {count, other, moved, fma(off, sum + moved, squares)};
	}
};

/* Of N rows. */
template <typename Compute, int N>
struct NormParts {
	NormPart<Compute> row[N];

	static DEVICE NormParts none()
	{
		return {};
	}
	DEVICE void merge(const NormParts &other)
	{
#pragma unroll
		for (int i = 0; i < N; i++)
			row[i].merge(other.row[i]);
	}
};

/* A row's answer: y = ((x - pivot) * rstd + shift) * gamma + beta. */
template <typename Compute>
struct NormRow {
	Compute pivot, shift, mean, rstd;

	DEVICE Compute normal(Compute x) const
	{
		return fma(x - pivot, rstd, shift);
	}
};

/* From all of a row of so many columns. */
template <i64 COLUMNS, typename Compute>
DEVICE NormRow<Compute> norm_row(const NormPart<Compute> &all, Compute eps)
{
	constexpr Compute share = Compute(1) / Compute(COLUMNS);
	const Compute off = all.sum * share;
	const Compute variance = fma(-off, all.sum, all.squares) * share;
	/* Less than nothing by rounding; a NaN stays. */
	const Compute rstd = norm_rsqrt((variance < 0 ? Compute(0) : variance) + eps);
	return {all.pivot, -off * rstd, all.pivot + off, rstd};
}

/* The same without a mean, from the sum of the squares. */
template <i64 COLUMNS, typename Compute>
DEVICE NormRow<Compute> norm_row_rms(Compute squares, Compute eps)
{
	return {0, 0, 0, norm_rsqrt(squares * (Compute(1) / Compute(COLUMNS)) + eps)};
}
