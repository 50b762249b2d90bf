/*
 * softmax_backward_stream.cuh: the backward of softmax, of rows that are read twice: by a block,
 * first for the sum, then from the end to the beginning.
 */
#pragma once
#include "common/row_stream.cuh"
#include "common/softmax.cuh"

template <class ROW, class MASK, int STREAMS>
struct SoftmaxStep {
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	typedef typename ROW::Column Column;
	static constexpr int V = ROW::length;
	typedef typename MASK::template Held<V> Marks;

	const ROW row;
	const MASK mask;
	const decltype(softmax_part(row, mask)) part;
	RowStep<ROW, STREAMS> words;
	Marks marks[ROW::count];

	DEVICE SoftmaxStep(const T *start, const MASK &mask)
		: row(start), mask(mask), part(softmax_part(row, mask))
	{
	}

	DEVICE void fetch(Column step, const T *const (&from)[STREAMS], const i64 (&apart)[STREAMS])
	{
		words.fetch(part, step, from, apart);
#pragma unroll
		for (int u = 0; u < ROW::count; u++) {
			const Column n = step * ROW::count + u;
			if (MASK::partial && row.has(n))
				mask.fetch(marks[u], row.column(n));
		}
	}

	DEVICE bool live(Column n, int u, int j) const
	{
		return row.live(n, j) & mask.live(marks[u], row.column(n), j);
	}
};

/* One row that is read twice, by a block. */
template <class ROW, bool LOG, class MASK>
DEVICE void softmax_backward_stream_row(const typename ROW::Element *const (&from)[2],
										const i64 (&apart)[2], typename ROW::Element *dx,
										i64 dx_step, typename ROW::Compute scale, const MASK &mask)
{
	typedef typename ROW::Compute Compute;
	typedef typename ROW::Column Column;
	constexpr int V = ROW::length;
	SoftmaxStep<ROW, MASK, 2> at(from[0], mask);
	SoftmaxExact<Compute> sum = {0, 0};

#pragma unroll 1
	for (Column step = 0; step < ROW::steps(mask.limit()); step++) {
		Compute more = 0;
		at.fetch(step, from, apart);
		at.words.each(at.part, step, [&](Column n, int u, Compute(&value)[2][V]) {
#pragma unroll
			for (int j = 0; j < V; j++) {
				const Compute all = LOG ? more + value[1][j] : fma(value[0][j], value[1][j], more);
				more = at.live(n, u, j) ? all : more;
			}
		});
		sum.add(more);
	}
	SoftmaxTotal<Compute> all = {sum.sum};
	all = ROW::group::template reduce<0>(all);
#pragma unroll 1
	for (Column step = ROW::steps(); step-- > 0;) {
		at.fetch(step, from, apart);
		at.words.each(at.row, step, [&](Column n, int u, Compute(&value)[2][V]) {
			Compute out[V];
#pragma unroll
			for (int j = 0; j < V; j++) {
				out[j] = softmax_derivative<LOG>(value[0][j], value[1][j], all.sum, scale);
				out[j] = mask.live(at.marks[u], at.row.column(n), j) ? out[j] : Compute(0);
			}
			row_store(at.row, n, dx, out, dx_step);
		});
	}
}
