/*
 * map.cuh: what generated statements are made with besides their values (common/map_values.cuh):
 * subscripts, and the three ways of going through a statement.
 *
 *   map_elements  each thread makes UNROLL vectors of the output, with all their loads in flight
 *   map_reduce    SPLIT threads share an output, or a vector of them, and join what each has in an
 *                 order that the shape alone decides; of long sums blocks have parts, which the
 *                 last one joins
 *   map_rows      SPLIT threads share a row: they work out its reductions, one after the other, and
 *                 then its elements
 *
 * MAP is the generated structure: place() and term() turn numbers into places, fetch() loads what
 * lies side by side, value() is the right side for element v of a vector.
 */
#pragma once
#include "common/divide.cuh"
#include "common/group.cuh"
#include "common/index.cuh"
#include "common/indices.cuh"
#include "common/last.cuh"
#include "common/map_values.cuh"

/* ---- Subscripts ---- */

template <i64 SIZE, typename T>
DEVICE bool map_within(T at)
{
	if constexpr (sizeof(T) == 4 && SIZE <= 0x7fffffff)
		return static_cast<u32>(at) < static_cast<u32>(SIZE);
	else
		return (static_cast<T>(-1) > static_cast<T>(1) || at >= 0) &&
			   static_cast<u64>(at) < static_cast<u64>(SIZE);
}
/* Known to be within. */
template <i64 SIZE, typename Offset, typename T>
DEVICE Offset map_trusted(T at)
{
	return static_cast<Offset>(at);
}
/* The nearest that is within. */
template <i64 SIZE, typename Offset, typename T>
DEVICE Offset map_clamped(T at)
{
	const bool below = static_cast<T>(-1) < static_cast<T>(1) && at < static_cast<T>(1);
	return map_within<SIZE>(at) ? static_cast<Offset>(at)
								: static_cast<Offset>(below ? 0 : SIZE - 1);
}
/* The first element, where what is read is not used. */
template <i64 SIZE, typename Offset, typename T>
DEVICE Offset map_masked(T at)
{
	return map_within<SIZE>(at) ? static_cast<Offset>(at) : static_cast<Offset>(0);
}

/* Does so for sizes that are known when the kernel is launched. */
template <typename T>
DEVICE bool map_within_of(T at, i64 size)
{
	return (static_cast<T>(-1) > static_cast<T>(1) || at >= 0) &&
		   static_cast<u64>(at) < static_cast<u64>(size);
}
template <typename Offset, typename T>
DEVICE Offset map_trusted_of(T at, i64)
{
	return static_cast<Offset>(at);
}
template <typename Offset, typename T>
DEVICE Offset map_clamped_of(T at, i64 size)
{
	const bool below = static_cast<T>(-1) < static_cast<T>(1) && at < static_cast<T>(1);
	return map_within_of(at, size) ? static_cast<Offset>(at)
								   : static_cast<Offset>(below ? 0 : size - 1);
}
template <typename Offset, typename T>
DEVICE Offset map_masked_of(T at, i64 size)
{
	return map_within_of(at, size) ? static_cast<Offset>(at) : static_cast<Offset>(0);
}

/* Subscripts that were out of range: how many, and of those that are numbered the first, as what is
 * left to the largest number of 64 bits. */
struct MapStrays {
	u64 first = 0;
	u32 count = 0;

	DEVICE void note(bool within, u64 position, u32 subscript)
	{
		const u64 code = ~(position << 8 | subscript);
		if (!within && code > first)
			first = code;
	}
	DEVICE void add(const MapStrays &other)
	{
		first = other.first > first ? other.first : first;
		count += other.count;
	}
};

template <class MAP>
DEVICE void map_report(const MapStrays &strays, u64 *report)
{
	/* Sizes that are arguments may allow no stray. */
	if (MAP::reports && MAP::sized && !report)
		return;
	if constexpr (MAP::reports && !MAP::first) {
		indices_report(report, strays.count);
	} else if constexpr (MAP::reports) {
		u64 seen = strays.first ? *static_cast<volatile u64 *>(report) : 0;
		while (seen < strays.first) {
			const u64 before = atomicCAS(report, seen, strays.first);
			if (before == seen)
				break;
			seen = before;
		}
	}
}

/* ---- Element by element ---- */

template <int THREADS, int UNROLL, bool LOOP, class MAP, class ONE>
DEVICE void map_elements(const MAP &map, const ONE &one, u64 elements, u64 *report)
{
	typedef typename MAP::Number Number;
	typedef typename MAP::Element Element;
	constexpr int v = MAP::vector, words = vec_words<v *static_cast<int>(sizeof(Element))>;
	const Number vectors = static_cast<Number>(elements / v);
	Number first = static_cast<Number>(blockIdx.x) * (THREADS * UNROLL) + threadIdx.x;
	MapStrays strays;

	if (vectors > 0)
		do {
			typename MAP::Place at[UNROLL];
			typename MAP::Held held[UNROLL];
			u32 out[UNROLL][words];
			/* A thread beyond the end does the last element again, and does not store it. */
#pragma unroll
			for (int u = 0; u < UNROLL; u++) {
				const Number n = first + u * THREADS;
				map.place(n < vectors ? n : vectors - 1, at[u]);
				map.fetch(at[u], held[u]);
			}
#pragma unroll
			for (int u = 0; u < UNROLL; u++) {
				MapStrays mine;
				map_pack<Element, v>(out[u],
									 [&](int i) { return map.value(at[u], held[u], i, mine); });
				if (MAP::reports && first + u * THREADS < vectors)
					strays.add(mine);
			}
#pragma unroll
			for (int u = 0; u < UNROLL; u++) {
				const Number n = first + u * THREADS;
				if (n < vectors)
					map_store<v, MAP::store>(map.output() + static_cast<u64>(n) * v, out[u]);
			}
			first += static_cast<Number>(gridDim.x) * (THREADS * UNROLL);
		} while (LOOP && first < vectors);
	if constexpr (v > 1 && MAP::rest) {
		/* Takes the rest, which is less than a vector. */
		const u64 rest = static_cast<u64>(vectors) * v + threadIdx.x;
		if (blockIdx.x == 0 && threadIdx.x < v && rest < elements) {
			typename ONE::Place at;
			typename ONE::Held held;
			u32 out[vec_words<static_cast<int>(sizeof(Element))>];
			one.place(static_cast<Number>(rest), at);
			one.fetch(at, held);
			map_pack<Element, 1>(out, [&](int i) { return one.value(at, held, i, strays); });
			map_store<1, ONE::store>(one.output() + rest, out);
		}
	}
	map_report<MAP>(strays, report);
}

/* ---- Sums, products, least and greatest ---- */

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
	const u32 part = MAP::rows ? threadIdx.x % SPLIT : threadIdx.x / lanes;
	const u32 lane = MAP::rows ? threadIdx.x / SPLIT : threadIdx.x % lanes;
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

/* ---- Rows: reductions, and then the elements that need them ---- */

/* Words that a thread holds of a row at most. */
constexpr int map_most_words = 64;

template <typename T>
DEVICE T map_from_lane(T mine, u32 far)
{
	if constexpr (map_is<T, bool>)
		return group_from(static_cast<u32>(mine), static_cast<int>(far)) != 0;
	else
		return group_from(mine, static_cast<int>(far));
}

/* Each thread of a row gets what all its threads have, in an order that SPLIT alone decides. */
template <int THREADS, int SPLIT, bool ROWS, class STAGE, int OUTS>
DEVICE void map_agree(u32 part, u32 lane, u64 *shared, typename STAGE::Result (&sum)[OUTS])
{
	typedef typename STAGE::Result Result;
	constexpr int lanes = THREADS / SPLIT, width = SPLIT < 32 ? SPLIT : 32;
	Result *const partial = reinterpret_cast<Result *>(shared);

	if constexpr (ROWS) {
#pragma unroll
		for (u32 far = width / 2; far > 0; far /= 2) {
			const Result other = map_from_lane(sum[0], far);
			/* Both lanes have the same on the same side. */
			sum[0] =
				threadIdx.x & far ? STAGE::combine(other, sum[0]) : STAGE::combine(sum[0], other);
		}
		if constexpr (SPLIT > 32) {
			const u32 first = threadIdx.x / SPLIT * (SPLIT / 32);
			__syncthreads();
			if (threadIdx.x % 32 == 0)
				partial[threadIdx.x / 32] = sum[0];
			__syncthreads();
			sum[0] = partial[first];
#pragma unroll
			for (u32 w = 1; w < SPLIT / 32; w++)
				sum[0] = STAGE::combine(sum[0], partial[first + w]);
		}
	} else if constexpr (SPLIT > 1) {
		__syncthreads();
#pragma unroll
		for (int i = 0; i < OUTS; i++)
			partial[(part * OUTS + i) * lanes + lane] = sum[i];
		__syncthreads();
#pragma unroll 1
		for (u32 half = SPLIT / 2; half > 0; half /= 2) {
			if (part < half) {
#pragma unroll
				for (int i = 0; i < OUTS; i++) {
					sum[i] =
						STAGE::combine(sum[i], partial[((part + half) * OUTS + i) * lanes + lane]);
					partial[(part * OUTS + i) * lanes + lane] = sum[i];
				}
			}
			__syncthreads();
		}
#pragma unroll
		for (int i = 0; i < OUTS; i++)
			sum[i] = partial[i * lanes + lane];
	}
}

/* Adds what a vector of a stage comes to. */
template <class STAGE, class MAP>
DEVICE void map_add_step(const MAP &map, const typename MAP::Place &place,
						 const typename STAGE::Held &held,
						 typename STAGE::Result (&sum)[STAGE::vector], MapStrays &strays)
{
#pragma unroll
	for (int i = 0; i < STAGE::vector; i++)
		sum[i] = STAGE::combine(sum[i], map.value(place, held, i, strays, STAGE()));
}

/* Stores what a vector of the sweep comes to. */
template <class SWEEP, class MAP>
DEVICE void map_put_step(const MAP &map, const typename MAP::Place &place,
						 const typename SWEEP::Held &held, bool stores, MapStrays &strays)
{
	typedef typename MAP::Element Element;
	constexpr int v = SWEEP::vector, es = sizeof(Element);
	constexpr int each = MAP::apart == 1 ? v : 1;
	Element *const to = map.output() + map.target(place);

#pragma unroll
	for (int n = 0; n < v; n += each) {
		u32 out[vec_words<each * es>];
		map_pack<Element, each>(
			out, [&](int i) { return map.value(place, held, n + i, strays, SWEEP()); });
		if (stores)
			map_store<each, MAP::store>(to + n * MAP::apart, out);
	}
}

/* Goes over what a part of a row has in memory; each(place, held) takes a vector of it. */
template <int SPLIT, class STAGE, class MAP, class EACH>
DEVICE void map_each_read(const MAP &map, const typename MAP::Place &at, u32 part, EACH each)
{
	typedef typename MAP::Number Number;
	constexpr int unroll = 4;
	const Number end = map.terms(STAGE()), rounds = end / (SPLIT * unroll);

#pragma unroll 1
	for (Number n = 0; n < rounds; n++) {
		typename MAP::Place place[unroll];
		typename STAGE::Held held[unroll];
#pragma unroll
		for (int u = 0; u < unroll; u++) {
			place[u] = at;
			map.step((n * unroll + u) * SPLIT + part, place[u], STAGE());
			map.fetch(place[u], held[u]);
		}
#pragma unroll
		for (int u = 0; u < unroll; u++)
			each(place[u], held[u]);
	}
#pragma unroll 1
	for (Number n = rounds * (SPLIT * unroll) + part; n < end; n += SPLIT) {
		typename MAP::Place place = at;
		typename STAGE::Held held;
		map.step(n, place, STAGE());
		map.fetch(place, held);
		each(place, held);
	}
}

/* Does so of what the thread holds in registers. */
template <int SPLIT, class STAGE, class MAP, int STEPS, class EACH>
DEVICE void map_each_held(const MAP &map, const typename MAP::Place &at, u32 part,
						  typename STAGE::Held (&held)[STEPS], EACH each)
{
#pragma unroll
	for (int u = 0; u < STEPS; u++) {
		const u32 n = u * SPLIT + part;
		if (STAGE::count % SPLIT == 0 || n < STAGE::count) {
			typename MAP::Place place = at;
			map.step(n, place, STAGE());
			each(place, held[u]);
		}
	}
}

/* One of the row's reductions.  walk(stage, each) calls each for what this thread has. */
template <int THREADS, int SPLIT, class STAGE, class MAP, class WALK>
DEVICE void map_stage(const MAP &map, typename MAP::Place &at, u32 part, u32 lane, u64 *shared,
					  MapStrays &strays, WALK walk)
{
	typedef typename STAGE::Result Result;
	constexpr int outs = MAP::rows ? 1 : MAP::vector;
	Result sum[STAGE::vector], all[outs];

#pragma unroll
	for (int i = 0; i < STAGE::vector; i++)
		sum[i] = STAGE::identity();
	walk(STAGE(), [&](const typename MAP::Place &place, const typename STAGE::Held &held) {
		map_add_step<STAGE>(map, place, held, sum, strays);
	});
#pragma unroll
	for (int i = 0; i < outs; i++)
		all[i] = sum[i];
	if constexpr (MAP::rows) {
#pragma unroll
		for (int i = 1; i < STAGE::vector; i++)
			all[0] = STAGE::combine(all[0], sum[i]);
	}
	map_agree<THREADS, SPLIT, MAP::rows, STAGE>(part, lane, shared, all);
	map.keep(at, all, STAGE());
}

/*
 * SPLIT threads share a row, or a vector of rows that lie side by side.  They go over it once for
 * each stage, and then once for its elements; what they read is held in registers in between if
 * that is not much.
 */
template <int THREADS, int SPLIT, bool LOOP, class SWEEP, class... STAGES, class MAP>
DEVICE void map_rows(const MAP &map, u64 rows, u64 *report)
{
	typedef typename MAP::Number Number;
	constexpr int outs = MAP::rows ? 1 : MAP::vector, lanes = THREADS / SPLIT;
	constexpr int steps = static_cast<int>((SWEEP::count + SPLIT - 1) / SPLIT);
	constexpr bool holds = MAP::holds && steps <= map_most_words / MAP::words;
	constexpr bool wide = ((sizeof(typename STAGES::Result) > 4) || ...);
	constexpr int results = MAP::rows ? (THREADS + 31) / 32 : THREADS * outs;
	__shared__ u64 shared[wide ? results : (results + 1) / 2];
	const Number units = static_cast<Number>(rows / outs);
	const u32 part = MAP::rows ? threadIdx.x % SPLIT : threadIdx.x / lanes;
	const u32 lane = MAP::rows ? threadIdx.x / SPLIT : threadIdx.x % lanes;
	const Number groups = (units + lanes - 1) / lanes;
	Number group = static_cast<Number>(blockIdx.x);
	MapStrays strays;

	do {
		const Number n = group * lanes + lane;
		typename MAP::Place at = {};
		MapStrays mine;
		const auto put = [&](const typename MAP::Place &place, const typename SWEEP::Held &held) {
			map_put_step<SWEEP>(map, place, held, n < units, mine);
		};
		map.place(n < units ? n : units - 1, at);
		map.own(at);
		if constexpr (holds) {
			typename SWEEP::Held held[steps];
			map_each_held<SPLIT, SWEEP>(
				map, at, part, held,
				[&](const typename MAP::Place &place, typename SWEEP::Held &to) {
					map.fetch(place, to);
				});
			const auto walk = [&](auto stage, auto each) {
				map_each_held<SPLIT, decltype(stage)>(map, at, part, held, each);
			};
			(map_stage<THREADS, SPLIT, STAGES>(map, at, part, lane, shared, mine, walk), ...);
			map_each_held<SPLIT, SWEEP>(map, at, part, held, put);
		} else {
			const auto walk = [&](auto stage, auto each) {
				map_each_read<SPLIT, decltype(stage)>(map, at, part, each);
			};
			(map_stage<THREADS, SPLIT, STAGES>(map, at, part, lane, shared, mine, walk), ...);
			map_each_read<SPLIT, SWEEP>(map, at, part, put);
		}
		if (MAP::reports && n < units)
			strays.add(mine);
		group += static_cast<Number>(gridDim.x);
	} while (LOOP && group < groups);
	map_report<MAP>(strays, report);
}
