/*
 * permute_stage.cuh: a transpose whose rows begin anywhere: their strides, or those of y's columns,
 * are no multiple of a vector.  Elements are bytes, as in permute.cuh.
 *
 * The aligned 16-byte pieces that cover a row go to shared memory as they are.  At each end they
 * have at most 15 bytes more, of the same 16 bytes as an element of the row.  The distance of rows
 * there is congruent to that in x modulo 16, so row and column alone say where an element lies,
 * whatever its row's alignment is.  Words of y are put together from elements, and begin where y is
 * aligned to them; what is before the first word and behind the last one goes by elements.
 */
#pragma once
#include "common/async.cuh"
#include "common/index.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* Rows of x to shared memory: `rows` of them, columns of `bytes` bytes. */
template <int ROWS, int PIECES, i64 S_BYTES, int PITCH, int THREADS, typename Offset>
DEVICE void stage_in(const u8 *x, u8 *shared, int rows, int bytes)
{
	constexpr int steps = (ROWS * PIECES + THREADS - 1) / THREADS;
	constexpr int more_rows = THREADS / PIECES, more_pieces = THREADS % PIECES;
	const Offset beyond = vec_beyond<16>(x);
	x -= beyond;
	u32 row = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
#pragma unroll 2
	for (int step = 0; step < steps; step++) {
		const Offset begin = beyond + static_cast<Offset>(row) * static_cast<Offset>(S_BYTES);
		const Offset from = (begin & ~static_cast<Offset>(15)) + static_cast<Offset>(piece) * 16;
		if (row < static_cast<u32>(rows) && from < begin + bytes)
			async_copy16(shared + ((static_cast<u32>(beyond) + row * PITCH) & ~15u) + piece * 16,
						 x + from);
		row += more_rows;
		piece += more_pieces;
		if (more_pieces != 0 && piece >= PIECES) {
			piece -= PIECES;
			row++;
		}
	}
}

/* Elements of a word of OUT bytes, PITCH apart; and the word that they are. */
template <int ES, int OUT, int PITCH>
DEVICE void stage_gather(const u8 *from, u32 (&elements)[OUT / ES])
{
#pragma unroll
	for (int k = 0; k < OUT / ES; k++)
		vec_load<ES>(from + k * PITCH, elements + k);
}
template <int ES, int OUT>
DEVICE void stage_word(const u32 (&elements)[OUT / ES], u8 *to)
{
	if constexpr (ES == 4) {
		vec_store<OUT>(to, elements);
	} else {
		constexpr int fill = 4 / ES;
		u32 words[vec_words<OUT>];
#pragma unroll
		for (int w = 0; w < vec_words<OUT>; w++)
			words[w] = vec_collect<ES, fill, 1>(elements, [=](int k) { return w * fill + k; });
		vec_store<OUT>(to, words);
	}
}

/* Words whose elements are under way together. */
template <int ES, int OUT>
constexpr int stage_together = OUT / ES >= 8 ? 2 : 4;

/*
 * All rows of some columns, which follow one another in y: one run of `columns` * R elements.  In
 * shared memory the rows of the next column follow those of each, as far as a word can reach.
 */
template <int ES, int OUT, int TC, int THREADS, int R, int PITCH>
DEVICE void stage_out_run(const u8 *shared, u8 *y, int columns)
{
	constexpr int each = OUT / ES, stride = THREADS * each, together = stage_together<ES, OUT>;
	constexpr int more_rows = stride % R, more_columns = stride / R;
	/* The words of a warp begin at a multiple of 128 bytes, which may be before the run. */
	constexpr int turns = 128 / ES / R + 1;
	constexpr int steps = (TC * R + 128 / ES + stride - 1) / stride;
	const int count = columns * R;
	const int first = static_cast<int>(threadIdx.x) * each - vec_beyond<128>(y) / ES;
	const int before = (OUT - vec_beyond<OUT>(y)) % OUT / ES;
	const int behind = (count - before) % each;
	const u32 last = static_cast<u32>(count - each);

	u32 element = first;
	u32 row = static_cast<u32>(first + turns * R) % R;
	int from = static_cast<int>(row * PITCH + (first + turns * R - row) / R * ES) - turns * ES;
#pragma unroll 1
	for (int step = 0; step < steps; step += together) {
		u32 elements[together][each];
#pragma unroll
		for (int i = 0; i < together; i++) {
			stage_gather<ES, OUT, PITCH>(shared + (element + i * stride <= last ? from : 0),
										 elements[i]);
			row += more_rows;
			from += more_rows * PITCH + more_columns * ES;
			if (more_rows != 0 && row >= static_cast<u32>(R)) {
				row -= R;
				from -= R * PITCH - ES;
			}
		}
#pragma unroll
		for (int i = 0; i < together; i++)
			if (element + i * stride <= last)
				stage_word<ES, OUT>(elements[i], y + static_cast<i64>(element + i * stride) * ES);
		element += together * stride;
	}
	if (each > 1 && static_cast<int>(threadIdx.x) < before + behind) {
		const int i = static_cast<int>(threadIdx.x) - before;
		const int at = i < 0 ? i + before : count - 1 - i;
		vec_copy<ES>(shared + at % R * PITCH + at / R * ES, y + at * ES);
	}
}

/*
 * TR rows of each column: of column c, those from the first word that begins in the tile to the
 * end of the last one.  y: the tile's row 0 in column 0; rows: those of the tile, and behind it as
 * far as a word can reach, that there are.
 */
template <int ES, int OUT, int TR, int TC, int THREADS, int PITCH, class CD, class CY,
		  typename Offset>
DEVICE void stage_out_columns(const u8 *shared, u8 *y, u32 column0, int columns, int rows, bool top)
{
	constexpr int each = OUT / ES, words = TR / each, stride = THREADS / words;
	constexpr int steps = (TC + stride - 1) / stride, together = stage_together<ES, OUT>;
	const int word = static_cast<int>(threadIdx.x % words);
	const int first = static_cast<int>(threadIdx.x / words);
#pragma unroll 1
	for (int step = 0; step < steps; step += together) {
		u32 elements[together][each];
		u8 *to[together];
#pragma unroll
		for (int i = 0; i < together; i++) {
			const int column = first + (step + i) * stride;
			u8 *const begin =
				y + static_cast<i64>(index_offset<Offset>(column0 + column, CD{}, CY{})) * ES;
			const int row = (OUT - vec_beyond<OUT>(begin)) % OUT / ES + word * each;
			const bool there = column < columns && row + each <= rows;
			to[i] = there ? begin + row * ES : nullptr;
			stage_gather<ES, OUT, PITCH>(shared + (there ? row * PITCH + column * ES : 0),
										 elements[i]);
		}
#pragma unroll
		for (int i = 0; i < together; i++)
			if (to[i])
				stage_word<ES, OUT>(elements[i], to[i]);
	}
	if (each == 1 || (!top && rows == TR + each - 1))
		return;
		/* The ends of columns. */
#pragma unroll 1
	for (int i = threadIdx.x; i < columns * each; i += THREADS) {
		const int column = i / each, k = i % each;
		u8 *const begin =
			y + static_cast<i64>(index_offset<Offset>(column0 + column, CD{}, CY{})) * ES;
		const int before = (OUT - vec_beyond<OUT>(begin)) % OUT / ES;
		const int whole = rows < before ? 0 : (rows - before) / each;
		const int tail = before + whole * each + k;
		if (top && k < before && k < rows)
			vec_copy<ES>(shared + k * PITCH + column * ES, begin + k * ES);
		if (whole < words && tail < rows)
			vec_copy<ES>(shared + tail * PITCH + column * ES, begin + tail * ES);
	}
}

/*
 * R rows, S apart in x, by C columns, in tiles of TR by TC; words of OUT bytes.  RUN: TR is R, y's
 * columns follow one another, and a tile is one run of y; CD and CY say nothing then.  Otherwise
 * CD and CY are the dimensions behind the columns and their strides in y.  PITCH: bytes between
 * rows in shared memory, so many that no two of them share an aligned piece.  RESIDENT: blocks that
 * a multiprocessor is to hold.  Batches as in permute_tile.
 */
template <int ES, int OUT, int TR, int TC, bool RUN, int THREADS, int RESIDENT, int PITCH, i64 R,
		  i64 C, i64 S, class CD, class CY, class BD, class BX, class BY, typename Offset,
		  bool LOOP>
__global__ __launch_bounds__(THREADS, RESIDENT) void permute_stage(const void *x, void *y,
																   i64 batch_x, i64 batch_y,
																   u64 blocks)
{
	constexpr int each = OUT / ES;
	static_assert(!RUN || TR == R, "a run takes all rows");
	static_assert(OUT % 4 == 0 && OUT <= 8, "words");
	constexpr int pieces = (TC * ES + 31 - ES) / 16;
	constexpr u32 row_tiles = static_cast<u32>((R + TR - 1) / TR);
	constexpr u32 column_tiles = static_cast<u32>((C + TC - 1) / TC);
	static_assert((PITCH - S * ES) % 16 == 0, "pitch");
	DYN_SHARED(b128, shared);

	u64 block = blockIdx.x;
	do {
		using Number = typename index_choose<LOOP, u64, u32>::type;
		const Number n = static_cast<Number>(block);
		const Number strip = n / row_tiles, item = strip / column_tiles;
		const u32 row0 = static_cast<u32>(n - strip * row_tiles) * TR;
		const u32 column0 = static_cast<u32>(strip - item * column_tiles) * TC;
		const index_pair at = index_batch<BD, BX, BY, Offset>(item, batch_x, batch_y);
		const int columns = C % TC == 0 || column0 + TC <= C ? TC : static_cast<int>(C - column0);
		const u8 *const from = static_cast<const u8 *>(x) + (at.x + row0 * S + column0) * ES;
		u8 *const to = static_cast<u8 *>(y) + at.y * ES;
		/* The element in row 0 and column 0 of the tile. */
		u8 *const first = reinterpret_cast<u8 *>(shared) + vec_beyond<16>(from);

		if constexpr (RUN) {
			stage_in<TR, pieces, S * ES, PITCH, THREADS, Offset>(
				from, reinterpret_cast<u8 *>(shared), TR, columns * ES);
#pragma unroll 1
			for (u32 i = threadIdx.x; i < static_cast<u32>((each - 1) * TC); i += THREADS) {
				const int row = static_cast<int>(i / TC), column = static_cast<int>(i % TC);
				if (column < columns - 1)
					vec_copy<ES>(from + row * (S * ES) + (column + 1) * ES,
								 first + (R + row) * PITCH + column * ES);
			}
		} else {
			const i64 left = R - row0;
			const int rows = left < TR + each - 1 ? static_cast<int>(left) : TR + each - 1;
			stage_in<TR + each - 1, pieces, S * ES, PITCH, THREADS, Offset>(
				from, reinterpret_cast<u8 *>(shared), rows, columns * ES);
		}
		async_wait_all();
		__syncthreads();
		if constexpr (RUN) {
			stage_out_run<ES, OUT, TC, THREADS, static_cast<int>(R), PITCH>(
				first, to + column0 * (R * ES), columns);
		} else {
			const i64 left = R - row0;
			const int rows = left < TR + each - 1 ? static_cast<int>(left) : TR + each - 1;
			stage_out_columns<ES, OUT, TR, TC, THREADS, PITCH, CD, CY, Offset>(
				first, to + row0 * static_cast<i64>(ES), column0, columns, rows, row0 == 0);
		}
		if constexpr (LOOP) {
			__syncthreads();
			block += gridDim.x;
		}
	} while (LOOP && block < blocks);
}
