/*
 * norm_backward_generic.cuh: the backward of layer_norm and rms_norm (common/norm_backward.cuh),
 * for sizes and strides that are known when the kernel is launched.
 *
 *   norm_backward_generic   some blocks take rows for dx, others strips of columns for the sums
 *                           dgamma and dbeta; either may be left out
 *
 * Rows are cut in chunks.  Items come in the order of the chunks, the rows of each first, so that
 * its strips find them near.  A strip is 2^lanes threads wide, V columns each; the block's other
 * threads take other rows.  The sums that several chunks have of a strip go to scratch memory,
 * behind a counter for each strip, and the last block adds them up.
 *
 * V: elements that move at once, 16 bytes of them or one.  G: the type of gamma; void: any.
 */
#pragma once
#include "common/columns.cuh"
#include "common/norm_any.cuh"
#include "common/norm_backward.cuh"

#define NORM_BACKWARD_ANY_THREADS 256 /* of a block, at most: three find the registers */

/* The sizes of a launch, and what is the same in all its blocks. */
template <typename T, int V, typename G, bool RMS>
struct NormBackwardAny {
	typedef typename element<T>::compute Compute;
	typedef RowAny<T, V, sizeof(T) == 2 ? 1 : 2> Row;
	typedef NormBackwardWith<void, void, void, 16, RMS> With;
	typedef NormBackwardSums<With, Compute> Sums;
	typedef NormBackwardRow<With, Compute> Found;

	NormAnyInputs<T> inputs; /* x, dy */
	const void *gamma;
	const Compute *mean, *rstd;
	T *dx;
	void *dgamma, *dbeta;
	u32 gamma_type, dgamma_type, dbeta_type;
	u8 *scratch;
	i64 rows, columns, chunk;
	u32 chunks, strips, lanes;
	GroupAny group;

	DEVICE Found found(i64 row) const
	{
		/* Nothing needs them without dx and dgamma, and they may be left out then. */
		return {!RMS && mean ? mean[row] : Compute(0), rstd ? rstd[row] : Compute(0)};
	}

	/* ---- dx ---- */

	DEVICE void add(const NormAnyStep<Row, 2> &held, i64 step, const Found &row, Sums &all) const
	{
		Sums some = {};
#pragma unroll
		for (int u = 0; u < Row::count; u++) {
			const i64 n = step * Row::count + u;
			Compute value[2][V], scale[V];
			if (!held.row.has(n))
				continue;
			const bool inside = held.row.inside(n);
			held.values(u, value);
			norm_any_affine<G>(gamma, gamma_type, held.row.column(n), columns, Compute(1), scale);
#pragma unroll
			for (int j = 0; j < V; j++)
				if (inside || held.row.live(n, j))
					some.add(value[1][j] * scale[j], row.normal(value[0][j]));
		}
		all.merge(some);
	}
	DEVICE void store(const NormAnyStep<Row, 2> &held, i64 step, const Found &row,
					  const Sums &means, T *to) const
	{
#pragma unroll
		for (int u = 0; u < Row::count; u++) {
			const i64 n = step * Row::count + u;
			Compute value[2][V], scale[V], out[V];
			if (!held.row.has(n))
				continue;
			held.values(u, value);
			norm_any_affine<G>(gamma, gamma_type, held.row.column(n), columns, Compute(1), scale);
#pragma unroll
			for (int j = 0; j < V; j++)
				out[j] = means.dx(value[1][j] * scale[j], row.normal(value[0][j]), row.rstd);
			norm_any_store(held.row, n, to, out);
		}
	}

	/* here: the row is there, else it is one to read for nothing.  All threads of a block come. */
	DEVICE void take_row(i64 number, bool here) const
	{
		i64 at[2], step = 0;
		inputs.row(number, at);
		NormAnyStep<Row, 2> held(Row(inputs.start[0] + at[0], columns, group));
		const Found row = found(number);
		Sums all = {};

#pragma unroll 1
		do {
			held.fetch(inputs, number, at, step);
			add(held, step, row, all);
		} while (held.row.step(++step) < columns);
		all = group.reduce(all);
#pragma unroll
		for (int i = 0; i < With::means; i++)
			all.sum[i] *= Compute(1) / static_cast<Compute>(columns);
		if (!here)
			return;
		T *const to = dx + number * columns;
#pragma unroll 1
		for (;; held.fetch(inputs, number, at, step - 1)) {
			store(held, step - 1, row, all, to);
			if (--step == 0)
				break;
		}
	}

	/* ---- dgamma and dbeta ---- */

	template <int INPUT>
	DEVICE void load(i64 number, const i64 (&at)[2], i64 column, Compute (&out)[V]) const
	{
		constexpr int bytes = V * static_cast<int>(sizeof(T));
		const T *const row = inputs.start[INPUT] + at[INPUT];
		u32 words[vec_words<bytes>];
		if constexpr (V > 1) {
			columns_load_skewed<sizeof(T), bytes>(row + column, row + columns, words);
		} else if (inputs.pieces) {
			i64 offset[2];
			inputs.space.at(static_cast<u64>(number * columns + column), offset);
			vec_load<bytes>(inputs.start[INPUT] + offset[INPUT], words);
		} else {
			vec_load<bytes>(row + column * inputs.step[INPUT], words);
		}
		element_unpack<T>(words, out);
	}

	/* Adds up the rows from `first` on, below `end`. */
	DEVICE void add_rows(i64 first, i64 end, i64 column, Compute (&all)[2][V]) const
	{
		const u32 step = blockDim.x >> lanes;
#pragma unroll 2
		for (i64 number = first + (threadIdx.x >> lanes); number < end; number += step) {
			Compute x[V] = {}, dy[V];
			i64 at[2];
			inputs.row(number, at);
			const Found row = found(number);
			load<1>(number, at, column, dy);
			if (dgamma)
				load<0>(number, at, column, x);
#pragma unroll
			for (int j = 0; j < V; j++) {
				all[0][j] = fma(dy[j], row.normal(x[j]), all[0][j]);
				all[1][j] += dy[j];
			}
		}
	}

	DEVICE void store_sum(void *to, u32 type, i64 column, Compute value) const
	{
		if (type == ROW_ANY_F16)
			element_store(static_cast<f16 *>(to) + column, value);
		else if (type == ROW_ANY_BF16)
			element_store(static_cast<bf16 *>(to) + column, value);
		else if (type == ROW_ANY_F32)
			element_store(static_cast<f32 *>(to) + column, value);
		else
			element_store(static_cast<f64 *>(to) + column, value);
	}

	/* Strip number `strip` of the rows [first, end), which are number `number` of the chunks. */
	DEVICE void take_strip(u32 strip, i64 first, i64 end, u32 number) const
	{
		__shared__ Compute shared[NORM_BACKWARD_ANY_THREADS * V];
		const u32 width = V << lanes, parts = blockDim.x >> lanes;
		const u32 lane = threadIdx.x & ((1u << lanes) - 1);
		const i64 begin = static_cast<i64>(strip) * width, column = begin + lane * V;
		const u64 counters = (static_cast<u64>(strips) * 4 + 255) / 256 * 256;
		Compute *const partial = reinterpret_cast<Compute *>(scratch + counters) +
								 static_cast<u64>(strip) * chunks * (2 * width);
		Compute all[2][V] = {};

		if (column < columns)
			add_rows(first, end, column, all);
#pragma unroll
		for (u32 which = 0; which < 2; which++) {
			__syncthreads(); /* what was there before was read */
#pragma unroll
			for (int j = 0; j < V; j++)
				shared[(threadIdx.x >> lanes) * width + lane * V + j] = all[which][j];
			__syncthreads();
			for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
				Compute sum = 0;
#pragma unroll 4
				for (u32 part = 0; part < parts; part++)
					sum += shared[part * width + i];
				partial[(number * 2 + which) * width + i] = sum;
			}
		}
		if (!columns_last(reinterpret_cast<u32 *>(scratch) + strip, chunks))
			return;
		for (u32 i = threadIdx.x; i < 2 * width; i += blockDim.x) {
			const u32 which = i < width ? 0 : 1;
			const i64 here = begin + i - which * width;
			Compute sum = 0;
			void *const to = which == 0 ? dgamma : dbeta;
			if (!to || here >= columns)
				continue;
#pragma unroll 8
			for (u32 part = 0; part < chunks; part++)
				sum += partial[part * (2 * width) + i];
			store_sum(to, which == 0 ? dgamma_type : dbeta_type, here, sum);
		}
	}
};

/* sets: blocks for the rows of a chunk. */
template <typename T, int V, typename G, bool RMS, typename Compute = typename element<T>::compute>
__global__ __launch_bounds__(NORM_BACKWARD_ANY_THREADS, 3) void norm_backward_generic(
	const T *x, const T *dy, const void *gamma, const Compute *mean, const Compute *rstd, T *dx,
	void *dgamma, void *dbeta, u8 *scratch, i64 rows, i64 columns, i64 chunk, u32 chunks,
	u32 strips, i64 sets, u32 lanes, u32 shift, DIVIDE_PARAMS(u64, items), i64 x_step, i64 dy_step,
	u32 pieces, u32 gamma_type, u32 dgamma_type, u32 dbeta_type, NORM_ANY_SPACE(of_x, of_dy))
{
	const NormBackwardAny<T, V, G, RMS> any = {
		{{x, dy}, {x_step, dy_step}, pieces != 0, NORM_ANY_SPACE_MADE(of_x, of_dy)},
		gamma,
		mean,
		rstd,
		dx,
		dgamma,
		dbeta,
		gamma_type,
		dgamma_type,
		dbeta_type,
		scratch,
		rows,
		columns,
		chunk,
		chunks,
		strips,
		lanes,
		{shift}};
	const Divisor<u64> items = DIVIDE_MADE(u64, items);

	for (u64 item = blockIdx.x; item < items_size * chunks; item += gridDim.x) {
		const u64 number = items.quotient(item);
		const i64 part = static_cast<i64>(item - number * items_size);
		const i64 first = static_cast<i64>(number) * chunk;
		const i64 end = first + chunk < rows ? first + chunk : rows;
		if (part >= sets) {
			any.take_strip(static_cast<u32>(part - sets), first, end, static_cast<u32>(number));
		} else {
			const i64 base = first + part * any.group.rows(), row = base + any.group.row();
			if (base < end)
				any.take_row(row < end ? row : base, row < end);
		}
	}
}
