/*
 * giou_generic.cuh: giou, its mean, and the backward of both, for numbers of boxes and strides that
 * are known when the kernel is launched; ragged batches, whose samples have any number of targets,
 * among them.  One pair a thread, as in giou.cuh.
 */
#pragma once
#include "common/box.cuh"
#include "common/element.cuh"
#include "common/space.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

#define GIOU_THREADS 256      /* at most */
#define GIOU_LOSS_THREADS 512 /* at most */

enum {
	GIOU_CLAMP = 1,
	GIOU_PRED = 2,   /* a box of pred is one vector, or two of 16 bytes */
	GIOU_TARGET = 4, /* of target */
	GIOU_DPRED = 8,  /* of dpred */
};

/* A box at `from`, whose numbers lie `step` apart, or as a vector. */
template <typename T, typename Compute>
DEVICE void giou_load(const T *from, i64 step, bool vector, Compute (&box)[4])
{
	constexpr int bytes = 4 * static_cast<int>(sizeof(T));

	if (vector) {
		Boxes<T, (bytes < 16 ? bytes : 16), 1, List<>, List<0>>::load(from, box);
		return;
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
		u32 words[vec_words<bytes / 4>];
		vec_load<bytes / 4>(from + i * step, words);
		box[i] = box_number<T, Compute>(words, 0);
	}
}

template <typename T, typename Compute>
DEVICE void giou_store(T *to, bool vector, const Compute (&box)[4])
{
	constexpr int bytes = 4 * static_cast<int>(sizeof(T));

	if (vector)
		box_store<(bytes < 16 ? bytes : 16)>(to, box);
	else
		box_store<bytes / 4>(to, box);
}

/* BoxPairs of box.cuh, with sizes as arguments; pairs that are not ragged have no offsets. */
template <typename PRED, typename TARGET>
struct GiouPairs {
	typedef typename element<PRED>::compute Compute;

	const PRED *pred;
	const TARGET *target;
	const i32 *offsets;
	i64 boxes;
	i64 pred_step, target_step, ragged_stride;
	Divisor<u64> most; /* ragged: predictions of a sample */
	u32 flags;
	Space<3, u64> space; /* pred, target, dy */

	/* A pair's boxes, if it is valid, and where its dy is. */
	DEVICE bool load(u64 pair, Compute (&a)[4], Compute (&b)[4], i64 &dy) const
	{
		i64 at[3];

		space.at(pair, at);
		dy = at[2];
		if (offsets) {
			const u64 sample = most.quotient(pair);
			const i64 k = static_cast<i64>(pair - sample * most.size);
			const i64 begin = within(offsets[sample]), end = within(offsets[sample + 1]);
			if (k >= end - begin)
				return false;
			at[1] = (begin + k) * ragged_stride;
		}
		giou_load(target + at[1], target_step, flags & GIOU_TARGET, b);
		if (!(b[3] != 0))
			return false;
		giou_load(pred + at[0], pred_step, flags & GIOU_PRED, a);
		return true;
	}

	DEVICE Compute giou(const Compute (&a)[4], const Compute (&b)[4]) const
	{
		return flags & GIOU_CLAMP ? BoxPair<Compute, true>(a, b).giou()
								  : BoxPair<Compute, false>(a, b).giou();
	}

	DEVICE void gradient(const Compute (&a)[4], const Compute (&b)[4], Compute factor,
						 Compute (&out)[4]) const
	{
		if (flags & GIOU_CLAMP)
			BoxPair<Compute, true>(a, b).gradient(a, b, factor, out);
		else
			BoxPair<Compute, false>(a, b).gradient(a, b, factor, out);
	}

  private:
	DEVICE i64 within(i32 offset) const
	{
		return offset < 0 ? 0 : offset < boxes ? offset : boxes;
	}
};

#define GIOU_PARAMS                                                                    \
	u64 pairs, i64 boxes, i64 pred_step, i64 target_step, i64 ragged_stride,           \
		DIVIDE_PARAMS(u64, most), u32 flags, SPACE_SIZES(u64), SPACE_STRIDES(of_pred), \
		SPACE_STRIDES(of_target), SPACE_STRIDES(of_dy)
#define GIOU_PAIRS(PRED, TARGET, offsets)                                    \
	GiouPairs<PRED, TARGET>                                                  \
	{                                                                        \
		pred, target, offsets, boxes, pred_step, target_step, ragged_stride, \
			DIVIDE_MADE(u64, most), flags,                                   \
		{                                                                    \
			SPACE_SIZES_MADE(u64),                                           \
			{                                                                \
				SPACE_STRIDES_MADE(of_pred), SPACE_STRIDES_MADE(of_target),  \
					SPACE_STRIDES_MADE(of_dy)                                \
			}                                                                \
		}                                                                    \
	}

template <typename PRED, typename TARGET>
__global__ __launch_bounds__(GIOU_THREADS) void giou_generic(const PRED *pred, const TARGET *target,
															 PRED *y, GIOU_PARAMS)
{
	typedef typename element<PRED>::compute Compute;
	const auto all = GIOU_PAIRS(PRED, TARGET, nullptr);
	const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;

	for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < pairs; i += step) {
		Compute a[4], b[4];
		i64 unused;
		element_store(y + i, all.load(i, a, b, unused) ? all.giou(a, b) : static_cast<Compute>(0));
	}
}

template <typename PRED, typename TARGET>
__global__
__launch_bounds__(GIOU_THREADS) void giou_backward_generic(const PRED *pred, const TARGET *target,
														   const PRED *dy, PRED *dpred, GIOU_PARAMS)
{
	typedef typename element<PRED>::compute Compute;
	const auto all = GIOU_PAIRS(PRED, TARGET, nullptr);
	const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;

	for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < pairs; i += step) {
		Compute a[4], b[4], out[4] = {};
		i64 at;
		if (all.load(i, a, b, at))
			all.gradient(a, b, element_load<Compute>(dy + at), out);
		giou_store(dpred + 4 * i, flags & GIOU_DPRED, out);
	}
}

/* count: of valid pairs, as giou_loss found it. */
template <typename PRED, typename TARGET, typename Compute = typename element<PRED>::compute>
__global__ __launch_bounds__(GIOU_THREADS) void giou_loss_backward_generic(
	const PRED *pred, const TARGET *target, const i32 *offsets, const i64 *count,
	const Compute *dloss, PRED *dpred, GIOU_PARAMS)
{
	const auto all = GIOU_PAIRS(PRED, TARGET, offsets);
	const i64 valid = *count;
	const Compute factor = *dloss / static_cast<Compute>(valid > 1 ? valid : 1);
	const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;

	for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < pairs; i += step) {
		Compute a[4], b[4], out[4] = {};
		i64 unused;
		if (all.load(i, a, b, unused))
			all.gradient(a, b, factor, out);
		giou_store(dpred + 4 * i, flags & GIOU_DPRED, out);
	}
}

template <typename PRED, typename TARGET, typename Compute = typename element<PRED>::compute>
__global__
__launch_bounds__(GIOU_LOSS_THREADS) void giou_loss_generic(const PRED *pred, const TARGET *target,
															const i32 *offsets, Compute *loss,
															i64 *count, u8 *scratch, GIOU_PARAMS)
{
	const auto all = GIOU_PAIRS(PRED, TARGET, offsets);
	const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
	Compute sum = 0;
	i64 valid = 0;

	for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < pairs; i += step) {
		Compute a[4], b[4];
		i64 unused;
		if (all.load(i, a, b, unused)) {
			sum += all.giou(a, b);
			valid++;
		}
	}
	giou_finish<GIOU_LOSS_THREADS>(sum, valid, static_cast<int>(blockDim.x), scratch, loss, count);
}
