/*
 * permute_tile_generic.c: transposes whose kernel knows no size: rows, columns, and the tiles that
 * cover them, as arguments.
 */
#include "permute.h"

#include <string.h>

#define THREADS 256u
#define SIDE_DIMS 3   /* of ops/permute_tile_generic.cuh */
#define BATCH_DIMS 5  /* the same */
#define SMALLEST 8192 /* bytes: less is not worth waiting twice in a block */

#define WIDE_ROWS 1u
#define EVEN_ROWS 2u
#define WIDE_COLUMNS 4u
#define RUN 8u
#define ALONG_X 16u

struct tiling {
	struct permute_matrix matrix;
	uint32_t unit;          /* elements of 16 bytes */
	uint32_t rows, columns; /* of a tile */
	uint32_t pitch;         /* chunks of 16 bytes */
	uint32_t flags;
};

/* ---- Which matrix ---- */

static bool permute_tile_generic_fits(const struct permute_matrix *matrix)
{
	return matrix->step == 1 && __builtin_popcount(matrix->row_mask) <= SIDE_DIMS &&
		   matrix->column_dims <= SIDE_DIMS &&
		   matrix->batch.inner + (matrix->batch.outer >= 0) <= BATCH_DIMS;
}

/* A few planes that become elements in turn: no matrix for a tile of constant size. */
static bool find_planes(const struct permute_form *form, struct permute_matrix *matrix)
{
	int last = form->rank - 1, fast = permute_fastest(form);

	if (form->huge || fast < 0 || fast == last || form->dim[fast].from != 1 ||
		form->dim[last].from == 0 || form->dim[last].size > 3 || form->dim[fast].size < 64)
		return false;
	*matrix = (struct permute_matrix){.row_mask = 1u << last,
									  .column_mask = 1u << fast,
									  .first_row = last,
									  .column = {fast},
									  .column_dims = 1,
									  .rows = form->dim[last].size,
									  .columns = form->dim[fast].size,
									  .step = 1};
	matrix->load = permute_width(form, true, matrix->columns, matrix->column_mask);
	matrix->store = permute_width(form, false, matrix->rows, matrix->row_mask);
	permute_batch(form, matrix->row_mask | matrix->column_mask, false, &matrix->batch);
	return true;
}

/* Does as permute_tile.c does: if both sides have several dimensions, blocks walk along x, through
 * all that follows there. */
static bool find_matrix(const struct permute_form *form, uint32_t side, struct tiling *tiling)
{
	char unsaid[256];
	struct plan_text why = {.text = unsaid, .size = sizeof(unsaid)};
	struct permute_matrix *matrix = &tiling->matrix;

	if (permute_matrix_find(form, UINT32_MAX, "", matrix, &why) && matrix->column_dims > 1 &&
		matrix->row_mask & (matrix->row_mask - 1) && permute_tile_generic_fits(matrix)) {
		permute_batch(form, matrix->row_mask | matrix->column_mask, true, &matrix->batch);
		tiling->flags |= ALONG_X;
		return true;
	}
	return (permute_matrix_find(form, side, "", matrix, &why) &&
			permute_tile_generic_fits(matrix)) ||
		   (permute_matrix_find(form, 0, "", matrix, &why) && permute_tile_generic_fits(matrix)) ||
		   (find_planes(form, matrix) && permute_tile_generic_fits(matrix));
}

/* ---- Which tiles ---- */

/* Tiles of about the side, of equal size. */
static uint32_t pick(int64_t size, int64_t side, uint32_t unit)
{
	int64_t count = (size + side / 2) / side;

	return plan_divide_up(plan_divide_up(size, count > 0 ? count : 1), unit) * unit;
}

static uint32_t pitch_of(uint32_t rows, uint32_t unit)
{
	uint32_t chunks = rows / unit;

	return chunks <= 2 ? chunks : chunks <= 4 ? 4 : (chunks + 7) / 8 * 8;
}

/* Chunks change places by eights. */
static uint32_t shared_of(const struct tiling *tiling)
{
	return (tiling->pitch * tiling->columns + 7) / 8 * 128;
}

/* A short side leaves its room to the other. */
static void find_tile(const struct permute_form *form, const struct kernel_limits *limits,
					  struct tiling *tiling)
{
	static const uint32_t sides[17][2] = {
		[1] = {128, 256}, [2] = {128, 128}, [4] = {64, 64}, [8] = {32, 32}, [16] = {32, 32}};
	const struct permute_matrix *matrix = &tiling->matrix;
	uint32_t unit = tiling->unit, rows = sides[form->element][0];
	uint32_t columns = sides[form->element][1], area = rows * columns;

	tiling->rows = pick(matrix->rows, rows, unit);
	if (tiling->rows < rows)
		columns = area / (pitch_of(tiling->rows, unit) * unit);
	tiling->columns = pick(matrix->columns, columns, unit);
	if (tiling->columns < columns && tiling->rows >= rows) {
		rows = area / tiling->columns;
		tiling->rows = pick(matrix->rows, rows, unit);
	}
	tiling->pitch = pitch_of(tiling->rows, unit);
	while (shared_of(tiling) > limits->shared_default) {
		uint32_t *larger = tiling->columns >= tiling->rows ? &tiling->columns : &tiling->rows;
		*larger = plan_divide_up(*larger / 2, unit) * unit;
		tiling->pitch = pitch_of(tiling->rows, unit);
	}
}

static void find_flags(const struct permute_form *form, struct tiling *tiling)
{
	const struct permute_matrix *matrix = &tiling->matrix;
	const struct permute_dim *row = &form->dim[form->rank - 1];
	bool one = (matrix->row_mask & (matrix->row_mask - 1)) == 0;
	/* Rows of a thread: 16 bytes of them, or 8. */
	int64_t rows = form->element == 1 ? 8 : tiling->unit;

	if (matrix->load == 16)
		tiling->flags |= WIDE_ROWS;
	if (one || row->size % rows == 0)
		tiling->flags |= EVEN_ROWS;
	if (matrix->store == 16)
		tiling->flags |= WIDE_COLUMNS;
	if (matrix->column_dims == 1 && tiling->rows >= matrix->rows &&
		form->dim[matrix->column[0]].to == matrix->rows)
		tiling->flags |= RUN;
}

/* Returns how many stores a column of a tile takes; the kernel counts stores like this. */
static uint32_t stores_of(const struct permute_form *form, const struct tiling *tiling)
{
	const struct permute_matrix *matrix = &tiling->matrix;
	uint32_t rows = tiling->rows;

	if (tiling->flags & WIDE_COLUMNS)
		return rows / tiling->unit;
	if (form->element < 4 && !(tiling->flags & RUN))
		return rows * form->element / 4 + 1;
	return matrix->rows < rows ? (uint32_t)matrix->rows : rows;
}

/* ---- The plan ---- */

static void pass_side(const struct permute_form *form, const int *dims, int count, bool in_x,
					  struct kernel_plan *out)
{
	for (int i = 0; i < SIDE_DIMS - 1; i++)
		plan_arg_divisor(out, 4, i < count ? (uint64_t)form->dim[dims[i]].size : 1);
	for (int i = 0; i < SIDE_DIMS; i++) {
		const struct permute_dim *dim = &form->dim[dims[i < count ? i : 0]];
		plan_arg_scalar(out, 8, i >= count ? 0 : (uint64_t)(in_x ? dim->from : dim->to));
	}
}

static void pass_batch(const struct permute_form *form, const struct permute_batch *batch,
					   struct kernel_plan *out)
{
	int count = batch->inner + (batch->outer >= 0);

	for (int i = 0; i < BATCH_DIMS - 1; i++)
		plan_arg_divisor(out, 4, i < count ? (uint64_t)form->dim[batch->dim[i]].size : 1);
	for (int i = 0; i < BATCH_DIMS; i++)
		plan_arg_scalar(out, 8, i < count ? (uint64_t)form->dim[batch->dim[i]].from : 0);
	for (int i = 0; i < BATCH_DIMS; i++)
		plan_arg_scalar(out, 8, i < count ? (uint64_t)form->dim[batch->dim[i]].to : 0);
}

static void pass_tiling(const struct permute_form *form, const struct tiling *tiling, uint64_t work,
						struct kernel_plan *out)
{
	const struct permute_matrix *matrix = &tiling->matrix;
	uint32_t row_tiles = plan_divide_up(matrix->rows, tiling->rows);
	uint32_t column_tiles = plan_divide_up(matrix->columns, tiling->columns);
	bool along_x = tiling->flags & ALONG_X;
	int rows[PERMUTE_MAX_DIMS], row_dims = 0;

	for (int k = form->rank - 1; k >= matrix->first_row; k--)
		rows[row_dims++] = k;
	plan_arg_pointer(out, 0);
	plan_arg_pointer(out, 1);
	plan_arg_scalar(out, 4, work);
	plan_arg_scalar(out, 4, (uint64_t)matrix->rows);
	plan_arg_scalar(out, 4, (uint64_t)matrix->columns);
	plan_arg_scalar(out, 4, tiling->rows);
	plan_arg_scalar(out, 4, tiling->columns);
	plan_arg_scalar(out, 4, tiling->pitch);
	plan_arg_scalar(out, 4, tiling->flags);
	plan_arg_divisor(out, 4, along_x ? column_tiles : row_tiles);
	plan_arg_divisor(out, 4, along_x ? row_tiles : column_tiles);
	plan_arg_divisor(out, 4, tiling->columns / tiling->unit);
	plan_arg_divisor(out, 4, stores_of(form, tiling));
	pass_side(form, rows, row_dims, true, out);
	pass_side(form, matrix->column, matrix->column_dims, false, out);
	pass_batch(form, &matrix->batch, out);
}

bool permute_tile_generic(const struct permute_form *form, const struct kernel_limits *limits,
						  struct kernel_plan *out)
{
	struct tiling tiling = {.unit = 16 / form->element};
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct plan_text note = {.text = out->note, .size = sizeof(out->note)};
	uint64_t tiles, work;

	if (form->count <= SMALLEST / (int64_t)form->element || !find_matrix(form, 64, &tiling))
		return false;
	find_tile(form, limits, &tiling);
	find_flags(form, &tiling);
	tiles = (uint64_t)plan_divide_up(tiling.matrix.rows, tiling.rows) *
			plan_divide_up(tiling.matrix.columns, tiling.columns);
	if (__builtin_mul_overflow(tiles, (uint64_t)tiling.matrix.batch.items, &work) ||
		work > INT32_MAX)
		return false;
	plan_generic_launch(out, limits, "ops/permute_tile_generic.cuh", work,
						limits->max_threads < THREADS ? limits->max_threads / 32 * 32 : THREADS);
	out->shared_bytes = shared_of(&tiling);
	plan_print(&id, "permute_tile_generic<%u>", form->element);
	pass_tiling(form, &tiling, work, out);
	out->extents[0].alignment = tiling.flags & WIDE_ROWS ? 16 : form->element;
	out->extents[1].alignment = tiling.flags & WIDE_COLUMNS ? 16 : form->element;
	plan_print(&note,
			   "%lld rows by %lld columns in tiles of %u by %u, rows %s; all of it is arguments",
			   (long long)tiling.matrix.rows, (long long)tiling.matrix.columns, tiling.rows,
			   tiling.columns, tiling.flags & WIDE_ROWS ? "of vectors" : "cut out of vectors");
	return true;
}
