/*
 * scan_columns.cuh: scans (scan.cuh) of rows that lie side by side.
 */
#pragma once
#include "common/async.cuh"
#include "common/scan_held.cuh"

/* A step's vectors of a thread on their way, in places of its own: nobody waits for others. */
template <class S, int V, int HELD, int STAGES>
struct ScanRing {
	static constexpr int inputs = 1 + scan_has<typename S::B> + scan_has<typename S::C>;
	static constexpr int stages = STAGES;
	b128 *slots;
	int threads, stage;

	DEVICE b128 *slot(int at, int i, int input) const
	{
		return slots + ((at * HELD + i) * inputs + input) * threads;
	}
	/* Begins to read vector i of the step that is `ahead` steps further on. */
	DEVICE void fetch(int ahead, int i, const ScanOperands &from, const ScanPlace &row,
					  const ScanSteps &steps, i64 at) const
	{
		typedef typename S::A A;
		const int to = stage + ahead < STAGES ? stage + ahead : stage + ahead - STAGES;
#pragma unroll
		for (int k = 0; k < inputs; k++)
			async_copy16(slot(to, i, k),
						 static_cast<const A *>(from.in[k]) + row.in[k] + at * steps.in[k]);
	}
	DEVICE void take(int i, ScanHeld<S, V> &held) const
	{
		vec_load<16>(slot(stage, i, 0), held.a);
		if constexpr (inputs > 1)
			vec_load<16>(slot(stage, i, 1), held.b);
		if constexpr (inputs > 2)
			vec_load<16>(slot(stage, i, 2), held.c);
	}
	DEVICE void next()
	{
		stage = stage + 1 < STAGES ? stage + 1 : 0;
	}
};

/*
 * A thread has V rows that lie side by side, and HELD columns of them at a time; SPLIT: `split` at
 * most, and whole warps.  The parts of a step that are in one warp meet there, then warps do.
 * EARLY: 0, or 1 where the next step's columns are read before this one's are worked on, or as many
 * steps as have room in shared memory.
 */
template <class S, int V, int HELD, int LANES, int SPLIT, bool REVERSE, int EARLY, typename Number,
		  typename At>
DEVICE void scan_columns_of(const ScanOperands &operands, i64 rows, Number columns,
							const ScanSteps &steps, int split, bool exclusive, At at)
{
	typedef typename S::Value Value;
	typedef typename S::B B;
	/* Parts of a warp, and warps, or parts that are wider, at most. */
	constexpr int inside = LANES < 32 ? 32 / LANES : 1, teams = (SPLIT + inside - 1) / inside;
	/* In turn, so that one barrier a step will do. */
	alignas(16) __shared__ Value shared[2][teams][LANES][V];
	const int lane = static_cast<int>(threadIdx.x) % LANES;
	const int part = static_cast<int>(threadIdx.x) / LANES;
	const int team = part / inside, place = part % inside, count = (split + inside - 1) / inside;
	const Number stride = static_cast<Number>(split) * HELD;
	int turn = 0;
	DYN_SHARED(b128, slots);
	ScanRing<S, V, HELD, (EARLY > 1 ? EARLY : 1)> ring = {slots + threadIdx.x, LANES * split, 0};
	static_assert(EARLY < 2 || (!S::ahead && V * sizeof(typename S::A) == 16), "whole vectors");

	for (i64 first = static_cast<i64>(blockIdx.x) * (LANES * V); first < rows;
		 first += static_cast<i64>(gridDim.x) * (LANES * V)) {
		const i64 number = first + lane * V;
		const bool here = number < rows;
		Value carry[V];
		ScanPlace row;

#pragma unroll
		for (int v = 0; v < V; v++)
			carry[v] = S::none();
		at(here ? number : 0, row);
		const auto read = [&](Number begin, ScanHeld<S, V>(&into)[HELD]) {
#pragma unroll
			for (int i = 0; i < HELD; i++) {
				const Number column = REVERSE ? columns - 1 - begin - i : begin + i;
				if (here && begin + i < columns) {
					ScanPlace from = row;
					const bool moves = S::ahead && !exclusive, last = begin + i + 1 == columns;
					if (moves && !last)
						from.in[1] += REVERSE ? -steps.in[1] : steps.in[1];
					scan_read(into[i], operands, from, steps, static_cast<i64>(column));
					if constexpr (S::ahead) {
						if (moves && last)
#pragma unroll
							for (int v = 0; v < V; v++)
								scan_set<B>(into[i].b, v, typename S::Result(1));
					}
				} else {
					scan_clear(into[i]);
				}
			}
		};
		ScanHeld<S, V> next[EARLY == 1 ? HELD : 1];
		if constexpr (EARLY == 1)
			read(static_cast<Number>(part * HELD), next);
		const auto fetch = [&](Number begin, int ahead) {
#pragma unroll
			for (int i = 0; i < HELD; i++) {
				const Number column = REVERSE ? columns - 1 - begin - i : begin + i;
				if (here && begin + i < columns)
					ring.fetch(ahead, i, operands, row, steps, static_cast<i64>(column));
			}
			async_batch();
		};
		if constexpr (EARLY > 1)
#pragma unroll
			for (int ahead = 0; ahead < EARLY - 1; ahead++)
				fetch(static_cast<Number>(part * HELD) + ahead * stride, ahead);
#pragma unroll 1
		for (Number step = 0; step < columns; step += stride) {
			const Number begin = step + part * HELD;
			ScanHeld<S, V> held[HELD];
			Value before[V];
			if constexpr (EARLY > 1) {
				fetch(begin + (EARLY - 1) * stride, EARLY - 1);
				async_wait_but<EARLY - 1>();
#pragma unroll
				for (int i = 0; i < HELD; i++)
					if (here && begin + i < columns)
						ring.take(i, held[i]);
					else
						scan_clear(held[i]);
				ring.next();
			} else if constexpr (EARLY == 1) {
#pragma unroll
				for (int i = 0; i < HELD; i++)
					held[i] = next[i];
				if (step + stride < columns)
					read(begin + stride, next);
			} else {
				read(begin, held);
			}
#pragma unroll
			for (int v = 0; v < V; v++)
				before[v] = carry[v];
			if constexpr (SPLIT > 1) {
#pragma unroll
				for (int v = 0; v < V; v++) {
					Value all =
						S::value(held[0], v, REVERSE ? columns - 1 - begin : begin, exclusive);
#pragma unroll
					for (int i = 1; i < HELD; i++)
						all.merge(S::value(
							held[i], v, REVERSE ? columns - 1 - begin - i : begin + i, exclusive));
#pragma unroll
					for (int far = 1; far < inside; far *= 2) {
						Value upto = scan_from_before<32>(all, far * LANES);
						upto.merge(all);
						if (place >= far)
							all = upto;
					}
					if (place == inside - 1)
						shared[turn][team][lane][v] = all;
					/* The sum of the parts before this one, in its warp. */
					if constexpr (inside > 1)
						before[v] = scan_from_before<32>(all, LANES);
				}
				__syncthreads();
				Value warps[V];
#pragma unroll 2
				for (int other = 0; other < count; other++) {
#pragma unroll
					for (int v = 0; v < V; v++) {
						if (other == team)
							warps[v] = carry[v];
						carry[v].merge(shared[turn][other][lane][v]);
					}
				}
#pragma unroll
				for (int v = 0; v < V; v++) {
					if (inside > 1 && place > 0)
						warps[v].merge(before[v]);
					before[v] = warps[v];
				}
				turn ^= 1;
			}
			/* Where a thread has its rows alone, `before` goes on to the next step. */
#pragma unroll
			for (int i = 0; i < HELD; i++) {
				const Number column = REVERSE ? columns - 1 - begin - i : begin + i;
				ScanOut<S, V> out;
#pragma unroll
				for (int v = 0; v < V; v++) {
					Value upto = before[v];
					upto.merge(S::value(held[i], v, column, exclusive));
					S::result(out, held[i], v, before[v], upto, exclusive);
					before[v] = upto;
				}
				scan_write(out, operands, row.out + static_cast<i64>(column) * steps.out,
						   here && begin + i < columns);
			}
			if constexpr (SPLIT == 1) {
#pragma unroll
				for (int v = 0; v < V; v++)
					carry[v] = before[v];
			}
		}
	}
}
