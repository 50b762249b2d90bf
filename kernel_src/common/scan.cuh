/*
 * scan.cuh: scans along rows: what an operator makes of each element and all before it.  An
 * operator is a struct of
 *
 *   A, B, C               the types of its inputs, ScanNone where there is none; A's elements count
 *   Y, Z                  the types of its outputs, Z as well ScanNone
 *   Value                 what is known of elements that follow one another; none() knows of none,
 *                         and merge(next) adds what is known of those behind
 *   ahead                 B is read one element further on, and is 1 behind the last, where each
 *                         element belongs to its own result
 *   value(held, v, index, exclusive)      of element v of a vector, number `index` of its row
 *   clear(held, v)        makes of element v one that changes nothing but none()
 *   result(out, held, v, before, upto, exclusive)   element v of the outputs, by what is known of
 *                         the elements before it, and of those up to it
 *   chunks                elements that follow one another have a shorter way: Chunk, chunk()
 *                         and spread(), for inputs without B
 *
 *   rows      a row's elements lie side by side in y: threads scan a row, HELD vectors each
 *   columns   rows lie side by side: LANES vectors of rows, of which SPLIT threads share each
 *   chain     as columns, but rows are so few that blocks share their columns (scan_chain.cuh)
 *
 * A thread goes over its elements twice: first for what they make together, and when it knows what
 * is before them, for the results.  In between it keeps them as they were read.
 *
 * The order of merging depends on the shape of a block, the length of a row and, where SKEW is set,
 * how far beyond an aligned address it begins.
 */
#pragma once
#include "common/scan_chain.cuh"
#include "common/scan_columns.cuh"
#include "common/scan_rows.cuh"
#include "common/space.cuh"

/* ---- Kernels: DIMS, Y and those of IN number the rows, as in index.cuh ---- */

/* The type of numbers of columns. */
template <i64 COLUMNS>
using ScanNumber = typename index_choose<(COLUMNS > 0x3fffffff), i64, int>::type;

/* An input: the step from column to column, and its strides. */
template <i64 STEP, class STRIDES>
struct ScanIn {
	static constexpr i64 step = STEP;
	typedef STRIDES strides;
};

template <class DIMS, class Y, typename Index, class... IN>
struct ScanPlaces {
	DEVICE void operator()(i64 number, ScanPlace &place) const
	{
		const Index i = static_cast<Index>(number);
		const i64 in[] = {index_offset<i64>(i, DIMS{}, typename IN::strides{})...};
		place = {{0, 0, 0}, index_offset<i64>(i, DIMS{}, Y{})};
#pragma unroll
		for (int k = 0; k < static_cast<int>(sizeof...(IN)); k++)
			place.in[k] = in[k];
	}
};

template <class S, int V, int HELD, int SIZE, int ROWS, bool SKEW, bool EARLY, bool REVERSE,
		  bool EXCLUSIVE, i64 COLUMNS, class DIMS, class Y, typename Index, class... IN>
__global__ LAUNCH_BOUNDS(SIZE *ROWS) void scan_rows(const void *a, const void *b, const void *c,
													void *y, void *z, i64 rows)
{
	static_assert(SIZE <= 32 || (ROWS == 1 && SIZE % 32 == 0), "whole warps share a row");
	scan_rows_of<S, V, HELD, (SIZE < 32 ? SIZE : 32), (SIZE > 32), SKEW, REVERSE, EARLY>(
		{{a, b, c}, y, z}, rows, static_cast<ScanNumber<COLUMNS>>(COLUMNS), {{IN::step...}, 1},
		SIZE, ROWS, EXCLUSIVE, ScanPlaces<DIMS, Y, Index, IN...>{});
}

template <class S, int V, int HELD, int LANES, int SPLIT, int EARLY, bool REVERSE, bool EXCLUSIVE,
		  i64 COLUMNS, i64 Y_STEP, class DIMS, class Y, typename Index, class... IN>
__global__ LAUNCH_BOUNDS(LANES *SPLIT) void scan_columns(const void *a, const void *b,
														 const void *c, void *y, void *z, i64 rows)
{
	scan_columns_of<S, V, HELD, LANES, SPLIT, REVERSE, EARLY>(
		{{a, b, c}, y, z}, rows, static_cast<ScanNumber<COLUMNS>>(COLUMNS), {{IN::step...}, Y_STEP},
		SPLIT, EXCLUSIVE, ScanPlaces<DIMS, Y, Index, IN...>{});
}

/* A multiprocessor has as many blocks of a chain as have so many threads: three with tiles of 64 kB
 * find room in its shared memory. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define SCAN_CHAIN_BOUNDS(threads, held) \
	__launch_bounds__(threads, ((held) > 8 ? 768 : 1024) / (threads))
#else
#define SCAN_CHAIN_BOUNDS(threads, held) LAUNCH_BOUNDS(threads)
#endif

/* Each block has one tile.  scratch: see scan_chain.cuh. */
template <class S, int V, int HELD, int LANES, int SPLIT, bool REVERSE, bool EXCLUSIVE, i64 COLUMNS,
		  i64 Y_STEP, class DIMS, class Y, typename Index, class... IN>
__global__ SCAN_CHAIN_BOUNDS(LANES *SPLIT, HELD) void scan_chain(const void *a, const void *b,
																 const void *c, void *y, void *z,
																 i64 rows, u8 *scratch)
{
	scan_chain_of<S, V, HELD, LANES, SPLIT, REVERSE>(
		{{a, b, c}, y, z}, rows, static_cast<ScanNumber<COLUMNS>>(COLUMNS), {{IN::step...}, Y_STEP},
		EXCLUSIVE, ScanPlaces<DIMS, Y, Index, IN...>{}, scratch);
}

struct ScanSpace {
	Space<4, u64> space;
	DEVICE void operator()(i64 number, ScanPlace &place) const
	{
		i64 offset[4];
		space.at(static_cast<u64>(number), offset);
		place = {{offset[0], offset[1], offset[2]}, offset[3]};
	}
};

#define SCAN_SPACE                                                                                \
	SPACE_SIZES(u64), SPACE_STRIDES(as), SPACE_STRIDES(bs), SPACE_STRIDES(cs), SPACE_STRIDES(ys), \
		i64 a_step, i64 b_step, i64 c_step, i64 y_step, u32 exclusive
#define SCAN_SPACE_MADE                                                                 \
	{                                                                                   \
		{                                                                               \
			SPACE_SIZES_MADE(u64),                                                      \
			{                                                                           \
				SPACE_STRIDES_MADE(as), SPACE_STRIDES_MADE(bs), SPACE_STRIDES_MADE(cs), \
					SPACE_STRIDES_MADE(ys)                                              \
			}                                                                           \
		}                                                                               \
	}

/* Sizes and strides are arguments.  THREADS: of a block, at most.  BLOCK: all of them share a row;
 * if not, each warp has one. */
template <class S, int V, int HELD, int THREADS, bool BLOCK, bool REVERSE>
__global__ __launch_bounds__(THREADS, 1) void scan_rows_generic(const void *a, const void *b,
																const void *c, void *y, void *z,
																i64 rows, i64 columns, SCAN_SPACE)
{
	const ScanSpace at = SCAN_SPACE_MADE;
	const int threads = static_cast<int>(blockDim.x);
	scan_rows_of<S, V, HELD, 32, BLOCK, (V > 1), REVERSE, false>(
		{{a, b, c}, y, z}, rows, columns, {{a_step, b_step, c_step}, y_step}, BLOCK ? threads : 32,
		BLOCK ? 1 : threads / 32, exclusive, at);
}

template <class S, int V, int HELD, int LANES, int SPLIT, bool REVERSE>
__global__ LAUNCH_BOUNDS(LANES *SPLIT) void scan_columns_generic(const void *a, const void *b,
																 const void *c, void *y, void *z,
																 i64 rows, i64 columns, SCAN_SPACE)
{
	const ScanSpace at = SCAN_SPACE_MADE;
	scan_columns_of<S, V, HELD, LANES, SPLIT, REVERSE, 0>(
		{{a, b, c}, y, z}, rows, columns, {{a_step, b_step, c_step}, y_step},
		static_cast<int>(blockDim.x) / LANES, exclusive, at);
}
