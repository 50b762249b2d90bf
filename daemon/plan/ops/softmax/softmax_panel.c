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
#define PANEL_CLUSTER 8u    /* blocks at most */
#define PANEL_FEW 54u       /* columns of a thread for which two blocks have room */
#define PANEL_PAIRS 512u    /* columns of two tensors that a block takes, wanted */
#define PANEL_HELD 128u     /* columns of a thread, at most */
#define PANEL_COLUMNS 64    /* of a row, at least */
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

/* Of a thread's columns registers hold what shared memory has no room for; all that they have room
 * for, if it has not room for all; or all that they have room for. */
enum keep { KEEP_LEAST, KEEP_MORE, KEEP_MOST };

/*
 * A panel whose columns have `bytes` bytes, or fewer where there are no more rows, shared by
 * cluster * split threads a row, for `blocks` of a multiprocessor.  Registers hold what
 * shared memory has no room for, or as much as they have room for.
 */
static void offer_panel(const struct softmax_form *form, const struct kernel_limits *limits,
						uint32_t cluster, uint32_t split, uint32_t bytes, uint32_t blocks,
						enum keep keep, bool skewed, struct softmax_tile *out, int most, int *count)
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
	if (all < tile.held || (keep == KEEP_MOST && !skewed)) {
		uint32_t registers = REGISTERS / (threads * blocks), full, needed;
		registers = registers < REGISTERS_MOST ? registers : REGISTERS_MOST;
		registers -= registers > registers_beside(form) ? registers_beside(form) : registers;
		full = (uint32_t)(form->rows.columns / parts);
		tile.kept = registers / ((each + 3) / 4);
		tile.kept = tile.kept < full ? tile.kept : full;
		needed = (tile.held - all + 3) / 4 * 4;
		tile.kept = keep == KEEP_LEAST && needed < tile.kept ? needed : tile.kept - tile.kept % 4;
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
 * elements may as well move one by one, and so may halves of one tensor: other blocks of the
 * multiprocessor load meanwhile. */
static bool is_skewed(const struct softmax_form *form)
{
	const struct rows_form *rows = &form->rows;
	int last = rows->rank - 1;

	for (int i = 0; i < rows->operands; i++)
		if (rows->stride[i][last] != 1)
			return false;
	return form->need.streams > 1 && form->need.element == 2 && softmax_tile_vector(form) < 8 &&
		   form->need.alignment >= 16 && rows->size[last] >= 16;
}

/*
 * Blocks of a cluster that shares a panel.  Of one tensor it takes what two blocks of a
 * multiprocessor have no room for, but for little; of two, what 16 threads have no registers for.
 */
static uint32_t usual_cluster(const struct softmax_form *form, const struct kernel_limits *limits)
{
	uint64_t columns = (uint64_t)form->rows.columns, bytes = columns * PANEL_BYTES;
	uint32_t cluster = 1;

	if (form->need.streams > 1)
		while (cluster < PANEL_CLUSTER && columns > PANEL_PAIRS * cluster)
			cluster *= 2;
	else if (bytes > limits->shared_optin / 4 * 5)
		while (cluster < PANEL_CLUSTER && bytes / cluster > limits->shared_optin / 4 * 3)
			cluster *= 2;
	return rows_clusters(&form->rows, cluster, limits) ? cluster : 1;
}

/* Which one of the tries below comes first.  Columns that all find room in shared memory leave it
 * to three blocks, and many of them take registers as well.  Halves are more work a byte, for which
 * registers are better; if they move one by one or in pairs, more blocks are, and a cache beside
 * them.  Narrow panels leave room for many blocks. */
static size_t usual_try(const struct softmax_form *form, uint32_t cluster)
{
	uint64_t held = plan_divide_up((uint64_t)form->rows.columns, cluster * 16);

	if (form->need.streams > 1)
		return 0;
	if (form->need.element > 4)
		return 6; /* in registers they leave none */
	if (softmax_is_narrow(form))
		return 12;
	if (held <= PANEL_FEW && softmax_tile_vector(form) * form->need.element == 16)
		return held >= PANEL_FEW / 3 ? 2 : 3;
	if (held <= PANEL_FEW && form->need.element == 2 && softmax_tile_vector(form) <= 2)
		return held <= PANEL_FEW / 2 ? 7 : 3;
	return form->need.element == 2;
}

bool softmax_is_narrow(const struct softmax_form *form)
{
	int64_t inner = form->rows.size[form->rows.rank - 1];

	return form->need.streams == 1 && form->rows.columns >= PANEL_COLUMNS &&
		   softmax_tile_vector(form) * form->need.element == 16 &&
		   inner * form->need.element * 2 <= PANEL_BYTES;
}

/* Panels of two tensors whose rows begin anywhere. */
static void offer_skewed(const struct softmax_form *form, const struct kernel_limits *limits,
						 struct softmax_tile *out, int most, int *count)
{
	static const uint32_t ways[][3] = {{16, 32, 2}, {16, 16, 4}, {8, 32, 4},
									   {8, 32, 2},  {8, 32, 1},  {8, 16, 1}};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]) && is_skewed(form); i++)
		offer_panel(form, limits, 1, ways[i][1], ways[i][0] * 16, ways[i][2], KEEP_LEAST, true, out,
					most, count);
}

void softmax_panels(const struct softmax_form *form, const struct kernel_limits *limits,
					struct softmax_tile *out, int most, int *count)
{
	static const struct {
		uint32_t bytes, split, blocks;
		enum keep keep;
	} tries[] = {{128, 16, 2, KEEP_MORE},  {128, 16, 2, KEEP_LEAST}, {128, 16, 3, KEEP_MOST},
				 {128, 16, 3, KEEP_LEAST}, {128, 32, 1, KEEP_LEAST}, {128, 32, 2, KEEP_LEAST},
				 {128, 16, 1, KEEP_LEAST}, {128, 16, 4, KEEP_MOST},  {128, 8, 2, KEEP_MORE},
				 {128, 8, 4, KEEP_MOST},   {256, 8, 1, KEEP_MORE},   {256, 8, 2, KEEP_MOST},
				 {64, 16, 8, KEEP_MOST},   {128, 32, 3, KEEP_LEAST}};
	enum { MOST = sizeof(tries) / sizeof(tries[0]) };
	uint32_t usual = usual_cluster(form, limits), clusters[3] = {usual, usual / 2, usual * 2};
	size_t first = usual_try(form, usual);

	if (form->rows.columns < PANEL_COLUMNS)
		return;
	offer_skewed(form, limits, out, most, count);
	if (usual == 1)
		clusters[1] = (uint64_t)form->rows.columns * form->need.streams > 512 ? 2 : 0;
	for (int turn = 0; turn < (usual == 1 ? 2 : 3); turn++)
		for (size_t i = 0; i < MOST && clusters[turn]; i++) {
			size_t at = i == 0 ? first : i <= first ? i - 1 : i;
			if (clusters[turn] == 1 || (clusters[turn] <= PANEL_CLUSTER &&
										rows_clusters(&form->rows, clusters[turn], limits)))
				offer_panel(form, limits, clusters[turn], tries[at].split, tries[at].bytes,
							tries[at].blocks, tries[at].keep, false, out, most, count);
		}
}
