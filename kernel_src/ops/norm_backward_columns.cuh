/*
 * norm_backward_columns.cuh: dgamma and dbeta alone of the backward of layer_norm and rms_norm.
 *
 *   norm_backward_columns   a block takes a strip of columns of a chunk of the rows; the last block
 *                           of a strip adds up its chunks
 */
#pragma once
#include "common/norm_backward_columns.cuh"

/* Chunks have `chunk` rows each.  LOOP: the grid is smaller than what there is to take. */
template <class SHAPE, class WITH, class PLACE, bool LOOP, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads) void norm_backward_columns(
	const T *__restrict__ x, const T *__restrict__ dy, const Compute *__restrict__ mean,
	const Compute *__restrict__ rstd, typename WITH::Dgamma *__restrict__ dgamma,
	typename WITH::Dbeta *__restrict__ dbeta, u8 *scratch, i64 rows, i64 chunk, u32 chunks)
{
	DYN_SHARED(b128, shared);
	const NormBackwardOperands<WITH, T> at = {x,       dy,     nullptr, mean, rstd,
											  nullptr, dgamma, dbeta,   rows};
	u32 item = blockIdx.x;

	do {
		const u32 number = item / SHAPE::strips;
		const i64 first = number * chunk, end = first + chunk < rows ? first + chunk : rows;
		NormBackwardStrip<SHAPE, WITH, PLACE>::take(at, scratch, item % SHAPE::strips, first, end,
													number, chunks, shared);
		item += gridDim.x;
	} while (LOOP && item < SHAPE::strips * chunks);
}
