/*
 * norm.cuh: layer_norm and rms_norm of rows that threads hold: y = (s - mean) * rstd * gamma +
 * beta over each row of s = x + residual, rstd being 1 / sqrt(variance + eps); for rms_norm the
 * mean is 0.
 *
 *   norm_rows      a group of threads holds each row, or several rows that read gamma and beta once
 *   norm_cluster   a cluster of blocks holds each row, or several
 *
 * s is in the type to compute in, and not rounded; everything else is rounded once.
 */
#pragma once
#include "common/norm_together.cuh"

template <class SHAPE, class WITH, class PLACE, int TOGETHER, bool LOOP, int TURN>
DEVICE void norm_held(const NormOperands<WITH, typename SHAPE::Element> &at)
{
	DYN_SHARED(b128, slots);

	row_each<SHAPE, LOOP, i64>((at.rows + TOGETHER - 1) / TOGETHER, [&](i64 group, bool here) {
		NormRows<SHAPE, WITH, PLACE, TOGETHER, TURN> rows(at, group * TOGETHER, here);
		rows.fetch(slots);
		if constexpr (WITH::sum)
			rows.store_sum();
		norm_measure<SHAPE, WITH>(rows.held, rows.row, at.eps);
		if (here)
			rows.store();
	});
}

template <class SHAPE, class WITH, class PLACE, int TOGETHER, bool LOOP, int TURN = 1,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void norm_rows(
	const T *__restrict__ x, const typename WITH::Gamma *__restrict__ gamma,
	const typename WITH::Beta *__restrict__ beta, const T *__restrict__ residual, T *__restrict__ y,
	Compute *__restrict__ mean, Compute *__restrict__ rstd, T *__restrict__ sum, Compute eps,
	i64 rows)
{
	norm_held<SHAPE, WITH, PLACE, TOGETHER, LOOP, TURN>(
		{x, gamma, beta, residual, y, mean, rstd, sum, eps, rows});
}

template <class SHAPE, class WITH, class PLACE, int TOGETHER, bool LOOP, int TURN = 1,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads)
	CLUSTER_OF(SHAPE::cluster) void norm_cluster(const T *__restrict__ x,
												 const typename WITH::Gamma *__restrict__ gamma,
												 const typename WITH::Beta *__restrict__ beta,
												 const T *__restrict__ residual, T *__restrict__ y,
												 Compute *__restrict__ mean,
												 Compute *__restrict__ rstd, T *__restrict__ sum,
												 Compute eps, i64 rows)
{
	norm_held<SHAPE, WITH, PLACE, TOGETHER, LOOP, TURN>(
		{x, gamma, beta, residual, y, mean, rstd, sum, eps, rows});
}
