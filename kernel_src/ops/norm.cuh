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
 * A row as its threads hold it: x, and with it residual.  Elements in registers are widened once, and
 * later give their place to their distance from a pivot; if they are halves, and too many, they stay
 * halves and are widened whenever they are needed.  Those in slots are always read anew.
 */
template <class SHAPE, class WITH, class PLACE, int TOGETHER>
struct NormHeld {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename PLACE::Offset Offset;
	static constexpr int V = Row::length, words = Row::words, inputs = WITH::inputs;
	static constexpr int kept = Row::held - SHAPE::slots, elements = kept * V;
	static constexpr bool wide = sizeof(T) >= 4 || TOGETHER * elements <= 32;

	u32 word[inputs][kept ? kept * words : 1];
	u8 *slots; /* of this thread */
	Compute s[wide && kept ? elements : 1];
	Compute pivot;
	NormRow<Compute> answer;

	/* Starts to bring in a row of x or residual. */
	template <int INPUT>
	DEVICE void fetch(const Row &row, const T *start)
	{
		if constexpr (SHAPE::slots > 0) {
#pragma unroll
			for (int n = kept; n < Row::held; n++)
				if (row.has(n))
					async_copy16(slot(n, INPUT), start + row.column(n));
		}
#pragma unroll
		for (int n = 0; n < kept; n++)
			if (row.has(n))
				vec_load<Row::bytes>(start + place<INPUT>(row.column(n)), word[INPUT] + n * words);
	}

	DEVICE void widen()
	{
		if constexpr (wide) {
#pragma unroll
			for (int e = 0; e < elements; e++)
				s[e] = raw(e);
		}
	}

	/* The sum of all that the thread has. */
	DEVICE Compute total(const Row &row)
	{
		Compute sum = 0;
		if constexpr (wide) {
#pragma unroll
			for (int e = 0; e < elements; e++)
				sum += live(row, e) ? s[e] : Compute(0);
		}
		each_narrow(row, [&](int n, const Compute(&value)[V]) {
#pragma unroll
			for (int j = 0; j < V; j++)
				sum += row.live(n, j) ? value[j] : Compute(0);
		});
		return sum;
	}

	/* Sums of all distances from the pivot, and of their squares. */
	DEVICE void deviate(const Row &row, Compute &sum, Compute &squares)
	{
		if constexpr (wide) {
#pragma unroll
			for (int e = 0; e < elements; e++) {
				s[e] = live(row, e) ? s[e] - pivot : Compute(0);
				sum += s[e];
				squares = fma(s[e], s[e], squares);
			}
		}
		each_narrow(row, [&](int n, const Compute(&value)[V]) {
#pragma unroll
			for (int j = 0; j < V; j++) {
				const Compute off = row.live(n, j) ? value[j] - pivot : Compute(0);
				sum += off;
				squares = fma(off, off, squares);
			}
		});
	}

	/* The sum of all squares. */
	DEVICE Compute square(const Row &row)
	{
		Compute squares = 0;
		if constexpr (wide) {
#pragma unroll
			for (int e = 0; e < elements; e++)
				squares = live(row, e) ? fma(s[e], s[e], squares) : squares;
		}
		each_narrow(row, [&](int n, const Compute(&value)[V]) {
#pragma unroll
			for (int j = 0; j < V; j++)
				squares = row.live(n, j) ? fma(value[j], value[j], squares) : squares;
		});
		return squares;
	}

	/* Vector n, which is in registers; if wide, what deviate made of it. */
	DEVICE void get(int n, Compute (&out)[V]) const
	{
#pragma unroll
		for (int j = 0; j < V; j++)
			out[j] = wide ? s[wide ? n * V + j : 0] : raw(n * V + j);
	}
	/* Vector n, which is in a slot. */
	DEVICE void get_slot(int n, Compute (&out)[V]) const
	{
		u32 some[words];
		Compute more[V];
		vec_load<Row::bytes>(slot(n, 0), some);
		element_unpack<T>(some, out);
		if constexpr (inputs == 2) {
			vec_load<Row::bytes>(slot(n, 1), some);
			element_unpack<T>(some, more);
#pragma unroll
			for (int j = 0; j < V; j++)
				out[j] += more[j];
		}
	}

  private:
	/* Calls body(n, s) for each vector that was not widened. */
	template <typename Body>
	DEVICE void each_narrow(const Row &row, Body body)
	{
		if constexpr (!wide) {
#pragma unroll
			for (int n = 0; n < kept; n++) {
				Compute value[V];
				get(n, value);
				if (row.has(n))
					body(n, value);
			}
			hide();
		}
		if constexpr (kept < Row::held) {
#pragma unroll 1
			for (int n = kept; n < Row::held; n++) {
				Compute value[V];
				if (!row.has(n))
					continue;
				get_slot(n, value);
				body(n, value);
			}
		}
	}

	/* The compiler is to believe that the words have changed, or it keeps what was made of them. */
	DEVICE void hide()
	{
#if !KILN_CPU
#pragma unroll
		for (int w = 0; w < kept * words; w++) {
#pragma unroll
			for (int i = 0; i < inputs; i++)
				asm volatile("" : "+r"(word[i][w]));
		}
#endif
	}

	static DEVICE bool live(const Row &row, int e)
	{
		return row.has(e / V) && row.live(e / V, e % V);
	}
	template <int INPUT>
	static DEVICE i64 place(int column)
	{
		if constexpr (V > 1)
			return column;
		else
			return static_cast<i64>(PLACE::template column<INPUT>(static_cast<Offset>(column)));
	}
	DEVICE u8 *slot(int n, int input) const
	{
		return slots + ((n - kept) * inputs + input) * (SHAPE::threads * 16);
	}
	/* Element e of those in registers. */
	DEVICE Compute raw(int e) const
	{
		Compute out = element_at<T, Compute>(word[0] + e / V * words, e % V);
		if constexpr (inputs == 2)
			out += element_at<T, Compute>(word[1] + e / V * words, e % V);
		return out;
	}
};

/* TOGETHER rows that the same threads hold. */
template <class SHAPE, class WITH, class PLACE, int TOGETHER>
struct NormRows {
	typedef typename SHAPE::Element T;
	typedef typename SHAPE::Compute Compute;
	typedef typename SHAPE::row Row;
	typedef typename SHAPE::group Group;
	typedef typename PLACE::Offset Offset;
	typedef NormHeld<SHAPE, WITH, PLACE, TOGETHER> Held;
	static constexpr i64 columns = Row::columns;
	static constexpr int V = Row::length, kept = Held::kept;
	static constexpr int size = SHAPE::threads / SHAPE::rows, lanes = size < 32 ? size : 32;
	static constexpr int warps = size / lanes; /* of each block that a row has */

	const NormOperands<WITH, T> &at;
	const i64 first; /* the number of the first row */
	const int there; /* so many of them are rows to write */
	const Row row;
	Held held[TOGETHER];

	DEVICE NormRows(const NormOperands<WITH, T> &at, i64 first, bool here)
		: at(at), first(first), there(count_rows(at.rows - first, here)),
		  row(at.x + PLACE::template row<0>(static_cast<Offset>(first)), Group::thread(),
			  Group::slice())
	{
	}

	DEVICE void fetch(void *slots)
	{
		u8 *const mine = SHAPE::slots ? static_cast<u8 *>(slots) + threadIdx.x * 16 : nullptr;
#pragma unroll
		for (int i = 0; i < TOGETHER; i++) {
			/* The first one of them in the place of one that is not there. */
			const Offset number = static_cast<Offset>(i < there ? first + i : first);
			held[i].slots = mine + i * (SHAPE::slots * WITH::inputs * SHAPE::threads * 16);
			held[i].template fetch<0>(row, at.x + PLACE::template row<0>(number));
			if constexpr (WITH::residual)
				held[i].template fetch<1>(row, at.residual + PLACE::template row<1>(number));
		}
		if constexpr (SHAPE::slots > 0)
			async_wait_all();
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			held[i].widen();
	}

	/* x + residual: before measure, which may leave something else in its place. */
	DEVICE void store_sum() const
	{
#pragma unroll
		for (int i = 0; i < TOGETHER; i++) {
			Compute out[V];
			if (i >= there)
				continue;
#pragma unroll
			for (int n = 0; n < kept; n++) {
				held[i].get(n, out);
				if (row.has(n))
					row_store(row, n, at.sum + start(i), out);
			}
#pragma unroll 1
			for (int n = kept; n < Row::held; n++) {
				if (!row.has(n))
					continue;
				held[i].get_slot(n, out);
				row_store(row, n, at.sum + start(i), out);
			}
		}
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
#pragma unroll
		for (int n = 0; n < kept; n++)
			if (row.has(n))
				store_vector<false>(n);
		if constexpr (kept < Row::held) {
#pragma unroll 1
			for (int n = kept; n < Row::held; n++)
				if (row.has(n))
					store_vector<true>(n);
		}
		if constexpr (WITH::mean || WITH::rstd) {
			const bool mine = Group::thread() == 0 && Group::slice() == 0;
#pragma unroll
			for (int i = 0; i < TOGETHER; i++)
				if (mine && i < there)
					norm_store_statistics(at, first + i, held[i].answer);
		}
	}

  private:
	static DEVICE int count_rows(i64 left, bool here)
	{
		if (TOGETHER == 1 || !here)
			return here;
		return left < TOGETHER ? static_cast<int>(left) : TOGETHER;
	}
	DEVICE Offset start(int i) const
	{
		return static_cast<Offset>(first + i) * static_cast<Offset>(columns);
	}

	template <bool SLOT>
	DEVICE void store_vector(int n) const
	{
		Compute gamma[V], beta[V];

		norm_affine(at, row, n, gamma, beta);
#pragma unroll
		for (int i = 0; i < TOGETHER; i++) {
			Compute out[V];
			if (SLOT)
				held[i].get_slot(n, out);
			else
				held[i].get(n, out);
#pragma unroll
			for (int j = 0; j < V; j++) {
				if (!WITH::rms && (SLOT || !Held::wide))
					out[j] -= held[i].pivot;
				out[j] = norm_apply<WITH>(held[i].answer, out[j], gamma[j], beta[j]);
			}
			if (i == 0 || i < there)
				row_store(row, n, at.y + start(i), out);
		}
	}

	DEVICE void measure_squares()
	{
		NormSums<Compute, TOGETHER> all;
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			all.row[i] = held[i].square(row);
		all = Group::template reduce<0>(all);
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			held[i].answer = norm_row_rms<columns>(all.row[i], at.eps);
	}

	/* Elements of each row that this thread's warp has. */
	DEVICE Compute count() const
	{
		if constexpr (warps * SHAPE::cluster == 1 || Row::full) {
			return Compute(columns / (warps * SHAPE::cluster));
		} else {
			Compute mine[1] = {0};
#pragma unroll 1
			for (int n = 0; n < Row::held; n++) {
#pragma unroll
				for (int j = 0; j < V; j++)
					mine[0] += row.has(n) && row.live(n, j) ? Compute(1) : Compute(0);
			}
			norm_sum<32>(mine);
			return mine[0];
		}
	}

	DEVICE void measure_moments()
	{
		NormParts<Compute, TOGETHER> all = {count(), {}, {}};
		const Compute share = all.count > 0 ? norm_inverse(all.count) : Compute(0);

#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			all.pivot[i] = held[i].total(row);
		norm_sum<lanes>(all.pivot);
#pragma unroll
		for (int i = 0; i < TOGETHER; i++) {
			held[i].pivot = all.pivot[i] *= share;
			held[i].deviate(row, all.sums[i], all.sums[TOGETHER + i]);
		}
		norm_sum<lanes>(all.sums);
		if constexpr (warps > 1)
			norm_collect<warps, Row::full>(Group::template warps_of<0>(all), all);
		if constexpr (SHAPE::cluster > 1)
			norm_collect<SHAPE::cluster, Row::full>(Group::template blocks_of<0>(all), all);
#pragma unroll
		for (int i = 0; i < TOGETHER; i++)
			held[i].answer = norm_row<columns>(all.pivot[i], all.sums[i], all.sums[TOGETHER + i],
											   held[i].pivot, at.eps);
	}
};

template <class SHAPE, class WITH, class PLACE, int TOGETHER, bool LOOP>
DEVICE void norm_held(const NormOperands<WITH, typename SHAPE::Element> &at)
{
	DYN_SHARED(b128, slots);

	row_each<SHAPE, LOOP, i64>((at.rows + TOGETHER - 1) / TOGETHER, [&](i64 group, bool here) {
		NormRows<SHAPE, WITH, PLACE, TOGETHER> rows(at, group * TOGETHER, here);
		rows.fetch(slots);
		if constexpr (WITH::sum)
			rows.store_sum();
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
