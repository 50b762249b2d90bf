/*
 * indices.cuh: reading indices of 8 to 64 bits, and what becomes of those that are out of range.
 */
#pragma once
#include "common/index.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

enum {
	INDICES_CHECK, /* names nothing, and is counted */
	INDICES_CLAMP, /* names the nearest that there is */
	INDICES_TRUST  /* is not looked at, but never names what is not there */
};

/* The unsigned type of the same width. */
template <typename T>
struct indices_unsigned {
	typedef T type;
};
template <>
struct indices_unsigned<i32> {
	typedef u32 type;
};
template <>
struct indices_unsigned<i64> {
	typedef u64 type;
};

/* An index that names nothing becomes this. */
template <typename Place>
constexpr Place indices_none = static_cast<Place>(~static_cast<Place>(0));

/* The place among END that an index names.  Place holds END and more. */
template <int BOUNDS, i64 END, typename Place, typename T>
DEVICE Place indices_place(T index)
{
	typedef typename indices_unsigned<T>::type Unsigned;
	constexpr u64 largest = static_cast<Unsigned>(~static_cast<Unsigned>(0));
	constexpr bool narrow = largest < static_cast<u64>(END); /* all that T holds are in range */
	constexpr Unsigned last = static_cast<Unsigned>(narrow || END == 0 ? largest : END - 1);
	const Unsigned bits = static_cast<Unsigned>(index);

	if constexpr (END == 0)
		return indices_none<Place>;
	if constexpr (BOUNDS == INDICES_CLAMP && static_cast<T>(-1) < static_cast<T>(1))
		return index < 0 ? 0 : static_cast<Place>(bits < last ? bits : last);
	if constexpr (BOUNDS == INDICES_CHECK && !narrow)
		return bits <= last ? static_cast<Place>(bits) : indices_none<Place>;
	return static_cast<Place>(bits < last ? bits : last);
}

/* Does so if END, which is not 0, and the rule for indices out of range are known at launch. */
template <typename Place, typename T>
DEVICE Place indices_place_among(T index, Place end, u32 bounds)
{
	typedef typename index_choose<(sizeof(T) == 8 || sizeof(Place) == 8), u64, u32>::type Wide;
	const Wide bits = static_cast<Wide>(index), last = static_cast<Wide>(end) - 1;
	const Place most = static_cast<Place>(bits < last ? bits : last);

	if (bounds == INDICES_CHECK)
		return bits <= last ? static_cast<Place>(bits) : indices_none<Place>;
	if constexpr (static_cast<T>(-1) < static_cast<T>(1))
		return bounds == INDICES_CLAMP && index < 0 ? 0 : most;
	return most;
}

/* Does so for any END. */
template <typename Place, typename T>
DEVICE Place indices_place_of(T index, Place end, u32 bounds)
{
	return end == 0 ? indices_none<Place> : indices_place_among(index, end, bounds);
}

/* V indices that lie next to each other, W bytes at a time. */
template <int W, int V, typename T>
DEVICE void indices_load(const T *from, T (&out)[V])
{
	constexpr int each = W / static_cast<int>(sizeof(T));
	static_assert(V % each == 0, "whole vectors");

#pragma unroll
	for (int n = 0; n < V / each; n++) {
		u32 words[vec_words<W>];
		vec_load<W>(from + n * each, words);
#pragma unroll
		for (int i = 0; i < each; i++)
			if constexpr (sizeof(T) == 8)
				out[n * each + i] =
					static_cast<T>(static_cast<u64>(words[2 * i + 1]) << 32 | words[2 * i]);
			else if constexpr (sizeof(T) == 4)
				out[n * each + i] = static_cast<T>(words[i]);
			else if constexpr (sizeof(T) == 2)
				out[n * each + i] = static_cast<T>(words[i / 2] >> i % 2 * 16);
			else
				out[n * each + i] = static_cast<T>(words[i / 4] >> i % 4 * 8);
	}
}

/* Adds up what the lanes of a warp counted, for the host.  All lanes come. */
DEVICE void indices_report(u64 *report, u32 count)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#pragma unroll 1
	for (int lanes = 16; lanes > 0; lanes /= 2)
		count += __shfl_xor_sync(0xffffffffu, count, lanes);
#else
	count = __reduce_add_sync(0xffffffffu, count);
#endif
	if (count != 0 && threadIdx.x % 32 == 0)
		atomicAdd(report, static_cast<u64>(count));
}
