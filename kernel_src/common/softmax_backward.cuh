/*
 * softmax_backward.cuh: dx = scale * y * (dy - sum(dy * y)), and dx = scale * (dy - exp(y) * sum(dy))
 * for the logarithm, of rows that threads hold.  What the mask leaves out is 0.
 */
#pragma once
#include "common/row.cuh"
#include "common/softmax.cuh"

/* One row of y, dy and dx; step[i]: from column to column of each. */
template <class SHAPE, bool LOG, class MASK>
DEVICE void softmax_backward_row(const typename SHAPE::Element *const (&from)[2],
								 const i64 (&step)[2], typename SHAPE::Element *dx, i64 dx_step,
								 typename SHAPE::Compute scale, const MASK &mask, bool here)
{
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::template words<2> Words;
	constexpr int V = Row::length;
	typename MASK::template Held<V> marks[Row::held];
	DYN_SHARED(b128, slots);

	const Row row(from[0], SHAPE::group::thread(), SHAPE::group::slice());
	const auto part = softmax_part(row, mask);
	Words words(slots);
	words.fetch(part, from, step);
#pragma unroll
	for (int n = 0; n < Row::held; n++)
		if (MASK::partial && row.has(n))
			mask.fetch(marks[n], row.column(n));
	words.arrive();

	SoftmaxTotal<Compute> all = SoftmaxTotal<Compute>::none();
	words.each(part, [&](int n, Compute(&value)[2][V]) {
#pragma unroll
		for (int j = 0; j < V; j++)
			if (row.live(n, j) && mask.live(marks[n], row.column(n), j))
				all.sum = LOG ? all.sum + value[1][j] : fma(value[0][j], value[1][j], all.sum);
	});
	all = SHAPE::group::template reduce<0>(all);
	if (!here)
		return;
	words.each(row, [&](int n, Compute(&value)[2][V]) {
		Compute out[V];
#pragma unroll
		for (int j = 0; j < V; j++) {
			out[j] = softmax_derivative<LOG>(value[0][j], value[1][j], all.sum, scale);
			if (!mask.live(marks[n], row.column(n), j))
				out[j] = 0;
		}
		row_store(row, n, dx, out, dx_step);
	});
}
