/*
 * map_reduce.cuh: sums, products, least and greatest of statements (map.cuh): SPLIT threads share
 * an output, or a vector of them, and join what each has in an order that the shape alone decides;
 * of long sums blocks have parts, which the last one joins.
 */
#pragma once
#include "common/last.cuh"
#include "common/map_places.cuh"
#include "common/map_values.cuh"

/* Adds up the terms of a piece that part number `part` of SPLIT has, of one output or of V. */
template <int SPLIT, class MAP>
DEVICE void map_terms(const MAP &map, const typename MAP::Place &at, u32 piece, u32 part,
					  typename MAP::Result (&sum)[MAP::vector], MapStrays &strays)
{
	typedef typename MAP::Number Number;
	constexpr int unroll = 4, v = MAP::vector;
	const Number each = (map.terms + map.pieces - 1) / map.pieces;
	const Number begin = each * piece;
	const Number end = !MAP::parts || map.terms - begin < each ? map.terms : begin + each;
	const Number rounds = (end - begin) / (SPLIT * unroll);

#pragma unroll 1
	for (Number n = 0; n < rounds; n++) {
		typename MAP::Place place[unroll];
		typename MAP::Held held[unroll];
#pragma unroll
		for (int u = 0; u < unroll; u++) {
			place[u] = at;
			map.term(begin + (n * unroll + u) * SPLIT + part, place[u]);
			map.fetch(place[u], held[u]);
		}
#pragma unroll
		for (int u = 0; u < unroll; u++) {
#pragma unroll
			for (int i = 0; i < v; i++)
				sum[i] = MAP::combine(sum[i], map.value(place[u], held[u], i, strays));
		}
	}
#pragma unroll 1
	for (Number n = begin + rounds * (SPLIT * unroll) + part; n < end; n += SPLIT) {
		typename MAP::Place place = at;
		typename MAP::Held held;
		map.term(n, place);
		map.fetch(place, held);
#pragma unroll
		for (int i = 0; i < v; i++)
			sum[i] = MAP::combine(sum[i], map.value(place, held, i, strays));
	}
}

/* Part 0 gets what all parts of its lane have, by halves. */
template <int THREADS, int SPLIT, int OUTS, class MAP>
DEVICE void map_join(u32 part, u32 lane, typename MAP::Result (&sum)[MAP::vector])
{
	constexpr int lanes = THREADS / SPLIT;
	__shared__ typename MAP::Result partial[SPLIT][lanes][OUTS];

#pragma unroll
	for (int i = 0; i < OUTS; i++)
		partial[part][lane][i] = sum[i];
	__syncthreads();
#pragma unroll 1
	for (u32 half = SPLIT / 2; half > 0; half /= 2) {
		if (part < half) {
#pragma unroll
			for (int i = 0; i < OUTS; i++) {
				sum[i] = MAP::combine(sum[i], partial[part + half][lane][i]);
				partial[part][lane][i] = sum[i];
			}
		}
		__syncthreads();
	}
}

/*
 * The sums of the pieces of a group of outputs meet in scratch memory, behind a counter for each
 * group.  True for the threads of the block that comes last: sum is all of it in part 0 then, and
 * all parts took pieces in turn.
 */
template <int THREADS, int SPLIT, int OUTS, class MAP>
DEVICE bool map_gather(const MAP &map, u8 *scratch, typename MAP::Number groups,
					   typename MAP::Number group, u32 piece, u32 part, u32 lane,
					   typename MAP::Result (&sum)[MAP::vector])
{
	typedef typename MAP::Result Result;
	constexpr int lanes = THREADS / SPLIT, once = OUTS > 1 ? 2 : 8; /* loads under way */
	const u64 counters = (static_cast<u64>(groups) * 4 + 255) / 256 * 256;
	Result *const own = reinterpret_cast<Result *>(scratch + counters) +
						(static_cast<u64>(group) * map.pieces * lanes + lane) * OUTS;
	bool last = false;

	if (part == 0) {
#pragma unroll
		for (int i = 0; i < OUTS; i++)
			own[static_cast<u64>(piece) * lanes * OUTS + i] = sum[i];
	}
	__syncthreads();
	if (threadIdx.x == 0)
		last = last_of(reinterpret_cast<u32 *>(scratch) + group, map.pieces);
	if (!__syncthreads_or(last))
		return false;
#pragma unroll
	for (int i = 0; i < OUTS; i++)
		sum[i] = MAP::identity();
#pragma unroll 1
	for (u32 p = part; p < map.pieces; p += once * SPLIT) {
		Result some[once][OUTS];
#pragma unroll
		for (u32 u = 0; u < once; u++) {
			const u32 piece = p + u * SPLIT;
#pragma unroll
			for (int i = 0; i < OUTS; i++)
				some[u][i] = piece < map.pieces ? own[static_cast<u64>(piece) * lanes * OUTS + i]
												: MAP::identity();
		}
#pragma unroll
		for (u32 u = 0; u < once; u++) {
#pragma unroll
			for (int i = 0; i < OUTS; i++)
				sum[i] = MAP::combine(sum[i], some[u][i]);
		}
	}
	if constexpr (SPLIT > 1)
		map_join<THREADS, SPLIT, OUTS, MAP>(part, lane, sum);
	return true;
}

template <int THREADS, int SPLIT, bool LOOP, class MAP>
DEVICE void map_reduce(const MAP &map, u64 elements, void *scratch, u64 *report)
{
	typedef typename MAP::Number Number;
	typedef typename MAP::Element Element;
	constexpr int v = MAP::vector, outs = MAP::rows ? 1 : v, lanes = THREADS / SPLIT;
	const Number outputs = static_cast<Number>(elements / outs);
	const u32 part = map_part<THREADS, SPLIT, MAP>(), lane = map_lane<THREADS, SPLIT, MAP>();
	const Number groups = (outputs + lanes - 1) / lanes;
	Number unit = static_cast<Number>(blockIdx.x);
	MapStrays strays;

	do {
		const Number group = MAP::parts ? unit / map.pieces : unit, n = group * lanes + lane;
		const u32 piece = static_cast<u32>(unit - group * map.pieces);
		bool stores = true;
		typename MAP::Place at;
		typename MAP::Result sum[v];
		MapStrays mine;
#pragma unroll
		for (int i = 0; i < v; i++)
			sum[i] = MAP::identity();
		map.place(n < outputs ? n : outputs - 1, at);
		map_terms<SPLIT>(map, at, piece, part, sum, mine);
		if (MAP::reports && n < outputs)
			strays.add(mine);
		if constexpr (MAP::rows) {
#pragma unroll
			for (int i = 1; i < v; i++)
				sum[0] = MAP::combine(sum[0], sum[i]);
		}
		if constexpr (SPLIT > 1)
			map_join<THREADS, SPLIT, outs, MAP>(part, lane, sum);
		if constexpr (MAP::parts)
			stores = map_gather<THREADS, SPLIT, outs>(map, static_cast<u8 *>(scratch), groups,
													  group, piece, part, lane, sum);
		if (stores && part == 0 && n < outputs) {
			u32 out[vec_words<outs *static_cast<int>(sizeof(Element))>];
			typename MAP::Last last;
			map.fetch(at, last);
			map_pack<Element, outs>(out,
									[&](int i) { return map.finish(at, last, i, sum[i], strays); });
			map_store<outs, MAP::store>(map.output() + static_cast<u64>(n) * outs, out);
		}
		unit += static_cast<Number>(gridDim.x);
	} while (LOOP && unit < groups * map.pieces);
	map_report<MAP>(strays, report);
}
