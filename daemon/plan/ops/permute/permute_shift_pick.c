/*
 * permute_shift_pick.c: which tiles suit a transpose of unaligned rows, the best first.
 */
#include "permute_shift.h"

#define WHOLE_COLUMNS 160 /* halves of a row that one tile takes */
#define HIGH_COLUMNS 136  /* of a tile with twice the rows, where columns of y are aligned */
#define MOST_WHOLE 320    /* bytes of a column that one tile takes */
#define MOST_ALIGNED 256  /* of halves in aligned columns */
#define FEW_TILES 1024    /* of 128x128: lower ones leave fewer multiprocessors idle at the end */
#define ONE_PASS 288      /* threads that load a tile in one go, as many as suit four blocks */
#define MOST_THREADS 416
#define LEAST_ONCE 96 /* bytes of a row that are enough for a tile then */
#define ONE_LARGE 384 /* as many as suit three blocks */
#define LEAST_LARGE 64
#define LINE 128 /* bytes */
#define SECTOR 32
#define FEW_ROWS 128
#define FAR_APART (1 << 18) /* bytes: so far apart, short pieces of rows cost more than they save */

/* Picks so many threads that each loads `passes` times. */
static uint32_t pick_threads(const struct permute_choice *c, const struct shift_shape *shape,
							 uint32_t element, uint32_t passes)
{
	uint32_t step = shape->run ? 32 : c->rows * element / 16;

	while (step % 32)
		step *= 2;
	return (uint32_t)permute_tiles(permute_tiles(shape->slots, passes), step) * step;
}

/* Tiles of `columns`, or as few of equal size as shared memory lets three blocks be resident. */
static uint32_t pick_columns(const struct permute_choice *c, const struct permute_matrix *matrix,
							 const struct kernel_limits *limits, bool run, uint32_t element)
{
	const uint64_t columns = (uint64_t)matrix->columns;
	const uint32_t unit = 16 / element, bytes = limits->shared_optin / 3 - 1024;
	const uint32_t chunks = permute_shift_shape(c, matrix, run, element, 16).chunks | 1;
	const uint32_t fit = (bytes / 16 - 1) / chunks, least = 64 / element;
	const uint64_t most = (fit > least ? fit : least) / unit * unit;

	return (uint32_t)permute_tiles(permute_tiles(columns, permute_tiles(columns, most)), unit) *
		   unit;
}

/* A way of cutting tiles, and for how many threads registers are to be enough: the more there are,
 * the more loads are under way, but no kernel may spill.  0: for as many as it happens. */
struct cut {
	uint32_t piece, load; /* bytes of a thread's block, down and along */
	uint32_t threads;
};

static void suggest_cut(struct permute_list *list, const struct permute_matrix *matrix, bool run,
						const struct permute_choice *tile, const struct cut *cut)
{
	const uint32_t element = list->form->element;
	struct permute_choice c = *tile;
	struct shift_shape shape;

	c.load = cut->load;
	c.block = cut->piece / element;
	shape = permute_shift_shape(&c, matrix, run, element,
								permute_shift_align(list->variant, matrix, element));
	for (uint32_t passes = 1; passes <= 4; passes++) {
		c.threads = pick_threads(&c, &shape, element, passes);
		if (c.threads < 96 || c.threads > (shape.run && element == 8 ? ONE_PASS : MOST_THREADS))
			continue;
		c.resident = cut->threads < c.threads ? 1 : cut->threads / c.threads;
		/* Three blocks have registers enough, whether they are asked for or not; if not, they often
		 * take fewer. */
		if (shape.run && c.resident == 3)
			c.resident = 1;
		permute_suggest(list, &c);
	}
}

static void suggest_cuts(struct permute_list *list, const struct permute_matrix *matrix, bool run,
						 const struct permute_choice *tile)
{
	static const struct cut cuts[4][3] = {
		{{8, 8, 1152}, {8, 4, 1152}, {8, 16, 0}},
		{{8, 16, 1152}, {16, 8, 1152}, {8, 8, 1152}},
		{{16, 16, 1152}, {16, 8, 1024}, {8, 16, 1024}},
		{{16, 16, 1152}, {16, 8, 1152}, {8, 16, 1152}},
	};
	const uint32_t element = list->form->element;
	const struct cut *of = cuts[element == 8 ? 3 : element / 2];

	/* Loads of 8 bytes that are aligned need no neighbours; of few rows that begin at lines, which
	 * go to a run of y, they keep more threads busy. */
	if (element == 2 && (run ? matrix->apart_x >= LINE && matrix->rows < FEW_ROWS
							 : matrix->load == 8 && matrix->apart < SECTOR))
		suggest_cut(list, matrix, run, tile, &of[1]);
	for (int i = 0; i < 3; i++)
		suggest_cut(list, matrix, run, tile, &of[i]);
}

/* Tiles of equal sizes, where those of `side` would leave a narrow one at the end. */
static void suggest_even(struct permute_list *list, const struct permute_matrix *matrix,
						 uint32_t side)
{
	const uint32_t element = list->form->element, unit = 16 / element;
	const struct cut cut = {element == 1 ? 8 : element == 2 ? 8 : 16, element == 1 ? 8 : 16, 1152};

	for (int more = 0; more <= 1; more++) {
		struct permute_choice c = {.rows = side, .columns = side};
		c.band = permute_near_band(matrix, side, element);
		c.columns = permute_even_side(matrix->columns, side, unit, more);
		suggest_cut(list, matrix, false, &c, &cut);
		c.rows = permute_even_side(matrix->rows, side, 4 * unit, more);
		suggest_cut(list, matrix, false, &c, &cut);
		c.columns = side;
		suggest_cut(list, matrix, false, &c, &cut);
	}
}

/* Tiles of equal size if these cover less that is not there. */
static uint32_t shift_side(int64_t size, uint32_t side, uint32_t unit)
{
	uint32_t even = permute_even_side(size, side, unit, 0);

	return 32 * permute_tiles((uint64_t)size, even) * even <
				   31 * permute_tiles((uint64_t)size, side) * side
			   ? even
			   : side;
}

#define LOW_WORDS 80     /* rows of words, of which as many go to smaller tiles */
#define SMALL_TILE 12288 /* bytes: a multiprocessor has many of them */

/* All rows, which lie `apart` bytes apart, of as many columns as threads load in one go, if that is
 * enough of each. */
static uint32_t run_columns(const struct permute_choice *c, const struct permute_matrix *matrix,
							const struct kernel_limits *limits, int64_t apart, uint32_t element)
{
	uint32_t unit = 16 / element, whole = pick_columns(c, matrix, limits, true, element);
	struct permute_choice one = {
		.rows = c->rows, .columns = unit, .load = 16, .block = element == 8 ? 2 : 4};
	uint32_t slots = permute_shift_shape(&one, matrix, true, element, 16).slots;
	uint32_t once = ONE_PASS / slots * unit, large = ONE_LARGE / slots * unit;

	/* Loads of bytes would be too short; and there is little to wait for in a small tile. */
	if (element == 1 || (whole >= matrix->columns && matrix->rows * whole * element <= SMALL_TILE))
		return whole;
	if (element == 2 && once * element >= LEAST_ONCE)
		return once < whole ? once : whole;
	if (element == 2 && large * element >= LEAST_LARGE && apart < FAR_APART)
		return large < whole ? large : whole;
	/* Halves of a tile, or quarters if these are not small. */
	uint32_t parts = element == 8 ? 4 : 2;
	if (element == 4 && c->rows <= LOW_WORDS && c->rows * whole * element >= 4 * SMALL_TILE)
		parts = 4;
	return (uint32_t)permute_tiles(whole / parts, unit) * unit;
}

/* As run_columns(); where rows of x begin at lines, so do the tiles. */
static uint32_t lined_columns(const struct permute_choice *c, const struct permute_matrix *matrix,
							  const struct kernel_limits *limits, int64_t apart, uint32_t element)
{
	uint32_t line = (c->rows <= LOW_WORDS && element == 4 ? LINE / 2 : LINE) / element;
	uint32_t columns = run_columns(c, matrix, limits, apart, element);

	if (matrix->apart_x < LINE || columns >= matrix->columns || element == 1)
		return columns;
	columns = columns < line ? line : columns / line * line;
	/* Two equal tiles, rather than one that is half empty. */
	if (columns < matrix->columns && matrix->columns < 2 * columns)
		columns = (uint32_t)permute_tiles((uint64_t)matrix->columns, 2 * SECTOR / element) *
				  (SECTOR / element);
	return columns;
}

/* Columns of a tile: a row of halves whole if it is not long; else parts of equal size. */
static uint32_t tile_columns(const struct permute_matrix *matrix, uint32_t element)
{
	const uint64_t columns = (uint64_t)matrix->columns;
	uint32_t unit = 16 / element, side = element == 2 ? 64 : permute_shift_side(element);

	if (element == 1)
		return shift_side(matrix->columns, side, unit);
	/* Rows of x that begin anywhere, and aligned columns of y: longer pieces of the former. */
	if (element == 2 && matrix->columns > WHOLE_COLUMNS && matrix->load == 2 && matrix->apart >= 32)
		side = 128;
	else if (element == 2 && matrix->columns <= WHOLE_COLUMNS)
		side = WHOLE_COLUMNS;
	/* A little more than that is better than one more tile, and all of them narrow. */
	else if (element > 2 && matrix->load < 16 &&
			 (columns <= side + side / 8 || columns <= 2 * (side + 4)))
		side += side / 8;
	const uint64_t even = permute_tiles(columns, permute_tiles(columns, side));
	return (uint32_t)permute_tiles(even, unit) * unit;
}

/* Rows of a tile of so many columns: all of them if they are few; else as many as cover the fewest
 * that are not there. */
static uint32_t tile_rows(const struct permute_matrix *matrix, uint32_t columns, uint32_t element)
{
	const uint32_t unit = 32 / element, side = permute_shift_side(element);
	const uint32_t most = element != 2          ? MOST_WHOLE
						  : matrix->store == 16 ? MOST_ALIGNED
												: SHIFT_NARROW;
	/* The number of batches must not change the kernel. */
	const bool few =
		matrix->batch.outer < 0 &&
		permute_tiles((uint64_t)matrix->rows, 128) * permute_tiles((uint64_t)matrix->columns, 128) <
			FEW_TILES;
	const bool low = element == 2 && columns > 64 &&
					 (matrix->columns > WHOLE_COLUMNS
						  ? few
						  : columns > HIGH_COLUMNS || matrix->apart < 32 || matrix->load > 2);
	const uint64_t rows = (uint64_t)matrix->rows, whole = permute_tiles(rows, unit) * unit;
	const uint32_t first = low ? side / 2 : side;
	const uint32_t sides[] = {first, side / 2, whole * element <= most ? (uint32_t)whole : first};
	uint32_t best = first;
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 3 && element > 1; i++) {
		uint64_t cost = permute_tiles(rows, sides[i]) * (sides[i] * (uint64_t)element + 16);
		if (20 * cost < 19 * least) {
			least = cost;
			best = sides[i];
		}
	}
	return best;
}

static void suggest_slim(struct permute_list *list, const struct permute_matrix *matrix)
{
	const uint32_t element = list->form->element, unit = 64 / element;
	const struct cut cut = {8, matrix->load, 1152};
	struct permute_choice c = {.columns = (uint32_t)matrix->columns};

	/* A tile has all columns: bands are the same. */
	for (uint32_t rows = SHIFT_SLIM_ROWS; rows >= SHIFT_SLIM_ROWS / 2; rows /= 2) {
		c.rows = permute_even_side(matrix->rows, rows, unit, 0);
		if (element == 2) {
			/* Halves leave few to wait for in a block. */
			struct permute_choice small = c;
			small.load = cut.load;
			small.block = cut.piece / element;
			small.threads = 128;
			small.resident = cut.threads / small.threads;
			permute_suggest(list, &small);
		}
		suggest_cut(list, matrix, false, &c, &cut);
	}
}

/* Other tiles, the even ones among them. */
static void suggest_others(struct permute_list *list, const struct permute_matrix *matrix, bool run,
						   const struct permute_choice *first)
{
	const uint32_t element = list->form->element, side = permute_shift_side(element);
	struct permute_choice c = *first;

	for (uint32_t parts = 1; run && parts <= 4; parts *= 2) {
		c.columns = pick_columns(&c, matrix, list->limits, true, element);
		c.columns =
			(uint32_t)permute_tiles(permute_tiles(c.columns, parts), 16 / element) * (16 / element);
		suggest_cuts(list, matrix, true, &c);
	}
	c = (struct permute_choice){
		.rows = side, .columns = side, .band = permute_near_band(matrix, side, element)};
	suggest_cuts(list, matrix, false, &c);
	if (!run) {
		c.columns = 2 * side;
		suggest_cuts(list, matrix, false, &c);
		c.rows = 2 * side;
		c.columns = side;
		suggest_cuts(list, matrix, false, &c);
	}
	suggest_even(list, matrix, side);
}

/* Suggests tiles of bytes.  Wide loads, and as many registers as they take, are better than many
 * threads; but if one tile has all rows, as many threads as there is room for are. */
static void suggest_bytes(struct permute_list *list, const struct permute_matrix *matrix)
{
	const struct cut wide = {8, 16, 0}, narrow = {8, 8, 1152};
	struct permute_choice c = {.columns = 128, .band = permute_near_band(matrix, 128, 1)};

	c.rows = matrix->rows <= SHIFT_BYTES ? (uint32_t)permute_tiles((uint64_t)matrix->rows, 64) * 64
										 : SHIFT_BYTES;
	if (matrix->rows <= SHIFT_BYTES)
		suggest_cut(list, matrix, false, &c, &narrow);
	c.rows = SHIFT_BYTES;
	suggest_cut(list, matrix, false, &c, &wide);
}

void permute_shift_suggest(struct permute_list *list, struct plan_text *why)
{
	const uint32_t element = list->form->element;
	struct permute_matrix matrix;
	struct permute_choice c = {.load = 16, .block = 16 / element};
	char reason[256];
	struct plan_text unsaid = {.text = reason, .size = sizeof(reason)};
	bool run;

	/* The note does not mention that rows are aligned. */
	if (!permute_shift_find(list->form, &matrix, &run, &unsaid))
		return;
	if (permute_shift_is_slim(&matrix, element)) {
		suggest_slim(list, &matrix);
		return;
	}
	int64_t apart = list->form->dim[list->form->rank - 1].from * element;
	c.rows = (uint32_t)matrix.rows;
	c.columns = run ? lined_columns(&c, &matrix, list->limits, apart, element)
					: tile_columns(&matrix, element);
	if (!run)
		c.rows = tile_rows(&matrix, c.columns, element);
	/* Runs of y are long enough by themselves. */
	c.band = run ? 1 : permute_near_band(&matrix, c.columns, element);
	if (element == 1 && !run)
		suggest_bytes(list, &matrix);
	suggest_cuts(list, &matrix, run, &c);
	if (list->count) {
		static const uint32_t bands[] = {PERMUTE_BAND_ALL, 1, 2, 4, 8, 16, 32};
		struct permute_choice other = list->choice[0];
		for (size_t i = 0; i < sizeof(bands) / sizeof(bands[0]); i++) {
			other.band = bands[i];
			permute_suggest(list, &other);
		}
		other = list->choice[0];
		other.resident = 1;
		permute_suggest(list, &other);
	}
	if (!run) {
		struct permute_choice other = c;
		other.rows = 2 * c.rows;
		suggest_cuts(list, &matrix, false, &other);
	}
	suggest_others(list, &matrix, run, &c);
	if (list->count == 0)
		plan_print(why, "not shift: no tile fits a block; ");
}
