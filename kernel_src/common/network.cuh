/*
 * network.cuh: words in order, in registers: by networks of comparisons within a thread, and with
 * the lanes of a part of a warp.  The least word comes first.  Counts are powers of two.  A type of
 * more than a word, as entries are (order.cuh), says itself which comes first.
 */
#pragma once
#include "common/group.cuh"
#include "common/types.cuh"

DEVICE void network_order(u32 &first, u32 &second)
{
	const u32 a = first, b = second;
	first = a < b ? a : b;
	second = a < b ? b : a;
}
template <class Entry>
DEVICE void network_order(Entry &first, Entry &second)
{
	const Entry a = first, b = second;
	const bool right = a.before(b);
	first = right ? a : b;
	second = right ? b : a;
}

/*
 * The same with one comparison, for which a multiprocessor has the fewest units: the greater is
 * what the sum has besides the lesser.  Products with 1, which the compiler does not know to be 1,
 * are made by other units; a launch has one row of blocks.
 */
DEVICE void network_order_sums(u32 &first, u32 &second)
{
	const u32 a = first, b = second, one = gridDim.y, minus = 0 - one, sum = a * one + b;
	first = a < b ? a : b;
	second = first * minus + sum;
}

/* Pairs take turns, so that neither kind of instruction is waited for. */
DEVICE void network_order_turn(u32 &first, u32 &second, int turn)
{
	if (turn % 2 == 0)
		network_order_sums(first, second);
	else
		network_order(first, second);
}
template <class Entry>
DEVICE void network_order_turn(Entry &first, Entry &second, int)
{
	network_order(first, second);
}

/* Merges COUNT words that are STEP apart: those at even places with those at odd ones. */
template <int COUNT, int STEP, typename Word>
DEVICE void network_merge(Word *words)
{
	if constexpr (2 * STEP < COUNT) {
		network_merge<COUNT, 2 * STEP>(words);
		network_merge<COUNT, 2 * STEP>(words + STEP);
#pragma unroll
		for (int i = STEP; i + STEP < COUNT; i += 2 * STEP)
			network_order_turn(words[i], words[i + STEP], i / (2 * STEP));
	} else {
		network_order(words[0], words[STEP]);
	}
}

/* Any words. */
template <int COUNT, typename Word>
DEVICE void network_sort(Word *words)
{
	if constexpr (COUNT > 1) {
		network_sort<COUNT / 2>(words);
		network_sort<COUNT / 2>(words + COUNT / 2);
		network_merge<COUNT, 1>(words);
	}
}

/* Words that rise and then fall, or the other way. */
template <int COUNT, typename Word>
DEVICE void network_bitonic(Word *words)
{
	if constexpr (COUNT > 1) {
#pragma unroll
		for (int i = 0; i < COUNT / 2; i++)
			network_order_turn(words[i], words[i + COUNT / 2], i);
		network_bitonic<COUNT / 2>(words);
		network_bitonic<COUNT / 2>(words + COUNT / 2);
	}
}

/* Keeps the first COUNT of two lists in order. */
template <int COUNT>
DEVICE void network_first(u32 (&list)[COUNT], const u32 (&other)[COUNT])
{
#pragma unroll
	for (int i = 0; i < COUNT; i++)
		list[i] = other[COUNT - 1 - i] < list[i] ? other[COUNT - 1 - i] : list[i];
	network_bitonic<COUNT>(list);
}

/* Takes the first COUNT of a thread's words, in order. */
template <int COUNT, int EACH>
DEVICE void network_list(const u32 (&words)[EACH], u32 (&list)[COUNT])
{
#pragma unroll
	for (int begin = 0; begin < EACH; begin += COUNT) {
		u32 part[COUNT];
#pragma unroll
		for (int i = 0; i < COUNT; i++)
			part[i] = begin + i < EACH ? words[begin + i < EACH ? begin + i : 0] : ~0u;
		network_sort<COUNT>(part);
		if (begin > 0) {
			network_first(list, part);
		} else {
#pragma unroll
			for (int i = 0; i < COUNT; i++)
				list[i] = part[i];
		}
	}
}

/* Gives all of LANES lanes the first COUNT of their lists. */
template <int LANES, int COUNT>
DEVICE void network_list_lanes(u32 (&list)[COUNT])
{
#pragma unroll
	for (int far = 1; far < LANES; far *= 2) {
		u32 other[COUNT];
#pragma unroll
		for (int i = 0; i < COUNT; i++)
			other[i] = group_from(list[i], far);
		network_first(list, other);
	}
}

/* The lesser word, or the greater. */
DEVICE u32 network_pick(u32 mine, u32 other, bool greater)
{
	const u32 low = mine < other ? mine : other, high = mine < other ? other : mine;
	return greater ? high : low;
}

/*
 * Words of lanes in shared memory, EACH + 1 places for each lane: so lanes meet in no bank, neither
 * with their own words nor with those of one number of many lanes.
 */
template <int EACH>
struct NetworkPlaces {
	u32 *places; /* of the row */
	int lane;

	/*
	 * Merges two runs in order, of LANES lanes together.  Each lane takes the words that have its
	 * number among all of these lanes, and those that lie LANES further on each time; the second
	 * run's backwards.  When they are compared, they go back.
	 */
	template <int LANES>
	DEVICE void merge(u32 (&words)[EACH]) const
	{
		constexpr int pitch = EACH + 1;
		const int number = lane & (LANES - 1);
		u32 *const own = places + lane * pitch;
		u32 *const front = own + number - number * pitch, *const back =
															  front - 2 * number + EACH - 1;

#pragma unroll
		for (int i = 0; i < EACH; i++)
			own[i] = words[i];
		__syncwarp();
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			const int from = i % LANES, part = i - from;
			words[i] = from < LANES / 2 ? front[from * pitch + part]
										: back[(from ^ (LANES / 2 - 1)) * pitch - part];
		}
		__syncwarp();
#pragma unroll
		for (int part = 0; part < EACH; part += LANES)
			network_bitonic<LANES>(words + part);
#pragma unroll
		for (int i = 0; i < EACH; i++)
			front[i % LANES * pitch + i / LANES * LANES] = words[i];
		__syncwarp();
#pragma unroll
		for (int i = 0; i < EACH; i++)
			words[i] = own[i];
		__syncwarp();
	}
};

/* Words of shared memory that network_sort_lanes() has for a row. */
template <int LANES, int EACH>
constexpr int network_room = LANES *EACH + (LANES > 4 ? LANES : 0);

/*
 * The words of LANES lanes in order: EACH of lane 0, then those of lane 1, and so on.  Steps are
 * loops where they can be, for a row takes thousands of comparisons.  Where runs are of many lanes,
 * words change places: then each comparison is of one lane alone, and not of two.
 */
template <int LANES, int EACH>
DEVICE void network_sort_lanes(u32 (&words)[EACH], int lane, u32 *places)
{
	const NetworkPlaces<EACH> moved = {places, lane};

	network_sort<EACH>(words);
#pragma unroll 1
	for (int run = 1; run < LANES; run *= 2) {
		if (LANES > 16 && EACH >= 32 && run == 16) {
			if constexpr (EACH >= 32)
				moved.template merge<32>(words);
		} else if (LANES > 8 && EACH >= 16 && run == 8) {
			if constexpr (EACH >= 16)
				moved.template merge<16>(words);
		} else if (LANES > 4 && EACH >= 8 && run == 4) {
			if constexpr (EACH >= 8)
				moved.template merge<8>(words);
		} else {
			/* Two sorted runs: the second is taken backwards. */
			const bool behind = (lane & run) != 0;
#pragma unroll
			for (int i = 0; i < (EACH + 1) / 2; i++) {
				const u32 a = group_from(words[EACH - 1 - i], 2 * run - 1);
				const u32 b = group_from(words[i], 2 * run - 1);
				words[i] = network_pick(words[i], a, behind);
				if (EACH > 1)
					words[EACH - 1 - i] = network_pick(words[EACH - 1 - i], b, behind);
			}
#pragma unroll 1
			for (int far = run / 2; far > 0; far /= 2) {
#pragma unroll
				for (int i = 0; i < EACH; i++)
					words[i] = network_pick(words[i], group_from(words[i], far), (lane & far) != 0);
			}
		}
		network_bitonic<EACH>(words);
	}
}

/*
 * The words of lanes that merge, EACH of a lane, in order as above.  Each half of `run` lanes is in
 * order, and pairs of them merge, then pairs of those, until `lanes` are in order.  run 32: the
 * words of a warp rise and then fall, or the other way.  few: the first EACH of them are enough,
 * and all lanes get these.
 */
template <int EACH, class Entry>
DEVICE void network_merge_any(Entry (&words)[EACH], int lane, int run, int lanes, bool few)
{
#pragma unroll 1
	do {
		if (run < 32) {
			const bool behind = !few && (lane & run) != 0;
#pragma unroll
			for (int i = 0; i < EACH / 2; i++) {
				const Entry a = group_from(words[EACH - 1 - i], 2 * run - 1);
				const Entry b = group_from(words[i], 2 * run - 1);
				words[i] = a.before(words[i]) != behind ? a : words[i];
				words[EACH - 1 - i] =
					b.before(words[EACH - 1 - i]) != behind ? b : words[EACH - 1 - i];
			}
		}
#pragma unroll 1
		for (int far = few ? 0 : run / 2; far > 0; far /= 2) {
			const bool behind = (lane & far) != 0;
#pragma unroll
			for (int i = 0; i < EACH; i++) {
				const Entry other = group_from(words[i], far);
				words[i] = other.before(words[i]) != behind ? other : words[i];
			}
		}
		network_bitonic<EACH>(words);
		run *= 2;
	} while (run < lanes);
}
