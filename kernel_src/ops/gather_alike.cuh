/*
 * gather_alike.cuh: gather.cuh for long lists that many rows share: for several rows at a time.
 * Unlike gather_group.cuh it stores whole vectors of rows of dst that begin anywhere, too.
 *
 * A block has a list of indices, or a part of one, and some of its rows: those that begin equally
 * far behind a vector of dst, so that a vector has the same elements of each of them.  Shared
 * memory has these rows as planes: a plane is an array of words, one for each place, in which
 * elements of several rows lie side by side.
 *
 * A warp reads the indices of 32 vectors one after another, as memory likes it, and notes the
 * places that they name in shared memory, where each lane finds those of its vector.  Plane by
 * plane it then loads V words, parts the rows in them, and stores V elements of each row at once.
 * The next indices are on their way meanwhile.
 */
#pragma once
#include "common/async.cuh"
#include "common/indices.cuh"
#include "common/scatter.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/* Elements of ES bytes: FROM of a row of src, TO of dst.  A block has PART vectors of a row, whole
 * turns of a warp if rows have more, and PLANES planes.  SKEW: rows of src are not whole vectors;
 * EVEN: those of dst are.  ALONG: all rows of a list follow one another. */
template <int ES, typename I, int BOUNDS, int FROM, int TO, int PLANES, int PART, int THREADS,
		  bool SKEW, bool EVEN, bool ALONG>
struct GatherAlike {
	typedef I Index;
	static constexpr int element = ES, bounds = BOUNDS, from = FROM, to = TO;
	static constexpr int planes = PLANES, part = PART, threads = THREADS;
	static constexpr bool skew = SKEW, even = EVEN, along = ALONG;
	static constexpr int vector = ES == 1 ? 8 : 16 / ES, store = vector * ES;
	static constexpr int vectors = (TO + (EVEN ? 0 : vector - 1) + vector - 1) / vector;
	static constexpr int parts = (vectors + PART - 1) / PART;
	/* Bytes of a word, the rows in it, and those of a block. */
	static constexpr int word = ES > 4 ? ES : 4, side = word / ES, rows = PLANES * side;
	/* Elements of a row that go to a plane at once, and how many such a row has. */
	static constexpr int each = ES == 8 ? 2 : 4, load = each * ES;
	static constexpr int loads = (FROM + each - 1) / each;
	/* An index that names nothing finds a 0 behind the row. */
	static constexpr int nothing = loads * each, pitch = loads * 16 + 16;
	/* Places are noted as bytes if 16 bits hold them. */
	static constexpr int unit = pitch <= 0x10000 ? word : 1, bytes = word / unit;
	/* Registers allow a multiprocessor so many blocks at once. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
	static constexpr int blocks = 1;
#else
	static constexpr int blocks = (rows > 8 || (SKEW && rows > 4) ? 512 : 1024) / THREADS;
#endif
	/* Vectors of each row that a thread asks for at once: 16 of all rows, and none in vain. */
	static constexpr int all = (loads + THREADS - 1) / THREADS;
	static constexpr int most = SKEW || rows > 8 ? 1 : 16 / rows;
	static constexpr int batches = (all + most - 1) / most, turns = (all + batches - 1) / batches;
	/* Bytes of shared memory for the places of a warp. */
	static constexpr int noted = 32 * vector * 2;
	static_assert(PART % 32 == 0 || parts == 1, "no index belongs to two parts");
	static_assert(nothing < 0x10000, "short places");
};

/* A block takes `rows` rows of a list, `period` apart, from number n of the list's rows on, and
 * vectors `begin` to `end` - 1 of each. */
template <class ALIKE, class PLACES, i64 LISTS, typename Number>
struct GatherAlikeItem {
	/* Rows of a list so far apart begin equally far behind a vector. */
	static constexpr i64 bytes = LISTS * (ALIKE::to * ALIKE::element), low = bytes & -bytes;
	static constexpr Number period = low < ALIKE::store ? ALIKE::store / low : 1;
	static constexpr i64 apart = period * bytes;

	Number n, list;
	int rows, begin, end;

	DEVICE GatherAlikeItem(Number item, i64 outer)
	{
		constexpr Number lists = static_cast<Number>(LISTS), once = period * ALIKE::rows;
		const Number number = item / ALIKE::parts;
		const Number groups = static_cast<Number>((outer + once - 1) / once) * period;
		const Number group = ALIKE::along ? number % groups : number / lists;

		list = ALIKE::along ? number / groups : number % lists;
		n = group / period * once + group % period;
		const i64 left = (outer - static_cast<i64>(n) + period - 1) / period;
		rows = left < ALIKE::rows ? static_cast<int>(left) : ALIKE::rows;
		begin = static_cast<int>(item - number * ALIKE::parts) * ALIKE::part;
		end = begin + ALIKE::part < ALIKE::vectors ? begin + ALIKE::part : ALIKE::vectors;
	}
	/* Returns the number among all rows of the block's row g.  Behind the last row the first comes
	 * again. */
	DEVICE Number row(int g) const
	{
		return (n + static_cast<Number>(g < rows ? g : 0) * period) * static_cast<Number>(LISTS) +
			   list;
	}
};

/* Begins to make all planes, at vectors i of their rows and those that follow in turn: row g is at
 * from(g). */
template <class ALIKE, class From>
DEVICE void gather_alike_planes(u8 *shared, int i, From from)
{
	constexpr int side = ALIKE::side, w = ALIKE::load, es = ALIKE::element, turns = ALIKE::turns;
	u32 in[turns][ALIKE::planes][side][w / 4], out[ALIKE::each][ALIKE::word / 4], words[4];

#pragma unroll
	for (int t = 0; t < turns; t++) {
		const int n = i + t * ALIKE::threads;
		if (n >= ALIKE::loads)
			break;
#pragma unroll
		for (int r = 0; r < ALIKE::rows; r++) {
			const u8 *const row = from(r);
			if constexpr (ALIKE::skew) {
				const int beyond = vec_beyond<w>(row), left = ALIKE::from * es - n * w;
				vec_load_skewed<es, w>(row - beyond, n * w + beyond, left < w ? left : w,
									   in[t][r / side][r % side]);
			} else if constexpr (side == 1) {
				async_copy16(shared + r * ALIKE::pitch + n * 16, row + n * w);
			} else {
				vec_load<w>(row + n * w, in[t][r / side][r % side]);
			}
		}
	}
#pragma unroll
	for (int t = 0; t < turns; t++) {
		const int n = i + t * ALIKE::threads;
		if ((side == 1 && !ALIKE::skew) || n >= ALIKE::loads)
			break;
#pragma unroll
		for (int p = 0; p < ALIKE::planes; p++) {
			vec_transpose<es>(in[t][p], out);
#pragma unroll
			for (int k = 0; k < 4; k++)
				words[k] = out[k * 4 / ALIKE::word][k % (ALIKE::word / 4)];
			vec_store<16>(shared + p * ALIKE::pitch + n * 16, words);
		}
	}
}

/* Begins to make all planes; behind each is a vector of zeros. */
template <class ALIKE, class From>
DEVICE void gather_alike_stage(u8 *shared, From from)
{
#pragma unroll 1
	for (int i = static_cast<int>(threadIdx.x); i < ALIKE::loads;
		 i += ALIKE::threads * ALIKE::turns)
		gather_alike_planes<ALIKE>(shared, i, from);
	if (static_cast<int>(threadIdx.x) < ALIKE::planes) {
		const u32 zero[4] = {};
		vec_store<16>(shared + static_cast<int>(threadIdx.x + 1) * ALIKE::pitch - 16, zero);
	}
}

/* Reads indices from number k on, lane by lane, as far as they are below `end` and in their
 * list. */
template <class ALIKE, i64 STEP>
DEVICE void gather_alike_read(const typename ALIKE::Index *idx, int k, int end,
							  typename ALIKE::Index (&index)[ALIKE::vector])
{
#pragma unroll
	for (int i = 0; i < ALIKE::vector; i++) {
		const int at = k + i * 32 + static_cast<int>(threadIdx.x % 32);
		index[i] = at >= 0 && at < end ? idx[at * STEP] : static_cast<typename ALIKE::Index>(0);
	}
}

/* Notes the places that indices name for the lanes of a warp; returns how many name none. */
template <class ALIKE>
DEVICE u32 gather_alike_note(const typename ALIKE::Index (&index)[ALIKE::vector], u16 *noted)
{
	u32 strays = 0;

#pragma unroll
	for (int i = 0; i < ALIKE::vector; i++) {
		u32 place = indices_place<ALIKE::bounds, ALIKE::from, u32>(index[i]);
		if constexpr (ALIKE::bounds == INDICES_CHECK) {
			strays += place == indices_none<u32>;
			place = place == indices_none<u32> ? ALIKE::nothing : place;
		}
		noted[i * 32 + static_cast<int>(threadIdx.x % 32)] = static_cast<u16>(place * ALIKE::unit);
	}
	return strays;
}

/* Stores what V places name in the rows of a plane, of which the block has `rows`, `apart` bytes
 * from one to the next: elements `first` to `last` - 1 of their vectors. */
template <class ALIKE>
DEVICE void gather_alike_store(const u8 *plane, const u32 (&at)[ALIKE::vector], u8 *to, i64 apart,
							   int rows, int first, int last)
{
	constexpr int v = ALIKE::vector, word = ALIKE::word, es = ALIKE::element;
	u32 in[v][word / 4], out[ALIKE::side][ALIKE::store / 4];

#pragma unroll
	for (int i = 0; i < v; i++)
		vec_load<word>(plane + at[i], in[i]);
	vec_transpose<es>(in, out);
#pragma unroll
	for (int g = 0; g < ALIKE::side; g++) {
		if (g >= rows)
			break;
		if constexpr (ALIKE::even)
			vec_store<ALIKE::store>(to + g * apart, out[g]);
		else
			vec_store_some<es, v>(to + g * apart, out[g], first, last);
	}
}

/* Makes the block's vectors out of its planes; returns how many indices name no place.  index: the
 * first that the warp reads. */
template <class ALIKE, class PLACES, class ITEM>
DEVICE u32 gather_alike_make(const ITEM &item, u8 *shared, const typename ALIKE::Index *idx,
							 typename ALIKE::Index (&index)[ALIKE::vector], u8 *to, int ahead)
{
	constexpr int v = ALIKE::vector;
	const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
	u16 *const noted =
		reinterpret_cast<u16 *>(shared + ALIKE::planes * ALIKE::pitch) + warp * (ALIKE::noted / 2);
	const int most = item.end * v - ahead, end = most < ALIKE::to ? most : ALIKE::to;
	u32 strays = 0;

#pragma unroll 1
	for (int n = item.begin + warp * 32; n < item.end; n += ALIKE::threads) {
		const int k = (n + lane) * v - ahead;
		u32 pairs[v / 2], at[v];
		strays += gather_alike_note<ALIKE>(index, noted);
		if (n + ALIKE::threads < item.end)
			gather_alike_read<ALIKE, PLACES::idx_step>(idx, (n + ALIKE::threads) * v - ahead, end,
													   index);
		__syncwarp();
		vec_load<2 * v>(noted + lane * v, pairs);
		__syncwarp();
		if (k >= end)
			continue;
#pragma unroll
		for (int i = 0; i < v; i++)
			at[i] = (pairs[i / 2] >> i % 2 * 16 & 0xffff) * ALIKE::bytes;
#pragma unroll
		for (int p = 0; p < ALIKE::planes; p++)
			if (p * ALIKE::side < item.rows)
				gather_alike_store<ALIKE>(shared + p * ALIKE::pitch, at,
										  to + p * ALIKE::side * ITEM::apart +
											  static_cast<i64>(k) * ALIKE::element,
										  ITEM::apart, item.rows - p * ALIKE::side, k < 0 ? -k : 0,
										  end - k < v ? end - k : v);
	}
	return strays;
}

/* LISTS: how many lists there are, each for `outer` rows, which are numbered list by list. */
template <class ALIKE, class PLACES, i64 LISTS, typename Number, bool LOOP>
__global__ __launch_bounds__(ALIKE::threads, ALIKE::blocks) void gather_alike(
	const void *src, const typename ALIKE::Index *idx, void *dst, i64 outer, i64 items, u64 *report)
{
	typedef GatherAlikeItem<ALIKE, PLACES, LISTS, Number> Item;
	constexpr int es = ALIKE::element, v = ALIKE::vector;
	DYN_SHARED(b128, memory);
	u8 *const shared = reinterpret_cast<u8 *>(memory);
	u32 strays = 0;
	Number number = static_cast<Number>(blockIdx.x);

	do {
		const Item item(number, outer);
		const typename ALIKE::Index *const indices = idx + PLACES::idx(item.list);
		u8 *const to = static_cast<u8 *>(dst) + static_cast<i64>(item.row(0)) * (ALIKE::to * es);
		const int ahead = ALIKE::even ? 0 : vec_beyond<ALIKE::store>(to) / es;
		typename ALIKE::Index index[v];

		if (item.rows > 0) {
			const int k = (item.begin + static_cast<int>(threadIdx.x) / 32 * 32) * v - ahead;
			const int end = item.end * v - ahead;
			gather_alike_read<ALIKE, PLACES::idx_step>(indices, k,
													   end < ALIKE::to ? end : ALIKE::to, index);
			gather_alike_stage<ALIKE>(shared, [=](int g) {
				return static_cast<const u8 *>(src) + PLACES::ddst(item.row(g)) * es;
			});
			async_wait_all();
			__syncthreads();
			const u32 seen =
				gather_alike_make<ALIKE, PLACES>(item, shared, indices, index, to, ahead);
			strays += item.n == 0 ? seen : 0;
		}
		if constexpr (LOOP) {
			__syncthreads(); /* the next rows go where these were */
			number += static_cast<Number>(gridDim.x);
		}
	} while (LOOP && number < static_cast<Number>(items));
	if constexpr (ALIKE::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
