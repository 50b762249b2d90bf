/*
 * total.cuh: the sum of what threads have, in one launch and always in the same order.
 *
 * A block puts together what its threads have and leaves it in scratch memory; one block adds up
 * what all have left, in the order of their numbers.
 */
#pragma once
#include "common/last.cuh"
#include "common/types.cuh"

/* A number of as many bytes as a sum: bytes behind a smaller one would hold anything, and parts are
 * 0 between launches. */
template <int BYTES>
struct TotalCount {
	typedef u32 Type;
};
template <>
struct TotalCount<8> {
	typedef u64 Type;
};

/* The part of a block, which counts to less than 2^32. */
template <typename Compute>
struct alignas(2 * sizeof(Compute)) TotalPart {
	Compute sum;
	typename TotalCount<sizeof(Compute)>::Type count;
};

/* The sum over a warp; the same in all lanes. */
template <typename T>
DEVICE T total_warp(T value)
{
#pragma unroll
	for (int lanes = 16; lanes > 0; lanes /= 2)
		value += __shfl_xor_sync(0xffffffffu, value, lanes);
	return value;
}

DEVICE u32 total_warp(u32 value)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
	return total_warp<u32>(value);
#else
	return __reduce_add_sync(0xffffffffu, value);
#endif
}

/* The sum over the lanes of a warp up to this one. */
DEVICE u32 total_upto(u32 value, int lane)
{
#pragma unroll
	for (int far = 1; far < 32; far *= 2) {
		const u32 other = __shfl_up_sync(0xffffffffu, value, far);
		value += lane >= far ? other : 0;
	}
	return value;
}

/* Adds up the sums of a whole block, in its first warp.  All threads come. */
template <int MOST, typename Compute, typename Count>
DEVICE void total_join(Compute &sum, Count &count, const int warps)
{
	__shared__ Compute sums[MOST / 32];
	__shared__ Count counts[MOST / 32];
	const int thread = static_cast<int>(threadIdx.x);

	sum = total_warp(sum);
	count = total_warp(count);
	if (warps > 1) {
		if (thread % 32 == 0) {
			sums[thread / 32] = sum;
			counts[thread / 32] = count;
		}
		__syncthreads();
		if (thread < 32) {
			sum = total_warp(thread < warps ? sums[thread] : static_cast<Compute>(0));
			count = total_warp(thread < warps ? counts[thread] : static_cast<Count>(0));
		}
	}
}

/*
 * Scratch memory: 256 bytes for a counter, and a part for each block, which is 0 between launches.
 *
 * A part of eight bytes is written and read at once, its count one higher than it is, so that none
 * is 0: the last block waits for the others' parts, and these for nothing.  Devices begin blocks by
 * their numbers, so that all others have begun.  Elsewhere blocks count those that are done.
 */
template <typename Compute>
#if KILN_CPU
constexpr bool total_waits = false;
#else
constexpr bool total_waits = sizeof(TotalPart<Compute>) == 8;
#endif

#define TOTAL_AT_ONCE 4

template <typename Compute>
DEVICE TotalPart<Compute> *total_parts(u8 *scratch)
{
	return reinterpret_cast<TotalPart<Compute> *>(scratch + 256);
}

/* Returns the part of block i; it is 0 until the block has left it, if blocks are waited for. */
template <typename Compute>
DEVICE TotalPart<Compute> total_look(const TotalPart<Compute> *parts, u32 i)
{
	if constexpr (total_waits<Compute>) {
		union {
			u64 bits;
			TotalPart<Compute> part;
		} seen = {*reinterpret_cast<const volatile u64 *>(parts + i)};
		return seen.part;
	} else {
		return parts[i];
	}
}

/* Leaves the part of a block, by one thread of it.  True in the block that is last to do so; false
 * everywhere if blocks are waited for. */
template <typename Compute>
DEVICE bool total_leave(Compute sum, u32 count, u8 *scratch)
{
	TotalPart<Compute> *const parts = total_parts<Compute>(scratch);

	if constexpr (total_waits<Compute>) {
		union {
			TotalPart<Compute> part;
			u64 bits;
		} left = {{sum, count + 1}};
		*reinterpret_cast<volatile u64 *>(parts + blockIdx.x) = left.bits;
		return false;
	} else {
		parts[blockIdx.x] = TotalPart<Compute>{sum, count};
		return last_of(reinterpret_cast<u32 *>(scratch), gridDim.x);
	}
}

/* All threads of a block come; last: one of them has left its part last.  True in one block, whose
 * first thread has the totals then.  AT_ONCE: parts that a thread asks for. */
template <int MOST, int AT_ONCE, typename Compute, typename Count>
DEVICE bool total_gather(Compute &sum, Count &count, bool last, const int threads, u8 *scratch)
{
	TotalPart<Compute> *const parts = total_parts<Compute>(scratch);
	const u32 step = static_cast<u32>(threads);

	if constexpr (total_waits<Compute>) {
		if (blockIdx.x + 1 != gridDim.x)
			return false;
		__syncthreads(); /* total_join() uses its memory again */
	} else if (!__syncthreads_or(last)) {
		return false;
	}
	sum = 0;
	count = 0;
#pragma unroll 1
	for (u32 first = threadIdx.x; first < gridDim.x; first += AT_ONCE * step) {
		TotalPart<Compute> part[AT_ONCE];
#pragma unroll
		for (u32 k = 0; k < AT_ONCE; k++)
			if (first + k * step < gridDim.x)
				part[k] = total_look(parts, first + k * step);
#pragma unroll
		for (u32 k = 0; k < AT_ONCE; k++) {
			if (first + k * step >= gridDim.x)
				break;
			while (total_waits<Compute> && part[k].count == 0)
				part[k] = total_look(parts, first + k * step);
			sum += part[k].sum;
			count += part[k].count - total_waits<Compute>;
			parts[first + k * step] = TotalPart<Compute>{0, 0};
		}
	}
	total_join<MOST>(sum, count, threads / 32);
	return true;
}

/* All threads of all blocks come, each with its sum and how many it counted; MOST of a block, which
 * has `threads`.  True in one block, whose first thread has the totals then. */
template <int MOST, int AT_ONCE = TOTAL_AT_ONCE, typename Compute, typename Count>
DEVICE bool total_of(Compute &sum, Count &count, const int threads, u8 *scratch)
{
	bool last = false;

	total_join<MOST>(sum, count, threads / 32);
	if (threadIdx.x == 0)
		last = total_leave(sum, static_cast<u32>(count), scratch);
	return total_gather<MOST, AT_ONCE>(sum, count, last, threads, scratch);
}
