/*
 * norm_staged.cuh: layer_norm and rms_norm (norm.cuh) of rows that come and go by way of shared
 * memory (row_staged.cuh).
 */
#pragma once
#include "common/norm_together.cuh"
#include "common/row_staged.cuh"

template <class SHAPE, class WITH, class PLACE, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void norm_staged(
	const T *__restrict__ x, const typename WITH::Gamma *__restrict__ gamma,
	const typename WITH::Beta *__restrict__ beta, const T *__restrict__ residual, T *__restrict__ y,
	Compute *__restrict__ mean, Compute *__restrict__ rstd, T *__restrict__ sum, Compute eps,
	i64 rows)
{
	const auto take = [&](T *const *piece, i64 first, int row, bool here) {
		/* A piece is a matrix of its own. */
		const NormOperands<WITH, T> at = {piece[0],
										  gamma,
										  beta,
										  piece[WITH::inputs - 1],
										  piece[0],
										  mean ? mean + first : nullptr,
										  rstd ? rstd + first : nullptr,
										  piece[WITH::inputs - 1],
										  eps,
										  SHAPE::rows};
		NormRows<SHAPE, WITH, PLACE, 1, 1> held(at, row, here);
		held.fetch(nullptr);
		if constexpr (WITH::sum)
			held.store_sum();
		norm_measure<SHAPE, WITH>(held.held, held.row, eps);
		if (here)
			held.store();
	};

	if constexpr (WITH::residual) {
		const T *const from[2] = {x, residual};
		T *const to[2] = {y, sum};
		row_staged_each<SHAPE>(from, to, rows, take);
	} else {
		const T *const from[1] = {x};
		T *const to[1] = {y};
		row_staged_each<SHAPE>(from, to, rows, take);
	}
}
