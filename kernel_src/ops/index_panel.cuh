/*
 * index_panel.cuh: dst[o, k, i] = src[o, idx[o, k, i], i], bit for bit, where i runs along the
 * lines of memory.  Neighbours in a line take elements of different rows of src, so that each of
 * them would fetch a sector of its own.
 *
 * A block has a panel: some columns i that lie side by side, of one slice o.  It copies the panel
 * of src to shared memory in vectors and takes the elements there.  Its first indices are on their
 * way meanwhile, and later ones while it takes those before.
 */
#pragma once
#include "common/async.cuh"
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* Elements of ES bytes.  FROM rows of src and TO of dst, of COLUMNS; WIDE of them are a panel.  W:
 * bytes that are copied to shared memory at once. */
template <int ES, typename I, int BOUNDS, i64 FROM, i64 TO, i64 COLUMNS, int WIDE, int THREADS,
		  int W>
struct IndexPanel {
	typedef I Index;
	static constexpr int element = ES, bounds = BOUNDS, wide = WIDE, threads = THREADS, load = W;
	static constexpr i64 from = FROM, to = TO, columns = COLUMNS;
	static constexpr u32 panels = static_cast<u32>((COLUMNS + WIDE - 1) / WIDE);
	static constexpr int step = THREADS / WIDE; /* rows that a block takes at once */
	static constexpr int held = 8;              /* indices that a thread asks for at once */
	static_assert(THREADS % WIDE == 0 && WIDE * ES % W == 0, "whole rows and vectors");
};

/* Slices are numbered by DIMS, all but the slowest; from row to row it is AXIS elements. */
template <i64 SRC_AXIS, i64 IDX_AXIS, i64 IDX_STEP, class DIMS, class SRC, class IDX>
struct IndexPanelPlaces {
	static constexpr i64 src_axis = SRC_AXIS, idx_axis = IDX_AXIS, idx_step = IDX_STEP;

	static DEVICE i64 src(i64 slice)
	{
		return index_offset<i64>(slice, DIMS{}, SRC{});
	}
	static DEVICE i64 idx(i64 slice)
	{
		return index_offset<i64>(slice, DIMS{}, IDX{});
	}
};

/* Begins to copy a panel of src that has `columns` columns. */
template <class PANEL, i64 AXIS>
DEVICE void index_panel_stage(const u8 *src, u8 *shared, int columns)
{
	constexpr int es = PANEL::element, w = PANEL::load, pitch = PANEL::wide * es;
	constexpr u32 each = pitch / w, all = static_cast<u32>(PANEL::from) * each;

#pragma unroll 8
	for (u32 i = threadIdx.x; i < all; i += PANEL::threads) {
		const int at = static_cast<int>(i % each) * w;
		const u8 *const from = src + static_cast<i64>(i / each) * (AXIS * es) + at;
		if (at >= columns * es)
			continue;
		if constexpr (w == 16)
			async_copy16(shared + i * w, from);
		else
			vec_copy<w>(from, shared + i * w);
	}
}

/* The indices of a thread's rows from k on. */
template <class PANEL, class PLACES>
DEVICE void index_panel_read(const typename PANEL::Index *idx, i64 k,
							 typename PANEL::Index (&read)[PANEL::held])
{
#pragma unroll
	for (int i = 0; i < PANEL::held; i++)
		read[i] = k + i * PANEL::step < PANEL::to ? idx[(k + i * PANEL::step) * PLACES::idx_axis]
												  : static_cast<typename PANEL::Index>(0);
}

/* Stores the elements of these rows; returns how many indices name nothing. */
template <class PANEL>
DEVICE u32 index_panel_take(const u8 *shared, u8 *dst, i64 k,
							const typename PANEL::Index (&read)[PANEL::held])
{
	constexpr int es = PANEL::element;
	u32 words[PANEL::held][vec_words<es>], strays = 0;

#pragma unroll
	for (int i = 0; i < PANEL::held; i++) {
		const u32 place = indices_place<PANEL::bounds, PANEL::from, u32>(read[i]);
		const bool some = place != indices_none<u32>;
#pragma unroll
		for (int w = 0; w < vec_words<es>; w++)
			words[i][w] = 0;
		if (some)
			vec_load<es>(shared + place * (PANEL::wide * es), words[i]);
		strays += !some && k + i * PANEL::step < PANEL::to;
	}
#pragma unroll
	for (int i = 0; i < PANEL::held; i++)
		if (k + i * PANEL::step < PANEL::to)
			vec_store<es>(dst + (k + i * PANEL::step) * (PANEL::columns * es), words[i]);
	return strays;
}

template <class PANEL, class PLACES, bool LOOP>
__global__ __launch_bounds__(PANEL::threads) void index_panel(const void *src,
															  const typename PANEL::Index *idx,
															  void *dst, i64 items, u64 *report)
{
	constexpr int es = PANEL::element;
	DYN_SHARED(b128, memory);
	u8 *const shared = reinterpret_cast<u8 *>(memory);
	const int column = static_cast<int>(threadIdx.x) % PANEL::wide;
	const i64 begin = threadIdx.x / PANEL::wide;
	i64 item = blockIdx.x;
	u32 strays = 0;

	do {
		const i64 slice = item / PANEL::panels,
				  first = (item - slice * PANEL::panels) * PANEL::wide;
		const i64 left = PANEL::columns - first;
		const int columns = left < PANEL::wide ? static_cast<int>(left) : PANEL::wide;
		/* Threads beyond the last column have no rows. */
		const i64 end = column < columns ? PANEL::to : 0;
		const typename PANEL::Index *const indices =
			idx + PLACES::idx(slice) + (first + column) * PLACES::idx_step;
		u8 *const to =
			static_cast<u8 *>(dst) + (slice * (PANEL::to * PANEL::columns) + first + column) * es;
		typename PANEL::Index read[PANEL::held];

		index_panel_stage<PANEL, PLACES::src_axis>(
			static_cast<const u8 *>(src) + (PLACES::src(slice) + first) * es, shared, columns);
		if (begin < end)
			index_panel_read<PANEL, PLACES>(indices, begin, read);
		async_wait_all();
		__syncthreads();
#pragma unroll 1
		for (i64 k = begin; k < end; k += PANEL::held * PANEL::step) {
			typename PANEL::Index here[PANEL::held];
#pragma unroll
			for (int i = 0; i < PANEL::held; i++)
				here[i] = read[i];
			index_panel_read<PANEL, PLACES>(indices, k + PANEL::held * PANEL::step, read);
			strays += index_panel_take<PANEL>(shared + column * es, to, k, here);
		}
		if constexpr (LOOP) {
			__syncthreads(); /* the next panel goes where this one was */
			item += gridDim.x;
		}
	} while (LOOP && item < items);
	if constexpr (PANEL::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
