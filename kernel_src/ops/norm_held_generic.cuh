/*
 * norm_held_generic.cuh: layer_norm and rms_norm (norm.cuh) of rows that threads hold, for sizes
 * and strides that are known when the kernel is launched.  Columns of x are 1 apart; gamma and beta
 * are of its type, and 0 where they are left out, as are mean and rstd.  There is no residual and
 * no sum.
 */
#pragma once
#include "common/norm_rows.cuh"
#include "common/row_any.cuh"
#include "common/row_held.cuh"

/* Elements that this thread's warp has. */
template <int WARPS, typename T, int V, int NV, int SIZE, bool SKEWED>
DEVICE typename element<T>::compute norm_count(const RowHeld<T, V, NV, SIZE, SKEWED> &row)
{
	int count = 0;
	if constexpr (WARPS == 1) {
		count = row.columns;
	} else {
#pragma unroll
		for (int n = 0; n < NV; n++) {
			const int begin = row.column(n) - static_cast<int>(threadIdx.x % 32) * V;
			const int low = begin > 0 ? begin : 0;
			const int high = begin + 32 * V < row.columns ? begin + 32 * V : row.columns;
			count += high > low ? high - low : 0;
		}
	}
	return static_cast<typename element<T>::compute>(count);
}

/* The words of gamma or beta, whose vectors are aligned, for vector n of a row.  Elements beyond
 * the row are anything at all. */
template <class ROW, typename T>
DEVICE void norm_held_window(const T *start, const ROW &row, int n, u32 (&words)[ROW::words])
{
	constexpr int V = ROW::length;
	const int column = row.column(n);

	if constexpr (ROW::skewed) {
		const int beyond = column & (V - 1), first = column - beyond, last = row.columns - 1;
		const int second = first + V <= last ? first + V : last & ~(V - 1);
		u32 pair[2 * ROW::words];
		vec_load<ROW::bytes>(start + (first > 0 ? first : 0), pair);
		vec_load<ROW::bytes>(start + second, pair + ROW::words);
		vec_window<static_cast<int>(sizeof(T)), ROW::bytes>(
			pair, beyond * static_cast<int>(sizeof(T)), words);
	} else {
		vec_load<ROW::bytes>(start + column, words);
	}
}

/* gamma or beta of vector n; `absent` without it. */
template <class ROW, typename T, int V, typename Compute>
DEVICE void norm_held_affine(const T *start, const ROW &row, int n, Compute absent,
							 Compute (&out)[V])
{
#pragma unroll
	for (int j = 0; j < V; j++)
		out[j] = absent;
	if (!start)
		return;
	if (vec_beyond<16>(start) == 0) {
		u32 words[ROW::words];
		norm_held_window(start, row, n, words);
		element_unpack<T>(words, out);
	} else {
#pragma unroll
		for (int j = 0; j < V; j++)
			out[j] = element_load<Compute>(start + (row.live(n, j) ? row.column(n) + j : 0));
	}
}

/* As HELD_BOUNDS; the windows of a short row of halves take more than 64 registers, too, and five
 * vectors of halves more than 96. */
template <class SHAPE>
constexpr int norm_held_threads = SHAPE::row::held *SHAPE::row::length > 32 ? 512
								  : SHAPE::row::held *SHAPE::row::length > 16 ||
										  (SHAPE::row::skewed && SHAPE::threads == 128)
									  ? 640
									  : 1024;
template <class SHAPE>
constexpr int norm_held_blocks =
	SHAPE::threads < norm_held_threads<SHAPE> ? norm_held_threads<SHAPE> / SHAPE::threads : 1;

template <class SHAPE, bool RMS, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ __launch_bounds__(SHAPE::threads, norm_held_blocks<SHAPE>) void norm_held_generic(
	const T *__restrict__ x, const T *__restrict__ gamma, const T *__restrict__ beta, const T *,
	T *__restrict__ y, Compute *__restrict__ mean, Compute *__restrict__ rstd, T *, Compute eps,
	i64 rows, i64 columns, SPACE_SIZES(u64), SPACE_STRIDES(of_x))
{
	typedef NormWith<void, void, 0, RMS ? NORM_RMS : 0> With;
	typedef NormPlace<List<>, List<1>, List<1>, List<>, List<1>, List<1>, i64> Place;
	typedef typename SHAPE::row Row;
	constexpr int V = Row::length;
	const Space<1, u64> space = {SPACE_SIZES_MADE(u64), {SPACE_STRIDES_MADE(of_x)}};

	row_each<SHAPE, true, i64>(rows, [&](i64 number, bool here) {
		i64 at[1];
		space.at(static_cast<u64>(number), at);
		const Row row(x + at[0], columns, SHAPE::group::thread());
		NormHeld<SHAPE, With, Place, 1, 40> held[1];
		held[0].template fetch<0>(row, x + at[0]);
		held[0].widen();
		norm_measure<SHAPE, With>(held, row, eps);
		if (!here)
			return;
#pragma unroll
		for (int n = 0; n < Row::held; n++) {
			Compute scale[V], more[V], out[V];
			if (!row.has(n))
				continue;
			norm_held_affine(gamma, row, n, Compute(1), scale);
			norm_held_affine(beta, row, n, Compute(0), more);
			held[0].get(n, out);
#pragma unroll
			for (int j = 0; j < V; j++) {
				const Compute normal = RMS ? out[j] * held[0].answer.rstd
										   : fma(out[j], held[0].answer.rstd, held[0].answer.shift);
				out[j] = fma(normal, scale[j], more[j]);
			}
			norm_store(row, n, y + number * columns + row.first, out);
		}
		if (SHAPE::group::thread() == 0) {
			if (mean)
				mean[number] = held[0].answer.mean;
			if (rstd)
				rstd[number] = held[0].answer.rstd;
		}
	});
}
