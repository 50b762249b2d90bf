/*
 * quantize_most.cuh: the largest magnitude of some numbers, and the scale that follows from it.
 */
#pragma once
#include "common/group.cuh"
#include "common/types.cuh"

/* The largest magnitude; a NaN is passed over. */
struct QuantizeMost {
	float most;

	static DEVICE QuantizeMost none()
	{
		return {0};
	}
	DEVICE void take(float value)
	{
		most = fmaxf(most, fabsf(value));
	}
	DEVICE void merge(const QuantizeMost &other)
	{
		most = fmaxf(most, other.most);
	}
};

/* Numbers that are not below 0 are in the order of their bits. */
template <int WIDTH>
DEVICE QuantizeMost group_butterfly(QuantizeMost mine)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	if constexpr (WIDTH == 32) {
		u32 most;
		asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;"
					 : "=r"(most)
					 : "r"(__float_as_uint(mine.most)));
		return {__uint_as_float(most)};
	}
#endif
#pragma unroll
	for (int lanes = WIDTH / 2; lanes > 0; lanes /= 2)
		mine.merge(group_from(mine, lanes));
	return mine;
}

/* 1 / the largest number of the type, toward zero, and what is missing; the least scale. */
struct QuantizeLimits {
	float share, more, least;

	/* most / the largest number, rounded once: a divisor of 7 bits leaves no quotient so near to
	 * the middle of two numbers that what `more` is off by would count. */
	DEVICE float scale(const QuantizeMost &all) const
	{
		return fmaxf(fmaf(all.most, share, all.most * more), least);
	}
};

template <class ROW, typename Number, typename Compute>
DEVICE void quantize_take(const ROW &row, Number n, const Compute (&values)[ROW::length],
						  QuantizeMost &mine)
{
#pragma unroll
	for (int j = 0; j < ROW::length; j++)
		if (row.live(n, j))
			mine.take(values[j]);
}
