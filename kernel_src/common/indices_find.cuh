/*
 * indices_find.cuh: indices as numbers of 64 bits, and the place that one names, for kernels that
 * know the indices' type when they are compiled and for those that are told at launch.
 */
#pragma once
#include "common/indices.cuh"
#include "common/types.cuh"

/* Indices of any type, which is known at launch by its bytes; those of 4 and 8 have a sign. */
struct IndicesAny {
	typedef i64 Index;
	const void *idx;
	u32 bytes;

	DEVICE i64 operator[](i64 at) const
	{
		if (bytes == 8)
			return static_cast<const i64 *>(idx)[at];
		if (bytes == 4)
			return static_cast<const i32 *>(idx)[at];
		return bytes == 2 ? static_cast<const u16 *>(idx)[at] : static_cast<const u8 *>(idx)[at];
	}
};

/* Finds the place among `end` that an index of type I names; false: none. */
template <typename I, int BOUNDS, typename PLACE>
struct IndicesFind {
	typedef PLACE Place;
	i64 end;

	/* Does so for a number of places that is not 0; indices_none: none. */
	DEVICE Place place_of(i64 index) const
	{
		return indices_place_among(static_cast<I>(index), static_cast<Place>(end),
								   static_cast<u32>(BOUNDS));
	}

	DEVICE bool operator()(i64 index, i64 &place) const
	{
		const Place found = indices_place_of<Place>(static_cast<I>(index), static_cast<Place>(end),
													static_cast<u32>(BOUNDS));
		place = static_cast<i64>(found);
		return found != indices_none<Place>;
	}
};

/* Like IndicesFind, with the rule for indices out of range known at launch. */
struct IndicesFindAny {
	typedef u64 Place;
	i64 end;
	u32 bounds;

	DEVICE u64 place_of(i64 index) const
	{
		return indices_place_among(index, static_cast<u64>(end), bounds);
	}

	DEVICE bool operator()(i64 index, i64 &place) const
	{
		const u64 found = indices_place_of<u64>(index, static_cast<u64>(end), bounds);
		place = static_cast<i64>(found);
		return found != indices_none<u64>;
	}
};
