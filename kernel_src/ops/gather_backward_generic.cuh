/*
 * gather_backward_generic.cuh: dsrc[i, j, p] = the sum of ddst[i, j, k] over all k with idx[j, k] =
 * p, one after another by rising k, for sizes and strides that are known when the kernel is
 * launched.  Blocks, chains and shared memory are those of gather_backward.cuh.
 */
#pragma once
#include "common/async.cuh"
#include "common/indices.cuh"
#include "common/space.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

#define SCATTER_THREADS 512 /* at most */
#define SCATTER_ROWS 32     /* at most */

enum {
	SCATTER_LOADS = 1, /* rows of ddst are aligned to 16 bytes, and whole such */
	SCATTER_WORDS = 2, /* rows of dsrc are aligned to words, and whole ones */
};

/* A block has a list of `count` indices at a time, and its part of dsrc from `first` on. */
template <typename T, typename I>
struct ScatterAny {
	typedef typename summand<T>::Compute Compute;
	static constexpr int es = static_cast<int>(sizeof(T));
	static constexpr u16 none = 0xffff; /* the end of a chain */

	u8 *shared;
	const u8 *ddst;
	const I *idx;
	u8 *dsrc;
	i64 few, first;
	i64 ddst_step, idx_step;
	int chunk, tile, rows; /* of all blocks */
	bool tiles;
	u32 bounds, flags;

	static DEVICE int up(int bytes)
	{
		return (bytes + 15) / 16 * 16;
	}
	DEVICE Compute *sums() const
	{
		return reinterpret_cast<Compute *>(shared);
	}
	DEVICE u8 *values(int row) const
	{
		return shared + (tiles ? up(chunk * static_cast<int>(sizeof(Compute))) : 0) +
			   row * up(tile * es);
	}
	DEVICE u16 *heads() const
	{
		return reinterpret_cast<u16 *>(values(rows));
	}
	DEVICE u16 *next() const
	{
		return heads() + chunk;
	}
	DEVICE int end() const
	{
		const i64 left = few - first;
		return left < chunk ? static_cast<int>(left) : chunk;
	}

	/* scatter_link in gather_backward.cuh does the same. */
	DEVICE u32 link(const I *list, int count) const
	{
		const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
		u32 strays = 0;

		__syncthreads();
#pragma unroll 1
		for (int i = thread; i < chunk; i += threads)
			heads()[i] = none;
		__syncthreads();
#pragma unroll 1
		for (int k = (count - 1) / 32 * 32 + thread; k >= thread && thread < 32; k -= 32) {
			const u64 lost = indices_none<u64>;
			const u64 named =
				k < count ? indices_place_of<u64>(list[k * idx_step], static_cast<u64>(few), bounds)
						  : lost;
			const u64 within = named - static_cast<u64>(first);
			const bool here = within < static_cast<u64>(chunk) && named != lost;
			const u32 key = here ? static_cast<u32>(within) : 0xffffffffu;
			const u32 equal = __match_any_sync(0xffffffffu, key);
			const u32 above = equal >> thread >> 1;
			u16 *const head = heads() + (here ? key : 0);
			const int then = above ? k + __ffs(static_cast<int>(above)) : *head;
			strays += named == lost && k < count;
			__syncwarp();
			if (here)
				next()[k] = static_cast<u16>(then);
			if (here && (equal & ((1u << thread) - 1u)) == 0)
				*head = static_cast<u16>(k);
			__syncwarp();
		}
		__syncthreads();
		return strays;
	}

	/* Elements `from` on of `count` rows, which begin at starts, to shared memory; each row has
	 * `length` of them. */
	DEVICE void stage(const i64 *starts, int count, i64 from, int length, Divisor<u32> units) const
	{
		const bool wide = flags & SCATTER_LOADS;
		const int each = wide ? 16 / es : 1;

#pragma unroll 1
		for (u32 i = threadIdx.x; i < static_cast<u32>(count) * units.size; i += blockDim.x) {
			const int row = static_cast<int>(units.quotient(i));
			const int k = static_cast<int>(i - static_cast<u32>(row) * units.size) * each;
			const u8 *const at = ddst + (starts[row] + (from + k) * ddst_step) * es;
			if (k >= length)
				continue;
			if (wide)
				async_copy16(values(row) + k * es, at);
			else
				vec_copy<es>(at, values(row) + k * es);
		}
		async_wait_all();
		__syncthreads();
	}

	DEVICE void add(const u8 *row, int p, Compute &sum) const
	{
#pragma unroll 1
		for (int k = heads()[p]; k != none; k = next()[k])
			sum += summand<T>::get(row + k * es);
	}

	DEVICE void store(u8 *to, Compute value) const
	{
		u32 words[vec_words<es>];
		const Compute one[1] = {value};
		summand<T>::pack(one, words);
		vec_store<es>(to, words);
	}

	/* sum_of(i) for the elements from `to` on: one, or a word of them. */
	template <typename Sum>
	DEVICE void store_some(u8 *to, int v, Sum sum_of) const
	{
		if constexpr (es < 4) {
			if (v > 1) {
				u32 word = 0;
#pragma unroll 1
				for (int i = 0; i < 4 / es; i++) {
					u32 part[1];
					const Compute one[1] = {sum_of(i)};
					summand<T>::pack(one, part);
					word |= part[0] << i * es * 8;
				}
				vec_store<4>(to, &word);
				return;
			}
		}
		store(to, sum_of(0));
	}

	/* One list for `count` rows of dsrc, the first of them number `row`, `apart` from another. */
	DEVICE u32 whole(const i64 *starts, int count, i64 row, i64 apart, const I *list, int many,
					 Divisor<u32> units, Divisor<u32> groups) const
	{
		const int v = flags & SCATTER_WORDS ? 4 / es : 1;
		const u32 strays = link(list, many);

		stage(starts, count, 0, many, units);
#pragma unroll 1
		for (u32 i = threadIdx.x; i < static_cast<u32>(count) * groups.size; i += blockDim.x) {
			const int s = static_cast<int>(groups.quotient(i));
			const int p = static_cast<int>(i - static_cast<u32>(s) * groups.size) * v;
			if (p >= end())
				continue;
			const u8 *const staged = values(s);
			store_some(dsrc + ((row + s * apart) * few + first + p) * es, v, [=](int k) {
				Compute sum = 0;
				add(staged, p + k, sum);
				return sum;
			});
		}
		return strays;
	}

	/* One row, whose list is chained tile by tile. */
	DEVICE u32 by_tiles(const i64 *starts, i64 row, const I *list, i64 many,
						Divisor<u32> units) const
	{
		const int last = end();
		u32 strays = 0;

#pragma unroll 1
		for (i64 k = 0; k < many; k += tile) {
			const int count = many - k < tile ? static_cast<int>(many - k) : tile;
			strays += link(list + k * idx_step, count);
			stage(starts, 1, k, count, units);
#pragma unroll 1
			for (int p = static_cast<int>(threadIdx.x); p < last;
				 p += static_cast<int>(blockDim.x)) {
				Compute sum = k == 0 ? 0 : sums()[p];
				add(values(0), p, sum);
				sums()[p] = sum;
			}
		}
#pragma unroll 1
		for (int p = static_cast<int>(threadIdx.x); p < last; p += static_cast<int>(blockDim.x))
			store(dsrc + (row * few + first + p) * es, sums()[p]);
		return strays;
	}
};

/*
 * A list is for `outer` rows, which are numbered list by list; items are blocks' work: chunks of
 * `rows` rows of a list.  units: what is staged at once of a row (a tile); groups: what is stored
 * at once of a chunk.
 */
template <typename T, typename I>
__global__ __launch_bounds__(SCATTER_THREADS) void gather_backward_generic(
	const void *ddst, const I *idx, void *dsrc, u64 *report, i64 outer, u64 items, i64 few,
	i64 many, DIVIDE_PARAMS(u64, chunks), DIVIDE_PARAMS(u64, lists), DIVIDE_PARAMS(u32, units),
	DIVIDE_PARAMS(u32, groups), i32 chunk, i32 tile, i32 rows, i64 ddst_step, i64 idx_step,
	u32 bounds, u32 flags, SPACE_SIZES(u64), SPACE_STRIDES(of_ddst), SPACE_STRIDES(of_idx))
{
	DYN_SHARED(b128, shared);
	__shared__ i64 starts[SCATTER_ROWS];
	const Divisor<u64> by_chunks = DIVIDE_MADE(u64, chunks), by_lists = DIVIDE_MADE(u64, lists);
	const Divisor<u32> by_units = DIVIDE_MADE(u32, units), by_groups = DIVIDE_MADE(u32, groups);
	const Space<2, u64> space{SPACE_SIZES_MADE(u64),
							  {SPACE_STRIDES_MADE(of_ddst), SPACE_STRIDES_MADE(of_idx)}};
	ScatterAny<T, I> any{reinterpret_cast<u8 *>(shared),
						 static_cast<const u8 *>(ddst),
						 idx,
						 static_cast<u8 *>(dsrc),
						 few,
						 0,
						 ddst_step,
						 idx_step,
						 chunk,
						 tile,
						 rows,
						 many > tile,
						 bounds,
						 flags};
	u32 strays = 0;

#pragma unroll 1
	for (u64 item = blockIdx.x; item < items; item += gridDim.x) {
		const u64 number = by_chunks.quotient(item), group = by_lists.quotient(number);
		const u64 list = number - group * lists_size;
		const i64 n = static_cast<i64>(group) * rows, left = outer - n;
		const i64 row = n * static_cast<i64>(lists_size) + static_cast<i64>(list);
		const i64 apart = static_cast<i64>(lists_size);
		const int count = left < rows ? static_cast<int>(left) : rows;
		i64 at[2];
		u32 seen;

		any.first = static_cast<i64>(item - number * chunks_size) * chunk;
		__syncthreads(); /* those of the item before are not used any more */
		if (static_cast<int>(threadIdx.x) < count) {
			space.at(static_cast<u64>(row + static_cast<i64>(threadIdx.x) * apart), at);
			starts[threadIdx.x] = at[0];
		}
		space.at(list, at);
		if (any.tiles)
			seen = any.by_tiles(starts, row, idx + at[1], many, by_units);
		else
			seen = any.whole(starts, count, row, apart, idx + at[1], static_cast<int>(many),
							 by_units, by_groups);
		strays += n == 0 && any.first == 0 ? seen : 0;
	}
	if (bounds == INDICES_CHECK && report)
		indices_report(report, strays);
}
