/*
 * norm_backward_both.cuh: dx, dgamma and dbeta of the backward of layer_norm and rms_norm, of any
 * rows.
 *
 *   norm_backward_both   some blocks take rows for dx, others strips of columns for the sums
 *
 * The rows are cut in chunks.  Blocks come in the order of the chunks, those that take its rows
 * first, so that those that take its columns find it near.
 */
#pragma once
#include "common/norm_backward_columns.cuh"
#include "common/norm_backward_rows.cuh"

/* The way that rows are taken: held, or read twice. */
template <class ROWS, class WITH, class PLACE, bool STREAM>
struct NormBackwardTaken {
	typedef NormBackwardHeld<ROWS, WITH, PLACE> type;
};
template <class ROWS, class WITH, class PLACE>
struct NormBackwardTaken<ROWS, WITH, PLACE, true> {
	typedef NormBackwardStream<ROWS, WITH, PLACE> type;
};

/* Chunks have `chunk` rows each. */
template <class ROWS, bool STREAM, class STRIPS, class WITH, class PLACE, bool LOOP,
		  typename T = typename STRIPS::Element, typename Compute = typename STRIPS::Compute>
__global__ __launch_bounds__(STRIPS::threads, 1) void norm_backward_both(
	const T *__restrict__ x, const T *__restrict__ dy,
	const typename WITH::Gamma *__restrict__ gamma, const Compute *__restrict__ mean,
	const Compute *__restrict__ rstd, T *__restrict__ dx,
	typename WITH::Dgamma *__restrict__ dgamma, typename WITH::Dbeta *__restrict__ dbeta,
	u8 *scratch, i64 rows, i64 chunk, u32 chunks)
{
	static_assert(ROWS::threads == STRIPS::threads, "blocks take either");
	typedef typename NormBackwardTaken<ROWS, WITH, PLACE, STREAM>::type Taken;
	DYN_SHARED(b128, shared);
	const NormBackwardOperands<WITH, T> at = {x, dy, gamma, mean, rstd, dx, dgamma, dbeta, rows};
	const u32 sets = static_cast<u32>((chunk + ROWS::rows - 1) / ROWS::rows);
	const u32 items = sets + STRIPS::strips;
	u32 item = blockIdx.x;

	do {
		const u32 number = item / items, part = item - number * items;
		const i64 first = number * chunk, end = first + chunk < rows ? first + chunk : rows;
		const i64 row = first + static_cast<i64>(part) * ROWS::rows + ROWS::group::row();
		if (part >= sets)
			NormBackwardStrip<STRIPS, WITH, PLACE>::take(at, scratch, part - sets, first, end,
														 number, chunks, shared);
		else if (row - ROWS::group::row() < end)
			Taken::take(at, row < end ? row : first, row < end, shared);
		item += gridDim.x;
		if constexpr (LOOP)
			__syncthreads(); /* shared memory is used again */
	} while (LOOP && item < items * chunks);
}
