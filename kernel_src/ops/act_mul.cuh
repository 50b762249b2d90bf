/*
 * act_mul.cuh: y = act(x) * other, the gate of gated layers, and its backward, which works act(x)
 * and its derivative out again:
 *
 *   dx = dy * other * act'(x)    dother = dy * act(x)
 *
 * Each thread makes one vector of each result (flat.cuh).  The generic kernels take sizes, strides
 * and the activation as arguments.
 *
 * erf of f32 is 1 - (a1*t + .. + a5*t^5) * exp(-z^2), t = 1 / (1 + p*z), wrong by 1.5e-7 at most
 * (Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26).
 */
#pragma once
#include "common/flat.cuh"
#include "common/softmax.cuh"

enum { ACT_SILU, ACT_GELU, ACT_GELU_TANH, ACT_RELU };

/* ---- Activations ---- */

/* 1 / (1 + exp(-x)), and 1 less that, which rounding leaves whole. */
template <typename Compute>
DEVICE void act_sigmoid(Compute x, Compute &s, Compute &rest)
{
	const Compute power = softmax_exp2(x * Compute(-SOFTMAX_LOG2E));
	s = softmax_inverse(1 + power);
	rest = x < -80 ? Compute(1) : power * s; /* power may be infinite */
}

/* The normal distribution up to x, and its density. */
DEVICE void act_normal(float x, float &below, float &density)
{
	const float z = fabsf(x) * 0.70710678f, power = softmax_exp2(z * z * -1.44269504f);
	const float t = softmax_inverse(fmaf(0.3275911f, z, 1.0f));
	float p = 1.061405429f;

	p = fmaf(p, t, -1.453152027f);
	p = fmaf(p, t, 1.421413741f);
	p = fmaf(p, t, -0.284496736f);
	p = fmaf(p, t, 0.254829592f);
	p *= 0.5f * t * power;
	below = x < 0 ? p : 1 - p;
	density = power * 0.39894228f;
}
DEVICE void act_normal(double x, double &below, double &density)
{
	below = 0.5 * erfc(x * -0.70710678118654752);
	density = softmax_exp2(x * x * (-0.5 * SOFTMAX_LOG2E)) * 0.39894228040143268;
}

/* Numbers beyond where an activation is all or nothing, which products of its derivative overflow
 * with; a NaN stays one. */
DEVICE float act_limited(float x)
{
	return x > 100 ? 100.0f : x < -100 ? -100.0f : x;
}
DEVICE double act_limited(double x)
{
	return x > 800 ? 800.0 : x < -800 ? -800.0 : x;
}

/* value = act(x), slope = act'(x) */
template <int ACT, typename Compute>
DEVICE void act_of(Compute x, Compute &value, Compute &slope)
{
	const Compute near = act_limited(x);

	if constexpr (ACT == ACT_SILU) {
		Compute s, rest;
		act_sigmoid(x, s, rest);
		value = x * s;
		slope = s * fma(near, rest, Compute(1));
	} else if constexpr (ACT == ACT_GELU) {
		Compute below, density;
		act_normal(x, below, density);
		value = x * below;
		slope = fma(near, density, below);
	} else if constexpr (ACT == ACT_GELU_TANH) {
		constexpr Compute k = Compute(1.5957691216057308), cube = Compute(0.044715);
		const Compute square = near * near;
		Compute s, rest;
		act_sigmoid(near * k * fma(cube, square, Compute(1)), s, rest);
		value = x * s;
		slope = s * fma(near * rest * k, fma(3 * cube, square, Compute(1)), Compute(1));
	} else {
		value = x > 0 || x != x ? x : Compute(0);
		slope = x <= 0 ? 0 : 1;
	}
}

template <typename Compute>
DEVICE void act_of(u32 act, Compute x, Compute &value, Compute &slope)
{
	if (act == ACT_SILU)
		act_of<ACT_SILU>(x, value, slope);
	else if (act == ACT_GELU)
		act_of<ACT_GELU>(x, value, slope);
	else if (act == ACT_GELU_TANH)
		act_of<ACT_GELU_TANH>(x, value, slope);
	else
		act_of<ACT_RELU>(x, value, slope);
}

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
		flat_load<WAY>(rows, place, x, elements, a);
		flat_load<WAY>(rows, place, other, elements, b);
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
		flat_load<WAY>(rows, place, x, elements, a);
		flat_load<WAY>(rows, place, other, elements, b);
		flat_load<WAY>(rows, place, dy, elements, d);
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
