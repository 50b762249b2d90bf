/*
 * softmax_any.cuh: softmax and its backward of rows of any length (row_any.cuh), with or without a
 * mask.  Largest and sum are found together, as in softmax_stream.cuh; elements stay as they came
 * and are widened whenever they are needed.
 */
#pragma once
#include "common/row_any.cuh"
#include "common/softmax_vector.cuh"

template <class ROW, bool LOG, class MASK>
struct SoftmaxAny : SoftmaxVectors<ROW, LOG, MASK> {
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	typedef SoftmaxVectors<ROW, LOG, MASK> Vectors;
	typedef typename Vectors::Marks Marks;
	static constexpr int V = ROW::length, count = ROW::count;
	using Vectors::mask;
	using Vectors::row;
	using Vectors::scale;

	u32 word[count][ROW::words];
	Marks marks[count];

	using Vectors::Vectors;

	DEVICE void fetch(i64 step, const T *x, i64 apart)
	{
#pragma unroll
		for (int u = 0; u < count; u++)
			if (this->reads(step * count + u))
				vec_load<ROW::bytes>(row_place<V>(x, row.column(step * count + u), apart), word[u]);
#pragma unroll
		for (int u = 0; u < count; u++)
			if (MASK::partial && row.has(step * count + u))
				mask.fetch(marks[u], row.column(step * count + u));
	}

	/* A step joins what came before. */
	DEVICE void join(i64 step, Compute &largest, SoftmaxExact<Compute> &sum)
	{
		Compute found = largest, more = 0;

#pragma unroll
		for (int u = 0; u < count; u++) {
			Compute value[V];
			if (!this->reads(step * count + u))
				continue;
			this->terms(marks[u], step * count + u, word[u], value);
			this->raise(marks[u], step * count + u, value, found);
		}
		const Compute finite = MASK::partial ? fmax(found, Vectors::Limits::lowest()) : found;
#pragma unroll
		for (int u = 0; u < count; u++) {
			Compute value[V];
			if (!this->reads(step * count + u))
				continue;
			this->terms(marks[u], step * count + u, word[u], value);
			this->add(finite, value, more);
		}
		sum.scale(SoftmaxSum<Compute>::fading(found, largest, scale.exponent));
		sum.add(more);
		largest = found;
	}

	DEVICE void store(i64 step, T *y, i64 apart, Compute largest, Compute rest, Compute dead)
	{
#pragma unroll
		for (int u = 0; u < count; u++) {
			const i64 n = step * count + u;
			Compute value[V];
			if (!row.has(n))
				continue;
			this->terms(marks[u], n, word[u], value);
			this->template finish<false>(largest, rest, value);
			if constexpr (MASK::partial)
				this->bury(marks[u], n, dead, value);
			row_store(row, n, y, value, apart);
		}
	}
};

/* One row: x and y are where it begins, columns x_step and y_step apart; here: it is there, else x
 * is one to read for nothing.  All threads of the block come. */
template <class ROW, bool LOG, class MASK>
DEVICE void softmax_any_row(const GroupAny &group, const typename ROW::Element *x, i64 x_step,
							typename ROW::Element *y, i64 y_step, i64 columns,
							const SoftmaxScale<typename ROW::Compute> &scale, const MASK &mask,
							bool here)
{
	typedef typename ROW::Compute Compute;
	SoftmaxAny<ROW, LOG, MASK> at(ROW(x, columns, group), scale, mask);
	const i64 end = mask.limit() < columns ? mask.limit() : columns;
	SoftmaxExact<Compute> sum = {0, 0};
	SoftmaxSum<Compute> all = {at.nothing(), 0};
	i64 step = 0;

#pragma unroll 1
	do { /* once at least, for the marks of the first step */
		at.fetch(step, x, x_step);
		at.join(step, all.largest, sum);
	} while (at.row.step(++step) < end);
	all.sum = sum.sum;
	all = group.reduce(all, scale.exponent);
	if (!here)
		return;
	const Compute rest = at.rest(all), dead = at.dead(all);
	/* Goes from the end to the beginning, so that the last elements read are still near. */
	const i64 held = step - 1;
#pragma unroll 1
	for (at.store(held, y, y_step, all.largest, rest, dead); step-- > 1;) {
		at.fetch(step - 1, x, x_step);
		at.store(step - 1, y, y_step, all.largest, rest, dead);
	}
#pragma unroll 1
	for (step = held + 1; at.row.step(step) < columns; step++) { /* behind the mask's end */
		at.fetch(step, x, x_step);
		at.store(step, y, y_step, all.largest, rest, dead);
	}
}

/* A step of the backward holds y and dy. */
template <class ROW, class MASK>
struct SoftmaxBackwardAny {
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	static constexpr int V = ROW::length, count = ROW::count;

	const ROW row;
	const MASK mask;
	u32 word[count][2][ROW::words];
	typename MASK::template Held<V> marks[count];

	DEVICE void fetch(i64 step, const T *const (&from)[2], const i64 (&apart)[2])
	{
#pragma unroll
		for (int u = 0; u < count; u++) {
			const i64 n = step * count + u;
			if (!row.has(n))
				continue;
			mask.fetch(marks[u], row.column(n));
			if (row.column(n) >= mask.limit())
				continue;
#pragma unroll
			for (int s = 0; s < 2; s++)
				vec_load<ROW::bytes>(row_place<V>(from[s], row.column(n), apart[s]), word[u][s]);
		}
	}
	DEVICE bool live(i64 n, int u, int j) const
	{
		return row.live(n, j) & mask.live(marks[u], row.column(n), j);
	}

	template <bool LOG>
	DEVICE Compute sum(i64 step) const
	{
		Compute more = 0;
#pragma unroll
		for (int u = 0; u < count; u++) {
			const i64 n = step * count + u;
			Compute value[2][V];
			if (!row.has(n) || row.column(n) >= mask.limit())
				continue;
			element_unpack<T>(word[u][0], value[0]);
			element_unpack<T>(word[u][1], value[1]);
#pragma unroll
			for (int j = 0; j < V; j++) {
				const Compute all = LOG ? more + value[1][j] : fma(value[0][j], value[1][j], more);
				more = live(n, u, j) ? all : more;
			}
		}
		return more;
	}

	template <bool LOG>
	DEVICE void store(i64 step, T *dx, i64 apart, Compute sum, Compute scale) const
	{
#pragma unroll
		for (int u = 0; u < count; u++) {
			const i64 n = step * count + u;
			Compute value[2][V], out[V];
			if (!row.has(n))
				continue;
			element_unpack<T>(word[u][0], value[0]);
			element_unpack<T>(word[u][1], value[1]);
#pragma unroll
			for (int j = 0; j < V; j++) {
				out[j] = softmax_derivative<LOG>(value[0][j], value[1][j], sum, scale);
				out[j] = mask.live(marks[u], row.column(n), j) ? out[j] : Compute(0);
			}
			row_store(row, n, dx, out, apart);
		}
	}
};

template <class ROW, bool LOG, class MASK>
DEVICE void
softmax_backward_any_row(const GroupAny &group, const typename ROW::Element *const (&from)[2],
						 const i64 (&apart)[2], typename ROW::Element *dx, i64 dx_step, i64 columns,
						 typename ROW::Compute scale, const MASK &mask, bool here)
{
	typedef typename ROW::Compute Compute;
	SoftmaxBackwardAny<ROW, MASK> at{ROW(from[0], columns, group), mask};
	SoftmaxExact<Compute> sum = {0, 0};
	i64 step = 0;

#pragma unroll 1
	do {
		at.fetch(step, from, apart);
		sum.add(at.template sum<LOG>(step));
	} while (at.row.step(++step) < columns);
	SoftmaxTotal<Compute> all = {sum.sum};
	all = group.reduce(all);
	if (!here)
		return;
#pragma unroll 1
	for (at.template store<LOG>(step - 1, dx, dx_step, all.sum, scale); step-- > 1;) {
		at.fetch(step - 1, from, apart);
		at.template store<LOG>(step - 1, dx, dx_step, all.sum, scale);
	}
}
