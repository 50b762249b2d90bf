/*
 * gather_backward_link.cuh: gather_backward_group.cuh, whose lists are chained by all threads at
 * once, and for several groups of rows.
 *
 * Threads link the k of each p in any order: the last that came stands first.  Then a thread puts
 * those of its p in order in registers, up to eight, and chains them; a warp that goes over all
 * indices does so for the few p that have more.
 */
#pragma once
#include "common/indices.cuh"
#include "common/links.cuh"
#include "common/scatter.cuh"
#include "common/scatter_group.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* TURNS: groups of rows of a block. */
template <typename T, typename I, int BOUNDS, int FEW, int MANY, int THREADS, bool SKEW, int V,
		  int TURNS>
struct ScatterLink : ScatterGroup<T, I, BOUNDS, FEW, MANY, THREADS, SKEW, V> {
	typedef ScatterGroup<T, I, BOUNDS, FEW, MANY, THREADS, SKEW, V> group;
	static constexpr int turns = TURNS;
	static constexpr int some = 8; /* links that are put in order in registers */
	/* Shared memory: the elements of all rows, by slots; for each slot the next of its chain; for
	 * each k the next of its links; for each p the first link, then the first slot, and one more
	 * for indices that name nothing; p that are left for warps. */
	static constexpr int slots = (group::loads * group::each + 7) / 8 * 8;
	static constexpr int next_at = slots * 16;
	static constexpr int links_at = next_at + slots * 2;
	static constexpr int heads_at = links_at + (MANY + 8) / 8 * 16;
	static constexpr int later_at = heads_at + (FEW + 4) / 4 * 16;
};

template <class GROUP>
struct ScatterLinkMemory {
	u8 *shared;

	DEVICE u16 *next() const
	{
		return reinterpret_cast<u16 *>(shared + GROUP::next_at);
	}
	DEVICE u16 *links() const
	{
		return reinterpret_cast<u16 *>(shared + GROUP::links_at);
	}
	DEVICE u32 *heads() const
	{
		return reinterpret_cast<u32 *>(shared + GROUP::heads_at);
	}
	DEVICE u16 *later() const
	{
		return reinterpret_cast<u16 *>(shared + GROUP::later_at);
	}
	/* Where the elements at k are; that behind the last k is the end. */
	static DEVICE u32 slot(u32 k)
	{
		return k == GROUP::many ? static_cast<u32>(GROUP::end) : k ^ (k >> 3 & 7);
	}
};

/* Links all k; returns how many name nothing. */
template <class GROUP, i64 STEP>
DEVICE u32 scatter_link_all(const ScatterLinkMemory<GROUP> &memory,
							const typename GROUP::Index *idx)
{
	constexpr int turns = (GROUP::many + GROUP::threads - 1) / GROUP::threads;
	constexpr int held = turns < 8 ? turns : 8;
	const int thread = static_cast<int>(threadIdx.x);
	u32 strays = 0;

#pragma unroll 1
	for (int first = 0; first < turns; first += held) {
		typename GROUP::Index index[held];
#pragma unroll
		for (int i = 0; i < held; i++) {
			const int k = (first + i) * GROUP::threads + thread;
			index[i] = k < GROUP::many ? idx[k * STEP] : 0;
		}
		if (first == 0) {
			for (int p = thread; p < GROUP::few + 1; p += GROUP::threads)
				memory.heads()[p] = GROUP::many;
			if (thread == 0)
				memory.links()[GROUP::many] = static_cast<u16>(GROUP::many);
			__syncthreads();
		}
#pragma unroll
		for (int i = 0; i < held; i++) {
			const int k = (first + i) * GROUP::threads + thread;
			const u32 place = indices_place<GROUP::bounds, GROUP::few, u32>(index[i]);
			if (k >= GROUP::many)
				continue;
			strays += place == indices_none<u32>;
			memory.links()[k] = static_cast<u16>(atomicExch(
				memory.heads() + (place < GROUP::few ? place : GROUP::few), static_cast<u32>(k)));
		}
	}
	return strays;
}

/* Chains the k that name p, by rising k; false: there are more than some. */
template <class GROUP>
DEVICE bool scatter_link_chain(const ScatterLinkMemory<GROUP> &memory, int p)
{
	constexpr int some = GROUP::some;
	typedef ScatterLinkMemory<GROUP> Memory;
	u32 k[some];

	k[0] = memory.heads()[p];
#pragma unroll
	for (int i = 1; i < some; i++)
		k[i] = memory.links()[k[i - 1]];
	if (memory.links()[k[some - 1]] != GROUP::many)
		return false;
	links_sort(k);
	memory.heads()[p] = Memory::slot(k[0]);
#pragma unroll
	for (int i = 0; i < some; i++)
		if (k[i] != GROUP::many)
			memory.next()[Memory::slot(k[i])] =
				static_cast<u16>(i + 1 < some ? Memory::slot(k[i + 1]) : GROUP::end);
	return true;
}

/* The same by a warp that goes over all indices, from the last to the first. */
template <class GROUP, i64 STEP>
DEVICE void scatter_link_scan(const ScatterLinkMemory<GROUP> &memory,
							  const typename GROUP::Index *idx, u32 p)
{
	typedef ScatterLinkMemory<GROUP> Memory;
	const u32 lane = threadIdx.x % 32;
	u32 first = GROUP::end;

#pragma unroll 2
	for (int knot = GROUP::knots - 1; knot >= 0; knot--) {
		const int k = knot * 32 + static_cast<int>(lane);
		const int at = k < GROUP::many ? k : 0;
		const bool mine = indices_place<GROUP::bounds, GROUP::few, u32>(idx[at * STEP]) == p;
		const u32 marks = __ballot_sync(0xffffffffu, mine && k < GROUP::many);
		const u32 above = marks >> lane >> 1;
		if (mine && k < GROUP::many)
			memory.next()[Memory::slot(static_cast<u32>(k))] = static_cast<u16>(
				above ? Memory::slot(static_cast<u32>(k + __ffs(static_cast<int>(above)))) : first);
		if (marks)
			first = Memory::slot(static_cast<u32>(knot * 32 + __ffs(static_cast<int>(marks)) - 1));
	}
	if (lane == 0)
		memory.heads()[p] = first;
}

/* Chains the list, which is linked.  All threads come, and meet before they follow chains. */
template <class GROUP, i64 STEP>
DEVICE void scatter_link_order(const ScatterLinkMemory<GROUP> &memory,
							   const typename GROUP::Index *idx, u32 *left)
{
	bool all = true;

#pragma unroll 1
	for (int p = static_cast<int>(threadIdx.x); p < GROUP::few; p += GROUP::threads)
		if (!scatter_link_chain(memory, p)) {
			memory.later()[atomicAdd(left, 1u)] = static_cast<u16>(p);
			all = false;
		}
	if (!__syncthreads_or(!all))
		return;
#pragma unroll 1
	for (u32 i = threadIdx.x / 32; i < *left; i += GROUP::threads / 32)
		scatter_link_scan<GROUP, STEP>(memory, idx, memory.later()[i]);
	__syncthreads();
}

/* Sums up all rows and stores them, `apart` elements from one to the next. */
template <class GROUP>
DEVICE void scatter_link_sums(const ScatterLinkMemory<GROUP> &memory, u8 *to, i64 apart, int rows)
{
	typedef typename GROUP::Compute Compute;
	constexpr int v = GROUP::vector, es = GROUP::element;

#pragma unroll 1
	for (int p = static_cast<int>(threadIdx.x) * v; p < GROUP::few; p += GROUP::threads * v) {
		Compute sum[GROUP::rows][v];
#pragma unroll
		for (int i = 0; i < v; i++) {
#pragma unroll
			for (int g = 0; g < GROUP::rows; g++)
				sum[g][i] = 0;
#pragma unroll 1
			for (u32 slot = memory.heads()[p + i]; slot != GROUP::end;) {
				u32 words[4];
				Compute one[GROUP::rows];
				vec_load<16>(memory.shared + slot * 16, words);
				slot = memory.next()[slot];
				summand<typename GROUP::Element>::unpack(words, one);
#pragma unroll
				for (int g = 0; g < GROUP::rows; g++)
					sum[g][i] += one[g];
			}
		}
#pragma unroll
		for (int g = 0; g < GROUP::rows; g++) {
			u32 words[vec_words<es * v>];
			summand<typename GROUP::Element>::pack(sum[g], words);
			if (g < rows)
				vec_store<es * v>(to + (g * apart + p) * es, words);
		}
	}
}

/* LISTS: how many lists there are, each for `outer` rows, which are numbered list by list. */
template <class GROUP, class PLACES, i64 LISTS, typename Number, bool LOOP>
__global__ __launch_bounds__(GROUP::threads, 1024 / GROUP::threads) void gather_backward_link(
	const void *ddst, const typename GROUP::Index *idx, void *dsrc, i64 outer, i64 items,
	u64 *report)
{
	constexpr Number apart = static_cast<Number>(LISTS);
	constexpr int es = GROUP::element, block = GROUP::rows * GROUP::turns;
	DYN_SHARED(b128, dynamic);
	__shared__ u32 later; /* p that are left for warps */
	const ScatterLinkMemory<GROUP> memory{reinterpret_cast<u8 *>(dynamic)};
	const int thread = static_cast<int>(threadIdx.x);
	u32 strays = 0;
	Number item = static_cast<Number>(blockIdx.x);

	do {
		const Number number = item / apart, list = item - number * apart, n = number * block;
		const i64 below = outer - static_cast<i64>(n);
		const int all = below < block ? static_cast<int>(below) : block;
		const typename GROUP::Index *const indices = idx + PLACES::idx(list);
		const u8 *from[GROUP::rows];
		u32 held[GROUP::rows][GROUP::load / 4];
		const auto ask = [&](int first) {
#pragma unroll
			for (int g = 0; g < GROUP::rows; g++) {
				const int row = first + g < all ? first + g : first;
				from[g] = static_cast<const u8 *>(ddst) +
						  PLACES::ddst((n + static_cast<Number>(row)) * apart + list) * es;
			}
			if (thread < GROUP::loads)
				scatter_group_load<GROUP>(from, thread, held);
		};

		ask(0);
		if (thread == 0)
			later = 0;
		const u32 seen = scatter_link_all<GROUP, PLACES::idx_step>(memory, indices);
		strays += n == 0 ? seen : 0;
		__syncthreads();
		scatter_link_order<GROUP, PLACES::idx_step>(memory, indices, &later);
#pragma unroll 1
		for (int first = 0; first < all; first += GROUP::rows) {
			if (thread < GROUP::loads)
				scatter_group_put<GROUP>(memory.shared, thread, held);
#pragma unroll 1
			for (int i = thread + GROUP::threads; i < GROUP::loads; i += GROUP::threads) {
				scatter_group_load<GROUP>(from, i, held);
				scatter_group_put<GROUP>(memory.shared, i, held);
			}
			__syncthreads();
			if (first + GROUP::rows < all)
				ask(first + GROUP::rows);
			scatter_link_sums<GROUP>(
				memory,
				static_cast<u8 *>(dsrc) +
					static_cast<i64>((n + static_cast<Number>(first)) * apart + list) *
						(GROUP::few * es),
				LISTS * GROUP::few, all - first);
			__syncthreads(); /* the next rows go where these were */
		}
		if constexpr (LOOP)
			item += static_cast<Number>(gridDim.x);
	} while (LOOP && item < static_cast<Number>(items));
	if constexpr (GROUP::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
