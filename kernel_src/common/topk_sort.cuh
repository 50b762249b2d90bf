/*
 * topk_sort.cuh: entries (order.cuh) in order, by way of registers and shared memory.
 *
 * A warp sorts a tile of 256 entries, eight of a lane, in registers: one row's part, or as many
 * short rows as there are in it.  Tiles of a longer row merge in shared memory as far as they lie
 * apart, and again in registers from there on.
 */
#pragma once
#include "common/network.cuh"
#include "common/order.cuh"

#define TOPK_EACH 8
#define TOPK_TILE 256

/* Where the entry of a rank lies: lanes that have eight each, or one rank each, find theirs in
 * different banks. */
DEVICE int topk_at(int rank)
{
	return rank ^ (rank / 16 & 7);
}

/* Merges two runs of `run` entries, or more pairs of them, as far as tiles go. */
template <typename E>
DEVICE void topk_merge_tiles(E *entries, int count, int run, int thread, int threads)
{
#pragma unroll 1
	for (int far = run; far >= TOPK_TILE; far /= 2) {
#pragma unroll 1
		for (int pair = thread; pair < count / 2; pair += threads) {
			const int first = 2 * pair - (pair & (far - 1));
			/* The second run is taken backwards; then each half rises and falls. */
			const int low = topk_at(first);
			const int high = topk_at(far == run ? first ^ (2 * run - 1) : first + far);
			const E a = entries[low], b = entries[high];
			if (b.before(a)) {
				entries[low] = b;
				entries[high] = a;
			}
		}
		__syncthreads();
	}
}

/*
 * Sorts rows of `count` entries, a power of two from 8 on: one row, or `all` entries of whole
 * tiles.  Threads are those of a block.  from(begin, n): entry n of 8 of this lane, in the tile
 * that begins at `begin`.  few: the first eight of a row are enough, which has no more than a tile.
 * Leaves the entry of a rank at topk_at(rank).
 */
template <typename E, typename From>
DEVICE void topk_sort_tiles(E *entries, int count, int all, bool few, int thread, int threads,
							From from)
{
	const int lane = thread % 32, lanes = count < TOPK_TILE ? count / TOPK_EACH : 32;

#pragma unroll 1
	for (int run = TOPK_TILE / 2;;) {
		const bool begins = run < TOPK_TILE;
#pragma unroll 1
		for (int begin = thread / 32 * TOPK_TILE; begin < all; begin += threads * TOPK_EACH) {
			const int mine = begin + lane * TOPK_EACH;
			E entry[TOPK_EACH];
			if (begins) {
#pragma unroll
				for (int n = 0; n < TOPK_EACH; n++)
					entry[n] = from(begin, n);
				network_sort<TOPK_EACH>(entry);
			} else {
#pragma unroll
				for (int n = 0; n < TOPK_EACH; n++)
					entry[n] = entries[topk_at(mine + n)];
			}
			if (lanes > 1)
				network_merge_any(entry, lane, begins ? 1 : 32, lanes, few);
			__syncwarp(); /* the entries before were read */
#pragma unroll
			for (int n = 0; n < TOPK_EACH; n++)
				if (mine < all)
					entries[topk_at(mine + n)] = entry[n];
		}
		__syncthreads();
		run *= 2;
		if (run >= count)
			break;
		topk_merge_tiles(entries, count, run, thread, threads);
	}
}
