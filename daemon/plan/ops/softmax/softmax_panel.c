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

#define PANEL_BYTES 128u   /* of one column of a panel, wanted */
#define PANEL_CLUSTER 8u   /* blocks at most */
#define PANEL_FEW 56u      /* columns of a thread that three blocks have room for, with registers */
#define PANEL_KEPT 34u     /* columns of a thread that their registers have room for, nearly */
#define PANEL_COMMON 544u  /* columns of a block that shares a panel with others, at most */
#define PANEL_ALONE 640u   /* of one that does not, of elements larger than halves */
#define PANEL_PAIRS 512u   /* columns of two tensors that a block takes, wanted */
#define PANEL_HELD 128u    /* columns of a thread, at most */
#define PANEL_COLUMNS 32   /* of a row, at least */
#define PANEL_SHORT 64     /* of a row of two tensors, at least */
#define WIDE_COLUMNS 824   /* of a row, at most, for panels of twice that width */
#define WIDE_INNER 1024    /* rows that lie side by side, at least, for longer ones of such */
#define SINGLE_COLUMNS 700 /* of a row of larger elements that move one by one, for a block */
#define SKEWED_COLUMNS 400 /* of a row whose rows begin anywhere, for a block, wanted */
#define SKEWED_WIDE 200    /* of such, for wide panels */
#define SKEWED_VECTORS 4   /* of a column of a panel whose rows begin anywhere, at least */
#define SHIFTED_VECTORS 16 /* of a column whose results begin elsewhere, at least */
#define REGISTERS 65536u   /* of a multiprocessor */
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
	uint64_t rows = (uint64_t)tile->lanes * tile->vector, warps = tile->lanes * tile->split / 32;
	uint64_t parts = tile->skewed ? tile->split : warps;

	uint64_t blocks = tile->cluster > 1 ? tile->cluster + 1 : 1; /* and the whole */

	return values * number * (parts * (rows + 1) + blocks * rows + 1);
}

/* A thread keeps so many registers beside its columns. */
static uint32_t registers_beside(const struct softmax_form *form)
{
	return form->dtype == KILN_F64 ? 88 : form->need.element == 2 ? 80 : 56;
}

/* Registers hold those of a thread's columns that shared memory has no room for; all that they have
 * room for, if it has not room for all; or all that they have room for. */
enum keep { KEEP_LEAST, KEEP_MORE, KEEP_MOST };

/* Lanes of whole warps for rows that begin anywhere, so that panels are about equally wide; two
 * more than vectors, of `most` at most, or one of a panel that is alone. */
static uint32_t skewed_lanes(uint64_t inner, uint32_t vector, uint32_t most, uint32_t split)
{
	uint64_t panels = (uint64_t)plan_divide_up(inner, (uint64_t)most * vector);
	uint64_t wide = (uint64_t)plan_divide_up(inner, panels);
	uint64_t lanes = panels == 1 ? (uint64_t)plan_divide_up(wide + vector - 1, vector)
								 : (uint64_t)plan_divide_up(wide, vector) + 2;
	uint32_t unit = split < 32 ? 32 / split : 1;

	return (uint32_t)plan_divide_up(lanes, unit) * unit;
}

/* A panel whose columns have `bytes` bytes, or fewer where there are no more rows.  `split` threads
 * of a block share a row, and a multiprocessor has `blocks`. */
struct way {
	uint32_t bytes, split, blocks;
	enum keep keep;
};

/* Rows begin where vectors do, anywhere but equally far beyond one in all operands, or anywhere. */
enum skew { ALIGNED, SKEWED, SHIFTED };

static void offer_panel(const struct softmax_form *form, const struct kernel_limits *limits,
						uint32_t cluster, struct way way, enum skew skew, struct softmax_tile *out,
						int most, int *count)
{
	uint32_t bytes = way.bytes, split = way.split, blocks = way.blocks;
	uint32_t element = form->need.element, parts = cluster * split, threads, each, all;
	uint64_t inner = (uint64_t)form->rows.size[form->rows.rank - 1], room;
	int64_t held = plan_divide_up(form->rows.columns, parts);
	bool skewed = skew != ALIGNED;
	struct softmax_tile tile;

	memset(&tile, 0, sizeof(tile));
	tile.vector = skewed ? 16 / element : softmax_tile_vector(form);
	tile.skewed = skewed;
	tile.shifted = skew == SHIFTED;
	tile.lanes = tile.tiles = 1;
	tile.split = split;
	tile.cluster = cluster;
	tile.blocks = blocks;
	tile.held = (uint32_t)held;
	while (!skewed && tile.lanes < 32 && tile.lanes * 2 * split <= limits->max_threads &&
		   tile.lanes * 2 * tile.vector * element <= bytes && tile.lanes * tile.vector < inner)
		tile.lanes *= 2;
	if (skewed)
		tile.lanes = skewed_lanes(inner, tile.vector, bytes / 16, split);
	threads = tile.lanes * split;
	each = tile.vector * element * form->need.streams;
	if (threads > limits->max_threads || threads % 32 || *count == most || held > PANEL_HELD)
		return;
	room = (limits->shared_optin + RESERVED) / blocks;
	if (meet_bytes(form, &tile) > limits->shared_default ||
		room < meet_bytes(form, &tile) + RESERVED + (uint64_t)threads * each)
		return;
	all = (uint32_t)((room - meet_bytes(form, &tile) - RESERVED) / (threads * each));
	if (all < tile.held || way.keep == KEEP_MOST) {
		uint32_t registers = REGISTERS / (threads * blocks), full, needed;
		registers = registers < REGISTERS_MOST ? registers : REGISTERS_MOST;
		registers -= registers > registers_beside(form) ? registers_beside(form) : registers;
		full = (uint32_t)(form->rows.columns / parts);
		tile.kept = registers / ((each + 3) / 4);
		tile.kept = tile.kept < full ? tile.kept : full;
		needed = (tile.held - all + 3) / 4 * 4;
		tile.kept =
			way.keep == KEEP_LEAST && needed < tile.kept ? needed : tile.kept - tile.kept % 4;
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

/* Says how rows begin, column by column.  Larger elements of two tensors may as well move one by
 * one. */
static enum skew skew_of(const struct softmax_form *form)
{
	const struct rows_form *rows = &form->rows;
	int64_t vector = 16 / (int64_t)form->need.element;
	int last = rows->rank - 1;
	enum skew skew = SKEWED;

	for (int i = 0; i < rows->operands; i++) {
		if (rows->stride[i][last] != 1)
			return ALIGNED;
		if ((rows->step[i] - rows->step[0]) % vector)
			skew = SHIFTED;
		for (int k = 0; k < last; k++)
			if ((rows->stride[i][k] - rows->stride[0][k]) % vector)
				skew = SHIFTED;
	}
	if (softmax_tile_vector(form) >= vector || form->need.alignment < 16 ||
		form->need.element > (form->need.streams > 1 ? 2 : 4) ||
		rows->size[last] < (form->need.streams > 1 ? 2 : SKEWED_VECTORS) * vector)
		return ALIGNED;
	if (skew == SHIFTED && (form->need.streams > 1 || rows->size[last] < SHIFTED_VECTORS * vector))
		return ALIGNED;
	return skew;
}

/* Do elements of one tensor that are larger than halves move one by one, and have registers room
 * for them? */
static bool is_single(const struct softmax_form *form)
{
	return form->need.streams == 1 && form->need.element == 4 && softmax_tile_vector(form) == 1 &&
		   form->rows.columns <= 2 * SINGLE_COLUMNS;
}

/*
 * Blocks of a cluster that shares a panel.  Of one tensor a block takes what 16 threads have
 * registers for, nearly, so that several blocks of a multiprocessor wait for different things; in
 * parts of vectors what two blocks have room for.  Larger elements that move one by one are held by
 * registers.
 */
static uint32_t usual_cluster(const struct softmax_form *form, const struct kernel_limits *limits)
{
	uint64_t columns = (uint64_t)form->rows.columns, bytes = columns * PANEL_BYTES;
	uint64_t most = limits->shared_optin, each = most / 4 * 3;
	uint32_t cluster = 1;

	if (form->need.element == 2) {
		most = each;
		each = limits->shared_optin / 2;
	}
	if (form->need.streams > 1)
		while (cluster < PANEL_CLUSTER && columns > PANEL_PAIRS * cluster)
			cluster *= 2;
	else if (is_single(form))
		while (cluster < PANEL_CLUSTER && columns > SINGLE_COLUMNS * cluster)
			cluster *= 2;
	else if (form->need.element <= 4 && softmax_tile_vector(form) * form->need.element == 16)
		while (cluster < PANEL_CLUSTER && columns > PANEL_COMMON * cluster &&
			   (form->need.element == 2 || columns > PANEL_ALONE))
			cluster *= 2;
	else if (bytes > most / 10 * 9)
		while (cluster < PANEL_CLUSTER && bytes / cluster > each)
			cluster *= 2;
	return rows_clusters(&form->rows, cluster, limits) ? cluster : 1;
}

/* The panel that comes first, by columns of a block: those that few threads have in registers are
 * the fastest, then those that three blocks have room for. */
static struct way usual_way(const struct softmax_form *form, uint32_t cluster)
{
	uint64_t columns = plan_divide_up((uint64_t)form->rows.columns, cluster);
	uint64_t held = plan_divide_up(columns, 16);
	int64_t inner = form->rows.size[form->rows.rank - 1];
	bool halves = form->need.element == 2;
	bool narrow = inner * form->need.element * 2 <= PANEL_BYTES;

	if (form->need.streams > 1)
		return (struct way){128, 16, 2, KEEP_MORE};
	if (form->need.element > 4)
		return (struct way){128, 16, 1, KEEP_LEAST}; /* in registers they leave none */
	if (is_single(form))
		return (struct way){128, 8, 2, KEEP_MOST};
	if (softmax_tile_vector(form) * form->need.element < 16) {
		if (halves && softmax_tile_vector(form) <= 2 && held <= PANEL_FEW)
			return held <= PANEL_FEW / 2 ? (struct way){128, 16, 4, KEEP_MOST}
										 : (struct way){128, 16, 3, KEEP_LEAST};
		return (struct way){128, 16, 2, halves ? KEEP_LEAST : KEEP_MORE};
	}
	if (halves && (columns <= PANEL_SHORT || (narrow && columns <= 128)))
		return (struct way){128, 8, 4, KEEP_MOST};
	if (narrow)
		return (struct way){64, 16, 8, KEEP_MOST};
	if (halves && columns <= 240) /* sixteen columns of a thread are no more than its registers */
		return columns > 120 && columns <= 128 ? (struct way){128, 8, 6, KEEP_MOST}
											   : (struct way){128, 16, 4, KEEP_MOST};
	if (!halves && columns <= 256)
		return (struct way){256, 8, 2, KEEP_MOST};
	if (cluster > 1 && held <= 32)
		return (struct way){128, 16, 4, cluster == 8 && held <= 20 ? KEEP_LEAST : KEEP_MOST};
	if (held <= PANEL_KEPT || (held <= PANEL_FEW && cluster > 1))
		return (struct way){128, 16, 3, KEEP_MOST};
	if (!halves && columns <= WIDE_COLUMNS && inner >= WIDE_INNER)
		return (struct way){256, 8, 2, KEEP_MOST};
	if (!halves)
		return held <= PANEL_FEW ? (struct way){128, 16, 3, KEEP_MOST}
								 : (struct way){128, 16, 2, cluster == 2 ? KEEP_LEAST : KEEP_MORE};
	return held <= 40          ? (struct way){128, 16, 3, KEEP_LEAST}
		   : held <= PANEL_FEW ? (struct way){128, 32, 2, KEEP_LEAST}
							   : (struct way){128, 16, 2, KEEP_LEAST};
}

bool softmax_is_held(const struct softmax_form *form)
{
	return form->need.streams == 1 && form->need.element <= 4 &&
		   form->rows.columns >= PANEL_COLUMNS &&
		   softmax_tile_vector(form) * form->need.element == 16;
}

/* Panels of two tensors whose rows begin anywhere. */
static void offer_skewed_pairs(const struct softmax_form *form, const struct kernel_limits *limits,
							   struct softmax_tile *out, int most, int *count)
{
	static const struct way ways[] = {{256, 32, 2, KEEP_LEAST}, {256, 16, 4, KEEP_LEAST},
									  {128, 32, 4, KEEP_LEAST}, {128, 32, 2, KEEP_LEAST},
									  {128, 32, 1, KEEP_LEAST}, {128, 16, 1, KEEP_LEAST}};
	int before = *count;

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		offer_panel(form, limits, 1, ways[i], SKEWED, out, most, count);
		/* Elements that are read twice are worth no panel. */
		if (*count > before && out[*count - 1].kept + out[*count - 1].slots < out[*count - 1].held)
			(*count)--;
	}
}

/* Offers panels of one tensor: each block of a cluster takes no more columns than two blocks of a
 * multiprocessor have room for, and few columns come by few threads, in wide panels. */
static void offer_skewed(const struct softmax_form *form, const struct kernel_limits *limits,
						 enum skew skew, struct softmax_tile *out, int most, int *count)
{
	static const struct way ways[] = {
		{480, 8, 2, KEEP_LEAST},  {352, 16, 2, KEEP_LEAST}, {288, 16, 2, KEEP_LEAST},
		{224, 16, 2, KEEP_LEAST}, {160, 16, 2, KEEP_LEAST}, {160, 32, 2, KEEP_LEAST},
		{352, 16, 1, KEEP_LEAST}, {160, 32, 1, KEEP_LEAST}, {480, 8, 3, KEEP_LEAST},
		{224, 16, 3, KEEP_LEAST}, {480, 16, 1, KEEP_LEAST}, {224, 8, 4, KEEP_LEAST}};
	uint32_t cluster = 1;

	while (cluster < PANEL_CLUSTER && form->rows.columns > SKEWED_COLUMNS * cluster)
		cluster *= 2;
	for (int turn = 0; turn < 2 && cluster; turn++, cluster /= 2) {
		for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
			int before = *count;
			if (turn == 0 && i == 0 && form->rows.columns > SKEWED_WIDE * cluster)
				continue;
			if (cluster > 1 && !rows_clusters(&form->rows, cluster, limits))
				continue;
			offer_panel(form, limits, cluster, ways[i], skew, out, most, count);
			/* Neighbours look into each other's slots alone. */
			if (*count > before &&
				(skew == SHIFTED ? out[before].slots : out[before].kept + out[before].slots) <
					out[before].held)
				(*count)--;
		}
	}
}

void softmax_panels(const struct softmax_form *form, const struct kernel_limits *limits,
					struct softmax_tile *out, int most, int *count)
{
	static const struct way ways[] = {
		{128, 16, 2, KEEP_MORE},  {128, 16, 2, KEEP_LEAST}, {128, 16, 3, KEEP_MOST},
		{128, 16, 3, KEEP_LEAST}, {128, 32, 1, KEEP_LEAST}, {128, 32, 2, KEEP_LEAST},
		{128, 16, 1, KEEP_LEAST}, {128, 16, 4, KEEP_MOST},  {128, 8, 2, KEEP_MORE},
		{128, 8, 2, KEEP_MOST},   {128, 8, 4, KEEP_MOST},   {256, 8, 1, KEEP_MORE},
		{256, 8, 2, KEEP_MOST},   {256, 8, 3, KEEP_LEAST},  {64, 16, 8, KEEP_MOST},
		{128, 32, 3, KEEP_LEAST}, {128, 8, 6, KEEP_MOST},   {256, 16, 2, KEEP_LEAST},
		{64, 32, 4, KEEP_LEAST},  {64, 16, 6, KEEP_MOST}};
	enum { MOST = sizeof(ways) / sizeof(ways[0]) };
	uint32_t usual = usual_cluster(form, limits), clusters[3] = {usual, usual / 2, usual * 2};
	enum skew skew = skew_of(form);

	if (form->rows.columns < (form->need.streams > 1 ? PANEL_SHORT : PANEL_COLUMNS))
		return;
	if (skew != ALIGNED && form->need.streams > 1)
		offer_skewed_pairs(form, limits, out, most, count);
	else if (skew != ALIGNED)
		offer_skewed(form, limits, skew, out, most, count);
	offer_panel(form, limits, usual, usual_way(form, usual), ALIGNED, out, most, count);
	if (usual == 1)
		clusters[1] = (uint64_t)form->rows.columns * form->need.streams > 512 ? 2 : 0;
	for (int turn = 0; turn < (usual == 1 ? 2 : 3); turn++)
		for (size_t i = 0; i < MOST && clusters[turn]; i++)
			if (clusters[turn] == 1 || (clusters[turn] <= PANEL_CLUSTER &&
										rows_clusters(&form->rows, clusters[turn], limits)))
				offer_panel(form, limits, clusters[turn], ways[i], ALIGNED, out, most, count);
}
