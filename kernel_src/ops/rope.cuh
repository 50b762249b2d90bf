/*
 * rope.cuh: rotary position embedding.  Each pair of elements (a, b) of a head becomes (a cos - b
 * sin, b cos + a sin), by the row of the tables that the token's position names; elements behind
 * the pairs are copied.  q and k are heads of one launch, q's first.
 *
 * A thread has one vector of each half of a head, or one vector of pairs where these are
 * interleaved, in HELD heads of a token, which share its angles.  It reads all that it overwrites
 * before it writes, so a tensor may be rotated in place.  The generic kernel takes all sizes as
 * arguments.
 */
#pragma once
#include "common/divide.cuh"
#include "common/element.cuh"
#include "common/indices.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* V elements that lie next to each other, or as many as are left, W bytes at a time. */
template <int W, int V, typename T, typename Compute, typename Index>
DEVICE void rope_load(const T *from, Index left, Compute (&out)[V])
{
	constexpr int each = W / static_cast<int>(sizeof(T));
	static_assert(V % each == 0, "whole vectors");

#pragma unroll
	for (int n = 0; n < V / each; n++) {
		u32 words[vec_words<W>] = {};
		if (static_cast<Index>(n * each) < left)
			vec_load<W>(from + n * each, words);
#pragma unroll
		for (int i = 0; i < each; i++)
			out[n * each + i] = element_at<T, Compute>(words, i);
	}
}

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
		const Index at = batch * positions_is.batch + token * positions_is.token;
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
};

/* The parameters of a kernel, and the call made of them. */
#define ROPE_STRIDES(x) i64 x##_batch, i64 x##_token, i64 x##_head
#define ROPE_STRIDES_MADE(x)                                                                       \
	{                                                                                              \
		static_cast<Index>(x##_batch), static_cast<Index>(x##_token), static_cast<Index>(x##_head) \
	}
#define ROPE_PARAMS                                                                               \
	const T *q, const Table *cos, const Table *sin, const T *k, const void *positions, T *q_out,  \
		T *k_out, u64 *report, i64 work, DIVIDE_PARAMS(Index, tokens), i64 start, i64 rows,       \
		typename element<T>::compute sign, ROPE_STRIDES(q), ROPE_STRIDES(cos), ROPE_STRIDES(sin), \
		ROPE_STRIDES(k), ROPE_STRIDES(positions), ROPE_STRIDES(q_out), ROPE_STRIDES(k_out)
#define ROPE_CALL                                                                        \
	{                                                                                    \
		q, k, q_out, k_out, cos, sin, positions, DIVIDE_MADE(Index, tokens),             \
			static_cast<u64>(start), static_cast<u64>(rows), sign, ROPE_STRIDES_MADE(q), \
			ROPE_STRIDES_MADE(k), ROPE_STRIDES_MADE(q_out), ROPE_STRIDES_MADE(k_out),    \
			ROPE_STRIDES_MADE(cos), ROPE_STRIDES_MADE(sin), ROPE_STRIDES_MADE(positions) \
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
		constexpr Index each = (Q_HEADS + K_HEADS + HELD - 1) / HELD * ITEMS;
		token = number / each;
		const Index rest = number - token * each;
		group = rest / static_cast<Index>(ITEMS);
		item = rest - group * static_cast<Index>(ITEMS);
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

/* Returns 1 if the position of the token is out of range and this item is its first. */
template <bool INTERLEAVED, int V, int W, int TABLE_W, int HELD, typename T, typename Table,
		  typename Index, class Sizes>
DEVICE u32 rope_item(const RopeCall<T, Table, Index> &call, const Sizes &sizes, Index number,
					 int position_bytes, u32 bounds)
{
	typedef typename element<T>::compute Compute;
	constexpr int PER = INTERLEAVED ? 1 : 2, ANGLES = INTERLEAVED ? V / 2 : V;
	Compute x[HELD][PER][V], c[ANGLES], s[ANGLES];
	Index all, group, item, row, column[PER], left[PER];
	const T *from[HELD];
	T *to[HELD];
	bool here[HELD];

	sizes.split(number, all, group, item);
	const Index batch = call.tokens.quotient(all), token = all - batch * call.tokens.size;
	const bool named = call.find(batch, token, position_bytes, bounds, row);
	const bool rotated = sizes.dim == 2 * sizes.half || item < sizes.rotated;
#pragma unroll
	for (int p = 0; p < PER; p++) {
		column[p] = rotated ? item * V + p * sizes.half
							: 2 * sizes.half + ((item - sizes.rotated) * PER + p) * V;
		left[p] = rotated ? V : column[p] < sizes.dim ? sizes.dim - column[p] : 0;
	}
#pragma unroll
	for (int h = 0; h < HELD; h++) {
		const Index head = group * HELD + h, k_head = head - sizes.q_heads;
		if (sizes.q_heads == sizes.heads || head < sizes.q_heads) {
			from[h] = call.q +
					  (batch * call.q_is.batch + token * call.q_is.token + head * call.q_is.head);
			to[h] = call.q_out + (batch * call.q_out_is.batch + token * call.q_out_is.token +
								  head * call.q_out_is.head);
		} else {
			from[h] = call.k +
					  (batch * call.k_is.batch + token * call.k_is.token + k_head * call.k_is.head);
			to[h] = call.k_out + (batch * call.k_out_is.batch + token * call.k_out_is.token +
								  k_head * call.k_out_is.head);
		}
		/* What is only copied stays where it is. */
		here[h] = head < sizes.heads && (rotated || !named || from[h] != to[h]);
#pragma unroll
		for (int p = 0; p < PER; p++)
			rope_load<W>(from[h] + column[p], here[h] ? left[p] : 0, x[h][p]);
	}
	if (rotated && named) {
		const Index angle = item * ANGLES;
		rope_load<TABLE_W>(call.cos + (batch * call.cos_is.batch + row * call.cos_is.token + angle),
						   ANGLES, c);
		rope_load<TABLE_W>(call.sin + (batch * call.sin_is.batch + row * call.sin_is.token + angle),
						   ANGLES, s);
#pragma unroll
		for (int i = 0; i < ANGLES; i++)
			s[i] *= call.sign;
#pragma unroll
		for (int h = 0; h < HELD; h++)
			rope_rotate<INTERLEAVED>(x[h], c, s);
	}
#pragma unroll
	for (int h = 0; h < HELD; h++) {
#pragma unroll
		for (int p = 0; p < PER; p++) {
#pragma unroll
			for (int v = 0; v < V; v++)
				x[h][p][v] = named ? x[h][p][v] : Compute(0);
			rope_store<W>(to[h] + column[p], here[h] ? left[p] : 0, x[h][p]);
		}
	}
	return !named && group == 0 && item == 0;
}

/* ---- Kernels ---- */

template <typename T, typename Table, bool INTERLEAVED, int V, int W, int TABLE_W, i64 HALF,
		  i64 DIM, i64 Q_HEADS, i64 K_HEADS, i64 ROTATED, i64 ITEMS, int HELD, int THREADS,
		  int POSITION_BYTES, u32 BOUNDS, typename Index, bool LOOP>
__global__ LAUNCH_BOUNDS(THREADS) void rope(ROPE_PARAMS)
{
	const RopeCall<T, Table, Index> call ROPE_CALL;
	const RopeSizes<HALF, DIM, Q_HEADS, K_HEADS, ROTATED, ITEMS, HELD, Index> sizes;
	Index number = static_cast<Index>(blockIdx.x) * THREADS + threadIdx.x;
	u32 strays = 0;

	do {
		if (number < static_cast<Index>(work))
			strays += rope_item<INTERLEAVED, V, W, TABLE_W, HELD>(call, sizes, number,
																  POSITION_BYTES, BOUNDS);
		number += static_cast<Index>(gridDim.x) * THREADS;
	} while (LOOP && number - threadIdx.x < static_cast<Index>(work));
	if constexpr (POSITION_BYTES > 0 && BOUNDS == INDICES_CHECK)
		indices_report(report, strays);
}

template <typename T, typename Table, bool INTERLEAVED, int V, int W, int TABLE_W, typename Index>
__global__ void rope_generic(ROPE_PARAMS, DIVIDE_PARAMS(Index, heads), DIVIDE_PARAMS(Index, items),
							 Index half, Index dim, Index q_heads, Index rotated,
							 u32 position_bytes, u32 bounds)
{
	const RopeCall<T, Table, Index> call ROPE_CALL;
	const RopeAnySizes<Index> sizes{
		half,      dim, q_heads, rotated, DIVIDE_MADE(Index, heads), DIVIDE_MADE(Index, items),
		heads_size};
	Index number = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
	u32 strays = 0;

	for (; number - threadIdx.x < static_cast<Index>(work);
		 number += static_cast<Index>(gridDim.x) * blockDim.x)
		if (number < static_cast<Index>(work))
			strays += rope_item<INTERLEAVED, V, W, TABLE_W, 1>(
				call, sizes, number, static_cast<int>(position_bytes), bounds);
	if (position_bytes > 0 && bounds == INDICES_CHECK)
		indices_report(report, strays);
}
