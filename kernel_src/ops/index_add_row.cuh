/*
 * index_add_row.cuh: few[o, p] = base[o, p] + the sum of many[o, k] over the k with idx[o, k] = p,
 * one after another by rising k, where the elements of a row lie side by side.
 *
 * A block has a row o.  Shared memory holds the elements of many, and for each place the last index
 * that came, for each index the one before: links, in any order.  A thread follows the links of its
 * places and puts up to four of them in order in registers; that is enough for nearly all.  The
 * others are left for later: a thread looks again and again for the next of some, a warp goes over
 * all indices for many.
 */
#pragma once
#include "common/async.cuh"
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/links.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* PLACES elements of a row of few, COUNT of many; V of either are side by side in one thread, W
 * bytes of many are copied at once. */
template <typename T, typename I, int BOUNDS, int PLACES, int COUNT, int V, int W, int THREADS>
struct IndexAddRow {
	typedef T Element;
	typedef I Index;
	typedef typename summand<T>::Compute Compute;
	static constexpr int element = static_cast<int>(sizeof(T)), bounds = BOUNDS, vector = V;
	static constexpr int places = PLACES, count = COUNT, threads = THREADS, load = W;
	static constexpr int index_load =
		V * static_cast<int>(sizeof(I)) < 16 ? V * static_cast<int>(sizeof(I)) : 16;
	static constexpr int stored = V * element < 16 ? V * element : 16;
	/* Links are the numbers of indices, times four; behind the last one is the end. */
	static constexpr u32 end = COUNT * 4;
	static constexpr int few = 4;   /* links that are put in order in registers */
	static constexpr int some = 12; /* that a thread looks for */
	/* Shared memory: elements; links; heads, the last for indices that name nothing; places that
	 * are left for later. */
	static constexpr int links_at = (COUNT * element + element + 15) / 16 * 16;
	static constexpr int heads_at = links_at + (COUNT * 4 + 4 + 15) / 16 * 16;
	static constexpr int later_at = heads_at + (PLACES * 4 + 4 + 15) / 16 * 16;
	/* Of a multiprocessor at once, by registers. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
	static constexpr int blocks = 1;
#else
	static constexpr int blocks = (element == 8 ? 1024 : THREADS < 512 ? 1280 : 1536) / THREADS;
#endif
	static constexpr u32 long_list = 0x80000000u; /* of a place that is left for a warp */
};

template <class ROW>
struct IndexAddRowMemory {
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	u8 *shared;

	DEVICE u32 *link(u32 at) const
	{
		return reinterpret_cast<u32 *>(shared + ROW::links_at + at);
	}
	DEVICE u32 *heads() const
	{
		return reinterpret_cast<u32 *>(shared + ROW::heads_at);
	}
	DEVICE u32 *later() const
	{
		return reinterpret_cast<u32 *>(shared + ROW::later_at);
	}
	DEVICE Compute value(u32 link) const
	{
		return summand<T>::get(shared + (sizeof(T) == 8   ? link * 2
										 : sizeof(T) == 4 ? link
										 : sizeof(T) == 2 ? link / 2
														  : link / 4));
	}

	/* Adding the element at the end leaves any sum as it is, also that of -0. */
	DEVICE void put_end() const
	{
		u8 *const at = shared + ROW::count * ROW::element;
		const bool real = static_cast<Compute>(0.5f) != Compute(0);
#pragma unroll
		for (int i = 0; i < ROW::element; i++)
			at[i] = real && i == ROW::element - 1 ? 0x80 : 0;
		*link(ROW::end) = ROW::end;
	}
};

/* Starts to copy the elements of a row. */
template <class ROW>
DEVICE void index_add_row_stage(u8 *shared, const u8 *many)
{
	constexpr int w = ROW::load, each = w / ROW::element;

#pragma unroll 4
	for (int k = static_cast<int>(threadIdx.x) * each; k < ROW::count; k += ROW::threads * each)
		if constexpr (w == 16)
			async_copy16(shared + k * ROW::element, many + k * ROW::element);
		else
			vec_copy<w>(many + k * ROW::element, shared + k * ROW::element);
}

/* Links the indices of a row; returns how many name nothing. */
template <class ROW>
DEVICE u32 index_add_row_link(const IndexAddRowMemory<ROW> &memory, const typename ROW::Index *idx)
{
	constexpr int v = ROW::vector, turns = (ROW::count + ROW::threads * v - 1) / (ROW::threads * v);
	constexpr int most = turns * v < 16 ? turns : 16 / v; /* turns whose indices a thread holds */
	const int thread = static_cast<int>(threadIdx.x);
	u32 strays = 0;

#pragma unroll 1
	for (int first = 0; first < turns; first += most) {
		typename ROW::Index index[most][v];
#pragma unroll
		for (int n = 0; n < most; n++) {
			const int k = ((first + n) * ROW::threads + thread) * v;
			if (k < ROW::count)
				indices_load<ROW::index_load>(idx + k, index[n]);
		}
		if (first == 0)
			__syncthreads(); /* the heads are empty */
#pragma unroll
		for (int n = 0; n < most; n++) {
			const int k = ((first + n) * ROW::threads + thread) * v;
			u32 links[v];
			if (k >= ROW::count)
				continue;
#pragma unroll
			for (int i = 0; i < v; i++) {
				const u32 place = indices_place<ROW::bounds, ROW::places, u32>(index[n][i]);
				const u32 to = place < ROW::places ? place : ROW::places;
				strays += place == indices_none<u32>;
				links[i] = atomicExch(memory.heads() + to, static_cast<u32>(k + i) * 4);
			}
			vec_store<4 * v>(memory.link(static_cast<u32>(k) * 4), links);
		}
	}
	return strays;
}

/* The sum of what one place's links name, up to four; false: there are more. */
template <class ROW>
DEVICE bool index_add_row_sum(const IndexAddRowMemory<ROW> &memory, u32 head,
							  typename ROW::Compute &sum)
{
	u32 link[ROW::few];

	link[0] = head;
#pragma unroll
	for (int i = 1; i < ROW::few; i++)
		link[i] = *memory.link(link[i - 1]);
	const bool all = *memory.link(link[ROW::few - 1]) == ROW::end;
	links_sort(link);
#pragma unroll
	for (int i = 0; i < ROW::few; i++)
		sum += memory.value(link[i]);
	return all;
}

/* Adds up a place that is left for later: the next of its links by rising k, until there is none.
 * false: there are too many. */
template <class ROW>
DEVICE bool index_add_row_some(const IndexAddRowMemory<ROW> &memory, u32 place,
							   typename ROW::Compute &sum)
{
	const u32 head = memory.heads()[place];
	u32 least = 0, n = 0;

#pragma unroll 1
	for (u32 link = head; link != ROW::end; link = *memory.link(link))
		if (++n > ROW::some)
			return false;
#pragma unroll 1
	for (; n > 0; n--) {
		u32 next = ROW::end;
#pragma unroll 1
		for (u32 link = head; link != ROW::end; link = *memory.link(link))
			next = link >= least && link < next ? link : next;
		sum += memory.value(next);
		least = next + 4;
	}
	return true;
}

/* The same by a warp that goes over all indices. */
template <class ROW>
DEVICE void index_add_row_all(const IndexAddRowMemory<ROW> &memory, const typename ROW::Index *idx,
							  u32 place, typename ROW::Compute &sum)
{
	const int lane = static_cast<int>(threadIdx.x % 32);

#pragma unroll 4
	for (int first = 0; first < ROW::count; first += 32) {
		const int k = first + lane;
		const bool mine = k < ROW::count && indices_place<ROW::bounds, ROW::places, u32>(
												idx[k < ROW::count ? k : 0]) == place;
		u32 marks = __ballot_sync(0xffffffffu, mine);
#pragma unroll 1
		for (; marks != 0; marks &= marks - 1)
			sum += memory.value(static_cast<u32>(first + __ffs(static_cast<int>(marks)) - 1) * 4);
	}
}

/* The places of a row that are left for later.  All threads come. */
template <class ROW>
DEVICE void index_add_row_later(const IndexAddRowMemory<ROW> &memory, u32 count, const u8 *base,
								const typename ROW::Index *idx, u8 *few)
{
	typedef typename ROW::Element T;
	constexpr int es = ROW::element;
	u32 words[vec_words<es>];
	typename ROW::Compute sum[1];

#pragma unroll 1
	for (u32 i = threadIdx.x; i < count; i += ROW::threads) {
		const u32 place = memory.later()[i];
		sum[0] = summand<T>::get(base + place * es);
		if (!index_add_row_some(memory, place, sum[0])) {
			memory.later()[i] = place | ROW::long_list;
			continue;
		}
		summand<T>::pack(sum, words);
		vec_store<es>(few + place * es, words);
	}
	__syncthreads();
#pragma unroll 1
	for (u32 i = threadIdx.x / 32; i < count; i += ROW::threads / 32) {
		const u32 place = memory.later()[i] & ~ROW::long_list;
		if (memory.later()[i] == place)
			continue;
		sum[0] = summand<T>::get(base + place * es);
		index_add_row_all(memory, idx, place, sum[0]);
		summand<T>::pack(sum, words);
		if (threadIdx.x % 32 == 0)
			vec_store<es>(few + place * es, words);
	}
}

/* DIMS number the rows, all but the slowest dimension. */
template <class ROW, class DIMS, class MANY, class BASE, class IDX, bool LOOP>
__global__ __launch_bounds__(ROW::threads,
							 ROW::blocks) void index_add_row(const void *many,
															 const typename ROW::Index *idx,
															 const void *base, void *few, i64 rows,
															 u64 *report)
{
	typedef typename ROW::Element T;
	constexpr int es = ROW::element, v = ROW::vector, bytes = ROW::stored;
	constexpr int turns = (ROW::places + ROW::threads * v - 1) / (ROW::threads * v);
	constexpr int most = turns * v * es < 64 ? turns : 64 / (v * es); /* whose base it holds */
	DYN_SHARED(b128, dynamic);
	__shared__ u32 left; /* places for later */
	const IndexAddRowMemory<ROW> memory{reinterpret_cast<u8 *>(dynamic)};
	const int thread = static_cast<int>(threadIdx.x);
	i64 row = blockIdx.x;
	u32 strays = 0;

	do {
		const u8 *const from =
			static_cast<const u8 *>(many) + index_offset<i64>(row, DIMS{}, MANY{}) * es;
		const u8 *const begin =
			static_cast<const u8 *>(base) + index_offset<i64>(row, DIMS{}, BASE{}) * es;
		const typename ROW::Index *const list = idx + index_offset<i64>(row, DIMS{}, IDX{});
		u8 *const to = static_cast<u8 *>(few) + row * (ROW::places * es);

		index_add_row_stage<ROW>(memory.shared, from);
		for (int p = thread; p < ROW::places; p += ROW::threads)
			memory.heads()[p] = ROW::end;
		if (thread == 0) {
			memory.put_end();
			left = 0;
		}
		strays += index_add_row_link(memory, list);
#pragma unroll 1
		for (int first = 0; first < turns; first += most) {
			u32 in[most][vec_words<es * v>];
#pragma unroll
			for (int n = 0; n < most; n++) {
				const int p = ((first + n) * ROW::threads + thread) * v;
				if (p < ROW::places)
					vec_load<bytes>(begin + p * es, in[n]);
			}
			if (first == 0) {
				async_wait_all();
				__syncthreads();
			}
#pragma unroll
			for (int n = 0; n < most; n++) {
				const int p = ((first + n) * ROW::threads + thread) * v;
				typename ROW::Compute sum[v];
				u32 head[v], out[vec_words<es * v>];
				bool all = true, done[v];
				if (p >= ROW::places)
					continue;
				summand<T>::unpack(in[n], sum);
				vec_load<4 * v>(memory.heads() + p, head);
#pragma unroll
				for (int i = 0; i < v; i++) {
					done[i] = index_add_row_sum(memory, head[i], sum[i]);
					all = all && done[i];
				}
				summand<T>::pack(sum, out);
				if (all) {
					vec_store<bytes>(to + p * es, out);
					continue;
				}
#pragma unroll
				for (int i = 0; i < v; i++) {
					const typename ROW::Compute one[1] = {sum[i]};
					u32 word[vec_words<es>];
					summand<T>::pack(one, word);
					if (done[i])
						vec_store<es>(to + (p + i) * es, word);
					else
						memory.later()[atomicAdd(&left, 1u)] = static_cast<u32>(p + i);
				}
			}
		}
		__syncthreads();
		if (left > 0)
			index_add_row_later(memory, left, begin, list, to);
		if constexpr (LOOP) {
			__syncthreads(); /* the next row goes where this one was */
			row += gridDim.x;
		}
	} while (LOOP && row < rows);
	if constexpr (ROW::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
