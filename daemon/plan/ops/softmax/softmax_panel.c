/*
 * softmax_panel.c: softmax over a dimension that is not the last, where a block or a cluster of
 * blocks holds all columns of some rows that lie side by side, so that memory is read once
 * (kernel_src/common/panel.cuh).
 *
 * The number of columns, their type and the device decide how columns are split, and so the order
 * in which they are added up.  The number of rows decides how wide panels are.
 */
#include "softmax.h"

#include <string.h>

#define PANEL_BYTES 128u    /* of one column of a panel, wanted */
#define PANEL_CLUSTER 4u    /* blocks at most */
#define PANEL_HELD 128u     /* columns of a thread, at most */
#define REGISTERS 65536u    /* of a multiprocessor */
#define REGISTERS_MOST 255u /* of a thread */
#define RESERVED 1024u      /* bytes of shared memory that each block takes besides */

uint64_t softmax_panel_bytes(const struct softmax_form *form, const struct softmax_tile *tile)
{
	return (uint64_t)tile->slots * tile->split * tile->lanes * tile->vector * form->need.element *
		   form->need.streams;
}

/* Shared memory in which parts meet: the kernel declares it, so it may be no more than a block has
 * without request. */
static uint64_t meet_bytes(const struct softmax_form *form, const struct softmax_tile *tile)
{
	uint32_t number = form->dtype == KILN_F64 ? 8 : 4, values = form->need.streams > 1 ? 1 : 2;
	uint32_t warps = tile->lanes * tile->split / 32;

	return (uint64_t)values * (warps + tile->cluster) * tile->lanes * tile->vector * number;
}

/* What a thread keeps in registers beside its columns. */
static uint32_t registers_beside(const struct softmax_form *form)
{
	return form->dtype == KILN_F64 ? 88 : form->need.element == 2 ? 72 : 56;
}

/*
 * A panel whose columns have `bytes` bytes, or fewer where there are no more rows, shared by
 * cluster * split threads a row, for `blocks` of a multiprocessor.  Registers hold what
 * shared memory has no room for; few: no more than that.
 */
static void offer_panel(const struct softmax_form *form, const struct kernel_limits *limits,
						uint32_t cluster, uint32_t split, uint32_t bytes, uint32_t blocks, bool few,
						struct softmax_tile *out, int most, int *count)
{
	uint32_t element = form->need.element, parts = cluster * split, threads, each, all;
	uint64_t inner = (uint64_t)form->rows.size[form->rows.rank - 1], room;
	struct softmax_tile tile;

	memset(&tile, 0, sizeof(tile));
	tile.vector = softmax_tile_vector(form);
	tile.lanes = tile.tiles = 1;
	tile.split = split;
	tile.cluster = cluster;
	tile.blocks = blocks;
	tile.held = (uint32_t)plan_divide_up((uint64_t)form->rows.columns, parts);
	while (tile.lanes < 32 && tile.lanes * 2 * split <= limits->max_threads &&
		   tile.lanes * 2 * tile.vector * element <= bytes && tile.lanes * tile.vector < inner)
		tile.lanes *= 2;
	threads = tile.lanes * split;
	each = tile.vector * element * form->need.streams;
	if (threads > limits->max_threads || threads % 32 || *count == most || tile.held > PANEL_HELD)
		return;
	room = (limits->shared_optin + RESERVED) / blocks;
	if (meet_bytes(form, &tile) > limits->shared_default ||
		room < meet_bytes(form, &tile) + RESERVED + (uint64_t)threads * each)
		return;
	all = (uint32_t)((room - meet_bytes(form, &tile) - RESERVED) / (threads * each));
	if (all < tile.held) {
		uint32_t registers = REGISTERS / (threads * blocks), full, needed;
		registers = registers < REGISTERS_MOST ? registers : REGISTERS_MOST;
		registers -= registers > registers_beside(form) ? registers_beside(form) : registers;
		full = (uint32_t)(form->rows.columns / parts);
		tile.kept = registers / ((each + 3) / 4);
		tile.kept = tile.kept < full ? tile.kept : full;
		needed = (tile.held - all + 3) / 4 * 4;
		tile.kept = few && needed < tile.kept ? needed : tile.kept - tile.kept % 4;
	}
	tile.slots = tile.held - tile.kept < all ? tile.held - tile.kept : all;
	/* Of what is read twice, the cache has to hold most. */
	if ((tile.kept + tile.slots) * 5 < tile.held * 3)
		return;
	for (int i = 0; i < *count; i++)
		if (memcmp(&out[i], &tile, sizeof(tile)) == 0)
			return;
	out[(*count)++] = tile;
}

void softmax_panels(const struct softmax_form *form, const struct kernel_limits *limits,
					struct softmax_tile *out, int most, int *count)
{
	static const struct {
		uint32_t bytes, split, blocks;
		bool few;
	} tries[] = {{128, 32, 2, false}, {128, 32, 1, true}, {128, 32, 2, true},  {128, 64, 2, false},
				 {128, 64, 1, true},  {128, 64, 2, true}, {64, 32, 2, false},  {64, 64, 2, false},
				 {64, 32, 1, false},  {64, 32, 4, false}, {256, 32, 1, false}, {128, 16, 2, false},
				 {128, 16, 1, false}};
	uint64_t bytes = (uint64_t)form->rows.columns * PANEL_BYTES * form->need.streams;
	uint32_t clusters = 1;

	if (form->rows.columns < 64)
		return;
	if (rows_clusters(&form->rows, PANEL_CLUSTER, limits) && bytes > limits->shared_optin)
		clusters = PANEL_CLUSTER;
	for (uint32_t cluster = 1; cluster <= clusters; cluster *= 2)
		for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++)
			offer_panel(form, limits, cluster, tries[i].split, tries[i].bytes, tries[i].blocks,
						tries[i].few, out, most, count);
}
