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
	/* Begins to bring in the first `limit` elements of row number `row`, by the threads that have a
	 * part in it: vectors that rows share come for each of them. */
	static DEVICE void fetch_part(T *piece, const T *from, int there, int row, int limit)
	{
		const int begin = row * columns, end = begin + limit;
		for (int at = (begin / unit + SHAPE::group::thread()) * unit; limit > 0 && at < end;
			 at += SHAPE::threads / SHAPE::rows * unit) {
			if (at + unit <= there)
				async_copy16(piece + at, from + at);
			else
				for (int i = at; i < there; i++)
					piece[i] = from[i];
		}
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

/* Begins to bring a row of BYTES bytes into memory, by THREADS threads that share it: the
 * aligned vectors around it.  MANY: rows may have it in common.  Returns where it will be. */
template <int THREADS, int BYTES, bool MANY, typename T>
DEVICE T *row_aside(void *memory, const T *row, int thread)
{
	const u8 *const start = reinterpret_cast<const u8 *>(row);
	u8 *const to = static_cast<u8 *>(memory);
	const int beyond = vec_beyond<16>(start);

#pragma unroll
	for (int n = 0; n * THREADS * 16 < BYTES + 15; n++) {
		const int at = (n * THREADS + thread) * 16;
		if (at >= beyond + BYTES)
			continue;
		if constexpr (MANY)
			async_copy16_shared(to + at, start - beyond + at);
		else
			async_copy16(to + at, start - beyond + at);
	}
	return reinterpret_cast<T *>(to + beyond);
}
/* The memory that it takes for that. */
constexpr int row_aside_bytes(int bytes)
{
	return (bytes + 30) / 16 * 16;
}

/*
 * Calls body(pieces, first, row, here, mask) for the row that this thread has a part in: number
 * `first` + `row`, at row * columns of each piece; here: as row_each has it.  from[s] are STREAMS
 * tensors, and null where nothing comes; to[s] takes piece s afterwards, unless it is null.  A
 * piece takes elements * sizeof(T) bytes of dynamic shared memory.
 *
 * mask_of(number, memory) makes a row's mask: PREFIX masks have a limit(), behind which nothing of
 * the row is read.  memory: ASIDE bytes that the row has behind all pieces; what is copied there by
 * then has come.
 */
template <class SHAPE, int STREAMS, int ASIDE, bool PREFIX, typename T, typename MaskOf,
		  typename Body>
DEVICE void row_staged_masked(const T *const (&from)[STREAMS], T *const (&to)[STREAMS], i64 rows,
							  MaskOf mask_of, Body body)
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
		const int mine = SHAPE::group::row(), row = mine < there ? mine : 0;
		const auto mask =
			mask_of(first + row,
					reinterpret_cast<u8 *>(piece[STREAMS - 1] + Piece::elements) + mine * ASIDE);
#pragma unroll
		for (int s = 0; s < STREAMS; s++) {
			const T *const start = from[s] + first * Piece::columns;
			if (!from[s])
				continue;
			if constexpr (PREFIX)
				Piece::fetch_part(piece[s], start, there * Piece::columns, row,
								  static_cast<int>(mask.limit()));
			else
				Piece::fetch(piece[s], start, there * Piece::columns);
		}
		async_wait_all();
		__syncthreads();
		body(piece, first, row, mine < there, mask);
		__syncthreads();
#pragma unroll
		for (int s = 0; s < STREAMS; s++)
			if (to[s])
				Piece::store(piece[s], to[s] + first * Piece::columns, there * Piece::columns);
		__syncthreads(); /* the next piece takes the memory again */
	}
}

/* Does so for rows without a mask: body(pieces, first, row, here). */
template <class SHAPE, int STREAMS, typename T, typename Body>
DEVICE void row_staged_each(const T *const (&from)[STREAMS], T *const (&to)[STREAMS], i64 rows,
							Body body)
{
	row_staged_masked<SHAPE, STREAMS, 0, false>(
		from, to, rows, [](i64, void *) { return 0; },
		[&](T *const(&piece)[STREAMS], i64 first, int row, bool here, int) {
			body(piece, first, row, here);
		});
}
