/*
 * index_add_panel.cuh: few[o, p, i] = base[o, p, i] + the sum of many[o, k, i] over the k with
 * idx[o, k, i] = p, one after another by rising k, where i runs along the lines of memory.
 *
 * A block has a panel: some columns i that lie side by side, of one slice o.  Shared memory holds
 * the sums of all places of its columns, and two stages: elements of the next k, each with where
 * its sum is.  One thread adds up each column, some elements of a stage at once.  The other threads
 * fill the other stage meanwhile, and have the elements of two more under way.  All threads begin
 * the sums and store them.
 */
#pragma once
#include "common/async.cuh"
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* PLACES places and COUNT indices of COLUMNS columns, of which WIDE are a panel; V of them are
 * loaded and stored at once as sums.  NEAR: elements of a column in a stage. */
template <typename T, typename I, int BOUNDS, i64 PLACES, i64 COUNT, i64 COLUMNS, int WIDE,
		  int THREADS, int V, int NEAR>
struct IndexAddPanel {
	typedef T Element;
	typedef I Index;
	typedef typename summand<T>::Compute Compute;
	static constexpr int element = static_cast<int>(sizeof(T)), bounds = BOUNDS, wide = WIDE;
	static constexpr int threads = THREADS, vector = V, near = NEAR;
	static constexpr i64 places = PLACES, count = COUNT, columns = COLUMNS;
	static constexpr u32 panels = static_cast<u32>((COLUMNS + WIDE - 1) / WIDE);
	static constexpr int adders = WIDE < 32 ? 32 : WIDE, bringers = THREADS - adders;
	static constexpr int each =
		NEAR * WIDE / bringers;     /* elements of a stage that a thread brings */
	static constexpr int ahead = 4; /* sums that a thread takes up at once */
	static_assert(bringers % WIDE == 0 && each * bringers == NEAR * WIDE && NEAR % ahead == 0,
				  "whole turns");
	static_assert(WIDE % V == 0, "whole vectors");
};

/* Slices are numbered by DIMS, all but the slowest; AXIS elements from one place to the next, STEP
 * from one column to the next. */
template <i64 AXIS, i64 STEP, class DIMS, class STRIDES>
struct IndexAddSide {
	static constexpr i64 axis = AXIS, step = STEP;

	static DEVICE i64 at(i64 slice, i64 column)
	{
		return index_offset<i64>(slice, DIMS{}, STRIDES{}) + column * STEP;
	}
};

/* An element that is to be added, and which sum it is added to. */
template <typename Compute>
struct alignas(2 * sizeof(Compute)) IndexAddEntry {
	Compute value;
	u32 sum;
};

/* Elements and indices that a thread has asked for, of one stage. */
template <class PANEL>
struct IndexAddBrought {
	typedef IndexAddEntry<typename PANEL::Compute> Entry;
	static constexpr int rows = PANEL::bringers / PANEL::wide; /* that all threads bring at once */

	typename PANEL::Index index[PANEL::each];
	u32 words[PANEL::each][vec_words<PANEL::element>];

	/* Asks for those from k on, of the column at `many` and `idx`; thread: of those that bring. */
	template <class MANY, class IDX>
	DEVICE void ask(const u8 *many, const typename PANEL::Index *idx, i64 k, bool there, int thread)
	{
		k += thread / PANEL::wide;
#pragma unroll
		for (int i = 0; i < PANEL::each; i++) {
			const i64 row = k + i * rows;
			if (!there || row >= PANEL::count)
				continue;
			index[i] = idx[row * IDX::axis];
			vec_load<PANEL::element>(many + row * (MANY::axis * PANEL::element), words[i]);
		}
	}

	/* Puts them where the stage that begins with k is.  Elements whose index names nothing are
	 * added to a row of their own, behind those of places.  Returns how many these are. */
	DEVICE u32 put(Entry *stage, i64 k, bool there, int thread) const
	{
		const u32 column = static_cast<u32>(thread % PANEL::wide);
		u32 strays = 0;

		k += thread / PANEL::wide;
#pragma unroll
		for (int i = 0; i < PANEL::each; i++) {
			typename PANEL::Compute one[1] = {0};
			u32 place = static_cast<u32>(PANEL::places);
			if (there && k + i * rows < PANEL::count) {
				const u32 named = indices_place<PANEL::bounds, PANEL::places, u32>(index[i]);
				summand<typename PANEL::Element>::unpack(words[i], one);
				strays += named == indices_none<u32>;
				place = named == indices_none<u32> ? place : named;
			}
			stage[i * PANEL::bringers + thread] = Entry{one[0], place * PANEL::wide + column};
		}
		return strays;
	}
};

/* Adds a stage to the sums of a column, some at once: of equal places each takes the sum that the
 * last one before has made. */
template <class PANEL>
DEVICE void index_add_stage(const IndexAddEntry<typename PANEL::Compute> *stage,
							typename PANEL::Compute *sums, u32 warp)
{
	constexpr int ahead = PANEL::ahead, near = PANEL::near, wide = PANEL::wide;
	IndexAddEntry<typename PANEL::Compute> next[ahead];

#pragma unroll
	for (int i = 0; i < ahead; i++)
		next[i] = stage[i * wide];
#pragma unroll 2
	for (int k = ahead; k <= near; k += ahead) {
		IndexAddEntry<typename PANEL::Compute> here[ahead];
		typename PANEL::Compute sum[ahead];
		bool equal = false;
#pragma unroll
		for (int i = 0; i < ahead; i++) {
			here[i] = next[i];
			sum[i] = sums[here[i].sum];
		}
#pragma unroll
		for (int i = 0; i < ahead; i++)
			next[i] = stage[(k < near ? k + i : i) * wide];
#pragma unroll
		for (int i = 1; i < ahead; i++) {
#pragma unroll
			for (int before = 0; before < i; before++)
				equal = equal || here[before].sum == here[i].sum;
		}
		if (__any_sync(warp, equal)) {
#pragma unroll
			for (int i = 0; i < ahead; i++) {
#pragma unroll
				for (int before = 0; before < i; before++)
					sum[i] = here[before].sum == here[i].sum ? sum[before] : sum[i];
				sum[i] += here[i].value;
			}
		} else {
#pragma unroll
			for (int i = 0; i < ahead; i++)
				sum[i] += here[i].value;
		}
#pragma unroll
		for (int i = 0; i < ahead; i++)
			sums[here[i].sum] = sum[i];
	}
}

/* So many sums side by side. */
template <typename Compute, int V>
struct alignas(sizeof(Compute) * V) IndexAddSums {
	Compute sum[V];
};

/* Begins the sums of a panel: V columns at once.  begin: those of the first place.  Elements that
 * are sums as they are may be on their way when this returns. */
template <class PANEL, class BASE>
DEVICE void index_add_begin(typename PANEL::Compute *sums, const u8 *begin, int left)
{
	constexpr int v = PANEL::vector, vectors = PANEL::wide / v, bytes = v * PANEL::element;
	constexpr int all = static_cast<int>(PANEL::places) * vectors;
	constexpr int once = PANEL::vector * PANEL::element < 8 ? 8 : 4;

	if constexpr (bytes == 16 && PANEL::element == sizeof(typename PANEL::Compute)) {
#pragma unroll 4
		for (int i = static_cast<int>(threadIdx.x); i < all; i += PANEL::threads) {
			const int p = i / vectors, column = i % vectors * v;
			if (column < left)
				async_copy16(sums + p * PANEL::wide + column,
							 begin + (p * BASE::axis + column * BASE::step) * PANEL::element);
		}
		return;
	}
#pragma unroll 1
	for (int first = static_cast<int>(threadIdx.x); first < all; first += once * PANEL::threads) {
		u32 in[once][vec_words<bytes>];
#pragma unroll
		for (int n = 0; n < once; n++) {
			const int i = first + n * PANEL::threads, p = i / vectors, column = i % vectors * v;
			if (i < all && column < left)
				vec_load<bytes>(begin + (p * BASE::axis + column * BASE::step) * PANEL::element,
								in[n]);
		}
#pragma unroll
		for (int n = 0; n < once; n++) {
			const int i = first + n * PANEL::threads, column = i % vectors * v;
			IndexAddSums<typename PANEL::Compute, v> begun;
			if (i >= all || column >= left)
				continue;
			summand<typename PANEL::Element>::unpack(in[n], begun.sum);
			*reinterpret_cast<decltype(begun) *>(sums + i / vectors * PANEL::wide + column) = begun;
		}
	}
}

template <class PANEL>
DEVICE void index_add_end(const typename PANEL::Compute *sums, u8 *to, int left)
{
	constexpr int v = PANEL::vector, vectors = PANEL::wide / v, bytes = v * PANEL::element;
	constexpr int all = static_cast<int>(PANEL::places) * vectors;

#pragma unroll 4
	for (int i = static_cast<int>(threadIdx.x); i < all; i += PANEL::threads) {
		const int p = i / vectors, column = i % vectors * v;
		typedef IndexAddSums<typename PANEL::Compute, v> Sums;
		u32 out[vec_words<bytes>];
		if (column >= left)
			continue;
		const Sums ended = *reinterpret_cast<const Sums *>(sums + p * PANEL::wide + column);
		summand<typename PANEL::Element>::pack(ended.sum, out);
		vec_store<bytes>(to + (p * PANEL::columns + column) * PANEL::element, out);
	}
}

template <class PANEL, class MANY, class BASE, class IDX, bool LOOP>
__global__ __launch_bounds__(PANEL::threads) void index_add_panel(const void *many,
																  const typename PANEL::Index *idx,
																  const void *base, void *few,
																  i64 items, u64 *report)
{
	typedef IndexAddEntry<typename PANEL::Compute> Entry;
	constexpr int es = PANEL::element, wide = PANEL::wide, near = PANEL::near;
	constexpr int whole = near * wide;
	DYN_SHARED(b128, memory);
	Entry *const stages = reinterpret_cast<Entry *>(memory);
	typename PANEL::Compute *const sums =
		reinterpret_cast<typename PANEL::Compute *>(stages + 2 * whole);
	const int thread = static_cast<int>(threadIdx.x), bringer = thread - PANEL::adders;
	const bool adds = thread < wide, brings = bringer >= 0;
	const int column = (brings ? bringer : thread) % wide;
	i64 item = blockIdx.x;
	u32 strays = 0;

	do {
		const i64 slice = item / PANEL::panels, first = (item - slice * PANEL::panels) * wide;
		const i64 below = PANEL::columns - first;
		const int left = below < wide ? static_cast<int>(below) : wide;
		const bool there = column < left;
		const u8 *const from =
			static_cast<const u8 *>(many) + MANY::at(slice, first + (there ? column : 0)) * es;
		const typename PANEL::Index *const list =
			idx + IDX::at(slice, first + (there ? column : 0));
		IndexAddBrought<PANEL> brought[2];

		if (brings) {
			brought[0].template ask<MANY, IDX>(from, list, 0, there, bringer);
			brought[1].template ask<MANY, IDX>(from, list, near, there, bringer);
		}
		index_add_begin<PANEL, BASE>(
			sums, static_cast<const u8 *>(base) + BASE::at(slice, first) * es, left);
		if (brings) {
			strays += brought[0].put(stages, 0, there, bringer);
			brought[0].template ask<MANY, IDX>(from, list, 2 * near, there, bringer);
		}
		async_wait_all();
		__syncthreads();
#pragma unroll 1
		for (i64 k = 0; k < PANEL::count; k += 2 * near) {
#pragma unroll
			for (int s = 0; s < 2; s++) {
				const i64 next = k + (s + 1) * near;
				if (brings) {
					strays += brought[1 - s].put(stages + (1 - s) * whole, next, there, bringer);
					brought[1 - s].template ask<MANY, IDX>(from, list, next + 2 * near, there,
														   bringer);
				} else if (adds) {
					index_add_stage<PANEL>(stages + s * whole + column, sums,
										   wide < 32 ? (1u << wide % 32) - 1 : 0xffffffffu);
				}
				__syncthreads();
			}
		}
		index_add_end<PANEL>(
			sums, static_cast<u8 *>(few) + (slice * (PANEL::places * PANEL::columns) + first) * es,
			left);
		if constexpr (LOOP) {
			__syncthreads(); /* the next panel goes where this one was */
			item += gridDim.x;
		}
	} while (LOOP && item < items);
	if constexpr (PANEL::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
