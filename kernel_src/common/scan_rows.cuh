/*
 * scan_rows.cuh: scans (scan.cuh) of rows whose elements lie side by side.
 */
#pragma once
#include "common/scan_held.cuh"

/* Reads a vector of a row that begins at scan position `position`: the elements before position 0,
 * in the first vector alone, lie beyond the row's end, or before its beginning, and are cleared. */
template <class S, bool SKEW, bool REVERSE, int V, typename Number>
DEVICE void scan_read_row(ScanHeld<S, V> &held, const ScanOperands &from, const ScanPlace &row,
						  const ScanSteps &steps, Number columns, Number position, bool first,
						  bool exclusive)
{
	typedef typename S::B B;
	const Number at = REVERSE ? columns - V - position : position;

	scan_read(held, from, row, steps, static_cast<i64>(at));
	if constexpr (S::ahead) {
		if (!exclusive) {
			/* Moves on by one element; that of the next vector comes alone. */
			u32 next[scan_words<B, 1>] = {};
			const Number behind = position + V;
			const i64 place = static_cast<i64>(REVERSE ? columns - 1 - behind : behind);
			if (behind < columns)
				scan_load<B, 1>(
					static_cast<const B *>(from.in[1]) + row.in[1] + place * steps.in[1], next);
#pragma unroll
			for (int i = 0; i < V; i++) {
				const int v = REVERSE ? V - 1 - i : i, other = REVERSE ? v - 1 : v + 1;
				if (position + i + 1 == columns)
					scan_set<B>(held.b, v, typename S::Result(1));
				else
					scan_set_bits<B>(held.b, v,
									 i + 1 < V
										 ? vec_element<sizeof(B)>(held.b, i + 1 < V ? other : v)
										 : vec_element<sizeof(B)>(next, 0));
			}
		}
	}
	if constexpr (SKEW) {
		if (first && position < 0) {
#pragma unroll
			for (int i = 0; i < V - 1; i++)
				if (position + i < 0)
					S::clear(held, REVERSE ? V - 1 - i : i);
		}
	}
}

/* The number of an element; -1: it is before the scan's first. */
template <bool SKEW, bool REVERSE, typename Number>
DEVICE i64 scan_index(Number columns, Number position)
{
	return SKEW && position < 0 ? -1 : REVERSE ? columns - 1 - position : position;
}

/* Writes the elements of a vector that are inside the row; the vectors of all lanes, as above. */
template <class S, bool SKEW, bool REVERSE, int V, typename Number>
DEVICE void scan_write_row(const ScanOut<S, V> &out, const ScanOperands &to, i64 begin,
						   Number columns, Number position, bool first, bool here)
{
	const i64 at = begin + static_cast<i64>(REVERSE ? columns - V - position : position);
	const bool whole = !SKEW || (!(first && position < 0) && position + V <= columns);

	if constexpr (scan_has<typename S::Z>)
		scan_write(out, to, at, here && whole);
	else if (here && whole)
		scan_store(static_cast<typename S::Y *>(to.y) + at, out.y);
	if (whole || !here)
		return;
#pragma unroll
	for (int v = 0; v < V; v++) {
		const Number place = position + (REVERSE ? V - 1 - v : v);
		if ((first && place < 0) || place >= columns)
			continue;
		const typename S::Result y[1] = {out.y[v]};
		scan_store(static_cast<typename S::Y *>(to.y) + at + v, y);
		if constexpr (scan_has<typename S::Z>) {
			const i64 z[1] = {out.z[v]};
			if (to.z)
				scan_store(static_cast<typename S::Z *>(to.z) + at + v, z);
		}
	}
}

/*
 * A block has `side` rows, of `size` threads each: one row if BLOCK is set, and otherwise a row for
 * each part of WIDTH threads.  at(number, place) says where a row begins.  SKEW: rows begin
 * between two vectors, equally far beyond one in all operands.  EARLY: the next step is read before
 * this one is computed.
 */
template <class S, int V, int HELD, int WIDTH, bool BLOCK, bool SKEW, bool REVERSE, bool EARLY,
		  typename Number, typename At>
DEVICE void scan_rows_of(const ScanOperands &operands, i64 rows, Number columns,
						 const ScanSteps &steps, int size, int side, bool exclusive, At at)
{
	typedef typename S::Value Value;
	static_assert(!BLOCK || WIDTH == 32, "whole warps share a row");
	/* More results than these would take the registers of other threads. */
	constexpr bool chunks = S::chunks && V * HELD <= 16;
	__shared__ Value shared[2][32]; /* in turn, so that one barrier a step will do */
	const int thread = static_cast<int>(threadIdx.x) % size, lane = thread % WIDTH;
	const int warp = thread / WIDTH, warps = size / WIDTH;
	int turn = 0;

	for (i64 first = static_cast<i64>(blockIdx.x) * side; first < rows;
		 first += static_cast<i64>(gridDim.x) * side) {
		const i64 number = first + static_cast<i64>(threadIdx.x) / size;
		const bool here = number < rows;
		ScanPlace row;
		Value carry = S::none();
		int lead = 0;

		at(here ? number : 0, row);
		if constexpr (SKEW) {
			constexpr int bytes = static_cast<int>(sizeof(typename S::Y));
			const typename S::Y *const y = static_cast<typename S::Y *>(operands.y) + row.out;
			lead = vec_beyond<V * bytes>(REVERSE ? y + columns : y) / bytes;
			lead = REVERSE ? (V - lead) % V : lead;
		}
		const Number stride = static_cast<Number>(HELD * V) * size;
		const auto read = [&](Number step, ScanHeld<S, V>(&into)[HELD]) {
#pragma unroll
			for (int h = 0; h < HELD; h++) {
				const Number position = step + (warp * HELD * WIDTH + lane) * V + h * WIDTH * V;
				if (here && position < columns)
					scan_read_row<S, SKEW, REVERSE>(into[h], operands, row, steps, columns,
													position, h == 0, exclusive);
				else
					scan_clear(into[h]);
			}
		};
		ScanHeld<S, V> next[EARLY ? HELD : 1];
		if constexpr (EARLY)
			read(static_cast<Number>(-lead), next);
#pragma unroll 1
		for (Number step = -lead; step < columns; step += stride) {
			ScanHeld<S, V> held[HELD];
			Value upto[HELD];
			const Number begin = step + (warp * HELD * WIDTH + lane) * V;
			if constexpr (EARLY) {
#pragma unroll
				for (int h = 0; h < HELD; h++)
					held[h] = next[h];
				if (step + stride < columns)
					read(step + stride, next);
			} else {
				read(step, held);
			}
			ScanChunk<S, HELD, V, chunks> made;
			bool whole = false; /* it is a chunk */
			if constexpr (chunks) {
				typename S::Result x[HELD][V];
#pragma unroll
				for (int h = 0; h < HELD; h++)
#pragma unroll
					for (int i = 0; i < V; i++)
						x[h][i] = scan_get<typename S::A, typename S::Result>(
							held[h].a, REVERSE ? V - 1 - i : i);
				whole = S::template chunk<WIDTH>(x, lane, made.chunk, upto);
			}
			if (!whole) {
#pragma unroll
				for (int h = 0; h < HELD; h++) {
#pragma unroll
					for (int i = 0; i < V; i++) {
						const int v = REVERSE ? V - 1 - i : i;
						const i64 index = scan_index<SKEW, REVERSE>(
							columns, static_cast<Number>(begin + h * WIDTH * V + i));
						const Value value = S::value(held[h], v, index, exclusive);
						if (i == 0)
							upto[h] = value;
						else
							upto[h].merge(value);
					}
					upto[h] = scan_lanes<WIDTH>(upto[h], lane);
				}
			}
			Value before = carry;
			if constexpr (BLOCK) {
				Value all = upto[0];
				if constexpr (chunks)
					all = whole ? made.chunk.all() : all;
				if (!whole) {
#pragma unroll
					for (int h = 1; h < HELD; h++)
						all.merge(upto[h]);
				}
				if (lane == 31)
					shared[turn][warp] = all;
				__syncthreads();
				all = scan_lanes<32>(shared[turn][lane < warps ? lane : warps - 1], lane, warps);
				turn ^= 1;
				const Value warps_before = scan_from<32>(all, warp > 0 ? warp - 1 : 0);
				if (warp > 0)
					before.merge(warps_before);
				carry.merge(scan_from<32>(all, warps - 1));
			}
			bool merges = true;
			if constexpr (chunks) {
				const bool finite = before.most < reduce_infinity(typename S::Result());
				if (whole && (BLOCK || __all_sync(0xffffffffu, finite)) && finite) {
					ScanOut<S, V> out[HELD];
					S::spread(made.chunk, before, exclusive,
							  [&](int h, int i, typename S::Result y) {
								  out[h].y[REVERSE ? V - 1 - i : i] = y;
							  });
#pragma unroll
					for (int h = 0; h < HELD; h++) {
						const Number position = begin + h * WIDTH * V;
						scan_write_row<S, SKEW, REVERSE>(out[h], operands, row.out, columns,
														 position, h == 0,
														 here && position < columns);
					}
					before.merge(made.chunk.all());
					merges = false;
				}
			}
			if (merges) {
#pragma unroll
				for (int h = 0; h < HELD; h++) {
					const Number position = begin + h * WIDTH * V;
					const Value lanes_before = scan_from_before<WIDTH>(upto[h], 1);
					const Value lanes_all = scan_from<WIDTH>(upto[h], WIDTH - 1);
					ScanOut<S, V> out;
					Value last = before;
					if (lane > 0)
						last.merge(lanes_before);
#pragma unroll
					for (int i = 0; i < V; i++) {
						const int v = REVERSE ? V - 1 - i : i;
						Value next = last;
						next.merge(S::value(
							held[h], v,
							scan_index<SKEW, REVERSE>(columns, static_cast<Number>(position + i)),
							exclusive));
						S::result(out, held[h], v, last, next, exclusive);
						last = next;
					}
					scan_write_row<S, SKEW, REVERSE>(out, operands, row.out, columns, position,
													 h == 0, here && position < columns);
					before.merge(lanes_all);
				}
			}
			if constexpr (!BLOCK)
				carry = before;
		}
	}
}
