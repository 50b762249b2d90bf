/*
 * topk_short.cuh: the first k of short rows in order, with their places, in registers: a row lies
 * in a part of a warp.
 *
 *   list     each lane keeps the first of its elements, and lanes merge their lists
 *   network  all elements are sorted
 *
 * An element is one word of 32 bits: its key, and below it its place.  Elements of 32 bits lose so
 * many of their key's last bits.  Where that may matter, a warp makes its lists of words of 64 bits
 * once more; a network sorts twice: by the bits that would be lost, then by the others.
 */
#pragma once
#include "common/index.cuh"
#include "common/network.cuh"
#include "common/order.cuh"
#include "common/vec.cuh"

/* Bits that a place in a row takes. */
template <int COLUMNS>
constexpr int short_bits = COLUMNS > 1 ? 1 + short_bits<(COLUMNS + 1) / 2> : 0;
template <>
constexpr int short_bits<1> = 0;

/* A row in LANES lanes: each has HELD vectors of V elements. */
template <typename T, int V, int LANES, bool GREATEST, int COLUMNS, i64 STEP>
struct ShortRow {
	static_assert(COLUMNS % V == 0 && (V == 1 || STEP == 1), "whole vectors");
	static_assert(sizeof(T) == 2 || sizeof(T) == 4, "words of 32 bits");
	static constexpr int vectors = COLUMNS / V;
	static constexpr int held = (vectors + LANES - 1) / LANES;
	static constexpr int each = held * V;
	static constexpr int words = vec_words<V *static_cast<int>(sizeof(T))>;
	static constexpr bool exact = sizeof(T) == 2;
	static constexpr int bits = exact ? 16 : short_bits<COLUMNS>;
	static constexpr u32 places = (1u << bits) - 1;

	const T *x;
	int lane;
	u32 word[held][words];

	DEVICE bool there(int h) const
	{
		return (h + 1) * LANES <= vectors || h * LANES + lane < vectors;
	}
	DEVICE int column(int h) const
	{
		return (h * LANES + lane) * V;
	}
	DEVICE void load()
	{
#pragma unroll
		for (int h = 0; h < held; h++)
			if (there(h))
				vec_load<V * sizeof(T)>(x + column(h) * STEP, word[h]);
	}
	/* The key of element v of vector h; of 16 bits. */
	DEVICE u32 key(int h, int v) const
	{
		const u32 bits = sizeof(T) == 4 ? word[h][v] : word[h][v / 2] >> v % 2 * 16 & 0xffff;
		return Order<T>::key(bits, GREATEST);
	}
	/* Entries; ones where there is no element.  LOW: of the bits that these would lose. */
	template <bool LOW = false, int ROOM>
	DEVICE void entries(u32 (&out)[ROOM]) const
	{
		static_assert(ROOM >= each, "room");
#pragma unroll
		for (int h = 0; h < held; h++) {
			const u32 first = static_cast<u32>(column(h));
			if constexpr (sizeof(T) == 2 && V > 1) {
#pragma unroll
				for (int v = 0; v < V; v += 2) {
					const u32 keys = order_pair<T>(word[h][v / 2], GREATEST);
					const u32 columns = (first + v) * 0x10001u + 0x10000u;
					out[h * V + v] = __byte_perm(keys, columns, 0x1054);
					out[h * V + v + 1] = __byte_perm(keys, columns, 0x3276);
				}
			} else {
#pragma unroll
				for (int v = 0; v < V; v++) {
					const u32 full = LOW     ? (key(h, v) & places) << bits
									 : exact ? key(h, v) << 16
											 : key(h, v) & ~places;
					out[h * V + v] = full | (first + v);
				}
			}
#pragma unroll
			for (int v = 0; v < V; v++)
				out[h * V + v] = there(h) ? out[h * V + v] : ~0u;
		}
#pragma unroll
		for (int i = each; i < ROOM; i++)
			out[i] = ~0u;
	}
	/* Entries with the whole key. */
	DEVICE void entries(u64 (&out)[each]) const
	{
#pragma unroll
		for (int h = 0; h < held; h++)
#pragma unroll
			for (int v = 0; v < V; v++)
				out[h * V + v] =
					there(h) ? static_cast<u64>(key(h, v)) << 32 | static_cast<u32>(column(h) + v)
							 : ~static_cast<u64>(0);
	}
};

/* Writes results `number` and behind, as many as have entries. */
template <typename T, bool GREATEST, int COUNT, i64 X_STEP>
DEVICE void short_write(const T *x, T *values, i64 *indices, i64 at, const u32 (&entries)[COUNT],
						u32 places)
{
	u32 bits[COUNT];
	u32 words[4] = {};

#pragma unroll
	for (int i = 0; i < COUNT; i++) {
		const u32 column = entries[i] & places;
		const u32 key = entries[i] >> 16;
		/* An entry tells of 0 and NaN no more than that. */
		if (sizeof(T) == 2 && key != Order<T>::key(0, GREATEST) &&
			key != Order<T>::key(Order<T>::sign - 1, GREATEST))
			bits[i] = Order<T>::value(key, GREATEST);
		else
			vec_load<sizeof(T)>(x + static_cast<i64>(column) * X_STEP, bits + i);
		words[sizeof(T) == 2 ? 0 : i] |= sizeof(T) == 2 ? bits[i] << i % 2 * 16 : bits[i];
	}
	vec_store<COUNT * sizeof(T)>(values + at, words);
	if (indices) {
		u32 pair[4] = {};
#pragma unroll
		for (int i = 0; i < COUNT; i++)
			pair[2 * i] = entries[i] & places;
		vec_store<COUNT * 8>(indices + at, pair);
	}
}

/* ---- Kernels: DIMS, X and Y number the rows, as in index.cuh; OUT: results stored at once ---- */

/* K: a power of two, FIRST or more. */
template <typename T, int V, int LANES, int THREADS, int K, bool GREATEST, int COLUMNS, int FIRST,
		  int OUT, i64 X_STEP, i64 Y_STEP, class DIMS, class X, class Y, typename Index>
__global__ LAUNCH_BOUNDS(THREADS) void topk_list(const T *x, T *values, i64 *indices, i64 rows)
{
	typedef ShortRow<T, V, LANES, GREATEST, COLUMNS, X_STEP> Row;
	static_assert(FIRST <= K && FIRST % OUT == 0 && (OUT == 1 || Y_STEP == 1), "results");
	constexpr int at_once = THREADS / LANES;
	const int lane = static_cast<int>(threadIdx.x) % LANES;

	for (i64 begin_row = static_cast<i64>(blockIdx.x) * at_once; begin_row < rows;
		 begin_row += static_cast<i64>(gridDim.x) * at_once) {
		const i64 here = begin_row + static_cast<int>(threadIdx.x) / LANES;
		const i64 number = here < rows ? here : rows - 1;
		Row row = {x + index_offset<i64>(static_cast<Index>(number), DIMS{}, X{}), lane};
		u32 list[K];

		row.load();
		{
			u32 entries[Row::each];
			row.entries(entries);
			network_list(entries, list);
			network_list_lanes<LANES>(list);
			if constexpr (!Row::exact) {
				/* Two entries may be in the wrong order where their keys begin alike. */
				const u32 last = list[FIRST - 1];
				bool unsure = false;
#pragma unroll
				for (int i = 1; i < (FIRST < K ? FIRST + 1 : K); i++)
					unsure |= (list[i] ^ list[i - 1]) <= Row::places;
				if constexpr (FIRST == K) {
					u32 nearest = ~0u;
#pragma unroll
					for (int i = 0; i < Row::each; i++) {
						const u32 beyond = entries[i] - (last + 1);
						nearest = beyond < nearest ? beyond : nearest;
					}
					unsure |= nearest < (last | Row::places) - last;
				}
				if (__any_sync(0xffffffffu, unsure)) {
					u64 whole[Row::each], wide[K];
					row.entries(whole);
					network_list(whole, wide);
					network_list_lanes<LANES>(wide);
#pragma unroll
					for (int i = 0; i < K; i++)
						list[i] = static_cast<u32>(wide[i]);
				}
			}
		}
		if (here >= rows)
			continue;
		const i64 to = index_offset<i64>(static_cast<Index>(number), DIMS{}, Y{});
#pragma unroll
		for (int begin = 0; begin < FIRST; begin += OUT * LANES) {
			u32 mine[OUT];
			const int first = begin + lane * OUT;
#pragma unroll
			for (int other = 0; other < LANES; other++)
#pragma unroll
				for (int i = 0; i < OUT; i++)
					if (begin + other * OUT + i < K && (other == 0 || lane == other))
						mine[i] = list[begin + other * OUT + i < K ? begin + other * OUT + i : 0];
			if (begin + OUT * LANES <= FIRST || first < FIRST)
				short_write<T, GREATEST, OUT, X_STEP>(row.x, values, indices, to + first * Y_STEP,
													  mine, Row::places);
		}
	}
}

/* Words of shared memory of a row of SORTED elements. */
template <typename T>
constexpr int short_areas = sizeof(T) == 4 ? 2 : 1;

/* EACH: entries of a lane; LANES * EACH are COLUMNS or more. */
template <typename T, int V, int LANES, int EACH, int THREADS, bool GREATEST, int COLUMNS,
		  int FIRST, int OUT, i64 X_STEP, i64 Y_STEP, class DIMS, class X, class Y, typename Index>
__global__ __launch_bounds__(THREADS, 512 / THREADS) void topk_network(const T *x, T *values,
																	   i64 *indices, i64 rows)
{
	typedef ShortRow<T, V, LANES, GREATEST, COLUMNS, X_STEP> Row;
	constexpr int sorted = LANES * EACH;
	static_assert(sorted >= COLUMNS && FIRST % OUT == 0 && (OUT == 1 || Y_STEP == 1), "results");
	alignas(16) __shared__ u32 area[THREADS / LANES * short_areas<T> * sorted];
	const int lane = static_cast<int>(threadIdx.x) % LANES;
	const int row_here = static_cast<int>(threadIdx.x) / LANES;
	u32 *const places = area + row_here * (short_areas<T> * sorted), *const raw = places + sorted;

	/* Where the entry of a rank lies: lanes that write theirs, or read one rank each, find it in
	 * different banks. */
	const auto at = [](int rank) { return rank ^ (rank / 32 & 31); };

	for (i64 begin_row = static_cast<i64>(blockIdx.x) * (THREADS / LANES); begin_row < rows;
		 begin_row += static_cast<i64>(gridDim.x) * (THREADS / LANES)) {
		const i64 here = begin_row + row_here;
		const i64 number = here < rows ? here : rows - 1;
		Row row = {x + index_offset<i64>(static_cast<Index>(number), DIMS{}, X{}), lane};
		u32 entries[EACH];

		row.load();
		if constexpr (Row::exact) {
			row.entries(entries);
			network_sort_lanes<LANES>(entries, lane);
		} else {
			constexpr u32 all = Row::places;
#pragma unroll
			for (int h = 0; h < Row::held; h++)
				if (row.there(h))
					vec_store<V * sizeof(T)>(raw + row.column(h), row.word[h]);
			row.template entries<true>(entries);
#pragma unroll 1
			for (int turn = 0;; turn++) {
				network_sort_lanes<LANES>(entries, lane);
				if (turn == 1)
					break;
				__syncwarp();
#pragma unroll
				for (int i = 0; i < EACH; i++) {
					const int rank = lane * EACH + i;
					const u32 place = entries[i] & all;
					places[at(rank)] = place;
					/* By the others. */
					if (rank < COLUMNS)
						entries[i] =
							(Order<T>::key(raw[place], GREATEST) & ~all) | static_cast<u32>(rank);
				}
				__syncwarp();
			}
#pragma unroll
			for (int i = 0; i < EACH; i++)
				entries[i] = places[at(static_cast<int>(entries[i] & all) % sorted)];
			__syncwarp();
		}
#pragma unroll
		for (int i = 0; i < EACH; i++)
			places[at(lane * EACH + i)] = entries[i];
		__syncwarp();
		const i64 to = index_offset<i64>(static_cast<Index>(number), DIMS{}, Y{});
#pragma unroll 4
		for (int first = lane * OUT; first < FIRST && here < rows; first += LANES * OUT) {
			u32 mine[OUT];
#pragma unroll
			for (int i = 0; i < OUT; i++)
				mine[i] = places[at(first + i)];
			if constexpr (Row::exact) {
				short_write<T, GREATEST, OUT, X_STEP>(row.x, values, indices, to + first * Y_STEP,
													  mine, Row::places);
			} else {
				u32 words[4] = {}, pair[4] = {};
#pragma unroll
				for (int i = 0; i < OUT; i++) {
					words[i] = raw[mine[i]];
					pair[2 * i] = mine[i];
				}
				vec_store<OUT * sizeof(T)>(values + to + first * Y_STEP, words);
				if (indices)
					vec_store<OUT * 8>(indices + to + first * Y_STEP, pair);
			}
		}
		__syncwarp();
	}
}
