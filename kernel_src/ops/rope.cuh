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
#include "common/rope.cuh"

/* Returns 1 if the position of the token is out of range and this item is its first. */
template <bool INTERLEAVED, int V, int W, int TABLE_W, int HELD, typename T, typename Table,
		  typename Index, class Sizes>
DEVICE u32 rope_item(const RopeCall<T, Table, Index> &call, const Sizes &sizes, Index number,
					 int position_bytes, u32 bounds)
{
	typedef typename element<T>::compute Compute;
	constexpr int PER = INTERLEAVED ? 1 : 2, ANGLES = INTERLEAVED ? V / 2 : V;
	RopeElements<W, V, T> raw[HELD][PER];
	RopeElements<TABLE_W, ANGLES, Table> raw_c, raw_s;
	Compute x[HELD][PER][V], c[ANGLES], s[ANGLES];
	Index all, group, item, row, column[PER], left[PER];
	const T *from[HELD];
	T *to[HELD];
	bool here[HELD];

	sizes.split(number, all, group, item);
	const Index batch = call.tokens.quotient(all), token = all - batch * call.tokens.size;
	const bool named = call.find(batch, token, position_bytes, bounds, row);
	const bool rotated = sizes.dim == 2 * sizes.half || item < sizes.rotated;
	rope_columns<V>(sizes, item, rotated, column, left);
#pragma unroll
	for (int h = 0; h < HELD; h++) {
		const Index head = group * HELD + h, k_head = head - sizes.q_heads;
		if (sizes.q_heads == sizes.heads || head < sizes.q_heads) {
			from[h] = call.q + call.q_is.at(batch, token, head);
			to[h] = call.q_out + call.q_out_is.at(batch, token, head);
		} else {
			from[h] = call.k + call.k_is.at(batch, token, k_head);
			to[h] = call.k_out + call.k_out_is.at(batch, token, k_head);
		}
		/* Heads are read before the position is known.  An item that would be copied onto itself
		 * stays where it is. */
		here[h] = head < sizes.heads && (rotated || from[h] != to[h]);
#pragma unroll
		for (int p = 0; p < PER; p++)
			raw[h][p].fetch(from[h] + column[p], here[h] ? left[p] : 0);
	}
	/* Each way by itself: elements that are no numbers yet take half the registers. */
	if (!named) {
		constexpr Compute nothing[V] = {};
#pragma unroll
		for (int h = 0; h < HELD; h++) {
#pragma unroll
			for (int p = 0; p < PER; p++)
				rope_store<W>(to[h] + column[p], group * HELD + h < sizes.heads ? left[p] : 0,
							  nothing);
		}
		return group == 0 && item == 0;
	}
	if (!rotated) {
#pragma unroll
		for (int h = 0; h < HELD; h++) {
#pragma unroll
			for (int p = 0; p < PER; p++)
				raw[h][p].store(to[h] + column[p], here[h] ? left[p] : 0);
		}
		return 0;
	}
	call.angles(batch, row, static_cast<Index>(item * ANGLES), raw_c, raw_s);
#pragma unroll
	for (int h = 0; h < HELD; h++) {
#pragma unroll
		for (int p = 0; p < PER; p++)
			raw[h][p].open(x[h][p]);
	}
	raw_c.open(c);
	raw_s.open(s);
#pragma unroll
	for (int i = 0; i < ANGLES; i++)
		s[i] *= call.sign;
#pragma unroll
	for (int h = 0; h < HELD; h++) {
		rope_rotate<INTERLEAVED>(x[h], c, s);
#pragma unroll
		for (int p = 0; p < PER; p++)
			rope_store<W>(to[h] + column[p], here[h] ? left[p] : 0, x[h][p]);
	}
	return 0;
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
