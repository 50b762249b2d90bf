/*
 * norm_rows.cuh: rows of layer_norm and rms_norm as threads hold them, and what these agree on.
 */
#pragma once
#include "common/norm_operands.cuh"
#include "common/row.cuh"

/* Returns how far vector n of a thread is from vector 0: a constant, so one address serves all. */
template <class ROW>
DEVICE int norm_ahead(const ROW &row, int n)
{
	return row.column(n) - row.first;
}

/* gamma or beta of a thread's NV vectors, as they are. */
template <class G, int V, int NV, int BYTES>
struct NormAlong {
	static constexpr int es = norm_bytes<G>, words = V * es >= 4 ? V * es / 4 : 1;
	static constexpr int width = BYTES < V * es ? BYTES : V * es; /* bytes that move at once */
	u32 word[NV * words];

	template <class ROW>
	DEVICE void fetch(const ROW &row, const G *start)
	{
		if constexpr (norm_given<G>) {
			static_assert(width >= 4, "whole words come at once");
			const G *const mine = start + row.first;
#pragma unroll
			for (int n = 0; n < NV; n++) {
#pragma unroll
				for (int w = 0; w < words; w += width / 4)
					if (row.has(n))
						vec_load<width>(mine + norm_ahead(row, n) + w * 4 / es,
										word + n * words + w);
			}
		}
	}
	/* Gives vector n.  The compiler must not keep them as numbers from row to row. */
	template <typename Compute>
	DEVICE void get(int n, Compute (&out)[V])
	{
		if constexpr (norm_given<G>) {
#pragma unroll
			for (int w = 0; w < words && es < 4; w++)
				norm_hide(word[n * words + w]);
			element_unpack<G>(word + n * words, out);
		}
	}
};

/* Element j of a vector's words. */
template <typename T>
DEVICE void norm_store_element(T *to, const u32 *words, int j)
{
	constexpr int size = static_cast<int>(sizeof(T));
	const u32 half = words[j * size / 4] >> j * size % 4 * 8;

	vec_store<size>(to, size < 4 ? &half : words + j * size / 4);
}

/* Stores the elements of a vector across the row's edge that are inside; to: the vector's place. */
template <class ROW, typename T>
DEVICE void norm_store_edge(const ROW &row, int n, T *to, const u32 *words)
{
#pragma unroll
	for (int j = 0; j < ROW::length; j++)
		if (row.live(n, j))
			norm_store_element(to + j, words, j);
}

/* Stores vector n of a row of T; mine: where this thread's vector 0 goes. */
template <typename T, class ROW, typename Compute, int V>
DEVICE void norm_store(const ROW &row, int n, T *mine, const Compute (&values)[V])
{
	constexpr int bytes = V * static_cast<int>(sizeof(T));
	u32 words[vec_words<bytes>];

	element_pack<T>(values, words);
	if (row.inside(n))
		vec_store_far<bytes>(mine + norm_ahead(row, n), words);
	else if constexpr (ROW::skewed)
		norm_store_edge(row, n, mine + norm_ahead(row, n), words);
}

/*
 * A row as its threads hold it: x, and with it residual.  Elements in registers are widened once,
 * and later give their place to their distance from a pivot; if they are halves, and more than
 * WIDENED, they stay halves and are widened whenever they are needed.  Those in slots are always
 * read anew.
 */
template <class SHAPE, class WITH, class PLACE, int TOGETHER, int WIDENED = 32>
struct NormHeld {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename PLACE::Offset Offset;
	static constexpr int V = Row::length, words = Row::words, inputs = WITH::inputs;
	static constexpr int kept = Row::held - SHAPE::slots, elements = kept * V;
	static constexpr bool wide = sizeof(T) >= 4 || TOGETHER * elements <= WIDENED;
	static constexpr bool narrow = !wide || kept < Row::held; /* are some not widened? */

	u32 word[inputs][kept ? kept * words : 1];
	u8 *slots; /* of this thread */
	Compute s[wide && kept ? elements : 1];
	Compute pivot;
	NormRow<Compute> answer;

	/* Starts to bring in a row of x or residual. */
	template <int INPUT>
	DEVICE void fetch(const Row &row, const T *start)
	{
		if constexpr (SHAPE::slots > 0) {
#pragma unroll
			for (int n = kept; n < Row::held; n++)
				if (row.has(n))
					async_copy16(slot(n, INPUT), start + row.column(n));
		}
		const T *const mine = start + row.first;
#pragma unroll
		for (int n = 0; n < kept; n++)
			if (row.has(n))
				vec_load<Row::bytes>(V > 1 ? mine + norm_ahead(row, n)
										   : start + place<INPUT>(row.column(n)),
									 word[INPUT] + n * words);
	}

	DEVICE void widen()
	{
		if constexpr (wide) {
#pragma unroll
			for (int e = 0; e < elements; e++)
				s[e] = raw(e);
		}
	}

	/* The sum of all that the thread has. */
	DEVICE Compute total(const Row &row)
	{
		Compute sum = 0;
		if constexpr (wide)
			each_wide(row, [&](int e) { sum += live(row, e) ? s[e] : Compute(0); });
		if constexpr (narrow)
			each_narrow(row, [&](int n, const Compute(&value)[V]) {
#pragma unroll
				for (int j = 0; j < V; j++)
					sum += row.live(n, j) ? value[j] : Compute(0);
			});
		return sum;
	}

	/* Sums of all distances from the pivot, and of their squares. */
	DEVICE void deviate(const Row &row, Compute &sum, Compute &squares)
	{
		if constexpr (wide)
			each_wide(row, [&](int e) {
				s[e] = live(row, e) ? s[e] - pivot : Compute(0);
				sum += s[e];
				squares = fma(s[e], s[e], squares);
			});
		if constexpr (narrow)
			each_narrow(row, [&](int n, const Compute(&value)[V]) {
#pragma unroll
				for (int j = 0; j < V; j++) {
					const Compute off = row.live(n, j) ? value[j] - pivot : Compute(0);
					sum += off;
					squares = fma(off, off, squares);
				}
			});
	}

	/* The sum of all squares. */
	DEVICE Compute square(const Row &row)
	{
		Compute squares = 0;
		if constexpr (wide)
			each_wide(row,
					  [&](int e) { squares = live(row, e) ? fma(s[e], s[e], squares) : squares; });
		if constexpr (narrow)
			each_narrow(row, [&](int n, const Compute(&value)[V]) {
#pragma unroll
				for (int j = 0; j < V; j++)
					squares = row.live(n, j) ? fma(value[j], value[j], squares) : squares;
			});
		return squares;
	}

	/* Vector n, which is in registers; if wide, what deviate made of it. */
	DEVICE void get(int n, Compute (&out)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++)
			out[j] = wide ? s[wide ? n * V + j : 0] : raw(n * V + j);
	}
	/* Vector n, which is in a slot. */
	DEVICE void get_slot(int n, Compute (&out)[V]) const
	{
		u32 some[words];
		Compute more[V];
		vec_load<Row::bytes>(slot(n, 0), some);
		element_unpack<T>(some, out);
		if constexpr (inputs == 2) {
			vec_load<Row::bytes>(slot(n, 1), some);
			element_unpack<T>(some, more);
#pragma unroll
			for (int j = 0; j < V; j++)
				out[j] += more[j];
		}
	}

  private:
	/* Calls body(e) for each element that was widened, of vectors that any thread has. */
	template <typename Body>
	DEVICE void each_wide(const Row &row, Body body)
	{
		if constexpr (wide) {
#pragma unroll
			for (int n = 0; n < kept; n++) {
				if (!row.any_has(n))
					continue;
#pragma unroll
				for (int j = 0; j < V; j++)
					body(n * V + j);
			}
		}
	}
	/* Calls body(n, s) for each vector that was not widened. */
	template <typename Body>
	DEVICE void each_narrow(const Row &row, Body body)
	{
		if constexpr (!wide) {
#pragma unroll
			for (int n = 0; n < kept; n++) {
				Compute value[V];
				get(n, value);
				if (row.has(n))
					body(n, value);
			}
#pragma unroll
			for (int w = 0; w < kept * words; w++) {
#pragma unroll
				for (int i = 0; i < inputs; i++)
					norm_hide(word[i][w]);
			}
		}
		if constexpr (kept < Row::held) {
#pragma unroll 1
			for (int n = kept; n < Row::held; n++) {
				Compute value[V];
				if (!row.has(n))
					continue;
				get_slot(n, value);
				body(n, value);
			}
		}
	}

	static DEVICE bool live(const Row &row, int e)
	{
		return row.has(e / V) && row.live(e / V, e % V);
	}
	template <int INPUT>
	static DEVICE i64 place(int column)
	{
		return static_cast<i64>(PLACE::template column<INPUT>(static_cast<Offset>(column)));
	}
	DEVICE u8 *slot(int n, int input) const
	{
		return slots + ((n - kept) * inputs + input) * (SHAPE::threads * 16);
	}
	/* Element e of those in registers. */
	DEVICE Compute raw(int e) const
	{
		Compute out = element_at<T, Compute>(word[0] + e / V * words, e % V);
		if constexpr (inputs == 2)
			out += element_at<T, Compute>(word[1] + e / V * words, e % V);
		return out;
	}
};

/* Elements of each row that this thread's warp has, of WARPS. */
template <int WARPS, class ROW>
DEVICE typename ROW::Compute norm_count(const ROW &row)
{
	typedef typename ROW::Compute Compute;
	if constexpr (WARPS == 1 || ROW::full) {
		return Compute(row.columns / WARPS);
	} else {
		Compute mine[1] = {0};
#pragma unroll 1
		for (int n = 0; n < ROW::held; n++) {
#pragma unroll
			for (int j = 0; j < ROW::length; j++)
				mine[0] += row.has(n) && row.live(n, j) ? Compute(1) : Compute(0);
		}
		norm_sum<32>(mine);
		return mine[0];
	}
}

/* The answers for rows that the same threads hold, of each of which this thread's warp has so many
 * elements.  All threads of the block come, and all blocks of a cluster. */
template <class SHAPE, class WITH, class HELD, int TOGETHER, class ROW, typename Compute>
DEVICE void norm_measure_counted(HELD (&held)[TOGETHER], const ROW &row, Compute count, Compute eps)
{
	typedef typename SHAPE::group Group;
	const Compute each = Compute(1) / Compute(row.columns);
	constexpr int size = SHAPE::threads / SHAPE::rows, lanes = size < 32 ? size : 32;
	constexpr int warps = size / lanes; /* of each block that a row has */

	if constexpr (WITH::rms) {
		NormSums<Compute, TOGETHER> all;
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			all.row[i] = held[i].square(row);
		all = Group::template reduce<0>(all);
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			held[i].answer = norm_row_rms_of(each, all.row[i], eps);
	} else {
		NormParts<Compute, TOGETHER> all = {count, {}, {}};
		const Compute share = all.count > 0 ? norm_inverse(all.count) : Compute(0);
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			all.pivot[i] = held[i].total(row);
		norm_sum<lanes>(all.pivot);
#pragma unroll
		for (int i = 0; i < TOGETHER; i++) {
			held[i].pivot = all.pivot[i] = norm_product(all.pivot[i], share);
			held[i].deviate(row, all.sums[i], all.sums[TOGETHER + i]);
		}
		norm_sum<lanes>(all.sums);
		if constexpr (warps > 1)
			norm_collect<warps, ROW::full>(Group::template warps_of<0>(all), all);
		if constexpr (SHAPE::cluster > 1)
			norm_collect<SHAPE::cluster, ROW::full>(Group::template blocks_of<0>(all), all);
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			held[i].answer = norm_row_of(each, all.pivot[i], all.sums[i], all.sums[TOGETHER + i],
										 held[i].pivot, eps);
	}
}

template <class SHAPE, class WITH, class HELD, int TOGETHER, class ROW, typename Compute>
DEVICE void norm_measure(HELD (&held)[TOGETHER], const ROW &row, Compute eps)
{
	constexpr int size = SHAPE::threads / SHAPE::rows, warps = size < 32 ? 1 : size / 32;
	Compute count = 0;

	if constexpr (!WITH::rms)
		count = norm_count<warps * SHAPE::cluster>(row);
	norm_measure_counted<SHAPE, WITH>(held, row, count, eps);
}
