/*
 * masked_softmax_staged.cuh: masked softmax and its backward of rows that come and go by way of
 * shared memory (row_staged.cuh), and with them their masks.  Parameters as in masked_softmax.cuh.
 */
#pragma once
#include "common/mask.cuh"
#include "common/row_staged.cuh"
#include "common/softmax_backward.cuh"
#include "common/softmax_rows.cuh"

/* Bytes of shared memory that the mask of a row has: 0, if it is read where it lies. */
template <class MASK, class PLACE>
constexpr int mask_aside = PLACE::step == 1 && MASK::bytes > 0 ? row_aside_bytes(MASK::bytes) : 0;

/* Makes the masks of rows. */
template <class SHAPE, class MASK, class PLACE, typename Index>
struct MaskStaged {
	typename MASK::Given given;

	DEVICE MASK operator()(i64 row, u8 *memory) const
	{
		constexpr int threads = SHAPE::threads / SHAPE::rows;
		const MASK mask = PLACE::template at<MASK>(given, static_cast<Index>(row));

		if constexpr (mask_aside < MASK, PLACE >> 0) {
			return MASK(
				row_aside<threads, MASK::bytes, true>(memory, mask.start, SHAPE::group::thread()),
				0, 1);
		} else {
			return mask;
		}
	}
};

template <class SHAPE, class MASK, class PLACE, typename Index,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__
LAUNCH_BOUNDS(SHAPE::threads) void masked_softmax_staged(const T *x, typename MASK::Given given,
														 T *y, Compute before, Compute exponent,
														 Compute after, i64 rows)
{
	const T *const from[1] = {x};
	T *const to[1] = {y};

	row_staged_masked<SHAPE, 1, mask_aside<MASK, PLACE>, MASK::prefix>(
		from, to, rows, MaskStaged<SHAPE, MASK, PLACE, Index>{given},
		[&](T *const(&piece)[1], i64, int row, bool here, const MASK &mask) {
			T *const start = piece[0] + row * static_cast<int>(SHAPE::row::columns);
			softmax_row<SHAPE, false>(start, 1, start, 1,
									  SoftmaxScale<Compute>{before, exponent, after}, mask, here);
		});
}

template <class SHAPE, class MASK, class PLACE, typename Index,
		  typename T = typename SHAPE::Element, typename Compute = typename SHAPE::Compute>
__global__ LAUNCH_BOUNDS(SHAPE::threads) void masked_softmax_backward_staged(
	const T *y, const T *dy, typename MASK::Given given, T *dx, Compute scale, i64 rows)
{
	const T *const from[2] = {y, dy};
	T *const to[2] = {dx, nullptr};
	const i64 step[2] = {1, 1};

	row_staged_masked<SHAPE, 2, mask_aside<MASK, PLACE>, MASK::prefix>(
		from, to, rows, MaskStaged<SHAPE, MASK, PLACE, Index>{given},
		[&](T *const(&piece)[2], i64, int row, bool here, const MASK &mask) {
			const int at = row * static_cast<int>(SHAPE::row::columns);
			const T *const start[2] = {piece[0] + at, piece[1] + at};
			softmax_backward_row<SHAPE, false>(start, step, piece[0] + at, 1, scale, mask, here);
		});
}
