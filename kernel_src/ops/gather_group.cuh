/*
 * gather_group.cuh: gather.cuh for lists that many rows share: for several rows at a time.
 *
 * A block has a part of one list of indices, and as many of its rows as fill 16 bytes with an
 * element of each.  It transposes them on their way to shared memory, so that one access there
 * finds what an index names in all its rows.  A thread looks at V indices for all rows, and
 * transposes back what it found: V elements of each row of dst, which it stores at once.
 */
#pragma once
#include "common/indices.cuh"
#include "common/scatter.cuh"
#include "common/scatter_group.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* Elements of ES bytes: FROM of a row of src, TO of dst, of which a block makes PART.  SKEW: rows
 * of src are not whole vectors.  IW: bytes of indices that are loaded at once, 0 if they do not lie
 * side by side. */
template <int ES, typename I, int BOUNDS, int FROM, int TO, int PART, int THREADS, bool SKEW, int V,
		  int IW>
struct GatherGroup {
	typedef I Index;
	static constexpr int bounds = BOUNDS, to = TO, part = PART, threads = THREADS, vector = V;
	static constexpr int index_load = IW, parts = (TO + PART - 1) / PART;
	/* common/scatter_group.cuh reads these; many: the elements of a row that is transposed. */
	static constexpr int element = ES, rows = 16 / ES, many = FROM;
	static constexpr bool skew = SKEW;
	static constexpr int load = ES == 1 ? 4 : ES == 2 ? 8 : 16, each = load / ES;
	static constexpr int loads = (FROM + each - 1) / each;
	/* Of a multiprocessor at once, by registers. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
	static constexpr int blocks = 1;
#else
	static constexpr int blocks = THREADS > 768 / 2 ? 1 : 768 / THREADS;
#endif
	static_assert(V * ES >= 4 && TO % V == 0 && PART % V == 0, "whole words");
};

/* The places that V indices of a list name, from number k on; how many name none. */
template <class GROUP, i64 STEP>
DEVICE u32 gather_group_places(const typename GROUP::Index *idx, int k,
							   u32 (&places)[GROUP::vector])
{
	constexpr int v = GROUP::vector;
	typename GROUP::Index index[v];
	u32 strays = 0;

	if constexpr (GROUP::index_load > 0) {
		indices_load<GROUP::index_load>(idx + k, index);
	} else {
#pragma unroll
		for (int i = 0; i < v; i++)
			index[i] = idx[(k + i) * STEP];
	}
#pragma unroll
	for (int i = 0; i < v; i++) {
		places[i] = indices_place<GROUP::bounds, GROUP::many, u32>(index[i]);
		strays += places[i] == indices_none<u32>;
	}
	return strays;
}

/* Stores what places name in `rows` rows, `apart` bytes from one to the next. */
template <class GROUP>
DEVICE void gather_group_store(const u8 *shared, const u32 (&places)[GROUP::vector], u8 *to,
							   i64 apart, int rows)
{
	constexpr int v = GROUP::vector, bytes = v * GROUP::element;
	u32 in[v][4], out[GROUP::rows][bytes / 4];

#pragma unroll
	for (int i = 0; i < v; i++) {
#pragma unroll
		for (int w = 0; w < 4; w++)
			in[i][w] = 0;
		if (places[i] != indices_none<u32>)
			vec_load<16>(shared + scatter_group_at(static_cast<int>(places[i])), in[i]);
	}
	vec_transpose<GROUP::element>(in, out);
#pragma unroll
	for (int g = 0; g < GROUP::rows; g++)
		if (g < rows)
			vec_store<bytes>(to + g * apart, out[g]);
}

/* LISTS: how many lists there are, each for `outer` rows, which are numbered list by list. */
template <class GROUP, class PLACES, i64 LISTS, typename Number, bool LOOP>
__global__ __launch_bounds__(GROUP::threads, GROUP::blocks) void gather_group(
	const void *src, const typename GROUP::Index *idx, void *dst, i64 outer, i64 items, u64 *report)
{
	constexpr Number apart = static_cast<Number>(LISTS);
	constexpr int es = GROUP::element, v = GROUP::vector;
	DYN_SHARED(b128, memory);
	u8 *const shared = reinterpret_cast<u8 *>(memory);
	const int thread = static_cast<int>(threadIdx.x);
	u32 strays = 0;
	Number item = static_cast<Number>(blockIdx.x);

	do {
		const Number number = item / GROUP::parts, group = number / apart;
		const Number list = number - group * apart, n = group * GROUP::rows;
		const int begin = static_cast<int>(item - number * GROUP::parts) * GROUP::part;
		const int end = begin + GROUP::part < GROUP::to ? begin + GROUP::part : GROUP::to;
		const i64 left = outer - static_cast<i64>(n);
		const int rows = left < GROUP::rows ? static_cast<int>(left) : GROUP::rows;
		const Number row = n * apart + list;
		const typename GROUP::Index *const indices = idx + PLACES::idx(list);
		u8 *const to = static_cast<u8 *>(dst) + static_cast<i64>(row) * (GROUP::to * es);
		const u8 *from[GROUP::rows];
		u32 places[v], next[v], seen = 0;

#pragma unroll
		for (int g = 0; g < GROUP::rows; g++)
			from[g] = static_cast<const u8 *>(src) +
					  PLACES::ddst(row + static_cast<Number>(g < rows ? g : 0) * apart) * es;
		if (begin + thread * v < end)
			seen += gather_group_places<GROUP, PLACES::idx_step>(indices, begin + thread * v, next);
#pragma unroll 1
		for (int i = thread; i < GROUP::loads; i += GROUP::threads) {
			u32 held[GROUP::rows][GROUP::load / 4];
			scatter_group_load<GROUP>(from, i, held);
			scatter_group_put<GROUP>(shared, i, held);
		}
		__syncthreads();
#pragma unroll 1
		for (int k = begin + thread * v; k < end; k += GROUP::threads * v) {
#pragma unroll
			for (int i = 0; i < v; i++)
				places[i] = next[i];
			if (k + GROUP::threads * v < end)
				seen += gather_group_places<GROUP, PLACES::idx_step>(indices,
																	 k + GROUP::threads * v, next);
			gather_group_store<GROUP>(shared, places, to + k * es, LISTS * (GROUP::to * es), rows);
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
