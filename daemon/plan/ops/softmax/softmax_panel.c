/*
 * softmax_panel.c: softmax over a dimension that is not the last, where a block or a cluster of
 * blocks holds all columns of some rows that lie side by side, so that memory is read once
 * (kernel_src/common/panel.cuh).
 *
 * The number of columns, their type and the device decide how columns are split, and so the order
 * in which they are added up.  The number of rows decides how wide panels are.
 */
#include "softmax.h"

#include <stdlib.h>
#include <string.h>

#define PANEL_BYTES 64u /* of one column of a panel, at least: less is slow to read */
#define PANEL_BYTES_MOST 256u
#define PANEL_COLUMNS 16u /* that a thread has of a row, at most */
#define PANEL_CLUSTER 8u  /* blocks at most */

uint64_t softmax_panel_bytes(const struct softmax_form *form, const struct softmax_tile *tile)
{
	return (uint64_t)tile->held * tile->split * tile->lanes * tile->vector * form->need.element *
		   form->need.streams;
}

/* Shared memory in which parts meet: the kernel declares it, so it may be no more than a block has
 * without request. */
static uint64_t meet_bytes(const struct softmax_form *form, const struct softmax_tile *tile)
{
	uint32_t number = form->dtype == KILN_F64 ? 8 : 4, turns = form->need.streams > 1 ? 1 : 2;
	uint32_t warps = tile->lanes * tile->split / 32;

	return (uint64_t)turns * (warps + tile->cluster) * tile->lanes * tile->vector * number;
}

static bool clusters_possible(const struct softmax_form *form, const struct kernel_limits *limits)
{
	return strncmp(limits->target, "sm_", 3) == 0 && strtol(limits->target + 3, NULL, 10) >= 90 &&
		   (uint64_t)form->rows.rows <= limits->grid_x / PANEL_CLUSTER;
}

/*
 * A panel whose columns have `bytes` bytes, or fewer where there are no more rows, shared by
 * cluster * split threads a row.
 */
static void offer_panel(const struct softmax_form *form, const struct kernel_limits *limits,
						uint32_t cluster, uint32_t split, uint32_t bytes, struct softmax_tile *out,
						int most, int *count)
{
	uint32_t element = form->need.element, parts = cluster * split;
	uint64_t inner = (uint64_t)form->rows.size[form->rows.rank - 1];
	struct softmax_tile tile;

	memset(&tile, 0, sizeof(tile));
	tile.vector = softmax_tile_vector(form);
	tile.lanes = tile.tiles = 1;
	tile.split = split;
	tile.cluster = cluster;
	tile.held = (uint32_t)plan_divide_up((uint64_t)form->rows.columns, parts);
	while (tile.lanes < 32 && tile.lanes * 2 * split <= limits->max_threads &&
		   tile.lanes * 2 * tile.vector * element <= bytes && tile.lanes * tile.vector < inner)
		tile.lanes *= 2;
	if (split > limits->max_threads || tile.lanes * split % 32 || *count == most ||
		tile.held > 4 * PANEL_COLUMNS || meet_bytes(form, &tile) > limits->shared_default ||
		softmax_panel_bytes(form, &tile) + meet_bytes(form, &tile) > limits->shared_optin)
		return;
	for (int i = 0; i < *count; i++)
		if (memcmp(&out[i], &tile, sizeof(tile)) == 0)
			return;
	out[(*count)++] = tile;
}

/* Do `columns` columns of so many bytes leave room to what else a block needs? */
static bool fits(const struct softmax_form *form, uint64_t columns, uint32_t bytes, uint64_t room)
{
	return columns * bytes * form->need.streams <= room;
}

void softmax_panels(const struct softmax_form *form, const struct kernel_limits *limits,
					struct softmax_tile *out, int most, int *count)
{
	/* Halves take more instructions a byte: while one block computes, two others move theirs. */
	bool narrow = form->need.element == 2 && form->need.streams == 1;
	uint64_t columns = (uint64_t)form->rows.columns, held;
	uint64_t room = limits->shared_optin - limits->shared_optin / 16;
	uint64_t wanted = narrow ? limits->shared_optin / 16 * 5 : limits->shared_optin / 5 * 3;
	uint32_t cluster = 1, split = 32, bytes = PANEL_BYTES;

	if (columns < 64)
		return;
	while (cluster < PANEL_CLUSTER && clusters_possible(form, limits) &&
		   !fits(form, plan_divide_up(columns, cluster), bytes, narrow ? wanted : room))
		cluster *= 2;
	if (!fits(form, plan_divide_up(columns, cluster), bytes, room))
		return;
	while (split < 256 && plan_divide_up(columns, (uint64_t)cluster * split) > PANEL_COLUMNS)
		split *= 2;
	held = (uint64_t)plan_divide_up(columns, (uint64_t)cluster * split) * split;
	while (bytes < PANEL_BYTES_MOST && fits(form, held, 2 * bytes, wanted))
		bytes *= 2;
	offer_panel(form, limits, cluster, split, bytes, out, most, count);
	for (uint32_t wide = 2 * bytes; wide >= bytes / 2; wide /= 2) {
		offer_panel(form, limits, cluster, split, wide, out, most, count);
		offer_panel(form, limits, cluster, 2 * split, wide, out, most, count);
		offer_panel(form, limits, cluster, split / 2, wide, out, most, count);
		if (cluster < PANEL_CLUSTER && columns >= 512 && clusters_possible(form, limits))
			offer_panel(form, limits, 2 * cluster, split, 2 * wide, out, most, count);
		if (cluster > 1)
			offer_panel(form, limits, cluster / 2, split, wide, out, most, count);
	}
}
