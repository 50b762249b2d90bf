/*
 * permute_shift.c: transposes of unaligned rows, turned in registers as tiles are.
 * permute_shift_find.c finds them, permute_shift_pick.c chooses their tiles.
 */
#include "permute_shift.h"

static bool is_one_of(uint32_t n, uint32_t a, uint32_t b, uint32_t c)
{
	return n == a || n == b || n == c;
}

static bool geometry(const struct permute_choice *c, const struct permute_matrix *matrix,
					 bool can_run, uint32_t element, struct plan_text *why)
{
	const char *rule = NULL;
	bool run = can_run && c->rows == matrix->rows;

	if (!is_one_of(c->load, 4, 8, 16))
		rule = "loads are 4, 8 or 16 bytes";
	else if (!is_one_of(c->block * element, 8, 16, 16) || !c->block)
		rule = "rows of a thread are 8 or 16 bytes";
	else if (!c->rows || c->rows > 1024 || (!run && c->rows * element % 16))
		rule = "rows are all there are, or 1 to 64 times 16 bytes";
	else if (!c->columns || c->columns > 1024 || c->columns % (c->load / element))
		rule = "columns are whole loads";
	else if (c->threads < 32 || c->threads % 32 || c->threads > 1024 ||
			 (!run && c->threads % (c->rows * element / 16)))
		rule = "threads are whole warps, and whole columns of stores";
	else if (!c->resident || c->resident * c->threads > 2048 || c->resident > 16)
		rule = "a multiprocessor has 2048 threads and 16 blocks at most";
	if (rule)
		plan_print(why, "%s", rule);
	return !rule;
}

static bool shift_make(const struct permute_form *form, const struct kernel_limits *limits,
					   const struct permute_choice *c, const struct permute_variant *variant,
					   struct kernel_plan *out, struct plan_text *why)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct permute_matrix matrix;
	struct shift_shape shape;
	uint64_t blocks;
	bool loop, run;

	if (!permute_shift_find(form, &matrix, &run, why) ||
		!geometry(c, &matrix, run, form->element, why))
		return false;
	if (!(run && c->rows == matrix.rows) &&
		c->rows * form->element % permute_shift_align(variant, &matrix, form->element)) {
		plan_print(why, "rows are whole sectors of y");
		return false;
	}
	shape = permute_shift_shape(c, &matrix, run, form->element,
								permute_shift_align(variant, &matrix, form->element));
	if (!permute_skewed_fits(c, shape.bytes, limits, why))
		return false;
	out->shared_bytes = shape.bytes;
	permute_batch(form, matrix.row_mask | matrix.column_mask, c->band == 1, &matrix.batch);
	blocks = permute_matrix_blocks(&matrix, c);
	loop = plan_launch(out, limits, blocks, c->threads);
	plan_print(&id, "permute_shift<%u, %u, %u, %u, %u, %s, %s, %s, %u, %u, %u, %lld, %lld",
			   form->element, c->rows, c->columns, c->block, c->load,
			   shape.skew_x ? "true" : "false", shape.skew_y ? "true" : "false",
			   shape.run ? "true" : "false", c->threads, c->resident, permute_band(c, &matrix),
			   (long long)matrix.rows, (long long)matrix.columns);
	permute_matrix_print(form, &matrix, &id);
	permute_print_batch(&id, form, &matrix.batch);
	plan_print(&id, ", %s, %s%s>", permute_offset_type_bytes(form, matrix.batch.outer),
			   loop ? "true" : "false", variant == &permute_step ? ", true" : "");
	permute_batch_args(out, form, &matrix.batch, blocks);
	out->extents[0].alignment = shape.skew_x ? form->element : c->load;
	out->extents[1].alignment = shape.skew_y ? form->element : 16;
	plan_print(why, "%lld rows by %lld columns, which begin anywhere, in tiles of %u by %u: %s",
			   (long long)matrix.rows, (long long)matrix.columns, c->rows, c->columns,
			   "aligned vectors are shifted into place");
	return !id.full;
}

static bool permute_shift_make(const struct permute_form *form, const struct kernel_limits *limits,
							   const struct permute_choice *c, struct kernel_plan *out,
							   struct plan_text *why)
{
	return shift_make(form, limits, c, &permute_shift, out, why);
}

static bool permute_step_make(const struct permute_form *form, const struct kernel_limits *limits,
							  const struct permute_choice *c, struct kernel_plan *out,
							  struct plan_text *why)
{
	return shift_make(form, limits, c, &permute_step, out, why);
}

const struct permute_variant permute_shift = {
	.name = "shift",
	.source = "ops/permute_shift.cuh",
	.fields = "xkltmo",
	.align = 16,
	.suggest = permute_shift_suggest,
	.make = permute_shift_make,
};

/* The same tiles by stores that step from column to column, and begin at sectors of y. */
const struct permute_variant permute_step = {
	.name = "step",
	.source = "ops/permute_shift.cuh",
	.fields = "xkltmo",
	.align = 32,
	.suggest = permute_shift_suggest,
	.make = permute_step_make,
};
