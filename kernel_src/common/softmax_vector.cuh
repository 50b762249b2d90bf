/*
 * softmax_vector.cuh: what softmax does with the elements of one vector, wherever they are held: as
 * terms, as powers, as results.
 */
#pragma once
#include "common/softmax.cuh"

/* ROW numbers vectors, says where they are and which of their elements are in the row (row.cuh,
 * row_stream.cuh). */
template <class ROW, bool LOG, class MASK>
struct SoftmaxVectors {
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	typedef SoftmaxNumber<Compute> Limits;
	static constexpr int V = ROW::length;
	typedef typename MASK::template Held<V> Marks;

	const MASK mask;
	const SoftmaxScale<Compute> scale;
	const ROW row;

	DEVICE SoftmaxVectors(const ROW &row, const SoftmaxScale<Compute> &scale, const MASK &mask)
		: mask(mask), scale(scale), row(row)
	{
	}

	/* Is anything of vector n to be read? */
	template <typename Number>
	DEVICE bool reads(Number n) const
	{
		if constexpr (MASK::partial)
			return row.has(n) && row.column(n) < mask.limit();
		else
			return row.has(n);
	}

	/* Returns the largest term before any is looked at. */
	static DEVICE Compute nothing()
	{
		return MASK::partial ? Limits::least() : Limits::lowest();
	}

	/* The terms of vector n; -inf for what takes no part. */
	template <typename Number>
	DEVICE void terms(const Marks &mark, Number n, const u32 *raw, Compute (&out)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			const Compute x = element_at<T, Compute>(raw, j);
			if constexpr (MASK::partial) {
				const Compute term = mask.term(mark, j, x, scale.before);
				out[j] = mask.live(mark, row.column(n), j) ? term : Limits::least();
			} else {
				out[j] = mask.term(mark, j, x, scale.before);
			}
		}
		if constexpr (ROW::skewed) {
			if (!row.inside(n)) {
#pragma unroll
				for (int j = 0; j < V; j++)
					out[j] = row.live(n, j) ? out[j] : Limits::least();
			}
		}
	}

	/* The largest term of vector n joins the largest so far. */
	template <typename Number>
	DEVICE void raise(const Marks &mark, Number n, const Compute (&term)[V], Compute &largest) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			if constexpr (MASK::counts) {
				const Compute finite = fmax(term[j], Limits::lowest());
				const bool live = row.live(n, j) & mask.live(mark, row.column(n), j);
				largest = fmax(largest, live ? finite : term[j]);
			} else {
				largest = fmax(largest, term[j]);
			}
		}
	}

	/* Terms become powers, which join the sum; or do not, where terms are needed again. */
	DEVICE void add(Compute largest, Compute (&x)[V], Compute &sum) const
	{
#pragma unroll
		for (int j = 0; j < V; j++) {
			const Compute power = softmax_exp2_flush((x[j] - largest) * scale.exponent);
			sum += power;
			if constexpr (!LOG)
				x[j] = power;
		}
	}

	/* Powers or terms become results.  rest: the logarithm of the sum, or what powers are
	 * multiplied with. */
	template <bool POWERS>
	DEVICE void finish(Compute largest, Compute rest, Compute (&x)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++)
			if constexpr (POWERS)
				x[j] *= rest;
			else if constexpr (LOG)
				x[j] = fma(x[j] - largest, scale.after, -rest);
			else
				x[j] = softmax_exp2((x[j] - largest) * scale.exponent) * rest;
	}

	/* Gives elements that take no part the value dead. */
	template <typename Number>
	DEVICE void bury(const Marks &mark, Number n, Compute dead, Compute (&x)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++)
			x[j] = mask.live(mark, row.column(n), j) ? x[j] : dead;
	}

	/* Returns the number that finish() takes. */
	DEVICE Compute rest(const SoftmaxSum<Compute> &all) const
	{
		if constexpr (LOG)
			return softmax_log(all.sum);
		else
			return inverse_near(all.sum);
	}
	/* Returns the result of an element that takes no part. */
	DEVICE Compute dead(const SoftmaxSum<Compute> &all) const
	{
		if constexpr (MASK::partial)
			return all.largest == Limits::least() ? mask.empty() : Compute(0);
		else
			return 0;
	}
};
