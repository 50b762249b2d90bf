/*
 * scan_chain.cuh: scans (scan.cuh) of rows that lie side by side, by blocks that share the columns
 * of a row: each has a tile of them, and is told what is before.
 *
 * A block leaves what its tile comes to in scratch memory, waits for the tiles before it in its
 * group of SCAN_CHAIN tiles and for what is before that group, and merges these in their order.
 * The last of a group leaves what all up to it come to.  Blocks begin by their numbers, those of
 * the first columns first, so that nobody waits for a block that has not begun.
 */
#pragma once
#include "common/earlier.cuh"
#include "common/scan_columns.cuh"

#define SCAN_CHAIN 8 /* tiles of a group; the planner knows */

/* The scratch memory by which blocks tell each other of WIDE rows.  Flags are 0 between
 * launches. */
template <class Value, int WIDE>
struct ScanChain {
	u32 *flags, *group_flags; /* how many warps have left their part */
	Value *parts, *groups;
	u32 count, all_groups; /* of a row: its tiles, their groups */

	DEVICE ScanChain(const Earlier &order, u32 strips, u32 count)
		: flags(order.ended + EARLIER_STATE), count(count),
		  all_groups((count + SCAN_CHAIN - 1) / SCAN_CHAIN)
	{
		const u32 words = (strips * (count + all_groups) + 63) / 64 * 64;
		group_flags = flags + strips * count;
		parts = reinterpret_cast<Value *>(flags + words);
		groups = parts + static_cast<u64>(strips) * count * WIDE;
	}

	/* A warp leaves the parts of its lanes. */
	static DEVICE void leave(const Value &value, Value *to, u32 *flag, int lane)
	{
		*to = value;
		__syncwarp();
		if (lane == 0)
			earlier_add(flag);
	}

	static DEVICE bool there(u32 *flag)
	{
		return earlier_seen(flag) == WIDE / 32;
	}

	/* Returns what is before tile `number` of a strip, in row `at` of it; all: what the tile comes
	 * to. */
	DEVICE Value before(u32 strip, u32 number, int at, const Value &all, const Value &none) const
	{
		const int lane = at % 32;
		const u32 group = number / SCAN_CHAIN, many = number % SCAN_CHAIN;
		const u64 first = static_cast<u64>(strip) * count + number - many;
		const u64 upto = static_cast<u64>(strip) * all_groups + group;
		Value part[SCAN_CHAIN - 1], before = none;
		/* Nobody waits for the last tile: its flag might rise only when all flags are cleared. */
		const bool told = number + 1 < count;
		bool good;

		if (told && many + 1 < SCAN_CHAIN)
			leave(all, parts + (first + many) * WIDE + at, flags + first + many, lane);
		do
			good = (static_cast<u32>(lane) >= many || there(flags + first + lane)) &&
				   (lane != 31 || group == 0 || there(group_flags + upto - 1));
		while (!__all_sync(0xffffffffu, good));
		__syncwarp(); /* what one lane has seen, all see */
		if (group > 0)
			before = groups[(upto - 1) * WIDE + at];
#pragma unroll
		for (u32 i = 0; i < SCAN_CHAIN - 1; i++)
			if (i < many)
				part[i] = parts[(first + i) * WIDE + at];
#pragma unroll
		for (u32 i = 0; i < SCAN_CHAIN - 1; i++)
			if (i < many)
				before.merge(part[i]);
		if (told && many + 1 == SCAN_CHAIN) {
			Value next = before;
			next.merge(all);
			leave(next, groups + upto * WIDE + at, group_flags + upto, lane);
		}
		return before;
	}

	/* One warp comes when nobody waits any more. */
	DEVICE void clear(u32 strips, int lane) const
	{
		const u32 words = strips * (count + all_groups);
#pragma unroll 4
		for (u32 i = lane; i < words; i += 32)
			flags[i] = 0;
	}
};

/*
 * A thread has V rows that lie side by side, and HELD columns of them, which lie in slots of its
 * own in shared memory; a block has LANES such vectors and SPLIT times HELD columns.  The operator
 * has one input.
 */
template <class S, int V, int HELD, int LANES, int SPLIT, bool REVERSE, typename Number,
		  typename At>
DEVICE void scan_chain_of(const ScanOperands &operands, i64 rows, Number columns,
						  const ScanSteps &steps, bool exclusive, At at, u8 *scratch)
{
	typedef typename S::Value Value;
	constexpr int wide = LANES * V, tile = HELD * SPLIT;
	static_assert(wide % 32 == 0 && V <= SPLIT, "whole warps have a row a lane");
	static_assert(!S::ahead && !scan_has<typename S::B>, "one input");
	alignas(16) __shared__ Value shared[SPLIT][wide];
	alignas(16) __shared__ Value carried[wide];
	const int thread = static_cast<int>(threadIdx.x), lane = thread % LANES, part = thread / LANES;
	const u32 strips = static_cast<u32>((rows + wide - 1) / wide);
	const u32 count = static_cast<u32>((columns + tile - 1) / tile);
	const Earlier order(scratch);
	const u32 block = order.block(), number = block / strips, strip = block % strips;
	const ScanChain<Value, wide> chain(order, strips, count);
	const i64 row_number = static_cast<i64>(strip) * wide + lane * V;
	const Number begin = static_cast<Number>(number) * tile + part * HELD;
	const bool here = row_number < rows;
	DYN_SHARED(b128, slots);
	const ScanRing<S, V, HELD, 1> held = {slots + thread, LANES * SPLIT, 0};
	Value sum[V];
	ScanPlace row;

	at(here ? row_number : 0, row);
	const auto column_of = [&](int i) { return REVERSE ? columns - 1 - begin - i : begin + i; };
#pragma unroll
	for (int i = 0; i < HELD; i++)
		if (here && begin + i < columns)
			held.fetch(0, i, operands, row, steps, static_cast<i64>(column_of(i)));
	async_wait_all();
	const auto take = [&](int i, ScanHeld<S, V> &out) {
		if (here && begin + i < columns)
			held.take(i, out);
		else
			scan_clear(out);
	};
#pragma unroll 4
	for (int i = 0; i < HELD; i++) {
		ScanHeld<S, V> one;
		take(i, one);
#pragma unroll
		for (int v = 0; v < V; v++) {
			const Value value = S::value(one, v, column_of(i), exclusive);
			if (i == 0)
				sum[v] = value;
			else
				sum[v].merge(value);
		}
	}
#pragma unroll
	for (int v = 0; v < V; v++)
		shared[part][lane * V + v] = sum[v];
	__syncthreads();
	if (thread < wide) {
		Value all = shared[0][thread];
#pragma unroll 4
		for (int i = 1; i < SPLIT; i++) {
			const Value next = shared[i][thread];
			shared[i][thread] = all;
			all.merge(next);
		}
		carried[thread] = chain.before(strip, number, thread, all, S::none());
	}
	__syncthreads();
	if (thread == 0)
		atomicAdd(order.passed, 1u); /* nothing that anybody reads was written before */
	Value before[V];
#pragma unroll
	for (int v = 0; v < V; v++) {
		before[v] = carried[lane * V + v];
		if (part > 0)
			before[v].merge(shared[part][lane * V + v]);
	}
#pragma unroll 4
	for (int i = 0; i < HELD; i++) {
		const Number column = column_of(i);
		ScanHeld<S, V> one;
		ScanOut<S, V> out;
		take(i, one);
#pragma unroll
		for (int v = 0; v < V; v++) {
			Value upto = before[v];
			upto.merge(S::value(one, v, column, exclusive));
			S::result(out, one, v, before[v], upto, exclusive);
			before[v] = upto;
		}
		scan_write(out, operands, row.out + static_cast<i64>(column) * steps.out,
				   here && begin + i < columns);
	}
	/* The last block alone waits until no flag is looked at any more. */
	if (thread < 32 && block == strips * count - 1) {
#if KILN_CPU
		__syncwarp(); /* lanes that spin keep thread 0 from its count */
#endif
		while (earlier_seen(order.passed) < strips * count)
			;
		__syncwarp();
		chain.clear(strips, thread);
		if (thread == 0)
			order.clear();
	}
}
