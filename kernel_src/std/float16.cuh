/*
 * float16.cuh: for users' kernels, the core of cuda_fp16.h and cuda_bf16.h: floats of 16 bits and
 * pairs of them.  Arithmetic is done in float and rounded once, on every device.  Two names stand
 * for this file, and so the guard is not `#pragma once`, which goes by name.
 */
#ifndef KILN_STD_FLOAT16
#define KILN_STD_FLOAT16

__device__ inline unsigned short kiln_half_bits(float value)
{
#if KILN_CPU
	const unsigned bits = __float_as_uint(value), rest = bits & 0x7fffffffu;
	unsigned out;

	if (rest > 0x7f800000u)
		return 0x7fff;
	if (rest >= 0x477ff000u) /* rounds to 2^16 or is beyond it */
		out = 0x7c00;
	else if (rest >= 0x38800000u)
		out = (rest - 0x38000000u + 0xfff + (rest >> 13 & 1)) >> 13;
	else /* the sum's last bit is worth 2^-24 */
		out = __float_as_uint(__uint_as_float(rest) + 0.5f) - 0x3f000000u;
	return (unsigned short)(out | (bits >> 16 & 0x8000u));
#else
	unsigned short out;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(value));
	return out;
#endif
}

__device__ inline float kiln_half_float(unsigned short bits)
{
#if KILN_CPU
	const unsigned sign = (bits & 0x8000u) << 16, rest = (bits & 0x7fffu) << 13;

	if (rest >= 0x7c00u << 13)
		return __uint_as_float(sign | 0x7f800000u | rest);
	/* Multiplies by 2^112, which subnormal numbers survive, too. */
	return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest) * 5.192296858534828e33f));
#else
	float out;
	asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(bits));
	return out;
#endif
}

__device__ inline unsigned short kiln_bfloat16_bits(float value)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	unsigned short out;
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(value));
	return out;
#else
	const unsigned bits = __float_as_uint(value);

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return 0x7fff;
	return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

__device__ inline float kiln_bfloat16_float(unsigned short bits)
{
	return __uint_as_float((unsigned)bits << 16);
}

#define KILN_16_FROM(type, prefix, from)                            \
	__device__ type(from value) : bits(prefix##_bits((float)value)) \
	{                                                               \
	}
#define KILN_16_OPERATOR(type, name, op)                        \
	__device__ inline type operator op(type a, type b)          \
	{                                                           \
		return type((float)a op(float) b);                      \
	}                                                           \
	__device__ inline type &operator op##=(type &a, type b)     \
	{                                                           \
		return a = a op b;                                      \
	}                                                           \
	__device__ inline type name(type a, type b)                 \
	{                                                           \
		return a op b;                                          \
	}                                                           \
	__device__ inline type##2 name##2(type##2 a, type##2 b)     \
	{                                                           \
		return type##2(a.x op b.x, a.y op b.y);                 \
	}                                                           \
	__device__ inline type##2 operator op(type##2 a, type##2 b) \
	{                                                           \
		return name##2(a, b);                                   \
	}
#define KILN_16_COMPARISON(type, name, op)             \
	__device__ inline bool operator op(type a, type b) \
	{                                                  \
		return (float)a op(float) b;                   \
	}                                                  \
	__device__ inline bool name(type a, type b)        \
	{                                                  \
		return a op b;                                 \
	}
#define KILN_16_UNARY(type, name, function) \
	__device__ inline type name(type a)     \
	{                                       \
		return type(function((float)a));    \
	}
#if KILN_CPU /* where they are templates */
#define KILN_16_SHUFFLE(type, name, of)
#else
#define KILN_16_SHUFFLE(type, name, of)                                             \
	__device__ inline type name(unsigned mask, type value, of lane, int width = 32) \
	{                                                                               \
		type out;                                                                   \
		out.bits = (unsigned short)name(mask, (unsigned)value.bits, lane, width);   \
		return out;                                                                 \
	}
#endif

#define KILN_16(type, prefix)                                             \
	struct type {                                                         \
		unsigned short bits;                                              \
		type() = default;                                                 \
		KILN_16_FROM(type, prefix, float)                                 \
		KILN_16_FROM(type, prefix, double)                                \
		KILN_16_FROM(type, prefix, int)                                   \
		KILN_16_FROM(type, prefix, unsigned)                              \
		KILN_16_FROM(type, prefix, long long)                             \
		KILN_16_FROM(type, prefix, unsigned long long)                    \
		__device__ operator float() const                                 \
		{                                                                 \
			return prefix##_float(bits);                                  \
		}                                                                 \
	};                                                                    \
	struct __align__(4) type##2                                           \
	{                                                                     \
		type x, y;                                                        \
		type##2() = default;                                              \
		__device__ type##2(type first, type second) : x(first), y(second) \
		{                                                                 \
		}                                                                 \
	};                                                                    \
	KILN_16_OPERATOR(type, __hadd, +)                                     \
	KILN_16_OPERATOR(type, __hsub, -)                                     \
	KILN_16_OPERATOR(type, __hmul, *)                                     \
	KILN_16_OPERATOR(type, __hdiv, /)                                     \
	KILN_16_COMPARISON(type, __heq, ==)                                   \
	KILN_16_COMPARISON(type, __hne, !=)                                   \
	KILN_16_COMPARISON(type, __hlt, <)                                    \
	KILN_16_COMPARISON(type, __hle, <=)                                   \
	KILN_16_COMPARISON(type, __hgt, >)                                    \
	KILN_16_COMPARISON(type, __hge, >=)                                   \
	KILN_16_UNARY(type, operator-, -)                                     \
	KILN_16_UNARY(type, __hneg, -)                                        \
	KILN_16_UNARY(type, __habs, fabsf)                                    \
	KILN_16_UNARY(type, hexp, expf)                                       \
	KILN_16_UNARY(type, hlog, logf)                                       \
	KILN_16_UNARY(type, hsqrt, sqrtf)                                     \
	KILN_16_UNARY(type, hrsqrt, rsqrtf)                                   \
	KILN_16_SHUFFLE(type, __shfl_sync, int)                               \
	KILN_16_SHUFFLE(type, __shfl_xor_sync, int)                           \
	KILN_16_SHUFFLE(type, __shfl_up_sync, unsigned)                       \
	KILN_16_SHUFFLE(type, __shfl_down_sync, unsigned)                     \
	__device__ inline bool __hisnan(type a)                               \
	{                                                                     \
		return (float)a != (float)a;                                      \
	}                                                                     \
	__device__ inline type __hmax(type a, type b)                         \
	{                                                                     \
		return type(fmaxf(a, b));                                         \
	}                                                                     \
	__device__ inline type __hmin(type a, type b)                         \
	{                                                                     \
		return type(fminf(a, b));                                         \
	}                                                                     \
	__device__ inline type __hfma(type a, type b, type c)                 \
	{                                                                     \
		return type(fmaf(a, b, c));                                       \
	}                                                                     \
	__device__ inline type##2 __hfma2(type##2 a, type##2 b, type##2 c)    \
	{                                                                     \
		return type##2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));     \
	}                                                                     \
	__device__ inline float __low2float(type##2 a)                        \
	{                                                                     \
		return a.x;                                                       \
	}                                                                     \
	__device__ inline float __high2float(type##2 a)                       \
	{                                                                     \
		return a.y;                                                       \
	}

/* Functions with the type's name in their own: for one number, and for a pair. */
#define KILN_16_NAMED(type, word, words)                              \
	__device__ inline type __float2##word(float value)                \
	{                                                                 \
		return type(value);                                           \
	}                                                                 \
	__device__ inline type __float2##word##_rn(float value)           \
	{                                                                 \
		return type(value);                                           \
	}                                                                 \
	__device__ inline float __##word##2float(type value)              \
	{                                                                 \
		return value;                                                 \
	}                                                                 \
	__device__ inline unsigned short __##word##_as_ushort(type value) \
	{                                                                 \
		return value.bits;                                            \
	}                                                                 \
	__device__ inline type __ushort_as_##word(unsigned short bits)    \
	{                                                                 \
		type out;                                                     \
		out.bits = bits;                                              \
		return out;                                                   \
	}                                                                 \
	__device__ inline type##2 __##words(type low, type high)          \
	{                                                                 \
		return type##2(low, high);                                    \
	}                                                                 \
	__device__ inline type##2 __##word##2##word##2(type value)        \
	{                                                                 \
		return type##2(value, value);                                 \
	}                                                                 \
	__device__ inline type##2 __float2##word##2_rn(float value)       \
	{                                                                 \
		return type##2(value, value);                                 \
	}                                                                 \
	__device__ inline type##2 __float22##word##2_rn(float2 value)     \
	{                                                                 \
		return type##2(value.x, value.y);                             \
	}                                                                 \
	__device__ inline float2 __##word##22float2(type##2 value)        \
	{                                                                 \
		return make_float2(value.x, value.y);                         \
	}                                                                 \
	__device__ inline type __low2##word(type##2 value)                \
	{                                                                 \
		return value.x;                                               \
	}                                                                 \
	__device__ inline type __high2##word(type##2 value)               \
	{                                                                 \
		return value.y;                                               \
	}

KILN_16(__half, kiln_half)
KILN_16_NAMED(__half, half, halves2half2)
KILN_16(__nv_bfloat16, kiln_bfloat16)
KILN_16_NAMED(__nv_bfloat16, bfloat16, halves2bfloat162)

typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

#endif
