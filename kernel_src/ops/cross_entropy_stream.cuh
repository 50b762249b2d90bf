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
 * The sum of exp(cap * tanh(x / cap)), with few instructions of those that are slow.  With i = 1 /
 * (1 + 2^(rate * x)), which is (1 + tanh(x / cap)) / 2, an element's power is 2^(reach * i +
 * middle); middle is a whole number, and the powers of +-cap lie about as far from 1.
 *
 * Four inverses are made of one: 1 / a = 1 / (a * b) * b.  Where the product is too large, or no
 * number, each is made alone.  The first POLYNOMIALS elements of a vector are raised by a
 * polynomial through the Chebyshev nodes from -1/2 to 1/2, wrong by 2e-7.
 */
template <class ROW, int POLYNOMIALS>
struct CrossEntropyBounded {
	typedef typename ROW::Element T;
	typedef typename ROW::Column Column;
	static constexpr int V = ROW::length, count = ROW::count;
	static constexpr int together = V < 4 ? V : 4, groups = V / together;

	float rate, reach, middle, cap;
	u32 word[count][ROW::words];

	DEVICE explicit CrossEntropyBounded(float cap)
		: rate(-2.88539008f / cap), reach(2.88539008f * cap), middle(-rintf(1.44269504f * cap)),
		  cap(cap)
	{
	}

	/* The logarithm of what powers are divided by. */
	DEVICE float shift() const
	{
		return fmaf(reach, -0.5f, -middle) * 0.693147181f;
	}

	DEVICE void fetch(const ROW &row, Column step, const T *x, i64 apart)
	{
#pragma unroll
		for (int u = 0; u < count; u++)
			if (row.has(step * count + u))
				vec_load<ROW::bytes>(row_place<V>(x, row.column(step * count + u), apart), word[u]);
	}

	/* The sum of a step's powers; total: what its terms join. */
	template <bool SMOOTH>
	DEVICE float sum(const ROW &row, Column step, float &total) const
	{
		float sum = 0;

#pragma unroll
		for (int u = 0; u < count; u++) {
			const Column n = step * count + u;
			float value[V], product[groups], inverse[V];
			if (!row.has(n))
				continue;
			element_unpack<T>(word[u], value);
#pragma unroll
			for (int j = 0; j < V; j++)
				value[j] = 1 + softmax_exp2_flush(value[j] * rate);
			if (multiply(value, product) && row.inside(n)) {
				invert(value, product, inverse);
#pragma unroll
				for (int j = 0; j < V; j++)
					sum += j < POLYNOMIALS ? polynomial(inverse[j]) : power(inverse[j]);
			} else {
#pragma unroll
				for (int j = 0; j < V; j++) {
					inverse[j] = softmax_inverse(value[j]);
					sum += row.live(n, j) ? power(inverse[j]) : 0;
				}
			}
			if constexpr (SMOOTH) {
#pragma unroll
				for (int j = 0; j < V; j++)
					total += row.live(n, j) ? fmaf(2 * cap, inverse[j], -cap) : 0;
			}
		}
		return sum;
	}

  private:
	DEVICE float power(float inverse) const
	{
		return softmax_exp2_flush(fmaf(reach, inverse, middle));
	}
	DEVICE float polynomial(float inverse) const
	{
		const float round = middle + 0x1.8p23f, shifted = fmaf(reach, inverse, round);
		const float rest = fmaf(reach, inverse, round - shifted);
		float p = 0x1.5f0890p-10f;

		p = fmaf(p, rest, 0x1.3d1070p-7f);
		p = fmaf(p, rest, 0x1.c6af6cp-5f);
		p = fmaf(p, rest, 0x1.ebf906p-3f);
		p = fmaf(p, rest, 0x1.62e430p-1f);
		p = fmaf(p, rest, 0x1.000002p0f);
		return __uint_as_float((__float_as_uint(shifted) << 23) + __float_as_uint(p));
	}
	/* Values of at least 1, in groups.  False: a product is too large, or no number. */
	static DEVICE bool multiply(const float (&value)[V], float (&product)[groups])
	{
		bool usual = true;

#pragma unroll
		for (int g = 0; g < groups; g++) {
			const float *const at = value + g * together;
			product[g] = at[0];
			if constexpr (together == 4)
				product[g] = at[0] * at[1] * (at[2] * at[3]);
			else if constexpr (together == 2)
				product[g] = at[0] * at[1];
			usual = usual && product[g] < 0x1p120f;
		}
		return usual;
	}
	static DEVICE void invert(const float (&value)[V], const float (&product)[groups],
							  float (&out)[V])
	{
#pragma unroll
		for (int g = 0; g < groups; g++) {
			const float *const at = value + g * together, all = softmax_inverse(product[g]);
			float *const to = out + g * together;
			if constexpr (together == 4) {
				const float low = all * (at[2] * at[3]), high = all * (at[0] * at[1]);
				to[0] = low * at[1];
				to[1] = low * at[0];
				to[2] = high * at[3];
				to[3] = high * at[2];
			} else if constexpr (together == 2) {
				to[0] = all * at[1];
				to[1] = all * at[0];
			} else {
				to[0] = all;
			}
		}
	}
};

template <class ROW, bool GRAD, bool SMOOTH, int CAP, int POLYNOMIALS, bool LOOP, typename Target,
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
		if (first && at.column >= 0)
			hit = mask.term(0, 0, element_load<Compute>(from + at.column * X_STEP), Compute(1));
		if constexpr (CAP == CROSS_ENTROPY_BOUNDED) {
			CrossEntropyBounded<ROW, POLYNOMIALS> bounded(cap);
			all.largest = bounded.shift();
#pragma unroll 1
			for (Column step = 0; step < ROW::steps(); step++) {
				bounded.fetch(held.row, step, from, X_STEP);
				sum.add(bounded.template sum<SMOOTH>(held.row, step, total));
			}
		} else {
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
		const Compute log_sum = softmax_log(all.sum);
		if (first)
			call.end_row(static_cast<i64>(number), at, log_sum, all.largest, total, hit);
		if constexpr (GRAD) {
			const CrossEntropySlope<Compute> slope(at, all.largest + log_sum,
												   call.factor(target_of), smoothing, square,
												   Compute(1) / columns);
			const Compute rest = softmax_inverse(all.sum) * slope.power;
			if constexpr (!LOOP)
				call.leave();
#pragma unroll 1
			for (Column step = ROW::steps(); step-- > 0;) {
				held.fetch(step, from, X_STEP);
				held.template store_slope<SMOOTH>(step, to, all.largest, rest, slope);
			}
		}
	});
	call.template end<ROW::threads, !LOOP>(ROW::threads);
}
