/*
 * act.cuh: activations and their derivatives.
 *
 * erf of f32 is 1 - (a1*t + .. + a5*t^5) * exp(-z^2), t = 1 / (1 + p*z), wrong by 1.5e-7 at most
 * (Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26).
 */
#pragma once
#include "common/inverse.cuh"
#include "common/softmax_exp.cuh"
#include "common/types.cuh"

enum { ACT_SILU, ACT_GELU, ACT_GELU_TANH, ACT_RELU };

/* s = 1 / (1 + exp(-x)), and rest = 1 - s with the bits that a difference would lose. */
template <typename Compute>
DEVICE void act_sigmoid(Compute x, Compute &s, Compute &rest)
{
	const Compute power = softmax_exp2_flush(x * Compute(-SOFTMAX_LOG2E));
	s = inverse_near(1 + power);
	rest = x < -80 ? Compute(1) : power * s; /* power may be infinite */
}

/* The normal distribution up to x, and its density. */
DEVICE void act_normal(float x, float &below, float &density)
{
	const float z = fabsf(x) * 0.70710678f, power = softmax_exp2_flush(z * z * -1.44269504f);
	const float t = inverse_near(fmaf(0.3275911f, z, 1.0f));
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
