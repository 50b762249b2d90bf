/*
 * row_lined.cuh: a shape of skewed rows (row.cuh) whose vectors begin at a line of memory, or as
 * much of one as threads have vectors to spare for: what a warp moves at once touches no more lines
 * then than it fills.  Vectors in front of the row hold nothing of it.  Parts of warps have no
 * lines to fill.
 */
#pragma once
#include "common/row.cuh"

template <class SHAPE>
struct RowLined : SHAPE {
	typedef typename SHAPE::row Base;
	static constexpr int each = static_cast<int>(sizeof(typename SHAPE::Element));
	/* Columns that the threads could hold besides. */
	static constexpr i64 spare =
		static_cast<i64>(Base::held) * Base::apart * SHAPE::cluster - Base::columns;
	static constexpr bool fits(int bytes)
	{
		return Base::apart >= 32 * Base::length && bytes / each - 1 <= spare;
	}

	struct row : Base {
		/* The bytes that vector 0 of the group's first thread begins at a multiple of. */
		static constexpr int line = fits(128) ? 128 : fits(64) ? 64 : fits(32) ? 32 : Base::bytes;

		/* The row begins at `start`. */
		DEVICE row(const void *start, int thread, int slice) : Base(start, thread, slice)
		{
			this->first -= vec_beyond<line>(start) / Base::bytes * Base::length;
		}
		DEVICE bool has(int n) const
		{
			return Base::has(n) && (n > 0 || this->first > -Base::length);
		}
	};
	template <int STREAMS>
	using words = RowWords<row, STREAMS, SHAPE::slots, SHAPE::threads>;
};
