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

/* Where a run begins in the tensor, and in shared memory, in bytes. */
template <typename Offset>
struct alignas(2 * sizeof(Offset)) BoxPlace {
	Offset far;
	u32 near;
};

/* Notes `runs` places, of which the first one is at `far` and `near`. */
template <int ES, int THREADS, class RUNS, typename Offset>
DEVICE void box_note(BoxPlace<Offset> *places, u32 runs, u32 far, u32 near)
{
#pragma unroll 1
	for (u32 i = threadIdx.x; i < runs; i += THREADS)
		places[i] = {static_cast<Offset>(far) +
						 RUNS::template far<Offset>(i) * static_cast<Offset>(ES),
					 near + RUNS::near(i)};
}

/* Where a byte of the box lies in shared memory.  TURN: chunks of 16 bytes change places within
 * 128, so that elements that are multiples of 128 bytes apart do not meet in a bank. */
template <bool TURN>
DEVICE u32 box_turn(u32 at)
{
	return TURN ? at ^ (at >> 3 & 0x70) : at;
}

/* x: aligned; places: of runs of x, behind that; MOST: runs of a whole box. */
template <int ES, int THREADS, bool TURN, int MOST, class RUNS, typename Offset>
DEVICE void box_in(const u8 *x, const BoxPlace<Offset> *places, u8 *shared, u32 runs, u32 bytes)
{
	constexpr u32 pieces = (RUNS::run * ES + 31 - ES) / 16;
	constexpr u32 strips = THREADS / pieces, more = THREADS % pieces;
	u32 run = threadIdx.x / pieces, piece = threadIdx.x % pieces;
	BoxPlace<Offset> place = places[0];
#pragma unroll 4
	for (u32 i = threadIdx.x; i < runs * pieces; i += THREADS) {
		const u32 at = piece * 16;
		if constexpr (MOST > 1)
			place = places[run];
		if (at < place.near % 16 + bytes)
			async_copy16(shared + box_turn<TURN>((place.near & ~15u) + at),
						 x + (place.far & ~static_cast<Offset>(15)) + at);
		run += strips;
		piece += more;
		if (more != 0 && piece >= pieces) {
			piece -= pieces;
			run++;
		}
	}
}

/*
 * Where elements first, first + 1, ... of a run of y lie; those below 0 anywhere, of which there
 * are fewer than N.  N neighbours lie in a few neighbours of the next dimension, and the first of
 * these tells where the others are.
 */
template <int N, i64 STRIDE>
DEVICE void box_steps(int first, List<>, List<STRIDE>, u32 (&places)[N])
{
#pragma unroll
	for (int k = 0; k < N; k++)
		places[k] = static_cast<u32>(first + k) * static_cast<u32>(STRIDE);
}
template <int N, i64 SIZE, i64... SIZES, i64 STRIDE, i64... STRIDES>
DEVICE void box_steps(int first, List<SIZE, SIZES...>, List<STRIDE, STRIDES...>, u32 (&places)[N])
{
	constexpr int size = static_cast<int>(SIZE), before = (N + size - 1) / size;
	constexpr int more = N > 1 ? (N - 2) / size + 2 : 1;
	constexpr u32 stride = static_cast<u32>(STRIDE);
	const int rest = static_cast<int>(static_cast<u32>(first + before * size) / size) - before;
	const int here = first - rest * size;
	u32 next[more];

	box_steps<more>(rest, List<SIZES...>{}, List<STRIDES...>{}, next);
#pragma unroll
	for (int j = 0; j < more; j++)
		next[j] += static_cast<u32>(here - j * size) * stride;
#pragma unroll
	for (int k = 0; k < N; k++) {
		const int j = k / size;
		places[k] = (j + 1 < more && here >= size - k % size ? next[j + 1] : next[j]) + k * stride;
	}
}

/* As box_steps() from `box` on, for elements that are all there.  Neighbours differ by what is
 * known when the kernel is compiled, which costs their loads nothing. */
template <int N, i64 STRIDE>
DEVICE void box_walk(const u8 *box, int first, List<>, List<STRIDE>, const u8 *(&places)[N])
{
	const u8 *const begin = box + first * static_cast<int>(STRIDE);
#pragma unroll
	for (int k = 0; k < N; k++)
		places[k] = begin + k * static_cast<int>(STRIDE);
}
template <int N, i64 SIZE, i64... SIZES, i64 STRIDE, i64... STRIDES>
DEVICE void box_walk(const u8 *box, int first, List<SIZE, SIZES...>, List<STRIDE, STRIDES...>,
					 const u8 *(&places)[N])
{
	constexpr int size = static_cast<int>(SIZE), stride = static_cast<int>(STRIDE);
	constexpr int more = N > 1 ? (N - 2) / size + 2 : 1;
	const int rest = static_cast<int>(static_cast<u32>(first) / static_cast<u32>(size));
	const int here = first - rest * size;
	const u8 *next[more];

	box_walk<more>(box + here * stride, rest, List<SIZES...>{}, List<STRIDES...>{}, next);
#pragma unroll
	for (int k = 0; k < N; k++) {
		const int j = k / size, after = j + 1 < more ? j + 1 : j;
		const bool on = j + 1 < more && here >= size - k % size;
		places[k] =
			(on ? next[after] - (j + 1) * size * stride : next[j] - j * size * stride) + k * stride;
	}
}

/* N elements of a run of y, from `first` on, as words; box, DIMS, NEAR: as below. */
template <int ES, int N, bool TURN, class DIMS, class NEAR>
DEVICE void box_gather(const u8 *box, u32 near, int first, u32 (&words)[ES * N / 4])
{
	constexpr int each = vec_words<ES>;
	u32 elements[N * each];

	if constexpr (TURN) {
		u32 steps[N];
		box_steps<N>(first, DIMS{}, NEAR{}, steps);
#pragma unroll
		for (int k = 0; k < N; k++)
			vec_load<ES>(box + box_turn<TURN>(near + steps[k]), elements + k * each);
	} else {
		const u8 *at[N];
		box_walk<N>(box + near, first, DIMS{}, NEAR{}, at);
#pragma unroll
		for (int k = 0; k < N; k++)
			vec_load<ES>(at[k], elements + k * each);
	}
#pragma unroll
	for (int w = 0; w < ES * N / 4; w++) {
		if constexpr (ES >= 4)
			words[w] = elements[w];
		else
			words[w] = vec_collect<ES, 4 / ES, 1>(
				elements, [=](int k) { return w * (4 / ES) + k; });
	}
}

/* Are there so many ends of runs that a loop of their own stores them? */
template <int ES, int RUN, int MOST>
constexpr bool box_ends_apart = MOST > 1 && RUN *ES < 2048;

/*
 * DIMS, NEAR: the dimensions of a run of y, their strides in shared memory; box: element 0; RUN:
 * elements of a whole run; MOST: runs of a whole box.  The lanes of a warp take TOGETHER bytes each
 * of runs side by side if there are enough: elements of one run may lie in few banks, those of
 * neighbours lie in others.
 */
template <int ES, int OUT, int THREADS, int TOGETHER, bool TURN, int RUN, int MOST, class DIMS,
		  class NEAR, typename Offset>
DEVICE void box_out(const u8 *box, const BoxPlace<Offset> *places, u8 *y, u32 runs, int length)
{
	constexpr int each = OUT / ES;
	/* A sector that two stores share is written twice. */
	constexpr int align = RUN * ES >= 256 ? 128 : 32;
	constexpr u32 words = (RUN * ES + align + OUT - ES - 1) / OUT, most = MOST;
	constexpr u32 together = most >= 8 ? TOGETHER / OUT : words;
	constexpr u32 parts = (words + together - 1) / together, strips = THREADS / together;
	/* Then a thread goes from run to run without a division. */
	constexpr bool even = THREADS % together == 0;
	u32 next = threadIdx.x / together % most;
	u32 next_word = threadIdx.x / together / most * together + threadIdx.x % together;
#pragma unroll 2
	for (u32 i = threadIdx.x; i < most * parts * together; i += THREADS) {
		const u32 part = i / together, run = even ? next : part % most;
		const u32 word = even ? next_word : part / most * together + i % together;
		next += strips % most;
		next_word += strips / most * together;
		if (strips % most != 0 && next >= most) {
			next -= most;
			next_word += together;
		}
		if (run >= runs)
			continue;
		const BoxPlace<Offset> place = places[run];
		u8 *const begin = y + place.far;
		const int first = static_cast<int>(word) * each - vec_beyond<align>(begin) / ES;
		if (first <= -each || first >= length)
			continue;
		if (first < 0 || first + each > length) {
			if constexpr (box_ends_apart<ES, RUN, MOST>)
				continue;
			u32 steps[each];
			box_steps<each>(first, DIMS{}, NEAR{}, steps);
#pragma unroll
			for (int k = 0; k < each; k++)
				if (static_cast<u32>(first + k) < static_cast<u32>(length))
					vec_copy<ES>(box + box_turn<TURN>(place.near + steps[k]),
								 begin + (first + k) * ES);
			continue;
		}
		u32 packed[OUT / 4];
		box_gather<ES, each, TURN, DIMS, NEAR>(box, place.near, first, packed);
		vec_store<OUT>(begin + first * ES, packed);
	}
}

/* The ends of runs of y, fewer elements than a word has.  A lane has one of them, and a sector is
 * written once, rather than once for each. */
template <int ES, int OUT, int THREADS, bool TURN, class DIMS, class NEAR, typename Offset>
DEVICE void box_ends(const u8 *box, const BoxPlace<Offset> *places, u8 *y, u32 runs, int length)
{
	constexpr int each = OUT / ES;
	if constexpr (each == 1)
		return;
#pragma unroll 1
	for (u32 i = threadIdx.x; i < runs * (2 * each); i += THREADS) {
		const int k = static_cast<int>(i % (2 * each));
		const BoxPlace<Offset> place = places[i / (2 * each)];
		u8 *const begin = y + place.far;
		const int room = (OUT - vec_beyond<OUT>(begin)) % OUT / ES;
		const int before = room < length ? room : length, behind = (length - before) % each;
		const int element = k < each ? k : length - behind + k - each;
		if (k < each ? k < before : k - each < behind) {
			const u32 step = index_offset<u32>(static_cast<u32>(element), DIMS{}, NEAR{});
			vec_copy<ES>(box + box_turn<TURN>(place.near + step), begin + element * ES);
		}
	}
}

/*
 * PX: the part at the end of a run of x, PY: at the end of a run of y; BOTH: PX is at the end of
 * both, and PY is none.  RUNS_X, RUNS_Y: how many runs a box has, but for the part that numbers the
 * slowest of them.  YD, YN: the dimensions of a run of y, their strides in shared memory.  BD, BX,
 * BY: the other dimensions; batch_x and batch_y are the strides of the slowest of all, or of a part
 * of it, of which there are outer_size elements.  Places of runs of x are noted at NOTES in shared
 * memory, those of y behind them: each is used for many pieces.  HOLE: elements behind each of x's
 * fastest dimension that a run of x goes on over; they are read, but for those at its end.  NEXT:
 * blocks walk along the first of BD before the parts, for its boxes' runs of y follow one another.
 */
template <int NOTES, int ES, int OUT, int THREADS, int TOGETHER, class PX, class PY, bool BOTH,
		  class X, int RUNS_X, class Y, int RUNS_Y, class YD, class YN, class BD, class BX,
		  class BY, typename Offset, bool LOOP, int HOLE = 0, bool TURN = false, bool NEXT = false>
__global__ LAUNCH_BOUNDS(THREADS) void permute_box(const void *x, void *y, i64 batch_x, i64 batch_y,
												   u64 blocks, i64 outer_size)
{
	DYN_SHARED(b128, memory);
	u8 *const shared = reinterpret_cast<u8 *>(memory);
	constexpr u32 most_x = RUNS_X * PY::most, most_y = RUNS_Y * (BOTH ? 1 : PX::most);
	BoxPlace<Offset> *const noted_x = reinterpret_cast<BoxPlace<Offset> *>(shared + NOTES);
	BoxPlace<Offset> *const noted_y = noted_x + most_x;

	u64 block = blockIdx.x;
	do {
		using Number = typename index_choose<LOOP, u64, u32>::type;
		const Number n = static_cast<Number>(block);
		/* Items of which runs of y follow one another, if these come first. */
		const Number first = !NEXT ? 1
							 : BD::product > 1
								 ? static_cast<Number>(BD::first)
								 : static_cast<Number>(blocks / (u64{PX::tiles} * PY::tiles));
		const Number rest = n / first, over = rest / PY::tiles, behind = over / PX::tiles;
		const Number item = behind * first + (n - rest * first);
		const u32 tile_y = static_cast<u32>(rest - over * PY::tiles);
		const u32 tile_x = static_cast<u32>(over - behind * PX::tiles);
		const index_pair at = index_batch<BD, BX, BY, Offset>(item, batch_x, batch_y);
		const u64 outer = item / static_cast<Number>(BD::product);
		const u32 part_x = PX::elements(PX::outer ? outer : tile_x, outer_size);
		const u32 part_y = PY::elements(PY::outer ? outer : tile_y, outer_size);
		const u32 end_y = BOTH ? part_x : part_y, runs_x = RUNS_X * part_y;
		const u8 *const from =
			static_cast<const u8 *>(x) + (at.x + tile_x * PX::step_x + tile_y * PY::step_x) * ES;
		u8 *const to =
			static_cast<u8 *>(y) + (at.y + tile_x * PX::step_y + tile_y * PY::step_y) * ES;
		const u32 beyond = vec_beyond<16>(from);

		box_note<ES, THREADS, X>(noted_x, runs_x, beyond, beyond);
		__syncthreads();
		box_in<ES, THREADS, TURN, most_x, X>(from - beyond, noted_x, shared, runs_x,
											 (X::run / PX::most * part_x - HOLE) * ES);
		box_note<ES, THREADS, Y>(noted_y, most_y, 0, beyond);
		async_wait_all();
		__syncthreads();
		const u32 runs_y = RUNS_Y * (BOTH ? 1 : part_x);
		const int length = static_cast<int>(Y::run / (BOTH ? PX::most : PY::most) * end_y);
		box_out<ES, OUT, THREADS, TOGETHER, TURN, Y::run, most_y, YD, YN>(shared, noted_y, to,
																		  runs_y, length);
		if constexpr (box_ends_apart<ES, Y::run, most_y>)
			box_ends<ES, OUT, THREADS, TURN, YD, YN>(shared, noted_y, to, runs_y, length);
		if constexpr (LOOP) {
			__syncthreads();
			block += gridDim.x;
		}
	} while (LOOP && block < blocks);
}
