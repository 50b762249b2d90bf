/*
 * space.cuh: where number i of a space lies in several tensors, with sizes and strides that are
 * known when the kernel is launched (rows_pass_sizes, rows_pass_strides in the planner).
 *
 * Parameters of a kernel: SPACE_SIZES(Index) once, SPACE_STRIDES(x) for each tensor, and of them
 * Space<2, Index>{SPACE_SIZES_MADE(Index), {SPACE_STRIDES_MADE(x), SPACE_STRIDES_MADE(y)}}.
 */
#pragma once
#include "common/divide.cuh"
#include "common/types.cuh"

/* Dimensions stand fastest first; of the slowest, whose stride stands last, the size is not needed.
 * Those in between that are not there are not looked at. */
template <int TENSORS, typename Index>
struct Space {
	u32 rank;
	Divisor<Index> size[6];
	i64 stride[TENSORS][7];

	/* Offsets of number i, in elements, in every tensor.  One dimension takes no division. */
	DEVICE void at(Index i, i64 (&offset)[TENSORS]) const
	{
		Index rest = i;

#pragma unroll
		for (int t = 0; t < TENSORS; t++)
			offset[t] = 0;
#pragma unroll
		for (u32 k = 0; k < 6; k++) {
			if (k + 1 >= rank)
				break;
			const Index next = size[k].quotient(rest), here = rest - next * size[k].size;
#pragma unroll
			for (int t = 0; t < TENSORS; t++)
				offset[t] += static_cast<i64>(here) * stride[t][k];
			rest = next;
		}
#pragma unroll
		for (int t = 0; t < TENSORS; t++)
			offset[t] += static_cast<i64>(rest) * stride[t][6];
	}
};

#define SPACE_SIZES(Index)                                                                        \
	u32 space_rank, DIVIDE_PARAMS(Index, space0), DIVIDE_PARAMS(Index, space1),                   \
		DIVIDE_PARAMS(Index, space2), DIVIDE_PARAMS(Index, space3), DIVIDE_PARAMS(Index, space4), \
		DIVIDE_PARAMS(Index, space5)
#define SPACE_SIZES_MADE(Index)                                                                \
	space_rank,                                                                                \
	{                                                                                          \
		DIVIDE_MADE(Index, space0), DIVIDE_MADE(Index, space1), DIVIDE_MADE(Index, space2),    \
			DIVIDE_MADE(Index, space3), DIVIDE_MADE(Index, space4), DIVIDE_MADE(Index, space5) \
	}
#define SPACE_STRIDES(x) i64 x##0, i64 x##1, i64 x##2, i64 x##3, i64 x##4, i64 x##5, i64 x##6
#define SPACE_STRIDES_MADE(x)                    \
	{                                            \
		x##0, x##1, x##2, x##3, x##4, x##5, x##6 \
	}
