/*
 * quantize.cuh: numbers that are divided by a scale and rounded once to 8 bits: f8e4m3 and f8e5m2,
 * which saturate, and i8.  Integers are rounded to nearest, ties to even; beyond their range they
 * become its ends, and NaN becomes 0.
 */
#pragma once
#include "common/element.cuh"
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

template <>
DEVICE float float8_at<i8>(const u32 *words, int i)
{
	return static_cast<float>(static_cast<i8>(words[i / 4] >> i % 4 * 8));
}

/* ---- Scales ---- */

/* The largest magnitude; a NaN is passed over. */
struct QuantizeMost {
	float most;

	static DEVICE QuantizeMost none()
	{
		return {0};
	}
	DEVICE void take(float value)
	{
		most = fmaxf(most, fabsf(value));
	}
	DEVICE void merge(const QuantizeMost &other)
	{
		most = fmaxf(most, other.most);
	}
};

struct QuantizeLimits {
	float largest, least;

	DEVICE float scale(const QuantizeMost &all) const
	{
		return fmaxf(all.most / largest, least);
	}
};

template <class ROW, typename Number, typename Compute>
DEVICE void quantize_take(const ROW &row, Number n, const Compute (&values)[ROW::length],
						  QuantizeMost &mine)
{
#pragma unroll
	for (int j = 0; j < ROW::length; j++)
		if (row.live(n, j))
			mine.take(values[j]);
}

/*
 * x / scale, rounded as a division is: the product with the inverse is mended by what it leaves
 * (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990).
 * Scales whose inverse is less accurate than others go with x by a power of two before.  0, an
 * infinity and NaN are multiplied by their inverse.
 */
struct QuantizeScale {
	float power, divisor, inverse, end;

	DEVICE explicit QuantizeScale(float scale)
	{
		const float size = fabsf(scale);

		power = size > 0x1p80f ? 0x1p-60f : size < 0x1p-80f ? 0x1p100f : 1;
		divisor = scale * power;
		inverse = 1 / divisor;
		end = size > 0 && size < __uint_as_float(0x7f800000) ? 0x1p20f : 0; /* of what is mended */
	}
	template <int V>
	DEVICE void divide(float (&values)[V]) const
	{
		if (power != 1) {
#pragma unroll
			for (int j = 0; j < V; j++)
				values[j] *= power;
		}
#pragma unroll
		for (int j = 0; j < V; j++) {
			const float near = values[j] * inverse, rest = fmaf(-near, divisor, values[j]);
			values[j] = fabsf(near) < end ? fmaf(rest, inverse, near) : near;
		}
	}
};
