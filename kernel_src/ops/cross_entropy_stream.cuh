/*
 * cross_entropy_stream.cuh: the loss of rows of logits that a block goes over in steps, and for the
 * gradient once more, from the end to the beginning.  Parameters as in cross_entropy.cuh.
 */
#pragma once
#include "common/cross_entropy.cuh"
#include "common/index.cuh"
#include "common/softmax_stream.cuh"

template <class ROW, class MASK>
struct CrossEntropyStream : SoftmaxStream<ROW, true, MASK> {
	typedef SoftmaxStream<ROW, true, MASK> Stream;
	typedef typename ROW::Element T;
	typedef typename ROW::Compute Compute;
	typedef typename ROW::Column Column;
	static constexpr int V = ROW::length, count = ROW::count;
	using Stream::mask;
	using Stream::row;
	using Stream::Stream;
	using Stream::value;

	/* The sum of a step's terms. */
	DEVICE Compute total(Column step) const
	{
		Compute total = 0;

#pragma unroll
		for (int u = 0; u < count; u++) {
			if (!row.has(step * count + u))
				continue;
#pragma unroll
			for (int j = 0; j < V; j++)
				total += row.live(step * count + u, j) ? value[u][j] : Compute(0);
		}
		return total;
	}

	template <bool SMOOTH>
	DEVICE void store_slope(Column step, T *to, Compute largest, Compute rest,
							const CrossEntropySlope<Compute> &slope) const
	{
#pragma unroll
		for (int u = 0; u < count; u++) {
			const Column n = step * count + u;
			Compute power[V];
			if (!row.has(n))
				continue;
#pragma unroll
			for (int j = 0; j < V; j++)
				power[j] =
					softmax_exp2_flush((value[u][j] - largest) * this->scale.exponent) * rest;
			slope.template apply<SMOOTH>(row.column(n), mask, value[u], power);
			row_store(row, n, to, power);
		}
	}

	DEVICE void store_nothing(T *to) const
	{
		constexpr Compute nothing[V] = {};

#pragma unroll 1
		for (Column n = 0; n < ROW::steps() * count; n++)
			if (row.has(n))
				row_store(row, n, to, nothing);
	}
};

/* ---- Soft caps that no power outgrows ---- */

/* How a soft cap is applied: there is none, or it may be of any size, or it is so small that sums
 * of powers need no largest term. */
enum { CROSS_ENTROPY_UNCAPPED, CROSS_ENTROPY_CAPPED, CROSS_ENTROPY_BOUNDED };

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

  private:
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

template <class ROW, bool GRAD, bool SMOOTH, int CAP, bool LONG, bool LOOP, typename Target,
		  i64 X_STEP, class DIMS, class X, class TARGETS, typename Index,
		  typename T = typename ROW::Element, typename Compute = typename ROW::Compute>
__global__ CROSS_ENTROPY_BOUNDS(ROW, ROW::skewed) void cross_entropy_stream(
	CROSS_ENTROPY_PARAMS(T, Target, Compute))
{
	typedef typename ROW::Column Column;
	typedef typename index_choose<(CAP != CROSS_ENTROPY_UNCAPPED), CrossEntropyCap<Compute>,
								  CrossEntropyPlain<Compute>>::type Mask;
	constexpr i64 columns = ROW::columns;
	auto call = CROSS_ENTROPY_MADE(T, Compute, columns);
	const Mask mask(cap);

	const auto target_of = [&](i64 number) {
		return target[index_offset<i64>(static_cast<Index>(number), DIMS{}, TARGETS{})];
	};
	call.begin();
	if constexpr (GRAD)
		call.template count_first<ROW::threads>(ROW::threads, target_of);
	row_each<ROW, LOOP, Index>(rows, [&](Index number, bool) {
		const CrossEntropyTarget at =
			cross_entropy_target(target_of(static_cast<i64>(number)), ignore, columns);
		const T *const from = x + index_offset<i64>(number, DIMS{}, X{});
		T *const to = grad + static_cast<i64>(number) * columns;
		const bool first = threadIdx.x == 0;
		CrossEntropyStream<ROW, Mask> held(
			from, SoftmaxScale<Compute>{1, Compute(SOFTMAX_LOG2E), 1}, mask);
		SoftmaxExact<Compute> sum = {0, 0};
		SoftmaxSum<Compute> all = {held.nothing(), 0};
		Compute hit = 0, total = 0;

		if (!at.live) {
			if constexpr (GRAD)
				held.store_nothing(to);
			if (first)
				call.end_row(static_cast<i64>(number), at, Compute(0), Compute(0));
			return;
		}
		/* The target's element is asked for now, and looked at when the row is done. */
		u32 hits[vec_words<sizeof(T)>] = {};
		const auto take_hit = [&] {
			if (first && at.column >= 0)
				hit = mask.term(0, 0, element_at<T, Compute>(hits, 0), Compute(1));
		};
		if (first && at.column >= 0)
			vec_load<sizeof(T)>(from + at.column * X_STEP, hits);
		if constexpr (CAP == CROSS_ENTROPY_BOUNDED) {
			typedef CrossEntropyBounded<ROW, LONG> Bounded;
			const Bounded bounded(cap);
			typename Bounded::Step now, next;
			all.largest = bounded.shift();
			bounded.fetch(held.row, 0, from, X_STEP, next);
#pragma unroll 1
			for (Column step = 0; step < ROW::steps(); step++) {
				bounded.move(next, now);
				if (step + 1 < ROW::steps())
					bounded.fetch(held.row, step + 1, from, X_STEP, next);
				sum.add(bounded.template sum<SMOOTH>(held.row, step, now, total));
			}
			take_hit();
		} else {
			take_hit();
#pragma unroll 1
			for (Column step = 0; step < ROW::steps(); step++) {
				held.fetch(step, from, X_STEP);
				if constexpr (SMOOTH)
					total += held.total(step);
				held.join(step, all.largest, sum);
			}
		}
		all.sum = sum.sum;
		all = ROW::group::template reduce<0>(all, held.scale.exponent);
		if constexpr (SMOOTH)
			total = ROW::group::template reduce<1>(SoftmaxTotal<Compute>{total}).sum;
		const Compute log_sum = cross_entropy_log(all.sum);
		if (first)
			call.end_row(static_cast<i64>(number), at, log_sum, all.largest, total, hit);
		if constexpr (GRAD) {
			const CrossEntropySlope<Compute> slope(at, all.largest + log_sum,
												   call.factor(target_of), smoothing, square,
												   Compute(1) / columns);
			const Compute rest = inverse_near(all.sum) * slope.power;
			if constexpr (!LOOP)
				call.leave(first);
#pragma unroll 1
			for (Column step = ROW::steps(); step-- > 0;) {
				held.fetch(step, from, X_STEP);
				held.template store_slope<SMOOTH>(step, to, all.largest, rest, slope);
			}
		}
	});
	call.template end<ROW::threads, LOOP ? -1 : 0>(ROW::threads);
}
