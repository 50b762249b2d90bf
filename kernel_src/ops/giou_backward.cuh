/*
 * giou_backward.cuh: the derivative by the predictions, from that by giou or by its mean over all
 * valid pairs.  A thread has one pair, or some; a pair that is not valid gets 0.
 */
#pragma once
#include "common/box.cuh"
#include "common/element.cuh"
#include "common/types.cuh"

template <int W, bool CLAMP, class PAIRS, typename Number>
DEVICE void giou_pair_backward(const PAIRS &all, Number pair, typename PAIRS::Compute factor,
							   typename PAIRS::Pred *dpred)
{
	typedef typename PAIRS::Compute Compute;
	Compute a[4], b[4], out[4] = {};

	if (all.load(pair, a, b))
		typename PAIRS::template Pair<CLAMP>(a, b).gradient(a, b, factor, out);
	box_store<W>(dpred + static_cast<i64>(pair) * 4, out);
}

/* dy: numbered by DIMS, DY apart. */
template <class PRED, class TARGET, bool CLAMP, int W, class DIMS, class DY, int THREADS,
		  typename Number, bool LOOP>
__global__ __launch_bounds__(THREADS) void giou_pairs_backward(
	const typename PRED::Element *pred, const typename TARGET::Element *target,
	const typename PRED::Element *dy, typename PRED::Element *dpred, i64 pairs)
{
	typedef BoxPairs<PRED, TARGET, false, 1> Pairs;
	const Pairs all{pred, target, nullptr, 0};
	Number pair = static_cast<Number>(blockIdx.x) * THREADS + static_cast<Number>(threadIdx.x);

	while (pair < static_cast<Number>(pairs)) {
		const auto factor =
			element_load<typename Pairs::Compute>(dy + index_offset<i64>(pair, DIMS{}, DY{}));
		giou_pair_backward<W, CLAMP>(all, pair, factor, dpred);
		if constexpr (!LOOP)
			break;
		pair += static_cast<Number>(gridDim.x) * THREADS;
	}
}

/* count: of valid pairs, as giou_loss found it.  BOTH and EACH: as of giou_loss. */
template <class PRED, class TARGET, bool RAGGED, i64 MOST, bool CLAMP, bool BOTH, int EACH, int W,
		  int THREADS, typename Number, bool LOOP,
		  typename Compute = typename element<typename PRED::Element>::compute>
__global__ __launch_bounds__(THREADS) void giou_loss_backward(
	const typename PRED::Element *pred, const typename TARGET::Element *target, const i32 *offsets,
	const i64 *count, const Compute *dloss, typename PRED::Element *dpred, i64 pairs, i64 boxes)
{
	static_assert(BOTH || EACH == 1, "a pair that waits for its target is alone");
	typedef BoxPairs<PRED, TARGET, RAGGED, MOST> Pairs;
	const Pairs all{pred, target, offsets, boxes};
	const i64 valid = *count;
	/* A division would take as long as a pair. */
	const Compute factor = *dloss * box_over<true>(static_cast<Compute>(valid > 1 ? valid : 1));
	const Number end = static_cast<Number>(pairs);
	Number pair =
		static_cast<Number>(blockIdx.x) * (EACH * THREADS) + static_cast<Number>(threadIdx.x);

	while (pair < end) {
		if constexpr (BOTH) {
			Compute a[EACH][4], b[EACH][4];
			bool here[EACH];
#pragma unroll
			for (int j = 0; j < EACH; j++) {
				const Number mine = pair + static_cast<Number>(j * THREADS);
				here[j] = all.load_both(mine < end ? mine : pair, a[j], b[j]);
			}
#pragma unroll
			for (int j = 0; j < EACH; j++) {
				const Number mine = pair + static_cast<Number>(j * THREADS);
				Compute out[4];
				typename Pairs::template Pair<CLAMP>(a[j], b[j]).gradient(a[j], b[j], factor, out);
#pragma unroll
				for (int i = 0; i < 4; i++)
					out[i] = here[j] ? out[i] : 0;
				if (mine < end)
					box_store<W>(dpred + static_cast<i64>(mine) * 4, out);
			}
		} else {
			giou_pair_backward<W, CLAMP>(all, pair, factor, dpred);
		}
		if constexpr (!LOOP)
			break;
		pair += static_cast<Number>(gridDim.x) * (EACH * THREADS);
	}
}
