/*
 * topk.cuh: the first k of a row in order, by way of shared memory.
 *
 *   whole     all entries of a row (order.cuh) are sorted there, or, on devices that have too
 *             little of it, in scratch memory
 *   filtered  a row is read once.  Entries that may be among the first k are collected in shared
 *             memory; when that is full, a radix select leaves about k of them, and from then on
 *             only elements before the last of these are collected.  At the end the k are sorted.
 *
 * A warp has a row, or a block has.  The entries that are collected depend on the threads' turns,
 * but the first k of them never do.
 */
#pragma once
#include "common/order.cuh"
#include "common/total.cuh"
#include "common/vec.cuh"

#define TOPK_BINS 256

/* Elements as they are compared with the bound: the least first. */
template <typename T>
struct TopkValue {
	typedef typename element<T>::compute type;
	static DEVICE type at(const u32 *words, int i, bool greatest)
	{
		const type value = element_at<T, type>(words, i);
		return greatest ? -value : value;
	}
};
template <>
struct TopkValue<i32> {
	typedef i32 type;
	static DEVICE i32 at(const u32 *words, int i, bool greatest)
	{
		return static_cast<i32>(greatest ? ~words[i] : words[i]);
	}
};
/* Small ones in 32 bits. */
template <typename T>
struct TopkSmall {
	typedef i32 type;
	static DEVICE i32 at(const u32 *words, int i, bool greatest)
	{
		const i32 value = static_cast<T>(vec_element<sizeof(T)>(words, i));
		return greatest ? ~value : value;
	}
};
template <>
struct TopkValue<i16> : TopkSmall<i16> {
};
template <>
struct TopkValue<i8> : TopkSmall<i8> {
};
template <>
struct TopkValue<u8> : TopkSmall<u8> {
};
template <>
struct TopkValue<bool> : TopkSmall<bool> {
};
template <>
struct TopkValue<i64> {
	typedef i64 type;
	static DEVICE i64 at(const u32 *words, int i, bool greatest)
	{
		const u64 bits = vec_element<8>(words, i);
		return static_cast<i64>(greatest ? ~bits : bits);
	}
};

/* A row, as its threads know it. */
template <typename E>
struct TopkRow {
	E *entries; /* `room` of them, and bins and words behind */
	u32 *bins, *count, *found;
	int columns, k, room;
	int place_bits;
	bool greatest;
	int thread, threads;
};

/* BLOCK: the threads of a row are a block; if not, a warp. */
template <bool BLOCK>
DEVICE void topk_sync()
{
	if constexpr (BLOCK)
		__syncthreads();
	else
		__syncwarp();
}

template <bool BLOCK>
DEVICE bool topk_any(bool mine)
{
	if constexpr (BLOCK) {
		return __syncthreads_or(mine) != 0;
	} else {
		const bool any = __any_sync(0xffffffffu, mine) != 0;
		__syncwarp();
		return any;
	}
}

/* ---- Sorting ---- */

/* Entries in order; count: a power of two. */
template <bool BLOCK, typename E>
DEVICE void topk_sort(E *entries, int count, int thread, int threads)
{
#pragma unroll 1
	for (int run = 1; run < count; run *= 2) {
		/* Two sorted runs: the second is taken backwards, and each pair that meets is put in order;
		 * then each half is bitonic. */
#pragma unroll 1
		for (int far = run; far > 0; far /= 2) {
#pragma unroll 1
			for (int pair = thread; pair < count / 2; pair += threads) {
				const int low = 2 * pair - (pair & (far - 1));
				const int high = far == run ? low ^ (2 * run - 1) : low + far;
				const E a = entries[low], b = entries[high];
				if (b.before(a)) {
					entries[low] = b;
					entries[high] = a;
				}
			}
			topk_sync<BLOCK>();
		}
	}
}

/* ---- Selecting ---- */

/* One warp finds the bin with number `want` of those that are counted, from 1 on: found[0], how
 * many are in bins before: found[1], and in it: found[2]. */
DEVICE void topk_find_bin(const u32 *bins, u32 want, int lane, u32 *found)
{
	constexpr int each = TOPK_BINS / 32;
	u32 upto = 0;

#pragma unroll
	for (int i = 0; i < each; i++)
		upto += bins[lane * each + i];
	const u32 mine = upto;
	upto = total_upto(upto, lane);
	u32 before = upto - mine;
	if (before < want && want <= upto) {
		int bin = lane * each;
		while (before + bins[bin] < want)
			before += bins[bin++];
		found[0] = static_cast<u32>(bin);
		found[1] = before;
		found[2] = bins[bin];
	}
}

/* Returns the last of `count` entries that may be among the first `first`; no more than `most` are
 * as near to the front, and `first` or more. */
template <bool BLOCK, typename E>
DEVICE E topk_bound(const TopkRow<E> &row, int count, int first, int most)
{
	E bound = E::last();
	u32 want = static_cast<u32>(first);
	int kept = 0;

#pragma unroll 1
	for (int byte = 0;; byte++) {
		for (int i = row.thread; i < TOPK_BINS; i += row.threads)
			row.bins[i] = 0;
		topk_sync<BLOCK>();
#pragma unroll 1
		for (int i = row.thread; i < count; i += row.threads) {
			const E entry = row.entries[i];
			if (entry.begins_as(bound, byte))
				atomicAdd(&row.bins[entry.byte(byte)], 1u);
		}
		topk_sync<BLOCK>();
		if (row.thread < 32)
			topk_find_bin(row.bins, want, row.thread, row.found);
		topk_sync<BLOCK>();
		bound.end_with(byte, row.found[0]);
		want -= row.found[1];
		kept += static_cast<int>(row.found[1]);
		if (kept + static_cast<int>(row.found[2]) <= most)
			break;
	}
	return bound;
}

/* Leaves of `count` entries the first k and no more than `most`; returns the last that may be
 * among them. */
template <bool BLOCK, typename E>
DEVICE E topk_select(const TopkRow<E> &row, int count, int most)
{
	const E bound = topk_bound<BLOCK>(row, count, row.k, most);

	if (row.thread == 0)
		*row.count = 0;
		/* Entries that are kept move no further than to where all have read. */
#pragma unroll 1
	for (int base = 0; base < count; base += row.threads) {
		const bool there = base + row.thread < count;
		const E entry = there ? row.entries[base + row.thread] : E::last();
		topk_sync<BLOCK>();
		if (there && !bound.before(entry))
			row.entries[atomicAdd(row.count, 1u)] = entry;
	}
	topk_sync<BLOCK>();
	return bound;
}

/* ---- Reading ---- */

/* Vectors of a row, aligned ones if V is above 1: the first may begin before the row, and the last
 * end behind it. */
template <int V, int HELD, typename T>
struct TopkVectors {
	const T *x;
	i64 step; /* of V == 1 */
	int columns, beyond, count;

	DEVICE TopkVectors(const T *row, i64 row_step, int row_columns)
		: step(row_step), columns(row_columns)
	{
		beyond = V > 1 ? vec_beyond<V * sizeof(T)>(row) / static_cast<int>(sizeof(T)) : 0;
		x = row - beyond;
		count = (columns + beyond - 1) / V + 1;
	}
	DEVICE void load(int number, u32 *words) const
	{
		if (number < count)
			vec_load<V * sizeof(T)>(V > 1 ? x + static_cast<i64>(number) * V : x + number * step,
									words);
	}
	/* The column of the first element. */
	DEVICE int column(int number) const
	{
		return number * V - beyond;
	}
	/* A bit for each element that is one of the row. */
	DEVICE u32 there(int number) const
	{
		constexpr u32 all = (1u << V) - 1;
		const int first = column(number), end = columns - first;
		if (number >= count)
			return 0;
		return (first < 0 ? all << -first & all : all) & (end < V ? (1u << end) - 1 : all);
	}
};

template <int V, typename T, typename E>
DEVICE void topk_take_whole(const TopkRow<E> &row, const TopkVectors<V, 1, T> &vectors, int sorted)
{
	constexpr int words_of = vec_words<V *static_cast<int>(sizeof(T))>;

#pragma unroll 1
	for (int number = row.thread; number < vectors.count; number += row.threads) {
		u32 words[words_of];
		vectors.load(number, words);
		const u32 there = vectors.there(number);
#pragma unroll
		for (int v = 0; v < V; v++) {
			if (!(there >> v & 1))
				continue;
			typedef typename Order<T>::Key Key;
			const Key value = static_cast<Key>(vec_element<sizeof(T)>(words, v));
			const int column = vectors.column(number) + v;
			row.entries[column] = E::template of<T>(Order<T>::key(value, row.greatest),
													static_cast<u32>(column), row.place_bits);
		}
	}
	for (int i = row.columns + row.thread; i < sorted; i += row.threads)
		row.entries[i] = E::last();
}

/* Bits of those held elements that may come before the bound. */
template <int V, int HELD, typename T, int WORDS>
DEVICE u32 topk_passing(const u32 (&words)[HELD][WORDS], typename TopkValue<T>::type bound,
						bool greatest)
{
	u32 passing = 0;

#pragma unroll
	for (int h = 0; h < HELD; h++) {
#pragma unroll
		for (int v = 0; v < V; v++) {
			const typename TopkValue<T>::type value = TopkValue<T>::at(words[h], v, greatest);
			/* NaN passes, and anything passes a bound of NaN: entries know better. */
			if (!(value >= bound))
				passing |= 1u << (h * V + v);
		}
	}
	return passing;
}

/* Collects what may be among the first k; returns how many there are. */
template <bool BLOCK, int V, int HELD, typename T, typename E>
DEVICE int topk_take_filtered(const TopkRow<E> &row, const TopkVectors<V, HELD, T> &vectors)
{
	typedef typename TopkValue<T>::type Value;
	static_assert(V * HELD <= 32, "a bit for each element that is held");
	constexpr int words_of = vec_words<V *static_cast<int>(sizeof(T))>;
	const int most = row.k + (row.room - row.k) / 8;
	u32 next[HELD][words_of] = {};
	E last = E::last();
	Value bound = 0;
	bool bounded = false;

#pragma unroll
	for (int h = 0; h < HELD; h++)
		vectors.load(h * row.threads + row.thread, next[h]);
#pragma unroll 1
	for (int begin = 0; begin < vectors.count; begin += HELD * row.threads) {
		const int first = begin + row.thread;
		u32 pending = 0;
#pragma unroll
		for (int h = 0; h < HELD; h++)
			pending |= vectors.there(first + h * row.threads) << h * V;
		/* Elements that equal the bound come after those that were kept, for their places are
		 * greater.  Those that were read together with it are compared as entries. */
		if (bounded)
			pending &= topk_passing<V, HELD, T>(next, bound, row.greatest);
#pragma unroll
		for (int h = 0; h < HELD; h++)
			vectors.load(first + (HELD + h) * row.threads, next[h]);
		for (;;) {
			bool full = false;
			while (pending) {
				const int bit = __ffs(static_cast<int>(pending)) - 1;
				const int column = vectors.column(first + bit / V * row.threads) + bit % V;
				/* In the nearest cache: the vector was just read. */
				const T *from =
					vectors.x + (V > 1 ? column + vectors.beyond : column * vectors.step);
				const E entry = E::template of<T>(Order<T>::key(Order<T>::load(from), row.greatest),
												  static_cast<u32>(column), row.place_bits);
				if (!bounded || !last.before(entry)) {
					const u32 at = atomicAdd(row.count, 1u);
					full = at >= static_cast<u32>(row.room);
					if (full)
						break;
					row.entries[at] = entry;
				}
				pending &= pending - 1;
			}
			if (!topk_any<BLOCK>(full))
				break;
			last = topk_select<BLOCK>(row, row.room, most);
			const typename Order<T>::Key bits =
				Order<T>::value(last.template key<T>(), row.greatest);
			u32 bound_words[2] = {static_cast<u32>(bits)};
			if constexpr (sizeof(T) == 8)
				bound_words[1] = static_cast<u32>(bits >> 32);
			bound = TopkValue<T>::at(bound_words, 0, row.greatest);
			bounded = true;
		}
	}
	return static_cast<int>(*row.count);
}

/* ---- A row ---- */

struct TopkSizes {
	i64 x_step, y_step;
	int columns, k;
	int sorted; /* a power of two, k or more; of whole rows, columns or more */
	int room;   /* entries */
	bool greatest, whole;
};

/* Bytes behind the entries, of rows that are not whole. */
#define TOPK_BESIDE (4 * TOPK_BINS + 16)

template <typename E>
DEVICE TopkRow<E> topk_begin(const TopkSizes &sizes, int thread, int threads, b128 *entries)
{
	TopkRow<E> row;

	row.entries = reinterpret_cast<E *>(entries);
	row.bins = reinterpret_cast<u32 *>(row.entries + sizes.room);
	row.count = row.bins + TOPK_BINS;
	row.found = row.count + 1;
	row.columns = sizes.columns;
	row.k = sizes.k;
	row.room = sizes.room;
	row.place_bits = sizes.columns > 1 ? 32 - __clz(sizes.columns - 1) : 1;
	row.greatest = sizes.greatest;
	row.thread = thread;
	row.threads = threads;
	return row;
}

/* Leaves the first of `count` entries that were collected, in order. */
template <bool BLOCK, typename E>
DEVICE void topk_order(const TopkRow<E> &row, int count, int sorted)
{
	if (count > sorted) {
		topk_select<BLOCK>(row, count, sorted);
		count = static_cast<int>(*row.count);
	}
	for (int i = count + row.thread; i < sorted; i += row.threads)
		row.entries[i] = E::last();
	topk_sync<BLOCK>();
	topk_sort<BLOCK>(row.entries, sorted, row.thread, row.threads);
}

template <typename T, typename E>
DEVICE void topk_write(const TopkRow<E> &row, const T *x, T *values, i64 *indices,
					   const TopkSizes &sizes)
{
	for (int i = row.thread; i < sizes.k; i += row.threads) {
		const u32 place = row.entries[i].template place<T>(row.place_bits);
		vec_copy<sizeof(T)>(x + place * sizes.x_step, values + i * sizes.y_step);
		if (indices)
			indices[i * sizes.y_step] = place;
	}
}

template <bool BLOCK, int V, int HELD, typename T, typename E>
DEVICE void topk_row(const TopkRow<E> &row, const T *x, T *values, i64 *indices,
					 const TopkSizes &sizes)
{
	if (sizes.whole) {
		topk_take_whole(row, TopkVectors<V, 1, T>(x, sizes.x_step, sizes.columns), sizes.sorted);
		topk_sync<BLOCK>();
		topk_sort<BLOCK>(row.entries, sizes.sorted, row.thread, row.threads);
	} else {
		if (row.thread == 0)
			*row.count = 0;
		topk_sync<BLOCK>();
		const int count =
			topk_take_filtered<BLOCK>(row, TopkVectors<V, HELD, T>(x, sizes.x_step, sizes.columns));
		topk_order<BLOCK>(row, count, sizes.sorted);
	}
	topk_write(row, x, values, indices, sizes);
}
