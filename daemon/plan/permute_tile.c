/*
 * permute_tile.c: the variants that turn through shared memory: tiles for transposes, and planes of
 * few elements next to each other.
 */
#include "permute.h"

#include <string.h>

/*
 * Half a tile of bytes or less would be the work of one block, which waits for its loads and then
 * for its own shared memory; a gather spreads over many and compiles in two thirds of the time.
 * Only where all sizes are the kernel's own: the number of batches must not change the kernel.
 */
#define STAGED_LEAST 8192

static bool too_small(const struct permute_form *form, const struct permute_batch *batch,
					  const char *variant, struct plan_text *why)
{
	if (batch->outer >= 0 || form->count > STAGED_LEAST / (int64_t)form->element)
		return false;
	plan_print(why, "not %s: %lld bytes are too few; ", variant,
			   (long long)form->count * form->element);
	return true;
}

/* ---- Interleave ---- */

#define INTERLEAVE_MOST 16        /* planes */
#define INTERLEAVE_MOST_BYTES 128 /* of all planes, in the registers of a thread */
#define INTERLEAVE_LEAST 32
#define INTERLEAVE_THREADS 128u

/* The two dimensions of an interleave. */
struct interleave {
	bool split;    /* in turn in x, planes in y */
	int along;     /* the long dimension */
	int planes;    /* the short one */
	int64_t plane; /* distance of planes */
};

static bool interleave_find(const struct permute_form *form, struct interleave *found)
{
	int last = form->rank - 1, fast = permute_fastest(form);
	const struct permute_dim *dim = form->dim;

	if (form->huge || form->rank < 2 || fast < 0 || fast == last || dim[fast].from != 1)
		return false;
	if (dim[last].size <= INTERLEAVE_MOST && fast == last - 1 && dim[last].from >= dim[fast].size)
		*found = (struct interleave){false, fast, last, dim[last].from};
	else if (dim[fast].size <= INTERLEAVE_MOST && dim[last].from == dim[fast].size)
		*found = (struct interleave){true, last, fast, dim[fast].to};
	else
		return false;
	return dim[found->along].size >= INTERLEAVE_LEAST &&
		   dim[found->planes].size * form->element <= INTERLEAVE_MOST_BYTES;
}

/* Bytes of shared memory a warp needs: as in the kernel. */
static uint32_t interleave_shared(int64_t planes, uint32_t width)
{
	uint32_t slots = 32 * (uint32_t)planes;

	if (planes % 2 == 0)
		slots += slots / (128 / width);
	return (slots * width + 15) / 16 * 16;
}

bool permute_interleave(const struct permute_form *form, const struct kernel_limits *limits,
						struct kernel_plan *out, struct plan_text *why)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint32_t threads = INTERLEAVE_THREADS, width, other, shared, pair;
	struct interleave found;
	struct permute_batch batch;
	int64_t length, planes;
	uint64_t warps;
	bool loop;

	if (!interleave_find(form, &found)) {
		plan_print(why, "not interleave: no %d to %d elements meet a long dimension; ", 2,
				   INTERLEAVE_MOST);
		return false;
	}
	length = form->dim[found.along].size;
	planes = form->dim[found.planes].size;
	pair = 1u << found.along | 1u << found.planes;
	permute_batch(form, pair, &batch);
	if (too_small(form, &batch, "interleave", why))
		return false;
	width = permute_width(form, true, length, pair);
	other = permute_width(form, false, length, pair);
	if (other < width)
		width = other;
	while (found.plane % (width / form->element) ||
		   (planes * width > INTERLEAVE_MOST_BYTES && width > form->element))
		width /= 2;
	while (
		threads > limits->max_threads ||
		(threads > 32 && threads / 32 * interleave_shared(planes, width) > limits->shared_default))
		threads /= 2;
	shared = threads / 32 * interleave_shared(planes, width);
	if (shared > limits->shared_default) {
		plan_print(why, "not interleave: %u bytes of shared memory; ", shared);
		return false;
	}

	warps = (uint64_t)batch.items *
			(uint64_t)((length * form->element + 32 * width - 1) / (32 * width));
	loop = permute_grid(out, limits, warps, threads / 32, threads) || warps > INT32_MAX;
	plan_print(&id, "permute_interleave<%u, %lld, %u, %u, %s, %lld, %lld", form->element,
			   (long long)planes, width, threads, found.split ? "true" : "false", (long long)length,
			   (long long)found.plane);
	permute_print_batch(&id, form, &batch);
	plan_print(&id, ", %s, %s>", permute_offset_type(form, batch.outer), loop ? "true" : "false");
	permute_batch_args(out, form, &batch, warps);
	out->shared_bytes = shared;
	out->extents[0].alignment = out->extents[1].alignment = width;
	plan_print(why, "%lld planes of %lld elements %s, %u bytes at a time through registers",
			   (long long)planes, (long long)length, found.split ? "are taken apart" : "are woven",
			   width);
	return !id.full;
}

/* ---- Tile ---- */

/* Rows are the dimensions that are contiguous in y, columns those in x. */
struct tile {
	uint32_t row_mask, column_mask;
	int first_row;                             /* the slowest dimension among the rows */
	int column[PERMUTE_MAX_DIMS], column_dims; /* fastest in x first */
	int64_t rows, columns;                     /* elements */
	int64_t step;                              /* from one column to the next in x */
	uint32_t load, store;                      /* bytes at once */
	uint32_t tile_rows, tile_columns, threads;
};

#define WIDE_SIDE 256u

/* The side of a full tile. */
static uint32_t tile_side(uint32_t element)
{
	switch (element) {
	case 1:
	case 2:
		return 128;
	case 4:
		return 64;
	default:
		return 32;
	}
}

static bool grow_rows(const struct permute_form *form, struct tile *tile)
{
	int next = tile->first_row - 1;

	if (next < 0 || (tile->column_mask & 1u << next) ||
		tile->rows > INT32_MAX / form->dim[next].size)
		return false;
	tile->row_mask |= 1u << next;
	tile->rows *= form->dim[next].size;
	tile->first_row = next;
	return true;
}

static bool grow_columns(const struct permute_form *form, struct tile *tile)
{
	for (int k = 0; k < form->rank; k++) {
		const struct permute_dim *dim = &form->dim[k];
		if (((tile->row_mask | tile->column_mask) & 1u << k) ||
			dim->from != tile->columns * tile->step || tile->columns > INT32_MAX / dim->size)
			continue;
		tile->column_mask |= 1u << k;
		tile->column[tile->column_dims++] = k;
		tile->columns *= dim->size;
		return true;
	}
	return false;
}

static bool wants_more(int64_t size, uint32_t side)
{
	return size % side != 0 && size < 8 * (int64_t)side;
}

/* Takes further dimensions into the shorter side first, until tiles fill well. */
static void grow(const struct permute_form *form, struct tile *tile)
{
	uint32_t side = form->element == 1 ? WIDE_SIDE : tile_side(form->element);
	bool rows = true, columns = true;

	while (rows || columns) {
		rows = rows && wants_more(tile->rows, side);
		columns = columns && wants_more(tile->columns, side);
		if (rows && (!columns || tile->rows <= tile->columns))
			rows = grow_rows(form, tile);
		else if (columns)
			columns = grow_columns(form, tile);
	}
}

/* Of side, side/2, ...: what covers size with the least padding and the fewest short runs. */
static uint32_t pick_side(int64_t size, uint32_t side, uint32_t element)
{
	uint32_t best = side;
	int64_t cost = INT64_MAX;

	for (uint32_t t = side; t * element >= 32 && t >= 4; t /= 2) {
		int64_t c = (size + t - 1) / t * (t * element + 64);
		if (c < cost) {
			cost = c;
			best = t;
		}
	}
	return best;
}

static uint32_t tile_bytes(const struct tile *tile, uint32_t element)
{
	return tile->tile_rows * tile->tile_columns * element;
}

/* A thread loads at least once; a column is stored by one pass of the block, or the kernel would
 * have to count both ways. */
static uint32_t block_threads(const struct tile *tile, uint32_t element, uint32_t max_threads)
{
	uint32_t slots = tile_bytes(tile, element) / 16 / (tile->load / element), threads = 256;
	uint32_t runs = tile->tile_rows * element / tile->store;

	while (threads > 32 && threads > runs && (threads > slots || threads > max_threads))
		threads /= 2;
	return threads;
}

/* Bytes in large matrices: 256 rows and columns keep both sides' runs at 256 bytes. */
static bool wide_tile(const struct permute_form *form, const struct kernel_limits *limits,
					  const struct tile *tile)
{
	return form->element == 1 && tile->rows >= 2048 && tile->columns >= 2048 && tile->load == 16 &&
		   tile->store == 16 && limits->shared_optin >= WIDE_SIDE * WIDE_SIDE &&
		   limits->max_threads >= 256;
}

static void shrink(struct tile *tile, uint32_t element, uint32_t most)
{
	while (tile_bytes(tile, element) > most && tile->tile_rows * element > 32)
		tile->tile_rows /= 2;
	while (tile_bytes(tile, element) > most && tile->tile_columns * element > 32)
		tile->tile_columns /= 2;
}

static void choose_sizes(const struct permute_form *form, const struct kernel_limits *limits,
						 struct tile *tile)
{
	uint32_t element = form->element, side = tile_side(element);

	tile->tile_rows = pick_side(tile->rows, side, element);
	tile->tile_columns = pick_side(tile->columns, side, element);
	if (wide_tile(form, limits, tile))
		tile->tile_rows = tile->tile_columns = WIDE_SIDE;
	else
		shrink(tile, element, limits->shared_default);
	tile->threads = block_threads(tile, element, limits->max_threads);
}

/* Rows, columns and what may be moved at once; false with the reason. */
static bool tile_find(const struct permute_form *form, struct tile *tile, struct plan_text *why)
{
	int last = form->rank - 1, fast = permute_fastest(form);

	memset(tile, 0, sizeof(*tile));
	if (form->huge || fast < 0 || fast == last || form->dim[last].from == 0) {
		plan_print(why, "not tile: %s; ",
				   form->huge ? "a size is beyond 31 bits" : "nothing to transpose");
		return false;
	}
	tile->step = form->dim[fast].from;
	/* Neighbours further apart than a sector share nothing that a tile could save. */
	if (tile->step > 1 && tile->step > 16 / (int64_t)form->element) {
		plan_print(why, "not tile: x has no dimension with neighbours closer than %lld elements; ",
				   (long long)tile->step);
		return false;
	}
	tile->row_mask = 1u << last;
	tile->first_row = last;
	tile->column_mask = 1u << fast;
	tile->column[tile->column_dims++] = fast;
	tile->rows = form->dim[last].size;
	tile->columns = form->dim[fast].size;
	grow(form, tile);
	if (tile->rows < 4 || tile->columns < 4) {
		plan_print(why, "not tile: %lld rows by %lld columns; ", (long long)tile->rows,
				   (long long)tile->columns);
		return false;
	}
	tile->store = permute_width(form, false, tile->rows, tile->row_mask);
	tile->load = form->element;
	if (tile->step == 1)
		tile->load = permute_width(form, true, tile->columns, tile->column_mask);
	return true;
}

static void tile_print(const struct permute_form *form, const struct tile *tile,
					   const struct permute_batch *batch, bool loop, struct plan_text *id)
{
	/* The slowest of rows and columns is what remains when the others are divided out. */
	uint32_t more_rows = tile->row_mask & ~(1u << tile->first_row);

	plan_print(id, "permute_tile<%u, %u, %u, %u, %u, %u, %lld, %lld, %lld", form->element,
			   tile->tile_rows, tile->tile_columns, tile->load, tile->store, tile->threads,
			   (long long)tile->rows, (long long)tile->columns, (long long)tile->step);
	permute_print_list(id, form, more_rows, PERMUTE_SIZE);
	permute_print_list(id, form, tile->row_mask, PERMUTE_FROM);
	plan_print(id, ", List<");
	for (int i = 0; i < tile->column_dims - 1; i++)
		plan_print(id, "%s%lld", i ? ", " : "", (long long)form->dim[tile->column[i]].size);
	plan_print(id, ">, List<");
	for (int i = 0; i < tile->column_dims; i++)
		plan_print(id, "%s%lld", i ? ", " : "", (long long)form->dim[tile->column[i]].to);
	plan_print(id, ">");
	permute_print_batch(id, form, batch);
	plan_print(id, ", %s, %s>", permute_offset_type(form, batch->outer), loop ? "true" : "false");
}

bool permute_tile(const struct permute_form *form, const struct kernel_limits *limits,
				  struct kernel_plan *out, struct plan_text *why)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct permute_batch batch;
	struct tile tile;
	uint64_t blocks;
	bool loop;

	if (!tile_find(form, &tile, why))
		return false;
	permute_batch(form, tile.row_mask | tile.column_mask, &batch);
	if (too_small(form, &batch, "tile", why))
		return false;
	choose_sizes(form, limits, &tile);
	out->shared_bytes = tile_bytes(&tile, form->element);
	if (out->shared_bytes > limits->shared_default && tile.tile_rows != WIDE_SIDE) {
		plan_print(why, "not tile: %u bytes of shared memory; ", out->shared_bytes);
		return false;
	}
	if (tile.threads > limits->max_threads) {
		plan_print(why, "not tile: %u threads; ", tile.threads);
		return false;
	}
	blocks = (uint64_t)batch.items * (uint64_t)((tile.rows + tile.tile_rows - 1) / tile.tile_rows) *
			 (uint64_t)((tile.columns + tile.tile_columns - 1) / tile.tile_columns);
	loop = permute_grid(out, limits, blocks, 1, tile.threads);
	tile_print(form, &tile, &batch, loop, &id);
	permute_batch_args(out, form, &batch, blocks);
	out->extents[0].alignment = tile.load;
	out->extents[1].alignment = tile.store;
	plan_print(why, "%lld rows by %lld columns in tiles of %u by %u, %u bytes a load, %u a store",
			   (long long)tile.rows, (long long)tile.columns, tile.tile_rows, tile.tile_columns,
			   tile.load, tile.store);
	return !id.full;
}
