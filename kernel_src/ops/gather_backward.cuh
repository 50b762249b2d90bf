/*
 * gather_backward.cuh: dsrc[i, j, p] = the sum of ddst[i, j, k] over all k with idx[j, k] = p, one
 * after another by rising k: the same bits whatever the launch.
 *
 * A block has one list of indices (one j) and ROWS of the rows that share it.  It sorts the list by
 * p once, keeping the order of k (a counting sort: each warp counts a part of its own), and then
 * sums up row after row from shared memory, each thread for some p of its own.  Of dsrc it makes
 * CHUNK elements a row; longer rows are several blocks.  A list of more than TILE indices is sorted
 * tile by tile, for each row again.
 */
#pragma once
#include "common/element.cuh"
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* How elements are added up: floats in their type to compute in, integers in words that wrap. */
template <typename T>
struct summand {
	typedef typename element<T>::compute Compute;
	static DEVICE Compute get(const void *at)
	{
		return element_load<Compute>(static_cast<const T *>(at));
	}
	template <int N>
	static DEVICE void pack(const Compute (&in)[N], u32 *words)
	{
		element_pack<T>(in, words);
	}
};

template <typename T, typename Word>
struct summand_integer {
	typedef Word Compute;
	static DEVICE Compute get(const void *at)
	{
		return *static_cast<const T *>(at);
	}
	template <int N>
	static DEVICE void pack(const Compute (&in)[N], u32 *words)
	{
		constexpr int bytes = static_cast<int>(sizeof(T));
		if constexpr (bytes == 8) {
#pragma unroll
			for (int i = 0; i < N; i++) {
				words[2 * i] = static_cast<u32>(in[i]);
				words[2 * i + 1] = static_cast<u32>(static_cast<u64>(in[i]) >> 32);
			}
		} else {
#pragma unroll
			for (int i = 0; i < N; i++) {
				const u32 bits = static_cast<u32>(static_cast<T>(in[i]));
				const int at = i * bytes;
				words[at / 4] = at % 4 ? words[at / 4] | bits << at % 4 * 8 : bits;
			}
		}
	}
};
template <>
struct summand<u8> : summand_integer<u8, u32> {
};
template <>
struct summand<u16> : summand_integer<u16, u32> {
};
template <>
struct summand<u32> : summand_integer<u32, u32> {
};
template <>
struct summand<u64> : summand_integer<u64, u64> {
};

/*
 * FEW elements a row of dsrc, MANY of ddst.  STAGED rows lie in shared memory at once; W: bytes that
 * are copied there at once; V: elements of dsrc that a thread stores at once.
 */
template <typename T, typename I, int BOUNDS, i64 FEW, i64 MANY, int CHUNK, int TILE, int ROWS,
		  int STAGED, int THREADS, int W, int V>
struct ScatterShape {
	typedef T Element;
	typedef I Index;
	typedef typename summand<T>::Compute Compute;
	static constexpr int bounds = BOUNDS, chunk = CHUNK, tile = TILE, rows = ROWS, staged = STAGED;
	static constexpr int threads = THREADS, load = W, vector = V, warps = THREADS / 32;
	static constexpr int element = static_cast<int>(sizeof(T));
	static constexpr i64 few = FEW, many = MANY;
	static constexpr u32 chunks = static_cast<u32>((FEW + CHUNK - 1) / CHUNK);
	static constexpr int tiles = static_cast<int>(MANY > TILE ? (MANY + TILE - 1) / TILE : 1);
	/* Indices that a warp sorts. */
	static constexpr int segment = (TILE + 32 * warps - 1) / (32 * warps) * 32;
	/* Shared memory: sums, if a list is several tiles; rows of ddst, or the counts of the warps
	 * before; where the elements of each p begin; their k, by p. */
	static constexpr int sums = tiles > 1 ? CHUNK *static_cast<int>(sizeof(Compute)) : 0;
	static constexpr int pitch = (TILE * element + 15) / 16 * 16;
	static constexpr int counts = warps * CHUNK * 2;
	static constexpr int values_at = (sums + 15) / 16 * 16;
	static constexpr int values = STAGED * pitch > counts ? STAGED *pitch : counts;
	static constexpr int begins_at = values_at + (values + 15) / 16 * 16;
	static constexpr int order_at = begins_at + (CHUNK + 2) * 2;
	static_assert(TILE < 65536 && THREADS % 32 == 0 && CHUNK % V == 0, "sizes");
};

template <i64 DDST_STEP, i64 IDX_STEP, class DIMS, class DDST, class IDX>
struct ScatterPlaces {
	static constexpr i64 ddst_step = DDST_STEP, idx_step = IDX_STEP;

	template <typename Number>
	static DEVICE i64 ddst(Number row)
	{
		return index_offset<i64>(row, DIMS{}, DDST{});
	}
	template <typename Number>
	static DEVICE i64 idx(Number row)
	{
		return index_offset<i64>(row, DIMS{}, IDX{});
	}
};

/* What a list of indices is sorted into. */
template <class SHAPE>
struct Scatter {
	u8 *shared;

	DEVICE u16 *counts(int warp) const
	{
		return reinterpret_cast<u16 *>(shared + SHAPE::values_at) + warp * SHAPE::chunk;
	}
	DEVICE u16 *begins() const
	{
		return reinterpret_cast<u16 *>(shared + SHAPE::begins_at);
	}
	DEVICE u16 *order() const
	{
		return reinterpret_cast<u16 *>(shared + SHAPE::order_at);
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
 * The warp's indices, in order, 32 at a time: body(k, key, before, equal) for the lane's: which of
 * the block's elements it names (or 0xffffffff), how many lanes before this one name the same, how
 * many in all.  Between two times the warp meets.
 */
template <class SHAPE, i64 STEP, typename Body>
DEVICE u32 scatter_each(const typename SHAPE::Index *idx, int count, i64 first, Body body)
{
	typedef typename index_choose<(SHAPE::few < 0x7fffffff), u32, u64>::type Place;
	const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
	const int begin = warp * SHAPE::segment;
	const int end = begin + SHAPE::segment < count ? begin + SHAPE::segment : count;
	u32 strays = 0;

#pragma unroll 1
	for (int at = begin; at < end; at += 32) {
		const int k = at + lane;
		u32 key = 0xffffffffu;
		if (k < end) {
			const Place place = indices_place<SHAPE::bounds, SHAPE::few, Place>(idx[k * STEP]);
			strays += place == indices_none<Place>;
			const Place within = place - static_cast<Place>(first);
			if (place != indices_none<Place> && within < static_cast<Place>(SHAPE::chunk))
				key = static_cast<u32>(within);
		}
		const u32 peers = __match_any_sync(0xffffffffu, key);
		body(k, key, __popc(peers & ((1u << lane) - 1u)), __popc(peers));
		__syncwarp();
	}
	return strays;
}

/* Counts become places: for each p, first those of the first warp.  All threads come. */
template <class SHAPE>
DEVICE void scatter_scan(const Scatter<SHAPE> &scatter)
{
	constexpr int each = (SHAPE::chunk + SHAPE::threads - 1) / SHAPE::threads;
	__shared__ u32 totals[SHAPE::warps];
	const int thread = static_cast<int>(threadIdx.x), first = thread * each;
	u32 mine = 0, at;

#pragma unroll 1
	for (int p = first; p < first + each && p < SHAPE::chunk; p++) {
#pragma unroll 1
		for (int w = 0; w < SHAPE::warps; w++)
			mine += scatter.counts(w)[p];
	}
	at = mine;
#pragma unroll 1
	for (int lanes = 1; lanes < 32; lanes *= 2) {
		const u32 below = __shfl_up_sync(0xffffffffu, at, static_cast<u32>(lanes));
		at += thread % 32 >= lanes ? below : 0;
	}
	if (thread % 32 == 31)
		totals[thread / 32] = at;
	__syncthreads();
	at -= mine;
#pragma unroll 1
	for (int w = 0; w < thread / 32; w++)
		at += totals[w];
#pragma unroll 1
	for (int p = first; p < first + each && p < SHAPE::chunk; p++) {
		scatter.begins()[p] = static_cast<u16>(at);
#pragma unroll 1
		for (int w = 0; w < SHAPE::warps; w++) {
			const u32 count = scatter.counts(w)[p];
			scatter.counts(w)[p] = static_cast<u16>(at);
			at += count;
		}
	}
	/* Threads whose first p is beyond the last add nothing: all of them say the same. */
	if (first + each >= SHAPE::chunk)
		scatter.begins()[SHAPE::chunk] = static_cast<u16>(at);
}

/* Sorts `count` indices.  All threads come; what was in shared memory is not used any more. */
template <class SHAPE, i64 STEP>
DEVICE u32 scatter_sort(const Scatter<SHAPE> &scatter, const typename SHAPE::Index *idx, int count,
						i64 first)
{
	u16 *const mine = scatter.counts(static_cast<int>(threadIdx.x) / 32);

	__syncthreads();
#pragma unroll 1
	for (int i = static_cast<int>(threadIdx.x); i < SHAPE::warps * SHAPE::chunk;
		 i += SHAPE::threads)
		scatter.counts(0)[i] = 0;
	__syncthreads();
	const u32 strays =
		scatter_each<SHAPE, STEP>(idx, count, first, [=](int, u32 key, int before, int equal) {
			if (key != 0xffffffffu && before == 0)
				mine[key] = static_cast<u16>(mine[key] + equal);
		});
	__syncthreads();
	scatter_scan(scatter);
	__syncthreads();
	scatter_each<SHAPE, STEP>(idx, count, first, [=](int k, u32 key, int before, int equal) {
		const bool named = key != 0xffffffffu;
		const int at = named ? mine[key] : 0;
		if (named)
			scatter.order()[at + before] = static_cast<u16>(k);
		__syncwarp();
		if (named && before == 0)
			mine[key] = static_cast<u16>(at + equal);
	});
	__syncthreads();
	return strays;
}

/* Copies `count` elements of a row of ddst to shared memory. */
template <class SHAPE, i64 STEP>
DEVICE void scatter_stage(const u8 *from, u8 *values, int count)
{
	constexpr int each = SHAPE::load / SHAPE::element;

#pragma unroll 2
	for (int k = static_cast<int>(threadIdx.x) * each; k < count; k += SHAPE::threads * each)
		vec_copy<SHAPE::load>(from + k * STEP * SHAPE::element, values + k * SHAPE::element);
}

/* Adds to `sum` what is named for element p. */
template <class SHAPE>
DEVICE void scatter_add(const Scatter<SHAPE> &scatter, const u8 *values, int p,
						typename SHAPE::Compute &sum)
{
	const int end = scatter.begins()[p + 1];

#pragma unroll 1
	for (int i = scatter.begins()[p]; i < end; i++)
		sum += summand<typename SHAPE::Element>::get(values + scatter.order()[i] * SHAPE::element);
}

template <class SHAPE>
DEVICE void scatter_store(u8 *to, const typename SHAPE::Compute (&sum)[SHAPE::vector])
{
	u32 words[vec_words<SHAPE::vector * SHAPE::element>];

	summand<typename SHAPE::Element>::pack(sum, words);
	vec_store<SHAPE::vector * SHAPE::element>(to, words);
}

/* `rows` rows, `apart` from one another in number, whose list is sorted. */
template <class SHAPE, class PLACES, typename Number>
DEVICE void scatter_rows(const Scatter<SHAPE> &scatter, const u8 *ddst, u8 *dsrc, Number row,
						 Number apart, int rows, i64 first)
{
	constexpr int es = SHAPE::element, v = SHAPE::vector;
	const i64 left = SHAPE::few - first;
	const int end = left < SHAPE::chunk ? static_cast<int>(left) : SHAPE::chunk;

#pragma unroll 1
	for (int r = 0; r < rows; r += SHAPE::staged) {
		const int here = rows - r < SHAPE::staged ? rows - r : SHAPE::staged;
		__syncthreads(); /* the rows before were used, or the counts were */
#pragma unroll 1
		for (int s = 0; s < here; s++)
			scatter_stage<SHAPE, PLACES::ddst_step>(
				ddst + PLACES::ddst(row + static_cast<Number>(r + s) * apart) * es,
				scatter.values(s), static_cast<int>(SHAPE::many));
		__syncthreads();
#pragma unroll 1
		for (int p = static_cast<int>(threadIdx.x) * v; p < end; p += SHAPE::threads * v) {
#pragma unroll 1
			for (int s = 0; s < here; s++) {
				const i64 to = static_cast<i64>(row + static_cast<Number>(r + s) * apart);
				typename SHAPE::Compute sum[v] = {};
#pragma unroll
				for (int i = 0; i < v; i++)
					scatter_add(scatter, scatter.values(s), p + i, sum[i]);
				scatter_store<SHAPE>(dsrc + (to * SHAPE::few + first + p) * es, sum);
			}
		}
	}
}

/* One row, whose list is sorted tile by tile. */
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
		strays += scatter_sort<SHAPE, PLACES::idx_step>(scatter, idx + k * PLACES::idx_step, count,
														first);
		scatter_stage<SHAPE, PLACES::ddst_step>(ddst + k * PLACES::ddst_step * SHAPE::element,
												scatter.values(0), count);
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
	for (int p = static_cast<int>(threadIdx.x) * v; p < end; p += SHAPE::threads * v) {
		typename SHAPE::Compute sum[v];
#pragma unroll
		for (int i = 0; i < v; i++)
			sum[i] = scatter.sums()[p + i];
		scatter_store<SHAPE>(dsrc + p * SHAPE::element, sum);
	}
	return strays;
}

/* Rows are numbered list by list; `outer` of them share each of `lists` lists. */
template <class SHAPE, class PLACES, typename Number, bool LOOP>
__global__ __launch_bounds__(SHAPE::threads) void gather_backward_rows(
	const void *ddst, const typename SHAPE::Index *idx, void *dsrc, i64 outer, i64 lists,
	u64 *report)
{
	DYN_SHARED(b128, shared);
	const Scatter<SHAPE> scatter{reinterpret_cast<u8 *>(shared)};
	const u8 *const from = static_cast<const u8 *>(ddst);
	u8 *const to = static_cast<u8 *>(dsrc);
	const Number apart = static_cast<Number>(lists);
	const Number groups = static_cast<Number>((outer + SHAPE::rows - 1) / SHAPE::rows);
	u32 strays = 0;
	Number item = static_cast<Number>(blockIdx.x);

	do {
		const Number number = item / SHAPE::chunks, group = number / apart;
		const Number list = number - group * apart, n = group * SHAPE::rows;
		const i64 first = static_cast<i64>(item - number * SHAPE::chunks) * SHAPE::chunk;
		const i64 left = outer - static_cast<i64>(n);
		const int rows = left < SHAPE::rows ? static_cast<int>(left) : SHAPE::rows;
		const Number row = n * apart + list;
		const typename SHAPE::Index *const indices = idx + PLACES::idx(list);
		u32 seen = 0;

		if (group >= groups)
			break;
		if constexpr (SHAPE::tiles == 1) {
			seen = scatter_sort<SHAPE, PLACES::idx_step>(scatter, indices,
														 static_cast<int>(SHAPE::many), first);
			scatter_rows<SHAPE, PLACES>(scatter, from, to, row, apart, rows, first);
		} else {
#pragma unroll 1
			for (int r = 0; r < rows; r++) {
				const Number here = row + static_cast<Number>(r) * apart;
				const u32 now = scatter_tiles<SHAPE, PLACES>(
					scatter, from + PLACES::ddst(here) * SHAPE::element, indices,
					to + (static_cast<i64>(here) * SHAPE::few + first) * SHAPE::element, first);
				seen = r == 0 ? now : seen;
			}
		}
		strays += n == 0 && first == 0 ? seen : 0;
		item += static_cast<Number>(gridDim.x);
	} while (LOOP);
	if constexpr (SHAPE::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
