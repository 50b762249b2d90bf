/*
 * index.cuh: from a running number to an offset, with sizes and strides that are known when the
 * kernel is compiled, so that every division is by a constant.
 *
 * Lists are written fastest dimension first.
 */
#pragma once
#include "common/types.cuh"

template <i64... VALUES>
struct List {
	static constexpr i64 product = (VALUES * ... * 1);
	static constexpr i64 first = 1;
};
template <i64 FIRST, i64... VALUES>
struct List<FIRST, VALUES...> {
	static constexpr i64 product = (FIRST * ... * VALUES);
	static constexpr i64 first = FIRST;
};

/*
 * The offset of element number i of a space with these sizes and strides.  The slowest dimension
 * may be left out of the sizes: its index is what remains, and nothing is divided for it.
 */
template <typename Offset, typename Index>
DEVICE Offset index_offset(Index, List<>, List<>)
{
	return 0;
}

template <typename Offset, typename Index, i64 STRIDE>
DEVICE Offset index_offset(Index i, List<>, List<STRIDE>)
{
	return static_cast<Offset>(i) * static_cast<Offset>(STRIDE);
}

template <typename Offset, typename Index, i64 SIZE, i64... SIZES, i64 STRIDE, i64... STRIDES>
DEVICE Offset index_offset(Index i, List<SIZE, SIZES...>, List<STRIDE, STRIDES...>)
{
	const Index rest = i / static_cast<Index>(SIZE);
	const Index here = i - rest * static_cast<Index>(SIZE);
	return static_cast<Offset>(here) * static_cast<Offset>(STRIDE) +
		   index_offset<Offset>(rest, List<SIZES...>{}, List<STRIDES...>{});
}

/* One of two types. */
template <bool FIRST, typename A, typename B>
struct index_choose {
	typedef A type;
};
template <typename A, typename B>
struct index_choose<false, A, B> {
	typedef B type;
};

/* The places of item number i of a batch on both sides.  The slowest dimension's strides are
 * run-time: outer_x, outer_y; DIMS are the others. */
struct index_pair {
	i64 x, y;
};
template <class DIMS, class X, class Y, typename Offset, typename Number>
DEVICE index_pair index_batch(Number item, i64 outer_x, i64 outer_y)
{
	const Number outer = item / static_cast<Number>(DIMS::product);
	const Number inner = item - outer * static_cast<Number>(DIMS::product);
	return {static_cast<i64>(outer) * outer_x + index_offset<Offset>(inner, DIMS{}, X{}),
			static_cast<i64>(outer) * outer_y + index_offset<Offset>(inner, DIMS{}, Y{})};
}
