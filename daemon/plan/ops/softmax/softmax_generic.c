/*
 * softmax_generic.c: softmax and its backward by kernels that know no size: what is passed to them,
 * and which kernels there are.
 */
#include "softmax.h"

#include <stdio.h>

#define STRIDED_THREADS 256u /* STRIDED_ANY_THREADS */
#define LANE_BYTES 256u      /* of one column of a tile, wanted */

static const int operand_index[] = {0, 1, 2};

static void pass_pointers(const struct softmax_form *form, int count, double scale,
						  struct kernel_plan *out)
{
	for (int i = 0; i < count; i++)
		plan_arg_pointer(out, i);
	if (count > 2)
		plan_arg_real(out, form->dtype, scale);
	else
		softmax_scale_args(out, form->dtype, scale);
}

static void softmax_generic_print_kernel(const struct softmax_form *form, int count,
										 const char *way, bool log, uint32_t vector,
										 struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};

	plan_print(&id, "softmax%s%s_generic<%s, %u, %s>", count > 2 ? "_backward" : "", way,
			   plan_dtype_name(form->dtype), vector, log ? "true" : "false");
}

static void pass_space(const struct rows_form *form, struct kernel_plan *out)
{
	rows_pass_sizes(out, form, 8);
	for (int i = 0; i < form->operands; i++)
		rows_pass_strides(out, form, i);
}

static void plan_rows(const struct softmax_form *form, int count, bool log, double scale,
					  const struct kernel_limits *limits, uint32_t *vector, struct kernel_plan *out)
{
	const struct rows_form *rows = &form->rows;
	struct rows_any any;

	rows_any(rows, &form->need, count > 2 ? 2 : 4, ROWS_ANY_THREADS, limits, &any);
	*vector = any.vector;
	plan_generic_launch(out, limits, "ops/softmax_generic.cuh", any.blocks, any.threads);
	softmax_generic_print_kernel(form, count, "", log, any.vector, out);
	pass_pointers(form, count, scale, out);
	plan_arg_scalar(out, 8, (uint64_t)rows->rows);
	plan_arg_scalar(out, 8, (uint64_t)rows->columns);
	plan_arg_scalar(out, 4, any.shift);
	for (int i = 0; i < count; i++)
		plan_arg_scalar(out, 8, (uint64_t)rows->step[i]);
	pass_space(rows, out);
	rows_any_describe(&any, form->need.element, out);
}

static void plan_strided(const struct softmax_form *form, int count, bool log, double scale,
						 const struct kernel_limits *limits, uint32_t *vector,
						 struct kernel_plan *out)
{
	const struct rows_form *rows = &form->rows;
	struct rows_form outer = *rows;
	uint32_t threads = STRIDED_THREADS, shift = 0;
	uint64_t inner = (uint64_t)rows->size[rows->rank - 1], wide, chunks, tiles;

	while (threads > limits->max_threads)
		threads /= 2;
	outer.rank--;
	*vector = softmax_tile_vector(form) * form->need.element == 16 ? 16 / form->need.element : 1;
	while (shift < 5 && *vector * form->need.element << shift < LANE_BYTES &&
		   (uint64_t)*vector << shift < inner)
		shift++;
	while (threads > 32 && (threads >> shift) / 2 >= (uint64_t)rows->columns)
		threads /= 2;
	wide = (uint64_t)*vector << shift;
	chunks = (inner + wide - 1) / wide;
	tiles = (uint64_t)rows->rows / inner * chunks;
	plan_generic_launch(out, limits, "ops/softmax_strided_generic.cuh", tiles, threads);
	softmax_generic_print_kernel(form, count, "_strided", log, *vector, out);
	pass_pointers(form, count, scale, out);
	plan_arg_scalar(out, 8, tiles);
	plan_arg_scalar(out, 8, inner);
	plan_arg_scalar(out, 8, (uint64_t)rows->columns);
	plan_arg_divisor(out, 8, chunks);
	plan_arg_scalar(out, 4, shift);
	for (int i = 0; i < count; i++)
		plan_arg_scalar(out, 8, (uint64_t)rows->step[i]);
	for (int i = 0; i < count; i++)
		plan_arg_scalar(out, 8, (uint64_t)rows->stride[i][outer.rank]);
	pass_space(&outer, out);
	snprintf(out->note, sizeof(out->note),
			 "rows side by side, %u threads along them, %u share each; vectors of %u bytes; sizes "
			 "and strides are arguments",
			 1u << shift, threads >> shift, *vector * form->need.element);
}

/* false: threads cannot hold these rows. */
static bool plan_held(const struct softmax_form *form, bool log, double scale,
					  const struct kernel_limits *limits, uint32_t *vector, struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct rows_form *rows = &form->rows;
	struct rows_shape shape;

	if (!rows_held(rows, &form->need, true, limits, &shape))
		return false;
	/* Those that begin between two vectors are seen to at run time. */
	*vector = shape.vector;
	rows_held_launch(rows, &shape, limits, "ops/softmax_held_generic.cuh", out);
	plan_print(&id, "softmax_held_generic<");
	rows_held_print(&id, form->dtype, &shape);
	plan_print(&id, ", %s>", log ? "true" : "false");
	pass_pointers(form, 2, scale, out);
	plan_arg_scalar(out, 8, (uint64_t)rows->rows);
	plan_arg_scalar(out, 8, (uint64_t)rows->columns);
	pass_space(rows, out);
	return true;
}

void softmax_generic(const struct kernel_problem *problem, const struct softmax_form *form,
					 int count, bool log, double scale, const struct kernel_limits *limits,
					 struct kernel_plan *out)
{
	uint32_t vector;

	if (softmax_is_strided(form))
		plan_strided(form, count, log, scale, limits, &vector, out);
	else if (count > 2 || !plan_held(form, log, scale, limits, &vector, out))
		plan_rows(form, count, log, scale, limits, &vector, out);
	softmax_extents(problem, operand_index, count, vector * form->need.element, out);
}

/* ---- Which kernels there are: types, along the last dimension or another, vectors or not ---- */

static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64};

static int generics(int index, int count, struct kernel_problem *out)
{
	/* Four kernels of each type come first; then those for rows that are held, of elements of 2 and
	 * 4 bytes. */
	int held = index - 4 * 4;
	kiln_dtype dtype = dtypes[held < 0 ? index / 4 : held / ROWS_HELD_SHAPES];
	bool strided = held < 0 && index & 2;
	int which = held < 0 ? ROWS_HELD_SHAPES : held % ROWS_HELD_SHAPES;
	int64_t columns = rows_held_columns(which, kernel_dtype_bytes(dtype));
	int64_t shape[] = {strided ? 64 : 2, strided ? 64 : columns};

	if (held >= (count > 2 ? 0 : 3 * ROWS_HELD_SHAPES))
		return KILN_ENOENT;
	if (held < 0 && index & 1)
		shape[0] = shape[1] = 3;
	for (int i = 0; i < count; i++)
		plan_made_tensor(out, i, dtype, 2, shape);
	if (strided)
		plan_made_int(out, "axis", 0);
	return KILN_OK;
}

int softmax_generics(int index, struct kernel_problem *out)
{
	return generics(index, 2, out);
}

int softmax_backward_generics(int index, struct kernel_problem *out)
{
	return generics(index, 3, out);
}
