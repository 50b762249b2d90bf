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
#include "common/group.cuh"
#include "common/index.cuh"
#include "common/last.cuh"
#include "common/reduce.cuh"
#include "common/space.cuh"

/* Counters of `count` rows or tiles come first in scratch memory. */
template <class Value>
DEVICE Value *reduce_parts(u8 *scratch, i64 count)
{
	return reinterpret_cast<Value *>(scratch + (count * 4 + 255) / 256 * 256);
}

/* The number that elements are taken with: the launch's, or the first element of row v of a vector
 * of rows. */
template <class R, class IN>
DEVICE typename R::Real reduce_with(const IN &in, const u8 *start, bool there,
									typename R::Real real, int v)
{
	if constexpr (R::pivoted)
		return there ? static_cast<typename R::Real>(in.at(start + v * in.bytes())) : 0;
	else
		return real;
}

/* ---- Rows ---- */

/* A row, or a chunk of one: vectors begin .. end - 1 of those that cover it. */
template <typename Number>
struct ReduceLine {
	const u8 *start; /* of column 0 */
	Number past;     /* elements between the vector that holds it and column 0 */
	Number begin, end;
};

/* Takes what a thread has of TIMES lines, all but the first of which are no longer than it. */
template <class R, int HELD, int SIZE, int TIMES, bool FULL, bool SKEWED, class IN, typename Number,
		  class AT>
DEVICE void reduce_take(const IN &in, const ReduceLine<Number> (&line)[TIMES], Number columns,
						int thread, const typename R::Real (&real)[TIMES], const AT &at,
						typename R::Value (&value)[TIMES])
{
	const Number length = in.length();

#pragma unroll 1
	for (Number step = line[0].begin; step < line[0].end; step += HELD * SIZE) {
		u32 word[TIMES][HELD][IN::words];
#pragma unroll
		for (int t = 0; t < TIMES; t++) {
#pragma unroll
			for (int h = 0; h < HELD; h++) {
				const Number number = step + (h * SIZE + thread);
				const Number first = number * length - line[t].past;
				if (FULL || (number < line[t].end && (!SKEWED || first < columns)))
					in.load(line[t].start + (at.column(number) - line[t].past) * in.bytes(),
							word[t][h]);
			}
		}
#pragma unroll
		for (int t = 0; t < TIMES; t++) {
#pragma unroll
			for (int h = 0; h < HELD; h++) {
				const Number number = step + (h * SIZE + thread);
				const Number first = number * length - line[t].past;
				if (!FULL && (number >= line[t].end || (SKEWED && first >= columns)))
					continue;
				if constexpr (SKEWED)
					if (first < 0 || first + length > columns) {
						in.template take_part<R>(value[t], word[t][h], first, columns, real[t]);
						continue;
					}
				in.template take<R>(value[t], word[t][h], first, real[t]);
			}
		}
	}
}

/* The value of a row whose place is that of the vector it is in, or its own. */
template <class R, class IN, typename Number, class AT>
DEVICE void reduce_locate(const IN &in, const ReduceLine<Number> &line, Number columns,
						  const AT &at, typename R::Value &value)
{
	const Number length = in.length(), where = static_cast<Number>(value.where);
	const Number number = (where + line.past) / length;
	const Number inside = where + line.past - number * length;
	const u8 *const from = line.start + (at.column(number) - line.past + inside) * in.bytes();
	Number found = 0;

#pragma unroll
	for (Number i = length - 1; i > 0; i--)
		if (inside + i < length && where + i < columns &&
			R::is(value, in.at(from + i * in.bytes())))
			found = i;
	if (R::is(value, in.at(from)))
		found = 0;
	value.where += found;
}

/* Puts together what the chunks of a row left, in the block that finds itself the last of them.
 * true: `value` is that of the whole row. */
template <int SIZE, class Value>
DEVICE bool reduce_last(Value &value, u8 *scratch, i64 rows, i64 row, u32 chunk, u32 chunks)
{
	typedef Group<SIZE, 1, 1> Whole;
	constexpr u32 once = sizeof(Value) <= 8 ? 16 : 4; /* loads under way */
	Value *const parts = reduce_parts<Value>(scratch, rows) + row * chunks;
	int last = 0;

	if (threadIdx.x == 0) {
		parts[chunk] = value;
		last = last_of(reinterpret_cast<u32 *>(scratch) + row, chunks);
	}
	if (!__syncthreads_or(last))
		return false;
	value = Value::none();
#pragma unroll 1
	for (u32 first = threadIdx.x; first < chunks; first += once * SIZE) {
		Value some[once];
#pragma unroll
		for (u32 u = 0; u < once; u++)
			some[u] = first + u * SIZE < chunks ? parts[first + u * SIZE] : Value::none();
#pragma unroll
		for (u32 u = 0; u < once; u++)
			value.merge(some[u]);
	}
	value = Whole::template reduce<1>(value);
	return true;
}

/*
 * A block has `side` * TIMES rows, or one chunk of a row.  vectors: that cover a row, of which a
 * chunk has `chunk`.  at.row(number, offsets) says where a row and its result are,
 * at.column(number) where in a row a vector begins.
 */
template <class R, int HELD, int SIZE, int ROWS, int TIMES, bool FULL, bool SKEWED, bool CHUNKED,
		  class IN, class OUT, typename Number, class AT>
DEVICE void reduce_rows_of(const u8 *x, u8 *y, u8 *scratch, i64 rows, Number columns,
						   Number vectors, Number chunk, u32 chunks, int side,
						   typename R::Real real, const IN &in, const OUT &out, const AT &at)
{
	typedef Group<SIZE, ROWS, 1> Threads;
	typedef typename R::Value Value;
	const i64 pieces = rows * (CHUNKED ? chunks : 1);
	const int mine = Threads::row();

	for (i64 first = static_cast<i64>(blockIdx.x) * side * TIMES; first < pieces;
		 first += static_cast<i64>(gridDim.x) * side * TIMES) {
		ReduceLine<Number> line[TIMES];
		Value value[TIMES];
		typename R::Real with[TIMES];
		i64 target[TIMES];
		u32 part = 0;
#pragma unroll
		for (int t = 0; t < TIMES; t++) {
			const i64 piece = first + t * side + mine;
			i64 row = piece < pieces ? piece : 0, offset[2];
			line[t].begin = 0;
			line[t].end = piece < pieces ? vectors : 0;
			if constexpr (CHUNKED) {
				row = chunks > 1 ? piece / chunks : piece;
				part = static_cast<u32>(piece - row * chunks);
				line[t].begin = static_cast<Number>(part) * chunk;
				line[t].end = vectors - line[t].begin > chunk ? line[t].begin + chunk : vectors;
			}
			at.row(row, offset);
			target[t] = offset[1];
			line[t].start = x + offset[0] * in.bytes();
			line[t].past = SKEWED && in.length() > 1
							   ? static_cast<Number>(in.count(vec_beyond<16>(line[t].start)))
							   : 0;
			value[t] = Value::none();
			with[t] = reduce_with<R>(in, line[t].start, columns > 0, real, 0);
		}
		reduce_take<R, HELD, SIZE, TIMES, FULL, SKEWED>(in, line, columns, Threads::thread(), with,
														at, value);
#pragma unroll
		for (int t = 0; t < TIMES; t++) {
			value[t] = Threads::template reduce<0>(value[t]);
			if constexpr (CHUNKED)
				if (chunks > 1 &&
					!reduce_last<SIZE>(value[t], scratch, rows, first / chunks, part, chunks))
					continue;
			if (Threads::thread() != 0 || first + t * side + mine >= pieces)
				continue;
			if constexpr (R::located)
				if (columns > 0)
					reduce_locate<R>(in, line[t], columns, at, value[t]);
			out.store(y, target[t], R::finish(value[t], real));
		}
		if (SIZE > 32 && first + static_cast<i64>(gridDim.x) * side * TIMES < pieces)
			__syncthreads(); /* the group's memory is used again */
	}
}

/* ---- Columns ---- */

/* The values of all threads of a row, as a binary tree; part 0 gets what they make together. */
template <int ACC, int LANES, int SPLIT, int V, class Value>
DEVICE void reduce_join(Value (&value)[ACC][V], int lane, int part)
{
	__shared__ Value shared[V][SPLIT][LANES];

#pragma unroll
	for (int w = 1; w < ACC; w *= 2) {
#pragma unroll
		for (int i = 0; i + w < ACC; i += 2 * w) {
#pragma unroll
			for (int v = 0; v < V; v++)
				value[i][v].merge(value[i + w][v]);
		}
	}
	if constexpr (SPLIT > 1) {
#pragma unroll
		for (int v = 0; v < V; v++)
			shared[v][part][lane] = value[0][v];
#pragma unroll 1
		for (int w = 1; w < SPLIT; w *= 2) {
			__syncthreads();
			if (part % (2 * w) == 0) {
#pragma unroll
				for (int v = 0; v < V; v++) {
					value[0][v].merge(shared[v][part + w][lane]);
					shared[v][part][lane] = value[0][v];
				}
			}
		}
	}
}

/* Like reduce_last(), for the rows of a tile. */
template <int ACC, int LANES, int SPLIT, int V, class Value>
DEVICE bool reduce_columns_last(Value (&value)[ACC][V], u8 *scratch, i64 tiles, i64 tile, i64 chunk,
								u32 chunks)
{
	const int lane = static_cast<int>(threadIdx.x) % LANES;
	const int part = static_cast<int>(threadIdx.x) / LANES;
	const i64 apart = tiles * (LANES * V);
	Value *const parts = reduce_parts<Value>(scratch, tiles) + (tile * LANES + lane) * V;
	int last = 0;

	if (part == 0) {
#pragma unroll
		for (int v = 0; v < V; v++)
			parts[chunk * apart + v] = value[0][v];
	}
	__syncthreads();
	if (threadIdx.x == 0)
		last = last_of(reinterpret_cast<u32 *>(scratch) + tile, chunks);
	if (!__syncthreads_or(last))
		return false;
#pragma unroll
	for (int i = 0; i < ACC; i++) {
#pragma unroll
		for (int v = 0; v < V; v++)
			value[i][v] = Value::none();
#pragma unroll 4
		for (u32 c = part * ACC + i; c < chunks; c += ACC * SPLIT) {
#pragma unroll
			for (int v = 0; v < V; v++)
				value[i][v].merge(parts[c * apart + v]);
		}
	}
	reduce_join<ACC, LANES, SPLIT, V>(value, lane, part);
	return true;
}

/* A thread has V rows that lie side by side.  chunk: columns of a chunk.  y_step: from result to
 * result. */
template <class R, int V, int ACC, int UNROLL, int LANES, int SPLIT, class IN, class OUT,
		  typename Number, class AT>
DEVICE void reduce_columns_of(const u8 *x, u8 *y, u8 *scratch, i64 rows, Number columns,
							  Number chunk, u32 chunks, i64 y_step, typename R::Real real,
							  const IN &in, const OUT &out, const AT &at)
{
	typedef typename R::Value Value;
	typedef typename R::Real Real;
	constexpr int leaves = ACC * SPLIT;
	const int lane = static_cast<int>(threadIdx.x) % LANES;
	const int part = static_cast<int>(threadIdx.x) / LANES;
	const i64 tiles = (rows + LANES * V - 1) / (LANES * V);

	for (i64 piece = blockIdx.x; piece < tiles * chunks; piece += gridDim.x) {
		const i64 number = chunks > 1 ? piece / tiles : 0, tile = piece - number * tiles;
		const i64 row = (tile * LANES + lane) * V;
		const bool here = row < rows;
		const Number begin = static_cast<Number>(number) * chunk;
		const Number end = columns - begin > chunk ? begin + chunk : columns;
		Value value[ACC][V];
		Real with[V];
		i64 offset[2];

		at.row(here ? row : 0, offset);
		const u8 *const start = x + offset[0] * in.bytes();
#pragma unroll
		for (int v = 0; v < V; v++)
			with[v] = reduce_with<R>(in, start, columns > 0, real, v);
#pragma unroll
		for (int i = 0; i < ACC; i++) {
#pragma unroll
			for (int v = 0; v < V; v++)
				value[i][v] = Value::none();
		}
		Number count = 1;
#pragma unroll 1
		for (Number step = begin + part * ACC; step < end; step += leaves * UNROLL) {
			u32 word[UNROLL][ACC][IN::words];
#pragma unroll
			for (int u = 0; u < UNROLL; u++) {
#pragma unroll
				for (int i = 0; i < ACC; i++)
					if (here && step + (u * leaves + i) < end)
						in.load(start + at.column(step + (u * leaves + i)) * in.bytes(),
								word[u][i]);
			}
			if constexpr (R::pivoted && UNROLL > 1) {
				/* All at once: none waits for the one before. */
				if (here && step + ((UNROLL - 1) * leaves + ACC - 1) < end) {
					const Real inverse = inverse_near(static_cast<Real>(count + (UNROLL - 1)));
#pragma unroll
					for (int i = 0; i < ACC; i++) {
#pragma unroll
						for (int v = 0; v < V; v++) {
							typename R::Taken some[UNROLL];
#pragma unroll
							for (int u = 0; u < UNROLL; u++)
								some[u] = in.element(word[u][i], v);
							R::take_some(value[i][v], some, count - 1, inverse, with[v]);
						}
					}
					count += UNROLL;
					continue;
				}
			}
#pragma unroll
			for (int u = 0; u < UNROLL; u++, count++) {
				const Real inverse = inverse_near(static_cast<Real>(count));
#pragma unroll
				for (int i = 0; i < ACC; i++) {
					if (!here || step + (u * leaves + i) >= end)
						continue;
#pragma unroll
					for (int v = 0; v < V; v++)
						R::take_one(value[i][v], in.element(word[u][i], v), step + (u * leaves + i),
									count, inverse, with[v]);
				}
			}
		}
#pragma unroll
		for (int i = 0; i < ACC; i++) {
			const Number rest = end - begin - (part * ACC + i);
#pragma unroll
			for (int v = 0; v < V; v++)
				R::counted(value[i][v], rest > 0 ? (rest + leaves - 1) / leaves : 0);
		}
		reduce_join<ACC, LANES, SPLIT, V>(value, lane, part);
		if (chunks > 1 &&
			!reduce_columns_last<ACC, LANES, SPLIT>(value, scratch, tiles, tile, number, chunks))
			continue;
		if (part == 0 && here) {
#pragma unroll
			for (int v = 0; v < V; v++)
				out.store(y, offset[1] + v * y_step, R::finish(value[0][v], real));
		}
		__syncthreads(); /* the shared values are used again */
	}
}

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
