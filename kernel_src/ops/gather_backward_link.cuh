/*
 * gather_backward_link.cuh: gather_backward.cuh for lists that many rows share: the same sums in
 * the same order, but of several rows at a time.
 *
 * A block has one list of indices and as many of its rows as fill 16 bytes with an element of each,
 * several times.  It transposes them on their way to shared memory, so that one access there finds
 * the elements of all its rows at some k; a thread follows the chain of its p once for all of them.
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

/* FEW elements a row of dsrc, MANY of ddst.  SKEW: rows of ddst are not whole vectors.  V: elements
 * of dsrc that a thread stores at once. */
template <typename T, typename I, int BOUNDS, int FEW, int MANY, int THREADS, bool SKEW, int V>
struct ScatterLink {
	typedef T Element;
	typedef I Index;
	typedef typename summand<T>::Compute Compute;
	static constexpr int bounds = BOUNDS, few = FEW, many = MANY, threads = THREADS, vector = V;
	static constexpr bool skew = SKEW;
	/* A multiprocessor holds so few blocks that no register is spilled. */
	static constexpr int blocks = (SKEW ? 640 : V > 1 && THREADS < 128 ? 896 : 1024) / THREADS;
	static constexpr int element = static_cast<int>(sizeof(T));
	static constexpr int rows = 16 / element;
	/* Bytes and elements of a row that are loaded at once: what a thread holds of all rows leaves
	 * registers for many threads. */
	static constexpr int load = element == 2 ? 8 : 16, each = load / element;
	static constexpr int loads = (MANY + each - 1) / each;
	static constexpr int knots = (MANY + 31) / 32; /* indices, a warp at a time */
	static constexpr int some = 8;                 /* links that are put in order in registers */
	static constexpr u32 end = 0xffff;             /* of a chain */
	/* Shared memory: the elements of all rows, by slots; for each slot the next of its chain; for
	 * each k the next of its links; for each p the first link, then the first slot, and one more
	 * for indices that name nothing; p that are left for warps. */
	static constexpr int slots = (loads * each + 7) / 8 * 8;
	static constexpr int next_at = slots * 16;
	static constexpr int links_at = next_at + slots * 2;
	static constexpr int heads_at = links_at + (MANY + 8) / 8 * 16;
	static constexpr int later_at = heads_at + (FEW + 4) / 4 * 16;
	static_assert(FEW < 0x3fff && MANY < 0x3fff && THREADS % 32 == 0, "sizes");
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
		return k == GROUP::many ? GROUP::end : k ^ (k >> 3 & 7);
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

/* Adds the elements of all rows along the chain that begins at a slot. */
template <class GROUP, typename Compute>
DEVICE void scatter_link_follow(const ScatterLinkMemory<GROUP> &memory, u32 slot,
								Compute (&sum)[GROUP::rows])
{
#pragma unroll 1
	while (slot != GROUP::end) {
		u32 words[4];
		vec_load<16>(memory.shared + slot * 16, words);
		slot = memory.next()[slot];
		summand_add<typename GROUP::Element>(words, sum);
	}
}

/* The same along two chains at once. */
template <class GROUP, typename Compute>
DEVICE void scatter_link_follow(const ScatterLinkMemory<GROUP> &memory, u32 (&slot)[2],
								Compute (&sum)[2][GROUP::rows])
{
	bool any = slot[0] != GROUP::end || slot[1] != GROUP::end;

#pragma unroll 1
	while (any) {
		u32 words[2][4];
		bool there[2];
		any = false;
#pragma unroll
		for (int i = 0; i < 2; i++) {
			there[i] = slot[i] != GROUP::end;
			if (!there[i])
				continue;
			vec_load<16>(memory.shared + slot[i] * 16, words[i]);
			slot[i] = memory.next()[slot[i]];
			any = any || slot[i] != GROUP::end;
		}
#pragma unroll
		for (int i = 0; i < 2; i++)
			if (there[i])
				summand_add<typename GROUP::Element>(words[i], sum[i]);
	}
}

/* Sums up all rows and stores them, `apart` elements from one to the next.  A thread follows two
 * chains at a time that lie apart, or one after another those that it stores at once. */
template <class GROUP>
DEVICE void scatter_link_sums(const ScatterLinkMemory<GROUP> &memory, u8 *to, i64 apart, int rows)
{
	typedef typename GROUP::Compute Compute;
	constexpr int v = GROUP::vector, es = GROUP::element, step = GROUP::threads * v;
	constexpr bool two = v == 1 && GROUP::few > step;
	constexpr int pairs = two ? 2 : 1, sums = two ? 2 : v;

#pragma unroll 1
	for (int first = static_cast<int>(threadIdx.x) * v; first < GROUP::few; first += pairs * step) {
		Compute sum[sums][GROUP::rows] = {};
		if constexpr (two) {
			u32 slot[2] = {memory.heads()[first],
						   first + step < GROUP::few ? memory.heads()[first + step] : GROUP::end};
			scatter_link_follow(memory, slot, sum);
		} else {
#pragma unroll
			for (int i = 0; i < v; i++)
				scatter_link_follow(memory, memory.heads()[first + i], sum[i]);
		}
#pragma unroll
		for (int g = 0; g < GROUP::rows; g++) {
#pragma unroll
			for (int n = 0; n < pairs; n++) {
				const int p = first + n * step;
				Compute some[v];
				u32 out[vec_words<es * v>];
#pragma unroll
				for (int i = 0; i < v; i++)
					some[i] = sum[n + i][g];
				summand<typename GROUP::Element>::pack(some, out);
				if (g < rows && p < GROUP::few)
					vec_store<es * v>(to + (g * apart + p) * es, out);
			}
		}
	}
}

/* LISTS: how many lists there are, each for `outer` rows, which are numbered list by list.  turns:
 * groups of rows of a block. */
template <class GROUP, class PLACES, i64 LISTS, typename Number, bool LOOP>
__global__ __launch_bounds__(GROUP::threads, GROUP::blocks) void gather_backward_link(
	const void *ddst, const typename GROUP::Index *idx, void *dsrc, i64 outer, i64 items,
	u64 *report, u32 turns)
{
	constexpr Number apart = static_cast<Number>(LISTS);
	constexpr int es = GROUP::element;
	const int block = GROUP::rows * static_cast<int>(turns);
	DYN_SHARED(b128, dynamic);
	__shared__ u32 later; /* p that are left for warps */
	const ScatterLinkMemory<GROUP> memory{reinterpret_cast<u8 *>(dynamic)};
	const int thread = static_cast<int>(threadIdx.x);
	u32 strays = 0;
	Number item = static_cast<Number>(blockIdx.x);

	do {
		const Number number = item / apart, list = item - number * apart,
					 n = number * static_cast<Number>(block);
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
