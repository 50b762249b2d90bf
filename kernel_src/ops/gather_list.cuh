/*
 * gather_list.cuh: gather.cuh for lists that many rows share, where rows are not whole vectors.
 *
 * A block has one list of indices and ROWS of its rows.  It looks at each index once, and notes in
 * shared memory which place the index names.  Rows of src come there as the aligned vectors around
 * them, and go out as the aligned vectors of dst; only the first and the last of a row are stored
 * by elements.
 */
#pragma once
#include "common/async.cuh"
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* Elements of ES bytes: FROM of a row of src, TO of dst, V of which are stored at once. */
template <int ES, typename I, int BOUNDS, int FROM, int TO, int ROWS, int THREADS, int V>
struct GatherList {
	typedef I Index;
	static constexpr int element = ES, bounds = BOUNDS, from = FROM, to = TO, rows = ROWS;
	static constexpr int threads = THREADS, vector = V, store = V * ES;
	/* Aligned vectors that a row lies in, at most. */
	static constexpr int loads = (FROM * ES + 14) / 16 + 1;
	static constexpr int stores = (TO * ES + store - 2) / store + 1;
	/* Shared memory: rows of src; the places, with room for a vector of them before the first and
	 * for two behind the last. */
	static constexpr int pitch = loads * 16, places_at = ROWS * pitch;
	static_assert(FROM < 0xffff && V >= 2, "places are numbers of 16 bits, two of them a word");
	/* Places are noted as bytes, and none as a number of which one bit tells. */
	static constexpr bool scaled = FROM * ES < 0x8000;
	static constexpr int unit = scaled ? 1 : ES;
	static constexpr u32 none = 0xffff, ends = scaled ? FROM * ES : FROM;
};

/* Where a row of src, or a list, begins, in elements. */
template <i64 IDX_STEP, class DIMS, class SRC, class IDX>
struct GatherListPlaces {
	static constexpr i64 idx_step = IDX_STEP;

	template <typename Number>
	static DEVICE i64 src(Number row)
	{
		return index_offset<i64>(row, DIMS{}, SRC{});
	}
	template <typename Number>
	static DEVICE i64 idx(Number row)
	{
		return index_offset<i64>(row, DIMS{}, IDX{});
	}
};

/* Begins to copy the vectors around `rows` rows: row r is at from(r). */
template <class LIST, class From>
DEVICE void gather_list_stage(u8 *shared, int rows, From from)
{
#pragma unroll 4
	for (u32 i = threadIdx.x; i < static_cast<u32>(rows * LIST::loads); i += LIST::threads) {
		const int r = static_cast<int>(i / static_cast<u32>(LIST::loads));
		const int at = (static_cast<int>(i) - r * LIST::loads) * 16;
		const u8 *const row = from(r);
		const int beyond = vec_beyond<16>(row);
		if (at < beyond + LIST::from * LIST::element)
			async_copy16(shared + r * LIST::pitch + at, row - beyond + at);
	}
}

/* Notes which places a list names; returns how many of its indices name none. */
template <class LIST, i64 STEP>
DEVICE u32 gather_list_note(u8 *shared, const typename LIST::Index *idx)
{
	u16 *const places = reinterpret_cast<u16 *>(shared + LIST::places_at) + LIST::vector;
	u32 strays = 0;

#pragma unroll 4
	for (int k = static_cast<int>(threadIdx.x); k < LIST::to; k += LIST::threads) {
		const u32 place = indices_place<LIST::bounds, LIST::from, u32>(idx[k * STEP]);
		places[k] = static_cast<u16>(place < LIST::from ? place * (LIST::element / LIST::unit)
														: LIST::none);
		strays += place == indices_none<u32>;
	}
	return strays;
}

/* Makes the aligned vector of dst whose first element is number k of its row, which may be below 0.
 * row: where shared memory has that row of src. */
template <class LIST>
DEVICE void gather_list_vector(const u8 *shared, const u8 *row, int k, u8 *to)
{
	constexpr int es = LIST::element, v = LIST::vector, each = vec_words<es>;
	constexpr int fill = es < 4 ? 4 / es : 1;
	const bool whole = k >= 0 && k + v <= LIST::to;
	u32 places[v / 2], elements[v * each], bits = 0;

	vec_load_skewed<2, 2 * v>(shared + LIST::places_at, (k + v) * 2, 4 * v, places);
#pragma unroll
	for (int i = 0; i < v / 2; i++)
		bits |= places[i];
	if (LIST::scaled && whole && (bits & 0x80008000) == 0) {
#pragma unroll
		for (int i = 0; i < v; i++)
			vec_load<es>(row + (places[i / 2] >> i % 2 * 16 & 0xffff), elements + i * each);
	} else {
#pragma unroll
		for (int i = 0; i < v; i++) {
			const u32 place = places[i / 2] >> i % 2 * 16 & 0xffff;
			const bool there = static_cast<u32>(k + i) < static_cast<u32>(LIST::to);
#pragma unroll
			for (int w = 0; w < each; w++)
				elements[i * each + w] = 0;
			if (there && place < LIST::ends)
				vec_load<es>(row + place * LIST::unit, elements + i * each);
		}
	}
	if (!whole) {
#pragma unroll
		for (int i = 0; i < v; i++)
			if (static_cast<u32>(k + i) < static_cast<u32>(LIST::to))
				vec_store<es>(to + i * es, elements + i * each);
	} else if constexpr (es >= 4) {
		vec_store<es * v>(to, elements);
	} else {
		u32 words[es * v / 4];
#pragma unroll
		for (int w = 0; w < es * v / 4; w++)
			words[w] = vec_collect<es, fill, 1>(elements, [=](int i) { return w * fill + i; });
		vec_store<es * v>(to, words);
	}
}

/* LISTS: how many lists there are, each for `outer` rows, which are numbered list by list. */
template <class LIST, class PLACES, i64 LISTS, typename Number, bool LOOP>
__global__
__launch_bounds__(LIST::threads) void gather_list(const void *src, const typename LIST::Index *idx,
												  void *dst, i64 outer, i64 items, u64 *report)
{
	constexpr Number apart = static_cast<Number>(LISTS);
	constexpr int es = LIST::element, v = LIST::vector;
	DYN_SHARED(b128, memory);
	u8 *const shared = reinterpret_cast<u8 *>(memory);
	u32 strays = 0;
	Number item = static_cast<Number>(blockIdx.x);

	do {
		const Number group = item / apart, list = item - group * apart, n = group * LIST::rows;
		const Number first = n * apart + list;
		const i64 left = outer - static_cast<i64>(n);
		const int rows = left < LIST::rows ? static_cast<int>(left) : LIST::rows;
		const auto from = [=](int r) {
			return static_cast<const u8 *>(src) +
				   PLACES::src(first + static_cast<Number>(r) * apart) * es;
		};

		gather_list_stage<LIST>(shared, rows, from);
		const u32 seen = gather_list_note<LIST, PLACES::idx_step>(shared, idx + PLACES::idx(list));
		strays += n == 0 ? seen : 0;
		async_wait_all();
		__syncthreads();
#pragma unroll 2
		for (u32 i = threadIdx.x; i < static_cast<u32>(rows * LIST::stores); i += LIST::threads) {
			const int r = static_cast<int>(i / static_cast<u32>(LIST::stores));
			u8 *const to =
				static_cast<u8 *>(dst) +
				static_cast<i64>(first + static_cast<Number>(r) * apart) * (LIST::to * es);
			const int k =
				(static_cast<int>(i) - r * LIST::stores) * v - vec_beyond<LIST::store>(to) / es;
			if (k < LIST::to)
				gather_list_vector<LIST>(shared, shared + r * LIST::pitch + vec_beyond<16>(from(r)),
										 k, to + k * es);
		}
		if constexpr (LOOP) {
			__syncthreads(); /* the next rows go where these were */
			item += static_cast<Number>(gridDim.x);
		}
	} while (LOOP && item < static_cast<Number>(items));
	if constexpr (LIST::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
