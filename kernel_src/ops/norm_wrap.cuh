/*
 * norm_wrap.cuh: layer_norm and rms_norm (norm.cuh) of rows that begin anywhere between two aligned
 * vectors and are held in registers.
 *
 *   norm_wrap   a group of threads holds each row, and takes EACH rows one after another
 */
#pragma once
#include "common/norm_wrap.cuh"

/* The places that gamma and beta come from. */
enum NormWrapFrom {
	NORM_PLANES,      /* planes in shared memory, where halves share a word */
	NORM_WIDE_PLANES, /* planes of numbers to compute with */
	NORM_WINDOWS
};

template <class SHAPE, class WITH, class PLACE, NormWrapFrom FROM>
struct NormWrapRow {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	typedef typename PLACE::Offset Offset;
	typedef NormOperands<WITH, T> Operands;
	typedef NormPlanes<WITH, Row, FROM == NORM_WIDE_PLANES> Planes;
	static constexpr bool planes = FROM != NORM_WINDOWS && !Planes::empty;
	static constexpr int V = Row::length;

	const Operands &at;
	const T *const x;
	const Row row;
	NormWrapHeld<SHAPE, WITH, PLACE> held[1];

	DEVICE NormWrapRow(const Operands &at, i64 number)
		: at(at), x(at.x + PLACE::template row<0>(static_cast<Offset>(number))),
		  row(SHAPE::apart ? mine_of(at.y, number) : x, Group::thread())
	{
		held[0].template fetch<0>(row, x);
		if constexpr (WITH::residual)
			held[0].template fetch<1>(row, at.residual +
											   PLACE::template row<1>(static_cast<Offset>(number)));
	}

	/* All threads of the block come; here: the row is one to write. */
	DEVICE void measure(i64 number, bool here)
	{
		held[0].widen(row);
		if constexpr (WITH::sum) {
#pragma unroll
			for (int n = 0; n < Row::held; n++) {
				Compute out[V];
				held[0].get(n, out);
				if (here && row.has(n))
					norm_store(row, n, mine(at.sum, number), out);
			}
		}
		norm_measure<SHAPE, WITH>(held, row, at.eps);
	}

	DEVICE void store(i64 number, const void *shared) const
	{
		const auto affine = place(shared);

#pragma unroll
		for (int n = 0; n < Row::held; n++) {
			Compute gamma[V], beta[V], out[V];
			if (!row.has(n))
				continue;
			if constexpr (FROM == NORM_WINDOWS)
				affine.load(at, n, gamma, beta);
			else
				affine.load(n, gamma, beta);
			held[0].get(n, out);
#pragma unroll
			for (int j = 0; j < V; j++)
				out[j] = norm_apply<WITH>(held[0].answer, out[j], gamma[j], beta[j]);
			norm_store(row, n, mine(at.y, number), out);
		}
		if (Group::thread() == 0)
			norm_store_statistics(at, number, held[0].answer);
	}

  private:
	DEVICE auto place(const void *shared) const
	{
		if constexpr (FROM == NORM_WINDOWS)
			return NormWindows<WITH, Row>(row, Group::thread());
		else
			return Planes(shared, row, Group::thread());
	}
	static DEVICE T *mine_of(T *output, i64 number)
	{
		return output + static_cast<Offset>(number) * static_cast<Offset>(Row::columns);
	}
	/* This thread's vector 0 of an output. */
	DEVICE T *mine(T *output, i64 number) const
	{
		return mine_of(output, number) + row.first;
	}
};

template <class SHAPE, class WITH, class PLACE, int EACH, NormWrapFrom FROM, bool LOOP,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads) void norm_wrap(
	const T *__restrict__ x, const typename WITH::Gamma *__restrict__ gamma,
	const typename WITH::Beta *__restrict__ beta, const T *__restrict__ residual, T *__restrict__ y,
	Compute *__restrict__ mean, Compute *__restrict__ rstd, T *__restrict__ sum, Compute eps,
	i64 rows)
{
	typedef NormWrapRow<SHAPE, WITH, PLACE, FROM> Row;
	const NormOperands<WITH, T> at = {x, gamma, beta, residual, y, mean, rstd, sum, eps, rows};
	const i64 step = LOOP ? static_cast<i64>(gridDim.x) * SHAPE::rows : SHAPE::rows;
	i64 number = (LOOP ? blockIdx.x : static_cast<i64>(blockIdx.x) * EACH) * SHAPE::rows +
				 SHAPE::group::row();
	const int turns = LOOP ? static_cast<int>((rows + step - 1) / step) : EACH;
	DYN_SHARED(b128, planes);

#pragma unroll 1
	for (int turn = 0; turn < turns; turn++, number += step) {
		const bool here = number < rows;
		Row row(at, here ? number : 0);
		if constexpr (Row::planes) {
			if (turn == 0) {
				Row::Planes::fill(at, planes, SHAPE::threads);
				__syncthreads();
			}
		}
		row.measure(number, here);
		if (here)
			row.store(number, planes);
		/* The next step uses the memory that warps share again. */
		if (SHAPE::threads / SHAPE::rows > 32 && (LOOP || EACH > 1))
			__syncthreads();
	}
}
