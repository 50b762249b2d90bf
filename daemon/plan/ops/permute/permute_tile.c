/*
 * permute_tile.c: transposes in tiles through registers and shared memory.
 */
#include "permute.h"

#define WIDE_SIDE 256u
#define MANY_COLUMNS 1024 /* of which the last tile is a small part */

#define LEAST_COLUMN 40 /* bytes: shorter ones share most of their sectors */
#define LONG_ROW 320    /* elements */
#define BETWEEN 256     /* rows of bytes or halves, which one tile takes */

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

/* Blocks that walk along x, or in bands, walk through all that follows in either tensor. */
static bool permute_tile_find(const struct permute_form *form, uint32_t band,
							  struct permute_matrix *matrix, struct plan_text *why)
{
	uint32_t side = form->element == 1 ? WIDE_SIDE : tile_side(form->element);

	if (band != PERMUTE_BAND_ALL)
		side = UINT32_MAX;
	return permute_matrix_find(form, side, "tile", matrix, why) &&
		   !permute_too_small(form, &matrix->batch, "tile", why);
}

static uint32_t tile_bytes(const struct permute_choice *c, uint32_t element)
{
	return c->rows * c->columns * element;
}

/* Threads that store one column together. */
static uint32_t runs(const struct permute_choice *c, uint32_t element)
{
	return c->rows * element / c->store;
}

/* ---- Making ---- */

static bool power_of_two(uint32_t n)
{
	return n && !(n & (n - 1));
}

/* The rules of the kernel's geometry. */
static bool geometry(const struct permute_choice *c, const struct permute_matrix *matrix,
					 uint32_t element, struct plan_text *why)
{
	uint32_t chunks = c->rows * element / 16, piece = c->block * element;
	const char *rule = NULL;

	if (!power_of_two(c->load) || c->load < element || c->load > matrix->load ||
		!power_of_two(c->store) || c->store < element || c->store > matrix->store)
		rule = "loads and stores are at least an element and at most what the strides are "
			   "multiples of";
	else if (!c->rows || c->rows * element % 16 || (!power_of_two(chunks) && chunks % 8))
		rule = "rows are 1, 2, 4 or a multiple of 8 times 16 bytes";
	else if (!c->columns || c->columns % (c->load / element))
		rule = "columns are whole loads";
	else if (!power_of_two(c->block) || piece < 4 || piece > 16)
		rule = "rows of a thread are 4, 8 or 16 bytes";
	else if (c->threads < 32 || c->threads % 32 || c->threads % runs(c, element))
		rule = "threads are whole warps, and whole columns of stores";
	if (rule)
		plan_print(why, "%s", rule);
	return !rule;
}

static bool permute_tile_fits(const struct permute_choice *c, const struct kernel_limits *limits,
							  uint32_t element, struct plan_text *why)
{
	/* Bounds first, so that nothing overflows. */
	if (c->rows > 1024 || c->columns > 1024 || tile_bytes(c, element) > limits->shared_optin) {
		plan_print(why, "a block has at most %u bytes of shared memory", limits->shared_optin);
		return false;
	}
	if (c->threads > limits->max_threads) {
		plan_print(why, "a block has at most %u threads", limits->max_threads);
		return false;
	}
	return true;
}

static bool permute_tile_make(const struct permute_form *form, const struct kernel_limits *limits,
							  const struct permute_choice *c, struct kernel_plan *out,
							  struct plan_text *why)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct permute_matrix matrix;
	uint64_t blocks;
	bool loop;

	if (!permute_tile_find(form, c->band, &matrix, why) ||
		!permute_tile_fits(c, limits, form->element, why) ||
		!geometry(c, &matrix, form->element, why))
		return false;
	permute_batch(form, matrix.row_mask | matrix.column_mask, c->band == 1, &matrix.batch);
	out->shared_bytes = tile_bytes(c, form->element);
	blocks = permute_matrix_blocks(&matrix, c);
	loop = plan_launch(out, limits, blocks, c->threads);
	plan_print(&id, "permute_tile<%u, %u, %u, %u, %u, %u, %u, %u, %lld, %lld, %lld", form->element,
			   c->rows, c->columns, c->block, c->load, c->store, c->threads,
			   permute_band(c, &matrix), (long long)matrix.rows, (long long)matrix.columns,
			   (long long)matrix.step);
	permute_matrix_print(form, &matrix, &id);
	permute_print_batch(&id, form, &matrix.batch);
	plan_print(&id, ", %s, %s>", permute_offset_type(form, matrix.batch.outer),
			   loop ? "true" : "false");
	permute_batch_args(out, form, &matrix.batch, blocks);
	out->extents[0].alignment = c->load;
	out->extents[1].alignment = c->store;
	plan_print(why, "%lld rows by %lld columns in tiles of %u by %u, %u bytes a load, %u a store",
			   (long long)matrix.rows, (long long)matrix.columns, c->rows, c->columns, c->load,
			   c->store);
	return !id.full;
}

/* ---- Suggesting ---- */

/* Picks side, side/2, ...: the one that covers size with the least padding and the fewest short
 * runs, whose edges count as so many bytes. */
static uint32_t pick_side(int64_t size, uint32_t side, uint32_t element, uint32_t edge)
{
	uint32_t best = side;
	int64_t cost = INT64_MAX;

	for (uint32_t t = side; t * element >= 32 && t >= 4; t /= 2) {
		int64_t c = (size + t - 1) / t * (t * element + edge);
		if (c < cost || (c == cost && edge > 64 && size % t == 0)) {
			cost = c;
			best = t;
		}
	}
	return best;
}

/* Rows of a thread's block: 16 bytes of wide elements; fewer for many at once, which cost
 * registers. */
static uint32_t pick_block(const struct permute_choice *c, uint32_t element)
{
	if (element == 1)
		return c->rows == WIDE_SIDE && c->columns == WIDE_SIDE ? 16 : 8;
	return 16 / element;
}

/* A thread loads at least once; a column is stored by one pass of the block. */
static uint32_t pick_threads(const struct permute_choice *c, uint32_t element, uint32_t max_threads)
{
	/* A thread loads this much at once: it turns a block. */
	uint32_t slots = c->rows / c->block * (c->columns / (c->load / element));
	uint32_t most = max_threads < 256 ? max_threads : 256, step = runs(c, element), threads;

	while (step % 32)
		step *= 2;
	threads = most / step * step;
	while (threads > step && threads - step >= slots)
		threads -= step;
	/* Passes of equal length. */
	for (uint32_t t = threads; t > threads / 2; t -= step)
		if (slots % t == 0)
			return t;
	return threads ? threads : step;
}

/* Bytes in large matrices: 256 rows and columns keep both sides' runs at 256 bytes. */
static bool wide_tile(const struct permute_form *form, const struct kernel_limits *limits,
					  const struct permute_matrix *matrix)
{
	return form->element == 1 && matrix->rows >= 2048 && matrix->columns >= 2048 &&
		   matrix->load == 16 && matrix->store == 16 &&
		   limits->shared_optin >= WIDE_SIDE * WIDE_SIDE && limits->max_threads >= 256;
}

static void shrink(struct permute_choice *c, uint32_t element, uint32_t most)
{
	while (tile_bytes(c, element) > most && c->rows * element > 32)
		c->rows /= 2;
	while (tile_bytes(c, element) > most && c->columns * element > 32)
		c->columns /= 2;
}

/* If both sides have several dimensions, neighbours in x are the better company. */
static uint32_t pick_band(const struct permute_form *form)
{
	struct permute_matrix all;
	char reason[256];
	struct plan_text unsaid = {.text = reason, .size = sizeof(reason)};

	return permute_tile_find(form, 1, &all, &unsaid) && all.row_mask & (all.row_mask - 1) &&
				   all.column_dims > 1
			   ? 1
			   : PERMUTE_BAND_ALL;
}

/* If a thread needs few registers, twice as many store, though half of them load nothing; not where
 * narrow loads of words already are as many.  kept: sides for which as many as load are enough. */
static void double_threads(struct permute_choice *c, const struct permute_matrix *matrix,
						   uint32_t element, bool kept, uint32_t max_threads)
{
	bool narrow = element < 4 && (c->load < 16 || c->store < 16), more = false;

	if (element == 16)
		more = matrix->columns >= WIDE_SIDE && c->rows == tile_side(element);
	else if (element == 4)
		more = c->load == 16 && (matrix->columns >= MANY_COLUMNS || c->threads < 256);
	else if (narrow)
		more = !kept && (c->load < 16 || c->rows != 64);
	else if (element == 2)
		more = !kept && c->threads < 256;
	if (more && c->threads <= 256 && 2 * c->threads <= max_threads &&
		tile_bytes(c, element) / c->store >= 2 * c->threads)
		c->threads *= 2;
}

static struct permute_choice pick(const struct permute_form *form,
								  const struct kernel_limits *limits,
								  const struct permute_matrix *matrix)
{
	uint32_t element = form->element, side = tile_side(element);
	struct permute_choice c = {.load = matrix->load, .store = matrix->store};

	/* Rows of bytes that begin at no multiple of 128 are cut into shorter loads, whose warps
	 * straddle fewer of them. */
	if (element == 1 && c.load == 16 && form->dim[form->rank - 1].from % 128)
		c.load = 8;
	/* Words one by one: smaller tiles, if they cover less that is not there. */
	if (element == 4 && c.load == 4)
		side = 32;
	c.rows = pick_side(matrix->rows, side, element, element == 4 ? 128 : 64);
	if (element == 4 && matrix->columns >= MANY_COLUMNS)
		side = 64;
	else if (element == 4 && c.load == 16 && matrix->rows >= 128 && matrix->columns > 64)
		side = 32;
	c.columns = pick_side(matrix->columns, side, element, 64);
	if (wide_tile(form, limits, matrix)) {
		c.rows = c.columns = WIDE_SIDE;
		c.load = 16;
	} else {
		shrink(&c, element, limits->shared_default);
		/* Short rows whole, rather than a tile that is partly empty. */
		if (matrix->columns < c.columns && matrix->columns % (c.load / element) == 0)
			c.columns = (uint32_t)matrix->columns;
	}
	/* Bytes: the longer side is read. */
	if (element == 1 && c.rows == 128 && c.columns == 128 && c.load == 16 &&
		matrix->columns % 256 == 0) {
		c.rows = 64;
		c.columns = 256;
	}
	bool between =
		element < 4 && c.store < 16 && matrix->rows > BETWEEN / 2 && matrix->rows <= BETWEEN;
	if (between) {
		c.rows = BETWEEN;
		c.columns = c.columns < 64 ? c.columns : 64;
	}
	/* If stores are of single elements, a tile has long columns, and few of them. */
	if (element == 8 && c.load == 16 && c.store == 8 && matrix->rows > side &&
		!(matrix->row_mask & (matrix->row_mask - 1))) {
		c.rows = 64;
		c.columns = 16;
	}
	/* A tile of few rows has longer ones. */
	bool few = element < 4 && c.load == 16 && c.store >= 8 && c.rows == 32 && c.columns == 128 &&
			   matrix->columns >= LONG_ROW;
	/* Rows of three vectors: more threads, of two rows each. */
	bool thin = element == 2 && c.load == 16 && c.store == 16 && c.rows == side &&
				c.columns * element > 2 * 16 && c.columns * element <= 3 * 16;
	if (few)
		c.columns = 256;
	c.block = thin ? 2 : pick_block(&c, element);
	c.threads = pick_threads(&c, element, limits->max_threads);
	double_threads(&c, matrix, element, between || few || thin, limits->max_threads);
	c.band = pick_band(form);
	if (c.band == PERMUTE_BAND_ALL)
		c.band = permute_near_band(matrix, c.columns, element);
	return c;
}

static void suggest_tile(struct permute_list *list, const struct permute_choice *first,
						 uint32_t rows, uint32_t columns)
{
	struct permute_choice c = *first;

	c.rows = rows;
	c.columns = columns;
	if (!rows || !columns || columns % (c.load / list->form->element) || rows < c.block)
		return;
	/* Fewer than three resident blocks have nobody to wait for them. */
	if (tile_bytes(&c, list->form->element) > list->limits->shared_optin / 3)
		return;
	c.threads = pick_threads(&c, list->form->element, list->limits->max_threads);
	permute_suggest(list, &c);
}

/* The largest side, at most twice what was picked, that divides size. */
static uint32_t exact_side(int64_t size, uint32_t picked, uint32_t unit)
{
	for (uint32_t side = 2 * picked / unit * unit; side > picked / 2; side -= unit)
		if (size % side == 0)
			return side;
	return 0;
}

/* Other cuts of the same tile. */
static void suggest_cuts(struct permute_list *list, const struct permute_choice *first)
{
	const uint32_t element = list->form->element, narrow = first->load / 2;

	for (uint32_t load = first->load; load >= 4 && load >= element && load >= narrow; load /= 2) {
		for (uint32_t piece = 16; piece >= 4 && piece > element; piece /= 2) {
			struct permute_choice c = *first;
			c.load = load;
			c.block = piece / element;
			c.threads = pick_threads(&c, element, list->limits->max_threads);
			permute_suggest(list, &c);
		}
	}
	struct permute_choice c = *first;
	c.threads = 2 * first->threads;
	permute_suggest(list, &c);
	c.threads = first->threads / 2;
	permute_suggest(list, &c);
}

/* Suggests candidates around the one picked: other orders, other tiles, other cuts of the same
 * tile. */
static void permute_tile_suggest(struct permute_list *list, struct plan_text *why)
{
	static const uint32_t bands[] = {PERMUTE_BAND_ALL, 1, 4, 8, 16, 32};
	const uint32_t element = list->form->element;
	struct permute_matrix matrix;
	struct permute_choice first, other;

	if (!permute_tile_find(list->form, PERMUTE_BAND_ALL, &matrix, why))
		return;
	first = pick(list->form, list->limits, &matrix);
	permute_suggest(list, &first);
	if (list->count == 0)
		plan_print(why, "not tile: %ux%u elements and %u threads do not fit a block; ", first.rows,
				   first.columns, first.threads);
	other = first;
	for (size_t i = 0; i < sizeof(bands) / sizeof(bands[0]); i++) {
		other.band = bands[i];
		permute_suggest(list, &other);
	}
	for (uint32_t rows = 2 * first.rows; rows >= first.rows / 2; rows /= 2)
		for (uint32_t columns = 2 * first.columns; columns >= first.columns / 2; columns /= 2)
			suggest_tile(list, &first, rows, columns);
	suggest_tile(list, &first, first.rows,
				 exact_side(matrix.columns, first.columns, first.load / element));
	suggest_tile(list, &first, exact_side(matrix.rows, first.rows, 128 / element), first.columns);
	for (int more = 0; more <= 1; more++) {
		uint32_t unit = first.load / element;
		uint32_t columns = permute_even_side(matrix.columns, first.columns, unit, more);
		uint32_t rows = permute_even_side(matrix.rows, first.rows, 128 / element, more);
		suggest_tile(list, &first, first.rows, columns);
		suggest_tile(list, &first, rows, first.columns);
		suggest_tile(list, &first, rows, columns);
	}
	suggest_cuts(list, &first);
}

bool permute_tile_full(const struct permute_form *form, const struct permute_choice *c)
{
	struct permute_matrix matrix;
	char reason[256];
	struct plan_text unsaid = {.text = reason, .size = sizeof(reason)};

	return permute_tile_find(form, c->band, &matrix, &unsaid) && 2 * matrix.rows > c->rows &&
		   2 * matrix.columns > c->columns && matrix.rows * form->element >= LEAST_COLUMN;
}

const struct permute_variant permute_tile = {
	.name = "tile",
	.source = "ops/permute_tile.cuh",
	.fields = "xklsto",
	.suggest = permute_tile_suggest,
	.make = permute_tile_make,
};
