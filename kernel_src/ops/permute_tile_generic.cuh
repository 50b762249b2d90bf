/*
 * permute_tile_generic.cuh: a transpose in tiles through registers and swizzled shared memory, as
 * in permute_tile.cuh, for sizes, strides and tiles that are known when the kernel is launched.
 * Elements are bytes.  Rows that are not aligned to 16 bytes are cut out of the vectors around
 * them, and columns that are not are stored by words or elements.
 */
#pragma once
#include "common/divide.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

#define PERMUTE_TILE_THREADS 256 /* at most */

enum {
	PERMUTE_WIDE_ROWS = 1,    /* rows of x are aligned to 16 bytes, and whole such */
	PERMUTE_EVEN_ROWS = 2,    /* the rows of a thread are at equal distances */
	PERMUTE_WIDE_COLUMNS = 4, /* the same of columns in y */
	PERMUTE_RUN = 8,          /* a tile has whole columns, which follow one another in y */
	PERMUTE_ALONG_X = 16,     /* blocks walk along the columns first */
};

/* Three dimensions of a side, fastest first; of those that are not there the first takes all. */
struct PermuteSide {
	Divisor<u32> first, second;
	i64 stride[3];

	DEVICE i64 at(u32 i) const
	{
		const u32 rest = first.quotient(i), last = second.quotient(rest);
		return static_cast<i64>(i - rest * first.size) * stride[0] +
			   static_cast<i64>(rest - last * second.size) * stride[1] +
			   static_cast<i64>(last) * stride[2];
	}
};

/* A tile: where it begins in x and y, and which rows and columns it has. */
struct PermuteTile {
	const u8 *x;
	u8 *y;
	u32 row, row_end, column, column_end;
};

template <int ES>
struct PermuteAny {
	static constexpr int unit = 16 / ES;            /* elements of 16 bytes */
	static constexpr int most = ES == 1 ? 8 : unit; /* rows of a thread's block */
	static constexpr int piece = most * ES;         /* bytes of a column in it */
	static constexpr int pieces = 16 / piece;

	PermuteSide rows, columns; /* offsets in x, in y */
	u32 row_count, column_count;
	u32 pitch;           /* of a column in shared memory, in chunks of 16 bytes */
	Divisor<u32> blocks; /* of 16 bytes in a row of a tile */
	Divisor<u32> stores; /* of a column in a tile */
	u32 flags;
	b128 *tile;

	/* Chunks are turned by the number of the column block: neither many columns of one chunk nor
	 * many chunks of one column meet in a bank. */
	DEVICE u8 *place(u32 column, u32 chunk) const
	{
		return reinterpret_cast<u8 *>(tile + ((column * pitch + chunk) ^ (column / unit & 7)));
	}

	template <bool WIDE, bool EVEN>
	DEVICE void load(const PermuteTile &at, u32 row, u32 column, u32 (&in)[most][4]) const
	{
		const u32 beyond = static_cast<u32>(vec_beyond<16>(at.x));
		const i64 left = static_cast<i64>(column_count - column) * ES;
		const i64 first = rows.at(row);

#pragma unroll
		for (int k = 0; k < most; k++) {
#pragma unroll
			for (int w = 0; w < 4; w++)
				in[k][w] = 0;
			if (row + k >= at.row_end)
				continue;
			const i64 offset = EVEN ? first + k * rows.stride[0] : rows.at(row + k);
			if constexpr (WIDE)
				vec_load<16>(at.x + (offset + column) * ES, in[k]);
			else
				vec_load_skewed<ES, 16>(at.x - beyond, (offset + column) * ES + beyond,
										left < 16 ? static_cast<int>(left) : 16, in[k]);
		}
	}

	DEVICE void load_any(const PermuteTile &at, u32 row, u32 column, u32 (&in)[most][4]) const
	{
		const u32 mode = flags & (PERMUTE_WIDE_ROWS | PERMUTE_EVEN_ROWS);

		if (mode == (PERMUTE_WIDE_ROWS | PERMUTE_EVEN_ROWS))
			load<true, true>(at, row, column, in);
		else if (mode == PERMUTE_WIDE_ROWS)
			load<true, false>(at, row, column, in);
		else if (mode == PERMUTE_EVEN_ROWS)
			load<false, true>(at, row, column, in);
		else
			load<false, false>(at, row, column, in);
	}

	DEVICE void in(const PermuteTile &at) const
	{
		const u32 chunks = (at.row_end - at.row + unit - 1) / unit;

#pragma unroll 1
		for (u32 slot = threadIdx.x; slot < chunks * blocks.size * pieces; slot += blockDim.x) {
			const u32 part = slot % pieces, rest = slot / pieces;
			const u32 chunk = blocks.quotient(rest), block = rest - chunk * blocks.size;
			const u32 row = at.row + chunk * unit + part * most, column = at.column + block * unit;
			u32 words[most][4], turned[unit][piece / 4];
			if (column >= at.column_end || row >= at.row_end)
				continue;
			load_any(at, row, column, words);
			vec_transpose<ES>(words, turned);
#pragma unroll
			for (int j = 0; j < unit; j++)
				vec_store<piece>(place(block * unit + j, chunk) + part * piece, turned[j]);
		}
	}

	/* An element of the tile. */
	DEVICE void get(u32 row, u32 column, u32 *words) const
	{
		vec_load<ES>(place(column, row / unit) + row % unit * ES, words);
	}

	/*
	 * Word `number` of a run of `count` elements at `to`: of those that are aligned, from the one
	 * in which the run begins on.  At the ends of the run a word may have fewer elements.
	 */
	template <typename Get>
	DEVICE void store_word(u8 *to, u32 number, u32 count, Get get_element) const
	{
		constexpr int fill = ES < 4 ? 4 / ES : 1;
		const u32 beyond = static_cast<u32>(vec_beyond<4>(to)) / ES;
		const u32 first = number * fill - beyond; /* below 0 if the run begins within the word */
		u32 one[1];

		if ((number > 0 || beyond == 0) && first + fill <= count) {
			u32 elements[fill];
#pragma unroll
			for (int i = 0; i < fill; i++)
				get_element(first + i, elements + i);
			one[0] = vec_collect<ES, fill, 1>(elements, [](int i) { return i; });
			vec_store<4>(to + static_cast<i64>(first) * ES, one);
			return;
		}
		const u32 head = number > 0 ? first : 0, stop = first + fill < count ? first + fill : count;
#pragma unroll 1
		for (u32 i = head; i < stop; i++) {
			get_element(i, one);
			vec_store<ES>(to + static_cast<i64>(i) * ES, one);
		}
	}

	/* Whole columns, as one run. */
	DEVICE void out_run(const PermuteTile &at) const
	{
		const u32 count = (at.column_end - at.column) * row_count;
		u8 *const to = at.y + static_cast<i64>(at.column) * row_count * ES;
		const u32 words = (count * ES + static_cast<u32>(vec_beyond<4>(to)) + 3) / 4;

#pragma unroll 1
		for (u32 i = threadIdx.x; i < words; i += blockDim.x)
			store_word(to, i, count, [=](u32 e, u32 *element) {
				const u32 column = stores.quotient(e);
				get(e - column * row_count, column, element);
			});
	}

	/* Columns of elements that do not make whole words. */
	DEVICE void out_words(const PermuteTile &at) const
	{
		const u32 all = (at.column_end - at.column) * stores.size, count = at.row_end - at.row;

#pragma unroll 1
		for (u32 i = threadIdx.x; i < all; i += blockDim.x) {
			const u32 column = stores.quotient(i), number = i - column * stores.size;
			u8 *const to = at.y + (columns.at(at.column + column) + at.row) * ES;
			if (number * 4 < count * ES + static_cast<u32>(vec_beyond<4>(to)))
				store_word(to, number, count,
						   [=](u32 row, u32 *element) { get(row, column, element); });
		}
	}

	/* Columns of elements, or of vectors of BYTES. */
	template <int BYTES>
	DEVICE void out(const PermuteTile &at) const
	{
		constexpr u32 each = BYTES / ES;
		const u32 all = (at.column_end - at.column) * stores.size;

#pragma unroll 4
		for (u32 i = threadIdx.x; i < all; i += blockDim.x) {
			const u32 column = stores.quotient(i), row = (i - column * stores.size) * each;
			if (at.row + row >= at.row_end)
				continue;
			u32 words[vec_words<BYTES>];
			vec_load<BYTES>(place(column, row / unit) + row % unit * ES, words);
			vec_store<BYTES>(at.y + (columns.at(at.column + column) + at.row + row) * ES, words);
		}
	}

	DEVICE void out_any(const PermuteTile &at) const
	{
		if (flags & PERMUTE_WIDE_COLUMNS)
			out<16>(at);
		else if constexpr (ES >= 4)
			out<ES>(at);
		else if (flags & PERMUTE_RUN)
			out_run(at);
		else
			out_words(at);
	}
};

#define PERMUTE_SIDE_PARAMS(name)                                                            \
	DIVIDE_PARAMS(u32, name##_first), DIVIDE_PARAMS(u32, name##_second), i64 name##_stride0, \
		i64 name##_stride1, i64 name##_stride2
#define PERMUTE_SIDE_MADE(name)                                          \
	PermuteSide                                                          \
	{                                                                    \
		DIVIDE_MADE(u32, name##_first), DIVIDE_MADE(u32, name##_second), \
		{                                                                \
			name##_stride0, name##_stride1, name##_stride2               \
		}                                                                \
	}

/*
 * row_count rows by column_count columns, in tiles of up to tile_rows by tile_columns; fast, slow:
 * how many tiles there are of the side that blocks walk along first, and of the other.  The other
 * dimensions are batch_a, fastest, to batch_e, whose size nobody needs.
 */
template <int ES>
__global__ LAUNCH_BOUNDS(PERMUTE_TILE_THREADS) void permute_tile_generic(
	const void *x, void *y, u32 work, u32 row_count, u32 column_count, u32 tile_rows,
	u32 tile_columns, u32 pitch, u32 flags, DIVIDE_PARAMS(u32, fast), DIVIDE_PARAMS(u32, slow),
	DIVIDE_PARAMS(u32, blocks), DIVIDE_PARAMS(u32, stores), PERMUTE_SIDE_PARAMS(rows),
	PERMUTE_SIDE_PARAMS(columns), DIVIDE_PARAMS(u32, batch_a), DIVIDE_PARAMS(u32, batch_b),
	DIVIDE_PARAMS(u32, batch_c), DIVIDE_PARAMS(u32, batch_d), i64 ax, i64 bx, i64 cx, i64 dx,
	i64 ex, i64 ay, i64 by, i64 cy, i64 dy, i64 ey)
{
	DYN_SHARED(b128, tile);
	const PermuteAny<ES> any{
		PERMUTE_SIDE_MADE(rows),  PERMUTE_SIDE_MADE(columns), row_count, column_count, pitch,
		DIVIDE_MADE(u32, blocks), DIVIDE_MADE(u32, stores),   flags,     tile};
	const Divisor<u32> of_fast = DIVIDE_MADE(u32, fast), of_slow = DIVIDE_MADE(u32, slow);
	const Divisor<u32> sizes[4] = {DIVIDE_MADE(u32, batch_a), DIVIDE_MADE(u32, batch_b),
								   DIVIDE_MADE(u32, batch_c), DIVIDE_MADE(u32, batch_d)};
	const i64 from[5] = {ax, bx, cx, dx, ex}, to[5] = {ay, by, cy, dy, ey};
	const bool along_x = flags & PERMUTE_ALONG_X;

#pragma unroll 1
	for (u32 block = blockIdx.x; block < work; block += gridDim.x) {
		const u32 strip = of_fast.quotient(block), a = block - strip * fast_size;
		const u32 item = of_slow.quotient(strip), b = strip - item * slow_size;
		const u32 row = (along_x ? b : a) * tile_rows, column = (along_x ? a : b) * tile_columns;
		i64 offset_x = 0, offset_y = 0;
		u32 rest = item;

#pragma unroll
		for (int k = 0; k < 4; k++) {
			const u32 next = sizes[k].quotient(rest), here = rest - next * sizes[k].size;
			offset_x += static_cast<i64>(here) * from[k];
			offset_y += static_cast<i64>(here) * to[k];
			rest = next;
		}
		offset_x += static_cast<i64>(rest) * from[4];
		offset_y += static_cast<i64>(rest) * to[4];
		const PermuteTile at{static_cast<const u8 *>(x) + offset_x * ES,
							 static_cast<u8 *>(y) + offset_y * ES,
							 row,
							 row_count - row < tile_rows ? row_count : row + tile_rows,
							 column,
							 column_count - column < tile_columns ? column_count
																  : column + tile_columns};
		any.in(at);
		__syncthreads();
		any.out_any(at);
		__syncthreads();
	}
}
