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
DEVICE void norm_backward_store(const NormBackwardOperands<WITH, T> &at, int which, i64 column,
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
 * How columns are taken: strips of SIZE * V of them; ROWS rows side by side in a block, UNROLL times
 * that many at once.  SKEWED: rows begin anywhere, and are read by the aligned vectors around them.
 */
template <typename T, i64 COLUMNS, int V, int SIZE, int ROWS, int UNROLL, bool SKEWED>
struct ColumnsShape {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	typedef ColumnsBlock<Compute, SIZE, ROWS, V, 1> block;
	static constexpr i64 columns = COLUMNS;
	static constexpr int length = V, size = SIZE, rows = ROWS, unroll = UNROLL;
	static constexpr int threads = SIZE * ROWS;
	static constexpr int bytes = V * static_cast<int>(sizeof(T)), words = vec_words<bytes>;
	static constexpr bool skewed = SKEWED;
	static constexpr i64 strips = (COLUMNS + SIZE * V - 1) / (SIZE * V);
};

/* Scratch memory: a counter for each strip, then for each chunk of rows its sums. */
template <class SHAPE, class WITH, class PLACE>
struct NormBackwardStrip {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename PLACE::Offset Offset;
	typedef typename SHAPE::block Block;
	typedef NormBackwardOperands<WITH, T> Operands;
	typedef NormBackwardRow<WITH, Compute> Found;
	static constexpr int V = SHAPE::length, width = Block::width, sums = WITH::sums;
	static constexpr i64 columns = SHAPE::columns;
	static constexpr i64 counter_bytes = (SHAPE::strips * 4 + 255) / 256 * 256;

	template <int INPUT>
	static DEVICE void load(const T *start, Offset number, i64 column, u32 (&words)[SHAPE::words])
	{
		const T *const row = start + PLACE::template row<INPUT>(number);
		if constexpr (SHAPE::skewed)
			columns_load_skewed<sizeof(T), SHAPE::bytes>(row + column, row + columns, words);
		else if constexpr (V > 1)
			vec_load<SHAPE::bytes>(row + column, words);
		else
			vec_load<SHAPE::bytes>(row + PLACE::template column<INPUT>(static_cast<Offset>(column)),
								   words);
	}

	/* Adds up the rows from `first` on, below `end`, ROWS apart. */
	static DEVICE NormBackwardColumns<WITH, Compute, 1, V> add(const Operands &at, i64 first,
															   i64 end, i64 column)
	{
		NormBackwardColumns<WITH, Compute, 1, V> all = {};

#pragma unroll 1
		for (i64 number = first; number < end; number += SHAPE::rows * SHAPE::unroll) {
			u32 x[SHAPE::unroll][SHAPE::words] = {}, dy[SHAPE::unroll][SHAPE::words] = {};
			Found found[SHAPE::unroll] = {};
#pragma unroll
			for (int u = 0; u < SHAPE::unroll; u++) {
				const Offset here = static_cast<Offset>(number + u * SHAPE::rows);
				if (u > 0 && number + u * SHAPE::rows >= end)
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
		return all;
	}

	/*
	 * Strip number `strip` of the rows [first, end), which are number `chunk` of `chunks`.  All
	 * threads of a block come; shared has room for a number of each column of each part of Block, and
	 * of each thread.
	 */
	static DEVICE void take(const Operands &at, u8 *scratch, i64 strip, i64 first, i64 end,
							u32 chunk, u32 chunks, void *shared)
	{
		const i64 begin = strip * width;
		const i64 column = begin + static_cast<int>(threadIdx.x) % SHAPE::size * V;
		Compute *const partial = reinterpret_cast<Compute *>(scratch + counter_bytes) + begin;
		NormBackwardColumns<WITH, Compute, 1, V> all = {};

		if (column < columns)
			all = add(at, first + static_cast<int>(threadIdx.x) / SHAPE::size, end, column);
		Block::merge(all.sum, shared, [&](int which, int i, Compute sum) {
			if (begin + i >= columns)
				return;
			if (chunks == 1)
				norm_backward_store(at, which, begin + i, sum);
			else
				partial[(chunk * static_cast<i64>(sums) + which) * columns + i] = sum;
		});
		if (chunks == 1 || !columns_last(reinterpret_cast<u32 *>(scratch) + strip, chunks))
			return;
		columns_finish<SHAPE::threads, width, sums>(
			partial, sums * columns, columns, columns - begin, chunks, shared,
			[&](int which, int i, Compute value) {
				norm_backward_store(at, which, begin + i, value);
			});
	}
};
