/*
 * group.cuh: threads that share a row and must agree on a sum, a maximum or the like.
 *
 * A group is a part of a warp (a power of two), whole warps of a block, or a block in each member
 * of a cluster.  A value is a small struct of floats or doubles with
 *
 *   void merge(const Value &other, with...) associative but for rounding, the same from both sides
 *   static Value none()                       what merges without effect
 *
 * `with` is whatever else a merge needs to know, the same in all threads; mostly there is nothing.
 * A value with a shorter way across lanes than merge upon merge overloads group_butterfly.
 *
 * The order of merging depends on the group alone: same input, same bits.
 */
#pragma once
#include "common/types.cuh"
#include "common/cluster.cuh"

/* A word from the lane that differs in the bits of `lanes`. */
DEVICE u32 group_from(u32 mine, int lanes)
{
#if KILN_CPU
	return __shfl_xor_sync(0xffffffffu, mine, lanes);
#else
	/* The built-in function is much more text to compile. */
	u32 other;
	asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
				 : "=r"(other)
				 : "r"(mine), "r"(lanes));
	return other;
#endif
}
DEVICE float group_from(float mine, int lanes)
{
#if KILN_CPU
	return __shfl_xor_sync(0xffffffffu, mine, lanes);
#else
	float other;
	asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
				 : "=f"(other)
				 : "f"(mine), "r"(lanes));
	return other;
#endif
}
DEVICE double group_from(double mine, int lanes)
{
	const u64 bits = static_cast<u64>(__double_as_longlong(mine));
	const u32 low = group_from(static_cast<u32>(bits), lanes);
	const u32 high = group_from(static_cast<u32>(bits >> 32), lanes);
	return __longlong_as_double(static_cast<i64>(static_cast<u64>(high) << 32 | low));
}
/* Does so for a value. */
template <class Value>
DEVICE Value group_from(const Value &mine, int lanes)
{
	constexpr int words = sizeof(Value) / sizeof(u32);
	static_assert(sizeof(Value) % sizeof(u32) == 0, "whole words");
	union {
		Value value;
		u32 word[words];
	} out = {mine};
#pragma unroll
	for (int w = 0; w < words; w++)
		out.word[w] = group_from(out.word[w], lanes);
	return out.value;
}

/* Merges over the first `width` lanes that share a lane's upper bits; all get the result. */
template <int WIDTH, class Value, typename... With>
DEVICE Value group_butterfly(Value mine, With... with)
{
#pragma unroll
	for (int lanes = WIDTH / 2; lanes > 0; lanes /= 2)
		mine.merge(group_from(mine, lanes), with...);
	return mine;
}

/* The smallest power of two that is at least COUNT. */
template <int COUNT>
constexpr int group_width = 2 * group_width<(COUNT + 1) / 2>;
template <>
constexpr int group_width<1> = 1;

/*
 * SIZE threads a row, ROWS of them side by side in a block, CLUSTER blocks that share each row.
 * All threads of the block must call reduce together, those of rows beyond the end too, as must
 * all blocks of a cluster.
 */
template <int SIZE, int ROWS, int CLUSTER>
struct Group {
	static constexpr int threads = SIZE * ROWS;
	static constexpr int warps = SIZE / 32;
	static_assert(SIZE % 32 == 0 || (SIZE < 32 && (SIZE & (SIZE - 1)) == 0), "part or whole warps");
	static_assert(threads % 32 == 0, "a block is whole warps: shuffles name all lanes");
	static_assert(CLUSTER == 1 || ROWS == 1, "a cluster has one row");

	/* The number of this thread in its row, and of the row in its block. */
	static DEVICE int thread()
	{
		const int thread = static_cast<int>(threadIdx.x);
		return ROWS == 1 ? thread : thread % SIZE;
	}
	/* Does so by a remainder, which tells the compiler how large it is: norms whose threads fill
	 * their registers take less time (a backward of f32 on an H200 202 us instead of 256). */
	static DEVICE int place()
	{
		return static_cast<int>(threadIdx.x) % SIZE;
	}
	static DEVICE int row()
	{
		return ROWS == 1 ? 0 : static_cast<int>(threadIdx.x) / SIZE;
	}
	/* The part of the row that this block has, and the row or set of rows. */
	static DEVICE int slice()
	{
		return CLUSTER == 1 ? 0 : static_cast<int>(blockIdx.x % CLUSTER);
	}
	static DEVICE u32 block()
	{
		return blockIdx.x / CLUSTER;
	}

	/* Before anything else: later, this block's neighbours will write to it. */
	static DEVICE void begin()
	{
		if constexpr (CLUSTER > 1)
			cluster_arrive();
	}

	/*
	 * All threads of the row get what all its values make together.  SLOT: another number for each
	 * reduction of a kernel, since each has memory of its own; a kernel that comes to the same one
	 * again needs a barrier in between.
	 */
	template <int SLOT, class Value, typename... With>
	static DEVICE Value reduce(Value mine, With... with)
	{
		return reduce_warps<SLOT>(group_butterfly<(SIZE < 32 ? SIZE : 32)>(mine, with...), with...);
	}

	/* Does so for values that the lanes of a row in a warp agree on already. */
	template <int SLOT, class Value, typename... With>
	static DEVICE Value reduce_warps(Value mine, With... with)
	{
		if constexpr (SIZE > 32)
			mine = collect<warps>(warps_of<SLOT>(mine), with...);
		if constexpr (CLUSTER > 1)
			mine = collect<CLUSTER>(blocks_of<SLOT>(mine), with...);
		return mine;
	}

	/* The values of all warps of the row, in order, for all of them to see.  SIZE is above 32. */
	template <int SLOT, class Value>
	static DEVICE const Value *warps_of(const Value &mine)
	{
		__shared__ Value partial[ROWS * warps];
		if (threadIdx.x % 32 == 0)
			partial[threadIdx.x / 32] = mine;
		__syncthreads();
		return partial + row() * warps;
	}
	/* The values of all blocks of the cluster.  SLOT 0 comes first. */
	template <int SLOT, class Value>
	static DEVICE const Value *blocks_of(const Value &mine)
	{
		__shared__ Value part[CLUSTER];
		if constexpr (SLOT == 0)
			cluster_wait(); /* for begin(): the neighbours are there */
		if (threadIdx.x < CLUSTER)
			cluster_put(&part[slice()], mine, static_cast<u32>(threadIdx.x));
		cluster_arrive();
		cluster_wait();
		return part;
	}

  private:
	/* Combines COUNT values in shared memory. */
	template <int COUNT, class Value, typename... With>
	static DEVICE Value collect(const Value *partial, With... with)
	{
		constexpr int width = group_width<COUNT>;
		const int lane = static_cast<int>(threadIdx.x) % width;
		return group_butterfly<width>(lane < COUNT ? partial[lane] : Value::none(), with...);
	}
};
