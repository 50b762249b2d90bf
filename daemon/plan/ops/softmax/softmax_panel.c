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

	return (uint64_t)values * number *
		   (warps + (uint64_t)(warps + tile->cluster) * tile->lanes * tile->vector);
}

/* A thread keeps so many registers beside its columns. */
static uint32_t registers_beside(const struct softmax_form *form)
{
	return form->dtype == KILN_F64 ? 88 : form->need.element == 2 ? 80 : 56;
}

/*
 * A panel whose columns have `bytes` bytes, or fewer where there are no more rows, shared by
 * cluster * split threads a row, for `blocks` of a multiprocessor.  Registers hold what
 * shared memory has no room for; few: no more than that.
 */
static void offer_panel(const struct softmax_form *form, const struct kernel_limits *limits,
						uint32_t cluster, uint32_t split, uint32_t bytes, uint32_t blocks, bool few,
						bool skewed, struct softmax_tile *out, int most, int *count)
{
	uint32_t element = form->need.element, parts = cluster * split, threads, each, all;
	uint64_t inner = (uint64_t)form->rows.size[form->rows.rank - 1], room;
	struct softmax_tile tile;

	memset(&tile, 0, sizeof(tile));
	tile.vector = skewed ? 16 / element : softmax_tile_vector(form);
	tile.skewed = skewed;
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
	if (all < tile.held && skewed)
		return;
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
	/* The cache has to hold most of the columns that are read twice. */
	if ((tile.kept + tile.slots) * 5 < tile.held * 3)
		return;
	for (int i = 0; i < *count; i++)
		if (memcmp(&out[i], &tile, sizeof(tile)) == 0)
			return;
	out[(*count)++] = tile;
}

/* Do halves that lie side by side begin where no vector does, but in aligned memory?  Larger
 * elements may as well move one by one. */
static bool is_skewed(const struct softmax_form *form)
{
	const struct rows_form *rows = &form->rows;
	int last = rows->rank - 1;

	for (int i = 0; i < rows->operands; i++)
		if (rows->stride[i][last] != 1)
			return false;
	return form->need.element == 2 && softmax_tile_vector(form) < 8 && form->need.alignment >= 16 &&
		   rows->size[last] >= 16;
}

void softmax_panels(const struct softmax_form *form, const struct kernel_limits *limits,
					struct softmax_tile *out, int most, int *count)
{
	static const struct {
		uint32_t bytes, split, blocks;
		bool few;
	} tries[] = {{128, 16, 2, false}, {128, 16, 2, true}, {128, 32, 1, true}, {128, 32, 2, true},
				 {128, 32, 2, false}, {128, 16, 1, true}, {128, 8, 2, false}, {256, 8, 1, false},
				 {64, 32, 2, false},  {64, 16, 4, true},  {32, 16, 4, true},  {64, 64, 3, false},
				 {32, 64, 6, false},  {32, 128, 3, true}, {64, 128, 2, true}, {32, 256, 2, true},
				 {128, 64, 1, true},  {128, 64, 2, true}};
	enum { MOST = sizeof(tries) / sizeof(tries[0]) };
	uint64_t bytes = (uint64_t)form->rows.columns * PANEL_BYTES * form->need.streams;
	/* Halves are more work a byte, for which registers are better; two tensors fill a
	 * multiprocessor. */
	size_t first = form->need.streams > 1 ? 2 : form->need.element == 2 ? 1 : 0;
	uint32_t cluster = 1;
	int last;

	if (form->rows.columns < 64)
		return;
	for (size_t i = 0; i < 6 && is_skewed(form); i++) {
		static const uint32_t ways[][3] = {{16, 32, 2}, {16, 16, 4}, {8, 32, 4},
										   {8, 32, 2},  {8, 32, 1},  {8, 16, 1}};
		offer_panel(form, limits, 1, ways[i][1], ways[i][0] * 16, ways[i][2], true, true, out, most,
					count);
	}
	/* A cluster takes what two blocks of a multiprocessor have no room for, but for little. */
	if (rows_clusters(&form->rows, PANEL_CLUSTER, limits) && bytes > limits->shared_optin / 4 * 5)
		while (cluster < PANEL_CLUSTER && bytes / cluster > limits->shared_optin / 4 * 3)
			cluster *= 2;
	last = bytes > limits->shared_optin / 2 ? 3 : 1;
	for (int turn = 0; turn < last; turn++, cluster = cluster == 1 ? 2 : cluster / 2)
		for (size_t i = 0; i < MOST; i++) {
			size_t at = i == 0 ? first : i <= first ? i - 1 : i;
			if (cluster <= 1 || rows_clusters(&form->rows, PANEL_CLUSTER, limits))
				offer_panel(form, limits, cluster, tries[at].split, tries[at].bytes,
							tries[at].blocks, tries[at].few, false, out, most, count);
		}
}
