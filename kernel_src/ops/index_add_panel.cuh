/*
 * index_add_panel.cuh: few[o, p, i] = base[o, p, i] + the sum of many[o, k, i] over the k with
 * idx[o, k, i] = p, one after another by rising k, where i runs along the lines of memory.
 *
 * A block has a panel: some columns i that lie side by side, of one slice o.  Shared memory holds
 * the sums of all places of its columns.  One thread adds up each column: it asks for its next
 * indices and elements while it adds those before.  The other threads have brought them near by
 * then.  All threads begin the sums and store them.
 */
#pragma once
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* PLACES places and COUNT indices of COLUMNS columns, of which WIDE are a panel; V of them are
 * loaded and stored at once as sums.  NEAR: indices of a column that are brought near at a time. */
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
	static constexpr int held = 16; /* indices that a thread asks for at once */
	static constexpr int ahead = 4; /* sums that it takes up at once */
	static_assert(WIDE <= THREADS && THREADS % WIDE == 0, "a thread for each column");
	static_assert(WIDE % V == 0 && NEAR % held == 0, "whole vectors, whole turns");
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

/* A thread holds some indices and elements of its column. */
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

/* Asks for a line of memory that a thread will load soon. */
DEVICE void index_add_near(const void *at)
{
#if !KILN_CPU
	asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
	(void)at;
#endif
}

/* Brings near what `left` columns of a panel add from k on: the threads that add up no column do.
 * It takes half a line of memory at a time. */
template <class PANEL, class MANY, class IDX>
DEVICE void index_add_bring(const u8 *many, const typename PANEL::Index *idx, i64 k, int left)
{
	constexpr int each = PANEL::threads - PANEL::wide, half = 64;
	constexpr int index = static_cast<int>(sizeof(typename PANEL::Index));
	constexpr int elements = (PANEL::wide * PANEL::element + half - 1) / half;
	constexpr int parts = elements + (PANEL::wide * index + half - 1) / half;

	if constexpr (each > 0 && MANY::step == 1 && IDX::step == 1) {
		const i64 rest = PANEL::count - k;
		const int rows = rest < PANEL::near ? static_cast<int>(rest) : PANEL::near;
#pragma unroll 1
		for (int i = static_cast<int>(threadIdx.x) - PANEL::wide; i < rows * parts; i += each) {
			const i64 row = k + i / parts;
			const int part = i % parts, own = part - elements;
			if (i >= 0 && own < 0 && part * half < left * PANEL::element)
				index_add_near(many + row * (MANY::axis * PANEL::element) + part * half);
			if (own >= 0 && own * half < left * index)
				index_add_near(reinterpret_cast<const u8 *>(idx + row * IDX::axis) + own * half);
		}
	}
}

/* So many sums side by side. */
template <typename Compute, int V>
struct alignas(sizeof(Compute) * V) IndexAddSums {
	Compute sum[V];
};

/* Begins the sums of a panel: V columns at once.  begin: those of the first place. */
template <class PANEL, class BASE>
DEVICE void index_add_begin(typename PANEL::Compute *sums, const u8 *begin, int left)
{
	constexpr int v = PANEL::vector, vectors = PANEL::wide / v, bytes = v * PANEL::element;
	constexpr int all = static_cast<int>(PANEL::places) * vectors;
	constexpr int once = PANEL::vector * PANEL::element < 8 ? 8 : 4;

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
	constexpr int es = PANEL::element, wide = PANEL::wide, turn = PANEL::held;
	DYN_SHARED(b128, memory);
	typename PANEL::Compute *const sums = reinterpret_cast<typename PANEL::Compute *>(memory);
	const int column = static_cast<int>(threadIdx.x) % wide;
	i64 item = blockIdx.x;
	u32 strays = 0;

	do {
		const i64 slice = item / PANEL::panels, first = (item - slice * PANEL::panels) * wide;
		const i64 below = PANEL::columns - first;
		const int left = below < wide ? static_cast<int>(below) : wide;
		const bool adds = static_cast<int>(threadIdx.x) < left;
		const u8 *const panel = static_cast<const u8 *>(many) + MANY::at(slice, first) * es;
		const u8 *const from = panel + (adds ? column : 0) * (MANY::step * es);
		const typename PANEL::Index *const lists = idx + IDX::at(slice, first);
		const typename PANEL::Index *const list = lists + (adds ? column : 0) * IDX::step;
		IndexAddHeld<PANEL> held;

		if (adds)
			held.template read<MANY, IDX>(from, list, 0);
		else
			index_add_bring<PANEL, MANY, IDX>(panel, lists, 0, left);
		index_add_begin<PANEL, BASE>(
			sums, static_cast<const u8 *>(base) + BASE::at(slice, first) * es, left);
		__syncthreads();
#pragma unroll 1
		for (i64 k = 0; k < PANEL::count; k += PANEL::near) {
			if (!adds)
				index_add_bring<PANEL, MANY, IDX>(panel, lists, k + PANEL::near, left);
#pragma unroll 1
			for (i64 n = k; adds && n < k + PANEL::near && n < PANEL::count; n += turn) {
				const IndexAddHeld<PANEL> here = held;
				held.template read<MANY, IDX>(from, list, n + turn);
				strays += here.add(sums + column, n);
			}
			__syncthreads();
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
