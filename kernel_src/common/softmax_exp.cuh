/*
 * softmax_exp.cuh: powers of 2 and logarithms, for softmax and others.
 */
#pragma once
#include "common/types.cuh"

#define SOFTMAX_LOG2E 1.4426950408889634

/* 2^x; results below the smallest normal number may be 0. */
DEVICE float softmax_exp2_flush(float x)
{
#if KILN_CPU
	return exp2f(x);
#else
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}

/* 2^x */
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

/*
 * 2^x = 2^n * 2^r, r from -1/2 to 1/2: a polynomial through the Chebyshev nodes, wrong by 2e-17.  n
 * goes in two factors, so that results below the smallest normal number come out.
 */
DEVICE double softmax_exp2(double x)
{
	constexpr double round = 0x1.8p52;
	const double most = x > 1100 ? 1100 : x, near = most < -1100 ? -1100 : most; /* or NaN */
	const double shifted = near + round, r = near - (shifted - round);
	const i64 n = static_cast<int>(__double_as_longlong(shifted)), half = n / 2;
	double p = 0x1.e9ec1fcb69a7fp-32;

	p = fma(p, r, 0x1.e6228acd1c6e5p-28);
	p = fma(p, r, 0x1.b524ebd13a55fp-24);
	p = fma(p, r, 0x1.62bfc2c86d700p-20);
	p = fma(p, r, 0x1.ffcbfc6da6ed1p-17);
	p = fma(p, r, 0x1.430913112c61bp-13);
	p = fma(p, r, 0x1.5d87fe78a3f9cp-10);
	p = fma(p, r, 0x1.3b2ab6fb9f1a5p-7);
	p = fma(p, r, 0x1.c6b08d704a0c6p-5);
	p = fma(p, r, 0x1.ebfbdff82c5aep-3);
	p = fma(p, r, 0x1.62e42fefa39efp-1);
	p = fma(p, r, 1.0);
	return p * __longlong_as_double((1023 + half) << 52) *
		   __longlong_as_double((1023 + n - half) << 52);
}
/* Does so for an x of at most 0; results below the smallest normal number may be 0. */
DEVICE double softmax_exp2_flush(double x)
{
	return softmax_exp2(x);
}

/* The logarithm of x to the base 2, wrong by 2^-22 of it or of 1. */
DEVICE float softmax_log2_near(float x)
{
#if KILN_CPU
	return logf(x) * static_cast<float>(SOFTMAX_LOG2E);
#else
	float y;
	asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}

DEVICE float softmax_log(float x)
{
	return logf(x);
}
DEVICE double softmax_log(double x)
{
	return log(x);
}
