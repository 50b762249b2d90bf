/*
 * row_stream.cuh: rows that are too long to be held.  A block goes over a row in steps, as often as
 * it needs.  In each step a thread has COUNT vectors.  Vectors are cut and numbered as those of
 * row.cuh, but without end; skewed rows are as they are there.
 */
#pragma once
#include "common/element.cuh"
#include "common/group.cuh"
#include "common/index.cuh"
#include "common/row.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

template <typename T, i64 COLUMNS, int V, int COUNT, int SIZE, bool SKEWED>
struct RowStream {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	typedef Group<SIZE, 1, 1> group;
	typedef typename index_choose<(COLUMNS > 0x3fffffff), i64, int>::type Column;
	static constexpr int threads = SIZE;
	static constexpr int rows = 1;
	static constexpr int cluster = 1;
	static constexpr int length = V;
	static constexpr int bytes = V * static_cast<int>(sizeof(T));
	static constexpr int words = vec_words<bytes>;
	static constexpr int count = COUNT;
	static constexpr i64 columns = COLUMNS;
	static constexpr bool skewed = SKEWED;
	static constexpr Column vectors =
		static_cast<Column>((COLUMNS + (SKEWED ? 2 * V - 2 : V - 1)) / V);
	static constexpr bool full = !SKEWED && vectors % (COUNT * SIZE) == 0;
	static_assert(SIZE % 32 == 0, "whole warps");
	static_assert(SKEWED || COLUMNS % V == 0, "rows are whole vectors");

	Column first;

	DEVICE explicit RowStream(const void *start) : first(static_cast<Column>(threadIdx.x) * V)
	{
		if constexpr (SKEWED) {
			const u32 past = static_cast<u32>(reinterpret_cast<u64>(start)) % bytes;
			first -= static_cast<int>(past / sizeof(T));
		}
	}

	/* Steps that reach column `end`. */
	static DEVICE Column steps(i64 end = COLUMNS)
	{
		if (end >= COLUMNS)
			return (vectors + COUNT * SIZE - 1) / (COUNT * SIZE);
		return (static_cast<Column>(end) + (SKEWED ? 2 * V - 2 : V - 1)) / V / (COUNT * SIZE) + 1;
	}

	/* Vector n of this thread: step n / COUNT has it. */
	DEVICE Column column(Column n) const
	{
		return first + n * (SIZE * V);
	}
	DEVICE bool has(Column n) const
	{
		if constexpr (full)
			return true;
		else
			return column(n) < static_cast<Column>(COLUMNS);
	}
	DEVICE bool live(Column n, int j) const
	{
		if constexpr (!SKEWED)
			return true;
		else
			return column(n) + j >= 0 && column(n) + j < static_cast<Column>(COLUMNS);
	}
	DEVICE bool inside(Column n) const
	{
		if constexpr (!SKEWED)
			return true;
		else
			return column(n) >= 0 && column(n) + V <= static_cast<Column>(COLUMNS);
	}
};

/* The vectors of one step, of each of STREAMS tensors. */
template <class ROW, int STREAMS>
struct RowStep {
	typedef typename ROW::Element Element;
	typedef typename ROW::Compute Compute;
	typedef typename ROW::Column Column;

	u32 word[ROW::count][STREAMS][ROW::words];

	template <class PART>
	DEVICE void fetch(const PART &row, Column step, const Element *const (&start)[STREAMS],
					  const i64 (&apart)[STREAMS])
	{
#pragma unroll
		for (int u = 0; u < ROW::count; u++) {
			const Column n = step * ROW::count + u;
#pragma unroll
			for (int s = 0; s < STREAMS; s++)
				if (row.has(n))
					vec_load<ROW::bytes>(row_place<ROW::length>(start[s], row.column(n), apart[s]),
										 word[u][s]);
		}
	}

	/* Calls body(n, u, values) for every vector u of the step that the row has something of. */
	template <class PART, typename Body>
	DEVICE void each(const PART &row, Column step, Body body) const
	{
#pragma unroll
		for (int u = 0; u < ROW::count; u++) {
			const Column n = step * ROW::count + u;
			if (!row.has(n))
				continue;
			Compute values[STREAMS][ROW::length];
#pragma unroll
			for (int s = 0; s < STREAMS; s++)
				element_unpack<Element>(word[u][s], values[s]);
			body(n, u, values);
		}
	}
};
