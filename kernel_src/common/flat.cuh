/*
 * flat.cuh: results that lie side by side, of which each thread makes a vector, and operands whose
 * rows may lie apart.
 *
 * Element e of the results is column e % columns of row e / columns; without columns all is one
 * row.  How a thread reads V elements from e on:
 *
 *   FLAT_WHOLE    as one vector: rows of operands are aligned as the results are
 *   FLAT_SKEWED   cut out of the two aligned vectors around them
 *   FLAT_APART    one by one: columns lie apart
 *
 * Vectors that lie in two rows, and the last one if it is not whole, are read one by one always.
 */
#pragma once
#include "common/element.cuh"
#include "common/index.cuh"
#include "common/space.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

enum { FLAT_WHOLE, FLAT_SKEWED, FLAT_APART };

/* COLUMNS 0: one row. */
template <typename Index, i64 COLUMNS>
struct FlatRows {
	typedef Index Number;

	DEVICE Index row(Index e) const
	{
		return COLUMNS == 0 ? 0 : e / static_cast<Index>(COLUMNS ? COLUMNS : 1);
	}
	DEVICE Index column(Index e, Index row) const
	{
		return e - row * static_cast<Index>(COLUMNS);
	}
	DEVICE bool within(Index column, int count) const
	{
		return COLUMNS % count == 0 ||
			   column + static_cast<Index>(count) <= static_cast<Index>(COLUMNS);
	}
};

/* Rows whose sizes are arguments.  columns: of a row, which is all there is if `lone` is set. */
struct FlatAny {
	typedef u64 Number;
	Divisor<u64> columns;
	bool lone;

	DEVICE u64 row(u64 e) const
	{
		return lone ? 0 : columns.quotient(e);
	}
	DEVICE u64 column(u64 e, u64 row) const
	{
		return e - row * columns.size;
	}
	DEVICE bool within(u64 column, int count) const
	{
		return lone || column + static_cast<u64>(count) <= columns.size;
	}
};

/* An operand of FlatRows: its rows begin where ROW says, its columns are STEP apart. */
template <typename T, i64 STEP, class DIMS, class ROW>
struct FlatOperand {
	typedef T Element;
	const T *start;

	template <typename Index>
	DEVICE i64 at(Index row, Index column) const
	{
		return index_offset<i64>(row, DIMS{}, ROW{}) + static_cast<i64>(column) * STEP;
	}
};

/* An operand of FlatAny. */
template <typename T>
struct FlatOperandAny {
	typedef T Element;
	const T *start;
	i64 step;
	Space<1, u64> space;

	DEVICE i64 at(u64 row, u64 column) const
	{
		i64 offset[1];
		space.at(row, offset);
		return offset[0] + static_cast<i64>(column) * step;
	}
};

#define FLAT_OPERAND(T, start, step, strides) \
	FlatOperandAny<T>                         \
	{                                         \
		start, step,                          \
		{                                     \
			SPACE_SIZES_MADE(u64),            \
			{                                 \
				SPACE_STRIDES_MADE(strides)   \
			}                                 \
		}                                     \
	}

/* Where a vector of V elements begins: its row and column, and how much of it there is. */
template <class ROWS, int V>
struct FlatPlace {
	typedef typename ROWS::Number Number;
	Number e, row, column;
	bool single; /* whole, and in one row */

	DEVICE FlatPlace(const ROWS &rows, Number e, Number elements)
		: e(e), row(rows.row(e)), column(rows.column(e, row)),
		  single(e + V <= elements && rows.within(column, V))
	{
	}
};

/*
 * A single vector: the constructor asks for it, and take() waits until it is there.  A kernel that
 * reads several operands asks for all of them first: a branch for each would wait for one before it
 * asks for the next.
 */
template <int WAY, int V, typename T>
struct FlatVector {
	static constexpr int size = static_cast<int>(sizeof(T)), bytes = V * size;
	static constexpr bool cut = WAY == FLAT_SKEWED && V > 1;
	u32 words[cut ? bytes / 2 : vec_words<bytes>];
	int beyond;

	template <class ROWS, class OPERAND>
	DEVICE FlatVector(const FlatPlace<ROWS, V> &place, const OPERAND &operand) : beyond(0)
	{
		const T *const from = operand.start + operand.at(place.row, place.column);
		if constexpr (cut) {
			beyond = vec_beyond<bytes>(from);
			const u8 *const low = reinterpret_cast<const u8 *>(from) - beyond;
			vec_load<bytes>(low, words);
			vec_load<bytes>(low + (beyond ? bytes : 0), words + bytes / 4);
		} else {
			vec_load<bytes>(from, words);
		}
	}
	template <typename Compute>
	DEVICE void take(Compute (&out)[V])
	{
		if constexpr (cut) {
			u32 whole[bytes / 4];
			vec_window<size, bytes>(words, beyond, whole);
			element_unpack<T>(whole, out);
		} else {
			element_unpack<T>(words, out);
		}
	}
};

template <int WAY, int V, class ROWS, class OPERAND, typename Compute>
DEVICE void flat_load(const ROWS &rows, const FlatPlace<ROWS, V> &place, const OPERAND &operand,
					  typename ROWS::Number elements, Compute (&out)[V])
{
	typedef typename ROWS::Number Number;
	typedef typename OPERAND::Element T;
	const T *const start = operand.start;

	if constexpr (WAY != FLAT_APART) {
		if (place.single) {
			FlatVector<WAY, V, T>(place, operand).take(out);
			return;
		}
	}
#pragma unroll
	for (int j = 0; j < V; j++) {
		const Number e = place.e + static_cast<Number>(j);
		out[j] = 0;
		if (e < elements) {
			const Number row = rows.row(e);
			out[j] = element_load<Compute>(start + operand.at(row, rows.column(e, row)));
		}
	}
}

/* Stores a vector at e of results that lie side by side. */
template <int V, typename T, typename Number, typename Compute>
DEVICE void flat_store(T *start, Number e, Number elements, const Compute (&values)[V])
{
	constexpr int bytes = V * static_cast<int>(sizeof(T));

	if (e + V <= elements) {
		u32 words[vec_words<bytes>];
		element_pack<T>(values, words);
		vec_store<bytes>(start + e, words);
		return;
	}
#pragma unroll
	for (int j = 0; j < V; j++)
		if (e + static_cast<Number>(j) < elements)
			element_store(start + e + j, values[j]);
}

/* Calls body(e) for each vector of V results that this thread has.  LOOP: the grid is smaller than
 * the vectors. */
template <int V, bool LOOP, typename Number, typename Body>
DEVICE void flat_each(Number elements, Body body)
{
	Number e = (static_cast<Number>(blockIdx.x) * static_cast<Number>(blockDim.x) +
				static_cast<Number>(threadIdx.x)) *
			   V;

	while (e < elements) {
		body(e);
		if constexpr (!LOOP)
			break;
		e += static_cast<Number>(gridDim.x) * static_cast<Number>(blockDim.x) * V;
	}
}
