/*
 * softmax_whole.c: softmax over a dimension that is not the last, of matrices that lie in memory as
 * one piece each: a block or a cluster of blocks takes one into shared memory
 * (kernel_src/ops/softmax_whole.cuh).
 */
#include "softmax.h"

#include <string.h>

#define WHOLE_BYTES 8192u /* of a matrix, at least */
#define WHOLE_INNER 1024u /* rows that lie side by side, at most */
#define WHOLE_CLUSTER 8u  /* blocks at most */
#define RESERVED 1024u    /* bytes of shared memory that each block takes besides */

bool softmax_is_whole(const struct softmax_form *form)
{
	const struct rows_form *rows = &form->rows;
	int last = rows->rank - 1;

	for (int i = 0; i < rows->operands; i++) {
		int64_t next = rows->columns * rows->size[last];
		if (rows->stride[i][last] != 1 || rows->step[i] != rows->size[last])
			return false;
		for (int k = last - 1; k >= 0; next *= rows->size[k--])
			if (rows->stride[i][k] != next)
				return false;
	}
	return form->need.alignment >= 16 && form->need.streams == 1;
}

uint32_t softmax_tile_threads(const struct softmax_tile *tile)
{
	uint32_t threads = tile->lanes * tile->split * tile->tiles, whole = (threads + 31) / 32 * 32;

	return tile->teams ? whole * tile->teams + 32 : tile->whole ? whole : threads;
}

uint64_t softmax_whole_bytes(const struct softmax_form *form, const struct softmax_tile *tile)
{
	uint64_t inner = tile->lanes * tile->vector, unit = 16 / form->need.element;
	uint64_t value = form->dtype == KILN_F64 ? 16 : 8;
	uint64_t room = (tile->held * inner + 2 * unit - 2) / unit * unit;

	return room * form->need.element +
		   value * inner * (tile->split + (tile->cluster > 1 ? tile->cluster : 0));
}

void softmax_wholes(const struct softmax_form *form, const struct kernel_limits *limits,
					struct softmax_tile *out, int most, int *count)
{
	static const uint32_t threads[] = {256, 512, 1024, 768};
	uint64_t inner = (uint64_t)form->rows.size[form->rows.rank - 1];
	uint64_t columns = (uint64_t)form->rows.columns;

	/* The kernel has no loop. */
	if (!softmax_is_whole(form) || inner > WHOLE_INNER ||
		(uint64_t)form->rows.rows > limits->grid_x ||
		columns * inner * form->need.element < WHOLE_BYTES || columns > INT32_MAX / 2 / inner)
		return;
	for (uint32_t cluster = 1; cluster <= WHOLE_CLUSTER; cluster *= 2) {
		for (size_t i = 0; i < sizeof(threads) / sizeof(threads[0]) && *count < most; i++) {
			struct softmax_tile tile;
			bool known = false;
			memset(&tile, 0, sizeof(tile));
			tile.whole = true;
			tile.cluster = cluster;
			tile.tiles = 1;
			tile.vector = form->need.element == 2 && inner % 2 == 0 ? 2 : 1;
			tile.lanes = (uint32_t)inner / tile.vector;
			tile.split = threads[i] / tile.lanes;
			tile.held = (uint32_t)plan_divide_up(columns, cluster);
			if (tile.split == 0)
				tile.split = 1;
			if (tile.split > tile.held || softmax_tile_threads(&tile) > limits->max_threads ||
				softmax_whole_bytes(form, &tile) + RESERVED > limits->shared_optin ||
				(uint64_t)(cluster - 1) * tile.held >= columns ||
				(cluster > 1 && !rows_clusters(&form->rows, cluster, limits)))
				continue;
			for (int k = 0; k < *count; k++)
				known = known || memcmp(&out[k], &tile, sizeof(tile)) == 0;
			if (!known)
				out[(*count)++] = tile;
		}
	}
}
