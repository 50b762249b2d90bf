/*
 * norm_generic.cuh: layer_norm and rms_norm (norm.cuh), for sizes and strides that are known when
 * the kernel is launched.
 *
 *   norm_generic   as many threads as the launch says take each row in steps; vectors come by way
 *                  of shared memory (row_ring.cuh)
 *
 * V: elements that move at once, 16 bytes of them or one.  G: the type of gamma and beta; void:
 * any.  Operands that are left out are 0.  Each thread's part of a step has a pivot of its own.
 */
#pragma once
#include "common/norm_any.cuh"

template <class ROW, typename G, bool RMS, bool RESIDUAL>
struct NormAny {
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	static constexpr int V = ROW::length, count = ROW::count, inputs = RESIDUAL ? 2 : 1;

	typename NormAnyWay<V>::template held<ROW, inputs> held;

	DEVICE NormAny(const ROW &row, b128 *shared, u32 places) : held(row, shared, places)
	{
	}

	/* s of vector u of the step that is held. */
	DEVICE void take(int u, Compute (&s)[V]) const
	{
		Compute value[inputs][V];
		held.values(u, value);
#pragma unroll
		for (int j = 0; j < V; j++)
			s[j] = value[0][j] + (RESIDUAL ? value[inputs - 1][j] : Compute(0));
	}

	DEVICE Compute squares(i64 step) const
	{
		Compute sum = 0;
#pragma unroll
		for (int u = 0; u < ROW::count; u++) {
			const i64 n = step * ROW::count + u;
			Compute s[V];
			if (!held.row.has(n))
				continue;
			const bool inside = held.row.inside(n);
			take(u, s);
#pragma unroll
			for (int j = 0; j < V; j++)
				sum = inside || held.row.live(n, j) ? fma(s[j], s[j], sum) : sum;
		}
		return sum;
	}

	DEVICE NormPart<Compute> moments(i64 step) const
	{
		Compute sum = 0;
		int count = 0;
#pragma unroll
		for (int u = 0; u < ROW::count; u++) {
			const i64 n = step * ROW::count + u;
			Compute s[V];
			if (!held.row.has(n))
				continue;
			const bool inside = held.row.inside(n);
			take(u, s);
#pragma unroll
			for (int j = 0; j < V; j++) {
				const bool live = inside || held.row.live(n, j);
				sum += live ? s[j] : Compute(0);
				count += live;
			}
		}
		const Compute elements = static_cast<Compute>(count);
		NormPart<Compute> part = {
			elements, norm_product(sum, elements > 0 ? norm_inverse(elements) : Compute(0)), 0, 0};
#pragma unroll
		for (int u = 0; u < ROW::count; u++) {
			const i64 n = step * ROW::count + u;
			Compute s[V];
			if (!held.row.has(n))
				continue;
			const bool inside = held.row.inside(n);
			take(u, s);
#pragma unroll
			for (int j = 0; j < V; j++) {
				const Compute off = inside || held.row.live(n, j) ? s[j] - part.pivot : Compute(0);
				part.sum += off;
				part.squares = fma(off, off, part.squares);
			}
		}
		return part;
	}

	/* Goes over the row; afterwards `step` steps were taken, and the last is held. */
	DEVICE NormRow<Compute> measure(const NormAnyInputs<T> &from, i64 number, const i64 (&at)[2],
									const GroupAny &group, Compute eps, Compute &pivot, i64 &step)
	{
		const Compute share = Compute(1) / static_cast<Compute>(held.row.columns);
		NormPart<Compute> part = NormPart<Compute>::none();
		NormSums<Compute, 1> all = {};

		step = 0;
		held.begin(from, at);
#pragma unroll 1
		do {
			held.next(from, number, at, step);
			if constexpr (RMS) {
				all.row[0] += squares(step);
			} else {
				const NormPart<Compute> more = moments(step);
				if (step == 0)
					part = more;
				else
					part.merge(more);
			}
		} while (held.row.step(++step) < held.row.columns);
		pivot = 0;
		if constexpr (RMS) {
			return norm_row_rms_of(share, group.reduce(all).row[0], eps);
		} else {
			part = group.reduce(part);
			pivot = part.pivot;
			return norm_row_of(share, pivot, part.sum, part.squares, pivot, eps);
		}
	}
};

template <typename T, typename G>
struct NormAnyOutputs {
	typedef typename element<T>::compute Compute;
	const void *gamma, *beta;
	u32 gamma_type, beta_type;
	T *y;
	Compute *mean, *rstd;
	T *sum;

	template <bool RMS, class ANY>
	DEVICE void store(const ANY &any, i64 step, i64 begin, const NormRow<Compute> &answer,
					  Compute pivot) const
	{
		constexpr int V = ANY::V;
#pragma unroll
		for (int u = 0; u < ANY::count; u++) {
			const i64 n = step * ANY::count + u, column = any.held.row.column(n);
			Compute s[V], scale[V], more[V], out[V];
			if (!any.held.row.has(n))
				continue;
			any.take(u, s);
			norm_any_affine<G>(gamma, gamma_type, column, any.held.row.columns, Compute(1), scale);
			norm_any_affine<G>(beta, beta_type, column, any.held.row.columns, Compute(0), more);
#pragma unroll
			for (int j = 0; j < V; j++) {
				const Compute off = s[j] - pivot;
				const Compute normal =
					RMS ? off * answer.rstd : fma(off, answer.rstd, answer.shift);
				out[j] = fma(normal, scale[j], more[j]);
			}
			norm_any_store(any.held.row, n, y + begin, out);
			if (sum)
				norm_any_store(any.held.row, n, sum + begin, s);
		}
	}
};

template <typename T, int V, typename G, bool RMS, bool RESIDUAL,
		  typename Compute = typename element<T>::compute>
__global__ __launch_bounds__(ROW_ANY_THREADS, V > 1 ? 2 : 1) void norm_generic(
	const T *x, const void *gamma, const void *beta, const T *residual, T *y, Compute *mean,
	Compute *rstd, T *sum, Compute eps, i64 rows, i64 columns, u32 shift, i64 x_step,
	i64 residual_step, u32 pieces, u32 gamma_type, u32 beta_type, u32 places,
	NORM_ANY_SPACE(of_x, of_residual))
{
	typedef RowAny<T, V, sizeof(T) == 2 ? 1 : 2> Row;
	DYN_SHARED(b128, shared);
	const NormAnyInputs<T> inputs = {{x, residual},
									 {x_step, residual_step},
									 pieces != 0,
									 NORM_ANY_SPACE_MADE(of_x, of_residual)};
	const NormAnyOutputs<T, G> outputs = {gamma, beta, gamma_type, beta_type, y, mean, rstd, sum};
	const GroupAny group = {shift};

	row_any_each(group, rows, [&](i64 number, bool here) {
		i64 at[2], step;
		Compute pivot;
		inputs.row(number, at);
		NormAny<Row, G, RMS, RESIDUAL> any(Row(x + at[0], columns, group), shared, places);
		const NormRow<Compute> answer = any.measure(inputs, number, at, group, eps, pivot, step);
		if (!here)
			return;
		/* Goes from the end to the beginning, so that the last elements read are still near. */
		const i64 begin = number * columns;
#pragma unroll 1
		for (;; any.held.back(inputs, number, at, step - 1)) {
			outputs.template store<RMS>(any, step - 1, begin, answer, pivot);
			if (--step == 0)
				break;
		}
		if (group.thread() == 0) {
			if (mean)
				mean[number] = answer.mean;
			if (rstd)
				rstd[number] = answer.rstd;
		}
	});
}
