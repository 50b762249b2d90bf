/*
 * map.cuh: statements element by element: each thread makes UNROLL vectors of the output, with all
 * their loads in flight.  Those that reduce are in map_reduce.cuh, and in map_rows.cuh where rows
 * are reduced first.
 *
 * MAP is the generated structure: place() and term() turn numbers into places, fetch() loads what
 * lies side by side, value() is the right side for element v of a vector.
 */
#pragma once
#include "common/map_places.cuh"
#include "common/map_values.cuh"

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
