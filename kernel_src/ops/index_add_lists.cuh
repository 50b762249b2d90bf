/*
 * index_add_lists.cuh: the sums of index_add.cuh for places that many indices name each.
 *
 * The first blocks have a chunk of the list each.  They put its indices in order by their places
 * (index_order.cuh), and leave that order in scratch memory, with where each place's indices end.
 * The blocks behind them have one place each, for 32 vectors of the columns of a slice.  They wait,
 * and list what all chunks have of their place.  Each warp adds up a part of these rows by rising
 * k, and then the warps' sums are added up.  So the bits depend on the list alone.
 */
#pragma once
#include "common/earlier.cuh"
#include "common/index_add.cuh"
#include "common/index_order.cuh"
#include "common/indices_find.cuh"
#include "common/summand.cuh"

/* A lane has V elements of a row at a time, a thread HELD indices of a chunk. */
template <typename T, typename I, int BOUNDS, int V, u32 THREADS, int HELD>
struct IndexAddListsShape {
	typedef T Element;
	typedef I Index;
	typedef typename summand<T>::Compute Compute;
	static constexpr int bounds = BOUNDS, vector = V, held = HELD;
	static constexpr u32 threads = THREADS, warps = THREADS / 32, chunk = THREADS * HELD;
	/* Columns of a block, and those that a thread stores. */
	static constexpr u32 wide = 32 * V, mine = (wide + THREADS - 1) / THREADS;
	static constexpr u32 room = 1024; /* rows that are listed at once; the planner knows */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
	static constexpr int blocks = 1;
#else
	static constexpr int blocks = 1024 / static_cast<int>(THREADS);
#endif
};

template <class SHAPE, class PLACES, class Find>
struct IndexAddLists {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	static constexpr int es = static_cast<int>(sizeof(T)), v = SHAPE::vector;
	static constexpr int words = vec_words<es * v>;
	static constexpr u32 threads = SHAPE::threads, warps = SHAPE::warps;
	/* Column blocks of a row. */
	static constexpr u32 across = static_cast<u32>((PLACES::columns + 32 * v - 1) / (32 * v));
	static constexpr int ahead = 7;  /* rows whose elements are loaded at once */
	static constexpr int looked = 4; /* numbers of a chunk, likewise */

	const u8 *many;
	Compute alpha;
	i64 end;
	u32 chunks;
	/* Scratch memory: of each chunk, where the indices of each place end; its numbers in order. */
	u16 *ends, *numbers;
	u32 *rows; /* shared memory: rows that are to be added */

	DEVICE u16 *chunk_ends(u32 chunk) const
	{
		return ends + static_cast<u64>(chunk) * index_order_pitch(static_cast<u32>(end));
	}

	/* Leaves the order of a chunk of `n` indices.  All threads come. */
	DEVICE void leave(const IndexOrder<SHAPE, PLACES, Find> &order, u32 chunk, u32 n) const
	{
		u16 *const to = numbers + static_cast<u64>(chunk) * SHAPE::chunk;

#pragma unroll
		for (int i = 0; i < SHAPE::held; i++) {
			const u32 k = i * threads + threadIdx.x;
			if (k < n)
				to[k] = order.keys[k];
		}
#pragma unroll 1
		for (u32 place = threadIdx.x; place < static_cast<u32>(end); place += threads)
			chunk_ends(chunk)[place] = order.start(place, warps - 1);
	}

	/* Adds up a warp's part of the rows that are listed, of which there are n. */
	DEVICE void add_rows(const u8 *row, u32 n, Compute (&sum)[v]) const
	{
		const u32 warp = threadIdx.x / 32, stop = n * (warp + 1) / warps;

#pragma unroll 1
		for (u32 i = n * warp / warps; i < stop; i += ahead) {
			u32 more[ahead][words];
#pragma unroll
			for (int a = 0; a < ahead; a++)
				if (i + a < stop)
					index_add_load<es * v>(
						row + static_cast<i64>(rows[i + a]) * (PLACES::many_axis * es), more[a]);
#pragma unroll
			for (int a = 0; a < ahead; a++)
				if (i + a < stop)
					summand_add<T>(more[a], alpha, sum);
		}
	}

	/* Adds up the rows of a place; `here`: the thread has columns, which begin at `row` in row 0.
	 * All threads come. */
	DEVICE void add(u32 place, const u8 *row, bool here, Compute (&sum)[v]) const
	{
		const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
		__shared__ u32 counts[warps];

#pragma unroll 1
		for (u32 from = 0; from < chunks; from += threads) {
			const u32 chunk = from + threadIdx.x;
			u32 begin = 0, n = 0, all = 0;
			if (chunk < chunks) {
				const u16 *const at = chunk_ends(chunk) + place;
				begin = place > 0 ? __ldcg(at - 1) : 0;
				n = __ldcg(at) - begin;
			}
			u32 upto = n;
#pragma unroll
			for (u32 far = 1; far < 32; far *= 2) {
				const u32 other = __shfl_up_sync(0xffffffffu, upto, far);
				upto += lane >= far ? other : 0;
			}
			if (lane == 31)
				counts[warp] = upto;
			__syncthreads();
#pragma unroll
			for (u32 w = 0; w < warps; w++) {
				upto += w < warp ? counts[w] : 0;
				all += counts[w];
			}
#pragma unroll 1
			for (u32 window = 0; window < all; window += SHAPE::room) {
				list(chunk, begin, n, upto - n - window);
				__syncthreads();
				if (here)
					add_rows(row, all - window < SHAPE::room ? all - window : SHAPE::room, sum);
				__syncthreads();
			}
			__syncthreads();
		}
	}

  private:
	/* Lists the rows that a thread's chunk has, n from `begin` on, from number `to` on; those that
	 * have no room are of another window. */
	DEVICE void list(u32 chunk, u32 begin, u32 n, u32 to) const
	{
		const u16 *const from = numbers + static_cast<u64>(chunk) * SHAPE::chunk + begin;

#pragma unroll 1
		for (u32 i = 0; i < n; i += looked) {
			u32 number[looked];
#pragma unroll
			for (int j = 0; j < looked; j++)
				number[j] = i + j < n ? __ldcg(from + i + j) : 0;
#pragma unroll
			for (int j = 0; j < looked; j++)
				if (i + j < n && to + i + j < SHAPE::room)
					rows[to + i + j] = chunk * SHAPE::chunk + number[j];
		}
	}
};

/* What a thread's columns begin with. */
template <class SHAPE>
struct IndexAddListsBase {
	u32 in[SHAPE::mine][vec_words<sizeof(typename SHAPE::Element)>];
};

/* Adds the sums of all warps to what a thread's columns begin with, and stores them.  few: where
 * the block's columns are, of which `count` are there; parts: shared memory.  All threads come. */
template <class SHAPE>
DEVICE void index_add_lists_end(const typename SHAPE::Compute (&sum)[SHAPE::vector],
								typename SHAPE::Compute *parts, IndexAddListsBase<SHAPE> &base,
								i64 count, u8 *few)
{
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	constexpr int es = static_cast<int>(sizeof(T)), v = SHAPE::vector;
	constexpr int bytes = v * static_cast<int>(sizeof(Compute)), each = bytes < 16 ? bytes : 16;
	u32 words[vec_words<bytes>];

	summand<Compute>::pack(sum, words);
#pragma unroll
	for (int i = 0; i < bytes / each; i++)
		vec_store<each>(reinterpret_cast<u8 *>(parts + threadIdx.x * v) + i * each,
						words + i * vec_words<each>);
	__syncthreads();
#pragma unroll
	for (u32 m = 0; m < SHAPE::mine; m++) {
		const u32 column = m * SHAPE::threads + threadIdx.x;
		Compute all[1];
		if (column >= SHAPE::wide || column >= count)
			continue;
		summand<T>::unpack(base.in[m], all);
#pragma unroll
		for (u32 warp = 0; warp < SHAPE::warps; warp++)
			all[0] += parts[warp * SHAPE::wide + column];
		summand<T>::pack(all, base.in[m]);
		vec_store<es>(few + column * es, base.in[m]);
	}
}

/* sorters: blocks that have a chunk.  scratch: what IndexAddLists says, behind the counters. */
template <class SHAPE, class PLACES, typename Place>
__global__ __launch_bounds__(SHAPE::threads, SHAPE::blocks) void index_add_lists(
	const void *many, const typename SHAPE::Index *idx, const void *base, void *few, u64 *report,
	i64 slices, i64 count, i64 end, i64 padding, u32 sorters, void *scratch,
	typename SHAPE::Compute alpha)
{
	typedef IndicesFind<typename SHAPE::Index, SHAPE::bounds, Place> Find;
	typedef IndexAddLists<SHAPE, PLACES, Find> Add;
	constexpr int es = Add::es;
	DYN_SHARED(b128, memory);
	const Earlier earlier(scratch);
	const u32 block = earlier.block(), places = static_cast<u32>(end);
	u16 *const keys = reinterpret_cast<u16 *>(memory);
	u16 *const ends = reinterpret_cast<u16 *>(earlier.ended + EARLIER_STATE);
	u32 *const rows = reinterpret_cast<u32 *>(memory);
	const Add add{static_cast<const u8 *>(many),
				  alpha,
				  end,
				  sorters,
				  ends,
				  ends + static_cast<u64>(sorters) * index_order_pitch(places),
				  rows};
	const PLACES at{end};
	IndexSlice offset;
	u32 strays = 0;

	if (block < sorters) {
		const IndexOrder<SHAPE, PLACES, Find> order{
			idx, end, padding, Find{end}, keys + SHAPE::chunk, keys};
		const i64 first = static_cast<i64>(block) * SHAPE::chunk, left = count - first;
		const u32 n = left < SHAPE::chunk ? static_cast<u32>(left) : SHAPE::chunk;
		at(0, offset);
		strays = order.sort(offset[2], first, n);
		add.leave(order, block, n);
		earlier.end();
	} else {
		const u32 item = block - sorters, row = item / Add::across, slice = row / places;
		const u32 place = row - slice * places;
		const i64 begin = static_cast<i64>(item - row * Add::across) * SHAPE::wide;
		const i64 column = begin + threadIdx.x % 32 * Add::v, left = PLACES::columns - begin;
		typename SHAPE::Compute sum[Add::v];
		IndexAddListsBase<SHAPE> first = {};
		at(slice, offset);
#pragma unroll
		for (u32 m = 0; m < SHAPE::mine; m++) {
			const u32 mine = m * SHAPE::threads + threadIdx.x;
			if (base && mine < SHAPE::wide && mine < left)
				vec_load<es>(static_cast<const u8 *>(base) +
								 (offset[1] + place * PLACES::base_axis + begin + mine) * es,
							 first.in[m]);
		}
#pragma unroll
		for (int i = 0; i < Add::v; i++) /* what changes no sum */
			sum[i] = static_cast<typename SHAPE::Compute>(-0.0);
		if (threadIdx.x == 0)
			earlier.wait(sorters);
		__syncthreads();
		if (threadIdx.x == 0)
			atomicAdd(earlier.passed, 1u); /* nothing that anybody reads was written before */
		add.add(place, static_cast<const u8 *>(many) + (offset[0] + column) * es,
				column < PLACES::columns, sum);
		index_add_lists_end<SHAPE>(
			sum, reinterpret_cast<typename SHAPE::Compute *>(rows + SHAPE::room), first, left,
			static_cast<u8 *>(few) + (offset[3] + place * PLACES::few_axis + begin) * es);
		/* The last block alone waits until nobody waits any more. */
		if (block == gridDim.x - 1 && threadIdx.x == 0) {
			while (earlier_seen(earlier.passed) < gridDim.x - sorters)
				;
			earlier.clear();
		}
	}
	if constexpr (SHAPE::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
