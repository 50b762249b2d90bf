/*
 * element.cuh: floats of 8 to 64 bits as kernels compute with them: those of 8 and 16 bits in f32,
 * f32 and f64 in themselves.  Vectors of elements come and go as words (vec.cuh).  Rounding is to
 * nearest, ties to even; it happens in element_pack and nowhere else.
 */
#pragma once
#include "common/float8.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

struct f16 {
	u16 bits;
};
struct bf16 {
	u16 bits;
};
typedef float f32;
typedef double f64;

/* The type to compute in. */
template <typename T>
struct element {
	typedef float compute;
};
template <>
struct element<f64> {
	typedef double compute;
};

#if !KILN_CPU

DEVICE float element_widen(f16 value)
{
	float out;
	asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(value.bits));
	return out;
}

DEVICE void element_narrow(float value, f16 &out)
{
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(value));
}

#else

DEVICE float element_widen(f16 value)
{
	const u32 sign = (value.bits & 0x8000u) << 16, rest = value.bits & 0x7fffu;

	if (rest < 0x400) /* subnormal: a multiple of 2^-24 */
		return __uint_as_float(__float_as_uint(static_cast<float>(rest) * 0x1p-24f) | sign);
	if (rest >= 0x7c00)
		return __uint_as_float(sign | 0x7f800000u | (rest & 0x3ff) << 13);
	return __uint_as_float(sign | ((rest << 13) + (112u << 23)));
}

DEVICE void element_narrow(float value, f16 &out)
{
	const u32 bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;

	if (rest > 0x7f800000u) {
		out.bits = 0x7fff;
	} else if (rest >= 0x477ff000u) { /* rounds to 2^16 or is beyond it */
		out.bits = static_cast<u16>(sign | 0x7c00u);
	} else if (rest >= 0x38800000u) {
		const u32 shifted = rest - (112u << 23);
		out.bits = static_cast<u16>(sign | ((shifted + 0xfff + (shifted >> 13 & 1)) >> 13));
	} else { /* the sum's last bit is worth 2^-24 */
		const float sum = __uint_as_float(rest) + 0.5f;
		out.bits = static_cast<u16>(sign | (__float_as_uint(sum) - 0x3f000000u));
	}
}

#endif

DEVICE float element_widen(bf16 value)
{
	return __uint_as_float(static_cast<u32>(value.bits) << 16);
}

DEVICE void element_narrow(float value, bf16 &out)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(value));
#else
	const u32 bits = __float_as_uint(value);
	const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
	out.bits = nan ? 0x7fff : static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

template <typename T>
DEVICE void element_narrow(float value, T &out)
{
	out.bits = static_cast<u8>(float8_pair<T>(value, 0));
}

/* An f32 that rounds to fewer bits as the value does: of the two f32 around an f64 that is none, it
 * is the odd one. */
template <typename Value>
DEVICE float element_near(Value value)
{
	const float near = static_cast<float>(value);

	if constexpr (sizeof(Value) == 8) {
		const double back = static_cast<double>(near);
		const u32 bits = __float_as_uint(near);
		if (back != value)
			return __uint_as_float((fabs(back) > fabs(value) ? bits - 1 : bits) | 1);
	}
	return near;
}

/* Element i out of words. */
template <typename T, typename Compute>
DEVICE Compute element_at(const u32 *words, int i)
{
	if constexpr (sizeof(T) == 8) {
		return static_cast<Compute>(__longlong_as_double(
			static_cast<i64>(static_cast<u64>(words[2 * i + 1]) << 32 | words[2 * i])));
	} else if constexpr (sizeof(T) == 4) {
		return static_cast<Compute>(__uint_as_float(words[i]));
	} else if constexpr (sizeof(T) == 1) {
		return static_cast<Compute>(float8_at<T>(words, i));
	} else {
		const T half = {static_cast<u16>(i % 2 ? words[i / 2] >> 16 : words[i / 2])};
		return static_cast<Compute>(element_widen(half));
	}
}

/* N elements of T out of words, as Compute. */
template <typename T, int N, typename Compute>
DEVICE void element_unpack(const u32 *words, Compute (&out)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		out[i] = element_at<T, Compute>(words, i);
}

/* N numbers as elements of T in words; above those that fill no word there are zeros. */
template <typename T, int N, typename Compute>
DEVICE void element_pack(const Compute (&in)[N], u32 *words)
{
	if constexpr (sizeof(T) == 8) {
#pragma unroll
		for (int i = 0; i < N; i++) {
			const u64 bits = static_cast<u64>(__double_as_longlong(static_cast<double>(in[i])));
			words[2 * i] = static_cast<u32>(bits);
			words[2 * i + 1] = static_cast<u32>(bits >> 32);
		}
	} else if constexpr (sizeof(T) == 4) {
#pragma unroll
		for (int i = 0; i < N; i++)
			words[i] = __float_as_uint(static_cast<float>(in[i]));
	} else if constexpr (sizeof(T) == 2) {
#pragma unroll
		for (int i = 0; i < N; i += 2) {
			T low, high = {0};
			element_narrow(element_near(in[i]), low);
			if (i + 1 < N)
				element_narrow(element_near(in[i + 1 < N ? i + 1 : i]), high);
			words[i / 2] = low.bits | static_cast<u32>(high.bits) << 16;
		}
	} else {
#pragma unroll
		for (int i = 0; i < N; i += 4) {
			if constexpr (N % 4 == 0) {
				words[i / 4] = float8_quad<T>(element_near(in[i]), element_near(in[i + 1]),
											  element_near(in[i + 2]), element_near(in[i + 3]));
				continue;
			}
			words[i / 4] = 0;
#pragma unroll
			for (int j = i; j < i + 4 && j < N; j += 2)
				words[i / 4] |=
					float8_pair<T>(element_near(in[j]),
								   j + 1 < N ? element_near(in[j + 1 < N ? j + 1 : j]) : 0)
					<< (j - i) * 8;
		}
	}
}

/* Spreads the top bit of each of two bytes of a word, the low or the high ones, over all bits of a
 * half. */
DEVICE u32 element_spread(u32 word, int high)
{
#if KILN_CPU
	const u32 two = word >> high * 16;
	return (two & 0x80 ? 0xffffu : 0) | (two & 0x8000 ? 0xffff0000u : 0);
#else
	u32 out;
	if (high)
		asm("prmt.b32 %0, %1, 0, 0xbbaa;" : "=r"(out) : "r"(word));
	else
		asm("prmt.b32 %0, %1, 0, 0x9988;" : "=r"(out) : "r"(word));
	return out;
#endif
}

/* Pairs of halves in a word, where there are instructions for them.  least: of infinities below
 * all numbers. */
template <typename T>
struct element_pair {
	static constexpr bool known = false;
};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <>
struct element_pair<f16> {
	static constexpr bool known = true;
	static constexpr u32 least = 0xfc00fc00;

	/* The larger ones of two pairs; a NaN is passed over. */
	static DEVICE u32 larger(u32 a, u32 b)
	{
		u32 out;
		asm("max.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
		return out;
	}
	/* Those that are farther from 0, with any sign. */
	static DEVICE u32 farther(u32 a, u32 b)
	{
#if __CUDA_ARCH__ >= 860
		u32 out;
		asm("max.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
		return out;
#else
		return larger(a & 0x7fff7fffu, b & 0x7fff7fffu);
#endif
	}
};
template <>
struct element_pair<bf16> {
	static constexpr bool known = true;
	static constexpr u32 least = 0xff80ff80;

	static DEVICE u32 larger(u32 a, u32 b)
	{
		u32 out;
		asm("max.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
		return out;
	}
	static DEVICE u32 farther(u32 a, u32 b)
	{
#if __CUDA_ARCH__ >= 860
		u32 out;
		asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
		return out;
#else
		return larger(a & 0x7fff7fffu, b & 0x7fff7fffu);
#endif
	}
};
#endif

/* One element of T at an address. */
template <typename Compute, typename T>
DEVICE Compute element_load(const T *from)
{
	u32 words[vec_words<sizeof(T)>];
	Compute out[1];

	vec_load<sizeof(T)>(from, words);
	element_unpack<T, 1>(words, out);
	return out[0];
}

template <typename Compute, typename T>
DEVICE void element_store(T *to, Compute value)
{
	u32 words[vec_words<sizeof(T)>];
	const Compute in[1] = {value};

	element_pack<T, 1>(in, words);
	vec_store<sizeof(T)>(to, words);
}
