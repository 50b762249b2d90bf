/*
 * act_mul.cuh: y = act(x) * other, the gate of gated layers, and its backward, which works act(x)
 * and its derivative out again:
 *
 *   dx = dy * other * act'(x)    dother = dy * act(x)
 *
 * Each thread makes one vector of each result (flat.cuh).  The generic kernels take sizes, strides
 * and the activation as arguments.
 */
#pragma once
#include "common/act.cuh"
#include "common/flat.cuh"

/* ---- Vectors: act(x, value, slope) is the activation ---- */

template <int V, int WAY, bool LOOP, class ROWS, class X, class OTHER, typename T, typename Act>
DEVICE void act_mul_of(const ROWS &rows, const X &x, const OTHER &other, T *y,
					   typename ROWS::Number elements, Act act)
{
	typedef typename element<T>::compute Compute;
	typedef typename ROWS::Number Number;

	flat_each<V, LOOP>(elements, [&](Number e) {
		const FlatPlace<ROWS, V> place(rows, e, elements);
		Compute a[V], b[V];
		/* Both are asked for before one is waited for. */
		if (WAY == FLAT_SKEWED && place.single) {
			FlatVector<WAY, V, T> x_vector(place, x), other_vector(place, other);
			x_vector.take(a);
			other_vector.take(b);
		} else {
			flat_load<WAY>(rows, place, x, elements, a);
			flat_load<WAY>(rows, place, other, elements, b);
		}
#pragma unroll
		for (int j = 0; j < V; j++) {
			Compute value, unused;
			act(a[j], value, unused);
			b[j] *= value;
		}
		flat_store(y, e, elements, b);
	});
}

/* SPLIT: rows of dx are followed by those of dother, columns behind where each begins; V divides
 * them. */
template <int V, int WAY, bool LOOP, bool SPLIT, class ROWS, class X, class OTHER, class DY,
		  typename T, typename Act>
DEVICE void act_mul_backward_of(const ROWS &rows, const X &x, const OTHER &other, const DY &dy,
								T *dx, T *dother, typename ROWS::Number elements, i64 columns,
								Act act)
{
	typedef typename element<T>::compute Compute;
	typedef typename ROWS::Number Number;

	flat_each<V, LOOP>(elements, [&](Number e) {
		const FlatPlace<ROWS, V> place(rows, e, elements);
		const i64 at = SPLIT ? static_cast<i64>(place.row) * columns : 0;
		Compute a[V], b[V], d[V];
		/* All three are asked for before one is waited for. */
		if (WAY != FLAT_APART && place.single) {
			FlatVector<WAY, V, T> x_vector(place, x), other_vector(place, other);
			FlatVector<WAY, V, T> dy_vector(place, dy);
			x_vector.take(a);
			other_vector.take(b);
			dy_vector.take(d);
		} else {
			flat_load<WAY>(rows, place, x, elements, a);
			flat_load<WAY>(rows, place, other, elements, b);
			flat_load<WAY>(rows, place, dy, elements, d);
		}
#pragma unroll
		for (int j = 0; j < V; j++) {
			Compute value, slope;
			act(a[j], value, slope);
			a[j] = d[j] * b[j] * slope;
			b[j] = d[j] * value;
		}
		if (SPLIT || dx)
			flat_store(dx + at, e, elements, a);
		if (SPLIT || dother)
			flat_store((SPLIT ? dx + columns : dother) + at, e, elements, b);
	});
}

/* ---- Kernels: COLUMNS and the lists as in flat.cuh ---- */

/* Without other x has both: rows of other begin `half` elements behind those of x. */
template <typename T, int V, int WAY, int ACT, int THREADS, bool LOOP, i64 COLUMNS, class DIMS,
		  i64 X_STEP, class X, i64 OTHER_STEP, class OTHER, typename Index>
__global__ LAUNCH_BOUNDS(THREADS) void act_mul(const T *x, const T *other, T *y, i64 elements,
											   i64 half)
{
	act_mul_of<V, WAY, LOOP>(
		FlatRows<Index, COLUMNS>{}, FlatOperand<T, X_STEP, DIMS, X>{x},
		FlatOperand<T, OTHER_STEP, DIMS, OTHER>{other ? other : x + half}, y,
		static_cast<Index>(elements),
		[](auto at, auto &value, auto &slope) { act_of<ACT>(at, value, slope); });
}

/* columns: of a row of dy. */
template <typename T, int V, int WAY, int ACT, int THREADS, bool LOOP, bool SPLIT, i64 COLUMNS,
		  class DIMS, i64 X_STEP, class X, i64 OTHER_STEP, class OTHER, i64 DY_STEP, class DY,
		  typename Index>
__global__ LAUNCH_BOUNDS(THREADS) void act_mul_backward(const T *x, const T *other, const T *dy,
														T *dx, T *dother, i64 elements, i64 half,
														i64 columns)
{
	act_mul_backward_of<V, WAY, LOOP, SPLIT>(
		FlatRows<Index, COLUMNS>{}, FlatOperand<T, X_STEP, DIMS, X>{x},
		FlatOperand<T, OTHER_STEP, DIMS, OTHER>{other ? other : x + half},
		FlatOperand<T, DY_STEP, DIMS, DY>{dy}, dx, dother, static_cast<Index>(elements), columns,
		[](auto at, auto &value, auto &slope) { act_of<ACT>(at, value, slope); });
}

#define ACT_THREADS 256 /* of a block of the generic kernels, at most */

template <typename T, int V, int WAY>
__global__ __launch_bounds__(ACT_THREADS) void act_mul_generic(
	const T *x, const T *other, T *y, u64 elements, i64 half, u32 act, DIVIDE_PARAMS(u64, columns),
	u32 lone, i64 x_step, i64 other_step, SPACE_SIZES(u64), SPACE_STRIDES(of_x),
	SPACE_STRIDES(of_other))
{
	act_mul_of<V, WAY, true>(
		FlatAny{DIVIDE_MADE(u64, columns), lone != 0}, FLAT_OPERAND(T, x, x_step, of_x),
		FLAT_OPERAND(T, (other ? other : x + half), other_step, of_other), y, elements,
		[=](auto at, auto &value, auto &slope) { act_of(act, at, value, slope); });
}

template <typename T, int V, int WAY, bool SPLIT>
__global__ __launch_bounds__(ACT_THREADS) void act_mul_backward_generic(
	const T *x, const T *other, const T *dy, T *dx, T *dother, u64 elements, i64 half,
	i64 dx_columns, u32 act, DIVIDE_PARAMS(u64, columns), u32 lone, i64 x_step, i64 other_step,
	i64 dy_step, SPACE_SIZES(u64), SPACE_STRIDES(of_x), SPACE_STRIDES(of_other),
	SPACE_STRIDES(of_dy))
{
	act_mul_backward_of<V, WAY, true, SPLIT>(
		FlatAny{DIVIDE_MADE(u64, columns), lone != 0}, FLAT_OPERAND(T, x, x_step, of_x),
		FLAT_OPERAND(T, (other ? other : x + half), other_step, of_other),
		FLAT_OPERAND(T, dy, dy_step, of_dy), dx, dother, elements, dx_columns,
		[=](auto at, auto &value, auto &slope) { act_of(act, at, value, slope); });
}
