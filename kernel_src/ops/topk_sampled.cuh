/*
 * topk_sampled.cuh: the first k of long rows in order, with their places; a block has a row.
 *
 *   1. A sample, sectors that lie evenly over the row, says which entries are to be collected:
 *      somewhat more than k, and all of them fit in shared memory.
 *   2. The row is read once.  Each thread looks at vectors that lie in shared memory, where others
 *      arrive meanwhile, and no thread waits for another.
 *   3. The collected entries are spread over bins in their order; a bin has few of them, and
 *      each finds its rank by looking at the others.
 *
 * Where the sample misled, so that fewer than k were collected or too many, the row is read once
 * more as topk.cuh does; where many share a bin, it sorts them.
 */
#pragma once
#include "common/async.cuh"
#include "common/group.cuh"
#include "common/index.cuh"
#include "common/topk.cuh"
#include "common/total.cuh"

/* Vectors of a sample that lie side by side: memory sends no less at once. */
#define SAMPLED_RUN 4
/* Entries of a bin, at most; each is compared with all of them. */
#define SAMPLED_BIN_MOST 96
/* Entries that are put in order beyond the first k: they share a bin with those. */
#define SAMPLED_BESIDE (2 * SAMPLED_BIN_MOST)

/* On sm_90, 1024 threads are to run at once; of small blocks with much room, 768. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define SAMPLED_BOUNDS(threads, room) \
	__launch_bounds__(threads, ((threads) < 512 && (room) >= 4096 ? 768 : 1024) / (threads))
#else
#define SAMPLED_BOUNDS(threads, room) LAUNCH_BOUNDS(threads)
#endif

/* ---- Which elements pass ---- */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
DEVICE u32 sampled_beyond(u32 pair, u32 bound, bool greatest, f16)
{
	u32 out;
	if (greatest)
		asm("set.gtu.u32.f16x2 %0, %1, %2;" : "=r"(out) : "r"(pair), "r"(bound));
	else
		asm("set.ltu.u32.f16x2 %0, %1, %2;" : "=r"(out) : "r"(pair), "r"(bound));
	return out;
}
DEVICE u32 sampled_beyond(u32 pair, u32 bound, bool greatest, bf16)
{
	u32 out;
	if (greatest)
		asm("set.gtu.u32.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(pair), "r"(bound));
	else
		asm("set.ltu.u32.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(pair), "r"(bound));
	return out;
}
#else
template <typename T>
DEVICE u32 sampled_beyond(u32 pair, u32 bound, bool greatest, T)
{
	u32 out = 0;
#pragma unroll
	for (int v = 0; v < 2; v++) {
		typedef TopkValue<T> Value;
		if (!(Value::at(&pair, v, greatest) >= Value::at(&bound, 0, greatest)))
			out |= 0xffffu << v * 16;
	}
	return out;
}
#endif

/* The bound as elements are compared with it: all of its bits, twice those of 16. */
template <typename T>
DEVICE u32 sampled_word(typename Order<T>::Key key, bool greatest)
{
	const u32 bits = Order<T>::value(key, greatest);
	return sizeof(T) == 2 ? bits * 0x10001u : bits;
}

/* Bits of those of HELD vectors' elements that come before the bound; sampled_element() says which
 * each is. */
template <typename T, int HELD>
DEVICE u32 sampled_passing(const u32 (&words)[HELD][4], u32 bound, bool greatest)
{
	u32 passing = 0;

#pragma unroll
	for (int h = 0; h < HELD; h++) {
#pragma unroll
		for (int w = 0; w < 4; w++) {
			if constexpr (sizeof(T) == 2) {
				passing |= sampled_beyond(words[h][w], bound, greatest, T{}) & 0x10001u
																				   << (4 * h + w);
			} else {
				typedef TopkValue<T> Value;
				/* NaN passes, and anything passes a bound of NaN: entries know better. */
				if (!(Value::at(words[h], w, greatest) >= Value::at(&bound, 0, greatest)))
					passing |= 1u << (4 * h + w);
			}
		}
	}
	return passing;
}

/* The vector of a bit, and the element in it. */
DEVICE int sampled_vector(int bit)
{
	return (bit & 15) / 4;
}
template <typename T>
DEVICE int sampled_element(int bit)
{
	return sizeof(T) == 2 ? 2 * (bit & 3) + bit / 16 : bit & 3;
}

/* ---- A row ---- */

/* Bins of a sample, by how far entries are from the first one: a bin is as wide as a 64th to a 32nd
 * of that. */
#define SAMPLED_AFAR 1024

DEVICE u32 sampled_afar(u32 distance)
{
	const int shift = distance < 64 ? 0 : 26 - __clz(static_cast<int>(distance));
	return static_cast<u32>(shift) * 32 + (distance >> shift);
}
/* The greatest distance of a bin. */
DEVICE u32 sampled_far_end(u32 bin)
{
	const u32 shift = bin < 64 ? 0 : bin / 32 - 1;
	return ((bin - shift * 32 + 1) << shift) - 1;
}

/* Loads vector i of the EACH that a thread has of the sample; returns its number in the row. */
template <int EACH, int THREADS, typename T, int V>
DEVICE int sampled_load(const TopkVectors<V, 1, T> &vectors, int i, u32 (&words)[4])
{
	constexpr u32 runs = EACH * THREADS / SAMPLED_RUN;
	const int at = i * THREADS + static_cast<int>(threadIdx.x);
	const u64 before =
		static_cast<u64>(at / SAMPLED_RUN) * static_cast<u32>(vectors.count / SAMPLED_RUN);
	const int number = static_cast<int>(before / runs) * SAMPLED_RUN + at % SAMPLED_RUN;

	vec_load<16>(vectors.x + static_cast<i64>(number) * V, words);
	return number;
}

template <typename T, int V>
DEVICE Entry<u64> sampled_entry(const TopkRow<Entry<u64>> &row, const TopkVectors<V, 1, T> &vectors,
								int number, const u32 (&words)[4], int v)
{
	const u32 bits = static_cast<u32>(vec_element<sizeof(T)>(words, v));
	const Entry<u64> entry =
		Entry<u64>::of<T>(Order<T>::key(bits, row.greatest),
						  static_cast<u32>(vectors.column(number) + v), row.place_bits);

	return vectors.there(number) >> v & 1 ? entry : Entry<u64>::last();
}

/* Finds the bin of entry number WANT, from 1 on: found[0], and how many are up to its end:
 * found[1]. */
template <int WANT, int THREADS>
DEVICE void sampled_find(const TopkRow<Entry<u64>> &row, const u32 *bins)
{
	constexpr int each = SAMPLED_AFAR / THREADS;
	u32 mine[each], all = 0;

	vec_load<4 * each>(bins + row.thread * each, mine);
#pragma unroll
	for (int i = 0; i < each; i++)
		all += mine[i];
	u32 upto = total_upto(all, row.thread % 32);
	if (row.thread % 32 == 31)
		row.bins[32 + row.thread / 32] = upto;
	__syncthreads();
#pragma unroll 1
	for (int warp = 0; warp < row.thread / 32; warp++)
		upto += row.bins[32 + warp];
	if (upto >= WANT && upto - all < WANT) {
		int bin = 0;
		upto -= all;
#pragma unroll
		for (int i = 0; i < each; i++) {
			bin += upto < WANT;
			upto += upto < WANT ? mine[i] : 0;
		}
		row.found[0] = static_cast<u32>(row.thread * each + bin - 1);
		row.found[1] = upto;
	}
	__syncthreads();
}

/* The last entry that is to be collected, of a sample in which WANT or a few more are no later.
 * Calls meanwhile() when it has asked for the sample. */
template <int EACH, int WANT, int THREADS, typename T, int V, typename Meanwhile>
DEVICE Entry<u64> sampled_bound(const TopkRow<Entry<u64>> &row, const TopkVectors<V, 1, T> &vectors,
								Meanwhile meanwhile)
{
	constexpr int most = WANT + WANT / 8;
	u32 *const bins = reinterpret_cast<u32 *>(row.entries);
	u32 words[EACH][4], high[EACH * V], least = ~0u;
	int number[EACH];

#pragma unroll
	for (int i = 0; i < EACH; i++)
		number[i] = sampled_load<EACH, THREADS>(vectors, i, words[i]);
	meanwhile();
	for (int i = row.thread; i < SAMPLED_AFAR; i += THREADS)
		bins[i] = 0;
#pragma unroll
	for (int i = 0; i < EACH; i++) {
#pragma unroll
		for (int v = 0; v < V; v++) {
			const Entry<u64> entry = sampled_entry(row, vectors, number[i], words[i], v);
			high[i * V + v] = static_cast<u32>(entry.word >> 32);
			least = min(least, high[i * V + v]);
		}
	}
#pragma unroll
	for (int far = 16; far > 0; far /= 2)
		least = min(least, group_from(least, far));
	if (row.thread % 32 == 0)
		row.bins[row.thread / 32] = least;
	__syncthreads();
	for (int warp = 0; warp < THREADS / 32; warp++)
		least = min(least, row.bins[warp]);
#pragma unroll
	for (int i = 0; i < EACH * V; i++)
		atomicAdd(&bins[sampled_afar(high[i] - least)], 1u);
	__syncthreads();
	sampled_find<WANT, THREADS>(row, bins);
	if (row.found[1] <= most) {
		const u32 far = sampled_far_end(row.found[0]);
		return {static_cast<u64>(far < ~least ? least + far : ~0u) << 32 | 0xffffffffu};
	}
	/* Many are about as far as each other: the sample is read once more. */
#pragma unroll 1
	for (int i = 0; i < EACH; i++) {
		const int again = sampled_load<EACH, THREADS>(vectors, i, words[0]);
#pragma unroll
		for (int v = 0; v < V; v++)
			row.entries[(i * V + v) * THREADS + row.thread] =
				sampled_entry(row, vectors, again, words[0], v);
	}
	__syncthreads();
	const Entry<u64> bound = topk_bound<true>(row, EACH * V * THREADS, WANT, most);
	__syncthreads();
	return bound;
}

/* Collects what is no later than `last`; more may be counted than there is room for.  A thread asks
 * for places of all that pass in a step at once; what is not wanted after all leaves E::last(). */
template <int HELD, int STAGES, bool GREATEST, typename T, int V>
DEVICE void sampled_collect(const TopkRow<Entry<u64>> &row, const TopkVectors<V, 1, T> &vectors,
							Entry<u64> last, b128 *ring)
{
	typedef Entry<u64> E;
	typedef Order<T> O;
	const typename O::Key key = last.template key<T>();
	const u32 last_place = last.template place<T>(row.place_bits);
	/* Equals of the bound's key pass up to its place: then as if the next key were the bound.  That
	 * of -0 is no element's. */
	typename O::Key next = key == O::all ? key : key + 1;
	if (O::key(O::value(next, GREATEST), GREATEST) != next)
		next++;
	const u32 bounds[] = {sampled_word<T>(next, GREATEST), sampled_word<T>(key, GREATEST)};
	b128 *slot = ring + row.thread;

#pragma unroll 1
	for (int begin = 0; begin < vectors.count; begin += HELD * row.threads) {
		const int first = begin + row.thread;
		const int ahead = first + (STAGES - 1) * HELD * row.threads;
		b128 *const behind = slot == ring + row.thread ? slot + (STAGES - 1) * HELD * row.threads
													   : slot - HELD * row.threads;
#pragma unroll
		for (int h = 0; h < HELD; h++)
			if (ahead + h * row.threads < vectors.count)
				async_copy16(behind + h * row.threads,
							 vectors.x + static_cast<i64>(ahead + h * row.threads) * V);
		async_batch();
		async_wait_but<STAGES - 1>();
		u32 words[HELD][4];
#pragma unroll
		for (int h = 0; h < HELD; h++)
			vec_load<16>(slot + h * row.threads, words[h]);
		const bool later = static_cast<u32>(vectors.column(first)) > last_place && first > 0;
		u32 pending = sampled_passing<T>(words, later ? bounds[1] : bounds[0], GREATEST);
		/* The entry of a bit; E::last() where it is not wanted.  Beyond the row's ends lies
		 * anything, at a column that is none. */
		const auto entry_of = [&](int bit) -> E {
			const int h = sampled_vector(bit), v = sampled_element<T>(bit);
			const int number = first + h * row.threads;
			const u32 column = static_cast<u32>(vectors.column(number) + v);
			const E entry = E::of<T>(
				O::key(O::load(reinterpret_cast<const T *>(slot + h * row.threads) + v), GREATEST),
				column, row.place_bits);
			return column < static_cast<u32>(row.columns) && !last.before(entry) ? entry
																				 : E::last();
		};
		/* If the bound's place lies in this step, many equals of its key may be unwanted. */
		if (!later && (begin + HELD * row.threads) * V > static_cast<int>(last_place)) {
#pragma unroll 1
			for (u32 rest = pending; rest; rest &= rest - 1)
				if (entry_of(__ffs(static_cast<int>(rest)) - 1).word == E::last().word)
					pending &= ~(rest & (0 - rest));
		}
		u32 at = pending ? atomicAdd(row.count, static_cast<u32>(__popc(pending))) : 0;
#pragma unroll 1
		for (; pending; pending &= pending - 1, at++)
			if (at < static_cast<u32>(row.room))
				row.entries[at] = entry_of(__ffs(static_cast<int>(pending)) - 1);
		slot = slot == ring + row.thread + (STAGES - 1) * HELD * row.threads
				   ? ring + row.thread
				   : slot + HELD * row.threads;
	}
	async_wait_all();
}

/* Makes of each of BINS how many are in the bins before it; false if one has too many that are in
 * question, or if there are less than k in all. */
template <int BINS, int THREADS>
DEVICE bool sampled_scan(u32 *bins, u32 *sums, u32 k)
{
	constexpr int each = BINS / THREADS, at_once = each < 4 ? each : 4;
	const int thread = static_cast<int>(threadIdx.x);
	u32 *const mine = bins + thread * each;
	u32 held[at_once], all = 0;
	bool few = true;

#pragma unroll 1
	for (int i = 0; i < each; i += at_once) {
		vec_load<4 * at_once>(mine + i, held);
#pragma unroll
		for (int b = 0; b < at_once; b++)
			all += held[b];
	}
	u32 upto = total_upto(all, thread % 32);
	if (thread % 32 == 31)
		sums[thread / 32] = upto;
	__syncthreads();
	upto -= all;
#pragma unroll 1
	for (int warp = 0; warp < thread / 32; warp++)
		upto += sums[warp];
#pragma unroll 1
	for (int i = 0; i < each; i += at_once) {
		vec_load<4 * at_once>(mine + i, held);
#pragma unroll
		for (int b = 0; b < at_once; b++) {
			const u32 here = held[b];
			few &= upto >= k || here <= SAMPLED_BIN_MOST;
			held[b] = upto;
			upto += here;
		}
		vec_store<4 * at_once>(mine + i, held);
	}
	return __syncthreads_and(few && (thread < THREADS - 1 || upto >= k)) != 0;
}

/* After sampled_scan() returned false: how many entries there are in all bins. */
template <int THREADS>
DEVICE u32 sampled_there(const u32 *sums)
{
	u32 there = 0;

#pragma unroll 1
	for (int warp = 0; warp < THREADS / 32; warp++)
		there += sums[warp];
	return there;
}

/* Writes the first k of `count` entries, all of them up to `last`; false: too many share a bin, or
 * fewer than k are no E::last(). */
template <int BINS, int THREADS, int CAPACITY, bool GREATEST, typename T>
DEVICE bool sampled_write(const TopkRow<Entry<u64>> &row, int count, Entry<u64> last, u32 *bins,
						  Entry<u64> *placed, const T *x, T *values, i64 *indices, i64 y_step)
{
	typedef Entry<u64> E;
	typedef Order<T> O;
	u32 least = ~0u;

	for (int i = row.thread; i < BINS; i += THREADS)
		bins[i] = 0;
	for (int i = row.thread; i < count; i += THREADS) {
		const u32 high = static_cast<u32>(row.entries[i].word >> 32);
		least = high < least ? high : least;
	}
#pragma unroll
	for (int far = 16; far > 0; far /= 2) {
		const u32 other = group_from(least, far);
		least = other < least ? other : least;
	}
	if (row.thread % 32 == 0)
		row.bins[row.thread / 32] = least;
	__syncthreads();
	for (int warp = 0; warp < THREADS / 32; warp++)
		least = row.bins[warp] < least ? row.bins[warp] : least;
	const u64 base = static_cast<u64>(least) << 32;
	const int bits = 64 - __clzll(static_cast<i64>(last.word - base));
	constexpr int bin_bits = BINS == 4096 ? 12 : BINS == 2048 ? 11 : 10;
	const int shift = bits > bin_bits ? bits - bin_bits : 0;
	static_assert(BINS == 1 << bin_bits, "a power of two");

	for (int i = row.thread; i < count; i += THREADS)
		if (row.entries[i].word != E::last().word)
			atomicAdd(&bins[(row.entries[i].word - base) >> shift], 1u);
	__syncthreads();
	if (!sampled_scan<BINS, THREADS>(bins, row.bins + 32, static_cast<u32>(row.k)))
		return false;
	/* A bin's number becomes that of the first entry behind it. */
	for (int i = row.thread; i < count; i += THREADS) {
		const E entry = row.entries[i];
		if (entry.word == E::last().word)
			continue;
		const u32 at = atomicAdd(&bins[(entry.word - base) >> shift], 1u);
		if (at < CAPACITY)
			placed[at] = entry;
	}
	__syncthreads();
	const int there = static_cast<int>(bins[BINS - 1]), most = row.k + SAMPLED_BIN_MOST;
	for (int i = row.thread; i < (there < most ? there : most); i += THREADS) {
		const E entry = placed[i];
		const u32 bin = static_cast<u32>((entry.word - base) >> shift);
		const u32 end = bins[bin];
		u32 rank = bin ? bins[bin - 1] : 0;
		/* A bin behind the first k may have more entries than were placed. */
		if (rank >= static_cast<u32>(row.k))
			continue;
		for (u32 other = rank; other < end; other++)
			rank += placed[other].before(entry);
		if (rank >= static_cast<u32>(row.k))
			continue;
		const typename O::Key key = entry.template key<T>();
		const u32 place = entry.template place<T>(row.place_bits);
		/* A key tells of 0 and NaN no more than that. */
		if (key == O::key(0, GREATEST) || key == O::key(O::sign - 1, GREATEST)) {
			vec_copy<sizeof(T)>(x + place, values + rank * y_step);
		} else {
			const u32 value = O::value(key, GREATEST);
			vec_store<sizeof(T)>(values + rank * y_step, &value);
		}
		if (indices)
			indices[rank * y_step] = place;
	}
	return true;
}

/*
 * HELD vectors of 16 bytes are looked at by a thread at once, and STAGES times as many have a place
 * in shared memory.  The sample has SAMPLE vectors a thread, and WANT of its entries are to be
 * collected.  ROOM: entries that may be.
 */
template <typename T, int HELD, int STAGES, int THREADS, int SAMPLE, int WANT, int BINS, int ROOM,
		  int SORTED, bool GREATEST, int COLUMNS, int FIRST, i64 Y_STEP, class DIMS, class X,
		  class Y, typename Index>
__global__ SAMPLED_BOUNDS(THREADS, ROOM) void topk_sampled(const T *x, T *values, i64 *indices,
														   i64 rows)
{
	typedef Entry<u64> E;
	constexpr int V = 16 / sizeof(T);
	constexpr int capacity = FIRST + SAMPLED_BESIDE;
	static_assert(SAMPLE * V * THREADS <= ROOM && SORTED <= ROOM, "room");
	DYN_SHARED(b128, shared);
	constexpr int beside = (ROOM * 8 + TOPK_BESIDE) / 16;
	const TopkSizes sizes = {1, Y_STEP, COLUMNS, FIRST, SORTED, ROOM, GREATEST, false};
	/* Bins lie where the ring was. */
	b128 *const ring = shared + beside;
	u32 *const bins = reinterpret_cast<u32 *>(ring);
	E *const placed = reinterpret_cast<E *>(bins + BINS);

	for (i64 number = blockIdx.x; number < rows; number += gridDim.x) {
		const T *const from = x + index_offset<i64>(static_cast<Index>(number), DIMS{}, X{});
		const TopkVectors<V, 1, T> vectors(from, 1, COLUMNS);
		int thread = static_cast<int>(threadIdx.x);
#if defined(__CUDA_ARCH__)
		/* The compiler is to compute addresses from it for this row: those that it computed once
		 * for all rows would take registers. */
		asm volatile("" : "+r"(thread));
#endif
		const TopkRow<E> row = topk_begin<E>(sizes, thread, THREADS, shared);

		if (thread == 0)
			*row.count = 0;
		const E last = sampled_bound<SAMPLE, WANT, THREADS>(row, vectors, [&] {
#pragma unroll
			for (int stage = 0; stage < STAGES - 1; stage++) {
#pragma unroll
				for (int h = 0; h < HELD; h++) {
					const int at = (stage * HELD + h) * THREADS + thread;
					if (at < vectors.count)
						async_copy16(ring + at, vectors.x + static_cast<i64>(at) * V);
				}
				async_batch();
			}
		});
		sampled_collect<HELD, STAGES, GREATEST>(row, vectors, last, ring);
		__syncthreads();
		const int count = static_cast<int>(*row.count);
		const i64 to = index_offset<i64>(static_cast<Index>(number), DIMS{}, Y{});
		i64 *const places = indices ? indices + to : nullptr;
		bool misled = count < FIRST || count > ROOM;
		if (!misled && !sampled_write<BINS, THREADS, capacity, GREATEST>(
						   row, count, last, bins, placed, from, values + to, places, Y_STEP)) {
			/* topk_order() wants a k-th entry that no other one equals. */
			misled = sampled_there<THREADS>(row.bins + 32) < static_cast<u32>(FIRST);
			__syncthreads(); /* bins are used again */
			if (!misled) {
				topk_order<true>(row, count, SORTED);
				topk_write(row, from, values + to, places, sizes);
			}
		}
		if (misled) {
			__syncthreads();
			topk_row<true, V, 4>(row, from, values + to, places, sizes);
		}
		__syncthreads();
	}
}
