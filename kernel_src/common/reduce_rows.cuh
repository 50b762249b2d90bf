/*
 * reduce_rows.cuh: reductions of rows whose elements lie side by side: the threads of a row go over
 * its vectors, and then merge their values.  Of a long row each block has a chunk.
 */
#pragma once
#include "common/group.cuh"
#include "common/last.cuh"
#include "common/reduce_parts.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

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
