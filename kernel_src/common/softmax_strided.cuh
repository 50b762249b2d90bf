/*
 * softmax_strided.cuh: softmax and its backward over a dimension that is not the last (strided.cuh).
 * With more than one step the rows are read twice, the second time from the end to the beginning.
 */
#pragma once
#include "common/softmax.cuh"
#include "common/strided.cuh"

/* The sum of what a step holds joins the sum so far, of each row. */
template <class SHAPE, typename Compute>
DEVICE void softmax_strided_add(const StridedWords<SHAPE, 1> &words, typename SHAPE::Column step,
								const SoftmaxScale<Compute> &scale,
								SoftmaxSum<Compute> (&all)[SHAPE::length],
								SoftmaxExact<Compute> (&exact)[SHAPE::length])
{
	constexpr int V = SHAPE::length;
	Compute found[V], more[V];

#pragma unroll
	for (int v = 0; v < V; v++) {
		found[v] = all[v].largest;
		more[v] = 0;
	}
#pragma unroll
	for (int i = 0; i < SHAPE::held; i++) {
		Compute x[V];
		if (!SHAPE::has(step, i))
			continue;
		words.get(i, 0, x);
#pragma unroll
		for (int v = 0; v < V; v++)
			found[v] = fmax(found[v], x[v] * scale.before);
	}
#pragma unroll
	for (int i = 0; i < SHAPE::held; i++) {
		Compute x[V];
		if (!SHAPE::has(step, i))
			continue;
		words.get(i, 0, x);
#pragma unroll
		for (int v = 0; v < V; v++)
			more[v] += softmax_exp2_flush((x[v] * scale.before - found[v]) * scale.exponent);
	}
#pragma unroll
	for (int v = 0; v < V; v++) {
		if constexpr (SHAPE::steps > 1)
			exact[v].scale(all[v].fading(found[v], all[v].largest, scale.exponent));
		exact[v].add(more[v]);
		all[v].largest = found[v];
	}
}

template <class SHAPE, bool LOG, typename Compute>
DEVICE void softmax_strided_store(const StridedWords<SHAPE, 1> &words, typename SHAPE::Column step,
								  const SoftmaxScale<Compute> &scale,
								  const SoftmaxSum<Compute> (&all)[SHAPE::length],
								  typename SHAPE::Element *y, i64 y_step)
{
	constexpr int V = SHAPE::length;

#pragma unroll
	for (int i = 0; i < SHAPE::held; i++) {
		Compute x[V];
		if (!SHAPE::has(step, i))
			continue;
		words.get(i, 0, x);
#pragma unroll
		for (int v = 0; v < V; v++) {
			x[v] = x[v] * scale.before - all[v].largest;
			x[v] = LOG ? fma(x[v], scale.after, -all[v].sum)
					   : softmax_exp2(x[v] * scale.exponent) * all[v].sum;
		}
		strided_store<SHAPE>(y, y_step, SHAPE::column(step, i), x);
	}
}

/* The V rows of a lane: x and y are their columns 0.  All threads of the block come. */
template <class SHAPE, bool LOG, typename T, typename Compute>
DEVICE void softmax_strided_rows(const T *x, i64 x_step, T *y, i64 y_step,
								 const SoftmaxScale<Compute> &scale, bool here)
{
	typedef typename SHAPE::Column Column;
	constexpr int V = SHAPE::length;
	const T *const from[1] = {x};
	const i64 apart[1] = {x_step};
	StridedWords<SHAPE, 1> words;
	SoftmaxSum<Compute> all[V];
	SoftmaxExact<Compute> exact[V] = {};

#pragma unroll
	for (int v = 0; v < V; v++)
		all[v].largest = SoftmaxNumber<Compute>::lowest();
#pragma unroll 1
	for (Column step = 0; step < (here ? SHAPE::steps : 0); step++) {
		words.fetch(step, from, apart);
		softmax_strided_add<SHAPE>(words, step, scale, all, exact);
	}
#pragma unroll
	for (int v = 0; v < V; v++)
		all[v].sum = exact[v].sum;
	strided_reduce<SHAPE>(all, [&](const SoftmaxSum<Compute> *part, int count, int apart) {
		SoftmaxSum<Compute> sum = {part[0].largest, 0};
		for (int p = 1; p < count; p++)
			sum.largest = fmax(sum.largest, part[p * apart].largest);
		for (int p = 0; p < count; p++)
			sum.sum += part[p * apart].sum *
					   sum.fading(sum.largest, part[p * apart].largest, scale.exponent);
		return sum;
	});
#pragma unroll
	for (int v = 0; v < V; v++)
		all[v].sum = LOG ? softmax_log(all[v].sum) : softmax_inverse(all[v].sum);
#pragma unroll 1
	for (Column step = here ? SHAPE::steps : 0; step-- > 0;) {
		if constexpr (SHAPE::steps > 1)
			words.fetch(step, from, apart);
		softmax_strided_store<SHAPE, LOG>(words, step, scale, all, y, y_step);
	}
}

/* The same of the backward: from[0] is y, from[1] is dy. */
template <class SHAPE, bool LOG, typename T, typename Compute>
DEVICE void softmax_backward_strided_rows(const T *const (&from)[2], const i64 (&apart)[2], T *dx,
										  i64 dx_step, Compute scale, bool here)
{
	typedef typename SHAPE::Column Column;
	constexpr int V = SHAPE::length;
	StridedWords<SHAPE, 2> words;
	SoftmaxExact<Compute> exact[V] = {};
	Compute all[V], y[V], dy[V];

#pragma unroll 1
	for (Column step = 0; step < (here ? SHAPE::steps : 0); step++) {
		Compute more[V] = {};
		words.fetch(step, from, apart);
#pragma unroll
		for (int i = 0; i < SHAPE::held; i++) {
			if (!SHAPE::has(step, i))
				continue;
			words.get(i, 0, y);
			words.get(i, 1, dy);
#pragma unroll
			for (int v = 0; v < V; v++)
				more[v] = LOG ? more[v] + dy[v] : fma(y[v], dy[v], more[v]);
		}
#pragma unroll
		for (int v = 0; v < V; v++)
			exact[v].add(more[v]);
	}
#pragma unroll
	for (int v = 0; v < V; v++)
		all[v] = exact[v].sum;
	strided_reduce<SHAPE>(all, [&](const Compute *part, int count, int apart) {
		Compute sum = part[0];
		for (int p = 1; p < count; p++)
			sum += part[p * apart];
		return sum;
	});
#pragma unroll 1
	for (Column step = here ? SHAPE::steps : 0; step-- > 0;) {
		if constexpr (SHAPE::steps > 1)
			words.fetch(step, from, apart);
#pragma unroll
		for (int i = 0; i < SHAPE::held; i++) {
			if (!SHAPE::has(step, i))
				continue;
			words.get(i, 0, y);
			words.get(i, 1, dy);
#pragma unroll
			for (int v = 0; v < V; v++)
				y[v] = softmax_derivative<LOG>(y[v], dy[v], all[v], scale);
			strided_store<SHAPE>(dx, dx_step, SHAPE::column(step, i), y);
		}
	}
}
