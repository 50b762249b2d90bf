/*
 * index_add.cuh: where the slices of sums by indices are, and their lists, for kernels that know
 * the sizes when they are compiled and for those that are told at launch.
 */
#pragma once
#include "common/index.cuh"
#include "common/space.cuh"
#include "common/types.cuh"

/* Where a slice begins: in many, in base, in idx and in few. */
typedef i64 IndexSlice[4];

/* Indices of a type that is known. */
template <typename I>
struct IndexAddList {
	typedef I Index;
	const I *idx;

	DEVICE I operator[](i64 at) const
	{
		return idx[at];
	}
};

/* DIMS number the slices; INNER: those behind the indexed dimension; FEW_AXIS as in the sizes. */
template <i64 INNER, i64 COLUMNS, i64 MANY_AXIS, i64 BASE_AXIS, i64 IDX_STEP, class DIMS,
		  class MANY, class BASE, class IDX>
struct IndexAddPlaces {
	static constexpr i64 inner = INNER, columns = COLUMNS, many_axis = MANY_AXIS;
	static constexpr i64 base_axis = BASE_AXIS, few_axis = INNER * COLUMNS, idx_step = IDX_STEP;
	i64 end;

	DEVICE void operator()(i64 slice, IndexSlice &offset) const
	{
		const i64 outer = slice / inner;
		offset[0] = index_offset<i64>(slice, DIMS{}, MANY{});
		offset[1] = index_offset<i64>(slice, DIMS{}, BASE{});
		offset[2] = index_offset<i64>(slice, DIMS{}, IDX{});
		offset[3] = (outer * end * inner + (slice - outer * inner)) * columns;
	}
};

/* Does what IndexAddPlaces does with sizes that are known at launch. */
struct IndexAddSpace {
	const Space<3, u64> &space;
	i64 end, inner, columns;

	DEVICE void operator()(i64 slice, IndexSlice &offset) const
	{
		const i64 outer = static_cast<i64>(static_cast<u64>(slice) / static_cast<u64>(inner));
		i64 at[3];
		space.at(static_cast<u64>(slice), at);
		offset[0] = at[0];
		offset[1] = at[1];
		offset[2] = at[2];
		offset[3] = (outer * end * inner + (slice - outer * inner)) * columns;
	}
};
