/*
 * quantize.cuh: numbers that are divided by a scale and rounded once to 8 bits: f8e4m3 and f8e5m2,
 * which saturate, and i8.  Integers are rounded to nearest, ties to even; beyond their range they
 * become its ends, and NaN becomes 0.
 */
#pragma once
#include "common/element.cuh"
#include "common/inverse.cuh"
#include "common/types.cuh"

/* ---- i8 as an element that is computed with in f32 ---- */

DEVICE u32 quantize_integer(float value)
{
#if KILN_CPU
	if (value != value)
		return 0;
	return static_cast<u32>(static_cast<int>(rintf(fmaxf(-128, fminf(value, 127))))) & 0xff;
#else
	u32 out;
	asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(out) : "f"(value));
	return out & 0xff;
#endif
}

template <>
DEVICE u32 float8_pair<i8>(float low, float high)
{
	return quantize_integer(low) | quantize_integer(high) << 8;
}

#if !KILN_CPU
/* Two numbers below the 16 bits of others, which move up. */
DEVICE u32 quantize_below(float low, float high, u32 others)
{
	int a, b;
	u32 out;
	asm("cvt.rni.s32.f32 %0, %1;" : "=r"(a) : "f"(low));
	asm("cvt.rni.s32.f32 %0, %1;" : "=r"(b) : "f"(high));
	asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(b), "r"(a), "r"(others));
	return out;
}
template <>
DEVICE u32 float8_quad<i8>(float a, float b, float c, float d)
{
	return quantize_below(a, b, quantize_below(c, d, 0));
}
#endif

template <>
DEVICE float float8_at<i8>(const u32 *words, int i)
{
	return static_cast<float>(static_cast<i8>(words[i / 4] >> i % 4 * 8));
}

/* ---- Scales ---- */

/* The compiler leaves what follows under its condition, rather than do it always and keep or drop
 * the results. */
DEVICE void quantize_seldom()
{
#if !KILN_CPU
	asm volatile("nanosleep.u32 0;");
#endif
}

/* A scale that is very large or small is divided by as divisor, when x was multiplied by a power of
 * two before.  The inverse of 0, an infinity or NaN is such a power itself. */
struct QuantizePower {
	float power, divisor;

	DEVICE explicit QuantizePower(float scale) : power(1), divisor(scale)
	{
		const u32 size = __float_as_uint(scale) & 0x7fffffffu;
		constexpr u32 least = 47u << 23, most = 207u << 23, end = 0x7f800000u; /* 2^-80, 2^80 */

		if (__builtin_expect(size - least > most - least, 0)) {
			const bool number = size > 0 && size < end;
			quantize_seldom();
			power = !number ? inverse_near(scale) : size > most ? 0x1p-60f : 0x1p100f;
			divisor = number ? scale * power : 1.0f;
		}
	}
	template <int V>
	DEVICE void prepare(float (&values)[V]) const
	{
		if (__builtin_expect(power != 1, 0)) {
			quantize_seldom();
#pragma unroll
			for (int j = 0; j < V; j++)
				values[j] *= power;
		}
	}
};

/*
 * x / scale of numbers x of up to 11 bits, those of f16 and bf16.  1 / scale is high + low, which
 * is too large by less than 2^-44 of it, and x * high + x * low is rounded once.
 *
 * The result is as if the quotient were rounded to an f32 first.  It could differ where a border of
 * that rounding and one of the 8 bits meet, at B * 2^n +- 1 with B of j bits, n = 25 - j: were x /
 * scale so near to it, X * 2^k = S * (B * 2^n +- 1) + d with |d| < 64, S the scale's 24 bits.  Then
 * S = h * 2^n + e with |e| < 64 and h < 2^(j - 1), and B * e = +-h as X has no more than 11 bits;
 * but B > h, and e = 0 leaves h = 0.  B = 1 leaves S = 2^24 - 1, whose quotients lie above the
 * border, and what is too large stays there.
 *
 * high is no larger than 1 / scale and low above 0, both with its sign: so zeros keep their signs,
 * and an infinity, or a quotient that is too large for an f32, becomes an infinity.
 */
template <typename T>
struct QuantizeScale {
	QuantizePower by;
	float high, low;

	DEVICE explicit QuantizeScale(float scale) : by(scale)
	{
		float rest;

		high = inverse_near(by.divisor);
		rest = fmaf(-high, by.divisor, 1.0f);
		if (rest < 0) {
			high = __uint_as_float(__float_as_uint(high) - 1);
			rest = fmaf(-high, by.divisor, 1.0f);
		}
		low = (rest + 0x1p-60f) * high;
		low = fmaf(low, 0x1p-22f, low);
	}
	template <int V>
	DEVICE void divide(float (&values)[V]) const
	{
		by.prepare(values);
#pragma unroll
		for (int j = 0; j < V; j++)
			values[j] = fmaf(values[j], high, values[j] * low);
	}
};

/*
 * Of any f32: the product with the inverse is mended by what it leaves (Markstein, "Computation of
 * elementary functions on the IBM RISC System/6000 processor", 1990).  Numbers that saturate anyway
 * are not, nor is NaN.
 */
template <>
struct QuantizeScale<f32> {
	QuantizePower by;
	float inverse;

	DEVICE explicit QuantizeScale(float scale) : by(scale), inverse(1 / by.divisor)
	{
	}
	template <int V>
	DEVICE void divide(float (&values)[V]) const
	{
		by.prepare(values);
#pragma unroll
		for (int j = 0; j < V; j++) {
			const float near = values[j] * inverse, rest = fmaf(-near, by.divisor, values[j]);
			values[j] = fabsf(near) < 0x1p20f && near != 0 ? fmaf(rest, inverse, near) : near;
		}
	}
};

/* Takes numbers that were computed, and are off by more than the product with the inverse is. */
struct QuantizeNear {
	QuantizePower by;
	float inverse;

	DEVICE explicit QuantizeNear(float scale) : by(scale)
	{
		const float guess = inverse_near(by.divisor);
		inverse = fmaf(fmaf(-guess, by.divisor, 1.0f), guess, guess);
	}
	template <int V>
	DEVICE void divide(float (&values)[V]) const
	{
		by.prepare(values);
#pragma unroll
		for (int j = 0; j < V; j++)
			values[j] *= inverse;
	}
};
