/*
 * norm_backward.cuh: what the backward of layer_norm and rms_norm works on, and what it computes of
 * one element:
 *
 *   xhat = (x - mean) * rstd, g = dy * gamma     (rms: mean is 0)
 *   dx = rstd * (g - mean of g - xhat * mean of g * xhat), means over the row (rms: no mean of g)
 *   dgamma = sum of dy * xhat, dbeta = sum of dy, over all rows
 */
#pragma once
#include "common/element.cuh"
#include "common/group.cuh"
#include "common/norm_operands.cuh"
#include "common/types.cuh"

/*
 * The element types of gamma, dgamma and dbeta (void: left out), and how many bytes of gamma move
 * at once (0: they come one by one, for rows are skewed).  RMS: no mean is taken off.
 */
template <class GAMMA, class DGAMMA, class DBETA, int BYTES, bool RMS>
struct NormBackwardWith {
	typedef GAMMA Gamma;
	typedef DGAMMA Dgamma;
	typedef DBETA Dbeta;
	static constexpr int bytes = BYTES;
	static constexpr bool rms = RMS;
	static constexpr bool dgamma = norm_given<DGAMMA>, dbeta = norm_given<DBETA>;
	static constexpr int sums = (dgamma ? 1 : 0) + (dbeta ? 1 : 0); /* over all rows */
	static constexpr int means = RMS ? 1 : 2;                       /* over a row */
};

template <class WITH, typename T>
struct NormBackwardOperands {
	typedef typename element<T>::compute Compute;
	const T *x, *dy;
	const typename WITH::Gamma *gamma;
	const Compute *mean, *rstd;
	T *dx;
	typename WITH::Dgamma *dgamma;
	typename WITH::Dbeta *dbeta;
	i64 rows;
};

/* The numbers that the forward found out about a row. */
template <class WITH, typename Compute>
struct NormBackwardRow {
	Compute mean, rstd;

	template <typename T, typename Number>
	static DEVICE NormBackwardRow load(const NormBackwardOperands<WITH, T> &at, Number number)
	{
		if constexpr (WITH::rms)
			return {0, at.rstd[number]};
		else
			return {at.mean[number], at.rstd[number]};
	}
	DEVICE Compute normal(Compute x) const
	{
		return WITH::rms ? x * rstd : (x - mean) * rstd;
	}
};

/*
 * Elements of a row are computed with this, made of those numbers when they have come.  FUSED: an x
 * that has few bits is normalized by one operation; of others the mean is taken off first.
 */
template <class WITH, typename Compute, bool FUSED>
struct NormBackwardScale {
	Compute off, rstd;

	DEVICE explicit NormBackwardScale(const NormBackwardRow<WITH, Compute> &row)
		: off(FUSED ? -row.mean * row.rstd : row.mean), rstd(row.rstd)
	{
	}
	DEVICE Compute normal(Compute x) const
	{
		if constexpr (WITH::rms)
			return x * rstd;
		else
			return FUSED ? fma(x, rstd, off) : (x - off) * rstd;
	}
};

/* dx of the elements of a row, whose means are known, by two operations each. */
template <class WITH, typename Compute>
struct NormBackwardSlope {
	Compute rstd, slope, level;

	template <class Means>
	DEVICE NormBackwardSlope(const Means &means, Compute rstd)
		: rstd(rstd), slope(-means.sum[0] * rstd), level(-means.sum[WITH::means - 1] * rstd)
	{
	}
	DEVICE Compute dx(Compute g, Compute xhat) const
	{
		return fma(g, rstd, WITH::rms ? xhat * slope : fma(xhat, slope, level));
	}
};

/* A row's sums of g * xhat and, but for rms, of g. */
template <class WITH, typename Compute>
struct NormBackwardSums {
	Compute sum[WITH::means];

	static DEVICE NormBackwardSums none()
	{
		return {};
	}
	DEVICE void add(Compute g, Compute xhat)
	{
		sum[0] = fma(g, xhat, sum[0]);
		if constexpr (!WITH::rms)
			sum[WITH::means - 1] += g;
	}
	DEVICE void merge(const NormBackwardSums &other)
	{
#pragma unroll
		for (int i = 0; i < WITH::means; i++)
			sum[i] += other.sum[i];
	}
	template <i64 COLUMNS>
	DEVICE NormBackwardSums means() const
	{
		NormBackwardSums out;
#pragma unroll
		for (int i = 0; i < WITH::means; i++)
			out.sum[i] = sum[i] * (Compute(1) / Compute(COLUMNS));
		return out;
	}
	/* dx, where these are the means. */
	DEVICE Compute dx(Compute g, Compute xhat, Compute rstd) const
	{
		return fma(-xhat, sum[0], WITH::rms ? g : g - sum[WITH::means - 1]) * rstd;
	}
};

/* dx of the elements of a row, whose means are known, straight from x and dy. */
template <class WITH, typename Compute>
struct NormBackwardLine {
	Compute mean, rstd, slope, level;

	DEVICE NormBackwardLine(const NormBackwardRow<WITH, Compute> &row,
							const NormBackwardSums<WITH, Compute> &means)
		: mean(row.mean), rstd(row.rstd), slope(-means.sum[0] * rstd * rstd),
		  level(-means.sum[WITH::means - 1] * rstd)
	{
	}
	DEVICE Compute dx(Compute x, Compute dy, Compute gamma) const
	{
		if constexpr (WITH::rms)
			return fma(dy, gamma * rstd, x * slope);
		else
			return fma(dy, gamma * rstd, fma(x - mean, slope, level));
	}
};

template <int WIDTH, class WITH, typename Compute>
DEVICE NormBackwardSums<WITH, Compute> group_butterfly(NormBackwardSums<WITH, Compute> mine)
{
#pragma unroll
	for (int lanes = WIDTH / 2; lanes > 0; lanes /= 2) {
#pragma unroll
		for (int i = 0; i < WITH::means; i++)
			mine.sum[i] += group_from(mine.sum[i], lanes);
	}
	return mine;
}

/* gamma of vector n of a row; of what sticks out of the row anything at all. */
template <class WITH, class ROW, typename Number, typename G, typename Compute, int V>
DEVICE void norm_backward_gamma(const G *start, const ROW &row, Number n, Compute (&gamma)[V])
{
	const Number column = row.column(n);

	if constexpr (WITH::bytes > 0 || !norm_given<G>) {
		norm_load<WITH::bytes>(start, column, gamma, Compute(1));
	} else {
#pragma unroll
		for (int j = 0; j < V; j++)
			gamma[j] = norm_load_one(start, row.live(n, j) ? column + j : Number(0), Compute(1));
	}
}
