/*
 * softmax_strided_generic.cuh: softmax, its logarithm and their backward over a dimension that is
 * not the last, for sizes and strides that are known when the kernel is launched.
 *
 *   softmax_strided_generic            y of x
 *   softmax_backward_strided_generic   dx of y and dy
 *
 * A block takes a tile of rows that lie side by side: 2^shift lanes of V each, whose columns its
 * other threads share, as in strided.cuh.  Columns come in steps; those of the last step are still
 * there the second time, when they are gone through from the end to the beginning.  V: 16 bytes of
 * elements, or one, whose neighbours may lie `side` apart.
 */
#pragma once
#include "common/element.cuh"
#include "common/softmax.cuh"
#include "common/space.cuh"

#define STRIDED_ANY_THREADS 256 /* of a block, at most */

/* A tile's threads, and how columns are cut into steps of COUNT a thread. */
template <typename T, int V, int STREAMS>
struct StridedAny {
	typedef typename element<T>::compute Compute;
	static constexpr int count = STREAMS > 1 ? 2 : 4;
	static constexpr int bytes = V * static_cast<int>(sizeof(T)), words = vec_words<bytes>;

	i64 columns;
	u32 shift;
	bool here; /* this lane has rows */
	const T *start[STREAMS];
	i64 step[STREAMS];
	u32 word[count][STREAMS][words];

	DEVICE u32 lane() const
	{
		return threadIdx.x & ((1u << shift) - 1);
	}
	DEVICE u32 part() const
	{
		return threadIdx.x >> shift;
	}
	DEVICE u32 split() const
	{
		return blockDim.x >> shift;
	}
	DEVICE i64 steps() const
	{
		/* Numbers of columns beyond 31 bits are rare, and go the long way. */
		const u32 each = split() * count;
		if (columns <= 0x7fffffff)
			return (static_cast<u32>(columns) + each - 1) / each;
		return (columns + each - 1) / each;
	}
	DEVICE i64 column(i64 number, int i) const
	{
		return (number * count + i) * split() + part();
	}
	DEVICE bool has(i64 number, int i) const
	{
		return here && column(number, i) < columns;
	}
	DEVICE void fetch(i64 number)
	{
#pragma unroll
		for (int i = 0; i < count; i++) {
#pragma unroll
			for (int s = 0; s < STREAMS; s++)
				if (has(number, i))
					vec_load<bytes>(start[s] + column(number, i) * step[s], word[i][s]);
		}
	}
	DEVICE Compute at(int i, int stream, int v) const
	{
		return element_at<T, Compute>(word[i][stream], v);
	}
	DEVICE void store(i64 number, int i, T *to, i64 apart, const Compute (&out)[V]) const
	{
		u32 packed[words];
		element_pack<T>(out, packed);
		vec_store<bytes>(to + column(number, i) * apart, packed);
	}

	/* All threads that share a row get what merge makes of their values: merge(values, count,
	 * apart).  All of the block come. */
	template <class Value, typename Merge>
	DEVICE void reduce(Value (&mine)[V], Merge merge) const
	{
		__shared__ Value partial[STRIDED_ANY_THREADS * V];
		const u32 rows = V << shift, first = lane() * V;
#pragma unroll
		for (int v = 0; v < V; v++)
			partial[part() * rows + first + v] = mine[v];
		__syncthreads();
		for (u32 r = threadIdx.x; r < rows; r += blockDim.x)
			partial[r] = merge(&partial[r], split(), rows);
		__syncthreads();
#pragma unroll
		for (int v = 0; v < V; v++)
			mine[v] = partial[first + v];
		__syncthreads(); /* the next tile uses the memory again */
	}
};

/* Calls body(outer, inner) for the tiles of this block: inner is the lane's first row of those that
 * lie side by side. */
template <int V, typename Body>
DEVICE void strided_any_each(u64 tiles, const Divisor<u64> &chunks, u32 shift, Body body)
{
	const u32 lane = threadIdx.x & ((1u << shift) - 1);
	u64 tile = blockIdx.x;

	do {
		const u64 outer = chunks.quotient(tile), chunk = tile - outer * chunks.size;
		body(outer, static_cast<i64>((chunk << shift) + lane) * V);
		tile += gridDim.x;
	} while (tile < tiles);
}

template <typename T, int V, bool LOG, typename Compute>
DEVICE void softmax_strided_any(StridedAny<T, V, 1> &tile, T *y, i64 y_step,
								const SoftmaxScale<Compute> &scale)
{
	typedef StridedAny<T, V, 1> Tile;
	SoftmaxSum<Compute> all[V];
	SoftmaxExact<Compute> exact[V] = {};
	Compute rest[V];
	i64 step = 0;
	const i64 steps = tile.steps();

#pragma unroll
	for (int v = 0; v < V; v++)
		all[v].largest = SoftmaxNumber<Compute>::lowest();
#pragma unroll 1
	for (; step < steps; step++) {
		tile.fetch(step);
#pragma unroll
		for (int v = 0; v < V; v++) {
			Compute largest = all[v].largest, more = 0;
#pragma unroll
			for (int i = 0; i < Tile::count; i++)
				if (tile.has(step, i))
					largest = fmax(largest, tile.at(i, 0, v) * scale.before);
#pragma unroll
			for (int i = 0; i < Tile::count; i++)
				if (tile.has(step, i))
					more += softmax_exp2_flush((tile.at(i, 0, v) * scale.before - largest) *
											   scale.exponent);
			exact[v].scale(all[v].fading(largest, all[v].largest, scale.exponent));
			exact[v].add(more);
			all[v].largest = largest;
		}
	}
#pragma unroll
	for (int v = 0; v < V; v++)
		all[v].sum = exact[v].sum;
	tile.reduce(all, [&](const SoftmaxSum<Compute> *part, u32 count, u32 apart) {
		SoftmaxSum<Compute> sum = {part[0].largest, 0};
#pragma unroll 1
		for (u32 p = 1; p < count; p++)
			sum.largest = fmax(sum.largest, part[p * apart].largest);
#pragma unroll 1
		for (u32 p = 0; p < count; p++)
			sum.sum += part[p * apart].sum *
					   sum.fading(sum.largest, part[p * apart].largest, scale.exponent);
		return sum;
	});
#pragma unroll
	for (int v = 0; v < V; v++)
		rest[v] = LOG ? softmax_log(all[v].sum) : inverse_near(all[v].sum);
#pragma unroll 1
	while (step-- > 0) {
		if (step != steps - 1)
			tile.fetch(step);
#pragma unroll
		for (int i = 0; i < Tile::count; i++) {
			Compute out[V];
			if (!tile.has(step, i))
				continue;
#pragma unroll
			for (int v = 0; v < V; v++) {
				const Compute off = tile.at(i, 0, v) * scale.before - all[v].largest;
				out[v] = LOG ? fma(off, scale.after, -rest[v])
							 : softmax_exp2(off * scale.exponent) * rest[v];
			}
			tile.store(step, i, y, y_step, out);
		}
	}
}

template <typename T, int V, bool LOG, typename Compute>
DEVICE void softmax_backward_strided_any(StridedAny<T, V, 2> &tile, T *dx, i64 dx_step,
										 Compute scale)
{
	typedef StridedAny<T, V, 2> Tile;
	SoftmaxExact<Compute> exact[V] = {};
	Compute all[V];
	i64 step = 0;
	const i64 steps = tile.steps();

#pragma unroll 1
	for (; step < steps; step++) {
		tile.fetch(step);
#pragma unroll
		for (int v = 0; v < V; v++) {
			Compute more = 0;
#pragma unroll
			for (int i = 0; i < Tile::count; i++)
				if (tile.has(step, i))
					more += LOG ? tile.at(i, 1, v) : tile.at(i, 1, v) * tile.at(i, 0, v);
			exact[v].add(more);
		}
	}
#pragma unroll
	for (int v = 0; v < V; v++)
		all[v] = exact[v].sum;
	tile.reduce(all, [&](const Compute *part, u32 count, u32 apart) {
		Compute sum = part[0];
#pragma unroll 1
		for (u32 p = 1; p < count; p++)
			sum += part[p * apart];
		return sum;
	});
#pragma unroll 1
	while (step-- > 0) {
		if (step != steps - 1)
			tile.fetch(step);
#pragma unroll
		for (int i = 0; i < Tile::count; i++) {
			Compute out[V];
			if (!tile.has(step, i))
				continue;
#pragma unroll
			for (int v = 0; v < V; v++)
				out[v] = softmax_derivative<LOG>(tile.at(i, 0, v), tile.at(i, 1, v), all[v], scale);
			tile.store(step, i, dx, dx_step, out);
		}
	}
}

template <typename T, int V, bool LOG, typename Compute = typename element<T>::compute>
__global__ __launch_bounds__(STRIDED_ANY_THREADS, 1) void softmax_strided_generic(
	const T *x, T *y, Compute before, Compute exponent, Compute after, u64 tiles, i64 inner,
	i64 columns, DIVIDE_PARAMS(u64, chunks), u32 shift, i64 x_step, i64 y_step, i64 x_side,
	i64 y_side, SPACE_SIZES(u64), SPACE_STRIDES(of_x), SPACE_STRIDES(of_y))
{
	const Space<2, u64> space = {SPACE_SIZES_MADE(u64),
								 {SPACE_STRIDES_MADE(of_x), SPACE_STRIDES_MADE(of_y)}};
	const Divisor<u64> divisor = DIVIDE_MADE(u64, chunks);

	strided_any_each<V>(tiles, divisor, shift, [&](u64 outer, i64 first) {
		i64 at[2];
		space.at(outer, at);
		StridedAny<T, V, 1> tile = {columns,  shift, first < inner, {x + at[0] + first * x_side},
									{x_step}, {}};
		softmax_strided_any<T, V, LOG>(tile, y + at[1] + first * y_side, y_step,
									   SoftmaxScale<Compute>{before, exponent, after});
	});
}

template <typename T, int V, bool LOG, typename Compute = typename element<T>::compute>
__global__ __launch_bounds__(STRIDED_ANY_THREADS, 1) void softmax_backward_strided_generic(
	const T *y, const T *dy, T *dx, Compute scale, u64 tiles, i64 inner, i64 columns,
	DIVIDE_PARAMS(u64, chunks), u32 shift, i64 y_step, i64 dy_step, i64 dx_step, i64 y_side,
	i64 dy_side, i64 dx_side, SPACE_SIZES(u64), SPACE_STRIDES(of_y), SPACE_STRIDES(of_dy),
	SPACE_STRIDES(of_dx))
{
	const Space<3, u64> space = {
		SPACE_SIZES_MADE(u64),
		{SPACE_STRIDES_MADE(of_y), SPACE_STRIDES_MADE(of_dy), SPACE_STRIDES_MADE(of_dx)}};
	const Divisor<u64> divisor = DIVIDE_MADE(u64, chunks);

	strided_any_each<V>(tiles, divisor, shift, [&](u64 outer, i64 first) {
		i64 at[3];
		space.at(outer, at);
		StridedAny<T, V, 2> tile = {
			columns,           shift,
			first < inner,     {y + at[0] + first * y_side, dy + at[1] + first * dy_side},
			{y_step, dy_step}, {}};
		softmax_backward_strided_any<T, V, LOG>(tile, dx + at[2] + first * dx_side, dx_step, scale);
	});
}
