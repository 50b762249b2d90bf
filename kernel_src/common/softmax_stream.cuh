/*
 * softmax_stream.cuh: softmax of rows that are read twice: by a block, first for the sum, then from
 * the end to the beginning, so that what was read last is still near.
 *
 * The first time each thread keeps a largest and a sum, which is scaled down whenever the largest
 * rises.  Sums of steps are added with what rounding lost before, for there may be many of them.
 */
#pragma once
#include "common/row_stream.cuh"
#include "common/softmax_vector.cuh"

template <class ROW, bool LOG, class MASK>
struct SoftmaxStream : SoftmaxVectors<ROW, LOG, MASK> {
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	typedef typename ROW::Column Column;
	typedef SoftmaxVectors<ROW, LOG, MASK> Vectors;
	typedef typename Vectors::Marks Marks;
	typedef typename Vectors::Limits Limits;
	static constexpr int V = ROW::length, count = ROW::count;
	using Vectors::mask;
	using Vectors::row;
	using Vectors::scale;

	u32 word[count][ROW::words];
	Marks marks[count];
	Compute value[count][V];

	DEVICE SoftmaxStream(const T *x, const SoftmaxScale<Compute> &scale, const MASK &mask)
		: Vectors(ROW(x), scale, mask)
	{
	}

	/* Brings in the terms of a step. */
	DEVICE void fetch(Column step, const T *x, i64 apart)
	{
#pragma unroll
		for (int u = 0; u < count; u++)
			if (this->reads(step * count + u))
				vec_load<ROW::bytes>(row_place<V>(x, row.column(step * count + u), apart), word[u]);
#pragma unroll
		for (int u = 0; u < count; u++) {
			const Column n = step * count + u;
			if (!row.has(n)) {
#pragma unroll
				for (int j = 0; j < V; j++)
					value[u][j] = Limits::least();
				continue;
			}
			if constexpr (MASK::partial)
				mask.fetch(marks[u], row.column(n));
			this->terms(marks[u], n, word[u], value[u]);
		}
	}

	/* A step joins what came before; its terms become powers. */
	DEVICE void join(Column step, Compute &largest, SoftmaxExact<Compute> &sum)
	{
		Compute found = largest, more = 0;

#pragma unroll
		for (int u = 0; u < count; u++)
			if (row.has(step * count + u))
				this->raise(marks[u], step * count + u, value[u], found);
		const Compute finite = MASK::partial ? fmax(found, Limits::lowest()) : found;
#pragma unroll
		for (int u = 0; u < count; u++)
			this->add(finite, value[u], more);
		sum.scale(SoftmaxSum<Compute>::fading(found, largest, scale.exponent));
		sum.add(more);
		largest = found;
	}

	DEVICE void store(Column step, T *y, i64 apart, Compute largest, Compute rest, Compute dead)
	{
#pragma unroll
		for (int u = 0; u < count; u++) {
			const Column n = step * count + u;
			if (!row.has(n))
				continue;
			this->template finish<false>(largest, rest, value[u]);
			if constexpr (MASK::partial)
				this->bury(marks[u], n, dead, value[u]);
			row_store(row, n, y, value[u], apart);
		}
	}
};

/* One row, by a block: as softmax_row. */
template <class ROW, bool LOG, class MASK>
DEVICE void softmax_stream_row(const typename ROW::Element *x, i64 x_step, typename ROW::Element *y,
							   i64 y_step, const SoftmaxScale<typename ROW::Compute> &scale,
							   const MASK &mask)
{
	typedef typename ROW::Compute Compute;
	typedef typename ROW::Column Column;
	SoftmaxStream<ROW, LOG, MASK> at(x, scale, mask);
	SoftmaxExact<Compute> sum = {0, 0};
	SoftmaxSum<Compute> all = {at.nothing(), 0};

#pragma unroll 1
	for (Column step = 0; step < ROW::steps(mask.limit()); step++) {
		at.fetch(step, x, x_step);
		at.join(step, all.largest, sum);
	}
	all.sum = sum.sum;
	all = ROW::group::template reduce<0>(all, scale.exponent);
	const Compute rest = at.rest(all), dead = at.dead(all);
#pragma unroll 1
	for (Column step = ROW::steps(); step-- > 0;) {
		at.fetch(step, x, x_step);
		at.store(step, y, y_step, all.largest, rest, dead);
	}
}
