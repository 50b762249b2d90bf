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
#include "common/bands.cuh"
#include "common/index.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/*
 * A tile of TR rows by TC columns.  RUN: TR rows are all there are, and y's columns follow one
 * another: then the first rows of the next column follow those of each, as far as a vector can
 * reach.  Otherwise ALIGN bytes of further rows do, if y is not aligned: what a tile stores to a
 * column begins at a multiple of ALIGN.
 */
template <int ES, int TR, int TC, int KR, int LOAD, bool RUN, bool SKEW_Y, int ALIGN>
struct permute_shift_shape {
	static constexpr int each = 16 / ES;        /* rows of a chunk */
	static constexpr int piece = KR * ES;       /* bytes of a column in one thread's block */
	static constexpr int pieces = 16 / piece;   /* of a chunk */
	static constexpr int columns = LOAD / ES;   /* of one thread's block */
	static constexpr int blocks = TC / columns; /* column blocks */
	static constexpr int reach = RUN ? each - 1 : SKEW_Y ? ALIGN / ES : 0; /* rows more than TR */
	static constexpr int chunks = (TR + reach + each - 1) / each;          /* of a column */
	static constexpr int pitch = chunks % 2 ? chunks : chunks + 1;
	static constexpr int in_slots = blocks * chunks * pieces;
	static_assert(piece == 8 || piece == 16, "a thread's rows");
	static_assert(TC % columns == 0 && (RUN || TR % each == 0), "tile");

	/* Neighbours in a warp store the same column of different blocks: these lie an odd number of
	 * chunks apart. */
	static DEVICE u32 chunk_at(u32 column)
	{
		return (column % columns * blocks + column / columns) * pitch;
	}
};

/* Returns the place in x of row `row` + k, or of the last one, in elements; first: row itself. */
template <int KR, i64 R, class RD, class RX, typename Offset>
DEVICE Offset permute_shift_row(u32 row, Offset first, int k, int column)
{
	if constexpr (RD::product == 1 || (R % KR == 0 && RD::first % KR == 0)) {
		const int last = static_cast<int>(R) - 1 - static_cast<int>(row);
		const int ahead = R % KR == 0 || k < last ? k : last;
		return first + static_cast<Offset>(ahead) * static_cast<Offset>(RX::first);
	} else {
		const u32 r = row + k < static_cast<u32>(R) ? row + k : static_cast<u32>(R - 1);
		return index_offset<Offset>(r, RD{}, RX{}) + column;
	}
}

/* x, which is the tile's first column in row 0, to shared memory; columns: from there on. */
template <class SHAPE, int ES, int TR, int KR, int LOAD, bool SKEW_X, bool RUN, bool NEW,
		  int THREADS, i64 R, class RD, class RX, typename Offset>
DEVICE void permute_shift_in(const u8 *x, b128 *tile, u32 row0, int columns)
{
	constexpr int words = LOAD / 4;
	constexpr int steps = (SHAPE::in_slots + THREADS - 1) / THREADS;
	const Offset beyond = SKEW_X ? vec_beyond<LOAD>(x) : 0;
	x -= beyond;
#pragma unroll 1
	for (int step = 0; step < steps; step++) {
		const u32 slot = step * THREADS + threadIdx.x;
		if (SHAPE::in_slots % THREADS != 0 && slot >= SHAPE::in_slots)
			break;
		const u32 piece = slot % SHAPE::pieces, rest = slot / SHAPE::pieces;
		const u32 block = rest % SHAPE::blocks, chunk = rest / SHAPE::blocks;
		const int column = static_cast<int>(block) * SHAPE::columns;
		const int left = (columns - column) * ES;
		const u32 row = row0 + (chunk * SHAPE::pieces + piece) * KR;
		if (left <= 0 || (!RUN && row >= static_cast<u32>(R)))
			continue;
		const Offset first = index_offset<Offset>(row, RD{}, RX{}) + column;
		u32 in[KR][words];
		if (RUN && NEW && RD::product == 1 && row + KR <= static_cast<u32>(R)) {
#pragma unroll
			for (int k = 0; k < KR; k++)
				vec_load_skewed<ES, LOAD>(
					x, beyond + (first + static_cast<Offset>(k * RX::first)) * ES, left, in[k]);
		} else {
#pragma unroll
			for (int k = 0; k < KR; k++) {
				if constexpr (RUN) {
					/* The first rows follow the last one, in the next column if there is one. */
					const bool next = row + k >= static_cast<u32>(R);
					const int more = left > ES ? ES : 0;
					Offset at;
					if constexpr (RD::product == 1) {
						at = (first + static_cast<Offset>(k * RX::first)) * ES -
							 (next ? static_cast<Offset>(R * RX::first * ES) - more : 0);
					} else {
						const u32 r = row + k - (next ? static_cast<u32>(R) : 0);
						at =
							(index_offset<Offset>(r, RD{}, RX{}) + column) * ES + (next ? more : 0);
					}
					vec_load_skewed<ES, LOAD>(x, beyond + at, next ? left - more : left, in[k]);
				} else {
					const Offset at = permute_shift_row<KR, R, RD, RX>(row, first, k, column) * ES;
					if constexpr (SKEW_X)
						vec_load_skewed<ES, LOAD>(x, beyond + at, left, in[k]);
					else
						vec_load<LOAD>(x + at, in[k]);
				}
			}
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
DEVICE void permute_shift_cut(const b128 *column, u32 byte, u32 (&words)[4])
{
	u32 pair[8];
	vec_load<16>(column + byte / 16, pair);
	vec_load<16>(column + byte / 16 + 1, pair + 4);
	vec_window<ES, 16>(pair, static_cast<int>(byte % 16), words);
}

/* The ends of a run: fewer elements than a vector has, before the first one and behind the last. */
template <class SHAPE, int ES, int THREADS, int R>
DEVICE void permute_shift_run_ends(u8 *y, const b128 *tile, int columns)
{
	constexpr int each = 16 / ES;
	const int count = columns * R;
	const int before = (16 - vec_beyond<16>(y)) % 16 / ES, behind = (count - before) % each;
	const int i = static_cast<int>(threadIdx.x);
	static_assert(R >= each && THREADS >= 2 * each, "a thread an element");
	if (i < before + behind) {
		const int back = i - before + 1;
		const b128 *const from = tile + (i < before ? 0 : SHAPE::chunk_at(columns - 1));
		vec_copy<ES>(reinterpret_cast<const u8 *>(from) + (i < before ? i : R - back) * ES,
					 y + (i < before ? i : count - back) * ES);
	}
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
	const u32 last = static_cast<u32>(count - each);

	u32 element = first;
	u32 row = static_cast<u32>(first + turns * R) % R;
	u32 column = static_cast<u32>(first + turns * R) / R - turns;
#pragma unroll 1
	for (int step = 0; step < steps; step++) {
		if (element <= last) {
			u32 words[4];
			permute_shift_cut<ES>(tile + SHAPE::chunk_at(column), row * ES, words);
			vec_store<16>(y + static_cast<i64>(element) * ES, words);
		}
		element += stride;
		row += more_rows;
		column += more_columns;
		if (more_rows != 0 && row >= static_cast<u32>(R)) {
			row -= R;
			column++;
		}
	}
	permute_shift_run_ends<SHAPE, ES, THREADS, R>(y, tile, columns);
}

/* The ends of columns: what is before the first vector, and less than one behind the last. */
template <class SHAPE, int ES, int TR, bool SKEW_Y, int ALIGN, int THREADS, class CD, class CY,
		  typename Offset>
DEVICE void permute_shift_ends(u8 *y, const b128 *tile, u32 column0, int columns, int rows,
							   bool top)
{
	constexpr int each = 16 / ES, runs = TR / each, most = SKEW_Y ? ALIGN / ES : each;
	if (rows == TR + SHAPE::reach && !(SKEW_Y && top))
		return;
#pragma unroll 1
	for (int i = threadIdx.x; i < columns * most; i += THREADS) {
		const int column = i / most, k = i % most;
		u8 *const begin =
			y + static_cast<i64>(index_offset<Offset>(column0 + column, CD{}, CY{})) * ES;
		const u8 *const from = reinterpret_cast<const u8 *>(tile + SHAPE::chunk_at(column));
		const int before = SKEW_Y ? (ALIGN - vec_beyond<ALIGN>(begin)) % ALIGN / ES : 0;
		const int whole = rows < before ? 0 : (rows - before) / each;
		const int tail = before + whole * each + k;
		if (top && k < before && k < rows)
			vec_copy<ES>(from + k * ES, begin + k * ES);
		if (whole < runs && k < each && tail < rows)
			vec_copy<ES>(from + tail * ES, begin + tail * ES);
	}
}

/* As permute_shift_out_run(), two vectors at a time. */
template <class SHAPE, int ES, int TC, int THREADS, int R>
DEVICE void permute_shift_out_pairs(u8 *y, const b128 *tile, int columns)
{
	constexpr int each = 16 / ES, stride = THREADS * each;
	constexpr int more_rows = stride % R, more_columns = stride / R;
	/* The vectors of a warp begin at a multiple of 128 bytes, which may be before the run. */
	constexpr int turns = 128 / ES / R + 1;
	constexpr int steps = (TC * R + 128 / ES + stride - 1) / stride;
	const int count = columns * R;
	const int first = static_cast<int>(threadIdx.x) * each - vec_beyond<128>(y) / ES;
	const u32 last = static_cast<u32>(count - each);

	u32 element = first;
	u32 row = static_cast<u32>(first + turns * R) % R;
	u32 column = static_cast<u32>(first + turns * R) / R - turns;
#pragma unroll 1
	for (int step = 0; step < steps; step += 2) {
		u32 words[2][4];
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const bool there = element + i * stride <= last;
			permute_shift_cut<ES>(tile + (there ? SHAPE::chunk_at(column) : 0),
								  there ? row * ES : 0, words[i]);
			row += more_rows;
			column += more_columns;
			if (more_rows != 0 && row >= static_cast<u32>(R)) {
				row -= R;
				column++;
			}
		}
#pragma unroll
		for (int i = 0; i < 2; i++)
			if (element + i * stride <= last)
				vec_store<16>(y + static_cast<i64>(element + i * stride) * ES, words[i]);
		element += 2 * stride;
	}
	permute_shift_run_ends<SHAPE, ES, THREADS, R>(y, tile, columns);
}

/*
 * TR rows of each column: of column c, those from the first vector that begins in the tile to the
 * end of the last one.  y: the tile's row 0 in column 0; rows: those of the tile and the chunk
 * behind it that there are.
 */
template <class SHAPE, int ES, int TR, int TC, bool SKEW_Y, int THREADS, class CD, class CY,
		  typename Offset>
DEVICE void permute_shift_out(u8 *y, const b128 *tile, u32 column0, int columns, int rows, bool top)
{
	constexpr int each = 16 / ES, runs = TR / each, stride = THREADS / runs;
	constexpr int steps = (TC + stride - 1) / stride;
	static_assert(THREADS % runs == 0, "a thread stays with its rows when it stores");
	const int run = static_cast<int>(threadIdx.x % runs);
	const int first = static_cast<int>(threadIdx.x / runs);
#pragma unroll 1
	for (int step = 0; step < steps; step += 2) {
		u32 words[2][4];
		u8 *to[2];
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const int column = first + (step + i) * stride;
			u8 *const begin =
				y + static_cast<i64>(index_offset<Offset>(column0 + column, CD{}, CY{})) * ES;
			const int before = SKEW_Y ? (16 - vec_beyond<16>(begin)) % 16 / ES : 0;
			const int row = before + run * each;
			to[i] = column < columns && row + each <= rows ? begin + row * ES : nullptr;
			const b128 *const from = tile + (column < TC ? SHAPE::chunk_at(column) : 0);
			if constexpr (SKEW_Y)
				permute_shift_cut<ES>(from, row * ES, words[i]);
			else
				vec_load<16>(from + run, words[i]);
		}
#pragma unroll
		for (int i = 0; i < 2; i++)
			if (to[i])
				vec_store<16>(to[i], words[i]);
	}
	permute_shift_ends<SHAPE, ES, TR, SKEW_Y, 16, THREADS, CD, CY, Offset>(y, tile, column0,
																		   columns, rows, top);
}

/* As permute_shift_out(), with places of columns at equal distances where they are. */
template <class SHAPE, int ES, int TR, int TC, bool SKEW_Y, int ALIGN, int THREADS, class CD,
		  class CY, typename Offset>
DEVICE void permute_shift_out_even(u8 *y, const b128 *tile, u32 column0, int columns, int rows,
								   bool top)
{
	constexpr int each = 16 / ES, runs = TR / each, most = THREADS / runs;
	/* Then a thread stays with its column of a block. */
	constexpr bool even = most >= SHAPE::columns;
	constexpr int stride = even ? most / SHAPE::columns * SHAPE::columns : most;
	constexpr int steps = (TC + stride - 1) / stride;
	static_assert(THREADS % runs == 0, "a thread stays with its rows when it stores");
	const int run = static_cast<int>(threadIdx.x % runs);
	const int first = static_cast<int>(threadIdx.x / runs);
	/* Bytes before a column's first aligned vector, at most, if this run's is to be whole. */
	const int spare = (rows - (run + 1) * each) * ES;
	const auto place = [=](int column) {
		return y + static_cast<i64>(index_offset<Offset>(column0 + column, CD{}, CY{})) * ES +
			   run * 16;
	};
	u8 *at = place(first);
	const b128 *from = tile + SHAPE::chunk_at(first) + run;

	if (first < stride) {
#pragma unroll 1
		for (int step = 0; step < steps; step += 2) {
			u32 words[2][4];
			u8 *to[2];
#pragma unroll
			for (int i = 0; i < 2; i++) {
				const int column = first + (step + i) * stride;
				if constexpr (CD::product != 1)
					at = place(column);
				if constexpr (!even)
					from = tile + SHAPE::chunk_at(column) + run;
				const int before = SKEW_Y ? (ALIGN - vec_beyond<ALIGN>(at - run * 16)) % ALIGN : 0;
				const bool there = column < columns && before <= spare;
				to[i] = there ? at + before : nullptr;
				const b128 *const chunk = there ? from + before / 16 : tile;
				if constexpr (SKEW_Y) {
					u32 pair[8];
					vec_load<16>(chunk, pair);
					vec_load<16>(chunk + 1, pair + 4);
					vec_window<ES, 16>(pair, before % 16, words[i]);
				} else {
					vec_load<16>(chunk, words[i]);
				}
				at += stride * (CY::first * ES);
				from += stride / SHAPE::columns * SHAPE::pitch;
			}
#pragma unroll
			for (int i = 0; i < 2; i++)
				if (to[i])
					vec_store<16>(to[i], words[i]);
		}
	}
	permute_shift_ends<SHAPE, ES, TR, SKEW_Y, ALIGN, THREADS, CD, CY, Offset>(y, tile, column0,
																			  columns, rows, top);
}

/*
 * R rows by C columns in tiles of TR by TC; blocks of KR rows by LOAD bytes a thread.  Offset holds
 * offsets in bytes.  SKEW_X: rows of x are not aligned to LOAD; SKEW_Y: columns of y are not
 * aligned to what a tile's stores begin at, 16 bytes or, with NEW, a sector.  RUN: TR is R, y's
 * columns follow one another, and a tile is one run of y; CD and CY say nothing then.  RESIDENT:
 * blocks that a multiprocessor is to hold at least.  NEW: stores step from column to column.  The
 * rest as in permute_tile.
 */
template <int ES, int TR, int TC, int KR, int LOAD, bool SKEW_X, bool SKEW_Y, bool RUN, int THREADS,
		  int RESIDENT, u32 BAND, i64 R, i64 C, class RD, class RX, class CD, class CY, class BD,
		  class BX, class BY, typename Offset, bool LOOP, bool NEW = false>
__global__ __launch_bounds__(THREADS, RESIDENT) void permute_shift(const void *x, void *y,
																   i64 batch_x, i64 batch_y,
																   u64 blocks)
{
	static_assert(!RUN || (TR == R && SKEW_X && SKEW_Y), "a run takes all rows");
	/* Two blocks that share a sector of y would write it twice.  For bytes, and for short columns,
	 * that costs less than the rows and the ends that it takes to avoid it. */
	constexpr int align = NEW && ES > 1 && R * ES >= 512 ? 32 : 16;
	using shape = permute_shift_shape<ES, TR, TC, KR, LOAD, RUN, SKEW_Y, align>;
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
		u8 *const to = static_cast<u8 *>(y) + at.y * ES;

		permute_shift_in<shape, ES, TR, KR, LOAD, SKEW_X, RUN, NEW, THREADS, R, RD, RX, Offset>(
			static_cast<const u8 *>(x) + (at.x + column0) * ES, tile, row0,
			static_cast<int>(C) - static_cast<int>(column0));
		__syncthreads();
		const int columns = C % TC == 0 || column0 + TC <= C ? TC : static_cast<int>(C - column0);
		if constexpr (RUN) {
			if constexpr (NEW)
				permute_shift_out_pairs<shape, ES, TC, THREADS, static_cast<int>(R)>(
					to + column0 * (R * ES), tile, columns);
			else
				permute_shift_out_run<shape, ES, TC, THREADS, static_cast<int>(R)>(
					to + column0 * (R * ES), tile, columns);
		} else {
			constexpr int most = TR + shape::reach;
			const i64 left = R - row0;
			const int rows = left < most ? static_cast<int>(left) : most;
			u8 *const first = to + row0 * static_cast<i64>(ES);
			if constexpr (NEW)
				permute_shift_out_even<shape, ES, TR, TC, SKEW_Y, align, THREADS, CD, CY, Offset>(
					first, tile, column0, columns, rows, row0 == 0);
			else
				permute_shift_out<shape, ES, TR, TC, SKEW_Y, THREADS, CD, CY, Offset>(
					first, tile, column0, columns, rows, row0 == 0);
		}
		if constexpr (LOOP) {
			__syncthreads();
			block += gridDim.x;
		}
	} while (LOOP && block < blocks);
}
