/*
 * rope_kv_store.cuh: rope of q and k, and k and v put into the slots of paged caches, in one
 * launch.  A token's heads are those of q, k and v, in this order; each thread has an item of one
 * head, as in rope.  A token whose position is out of range has zeros in q_out, and is not stored.
 */
#pragma once
#include "common/kv_cache.cuh"
#include "common/rope.cuh"

/* k_out is v here, which is read. */
template <bool INTERLEAVED, int V, int W, int TABLE_W, typename T, typename Table, typename To,
		  typename Index, class Sizes, class Blocks>
DEVICE u32 rope_kv_item(const RopeCall<T, Table, Index> &call, const KvCaches<To> &caches,
						const Sizes &sizes, const Blocks &blocks, Index number, int position_bytes,
						int slot_bytes, u32 bounds)
{
	typedef typename element<T>::compute Compute;
	constexpr int PER = INTERLEAVED ? 1 : 2, ANGLES = INTERLEAVED ? V / 2 : V;
	constexpr int STORE_W = W / static_cast<int>(sizeof(T)) * static_cast<int>(sizeof(To));
	RopeElements<W, V, T> raw[PER];
	RopeElements<TABLE_W, ANGLES, Table> raw_c, raw_s;
	Compute x[PER][V], c[ANGLES], s[ANGLES];
	Index all, head, item, row, column[PER], left[PER];
	bool stray;

	sizes.split(number, all, head, item);
	const Index batch = call.tokens.quotient(all), token = all - batch * call.tokens.size;
	const bool query = head < sizes.q_heads, value = head >= (sizes.q_heads + sizes.heads) / 2;
	const bool rotated = sizes.dim == 2 * sizes.half || item < sizes.rotated;
	const Index kv_head = head - (value ? (sizes.q_heads + sizes.heads) / 2 : sizes.q_heads);
	const T *const from = query   ? call.q + call.q_is.at(batch, token, head)
						  : value ? call.k_out + call.k_out_is.at(batch, token, kv_head)
								  : call.k + call.k_is.at(batch, token, kv_head);
	/* All that is read comes at once, but for the angles, whose place the position says. */
	const bool named = call.find(batch, token, position_bytes, bounds, row);
	const i64 slot = query ? -1 : caches.named(batch, token, slot_bytes);
	const KvCache<To> cache = caches.of(value);
	const float scale = query || sizeof(To) > 1 ? 1.0f : cache.scale_of(static_cast<i64>(kv_head));
	rope_columns<V>(sizes, item, rotated, column, left);
#pragma unroll
	for (int p = 0; p < PER; p++)
		raw[p].fetch(from + column[p], left[p]);
	const bool found = caches.has(slot, stray);
	const u32 strays =
		(!named && head == 0 && item == 0) + (stray && head == sizes.q_heads && item == 0);
	if (!query && !(found && named))
		return strays;
	/* Before the angles come, so that what it is made of needs no registers beside them. */
	void *const to =
		query ? static_cast<void *>(call.q_out + call.q_out_is.at(batch, token, head))
			  : blocks.row(cache, static_cast<u64>(slot)) + static_cast<i64>(kv_head) * cache.head;
	const auto open = [&]() {
#pragma unroll
		for (int p = 0; p < PER; p++)
			raw[p].open(x[p]);
	};
	const auto put = [&]() {
#pragma unroll
		for (int p = 0; p < PER; p++) {
			if (query) {
				rope_store<W>(static_cast<T *>(to) + column[p], left[p], x[p]);
				continue;
			}
			if constexpr (sizeof(To) == 1)
				QuantizeScale<T>(scale).divide(x[p]);
			rope_store<STORE_W>(static_cast<To *>(to) + column[p], left[p], x[p]);
		}
	};
	/* Each way by itself: elements that are no numbers yet take half the registers. */
	if (!named) {
#pragma unroll
		for (int p = 0; p < PER; p++) {
#pragma unroll
			for (int v = 0; v < V; v++)
				x[p][v] = 0;
		}
		put();
		return strays;
	}
	if (rotated && !value) {
		call.angles(batch, row, static_cast<Index>(item * ANGLES), raw_c, raw_s);
		open();
		raw_c.open(c);
		raw_s.open(s);
		rope_rotate<INTERLEAVED>(x, c, s);
		put();
		return strays;
	}
	if constexpr (sizeof(To) == sizeof(T)) {
#pragma unroll
		for (int p = 0; p < PER; p++)
			raw[p].store(static_cast<T *>(to) + column[p], left[p]);
	} else {
		open();
		put();
	}
	return strays;
}

/* ---- Kernels ---- */

template <typename T, typename Table, bool INTERLEAVED, int V, int W, int TABLE_W, typename To,
		  i64 HALF, i64 DIM, i64 Q_HEADS, i64 KV_HEADS, i64 ROTATED, i64 ITEMS, i64 BLOCK,
		  int THREADS, int POSITION_BYTES, int SLOT_BYTES, u32 BOUNDS, typename Index, bool LOOP>
__global__ LAUNCH_BOUNDS(THREADS) void rope_kv_store(ROPE_PARAMS, KV_CACHE_PARAMS)
{
	const RopeCall<T, Table, Index> call ROPE_CALL;
	const KvCaches<To> caches KV_CACHES;
	const RopeSizes<HALF, DIM, Q_HEADS, 2 * KV_HEADS, ROTATED, ITEMS, 1, Index> sizes;
	const KvBlocks<BLOCK, Index> blocks;
	Index number = static_cast<Index>(blockIdx.x) * THREADS + threadIdx.x;
	u32 strays = 0;

	do {
		if (number < static_cast<Index>(work))
			strays += rope_kv_item<INTERLEAVED, V, W, TABLE_W>(call, caches, sizes, blocks, number,
															   POSITION_BYTES, SLOT_BYTES, BOUNDS);
		number += static_cast<Index>(gridDim.x) * THREADS;
	} while (LOOP && number - threadIdx.x < static_cast<Index>(work));
	if constexpr (BOUNDS == INDICES_CHECK)
		indices_report(report, strays);
}

/* A pair of elements x at columns of a head that begins at an address.  to: 0 for T, else the place
 * of an 8-bit type among f8e4m3, f8e5m2 and i8, from 1 on. */
template <typename T, typename Compute>
DEVICE void rope_kv_put(u8 *head, u64 column, u32 to, Compute x)
{
	if (to == 0)
		element_store(reinterpret_cast<T *>(head) + column, x);
	else if (to == 1)
		element_store(reinterpret_cast<sat<f8e4m3> *>(head) + column, x);
	else if (to == 2)
		element_store(reinterpret_cast<sat<f8e5m2> *>(head) + column, x);
	else
		head[column] = static_cast<u8>(quantize_integer(static_cast<float>(x)));
}

#define ROPE_KV_PAIRS 4 /* of a thread, at most; the planner has it, too */

/* Like rope_kv_item(), with items of two elements, of which a thread has `each`, as many apart as
 * sizes has items, and caches that are counted in bytes. */
template <typename T, typename Table>
DEVICE u32 rope_kv_pairs(const RopeCall<T, Table, u64> &call, const KvCaches<u8> &caches,
						 const RopeAnySizes<u64> &sizes, const KvBlocksAny &blocks, u64 number,
						 u32 bytes, u32 bounds, u32 interleaved, u32 to, u32 each)
{
	typedef typename element<T>::compute Compute;
	constexpr int pairs = ROPE_KV_PAIRS;
	u64 all, head, item, row, first[pairs], second[pairs];
	Compute x[pairs][1][2];
	bool stray;

	sizes.split(number, all, head, item);
	const u64 batch = call.tokens.quotient(all), token = all - batch * call.tokens.size;
	const bool named = call.find(batch, token, static_cast<int>(bytes & 0xffff), bounds, row);
	const u64 values = (sizes.q_heads + sizes.heads) / 2;
	const bool query = head < sizes.q_heads, value = head >= values;
	const i64 slot = query ? -1
						   : caches.named(static_cast<i64>(batch), static_cast<i64>(token),
										  static_cast<int>(bytes >> 16));
	const bool found = caches.has(slot, stray);
	const u32 strays =
		(!named && head == 0 && item == 0) + (stray && head == sizes.q_heads && item == 0);
	if (!query && !(found && named))
		return strays;
	const u64 kv_head = head - (value ? values : sizes.q_heads);
	const T *const from = query   ? call.q + call.q_is.at(batch, token, head)
						  : value ? call.k_out + call.k_out_is.at(batch, token, kv_head)
								  : call.k + call.k_is.at(batch, token, kv_head);
	const bool turns = named && !value;
	const Table *const cos = call.cos + (turns ? call.cos_is.at(batch, row) : 0);
	const Table *const sin = call.sin + (turns ? call.sin_is.at(batch, row) : 0);
#pragma unroll
	for (int i = 0; i < pairs; i++) {
		const u64 here = item + static_cast<u64>(i) * sizes.items.size;
		const bool rotated = here < sizes.half;
		first[i] = interleaved ? 2 * here : rotated ? here : here + sizes.half;
		second[i] = interleaved ? first[i] + 1 : rotated ? here + sizes.half : sizes.dim;
		if (i >= static_cast<int>(each))
			continue;
		x[i][0][0] = element_load<Compute>(from + first[i]);
		x[i][0][1] = second[i] < sizes.dim ? element_load<Compute>(from + second[i]) : Compute(0);
	}
#pragma unroll
	for (int i = 0; i < pairs; i++) {
		const u64 here = item + static_cast<u64>(i) * sizes.items.size;
		if (i >= static_cast<int>(each) || here >= sizes.half || !turns)
			continue;
		const Compute c[1] = {element_load<Compute>(cos + here)};
		const Compute s[1] = {element_load<Compute>(sin + here)};
		rope_rotate<true>(x[i], c, s);
	}
	const KvCache<u8> cache = caches.of(value);
	u8 *out = reinterpret_cast<u8 *>(call.q_out + call.q_out_is.at(batch, token, head));
	float scale = 1;
	if (!query) {
		out = blocks.row(cache, static_cast<u64>(slot)) + static_cast<i64>(kv_head) * cache.head;
		scale = cache.scale_of(static_cast<i64>(kv_head));
	}
#pragma unroll
	for (int i = 0; i < pairs; i++) {
		if (i >= static_cast<int>(each))
			continue;
		if (!query && to) {
			float numbers[2] = {static_cast<float>(x[i][0][0]), static_cast<float>(x[i][0][1])};
			QuantizeScale<f32>(scale).divide(numbers);
			x[i][0][0] = static_cast<Compute>(numbers[0]);
			x[i][0][1] = static_cast<Compute>(numbers[1]);
		}
		rope_kv_put<T>(out, first[i], query ? 0 : to, named ? x[i][0][0] : Compute(0));
		if (second[i] < sizes.dim)
			rope_kv_put<T>(out, second[i], query ? 0 : to, named ? x[i][0][1] : Compute(0));
	}
	return strays;
}

/* bytes: of a position, and in the upper half of a slot.  ways: bounds, interleaved, the type of
 * caches, and the pairs of a thread, a byte each. */
template <typename T, typename Table>
__global__ void rope_kv_store_generic(ROPE_PARAMS_OF(u64), KV_CACHE_PARAMS_OF(u8),
									  DIVIDE_PARAMS(u64, heads), DIVIDE_PARAMS(u64, items),
									  DIVIDE_PARAMS(u64, block), u64 half, u64 dim, u64 q_heads,
									  u32 bytes, u32 ways)
{
	typedef u64 Index;
	const RopeCall<T, Table, u64> call ROPE_CALL;
	const u32 bounds = ways & 0xff;
	const KvCaches<u8> caches KV_CACHES;
	const RopeAnySizes<u64> sizes{
		half, dim, q_heads, half, DIVIDE_MADE(u64, heads), DIVIDE_MADE(u64, items), heads_size};
	const KvBlocksAny blocks{DIVIDE_MADE(u64, block)};
	u64 number = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
	u32 strays = 0;

	for (; number - threadIdx.x < static_cast<u64>(work);
		 number += static_cast<u64>(gridDim.x) * blockDim.x)
		if (number < static_cast<u64>(work))
			strays += rope_kv_pairs(call, caches, sizes, blocks, number, bytes, bounds,
									ways >> 8 & 1, ways >> 16 & 0xff, ways >> 24);
	if (bounds == INDICES_CHECK)
		indices_report(report, strays);
}
