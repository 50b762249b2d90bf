/*
 * norm.cuh: layer_norm and rms_norm of rows that threads hold: y = (s - mean) * rstd * gamma + beta
 * over each row of s = x + residual, rstd being 1 / sqrt(variance + eps); for rms_norm the mean is 0.
 *
 *   norm_rows      a group of threads holds each row, or several rows that read gamma and beta once
 *   norm_cluster   a cluster of blocks holds each row, or several
 *
 * s is in the type to compute in, and not rounded; everything else is rounded once.
 */
#pragma once
#include "common/norm_operands.cuh"
#include "common/row.cuh"

/*
 * TOGETHER rows that the same threads hold.  In the words of rows, streams i * inputs and the next
 * are row i of them.
 */
template <class SHAPE, class WITH, class PLACE, int TOGETHER>
struct NormRows {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	typedef typename PLACE::Offset Offset;
	typedef typename SHAPE::template words<TOGETHER * WITH::inputs> Words;
	typedef NormOperands<WITH, T> Operands;
	static constexpr i64 columns = Row::columns;
	static constexpr int V = Row::length, inputs = WITH::inputs, streams = TOGETHER * inputs;
	static constexpr int size = SHAPE::threads / SHAPE::rows, lanes = size < 32 ? size : 32;
	/* Warps that have a part of each row. */
	static constexpr int warps = size / lanes * SHAPE::cluster;

	const Operands &at;
	const i64 first; /* the number of the first row */
	const Row row;
	Words words;
	NormRow<Compute> answer[TOGETHER];

	DEVICE NormRows(const Operands &at, i64 first, void *slots)
		: at(at), first(first), row(at.x + PLACE::template row<0>(static_cast<Offset>(first)),
									Group::thread(), Group::slice()),
		  words(slots)
	{
	}

	DEVICE void fetch()
	{
		const T *start[streams];
#pragma unroll
		for (int i = 0; i < TOGETHER; i++) {
			/* The first one of them in the place of one that is not there. */
			const Offset number = static_cast<Offset>(first + i < at.rows ? first + i : first);
			start[i * inputs] = at.x + PLACE::template row<0>(number);
			if constexpr (WITH::residual)
				start[i * inputs + inputs - 1] = at.residual + PLACE::template row<1>(number);
		}
		if constexpr (V > 1)
			words.fetch(row, start);
		else
			fetch_elements(start);
		words.arrive();
	}

	DEVICE void measure()
	{
		if constexpr (WITH::rms)
			measure_squares();
		else
			measure_moments();
	}

	DEVICE void store() const
	{
		each([&](int n, const Compute(&s)[TOGETHER][V]) {
			Compute gamma[V], beta[V];
			norm_affine(at, row, n, gamma, beta);
#pragma unroll
			for (int i = 0; i < TOGETHER; i++) {
				const Offset start = static_cast<Offset>(first + i) * static_cast<Offset>(columns);
				Compute out[V];
				if (i > 0 && first + i >= at.rows)
					continue;
#pragma unroll
				for (int j = 0; j < V; j++)
					out[j] = fma(answer[i].normal(s[i][j]), gamma[j], beta[j]);
				row_store(row, n, at.y + start, out);
				if constexpr (WITH::sum)
					row_store(row, n, at.sum + start, s[i]);
			}
		});
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			if (Group::thread() == 0 && Group::slice() == 0 && (i == 0 || first + i < at.rows))
				norm_store_statistics(at, first + i, answer[i]);
	}

  private:
	/* Columns that lie apart, or are not aligned to more than an element. */
	DEVICE void fetch_elements(const T *const (&start)[streams])
	{
		constexpr int bytes = Row::bytes;
#pragma unroll
		for (int n = 0; n < Row::held; n++) {
			if (!row.has(n))
				continue;
			const Offset column = static_cast<Offset>(row.column(n));
#pragma unroll
			for (int i = 0; i < streams; i += inputs) {
				vec_load<bytes>(start[i] + PLACE::template column<0>(column), words.word[n][i]);
				if constexpr (WITH::residual)
					vec_load<bytes>(start[i + inputs - 1] + PLACE::template column<1>(column),
									words.word[n][i + inputs - 1]);
			}
		}
	}

	/* Calls body(n, s) for each vector n of which a row has something; s[i] is that of row i. */
	template <typename Body>
	DEVICE void each(Body body) const
	{
		words.each(row, [&](int n, const Compute(&value)[streams][V]) {
			Compute s[TOGETHER][V];
#pragma unroll
			for (int i = 0; i < TOGETHER; i++) {
#pragma unroll
				for (int j = 0; j < V; j++)
					s[i][j] = value[i * inputs][j] +
							  (WITH::residual ? value[i * inputs + inputs - 1][j] : Compute(0));
			}
			body(n, s);
		});
	}

	DEVICE void measure_squares()
	{
		NormSums<Compute, TOGETHER> all = {};
		each([&](int n, const Compute(&s)[TOGETHER][V]) {
#pragma unroll
			for (int j = 0; j < V; j++) {
#pragma unroll
				for (int i = 0; i < TOGETHER; i++)
					if (row.live(n, j))
						all.sum[i] = fma(s[i][j], s[i][j], all.sum[i]);
			}
		});
		all = Group::template reduce<0>(all);
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			answer[i] = norm_row_rms<columns>(all.sum[i], at.eps);
	}

	/* Elements of a row that this thread's warp has. */
	DEVICE Compute count() const
	{
		if constexpr (warps == 1 || Row::full) {
			return Compute(columns / warps);
		} else {
			int mine = 0;
#pragma unroll
			for (int n = 0; n < Row::held; n++) {
#pragma unroll
				for (int j = 0; j < V; j++)
					mine += row.has(n) && row.live(n, j);
			}
			const NormSums<Compute, 1> all = {static_cast<Compute>(mine)};
			return group_butterfly<32>(all).sum[0];
		}
	}

	/* A pivot for each row: the mean of what the warp has but for rounding. */
	DEVICE void pivots(Compute share, Compute (&pivot)[TOGETHER]) const
	{
		NormSums<Compute, TOGETHER> all = {};
		each([&](int n, const Compute(&s)[TOGETHER][V]) {
#pragma unroll
			for (int i = 0; i < TOGETHER; i++) {
				Compute some = 0;
#pragma unroll
				for (int j = 0; j < V; j++)
					some += row.live(n, j) ? s[i][j] : Compute(0);
				all.sum[i] += some;
			}
		});
		all = group_butterfly<lanes>(all);
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			pivot[i] = all.sum[i] * share;
	}

	DEVICE void measure_moments()
	{
		const Compute elements = count();
		Compute pivot[TOGETHER];
		NormSums<Compute, 2 *TOGETHER> sums = {};
		NormParts<Compute, TOGETHER> all;

		pivots(elements > 0 ? norm_inverse(elements) : Compute(0), pivot);
		each([&](int n, const Compute(&s)[TOGETHER][V]) {
#pragma unroll
			for (int i = 0; i < TOGETHER; i++) {
#pragma unroll
				for (int j = 0; j < V; j++) {
					const Compute off = row.live(n, j) ? s[i][j] - pivot[i] : Compute(0);
					sums.sum[2 * i] += off;
					sums.sum[2 * i + 1] = fma(off, off, sums.sum[2 * i + 1]);
				}
			}
		});
		sums = group_butterfly<lanes>(sums);
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			all.row[i] = {elements, pivot[i], sums.sum[2 * i], sums.sum[2 * i + 1]};
		all = Group::template reduce_warps<0>(all);
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			answer[i] = norm_row<columns>(all.row[i], at.eps);
	}
};

template <class SHAPE, class WITH, class PLACE, int TOGETHER, bool LOOP>
DEVICE void norm_held(const NormOperands<WITH, typename SHAPE::Element> &at)
{
	DYN_SHARED(b128, slots);

	row_each<SHAPE, LOOP, i64>((at.rows + TOGETHER - 1) / TOGETHER, [&](i64 group, bool here) {
		NormRows<SHAPE, WITH, PLACE, TOGETHER> rows(at, group * TOGETHER, slots);
		rows.fetch();
		rows.measure();
		if (here)
			rows.store();
	});
}

template <class SHAPE, class WITH, class PLACE, int TOGETHER, bool LOOP,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads) void norm_rows(
	const T *__restrict__ x, const typename WITH::Gamma *__restrict__ gamma,
	const typename WITH::Beta *__restrict__ beta, const T *__restrict__ residual, T *__restrict__ y,
	Compute *__restrict__ mean, Compute *__restrict__ rstd, T *__restrict__ sum, Compute eps,
	i64 rows)
{
	norm_held<SHAPE, WITH, PLACE, TOGETHER, LOOP>(
		{x, gamma, beta, residual, y, mean, rstd, sum, eps, rows});
}

template <class SHAPE, class WITH, class PLACE, int TOGETHER, bool LOOP,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads)
	CLUSTER_OF(SHAPE::cluster) void norm_cluster(const T *__restrict__ x,
												 const typename WITH::Gamma *__restrict__ gamma,
												 const typename WITH::Beta *__restrict__ beta,
												 const T *__restrict__ residual, T *__restrict__ y,
												 Compute *__restrict__ mean,
												 Compute *__restrict__ rstd, T *__restrict__ sum,
												 Compute eps, i64 rows)
{
	norm_held<SHAPE, WITH, PLACE, TOGETHER, LOOP>(
		{x, gamma, beta, residual, y, mean, rstd, sum, eps, rows});
}
