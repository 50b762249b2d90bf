/*
 * norm_backward_columns.cuh: dgamma and dbeta of a strip of columns (norm_backward.cuh): what a
 * thread adds up, and what becomes of it in the end.
 */
#pragma once
#include "common/columns.cuh"
#include "common/norm_backward.cuh"

/* Partial sums of NV vectors of V columns. */
template <class WITH, typename Compute, int NV, int V>
struct NormBackwardColumns {
	Compute sum[WITH::sums][NV][V];

	DEVICE void add(int n, int j, Compute xhat, Compute dy)
	{
		if constexpr (WITH::dgamma)
			sum[0][n][j] = fma(dy, xhat, sum[0][n][j]);
		if constexpr (WITH::dbeta)
			sum[WITH::sums - 1][n][j] += dy;
	}
};

/* Sum number `which` of a column, all rows added up. */
template <class WITH, typename T, typename Compute>
DEVICE void norm_backward_store(const NormBackwardOperands<WITH, T> &at, u32 which, i64 column,
								Compute value)
{
	if constexpr (WITH::dgamma) {
		if (which == 0)
			element_store(at.dgamma + column, value);
	}
	if constexpr (WITH::dbeta) {
		if (which == WITH::sums - 1)
			element_store(at.dbeta + column, value);
	}
}

/*
 * Columns are taken in strips of SIZE * V of them; ROWS rows side by side in a block, UNROLL times
 * that many at once.  SKEWED: rows begin anywhere; they are read by the aligned vectors around
 * them.  ALONE: rows are not cut in chunks, and a block has all of its strip.
 */
template <typename T, i64 COLUMNS, int V, int SIZE, int ROWS, int UNROLL, bool SKEWED, bool ALONE>
struct ColumnsShape {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	typedef ColumnsBlock<Compute, SIZE, ROWS, V, 1> block;
	typedef typename index_choose<(COLUMNS > 0x3fffffff), i64, u32>::type Column;
	static constexpr Column columns = COLUMNS;
	static constexpr int length = V, size = SIZE, rows = ROWS, unroll = UNROLL;
	static constexpr int threads = SIZE * ROWS;
	static constexpr int bytes = V * static_cast<int>(sizeof(T)), words = vec_words<bytes>;
	static constexpr bool skewed = SKEWED, alone = ALONE;
	static constexpr u32 strips = static_cast<u32>((COLUMNS + SIZE * V - 1) / (SIZE * V));
};

/*
 * Scratch memory, unless strips are alone: a counter for each, then for each and each chunk of the
 * rows its sums.
 */
template <class SHAPE, class WITH, class PLACE>
struct NormBackwardStrip {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::Column Column;
	typedef typename PLACE::Offset Offset;
	typedef typename SHAPE::block Block;
	typedef NormBackwardOperands<WITH, T> Operands;
	typedef NormBackwardColumns<WITH, Compute, 1, SHAPE::length> Sums;
	typedef NormBackwardRow<WITH, Compute> Found;
	static constexpr int V = SHAPE::length, sums = WITH::sums;
	static constexpr u32 width = Block::width;
	static constexpr u32 counter_bytes = (SHAPE::strips * 4 + 255) / 256 * 256;

	template <int INPUT>
	static DEVICE void load(const T *start, Offset number, Column column,
							u32 (&words)[SHAPE::words])
	{
		const T *const row = start + PLACE::template row<INPUT>(number);
		if constexpr (SHAPE::skewed)
			columns_load_skewed<sizeof(T), SHAPE::bytes>(row + column, row + SHAPE::columns, words);
		else if constexpr (V > 1)
			vec_load<SHAPE::bytes>(row + column, words);
		else
			vec_load<SHAPE::bytes>(row + PLACE::template column<INPUT>(static_cast<Offset>(column)),
								   words);
	}

	/* Adds up the rows from `first` on, below `end`, ROWS apart. */
	static DEVICE void add(const Operands &at, Offset first, Offset end, Column column, Sums &all)
	{
#pragma unroll 1
		for (Offset number = first; number < end; number += SHAPE::rows * SHAPE::unroll) {
			u32 x[SHAPE::unroll][SHAPE::words] = {}, dy[SHAPE::unroll][SHAPE::words] = {};
			Found found[SHAPE::unroll] = {};
#pragma unroll
			for (int u = 0; u < SHAPE::unroll; u++) {
				const Offset here = number + static_cast<Offset>(u * SHAPE::rows);
				if (u > 0 && here >= end)
					continue;
				load<1>(at.dy, here, column, dy[u]);
				if constexpr (WITH::dgamma) {
					load<0>(at.x, here, column, x[u]);
					found[u] = Found::load(at, here);
				}
			}
#pragma unroll
			for (int u = 0; u < SHAPE::unroll; u++) {
				Compute xs[V], dys[V];
				element_unpack<T>(x[u], xs);
				element_unpack<T>(dy[u], dys);
#pragma unroll
				for (int j = 0; j < V; j++)
					all.add(0, j, found[u].normal(xs[j]), dys[j]);
			}
		}
	}

	/*
	 * Strip number `strip` of the rows [first, end), which are number `chunk` of `chunks`.  All
	 * threads of a block come; shared has room for a number of each column of each part of Block,
	 * and of each thread.
	 */
	static DEVICE void take(const Operands &at, u8 *scratch, u32 strip, i64 first, i64 end,
							u32 chunk, u32 chunks, void *memory)
	{
		const Column begin = strip * static_cast<Column>(width);
		const Column column = begin + threadIdx.x % SHAPE::size * V;
		const u32 left = static_cast<u32>(SHAPE::columns - begin);
		Compute *const shared = static_cast<Compute *>(memory);
		Sums all = {};

		if (column < SHAPE::columns)
			add(at, static_cast<Offset>(first) + threadIdx.x / SHAPE::size,
				static_cast<Offset>(end), column, all);
		const auto store = [&](u32 which, u32 i, Compute value) {
			if (!SHAPE::alone || i < left)
				norm_backward_store(at, which, begin + i, value);
		};
		if constexpr (SHAPE::alone) {
			Block::template merge<1>(all.sum, shared, store);
		} else {
			Compute *const partial = reinterpret_cast<Compute *>(scratch + counter_bytes) +
									 strip * chunks * (sums * width);
			Block::template merge<1>(all.sum, shared, [&](u32 which, u32 i, Compute sum) {
				partial[(chunk * sums + which) * width + i] = sum;
			});
			if (columns_last(reinterpret_cast<u32 *>(scratch) + strip, chunks))
				columns_finish<SHAPE::threads, width, sums>(partial, sums * width, width, left,
															chunks, shared, store);
		}
	}
};
