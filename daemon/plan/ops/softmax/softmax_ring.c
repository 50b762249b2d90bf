/*
 * softmax_ring.c: softmax over a dimension that is not the last, of matrices that lie in memory as
 * one piece each.  Blocks that stay, or clusters of such blocks, bring one matrix after another
 * into a ring of slots in shared memory (kernel_src/ops/softmax_ring.cuh).
 */
#include "softmax.h"

#include <string.h>

#define RING_BYTES 32768u  /* of a matrix, at least */
#define RING_WIDE 49152u   /* ... of larger elements than halves */
#define RING_SMALL 4096u   /* ... of halves that move one by one */
#define RING_CLUSTER 8u    /* blocks at most */
#define RING_BUSY 60000u   /* bytes that a multiprocessor's slots hold, at least */
#define RING_THREADS 1024u /* of a multiprocessor: they have registers */
#define RING_LANES 576u    /* of a team that is alone, at most */
#define RING_SHARED 256u   /* of one whose matrices more than two blocks share */
#define RESERVED 1024u     /* bytes of shared memory that each block takes besides */

uint64_t softmax_ring_bytes(const struct softmax_form *form, const struct softmax_tile *tile)
{
	uint64_t inner = (uint64_t)form->rows.size[form->rows.rank - 1], unit = tile->vector;
	uint64_t room = (tile->held * inner + 2 * unit - 2) / unit * unit;
	uint64_t sums = tile->lanes * unit * tile->split + (2 * tile->cluster + 1) * inner;
	uint64_t team = (sums * 4 + 7) / 8 * 8 + 24; /* and its barriers */

	return tile->slots * (room * form->need.element + 16) + tile->teams * team;
}

/* Returns the vectors of a period: after so many, vectors have elements of the same rows again. */
static uint64_t period_of(uint64_t inner, uint64_t vector)
{
	for (; vector > 1 && inner % 2 == 0; vector /= 2)
		inner /= 2;
	return inner;
}

/* Counts: teams of a block, blocks of a multiprocessor, slots of a block, threads of a team. */
struct ring_way {
	uint32_t teams, blocks, slots, threads;
};

static bool make_ring(const struct softmax_form *form, const struct kernel_limits *limits,
					  uint32_t cluster, struct ring_way way, struct softmax_tile *tile)
{
	uint64_t inner = (uint64_t)form->rows.size[form->rows.rank - 1], vectors, bytes, periods;

	memset(tile, 0, sizeof(*tile));
	tile->whole = true;
	tile->tiles = 1;
	tile->teams = way.teams;
	tile->blocks = way.blocks;
	tile->slots = way.slots;
	tile->cluster = cluster;
	tile->vector = 16 / form->need.element;
	tile->held = (uint32_t)plan_divide_up(form->rows.columns, cluster);
	if (period_of(inner, tile->vector) > limits->max_threads ||
		(uint64_t)(cluster - 1) * tile->held >= (uint64_t)form->rows.columns)
		return false;
	tile->lanes = (uint32_t)period_of(inner, tile->vector);
	vectors = (uint64_t)plan_divide_up((int64_t)(tile->held * inner), tile->vector) + 1;
	periods = (uint64_t)plan_divide_up((int64_t)vectors, tile->lanes);
	tile->split = way.threads > tile->lanes ? way.threads / tile->lanes : 1;
	if (tile->split > periods)
		tile->split = (uint32_t)periods;
	tile->split = (tile->lanes * tile->split + 31) / 32 * 32 / tile->lanes; /* of whole warps */
	bytes = softmax_ring_bytes(form, tile);
	if (way.teams == 1 && tile->lanes > (cluster > 2 ? RING_SHARED : RING_LANES))
		return false;
	return softmax_tile_threads(tile) <= limits->max_threads &&
		   softmax_tile_threads(tile) * way.blocks <= RING_THREADS &&
		   bytes <= limits->shared_optin &&
		   (bytes + RESERVED) * way.blocks <= limits->shared_optin + RESERVED &&
		   vectors * 16 * way.slots * way.blocks >= RING_BUSY;
}

static void offer_ring(const struct softmax_form *form, const struct kernel_limits *limits,
					   uint32_t cluster, struct ring_way way, struct softmax_tile *out, int most,
					   int *count)
{
	struct softmax_tile tile;

	if (*count == most || !make_ring(form, limits, cluster, way, &tile))
		return;
	for (int i = 0; i < *count; i++)
		if (memcmp(&out[i], &tile, sizeof(tile)) == 0)
			return;
	out[(*count)++] = tile;
}

/* Small matrices: the smaller, the more of them are on their way. */
static void offer_small(const struct softmax_form *form, const struct kernel_limits *limits,
						struct softmax_tile *out, int most, int *count)
{
	static const struct ring_way ways[] = {{2, 4, 4, 64},  {2, 3, 4, 128}, {4, 1, 8, 224},
										   {2, 2, 4, 192}, {2, 1, 4, 256}, {1, 2, 2, 448}};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		offer_ring(form, limits, 1, ways[i], out, most, count);
}

/* Two teams come first, where one works while the other waits, then small clusters. */
void softmax_rings(const struct softmax_form *form, const struct kernel_limits *limits,
				   struct softmax_tile *out, int most, int *count)
{
	static const struct ring_way pair = {2, 1, 4, 256};
	static const struct ring_way single[] = {{1, 1, 3, 480}, {1, 1, 2, 480}, {1, 2, 2, 448}};
	uint64_t inner = (uint64_t)form->rows.size[form->rows.rank - 1];
	uint64_t columns = (uint64_t)form->rows.columns, bytes = columns * inner * form->need.element;
	bool halves = form->need.element == 2;

	if (!softmax_is_whole(form) || form->need.element > 4 ||
		!rows_clusters(&form->rows, RING_CLUSTER, limits) || columns > INT32_MAX / 2 / inner)
		return;
	if (halves && bytes >= RING_SMALL && bytes < RING_BYTES && inner % 2)
		offer_small(form, limits, out, most, count);
	if (bytes < (halves ? RING_BYTES : RING_WIDE))
		return;
	for (uint32_t cluster = 1; cluster <= RING_CLUSTER; cluster *= 2)
		offer_ring(form, limits, cluster, pair, out, most, count);
	for (uint32_t cluster = 1; cluster <= RING_CLUSTER; cluster *= 2)
		for (size_t i = 0; i < sizeof(single) / sizeof(single[0]); i++)
			offer_ring(form, limits, cluster, single[i], out, most, count);
}

/* Clusters of 4 and 8 reach 120 of an H200's 132 multiprocessors. */
uint64_t softmax_ring_blocks(const struct softmax_tile *tile, const struct kernel_limits *limits,
							 uint64_t matrices)
{
	uint64_t blocks = limits->multiprocessors;

	if (tile->cluster > 2)
		blocks = blocks * 10 / 11;
	blocks = blocks * tile->blocks / tile->cluster;
	blocks = blocks ? blocks : 1;
	return (blocks < matrices ? blocks : matrices) * tile->cluster;
}
