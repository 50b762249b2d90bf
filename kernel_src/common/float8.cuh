/*
 * float8.cuh: floats of 8 bits.  f8e4m3 has no infinities and ends at 448, f8e5m2 has them and ends
 * at 57344.  A NaN is stored as 0x7f in both.
 *
 * A number is rounded once, to nearest, ties to even.  Beyond the largest number f8e5m2 becomes an
 * infinity and f8e4m3 a NaN; sat<T> is the same type, but stores the largest number there, for
 * infinities too.
 *
 * sm_89 and later have instructions for this.  Every other target, and the cpu device, comes to the
 * same bits by integers.
 */
#pragma once
#include "common/types.cuh"

struct f8e4m3 {
	u8 bits;
};
struct f8e5m2 {
	u8 bits;
};
template <typename T>
struct sat {
	u8 bits;
};

/* fraction: its bits.  exponent: that of the least normal number, as an f32 has it.  most: the
 * largest number.  over: the first f32 that rounds beyond it.  beyond: what that becomes. */
template <typename T>
struct float8;
template <>
struct float8<f8e4m3> {
	static constexpr bool saturates = false;
	static constexpr int fraction = 3, exponent = 121;
	static constexpr u32 most = 0x7e, over = 0x43e80001, beyond = 0x7f;
};
template <>
struct float8<f8e5m2> {
	static constexpr bool saturates = false;
	static constexpr int fraction = 2, exponent = 113;
	static constexpr u32 most = 0x7b, over = 0x47700000, beyond = 0x7c;
};
template <typename T>
struct float8<sat<T>> : float8<T> {
	static constexpr bool saturates = true;
};

/* NVRTC 12.0 and before have them for sm_90 only. */
#if defined(__CUDA_ARCH__) && \
	(__CUDA_ARCH__ >= 900 ||  \
	 (__CUDA_ARCH__ >= 890 && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1201))
#define FLOAT8_INSTRUCTIONS 1
#else
#define FLOAT8_INSTRUCTIONS 0
#endif

/* ---- Into 8 bits ---- */

#if FLOAT8_INSTRUCTIONS

/* The instruction saturates, and makes 0x7f of a NaN. */
template <typename T>
DEVICE u32 float8_right(float value, u32 code)
{
	const u32 rest = __float_as_uint(value) & 0x7fffffffu;

	if (rest >= float8<T>::over)
		code = float8<T>::beyond == 0x7f || rest > 0x7f800000u ? 0x7f : code + 1;
	return code;
}

/* Two numbers, in the low 16 bits. */
template <typename T>
DEVICE u32 float8_pair(float low, float high)
{
	u16 pair;

	if constexpr (float8<T>::fraction == 3)
		asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
	else
		asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
	if constexpr (float8<T>::saturates)
		return pair;
	else
		return float8_right<T>(low, pair & 0xff) | float8_right<T>(high, pair >> 8) << 8;
}

#else

template <typename T>
DEVICE u32 float8_code(float value)
{
	typedef float8<T> F;
	constexpr int shift = 23 - F::fraction;
	constexpr u32 normal = static_cast<u32>(F::exponent) << 23;
	constexpr u32 one = static_cast<u32>(F::exponent + shift) << 23;
	const u32 bits = __float_as_uint(value), sign = bits >> 24 & 0x80, rest = bits & 0x7fffffffu;

	if (rest > 0x7f800000u)
		return 0x7f;
	if (rest >= F::over)
		return F::saturates ? sign | F::most : F::beyond == 0x7f ? 0x7f : sign | F::beyond;
	if (rest >= normal) {
		const u32 shifted = rest - normal + (1u << 23);
		return sign | (shifted + (1u << (shift - 1)) - 1 + (shifted >> shift & 1)) >> shift;
	}
	/* The sum's last bit is worth the least number. */
	return sign | (__float_as_uint(__uint_as_float(rest) + __uint_as_float(one)) - one);
}

template <typename T>
DEVICE u32 float8_pair(float low, float high)
{
	return float8_code<T>(low) | float8_code<T>(high) << 8;
}

#endif

/* Four of them. */
template <typename T>
DEVICE u32 float8_quad(float a, float b, float c, float d)
{
	return float8_pair<T>(a, b) | float8_pair<T>(c, d) << 16;
}

/* ---- Out of 8 bits ---- */

/* Element i of words. */
template <typename T>
DEVICE float float8_at(const u32 *words, int i)
{
	typedef float8<T> F;
#if !KILN_CPU
	/* f8e5m2 is the upper half of an f16. */
	if constexpr (F::fraction == 2 || FLOAT8_INSTRUCTIONS) {
		u32 halves = words[i / 4] >> i / 2 % 2 * 16;
		float out;
#if FLOAT8_INSTRUCTIONS
		if constexpr (F::fraction == 3)
			asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<u16>(halves)));
		else
#endif
			halves = __byte_perm(halves, 0, 0x1404);
		asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(static_cast<u16>(halves >> i % 2 * 16)));
		return out;
	}
#endif
	/* Under an f32's exponent the digits are the number times a power of two. */
	constexpr float scale_up = F::fraction == 3 ? 0x1p120f : 0x1p112f;
	const u32 code = words[i / 4] >> i % 4 * 8, sign = code << 24 & 0x80000000u, rest = code & 0x7f;
	const u32 size = rest <= F::most
						 ? __float_as_uint(__uint_as_float(rest << (23 - F::fraction)) * scale_up)
					 : rest == F::beyond && rest != 0x7f ? 0x7f800000u
														 : 0x7fffffffu;
	return __uint_as_float(size | sign);
}
