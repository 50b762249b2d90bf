/*
 * norm_operands.cuh: what layer_norm and rms_norm read and write beside x, what of it is there, and
 * where it lies.
 */
#pragma once
#include "common/element.cuh"
#include "common/index.cuh"
#include "common/norm.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* Makes the compiler believe that this word has changed: else it keeps, in registers, the numbers
 * that it made of the word. */
DEVICE void norm_hide(u32 &word)
{
#if !KILN_CPU
	asm volatile("" : "+r"(word));
#endif
}
/* Does so for the words of two rows. */
template <int N, int WORDS>
DEVICE void norm_hide(u32 (&x)[N][WORDS], u32 (&dy)[N][WORDS])
{
#pragma unroll
	for (int n = 0; n < N; n++) {
#pragma unroll
		for (int w = 0; w < WORDS; w++) {
			norm_hide(x[n][w]);
			norm_hide(dy[n][w]);
		}
	}
}

enum {
	NORM_RMS = 1,      /* no mean is taken off */
	NORM_RESIDUAL = 2, /* x + residual is normalized */
	NORM_MEAN = 4,     /* the mean is written */
	NORM_RSTD = 8,     /* 1 / deviation is written */
	NORM_SUM = 16      /* x + residual is written */
};

/*
 * The element types of gamma and beta (void: left out), how many bytes of them move at once (0:
 * they come one by one, for rows are skewed), and which of the above hold.
 */
template <class GAMMA, class BETA, int BYTES, int FLAGS>
struct NormWith {
	typedef GAMMA Gamma;
	typedef BETA Beta;
	static constexpr int bytes = BYTES;
	static constexpr bool rms = (FLAGS & NORM_RMS) != 0;
	static constexpr bool residual = (FLAGS & NORM_RESIDUAL) != 0;
	static constexpr bool mean = (FLAGS & NORM_MEAN) != 0;
	static constexpr bool rstd = (FLAGS & NORM_RSTD) != 0;
	static constexpr bool sum = (FLAGS & NORM_SUM) != 0;
	static constexpr int inputs = residual ? 2 : 1; /* that s is made of */
};

/*
 * Places elements of x and residual.  Rows are numbered by ROWS, columns by COLUMNS: the sizes of
 * all their dimensions but the slowest.  The other lists are strides.  OFFSET: of any operand.
 */
template <class ROWS, class X_ROWS, class RESIDUAL_ROWS, class COLUMNS, class X_COLUMNS,
		  class RESIDUAL_COLUMNS, typename OFFSET>
struct NormPlace {
	typedef OFFSET Offset;
	template <int INPUT>
	static DEVICE Offset row(Offset number)
	{
		if constexpr (INPUT == 0)
			return index_offset<Offset>(number, ROWS{}, X_ROWS{});
		else
			return index_offset<Offset>(number, ROWS{}, RESIDUAL_ROWS{});
	}
	template <int INPUT>
	static DEVICE Offset column(Offset number)
	{
		if constexpr (INPUT == 0)
			return index_offset<Offset>(number, COLUMNS{}, X_COLUMNS{});
		else
			return index_offset<Offset>(number, COLUMNS{}, RESIDUAL_COLUMNS{});
	}
};

template <class WITH, typename T>
struct NormOperands {
	typedef typename element<T>::compute Compute;
	const T *x;
	const typename WITH::Gamma *gamma;
	const typename WITH::Beta *beta;
	const T *residual;
	T *y;
	Compute *mean, *rstd;
	T *sum;
	Compute eps;
	i64 rows;
};

/* Element columns first .. first + V - 1 of gamma or beta, BYTES at a time at most; without them
 * all are ABSENT. */
template <int BYTES, typename G, typename Column, typename Compute, int V>
DEVICE void norm_load(const G *start, Column first, Compute (&out)[V], Compute absent)
{
	if constexpr (norm_given<G>) {
		constexpr int es = static_cast<int>(sizeof(G)), fit = BYTES < es ? 1 : BYTES / es;
		constexpr int width = fit < V ? fit : V;
		if constexpr (width * es >= 4) {
			u32 words[V * es / 4];
#pragma unroll
			for (int v = 0; v < V; v += width)
				vec_load<width * es>(start + first + v, words + v * es / 4);
			element_unpack<G>(words, out);
		} else {
#pragma unroll
			for (int v = 0; v < V; v++)
				out[v] = element_load<Compute>(start + first + v);
		}
	} else {
#pragma unroll
		for (int v = 0; v < V; v++)
			out[v] = absent;
	}
}

template <typename G, typename Column, typename Compute>
DEVICE Compute norm_load_one(const G *start, Column column, Compute absent)
{
	if constexpr (norm_given<G>)
		return element_load<Compute>(start + column);
	else
		return absent;
}

template <typename G, typename Column>
DEVICE const G *norm_from(const G *start, Column column)
{
	if constexpr (norm_given<G>)
		return start + column;
	else
		return start;
}

/* gamma and beta of vector n of a row; of what sticks out of the row anything at all. */
template <class WITH, class ROW, typename Number, typename T, typename Compute, int V>
DEVICE void norm_affine(const NormOperands<WITH, T> &at, const ROW &row, Number n,
						Compute (&gamma)[V], Compute (&beta)[V])
{
	const Number column = row.column(n);

	if constexpr (WITH::bytes > 0) {
		/* All places are counted from vector 0: one address serves all. */
		norm_load<WITH::bytes>(norm_from(at.gamma, row.first), column - row.first, gamma,
							   Compute(1));
		norm_load<WITH::bytes>(norm_from(at.beta, row.first), column - row.first, beta, Compute(0));
	} else {
#pragma unroll
		for (int j = 0; j < V; j++) {
			const Number here = row.live(n, j) ? column + j : 0;
			gamma[j] = norm_load_one(at.gamma, here, Compute(1));
			beta[j] = norm_load_one(at.beta, here, Compute(0));
		}
	}
}

/* y of an element that is `off` the pivot. */
template <class WITH, typename Compute>
DEVICE Compute norm_apply(const NormRow<Compute> &answer, Compute off, Compute gamma, Compute beta)
{
	const Compute normal = WITH::rms ? off * answer.rstd : fma(off, answer.rstd, answer.shift);
	if constexpr (!norm_given<typename WITH::Beta>)
		return norm_given<typename WITH::Gamma> ? normal * gamma : normal;
	else
		return norm_given<typename WITH::Gamma> ? fma(normal, gamma, beta) : normal + beta;
}

template <class WITH, typename T, typename Compute>
DEVICE void norm_store_statistics(const NormOperands<WITH, T> &at, i64 row,
								  const NormRow<Compute> &answer)
{
	if constexpr (WITH::mean)
		at.mean[row] = answer.mean;
	if constexpr (WITH::rstd)
		at.rstd[row] = answer.rstd;
}
