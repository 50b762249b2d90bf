/*
 * gather.cuh: dst[i, j, k] = src[i, j, idx[j, k]], bit for bit.  Elements are bytes: their type is
 * not known here.
 *
 * A row is one (i, j): P elements of src, K indices, K elements of dst.  A block makes ROWS rows
 * that follow one another, or a part of one row:
 *
 *   STAGE   it copies its rows of src to shared memory, in vectors, or in pieces of many kilobytes
 *           where there are so many, and gathers there
 *   else    it gathers in global memory: for rows that are too long, or of which little is wanted
 *
 * Either way a thread stores V elements of dst at once, which lies without gaps.
 */
#pragma once
#include "common/async.cuh"
#include "common/bulk.cuh"
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/*
 * Elements of ES bytes; indices of type I.  PART: elements of dst that a block makes, ROWS * K or
 * less if ROWS is 1.  W: bytes that are copied to shared memory at once, 0 for the aligned vectors
 * around what lies without gaps; IW: of indices loaded at once, 0 if V of them do not lie next to
 * each other in one row.  ALONG: all rows of a list follow one another, of which a block has
 * one.
 */
template <int ES, typename I, int BOUNDS, i64 P, i64 K, bool STAGE, int ROWS, i64 PART, int THREADS,
		  int W, int V, int IW, bool ALONG>
struct GatherShape {
	typedef I Index;
	typedef typename index_choose<(P < 0x7fffffff), u32, u64>::type Place;
	static constexpr int element = ES, bounds = BOUNDS, rows = ROWS, threads = THREADS;
	static constexpr bool skew = W == 0, along = ALONG;
	static constexpr int load = skew ? 16 : W, vector = V, index_load = IW;
	static constexpr i64 from = P, to = K, part = PART;
	static constexpr bool stage = STAGE;
	static constexpr u32 parts = static_cast<u32>((ROWS * K + PART - 1) / PART);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	static constexpr bool bulk = STAGE && load == 16 && ROWS * P * ES >= 49152;
#else
	static constexpr bool bulk = false;
#endif
	/* Threads take V of the block's elements so many times at most. */
	static constexpr int steps = static_cast<int>((PART + V * THREADS - 1) / (V * THREADS));
	static_assert(ROWS == 1 || (PART == ROWS * K && !ALONG), "parts are of one row");
};

/* The places of rows: DIMS number them, all but the slowest dimension; STEP elements apart is what
 * follows in one row.  DENSE: src lies without gaps. */
template <bool DENSE, i64 SRC_STEP, i64 IDX_STEP, class DIMS, class SRC, class IDX>
struct GatherPlaces {
	static constexpr bool dense = DENSE;
	static constexpr i64 src_step = SRC_STEP, idx_step = IDX_STEP;

	template <typename Number>
	static DEVICE i64 src(Number row)
	{
		return index_offset<i64>(row, DIMS{}, SRC{});
	}
	template <typename Number>
	static DEVICE i64 idx(Number row)
	{
		return index_offset<i64>(row, DIMS{}, IDX{});
	}
};

/* Begins to copy the aligned vectors around `bytes` of src to shared memory. */
template <class SHAPE>
DEVICE void gather_stage_around(const u8 *run, u8 *shared, int bytes)
{
	constexpr int most = SHAPE::rows * static_cast<int>(SHAPE::from) * SHAPE::element;
	constexpr int steps = (most / 16 + 2 + SHAPE::threads - 1) / SHAPE::threads;
	const int beyond = vec_beyond<16>(run);

#pragma unroll(steps < 8 ? steps : 8)
	for (int i = 0; i < steps; i++) {
		const int at = (i * SHAPE::threads + static_cast<int>(threadIdx.x)) * 16;
		if (at < beyond + bytes)
			async_copy16(shared + at, run - beyond + at);
	}
}

/* Begins to bring the aligned vectors around `bytes` of src to shared memory, which arrive at a
 * barrier.  All threads come; first: the barrier is not made yet. */
DEVICE void gather_stage_bulk(const u8 *run, u8 *shared, int bytes, u64 *arrived, bool first)
{
	constexpr int piece = 16384;
	const int beyond = vec_beyond<16>(run), all = (beyond + bytes + 15) / 16 * 16;

	if (threadIdx.x == 0) {
		if (first) {
			bulk_barrier(arrived, 1);
			bulk_barriers_made();
		}
		bulk_expect(arrived, static_cast<u32>(all));
#pragma unroll 1
		for (int at = 0; at < all; at += piece)
			bulk_fetch(shared + at, run - beyond + at,
					   static_cast<u32>(all - at < piece ? all - at : piece), arrived);
	}
	__syncthreads();
}

/* Begins to copy `left` rows of src, from `row` on, to shared memory. */
template <class SHAPE, class PLACES, typename Number>
DEVICE void gather_stage(const u8 *src, u8 *shared, Number row, int left)
{
	constexpr int es = SHAPE::element, w = SHAPE::load, threads = SHAPE::threads;
	constexpr int bytes = static_cast<int>(SHAPE::from) * es;
	constexpr int steps = (SHAPE::rows * bytes / w + threads - 1) / threads;
	const int thread = static_cast<int>(threadIdx.x);

	const u8 *const run = PLACES::dense ? src + static_cast<i64>(row) * bytes : src;
#pragma unroll(steps < 8 ? steps : 8)
	for (int i = 0; i < steps; i++) {
		const int at = (i * threads + thread) * w;
		if (at + w > left * bytes)
			continue;
		const u8 *from = run + at;
		if constexpr (!PLACES::dense) {
			const int r = at / bytes;
			from = src + PLACES::src(row + static_cast<Number>(r)) * es +
				   static_cast<i64>(at - r * bytes) * PLACES::src_step;
		}
		if constexpr (w == 16)
			async_copy16(shared + at, from);
		else
			vec_copy<w>(from, shared + at);
	}
	if constexpr (bytes % w != 0) /* dense rows that do not end where a vector does */
		for (int at = left * bytes / w * w + thread * es; at < left * bytes; at += threads * es)
			vec_copy<es>(run + at, shared + at);
}

/* Returns the row of the block that has element number `at` of its rows. */
template <class SHAPE>
DEVICE int gather_row(int at)
{
	return SHAPE::rows == 1 ? 0 : at / static_cast<int>(SHAPE::to);
}

/*
 * The places in their rows that V indices name, for the block's elements from `at` on, of `end`.
 * idx: where the indices begin of the first row's elements.  How many of them, in rows below
 * `counted`, name none.
 */
template <class SHAPE, class PLACES, typename Number>
DEVICE u32 gather_places(const typename SHAPE::Index *idx, Number row, Number counted, int at,
						 int end, typename SHAPE::Place (&places)[SHAPE::vector])
{
	typedef typename SHAPE::Index Index;
	typedef typename SHAPE::Place Place;
	constexpr int v = SHAPE::vector;
	Index read[v];
	u32 strays = 0;

	if constexpr (SHAPE::index_load > 0) {
		const int r = gather_row<SHAPE>(at);
		indices_load<SHAPE::index_load>(
			idx + PLACES::idx(row + static_cast<Number>(r)) + at - r * SHAPE::to, read);
	}
#pragma unroll
	for (int i = 0; i < v; i++) {
		const int r = gather_row<SHAPE>(SHAPE::index_load > 0 ? at : at + i);
		const Number here = row + static_cast<Number>(r);
		places[i] = indices_none<Place>;
		if (SHAPE::index_load == 0 && at + i >= end)
			continue;
		if constexpr (SHAPE::index_load == 0)
			read[i] = idx[PLACES::idx(here) + (at + i - r * SHAPE::to) * PLACES::idx_step];
		places[i] = indices_place<SHAPE::bounds, SHAPE::from, Place>(read[i]);
		strays += places[i] == indices_none<Place> && here < counted;
	}
	return strays;
}

/* Elements of src at V places, stored as one vector. */
template <class SHAPE, class PLACES, typename Number>
DEVICE void gather_store(const u8 *src, const u8 *shared, Number row, int at, int end, u8 *dst,
						 const typename SHAPE::Place (&places)[SHAPE::vector])
{
	constexpr int es = SHAPE::element, v = SHAPE::vector, each = vec_words<es>;
	constexpr int fill = es * v < 4 ? v : es < 4 ? 4 / es : 1;
	u32 elements[v * each];

#pragma unroll
	for (int i = 0; i < v; i++) {
		const int r = gather_row<SHAPE>(SHAPE::index_load > 0 ? at : at + i);
		const bool some = places[i] != indices_none<typename SHAPE::Place>;
#pragma unroll
		for (int w = 0; w < each; w++)
			elements[i * each + w] = 0;
		if (!some)
			continue;
		if constexpr (SHAPE::stage)
			vec_load<es>(shared + (static_cast<u32>(r) * static_cast<u32>(SHAPE::from) +
								   static_cast<u32>(places[i])) *
									  es,
						 elements + i * each);
		else
			vec_load<es>(src + (PLACES::src(row + static_cast<Number>(r)) +
								static_cast<i64>(places[i]) * PLACES::src_step) *
								   es,
						 elements + i * each);
	}
	dst += static_cast<i64>(at) * es;
	if (SHAPE::index_load == 0 && v > 1 && at + v > end) {
#pragma unroll
		for (int i = 0; i < v; i++)
			if (at + i < end)
				vec_store<es>(dst + i * es, elements + i * each);
	} else if constexpr (es >= 4 || v == 1) {
		vec_store<es * v>(dst, elements);
	} else {
		u32 words[vec_words<es * v>];
#pragma unroll
		for (int w = 0; w < vec_words<es * v>; w++)
			words[w] = vec_collect<es, fill, 1>(elements, [=](int k) { return w * fill + k; });
		vec_store<es * v>(dst, words);
	}
}

/* The first row of a group of ROWS. */
template <class SHAPE, typename Number>
DEVICE Number gather_first(Number group, Number rows, Number lists)
{
	if constexpr (!SHAPE::along)
		return group * SHAPE::rows;
	const Number list = group / (rows / lists);
	return (group - list * (rows / lists)) * lists + list;
}

/* counted: rows whose indices have not been seen in a row before; theirs are reported. */
template <class SHAPE, class PLACES, typename Number, bool LOOP>
__global__ __launch_bounds__(SHAPE::threads) void gather_rows(const void *src,
															  const typename SHAPE::Index *idx,
															  void *dst, i64 rows, i64 counted,
															  u64 *report)
{
	constexpr int v = SHAPE::vector, steps = SHAPE::steps, es = SHAPE::element;
	constexpr bool bulk = SHAPE::bulk && PLACES::dense;
	DYN_SHARED(b128, shared);
	u8 *const memory = reinterpret_cast<u8 *>(shared);
	const u8 *const from = static_cast<const u8 *>(src);
	__shared__ u64 arrived;
	u32 strays = 0, turn = 0;
	Number item = static_cast<Number>(blockIdx.x);

	(void)arrived;
	(void)turn;
	do {
		const Number group = item / SHAPE::parts;
		const Number row =
			gather_first<SHAPE>(group, static_cast<Number>(rows), static_cast<Number>(counted));
		const i64 first = SHAPE::parts == 1 ? 0 : (item - group * SHAPE::parts) * SHAPE::part;
		const i64 below = rows - static_cast<i64>(row);
		const int left = below < SHAPE::rows ? static_cast<int>(below) : SHAPE::rows;
		const i64 most = SHAPE::rows == 1 ? SHAPE::to - first : left * SHAPE::to;
		const int end = static_cast<int>(most < SHAPE::part ? most : SHAPE::part);
		typename SHAPE::Place places[steps][v];

		if (row >= static_cast<Number>(rows))
			break;
		const u8 *staged = memory;
		if constexpr (bulk || SHAPE::skew) {
			constexpr int bytes = static_cast<int>(SHAPE::from) * es;
			const u8 *const run = from + static_cast<i64>(row) * bytes;
			static_assert(PLACES::dense, "one run");
			if constexpr (bulk)
				gather_stage_bulk(run, memory, left * bytes, &arrived, turn == 0);
			else
				gather_stage_around<SHAPE>(run, memory, left * bytes);
			staged = memory + vec_beyond<16>(run);
		} else if constexpr (SHAPE::stage) {
			gather_stage<SHAPE, PLACES>(from, memory, row, left);
		}
#pragma unroll
		for (int s = 0; s < steps; s++) {
			const int at = (s * SHAPE::threads + static_cast<int>(threadIdx.x)) * v;
			if (at < end)
				strays +=
					gather_places<SHAPE, PLACES>(idx + first * PLACES::idx_step, row,
												 static_cast<Number>(counted), at, end, places[s]);
		}
		if constexpr (bulk) {
			bulk_wait(&arrived, turn++ & 1);
		} else if constexpr (SHAPE::stage) {
			async_wait_all();
			__syncthreads();
		}
#pragma unroll
		for (int s = 0; s < steps; s++) {
			const int at = (s * SHAPE::threads + static_cast<int>(threadIdx.x)) * v;
			if (at < end)
				gather_store<SHAPE, PLACES>(from, staged, row, at, end,
											static_cast<u8 *>(dst) +
												(static_cast<i64>(row) * SHAPE::to + first) * es,
											places[s]);
		}
		if constexpr (LOOP) {
			__syncthreads(); /* the next rows go where these were */
			item += static_cast<Number>(gridDim.x);
		}
	} while (LOOP);
	if constexpr (SHAPE::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
