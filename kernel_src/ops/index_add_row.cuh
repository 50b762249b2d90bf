/*
 * index_add_row.cuh: few[o, p] = base[o, p] + the sum of many[o, k] over the k with idx[o, k] = p,
 * one after another by rising k, where the elements of a row lie side by side.
 *
 * A block has a row o.  Shared memory holds the elements of many, and for each p the last k that
 * came, for each k the one before: links, in any order.  A thread follows the links of its p and
 * puts up to four of them in order in registers, or eight.  The few p that have more are left for
 * later: a warp goes over all indices for each.
 */
#pragma once
#include "common/async.cuh"
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/links.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* PLACES elements of a row of few, COUNT of many.  V sums, and V indices, are a thread's at once; W
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
	static constexpr int stored = V * element;
	/* Links are the numbers k, times four; behind the last one is the end. */
	static constexpr u32 end = COUNT * 4;
	static constexpr int few = 4, some = 8; /* links that are put in order in registers */
	/* Shared memory: elements; links; heads, the last for indices that name nothing; sums that are
	 * left for later. */
	static constexpr int links_at = (COUNT * element + element + 15) / 16 * 16;
	static constexpr int heads_at = links_at + (COUNT * 4 + 4 + 15) / 16 * 16;
	static constexpr int later_at = heads_at + (PLACES * 4 + 4 + 15) / 16 * 16;
	/* So many are on a multiprocessor at once, by registers. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
	static constexpr int blocks = 1;
#else
	static constexpr int at_once = element == 8 || THREADS < 512 ? 1024 : 1536;
	static constexpr int blocks = THREADS > 512 ? 1 : at_once / THREADS;
#endif
	static_assert(stored <= 16, "a vector");
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

/* Links the indices; returns how many name nothing.  ask(): what else is to be asked for. */
template <class ROW, typename Ask>
DEVICE u32 index_add_row_link(const IndexAddRowMemory<ROW> &memory, const typename ROW::Index *idx,
							  Ask ask)
{
	constexpr int v = ROW::vector, step = ROW::threads * v;
	constexpr int turns = (ROW::count + step - 1) / step;
	constexpr int most = turns * v < 8 ? turns : 8 / v; /* turns whose indices a thread holds */
	const int thread = static_cast<int>(threadIdx.x);
	u32 strays = 0;

#pragma unroll 1
	for (int first = 0; first < turns; first += most) {
		typename ROW::Index index[most][v];
#pragma unroll
		for (int t = 0; t < most; t++) {
			const int n = (first + t) * step + thread * v;
			if (n < ROW::count)
				indices_load<ROW::index_load>(idx + n, index[t]);
		}
		if (first == 0) {
			ask();
			__syncthreads(); /* the heads are empty */
		}
#pragma unroll
		for (int t = 0; t < most; t++) {
			const int n = (first + t) * step + thread * v;
			u32 links[v];
			if (n >= ROW::count)
				continue;
#pragma unroll
			for (int i = 0; i < v; i++) {
				const u32 place = indices_place<ROW::bounds, ROW::places, u32>(index[t][i]);
				const u32 to = place < ROW::places ? place : ROW::places;
				strays += place == indices_none<u32>;
				links[i] = atomicExch(memory.heads() + to, static_cast<u32>(n + i) * 4);
			}
			vec_store<4 * v>(memory.link(static_cast<u32>(n) * 4), links);
		}
	}
	return strays;
}

/* Adds what V sums' links name, up to eight each; done: of which there are no more. */
template <class ROW, int V>
DEVICE void index_add_row_sum(const IndexAddRowMemory<ROW> &memory, const u32 (&head)[V],
							  typename ROW::Compute (&sum)[V], bool (&done)[V])
{
	constexpr int few = ROW::few;
	u32 link[V][few], rest[V];

#pragma unroll
	for (int i = 0; i < V; i++)
		link[i][0] = head[i];
#pragma unroll
	for (int n = 1; n < few; n++) {
#pragma unroll
		for (int i = 0; i < V; i++)
			link[i][n] = *memory.link(link[i][n - 1]);
	}
#pragma unroll
	for (int i = 0; i < V; i++)
		rest[i] = *memory.link(link[i][few - 1]);
#pragma unroll
	for (int i = 0; i < V; i++) {
		done[i] = true;
		if (rest[i] == ROW::end) {
			links_sort(link[i]);
#pragma unroll
			for (int n = 0; n < few; n++)
				sum[i] += memory.value(link[i][n]);
		} else {
			u32 all[ROW::some];
#pragma unroll
			for (int n = 0; n < few; n++)
				all[n] = link[i][n];
			all[few] = rest[i];
#pragma unroll
			for (int n = few + 1; n < ROW::some; n++)
				all[n] = *memory.link(all[n - 1]);
			done[i] = *memory.link(all[ROW::some - 1]) == ROW::end;
			links_sort(all);
#pragma unroll
			for (int n = 0; n < ROW::some; n++)
				sum[i] += memory.value(all[n]);
		}
	}
}

/* The sums that are left for later: a warp goes over all indices for each. */
template <class ROW>
DEVICE void index_add_row_later(const IndexAddRowMemory<ROW> &memory, u32 count, const u8 *base,
								const typename ROW::Index *idx, u8 *few)
{
	typedef typename ROW::Element T;
	constexpr int es = ROW::element;
	const int lane = static_cast<int>(threadIdx.x % 32);

#pragma unroll 1
	for (u32 n = threadIdx.x / 32; n < count; n += ROW::threads / 32) {
		const u32 place = memory.later()[n];
		typename ROW::Compute sum[1] = {summand<T>::get(base + place * es)};
		u32 words[vec_words<es>];
#pragma unroll 2
		for (int first = 0; first < ROW::count; first += 32) {
			const int k = first + lane < ROW::count ? first + lane : 0;
			const u32 named = indices_place<ROW::bounds, ROW::places, u32>(idx[k]);
			u32 marks = __ballot_sync(0xffffffffu, named == place && first + lane < ROW::count);
#pragma unroll 1
			for (; marks != 0; marks &= marks - 1)
				sum[0] +=
					memory.value(static_cast<u32>(first + __ffs(static_cast<int>(marks)) - 1) * 4);
		}
		summand<T>::pack(sum, words);
		if (lane == 0)
			vec_store<es>(few + place * es, words);
	}
}

/* Stores V sums, or those that are done, and notes the others. */
template <class ROW>
DEVICE void index_add_row_store(const IndexAddRowMemory<ROW> &memory, int number,
								const typename ROW::Compute (&sum)[ROW::vector],
								const bool (&done)[ROW::vector], u8 *to, u32 *left)
{
	typedef typename ROW::Element T;
	constexpr int es = ROW::element, v = ROW::vector;
	u32 out[vec_words<es * v>];
	bool all = true;

#pragma unroll
	for (int i = 0; i < v; i++)
		all = all && done[i];
	summand<T>::pack(sum, out);
	if (all) {
		vec_store<es * v>(to, out);
		return;
	}
#pragma unroll
	for (int i = 0; i < v; i++) {
		const typename ROW::Compute one[1] = {sum[i]};
		u32 word[vec_words<es>];
		summand<T>::pack(one, word);
		if (done[i])
			vec_store<es>(to + i * es, word);
		else
			memory.later()[atomicAdd(left, 1u)] = static_cast<u32>(number + i);
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
	constexpr int es = ROW::element, v = ROW::vector, step = ROW::threads * v;
	constexpr int turns = (ROW::places + step - 1) / step;
	constexpr int most = turns < 2 ? turns : 2; /* whose beginnings a thread holds */
	DYN_SHARED(b128, dynamic);
	__shared__ u32 later; /* sums that are left for it */
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
		u32 in[most][vec_words<es * v>];
		const auto ask = [&](int turn) {
#pragma unroll
			for (int t = 0; t < most; t++) {
				const int n = (turn + t) * step + thread * v;
				if (n < ROW::places)
					vec_load<es * v>(begin + n * es, in[t]);
			}
		};

		index_add_row_stage<ROW>(memory.shared, from);
		for (int n = thread; n < ROW::places; n += ROW::threads)
			memory.heads()[n] = ROW::end;
		if (thread == 0) {
			memory.put_end();
			later = 0;
		}
		strays += index_add_row_link(memory, list, [&] { ask(0); });
		async_wait_all();
		__syncthreads();
#pragma unroll 1
		for (int turn = 0; turn < turns; turn += most) {
			if (turn > 0)
				ask(turn);
#pragma unroll
			for (int t = 0; t < most; t++) {
				const int n = (turn + t) * step + thread * v;
				typename ROW::Compute sum[v];
				bool done[v];
				u32 head[v];
				if (n >= ROW::places)
					continue;
				summand<T>::unpack(in[t], sum);
				vec_load<4 * v>(memory.heads() + n, head);
				index_add_row_sum(memory, head, sum, done);
				index_add_row_store(memory, n, sum, done, to + n * es, &later);
			}
		}
		__syncthreads();
		if (later > 0)
			index_add_row_later(memory, later, begin, list, to);
		if constexpr (LOOP) {
			__syncthreads(); /* the next row goes where this one was */
			row += gridDim.x;
		}
	} while (LOOP && row < rows);
	if constexpr (ROW::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
