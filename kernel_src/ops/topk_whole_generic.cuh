/*
 * topk_whole_generic.cuh: the first k of each row in order, with their places (topk.cuh), where all
 * of a row are sorted, for sizes and strides that are known when the kernel is launched.
 */
#pragma once
#include "common/element.cuh"
#include "common/space.cuh"
#include "common/topk_sort.cuh"
#include "common/vec.cuh"

/* THREADS: of a block, at most, in whole warps.  It sorts `all` entries: one row of `count`, or as
 * many short ones as there are in them. */
template <typename T, class E, int THREADS>
__global__ __launch_bounds__(THREADS, sizeof(E) > 8 ? 2 : 3) void topk_whole_generic(
	const T *x, T *values, i64 *indices, b128 *scratch, i64 rows, i32 k, i64 x_step, i64 y_step,
	i32 columns, i32 count, i32 all, u32 greatest, SPACE_SIZES(u64), SPACE_STRIDES(xs),
	SPACE_STRIDES(ys))
{
	DYN_SHARED(b128, shared);
	const Space<2, u64> space{SPACE_SIZES_MADE(u64),
							  {SPACE_STRIDES_MADE(xs), SPACE_STRIDES_MADE(ys)}};
	E *const entries = reinterpret_cast<E *>(
		scratch ? scratch + blockIdx.x * (static_cast<u32>(all) * sizeof(E) / 16) : shared);
	const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
	const int place_bits = columns > 1 ? 32 - __clz(columns - 1) : 1;
	/* Lanes of a tile that share a row, and a thread's number among those of its row. */
	const int lanes = count < TOPK_TILE ? count / TOPK_EACH : 32, lane = thread & (lanes - 1);
	const int here = all / count;
	const bool block = count > TOPK_TILE;
	const int within = block ? thread : lane, step = block ? threads : lanes;
	const int begin = block ? 0 : (thread / lanes) * count;

	for (i64 first = static_cast<i64>(blockIdx.x) * here; first < rows;
		 first += static_cast<i64>(gridDim.x) * here) {
		const i64 number = first + (block ? 0 : thread / lanes);
		const bool there = number < rows;
		i64 at[2];
		space.at(static_cast<u64>(there ? number : 0), at);
		const T *const row = x + at[0];
		topk_sort_tiles(entries, count, all, k <= TOPK_EACH && !block, thread, threads,
						[=](int tile, int n) {
							const int column = (block ? tile : 0) + n * lanes + lane;
							if (!there || column >= columns)
								return E::last();
							return E::template of<T>(
								Order<T>::key(Order<T>::load(row + column * x_step), greatest != 0),
								static_cast<u32>(column), place_bits);
						});
#pragma unroll 1
		for (int i = within; i < k && there; i += step) {
			const u32 place = entries[topk_at(begin + i)].template place<T>(place_bits);
			const i64 to = at[1] + i * y_step;
			vec_copy<sizeof(T)>(row + place * x_step, values + to);
			if (indices)
				indices[to] = place;
		}
		__syncthreads();
	}
}
