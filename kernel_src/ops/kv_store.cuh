/*
 * kv_store.cuh: keys and values of new tokens, put into the slots of paged caches that the tokens
 * name.  Elements stay as they are, bit for bit, counted as bytes; or they are divided by a scale
 * and rounded to 8 bits.  A token whose slot is -1 is passed over, as is one whose slot is out of
 * range.
 *
 * Each thread moves vectors of heads, of keys or of values.  It reads them before it knows their
 * slots, so that both come at once.
 */
#pragma once
#include "common/kv_cache.cuh"

template <typename From>
struct KvFrom {
	const From *start;
	i64 token, head;
};

template <typename From, typename To>
struct KvCall {
	KvFrom<From> keys, values;
	KvCaches<To> to;
};

/* Where a vector is: its token, head and number in the head. */
template <typename Index>
struct KvPlace {
	Index token, head, column;
};

/* V elements at an address, 16 bytes at a time if they are more. */
template <int V, typename From>
DEVICE void kv_load(const From *from, u32 (&words)[vec_words<V * sizeof(From)>])
{
	constexpr int bytes = V * static_cast<int>(sizeof(From)), each = bytes < 16 ? bytes : 16;

#pragma unroll
	for (int n = 0; n < bytes / each; n++)
		vec_load<each>(reinterpret_cast<const u8 *>(from) + n * each, words + n * vec_words<each>);
}

/* Elements as they are, or divided by the scale of their head. */
template <int V, typename From, typename To>
DEVICE void kv_put(float scale, const u32 *words, To *to)
{
	if constexpr (sizeof(From) == 1) {
		vec_store<V>(to, words);
	} else {
		u32 out[vec_words<V>];
		float values[V];
		element_unpack<From>(words, values);
		QuantizeScale<From>(scale).divide(values);
		element_pack<To>(values, out);
		vec_store<V>(to, out);
	}
}

/*
 * HELD vectors of a side, which place(n) tells apart and here(n) says to be there.  Returns how
 * many tokens have a slot that is out of range and have their first vector here, if this side
 * counts them.
 */
template <int V, int HELD, typename Index, typename From, typename To, class Blocks, typename Place,
		  typename Here>
DEVICE u32 kv_side(const KvFrom<From> &from, const KvCaches<To> &caches, const KvCache<To> &cache,
				   const Blocks &blocks, int slot_bytes, bool counts, Place place, Here here)
{
	u32 words[HELD][vec_words<V * sizeof(From)>], strays = 0;
	KvPlace<Index> at[HELD];
	i64 named[HELD];
	float scale[HELD];

#pragma unroll
	for (int n = 0; n < HELD; n++) {
		at[n] = place(n);
		if (!here(n))
			continue;
		named[n] = caches.named(0, static_cast<i64>(at[n].token), slot_bytes);
		scale[n] = sizeof(From) == 1 ? 1.0f : cache.scale_of(static_cast<i64>(at[n].head));
		kv_load<V>(from.start + static_cast<i64>(at[n].token) * from.token +
					   static_cast<i64>(at[n].head) * from.head +
					   static_cast<i64>(at[n].column) * V,
				   words[n]);
	}
#pragma unroll
	for (int n = 0; n < HELD; n++) {
		const i64 head = static_cast<i64>(at[n].head), column = static_cast<i64>(at[n].column);
		bool stray;
		if (!here(n))
			continue;
		if (caches.has(named[n], stray))
			kv_put<V, From>(scale[n], words[n],
							blocks.row(cache, static_cast<u64>(named[n])) + head * cache.head +
								column * V);
		strays += counts && stray && head == 0 && column == 0;
	}
	return strays;
}

/* ---- Kernels ---- */

/* work: tokens; of the generic kernel, vectors. */
#define KV_PARAMS                                                                                \
	const From *k, const From *v, i64 k_token, i64 k_head, i64 v_token, i64 v_head, u64 *report, \
		u64 work, KV_CACHE_PARAMS
#define KV_CALL                                               \
	{                                                         \
		{k, k_token, k_head}, {v, v_token, v_head}, KV_CACHES \
	}

/* The blocks that have the vectors of a side: heads of PER vectors each. */
template <int V, int HELD, i64 HEADS, i64 PER, int THREADS, typename Index>
struct KvBlock {
	static constexpr Index each = static_cast<Index>(HEADS * PER), share = THREADS * HELD;
	Index vectors, blocks;

	DEVICE explicit KvBlock(u64 tokens)
		: vectors(static_cast<Index>(tokens) * each), blocks((vectors + share - 1) / share)
	{
	}
	template <typename From, typename To, class Blocks>
	DEVICE u32 move(Index block, const KvFrom<From> &from, const KvCaches<To> &caches,
					const KvCache<To> &cache, const Blocks &places, int slot_bytes,
					bool counts) const
	{
		const Index first = block * share + threadIdx.x;

		return kv_side<V, HELD, Index>(
			from, caches, cache, places, slot_bytes, counts,
			[&](int n) {
				const Index number = first + static_cast<Index>(n * THREADS);
				const Index head = number / static_cast<Index>(PER), token = number / each;
				return KvPlace<Index>{token, head - token * static_cast<Index>(HEADS),
									  number - head * static_cast<Index>(PER)};
			},
			[&](int n) { return first + static_cast<Index>(n * THREADS) < vectors; });
	}
};
template <int V, int HELD, i64 HEADS, int THREADS, typename Index>
struct KvBlock<V, HELD, HEADS, 0, THREADS, Index> {
	static constexpr Index blocks = 0;

	DEVICE explicit KvBlock(u64)
	{
	}
	template <typename... Others>
	DEVICE u32 move(const Others &...) const
	{
		return 0;
	}
};

template <typename From, typename To, int V, i64 HEADS, i64 K, i64 VALUES, i64 BLOCK,
		  int SLOT_BYTES, u32 BOUNDS, int THREADS, int HELD, typename Index, bool LOOP>
__global__ LAUNCH_BOUNDS(THREADS) void kv_store(KV_PARAMS)
{
	const KvCall<From, To> call KV_CALL;
	const KvBlock<V, HELD, HEADS, K, THREADS, Index> keys(work);
	const KvBlock<V, HELD, HEADS, VALUES, THREADS, Index> values(work);
	const KvBlocks<BLOCK, Index> blocks;
	Index block = static_cast<Index>(blockIdx.x);
	u32 strays = 0;

	do {
		if (block < keys.blocks)
			strays += keys.move(block, call.keys, call.to, call.to.keys, blocks, SLOT_BYTES, true);
		else
			strays += values.move(block - keys.blocks, call.values, call.to, call.to.values, blocks,
								  SLOT_BYTES, K == 0);
		block += static_cast<Index>(gridDim.x);
	} while (LOOP && block < keys.blocks + values.blocks);
	if constexpr (BOUNDS == INDICES_CHECK)
		indices_report(report, strays);
}

template <typename From, typename To, int V>
__global__ void kv_store_generic(KV_PARAMS, DIVIDE_PARAMS(u64, of_token), DIVIDE_PARAMS(u64, of_k),
								 DIVIDE_PARAMS(u64, of_v), DIVIDE_PARAMS(u64, block), u64 keys,
								 u32 slot_bytes, u32 bounds)
{
	const KvCall<From, To> call KV_CALL;
	const Divisor<u64> each = DIVIDE_MADE(u64, of_token);
	const KvBlocksAny blocks{DIVIDE_MADE(u64, block)};
	u64 number = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
	u32 strays = 0;

	for (; number - threadIdx.x < work; number += static_cast<u64>(gridDim.x) * blockDim.x) {
		const u64 token = each.quotient(number), rest = number - token * each.size;
		const bool value = rest >= keys;
		const Divisor<u64> of_head = value ? DIVIDE_MADE(u64, of_v) : DIVIDE_MADE(u64, of_k);
		const u64 item = rest - (value ? keys : 0), head = of_head.quotient(item);
		const KvFrom<From> from = {value ? v : k, value ? v_token : k_token,
								   value ? v_head : k_head};
		strays += kv_side<V, 1, u64>(
			from, call.to, call.to.of(value), blocks, static_cast<int>(slot_bytes),
			!value || keys == 0,
			[&](int) {
				return KvPlace<u64>{token, head, item - head * of_head.size};
			},
			[&](int) { return number < work; });
	}
	if (bounds == INDICES_CHECK)
		indices_report(report, strays);
}
