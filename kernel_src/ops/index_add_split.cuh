/*
 * index_add_split.cuh: the sums of index_add.cuh for few places that many indices name each.
 *
 * The list is cut into chunks.  The first blocks have a chunk each, for 32 vectors of the columns
 * of a slice.  A block puts the indices of its chunk in order by their places.  A warp takes one
 * place after another, or one of `parts` of the rows of a place.  It adds the rows up by rising k,
 * and leaves the sum in scratch memory.  The sums of all places are a layer.  The blocks behind
 * them wait, and add up the layers in the order of their rows.  So the bits depend on how long
 * chunks are, and on nothing else.
 */
#pragma once
#include "common/earlier.cuh"
#include "common/index.cuh"
#include "common/index_add.cuh"
#include "common/indices.cuh"
#include "common/indices_find.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* A lane has V elements of a row at a time, a thread HELD indices of a chunk, and of the layers
 * VL sums. */
template <typename T, typename I, int BOUNDS, int V, int VL, u32 THREADS, int HELD>
struct IndexAddSplitShape {
	typedef T Element;
	typedef I Index;
	typedef typename summand<T>::Compute Compute;
	static constexpr int bounds = BOUNDS, vector = V, layer_vector = VL, held = HELD;
	static constexpr u32 threads = THREADS, warps = THREADS / 32, most = THREADS * HELD;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
	static constexpr int blocks = 1;
#else
	static constexpr int blocks = 1024 / static_cast<int>(THREADS);
#endif
	static_assert(most <= 65536, "numbers in a chunk have 16 bits");
};

/* Loads what is read once, so that layers stay in the cache. */
template <int BYTES>
DEVICE void index_add_split_load(const u8 *from, u32 (&words)[vec_words<BYTES>])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	u64 once;
	if constexpr (BYTES == 16) {
		asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
		asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
					 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
					 : "l"(from), "l"(once));
		return;
	} else if constexpr (BYTES == 8) {
		asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
		asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
					 : "=r"(words[0]), "=r"(words[1])
					 : "l"(from), "l"(once));
		return;
	}
#endif
	vec_load<BYTES>(from, words);
}

/* Numbers from warp to warp: an odd number of words.  The planner computes the same. */
DEVICE u32 index_add_split_pitch(u32 places)
{
	return ((places + 1) / 2 | 1) * 2;
}

/* A launch is told this: indices of a chunk; chunks; parts of a place's rows. */
struct IndexAddSplitSizes {
	i64 slices, count, end, padding;
	u32 chunk, chunks, parts;
};

template <class SHAPE, class PLACES, class Find>
struct IndexAddSplit {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::Index Index;
	static constexpr int es = static_cast<int>(sizeof(T)), v = SHAPE::vector,
						 vl = SHAPE::layer_vector;
	static constexpr int words = vec_words<es * v>, held = SHAPE::held;
	static constexpr int layer_bytes = vl * static_cast<int>(sizeof(Compute));
	static constexpr u32 warps = SHAPE::warps, none = 0xffffffffu;
	/* Column blocks of a row. */
	static constexpr u32 across = static_cast<u32>((PLACES::columns + 32 * v - 1) / (32 * v));
	/* Rows whose elements are loaded at once, and layers: as many as registers hold. */
	static constexpr int ahead = words < 4 ? 8 : 4, layers_ahead = layer_bytes < 8 ? 16 : 8;

	const u8 *many, *base;
	u8 *few;
	const Index *idx;
	Compute *layers;
	IndexAddSplitSizes size;
	Compute alpha;
	Find find;
	PLACES at;
	/* Shared memory: of each warp, where its indices of each place begin; numbers in a chunk. */
	u16 *starts, *keys;

	/* The number of the place that an index names, or none. */
	DEVICE u32 placed(Index index, u32 &strays) const
	{
		i64 place;

		if (static_cast<i64>(index) == size.padding)
			return none;
		if (find(static_cast<i64>(index), place))
			return static_cast<u32>(place);
		strays++;
		return none;
	}

	/* Few places of a warp share a bank, and few warps of a place. */
	DEVICE u16 &start(u32 place, u32 warp) const
	{
		return starts[warp * index_add_split_pitch(static_cast<u32>(size.end)) + place];
	}

	/* Turns how many indices each warp has for each place into where they begin: place by place,
	 * and of a place warp by warp. */
	DEVICE void sum_up() const
	{
		const u32 all = static_cast<u32>(size.end) * warps, thread = threadIdx.x;
		const u32 each = (all + SHAPE::threads - 1) / SHAPE::threads;
		const u32 first = thread * each < all ? thread * each : all;
		const u32 last = first + each < all ? first + each : all;
		__shared__ u32 sums[warps];
		u32 mine = 0, before;

#pragma unroll 1
		for (u32 i = first; i < last; i++)
			mine += start(i / warps, i % warps);
		before = mine;
#pragma unroll
		for (u32 lanes = 1; lanes < 32; lanes *= 2) {
			const u32 other = __shfl_up_sync(0xffffffffu, before, lanes);
			before += thread % 32 >= lanes ? other : 0;
		}
		if (thread % 32 == 31)
			sums[thread / 32] = before;
		__syncthreads();
		before -= mine;
#pragma unroll
		for (u32 warp = 0; warp < warps; warp++)
			before += warp < thread / 32 ? sums[warp] : 0;
#pragma unroll 1
		for (u32 i = first; i < last; i++) {
			u16 &begin = start(i / warps, i % warps);
			const u32 here = begin;
			begin = static_cast<u16>(before);
			before += here;
		}
	}

	/* Lists the numbers of `n` indices from `first` on, those of each place by rising k; returns
	 * how many name nothing.  Each warp has those that follow one another.  All threads come. */
	DEVICE u32 sort(i64 list, i64 first, u32 n) const
	{
		const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, below = (1u << lane) - 1;
		const u32 turns = (n + SHAPE::threads - 1) / SHAPE::threads;
		const u32 begin = warp * turns * 32 + lane;
		u32 place[held], equal[held], strays = 0;
		Index index[held];

#pragma unroll
		for (int i = 0; i < held; i++) {
			const u32 k = begin + i * 32;
			index[i] = i < turns && k < n ? idx[list + (first + k) * PLACES::idx_step] : 0;
		}
#pragma unroll 1
		for (u32 i = threadIdx.x; i < index_add_split_pitch(static_cast<u32>(size.end)) * warps;
			 i += SHAPE::threads)
			starts[i] = 0;
		__syncthreads();
#pragma unroll
		for (int i = 0; i < held; i++) {
			if (i >= turns)
				break;
			place[i] = begin + i * 32 < n ? placed(index[i], strays) : none;
			equal[i] = __match_any_sync(0xffffffffu, place[i]);
			if (place[i] != none && (equal[i] & below) == 0) {
				u16 &count = start(place[i], warp);
				count = static_cast<u16>(count + __popc(static_cast<int>(equal[i])));
			}
			__syncwarp();
		}
		__syncthreads();
		sum_up();
		__syncthreads();
		/* A warp's part of a place begins where the parts of the warps before it end. */
#pragma unroll
		for (int i = 0; i < held; i++) {
			if (i >= turns)
				break;
			const u32 from = place[i] != none ? start(place[i], warp) : 0;
			const u32 to = from + __popc(static_cast<int>(equal[i] & below));
			__syncwarp();
			if (place[i] != none) {
				keys[to] = static_cast<u16>(begin + i * 32);
				if (equal[i] >> lane >> 1 == 0)
					start(place[i], warp) = static_cast<u16>(to + 1);
			}
			__syncwarp();
		}
		__syncthreads();
		return strays;
	}

	/* Adds up rows whose numbers are listed from `from` to `to`.  -0 is what changes no sum. */
	DEVICE void add_rows(const u8 *row, u32 from, u32 to, Compute (&sum)[v]) const
	{
#pragma unroll
		for (int i = 0; i < v; i++)
			sum[i] = static_cast<Compute>(-0.0);
#pragma unroll 1
		for (u32 n = from; n < to; n += ahead) {
			u32 more[ahead][words];
#pragma unroll
			for (int a = 0; a < ahead; a++)
				if (n + a < to)
					index_add_split_load<es * v>(
						row + static_cast<i64>(keys[n + a]) * (PLACES::many_axis * es), more[a]);
#pragma unroll
			for (int a = 0; a < ahead; a++)
				if (n + a < to)
					summand_add<T>(more[a], alpha, sum);
		}
	}

	/* The layers of one chunk for one block of columns of a slice.  All threads come. */
	DEVICE u32 chunk(i64 slice, u32 number, u32 block) const
	{
		const u32 lane = threadIdx.x % 32, units = static_cast<u32>(size.end) * size.parts;
		const i64 first = static_cast<i64>(number) * size.chunk, left = size.count - first;
		const i64 column = (static_cast<i64>(block) * 32 + lane) * v;
		const i64 layer = size.slices * size.end * PLACES::columns;
		__shared__ u32 next;
		IndexSlice offset;

		at(slice, offset);
		if (threadIdx.x == 0)
			next = 0;
		const u32 strays =
			sort(offset[2], first, left < size.chunk ? static_cast<u32>(left) : size.chunk);
		const u8 *const row =
			many + (offset[0] + first * PLACES::many_axis + column) * static_cast<i64>(es);
		Compute *const to = layers + static_cast<i64>(number) * size.parts * layer +
							slice * size.end * PLACES::columns + column;
#pragma unroll 1
		for (;;) {
			u32 unit = lane == 0 ? atomicAdd(&next, 1u) : 0;
			unit = __shfl_sync(0xffffffffu, unit, 0);
			if (unit >= units)
				break;
			const u32 place = unit / size.parts, part = unit - place * size.parts;
			const u32 begin = place ? start(place - 1, warps - 1) : 0;
			const u32 rows = start(place, warps - 1) - begin;
			Compute sum[v];
			u32 out[vec_words<v *static_cast<int>(sizeof(Compute))>];
			if (column >= PLACES::columns)
				continue;
			add_rows(row, begin + rows * part / size.parts, begin + rows * (part + 1) / size.parts,
					 sum);
			summand<Compute>::pack(sum, out);
			vec_store<v *static_cast<int>(sizeof(Compute))>(
				to + part * layer + place * PLACES::columns, out);
		}
		return block == 0 && slice == 0 ? strays : 0;
	}

	/* Adds up the layers, for vl sums of each thread of a block. */
	DEVICE void finish(u32 block) const
	{
		constexpr u32 wide = static_cast<u32>(PLACES::columns / vl);
		const i64 i = static_cast<i64>(block) * SHAPE::threads + threadIdx.x, row = i / wide;
		const i64 slice = row / size.end, place = row - slice * size.end;
		const i64 column = (i - row * wide) * vl, layer = size.slices * size.end * PLACES::columns;
		const u32 all = size.chunks * size.parts;
		const Compute *const from = layers + row * PLACES::columns + column;
		u32 in[vec_words<es * vl>] = {};
		Compute sum[vl];
		IndexSlice offset;

		if (slice >= size.slices)
			return;
		at(slice, offset);
		if (base)
			vec_load<es * vl>(base + (offset[1] + place * PLACES::base_axis + column) * es, in);
		summand<T>::unpack(in, sum);
#pragma unroll 1
		for (u32 n = 0; n < all; n += layers_ahead) {
			u32 more[layers_ahead][vec_words<layer_bytes>];
#pragma unroll
			for (int a = 0; a < layers_ahead; a++)
				if (n + a < all)
					vec_load<layer_bytes>(from + (n + a) * layer, more[a]);
#pragma unroll
			for (int a = 0; a < layers_ahead; a++)
				if (n + a < all)
					summand_add<Compute>(more[a], sum);
		}
		u32 out[vec_words<es * vl>];
		summand<T>::pack(sum, out);
		vec_store<es * vl>(few + (offset[3] + place * PLACES::few_axis + column) * es, out);
	}
};

/* adders: blocks that have a chunk. */
template <class SHAPE, class PLACES, typename Place>
__global__ __launch_bounds__(SHAPE::threads, SHAPE::blocks) void index_add_split(
	const void *many, const typename SHAPE::Index *idx, const void *base, void *few, u64 *report,
	i64 slices, i64 count, i64 end, i64 padding, u32 chunk, u32 chunks, u32 parts, u32 adders,
	void *scratch, typename SHAPE::Compute alpha)
{
	typedef IndicesFind<typename SHAPE::Index, SHAPE::bounds, Place> Find;
	typedef IndexAddSplit<SHAPE, PLACES, Find> Add;
	DYN_SHARED(b128, memory);
	u16 *const keys = reinterpret_cast<u16 *>(memory);
	const Earlier earlier(scratch);
	const u32 block = earlier.block();
	const Add add{static_cast<const u8 *>(many),
				  static_cast<const u8 *>(base),
				  static_cast<u8 *>(few),
				  idx,
				  reinterpret_cast<typename SHAPE::Compute *>(earlier.ended + EARLIER_STATE),
				  {slices, count, end, padding, chunk, chunks, parts},
				  alpha,
				  Find{end},
				  PLACES{end},
				  keys + SHAPE::most,
				  keys};
	u32 strays = 0;

	if (block < adders) {
		const u32 number = block / Add::across, slice = number / chunks;
		strays = add.chunk(slice, number - slice * chunks, block - number * Add::across);
		earlier.end();
	} else {
		if (threadIdx.x == 0) {
			earlier.wait(adders);
			if (earlier.pass(gridDim.x - adders))
				earlier.clear();
		}
		__syncthreads();
		add.finish(block - adders);
	}
	if constexpr (SHAPE::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
