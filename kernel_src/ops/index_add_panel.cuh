/*
 * index_add_panel.cuh: few[o, p, i] = base[o, p, i] + the sum of many[o, k, i] over the k with
 * idx[o, k, i] = p, one after another by rising k, where i runs along the lines of memory.
 *
 * A block has a panel: some columns i that lie side by side, of one slice o.  Shared memory holds
 * the sums of all places of its columns.  One thread adds up each column: it asks for its next
 * indices and elements while it adds those before.  All threads begin the sums and store them.
 */
#pragma once
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* PLACES places and COUNT indices of COLUMNS columns, of which WIDE are a panel. */
template <typename T, typename I, int BOUNDS, i64 PLACES, i64 COUNT, i64 COLUMNS, int WIDE,
		  int THREADS>
struct IndexAddPanel {
	typedef T Element;
	typedef I Index;
	typedef typename summand<T>::Compute Compute;
	static constexpr int element = static_cast<int>(sizeof(T)), bounds = BOUNDS, wide = WIDE;
	static constexpr int threads = THREADS;
	static constexpr i64 places = PLACES, count = COUNT, columns = COLUMNS;
	static constexpr u32 panels = static_cast<u32>((COLUMNS + WIDE - 1) / WIDE);
	static constexpr int held = 16; /* indices that a thread asks for at once */
	static constexpr int ahead = 4; /* sums that it takes up at once */
	static_assert(WIDE <= THREADS && THREADS % WIDE == 0, "a thread for each column");
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

/* What a thread holds of its column: indices and elements. */
template <class PANEL>
struct IndexAddHeld {
	typename PANEL::Index index[PANEL::held];
	u32 words[PANEL::held][vec_words<PANEL::element>];

	/* Asks for those from k on. */
	template <class MANY, class IDX>
	DEVICE void read(const u8 *many, const typename PANEL::Index *idx, i64 k)
	{
#pragma unroll
		for (int i = 0; i < PANEL::held; i++) {
			index[i] = 0;
			if (k + i >= PANEL::count)
				continue;
			index[i] = idx[(k + i) * IDX::axis];
			vec_load<PANEL::element>(many + (k + i) * (MANY::axis * PANEL::element), words[i]);
		}
	}

	/*
	 * Adds those that read() got to the sums of a column, some at once: of equal places each takes
	 * the sum that the last one before has made.  Returns how many indices name nothing.
	 */
	DEVICE u32 add(typename PANEL::Compute *sums, i64 k) const
	{
		constexpr int ahead = PANEL::ahead;
		u32 strays = 0;

#pragma unroll
		for (int n = 0; n < PANEL::held; n += ahead) {
			typename PANEL::Compute sum[ahead];
			u32 place[ahead];
#pragma unroll
			for (int i = 0; i < ahead; i++) {
				const bool there = k + n + i < PANEL::count;
				place[i] = indices_place<PANEL::bounds, PANEL::places, u32>(index[n + i]);
				strays += there && place[i] == indices_none<u32>;
				place[i] = there ? place[i] : indices_none<u32>;
				sum[i] = 0;
				if (place[i] != indices_none<u32>)
					sum[i] = sums[place[i] * PANEL::wide];
			}
#pragma unroll
			for (int i = 0; i < ahead; i++) {
				typename PANEL::Compute one[1];
				if (place[i] == indices_none<u32>)
					continue;
				summand<typename PANEL::Element>::unpack(words[n + i], one);
#pragma unroll
				for (int before = 0; before < i; before++)
					sum[i] = place[before] == place[i] ? sum[before] : sum[i];
				sum[i] += one[0];
				sums[place[i] * PANEL::wide] = sum[i];
			}
		}
		return strays;
	}
};

template <class PANEL, class MANY, class BASE, class IDX, bool LOOP>
__global__ __launch_bounds__(PANEL::threads) void index_add_panel(const void *many,
																  const typename PANEL::Index *idx,
																  const void *base, void *few,
																  i64 items, u64 *report)
{
	typedef typename PANEL::Element Element;
	constexpr int es = PANEL::element, wide = PANEL::wide;
	constexpr int each = PANEL::threads / wide;
	DYN_SHARED(b128, memory);
	typename PANEL::Compute *const sums = reinterpret_cast<typename PANEL::Compute *>(memory);
	const int thread = static_cast<int>(threadIdx.x), column = thread % wide;
	i64 item = blockIdx.x;
	u32 strays = 0;

	do {
		const i64 slice = item / PANEL::panels, first = (item - slice * PANEL::panels) * wide;
		const i64 own = first + column;
		const int end = own < PANEL::columns ? static_cast<int>(PANEL::places) : 0;
		const u8 *const begin = static_cast<const u8 *>(base) + BASE::at(slice, own) * es;
		u8 *const to =
			static_cast<u8 *>(few) + (slice * (PANEL::places * PANEL::columns) + own) * es;
		const u8 *const from = static_cast<const u8 *>(many) + MANY::at(slice, own) * es;
		const typename PANEL::Index *const indices = idx + IDX::at(slice, own);
		const bool adds = thread < wide && own < PANEL::columns;
		IndexAddHeld<PANEL> held;

		if (adds)
			held.template read<MANY, IDX>(from, indices, 0);
#pragma unroll 8
		for (int p = thread / wide; p < end; p += each)
			sums[p * wide + column] = summand<Element>::get(begin + p * (BASE::axis * es));
		__syncthreads();
#pragma unroll 1
		for (i64 k = 0; adds && k < PANEL::count; k += PANEL::held) {
			const IndexAddHeld<PANEL> here = held;
			held.template read<MANY, IDX>(from, indices, k + PANEL::held);
			strays += here.add(sums + column, k);
		}
		__syncthreads();
#pragma unroll 4
		for (int p = thread / wide; p < end; p += each) {
			const typename PANEL::Compute sum[1] = {sums[p * wide + column]};
			u32 words[vec_words<es>];
			summand<Element>::pack(sum, words);
			vec_store<es>(to + p * (PANEL::columns * es), words);
		}
		if constexpr (LOOP) {
			__syncthreads(); /* the next panel goes where this one was */
			item += gridDim.x;
		}
	} while (LOOP && item < items);
	if constexpr (PANEL::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
