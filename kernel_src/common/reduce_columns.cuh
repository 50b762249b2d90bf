/*
 * reduce_columns.cuh: reductions of rows that lie side by side: a thread goes over a vector of
 * rows, column by column.
 */
#pragma once
#include "common/inverse.cuh"
#include "common/last.cuh"
#include "common/reduce_parts.cuh"
#include "common/types.cuh"

/* The values of all threads of a row, as a binary tree; part 0 gets what they make together. */
template <int ACC, int LANES, int SPLIT, int V, class Value>
DEVICE void reduce_join(Value (&value)[ACC][V], int lane, int part)
{
	__shared__ Value shared[V][SPLIT][LANES];

#pragma unroll
	for (int w = 1; w < ACC; w *= 2) {
#pragma unroll
		for (int i = 0; i + w < ACC; i += 2 * w) {
#pragma unroll
			for (int v = 0; v < V; v++)
				value[i][v].merge(value[i + w][v]);
		}
	}
	if constexpr (SPLIT > 1) {
#pragma unroll
		for (int v = 0; v < V; v++)
			shared[v][part][lane] = value[0][v];
#pragma unroll 1
		for (int w = 1; w < SPLIT; w *= 2) {
			__syncthreads();
			if (part % (2 * w) == 0) {
#pragma unroll
				for (int v = 0; v < V; v++) {
					value[0][v].merge(shared[v][part + w][lane]);
					shared[v][part][lane] = value[0][v];
				}
			}
		}
	}
}

/* Like reduce_last(), for the rows of a tile. */
template <int ACC, int LANES, int SPLIT, int V, class Value>
DEVICE bool reduce_columns_last(Value (&value)[ACC][V], u8 *scratch, i64 tiles, i64 tile, i64 chunk,
								u32 chunks)
{
	const int lane = static_cast<int>(threadIdx.x) % LANES;
	const int part = static_cast<int>(threadIdx.x) / LANES;
	const i64 apart = tiles * (LANES * V);
	Value *const parts = reduce_parts<Value>(scratch, tiles) + (tile * LANES + lane) * V;
	int last = 0;

	if (part == 0) {
#pragma unroll
		for (int v = 0; v < V; v++)
			parts[chunk * apart + v] = value[0][v];
	}
	__syncthreads();
	if (threadIdx.x == 0)
		last = last_of(reinterpret_cast<u32 *>(scratch) + tile, chunks);
	if (!__syncthreads_or(last))
		return false;
#pragma unroll
	for (int i = 0; i < ACC; i++) {
#pragma unroll
		for (int v = 0; v < V; v++)
			value[i][v] = Value::none();
#pragma unroll 4
		for (u32 c = part * ACC + i; c < chunks; c += ACC * SPLIT) {
#pragma unroll
			for (int v = 0; v < V; v++)
				value[i][v].merge(parts[c * apart + v]);
		}
	}
	reduce_join<ACC, LANES, SPLIT, V>(value, lane, part);
	return true;
}

/* A thread has V rows that lie side by side.  chunk: columns of a chunk.  y_step: from result to
 * result. */
template <class R, int V, int ACC, int UNROLL, int LANES, int SPLIT, class IN, class OUT,
		  typename Number, class AT>
DEVICE void reduce_columns_of(const u8 *x, u8 *y, u8 *scratch, i64 rows, Number columns,
							  Number chunk, u32 chunks, i64 y_step, typename R::Real real,
							  const IN &in, const OUT &out, const AT &at)
{
	typedef typename R::Value Value;
	typedef typename R::Real Real;
	constexpr int leaves = ACC * SPLIT;
	const int lane = static_cast<int>(threadIdx.x) % LANES;
	const int part = static_cast<int>(threadIdx.x) / LANES;
	const i64 tiles = (rows + LANES * V - 1) / (LANES * V);

	for (i64 piece = blockIdx.x; piece < tiles * chunks; piece += gridDim.x) {
		const i64 number = chunks > 1 ? piece / tiles : 0, tile = piece - number * tiles;
		const i64 row = (tile * LANES + lane) * V;
		const bool here = row < rows;
		const Number begin = static_cast<Number>(number) * chunk;
		const Number end = columns - begin > chunk ? begin + chunk : columns;
		Value value[ACC][V];
		Real with[V];
		i64 offset[2];

		at.row(here ? row : 0, offset);
		const u8 *const start = x + offset[0] * in.bytes();
#pragma unroll
		for (int v = 0; v < V; v++)
			with[v] = reduce_with<R>(in, start, columns > 0, real, v);
#pragma unroll
		for (int i = 0; i < ACC; i++) {
#pragma unroll
			for (int v = 0; v < V; v++)
				value[i][v] = Value::none();
		}
		Number count = 1;
#pragma unroll 1
		for (Number step = begin + part * ACC; step < end; step += leaves * UNROLL) {
			u32 word[UNROLL][ACC][IN::words];
#pragma unroll
			for (int u = 0; u < UNROLL; u++) {
#pragma unroll
				for (int i = 0; i < ACC; i++)
					if (here && step + (u * leaves + i) < end)
						in.load(start + at.column(step + (u * leaves + i)) * in.bytes(),
								word[u][i]);
			}
			if constexpr (R::pivoted && UNROLL > 1) {
				/* All at once: none waits for the one before. */
				if (here && step + ((UNROLL - 1) * leaves + ACC - 1) < end) {
					const Real inverse = inverse_near(static_cast<Real>(count + (UNROLL - 1)));
#pragma unroll
					for (int i = 0; i < ACC; i++) {
#pragma unroll
						for (int v = 0; v < V; v++) {
							typename R::Taken some[UNROLL];
#pragma unroll
							for (int u = 0; u < UNROLL; u++)
								some[u] = in.element(word[u][i], v);
							R::take_some(value[i][v], some, count - 1, inverse, with[v]);
						}
					}
					count += UNROLL;
					continue;
				}
			}
#pragma unroll
			for (int u = 0; u < UNROLL; u++, count++) {
				const Real inverse = inverse_near(static_cast<Real>(count));
#pragma unroll
				for (int i = 0; i < ACC; i++) {
					if (!here || step + (u * leaves + i) >= end)
						continue;
#pragma unroll
					for (int v = 0; v < V; v++)
						R::take_one(value[i][v], in.element(word[u][i], v), step + (u * leaves + i),
									count, inverse, with[v]);
				}
			}
		}
#pragma unroll
		for (int i = 0; i < ACC; i++) {
			const Number rest = end - begin - (part * ACC + i);
#pragma unroll
			for (int v = 0; v < V; v++)
				R::counted(value[i][v], rest > 0 ? (rest + leaves - 1) / leaves : 0);
		}
		reduce_join<ACC, LANES, SPLIT, V>(value, lane, part);
		if (chunks > 1 &&
			!reduce_columns_last<ACC, LANES, SPLIT>(value, scratch, tiles, tile, number, chunks))
			continue;
		if (part == 0 && here) {
#pragma unroll
			for (int v = 0; v < V; v++)
				out.store(y, offset[1] + v * y_step, R::finish(value[0][v], real));
		}
		__syncthreads(); /* the shared values are used again */
	}
}
