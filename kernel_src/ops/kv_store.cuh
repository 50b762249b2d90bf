/*
 * kv_store.cuh: keys and values of new tokens, put into the slots of paged caches that the tokens
 * name.  Each thread moves one vector of a head of a token; keys come before values.  Elements stay
 * as they are, bit for bit, counted as bytes; or they are divided by a scale and rounded to 8 bits.
 * A token whose slot is -1 is passed over, as is one whose slot is out of range.
 */
#pragma once
#include "common/kv_cache.cuh"

template <typename From>
struct KvFrom {
	const From *start;
	i64 token, head;
};

/* Numbers of vectors that are known when the kernel is compiled: of a head of keys, of values. */
template <i64 HEADS, i64 K, i64 V, typename Index>
struct KvSizes {
	static constexpr Index keys = HEADS * K, each = HEADS * (K + V);

	DEVICE Index token(Index number) const
	{
		return number / each;
	}
	/* The head of a vector, and the vector's number there. */
	DEVICE Index head(bool value, Index item, Index &column) const
	{
		constexpr Index key = K > 0 ? K : 1, other = V > 0 ? V : 1;
		const Index head = value ? item / other : item / key;
		column = item - head * (value ? other : key);
		return head;
	}
};

/* Those that are known when it is launched. */
struct KvAnySizes {
	Divisor<u64> of_token, of_key, of_value;
	u64 each, keys;

	DEVICE u64 token(u64 number) const
	{
		return of_token.quotient(number);
	}
	DEVICE u64 head(bool value, u64 item, u64 &column) const
	{
		const u64 head = value ? of_value.quotient(item) : of_key.quotient(item);
		column = item - head * (value ? of_value.size : of_key.size);
		return head;
	}
};

template <typename From, typename To>
struct KvCall {
	KvFrom<From> keys, values;
	KvCaches<To> to;

	DEVICE KvFrom<From> of(bool value) const
	{
		return {value ? values.start : keys.start, value ? values.token : keys.token,
				value ? values.head : keys.head};
	}
};

/* Returns 1 if the token's slot is out of range and this is its first vector. */
template <int V, typename From, typename To, typename Index, class Sizes, class Blocks>
DEVICE u32 kv_item(const KvCall<From, To> &call, const Sizes &sizes, const Blocks &blocks,
				   Index number, int slot_bytes)
{
	const Index token = sizes.token(number);
	Index item = number - token * sizes.each, column;
	u32 words[vec_words<V * sizeof(From)>];
	bool stray;
	u64 slot;

	if (!call.to.find(0, static_cast<i64>(token), slot_bytes, slot, stray))
		return stray && item == 0;
	const bool value = item >= sizes.keys;
	item -= value ? sizes.keys : 0;
	const i64 head = static_cast<i64>(sizes.head(value, item, column));
	const KvFrom<From> from = call.of(value);
	const KvCache<To> cache = call.to.of(value);
	To *const to = blocks.row(cache, slot) + head * cache.head + static_cast<i64>(column) * V;
	vec_load<V * sizeof(From)>(from.start + static_cast<i64>(token) * from.token +
								   head * from.head + static_cast<i64>(column) * V,
							   words);
	if constexpr (sizeof(From) == 1) {
		vec_store<V>(to, words);
	} else {
		u32 out[vec_words<V>];
		float values[V];
		element_unpack<From>(words, values);
		kv_scale(cache, head, values);
		element_pack<To>(values, out);
		vec_store<V>(to, out);
	}
	return 0;
}

/* ---- Kernels ---- */

#define KV_PARAMS                                                                                \
	const From *k, const From *v, i64 k_token, i64 k_head, i64 v_token, i64 v_head, u64 *report, \
		u64 work, KV_CACHE_PARAMS
#define KV_CALL                                               \
	{                                                         \
		{k, k_token, k_head}, {v, v_token, v_head}, KV_CACHES \
	}

template <typename From, typename To, int V, i64 HEADS, i64 K, i64 VALUES, i64 BLOCK,
		  int SLOT_BYTES, u32 BOUNDS, int THREADS, typename Index, bool LOOP>
__global__ LAUNCH_BOUNDS(THREADS) void kv_store(KV_PARAMS)
{
	const KvCall<From, To> call KV_CALL;
	const KvSizes<HEADS, K, VALUES, Index> sizes;
	const KvBlocks<BLOCK, Index> blocks;
	Index number = static_cast<Index>(blockIdx.x) * THREADS + threadIdx.x;
	u32 strays = 0;

	do {
		if (number < static_cast<Index>(work))
			strays += kv_item<V>(call, sizes, blocks, number, SLOT_BYTES);
		number += static_cast<Index>(gridDim.x) * THREADS;
	} while (LOOP && number - threadIdx.x < static_cast<Index>(work));
	if constexpr (BOUNDS == INDICES_CHECK)
		indices_report(report, strays);
}

template <typename From, typename To, int V>
__global__ void kv_store_generic(KV_PARAMS, DIVIDE_PARAMS(u64, of_token), DIVIDE_PARAMS(u64, of_k),
								 DIVIDE_PARAMS(u64, of_v), DIVIDE_PARAMS(u64, block), u64 keys,
								 u32 slot_bytes, u32 bounds)
{
	const KvCall<From, To> call KV_CALL;
	const KvAnySizes sizes{DIVIDE_MADE(u64, of_token), DIVIDE_MADE(u64, of_k),
						   DIVIDE_MADE(u64, of_v), of_token_size, keys};
	const KvBlocksAny blocks{DIVIDE_MADE(u64, block)};
	u64 number = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
	u32 strays = 0;

	for (; number - threadIdx.x < work; number += static_cast<u64>(gridDim.x) * blockDim.x)
		if (number < work)
			strays += kv_item<V>(call, sizes, blocks, number, static_cast<int>(slot_bytes));
	if (bounds == INDICES_CHECK)
		indices_report(report, strays);
}
