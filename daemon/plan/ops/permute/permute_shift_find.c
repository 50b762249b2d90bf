/*
 * permute_shift_find.c: which transposes of unaligned rows a shift takes, and what a choice of
 * tiles comes to in its kernel (kernel_src/ops/permute_shift.cuh).
 */
#include "permute_shift.h"

#define HIGH_ROWS 512 /* of 8 bytes, for stores that step */
#define LEAST_COLUMNS 24
#define MOST_BYTES INT32_MAX /* of all columns, which a kernel counts in 31 bits */

uint32_t permute_shift_side(uint32_t element)
{
	return element == 8 ? 32 : element == 4 ? 64 : 128;
}

bool permute_shift_is_slim(const struct permute_matrix *matrix, uint32_t element)
{
	return element <= 2 && matrix->columns * element == matrix->load && matrix->load >= 8 &&
		   (element == 1 || matrix->load == 8) && matrix->store < 8 &&
		   matrix->rows >= SHIFT_SLIM_ROWS / 2;
}

bool permute_shift_find(const struct permute_form *form, struct permute_matrix *matrix, bool *run,
						struct plan_text *why)
{
	*run = false;
	if (permute_matrix_find(form, 0, "shift", matrix, why) &&
		permute_shift_is_slim(matrix, form->element) &&
		!permute_too_small(form, &matrix->batch, "shift", why))
		return true;
	if (!permute_skewed_find(form, permute_shift_side(form->element), "shift", matrix, run, why))
		return false;
	if (matrix->columns * form->element > MOST_BYTES) {
		plan_print(why, "not shift: a row has more than 31 bits count in bytes; ");
		return false;
	}
	return true;
}

bool permute_shift_slim(const struct permute_form *form)
{
	char reason[256];
	struct plan_text unsaid = {.text = reason, .size = sizeof(reason)};
	struct permute_matrix matrix;

	return permute_matrix_find(form, 0, "shift", &matrix, &unsaid) &&
		   permute_shift_is_slim(&matrix, form->element);
}

bool permute_step_better(const struct permute_form *form, const struct permute_choice *choice)
{
	char reason[256];
	struct plan_text unsaid = {.text = reason, .size = sizeof(reason)};
	struct permute_matrix matrix;
	bool run;

	return choice->band != 1 && !permute_shift_slim(form) &&
		   permute_shift_find(form, &matrix, &run, &unsaid) &&
		   (form->element < 8 ||
			(choice->columns >= LEAST_COLUMNS &&
			 matrix.rows >= (matrix.store < 16 ? PERMUTE_LOW_ROWS : HIGH_ROWS)));
}

bool permute_shift_low(const struct permute_form *form)
{
	char reason[256];
	struct plan_text unsaid = {.text = reason, .size = sizeof(reason)};
	struct permute_matrix matrix;
	bool run;

	/* Or a little more than a tile has, and the next one would be empty? */
	return form->element == 2 && permute_shift_find(form, &matrix, &run, &unsaid) && !run &&
		   matrix.store < 16 &&
		   (matrix.rows * form->element <= SHIFT_NARROW ||
			(matrix.rows < 3 * SHIFT_HALF && matrix.rows % SHIFT_HALF < SHIFT_HALF / 8));
}

/* ---- The kernel's geometry ---- */

uint32_t permute_shift_align(const struct permute_variant *variant,
							 const struct permute_matrix *matrix, uint32_t element)
{
	return element > 1 && matrix->rows * element >= 512 ? variant->align : 16;
}

struct shift_shape permute_shift_shape(const struct permute_choice *c,
									   const struct permute_matrix *matrix, bool can_run,
									   uint32_t element, uint32_t align)
{
	uint32_t each = 16 / element, reach;
	struct shift_shape shape = {.run = can_run && c->rows == matrix->rows};

	shape.skew_x = shape.run || matrix->load < c->load;
	shape.skew_y = shape.run || matrix->store < 16 || matrix->apart < align;
	reach = shape.run ? each - 1 : shape.skew_y ? align / element : 0;
	shape.chunks = (uint32_t)permute_tiles(c->rows + reach, each);
	/* An odd number of chunks a column, and one behind the last column. */
	shape.bytes = (c->columns * (shape.chunks | 1) + 1) * 16;
	shape.slots = c->columns / (c->load / element) * shape.chunks * (each / c->block);
	return shape;
}
