/*
 * index_add_atomic.cuh: few[o, p, i] = base[o, p, i] + alpha * the sum of many[o, k, i] over all k
 * with idx[k] = p, in any order: each element is added to its sum in memory as it comes.  Without a
 * base the sums begin at 0.  With an index for each element, idx has a list for each slice o.
 *
 * Blocks first write what the sums begin with, unless few is base itself.  When all have, they
 * share the elements in strips.
 */
#pragma once
#include "common/atomic.cuh"
#include "common/columns.cuh"
#include "common/index_add.cuh"
#include "common/indices.cuh"
#include "common/indices_find.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

#define INDEX_ADD_ATOMIC_THREADS 256
#define INDEX_ADD_ATOMIC_BLOCKS 4 /* of a multiprocessor at once, by the registers of a thread */

/* A launch is told this; as of IndexAddSizes. */
struct IndexAddAtomicSizes {
	i64 slices, count, end, inner;
	i64 many_axis, base_axis, idx_step;
	i64 columns, padding;
	bool lists;
};

/* T: the type of elements, V of which move at once; Number counts the vectors of both sides; HELD:
 * of a thread at once. */
template <typename T, int V, class Indices, class At, class Find, typename Number, u32 HELD = 4>
struct IndexAddAtomic {
	typedef typename summand<T>::Compute Compute;
	static constexpr int es = static_cast<int>(sizeof(T)), words = vec_words<es * V>;
	static constexpr u32 held = HELD, turns = 16 / HELD; /* of a thread in a strip */

	const u8 *many, *base;
	u8 *few;
	Indices idx;
	IndexAddAtomicSizes size;
	Compute alpha;
	At at;
	Find find;

	/* Where vector `number` is: its slice, its place or its index among `each`, its column. */
	DEVICE void part(Number number, i64 each, i64 &slice, i64 &along, i64 &column) const
	{
		const Number vectors = static_cast<Number>(size.columns / V);
		const Number inner = static_cast<Number>(size.inner), q = number / vectors;
		const Number step = q / inner;
		const Number outer = size.slices == size.inner ? 0 : step / static_cast<Number>(each);

		column = static_cast<i64>(number - q * vectors) * V;
		along = static_cast<i64>(step - outer * static_cast<Number>(each));
		slice = static_cast<i64>(outer * inner + (q - step * inner));
	}

	/* Writes what the sums begin with. */
	DEVICE void begin() const
	{
		const Number all = static_cast<Number>(size.slices * size.end * (size.columns / V));
		const Number stride = static_cast<Number>(gridDim.x) * blockDim.x;

#pragma unroll 1
		for (Number i = static_cast<Number>(blockIdx.x) * blockDim.x + threadIdx.x; i < all;
			 i += stride) {
			u32 in[words] = {};
			if (base) {
				IndexSlice offset;
				i64 slice, place, column;
				part(i, size.end, slice, place, column);
				at(slice, offset);
				vec_load<es * V>(base + (offset[1] + place * size.base_axis + column) * es, in);
			}
			vec_store<es * V>(few + static_cast<i64>(i) * (es * V), in);
		}
	}

	/* Where the sums of an index are; NULL: nowhere. */
	DEVICE T *sums_of(i64 index, i64 slice, i64 first, i64 column, u32 &strays) const
	{
		i64 place;

		if (index == size.padding)
			return nullptr;
		if (!find(index, place)) {
			/* An index that all slices share is counted in one. */
			strays += column == 0 && (size.lists || slice == 0);
			return nullptr;
		}
		return reinterpret_cast<T *>(few) + first + place * (size.inner * size.columns) + column;
	}

	/* Adds the elements of a strip; returns how many indices name nothing. */
	DEVICE u32 strip(u32 number) const
	{
		const Number all = static_cast<Number>(size.slices * size.count * (size.columns / V));
		const Number first = static_cast<Number>(number) * (held * turns * blockDim.x);
		u32 strays = 0;

#pragma unroll 1
		for (u32 turn = 0; turn < turns; turn++) {
			u32 more[held][words];
			T *to[held];
#pragma unroll
			for (u32 j = 0; j < held; j++) {
				const Number i = first + (turn * held + j) * blockDim.x + threadIdx.x;
				IndexSlice offset;
				i64 slice, k, column;
				to[j] = nullptr;
				if (i >= all)
					continue;
				part(i, size.count, slice, k, column);
				at(slice, offset);
				to[j] = sums_of(static_cast<i64>(idx[offset[2] + k * size.idx_step]), slice,
								offset[3], column, strays);
				if (to[j])
					vec_load<es * V>(many + (offset[0] + k * size.many_axis + column) * es,
									 more[j]);
			}
#pragma unroll
			for (u32 j = 0; j < held; j++)
				if (to[j])
					add(to[j], more[j]);
		}
		return strays;
	}

	DEVICE void add(T *to, u32 (&more)[words]) const
	{
		Compute one[V];

		if (alpha != Compute(1)) {
			summand<T>::unpack(more, one);
#pragma unroll
			for (int v = 0; v < V; v++)
				one[v] *= alpha;
			summand<T>::pack(one, more);
		}
		atomic_add<T, V>(to, more);
	}

	/* counters: four that are 0, and are 0 again afterwards. */
	DEVICE u32 all(u32 strips, u32 *counters) const
	{
		u32 strays = 0;

		columns_begin(counters);
		if (base != few)
			begin();
		columns_meet(counters, gridDim.x, strips, [&](u32 number) { strays += strip(number); });
		return strays;
	}
};

/* ---- Kernels ---- */

template <typename T, typename I, int BOUNDS, int V, bool LISTS, class PLACES, typename Place,
		  typename Number>
__global__
__launch_bounds__(INDEX_ADD_ATOMIC_THREADS, INDEX_ADD_ATOMIC_BLOCKS) void index_add_atomic(
	const void *many, const I *idx, const void *base, void *few, u64 *report, i64 slices, i64 count,
	i64 end, i64 padding, u32 strips, u32 *counters, typename summand<T>::Compute alpha)
{
	typedef IndicesFind<I, BOUNDS, Place> Find;
	const IndexAddAtomic<T, V, IndexAddList<I>, PLACES, Find, Number> add{
		static_cast<const u8 *>(many),
		static_cast<const u8 *>(base),
		static_cast<u8 *>(few),
		{idx},
		{slices, count, end, PLACES::inner, PLACES::many_axis, PLACES::base_axis, PLACES::idx_step,
		 PLACES::columns, padding, LISTS},
		alpha,
		PLACES{end},
		Find{end}};
	const u32 strays = add.all(strips, counters);

	if constexpr (BOUNDS == INDICES_CHECK)
		indices_report(report, strays);
}

/* index: bytes of an index; lists: each slice has indices of its own. */
template <typename T, int V>
__global__ __launch_bounds__(INDEX_ADD_ATOMIC_THREADS, 1) void index_add_atomic_generic(
	const void *many, const void *idx, const void *base, void *few, u64 *report, i64 slices,
	i64 count, i64 end, i64 padding, u32 strips, u32 *counters, typename summand<T>::Compute alpha,
	i64 inner, i64 columns, i64 many_axis, i64 base_axis, i64 idx_step, u32 index, u32 bounds,
	u32 lists, SPACE_SIZES(u64), SPACE_STRIDES(of_many), SPACE_STRIDES(of_base),
	SPACE_STRIDES(of_idx))
{
	const Space<3, u64> space{
		SPACE_SIZES_MADE(u64),
		{SPACE_STRIDES_MADE(of_many), SPACE_STRIDES_MADE(of_base), SPACE_STRIDES_MADE(of_idx)}};
	/* Sizes as arguments are long divisions: those of one vector at a time. */
	const IndexAddAtomic<T, V, IndicesAny, IndexAddSpace, IndicesFindAny, u64, 1> add{
		static_cast<const u8 *>(many),
		static_cast<const u8 *>(base),
		static_cast<u8 *>(few),
		{idx, index},
		{slices, count, end, inner, many_axis, base_axis, idx_step, columns, padding, lists != 0},
		alpha,
		IndexAddSpace{space, end, inner, columns},
		IndicesFindAny{end, bounds}};
	const u32 strays = add.all(strips, counters);

	if (bounds == INDICES_CHECK && report)
		indices_report(report, strays);
}
