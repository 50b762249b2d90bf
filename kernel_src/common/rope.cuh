/*
 * rope.cuh: what the operators of rotary position embedding share: a call's operands, the numbers
 * of tokens, heads and items, and pairs of elements that are rotated.
 */
#pragma once
#include "common/divide.cuh"
#include "common/element.cuh"
#include "common/indices.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* V elements that lie next to each other, or as many as are left, W bytes at a time.  They are
 * looked at later than they are asked for, so that other loads do not wait. */
template <int W, int V, typename T>
struct RopeElements {
	static constexpr int each = W / static_cast<int>(sizeof(T));
	static_assert(V % each == 0, "whole vectors");
	u32 words[V / each][vec_words<W>];

	template <typename Index>
	DEVICE void fetch(const T *from, Index left)
	{
#pragma unroll
		for (int n = 0; n < V / each; n++)
			if (static_cast<Index>(n * each) < left)
				vec_load<W>(from + n * each, words[n]);
	}
	template <typename Compute>
	DEVICE void open(Compute (&out)[V]) const
	{
#pragma unroll
		for (int i = 0; i < V; i++)
			out[i] = element_at<T, Compute>(words[i / each], i % each);
	}
	template <typename Index>
	DEVICE void store(T *to, Index left) const
	{
#pragma unroll
		for (int n = 0; n < V / each; n++)
			if (static_cast<Index>(n * each) < left)
				vec_store<W>(to + n * each, words[n]);
	}
};

template <int W, int V, typename T, typename Compute, typename Index>
DEVICE void rope_store(T *to, Index left, const Compute (&in)[V])
{
	constexpr int each = W / static_cast<int>(sizeof(T));

#pragma unroll
	for (int n = 0; n < V / each; n++) {
		u32 words[vec_words<W>];
		Compute part[each];
#pragma unroll
		for (int i = 0; i < each; i++)
			part[i] = in[n * each + i];
		element_pack<T>(part, words);
		if (static_cast<Index>(n * each) < left)
			vec_store<W>(to + n * each, words);
	}
}

/* ---- A call ---- */

template <typename Index>
struct RopeStrides {
	Index batch, token, head;

	/* The offset of a head of a token; of the tables, and of positions, that of a row. */
	DEVICE Index at(Index of_batch, Index row) const
	{
		return of_batch * batch + row * token;
	}
	DEVICE Index at(Index of_batch, Index row, Index of_head) const
	{
		return of_batch * batch + row * token + of_head * head;
	}
};

template <typename T, typename Table, typename Index>
struct RopeCall {
	const T *q, *k;
	T *q_out, *k_out;
	const Table *cos, *sin;
	const void *positions;
	Divisor<Index> tokens; /* of a batch */
	u64 start, rows;       /* the position of token 0 where none are given; of the tables */
	typename element<T>::compute sign;
	RopeStrides<Index> q_is, k_is, q_out_is, k_out_is, cos_is, sin_is, positions_is;

	/* The row of the tables for a token; false: its position names none.  bytes: of a position; 0:
	 * none are given. */
	DEVICE bool find(Index batch, Index token, int bytes, u32 bounds, Index &row) const
	{
		const Index at = positions_is.at(batch, token);
		u64 position = start + token;

		if (bytes == 4)
			position = static_cast<u64>(static_cast<i64>(static_cast<const i32 *>(positions)[at]));
		if (bytes == 8)
			position = static_cast<u64>(static_cast<const i64 *>(positions)[at]);
		row = static_cast<Index>(position);
		if (bytes == 0 || position < rows)
			return true;
		if (bounds == INDICES_CHECK)
			return false;
		row = bounds == INDICES_CLAMP && static_cast<i64>(position) < 0
				  ? 0
				  : static_cast<Index>(rows - 1);
		return true;
	}

	/* Asks for the angles of a row, from one on. */
	template <int W, int ANGLES>
	DEVICE void angles(Index batch, Index row, Index angle, RopeElements<W, ANGLES, Table> &c,
					   RopeElements<W, ANGLES, Table> &s) const
	{
		c.fetch(cos + (cos_is.at(batch, row) + angle), ANGLES);
		s.fetch(sin + (sin_is.at(batch, row) + angle), ANGLES);
	}
};

/* The parameters of a kernel, and the call made of them. */
#define ROPE_STRIDES(x) i64 x##_batch, i64 x##_token, i64 x##_head
#define ROPE_STRIDES_MADE(x)                                                                       \
	{                                                                                              \
		static_cast<Index>(x##_batch), static_cast<Index>(x##_token), static_cast<Index>(x##_head) \
	}
#define ROPE_ROWS(x) i64 x##_batch, i64 x##_token
#define ROPE_ROWS_MADE(x)                                               \
	{                                                                   \
		static_cast<Index>(x##_batch), static_cast<Index>(x##_token), 0 \
	}
#define ROPE_PARAMS ROPE_PARAMS_OF(Index)
#define ROPE_PARAMS_OF(Index)                                                                    \
	const T *q, const Table *cos, const Table *sin, const T *k, const void *positions, T *q_out, \
		T *k_out, u64 *report, i64 work, DIVIDE_PARAMS(Index, tokens), i64 start, i64 rows,      \
		typename element<T>::compute sign, ROPE_STRIDES(q), ROPE_ROWS(cos), ROPE_ROWS(sin),      \
		ROPE_STRIDES(k), ROPE_ROWS(positions), ROPE_STRIDES(q_out), ROPE_STRIDES(k_out)
#define ROPE_CALL                                                                        \
	{                                                                                    \
		q, k, q_out, k_out, cos, sin, positions, DIVIDE_MADE(Index, tokens),             \
			static_cast<u64>(start), static_cast<u64>(rows), sign, ROPE_STRIDES_MADE(q), \
			ROPE_STRIDES_MADE(k), ROPE_STRIDES_MADE(q_out), ROPE_STRIDES_MADE(k_out),    \
			ROPE_ROWS_MADE(cos), ROPE_ROWS_MADE(sin), ROPE_ROWS_MADE(positions)          \
	}

/* Sizes that are known when the kernel is compiled: of half the elements that are rotated, of all,
 * of heads; items: what the threads of a head number. */
template <i64 HALF, i64 DIM, i64 Q_HEADS, i64 K_HEADS, i64 ROTATED, i64 ITEMS, int HELD,
		  typename Index>
struct RopeSizes {
	static constexpr Index half = HALF, dim = DIM, q_heads = Q_HEADS, heads = Q_HEADS + K_HEADS;
	static constexpr Index rotated = ROTATED; /* items that are; the others are copied */

	DEVICE void split(Index number, Index &token, Index &group, Index &item) const
	{
		constexpr Index groups = (Q_HEADS + K_HEADS + HELD - 1) / HELD;
		const Index row = number / static_cast<Index>(ITEMS);
		item = number - row * static_cast<Index>(ITEMS);
		token = row / groups;
		group = row - token * groups;
	}
};

/* Sizes that are known when it is launched. */
template <typename Index>
struct RopeAnySizes {
	Index half, dim, q_heads, rotated;
	Divisor<Index> heads_of, items;
	Index heads;

	DEVICE void split(Index number, Index &token, Index &group, Index &item) const
	{
		const Index head = items.quotient(number);
		item = number - head * items.size;
		token = heads_of.quotient(head);
		group = head - token * heads_of.size;
	}
};

/* ---- What a thread does ---- */

/* The columns of an item's vectors, and how many elements there are from each on.  Items that are
 * copied have one. */
template <int V, int PER, class Sizes, typename Index>
DEVICE void rope_columns(const Sizes &sizes, Index item, bool rotated, Index (&column)[PER],
						 Index (&left)[PER])
{
#pragma unroll
	for (int p = 0; p < PER; p++) {
		column[p] =
			rotated ? item * V + p * sizes.half : 2 * sizes.half + (item - sizes.rotated) * V;
		left[p] = rotated ? V : p == 0 ? sizes.dim - column[p] : 0;
	}
}

/* Rotates by angles: of two halves, or of pairs within x[0]. */
template <bool INTERLEAVED, int PER, int V, int ANGLES, typename Compute>
DEVICE void rope_rotate(Compute (&x)[PER][V], const Compute (&c)[ANGLES],
						const Compute (&s)[ANGLES])
{
#pragma unroll
	for (int i = 0; i < ANGLES; i++) {
		Compute &first = INTERLEAVED ? x[0][2 * i] : x[0][i];
		Compute &second = INTERLEAVED ? x[0][2 * i + 1] : x[PER - 1][i];
		const Compute a = first, b = second;
		first = a * c[i] - b * s[i];
		second = b * c[i] + a * s[i];
	}
}
