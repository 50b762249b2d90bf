/*
 * softmax_staged.cuh: softmax, log_softmax and their backward of rows that come and go by way of
 * shared memory (row_staged.cuh).
 */
#pragma once
#include "common/index.cuh"
#include "common/row_staged.cuh"
#include "common/softmax_backward.cuh"
#include "common/softmax_rows.cuh"

template <class SHAPE, bool LOG, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void softmax_staged(const T *x, T *y, Compute before,
															 Compute exponent, Compute after,
															 i64 rows)
{
	const T *const from[1] = {x};
	T *const to[1] = {y};

	row_staged_each<SHAPE>(from, to, rows, [&](T *const(&piece)[1], i64, int row, bool here) {
		T *const start = piece[0] + row * static_cast<int>(SHAPE::row::columns);
		softmax_row<SHAPE, LOG>(start, 1, start, 1, SoftmaxScale<Compute>{before, exponent, after},
								SoftmaxAll<Compute>{}, here);
	});
}

/* Rows of x have gaps between them: each comes by itself.  Parameters as in softmax.cuh. */
template <class SHAPE, bool LOG, class DIMS, class X, typename Index,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void softmax_gapped(const T *x, T *y, Compute before,
															 Compute exponent, Compute after,
															 i64 rows)
{
	constexpr int threads = SHAPE::threads / SHAPE::rows;
	constexpr int bytes = static_cast<int>(SHAPE::row::columns * static_cast<i64>(sizeof(T)));
	const T *const from[1] = {nullptr};
	T *const to[1] = {y};

	row_staged_masked<SHAPE, 1, row_aside_bytes(bytes), false>(
		from, to, rows,
		[&](i64 row, u8 *memory) {
			return row_aside<threads, bytes, false>(
				memory, x + index_offset<i64>(static_cast<Index>(row), DIMS{}, X{}),
				SHAPE::group::thread());
		},
		[&](T *const(&piece)[1], i64, int row, bool here, const T *start) {
			softmax_row<SHAPE, LOG>(
				start, 1, piece[0] + row * static_cast<int>(SHAPE::row::columns), 1,
				SoftmaxScale<Compute>{before, exponent, after}, SoftmaxAll<Compute>{}, here);
		});
}

template <class SHAPE, bool LOG, typename T = typename SHAPE::Element,
		  typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void softmax_backward_staged(const T *y, const T *dy,
																	  T *dx, Compute scale,
																	  i64 rows)
{
	const T *const from[2] = {y, dy};
	T *const to[2] = {dx, nullptr};
	const i64 step[2] = {1, 1};

	row_staged_each<SHAPE>(from, to, rows, [&](T *const(&piece)[2], i64, int row, bool here) {
		const int at = row * static_cast<int>(SHAPE::row::columns);
		const T *const start[2] = {piece[0] + at, piece[1] + at};
		softmax_backward_row<SHAPE, LOG>(start, step, piece[0] + at, 1, scale,
										 SoftmaxAll<Compute>{}, here);
	});
}
