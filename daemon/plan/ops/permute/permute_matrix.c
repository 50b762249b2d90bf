/*
 * permute_matrix.c: which dimensions of a canonical form are the rows and the columns of a
 * transpose.  Knows no variant.
 */
#include "permute.h"

#include <string.h>

static bool grow_rows(const struct permute_form *form, struct permute_matrix *matrix)
{
	int next = matrix->first_row - 1;

	if (next < 0 || (matrix->column_mask & 1u << next) ||
		matrix->rows > INT32_MAX / form->dim[next].size)
		return false;
	matrix->row_mask |= 1u << next;
	matrix->rows *= form->dim[next].size;
	matrix->first_row = next;
	return true;
}

static bool grow_columns(const struct permute_form *form, struct permute_matrix *matrix)
{
	for (int k = 0; k < form->rank; k++) {
		const struct permute_dim *dim = &form->dim[k];
		if (((matrix->row_mask | matrix->column_mask) & 1u << k) ||
			dim->from != matrix->columns * matrix->step || matrix->columns > INT32_MAX / dim->size)
			continue;
		matrix->column_mask |= 1u << k;
		matrix->column[matrix->column_dims++] = k;
		matrix->columns *= dim->size;
		return true;
	}
	return false;
}

static bool wants_more(int64_t size, uint32_t side)
{
	return size % side != 0 && size < 8 * (int64_t)side;
}

#define LEAST_PIECE 64 /* bytes of a row that are worth a tile's columns by themselves */

/*
 * Is the next dimension of y the one that continues x's rows too?  As columns it would leave runs
 * of y that end with the rows there are, from which the next column's run is far; as rows it makes
 * them longer, and what of x lies side by side comes soon after each other.
 */
static bool both_want(const struct permute_form *form, const struct permute_matrix *matrix)
{
	const int next = matrix->first_row - 1;

	return next >= 0 && form->dim[next].from == matrix->columns * matrix->step &&
		   matrix->columns * form->element >= LEAST_PIECE;
}

/* Takes further dimensions into the shorter side first, until tiles fill well. */
static void permute_matrix_grow(const struct permute_form *form, uint32_t side,
								struct permute_matrix *matrix)
{
	bool rows = true, columns = true;

	while (rows || columns) {
		rows = rows && wants_more(matrix->rows, side);
		columns = columns && wants_more(matrix->columns, side);
		if (rows && (!columns || matrix->rows <= matrix->columns ||
					 (side != UINT32_MAX && both_want(form, matrix))))
			rows = grow_rows(form, matrix);
		else if (columns)
			columns = grow_columns(form, matrix);
	}
}

#define ROWS_ALONE (UINT32_MAX - 1) /* a side: rows take all dimensions down to the columns */

bool permute_matrix_find(const struct permute_form *form, uint32_t side, const char *variant,
						 struct permute_matrix *matrix, struct plan_text *why)
{
	int last = form->rank - 1, fast = permute_fastest(form);

	memset(matrix, 0, sizeof(*matrix));
	if (form->huge || fast < 0 || fast == last || form->dim[last].from == 0) {
		plan_print(why, "not %s: %s; ", variant,
				   form->huge ? "a size is beyond 31 bits" : "nothing to transpose");
		return false;
	}
	matrix->step = form->dim[fast].from;
	/* Neighbours further apart than a sector share nothing that a tile could save. */
	if (matrix->step > 1 && matrix->step > 16 / (int64_t)form->element) {
		plan_print(why, "not %s: x has no dimension with neighbours closer than %lld elements; ",
				   variant, (long long)matrix->step);
		return false;
	}
	matrix->row_mask = 1u << last;
	matrix->first_row = last;
	matrix->column_mask = 1u << fast;
	matrix->column[matrix->column_dims++] = fast;
	matrix->rows = form->dim[last].size;
	matrix->columns = form->dim[fast].size;
	if (side == ROWS_ALONE)
		while (grow_rows(form, matrix))
			;
	else if (side)
		permute_matrix_grow(form, side, matrix);
	if (matrix->rows < 4 || matrix->columns < 4) {
		plan_print(why, "not %s: %lld rows by %lld columns; ", variant, (long long)matrix->rows,
				   (long long)matrix->columns);
		return false;
	}
	matrix->store = permute_width(form, false, matrix->rows, matrix->row_mask);
	matrix->apart = matrix->apart_x = 128;
	for (int k = 0; k < form->rank; k++) {
		while (!(matrix->row_mask & 1u << k) && form->dim[k].to * form->element % matrix->apart)
			matrix->apart /= 2;
		while (!(matrix->column_mask & 1u << k) &&
			   form->dim[k].from * form->element % matrix->apart_x)
			matrix->apart_x /= 2;
	}
	matrix->load = form->element;
	if (matrix->step == 1)
		matrix->load = permute_width(form, true, matrix->columns, matrix->column_mask);
	permute_batch(form, matrix->row_mask | matrix->column_mask, false, &matrix->batch);
	return true;
}

#define SKEWED_LEAST 32       /* rows */
#define SKEWED_LEAST_BYTES 64 /* of rows and columns */
/* Rows that are taken all at once: then shared memory holds 128 bytes of each for a few blocks. */
#define SKEWED_RUN 512 /* at most */
#define SKEWED_RUN_BYTES 640

#define SKEWED_MANY 1024 /* bytes of a row and of a column */
#define PAIRED_ROWS 48   /* of 8 bytes, whose columns are stored one by one */
#define CUT_ROWS 256     /* of bytes, which one tile takes */

#define SKEWED_COLUMNS 24 /* words */
#define SKEWED_ROWS 512   /* halves that are worth it though their vectors are of 8 bytes */

/* Are there columns of bytes that a tile would cut, and that begin between sectors? */
static bool is_cut(const struct permute_matrix *matrix, uint32_t element)
{
	return element == 1 && matrix->store == 16 && matrix->apart < 32 &&
		   matrix->rows > CUT_ROWS / 2 && matrix->rows <= CUT_ROWS;
}

/* Are vectors wide enough for tiles? */
static bool is_wide(const struct permute_matrix *matrix, uint32_t element)
{
	if (element == 8)
		return matrix->load == 16 && (matrix->store == 16 || (matrix->rows >= PAIRED_ROWS &&
															  matrix->rows < PERMUTE_LOW_ROWS));
	/* Columns of y that begin between two sectors share them. */
	if ((element == 4 && matrix->columns >= SKEWED_COLUMNS) ||
		(element == 2 && matrix->rows >= SKEWED_ROWS))
		return matrix->load == 16 && matrix->store == 16 && matrix->apart >= 32;
	if (element == 4)
		return matrix->store == 16 || (matrix->store == 8 && matrix->load == 16);
	if (is_cut(matrix, element))
		return false;
	/* Long columns of bytes that begin between vectors, and rows of halves that do, are not. */
	if (element == 1)
		return matrix->load >= 4 && matrix->store >= (matrix->rows > CUT_ROWS ? 16 : 8);
	return matrix->load >= 8 && matrix->store >= 8;
}

/* Do y's columns follow one another, and are they short enough for a block? */
static bool is_run(const struct permute_matrix *matrix, int64_t element)
{
	return (element < 8 || (element == 8 && matrix->load < 16)) &&
		   matrix->column[0] == matrix->first_row - 1 && matrix->rows <= SKEWED_RUN &&
		   matrix->rows * element <= (element == 8 ? 2 : 1) * SKEWED_RUN_BYTES &&
		   matrix->store < 16;
}

bool permute_skewed_find(const struct permute_form *form, uint32_t side, const char *variant,
						 struct permute_matrix *matrix, bool *run, struct plan_text *why)
{
	int64_t element = form->element;
	bool alone = permute_matrix_find(form, 0, variant, matrix, why);

	*run = alone && is_run(matrix, element);
	if (!*run && !permute_matrix_find(form, side, variant, matrix, why))
		return false;
	if (alone && !*run && element < 8 && !is_wide(matrix, form->element)) {
		struct permute_matrix rows;
		*run = permute_matrix_find(form, ROWS_ALONE, variant, &rows, why) && is_run(&rows, element);
		if (*run)
			*matrix = rows;
	}
	/* A box makes longer runs of bytes than a tile if many dimensions are all short, and its size
	 * suits few rows, which a tile would leave empty. */
	if (!alone &&
		((element == 1 && (matrix->rows < SKEWED_MANY || matrix->columns < SKEWED_MANY)) ||
		 8 * (uint64_t)matrix->rows < 7 * side * permute_tiles((uint64_t)matrix->rows, side))) {
		plan_print(why, "not %s: rows are not enough for tiles; ", variant);
		return false;
	}
	if (element > 8 || matrix->step != 1 || is_wide(matrix, form->element)) {
		plan_print(why, "not %s: vectors of %u and %u bytes are wide enough; ", variant,
				   matrix->load, matrix->store);
		return false;
	}
	if (matrix->rows < SKEWED_LEAST || matrix->rows * element < SKEWED_LEAST_BYTES ||
		matrix->columns * element < SKEWED_LEAST_BYTES) {
		plan_print(why, "not %s: %lld rows by %lld columns; ", variant, (long long)matrix->rows,
				   (long long)matrix->columns);
		return false;
	}
	return !permute_too_small(form, &matrix->batch, variant, why);
}

void permute_matrix_print_columns(const struct permute_form *form,
								  const struct permute_matrix *matrix, struct plan_text *id)
{
	plan_print(id, ", List<");
	for (int i = 0; i < matrix->column_dims - 1; i++)
		plan_print(id, "%s%lld", i ? ", " : "", (long long)form->dim[matrix->column[i]].size);
	plan_print(id, ">, List<");
	for (int i = 0; i < matrix->column_dims; i++)
		plan_print(id, "%s%lld", i ? ", " : "", (long long)form->dim[matrix->column[i]].to);
	plan_print(id, ">");
}

void permute_matrix_print(const struct permute_form *form, const struct permute_matrix *matrix,
						  struct plan_text *id)
{
	/* The slowest of rows and columns is what remains when the others are divided out. */
	permute_print_list(id, form, matrix->row_mask & ~(1u << matrix->first_row), PERMUTE_SIZE);
	permute_print_list(id, form, matrix->row_mask, PERMUTE_FROM);
	permute_matrix_print_columns(form, matrix, id);
}

bool permute_skewed_fits(const struct permute_choice *c, uint32_t shared,
						 const struct kernel_limits *limits, struct plan_text *why)
{
	if (c->threads > limits->max_threads) {
		plan_print(why, "a block has at most %u threads", limits->max_threads);
		return false;
	}
	if (shared > limits->shared_optin) {
		plan_print(why, "a block has at most %u bytes of shared memory, not %u",
				   limits->shared_optin, shared);
		return false;
	}
	return true;
}

uint32_t permute_even_side(int64_t size, uint32_t side, uint32_t unit, int more)
{
	int64_t tiles = (size + side / 2) / side + more, even;

	tiles = tiles < 1 ? 1 : tiles;
	even = (size + tiles - 1) / tiles;
	return (uint32_t)((even + unit - 1) / unit * unit);
}

uint32_t permute_band(const struct permute_choice *c, const struct permute_matrix *matrix)
{
	const uint64_t tiles = permute_tiles((uint64_t)matrix->rows, c->rows);
	const uint32_t all = tiles < UINT32_MAX ? (uint32_t)tiles : UINT32_MAX;

	return c->band == PERMUTE_BAND_ALL || c->band > all ? all : c->band;
}

#define NEAR_BAND 8          /* tiles of rows, behind which the next columns follow */
#define NEAR_BYTES (9 << 20) /* of a strip of columns, which the cache holds with what is written */

uint32_t permute_near_band(const struct permute_matrix *matrix, uint32_t columns, uint32_t element)
{
	return element < 8 && matrix->apart_x < 128 && matrix->columns > columns &&
				   matrix->rows * columns * element > NEAR_BYTES
			   ? NEAR_BAND
			   : PERMUTE_BAND_ALL;
}

uint64_t permute_matrix_blocks(const struct permute_matrix *matrix, const struct permute_choice *c)
{
	return (uint64_t)matrix->batch.items * permute_tiles((uint64_t)matrix->rows, c->rows) *
		   permute_tiles((uint64_t)matrix->columns, c->columns);
}
