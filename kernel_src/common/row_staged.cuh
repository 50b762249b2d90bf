/*
 * row_staged.cuh: rows that lie one behind the other without gaps, and begin anywhere between two
 * aligned vectors or are short.  A block takes its rows as one piece: whole vectors bring it into
 * shared memory, the threads take elements from there and leave results in their place, and whole
 * vectors bring it out again.
 */
#pragma once
#include "common/async.cuh"
#include "common/row.cuh"

/* SHAPE: rows of elements, or pairs of halves, in one part of a warp each.  A piece is whole
 * vectors of 16 bytes. */
template <class SHAPE>
struct RowPiece {
	typedef typename SHAPE::Element T;
	static constexpr int columns = static_cast<int>(SHAPE::row::columns);
	static constexpr int elements = SHAPE::rows * columns, unit = 16 / static_cast<int>(sizeof(T));
	static constexpr int turns = (elements / unit + SHAPE::threads - 1) / SHAPE::threads;
	static_assert(elements % unit == 0, "a piece is whole vectors");
	static_assert(SHAPE::threads / SHAPE::rows <= 32 && SHAPE::slots == 0, "registers of a warp");

	/* Begins to bring in `there` elements; all threads of the block come. */
	static DEVICE void fetch(T *piece, const T *from, int there)
	{
		const int whole = there / unit * unit;
#pragma unroll
		for (int n = 0; n < turns; n++) {
			const int at = (n * SHAPE::threads + static_cast<int>(threadIdx.x)) * unit;
			if (at < whole)
				async_copy16(piece + at, from + at);
		}
		if (static_cast<int>(threadIdx.x) < there - whole)
			piece[whole + threadIdx.x] = from[whole + threadIdx.x];
	}
	static DEVICE void store(const T *piece, T *to, int there)
	{
		const int whole = there / unit * unit;
#pragma unroll
		for (int n = 0; n < turns; n++) {
			const int at = (n * SHAPE::threads + static_cast<int>(threadIdx.x)) * unit;
			if (at < whole)
				vec_copy<16>(piece + at, to + at);
		}
		if (static_cast<int>(threadIdx.x) < there - whole)
			to[whole + threadIdx.x] = piece[whole + threadIdx.x];
	}
};

/*
 * Calls body(pieces, first, row, here) for the row that this thread has a part in: number `first` +
 * `row`, at row * columns of each piece; here: as row_each has it.  from[s] are STREAMS tensors;
 * to[s] takes piece s afterwards, unless it is null.  A piece takes elements * sizeof(T) bytes of
 * dynamic shared memory.
 */
template <class SHAPE, int STREAMS, typename T, typename Body>
DEVICE void row_staged_each(const T *const (&from)[STREAMS], T *const (&to)[STREAMS], i64 rows,
							Body body)
{
	typedef RowPiece<SHAPE> Piece;
	DYN_SHARED(b128, memory);
	T *piece[STREAMS];

#pragma unroll
	for (int s = 0; s < STREAMS; s++)
		piece[s] = reinterpret_cast<T *>(memory) + s * Piece::elements;
#pragma unroll 1
	for (i64 first = static_cast<i64>(blockIdx.x) * SHAPE::rows; first < rows;
		 first += static_cast<i64>(gridDim.x) * SHAPE::rows) {
		const i64 left = rows - first;
		const int there = left < SHAPE::rows ? static_cast<int>(left) : SHAPE::rows;
		const int row = SHAPE::group::row();
#pragma unroll
		for (int s = 0; s < STREAMS; s++)
			Piece::fetch(piece[s], from[s] + first * Piece::columns, there * Piece::columns);
		async_wait_all();
		__syncthreads();
		body(piece, first, row < there ? row : 0, row < there);
		__syncthreads();
#pragma unroll
		for (int s = 0; s < STREAMS; s++)
			if (to[s])
				Piece::store(piece[s], to[s] + first * Piece::columns, there * Piece::columns);
		__syncthreads(); /* the next piece takes the memory again */
	}
}
