/*
 * cumsum.cuh: y[k] = the sum of x[0] .. x[k] along rows; REVERSE: of x[k] to the end, which is the
 * backward; exclusive: without x[k].  f16 and bf16 are added up in f32 and rounded once; integers
 * wrap.
 *
 *   rows      a row's elements lie side by side in y: SIZE threads scan a row, HELD vectors each
 *   columns   rows lie side by side: LANES vectors of rows, of which SPLIT threads share each
 *
 * The order of additions depends on the shape of a block and the length of a row alone, so a row
 * has the same bits wherever it lies.  The generic kernels take sizes and strides as arguments.
 */
#pragma once
#include "common/element.cuh"
#include "common/index.cuh"
#include "common/space.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

template <typename T>
struct cumsum_sum {
	typedef typename element<T>::compute type;
	static constexpr bool integer = false;
};
template <>
struct cumsum_sum<i32> {
	typedef u32 type;
	static constexpr bool integer = true;
};
template <>
struct cumsum_sum<i64> {
	typedef u64 type;
	static constexpr bool integer = true;
};

template <typename T, int V, typename Sum>
DEVICE void cumsum_load(const T *from, Sum (&out)[V])
{
	u32 words[vec_words<V *static_cast<int>(sizeof(T))>];

	vec_load<V *static_cast<int>(sizeof(T))>(from, words);
	if constexpr (!cumsum_sum<T>::integer) {
		element_unpack<T>(words, out);
	} else {
#pragma unroll
		for (int v = 0; v < V; v++)
			if constexpr (sizeof(T) == 8)
				out[v] = static_cast<u64>(words[2 * v + 1]) << 32 | words[2 * v];
			else
				out[v] = words[v];
	}
}

template <typename T, int V, typename Sum>
DEVICE void cumsum_store(T *to, const Sum (&in)[V])
{
	u32 words[vec_words<V *static_cast<int>(sizeof(T))>];

	if constexpr (!cumsum_sum<T>::integer) {
		element_pack<T>(in, words);
	} else {
#pragma unroll
		for (int v = 0; v < V; v++) {
			if constexpr (sizeof(T) == 8) {
				words[2 * v] = static_cast<u32>(in[v]);
				words[2 * v + 1] = static_cast<u32>(in[v] >> 32);
			} else {
				words[v] = in[v];
			}
		}
	}
	vec_store<V *static_cast<int>(sizeof(T))>(to, words);
}

/* The sum of the values of the first lanes up to this one, among WIDTH lanes. */
template <int WIDTH, typename Sum>
DEVICE Sum cumsum_lanes(Sum mine, int lane)
{
#pragma unroll
	for (int far = 1; far < WIDTH; far *= 2) {
		const Sum other = __shfl_up_sync(0xffffffffu, mine, far, WIDTH);
		if (lane >= far)
			mine += other;
	}
	return mine;
}

/* ---- Rows ---- */

/*
 * A block has `side` rows, of `size` threads each: one row if BLOCK is set, and otherwise a row for
 * each part of WIDTH threads.  at(number, offsets) says where a row begins.
 */
template <int V, int HELD, int WIDTH, bool BLOCK, bool REVERSE, typename T, typename At>
DEVICE void cumsum_rows_of(const T *x, T *y, i64 rows, i64 columns, i64 x_step, int size, int side,
						   bool exclusive, At at)
{
	typedef typename cumsum_sum<T>::type Sum;
	static_assert(!BLOCK || WIDTH == 32, "whole warps share a row");
	__shared__ Sum shared[2][32]; /* in turn, so that one barrier a step will do */
	const int thread = static_cast<int>(threadIdx.x) % size, lane = thread % WIDTH;
	const int warp = thread / WIDTH, warps = size / WIDTH;
	const int totals = warps * HELD; /* at most 32, which one warp scans */
	int turn = 0;

	for (i64 first = static_cast<i64>(blockIdx.x) * side; first < rows;
		 first += static_cast<i64>(gridDim.x) * side) {
		const i64 number = first + static_cast<i64>(threadIdx.x) / size;
		const bool here = number < rows;
		i64 offset[2];
		Sum carry = 0;

		at(here ? number : 0, offset);
#pragma unroll 1
		for (i64 step = 0; step < columns; step += static_cast<i64>(HELD * V) * size) {
			Sum sum[HELD][V], upto[HELD];
			i64 begin[HELD];
#pragma unroll
			for (int h = 0; h < HELD; h++) {
				const i64 column = step + (h * size + thread) * V;
				const bool there = here && column < columns;
				begin[h] = there ? REVERSE ? columns - V - column : column : -1;
				if (there) {
					cumsum_load(x + offset[0] + begin[h] * x_step, sum[h]);
				} else {
#pragma unroll
					for (int v = 0; v < V; v++)
						sum[h][v] = 0;
				}
			}
#pragma unroll
			for (int h = 0; h < HELD; h++) {
#pragma unroll
				for (int v = 1; v < V; v++)
					sum[h][REVERSE ? V - 1 - v : v] += sum[h][REVERSE ? V - v : v - 1];
				upto[h] = cumsum_lanes<WIDTH>(sum[h][REVERSE ? 0 : V - 1], lane);
			}
			Sum total = 0;
			if constexpr (BLOCK) {
				if (lane == 31) {
#pragma unroll
					for (int h = 0; h < HELD; h++)
						shared[turn][h * warps + warp] = upto[h];
				}
				__syncthreads();
				total = cumsum_lanes<32>(lane < totals ? shared[turn][lane] : Sum(0), lane);
				turn ^= 1;
			}
			Sum before_held = carry;
#pragma unroll
			for (int h = 0; h < HELD; h++) {
				Sum before = __shfl_up_sync(0xffffffffu, upto[h], 1, WIDTH);
				if (lane == 0)
					before = 0;
				if constexpr (BLOCK) {
					const int at_total = h * warps + warp;
					const Sum warps_before =
						__shfl_sync(0xffffffffu, total, at_total > 0 ? at_total - 1 : 0);
					before += carry + (at_total > 0 ? warps_before : Sum(0));
				} else {
					before += before_held;
					before_held += __shfl_sync(0xffffffffu, upto[h], WIDTH - 1, WIDTH);
				}
#pragma unroll
				for (int i = V - 1; i >= 0; i--) {
					const int v = REVERSE ? V - 1 - i : i, last = REVERSE ? v + 1 : v - 1;
					if (exclusive)
						sum[h][v] = i > 0 ? before + sum[h][i > 0 ? last : v] : before;
					else
						sum[h][v] += before;
				}
				if (begin[h] >= 0)
					cumsum_store(y + offset[1] + begin[h], sum[h]);
			}
			if constexpr (BLOCK)
				carry += __shfl_sync(0xffffffffu, total, totals - 1);
			else
				carry = before_held;
		}
	}
}

/* ---- Columns ---- */

/* A thread has V rows that lie side by side, and HELD columns of them at a time; SPLIT: `split` at
 * most. */
template <int V, int HELD, int LANES, int SPLIT, bool REVERSE, typename T, typename At>
DEVICE void cumsum_columns_of(const T *x, T *y, i64 rows, i64 columns, i64 x_step, i64 y_step,
							  int split, bool exclusive, At at)
{
	typedef typename cumsum_sum<T>::type Sum;
	__shared__ Sum shared[2][SPLIT][LANES * V]; /* in turn, so that one barrier a step will do */
	const int lane = static_cast<int>(threadIdx.x) % LANES;
	const int part = static_cast<int>(threadIdx.x) / LANES;
	int turn = 0;

	for (i64 first = static_cast<i64>(blockIdx.x) * (LANES * V); first < rows;
		 first += static_cast<i64>(gridDim.x) * (LANES * V)) {
		const i64 number = first + lane * V;
		const bool here = number < rows;
		Sum carry[V] = {};
		i64 offset[2];

		at(here ? number : 0, offset);
#pragma unroll 1
		for (i64 step = 0; step < columns; step += split * HELD) {
			const i64 begin = step + part * HELD;
			Sum sum[HELD][V], before[V];
#pragma unroll
			for (int i = 0; i < HELD; i++) {
				const i64 column = REVERSE ? columns - 1 - begin - i : begin + i;
				if (here && begin + i < columns) {
					cumsum_load(x + offset[0] + column * x_step, sum[i]);
				} else {
#pragma unroll
					for (int v = 0; v < V; v++)
						sum[i][v] = 0;
				}
			}
#pragma unroll
			for (int v = 0; v < V; v++) {
#pragma unroll
				for (int i = 1; i < HELD; i++)
					sum[i][v] += sum[i - 1][v];
				before[v] = carry[v];
				if constexpr (SPLIT == 1)
					carry[v] += sum[HELD - 1][v];
				else
					shared[turn][part][lane * V + v] = sum[HELD - 1][v];
			}
			if constexpr (SPLIT > 1) {
				__syncthreads();
#pragma unroll
				for (int v = 0; v < V; v++) {
#pragma unroll 4
					for (int other = 0; other < split; other++) {
						const Sum total = shared[turn][other][lane * V + v];
						if (other < part)
							before[v] += total;
						carry[v] += total;
					}
				}
				turn ^= 1;
			}
#pragma unroll
			for (int i = HELD - 1; i >= 0; i--) {
				const i64 column = REVERSE ? columns - 1 - begin - i : begin + i;
#pragma unroll
				for (int v = 0; v < V; v++)
					if (exclusive)
						sum[i][v] = i > 0 ? before[v] + sum[i > 0 ? i - 1 : 0][v] : before[v];
					else
						sum[i][v] += before[v];
				if (here && begin + i < columns)
					cumsum_store(y + offset[1] + column * y_step, sum[i]);
			}
		}
	}
}

/* ---- Kernels: DIMS, X and Y number the rows, as in index.cuh ---- */

template <class DIMS, class X, class Y, typename Index>
struct CumsumPlaces {
	DEVICE void operator()(i64 number, i64 (&offset)[2]) const
	{
		offset[0] = index_offset<i64>(static_cast<Index>(number), DIMS{}, X{});
		offset[1] = index_offset<i64>(static_cast<Index>(number), DIMS{}, Y{});
	}
};

template <typename T, int V, int HELD, int SIZE, int ROWS, bool REVERSE, bool EXCLUSIVE,
		  i64 COLUMNS, i64 X_STEP, class DIMS, class X, class Y, typename Index>
__global__ LAUNCH_BOUNDS(SIZE *ROWS) void cumsum_rows(const T *x, T *y, i64 rows)
{
	static_assert(SIZE <= 32 || (ROWS == 1 && SIZE / 32 * HELD <= 32), "a warp scans the totals");
	cumsum_rows_of<V, HELD, (SIZE < 32 ? SIZE : 32), (SIZE > 32), REVERSE>(
		x, y, rows, COLUMNS, X_STEP, SIZE, ROWS, EXCLUSIVE, CumsumPlaces<DIMS, X, Y, Index>{});
}

template <typename T, int V, int HELD, int LANES, int SPLIT, bool REVERSE, bool EXCLUSIVE,
		  i64 COLUMNS, i64 X_STEP, i64 Y_STEP, class DIMS, class X, class Y, typename Index>
__global__ LAUNCH_BOUNDS(LANES *SPLIT) void cumsum_columns(const T *x, T *y, i64 rows)
{
	cumsum_columns_of<V, HELD, LANES, SPLIT, REVERSE>(x, y, rows, COLUMNS, X_STEP, Y_STEP, SPLIT,
													  EXCLUSIVE, CumsumPlaces<DIMS, X, Y, Index>{});
}

/* THREADS: of a block, at most.  BLOCK: all of them share a row; if not, each warp has one. */
template <typename T, int V, int HELD, int THREADS, bool BLOCK, bool REVERSE>
__global__ __launch_bounds__(THREADS, 1) void cumsum_rows_generic(const T *x, T *y, i64 rows,
																  i64 columns, i64 x_step,
																  SPACE_SIZES(u64),
																  SPACE_STRIDES(xs),
																  SPACE_STRIDES(ys), u32 exclusive)
{
	const Space<2, u64> space{SPACE_SIZES_MADE(u64),
							  {SPACE_STRIDES_MADE(xs), SPACE_STRIDES_MADE(ys)}};
	const int threads = static_cast<int>(blockDim.x);
	cumsum_rows_of<V, HELD, 32, BLOCK, REVERSE>(
		x, y, rows, columns, x_step, BLOCK ? threads : 32, BLOCK ? 1 : threads / 32, exclusive,
		[&](i64 number, i64(&offset)[2]) { space.at(static_cast<u64>(number), offset); });
}

template <typename T, int V, int HELD, int LANES, int SPLIT, bool REVERSE>
__global__ LAUNCH_BOUNDS(LANES *SPLIT) void cumsum_columns_generic(const T *x, T *y, i64 rows,
																   i64 columns, i64 x_step,
																   i64 y_step, SPACE_SIZES(u64),
																   SPACE_STRIDES(xs),
																   SPACE_STRIDES(ys), u32 exclusive)
{
	const Space<2, u64> space{SPACE_SIZES_MADE(u64),
							  {SPACE_STRIDES_MADE(xs), SPACE_STRIDES_MADE(ys)}};
	cumsum_columns_of<V, HELD, LANES, SPLIT, REVERSE>(
		x, y, rows, columns, x_step, y_step, static_cast<int>(blockDim.x) / LANES, exclusive,
		[&](i64 number, i64(&offset)[2]) { space.at(static_cast<u64>(number), offset); });
}
