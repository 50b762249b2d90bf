/*
 * permute_box.cuh: any permutation whose vectors would be narrow: a box of elements goes through
 * shared memory, in runs of x that are loaded by aligned 16-byte pieces and runs of y that are
 * stored by aligned words.  Elements are bytes, as in permute.cuh.
 *
 * The box is made of dimensions that it takes whole, and of one or two that it takes a part of.
 * Its fastest dimensions in x are a run of x, its fastest ones in y a run of y.  Runs of x begin
 * anywhere: shared memory holds the pieces that cover them (at most 15 bytes more at each end, of
 * the same 16 bytes as an element), and all distances there are congruent to those in x modulo 16.
 * So an element lies where its indices say, whatever its run's alignment is.
 */
#pragma once
#include "common/async.cuh"
#include "common/index.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/*
 * A dimension of which a box takes EXTENT of SIZE elements; X, Y: its strides.  SIZE 0: it is the
 * slowest dimension, and its size is run-time; 1: there is no such dimension.
 */
template <int EXTENT, i64 SIZE, i64 X, i64 Y>
struct BoxPart {
	static constexpr int most = EXTENT;
	static constexpr bool whole = SIZE > 0 && SIZE % EXTENT == 0;
	static constexpr u32 tiles = SIZE > 0 ? static_cast<u32>((SIZE + EXTENT - 1) / EXTENT) : 1;
	static constexpr i64 step_x = EXTENT * X, step_y = EXTENT * Y;
	static constexpr bool outer = SIZE == 0;

	/* Returns how many elements tile number `tile` has. */
	static DEVICE u32 elements(u64 tile, i64 size)
	{
		const i64 left = (outer ? size : SIZE) - static_cast<i64>(tile) * EXTENT;
		return whole || left > EXTENT ? static_cast<u32>(EXTENT) : static_cast<u32>(left);
	}
};

/*
 * The runs of a box on one side.  RUN: elements of a whole run.  DIMS, but the slowest: the
 * dimensions that number the runs; FAR: their strides in the tensor, in elements; NEAR: in shared
 * memory, in bytes.
 */
template <int RUN, class DIMS, class FAR, class NEAR>
struct BoxRuns {
	static constexpr int run = RUN;
	template <typename Offset>
	static DEVICE Offset far(u32 i)
	{
		return index_offset<Offset>(i, DIMS{}, FAR{});
	}
	static DEVICE u32 near(u32 i)
	{
		return index_offset<u32>(i, DIMS{}, NEAR{});
	}
};

template <int ES, int THREADS, class RUNS, typename Offset>
DEVICE void box_in(const u8 *x, u8 *shared, u32 runs, u32 bytes)
{
	constexpr u32 pieces = (RUNS::run * ES + 31 - ES) / 16;
	const u32 beyond = vec_beyond<16>(x);
	x -= beyond;
#pragma unroll 4
	for (u32 i = threadIdx.x; i < runs * pieces; i += THREADS) {
		const u32 run = i / pieces, piece = i % pieces;
		const Offset begin =
			static_cast<Offset>(beyond) + RUNS::template far<Offset>(run) * static_cast<Offset>(ES);
		const Offset from = (begin & ~static_cast<Offset>(15)) + static_cast<Offset>(piece) * 16;
		if (from < begin + static_cast<Offset>(bytes))
			async_copy16(shared + ((beyond + RUNS::near(run)) & ~15u) + piece * 16, x + from);
	}
}

/*
 * Where elements first, first + 1, ... of a run of y lie; those below 0 anywhere.  If the fastest
 * dimension is as long as all of them, there is one end of it among them at most.
 */
template <int EACH, i64 STRIDE>
DEVICE void box_places(int first, List<>, List<STRIDE>, u32 (&places)[EACH])
{
#pragma unroll
	for (int k = 0; k < EACH; k++)
		places[k] = static_cast<u32>(first + k) * static_cast<u32>(STRIDE);
}
template <int EACH, i64 SIZE, i64... SIZES, i64 STRIDE, i64... STRIDES>
DEVICE void box_places(int first, List<SIZE, SIZES...>, List<STRIDE, STRIDES...>,
					   u32 (&places)[EACH])
{
	constexpr u32 size = static_cast<u32>(SIZE), stride = static_cast<u32>(STRIDE);
	const u32 rest = first < 0 ? ~0u : static_cast<u32>(first) / size;
	const u32 here = static_cast<u32>(first) - rest * size, left = size - here;
	const u32 before =
		here * stride + index_offset<u32>(rest, List<SIZES...>{}, List<STRIDES...>{});
	const u32 behind =
		index_offset<u32>(rest + 1, List<SIZES...>{}, List<STRIDES...>{}) - left * stride;

#pragma unroll
	for (int k = 0; k < EACH; k++)
		if constexpr (SIZE >= EACH)
			places[k] = (static_cast<u32>(k) < left ? before : behind) + k * stride;
		else
			places[k] =
				index_offset<u32>(first + k, List<SIZE, SIZES...>{}, List<STRIDE, STRIDES...>{});
}

/*
 * DIMS, NEAR: the dimensions of a run of y, their strides in shared memory; box: element 0; MOST:
 * runs of a whole box.  The lanes of a warp take TOGETHER bytes each of runs side by side if there
 * are enough: elements of one run may lie in few banks, those of neighbours lie in others.
 */
template <int ES, int OUT, int THREADS, int TOGETHER, class RUNS, int MOST, class DIMS, class NEAR,
		  typename Offset>
DEVICE void box_out(const u8 *box, u8 *y, u32 runs, int length)
{
	constexpr int each = OUT / ES;
	/* The words of a warp begin at a multiple of 128 bytes, which may be before the run. */
	constexpr int align = RUNS::run * ES >= 1024 ? 128 : OUT;
	constexpr u32 words = (RUNS::run * ES + align + OUT - ES - 1) / OUT, most = MOST;
	constexpr u32 together = most >= 8 ? TOGETHER / OUT : words;
	constexpr u32 parts = (words + together - 1) / together;
#pragma unroll 2
	for (u32 i = threadIdx.x; i < most * parts * together; i += THREADS) {
		const u32 part = i / together, run = part % most;
		const u32 word = part / most * together + i % together;
		if (run >= runs)
			continue;
		u8 *const begin = y + static_cast<i64>(RUNS::template far<Offset>(run)) * ES;
		const u8 *const from = box + RUNS::near(run);
		const int first = static_cast<int>(word) * each - vec_beyond<align>(begin) / ES;
		const bool whole = first >= 0 && first + each <= length;
		u32 places[each], elements[each];
		box_places<each>(first, DIMS{}, NEAR{}, places);
#pragma unroll
		for (int k = 0; k < each; k++)
			if (whole || static_cast<u32>(first + k) < static_cast<u32>(length))
				vec_load<ES>(from + places[k], elements + k);
		if (!whole) {
#pragma unroll
			for (int k = 0; k < each; k++)
				if (static_cast<u32>(first + k) < static_cast<u32>(length))
					vec_store<ES>(begin + (first + k) * ES, elements + k);
		} else if constexpr (ES == 4) {
			vec_store<OUT>(begin + first * ES, elements);
		} else {
			constexpr int fill = 4 / ES;
			u32 packed[vec_words<OUT>];
#pragma unroll
			for (int w = 0; w < vec_words<OUT>; w++)
				packed[w] = vec_collect<ES, fill, 1>(elements, [=](int k) { return w * fill + k; });
			vec_store<OUT>(begin + first * ES, packed);
		}
	}
}

/*
 * PX: the part at the end of a run of x, PY: at the end of a run of y; BOTH: PX is at the end of
 * both, and PY is none.  RUNS_X, RUNS_Y: how many runs a box has, but for the part that numbers the
 * slowest of them.  YD, YN: the dimensions of a run of y, their strides in shared memory.  BD, BX,
 * BY: the other dimensions; batch_x and batch_y are the strides of the slowest of all, or of a part
 * of it, of which there are outer_size elements.
 */
template <int ES, int OUT, int THREADS, int TOGETHER, class PX, class PY, bool BOTH, class X,
		  int RUNS_X, class Y, int RUNS_Y, class YD, class YN, class BD, class BX, class BY,
		  typename Offset, bool LOOP>
__global__ LAUNCH_BOUNDS(THREADS) void permute_box(const void *x, void *y, i64 batch_x, i64 batch_y,
												   u64 blocks, i64 outer_size)
{
	DYN_SHARED(b128, shared);

	u64 block = blockIdx.x;
	do {
		using Number = typename index_choose<LOOP, u64, u32>::type;
		const Number n = static_cast<Number>(block), rest = n / PY::tiles, item = rest / PX::tiles;
		const u32 tile_y = static_cast<u32>(n - rest * PY::tiles);
		const u32 tile_x = static_cast<u32>(rest - item * PX::tiles);
		const index_pair at = index_batch<BD, BX, BY, Offset>(item, batch_x, batch_y);
		const u64 outer = item / static_cast<Number>(BD::product);
		const u32 part_x = PX::elements(PX::outer ? outer : tile_x, outer_size);
		const u32 part_y = PY::elements(PY::outer ? outer : tile_y, outer_size);
		const u32 end_y = BOTH ? part_x : part_y;
		const u8 *const from =
			static_cast<const u8 *>(x) + (at.x + tile_x * PX::step_x + tile_y * PY::step_x) * ES;
		u8 *const to =
			static_cast<u8 *>(y) + (at.y + tile_x * PX::step_y + tile_y * PY::step_y) * ES;

		box_in<ES, THREADS, X, Offset>(from, reinterpret_cast<u8 *>(shared), RUNS_X * part_y,
									   X::run / PX::most * part_x * ES);
		async_wait_all();
		__syncthreads();
		box_out<ES, OUT, THREADS, TOGETHER, Y, RUNS_Y *(BOTH ? 1 : PX::most), YD, YN, Offset>(
			reinterpret_cast<u8 *>(shared) + vec_beyond<16>(from), to, RUNS_Y * (BOTH ? 1 : part_x),
			static_cast<int>(Y::run / (BOTH ? PX::most : PY::most) * end_y));
		if constexpr (LOOP) {
			__syncthreads();
			block += gridDim.x;
		}
	} while (LOOP && block < blocks);
}
