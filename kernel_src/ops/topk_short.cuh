/*
 * topk_short.cuh: the first k of short rows in order, with their places, in registers: a row lies
 * in a part of a warp.
 *
 *   list     each lane keeps the first of its elements, and lanes merge their lists
 *   network  all elements are sorted
 *
 * An element is one word of 32 bits: its key, and below it its place.  Elements of 32 bits lose so
 * many of their key's last bits.  Where that may matter, a warp makes its lists once more by whole
 * keys; a network's few mistakes are mended.
 */
#pragma once
#include "common/index.cuh"
#include "common/network.cuh"
#include "common/order.cuh"
#include "common/vec.cuh"

/* Threads of lists have `each` elements; on sm_90, ptxas is told how few registers that takes. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define LIST_BOUNDS(threads, each) __launch_bounds__(threads, ((each) > 16 ? 384 : 768) / (threads))
#else
#define LIST_BOUNDS(threads, each) LAUNCH_BOUNDS(threads)
#endif

/* Bits that a place in a row takes. */
template <int COLUMNS>
constexpr int short_bits = COLUMNS > 1 ? 1 + short_bits<(COLUMNS + 1) / 2> : 0;
template <>
constexpr int short_bits<1> = 0;

/* A row in LANES lanes: each has HELD vectors of V elements. */
template <typename T, int V, int LANES, bool GREATEST, int COLUMNS, i64 STEP>
struct ShortRow {
	static_assert(COLUMNS % V == 0 && (V == 1 || STEP == 1), "whole vectors");
	static_assert(sizeof(T) == 2 || sizeof(T) == 4, "words of 32 bits");
	static constexpr int columns = COLUMNS;
	static constexpr int vectors = COLUMNS / V;
	static constexpr int held = (vectors + LANES - 1) / LANES;
	static constexpr int each = held * V;
	static constexpr int words = vec_words<V *static_cast<int>(sizeof(T))>;
	static constexpr bool exact = sizeof(T) == 2;
	static constexpr int bits = exact ? 16 : short_bits<COLUMNS>;
	static constexpr u32 places = (1u << bits) - 1;

	const T *x;
	int lane;
	u32 word[held][words];

	DEVICE bool there(int h) const
	{
		return (h + 1) * LANES <= vectors || h * LANES + lane < vectors;
	}
	DEVICE int column(int h) const
	{
		return (h * LANES + lane) * V;
	}
	DEVICE void load()
	{
		const T *const first = x + lane * (V * STEP);
#pragma unroll
		for (int h = 0; h < held; h++)
			if (there(h))
				vec_load<V * sizeof(T)>(first + h * (LANES * V * STEP), word[h]);
	}
	/* The key of element v of vector h; of 16 bits. */
	DEVICE u32 key(int h, int v) const
	{
		return key_of(static_cast<u32>(vec_element<sizeof(T)>(word[h], v)));
	}
	static DEVICE u32 key_of(u32 bits)
	{
		return Order<T>::key(bits, GREATEST);
	}
	/* Entries; ones where there is no element. */
	template <int ROOM>
	DEVICE void entries(u32 (&out)[ROOM]) const
	{
		static_assert(ROOM >= each, "room");
#pragma unroll
		for (int h = 0; h < held; h++) {
			const u32 first = static_cast<u32>(column(h));
			if constexpr (sizeof(T) == 2 && V > 1) {
#pragma unroll
				for (int v = 0; v < V; v += 2) {
					const u32 keys = order_pair<T>(word[h][v / 2], GREATEST);
					const u32 columns = static_cast<u32>(lane * V) * 0x10001u +
										(static_cast<u32>(h * LANES * V + v) * 0x10001u + 0x10000u);
					out[h * V + v] = __byte_perm(keys, columns, 0x1054);
					out[h * V + v + 1] = __byte_perm(keys, columns, 0x3276);
				}
			} else {
#pragma unroll
				for (int v = 0; v < V; v++) {
					const u32 full = exact ? key(h, v) << 16 : key(h, v) & ~places;
					out[h * V + v] = full | (first + v);
				}
			}
#pragma unroll
			for (int v = 0; v < V; v++)
				out[h * V + v] = there(h) ? out[h * V + v] : ~0u;
		}
#pragma unroll
		for (int i = each; i < ROOM; i++)
			out[i] = ~0u;
	}
};

/* Writes the results of some entries, to an address of each. */
template <typename T, bool GREATEST, int COUNT, i64 X_STEP>
DEVICE void short_write(const T *x, T *values, i64 *indices, const u32 (&entries)[COUNT],
						u32 places)
{
	u32 words[4] = {}, pair[4] = {};

#pragma unroll
	for (int i = 0; i < COUNT; i++)
		pair[2 * i] = entries[i] & places;
	if constexpr (sizeof(T) == 2) {
		/* Keys tell of 0 and NaN no more than that. */
		const u32 keys = __byte_perm(entries[0], entries[COUNT - 1], 0x7632);
		if (order_unique<T>(keys, GREATEST)) {
			words[0] = order_pair_value<T>(keys, GREATEST);
		} else {
#pragma unroll
			for (int i = 0; i < COUNT; i++) {
				u32 bits;
				vec_load<sizeof(T)>(x + static_cast<i64>(pair[2 * i]) * X_STEP, &bits);
				words[0] |= bits << i * 16;
			}
		}
	} else {
#pragma unroll
		for (int i = 0; i < COUNT; i++)
			vec_load<sizeof(T)>(x + static_cast<i64>(pair[2 * i]) * X_STEP, words + i);
	}
	vec_store<COUNT * sizeof(T)>(values, words);
	if (indices)
		vec_store<COUNT * 8>(indices, pair);
}

/* The places of the first COUNT elements by their whole keys, one after the other.  Few rows come
 * here: the row is read once more, and needs no registers before. */
template <int LANES, int COUNT, class Row, int K>
DEVICE void short_list(Row &row, u32 (&list)[K])
{
	constexpr int vector = Row::each / Row::held;
	u64 least = 0;

	row.load();
#pragma unroll 1
	for (int number = 0; number < COUNT; number++) {
		u64 next = ~static_cast<u64>(0);
#pragma unroll
		for (int h = 0; h < Row::held; h++) {
#pragma unroll
			for (int v = 0; v < vector; v++) {
				const u64 entry =
					static_cast<u64>(row.key(h, v)) << 32 | static_cast<u32>(row.column(h) + v);
				if (row.there(h) && entry >= least && entry < next)
					next = entry;
			}
		}
#pragma unroll
		for (int far = 1; far < LANES; far *= 2) {
			const u32 low = group_from(static_cast<u32>(next), far);
			const u64 other =
				static_cast<u64>(group_from(static_cast<u32>(next >> 32), far)) << 32 | low;
			next = other < next ? other : next;
		}
#pragma unroll
		for (int i = 0; i < COUNT; i++)
			list[i] = i == number ? static_cast<u32>(next) : list[i];
		least = next + 1;
	}
}

/* ---- Kernels: DIMS, X and Y number the rows, as in index.cuh; OUT: results stored at once ---- */

/* K: a power of two, FIRST or more. */
template <typename T, int V, int LANES, int THREADS, int K, bool GREATEST, int COLUMNS, int FIRST,
		  int OUT, i64 X_STEP, i64 Y_STEP, class DIMS, class X, class Y, typename Index>
__global__ LIST_BOUNDS(THREADS, (COLUMNS + LANES - 1) / LANES) void topk_list(const T *x, T *values,
																			  i64 *indices,
																			  i64 rows)
{
	typedef ShortRow<T, V, LANES, GREATEST, COLUMNS, X_STEP> Row;
	static_assert(FIRST <= K && FIRST % OUT == 0 && (OUT == 1 || Y_STEP == 1), "results");
	constexpr int at_once = THREADS / LANES;
	const int lane = static_cast<int>(threadIdx.x) % LANES;

	for (i64 begin_row = static_cast<i64>(blockIdx.x) * at_once; begin_row < rows;
		 begin_row += static_cast<i64>(gridDim.x) * at_once) {
		const i64 here = begin_row + static_cast<int>(threadIdx.x) / LANES;
		const i64 number = here < rows ? here : rows - 1;
		Row row = {x + index_offset<i64>(static_cast<Index>(number), DIMS{}, X{}), lane};
		u32 list[K];

		row.load();
		{
			u32 entries[Row::each];
			row.entries(entries);
			network_list(entries, list);
			network_list_lanes<LANES>(list);
			if constexpr (!Row::exact) {
				/* Two entries may be in the wrong order where their keys begin alike. */
				const u32 last = list[FIRST - 1];
				bool unsure = false;
#pragma unroll
				for (int i = 1; i < (FIRST < K ? FIRST + 1 : K); i++)
					unsure |= (list[i] ^ list[i - 1]) <= Row::places;
				if constexpr (FIRST == K) {
					u32 nearest = ~0u;
#pragma unroll
					for (int i = 0; i < Row::each; i++) {
						const u32 beyond = entries[i] - (last + 1);
						nearest = beyond < nearest ? beyond : nearest;
					}
					unsure |= nearest < (last | Row::places) - last;
				}
				if (__any_sync(0xffffffffu, unsure))
					short_list<LANES, FIRST>(row, list);
			}
		}
		if (here >= rows)
			continue;
		const i64 to =
			index_offset<i64>(static_cast<Index>(number), DIMS{}, Y{}) + lane * (OUT * Y_STEP);
		T *const values_to = values + to;
		i64 *const indices_to = indices ? indices + to : nullptr;
#pragma unroll
		for (int begin = 0; begin < FIRST; begin += OUT * LANES) {
			u32 mine[OUT];
			const int first = begin + lane * OUT;
#pragma unroll
			for (int other = 0; other < LANES; other++)
#pragma unroll
				for (int i = 0; i < OUT; i++)
					if (begin + other * OUT + i < K && (other == 0 || lane == other))
						mine[i] = list[begin + other * OUT + i < K ? begin + other * OUT + i : 0];
			if (begin + OUT * LANES <= FIRST || first < FIRST)
				short_write<T, GREATEST, OUT, X_STEP>(
					row.x, values_to + begin * Y_STEP,
					indices ? indices_to + begin * Y_STEP : nullptr, mine, Row::places);
		}
	}
}

/* Words of shared memory of a row: places, and of elements of 32 bits the elements behind. */
template <typename T, int LANES, int EACH>
constexpr int short_area = network_room<LANES, EACH> + (sizeof(T) == 4 ? LANES * EACH : 0);

/* Where the entry of a rank lies: lanes that write theirs, or read one rank each, find it in
 * different banks.  short_at(a + b) is short_at(a) ^ short_at(b) for ranks that share no bits. */
DEVICE int short_at(int rank)
{
	return rank ^ (rank / 32 & 31);
}

/* Writes a lane's entries, of which the ranks follow each other. */
template <int EACH>
DEVICE void short_put(u32 *places, const u32 (&entries)[EACH], int lane)
{
	const int own = short_at(lane * EACH);

#pragma unroll
	for (int i = 0; i < EACH; i++)
		places[own ^ short_at(i)] = entries[i];
	__syncwarp();
}

/* The value that `merge` makes of those of LANES lanes. */
template <int LANES, typename Merge>
DEVICE u32 short_all(u32 mine, Merge merge)
{
#pragma unroll
	for (int far = 1; far < LANES; far *= 2)
		mine = merge(mine, group_from(mine, far));
	return mine;
}

/* Keeps a lane's elements in `raw`. */
template <class Row>
DEVICE void short_keep(const Row &row, u32 *raw)
{
#pragma unroll
	for (int h = 0; h < Row::held; h++)
		if (row.there(h))
			vec_store<Row::each / Row::held * 4>(raw + row.column(h), row.word[h]);
}

/*
 * Entries by those bits of their keys that differ in a row, as many as there is room for above the
 * place.  Returns whether equals are equal.
 */
template <int LANES, int EACH, class Row>
DEVICE bool short_entries(const Row &row, u32 (&entries)[EACH])
{
	constexpr int vector = Row::each / Row::held;
	const u32 some = __shfl_sync(0xffffffffu, row.key(0, 0), 0, LANES);
	u32 differ = 0, set = 0;

#pragma unroll
	for (int h = 0; h < Row::held; h++) {
		if (!row.there(h))
			continue;
#pragma unroll
		for (int v = 0; v < vector; v++) {
			entries[h * vector + v] = row.key(h, v);
			differ |= entries[h * vector + v] ^ some;
			set |= row.word[h][v];
		}
	}
	const auto either = [](u32 a, u32 b) { return a | b; };
	differ = short_all<LANES>(differ, either);
	set = short_all<LANES>(set, either);
	const int alike = __clz(static_cast<int>(differ)), zeros = __clz(static_cast<int>(__brev(set)));
	const int shift = alike < Row::bits ? alike : Row::bits;
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		const int h = i / vector, v = i % vector;
		entries[i] = i < Row::each && row.there(h) ? (entries[i] << shift & ~Row::places) |
														 static_cast<u32>(row.column(h) + v)
												   : ~0u;
	}
	return alike + zeros >= Row::bits;
}

/*
 * Puts sorted entries in order whose keys begin alike, and which lie in order of their places.
 * Returns false where a lane would have to look at many.
 */
template <int LANES, int EACH, class Row>
DEVICE bool short_mend(const Row &row, const u32 (&entries)[EACH], u32 *places, const u32 *raw)
{
	static_assert(EACH <= 32, "a bit for each entry");
	const u32 behind = __shfl_down_sync(0xffffffffu, entries[0], 1);
	u32 alike = 0;

#pragma unroll
	for (int i = 0; i < EACH; i++) {
		const u32 next = i + 1 < EACH ? entries[i + 1 < EACH ? i + 1 : 0] : behind;
		if ((entries[i] ^ next) <= Row::places && row.lane * EACH + i + 1 < Row::columns)
			alike |= 1u << i;
	}
	if (__any_sync(0xffffffffu, __popc(alike) > 8))
		return false;
	const u32 before = __shfl_up_sync(0xffffffffu, alike >> (EACH - 1), 1);
	u32 starts = alike & ~(alike << 1 | (row.lane ? before : 0));
#pragma unroll 1
	for (; starts; starts &= starts - 1) {
		const int begin = row.lane * EACH + __ffs(static_cast<int>(starts)) - 1;
		const u32 first = places[short_at(begin)];
#pragma unroll 1
		for (int i = begin + 1; i < Row::columns; i++) {
			const u32 entry = places[short_at(i)];
			if ((entry ^ first) > Row::places)
				break;
			const u32 key = row.key_of(raw[entry & Row::places]);
			int to = i;
#pragma unroll 1
			for (; to > begin; to--) {
				const u32 other = places[short_at(to - 1)];
				if (row.key_of(raw[other & Row::places]) <= key)
					break;
				places[short_at(to)] = other;
			}
			places[short_at(to)] = entry;
		}
	}
	__syncwarp();
	return true;
}

/*
 * Places in order of the elements of 32 bits.  An entry has not room for all of its key.  Mostly
 * few keys begin alike; if not, entries are sorted by their keys' last bits, and then by the
 * others and their ranks.
 */
template <int LANES, int EACH, class Row>
DEVICE void short_network(Row &row, u32 (&entries)[EACH], u32 *places, u32 *raw)
{
	const bool exact = short_entries<LANES>(row, entries);

	short_keep(row, raw);

#pragma unroll 1
	for (int turn = 0;; turn++) {
		network_sort_lanes<LANES>(entries, row.lane, places);
		if (turn == 2)
			break;
		short_put<EACH>(places, entries, row.lane);
		if (turn == 0) {
			if (__all_sync(0xffffffffu, exact) || short_mend<LANES>(row, entries, places, raw))
				return;
				/* By the last bits. */
#pragma unroll
			for (int i = 0; i < EACH; i++) {
				const int column = i * LANES + row.lane;
				entries[i] =
					column < Row::columns
						? (row.key_of(raw[column < Row::columns ? column : 0]) & Row::places)
								  << Row::bits |
							  static_cast<u32>(column)
						: ~0u;
			}
		} else {
			/* By the others. */
#pragma unroll
			for (int i = 0; i < EACH; i++) {
				const int rank = row.lane * EACH + i;
				if (rank < Row::columns)
					entries[i] = (row.key_of(raw[entries[i] & Row::places]) & ~Row::places) |
								 static_cast<u32>(rank);
			}
			/* The next turn needs the room of the places. */
			__syncwarp();
#pragma unroll 1
			for (int rank = row.lane; rank < LANES * EACH; rank += LANES)
				raw[rank] = places[short_at(rank)];
			__syncwarp();
		}
	}
	__syncwarp();
#pragma unroll
	for (int i = 0; i < EACH; i++)
		entries[i] = raw[static_cast<int>(entries[i] & Row::places) % (LANES * EACH)];
	__syncwarp();
	row.load();
	short_keep(row, raw);
	short_put<EACH>(places, entries, row.lane);
}

/* EACH: entries of a lane; LANES * EACH are COLUMNS or more. */
template <typename T, int V, int LANES, int EACH, int THREADS, bool GREATEST, int COLUMNS,
		  int FIRST, int OUT, i64 X_STEP, i64 Y_STEP, class DIMS, class X, class Y, typename Index>
__global__ __launch_bounds__(THREADS, 512 / THREADS) void topk_network(const T *x, T *values,
																	   i64 *indices, i64 rows)
{
	typedef ShortRow<T, V, LANES, GREATEST, COLUMNS, X_STEP> Row;
	constexpr int sorted = LANES * EACH;
	static_assert(sorted >= COLUMNS && FIRST % OUT == 0 && (OUT == 1 || Y_STEP == 1), "results");
	alignas(16) __shared__ u32 area[THREADS / LANES * short_area<T, LANES, EACH>];
	const int lane = static_cast<int>(threadIdx.x) % LANES;
	const int row_here = static_cast<int>(threadIdx.x) / LANES;
	u32 *const places = area + row_here * short_area<T, LANES, EACH>;
	u32 *const raw = places + network_room<LANES, EACH>;

	for (i64 begin_row = static_cast<i64>(blockIdx.x) * (THREADS / LANES); begin_row < rows;
		 begin_row += static_cast<i64>(gridDim.x) * (THREADS / LANES)) {
		const i64 here = begin_row + row_here;
		const i64 number = here < rows ? here : rows - 1;
		Row row = {x + index_offset<i64>(static_cast<Index>(number), DIMS{}, X{}), lane};
		u32 entries[EACH];

		row.load();
		if constexpr (Row::exact) {
			row.entries(entries);
			network_sort_lanes<LANES>(entries, lane, places);
			short_put<EACH>(places, entries, lane);
		} else {
			short_network<LANES, EACH>(row, entries, places, raw);
		}
		const i64 to =
			index_offset<i64>(static_cast<Index>(number), DIMS{}, Y{}) + lane * (OUT * Y_STEP);
		T *const values_to = values + to;
		i64 *const indices_to = indices ? indices + to : nullptr;
		const int own = short_at(lane * OUT);
#pragma unroll 4
		for (int begin = 0; begin < FIRST; begin += LANES * OUT) {
			u32 mine[OUT];
			if (begin + lane * OUT >= FIRST || here >= rows)
				break;
#pragma unroll
			for (int i = 0; i < OUT; i++)
				mine[i] = places[own ^ short_at(begin + i)] & (Row::exact ? ~0u : Row::places);
			if constexpr (Row::exact) {
				short_write<T, GREATEST, OUT, X_STEP>(
					row.x, values_to + begin * Y_STEP,
					indices ? indices_to + begin * Y_STEP : nullptr, mine, Row::places);
			} else {
				u32 words[4] = {}, pair[4] = {};
#pragma unroll
				for (int i = 0; i < OUT; i++) {
					words[i] = raw[mine[i]];
					pair[2 * i] = mine[i];
				}
				vec_store<OUT * sizeof(T)>(values_to + begin * Y_STEP, words);
				if (indices)
					vec_store<OUT * 8>(indices_to + begin * Y_STEP, pair);
			}
		}
		__syncwarp();
	}
}
