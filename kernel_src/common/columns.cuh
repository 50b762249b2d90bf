/*
 * columns.cuh: sums over the rows of a matrix, column by column, in one launch and always in the
 * same order.
 *
 * Threads add up some rows each.  The sums of a block's threads for a column are put together in
 * shared memory; what several blocks have of it goes to scratch memory, and the block that is done
 * last adds that up, block after block by their numbers.  It does not matter which one that is.
 */
#pragma once
#include "common/element.cuh"
#include "common/group.cuh"
#include "common/last.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

/*
 * BYTES bytes that are aligned to elements of ES bytes only: the two aligned vectors around them.
 * Bytes at `end` and behind it say nothing; vectors that begin there are not read.
 */
template <int ES, int BYTES>
DEVICE void columns_load_skewed(const void *from, const void *end, u32 (&words)[BYTES / 4])
{
	u32 pair[BYTES / 2] = {};
	const int beyond = vec_beyond<BYTES>(from);
	const u8 *const low = static_cast<const u8 *>(from) - beyond;
	vec_load<BYTES>(low, pair);
	if (beyond != 0 && low + BYTES < static_cast<const u8 *>(end))
		vec_load<BYTES>(low + BYTES, pair + BYTES / 4);
	vec_window<ES, BYTES>(pair, beyond, words);
}

/*
 * A block adds up columns by SIZE lanes a row, ROWS rows side by side.  Each lane has NV vectors of
 * V columns: vector n of lane t is number n * SIZE + t.
 */
template <typename Compute, int SIZE, int ROWS, int V, int NV>
struct ColumnsBlock {
	static constexpr u32 threads = SIZE * ROWS, width = SIZE * V * NV;
	/* Rows of one warp meet in registers, others in shared memory. */
	static constexpr u32 step = SIZE < 32 ? 32 : SIZE;
	static constexpr u32 parts = threads / step;
	static_assert(SIZE >= 32 || 32 % SIZE == 0, "part or whole warps");
	/* Eight numbers of a lane leave by two vectors, which every other four lanes swap: so those of
	 * eight lanes lie in all banks. */
	static constexpr bool swaps = V == 8 && sizeof(Compute) == 4;
	/* Where number i of a part lies. */
	static DEVICE u32 place(u32 i)
	{
		return swaps ? i ^ (i >> 5 & 1) << 2 : i;
	}
	static DEVICE void put(Compute *here, u32 to, const Compute (&sum)[V])
	{
		if constexpr (swaps) {
			u32 words[V];
			element_pack<Compute>(sum, words);
			vec_store<16>(here + place(to), words);
			vec_store<16>(here + place(to + 4), words + 4);
		} else {
#pragma unroll
			for (int j = 0; j < V; j++)
				here[to + j] = sum[j];
		}
	}

	/*
	 * Merges what threads have of SUMS sums, AT_ONCE of them together: one or all.  Calls
	 * body(s, i, value) for column i of each, by one thread.  All threads of the block come; shared
	 * has room for AT_ONCE * parts * width numbers.
	 */
	template <int AT_ONCE, int SUMS, typename Body>
	static DEVICE void merge(const Compute (&mine)[SUMS][NV][V], Compute *shared, Body body)
	{
		constexpr u32 values = AT_ONCE * width;
		const u32 thread = threadIdx.x;
		Compute *const here = shared + thread / step * values;
		static_assert(AT_ONCE == 1 || AT_ONCE == SUMS, "one or all");

#pragma unroll 1
		for (int first = 0; first < SUMS; first += AT_ONCE) {
			__syncthreads(); /* what was there before was read */
#pragma unroll
			for (int s = 0; s < AT_ONCE; s++) {
#pragma unroll
				for (int n = 0; n < NV; n++) {
					const u32 to = static_cast<u32>(s) * width + n * (SIZE * V) + thread % SIZE * V;
					Compute sum[V];
#pragma unroll
					for (int j = 0; j < V; j++) {
						sum[j] = first == 0 ? mine[s][n][j] : mine[SUMS - 1][n][j];
#pragma unroll
						for (int lanes = SIZE; lanes < 32; lanes *= 2)
							sum[j] += group_from(sum[j], lanes);
					}
					/* Each that has the sum writes it, and all write the same. */
					put(here, to, sum);
				}
			}
			__syncthreads();
#pragma unroll 1
			for (u32 i = thread; i < values; i += threads) {
				Compute sum = 0;
#pragma unroll(parts % 8 == 0 ? 8 : parts % 4 == 0 ? 4 : 1)
				for (u32 part = 0; part < parts; part++)
					sum += shared[part * values + place(i)];
				body(static_cast<u32>(first) + i / width, i % width, sum);
			}
		}
	}
};

/* Is this the last of `count` blocks that come here?  All that they wrote before is seen after it.
 * The counter is 0 before the first, and again after the last. */
DEVICE bool columns_last(u32 *counter, u32 count)
{
	__shared__ bool last;

	__syncthreads();
	if (threadIdx.x == 0)
		last = last_of(counter, count);
	__syncthreads();
	return last;
}

/*
 * Sums of what `count` blocks wrote: from[block * pitch + i] for each i below WIDTH * SUMS, of sum
 * i / WIDTH its column i % WIDTH.  They lie `apart` from sum to sum, and only columns below `end`
 * are there.  Calls body(sum, column, value), from one thread each.  All THREADS come.
 */
template <int THREADS, int WIDTH, int SUMS, typename Compute, typename Body>
DEVICE void columns_finish(const Compute *from, u32 pitch, u32 apart, u32 end, u32 count,
						   Compute *shared, Body body)
{
	constexpr u32 values = WIDTH * SUMS;
	constexpr u32 parts = THREADS / values > 0 ? THREADS / values : 1;
	constexpr u32 once = 16; /* loads under way: nothing else hides their latency here */
	const u32 part = parts > 1 ? threadIdx.x / values : 0;

#pragma unroll 1
	for (u32 i = threadIdx.x - part * values; i < values; i += THREADS) {
		const u32 sum = i / WIDTH, column = i % WIDTH;
		const bool here = part < parts && column < end;
		Compute value = 0;
#pragma unroll 1
		for (u32 block = here ? part : count; block < count; block += once * parts) {
			Compute some[once];
#pragma unroll
			for (u32 u = 0; u < once; u++)
				some[u] = block + u * parts < count
							  ? from[(block + u * parts) * pitch + sum * apart + column]
							  : Compute(0);
#pragma unroll
			for (u32 u = 0; u < once; u++)
				value += some[u];
		}
		if constexpr (parts > 1) {
			__syncthreads();
			shared[threadIdx.x] = value;
			__syncthreads();
#pragma unroll 1
			for (u32 other = 1; other < parts && part == 0; other++)
				value += shared[other * values + i];
		}
		if (here && part == 0)
			body(sum, column, value);
	}
}

/* A thread that sees a later write of this one also sees what this thread, and those it met at a
 * barrier, wrote before; and the other way round. */
DEVICE void columns_fence()
{
#if KILN_CPU
	__threadfence();
#else
	asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}

/*
 * The end of blocks that all have a part of all columns: calls body(strip) for each of `strips`
 * numbers, in one block, when all of `blocks` have come here; what they wrote before is seen.  The
 * four counters are 0 before the first block begins, and again after the last.
 *
 * Blocks share the strips.  To do so they wait for one another, but only when all have begun: then
 * all run, and none waits for others before it comes here.  A block that finds some not begun
 * leaves its room to them.  The last to come takes what is left.
 */
DEVICE void columns_begin(u32 *counter)
{
	if (threadIdx.x == 0)
		atomicAdd(counter, 1u);
}

template <typename Body>
DEVICE void columns_meet(u32 *counter, u32 blocks, u32 strips, Body body)
{
	u32 *const begun = counter, *const come = counter + 1, *const taken = counter + 2;
	u32 *const gone = counter + 3;
	__shared__ u32 next;

	__syncthreads();
	if (threadIdx.x == 0) {
#if KILN_CPU /* where blocks that wait are in the way of others */
		const bool stay = false;
#else
		const bool stay = *static_cast<volatile u32 *>(begun) == blocks;
#endif
		columns_fence();
		u32 mine = stay ? atomicAdd(taken, 1u) : strips;
		if (atomicAdd(come, 1u) == blocks - 1 && !stay)
			mine = atomicAdd(taken, 1u);
		while (mine < strips && *static_cast<volatile u32 *>(come) < blocks)
			;
		columns_fence();
		next = mine;
	}
	__syncthreads();
#pragma unroll 1
	for (u32 strip = next; strip < strips;) {
		body(strip);
		__syncthreads();
		if (threadIdx.x == 0)
			next = atomicAdd(taken, 1u);
		__syncthreads();
		strip = next;
	}
	if (threadIdx.x == 0 && atomicAdd(gone, 1u) == blocks - 1)
		*begun = *come = *taken = *gone = 0;
}

/*
 * Does so for strips that take equal time, in fewer trips to memory.  Block number i of a launch
 * takes strips i, i + blocks and so on.  If some did not stay, those that did share all strips, and
 * the last to come has all of them if none did.  The counters have other uses than in
 * columns_meet: there are five, the first lies at a multiple of 8, and columns_begin() is given the
 * third.
 *
 * begun: what thread WHO found there some time before, so as not to wait for it now.
 */
template <u32 WHO = 0>
DEVICE u32 columns_begun(const u32 *counter)
{
	return threadIdx.x == WHO ? static_cast<const volatile u32 *>(counter)[2] : 0;
}

/* Thread WHO says that the block has come, and then waits for all others, if it stays.  Returns how
 * many did not stay, or all of them if this block takes no strips. */
DEVICE u32 columns_come(u32 *counter, bool stay, u32 blocks)
{
	u64 *const both = reinterpret_cast<u64 *>(counter);

#if KILN_CPU /* where blocks that wait are in the way of others */
	__threadfence();
	const u64 before = atomicAdd(reinterpret_cast<unsigned long long *>(both), 1ull | 1ull << 32);
	__threadfence();
	return static_cast<u32>(before) == blocks - 1 ? blocks - 1 : blocks;
#else
	u64 seen;

	if (stay) {
		asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(both), "l"(1ull) : "memory");
		do
			asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(seen) : "l"(both) : "memory");
		while (static_cast<u32>(seen) < blocks);
		return static_cast<u32>(seen >> 32);
	}
	asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
				 : "=l"(seen)
				 : "l"(both), "l"(1ull | 1ull << 32)
				 : "memory");
	/* Only the last knows that all others did not stay either. */
	return seen == (static_cast<u64>(blocks - 1) << 32 | (blocks - 1)) ? blocks - 1 : blocks;
#endif
}

/* Thread WHO knows that all threads of the block have left what they have, and sees it. */
template <u32 WHO, typename Body>
DEVICE void columns_share_by(u32 *counter, u32 begun, u32 blocks, u32 strips, Body body)
{
	__shared__ u32 first, step;
	u32 before_me = 0;

	if (threadIdx.x == WHO) {
		const u32 left = columns_come(counter, begun == blocks, blocks);
		first = left == blocks ? strips : blockIdx.x;
		step = blocks;
		if (left != 0 && left != blocks) {
			first = atomicAdd(counter + 4, 1u);
			step = blocks - left;
			__threadfence();
		}
		before_me = atomicAdd(counter + 3, 1u);
	}
	__syncthreads();
#pragma unroll 1
	for (u32 strip = first; strip < strips; strip += step)
		body(strip);
	if (threadIdx.x == WHO && before_me == blocks - 1)
		counter[0] = counter[1] = counter[2] = counter[3] = counter[4] = 0;
}

template <typename Body>
DEVICE void columns_share(u32 *counter, u32 begun, u32 blocks, u32 strips, Body body)
{
	__syncthreads();
	columns_share_by<0>(counter, begun, blocks, strips, body);
}

/* The width of a strip, and the step from one sum of a block to the next.  About as many blocks
 * share the strips as an H200 has multiprocessors. */
constexpr u32 columns_width(u32 columns)
{
	return (columns + 8 * 120 - 1) / (8 * 120) * 8;
}
constexpr u32 columns_pitch(u32 columns)
{
	return (columns + 3) / 4 * 4;
}

/* Lanes that share a vector, of so many threads of which each may have that many vectors alone. */
constexpr u32 columns_parts(u32 threads, u32 vectors)
{
	u32 parts = 16;
	while (parts > 1 && parts * vectors > threads)
		parts /= 2;
	return parts;
}

/*
 * Sums of what `count` blocks wrote, of WIDTH columns of each of SUMS sums, 16 bytes at a time:
 * from[block * SUMS * pitch + sum * pitch + column].  Columns below `end` are there.  Calls
 * body(sum, column, value), from one thread each.  All THREADS come, and wait for none but those of
 * their warp.
 */
template <int THREADS, int WIDTH, int SUMS, typename Compute, typename Body>
DEVICE void columns_total(const Compute *from, u32 pitch, u32 end, u32 count, Body body)
{
	constexpr u32 each = 16 / static_cast<u32>(sizeof(Compute)), vectors = WIDTH / each * SUMS;
	constexpr u32 parts = columns_parts(THREADS, vectors), side = 32 / parts;
	constexpr u32 once = 9; /* loads under way: of the blocks of an H200, all that a lane has */
	static_assert(WIDTH % each == 0, "whole vectors");
	const u32 part = threadIdx.x % 32 / side;

#pragma unroll 1
	for (u32 base = threadIdx.x / 32 * side; base < vectors; base += THREADS / 32 * side) {
		const u32 vector = base + threadIdx.x % side, sum = vector / (WIDTH / each);
		const u32 column = vector % (WIDTH / each) * each;
		const bool here = vector < vectors && column < end;
		Compute value[each] = {};
#pragma unroll 1
		for (u32 block = here ? part : count; block < count; block += once * parts) {
			u32 some[once][4] = {};
#pragma unroll
			for (u32 u = 0; u < once; u++)
				if (block + u * parts < count)
					vec_load<16>(from + (block + u * parts) * (SUMS * pitch) + sum * pitch + column,
								 some[u]);
#pragma unroll
			for (u32 u = 0; u < once; u++) {
				Compute more[each];
				element_unpack<Compute>(some[u], more);
#pragma unroll
				for (u32 j = 0; j < each; j++)
					value[j] += more[j];
			}
		}
		__syncwarp();
#pragma unroll
		for (u32 j = 0; j < each; j++) {
#pragma unroll
			for (u32 lanes = side; lanes < 32; lanes *= 2)
				value[j] += group_from(value[j], static_cast<int>(lanes));
			if (here && part == 0 && column + j < end)
				body(sum, column + j, value[j]);
		}
	}
}
