/*
 * cast_transpose.cuh: matrices divided by a scale, cast to 8 bits and written twice: as they lie,
 * and transposed through registers and swizzled shared memory.
 *
 * Every size and stride is an argument.  A kernel is made for the types, the tile and the widths of
 * vectors alone.
 */
#pragma once
#include "common/quantize.cuh"
#include "common/space.cuh"
#include "common/vec.cuh"

/*
 * A tile of TR rows by TC columns of x.  A thread turns blocks of 8 rows by V columns.  Shared
 * memory holds columns of TR bytes in chunks of 16.  The number of the column block turns the place
 * of a chunk, so that neither the stores of a warp (one chunk of many columns) nor its loads (many
 * chunks of one column) meet in a bank.
 */
template <int TR, int TC, int V, int THREADS>
struct CastTile {
	static constexpr int slots = TC / V * (TR / 8); /* blocks of threads */
	static constexpr int rows = 8;                  /* of a thread's block */
	static constexpr int chunks = TR / 16;          /* of a column */
	static constexpr int blocks = TC / V;           /* column blocks */
	static constexpr int turn = (chunks < 8 ? chunks : 8) - 1;
	static_assert(TR % 16 == 0 && (chunks & (chunks - 1)) == 0, "turned chunks stay in place");
	static_assert(TC % V == 0, "whole blocks");

	/* The threads of a block; THREADS 0: the launch says how many there are. */
	static DEVICE int threads()
	{
		return THREADS ? THREADS : static_cast<int>(blockDim.x);
	}

	/* The place of a chunk of a column, in bytes. */
	static DEVICE int place(int column, int chunk)
	{
		return (column * chunks + (chunk ^ (column / V & turn))) * 16;
	}
};

/* One matrix: its rows are `row` elements apart in x, its columns `column`. */
template <typename T>
struct CastFrom {
	const T *x;
	i64 row, column;
	u64 rows, columns;
};

/* x to y, and to shared memory.  WHOLE: all of the tile is there. */
template <class TILE, int V, bool WHOLE, typename T, typename OUT>
DEVICE void cast_in(const CastFrom<T> &from, const float *scale, OUT *y, u8 *tile, u64 row0,
					u64 column0)
{
	constexpr int R = TILE::rows, bytes = V * static_cast<int>(sizeof(T));
	const float by = scale ? *scale : 1.0f;

#pragma unroll 1
	for (int slot = static_cast<int>(threadIdx.x); slot < TILE::slots; slot += TILE::threads()) {
		const int half = slot % 2, rest = slot / 2;
		const int block = rest % TILE::blocks, chunk = rest / TILE::blocks;
		const u64 row = row0 + static_cast<u64>(chunk * 16 + half * R);
		const u64 column = column0 + static_cast<u64>(block * V);
		if (!WHOLE && (row >= from.rows || column >= from.columns))
			continue;
		/* Behind the last row it is read again, and nobody stores it. */
		const int last =
			!WHOLE && from.rows - row < R ? static_cast<int>(from.rows - row) - 1 : R - 1;
		const T *start =
			from.x + static_cast<i64>(row) * from.row + static_cast<i64>(column) * from.column;
		OUT *to = y + row * from.columns + column;
		u32 raw[R][vec_words<bytes>], in[R][vec_words<V>], out[V][R / 4];
#pragma unroll
		for (int k = 0; k < R; k++) {
			vec_load<bytes>(start, raw[k]);
			start += k < last ? from.row : 0;
		}
		/* Behind the loads, which wait for no scale. */
		const QuantizeScale<T> divide(by);
#pragma unroll
		for (int k = 0; k < R; k++) {
			float values[V];
			element_unpack<T>(raw[k], values);
			divide.divide(values);
			element_pack<OUT>(values, in[k]);
			if (y && k <= last)
				vec_store<V>(to, in[k]);
			to += from.columns;
		}
		vec_transpose<1>(in, out);
#pragma unroll
		for (int j = 0; j < V; j++)
			vec_store<R>(tile + TILE::place(block * V + j, chunk) + half * R, out[j]);
	}
}

/* Shared memory to the transposed matrix, in stores of STORE bytes along each column. */
template <class TILE, int TR, int TC, int STORE, bool WHOLE, typename OUT>
DEVICE void cast_out(OUT *to, const u8 *tile, u64 rows, u64 columns, u64 row0, u64 column0)
{
	constexpr int runs = TR / STORE; /* of a column */

#pragma unroll 4
	for (int run = static_cast<int>(threadIdx.x); run < runs * TC; run += TILE::threads()) {
		const int at = run % runs * STORE, column = run / runs;
		const u64 row = row0 + static_cast<u64>(at), to_column = column0 + static_cast<u64>(column);
		u32 words[vec_words<STORE>];
		vec_load<STORE>(tile + TILE::place(column, at / 16) + at % 16, words);
		if (WHOLE || (row < rows && to_column < columns))
			vec_store<STORE>(to + to_column * rows + row, words);
	}
}

/* One tile. */
template <class TILE, int TR, int TC, int V, int STORE, bool WHOLE, typename T, typename OUT>
DEVICE void cast_tile(const CastFrom<T> &from, const float *scale, OUT *y, OUT *turned, u8 *tile,
					  u64 row0, u64 column0)
{
	cast_in<TILE, V, WHOLE>(from, scale, y, tile, row0, column0);
	__syncthreads();
	if (turned)
		cast_out<TILE, TR, TC, STORE, WHOLE>(turned, tile, from.rows, from.columns, row0, column0);
}

#define CAST_THREADS 128 /* of a block of the generic kernels, at most */

/* scale: null for 1.  y, turned: null where they are not wanted.  Blocks walk along the columns
 * first, so that those that follow each other read and write y next to each other. */
template <typename T, typename OUT, int TR, int TC, int V, int STORE, int THREADS, bool LOOP>
__global__ LAUNCH_BOUNDS(THREADS ? THREADS : CAST_THREADS) void cast_transpose(
	const T *x, const float *scale, OUT *y, OUT *turned, u64 rows, u64 columns, i64 x_row,
	i64 x_column, DIVIDE_PARAMS(u64, row_tiles), DIVIDE_PARAMS(u64, column_tiles), u64 blocks,
	SPACE_SIZES(u64), SPACE_STRIDES(of_x))
{
	typedef CastTile<TR, TC, V, THREADS> Tile;
	const Divisor<u64> down = DIVIDE_MADE(u64, row_tiles), along = DIVIDE_MADE(u64, column_tiles);
	const Space<1, u64> space = {SPACE_SIZES_MADE(u64), {SPACE_STRIDES_MADE(of_x)}};
	DYN_SHARED(b128, tile);
	u8 *const bytes = reinterpret_cast<u8 *>(tile);

	u64 block = blockIdx.x;
	do {
		const u64 strip = along.quotient(block), matrix = down.quotient(strip);
		const u64 row0 = (strip - matrix * down.size) * TR;
		const u64 column0 = (block - strip * along.size) * TC;
		const u64 before = matrix * rows * columns;
		i64 offset[1];
		space.at(matrix, offset);
		const CastFrom<T> from = {x + offset[0], x_row, x_column, rows, columns};
		OUT *const to = y ? y + before : nullptr, *const other = turned ? turned + before : nullptr;
		if (THREADS && row0 + TR <= rows && column0 + TC <= columns)
			cast_tile<Tile, TR, TC, V, STORE, true>(from, scale, to, other, bytes, row0, column0);
		else
			cast_tile<Tile, TR, TC, V, STORE, false>(from, scale, to, other, bytes, row0, column0);
		if constexpr (LOOP)
			__syncthreads();
		block += gridDim.x;
	} while (LOOP && block < blocks);
}
