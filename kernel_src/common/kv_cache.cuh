/*
 * kv_cache.cuh: paged caches of keys and values.  A cache has blocks of as many slots each; a slot
 * is a row of heads.  A token names its slot by a number over all blocks; -1 names none.
 */
#pragma once
#include "common/divide.cuh"
#include "common/element.cuh"
#include "common/indices.cuh"
#include "common/quantize.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* scale_step: from head to head; 0 for one scale of all.  scale: nullptr for 1. */
template <typename To>
struct KvCache {
	To *start;
	const float *scale;
	i64 scale_step, block, place, head;

	/* A head's elements are divided by this. */
	DEVICE float scale_of(i64 head) const
	{
		return scale ? scale[head * scale_step] : 1.0f;
	}
};

template <typename To>
struct KvCaches {
	KvCache<To> keys, values;
	const void *slots;
	i64 end, slot_step, slot_batch;

	/* Chosen member by member, which keeps them in registers. */
	DEVICE KvCache<To> of(bool value) const
	{
		return {value ? values.start : keys.start,           value ? values.scale : keys.scale,
				value ? values.scale_step : keys.scale_step, value ? values.block : keys.block,
				value ? values.place : keys.place,           value ? values.head : keys.head};
	}

	/* The slot that a token names.  bytes: of a slot's number. */
	DEVICE i64 named(i64 batch, i64 token, int bytes) const
	{
		const i64 at = batch * slot_batch + token * slot_step;
		return bytes == 8 ? static_cast<const i64 *>(slots)[at]
						  : static_cast<i64>(static_cast<const i32 *>(slots)[at]);
	}
	/* Is there such a slot?  stray: there is none, though it is not -1. */
	DEVICE bool has(i64 named, bool &stray) const
	{
		const bool found = static_cast<u64>(named) < static_cast<u64>(end);
		stray = !found && named != -1;
		return found;
	}
};

/* Blocks of a size that is known when the kernel is compiled, and slots that Index numbers. */
template <i64 SIZE, typename Index>
struct KvBlocks {
	template <typename To>
	DEVICE To *row(const KvCache<To> &cache, u64 slot) const
	{
		constexpr Index size = SIZE > 0 ? SIZE : 1;
		const Index block = static_cast<Index>(slot) / size;
		return cache.start + static_cast<i64>(block) * cache.block +
			   static_cast<i64>(static_cast<Index>(slot) - block * size) * cache.place;
	}
};

struct KvBlocksAny {
	Divisor<u64> size;

	template <typename To>
	DEVICE To *row(const KvCache<To> &cache, u64 slot) const
	{
		const u64 block = size.quotient(slot);
		return cache.start + static_cast<i64>(block) * cache.block +
			   static_cast<i64>(slot - block * size.size) * cache.place;
	}
};

/* The parameters of a kernel, and the caches made of them. */
#define KV_CACHE_PARAMS KV_CACHE_PARAMS_OF(To)
#define KV_CACHE_PARAMS_OF(To)                                                              \
	const void *slots, To *k_cache, const float *k_scale, i64 k_scale_step, i64 k_block,    \
		i64 k_place, i64 k_cache_head, To *v_cache, const float *v_scale, i64 v_scale_step, \
		i64 v_block, i64 v_place, i64 v_cache_head, i64 slots_end, i64 slot_step, i64 slot_batch
#define KV_CACHES                                                                               \
	{                                                                                           \
		{k_cache, k_scale, k_scale_step, k_block, k_place, k_cache_head},                       \
			{v_cache, v_scale, v_scale_step, v_block, v_place, v_cache_head}, slots, slots_end, \
			slot_step, slot_batch                                                               \
	}
