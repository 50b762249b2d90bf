/*
 * columns.cuh: sums over the rows of a matrix, column by column, in one launch and always in the
 * same order.
 *
 * Threads add up some rows each.  What the threads of a block have of a column is put together in
 * shared memory; what several blocks have of it goes to scratch memory, and the block that is done
 * last adds that up, block after block by their numbers.  Who that is changes nothing.
 */
#pragma once
#include "common/types.cuh"
#include "common/vec.cuh"

/*
 * BYTES bytes that are aligned to elements of ES bytes only: the two aligned vectors around them.
 * What lies at `end` and behind it says nothing; vectors that begin there are not read.
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
 * V numbers from each thread, of columns lane * V and the next: SIZE lanes a row, ROWS rows side by
 * side in a block.
 */
template <typename Compute, int SIZE, int ROWS, int V>
struct ColumnsBlock {
	static constexpr int threads = SIZE * ROWS, width = SIZE * V;
	/* Rows of one warp meet in registers. */
	static constexpr int step = SIZE < 32 ? 32 : SIZE;
	static constexpr int parts = threads / step;
	static constexpr int shared_bytes = parts * width * static_cast<int>(sizeof(Compute));
	static_assert(SIZE >= 32 || 32 % SIZE == 0, "part or whole warps");

	/*
	 * Calls body(i, sum) for column i, from one thread each; the order is that of the rows.  All
	 * threads of the block come; shared has room for shared_bytes.
	 */
	template <typename Body>
	static DEVICE void merge(Compute (&mine)[V], void *shared, Body body)
	{
		Compute *const all = static_cast<Compute *>(shared);
		const int thread = static_cast<int>(threadIdx.x), lane = thread % SIZE;

#pragma unroll
		for (int lanes = SIZE; lanes < 32; lanes *= 2) {
#pragma unroll
			for (int j = 0; j < V; j++)
				mine[j] += __shfl_xor_sync(0xffffffffu, mine[j], lanes);
		}
		if constexpr (parts > 1)
			__syncthreads(); /* what was there before was read */
		if (thread % step < SIZE) {
#pragma unroll
			for (int j = 0; j < V; j++) {
				if constexpr (parts > 1)
					all[thread / step * width + lane * V + j] = mine[j];
				else
					body(lane * V + j, mine[j]);
			}
		}
		if constexpr (parts > 1) {
			__syncthreads();
#pragma unroll 1
			for (int i = thread; i < width; i += threads) {
				Compute sum = all[i];
#pragma unroll 4
				for (int part = 1; part < parts; part++)
					sum += all[part * width + i];
				body(i, sum);
			}
		}
	}
};

/* Is this the last of `count` blocks that come here?  What they wrote before is seen after it.  The
 * counter is 0 before the first, and again after the last. */
DEVICE bool columns_last(u32 *counter, u32 count)
{
	__shared__ u32 before;

	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence();
		before = atomicInc(counter, count - 1);
		__threadfence();
	}
	__syncthreads();
	return before == count - 1;
}

/*
 * Sums of what `count` blocks wrote: from[block * pitch + i] for each i below WIDTH * SUMS, of sum
 * i / WIDTH its column i % WIDTH.  They lie `apart` from sum to sum, and only columns below `end`
 * are there.  Calls body(sum, column, value), from one thread each.  All THREADS come.
 */
template <int THREADS, int WIDTH, int SUMS, typename Compute, typename Body>
DEVICE void columns_finish(const Compute *from, i64 pitch, i64 apart, i64 end, u32 count,
						   void *shared, Body body)
{
	constexpr int values = WIDTH * SUMS;
	constexpr int parts = THREADS / values > 0 ? THREADS / values : 1;
	Compute *const all = static_cast<Compute *>(shared);
	const int thread = static_cast<int>(threadIdx.x), part = thread / values;

#pragma unroll 1
	for (int first = 0; first < values; first += THREADS) {
		const int i = first + (parts > 1 ? thread % values : thread);
		const int sum = i / WIDTH, column = i % WIDTH;
		const bool here = i < values && part < parts && column < end;
		Compute value = 0;
		if (here) {
			const Compute *at = from + sum * apart + column;
#pragma unroll 8
			for (u32 block = static_cast<u32>(parts > 1 ? part : 0); block < count; block += parts)
				value += at[block * pitch];
		}
		if constexpr (parts > 1) {
			__syncthreads();
			all[thread] = value;
			__syncthreads();
#pragma unroll 1
			for (int other = 1; other < parts && part == 0; other++)
				value += all[other * values + i];
		}
		if (here && (parts == 1 || part == 0))
			body(sum, column, value);
	}
}
