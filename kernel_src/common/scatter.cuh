/*
 * scatter.cuh: where the rows of ddst and the lists of indices are, for sums by indices whose sizes
 * are known when the kernel is compiled.
 */
#pragma once
#include "common/index.cuh"
#include "common/types.cuh"

/* Dimensions as in GatherPlaces: DIMS number the rows, all but the slowest; STEP elements apart is
 * what follows in one row. */
template <i64 DDST_STEP, i64 IDX_STEP, class DIMS, class DDST, class IDX>
struct ScatterPlaces {
	static constexpr i64 ddst_step = DDST_STEP, idx_step = IDX_STEP;

	template <typename Number>
	static DEVICE i64 ddst(Number row)
	{
		return index_offset<i64>(row, DIMS{}, DDST{});
	}
	template <typename Number>
	static DEVICE i64 idx(Number row)
	{
		return index_offset<i64>(row, DIMS{}, IDX{});
	}
};
