/*
 * mask.cuh: the masks of masked softmax, in the form that softmax.cuh asks for.
 *
 *   MaskLengths   the first columns of each row take part, as many as a number says
 *   MaskCausal    the columns up to query + diagonal take part
 *   MaskWhole     one flag for the whole row
 *   MaskFlags     a flag for each element: bytes that are 0 or not
 *   MaskAdded     a number for each element, which is added; -inf leaves the element out
 *   MaskAddedRow  one number for the whole row
 *
 * Each is made of what the kernel is given, the offset of the row's first mask element (for
 * MaskCausal the query), and the step from column to column.  The first three know where the row's
 * live part ends, and nothing behind it is read.
 */
#pragma once
#include "common/element.cuh"
#include "common/index.cuh"
#include "common/softmax.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* The value of a whole row of which nothing takes part; uniform: 1 / COLUMNS. */
enum mask_empty { MASK_ZERO, MASK_NAN, MASK_UNIFORM };

template <typename T, i64 COLUMNS, int EMPTY>
struct MaskRow : SoftmaxAll<typename element<T>::compute> {
	typedef typename element<T>::compute Compute;
	typedef typename index_choose<(COLUMNS > 0x3fffffff), i64, int>::type Column;
	static constexpr bool partial = true, counts = EMPTY != MASK_ZERO;
	static constexpr i64 row_bytes = COLUMNS * static_cast<i64>(sizeof(T));
	static constexpr int bytes = 0; /* of a row of mask elements */

	DEVICE Compute empty() const
	{
		if constexpr (EMPTY == MASK_NAN)
			return static_cast<Compute>(__uint_as_float(0x7fc00000u));
		else
			return EMPTY == MASK_UNIFORM ? Compute(1) / static_cast<Compute>(COLUMNS) : Compute(0);
	}
};

/* Bytes of a matrix from which on a mask that others share is gone from the L2 cache when the next
 * one comes to it, and of a band of the rows of all of them. */
#define MASK_FAR (i64{12} << 20)
#define MASK_BAND (i64{8} << 20)

/* The row that is taken as number `number`, of rows of BYTES bytes: where a mask would be gone, a
 * band of the rows of all matrices that share it comes before the next band. */
template <i64 BYTES, typename Index, class DIMS, class STRIDES>
DEVICE Index mask_taken(Index number, DIMS, STRIDES)
{
	return number;
}
template <i64 BYTES, typename Index, i64 ROWS, i64 MANY, i64... DIMS, i64 STRIDE, i64... STRIDES>
DEVICE Index mask_taken(Index number, List<ROWS, MANY, DIMS...>, List<STRIDE, 0, STRIDES...>)
{
	constexpr i64 fit = MASK_BAND / (BYTES * MANY), band = fit < 1 ? 1 : fit < ROWS ? fit : ROWS;
	constexpr i64 last = ROWS % band ? ROWS % band : band;
	if constexpr (ROWS * BYTES < MASK_FAR) {
		return number;
	} else {
		const Index outer = number / static_cast<Index>(ROWS * MANY);
		const Index inner = number - outer * static_cast<Index>(ROWS * MANY);
		const Index first = inner / static_cast<Index>(band * MANY) * static_cast<Index>(band);
		const Index at = inner - first * static_cast<Index>(MANY);
		const bool whole = first + static_cast<Index>(band) <= static_cast<Index>(ROWS);
		const Index one = whole ? at / static_cast<Index>(band) : at / static_cast<Index>(last);
		const Index row = at - one * static_cast<Index>(whole ? band : last);
		return (outer * static_cast<Index>(MANY) + one) * static_cast<Index>(ROWS) + first + row;
	}
}

/* The place of the mask of row number `row`: the step from column to column, the sizes of all
 * dimensions of rows but the slowest, their strides. */
template <i64 STEP, class DIMS, class STRIDES>
struct MaskPlace {
	static constexpr i64 step = STEP;

	/* The row that is taken as number `number`. */
	template <class MASK, typename Index>
	static DEVICE Index taken(Index number)
	{
		if constexpr (MASK::bytes > 0)
			return mask_taken<MASK::row_bytes>(number, DIMS{}, STRIDES{});
		else
			return number;
	}
	template <class MASK, typename Index>
	static DEVICE MASK at(typename MASK::Given given, Index row)
	{
		return MASK(given, index_offset<i64>(row, DIMS{}, STRIDES{}), STEP);
	}
};

/* ---- Prefixes ---- */

template <typename T, i64 COLUMNS, int EMPTY>
struct MaskPrefix : MaskRow<T, COLUMNS, EMPTY> {
	typedef typename MaskRow<T, COLUMNS, EMPTY>::Column Column;
	static constexpr bool prefix = true;
	Column end;

	/* Number: i32 or i64. */
	template <typename Number>
	DEVICE explicit MaskPrefix(Number length)
		: end(length < 0                           ? 0
			  : static_cast<i64>(length) > COLUMNS ? static_cast<Column>(COLUMNS)
												   : static_cast<Column>(length))
	{
	}
	DEVICE Column limit() const
	{
		return end;
	}
	template <class HELD>
	DEVICE bool live(const HELD &, Column column, int j) const
	{
		return column + j < end;
	}
};

template <typename T, i64 COLUMNS, int EMPTY>
struct MaskLengths : MaskPrefix<T, COLUMNS, EMPTY> {
	typedef const i32 *Given;

	DEVICE MaskLengths(Given lengths, i64 offset, i64)
		: MaskPrefix<T, COLUMNS, EMPTY>(lengths[offset])
	{
	}
};

template <typename T, i64 COLUMNS, int EMPTY>
struct MaskCausal : MaskPrefix<T, COLUMNS, EMPTY> {
	typedef i64 Given; /* the diagonal */

	DEVICE MaskCausal(Given diagonal, i64 query, i64)
		: MaskPrefix<T, COLUMNS, EMPTY>(query + diagonal + 1)
	{
	}
};

template <typename T, i64 COLUMNS, int EMPTY, bool KEEP>
struct MaskWhole : MaskPrefix<T, COLUMNS, EMPTY> {
	typedef const u8 *Given;

	DEVICE MaskWhole(Given flags, i64 offset, i64)
		: MaskPrefix<T, COLUMNS, EMPTY>((flags[offset] != 0) == KEEP ? COLUMNS : 0)
	{
	}
};

/* ---- A mask element for each element ---- */

/*
 * The mask elements of a vector come in like this: MASK_APART one by one, for they are more than
 * one element apart or not aligned; MASK_BETWEEN from between two aligned vectors of them; else in
 * pieces of so many bytes, which are aligned.
 */
enum mask_way { MASK_APART = -1, MASK_BETWEEN = 0 };

/* Elements of M one by one; those outside the row are not read.  sure: there are none. */
template <typename M, i64 COLUMNS, bool SKEWED, int V, typename Column>
DEVICE void mask_fetch_apart(const M *start, i64 step, Column column, bool sure, u32 *words)
{
	constexpr int size = static_cast<int>(sizeof(M));
#pragma unroll
	for (int w = 0; w < vec_words<V * size>; w++)
		words[w] = 0;
#pragma unroll
	for (int j = 0; j < V; j++) {
		if (SKEWED && !sure && (column + j < 0 || column + j >= static_cast<Column>(COLUMNS)))
			continue;
		u32 one[vec_words<size>];
		vec_load<size>(start + static_cast<i64>(column + j) * step, one);
		if constexpr (size >= 4) {
#pragma unroll
			for (int w = 0; w < size / 4; w++)
				words[j * size / 4 + w] = one[w];
		} else {
			words[j * size / 4] |= one[0] << j * size % 4 * 8;
		}
	}
}

/* Elements in aligned pieces of BYTES; pieces of less than a word share one. */
template <typename M, int V, int BYTES>
DEVICE void mask_fetch_pieces(const M *start, u32 *words)
{
	constexpr int size = static_cast<int>(sizeof(M)), per = BYTES / size;
	constexpr int pieces = BYTES < 4 ? 4 / BYTES : 1; /* of a word */
#pragma unroll
	for (int j = 0; j < V; j += per) {
		const int piece = j / per % pieces;
		u32 *const to = words + j * size / 4;
		if (piece == 0) {
			vec_load<BYTES>(start + j, to);
		} else {
			u32 one[1];
			vec_load<BYTES>(start + j, one);
			*to |= one[0] << piece * BYTES * 8;
		}
	}
}

/* Mask elements of type M as they are in memory. */
template <typename T, i64 COLUMNS, int EMPTY, typename M, int WAY, bool SKEWED>
struct MaskElements : MaskRow<T, COLUMNS, EMPTY> {
	typedef typename MaskRow<T, COLUMNS, EMPTY>::Column Column;
	typedef const M *Given;
	static constexpr int bytes = static_cast<int>(COLUMNS * static_cast<i64>(sizeof(M)));
	template <int V>
	struct Held {
		u32 word[vec_words<V *static_cast<int>(sizeof(M))>];
	};

	/* Small elements from between two vectors come like this, and are cut out when all are under
	 * way. */
	static constexpr bool between = WAY == MASK_BETWEEN && sizeof(M) <= 2;
	template <int V>
	struct Around {
		u32 word[V * static_cast<int>(sizeof(M)) / 2];
	};

	const M *start;
	i64 step;

	DEVICE MaskElements(Given mask, i64 offset, i64 step) : start(mask + offset), step(step)
	{
	}
	template <template <int> class HELD, int V>
	DEVICE void fetch(HELD<V> &held, Column column, int ahead = 0, bool sure = false) const
	{
		if constexpr (WAY == MASK_APART)
			mask_fetch_apart<M, COLUMNS, SKEWED, V>(start, step, column + ahead, sure, held.word);
		else if constexpr (WAY == MASK_BETWEEN)
			vec_load_between<sizeof(M), V *static_cast<int>(sizeof(M)), COLUMNS>(
				start, column, ahead, sure, held.word);
		else
			mask_fetch_pieces<M, V, WAY>(start + column + ahead, held.word);
	}
	template <int V>
	DEVICE void fetch_around(Around<V> &around, Column column, int ahead, bool sure) const
	{
		vec_load_around<sizeof(M), V *static_cast<int>(sizeof(M)), COLUMNS>(start, column, ahead,
																			sure, around.word);
	}
	template <template <int> class HELD, int V>
	DEVICE void cut(Around<V> &around, HELD<V> &held, Column column) const
	{
		constexpr int bytes = V * static_cast<int>(sizeof(M));
		vec_window<sizeof(M), bytes>(around.word, vec_beyond<bytes>(start + column), held.word);
	}
};

template <typename T, i64 COLUMNS, int EMPTY, bool KEEP, int WAY, bool SKEWED>
struct MaskFlags : MaskElements<T, COLUMNS, EMPTY, u8, WAY, SKEWED> {
	using MaskElements<T, COLUMNS, EMPTY, u8, WAY, SKEWED>::MaskElements;
	static constexpr bool flagged = true, keep = KEEP;

	template <class HELD, typename Column>
	DEVICE bool live(const HELD &held, Column, int j) const
	{
		return ((held.word[j / 4] & 0xffu << j % 4 * 8) != 0) == KEEP;
	}
};

/* Element j of words. */
template <typename Compute>
DEVICE Compute mask_number(f16, const u32 *words, int j)
{
	return static_cast<Compute>(element_widen(f16{static_cast<u16>(words[j / 2] >> j % 2 * 16)}));
}
template <typename Compute>
DEVICE Compute mask_number(bf16, const u32 *words, int j)
{
	return static_cast<Compute>(element_widen(bf16{static_cast<u16>(words[j / 2] >> j % 2 * 16)}));
}
template <typename Compute>
DEVICE Compute mask_number(f32, const u32 *words, int j)
{
	return static_cast<Compute>(__uint_as_float(words[j]));
}
template <typename Compute>
DEVICE Compute mask_number(f64, const u32 *words, int j)
{
	return static_cast<Compute>(__longlong_as_double(
		static_cast<i64>(static_cast<u64>(words[2 * j + 1]) << 32 | words[2 * j])));
}

/* The factor before is all of scale: the sum is rounded once. */
template <typename T, i64 COLUMNS, int EMPTY, typename M, int WAY, bool SKEWED>
struct MaskAdded : MaskElements<T, COLUMNS, EMPTY, M, WAY, SKEWED> {
	typedef typename element<T>::compute Compute;
	using MaskElements<T, COLUMNS, EMPTY, M, WAY, SKEWED>::MaskElements;
	static constexpr bool linear = false;

	template <class HELD, typename Column>
	DEVICE bool live(const HELD &held, Column, int j) const
	{
		typedef typename element<M>::compute Own;
		return mask_number<Own>(M{}, held.word, j) != SoftmaxNumber<Own>::least();
	}
	template <class HELD>
	DEVICE Compute term(const HELD &held, int j, Compute x, Compute before) const
	{
		return fma(x, before, mask_number<Compute>(M{}, held.word, j));
	}
};

template <typename T, i64 COLUMNS, int EMPTY, typename M>
struct MaskAddedRow : MaskPrefix<T, COLUMNS, EMPTY> {
	typedef typename element<T>::compute Compute;
	typedef typename element<M>::compute Own;
	typedef const M *Given;
	static constexpr bool linear = false;

	Compute added;

	DEVICE MaskAddedRow(Given mask, i64 offset, i64)
		: MaskAddedRow(element_load<Own>(mask + offset))
	{
	}
	template <class HELD>
	DEVICE Compute term(const HELD &, int, Compute x, Compute before) const
	{
		return fma(x, before, added);
	}

  private:
	DEVICE explicit MaskAddedRow(Own mask)
		: MaskPrefix<T, COLUMNS, EMPTY>(mask == SoftmaxNumber<Own>::least() ? 0 : COLUMNS),
		  added(static_cast<Compute>(mask))
	{
	}
};
