/*
 * softmax_strided.c: softmax over a dimension that is not the last: rows that lie side by side, a
 * tile of them at a time (kernel_src/common/strided.cuh).
 *
 * How the columns are split decides the order in which they are added up, so it follows from their
 * number and type alone; how many rows there are decides how wide tiles are.
 */
#include "softmax.h"

#include <string.h>

#define TILE_BYTES 256u   /* of one column of a tile, wanted */
#define TILE_THREADS 128u /* of a block, wanted */
#define TILE_SPLIT 32u    /* threads that share a row, wanted at most */
#define WHOLE_USUAL 4u    /* blocks that share a matrix, at most, if nobody asks for more */
#define LINE_BYTES 128u   /* of the cache; halves that begin anywhere in one come by rings */
#define LINE_COLUMNS 256  /* ... if a row has more */
#define WHOLE_SMALL 49152 /* bytes of a matrix that a block rather takes alone, at most */
#define RESERVED 1024u    /* bytes of shared memory that each block takes besides */

/* Columns that a thread holds, as wanted, as if vectors had 16 bytes. */
static uint32_t held_wanted(const struct softmax_form *form)
{
	return 2 / form->need.streams;
}

static int64_t inner_of(const struct softmax_form *form)
{
	return form->rows.size[form->rows.rank - 1];
}

bool softmax_is_strided(const struct softmax_form *form)
{
	const struct rows_form *rows = &form->rows;
	int output = rows->operands - 1;

	return rows->rank > 0 && rows->step[output] != 1 && rows->stride[output][rows->rank - 1] == 1;
}

uint32_t softmax_tile_vector(const struct softmax_form *form)
{
	const struct rows_form *rows = &form->rows;
	uint32_t element = form->need.element;
	uint32_t bytes = form->need.alignment < 16 ? form->need.alignment : 16;

	while (bytes > element && inner_of(form) * element % bytes)
		bytes /= 2;
	for (int i = 0; i < rows->operands; i++) {
		if (rows->stride[i][rows->rank - 1] != 1)
			return 1;
		for (int k = 0; k < rows->rank - 1; k++)
			while (bytes > element && (uint64_t)rows->stride[i][k] * element % bytes)
				bytes /= 2;
		while (bytes > element && rows->step[i] * element % bytes)
			bytes /= 2;
	}
	return bytes > element ? bytes / element : 1;
}

/* Shared memory in which parts meet. */
static uint32_t tile_shared(const struct softmax_form *form, const struct softmax_tile *tile)
{
	uint32_t number = form->dtype == KILN_F64 ? 8 : 4, values = form->need.streams > 1 ? 1 : 2;

	return tile->split > 1
			   ? tile->tiles * tile->split * tile->lanes * tile->vector * number * values
			   : 0;
}

static void offer_tile(const struct softmax_form *form, const struct kernel_limits *limits,
					   uint32_t lanes, uint32_t split, struct softmax_tile *out, int most,
					   int *count)
{
	struct softmax_tile tile;
	uint64_t parts = ((uint64_t)form->rows.columns + split - 1) / split;

	memset(&tile, 0, sizeof(tile));
	tile.vector = softmax_tile_vector(form);
	tile.lanes = lanes;
	tile.split = split;
	/* A thread can hold so many at most, in such vectors. */
	tile.twice = parts > (form->need.element == 2 ? 4 : 8) / form->need.streams;
	tile.held = !tile.twice ? (uint32_t)parts : held_wanted(form) > 1 ? held_wanted(form) : 2;
	tile.tiles = 1;
	while (tile.lanes * tile.split * tile.tiles < TILE_THREADS)
		tile.tiles *= 2;
	while (tile.tiles > 1 &&
		   (tile.lanes * tile.split * tile.tiles > limits->max_threads ||
			tile_shared(form, &tile) > limits->shared_default) &&
		   tile.lanes * tile.split * tile.tiles > 32)
		tile.tiles /= 2;
	if (tile.lanes * tile.split * tile.tiles > limits->max_threads ||
		tile_shared(form, &tile) > limits->shared_default || *count == most)
		return;
	for (int i = 0; i < *count; i++)
		if (memcmp(&out[i], &tile, sizeof(tile)) == 0)
			return;
	out[(*count)++] = tile;
}

/* Tiles of the rows that lie side by side. */
static uint64_t tiles_beside(const struct softmax_form *form, const struct softmax_tile *tile)
{
	uint64_t inner = (uint64_t)inner_of(form), wide = (uint64_t)tile->lanes * tile->vector;

	/* Vectors that begin before their rows or end behind them take two more, of a tile that is not
	 * alone. */
	if (tile->skewed && inner + tile->vector - 1 > wide)
		wide -= 2 * (uint64_t)tile->vector;
	return plan_divide_up(inner, wide);
}

/* The tile at a place comes before all others. */
static void first_is(struct softmax_tile *tiles, int place)
{
	struct softmax_tile first = tiles[place];

	memmove(&tiles[1], &tiles[0], sizeof(tiles[0]) * (size_t)place);
	tiles[0] = first;
}

/*
 * Puts a way first that takes each matrix as one piece, where that is the likely best: rows that no
 * vector fits move in whole vectors then, and panels of which a third of the lanes, or a quarter of
 * the only panel's, would have no work are not needed; nor are panels of halves that begin within
 * lines of the cache.  Places wholes .. rings - 1 have a block or a cluster for each matrix; rings
 * are from place `rings` on.
 */
static void prefer_whole(const struct softmax_form *form, const struct kernel_limits *limits,
						 struct softmax_tile *out, int wholes, int rings, int count)
{
	uint64_t inner = (uint64_t)inner_of(form), tiles = tiles_beside(form, &out[0]);
	uint32_t vector = softmax_tile_vector(form);
	uint64_t wide = tiles * out[0].lanes * vector;
	bool odd = vector * form->need.element < 16;
	bool idle = out[0].cluster > 0 && inner * 3 <= wide * 2;
	bool small = odd && vector * form->need.element >= 4 &&
				 (uint64_t)form->rows.columns * inner * form->need.element < WHOLE_SMALL;

	if (rings < count &&
		(odd || idle || (out[0].cluster > 0 && tiles == 1 && inner * 4 <= wide * 3) ||
		 (form->need.element == 2 && inner * 2 % LINE_BYTES && out[rings].teams > 1 &&
		  form->rows.columns > LINE_COLUMNS))) {
		first_is(out, rings);
		return;
	}
	if (!small && (out[0].skewed || (!idle && vector * form->need.element > 4)))
		return;
	for (int i = wholes; i < rings; i++) {
		uint64_t bytes = softmax_whole_bytes(form, &out[i]) + RESERVED;
		if (out[i].cluster <= WHOLE_USUAL && bytes * 2 <= limits->shared_optin + RESERVED) {
			first_is(out, i);
			break;
		}
	}
}

int softmax_tiles(const struct softmax_form *form, const struct kernel_limits *limits,
				  struct softmax_tile *out, int most)
{
	static const struct {
		uint32_t wider, narrower; /* lanes, times and through */
		uint32_t more, fewer;     /* parts */
	} tries[] = {{1, 1, 1, 1}, {1, 2, 1, 1}, {2, 1, 1, 1},
				 {1, 1, 1, 2}, {1, 4, 1, 1}, {1, 1, 1, 4}};
	uint64_t columns = (uint64_t)form->rows.columns, wanted = held_wanted(form);
	uint32_t vector = softmax_tile_vector(form), split, lanes;
	int count = 0, panels, wholes, rings;

	split = plan_power_of_two((columns + wanted - 1) / wanted, TILE_SPLIT);
	lanes = plan_power_of_two(TILE_BYTES / (vector * form->need.element), 32);
	lanes = plan_power_of_two(((uint64_t)inner_of(form) + vector - 1) / vector, lanes);
	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		uint32_t wide = lanes * tries[i].wider / tries[i].narrower;
		uint32_t parts = split * tries[i].more / tries[i].fewer;
		if (wide && wide <= 32 && parts && parts <= 64)
			offer_tile(form, limits, wide, parts, out, most, &count);
	}
	/* A device with little of everything */
	for (; count == 0 && (lanes > 1 || split > 1); lanes = lanes > 1 ? lanes / 2 : 1) {
		split = lanes > 1 ? split : split / 2;
		offer_tile(form, limits, lanes, split, out, most, &count);
	}
	panels = count;
	softmax_panels(form, limits, out, most, &count);
	if (panels < count && (out[0].twice || out[panels].skewed || softmax_is_held(form)))
		first_is(out, panels);
	wholes = count;
	softmax_wholes(form, limits, out, most, &count);
	rings = count;
	softmax_rings(form, limits, out, most, &count);
	prefer_whole(form, limits, out, wholes, rings, count);
	return count;
}

void softmax_tile_name(const struct softmax_tile *tile, char name[KERNEL_CHOICE_MAX])
{
	struct plan_text text = {.text = name, .size = KERNEL_CHOICE_MAX};

	if (tile->teams) {
		plan_print(&text, "ring%u %ux%u t%u s%u b%u", tile->cluster, tile->lanes, tile->split,
				   tile->teams, tile->slots, tile->blocks);
	} else if (tile->whole) {
		plan_print(&text, "whole%u %ux%u", tile->cluster, tile->lanes, tile->split);
	} else if (tile->cluster) {
		plan_print(&text, "panel");
		if (tile->cluster > 1)
			plan_print(&text, "-cluster%u", tile->cluster);
		if (tile->skewed)
			plan_print(&text, tile->shifted ? "-shifted" : "-skewed");
		plan_print(&text, " %ux%ux%u", tile->lanes, tile->split, tile->held);
		if (tile->kept)
			plan_print(&text, " k%u", tile->kept);
		if (tile->kept + tile->slots < tile->held)
			plan_print(&text, " s%u", tile->slots);
		plan_print(&text, " b%u", tile->blocks);
	} else {
		plan_print(&text, "%s %ux%ux%u t%u", tile->twice ? "strided-twice" : "strided", tile->lanes,
				   tile->split, tile->held, tile->tiles);
	}
}

void softmax_print_tile(struct plan_text *text, const struct softmax_form *form,
						const struct softmax_tile *tile)
{
	if (tile->teams) {
		plan_print(text, "RingShape<%s, %lld, %lld, %u, %u, %u, %u, %u>",
				   plan_dtype_name(form->dtype), (long long)form->rows.columns,
				   (long long)inner_of(form), (softmax_tile_threads(tile) - 32) / tile->teams,
				   tile->teams, tile->cluster, tile->slots, tile->blocks);
		return;
	}
	if (tile->whole) {
		plan_print(text, "WholeShape<%s, %lld, %lld, %u, %u, %u>", plan_dtype_name(form->dtype),
				   (long long)form->rows.columns, (long long)inner_of(form), tile->vector,
				   tile->split, tile->cluster);
		return;
	}
	plan_print(text, "%sShape<%s, %lld, %u, ", tile->cluster ? "Panel" : "Strided",
			   plan_dtype_name(form->dtype), (long long)form->rows.columns, tile->vector);
	if (tile->cluster)
		plan_print(text, "%u, %u, %u, %u, %u, %u, %s", tile->lanes, tile->split, tile->cluster,
				   tile->kept, tile->slots, tile->blocks, tile->skewed ? "true" : "false");
	else
		plan_print(text, "%u, %u, %u, %u", tile->held, tile->lanes, tile->split, tile->tiles);
	plan_print(text, ", %lld%s>", (long long)inner_of(form), tile->shifted ? ", true" : "");
}

void softmax_print_sides(struct plan_text *text, const struct softmax_form *form)
{
	struct rows_form outer = form->rows;

	outer.rank--;
	for (int i = 0; i < outer.operands; i++)
		rows_print_step(text, &form->rows, i);
	for (int i = 0; i < outer.operands; i++)
		plan_print(text, ", %lld", (long long)form->rows.stride[i][outer.rank]);
	rows_print_sizes(text, &outer);
	for (int i = 0; i < outer.operands; i++)
		rows_print_strides(text, &outer, i);
	plan_print(text, ", %s", rows_index_type(&form->rows));
}

bool softmax_tile_launch(const struct softmax_form *form, const struct softmax_tile *tile,
						 const struct kernel_limits *limits, struct kernel_plan *out,
						 uint64_t *tiles)
{
	uint32_t cluster = tile->cluster ? tile->cluster : 1;

	*tiles = (uint64_t)form->rows.rows / (uint64_t)inner_of(form) * tiles_beside(form, tile);
	if (tile->teams) {
		out->shared_bytes = (uint32_t)softmax_ring_bytes(form, tile);
		return plan_launch(out, limits, softmax_ring_blocks(tile, limits, *tiles),
						   softmax_tile_threads(tile));
	}
	if (tile->whole)
		out->shared_bytes = (uint32_t)softmax_whole_bytes(form, tile);
	else if (tile->cluster)
		out->shared_bytes = (uint32_t)softmax_panel_bytes(form, tile);
	return plan_launch(out, limits, plan_divide_up(*tiles, tile->tiles) * cluster,
					   softmax_tile_threads(tile));
}
