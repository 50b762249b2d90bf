/*
 * softmax_pairs.cuh: softmax of short rows of halves, which lie one behind the other.  A block
 * takes its rows as one piece, by way of shared memory (row_staged.cuh); a part of a warp takes
 * each row, by words of two halves.  A word that two rows of an odd number of halves share is in
 * both: either row passes over the other's half of it.
 *
 * The largest of a row is known before powers are made, so that each is made once.  It is found
 * while halves are pairs, and what takes no part is left out then.
 */
#pragma once
#include "common/row_staged.cuh"
#include "common/softmax_vector.cuh"

/* SHAPE: vectors are one word or two. */
template <class SHAPE>
struct PairsPiece {
	typedef typename SHAPE::Element T;
	static constexpr int step = SHAPE::threads * 16;
	static constexpr int bytes = SHAPE::rows * static_cast<int>(SHAPE::row::columns) * 2;
	static_assert(sizeof(T) == 2 && bytes % 16 == 0, "a piece of halves is whole vectors");

	/* Copies `there` bytes, of which all but one block have `bytes`: copy(at) does 16 of them. */
	template <typename Copy>
	static DEVICE void move(u8 *to, const u8 *from, int there, Copy copy)
	{
		const int mine = static_cast<int>(threadIdx.x) * 16;
		if (there == bytes) {
#pragma unroll
			for (int at = 0; at < bytes; at += step)
				if (at + step <= bytes || at + mine < bytes)
					copy(at + mine);
			return;
		}
		for (int at = mine; at + 16 <= there; at += step)
			copy(at);
		const int end = there / 16 * 16 + static_cast<int>(threadIdx.x) * 2;
		if (end < there)
			vec_copy<2>(from + end, to + end);
	}
	static DEVICE void fetch(u8 *piece, const u8 *from, int there)
	{
		move(
			piece, from, there, [&](int at) { async_copy16(piece + at, from + at); });
	}
	static DEVICE void store(const u8 *piece, u8 *to, int there)
	{
		move(
			to, piece, there, [&](int at) { vec_copy<16>(piece + at, to + at); });
	}
};

/* A row of a piece, by one of its threads. */
template <class SHAPE>
struct PairsRow {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	static constexpr int columns = static_cast<int>(SHAPE::row::columns);
	static constexpr int size = SHAPE::threads / SHAPE::rows; /* threads */
	static constexpr int once = SHAPE::row::length / 2;       /* words that lie together */
	static constexpr int words = (columns + 1) / 2;           /* that the row has a part of */
	static constexpr int turns = (words + size * once - 1) / (size * once), held = turns * once;
	/* The last of them is word `end` of thread number `ender`. */
	static constexpr int end = held - once + (words - 1) % once;
	static constexpr int ender = (words - 1) / once % size;
	static constexpr bool odd = columns % 2 == 1;
	/* Words that lie together move at once. */
	static constexpr bool both = once == 2 && columns % 4 == 0;
	static_assert(size <= 32 && SHAPE::slots == 0, "by parts of warps");

	u32 *const place; /* of its first word */
	const int thread;
	const bool past; /* the first half of the row's first word is the row's before */
	u32 word[held];

	DEVICE PairsRow(u8 *piece, int row)
		: place(reinterpret_cast<u32 *>(piece) + row * columns / 2 + SHAPE::group::thread() * once),
		  thread(SHAPE::group::thread()), past(odd && row % 2 != 0)
	{
		if constexpr (both) {
#pragma unroll
			for (int i = 0; i < held; i += 2) {
				word[i] = word[i + 1] = least();
				if (has(i))
					vec_load<8>(place + i * size, word + i);
			}
			return;
		}
#pragma unroll
		for (int i = 0; i < held; i++)
			word[i] = has(i) ? place[i / once * (size * once) + i % once] : least();
	}
	/* Has the row a half of word i? */
	DEVICE bool has(int i) const
	{
		return i < held - once || (i / once * size + thread) * once + i % once < words;
	}
	/* Two halves that are below all others. */
	static DEVICE u32 least()
	{
		const float both[2] = {SoftmaxNumber<float>::least(), SoftmaxNumber<float>::least()};
		u32 word;
		element_pack<T>(both, &word);
		return word;
	}
	/* Brings numbers of which terms are a negative multiple into the order of these. */
	DEVICE void turn()
	{
#pragma unroll
		for (int i = 0; i < held; i++)
			word[i] = has(i) ? word[i] ^ 0x80008000u : word[i];
	}
	/* Makes -inf of halves of other rows. */
	DEVICE void leave_out()
	{
		if constexpr (!odd)
			return;
		if (past && thread == 0)
			word[0] = (word[0] & 0xffff0000u) | (least() & 0xffffu);
		if (!past && thread == ender)
			word[end] = (word[end] & 0xffffu) | (least() & 0xffff0000u);
	}
	/* Calls body(i, flags) for the four halves of words i and i + 1, whose flags are bytes. */
	template <typename Body>
	DEVICE void flags_each(const u8 *flags, Body body) const
	{
		const u8 *const from = flags + thread * 4 - past;
		const int beyond = vec_beyond<4>(from);
		const u32 *const low = reinterpret_cast<const u32 *>(from - beyond);
		static_assert(once == 2, "words of flags");
#pragma unroll
		for (int n = 0; n < turns; n++)
			if (has(2 * n))
				body(2 * n, __funnelshift_r(low[n * size], low[n * size + 1], beyond * 8));
	}
	/* The largest half of this thread. */
	DEVICE Compute largest() const
	{
		Compute found = SoftmaxNumber<Compute>::least();
		if constexpr (element_pair<T>::known) {
			u32 pair = word[0];
#pragma unroll
			for (int i = 1; i < held; i++)
				pair = element_pair<T>::larger(pair, word[i]);
			found = fmax(element_at<T, Compute>(&pair, 0), element_at<T, Compute>(&pair, 1));
		} else {
#pragma unroll
			for (int i = 0; i < 2 * held; i++)
				found = fmax(found, element_at<T, Compute>(word, i));
		}
		return found;
	}
	/* Joins what all threads of a row have. */
	template <typename Join>
	static DEVICE Compute all(Compute mine, Join join)
	{
#pragma unroll
		for (int lanes = size / 2; lanes > 0; lanes /= 2)
			mine = join(mine, group_from(mine, lanes));
		return mine;
	}
	DEVICE void store() const
	{
		if constexpr (both) {
#pragma unroll
			for (int i = 0; i < held; i += 2)
				if (has(i))
					vec_store<8>(place + i * size, word + i);
			return;
		}
#pragma unroll
		for (int i = 0; i < held; i++) {
			u32 *const to = place + i / once * (size * once) + i % once;
			if (!has(i))
				continue;
			if (i == 0 && odd && past && thread == 0)
				reinterpret_cast<u16 *>(to)[1] = static_cast<u16>(word[i] >> 16);
			else if (i == end && odd && !past && thread == ender)
				reinterpret_cast<u16 *>(to)[0] = static_cast<u16>(word[i]);
			else
				*to = word[i];
		}
	}
};

/* The powers of a row and their sum.  Returns what they are powers of. */
template <class SHAPE, class MASK, typename Compute>
DEVICE SoftmaxLevel<typename SHAPE::Element, Compute>
pairs_powers(PairsRow<SHAPE> &row, const SoftmaxScale<Compute> &scale, const MASK &mask,
			 Compute (&power)[PairsRow<SHAPE>::held][2], Compute &sum)
{
	typedef typename SHAPE::Element T;
	typedef PairsRow<SHAPE> Row;
	Compute more = 0;

	if (scale.before < 0)
		row.turn();
	if constexpr (MASK::partial)
		row.flags_each(mask.start, [&](int i, u32 flags) {
			softmax_leave_out<MASK::keep>(flags, Row::least(), row.word[i], row.word[i + 1]);
		});
	row.leave_out();
	const SoftmaxLevel<T, Compute> level(
		Row::all(row.largest(), [](Compute a, Compute b) { return fmax(a, b); }),
		fabs(scale.before) * scale.exponent);
	sum = 0;
#pragma unroll
	for (int i = 0; i < Row::held; i++) {
		Compute x[1][2];
		element_unpack<T>(row.word + i, x[0]);
		level.part(x);
		level.powers(x[0], power[i]);
		sum += power[i][0];
		more += power[i][1];
	}
	sum = Row::all(sum + more, [](Compute a, Compute b) { return a + b; });
	return level;
}

/* One row of a piece.  mask: SoftmaxAll, or MaskFlags whose flags are in shared memory. */
template <class SHAPE, bool LOG, class MASK>
DEVICE void pairs_row(u8 *piece, int number, bool here,
					  const SoftmaxScale<typename SHAPE::Compute> &scale, const MASK &mask)
{
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef PairsRow<SHAPE> Row;
	Row row(piece, number);
	Compute value[Row::held][2], sum;
	const auto level = pairs_powers(row, scale, mask, value, sum);

	if (!here)
		return;
	const Compute rest = LOG ? softmax_log(sum * level.fix()) : inverse_near(sum);
	const Compute unit = fabs(scale.before);
#pragma unroll
	for (int i = 0; i < Row::held; i++) {
		if constexpr (LOG)
			element_unpack<T>(row.word + i, value[i]);
#pragma unroll
		for (int j = 0; j < 2; j++)
			value[i][j] = LOG ? fma(fma(value[i][j], unit, -level.top * unit), scale.after, -rest)
							  : value[i][j] * rest;
		element_pack<T>(value[i], row.word + i);
	}
	/* Elements that take no part are 0 by any factor that is a number; otherwise they are made
	 * 0. */
	if constexpr (MASK::partial) {
		if (!(sum > 0 && rest > 0))
			row.flags_each(
				mask.start,
				[&](int i, u32 flags) {
					softmax_leave_out<MASK::keep>(flags, 0, row.word[i], row.word[i + 1]);
				});
	}
	row.store();
}

/* The memory that the flags of a row of BYTES bytes take for SIZE threads: so much that different
 * rows of a warp have them in different banks. */
template <int BYTES, int SIZE>
constexpr int pairs_aside()
{
	constexpr int period = SIZE < 4 ? 2 : SIZE / 2; /* in pieces of 16 bytes */
	return ((row_aside_bytes(BYTES) / 16 + period / 2 - 1) / period * period + period / 2) * 16;
}

/* All rows of a launch.  mask_of and ASIDE as row_staged_masked() has them. */
template <class SHAPE, bool LOG, int ASIDE, typename T, typename Compute, typename MaskOf>
DEVICE void pairs_each(const T *x, T *y, const SoftmaxScale<Compute> &scale, i64 rows,
					   MaskOf mask_of)
{
	typedef PairsPiece<SHAPE> Piece;
	constexpr int bytes = Piece::bytes / SHAPE::rows;
	const int mine = SHAPE::group::row();
	DYN_SHARED(b128, memory);
	u8 *const piece = reinterpret_cast<u8 *>(memory);
	i64 first = static_cast<i64>(blockIdx.x) * SHAPE::rows;

	while (true) {
		const i64 left = rows - first;
		const int there = left < SHAPE::rows ? static_cast<int>(left) : SHAPE::rows;
		const bool here = mine < there;
		const auto mask = mask_of(first + (here ? mine : 0), piece + Piece::bytes + mine * ASIDE);
		Piece::fetch(piece, reinterpret_cast<const u8 *>(x) + first * bytes, there * bytes);
		async_wait_all();
		__syncthreads();
		pairs_row<SHAPE, LOG>(piece, mine, here, scale, mask);
		__syncthreads();
		Piece::store(piece, reinterpret_cast<u8 *>(y) + first * bytes, there * bytes);
		first += static_cast<i64>(gridDim.x) * SHAPE::rows;
		if (first >= rows)
			break;
		__syncthreads(); /* the next piece takes the memory again */
	}
}
