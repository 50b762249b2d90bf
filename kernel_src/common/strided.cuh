/*
 * strided.cuh: rows whose columns lie apart, beside other rows: softmax over any dimension but the
 * last.  Where the elements of a row are, how they come in, and how threads that share a row meet.
 *
 * A tile is LANES * V rows that lie side by side, V in each lane.  SPLIT threads share each lane's
 * rows: part p has columns p, p + SPLIT, ...  A thread holds HELD columns at a time, STEPS times in
 * all; with one step they stay.  TILES tiles side by side make a block.
 */
#pragma once
#include "common/element.cuh"
#include "common/index.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* INNER: rows that lie side by side.  SKEWED: vectors begin where memory is aligned, up to V - 1
 * rows before the first of a tile, which has two vectors less for that: each vector of memory is
 * written by the tile of its first row, which looks at all elements of its other rows, too. */
template <typename T, i64 COLUMNS, int V, int HELD, int LANES, int SPLIT, int TILES, i64 INNER,
		  bool SKEWED = false>
struct StridedShape {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	typedef typename index_choose<(COLUMNS > 0x3fffffff), i64, int>::type Column;
	static constexpr int length = V;
	static constexpr int bytes = V * static_cast<int>(sizeof(T));
	static constexpr int words = vec_words<bytes>;
	static constexpr int held = HELD, lanes = LANES, split = SPLIT, tiles = TILES;
	static constexpr int threads = LANES * SPLIT * TILES;
	static constexpr i64 columns = COLUMNS;
	static constexpr i64 inner = INNER;
	static constexpr bool skewed = SKEWED;
	static constexpr bool alone = INNER + (SKEWED ? V - 1 : 0) <= LANES * V;
	/* Rows of a tile, and tiles side by side. */
	static constexpr int width = (SKEWED && !alone ? LANES - 2 : LANES) * V;
	static constexpr i64 chunks = (INNER + width - 1) / width;
	static constexpr Column steps =
		static_cast<Column>((COLUMNS + HELD * SPLIT - 1) / (HELD * SPLIT));
	static_assert(SKEWED || INNER % V == 0, "whole vectors lie side by side");

	static DEVICE int lane()
	{
		return static_cast<int>(threadIdx.x) % LANES;
	}
	static DEVICE int part()
	{
		return static_cast<int>(threadIdx.x) / LANES % SPLIT;
	}
	static DEVICE u32 block()
	{
		return blockIdx.x;
	}
	static DEVICE int tile()
	{
		return TILES == 1 ? 0 : static_cast<int>(threadIdx.x) / (LANES * SPLIT);
	}
	/* The column that this thread has in place i of a step. */
	static DEVICE Column column(Column step, int i)
	{
		return (step * HELD + i) * SPLIT + part();
	}
	static DEVICE bool has(Column step, int i)
	{
		return COLUMNS % (HELD * SPLIT) == 0 || column(step, i) < static_cast<Column>(COLUMNS);
	}
};

/*
 * Calls body(outer, inner, here) for this thread's lane: its rows are inner .. inner + V - 1 of
 * those that lie side by side at number outer of the others.  here: they are there; if not, the
 * thread comes along for the barriers.  LOOP: the grid is smaller than the tiles.
 */
template <class SHAPE, bool LOOP, typename Index, typename Body>
DEVICE void strided_each(i64 tiles, Body body)
{
	i64 first = static_cast<i64>(SHAPE::block()) * SHAPE::tiles;

	do {
		const i64 tile = first + SHAPE::tile();
		const Index number = static_cast<Index>(tile < tiles ? tile : 0);
		const Index outer = number / static_cast<Index>(SHAPE::chunks);
		const Index inner = (number - outer * static_cast<Index>(SHAPE::chunks)) *
								static_cast<Index>(SHAPE::width) +
							static_cast<Index>(SHAPE::lane() * SHAPE::length);
		body(outer, inner,
			 tile < tiles && (SHAPE::skewed || inner < static_cast<Index>(SHAPE::inner)));
		first += static_cast<i64>(gridDim.x) * SHAPE::tiles;
		if constexpr (LOOP)
			__syncthreads(); /* merges use their memory again */
	} while (LOOP && first < tiles);
}

/* A thread holds this of each of STREAMS tensors. */
template <class SHAPE, int STREAMS>
struct StridedWords {
	typedef typename SHAPE::Element Element;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::Column Column;

	u32 word[SHAPE::held][STREAMS][SHAPE::words];

	/* start[s]: column 0 of the thread's rows; step[s]: from column to column.  Without rows here
	 * nothing is read. */
	DEVICE void fetch(Column at, const Element *const (&start)[STREAMS], const i64 (&step)[STREAMS],
					  bool here)
	{
#pragma unroll
		for (int i = 0; i < SHAPE::held; i++) {
#pragma unroll
			for (int s = 0; s < STREAMS; s++)
				if (here && SHAPE::has(at, i))
					vec_load<SHAPE::bytes>(start[s] + SHAPE::column(at, i) * step[s], word[i][s]);
		}
	}

	/* Returns the element of row v in place i. */
	DEVICE Compute at(int i, int stream, int v) const
	{
		return element_at<Element, Compute>(word[i][stream], v);
	}
};

template <class SHAPE>
DEVICE void strided_store(typename SHAPE::Element *start, i64 step, typename SHAPE::Column column,
						  const typename SHAPE::Compute (&values)[SHAPE::length])
{
	u32 words[SHAPE::words];

	element_pack<typename SHAPE::Element>(values, words);
	vec_store_far<SHAPE::bytes>(start + column * step, words);
}

/*
 * All threads that share a row get what merge makes of their values: merge(values, count, apart) of
 * `count` values, `apart` from one another in shared memory, in order.
 */
template <class SHAPE, class Value, typename Merge>
DEVICE void strided_reduce(Value (&mine)[SHAPE::length], Merge merge)
{
	constexpr int rows = SHAPE::lanes * SHAPE::length, team = SHAPE::lanes * SHAPE::split;

	if constexpr (SHAPE::split > 1) {
		__shared__ Value partial[SHAPE::tiles][SHAPE::split][rows];
		Value(&own)[SHAPE::split][rows] = partial[SHAPE::tile()];
		const int first = SHAPE::lane() * SHAPE::length;
#pragma unroll
		for (int v = 0; v < SHAPE::length; v++)
			own[SHAPE::part()][first + v] = mine[v];
		__syncthreads();
		for (int r = SHAPE::part() * SHAPE::lanes + SHAPE::lane(); r < rows; r += team)
			own[0][r] = merge(&own[0][r], SHAPE::split, rows);
		__syncthreads();
#pragma unroll
		for (int v = 0; v < SHAPE::length; v++)
			mine[v] = own[0][first + v];
	}
}
