/*
 * divide.cuh: division by a number that is known when the kernel is launched, as a multiplication
 * and a shift; and numbers of a space whose sizes and strides are such.  The planner finds the
 * factors (plan_arg_divisor).
 */
#pragma once
#include "common/types.cuh"

/*
 * Exact for every dividend below 2^31 (u32) or 2^63 (u64): with shift = ceil(log2(size)) and magic
 * = floor(2^N * (2^shift - size) / size) + 1, where N is the width of Index.
 */
template <typename Index>
struct Divisor {
	Index size, magic;
	u32 shift;

	DEVICE Index quotient(Index dividend) const
	{
		if constexpr (sizeof(Index) == 8)
			return (__umul64hi(dividend, magic) + dividend) >> shift;
		else
			return (__umulhi(dividend, magic) + dividend) >> shift;
	}
};

/* A divisor as a kernel's parameters, and made of them. */
#define DIVIDE_PARAMS(Index, name) Index name##_size, Index name##_magic, u32 name##_shift
#define DIVIDE_MADE(Index, name)                \
	Divisor<Index>                              \
	{                                           \
		name##_size, name##_magic, name##_shift \
	}
