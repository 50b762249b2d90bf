/*
 * softmax_backward.cuh: dx = scale * y * (dy - sum(dy * y)), and for the logarithm
 * dx = scale * (dy - exp(y) * sum(dy)), of rows that threads hold.  Elements that the mask leaves
 * out are 0.
 */
#pragma once
#include "common/row.cuh"
#include "common/softmax.cuh"

/* Calls body(n, values of y and dy, marks) for every vector n that the row has something of. */
template <class ROW, class WORDS, class MASK, class MARKS, typename Body>
DEVICE void softmax_backward_each(const ROW &row, const WORDS &words, const MASK &mask,
								  const MARKS &marks, Body body)
{
	typedef typename ROW::Compute Compute;

#pragma unroll
	for (int n = 0; n < WORDS::kept; n++) {
		Compute value[2][ROW::length];
		if (!row.has(n))
			continue;
#pragma unroll
		for (int s = 0; s < 2; s++)
			element_unpack<typename ROW::Element>(words.word[n][s], value[s]);
		body(n, value, marks[n]);
	}
	words.each_slot(row, [&](int n, Compute(&value)[2][ROW::length]) {
		typename MASK::template Held<ROW::length> mark;
		mask.fetch(mark, row.column(n));
		body(n, value, mark);
	});
}

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
	typedef typename MASK::template Held<V> Marks;
	Marks marks[Words::kept ? Words::kept : 1];
	DYN_SHARED(b128, slots);

	const Row row(from[0], SHAPE::group::thread(), SHAPE::group::slice());
	Words words(slots);
	words.fetch(softmax_part(row, mask), from, step);
	if constexpr (MASK::partial) {
#pragma unroll
		for (int n = 0; n < Words::kept; n++)
			if (row.has(n))
				mask.fetch(marks[n], row.column(0), n * Row::apart, Row::sure(n));
	}
	words.arrive();

	SoftmaxTotal<Compute> all = SoftmaxTotal<Compute>::none();
	softmax_backward_each(
		row, words, mask, marks, [&](int n, const Compute(&value)[2][V], const Marks &mark) {
#pragma unroll
			for (int j = 0; j < V; j++) {
				const bool live = row.live(n, j) & mask.live(mark, row.column(n), j);
				const Compute more =
					LOG ? all.sum + value[1][j] : fma(value[0][j], value[1][j], all.sum);
				all.sum = live ? more : all.sum;
			}
		});
	all = SHAPE::group::template reduce<0>(all);
	if (!here)
		return;
	softmax_backward_each(
		row, words, mask, marks, [&](int n, const Compute(&value)[2][V], const Marks &mark) {
			Compute out[V];
#pragma unroll
			for (int j = 0; j < V; j++) {
				out[j] = softmax_derivative<LOG>(value[0][j], value[1][j], all.sum, scale);
				out[j] = mask.live(mark, row.column(n), j) ? out[j] : Compute(0);
			}
			row_store(row, n, dx, out, dx_step);
		});
}
