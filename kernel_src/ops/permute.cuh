/*
 * permute.cuh: y = x with its dimensions reordered, bit for bit.  Elements are bytes: their type is
 * not known here.
 *
 *   permute_vector      the fastest dimension stays: one vector of W bytes a thread
 *   permute_near        the same, where rows that are neighbours in x lie far apart in y
 *   permute_rows        it stays, but its rows begin anywhere
 *   permute_braid       few planes become neighbours: vectors of each a thread
 *   permute_interleave  a dimension of few elements becomes the fastest, or was (C = 3 images)
 *   permute_strided     anything else: a gather, in the order of y
 *
 * Transposes are in permute_tile.cuh, and in permute_shift.cuh and permute_stage.cuh if their rows
 * are not aligned; permute_box.cuh takes what would move in narrow vectors.
 *
 * Dimensions of a List stand fastest first.  Sizes, strides and offsets count elements (vectors in
 * permute_vector).  Of the dimensions that are only iterated over, the slowest is known to the
 * launch alone.  LOOP: the grid is smaller than the work.  Offset is 32 bits wide where one batch
 * allows it.
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

/* DIMS, STRIDES: of y's order, in vectors of W bytes; count of vectors, of which a thread has EACH
 * under way. */
template <int W, int EACH, int THREADS, class DIMS, class STRIDES, typename Index, typename Offset,
		  bool LOOP>
__global__ LAUNCH_BOUNDS(THREADS) void permute_vector(const void *x, void *y, u64 count)
{
	u64 block = blockIdx.x;
	do {
		const Index first = static_cast<Index>(block) * (THREADS * EACH) + threadIdx.x;
		u32 words[EACH][vec_words<W>];
#pragma unroll
		for (int k = 0; k < EACH; k++) {
			const Index i = first + k * THREADS;
			const i64 from = index_offset<Offset>(i, DIMS{}, STRIDES{});
			if (i < static_cast<Index>(count))
				vec_load<W>(static_cast<const u8 *>(x) + from * W, words[k]);
		}
#pragma unroll
		for (int k = 0; k < EACH; k++) {
			const Index i = first + k * THREADS;
			if (i < static_cast<Index>(count))
				vec_store<W>(static_cast<u8 *>(y) + static_cast<i64>(i) * W, words[k]);
		}
		block += gridDim.x;
	} while (LOOP && block * (THREADS * EACH) < count);
}

/* The bytes of a vector before `here` stay, the others come from `next`. */
DEVICE void permute_blend(u32 (&first)[4], const u32 (&next)[4], int here)
{
#pragma unroll
	for (int w = 0; w < 4; w++) {
		const int bytes = here - 4 * w;
		const u32 mask = bytes >= 4 ? ~0u : bytes <= 0 ? 0u : (1u << 8 * bytes) - 1;
		first[w] = (first[w] & mask) | (next[w] & ~mask);
	}
}

/*
 * Rows of L elements that begin anywhere stay rows: aligned vectors of y are cut out of aligned
 * vectors of x, one or, where a row ends, two of them.  DIMS, STRIDES: of the rows, in y's order;
 * count of elements, fewer than 2^31 by what a grid has more.
 */
template <int ES, int EACH, int THREADS, i64 L, class DIMS, class STRIDES, typename Offset,
		  bool LOOP>
__global__ LAUNCH_BOUNDS(THREADS) void permute_rows(const void *x, void *y, u64 count)
{
	constexpr u32 each = 16 / ES;
	const u32 all = static_cast<u32>(count);
	const Offset beyond = vec_beyond<16>(x);
	const u8 *const base = static_cast<const u8 *>(x) - beyond;
	const auto place = [=](u32 row) { return index_offset<Offset>(row, DIMS{}, STRIDES{}); };
	u64 block = blockIdx.x;
	do {
		const u32 first = (static_cast<u32>(block) * (THREADS * EACH) + threadIdx.x) * each;
		u32 words[EACH][4];
#pragma unroll
		for (int k = 0; k < EACH; k++) {
			const u32 i = first + k * THREADS * each, row = i / static_cast<u32>(L);
			const int at = static_cast<int>(i - row * static_cast<u32>(L));
			const int here = static_cast<int>(L) - at;
			if (i >= all)
				continue;
			vec_load_skewed<ES, 16>(base, beyond + (place(row) + at) * ES, here * ES, words[k]);
			if (L % each != 0 && here < static_cast<int>(each) && i + here < all) {
				u32 next[4];
				vec_load_skewed<ES, 16>(base, beyond + (place(row + 1) - here) * ES, 16, next);
				permute_blend(words[k], next, here * ES);
			}
		}
#pragma unroll
		for (int k = 0; k < EACH; k++) {
			const u32 i = first + k * THREADS * each;
			u8 *const to = static_cast<u8 *>(y) + static_cast<i64>(i) * ES;
			if (i < all && all - i >= each)
				vec_store<16>(to, words[k]);
			else if (i < all)
				vec_store_some<ES, each>(to, words[k], 0, static_cast<int>(all - i));
		}
		block += gridDim.x;
	} while (LOOP && block * (THREADS * EACH * each) < count);
}

/*
 * As permute_vector, where rows that are neighbours in x lie far apart in y: consecutive blocks
 * take pieces of NEAR of the N runs of y whose rows are side by side in x, so that what these rows
 * share is read once.  RUN: vectors of a run; RD, RX: its dimensions, but the slowest, and its
 * strides in x; NX, NY: from one such run to the next; BD, BX, BY: the other dimensions, of which
 * the launch knows the slowest.
 */
template <int W, int THREADS, i64 RUN, class RD, class RX, int NEAR, i64 N, i64 NX, i64 NY,
		  class BD, class BX, class BY, typename Offset, bool LOOP>
__global__ LAUNCH_BOUNDS(THREADS) void permute_near(const void *x, void *y, i64 batch_x,
													i64 batch_y, u64 blocks)
{
	/* Runs that do not begin at lines of y are cut at them, or pieces would share sectors. */
	constexpr int line = RUN * W % 128 ? 128 / W : 1;
	constexpr u32 pieces = static_cast<u32>((RUN + line - 1 + THREADS - 1) / THREADS);
	constexpr u32 groups = static_cast<u32>((N + NEAR - 1) / NEAR);
	u64 block = blockIdx.x;
	do {
		using Number = typename index_choose<LOOP, u64, u32>::type;
		const Number n = static_cast<Number>(block), rest = n / NEAR, group = rest / pieces;
		const Number item = group / groups;
		const u32 piece = static_cast<u32>(rest - group * pieces);
		const u32 near =
			static_cast<u32>(group - item * groups) * NEAR + static_cast<u32>(n - rest * NEAR);
		const index_pair at = index_batch<BD, BX, BY, Offset>(item, batch_x, batch_y);
		const u8 *const from = static_cast<const u8 *>(x) + (at.x + near * NX) * W;
		u8 *const to = static_cast<u8 *>(y) + (at.y + near * NY) * W;
		const u32 i = piece * THREADS + threadIdx.x - vec_beyond<line * W>(to) / W;
		if (i < static_cast<u32>(RUN) && (N % NEAR == 0 || near < static_cast<u32>(N))) {
			u32 words[vec_words<W>];
			vec_load<W>(from + static_cast<i64>(index_offset<Offset>(i, RD{}, RX{})) * W, words);
			vec_store<W>(to + static_cast<i64>(i) * W, words);
		}
		block += gridDim.x;
	} while (LOOP && block < blocks);
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
 * P planes, PLANE apart in x, whose elements are in turn in y: V bytes of each are one item of a
 * thread, P * V bytes of y, and EACH items are under way.  DIMS, STRIDES: of the space of items, in
 * y's order; count of items.
 */
template <int ES, int P, int V, int EACH, i64 PLANE, int THREADS, class DIMS, class STRIDES,
		  typename Index, typename Offset, bool LOOP>
__global__ LAUNCH_BOUNDS(THREADS) void permute_braid(const void *x, void *y, u64 count)
{
	constexpr int words = vec_words<V>, each = V / ES;
	u64 block = blockIdx.x;
	do {
		const Index first = static_cast<Index>(block) * (THREADS * EACH) + threadIdx.x;
		u32 planes[EACH][P * words];
#pragma unroll
		for (int k = 0; k < EACH; k++) {
			const Index i = first + k * THREADS;
			const i64 from = index_offset<Offset>(i, DIMS{}, STRIDES{});
			if (i < static_cast<Index>(count)) {
#pragma unroll
				for (int p = 0; p < P; p++)
					vec_load<V>(static_cast<const u8 *>(x) + (from + p * PLANE) * ES,
								planes[k] + p * words);
			}
		}
#pragma unroll
		for (int k = 0; k < EACH; k++) {
			const Index i = first + k * THREADS;
			u32 turns[P * words];
#pragma unroll
			for (int w = 0; w < P * words; w++)
				turns[w] = permute_collect<ES, V>(planes[k], w,
												  [=](int e) { return e % P * each + e / P; });
			if (i < static_cast<Index>(count))
				vec_store<P * V>(static_cast<u8 *>(y) + static_cast<i64>(i) * (P * V), turns);
		}
		block += gridDim.x;
	} while (LOOP && block * (THREADS * EACH) < count);
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
		const Number item = n / strips;
		const u32 first = static_cast<u32>(n - item * strips) * (32 * each);
		const u32 left = (static_cast<u32>(L) - first) / each;
		const index_pair at = index_batch<BD, BX, BY, Offset>(item, batch_x, batch_y);
		const u8 *in =
			static_cast<const u8 *>(x) + (at.x + first * static_cast<i64>(SPLIT ? P : 1)) * ES;
		u8 *out = static_cast<u8 *>(y) + (at.y + first * static_cast<i64>(SPLIT ? 1 : P)) * ES;
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
