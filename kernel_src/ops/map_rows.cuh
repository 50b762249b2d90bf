/*
 * map_rows.cuh: statements (map.cuh) whose elements need reductions of their row: SPLIT threads
 * share a row, work out its reductions, one after the other, and then its elements.
 */
#pragma once
#include "common/group.cuh"
#include "common/map_places.cuh"
#include "common/map_values.cuh"

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
						 typename STAGE::Held &held, typename STAGE::Result (&sum)[STAGE::vector],
						 MapStrays &strays)
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
		for (int u = 0; u < unroll; u++) {
			if constexpr (MAP::keeps)
				map.again(place[u], held[u], STAGE());
			each(place[u], held[u]);
		}
	}
#pragma unroll 1
	for (Number n = rounds * (SPLIT * unroll) + part; n < end; n += SPLIT) {
		typename MAP::Place place = at;
		typename STAGE::Held held;
		map.step(n, place, STAGE());
		map.fetch(place, held);
		if constexpr (MAP::keeps)
			map.again(place, held, STAGE());
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
	walk(STAGE(), [&](const typename MAP::Place &place, typename STAGE::Held &held) {
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
	const u32 part = map_part<THREADS, SPLIT, MAP>(), lane = map_lane<THREADS, SPLIT, MAP>();
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
