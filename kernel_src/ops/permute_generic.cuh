/*
 * permute_generic.cuh: y = x with its dimensions reordered, bit for bit, for sizes and strides that
 * are known when the kernel is launched.  Elements are bytes: their type is not known here.
 *
 *   permute_gather   anything, in the order of y: RUN elements a thread
 *
 * Transposes are in permute_tile_generic.cuh.
 */
#pragma once
#include "common/divide.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

#define PERMUTE_THREADS 256 /* at most */

/*
 * RUN elements in y's fastest dimension, `apart` from one another in x, are stored as one vector;
 * count, sizes and strides are of the space of such runs.  Dimensions stand fastest first: sizes of
 * all but the slowest, which is what remains, and strides of all in x.  Of the eight and nine that
 * are passed the first RANK are used.  Elements, offsets and sizes fit Index and leave its highest
 * bit free.
 */
template <int ES, int RUN, int RANK, typename Index>
__global__ __launch_bounds__(PERMUTE_THREADS) void permute_gather(
	const void *x, void *y, Index count, Index apart, DIVIDE_PARAMS(Index, a),
	DIVIDE_PARAMS(Index, b), DIVIDE_PARAMS(Index, c), DIVIDE_PARAMS(Index, d),
	DIVIDE_PARAMS(Index, e), DIVIDE_PARAMS(Index, f), DIVIDE_PARAMS(Index, g),
	DIVIDE_PARAMS(Index, h), Index stride_a, Index stride_b, Index stride_c, Index stride_d,
	Index stride_e, Index stride_f, Index stride_g, Index stride_h, Index stride_i)
{
	const Divisor<Index> dims[8] = {
		DIVIDE_MADE(Index, a), DIVIDE_MADE(Index, b), DIVIDE_MADE(Index, c), DIVIDE_MADE(Index, d),
		DIVIDE_MADE(Index, e), DIVIDE_MADE(Index, f), DIVIDE_MADE(Index, g), DIVIDE_MADE(Index, h)};
	const Index strides[9] = {stride_a, stride_b, stride_c, stride_d, stride_e,
							  stride_f, stride_g, stride_h, stride_i};
	const Index step = static_cast<Index>(gridDim.x) * blockDim.x;

	for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
		 i += step) {
		Index rest = i, from = 0;
#pragma unroll
		for (int k = 0; k < RANK - 1; k++) {
			const Index next = dims[k].quotient(rest);
			from += (rest - next * dims[k].size) * strides[k];
			rest = next;
		}
		from += rest * strides[RANK - 1];
		u32 elements[vec_words<ES> * RUN], run[vec_words<ES * RUN>];
#pragma unroll
		for (int k = 0; k < RUN; k++)
			vec_load<ES>(static_cast<const u8 *>(x) + (static_cast<u64>(from) + k * apart) * ES,
						 elements + k * vec_words<ES>);
		u8 *const to = static_cast<u8 *>(y) + static_cast<u64>(i) * (ES * RUN);
		if constexpr (RUN == 1) {
			vec_store<ES>(to, elements);
		} else {
			static_assert(ES < 4 && ES * RUN % 4 == 0, "whole words");
#pragma unroll
			for (int w = 0; w < vec_words<ES * RUN>; w++)
				run[w] =
					vec_collect<ES, 4 / ES, 1>(elements, [=](int k) { return w * 4 / ES + k; });
			vec_store<ES * RUN>(to, run);
		}
	}
}
