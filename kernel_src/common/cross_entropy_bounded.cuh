/*
 * cross_entropy_bounded.cuh: sums of powers of logits under a soft cap that no power outgrows.
 */
#pragma once
#include "common/element.cuh"
#include "common/inverse.cuh"
#include "common/row.cuh"
#include "common/softmax_exp.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* The ways to apply a soft cap: there is none; it may be of any size; it is so small that sums of
 * powers need no largest term; it is as small, and a block looks powers up. */
enum { CROSS_ENTROPY_UNCAPPED, CROSS_ENTROPY_CAPPED, CROSS_ENTROPY_BOUNDED, CROSS_ENTROPY_LISTED };

/*
 * The sum of exp(cap * tanh(x / cap)), with few instructions of those that are slow.  With t =
 * 2^(rate * x), 1 / (1 + t) is (1 + tanh(x / cap)) / 2, so an element's power is that of 2 to the
 * exponent reach / (1 + t) + middle; middle is a whole number, and the powers of +-cap lie about as
 * far from 1.
 *
 * Four inverses are made of one: 1 / a = 1 / (a * b) * b, b = 1 + t.  Where the product is too
 * large, or no number, each is made alone.  LONG rows bear approximations: the first powers of a
 * vector come by a polynomial, wrong by 3e-6 here and there; and where no |x| of a step is above
 * REACH * cap, tanh comes from a fraction of polynomials, wrong by 4e-7, which takes no power.
 */
template <class ROW, bool LONG>
struct CrossEntropyBounded {
	typedef typename ROW::Element T;
	typedef typename ROW::Column Column;
	static constexpr int V = ROW::length, count = ROW::count;
	static constexpr int together = V < 4 ? V : 4, groups = V / together;

	static constexpr int polynomials = LONG ? 4 : 0;
	static constexpr bool near = LONG && together == 4 && !ROW::skewed && sizeof(T) == 2;
	static constexpr float REACH = 2.45f;

	float rate, reach, middle;
	/* The fraction: x * (a0 + a1 * s + a2 * s^2) / (1 + b1 * s + b2 * s^2) with s = x^2. */
	float a0, a1, a2, b1, b2, zero; /* zero: the exponent of x = 0 */
	u32 most;                       /* the largest |x| of a step for fractions: the bits of a T */
	DEVICE explicit CrossEntropyBounded(float cap)
		: rate(-2.88539008f / cap), reach(2.88539008f * cap), middle(-rintf(1.44269504f * cap))
	{
		if constexpr (near) {
			const float by = 1 / (cap * cap);
			T limit;
			element_narrow(REACH * cap, limit);
			most = limit.bits;
			a0 = 0.999998019f * 1.44269504f;
			a1 = 0.108558096f * 1.44269504f * by;
			a2 = 0.000911724825f * 1.44269504f * by * by;
			b1 = 0.441880228f * by;
			b2 = 0.0148899172f * by * by;
			zero = fmaf(reach, 0.5f, middle);
		}
	}

	/* The logarithm of what powers are divided by. */
	DEVICE float shift() const
	{
		return fmaf(reach, -0.5f, -middle) * 0.693147181f;
	}

	typedef u32 Step[count][ROW::words];

	DEVICE static void fetch(const ROW &row, Column step, const T *x, i64 apart, Step &to)
	{
#pragma unroll
		for (int u = 0; u < count; u++)
			if (row.has(step * count + u))
				vec_load<ROW::bytes>(row_place<V>(x, row.column(step * count + u), apart), to[u]);
	}

	DEVICE static void move(const Step &from, Step &to)
	{
#pragma unroll
		for (int u = 0; u < count; u++)
#pragma unroll
			for (int w = 0; w < ROW::words; w++)
				to[u][w] = from[u][w];
	}

	/* The sum of a step's powers; total: what its terms join. */
	template <bool SMOOTH>
	DEVICE float sum(const ROW &row, Column step, const Step &word, float &total) const
	{
		float sum = 0;

		if constexpr (near)
			if (row.has(step * count + count - 1) && within(word))
				return near_sum<SMOOTH>(word, total);
#pragma unroll
		for (int u = 0; u < count; u++) {
			const Column n = step * count + u;
			float t[V], low[groups], high[groups], exponent[V];
			if (!row.has(n))
				continue;
			element_unpack<T>(word[u], t);
#pragma unroll
			for (int j = 0; j < V; j++)
				t[j] = softmax_exp2_flush(t[j] * rate);
			if (multiply(t, low, high) && row.inside(n)) {
				divide(t, low, high, exponent);
#pragma unroll
				for (int j = 0; j < V; j++)
					sum +=
						j < polynomials ? polynomial(exponent[j]) : softmax_exp2_flush(exponent[j]);
			} else {
#pragma unroll
				for (int j = 0; j < V; j++) {
					exponent[j] = fmaf(reach, inverse_near(1 + t[j]), middle);
					sum += row.live(n, j) ? softmax_exp2_flush(exponent[j]) : 0;
				}
			}
			if constexpr (SMOOTH) {
#pragma unroll
				for (int j = 0; j < V; j++)
					total += row.live(n, j) ? fmaf(exponent[j], 0.693147181f, shift()) : 0;
			}
		}
		return sum;
	}

  protected:
	/* Is no |x| of the step above `most`? */
	DEVICE bool within(const Step &word) const
	{
		u32 low = 0, high = 0;
#pragma unroll
		for (int u = 0; u < count; u++) {
#pragma unroll
			for (int w = 0; w < ROW::words; w++) {
				if constexpr (element_pair<T>::known) {
					low = element_pair<T>::farther(low, word[u][w]);
				} else {
					low = max(low, word[u][w] & 0x7fffu);
					high = max(high, word[u][w] >> 16 & 0x7fffu);
				}
			}
		}
		return max(low & 0x7fffu, max(low >> 16 & 0x7fffu, high)) <= most;
	}
	template <bool SMOOTH>
	DEVICE float near_sum(const Step &word, float &total) const
	{
		float sum = 0;

#pragma unroll
		for (int u = 0; u < count; u++) {
			float x[V], exponent[V];
			element_unpack<T>(word[u], x);
#pragma unroll
			for (int g = 0; g < groups; g++)
				fractions(x + g * 4, exponent + g * 4);
#pragma unroll
			for (int j = 0; j < V; j++) {
				sum += softmax_exp2_flush(exponent[j]);
				if constexpr (SMOOTH)
					total += fmaf(exponent[j], 0.693147181f, shift());
			}
		}
		return sum;
	}
	DEVICE void fractions(const float *x, float *out) const
	{
		float above[4], below[4];

#pragma unroll
		for (int j = 0; j < 4; j++) {
			const float s = x[j] * x[j];
			above[j] = fmaf(fmaf(a2, s, a1), s, a0) * x[j];
			below[j] = fmaf(fmaf(b2, s, b1), s, 1.0f);
		}
		const float low = below[0] * below[1], high = below[2] * below[3];
		const float all = inverse_near(low * high), a = all * high, b = all * low;
		out[0] = fmaf(above[0] * below[1], a, zero);
		out[1] = fmaf(above[1] * below[0], a, zero);
		out[2] = fmaf(above[2] * below[3], b, zero);
		out[3] = fmaf(above[3] * below[2], b, zero);
	}
	static DEVICE float polynomial(float exponent)
	{
		const float shifted = exponent + 0x1.8p23f, rest = exponent - (shifted - 0x1.8p23f);
		float p = 0x1.3997d6p-7f;

		p = fmaf(p, rest, 0x1.ca1440p-5f);
		p = fmaf(p, rest, 0x1.ec06dap-3f);
		p = fmaf(p, rest, 0x1.62e0dcp-1f);
		p = fmaf(p, rest, 0x1.ffffe8p-1f);
		return __uint_as_float((__float_as_uint(shifted) << 23) + __float_as_uint(p));
	}
	/* The products of pairs of 1 + t.  False: one of a group is too large, or no number. */
	static DEVICE bool multiply(const float (&t)[V], float (&low)[groups], float (&high)[groups])
	{
		bool usual = true;

#pragma unroll
		for (int g = 0; g < groups; g++) {
			const float *const at = t + g * together;
			low[g] = 1 + at[0];
			high[g] = 1;
			if constexpr (together > 1)
				low[g] = fmaf(low[g], at[1], low[g]);
			if constexpr (together == 4) {
				high[g] = 1 + at[2];
				high[g] = fmaf(high[g], at[3], high[g]);
			}
			usual = usual && low[g] * high[g] < 0x1p120f;
		}
		return usual;
	}
	DEVICE void divide(const float (&t)[V], const float (&low)[groups], const float (&high)[groups],
					   float (&out)[V]) const
	{
#pragma unroll
		for (int g = 0; g < groups; g++) {
			const float *const at = t + g * together;
			const float all = inverse_near(low[g] * high[g]) * reach, a = all * high[g];
			float *const to = out + g * together;
			if constexpr (together == 1) {
				to[0] = a + middle;
			} else {
				to[0] = fmaf(a, at[1], a + middle);
				to[1] = fmaf(a, at[0], a + middle);
			}
			if constexpr (together == 4) {
				const float b = all * low[g];
				to[2] = fmaf(b, at[3], b + middle);
				to[3] = fmaf(b, at[2], b + middle);
			}
		}
	}
};

/* ---- Powers of elements that are looked up ---- */

/* Returns the larger of the low halves of two words and that of their high ones, as unsigned
 * numbers; then the smaller ones. */
DEVICE u32 cross_entropy_larger(u32 a, u32 b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	u32 out;
	asm("max.u16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
	return out;
#else
	return max(a & 0xffffu, b & 0xffffu) | max(a >> 16, b >> 16) << 16;
#endif
}
DEVICE u32 cross_entropy_smaller(u32 a, u32 b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	u32 out;
	asm("min.u16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
	return out;
#else
	return min(a & 0xffffu, b & 0xffffu) | min(a >> 16, b >> 16) << 16;
#endif
}

/*
 * For long rows of bf16 a block has a list of the powers of all elements from 2^-18 to 2^10, on
 * both sides of 0.  Half of a vector's elements are looked up, which takes turns at the banks of
 * shared memory, and half come by fractions, which takes sums: either alone would take longer than
 * reading.  Elements nearer to 0 count as 0, wrong by 4e-6.  If an element of a step is beyond the
 * reach of fractions, all elements of the step are looked up.
 */
template <class ROW>
struct CrossEntropyListed : CrossEntropyBounded<ROW, true> {
	typedef CrossEntropyBounded<ROW, true> Bounded;
	typedef typename ROW::Column Column;
	typedef typename Bounded::Step Step;
	static constexpr int V = ROW::length, count = ROW::count;
	static constexpr u32 least = 0x3680, sizes = 28 << 7, other = 4096; /* numbers below 0 follow */
	static constexpr u32 two = 0x10001, no_number = 0x7f80;
	static_assert(Bounded::near && V == 8, "vectors of halves");
	const float *list;

	/* All threads come. */
	DEVICE explicit CrossEntropyListed(float cap) : Bounded(cap)
	{
		__shared__ float powers[other + sizes];
		for (u32 i = threadIdx.x; i < 2 * sizes; i += ROW::threads) {
			const u32 size = i < sizes ? i : i - sizes;
			const u32 bits = size == 0 ? 0 : (size + least) << 16 | (i < sizes ? 0 : 1u << 31);
			const float t = softmax_exp2_flush(__uint_as_float(bits) * this->rate);
			powers[i < sizes ? size : other + size] =
				softmax_exp2_flush(fmaf(this->reach, inverse_near(1 + t), this->middle));
		}
		__syncthreads();
		list = powers;
	}

	template <bool SMOOTH>
	DEVICE float sum(const ROW &row, Column step, const Step &word, float &) const
	{
		static_assert(!SMOOTH, "powers do not tell what they are of");
		float sum = 0;
		u32 far = 0;

#pragma unroll
		for (int u = 0; u < count; u++)
#pragma unroll
			for (int w = 0; w < V / 2; w++)
				if (row.has(step * count + u))
					far = cross_entropy_larger(far, word[u][w] & 0x7fff7fffu);
		const u32 farthest = max(far & 0xffffu, far >> 16);
		/* One branch for all vectors: what stands between two of them waits for the first. */
		if (farthest > this->most)
			return farthest > no_number ? __uint_as_float(0x7fffffffu) : sum_all(row, step, word);
#pragma unroll
		for (int u = 0; u < count; u++) {
			float x[V], exponent[4];
			if (!row.has(step * count + u))
				continue;
			sum += look_up(word[u][0]) + look_up(word[u][1]);
			element_unpack<typename ROW::Element>(word[u], x);
			this->fractions(x + 4, exponent);
#pragma unroll
			for (int j = 0; j < 4; j++)
				sum += softmax_exp2_flush(exponent[j]);
		}
		return sum;
	}

  private:
	DEVICE float sum_all(const ROW &row, Column step, const Step &word) const
	{
		float sum = 0;

#pragma unroll
		for (int u = 0; u < count; u++)
#pragma unroll
			for (int w = 0; w < V / 2; w++)
				if (row.has(step * count + u))
					sum += look_up(word[u][w]);
		return sum;
	}

	/* Returns the sum of the powers of two elements. */
	DEVICE float look_up(u32 pair) const
	{
		const u32 size = cross_entropy_smaller(
			cross_entropy_larger(pair & 0x7fff7fffu, least * two), (least + sizes - 1) * two);
		/* Places in bytes. */
		const u32 at = (size - least * two) << 2 | (pair >> 1 & 0x40004000u);
		const u8 *const from = reinterpret_cast<const u8 *>(list);

		return *reinterpret_cast<const float *>(from + (at & 0xffffu)) +
			   *reinterpret_cast<const float *>(from + (at >> 16));
	}
};
