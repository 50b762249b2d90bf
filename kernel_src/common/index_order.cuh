/*
 * index_order.cuh: puts the indices of a chunk of a list in order by their places, for the sums of
 * index_add_split.cuh and index_add_lists.cuh.
 */
#pragma once
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/types.cuh"

/* Numbers from warp to warp: an odd number of words.  The planner computes the same. */
DEVICE u32 index_order_pitch(u32 places)
{
	return ((places + 1) / 2 | 1) * 2;
}

/* SHAPE: the threads of a block, and how many indices of a chunk each has, `held`. */
template <class SHAPE, class PLACES, class Find>
struct IndexOrder {
	typedef typename SHAPE::Index Index;
	static constexpr int held = SHAPE::held;
	static constexpr u32 warps = SHAPE::warps, none = 0xffffffffu;

	const Index *idx;
	i64 end, padding;
	Find find;
	/* Shared memory: of each warp, where its indices of each place begin; numbers in a chunk. */
	u16 *starts, *keys;

	/* The number of the place that an index names, or none. */
	DEVICE u32 placed(Index index, u32 &strays) const
	{
		i64 place;

		if (static_cast<i64>(index) == padding)
			return none;
		if (find(static_cast<i64>(index), place))
			return static_cast<u32>(place);
		strays++;
		return none;
	}

	/* Few places of a warp share a bank, and few warps of a place. */
	DEVICE u16 &start(u32 place, u32 warp) const
	{
		return starts[warp * index_order_pitch(static_cast<u32>(end)) + place];
	}

	/* Turns how many indices each warp has for each place into where they begin: place by place,
	 * and of a place warp by warp. */
	DEVICE void sum_up() const
	{
		const u32 all = static_cast<u32>(end) * warps, thread = threadIdx.x;
		const u32 each = (all + SHAPE::threads - 1) / SHAPE::threads;
		const u32 first = thread * each < all ? thread * each : all;
		const u32 last = first + each < all ? first + each : all;
		__shared__ u32 sums[warps];
		u32 mine = 0, before;

#pragma unroll 1
		for (u32 i = first; i < last; i++)
			mine += start(i / warps, i % warps);
		before = mine;
#pragma unroll
		for (u32 lanes = 1; lanes < 32; lanes *= 2) {
			const u32 other = __shfl_up_sync(0xffffffffu, before, lanes);
			before += thread % 32 >= lanes ? other : 0;
		}
		if (thread % 32 == 31)
			sums[thread / 32] = before;
		__syncthreads();
		before -= mine;
#pragma unroll
		for (u32 warp = 0; warp < warps; warp++)
			before += warp < thread / 32 ? sums[warp] : 0;
#pragma unroll 1
		for (u32 i = first; i < last; i++) {
			u16 &begin = start(i / warps, i % warps);
			const u32 here = begin;
			begin = static_cast<u16>(before);
			before += here;
		}
	}

	/* Lists the numbers of `n` indices from `first` on, those of each place by rising k; returns
	 * how many name nothing.  Each warp has those that follow one another.  All threads come. */
	DEVICE u32 sort(i64 list, i64 first, u32 n) const
	{
		const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, below = (1u << lane) - 1;
		const u32 turns = (n + SHAPE::threads - 1) / SHAPE::threads;
		const u32 begin = warp * turns * 32 + lane;
		u32 place[held], equal[held], strays = 0;
		Index index[held];

#pragma unroll
		for (int i = 0; i < held; i++) {
			const u32 k = begin + i * 32;
			index[i] = i < turns && k < n ? idx[list + (first + k) * PLACES::idx_step] : 0;
		}
#pragma unroll 1
		for (u32 i = threadIdx.x; i < index_order_pitch(static_cast<u32>(end)) * warps;
			 i += SHAPE::threads)
			starts[i] = 0;
		__syncthreads();
#pragma unroll
		for (int i = 0; i < held; i++) {
			if (i >= turns)
				break;
			place[i] = begin + i * 32 < n ? placed(index[i], strays) : none;
			equal[i] = __match_any_sync(0xffffffffu, place[i]);
			if (place[i] != none && (equal[i] & below) == 0) {
				u16 &count = start(place[i], warp);
				count = static_cast<u16>(count + __popc(static_cast<int>(equal[i])));
			}
			__syncwarp();
		}
		__syncthreads();
		sum_up();
		__syncthreads();
		/* A warp's part of a place begins where the parts of the warps before it end. */
#pragma unroll
		for (int i = 0; i < held; i++) {
			if (i >= turns)
				break;
			const u32 from = place[i] != none ? start(place[i], warp) : 0;
			const u32 to = from + __popc(static_cast<int>(equal[i] & below));
			__syncwarp();
			if (place[i] != none) {
				keys[to] = static_cast<u16>(begin + i * 32);
				if (equal[i] >> lane >> 1 == 0)
					start(place[i], warp) = static_cast<u16>(to + 1);
			}
			__syncwarp();
		}
		__syncthreads();
		return strays;
	}
};
