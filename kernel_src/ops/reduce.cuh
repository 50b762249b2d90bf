/*
 * reduce.cuh: sums, products, extremes, norms and the like over some dimensions of a tensor.  An
 * output takes a row: the elements that it is made of, numbered by the reduced dimensions.
 *
 *   rows      elements of a row lie side by side: SIZE threads share a row, HELD vectors each at a
 *             time, and each has TIMES rows at once
 *   columns   rows lie side by side: LANES vectors of V rows, of which SPLIT threads share each;
 *             a thread keeps ACC values of each row
 *
 * Long rows are cut into chunks of one block each.  A block leaves what it found in scratch memory,
 * and the last block of a row puts that together, chunk after chunk.  How a row is cut depends on
 * its length alone, so it has the same bits however many rows there are.
 *
 * Of ACC * SPLIT values of such a row, number q has columns q, q + ACC * SPLIT, ...; they meet as
 * the leaves of a binary tree.  The generic kernels take sizes, strides and types as arguments.
 */
#pragma once
#include "common/index.cuh"
#include "common/reduce.cuh"
#include "common/reduce_columns.cuh"
#include "common/reduce_rows.cuh"
#include "common/space.cuh"

/* ---- Kernels: DIMS, X and Y number the rows, as in index.cuh, INNER and STEPS the columns ---- */

template <class DIMS, class X, class Y, typename Index, class INNER, class STEPS, typename Number>
struct ReducePlaces {
	DEVICE void row(i64 number, i64 (&offset)[2]) const
	{
		offset[0] = index_offset<i64>(static_cast<Index>(number), DIMS{}, X{});
		offset[1] = index_offset<i64>(static_cast<Index>(number), DIMS{}, Y{});
	}
	DEVICE i64 column(Number number) const
	{
		return index_offset<i64>(number, INNER{}, STEPS{});
	}
};

/* O: the results' type. */
template <class R, typename T, typename O, int V, int HELD, int SIZE, int ROWS, int TIMES,
		  bool SKEWED, i64 COLUMNS, typename Number, class INNER, class STEPS, class DIMS, class X,
		  class Y, typename Index>
__global__ LAUNCH_BOUNDS(SIZE *ROWS) void reduce_rows(const u8 *x, u8 *y, i64 rows,
													  typename R::Real real)
{
	constexpr i64 vectors = (COLUMNS + (SKEWED ? 2 * V - 2 : V - 1)) / V;
	constexpr bool full = !SKEWED && vectors % (SIZE * HELD) == 0 && TIMES * ROWS == 1;
	static_assert(TIMES == 1 || vectors <= SIZE * HELD, "rows at once are no longer than a step");
	reduce_rows_of<R, HELD, SIZE, ROWS, TIMES, full, SKEWED, false>(
		x, y, nullptr, rows, static_cast<Number>(COLUMNS), static_cast<Number>(vectors), Number(0),
		1, ROWS, real, ReduceVector<T, V>(), ReduceResult<O>(),
		ReducePlaces<DIMS, X, Y, Index, INNER, STEPS, Number>());
}

/* Rows of any length, in chunks.  FULL: a chunk is whole steps, and a row whole chunks. */
template <class R, typename T, typename O, int V, int HELD, int SIZE, bool FULL, bool SKEWED,
		  typename Number, class INNER, class STEPS, class DIMS, class X, class Y, typename Index>
__global__ LAUNCH_BOUNDS(SIZE) void reduce_long(const u8 *x, u8 *y, u8 *scratch, i64 rows,
												typename R::Real real, i64 columns, i64 vectors,
												i64 chunk, u32 chunks)
{
	reduce_rows_of<R, HELD, SIZE, 1, 1, FULL, SKEWED, true>(
		x, y, scratch, rows, static_cast<Number>(columns), static_cast<Number>(vectors),
		static_cast<Number>(chunk), chunks, 1, real, ReduceVector<T, V>(), ReduceResult<O>(),
		ReducePlaces<DIMS, X, Y, Index, INNER, STEPS, Number>());
}

template <class R, typename T, typename O, int V, int ACC, int UNROLL, int LANES, int SPLIT,
		  typename Number, class INNER, class STEPS, class DIMS, class X, class Y, typename Index,
		  i64 Y_STEP>
__global__ LAUNCH_BOUNDS(LANES *SPLIT) void reduce_columns(const u8 *x, u8 *y, u8 *scratch,
														   i64 rows, typename R::Real real,
														   i64 columns, i64 chunk, u32 chunks)
{
	reduce_columns_of<R, V, ACC, UNROLL, LANES, SPLIT>(
		x, y, scratch, rows, static_cast<Number>(columns), static_cast<Number>(chunk), chunks,
		Y_STEP, real, ReduceVector<T, V>(), ReduceResult<O>(),
		ReducePlaces<DIMS, X, Y, Index, INNER, STEPS, Number>());
}

/* ---- Generic kernels ---- */

/* Up to eight dimensions, fastest first: those that number the rows, then those of a row.  Of the
 * slowest of each the size is not needed. */
struct ReduceSpace {
	u32 kept, all;
	Divisor<u64> size[8];
	i64 x[8], y[8];

	DEVICE void row(i64 number, i64 (&offset)[2]) const
	{
		u64 rest = static_cast<u64>(number);

		offset[0] = offset[1] = 0;
#pragma unroll
		for (u32 k = 0; k < 8; k++) {
			if (k >= kept)
				break;
			const u64 next = k + 1 < kept ? size[k].quotient(rest) : 0;
			const i64 here = static_cast<i64>(rest - next * size[k].size);
			offset[0] += here * x[k];
			offset[1] += here * y[k];
			rest = next;
		}
	}
	DEVICE i64 column(i64 number) const
	{
		u64 rest = static_cast<u64>(number);
		i64 offset = 0;

#pragma unroll
		for (u32 k = 0; k < 8; k++) {
			if (k < kept || k >= all)
				continue;
			const u64 next = k + 1 < all ? size[k].quotient(rest) : 0;
			offset += static_cast<i64>(rest - next * size[k].size) * x[k];
			rest = next;
		}
		return offset;
	}
};

/* One dimension has all columns, no more than ints can number, and two at most number the rows: the
 * usual, and quicker. */
struct ReduceFlat {
	u32 kept;
	Divisor<u64> size;
	i64 x[2], y[2], step;

	DEVICE void row(i64 number, i64 (&offset)[2]) const
	{
		const i64 rest = kept > 1 ? static_cast<i64>(size.quotient(static_cast<u64>(number))) : 0;
		const i64 here = number - rest * static_cast<i64>(size.size);

		offset[0] = here * x[0] + rest * x[1];
		offset[1] = here * y[0] + rest * y[1];
	}
	DEVICE i64 column(int number) const
	{
		return number * step;
	}
};

#define REDUCE_SPACE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define REDUCE_PARAMS(k) , DIVIDE_PARAMS(u64, size##k), i64 x##k, i64 y##k
#define REDUCE_SPACE_MADE                                                                      \
	{                                                                                          \
		kept, all, {DIVIDE_MADE(u64, size0), DIVIDE_MADE(u64, size1), DIVIDE_MADE(u64, size2), \
					DIVIDE_MADE(u64, size3), DIVIDE_MADE(u64, size4), DIVIDE_MADE(u64, size5), \
					DIVIDE_MADE(u64, size6), DIVIDE_MADE(u64, size7)},                         \
			{x0, x1, x2, x3, x4, x5, x6, x7}, {y0, y1, y2, y3, y4, y5, y6, y7},                \
	}
/* Sizes of 0 dimensions are 1, and their rows number 0. */
#define REDUCE_IS_FLAT (kept <= 2 && all == kept + 1 && columns <= 0x3fffffff)
#define REDUCE_FLAT_MADE                                                                        \
	{                                                                                           \
		kept, DIVIDE_MADE(u64, size0), {x0, x1}, {y0, y1}, kept == 0 ? x0 : kept == 1 ? x1 : x2 \
	}

/* Blocks that a multiprocessor is to have room for: those of 64 bits need their registers. */
template <class R>
constexpr int reduce_blocks = sizeof(typename R::Taken) == 4 ? 3 : 1;

/* BLOCK: 256 threads share a row, or a chunk of one; if not, eight have a row. */
template <class R, bool BLOCK>
__global__ __launch_bounds__(256, reduce_blocks<R>) void reduce_rows_generic(
	const u8 *x, u8 *y, u8 *scratch, i64 rows, typename R::Real real, i64 columns, i64 vectors,
	i64 chunk, u32 chunks, u32 type, u32 bytes, u32 wide, u32 y_type, u32 y_bytes, u32 kept,
	u32 all REDUCE_SPACE(REDUCE_PARAMS))
{
	const ReduceSpace space = REDUCE_SPACE_MADE;
	const ReduceAny<typename R::Taken> in{type, bytes, wide};
	const ReduceAnyResult out{y_type, y_bytes};
	const int side = BLOCK ? 1 : static_cast<int>(blockDim.x) / 8;
	const ReduceFlat flat = REDUCE_FLAT_MADE;
	if (REDUCE_IS_FLAT)
		reduce_rows_of<R, 4, (BLOCK ? 256 : 8), (BLOCK ? 1 : 32), 1, false, true, BLOCK>(
			x, y, scratch, rows, static_cast<int>(columns), static_cast<int>(vectors),
			static_cast<int>(chunk), chunks, side, real, in, out, flat);
	else
		reduce_rows_of<R, 4, (BLOCK ? 256 : 8), (BLOCK ? 1 : 32), 1, false, false, BLOCK>(
			x, y, scratch, rows, columns, vectors, chunk, chunks, side, real, in, out, space);
}

template <class R>
__global__ __launch_bounds__(256, 1) void reduce_columns_generic(
	const u8 *x, u8 *y, u8 *scratch, i64 rows, typename R::Real real, i64 columns, i64 chunk,
	u32 chunks, u32 type, u32 bytes, u32 y_type, u32 y_bytes, u32 kept,
	u32 all REDUCE_SPACE(REDUCE_PARAMS))
{
	const ReduceSpace space = REDUCE_SPACE_MADE;
	const ReduceAny<typename R::Taken> in{type, bytes, 0};
	const ReduceAnyResult out{y_type, y_bytes};
	const ReduceFlat flat = REDUCE_FLAT_MADE;
	if (REDUCE_IS_FLAT)
		reduce_columns_of<R, 1, 4, 2, 32, 8>(x, y, scratch, rows, static_cast<int>(columns),
											 static_cast<int>(chunk), chunks, 0, real, in, out,
											 flat);
	else
		reduce_columns_of<R, 1, 4, 1, 32, 8>(x, y, scratch, rows, columns, chunk, chunks, 0, real,
											 in, out, space);
}
