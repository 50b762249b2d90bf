/*
 * permute_tile.cuh: a transpose in tiles, through registers and swizzled shared memory, for rows
 * and columns that begin at multiples of a vector.  Elements are bytes, as in permute.cuh.
 */
#pragma once
#include "common/bands.cuh"
#include "common/index.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/*
 * The geometry of a tile of TR rows (neighbours in y) by TC columns (neighbours in x).  A thread
 * turns blocks of KR rows by one load.  Shared memory holds columns of TR elements in chunks of 16
 * bytes; the place of a chunk is turned by the number of the column block, so that neither the
 * stores of a warp (one chunk of many columns) nor its loads (many chunks of one column) meet in a
 * bank.
 */
template <int ES, int TR, int TC, int KR, int LOAD, int STORE, int THREADS, i64 R, i64 C>
struct permute_tile_shape {
	static constexpr int piece = KR * ES;       /* bytes of a column in one thread's block */
	static constexpr int pieces = 16 / piece;   /* of a chunk */
	static constexpr int columns = LOAD / ES;   /* of one thread's block */
	static constexpr int chunks = TR * ES / 16; /* of a column */
	static constexpr int blocks = TC / columns; /* column blocks */
	static constexpr int in_slots = blocks * TR / KR;
	static constexpr int run = STORE / ES;                     /* rows of one store */
	static constexpr int runs = TR / run;                      /* of a column */
	static constexpr bool ragged = R % TR != 0 || C % TC != 0; /* tiles reach beyond the edges */
	static constexpr int turn = (chunks < 8 ? chunks : 8) - 1;
	static_assert(piece == 4 || piece == 8 || piece == 16, "a thread's rows");
	static_assert(TR * ES % 16 == 0 && TC % columns == 0 && TR % run == 0, "tile");
	static_assert((chunks & (chunks - 1)) == 0 || chunks % 8 == 0, "turned chunks stay in place");
	static_assert(THREADS % runs == 0, "a thread stays with its rows when it stores");

	static DEVICE int chunk_at(int block, int chunk)
	{
		return block * columns * chunks + (chunk ^ (block & turn));
	}
};

/*
 * x to shared memory: loads of LOAD bytes along columns, for KR rows.  Of rows that begin in x and
 * end behind it, the last one is read again, and nobody stores it.
 */
template <class SHAPE, int ES, int KR, int LOAD, int THREADS, i64 R, i64 C, i64 CS, class RD,
		  class RX, typename Offset>
DEVICE void permute_tile_in(const u8 *x, b128 *tile, u32 row0, u32 column0)
{
	constexpr int words = vec_words<LOAD>;
	constexpr int steps = (SHAPE::in_slots + THREADS - 1) / THREADS;
	/* Eight loads in flight are enough; more code only takes longer to compile. */
	constexpr int most = KR < 8 ? 8 / KR : 1;
	constexpr int together = steps < most ? steps : most;
	constexpr bool whole = R % KR == 0;
	/* Then the rows of a thread are at equal distances. */
	constexpr bool even = whole && (RD::product == 1 || RD::first % KR == 0);
#pragma unroll together
	for (int step = 0; step < steps; step++) {
		const int slot = step * THREADS + static_cast<int>(threadIdx.x);
		if (SHAPE::in_slots % THREADS != 0 && slot >= SHAPE::in_slots)
			break;
		const int piece = slot % SHAPE::pieces, rest = slot / SHAPE::pieces;
		const int block = rest % SHAPE::blocks, chunk = rest / SHAPE::blocks;
		const u32 column = column0 + block * SHAPE::columns;
		const u32 row = row0 + (chunk * SHAPE::pieces + piece) * KR;
		if (SHAPE::ragged && (column >= static_cast<u32>(C) || row >= static_cast<u32>(R)))
			continue;
		const u8 *from = x + static_cast<i64>(column) * (CS * ES);
		u32 in[KR][words];
		if constexpr (even) {
			from += static_cast<i64>(index_offset<Offset>(row, RD{}, RX{})) * ES;
#pragma unroll
			for (int k = 0; k < KR; k++)
				vec_load<LOAD>(from + k * (RX::first * ES), in[k]);
		} else {
#pragma unroll
			for (int k = 0; k < KR; k++) {
				const u32 r = whole || row + k < static_cast<u32>(R) ? row + k : R - 1;
				vec_load<LOAD>(from + static_cast<i64>(index_offset<Offset>(r, RD{}, RX{})) * ES,
							   in[k]);
			}
		}
		u32 out[SHAPE::columns][SHAPE::piece / 4];
		vec_transpose<ES>(in, out);
		u8 *const to =
			reinterpret_cast<u8 *>(tile + SHAPE::chunk_at(block, chunk)) + piece * SHAPE::piece;
#pragma unroll
		for (int j = 0; j < SHAPE::columns; j++)
			vec_store<SHAPE::piece>(to + j * SHAPE::chunks * 16, out[j]);
	}
}

/*
 * Shared memory to y: stores of STORE bytes along the rows of each column.  A few loads of shared
 * memory are under way together; they need no check, for the tile is there to its full size.
 */
template <class SHAPE, int ES, int TC, int STORE, int THREADS, i64 R, i64 C, class CD, class CY,
		  typename Offset>
DEVICE void permute_tile_out(u8 *y, const b128 *tile, u32 row0, u32 column0)
{
	constexpr int stride = THREADS / SHAPE::runs, steps = (TC + stride - 1) / stride;
	constexpr int together = steps % 4 == 0 ? 4 : steps % 3 == 0 ? 3 : steps % 2 == 0 ? 2 : 1;
	const int run = static_cast<int>(threadIdx.x) % SHAPE::runs, byte = run * STORE;
	const int first = static_cast<int>(threadIdx.x) / SHAPE::runs;
	const u32 row = row0 + run * SHAPE::run;
	if (SHAPE::ragged && row >= static_cast<u32>(R))
		return;
	const u8 *from = reinterpret_cast<const u8 *>(tile) + byte % 16;
	y += static_cast<i64>(row) * ES;
#pragma unroll 1
	for (int step = 0; step < steps; step += together) {
		u32 words[together][vec_words<STORE>];
#pragma unroll
		for (int i = 0; i < together; i++) {
			const int column = (step + i) * stride + first;
			const int chunk = SHAPE::chunk_at(column / SHAPE::columns, byte / 16) +
							  column % SHAPE::columns * SHAPE::chunks;
			if (TC % stride == 0 || column < TC)
				vec_load<STORE>(from + chunk * 16, words[i]);
		}
#pragma unroll
		for (int i = 0; i < together; i++) {
			const int column = (step + i) * stride + first;
			if ((SHAPE::ragged && column0 + column >= static_cast<u32>(C)) ||
				(TC % stride != 0 && column >= TC))
				continue;
			const Offset to = index_offset<Offset>(column0 + column, CD{}, CY{});
			vec_store<STORE>(y + static_cast<i64>(to) * ES, words[i]);
		}
	}
}

/*
 * R rows by C columns: a row is a run of C elements of x, CS apart, a column a run of R elements of
 * y.  RD, RX: the dimensions behind the rows and their strides in x; CD, CY: behind the columns,
 * strides in y.  BD, BX, BY: the other dimensions, with both strides; batch_x and batch_y are the
 * strides of the slowest of all, which is only in the grid.  Blocks walk through tiles in bands of
 * BAND (common/bands.cuh).
 */
template <int ES, int TR, int TC, int KR, int LOAD, int STORE, int THREADS, int BAND, i64 R, i64 C,
		  i64 CS, class RD, class RX, class CD, class CY, class BD, class BX, class BY,
		  typename Offset, bool LOOP>
__global__ LAUNCH_BOUNDS(THREADS) void permute_tile(const void *x, void *y, i64 batch_x,
													i64 batch_y, u64 blocks)
{
	using shape = permute_tile_shape<ES, TR, TC, KR, LOAD, STORE, THREADS, R, C>;
	constexpr u32 row_tiles = static_cast<u32>((R + TR - 1) / TR);
	constexpr u32 column_tiles = static_cast<u32>((C + TC - 1) / TC);
	DYN_SHARED(b128, tile);

	u64 block = blockIdx.x;
	do {
		using Number = typename index_choose<LOOP, u64, u32>::type;
		const Number n = static_cast<Number>(block);
		const BandPlace<Number> place = band_place<row_tiles, column_tiles, BAND>(n);
		const u32 row0 = place.row * TR, column0 = place.column * TC;
		const index_pair at = index_batch<BD, BX, BY, Offset>(place.item, batch_x, batch_y);

		permute_tile_in<shape, ES, KR, LOAD, THREADS, R, C, CS, RD, RX, Offset>(
			static_cast<const u8 *>(x) + at.x * ES, tile, row0, column0);
		__syncthreads();
		permute_tile_out<shape, ES, TC, STORE, THREADS, R, C, CD, CY, Offset>(
			static_cast<u8 *>(y) + at.y * ES, tile, row0, column0);
		if constexpr (LOOP) {
			__syncthreads();
			block += gridDim.x;
		}
	} while (LOOP && block < blocks);
}
