/*
 * softmax.cuh: y = exp(scale * x - m) / sum of the same over a row, m the row's largest, and
 * its logarithm.
 *
 *   softmax_rows      a group of threads holds each row
 *   softmax_cluster   a cluster of blocks holds each row
 *
 * One pass finds the largest and the sum together: each thread takes its own largest first, and
 * merging two partial sums scales the one with the smaller largest down (Milakov and Gimelshein,
 * "Online normalizer calculation for softmax", 2018).  exp is exp2 with log2(e) folded into the
 * factor of x.
 */
#pragma once
#include "common/group.cuh"
#include "common/index.cuh"
#include "common/row.cuh"

#define SOFTMAX_LOG2E 1.4426950408889634
#define SOFTMAX_LN2 0.6931471805599453

DEVICE float softmax_exp2(float x)
{
#if KILN_CPU
	return exp2f(x);
#else
	float y;
	asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}
DEVICE double softmax_exp2(double x)
{
	return exp2(x);
}
DEVICE float softmax_log2(float x)
{
	return log2f(x);
}
DEVICE double softmax_log2(double x)
{
	return log2(x);
}

template <typename Compute>
struct SoftmaxInfinity;
template <>
struct SoftmaxInfinity<float> {
	static DEVICE float negative()
	{
		return __uint_as_float(0xff800000u);
	}
};
template <>
struct SoftmaxInfinity<double> {
	static DEVICE double negative()
	{
		return __longlong_as_double(static_cast<i64>(0xfff0000000000000ull));
	}
};

/* The largest of some exponents (of 2), and the sum of 2^(exponent - largest). */
template <typename Compute>
struct SoftmaxSum {
	Compute largest, sum;

	static DEVICE SoftmaxSum none()
	{
		return {SoftmaxInfinity<Compute>::negative(), 0};
	}
	/* A NaN among the exponents is in the sum, for fmax passes it over. */
	DEVICE void merge(const SoftmaxSum &other)
	{
		const Compute all = fmax(largest, other.largest);
		sum = sum * scale_to(all, largest) + other.sum * scale_to(all, other.largest);
		largest = all;
	}

  private:
	static DEVICE Compute scale_to(Compute all, Compute mine)
	{
		/* -inf beside -inf: nothing to scale */
		return mine == all ? Compute(1) : softmax_exp2(mine - all);
	}
};

template <typename T, i64 COLUMNS, int V, int NV, int SLOTS, int SIZE, int ROWS, int CLUSTER,
		  bool SKEWED, bool LOG, class DIMS, class STRIDES, typename Offset>
DEVICE void softmax_body(const T *x, T *y, typename element<T>::compute factor, i64 rows)
{
	typedef typename element<T>::compute Compute;
	typedef Group<SIZE, ROWS, CLUSTER> group;
	typedef Row<T, COLUMNS, V, NV, SIZE, SKEWED, CLUSTER> row_type;
	DYN_SHARED(b128, slots);
	const i64 number = static_cast<i64>(group::block()) * ROWS + group::row();
	const bool here = ROWS == 1 || number < rows;

	group::begin();
	x += here ? index_offset<Offset>(static_cast<Offset>(number), DIMS{}, STRIDES{}) : 0;
	y += here ? static_cast<Offset>(number) * static_cast<Offset>(COLUMNS) : 0;
	const row_type row(x, group::thread(), group::slice());
	RowWords<row_type, 1, SLOTS, group::threads> held(slots);
	const T *const from[1] = {x};
	held.fetch(row, from);
	held.arrive();

	SoftmaxSum<Compute> all = SoftmaxSum<Compute>::none();
	held.each(row, [&](int n, const Compute(&value)[1][V]) {
#pragma unroll
		for (int j = 0; j < V; j++)
			if (row.live(n, j))
				all.largest = fmax(all.largest, value[0][j] * factor);
	});
	/* With nothing but -inf there is no difference to take; the sum stays 0. */
	const Compute least = SoftmaxInfinity<Compute>::negative();
	const Compute mine = all.largest == least ? Compute(0) : all.largest;
	held.each(row, [&](int n, const Compute(&value)[1][V]) {
#pragma unroll
		for (int j = 0; j < V; j++)
			if (row.live(n, j))
				all.sum += softmax_exp2(fma(value[0][j], factor, -mine));
	});
	all = group::template reduce<0>(all);
	const Compute scale = LOG ? softmax_log2(all.sum) : Compute(1) / all.sum;
	if (!here)
		return;
	held.each(row, [&](int n, const Compute(&value)[1][V]) {
		Compute out[V];
#pragma unroll
		for (int j = 0; j < V; j++) {
			const Compute exponent = fma(value[0][j], factor, -all.largest);
			out[j] =
				LOG ? (exponent - scale) * Compute(SOFTMAX_LN2) : softmax_exp2(exponent) * scale;
		}
		row_store(row, n, y, out);
	});
}

template <typename T, i64 COLUMNS, int V, int NV, int SLOTS, int SIZE, int ROWS, bool SKEWED,
		  bool LOG, class DIMS, class STRIDES, typename Offset>
__global__ __launch_bounds__(SIZE *ROWS) void softmax_rows(const T *x, T *y,
														   typename element<T>::compute factor,
														   i64 rows)
{
	softmax_body<T, COLUMNS, V, NV, SLOTS, SIZE, ROWS, 1, SKEWED, LOG, DIMS, STRIDES, Offset>(
		x, y, factor, rows);
}

template <typename T, i64 COLUMNS, int V, int NV, int SLOTS, int SIZE, int CLUSTER, bool SKEWED,
		  bool LOG, class DIMS, class STRIDES, typename Offset>
__global__ __launch_bounds__(SIZE)
	CLUSTER_OF(CLUSTER) void softmax_cluster(const T *x, T *y, typename element<T>::compute factor,
											 i64 rows)
{
	softmax_body<T, COLUMNS, V, NV, SLOTS, SIZE, 1, CLUSTER, SKEWED, LOG, DIMS, STRIDES, Offset>(
		x, y, factor, rows);
}
