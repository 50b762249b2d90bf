/*
 * gather_backward.cuh: dsrc[i, j, p] = the sum of ddst[i, j, k] over all k with idx[j, k] = p, one
 * after another by rising k: the same bits whatever the launch.
 *
 * A block has one list of indices (one j) and ROWS of the rows that share it.  It chains the k of
 * each p once, and then sums up all rows from shared memory, each thread for some p of its own.
 * Of dsrc it makes CHUNK elements a row; longer rows are several blocks.  A list of more than TILE
 * indices is chained tile by tile, by a block for each row.
 */
#pragma once
#include "common/async.cuh"
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/scatter.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/*
 * FEW elements a row of dsrc, MANY of ddst.  W: bytes that are copied to shared memory at once; V:
 * elements of dsrc that a thread stores at once.
 */
template <typename T, typename I, int BOUNDS, i64 FEW, i64 MANY, int CHUNK, int TILE, int ROWS,
		  int THREADS, int W, int V>
struct ScatterShape {
	typedef T Element;
	typedef I Index;
	typedef typename summand<T>::Compute Compute;
	static constexpr int bounds = BOUNDS, chunk = CHUNK, tile = TILE, rows = ROWS;
	static constexpr int threads = THREADS, load = W, vector = V, warps = THREADS / 32;
	static constexpr int element = static_cast<int>(sizeof(T));
	static constexpr i64 few = FEW, many = MANY;
	static constexpr u32 chunks = static_cast<u32>((FEW + CHUNK - 1) / CHUNK);
	static constexpr int tiles = static_cast<int>(MANY > TILE ? (MANY + TILE - 1) / TILE : 1);
	/* Shared memory: sums, if a list is several tiles; rows of ddst; for each p the first k of its
	 * chain; for each k the next. */
	static constexpr int sums = tiles > 1 ? CHUNK *static_cast<int>(sizeof(Compute)) : 0;
	static constexpr int pitch = (TILE * element + 15) / 16 * 16;
	static constexpr int values_at = (sums + 15) / 16 * 16;
	static constexpr int heads_at = values_at + ROWS * pitch;
	static constexpr int next_at = heads_at + CHUNK * 2;
	static constexpr u16 end = 0xffff; /* of a chain */
	static_assert(tiles == 1 || ROWS == 1, "tiles are of one row");
	static_assert(TILE < 65536 && THREADS % 32 == 0 && CHUNK % V == 0, "sizes");
};

/* The contents of shared memory. */
template <class SHAPE>
struct Scatter {
	u8 *shared;

	DEVICE u16 *heads() const
	{
		return reinterpret_cast<u16 *>(shared + SHAPE::heads_at);
	}
	DEVICE u16 *next() const
	{
		return reinterpret_cast<u16 *>(shared + SHAPE::next_at);
	}
	DEVICE u8 *values(int row) const
	{
		return shared + SHAPE::values_at + row * SHAPE::pitch;
	}
	DEVICE typename SHAPE::Compute *sums() const
	{
		return reinterpret_cast<typename SHAPE::Compute *>(shared);
	}
};

/*
 * Chains `count` indices.  One warp goes over them from the end, 32 at a time; of those that name
 * the same element, each is followed by the next lane's, the last by what has been the first.  All
 * threads come; what was in shared memory is not used any more.
 */
template <class SHAPE, i64 STEP>
DEVICE u32 scatter_link(const Scatter<SHAPE> &scatter, const typename SHAPE::Index *idx, int count,
						i64 first)
{
	typedef typename index_choose<(SHAPE::few < 0x7fffffff), u32, u64>::type Place;
	const int thread = static_cast<int>(threadIdx.x);
	u32 strays = 0;

	__syncthreads();
#pragma unroll 1
	for (int i = thread; i < SHAPE::chunk; i += SHAPE::threads)
		scatter.heads()[i] = SHAPE::end;
	__syncthreads();
#pragma unroll 1
	for (int k = (count - 1) / 32 * 32 + thread; k >= thread && thread < 32; k -= 32) {
		const Place none = indices_none<Place>;
		const Place named =
			k < count ? indices_place<SHAPE::bounds, SHAPE::few, Place>(idx[k * STEP]) : none;
		const Place within = named - static_cast<Place>(first);
		const bool here = within < static_cast<Place>(SHAPE::chunk) && named != none;
		const u32 key = here ? static_cast<u32>(within) : 0xffffffffu;
		const u32 equal = __match_any_sync(0xffffffffu, key);
		const u32 above = equal >> thread >> 1;
		u16 *const head = scatter.heads() + (here ? key : 0);
		const int next = above ? k + __ffs(static_cast<int>(above)) : *head;
		strays += named == none && k < count;
		__syncwarp();
		if (here)
			scatter.next()[k] = static_cast<u16>(next);
		if (here && (equal & ((1u << thread) - 1u)) == 0)
			*head = static_cast<u16>(k);
		__syncwarp();
	}
	__syncthreads();
	return strays;
}

/* Copies `count` elements of each of `rows` rows of ddst to shared memory: row r is at from(r). */
template <class SHAPE, int COUNT, i64 STEP, typename From>
DEVICE void scatter_stage(const Scatter<SHAPE> &scatter, int rows, int count, From from)
{
	constexpr int each = SHAPE::load / SHAPE::element, vectors = (COUNT + each - 1) / each;

#pragma unroll 1
	for (u32 i = threadIdx.x; i < static_cast<u32>(rows * vectors); i += SHAPE::threads) {
		const int row = static_cast<int>(SHAPE::rows == 1 ? 0 : i / vectors);
		const int k = (static_cast<int>(i) - row * vectors) * each;
		const u8 *const at = from(row) + k * STEP * SHAPE::element;
		u8 *const to = scatter.values(row) + k * SHAPE::element;
		if (SHAPE::tiles > 1 && k >= count)
			continue;
		if constexpr (SHAPE::load == 16)
			async_copy16(to, at);
		else
			vec_copy<SHAPE::load>(at, to);
	}
	async_wait_all();
}

/* Adds to `sum` what is named for element p, of a row. */
template <class SHAPE>
DEVICE void scatter_add(const Scatter<SHAPE> &scatter, const u8 *values, int p,
						typename SHAPE::Compute &sum)
{
#pragma unroll 1
	for (int k = scatter.heads()[p]; k != SHAPE::end; k = scatter.next()[k])
		sum += summand<typename SHAPE::Element>::get(values + k * SHAPE::element);
}

/* V elements as one word, or one by itself: sum_of(i) for each. */
template <class SHAPE, typename Sum>
DEVICE void scatter_store(u8 *to, Sum sum_of)
{
	typedef typename SHAPE::Compute Compute;
	constexpr int v = SHAPE::vector, es = SHAPE::element;
	u32 words[vec_words<es * v>];

	if constexpr (v == 1) {
		const Compute sum[1] = {sum_of(0)};
		summand<typename SHAPE::Element>::pack(sum, words);
	} else {
		words[0] = 0;
#pragma unroll 1
		for (int i = 0; i < v; i++) {
			u32 one[1];
			const Compute sum[1] = {sum_of(i)};
			summand<typename SHAPE::Element>::pack(sum, one);
			words[0] |= one[0] << i * es * 8;
		}
	}
	vec_store<es * v>(to, words);
}

/* `rows` rows, `apart` from one another in number, whose list is chained. */
template <class SHAPE, class PLACES, typename Number>
DEVICE void scatter_rows(const Scatter<SHAPE> &scatter, const u8 *ddst, u8 *dsrc, Number row,
						 Number apart, int rows, i64 first)
{
	constexpr int es = SHAPE::element, v = SHAPE::vector, groups = SHAPE::chunk / v;
	constexpr int many = static_cast<int>(SHAPE::many);

	scatter_stage<SHAPE, many, PLACES::ddst_step>(scatter, rows, many, [=](int s) {
		return ddst + PLACES::ddst(row + static_cast<Number>(s) * apart) * es;
	});
	__syncthreads();
#pragma unroll 1
	for (u32 i = threadIdx.x; i < static_cast<u32>(rows * groups); i += SHAPE::threads) {
		const int s = static_cast<int>(SHAPE::rows == 1 ? 0 : i / groups);
		const int p = (static_cast<int>(i) - s * groups) * v;
		const i64 to = static_cast<i64>(row + static_cast<Number>(s) * apart);
		if (SHAPE::chunks > 1 && first + p >= SHAPE::few)
			continue;
		scatter_store<SHAPE>(dsrc + (to * SHAPE::few + first + p) * es, [=](int k) {
			typename SHAPE::Compute sum = 0;
			scatter_add(scatter, scatter.values(s), p + k, sum);
			return sum;
		});
	}
}

/* One row, whose list is chained tile by tile. */
template <class SHAPE, class PLACES>
DEVICE u32 scatter_tiles(const Scatter<SHAPE> &scatter, const u8 *ddst,
						 const typename SHAPE::Index *idx, u8 *dsrc, i64 first)
{
	constexpr int v = SHAPE::vector;
	const i64 left = SHAPE::few - first;
	const int end = left < SHAPE::chunk ? static_cast<int>(left) : SHAPE::chunk;
	u32 strays = 0;

#pragma unroll 1
	for (i64 k = 0; k < SHAPE::many; k += SHAPE::tile) {
		const i64 rest = SHAPE::many - k;
		const int count = rest < SHAPE::tile ? static_cast<int>(rest) : SHAPE::tile;
		strays += scatter_link<SHAPE, PLACES::idx_step>(scatter, idx + k * PLACES::idx_step, count,
														first);
		scatter_stage<SHAPE, SHAPE::tile, PLACES::ddst_step>(
			scatter, 1, count, [=](int) { return ddst + k * PLACES::ddst_step * SHAPE::element; });
		__syncthreads();
#pragma unroll 1
		for (int p = static_cast<int>(threadIdx.x); p < end; p += SHAPE::threads) {
			typename SHAPE::Compute sum = k == 0 ? 0 : scatter.sums()[p];
			scatter_add(scatter, scatter.values(0), p, sum);
			scatter.sums()[p] = sum;
		}
	}
	__syncthreads();
#pragma unroll 1
	for (int p = static_cast<int>(threadIdx.x) * v; p < end; p += SHAPE::threads * v)
		scatter_store<SHAPE>(dsrc + p * SHAPE::element,
							 [=](int i) { return scatter.sums()[p + i]; });
	return strays;
}

/* LISTS: how many lists there are, each for `outer` rows, which are numbered list by list; 0: each
 * row has its own. */
template <class SHAPE, class PLACES, i64 LISTS, typename Number, bool LOOP>
__global__ __launch_bounds__(SHAPE::threads) void gather_backward_rows(
	const void *ddst, const typename SHAPE::Index *idx, void *dsrc, i64 outer, i64 items,
	u64 *report)
{
	DYN_SHARED(b128, shared);
	const Scatter<SHAPE> scatter{reinterpret_cast<u8 *>(shared)};
	const u8 *const from = static_cast<const u8 *>(ddst);
	u8 *const to = static_cast<u8 *>(dsrc);
	u32 strays = 0;
	Number item = static_cast<Number>(blockIdx.x);

	do {
		constexpr Number apart = static_cast<Number>(LISTS);
		const Number number = item / SHAPE::chunks,
					 group = LISTS ? number / (LISTS ? apart : 1) : 0;
		const Number list = number - group * apart, n = group * SHAPE::rows;
		const i64 first = static_cast<i64>(item - number * SHAPE::chunks) * SHAPE::chunk;
		const i64 left = outer - static_cast<i64>(n);
		const int rows = left < SHAPE::rows ? static_cast<int>(left) : SHAPE::rows;
		const Number row = n * apart + list;
		const typename SHAPE::Index *const indices = idx + PLACES::idx(list);
		u32 seen;

		if constexpr (SHAPE::tiles == 1) {
			seen = scatter_link<SHAPE, PLACES::idx_step>(scatter, indices,
														 static_cast<int>(SHAPE::many), first);
			scatter_rows<SHAPE, PLACES>(scatter, from, to, row, apart, rows, first);
		} else {
			seen = scatter_tiles<SHAPE, PLACES>(
				scatter, from + PLACES::ddst(row) * SHAPE::element, indices,
				to + (static_cast<i64>(row) * SHAPE::few + first) * SHAPE::element, first);
		}
		strays += n == 0 && first == 0 ? seen : 0;
		item += static_cast<Number>(gridDim.x);
	} while (LOOP && item < static_cast<Number>(items));
	if constexpr (SHAPE::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
