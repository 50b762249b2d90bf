/*
 * map_places.cuh: subscripts of generated statements, and what becomes of those that are out of
 * range.
 */
#pragma once
#include "common/divide.cuh"
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/types.cuh"

template <i64 SIZE, typename T>
DEVICE bool map_within(T at)
{
	if constexpr (sizeof(T) == 4 && SIZE <= 0x7fffffff)
		return static_cast<u32>(at) < static_cast<u32>(SIZE);
	else
		return (static_cast<T>(-1) > static_cast<T>(1) || at >= 0) &&
			   static_cast<u64>(at) < static_cast<u64>(SIZE);
}
/* Known to be within. */
template <i64 SIZE, typename Offset, typename T>
DEVICE Offset map_trusted(T at)
{
	return static_cast<Offset>(at);
}
/* The nearest that is within. */
template <i64 SIZE, typename Offset, typename T>
DEVICE Offset map_clamped(T at)
{
	const bool below = static_cast<T>(-1) < static_cast<T>(1) && at < static_cast<T>(1);
	return map_within<SIZE>(at) ? static_cast<Offset>(at)
								: static_cast<Offset>(below ? 0 : SIZE - 1);
}
/* The first element, where what is read is not used. */
template <i64 SIZE, typename Offset, typename T>
DEVICE Offset map_masked(T at)
{
	return map_within<SIZE>(at) ? static_cast<Offset>(at) : static_cast<Offset>(0);
}

/* Does so for sizes that are known when the kernel is launched. */
template <typename T>
DEVICE bool map_within_of(T at, i64 size)
{
	return (static_cast<T>(-1) > static_cast<T>(1) || at >= 0) &&
		   static_cast<u64>(at) < static_cast<u64>(size);
}
template <typename Offset, typename T>
DEVICE Offset map_trusted_of(T at, i64)
{
	return static_cast<Offset>(at);
}
template <typename Offset, typename T>
DEVICE Offset map_clamped_of(T at, i64 size)
{
	const bool below = static_cast<T>(-1) < static_cast<T>(1) && at < static_cast<T>(1);
	return map_within_of(at, size) ? static_cast<Offset>(at)
								   : static_cast<Offset>(below ? 0 : size - 1);
}
template <typename Offset, typename T>
DEVICE Offset map_masked_of(T at, i64 size)
{
	return map_within_of(at, size) ? static_cast<Offset>(at) : static_cast<Offset>(0);
}

/* Subscripts that were out of range: how many, and of those that are numbered the first, as what is
 * left to the largest number of 64 bits. */
struct MapStrays {
	u64 first = 0;
	u32 count = 0;

	DEVICE void note(bool within, u64 position, u32 subscript)
	{
		const u64 code = ~(position << 8 | subscript);
		if (!within && code > first)
			first = code;
	}
	DEVICE void add(const MapStrays &other)
	{
		first = other.first > first ? other.first : first;
		count += other.count;
	}
};

/* SPLIT threads of a block share an output: the part of it that a thread has, and the number of the
 * output in the block.  Lanes beside one another have parts of one row, or outputs that are
 * neighbours in memory. */
template <int THREADS, int SPLIT, class MAP>
DEVICE u32 map_part()
{
	return MAP::rows ? threadIdx.x % SPLIT : threadIdx.x / (THREADS / SPLIT);
}
template <int THREADS, int SPLIT, class MAP>
DEVICE u32 map_lane()
{
	return MAP::rows ? threadIdx.x / SPLIT : threadIdx.x % (THREADS / SPLIT);
}

template <class MAP>
DEVICE void map_report(const MapStrays &strays, u64 *report)
{
	/* Sizes that are arguments may allow no stray. */
	if (MAP::reports && MAP::sized && !report)
		return;
	if constexpr (MAP::reports && !MAP::first) {
		indices_report(report, strays.count);
	} else if constexpr (MAP::reports) {
		u64 seen = strays.first ? *static_cast<volatile u64 *>(report) : 0;
		while (seen < strays.first) {
			const u64 before = atomicCAS(report, seen, strays.first);
			if (before == seen)
				break;
			seen = before;
		}
	}
}
