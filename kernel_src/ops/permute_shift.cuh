/*
 * permute_shift.cuh: a transpose whose rows begin anywhere: their strides, or those of y's columns,
 * are no multiple of a vector.  Elements are bytes, as in permute.cuh.
 *
 * As in permute_tile a thread turns a block in registers, and columns lie in shared memory in
 * chunks of 16 bytes.  A vector of x that is not aligned is cut out of the two aligned ones that it
 * lies in; and so is each aligned vector of y out of two chunks.  So every access is a whole
 * aligned vector, but for the ends of y's runs.
 */
#pragma once
#include "common/index.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/*
 * A tile of TR rows by TC columns.  RUN: TR rows are all there are, and y's columns follow one
 * another: then the first rows of the next column follow those of each, as far as a vector can
 * reach.  Otherwise another chunk of rows does, if y is not aligned.
 */
template <int ES, int TR, int TC, int KR, int LOAD, bool RUN, bool SKEW_Y>
struct permute_shift_shape {
	static constexpr int each = 16 / ES;        /* rows of a chunk */
	static constexpr int piece = KR * ES;       /* bytes of a column in one thread's block */
	static constexpr int pieces = 16 / piece;   /* of a chunk */
	static constexpr int columns = LOAD / ES;   /* of one thread's block */
	static constexpr int blocks = TC / columns; /* column blocks */
	static constexpr int reach = RUN ? each - 1 : SKEW_Y ? each : 0; /* rows more than TR */
	static constexpr int chunks = (TR + reach + each - 1) / each;    /* of a column */
	static constexpr int pitch = chunks % 2 ? chunks : chunks + 1;
	static constexpr int in_slots = blocks * chunks * pieces;
	static_assert(piece == 8 || piece == 16, "a thread's rows");
	static_assert(TC % columns == 0 && (RUN || TR % each == 0), "tile");

	/* Neighbours in a warp store the same column of different blocks: these lie an odd number of
	 * chunks apart. */
	static DEVICE int chunk_at(int column)
	{
		return (column % columns * blocks + column / columns) * pitch;
	}
};

/* x to shared memory. */
template <class SHAPE, int ES, int TR, int KR, int LOAD, bool SKEW_X, bool RUN, int THREADS, i64 R,
		  i64 C, class RD, class RX, typename Offset>
DEVICE void permute_shift_in(const u8 *x, b128 *tile, u32 row0, u32 column0)
{
	constexpr int words = LOAD / 4;
	constexpr int steps = (SHAPE::in_slots + THREADS - 1) / THREADS;
#pragma unroll 1
	for (int step = 0; step < steps; step++) {
		const int slot = step * THREADS + static_cast<int>(threadIdx.x);
		if (SHAPE::in_slots % THREADS != 0 && slot >= SHAPE::in_slots)
			break;
		const int piece = slot % SHAPE::pieces, rest = slot / SHAPE::pieces;
		const int block = rest % SHAPE::blocks, chunk = rest / SHAPE::blocks;
		const u32 column = column0 + block * SHAPE::columns;
		const u32 row = row0 + (chunk * SHAPE::pieces + piece) * KR;
		if (column >= static_cast<u32>(C) || (!RUN && row >= static_cast<u32>(R)))
			continue;
		u32 in[KR][words];
#pragma unroll
		for (int k = 0; k < KR; k++) {
			u32 r = row + k, c = column;
			if constexpr (RUN) {
				c += r >= static_cast<u32>(R);
				r -= r >= static_cast<u32>(R) ? static_cast<u32>(R) : 0;
			} else {
				r = r < static_cast<u32>(R) ? r : static_cast<u32>(R - 1);
			}
			const u8 *const begin = x + static_cast<i64>(index_offset<Offset>(r, RD{}, RX{})) * ES;
			if constexpr (SKEW_X)
				vec_load_skewed<ES, LOAD>(begin + c * ES, begin + C * ES, in[k]);
			else
				vec_load<LOAD>(begin + c * ES, in[k]);
		}
		u32 out[SHAPE::columns][SHAPE::piece / 4];
		vec_transpose<ES>(in, out);
		u8 *const to =
			reinterpret_cast<u8 *>(tile + block * SHAPE::pitch + chunk) + piece * SHAPE::piece;
#pragma unroll
		for (int j = 0; j < SHAPE::columns; j++)
			vec_store<SHAPE::piece>(to + j * (SHAPE::blocks * SHAPE::pitch * 16), out[j]);
	}
}

/* The 16 bytes from a byte of shared memory on. */
template <int ES>
DEVICE void permute_shift_cut(const b128 *column, int byte, u32 (&words)[4])
{
	u32 pair[8];
	vec_load<16>(column + byte / 16, pair);
	vec_load<16>(column + byte / 16 + 1, pair + 4);
	vec_window<ES, 16>(pair, byte % 16, words);
}

/* All rows of some columns, which follow one another in y: one run of `columns` * R elements. */
template <class SHAPE, int ES, int TC, int THREADS, int R>
DEVICE void permute_shift_out_run(u8 *y, const b128 *tile, int columns)
{
	constexpr int each = 16 / ES, stride = THREADS * each;
	constexpr int more_rows = stride % R, more_columns = stride / R;
	/* The vectors of a warp begin at a multiple of 128 bytes, which may be before the run. */
	constexpr int turns = 128 / ES / R + 1;
	constexpr int steps = (TC * R + 128 / ES + stride - 1) / stride;
	const int count = columns * R;
	const int first = static_cast<int>(threadIdx.x) * each - vec_beyond<128>(y) / ES;
	const int before = (16 - vec_beyond<16>(y)) % 16 / ES;
	const int behind = (count - before) % each;

	int element = first;
	int row = (first + turns * R) % R, column = (first + turns * R) / R - turns;
#pragma unroll 2
	for (int step = 0; step < steps; step++) {
		if (static_cast<u32>(element) <= static_cast<u32>(count - each)) {
			u32 words[4];
			permute_shift_cut<ES>(tile + SHAPE::chunk_at(column), row * ES, words);
			vec_store<16>(y + element * ES, words);
		}
		element += stride;
		row += more_rows;
		column += more_columns;
		if (more_rows != 0 && row >= R) {
			row -= R;
			column++;
		}
	}
	for (int i = threadIdx.x; i < before + behind; i += THREADS) {
		const int k = i < before ? i : count - behind + (i - before);
		const u8 *const from = reinterpret_cast<const u8 *>(tile + SHAPE::chunk_at(k / R));
		vec_copy<ES>(from + k % R * ES, y + k * ES);
	}
}

/*
 * TR rows of each column: of column c, those from the first vector that begins in the tile to the
 * end of the last one.  y: the tile's row 0 in column 0; rows: those of the tile and the chunk
 * behind it that there are.
 */
template <class SHAPE, int ES, int TR, int TC, bool SKEW_Y, int THREADS, i64 C, class CD, class CY,
		  typename Offset>
DEVICE void permute_shift_out(u8 *y, const b128 *tile, u32 column0, int rows, bool top)
{
	constexpr int each = 16 / ES, runs = TR / each, stride = THREADS / runs;
	constexpr int steps = (TC + stride - 1) / stride;
	static_assert(THREADS % runs == 0, "a thread stays with its rows when it stores");
	const int run = static_cast<int>(threadIdx.x) % runs;
#pragma unroll 2
	for (int step = 0; step < steps; step++) {
		const int column = step * stride + static_cast<int>(threadIdx.x) / runs;
		if ((C % TC != 0 && column0 + column >= static_cast<u32>(C)) ||
			(TC % stride != 0 && column >= TC))
			break;
		const Offset at = index_offset<Offset>(column0 + column, CD{}, CY{});
		u8 *const to = y + static_cast<i64>(at) * ES;
		const b128 *const chunks = tile + SHAPE::chunk_at(column);
		const u8 *const from = reinterpret_cast<const u8 *>(chunks);
		const int before = SKEW_Y ? (16 - vec_beyond<16>(to)) % 16 / ES : 0;
		const int row = before + run * each;
		if (row + each <= rows) {
			u32 words[4];
			if constexpr (SKEW_Y)
				permute_shift_cut<ES>(chunks, row * ES, words);
			else
				vec_load<16>(chunks + run, words);
			vec_store<16>(to + row * ES, words);
		} else {
			for (int k = row; k < rows; k++)
				vec_copy<ES>(from + k * ES, to + k * ES);
		}
		if (top) {
			for (int k = run; k < before && k < rows; k += runs)
				vec_copy<ES>(from + k * ES, to + k * ES);
		}
	}
}

/*
 * R rows by C columns in tiles of TR by TC; blocks of KR rows by LOAD bytes a thread.  SKEW_X: rows
 * of x are not aligned to LOAD; SKEW_Y: columns of y are not aligned to 16 bytes.  RUN: TR is R,
 * y's columns follow one another, and a tile is one run of y; CD and CY say nothing then.
 * RESIDENT: blocks that a multiprocessor is to hold at least.  The rest as in permute_tile.
 */
template <int ES, int TR, int TC, int KR, int LOAD, bool SKEW_X, bool SKEW_Y, bool RUN, int THREADS,
		  int RESIDENT, i64 R, i64 C, class RD, class RX, class CD, class CY, class BD, class BX,
		  class BY, typename Offset, bool LOOP>
__global__ __launch_bounds__(THREADS, RESIDENT) void permute_shift(const void *x, void *y,
																   i64 batch_x, i64 batch_y,
																   u64 blocks)
{
	static_assert(!RUN || (TR == R && SKEW_X && SKEW_Y), "a run takes all rows");
	using shape = permute_shift_shape<ES, TR, TC, KR, LOAD, RUN, SKEW_Y>;
	constexpr u32 row_tiles = static_cast<u32>((R + TR - 1) / TR);
	constexpr u32 column_tiles = static_cast<u32>((C + TC - 1) / TC);
	DYN_SHARED(b128, tile);

	u64 block = blockIdx.x;
	do {
		using Number = typename index_choose<LOOP, u64, u32>::type;
		const Number n = static_cast<Number>(block);
		const Number strip = n / row_tiles, item = strip / column_tiles;
		const u32 row0 = static_cast<u32>(n - strip * row_tiles) * TR;
		const u32 column0 = static_cast<u32>(strip - item * column_tiles) * TC;
		const index_pair at = index_batch<BD, BX, BY, Offset>(item, batch_x, batch_y);
		u8 *const to = static_cast<u8 *>(y) + at.y * ES;

		permute_shift_in<shape, ES, TR, KR, LOAD, SKEW_X, RUN, THREADS, R, C, RD, RX, Offset>(
			static_cast<const u8 *>(x) + at.x * ES, tile, row0, column0);
		__syncthreads();
		if constexpr (RUN) {
			const i64 left = C - column0;
			permute_shift_out_run<shape, ES, TC, THREADS, static_cast<int>(R)>(
				to + column0 * (R * ES), tile, left < TC ? static_cast<int>(left) : TC);
		} else {
			constexpr int most = TR + shape::reach;
			const i64 left = R - row0;
			permute_shift_out<shape, ES, TR, TC, SKEW_Y, THREADS, C, CD, CY, Offset>(
				to + row0 * static_cast<i64>(ES), tile, column0,
				left < most ? static_cast<int>(left) : most, row0 == 0);
		}
		if constexpr (LOOP) {
			__syncthreads();
			block += gridDim.x;
		}
	} while (LOOP && block < blocks);
}
