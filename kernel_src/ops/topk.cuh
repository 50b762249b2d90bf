/*
 * topk.cuh: the first k of each row in order, with their places: the greatest or the least, equals
 * by place.  sort is topk of whole rows.
 *
 * A warp has a row, or a block has.  The generic kernels take sizes and strides as arguments.
 */
#pragma once
#include "common/index.cuh"
#include "common/space.cuh"
#include "common/topk.cuh"

/* Left to itself, ptxas spills some words for sm_90 where a row takes few steps.  Where it takes
 * many, 1024 threads are to run at once. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define TOPK_BOUNDS(threads, columns) \
	__launch_bounds__(threads,        \
					  (threads) > 256 || (columns) > 128 * (threads) ? 1024 / (threads) : 1)
#else
#define TOPK_BOUNDS(threads, columns) LAUNCH_BOUNDS(threads)
#endif

/* ---- Kernels: DIMS, X and Y number the rows, as in index.cuh ---- */

/* ROWS: a block has so many, each in a warp; 1: the block has one. */
template <typename T, class E, int V, int HELD, int THREADS, int ROWS, bool GREATEST, bool WHOLE,
		  bool SCRATCH, int SORTED, int ROOM, int COLUMNS, i64 X_STEP, i64 Y_STEP, class DIMS,
		  class X, class Y, typename Index>
__global__ TOPK_BOUNDS(THREADS, COLUMNS) void topk_rows(const T *x, T *values, i64 *indices,
														b128 *scratch, i64 rows, i32 k)
{
	constexpr bool block = ROWS == 1;
	constexpr int bytes = ROOM * static_cast<int>(sizeof(E)) + (WHOLE ? 0 : TOPK_BESIDE);
	static_assert(block || THREADS == 32 * ROWS, "a warp has a row");
	DYN_SHARED(b128, shared);
	const TopkSizes sizes = {X_STEP, Y_STEP, COLUMNS, k, SORTED, ROOM, GREATEST, WHOLE};
	const int warp = block ? 0 : static_cast<int>(threadIdx.x) / 32;
	const int thread = static_cast<int>(threadIdx.x) - 32 * warp;
	b128 *const entries = SCRATCH ? scratch + blockIdx.x * (ROWS * bytes / 16) : shared;

	const TopkRow<E> row =
		topk_begin<E>(sizes, thread, block ? THREADS : 32, entries + warp * (bytes / 16));

	for (i64 number = static_cast<i64>(blockIdx.x) * ROWS + warp; number < rows;
		 number += static_cast<i64>(gridDim.x) * ROWS) {
		const i64 from = index_offset<i64>(static_cast<Index>(number), DIMS{}, X{});
		const i64 to = index_offset<i64>(static_cast<Index>(number), DIMS{}, Y{});
		topk_row<block, V, HELD>(row, x + from, values + to, indices ? indices + to : nullptr,
								 sizes);
		topk_sync<block>();
	}
}

/* THREADS: of a block, at most, which has one row, and sorts what it has collected of it. */
template <typename T, class E, int V, int HELD, int THREADS>
__global__ __launch_bounds__(THREADS, 1) void topk_rows_generic(const T *x, T *values, i64 *indices,
																b128 *scratch, i64 rows, i32 k,
																i64 x_step, i64 y_step, i32 columns,
																i32 sorted, i32 room, u32 greatest,
																SPACE_SIZES(u64), SPACE_STRIDES(xs),
																SPACE_STRIDES(ys))
{
	DYN_SHARED(b128, shared);
	const Space<2, u64> space{SPACE_SIZES_MADE(u64),
							  {SPACE_STRIDES_MADE(xs), SPACE_STRIDES_MADE(ys)}};
	const int bytes = room * static_cast<int>(sizeof(E)) + TOPK_BESIDE;
	b128 *const entries = scratch ? scratch + blockIdx.x * (bytes / 16) : shared;
	const TopkSizes sizes = {x_step, y_step, columns, k, sorted, room, greatest != 0, false};

	const TopkRow<E> row =
		topk_begin<E>(sizes, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x), entries);

	for (i64 number = blockIdx.x; number < rows; number += gridDim.x) {
		i64 at[2];
		space.at(static_cast<u64>(number), at);
		topk_row<true, V, HELD>(row, x + at[0], values + at[1], indices ? indices + at[1] : nullptr,
								sizes);
		__syncthreads();
	}
}
