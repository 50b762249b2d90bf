/*
 * inverse.cuh: 1 / x by the device's own guess, where a division would take longer.
 */
#pragma once
#include "common/types.cuh"

/* 1 / x, within two roundings.  0 times that of 0 is a NaN. */
DEVICE float inverse_near(float x)
{
#if KILN_CPU
	return 1 / x;
#else
	float y;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}
DEVICE double inverse_near(double x)
{
#if KILN_CPU
	return 1 / x;
#else
	double y;
	asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
	const double near = fma(y, fma(-x, y, 1.0), y);
	/* The guess for an infinity is 0, which Newton's steps would make a NaN. */
	return y == 0 ? y : fma(near, fma(-x, near, 1.0), near);
#endif
}
