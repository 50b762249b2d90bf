/*
 * gather_group.cuh: gather.cuh for lists that many rows share: for several rows at a time.
 *
 * A block has a part of one list of indices, and some of its rows.  Shared memory has these as
 * planes: a plane is an array of words, one for each place, in which elements of one, two or four
 * rows lie side by side.  A thread looks at its indices once, and keeps the places that they name
 * in registers.  Plane by plane it then loads V words, parts the rows in them, and stores V
 * elements of each row at once.
 */
#pragma once
#include "common/async.cuh"
#include "common/indices.cuh"
#include "common/scatter.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* Elements of ES bytes: FROM of a row of src, TO of dst, V of which a thread stores at once, TURNS
 * times.  SKEW: rows of src are not whole vectors.  IW: bytes of indices that are loaded at once, 0
 * if they do not lie side by side.  ALONG: all rows of a list follow one another. */
template <int ES, typename I, int BOUNDS, int FROM, int TO, int TURNS, int PLANES, int THREADS,
		  bool SKEW, int V, int IW, bool ALONG>
struct GatherGroup {
	typedef I Index;
	static constexpr int element = ES, bounds = BOUNDS, from = FROM, to = TO, turns = TURNS;
	static constexpr int planes = PLANES, threads = THREADS, vector = V, index_load = IW;
	static constexpr bool skew = SKEW, along = ALONG;
	static constexpr int part = THREADS * TURNS * V, parts = (TO + part - 1) / part;
	/* Bytes of a word, the rows in it, and those of a block. */
	static constexpr int word = ES > 4 ? ES : 4, side = word / ES, rows = PLANES * side;
	/* Elements of a row that become 16 bytes of a plane, and how many such a row has. */
	static constexpr int each = 16 / word, load = each * ES, loads = (FROM + each - 1) / each;
	/* Behind the row is what an index finds that names nothing: 0. */
	static constexpr int nothing = loads * each, pitch = loads * 16 + 16;
	/* Registers allow a multiprocessor so many at once. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
	static constexpr int blocks = 1;
#else
	static constexpr int blocks = (PLANES > 4 || (SKEW && rows > 4) ? 512 : 1024) / THREADS;
#endif
	static_assert(V * ES >= 4 && TO % V == 0, "whole words");
	static_assert(nothing < 0x10000, "short places");
};

/* Notes the places that V indices name, two in a word; returns how many name none. */
template <class GROUP, i64 STEP>
DEVICE u32 gather_group_places(const typename GROUP::Index *idx,
							   u32 (&places)[(GROUP::vector + 1) / 2])
{
	constexpr int v = GROUP::vector;
	typename GROUP::Index index[v];
	u32 strays = 0;

	if constexpr (GROUP::index_load > 0) {
		indices_load<GROUP::index_load>(idx, index);
	} else {
#pragma unroll
		for (int i = 0; i < v; i++)
			index[i] = idx[i * STEP];
	}
#pragma unroll
	for (int i = 0; i < v; i++) {
		u32 place = indices_place<GROUP::bounds, GROUP::from, u32>(index[i]);
		if constexpr (GROUP::bounds == INDICES_CHECK) {
			strays += place == indices_none<u32>;
			place = place == indices_none<u32> ? GROUP::nothing : place;
		}
		places[i / 2] = i % 2 ? places[i / 2] | place << 16 : place;
	}
	return strays;
}

/* Begins to make all planes: row g is at from(g). */
template <class GROUP, class From>
DEVICE void gather_group_stage(u8 *shared, From from)
{
	constexpr int side = GROUP::side, w = GROUP::load, es = GROUP::element;
	constexpr int once = GROUP::planes < 4 ? GROUP::planes : 4;

#pragma unroll 1
	for (int i = static_cast<int>(threadIdx.x); i < GROUP::loads; i += GROUP::threads) {
#pragma unroll
		for (int first = 0; first < GROUP::planes; first += once) {
			u32 in[once][side][w / 4], out[GROUP::each][GROUP::word / 4];
#pragma unroll
			for (int p = 0; p < once; p++) {
				u8 *const to = shared + (first + p) * GROUP::pitch + i * 16;
				if constexpr (es >= 4 && !GROUP::skew) {
					async_copy16(to, from(first + p) + i * 16);
					continue;
				} else {
#pragma unroll
					for (int g = 0; g < side; g++) {
						const u8 *const row = from((first + p) * side + g);
						const int left = GROUP::from * es - i * w;
						if constexpr (GROUP::skew) {
							const int beyond = vec_beyond<w>(row);
							vec_load_skewed<es, w>(row - beyond, i * w + beyond,
												   left < w ? left : w, in[p][g]);
						} else {
							vec_load<w>(row + i * w, in[p][g]);
						}
					}
				}
			}
			if constexpr (es < 4 || GROUP::skew) {
#pragma unroll
				for (int p = 0; p < once; p++) {
					u32 words[4];
					vec_transpose<es>(in[p], out);
#pragma unroll
					for (int n = 0; n < 4; n++)
						words[n] = out[n * 4 / GROUP::word][n % (GROUP::word / 4)];
					vec_store<16>(shared + (first + p) * GROUP::pitch + i * 16, words);
				}
			}
		}
	}
	if (static_cast<int>(threadIdx.x) < GROUP::planes) {
		const u32 zero[4] = {};
		vec_store<16>(shared + static_cast<int>(threadIdx.x) * GROUP::pitch + GROUP::loads * 16,
					  zero);
	}
}

/* Stores what places name in the rows of a plane, of which the block has `rows`; `apart` bytes from
 * one to the next. */
template <class GROUP>
DEVICE void gather_group_store(const u8 *plane, const u32 (&places)[(GROUP::vector + 1) / 2],
							   u8 *to, i64 apart, int rows)
{
	constexpr int v = GROUP::vector, bytes = v * GROUP::element, word = GROUP::word;
	u32 in[v][word / 4], out[GROUP::side][bytes / 4];

#pragma unroll
	for (int i = 0; i < v; i++)
		vec_load<word>(plane + (places[i / 2] >> i % 2 * 16 & 0xffff) * word, in[i]);
	vec_transpose<GROUP::element>(in, out);
#pragma unroll
	for (int g = 0; g < GROUP::side; g++)
		if (g < rows)
			vec_store<bytes>(to + g * apart, out[g]);
}

/* LISTS: how many lists there are, each for `outer` rows, which are numbered list by list. */
template <class GROUP, class PLACES, i64 LISTS, typename Number, bool LOOP>
__global__ __launch_bounds__(GROUP::threads, GROUP::blocks) void gather_group(
	const void *src, const typename GROUP::Index *idx, void *dst, i64 outer, i64 items, u64 *report)
{
	constexpr Number lists = static_cast<Number>(LISTS);
	constexpr int es = GROUP::element, v = GROUP::vector, turns = GROUP::turns;
	constexpr i64 apart = LISTS * (GROUP::to * es);
	DYN_SHARED(b128, memory);
	u8 *const shared = reinterpret_cast<u8 *>(memory);
	u32 strays = 0;
	Number item = static_cast<Number>(blockIdx.x);

	do {
		const Number number = item / GROUP::parts;
		const Number groups = static_cast<Number>((outer + GROUP::rows - 1) / GROUP::rows);
		const Number group = GROUP::along ? number % groups : number / lists;
		const Number list = GROUP::along ? number / groups : number % lists;
		const Number n = group * GROUP::rows;
		const int begin = static_cast<int>(item - number * GROUP::parts) * GROUP::part +
						  static_cast<int>(threadIdx.x) * v;
		const i64 left = outer - static_cast<i64>(n);
		const int rows = left < GROUP::rows ? static_cast<int>(left) : GROUP::rows;
		const Number row = n * lists + list;
		const typename GROUP::Index *const indices = idx + PLACES::idx(list);
		u8 *const to = static_cast<u8 *>(dst) + static_cast<i64>(row) * (GROUP::to * es);
		u32 places[turns][(v + 1) / 2], seen = 0;

#pragma unroll
		for (int t = 0; t < turns; t++) {
			const int k = begin + t * (GROUP::threads * v);
			if (k < GROUP::to)
				seen += gather_group_places<GROUP, PLACES::idx_step>(
					indices + static_cast<i64>(k) * PLACES::idx_step, places[t]);
		}
		gather_group_stage<GROUP>(shared, [=](int g) {
			return static_cast<const u8 *>(src) +
				   PLACES::ddst(row + static_cast<Number>(g < rows ? g : 0) * lists) * es;
		});
		async_wait_all();
		__syncthreads();
#pragma unroll
		for (int t = 0; t < turns; t++) {
			const int k = begin + t * (GROUP::threads * v);
			if (k >= GROUP::to)
				continue;
#pragma unroll
			for (int p = 0; p < GROUP::planes; p++)
				if (p * GROUP::side < rows)
					gather_group_store<GROUP>(shared + p * GROUP::pitch, places[t],
											  to + p * GROUP::side * apart + k * es, apart,
											  rows - p * GROUP::side);
		}
		strays += n == 0 ? seen : 0;
		if constexpr (LOOP) {
			__syncthreads(); /* the next rows go where these were */
			item += static_cast<Number>(gridDim.x);
		}
	} while (LOOP && item < static_cast<Number>(items));
	if constexpr (GROUP::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
