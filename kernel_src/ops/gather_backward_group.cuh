/*
 * gather_backward_group.cuh: gather_backward.cuh for lists that many rows share: the same sums in
 * the same order, but of several rows at a time.
 *
 * A block has one list of indices and as many of its rows as fill 16 bytes with an element of each.
 * It transposes them on their way to shared memory, so that one access there finds the elements of
 * all its rows at some k; a thread follows the chain of its p once for all of them.
 *
 * All threads compare the indices, 32 to a warp; what is left for one warp to do in order is to tie
 * these knots together.  The loads of ddst are on their way meanwhile.
 */
#pragma once
#include "common/indices.cuh"
#include "common/scatter.cuh"
#include "common/scatter_group.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* Ties what each 32 indices name into knots: of those of one place, each is followed by the next
 * lane's.  Returns how many name nothing. */
template <class GROUP, i64 STEP>
DEVICE u32 scatter_group_knots(u8 *shared, const typename GROUP::Index *idx)
{
	u16 *const next = reinterpret_cast<u16 *>(shared + GROUP::next_at);
	u16 *const places = reinterpret_cast<u16 *>(shared + GROUP::places_at);
	u16 *const heads = reinterpret_cast<u16 *>(shared + GROUP::heads_at);
	const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
	u32 strays = 0;

#pragma unroll 4
	for (int k = thread; k < GROUP::knots * 32; k += GROUP::threads) {
		const u32 none = indices_none<u32>;
		const u32 named =
			k < GROUP::many ? indices_place<GROUP::bounds, GROUP::few, u32>(idx[k * STEP]) : none;
		const u32 equal = __match_any_sync(0xffffffffu, named);
		const u32 above = equal >> lane >> 1, below = equal & ((1u << lane) - 1u);
		const u32 ends = (below ? 0 : GROUP::opens) | (above ? 0 : GROUP::closes);
		places[k] = static_cast<u16>(named == none ? GROUP::place : named | ends);
		if (above)
			next[k] = static_cast<u16>(k + __ffs(static_cast<int>(above)));
		strays += named == none && k < GROUP::many;
	}
#pragma unroll 4
	for (int p = thread; p < GROUP::few; p += GROUP::threads)
		heads[p] = GROUP::end;
	return strays;
}

/* Ties the knots into chains, from the last to the first.  One warp comes. */
template <class GROUP>
DEVICE void scatter_group_chain(u8 *shared)
{
	u16 *const next = reinterpret_cast<u16 *>(shared + GROUP::next_at);
	const u16 *const places = reinterpret_cast<const u16 *>(shared + GROUP::places_at);
	u16 *const heads = reinterpret_cast<u16 *>(shared + GROUP::heads_at);
	const int lane = static_cast<int>(threadIdx.x);
	constexpr int ahead = 4;

#pragma unroll 1
	for (int knot = GROUP::knots - 1; knot >= 0; knot -= ahead) {
		u32 named[ahead];
#pragma unroll
		for (int i = 0; i < ahead; i++)
			named[i] = knot >= i ? places[(knot - i) * 32 + lane] : GROUP::place;
#pragma unroll
		for (int i = 0; i < ahead; i++) {
			const int k = (knot - i) * 32 + lane;
			u16 *const head = heads + (named[i] & GROUP::place);
			if (named[i] & GROUP::closes)
				next[k] = *head;
			__syncwarp();
			if (named[i] & GROUP::opens)
				*head = static_cast<u16>(k);
			__syncwarp();
		}
	}
}

/* Sums up all rows and stores them, `apart` elements from one to the next. */
template <class GROUP>
DEVICE void scatter_group_sums(const u8 *shared, u8 *to, i64 apart, int rows)
{
	typedef typename GROUP::Compute Compute;
	constexpr int v = GROUP::vector, es = GROUP::element;
	const u16 *const next = reinterpret_cast<const u16 *>(shared + GROUP::next_at);
	const u16 *const heads = reinterpret_cast<const u16 *>(shared + GROUP::heads_at);

#pragma unroll 1
	for (int p = static_cast<int>(threadIdx.x) * v; p < GROUP::few; p += GROUP::threads * v) {
		Compute sum[GROUP::rows][v];
#pragma unroll
		for (int i = 0; i < v; i++) {
#pragma unroll
			for (int g = 0; g < GROUP::rows; g++)
				sum[g][i] = 0;
#pragma unroll 1
			for (int k = heads[p + i]; k != GROUP::end;) {
				u32 words[4];
				Compute one[GROUP::rows];
				vec_load<16>(shared + scatter_group_at(k), words);
				k = next[k];
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
__global__ __launch_bounds__(GROUP::threads, 768 / GROUP::threads) void gather_backward_group(
	const void *ddst, const typename GROUP::Index *idx, void *dsrc, i64 outer, i64 items,
	u64 *report)
{
	constexpr Number apart = static_cast<Number>(LISTS);
	constexpr int es = GROUP::element;
	DYN_SHARED(b128, memory);
	u8 *const shared = reinterpret_cast<u8 *>(memory);
	const int thread = static_cast<int>(threadIdx.x);
	u32 strays = 0;
	Number item = static_cast<Number>(blockIdx.x);

	do {
		const Number group = item / apart, list = item - group * apart, n = group * GROUP::rows;
		const i64 left = outer - static_cast<i64>(n);
		const int rows = left < GROUP::rows ? static_cast<int>(left) : GROUP::rows;
		const Number row = n * apart + list;
		const u8 *from[GROUP::rows];
		u32 held[GROUP::rows][GROUP::load / 4];

#pragma unroll
		for (int g = 0; g < GROUP::rows; g++)
			from[g] = static_cast<const u8 *>(ddst) +
					  PLACES::ddst(row + static_cast<Number>(g < rows ? g : 0) * apart) * es;
		if (thread < GROUP::loads)
			scatter_group_load<GROUP>(from, thread, held);
		const u32 seen =
			scatter_group_knots<GROUP, PLACES::idx_step>(shared, idx + PLACES::idx(list));
		strays += n == 0 ? seen : 0;
		__syncthreads();
		if (thread < 32)
			scatter_group_chain<GROUP>(shared);
		if (thread < GROUP::loads)
			scatter_group_put<GROUP>(shared, thread, held);
#pragma unroll 1
		for (int i = thread + GROUP::threads; i < GROUP::loads; i += GROUP::threads) {
			scatter_group_load<GROUP>(from, i, held);
			scatter_group_put<GROUP>(shared, i, held);
		}
		__syncthreads();
		scatter_group_sums<GROUP>(
			shared, static_cast<u8 *>(dsrc) + static_cast<i64>(row) * (GROUP::few * es),
			LISTS * GROUP::few, rows);
		if constexpr (LOOP) {
			__syncthreads(); /* the next rows go where these were */
			item += static_cast<Number>(gridDim.x);
		}
	} while (LOOP && item < static_cast<Number>(items));
	if constexpr (GROUP::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
