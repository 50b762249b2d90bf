/*
 * box.cuh: boxes of four numbers x1, y1, x2, y2, read as any of the floats or u8; the generalized
 * intersection over union of two of them, and its derivative by the first.
 *
 *   giou = inter / max(union, e) - (enclosing - union) / max(enclosing, e),  e = 1e-5
 *
 * of the areas of the intersection, the union and the smallest box around both.  CLAMP: sides of
 * the intersection are at least 0; without, two boxes that are apart in both directions have a
 * positive one.
 */
#pragma once
#include "common/element.cuh"
#include "common/index.cuh"
#include "common/total.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

template <typename Compute>
constexpr Compute box_least = static_cast<Compute>(1e-5);

template <typename T, typename Compute>
DEVICE Compute box_number(const u32 *words, int i)
{
	if constexpr (sizeof(T) == 1)
		return static_cast<Compute>(words[0] >> i * 8 & 0xff);
	else
		return element_at<T, Compute>(words, i);
}

/* The boxes of one operand: W bytes are loaded at once, one number if they lie STEP apart.  DIMS
 * number the boxes, all but the slowest dimension, and lie STRIDES apart. */
template <typename T, int W, i64 STEP, class DIMS, class STRIDES>
struct Boxes {
	typedef T Element;
	static constexpr int bytes = static_cast<int>(sizeof(T));

	template <typename Number>
	static DEVICE const T *at(const T *from, Number box)
	{
		return from + index_offset<i64>(box, DIMS{}, STRIDES{});
	}

	template <typename Compute>
	static DEVICE void load(const T *from, Compute (&box)[4])
	{
		if constexpr (W > bytes) {
			u32 words[4 * bytes / W * vec_words<W>];
#pragma unroll
			for (int n = 0; n < 4 * bytes / W; n++)
				vec_load<W>(reinterpret_cast<const u8 *>(from) + n * W, words + n * vec_words<W>);
#pragma unroll
			for (int i = 0; i < 4; i++) {
				/* Less than a word at a time: two numbers in the low half of each. */
				if constexpr (W < 4)
					box[i] = box_number<T, Compute>(words + i * bytes / W, i * bytes % W / bytes);
				else
					box[i] = box_number<T, Compute>(words, i);
			}
		} else {
#pragma unroll
			for (int i = 0; i < 4; i++) {
				u32 words[vec_words<bytes>];
				vec_load<bytes>(from + i * STEP, words);
				box[i] = box_number<T, Compute>(words, 0);
			}
		}
	}
};

template <typename Compute>
DEVICE Compute box_min(Compute a, Compute b)
{
	if constexpr (sizeof(Compute) == 8)
		return fmin(a, b);
	else
		return fminf(a, b);
}

template <typename Compute>
DEVICE Compute box_max(Compute a, Compute b)
{
	if constexpr (sizeof(Compute) == 8)
		return fmax(a, b);
	else
		return fmaxf(a, b);
}

/* Returns the limit at least; a NaN stays one. */
template <typename Compute>
DEVICE Compute box_limited(Compute area)
{
	return area < box_least<Compute> ? box_least<Compute> : area;
}

/* 1 / an area that is limited.  Of f32 to the last bit but one: a division would take as long as
 * all the rest of a pair.  SMALL: the inverse of no area is subnormal; nothing has to be scaled. */
template <bool SMALL, typename Compute>
DEVICE Compute box_over(Compute area)
{
#if !KILN_CPU
	if constexpr (sizeof(Compute) == 4) {
		f32 over;
		if constexpr (SMALL)
			asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(over) : "f"(box_limited(area)));
		else
			asm("rcp.approx.f32 %0, %1;" : "=f"(over) : "f"(box_limited(area)));
		return over;
	}
#endif
	return static_cast<Compute>(1) / box_limited(area);
}

/* Halves and bytes make areas of less than 2^36. */
template <typename PRED, typename TARGET>
constexpr bool box_small = false;
template <>
constexpr bool box_small<f16, f16> = true;
template <>
constexpr bool box_small<f16, u8> = true;

/* Two boxes and what they make. */
template <typename Compute, bool CLAMP, bool SMALL = false>
struct BoxPair {
	Compute wide, high;             /* sides of the first */
	Compute inner_wide, inner_high; /* of the intersection, before they are cut off */
	Compute outer_wide, outer_high; /* of the enclosing box */
	Compute inter, joined, enclosing;

	DEVICE BoxPair(const Compute (&a)[4], const Compute (&b)[4])
	{
		wide = a[2] - a[0];
		high = a[3] - a[1];
		inner_wide = box_min(a[2], b[2]) - box_max(a[0], b[0]);
		inner_high = box_min(a[3], b[3]) - box_max(a[1], b[1]);
		outer_wide = box_max(a[2], b[2]) - box_min(a[0], b[0]);
		outer_high = box_max(a[3], b[3]) - box_min(a[1], b[1]);
		inter = side(inner_wide) * side(inner_high);
		joined = wide * high + (b[2] - b[0]) * (b[3] - b[1]) - inter;
		enclosing = outer_wide * outer_high;
	}

	static DEVICE Compute side(Compute value)
	{
		return CLAMP ? box_max(value, static_cast<Compute>(0)) : value;
	}

	/* A NaN in either box makes `joined` a NaN. */
	DEVICE Compute giou() const
	{
		return inter * box_over<SMALL>(joined) - (enclosing - joined) * box_over<SMALL>(enclosing);
	}

	/*
	 * factor * the derivatives by the numbers of the first box.  A number that is the same in both
	 * boxes is halved between them; a limit that is met exactly lets the derivative through.
	 */
	DEVICE void gradient(const Compute (&a)[4], const Compute (&b)[4], Compute factor,
						 Compute (&out)[4]) const
	{
		const Compute zero = 0, half = static_cast<Compute>(0.5);
		const Compute over = box_over<SMALL>(joined), around = box_over<SMALL>(enclosing);
		const Compute of_joined = joined < box_least<Compute> ? zero : inter * over * over;
		const Compute of_enclosing =
			enclosing < box_least<Compute> ? zero : (enclosing - joined) * around * around;
		const Compute by_joined = factor * (around - of_joined);
		const Compute by_inter = factor * over - by_joined;
		const Compute by_enclosing = factor * (of_enclosing - around);
		const Compute own[2] = {by_joined * high, by_joined * wide};
		const Compute outer[2] = {by_enclosing * outer_high, by_enclosing * outer_wide};
		const Compute inner[2] = {CLAMP && inner_wide < zero ? zero : by_inter * side(inner_high),
								  CLAMP && inner_high < zero ? zero : by_inter * side(inner_wide)};
#pragma unroll
		for (int i = 0; i < 2; i++) {
			/* The larger of two low corners is the intersection's, that of two high ones the
			 * enclosing box's. */
			const Compute middle = half * (inner[i] + outer[i]);
			const Compute low = a[i] > b[i] ? inner[i] : a[i] < b[i] ? outer[i] : middle;
			const Compute top = a[i + 2] > b[i + 2]   ? outer[i]
								: a[i + 2] < b[i + 2] ? inner[i]
													  : middle;
			out[i] = -own[i] - low;
			out[i + 2] = own[i] + top;
		}
	}
};

/*
 * Pairs of boxes: pair number i is PRED's box i with TARGET's, or, RAGGED, with the target that is
 * box i % MOST of sample i / MOST, where sample s has the targets offsets[s] .. offsets[s + 1] - 1
 * of `boxes`.  A pair is valid if it has a target, and its y2 is not 0.
 */
template <class PRED, class TARGET, bool RAGGED, i64 MOST>
struct BoxPairs {
	typedef typename PRED::Element Pred;
	typedef typename TARGET::Element Target;
	typedef typename element<Pred>::compute Compute;
	template <bool CLAMP>
	using Pair = BoxPair<Compute, CLAMP, box_small<Pred, Target>>;

	const Pred *pred;
	const Target *target;
	const i32 *offsets;
	i64 boxes;

	/* nullptr: there is none. */
	template <typename Number>
	DEVICE const Target *target_of(Number pair) const
	{
		if constexpr (RAGGED) {
			const Number sample = pair / static_cast<Number>(MOST);
			const i64 k = static_cast<i64>(pair - sample * static_cast<Number>(MOST));
			const i64 begin = within(offsets[sample]), end = within(offsets[sample + 1]);
			return k < end - begin ? TARGET::at(target, begin + k) : nullptr;
		} else {
			return TARGET::at(target, pair);
		}
	}

	/* The two boxes of a pair, if it is valid; a prediction without a valid target is not read. */
	template <typename Number>
	DEVICE bool load(Number pair, Compute (&a)[4], Compute (&b)[4]) const
	{
		const Target *const other = target_of(pair);

		if (RAGGED && !other)
			return false;
		TARGET::load(other, b);
		if (!(b[3] != 0))
			return false;
		PRED::load(PRED::at(pred, pair), a);
		return true;
	}

	/* Does so in less time if few predictions are without a valid target, or the time of a load
	 * counts more than the bytes: it reads both boxes at once, and the target's stands for both if
	 * the pair is not valid. */
	template <typename Number>
	DEVICE bool load_both(Number pair, Compute (&a)[4], Compute (&b)[4]) const
	{
		static_assert(!RAGGED, "every pair has a target");
		TARGET::load(TARGET::at(target, pair), b);
		PRED::load(PRED::at(pred, pair), a);
		const bool valid = b[3] != 0;
#pragma unroll
		for (int i = 0; i < 4; i++)
			a[i] = valid ? a[i] : b[i];
		return valid;
	}

  private:
	/* Keeps an offset, right or wrong, within the boxes there are. */
	DEVICE i64 within(i32 offset) const
	{
		return offset < 0 ? 0 : offset < boxes ? offset : boxes;
	}
};

/* The mean of all pairs: total_of() of what each thread has. */
template <int MOST, typename Compute, typename Count>
DEVICE void giou_finish(Compute sum, Count valid, const int threads, u8 *scratch, Compute *loss,
						i64 *count)
{
	if (total_of<MOST>(sum, valid, threads, scratch) && threadIdx.x == 0) {
		*loss = sum / static_cast<Compute>(valid > 1 ? valid : 1);
		if (count)
			*count = static_cast<i64>(valid);
	}
}

/* Stores a box, W bytes at once.  The address is aligned to them. */
template <int W, typename T, typename Compute>
DEVICE void box_store(T *to, const Compute (&box)[4])
{
	constexpr int bytes = 4 * static_cast<int>(sizeof(T));

	if constexpr (W == sizeof(T)) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			element_store(to + i, box[i]);
	} else {
		u32 words[bytes / 4];
		element_pack<T>(box, words);
#pragma unroll
		for (int n = 0; n < bytes / W; n++)
			vec_store<W>(reinterpret_cast<u8 *>(to) + n * W, words + n * (W / 4));
	}
}
