/*
 * softmax_strided.cuh: softmax and its backward over a dimension that is not the last
 * (strided.cuh).  With more than one step the rows are read twice, the second time from the end to
 * the beginning.
 */
#pragma once
#include "common/softmax.cuh"
#include "common/strided.cuh"

/* The terms of what a step holds; -inf where there is nothing. */
template <class SHAPE, typename Compute>
DEVICE void softmax_strided_terms(const StridedWords<SHAPE, 1> &words, typename SHAPE::Column step,
								  bool here, Compute before,
								  Compute (&x)[SHAPE::held][SHAPE::length])
{
#pragma unroll
	for (int i = 0; i < SHAPE::held; i++) {
		const bool has = here && SHAPE::has(step, i);
#pragma unroll
		for (int v = 0; v < SHAPE::length; v++) {
			const Compute term = words.at(i, 0, v) * before;
			x[i][v] = has ? term : SoftmaxNumber<Compute>::least();
		}
	}
}

/* Terms become powers, which join what came before of each row. */
template <class SHAPE, bool LOG, typename Compute>
DEVICE void softmax_strided_add(Compute (&x)[SHAPE::held][SHAPE::length],
								const SoftmaxScale<Compute> &scale,
								SoftmaxSum<Compute> (&all)[SHAPE::length],
								SoftmaxExact<Compute> (&exact)[SHAPE::length])
{
#pragma unroll
	for (int v = 0; v < SHAPE::length; v++) {
		Compute largest = all[v].largest, more = 0;
#pragma unroll
		for (int i = 0; i < SHAPE::held; i++)
			largest = fmax(largest, x[i][v]);
#pragma unroll
		for (int i = 0; i < SHAPE::held; i++) {
			const Compute power = softmax_exp2_flush((x[i][v] - largest) * scale.exponent);
			more += power;
			if constexpr (!LOG)
				x[i][v] = power;
		}
		if constexpr (SHAPE::steps > 1) {
			exact[v].scale(all[v].fading(largest, all[v].largest, scale.exponent));
			exact[v].add(more);
			more = exact[v].sum;
		}
		all[v] = {largest, more};
	}
}

/* Over the threads that share rows. */
template <class SHAPE, typename Compute>
DEVICE void softmax_strided_meet(SoftmaxSum<Compute> (&all)[SHAPE::length], Compute exponent)
{
	strided_reduce<SHAPE>(all, [&](const SoftmaxSum<Compute> *part, int count, int apart) {
		SoftmaxSum<Compute> sum = {part[0].largest, 0};
#pragma unroll 1
		for (int p = 1; p < count; p++)
			sum.largest = fmax(sum.largest, part[p * apart].largest);
#pragma unroll 1
		for (int p = 0; p < count; p++)
			sum.sum +=
				part[p * apart].sum * sum.fading(sum.largest, part[p * apart].largest, exponent);
		return sum;
	});
}

/* The V rows of a lane: x and y are their columns 0.  All threads of the block come. */
template <class SHAPE, bool LOG, typename T, typename Compute>
DEVICE void softmax_strided_rows(const T *x, i64 x_step, T *y, i64 y_step,
								 const SoftmaxScale<Compute> &scale, bool here)
{
	typedef typename SHAPE::Column Column;
	constexpr int V = SHAPE::length;
	constexpr bool powers = !LOG && SHAPE::steps == 1; /* they are still there in the end */
	const T *const from[1] = {x};
	const i64 apart[1] = {x_step};
	StridedWords<SHAPE, 1> words;
	Compute value[SHAPE::held][V], mine[V], rest[V];
	SoftmaxSum<Compute> all[V];
	SoftmaxExact<Compute> exact[V] = {};

#pragma unroll
	for (int v = 0; v < V; v++)
		all[v] = {SoftmaxNumber<Compute>::lowest(), 0};
#pragma unroll 1
	for (Column step = 0; step < SHAPE::steps; step++) {
		words.fetch(step, from, apart, here);
		softmax_strided_terms<SHAPE>(words, step, here, scale.before, value);
		softmax_strided_add<SHAPE, LOG>(value, scale, all, exact);
	}
#pragma unroll
	for (int v = 0; v < V; v++)
		mine[v] = all[v].largest;
	softmax_strided_meet<SHAPE>(all, scale.exponent);
#pragma unroll
	for (int v = 0; v < V; v++) {
		rest[v] = LOG ? softmax_log(all[v].sum) : inverse_near(all[v].sum);
		if constexpr (powers)
			rest[v] *= all[v].fading(all[v].largest, mine[v], scale.exponent);
	}
#pragma unroll 1
	for (Column step = SHAPE::steps; step-- > 0;) {
		if constexpr (SHAPE::steps > 1) {
			words.fetch(step, from, apart, here);
			softmax_strided_terms<SHAPE>(words, step, here, scale.before, value);
		}
#pragma unroll
		for (int i = 0; i < SHAPE::held; i++) {
#pragma unroll
			for (int v = 0; v < V; v++) {
				Compute &out = value[i][v];
				if constexpr (powers)
					out *= rest[v];
				else if constexpr (LOG)
					out = fma(out - all[v].largest, scale.after, -rest[v]);
				else
					out = softmax_exp2((out - all[v].largest) * scale.exponent) * rest[v];
			}
			if (here && SHAPE::has(step, i))
				strided_store<SHAPE>(y, y_step, SHAPE::column(step, i), value[i]);
		}
	}
}

/* Does so for the backward: from[0] is y, from[1] is dy. */
template <class SHAPE, bool LOG, typename T, typename Compute>
DEVICE void softmax_backward_strided_rows(const T *const (&from)[2], const i64 (&apart)[2], T *dx,
										  i64 dx_step, Compute scale, bool here)
{
	typedef typename SHAPE::Column Column;
	constexpr int V = SHAPE::length;
	StridedWords<SHAPE, 2> words;
	SoftmaxExact<Compute> exact[V] = {};
	Compute all[V];

#pragma unroll 1
	for (Column step = 0; step < SHAPE::steps; step++) {
		Compute more[V] = {};
		words.fetch(step, from, apart, here);
#pragma unroll
		for (int i = 0; i < SHAPE::held; i++) {
			const bool has = here && SHAPE::has(step, i);
#pragma unroll
			for (int v = 0; v < V; v++) {
				const Compute one = words.at(i, 1, v);
				const Compute part = LOG ? one : one * words.at(i, 0, v);
				more[v] += has ? part : Compute(0);
			}
		}
#pragma unroll
		for (int v = 0; v < V; v++) {
			if constexpr (SHAPE::steps > 1) {
				exact[v].add(more[v]);
				more[v] = exact[v].sum;
			}
			all[v] = more[v];
		}
	}
	strided_reduce<SHAPE>(all, [&](const Compute *part, int count, int apart) {
		Compute sum = part[0];
#pragma unroll 1
		for (int p = 1; p < count; p++)
			sum += part[p * apart];
		return sum;
	});
#pragma unroll 1
	for (Column step = SHAPE::steps; step-- > 0;) {
		if constexpr (SHAPE::steps > 1)
			words.fetch(step, from, apart, here);
#pragma unroll
		for (int i = 0; i < SHAPE::held; i++) {
			Compute out[V];
			if (!here || !SHAPE::has(step, i))
				continue;
#pragma unroll
			for (int v = 0; v < V; v++)
				out[v] =
					softmax_derivative<LOG>(words.at(i, 0, v), words.at(i, 1, v), all[v], scale);
			strided_store<SHAPE>(dx, dx_step, SHAPE::column(step, i), out);
		}
	}
}
