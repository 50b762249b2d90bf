/*
 * math: arithmetic, bit and conversion functions of CUDA's device library.  Functions that need the
 * C library go through the executor's table; the fast intrinsics (__expf ...) are as exact as the
 * full functions here.
 */
#pragma once
#include "cpu/keywords.cuh"

namespace kiln_cpu
{
template <class To, class From>
static __forceinline__ To bits(From value)
{
	static_assert(sizeof(To) == sizeof(From), "same size");
	To out;
	__builtin_memcpy(&out, &value, sizeof(out));
	return out;
}
} // namespace kiln_cpu

/* ---- Through the executor's table ---- */

#define KILN_CPU_MATH(single, real)               \
	static __forceinline__ float single(float x)  \
	{                                             \
		return kiln_cpu_self->runtime->single(x); \
	}                                             \
	static __forceinline__ double real(double x)  \
	{                                             \
		return kiln_cpu_self->runtime->real(x);   \
	}                                             \
	static __forceinline__ float real(float x)    \
	{                                             \
		return kiln_cpu_self->runtime->single(x); \
	}
KILN_CPU_MATH_1(KILN_CPU_MATH)
#undef KILN_CPU_MATH
#define KILN_CPU_MATH(single, real)                        \
	static __forceinline__ float single(float x, float y)  \
	{                                                      \
		return kiln_cpu_self->runtime->single(x, y);       \
	}                                                      \
	static __forceinline__ double real(double x, double y) \
	{                                                      \
		return kiln_cpu_self->runtime->real(x, y);         \
	}                                                      \
	static __forceinline__ float real(float x, float y)    \
	{                                                      \
		return kiln_cpu_self->runtime->single(x, y);       \
	}
KILN_CPU_MATH_2(KILN_CPU_MATH)
#undef KILN_CPU_MATH

KILN_CPU_F fmaf(float x, float y, float z)
{
	return kiln_cpu_self->runtime->fmaf(x, y, z);
}
KILN_CPU_D fma(double x, double y, double z)
{
	return kiln_cpu_self->runtime->fma(x, y, z);
}
KILN_CPU_F fma(float x, float y, float z)
{
	return fmaf(x, y, z);
}
KILN_CPU_F ldexpf(float x, int exponent)
{
	return kiln_cpu_self->runtime->ldexpf(x, exponent);
}
KILN_CPU_D ldexp(double x, int exponent)
{
	return kiln_cpu_self->runtime->ldexp(x, exponent);
}
KILN_CPU_F rsqrtf(float x)
{
	return (float)(1.0 / sqrt((double)x));
}
KILN_CPU_D rsqrt(double x)
{
	return 1.0 / sqrt(x);
}
KILN_CPU_F exp10f(float x)
{
	return (float)pow(10.0, (double)x);
}
KILN_CPU_D exp10(double x)
{
	return pow(10.0, x);
}
static __forceinline__ void sincosf(float x, float *sine, float *cosine)
{
	*sine = sinf(x);
	*cosine = cosf(x);
}
static __forceinline__ void sincos(double x, double *sine, double *cosine)
{
	*sine = sin(x);
	*cosine = cos(x);
}

/* ---- Without the table ---- */

KILN_CPU_F fabsf(float x)
{
	return __builtin_fabsf(x);
}
KILN_CPU_D fabs(double x)
{
	return __builtin_fabs(x);
}
KILN_CPU_F fabs(float x)
{
	return __builtin_fabsf(x);
}
KILN_CPU_F copysignf(float x, float y)
{
	return __builtin_copysignf(x, y);
}
KILN_CPU_D copysign(double x, double y)
{
	return __builtin_copysign(x, y);
}
template <class T>
static __forceinline__ bool isnan(T x)
{
	return __builtin_isnan(x);
}
template <class T>
static __forceinline__ bool isinf(T x)
{
	return __builtin_isinf(x);
}
template <class T>
static __forceinline__ bool isfinite(T x)
{
	return __builtin_isfinite(x);
}
template <class T>
static __forceinline__ bool signbit(T x)
{
	return __builtin_signbit(x);
}

/* A NaN loses against a number, as in CUDA. */
#define KILN_CPU_EXTREMA(T, low, high)      \
	static __forceinline__ T low(T x, T y)  \
	{                                       \
		return x < y || y != y ? x : y;     \
	}                                       \
	static __forceinline__ T high(T x, T y) \
	{                                       \
		return x > y || y != y ? x : y;     \
	}
KILN_CPU_EXTREMA(float, fminf, fmaxf)
KILN_CPU_EXTREMA(double, fmin, fmax)
KILN_CPU_EXTREMA(float, fmin, fmax)
KILN_CPU_EXTREMA(float, min, max)
KILN_CPU_EXTREMA(double, min, max)
#undef KILN_CPU_EXTREMA
/* Integers mix by the usual conversions: int with unsigned int is unsigned. */
template <class A, class B>
static __forceinline__ constexpr auto min(A x, B y) -> decltype(x + y)
{
	typedef decltype(x + y) T;
	return (T)x < (T)y ? (T)x : (T)y;
}
template <class A, class B>
static __forceinline__ constexpr auto max(A x, B y) -> decltype(x + y)
{
	typedef decltype(x + y) T;
	return (T)x > (T)y ? (T)x : (T)y;
}
KILN_CPU_I abs(int x)
{
	return x < 0 ? -x : x;
}
static __forceinline__ long long abs(long long x)
{
	return x < 0 ? -x : x;
}
static __forceinline__ long abs(long x)
{
	return x < 0 ? -x : x;
}
KILN_CPU_F abs(float x)
{
	return __builtin_fabsf(x);
}
KILN_CPU_D abs(double x)
{
	return __builtin_fabs(x);
}
KILN_CPU_F fdividef(float x, float y)
{
	return x / y;
}
KILN_CPU_F __saturatef(float x)
{
	return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

/* ---- Fast and rounded intrinsics ---- */

#define KILN_CPU_ALIAS(name, function) \
	KILN_CPU_F name(float x)           \
	{                                  \
		return function(x);            \
	}
KILN_CPU_ALIAS(__expf, expf)
KILN_CPU_ALIAS(__exp10f, exp10f)
KILN_CPU_ALIAS(__logf, logf)
KILN_CPU_ALIAS(__log2f, log2f)
KILN_CPU_ALIAS(__log10f, log10f)
KILN_CPU_ALIAS(__sinf, sinf)
KILN_CPU_ALIAS(__cosf, cosf)
KILN_CPU_ALIAS(__tanf, tanf)
KILN_CPU_ALIAS(__frsqrt_rn, rsqrtf)
KILN_CPU_ALIAS(__fsqrt_rn, sqrtf)
#undef KILN_CPU_ALIAS
KILN_CPU_F __powf(float x, float y)
{
	return powf(x, y);
}
KILN_CPU_F __fdividef(float x, float y)
{
	return x / y;
}
KILN_CPU_F __fmaf_rn(float x, float y, float z)
{
	return fmaf(x, y, z);
}
KILN_CPU_D __fma_rn(double x, double y, double z)
{
	return fma(x, y, z);
}
#define KILN_CPU_BINARY(name, T, op)        \
	static __forceinline__ T name(T x, T y) \
	{                                       \
		return x op y;                      \
	}
KILN_CPU_BINARY(__fadd_rn, float, +)
KILN_CPU_BINARY(__fsub_rn, float, -)
KILN_CPU_BINARY(__fmul_rn, float, *)
KILN_CPU_BINARY(__fdiv_rn, float, /)
KILN_CPU_BINARY(__dadd_rn, double, +)
KILN_CPU_BINARY(__dsub_rn, double, -)
KILN_CPU_BINARY(__dmul_rn, double, *)
KILN_CPU_BINARY(__ddiv_rn, double, /)
#undef KILN_CPU_BINARY
KILN_CPU_F __frcp_rn(float x)
{
	return 1.0f / x;
}
KILN_CPU_I __float2int_rn(float x)
{
	return (int)rintf(x);
}
KILN_CPU_I __float2int_rz(float x)
{
	return (int)x;
}
KILN_CPU_F __int2float_rn(int x)
{
	return (float)x;
}
KILN_CPU_I __float_as_int(float x)
{
	return kiln_cpu::bits<int>(x);
}
KILN_CPU_U __float_as_uint(float x)
{
	return kiln_cpu::bits<unsigned int>(x);
}
KILN_CPU_F __int_as_float(int x)
{
	return kiln_cpu::bits<float>(x);
}
KILN_CPU_F __uint_as_float(unsigned int x)
{
	return kiln_cpu::bits<float>(x);
}
static __forceinline__ long long __double_as_longlong(double x)
{
	return kiln_cpu::bits<long long>(x);
}
KILN_CPU_D __longlong_as_double(long long x)
{
	return kiln_cpu::bits<double>(x);
}
