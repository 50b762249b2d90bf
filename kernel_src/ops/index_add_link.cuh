/*
 * index_add_link.cuh: the sums of index_add.cuh, in the same order, by small blocks for which the
 * list of indices is looked at once.
 *
 * The first blocks link the indices of each place in scratch memory: a place has the last one that
 * came, and each index has the one before.  They come in any order.  The blocks behind them have
 * ROWS places each, of one slice, and WIDE vectors of their columns.  They wait for the links and
 * put the indices of their places in order; then they add, some vectors at a time.  A place with
 * more than ROOM indices reads the list instead.
 *
 * BUCKETS: each place has a bucket of ROOM indices in the place of links, which a block reads at
 * once rather than one after another: for places that many indices name.
 */
#pragma once
#include "common/earlier.cuh"
#include "common/index.cuh"
#include "common/index_add.cuh"
#include "common/indices.cuh"
#include "common/indices_find.cuh"
#include "common/last.cuh"
#include "common/summand.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

#define INDEX_ADD_LINK_HELD 4 /* indices that a thread links; the planner knows */

/* A block has ROWS places, WIDE vectors of V elements of each; a thread has EACH of these at a
 * time. */
template <typename T, typename I, int BOUNDS, int V, u32 WIDE, u32 ROWS, u32 ROOM, u32 THREADS,
		  int EACH, bool BUCKETS>
struct IndexAddLinkShape {
	typedef T Element;
	typedef I Index;
	static constexpr int bounds = BOUNDS, vector = V, each = EACH;
	static constexpr u32 wide = WIDE, rows = ROWS, room = ROOM, threads = THREADS;
	static constexpr u32 step = THREADS * EACH;
	static constexpr bool bucket = BUCKETS;
	/* So many are on a multiprocessor at once: most of a thread's registers are for rare lists. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
	static constexpr int blocks = 1;
#else
	static constexpr int blocks = (EACH == 1 ? 1280 : 1024) / static_cast<int>(THREADS);
#endif
	static_assert(ROWS <= THREADS, "a thread for each");
};

/* Scratch memory.  All of it but `next` is 0 between launches. */
struct IndexAddLinks {
	Earlier linkers;
	/* For each place: 1 + an index, or the length of its bucket; and how many blocks read it. */
	u32 *heads, *used;
	u32 *next; /* of each index: 1 + the next; or the buckets */

	DEVICE IndexAddLinks(void *scratch, i64 end, bool counted)
		: linkers(scratch), heads(linkers.ended + EARLIER_STATE), used(heads + end),
		  next(counted ? used + end : used)
	{
	}
};

template <class SHAPE, class PLACES, class Find>
struct IndexAddLink {
	typedef typename SHAPE::Element T;
	typedef typename summand<T>::Compute Compute;
	typedef typename SHAPE::Index Index;
	static constexpr int es = static_cast<int>(sizeof(T)), v = SHAPE::vector;
	static constexpr int bytes = es * v, words = vec_words<bytes>, each = SHAPE::each;
	static constexpr u32 vectors = static_cast<u32>(PLACES::columns / v);
	static constexpr u32 parts = (vectors + SHAPE::wide - 1) / SHAPE::wide;
	static constexpr u32 looked = 4; /* indices of the list that a thread looks at, at a time */
	static constexpr u32 warps = SHAPE::threads / 32, votes = looked * warps;
	/* Elements of a sum that are loaded at once: as many as registers hold. */
	static constexpr int ahead = each > 1 ? 2 : es == 2 ? 3 : 4;

	const u8 *many, *base;
	u8 *few;
	const Index *idx;
	i64 count, padding;
	Compute alpha;
	Find find;

	/* A thread sums up some vectors. */
	struct Sums {
		const u8 *from[each];
		u8 *to[each];
		u32 row[each], in[each][words]; /* what they begin with */
		Compute sum[each][v];

		DEVICE void begin()
		{
#pragma unroll
			for (int j = 0; j < each; j++)
				summand<T>::unpack(in[j], sum[j]);
		}
	};

	DEVICE bool named(Index index, i64 &place, u32 &strays) const
	{
		if (static_cast<i64>(index) == padding)
			return false;
		const bool found = find(static_cast<i64>(index), place);
		strays += !found;
		return found;
	}

	/* Links the indices of one block; returns how many name nothing. */
	DEVICE u32 link(const IndexAddLinks &links, i64 list, u32 block) const
	{
		constexpr int held = INDEX_ADD_LINK_HELD;
		const i64 first = static_cast<i64>(block) * (held * SHAPE::threads) + threadIdx.x;
		Index index[held];
		u32 before[held], strays = 0;
		i64 place[held];
		bool there[held];

#pragma unroll
		for (int i = 0; i < held; i++) {
			const i64 k = first + i * SHAPE::threads;
			index[i] = k < count ? idx[list + k * PLACES::idx_step] : 0;
		}
#pragma unroll
		for (int i = 0; i < held; i++) {
			const i64 k = first + i * SHAPE::threads;
			there[i] = k < count && named(index[i], place[i], strays);
			if (there[i] && SHAPE::bucket)
				before[i] = atomicAdd(links.heads + place[i], 1u);
			else if (there[i])
				before[i] = atomicExch(links.heads + place[i], static_cast<u32>(k) + 1);
		}
#pragma unroll
		for (int i = 0; i < held; i++) {
			const i64 k = first + i * SHAPE::threads;
			if (there[i] && !SHAPE::bucket)
				links.next[k] = before[i];
			else if (there[i] && before[i] < SHAPE::room)
				links.next[place[i] * SHAPE::room + before[i]] = static_cast<u32>(k);
		}
		return strays;
	}

	/* Lists what is in the buckets of a block's places, of which counts has how many, the last
	 * first.  All threads come. */
	DEVICE void empty(const IndexAddLinks &links, u32 *keys, const u32 *counts, i64 first) const
	{
		constexpr u32 all = SHAPE::rows * SHAPE::room;
		constexpr u32 mine = (all + SHAPE::threads - 1) / SHAPE::threads;
		u32 key[mine], to[mine];

#pragma unroll
		for (u32 m = 0; m < mine; m++) {
			const u32 i = m * SHAPE::threads + threadIdx.x, row = i / SHAPE::room;
			to[m] = all;
			if (i < all && counts[row] <= SHAPE::room && i - row * SHAPE::room < counts[row]) {
				to[m] = row * SHAPE::room;
				key[m] = __ldcg(links.next + first * SHAPE::room + i);
			}
		}
#pragma unroll
		for (u32 m = 0; m < mine; m++)
			if (to[m] < all)
				keys[m * SHAPE::threads + threadIdx.x] = key[m];
		__syncthreads();
#pragma unroll
		for (u32 m = 0; m < mine; m++) {
			const u32 begin = to[m];
			const u32 n = begin < all ? counts[begin / SHAPE::room] : 0;
#pragma unroll 4
			for (u32 j = 0; j < n; j++)
				to[m] += keys[begin + j] > key[m];
		}
		__syncthreads();
#pragma unroll
		for (u32 m = 0; m < mine; m++)
			if (to[m] < all)
				keys[to[m]] = key[m];
	}

	/* Lists what a place's links name, the last first: they mostly come so.  Returns how many there
	 * are, ROOM + 1 if there are more than ROOM. */
	DEVICE u32 walk(const IndexAddLinks &links, u32 *keys, i64 place) const
	{
		u32 entry = __ldcg(links.heads + place), n = 0;

#pragma unroll 1
		while (entry != 0 && n <= SHAPE::room) {
			const u32 key = entry - 1;
			u32 to = n++;
			if (to == SHAPE::room)
				break;
			entry = __ldcg(links.next + key);
#pragma unroll 1
			for (; to > 0 && keys[to - 1] < key; to--)
				keys[to] = keys[to - 1];
			keys[to] = key;
		}
		return n;
	}

	/* Asks for what the sums from number i to `last` begin with, of places with few indices, or
	 * with many. */
	DEVICE void ask(const IndexSlice &slice, i64 first, i64 end, u32 part, u32 i, u32 last,
					const u32 *counts, bool full, Sums &sums) const
	{
		i += threadIdx.x;
#pragma unroll
		for (int j = 0; j < each; j++, i += SHAPE::threads) {
			const u32 row = i / SHAPE::wide, vector = part * SHAPE::wide + (i - row * SHAPE::wide);
			const i64 place = first + row, column = static_cast<i64>(vector) * v;
			sums.row[j] = row;
			sums.from[j] = nullptr;
#pragma unroll
			for (int w = 0; w < words; w++)
				sums.in[j][w] = 0;
			if (i >= last || vector >= vectors || place >= end ||
				(counts[row] > SHAPE::room) != full)
				continue;
			sums.from[j] = many + (slice[0] + column) * es;
			sums.to[j] = few + (slice[3] + place * PLACES::few_axis + column) * es;
			if (base)
				vec_load<bytes>(base + (slice[1] + place * PLACES::base_axis + column) * es,
								sums.in[j]);
		}
	}

	DEVICE void load(const u8 *from, u32 key, u32 (&more)[words]) const
	{
		vec_load<bytes>(from + static_cast<i64>(key) * (PLACES::many_axis * es), more);
	}

	/* Begins the sums, and adds what is listed for their places. */
	DEVICE void add_keys(const u32 *keys, const u32 *counts, Sums &sums) const
	{
		u32 left[each], most = 0, n = 0;

#pragma unroll
		for (int j = 0; j < each; j++) {
			left[j] = sums.from[j] ? counts[sums.row[j]] : 0;
			most = left[j] > most ? left[j] : most;
		}
#pragma unroll 1
		do {
			u32 more[each][ahead][words];
#pragma unroll
			for (int j = 0; j < each; j++) {
#pragma unroll
				for (int a = 0; a < ahead; a++)
					if (n + a < left[j])
						load(sums.from[j], keys[sums.row[j] * SHAPE::room + left[j] - 1 - n - a],
							 more[j][a]);
			}
			if (n == 0)
				sums.begin();
#pragma unroll
			for (int j = 0; j < each; j++) {
#pragma unroll
				for (int a = 0; a < ahead; a++)
					if (n + a < left[j])
						summand_add<T>(more[j][a], alpha, sums.sum[j]);
			}
			n += ahead;
		} while (n < most);
	}

	/* Adds what the marked indices from `first` on name, to the sums of a row of the block. */
	DEVICE void add_marked(u32 marks, u32 first, u32 row, Sums &sums) const
	{
#pragma unroll 1
		while (marks != 0) {
			const u32 key = first + static_cast<u32>(__ffs(static_cast<int>(marks))) - 1;
			const u32 rest = marks & (marks - 1);
			const u32 then = rest ? first + static_cast<u32>(__ffs(static_cast<int>(rest))) - 1 : 0;
			marks = rest & (rest - 1);
#pragma unroll
			for (int j = 0; j < each; j++) {
				u32 more[2][words];
				if (!sums.from[j] || sums.row[j] != row)
					continue;
				load(sums.from[j], key, more[0]);
				if (rest)
					load(sums.from[j], then, more[1]);
				summand_add<T>(more[0], alpha, sums.sum[j]);
				if (rest)
					summand_add<T>(more[1], alpha, sums.sum[j]);
			}
		}
	}

	/* Adds what any index of the list names for a place, which is a row of the block.  All threads
	 * come. */
	DEVICE void add_list(i64 list, i64 place, u32 row, u32 *vote, Sums &sums) const
	{
		const u32 warp = threadIdx.x / 32;
		u32 unseen = 0;

#pragma unroll 1
		for (i64 first = 0; first < count; first += looked * SHAPE::threads) {
			Index index[looked];
			u32 mine = 0;
#pragma unroll
			for (u32 i = 0; i < looked; i++) {
				const i64 k = first + i * SHAPE::threads + threadIdx.x;
				index[i] = k < count ? idx[list + k * PLACES::idx_step] : 0;
			}
#pragma unroll
			for (u32 i = 0; i < looked; i++) {
				const i64 k = first + i * SHAPE::threads + threadIdx.x;
				i64 to = -1;
				const bool hit = k < count && named(index[i], to, unseen) && to == place;
				const u32 marks = __ballot_sync(0xffffffffu, hit);
				mine |= marks;
				if (threadIdx.x % 32 == 0)
					vote[i * warps + warp] = marks;
			}
			if (__syncthreads_or(mine != 0)) {
#pragma unroll 1
				for (u32 i = 0; i < votes; i++)
					add_marked(vote[i], static_cast<u32>(first) + i * 32, row, sums);
			}
			__syncthreads();
		}
	}

	DEVICE void store(const Sums &sums) const
	{
#pragma unroll
		for (int j = 0; j < each; j++) {
			u32 out[words];
			if (!sums.from[j])
				continue;
			summand<T>::pack(sums.sum[j], out);
			vec_store<bytes>(sums.to[j], out);
		}
	}
};

/* linkers: blocks that link; uses: blocks that look at each place. */
template <class SHAPE, class PLACES, typename Place>
__global__ __launch_bounds__(SHAPE::threads, SHAPE::blocks) void index_add_link(
	const void *many, const typename SHAPE::Index *idx, const void *base, void *few, u64 *report,
	i64 slices, i64 count, i64 end, i64 padding, u32 linkers, void *scratch,
	typename summand<typename SHAPE::Element>::Compute alpha)
{
	typedef IndicesFind<typename SHAPE::Index, SHAPE::bounds, Place> Find;
	typedef IndexAddLink<SHAPE, PLACES, Find> Add;
	__shared__ u32 keys[SHAPE::rows * SHAPE::room], counts[SHAPE::rows], vote[Add::votes];
	const u32 thread = threadIdx.x,
			  chunks = static_cast<u32>((end + SHAPE::rows - 1) / SHAPE::rows);
	const u32 uses = static_cast<u32>(slices) * Add::parts;
	const IndexAddLinks links(scratch, end, uses > 1);
	const Add add{static_cast<const u8 *>(many),
				  static_cast<const u8 *>(base),
				  static_cast<u8 *>(few),
				  idx,
				  count,
				  padding,
				  alpha,
				  Find{end}};
	const u32 block = links.linkers.block();
	const PLACES at{end};
	u32 strays = 0;

	if (block < linkers) {
		IndexSlice offset;
		at(0, offset);
		strays = add.link(links, offset[2], block);
		links.linkers.end();
	} else {
		constexpr u32 all = SHAPE::rows * SHAPE::wide;
		const u32 item = block - linkers, chunk = item / Add::parts, slice = chunk / chunks;
		const u32 part = item - chunk * Add::parts;
		const i64 first = static_cast<i64>(chunk - slice * chunks) * SHAPE::rows;
		const i64 place = first + thread;
		const bool walks = thread < SHAPE::rows && place < end;
		typename Add::Sums sums;
		IndexSlice offset;
		bool last = false;

		at(slice, offset);
		if (walks) {
			links.linkers.wait(linkers);
			if constexpr (SHAPE::bucket)
				counts[thread] = __ldcg(links.heads + place);
			else
				counts[thread] = add.walk(links, keys + thread * SHAPE::room, place);
			if (uses == 1)
				links.heads[place] = 0;
		}
		if (thread < SHAPE::rows && !walks)
			counts[thread] = 0;
		if (thread == 0) /* it has waited */
			last = links.linkers.pass(gridDim.x - linkers);
		const bool full = __syncthreads_or(walks && counts[thread] > SHAPE::room);
		if constexpr (SHAPE::bucket) {
			add.empty(links, keys, counts, first);
			__syncthreads();
		}
#pragma unroll 1
		for (u32 i = 0; i < all; i += SHAPE::step) {
			add.ask(offset, first, end, part, i, all, counts, false, sums);
			add.add_keys(keys, counts, sums);
			add.store(sums);
		}
#pragma unroll 1
		for (u32 row = 0; full && row < SHAPE::rows && first + row < end; row++) {
			const u32 last = (row + 1) * SHAPE::wide;
#pragma unroll 1
			for (u32 i = row * SHAPE::wide; counts[row] > SHAPE::room && i < last;
				 i += SHAPE::step) {
				add.ask(offset, first, end, part, i, last, counts, true, sums);
				sums.begin();
				add.add_list(offset[2], first + row, row, vote, sums);
				add.store(sums);
			}
		}
		if (walks && uses > 1 && last_of(links.used + place, uses))
			links.heads[place] = 0;
		if (last)
			links.linkers.clear();
	}
	if constexpr (SHAPE::bounds == INDICES_CHECK)
		indices_report(report, strays);
}
