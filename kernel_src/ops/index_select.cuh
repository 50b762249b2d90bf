/*
 * index_select.cuh: dst[o, k, i] = src[o, idx[k], i], bit for bit, and the same with an index for
 * each element of dst.  Elements are bytes: their type is not known here.
 *
 *   index_rows      a row is a run of elements that one index moves.  A thread moves U vectors of W
 *                   bytes, THREADS apart, so that each access of a warp is one run.  SKEW: rows are
 *                   not whole vectors of 16 bytes; a thread cuts each vector of dst out of the two
 *                   aligned ones of src around it, and where two rows meet out of two more.
 *                   BAND: blocks go over all rows for so many vectors of each, then for the next
 *                   ones, so that what a later index names again is still in the device's cache.
 *   index_elements  each element has an index of its own, or elements do not lie side by side in
 *                   src: a thread makes V elements of dst, and stores them as one vector.
 *
 * A row number has three offsets: in src, where index 0 would be; in idx; and its number among the
 * rows that have the same index, of which the first counts an index out of range.
 */
#pragma once
#include "common/index.cuh"
#include "common/index_cut.cuh"
#include "common/indices.cuh"
#include "common/indices_find.cuh"
#include "common/space.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

#define INDEX_THREADS 256 /* at most */

/* Offsets of rows, with sizes and strides in the template-id.  AXIS: elements from one index to the
 * next. */
template <i64 AXIS, class DIMS, class SRC, class IDX, class OTHER>
struct IndexPlaces {
	static constexpr i64 axis = AXIS;

	template <typename Number>
	static DEVICE void at(Number row, i64 (&offset)[3])
	{
		offset[0] = index_offset<i64>(row, DIMS{}, SRC{});
		offset[1] = index_offset<i64>(row, DIMS{}, IDX{});
		offset[2] = index_offset<i64>(row, DIMS{}, OTHER{});
	}
};

/* ---- Rows of whole vectors ---- */

template <int W, bool ONCE>
DEVICE void index_put(u8 *to, const u32 *words)
{
#if !KILN_CPU
	if constexpr (ONCE && W == 16) {
		asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]),
					 "r"(words[1]), "r"(words[2]), "r"(words[3])
					 : "memory");
		return;
	}
#endif
	vec_store<W>(to, words);
}

/*
 * Moves U vectors of W bytes, STEP apart, of `vectors`.  split(n, column): the row that vector n
 * lies in, and its place there.  find(index): the place an index names.  ONCE: dst leaves the cache
 * before src does.
 */
template <int W, int U, bool ONCE = false, typename Number, class Indices, class Split, class At,
		  class Find>
DEVICE u32 index_move(const u8 *src, const Indices &idx, u8 *dst, Number first, Number step,
					  Number vectors, i64 axis, i64 element, Split split, At at, Find find)
{
	const u8 *from[U];
	bool counts[U];
	u32 words[U][vec_words<W>], strays = 0;
	i64 read[U] = {};

#pragma unroll
	for (int u = 0; u < U; u++) {
		const Number n = first + static_cast<Number>(u) * step;
		i64 offset[3];
		Number column;
		if (n >= vectors)
			continue;
		at(split(n, column), offset);
		read[u] = static_cast<i64>(idx[offset[1]]);
		from[u] = src + offset[0] * element + static_cast<i64>(column) * W;
		counts[u] = column == 0 && offset[2] == 0;
	}
#pragma unroll
	for (int u = 0; u < U; u++) {
		i64 place;
#pragma unroll
		for (int w = 0; w < vec_words<W>; w++)
			words[u][w] = 0;
		if (first + static_cast<Number>(u) * step >= vectors)
			continue;
		if (find(read[u], place))
			vec_load<W>(from[u] + place * axis * element, words[u]);
		else
			strays += counts[u];
	}
#pragma unroll
	for (int u = 0; u < U; u++) {
		const Number n = first + static_cast<Number>(u) * step;
		if (n < vectors)
			index_put<W, ONCE>(dst + static_cast<i64>(n) * W, words[u]);
	}
	return strays;
}

/* ---- Elements ---- */

/* Stores V elements, each in the low end of words of its own, or the `valid` first of them. */
template <int ES, int V>
DEVICE void index_store(const u32 *elements, int valid, bool whole, u8 *to)
{
	constexpr int bytes = ES * V, each = vec_words<ES>;
	constexpr int fill = bytes < 4 ? V : ES < 4 ? 4 / ES : 1;

	if (!whole || valid < V) {
#pragma unroll
		for (int i = 0; i < V; i++)
			if (i < valid)
				vec_store<ES>(to + i * ES, elements + i * each);
	} else if constexpr (ES >= 4 || V == 1) {
		vec_store<bytes>(to, elements);
	} else {
		u32 words[vec_words<bytes>];
#pragma unroll
		for (int w = 0; w < vec_words<bytes>; w++)
			words[w] = vec_collect<ES, fill, 1>(elements, [=](int i) { return w * fill + i; });
		vec_store<bytes>(to, words);
	}
}

/* V indices that lie side by side. */
template <int IW, int V, typename I>
DEVICE void index_load(const I *idx, i64 (&out)[V])
{
	I read[V];

	indices_load<IW>(idx, read);
#pragma unroll
	for (int i = 0; i < V; i++)
		out[i] = static_cast<i64>(read[i]);
}

/* The steps from element to element of a row. */
struct IndexSteps {
	i64 src, idx, other, axis;
};

/* Makes V elements of dst from number `first` on, of `count`; those of one row if `run`.  IW: bytes
 * of their indices that are loaded at once, 0 if they do not lie side by side. */
template <int ES, int V, int IW, typename Number, class Indices, class Split, class At, class Find>
DEVICE u32 index_make(const u8 *src, const Indices &idx, u8 *dst, Number first, Number count,
					  bool run, bool whole, IndexSteps step, Split split, At at, Find find)
{
	constexpr int each = vec_words<ES>;
	const Number left = count - first;
	const int valid = left < static_cast<Number>(V) ? static_cast<int>(left) : V;
	u32 elements[V * each], strays = 0;
	i64 read[V] = {}, from[V] = {}, other[V] = {}, offset[3];
	Number column = 0;

	if (run)
		at(split(first, column), offset);
	if constexpr (IW > 0)
		index_load<IW>(idx + offset[1] + static_cast<i64>(column), read);
#pragma unroll
	for (int i = 0; i < V; i++) {
		Number here = column + static_cast<Number>(i);
		if (i >= valid)
			continue;
		if (!run)
			at(split(first + static_cast<Number>(i), here), offset);
		if constexpr (IW == 0)
			read[i] = static_cast<i64>(idx[offset[1] + static_cast<i64>(here) * step.idx]);
		from[i] = offset[0] + static_cast<i64>(here) * step.src;
		other[i] = offset[2] + static_cast<i64>(here) * step.other;
	}
#pragma unroll
	for (int i = 0; i < V; i++) {
		i64 place;
#pragma unroll
		for (int w = 0; w < each; w++)
			elements[i * each + w] = 0;
		if (i >= valid)
			continue;
		if (find(read[i], place))
			vec_load<ES>(src + (from[i] + place * step.axis) * ES, elements + i * each);
		else
			strays += other[i] == 0;
	}
	index_store<ES, V>(elements, valid, whole, dst + static_cast<i64>(first) * ES);
	return strays;
}

/* ---- Kernels ---- */

/* ROW: elements, of ES bytes.  BAND: vectors, a power of two that divides those of a row and of a
 * block; 0: rows come one after another. */
template <int ES, typename I, int BOUNDS, i64 ROW, int W, int U, int THREADS, bool SKEW,
		  int BAND = 0, bool ONCE = false>
struct IndexRow {
	typedef I Index;
	static constexpr int element = ES, bounds = BOUNDS, width = W, held = U, threads = THREADS;
	static constexpr int band = BAND;
	static constexpr i64 row = ROW;
	static constexpr bool skew = SKEW, once = ONCE;
};

/* A thread of bands has these vectors: the first, and the others at this distance from it. */
template <class ROW, typename Number>
DEVICE Number index_band(Number vectors, Number all, Number block, Number &step)
{
	constexpr Number band = ROW::band, threads = ROW::threads, most = threads * ROW::held;
	const Number thread = threadIdx.x, row = thread / band;
	const Number blocks = (all / vectors + most / band - 1) / (most / band); /* of a band */
	const Number number = block / blocks;

	static_assert(band <= threads, "whole rows of a band");
	step = threads / band * vectors;
	return ((block - number * blocks) * (most / band) + row) * vectors + number * band +
		   (thread - row * band);
}

/* count: vectors of dst; if rows are skewed, elements. */
template <class ROW, class PLACES, typename Place, typename Number, bool LOOP>
__global__
__launch_bounds__(ROW::threads) void index_rows(const void *src, const typename ROW::Index *idx,
												void *dst, i64 count, i64 end, u64 *report)
{
	constexpr int es = ROW::element, u = ROW::held;
	constexpr Number step = ROW::threads;
	const IndicesFind<typename ROW::Index, ROW::bounds, Place> find{end};
	const u8 *const from = static_cast<const u8 *>(src);
	const Number all = static_cast<Number>(count);
	Number block = blockIdx.x;
	u32 strays = 0;

	do {
		const Number first = block * (step * u) + threadIdx.x;
		if constexpr (ROW::skew) {
			strays += index_cuts<es, u, ROW::row, PLACES>(from, idx, static_cast<u8 *>(dst), first,
														  step, all, find);
		} else {
			constexpr Number vectors = static_cast<Number>(ROW::row * es / ROW::width);
			Number begin = first, apart = step;
			if constexpr (ROW::band > 0)
				begin = index_band<ROW>(vectors, all, block, apart);
			strays += index_move<ROW::width, u, ROW::once>(
				from, idx, static_cast<u8 *>(dst), begin, apart, all, PLACES::axis, es,
				[](Number n, Number &column) {
					const Number row = n / vectors;
					column = n - row * vectors;
					return row;
				},
				[](Number row, i64(&offset)[3]) { PLACES::at(row, offset); }, find);
		}
		block += gridDim.x;
	} while (LOOP && block * (step * u) < all);
	if constexpr (ROW::bounds == INDICES_CHECK)
		indices_report(report, strays);
}

template <int ES, typename I, int BOUNDS, i64 COLUMNS, int V, int IW, int THREADS, i64 SRC_STEP,
		  i64 IDX_STEP, i64 OTHER_STEP>
struct IndexElements {
	typedef I Index;
	static constexpr int element = ES, bounds = BOUNDS, vector = V, load = IW;
	static constexpr int threads = THREADS;
	static constexpr i64 columns = COLUMNS;
	static constexpr i64 src_step = SRC_STEP, idx_step = IDX_STEP, other_step = OTHER_STEP;
};

/* count: elements of dst. */
template <class SHAPE, class PLACES, typename Place, typename Number, bool LOOP>
__global__ __launch_bounds__(SHAPE::threads) void index_elements(const void *src,
																 const typename SHAPE::Index *idx,
																 void *dst, i64 count, i64 end,
																 u64 *report)
{
	constexpr int v = SHAPE::vector;
	constexpr Number columns = static_cast<Number>(SHAPE::columns);
	const IndicesFind<typename SHAPE::Index, SHAPE::bounds, Place> find{end};
	const Number all = static_cast<Number>(count);
	const IndexSteps step{SHAPE::src_step, SHAPE::idx_step, SHAPE::other_step, PLACES::axis};
	Number first = (static_cast<Number>(blockIdx.x) * SHAPE::threads + threadIdx.x) * v;
	u32 strays = 0;

	do {
		if (first < all)
			strays += index_make<SHAPE::element, v, SHAPE::load>(
				static_cast<const u8 *>(src), idx, static_cast<u8 *>(dst), first, all,
				SHAPE::columns % v == 0, true, step,
				[](Number n, Number &column) {
					const Number row = n / columns;
					column = n - row * columns;
					return row;
				},
				[](Number row, i64(&offset)[3]) { PLACES::at(row, offset); }, find);
		first += static_cast<Number>(gridDim.x) * (SHAPE::threads * v);
	} while (LOOP && first < all);
	if constexpr (SHAPE::bounds == INDICES_CHECK)
		indices_report(report, strays);
}

/* ---- Kernels that are told all sizes ---- */

struct IndexAt {
	const Space<3, u64> &space;

	DEVICE void operator()(u64 row, i64 (&offset)[3]) const
	{
		space.at(row, offset);
	}
};

struct IndexSplit {
	Divisor<u64> columns;

	DEVICE u64 operator()(u64 n, u64 &column) const
	{
		const u64 row = columns.quotient(n);
		column = n - row * columns.size;
		return row;
	}
};

#define INDEX_SPACE                                                                            \
	Space<3, u64>                                                                              \
	{                                                                                          \
		SPACE_SIZES_MADE(u64),                                                                 \
		{                                                                                      \
			SPACE_STRIDES_MADE(of_src), SPACE_STRIDES_MADE(of_idx), SPACE_STRIDES_MADE(others) \
		}                                                                                      \
	}

/* count: vectors of W bytes; columns: of a row. */
template <int W>
__global__ __launch_bounds__(INDEX_THREADS) void index_rows_generic(
	const void *src, const void *idx, void *dst, u64 *report, u64 count,
	DIVIDE_PARAMS(u64, columns), i64 end, i64 axis, u32 element, u32 index_bytes, u32 bounds,
	SPACE_SIZES(u64), SPACE_STRIDES(of_src), SPACE_STRIDES(of_idx), SPACE_STRIDES(others))
{
	const Space<3, u64> space = INDEX_SPACE;
	const u64 threads = static_cast<u64>(blockDim.x);
	u64 first = static_cast<u64>(blockIdx.x) * (2 * threads) + threadIdx.x;
	u32 strays = 0;

	for (; first < count; first += static_cast<u64>(gridDim.x) * (2 * threads))
		strays += index_move<W, 2>(static_cast<const u8 *>(src), IndicesAny{idx, index_bytes},
								   static_cast<u8 *>(dst), first, threads, count, axis,
								   static_cast<i64>(element), IndexSplit{DIVIDE_MADE(u64, columns)},
								   IndexAt{space}, IndicesFindAny{end, bounds});
	if (bounds == INDICES_CHECK && report)
		indices_report(report, strays);
}

/* count: elements of ES bytes; run: vectors of V lie in a row; whole: dst is aligned to them. */
template <int ES>
__global__ __launch_bounds__(INDEX_THREADS) void index_elements_generic(
	const void *src, const void *idx, void *dst, u64 *report, u64 count,
	DIVIDE_PARAMS(u64, columns), i64 end, i64 axis, u32 run, u32 whole, u32 index_bytes, u32 bounds,
	i64 src_step, i64 idx_step, i64 other_step, SPACE_SIZES(u64), SPACE_STRIDES(of_src),
	SPACE_STRIDES(of_idx), SPACE_STRIDES(others))
{
	constexpr int v = ES <= 4 ? 4 : 16 / ES;
	const Space<3, u64> space = INDEX_SPACE;
	const u64 all = static_cast<u64>(gridDim.x) * (blockDim.x * v);
	u64 first = (static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x) * v;
	u32 strays = 0;

	for (; first < count; first += all)
		strays += index_make<ES, v, 0>(
			static_cast<const u8 *>(src), IndicesAny{idx, index_bytes}, static_cast<u8 *>(dst),
			first, count, run != 0, whole != 0, IndexSteps{src_step, idx_step, other_step, axis},
			IndexSplit{DIVIDE_MADE(u64, columns)}, IndexAt{space}, IndicesFindAny{end, bounds});
	if (bounds == INDICES_CHECK && report)
		indices_report(report, strays);
}
