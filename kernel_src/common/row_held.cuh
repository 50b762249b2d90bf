/*
 * row_held.cuh: row.cuh with a number of columns that is known when the kernel is launched: rows of
 * any length that their threads can hold.  All but the length is constant.
 *
 * NV vectors of V elements a thread, SIZE threads a row, ROWS rows side by side in a block.  SKEWED
 * rows begin anywhere between two vectors, or at one.  Others are whole vectors.
 */
#pragma once
#include "common/row.cuh"
#include "common/space.cuh"

/* Answers what Row answers. */
template <typename T, int V, int NV, int SIZE, bool SKEWED>
struct RowHeld {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	static constexpr int length = V, held = NV;
	static constexpr int bytes = V * static_cast<int>(sizeof(T));
	static constexpr int words = vec_words<bytes>;
	static constexpr int apart = SIZE * V; /* columns from a vector to the next */
	static constexpr bool skewed = SKEWED, full = false;

	int columns, first;

	DEVICE RowHeld(const void *start, i64 columns, int thread)
		: columns(static_cast<int>(columns)), first(thread * V)
	{
		if constexpr (SKEWED)
			first -= vec_beyond<bytes>(start) / static_cast<int>(sizeof(T));
	}
	DEVICE int column(int n) const
	{
		return first + n * apart;
	}
	/* The length alone says it, which is known too late. */
	static DEVICE bool sure(int)
	{
		return false;
	}
	DEVICE bool has(int n) const
	{
		return column(n) < columns;
	}
	/* All threads answer alike, so vectors that no thread has take no time. */
	DEVICE bool any_has(int n) const
	{
		return n * apart < columns + (SKEWED ? V - 1 : 0);
	}
	DEVICE bool live(int n, int j) const
	{
		return !SKEWED || static_cast<u32>(column(n) + j) < static_cast<u32>(columns);
	}
	DEVICE bool inside(int n) const
	{
		return !SKEWED || (column(n) >= 0 && column(n) + V <= columns);
	}
};

/* Answers what RowShape answers. */
template <typename T, int V, int NV, int SIZE, int ROWS, bool SKEWED>
struct HeldShape {
	typedef T Element;
	typedef typename element<T>::compute Compute;
	typedef Group<SIZE, ROWS, 1> group;
	typedef RowHeld<T, V, NV, SIZE, SKEWED> row;
	template <int STREAMS>
	using words = RowWords<row, STREAMS, 0, group::threads>;
	static constexpr int threads = group::threads, rows = ROWS, cluster = 1, slots = 0;
};

/* A multiprocessor holds as many threads as leave 64 registers to each, or 96 to those that hold
 * more. */
#define HELD_BOUNDS(SHAPE)            \
	__launch_bounds__(SHAPE::threads, \
					  (SHAPE::row::held * SHAPE::row::length > 16 ? 640 : 1024) / SHAPE::threads)
