/*
 * permute.cuh: y = x with its dimensions reordered, bit for bit.  Elements are bytes: their type is
 * not known here.
 *
 *   permute_vector      the fastest dimension stays: one vector of W bytes a thread
 *   permute_tile        a transpose: tiles through registers and swizzled shared memory
 *   permute_interleave  a dimension of few elements becomes the fastest, or was (C = 3 images)
 *   permute_strided     anything else: a gather, in the order of y
 *
 * Dimensions of a List stand fastest first.  Sizes, strides and offsets count elements (vectors in
 * permute_vector).  The slowest dimension that is only iterated over is a matter of the launch.
 * LOOP: the grid is smaller than the work.  Offset is 32 bits wide where one batch allows it.
 */
#pragma once
#include "common/types.cuh"
#include "common/vec.cuh"
#include "common/index.cuh"

/* Runs body(i) for every i < count, one a thread. */
template <int THREADS, bool LOOP, typename Index, typename Body>
DEVICE void permute_each(u64 count, Body body)
{
	if constexpr (LOOP) {
		const u64 step = static_cast<u64>(gridDim.x) * THREADS;
		for (u64 i = static_cast<u64>(blockIdx.x) * THREADS + threadIdx.x; i < count; i += step)
			body(static_cast<Index>(i));
	} else {
		const Index i = static_cast<Index>(blockIdx.x) * THREADS + threadIdx.x;
		if (i < static_cast<Index>(count))
			body(i);
	}
}

/* DIMS, STRIDES: of y's order, in vectors of W bytes; count of vectors. */
template <int W, int THREADS, class DIMS, class STRIDES, typename Index, typename Offset, bool LOOP>
__global__ __launch_bounds__(THREADS) void permute_vector(const void *x, void *y, u64 count)
{
	permute_each<THREADS, LOOP, Index>(count, [=](Index i) {
		const i64 from = index_offset<Offset>(i, DIMS{}, STRIDES{});
		u32 words[vec_words<W>];
		vec_load<W>(static_cast<const u8 *>(x) + from * W, words);
		vec_store<W>(static_cast<u8 *>(y) + static_cast<i64>(i) * W, words);
	});
}

/*
 * RUN neighbours in y's fastest dimension a thread, STEP apart in x, stored as one vector; DIMS and
 * STRIDES are of the space of such runs; count of runs.
 */
template <int ES, int RUN, i64 STEP, int THREADS, class DIMS, class STRIDES, typename Index,
		  typename Offset, bool LOOP>
__global__ __launch_bounds__(THREADS) void permute_strided(const void *x, void *y, u64 count)
{
	permute_each<THREADS, LOOP, Index>(count, [=](Index i) {
		const i64 from = index_offset<Offset>(i, DIMS{}, STRIDES{});
		u32 elements[vec_words<ES> * RUN];
#pragma unroll
		for (int k = 0; k < RUN; k++)
			vec_load<ES>(static_cast<const u8 *>(x) + (from + k * STEP) * ES,
						 elements + k * vec_words<ES>);
		u8 *to = static_cast<u8 *>(y) + static_cast<i64>(i) * (ES * RUN);
		if constexpr (ES >= 4 || RUN == 1) {
			vec_store<ES * RUN>(to, elements);
		} else {
			constexpr int fill = ES * RUN < 4 ? RUN : 4 / ES;
			u32 run[vec_words<ES * RUN>];
#pragma unroll
			for (int w = 0; w < vec_words<ES * RUN>; w++)
				run[w] = vec_collect<ES, fill, 1>(elements, [=](int k) { return w * fill + k; });
			vec_store<ES * RUN>(to, run);
		}
	});
}

/*
 * The geometry of a tile of TR rows (neighbours in y) by TC columns (neighbours in x).  Shared
 * memory holds columns of TR elements in chunks of 16 bytes; the place of a chunk is turned by the
 * number of the column block, so that neither the stores of a warp (one chunk of many columns) nor
 * its loads (many chunks of one column) meet in a bank.
 */
template <int ES, int TR, int TC, int LOAD, int STORE, int THREADS, i64 R, i64 C>
struct permute_tile_shape {
	static constexpr int rows = 16 / ES;        /* of one thread's block: one chunk */
	static constexpr int columns = LOAD / ES;   /* of one thread's block: one load */
	static constexpr int chunks = TR / rows;    /* of a column */
	static constexpr int blocks = TC / columns; /* column blocks */
	static constexpr int in_slots = blocks * chunks;
	static constexpr int run = STORE / ES;                     /* rows of one store */
	static constexpr int runs = TR / run;                      /* of a column */
	static constexpr bool ragged = R % TR != 0 || C % TC != 0; /* tiles reach beyond the edges */
	static constexpr int turn = (chunks < 8 ? chunks : 8) - 1;
	static_assert(TR % rows == 0 && TC % columns == 0 && TR % run == 0, "tile");
	static_assert((chunks & (chunks - 1)) == 0, "the turn needs a power of two");
	static_assert(THREADS % runs == 0, "a thread stays with its rows when it stores");

	static DEVICE int chunk_at(int block, int chunk)
	{
		return block * columns * chunks + (chunk ^ (block & turn));
	}
};

/*
 * x to shared memory: loads of LOAD bytes along columns, for as many rows as make a chunk.  Of a
 * chunk that begins in x and ends behind it, the last row is read again, and nobody stores it.
 */
template <class SHAPE, int ES, int LOAD, int THREADS, i64 R, i64 C, i64 CS, class RD, class RX,
		  typename Offset>
DEVICE void permute_tile_in(const u8 *x, b128 *tile, u32 row0, u32 column0)
{
	constexpr int rows = SHAPE::rows, words = vec_words<LOAD>;
	constexpr int steps = (SHAPE::in_slots + THREADS - 1) / THREADS;
	/* Eight loads in flight are enough; more code only takes longer to compile. */
	constexpr int most = rows < 8 ? 8 / rows : 1;
	constexpr int together = steps < most ? steps : most;
	constexpr bool whole = R % rows == 0;
	/* Then the rows of a chunk are at equal distances. */
	constexpr bool even = whole && (RD::product == 1 || RD::first % rows == 0);
#pragma unroll together
	for (int step = 0; step < steps; step++) {
		const int slot = step * THREADS + static_cast<int>(threadIdx.x);
		if (SHAPE::in_slots % THREADS != 0 && slot >= SHAPE::in_slots)
			break;
		const int block = slot % SHAPE::blocks, chunk = slot / SHAPE::blocks;
		const u32 column = column0 + block * SHAPE::columns;
		const u32 row = row0 + chunk * rows;
		if (SHAPE::ragged && (column >= static_cast<u32>(C) || row >= static_cast<u32>(R)))
			continue;
		const u8 *from = x + static_cast<i64>(column) * (CS * ES);
		u32 in[rows][words];
		if constexpr (even) {
			from += static_cast<i64>(index_offset<Offset>(row, RD{}, RX{})) * ES;
#pragma unroll
			for (int k = 0; k < rows; k++)
				vec_load<LOAD>(from + k * (RX::first * ES), in[k]);
		} else {
#pragma unroll
			for (int k = 0; k < rows; k++) {
				const u32 r = whole || row + k < static_cast<u32>(R) ? row + k : R - 1;
				vec_load<LOAD>(from + static_cast<i64>(index_offset<Offset>(r, RD{}, RX{})) * ES,
							   in[k]);
			}
		}
		u32 out[SHAPE::columns][4];
		vec_transpose<ES, words, SHAPE::columns>(in, out);
		b128 *const to = tile + SHAPE::chunk_at(block, chunk);
#pragma unroll
		for (int j = 0; j < SHAPE::columns; j++)
			vec_store<16>(to + j * SHAPE::chunks, out[j]);
	}
}

/* Shared memory to y: stores of STORE bytes along the rows of each column. */
template <class SHAPE, int ES, int TC, int STORE, int THREADS, i64 R, i64 C, class CD, class CY,
		  typename Offset>
DEVICE void permute_tile_out(u8 *y, const b128 *tile, u32 row0, u32 column0)
{
	constexpr int stride = THREADS / SHAPE::runs, steps = (TC + stride - 1) / stride;
	/* A few turns need no help: other warps fill the gaps. */
	constexpr int together = steps < 8 ? 1 : 2;
	const int run = static_cast<int>(threadIdx.x) % SHAPE::runs, byte = run * STORE;
	const u32 row = row0 + run * SHAPE::run;
	if (SHAPE::ragged && row >= static_cast<u32>(R))
		return;
	const u8 *from = reinterpret_cast<const u8 *>(tile) + byte % 16;
	y += static_cast<i64>(row) * ES;
#pragma unroll together
	for (int step = 0; step < steps; step++) {
		const int column = step * stride + static_cast<int>(threadIdx.x) / SHAPE::runs;
		if ((SHAPE::ragged && column0 + column >= static_cast<u32>(C)) ||
			(TC % stride != 0 && column >= TC))
			break;
		const int chunk = SHAPE::chunk_at(column / SHAPE::columns, byte / 16) +
						  column % SHAPE::columns * SHAPE::chunks;
		u32 words[vec_words<STORE>];
		vec_load<STORE>(from + chunk * 16, words);
		const Offset to = index_offset<Offset>(column0 + column, CD{}, CY{});
		vec_store<STORE>(y + static_cast<i64>(to) * ES, words);
	}
}

/*
 * Left to itself, the ptxas of CUDA 13.5 spills a few words of some tiles for sm_80 and sm_120.  On
 * sm_90 its own choice of registers is the one that was timed.
 */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#define PERMUTE_TILE_BOUNDS(threads) __launch_bounds__(threads, 1)
#else
#define PERMUTE_TILE_BOUNDS(threads) __launch_bounds__(threads)
#endif

/*
 * R rows by C columns: a row is a run of C elements of x, CS apart, a column a run of R elements of
 * y.  RD, RX: the dimensions behind the rows and their strides in x; CD, CY: behind the columns,
 * strides in y.  BD, BX, BY: the other dimensions, with both strides; batch_x and batch_y are the
 * strides of the slowest of all, which is only in the grid.  Blocks that follow each other write
 * next to each other.
 */
template <int ES, int TR, int TC, int LOAD, int STORE, int THREADS, i64 R, i64 C, i64 CS, class RD,
		  class RX, class CD, class CY, class BD, class BX, class BY, typename Offset, bool LOOP>
__global__ PERMUTE_TILE_BOUNDS(THREADS) void permute_tile(const void *x, void *y, i64 batch_x,
														  i64 batch_y, u64 blocks)
{
	using shape = permute_tile_shape<ES, TR, TC, LOAD, STORE, THREADS, R, C>;
	constexpr u32 row_tiles = static_cast<u32>((R + TR - 1) / TR);
	constexpr u32 column_tiles = static_cast<u32>((C + TC - 1) / TC);
	DYN_SHARED(b128, tile);

	u64 block = blockIdx.x;
	do {
		using Number = typename index_choose<LOOP, u64, u32>::type;
		const Number n = static_cast<Number>(block);
		const Number strip = n / row_tiles, item = strip / column_tiles;
		const Number batch = item / static_cast<Number>(BD::product);
		const Number inner = item - batch * static_cast<Number>(BD::product);
		const u32 row0 = static_cast<u32>(n - strip * row_tiles) * TR;
		const u32 column0 = static_cast<u32>(strip - item * column_tiles) * TC;
		const i64 x0 = static_cast<i64>(batch) * batch_x + index_offset<Offset>(inner, BD{}, BX{});
		const i64 y0 = static_cast<i64>(batch) * batch_y + index_offset<Offset>(inner, BD{}, BY{});

		permute_tile_in<shape, ES, LOAD, THREADS, R, C, CS, RD, RX, Offset>(
			static_cast<const u8 *>(x) + x0 * ES, tile, row0, column0);
		__syncthreads();
		permute_tile_out<shape, ES, TC, STORE, THREADS, R, C, CD, CY, Offset>(
			static_cast<u8 *>(y) + y0 * ES, tile, row0, column0);
		if constexpr (LOOP) {
			__syncthreads();
			block += gridDim.x;
		}
	} while (LOOP && block < blocks);
}

/*
 * Word w of a vector of W bytes: its element e is element from(e) of a run of such vectors.
 */
template <int ES, int W, typename From>
DEVICE u32 permute_collect(const u32 *run, int w, From from)
{
	if constexpr (ES >= 4) {
		constexpr int per = ES / 4;
		return run[from(w / per) * per + w % per];
	} else {
		constexpr int fill = (W < 4 ? W : 4) / ES;
		return vec_collect<ES, fill, fill>(run, [=](int i) { return from(w * fill + i); });
	}
}

/*
 * A warp's own shared memory for 32 * P vectors of W bytes.  With an even number of planes there
 * is a hole after every 128 bytes, or lanes P vectors apart would meet in a bank.
 */
template <int P, int W>
struct permute_exchange {
	static constexpr int gap = 128 / W; /* vectors between two holes */
	static constexpr int slots = 32 * P + (P % 2 == 0 ? 32 * P / gap : 0);
	static constexpr int bytes = (slots * W + 15) / 16 * 16;

	u8 *memory;

	DEVICE u8 *at(int vector) const
	{
		return memory + (P % 2 == 0 ? vector + vector / gap : vector) * W;
	}
};

/* One warp, elements in turn to planes.  valid: how many vectors of each plane there are, to 32. */
template <int ES, int P, int W, i64 PLANE>
DEVICE void permute_split(const u8 *in, u8 *out, permute_exchange<P, W> exchange, int lane,
						  int valid)
{
	constexpr int words = vec_words<W>;
	u32 vectors[P][words], turns[P * words];

#pragma unroll
	for (int j = 0; j < P; j++) {
		const int v = j * 32 + lane;
		vec_load<W>(in + (v < valid * P ? v : 0) * W, vectors[j]);
	}
#pragma unroll
	for (int j = 0; j < P; j++)
		vec_store<W>(exchange.at(j * 32 + lane), vectors[j]);
	__syncwarp();
#pragma unroll
	for (int j = 0; j < P; j++)
		vec_load<W>(exchange.at(lane * P + j), turns + j * words);
	if (lane >= valid)
		return;
	out += lane * W;
#pragma unroll
	for (int p = 0; p < P; p++) {
		u32 plane[words];
#pragma unroll
		for (int w = 0; w < words; w++)
			plane[w] = permute_collect<ES, W>(turns, w, [=](int e) { return e * P + p; });
		vec_store<W>(out + p * PLANE * ES, plane);
	}
}

/* One warp, planes to elements in turn. */
template <int ES, int P, int W, i64 PLANE>
DEVICE void permute_weave(const u8 *in, u8 *out, permute_exchange<P, W> exchange, int lane,
						  int valid)
{
	constexpr int each = W / ES, words = vec_words<W>;
	u32 planes[P * words] = {};

	in += lane * W;
	if (lane < valid) {
#pragma unroll
		for (int p = 0; p < P; p++)
			vec_load<W>(in + p * PLANE * ES, planes + p * words);
	}
#pragma unroll
	for (int j = 0; j < P; j++) {
		u32 turn[words];
#pragma unroll
		for (int w = 0; w < words; w++)
			turn[w] = permute_collect<ES, W>(
				planes, w, [=](int e) { return (j * each + e) % P * each + (j * each + e) / P; });
		vec_store<W>(exchange.at(lane * P + j), turn);
	}
	__syncwarp();
#pragma unroll
	for (int j = 0; j < P; j++) {
		const int v = j * 32 + lane;
		u32 vector[words];
		if (v < valid * P) {
			vec_load<W>(exchange.at(v), vector);
			vec_store<W>(out + v * W, vector);
		}
	}
}

/*
 * P planes of L elements, PLANE apart.  SPLIT: one element of each in turn (x) to planes (y); else
 * planes (x) to elements in turn (y).  A warp takes 32 vectors of W bytes of every plane; elements
 * change places in registers, and vectors go through shared memory of the warp's own, so that both
 * sides see neighbouring lanes at neighbouring addresses.
 */
template <int ES, int P, int W, int THREADS, bool SPLIT, i64 L, i64 PLANE, class BD, class BX,
		  class BY, typename Offset, bool LOOP>
__global__ __launch_bounds__(THREADS) void permute_interleave(const void *x, void *y, i64 batch_x,
															  i64 batch_y, u64 warps)
{
	constexpr int each = W / ES;
	constexpr u32 strips = static_cast<u32>((L + 32 * each - 1) / (32 * each));
	DYN_SHARED(b128, shared);
	using exchange = permute_exchange<P, W>;
	const int lane = threadIdx.x % 32;
	const exchange mine{reinterpret_cast<u8 *>(shared) + threadIdx.x / 32 * exchange::bytes};

	u64 warp = static_cast<u64>(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
	if (warp >= warps)
		return;
	do {
		using Number = typename index_choose<LOOP, u64, u32>::type;
		const Number n = static_cast<Number>(warp);
		const Number item = n / strips, batch = item / static_cast<Number>(BD::product);
		const Number inner = item - batch * static_cast<Number>(BD::product);
		const u32 first = static_cast<u32>(n - item * strips) * (32 * each);
		const u32 left = (static_cast<u32>(L) - first) / each;
		const i64 x0 = static_cast<i64>(batch) * batch_x + index_offset<Offset>(inner, BD{}, BX{});
		const i64 y0 = static_cast<i64>(batch) * batch_y + index_offset<Offset>(inner, BD{}, BY{});
		const u8 *in =
			static_cast<const u8 *>(x) + (x0 + first * static_cast<i64>(SPLIT ? P : 1)) * ES;
		u8 *out = static_cast<u8 *>(y) + (y0 + first * static_cast<i64>(SPLIT ? 1 : P)) * ES;
		const int valid = left < 32 ? static_cast<int>(left) : 32;

		if constexpr (SPLIT)
			permute_split<ES, P, W, PLANE>(in, out, mine, lane, valid);
		else
			permute_weave<ES, P, W, PLANE>(in, out, mine, lane, valid);
		if constexpr (LOOP) {
			__syncwarp();
			warp += static_cast<u64>(gridDim.x) * (THREADS / 32);
		}
	} while (LOOP && warp < warps);
}
