/*
 * norm_together.cuh: a row of layer_norm or rms_norm that threads hold, from x to y, or several
 * that read gamma and beta once.
 */
#pragma once
#include "common/norm_rows.cuh"

/* TOGETHER rows that the same threads hold.  TURN: slots whose gamma and beta are under way at a
 * time. */
template <class SHAPE, class WITH, class PLACE, int TOGETHER, int TURN>
struct NormRows {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	typedef typename PLACE::Offset Offset;
	typedef NormHeld<SHAPE, WITH, PLACE, TOGETHER> Held;
	static constexpr i64 columns = Row::columns;
	static constexpr int V = Row::length, kept = Held::kept;
	/* With a remainder the compiler keeps numbers made of many halves, if two blocks find no room
	 * then: 153 registers instead of 96, and 24 us instead of 18. */
	static constexpr bool keeps =
		!Held::wide && SHAPE::threads >= 256 && SHAPE::threads * 2 * 112 <= 65536;

	const NormOperands<WITH, T> &at;
	const i64 first; /* the number of the first row */
	const int there; /* so many of them are rows to write */
	const Row row;
	Held held[TOGETHER];

	DEVICE NormRows(const NormOperands<WITH, T> &at, i64 first, bool here)
		: at(at), first(first), there(count_rows(at.rows - first, here)),
		  row(at.x + PLACE::template row<0>(static_cast<Offset>(first)),
			  keeps ? Group::thread() : Group::place(), Group::slice())
	{
	}

	DEVICE void fetch(void *slots)
	{
		u8 *const mine = SHAPE::slots ? static_cast<u8 *>(slots) + threadIdx.x * 16 : nullptr;
#pragma unroll
		for (int i = 0; i < TOGETHER; i++) {
			/* The first one of them in the place of one that is not there. */
			const Offset number = static_cast<Offset>(i < there ? first + i : first);
			held[i].slots = mine + i * (SHAPE::slots * WITH::inputs * SHAPE::threads * 16);
			held[i].template fetch<0>(row, at.x + PLACE::template row<0>(number));
			if constexpr (WITH::residual)
				held[i].template fetch<1>(row, at.residual + PLACE::template row<1>(number));
		}
		if constexpr (SHAPE::slots > 0)
			async_wait_all();
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			held[i].widen();
	}

	/* x + residual: before measure, which may leave something else in its place. */
	DEVICE void store_sum() const
	{
#pragma unroll
		for (int i = 0; i < TOGETHER; i++) {
			Compute out[V];
			if (i >= there)
				continue;
#pragma unroll
			for (int n = 0; n < kept; n++) {
				held[i].get(n, out);
				if (row.has(n))
					norm_store(row, n, mine(at.sum, i), out);
			}
			if constexpr (kept < Row::held) {
#pragma unroll 1
				for (int n = kept; n < Row::held; n++) {
					if (!row.has(n))
						continue;
					held[i].get_slot(n, out);
					norm_store(row, n, mine(at.sum, i), out);
				}
			}
		}
	}

	DEVICE void store() const
	{
#pragma unroll
		for (int n = 0; n < kept; n++)
			if (row.has(n))
				store_vector<false>(n);
		if constexpr (kept < Row::held) {
			/* NVCC and NVRTC 13.0 leave out vectors when they unroll such a loop themselves. */
			constexpr int whole = kept + (Row::held - kept) / TURN * TURN;
#pragma unroll 1
			for (int n = kept; n < whole; n += TURN) {
#pragma unroll
				for (int u = 0; u < TURN; u++)
					if (row.has(n + u))
						store_vector<true>(n + u);
			}
#pragma unroll
			for (int n = whole; n < Row::held; n++)
				if (row.has(n))
					store_vector<true>(n);
		}
		if constexpr (WITH::mean || WITH::rstd) {
			const bool mine = Group::place() == 0 && Group::slice() == 0;
#pragma unroll
			for (int i = 0; i < TOGETHER; i++)
				if (mine && i < there)
					norm_store_statistics(at, first + i, held[i].answer);
		}
	}

  private:
	static DEVICE int count_rows(i64 left, bool here)
	{
		if (TOGETHER == 1 || !here)
			return here;
		return left < TOGETHER ? static_cast<int>(left) : TOGETHER;
	}
	/* This thread's vector 0 of row i of an output. */
	DEVICE T *mine(T *output, int i) const
	{
		return output + static_cast<Offset>(first + i) * static_cast<Offset>(columns) + row.first;
	}

	template <bool SLOT>
	DEVICE void store_vector(int n) const
	{
		Compute gamma[V], beta[V];

		norm_affine(at, row, n, gamma, beta);
#pragma unroll
		for (int i = 0; i < TOGETHER; i++) {
			Compute out[V];
			if constexpr (SLOT)
				held[i].get_slot(n, out);
			else
				held[i].get(n, out);
#pragma unroll
			for (int j = 0; j < V; j++) {
				if (!WITH::rms && (SLOT || !Held::wide))
					out[j] -= held[i].pivot;
				out[j] = norm_apply<WITH>(held[i].answer, out[j], gamma[j], beta[j]);
			}
			if (i == 0 || i < there)
				norm_store(row, n, mine(at.y, i), out);
		}
	}
};
