/*
 * cast_transpose.c: the plan of cast_transpose, whose matrices are the last two dimensions.  The
 * kernel's tiles go over x as it lies: where the columns of a matrix run on, such as those of a.T,
 * the kernel takes a, and y and transposed change places.
 */
#include "quantize.h"

#include <stdio.h>
#include <string.h>

#define SOURCE "ops/cast_transpose.cuh"

enum { X, SCALE, Y, TRANSPOSED };

struct tile {
	uint32_t rows, columns, threads;
};

/* The first is for matrices that fill the device with such tiles, the last for devices that have no
 * larger blocks. */
static const struct tile tiles[] = {
	{256, 128, 512}, {64, 64, 64}, {128, 128, 256}, {128, 64, 128}, {32, 64, 32}};
#define TILES ((int)(sizeof(tiles) / sizeof(tiles[0])))
/* The generic kernels' own, for any number of threads up to this one. */
static const struct tile tile_generic = {64, 64, 128};

struct form {
	struct rows_form batch; /* of x: a matrix is a row, of which nothing but its place is asked */
	bool turned;            /* the kernel's rows are x's columns */
	int64_t rows, columns, row_step, column_step; /* of the kernel's matrices */
	kiln_dtype from, to;
	uint32_t vector, store; /* elements, of x and y, and of the transposed */
};

/* ---- What a request must satisfy ---- */

/* x's shape with the last two dimensions swapped. */
static int cast_check_transposed(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct kernel_problem same = *problem;
	struct kernel_tensor *x = &same.tensors[X];
	int64_t last = x->shape[x->rank - 1];

	x->shape[x->rank - 1] = x->shape[x->rank - 2];
	x->shape[x->rank - 2] = last;
	if (problem->tensors[TRANSPOSED].rank == x->rank)
		for (int k = x->rank - 2; k < x->rank; k++)
			if (problem->tensors[TRANSPOSED].shape[k] != x->shape[k])
				return plan_refuse(error, KILN_EINVAL,
								   "%s: dimension %d of transposed has size %lld; it must be %lld, "
								   "for the last two dimensions are x's swapped",
								   problem->op, k, (long long)problem->tensors[TRANSPOSED].shape[k],
								   (long long)x->shape[k]);
	return quantize_check_output(&same, TRANSPOSED, error);
}

static int cast_check(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	int status = quantize_check_input(problem, error);

	if (!status && problem->tensors[X].rank < 2)
		return plan_refuse(error, KILN_EINVAL, "%s: x has rank %d; it needs two dimensions",
						   problem->op, problem->tensors[X].rank);
	if (!status && plan_has(problem, SCALE))
		status = quantize_check_one(problem, SCALE, error);
	if (!status)
		status = quantize_check_output(problem, Y, error);
	if (!status && plan_has(problem, TRANSPOSED))
		status = cast_check_transposed(problem, error);
	return status;
}

int cast_transpose_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	if (!plan_has(problem, Y)) {
		rows_infer_like(problem, Y, X);
		problem->tensors[Y].dtype = quantize_to(problem);
	}
	return cast_check(problem, error);
}

/* ---- Matrices ---- */

/* Halves bytes until the kernel's rows begin at multiples of them in x. */
static uint32_t narrow_rows(const struct form *form, uint32_t element, uint32_t bytes)
{
	bytes = rows_narrow(&form->batch, 0, element, bytes);
	while (bytes > element && ((uint64_t)form->columns * element % bytes ||
							   (uint64_t)form->row_step * element % bytes))
		bytes /= 2;
	return form->column_step == 1 || form->columns == 1 ? bytes : element;
}

static void cast_form(const struct kernel_problem *problem, struct form *form)
{
	const struct kernel_tensor *x = &problem->tensors[X];
	int64_t size[KILN_MAX_RANK], stride[KILN_MAX_RANK];
	const int64_t *const strides[] = {stride};
	int last = x->rank - 1, row = last - 1, column = last, culprit, along, across;
	uint32_t element = kernel_dtype_bytes(x->dtype);

	memset(form, 0, sizeof(*form));
	form->from = x->dtype;
	form->to = problem->tensors[Y].dtype;
	form->turned = x->stride[last] != 1 && x->stride[row] == 1;
	if (form->turned) {
		row = last;
		column = last - 1;
	}
	form->rows = x->shape[row];
	form->columns = x->shape[column];
	form->row_step = row == 0 ? plan_batch_stride(x->rank, x->shape, x->stride) : x->stride[row];
	form->column_step = x->stride[column];
	/* In front of one column of their own, the other dimensions number the matrices. */
	memcpy(size, x->shape, sizeof(size));
	memcpy(stride, x->stride, sizeof(stride));
	size[last - 1] = stride[last - 1] = 1;
	(void)rows_form(&form->batch, last, size, 1, strides, last - 1, 1, &culprit);
	along = form->turned ? TRANSPOSED : Y;
	across = form->turned ? Y : TRANSPOSED;
	form->vector = 16;
	if (x->alignment < form->vector)
		form->vector = x->alignment;
	form->vector = narrow_rows(form, element, form->vector) / element;
	while (plan_has(problem, along) && form->vector > problem->tensors[along].alignment)
		form->vector /= 2;
	form->store = plan_has(problem, across) ? problem->tensors[across].alignment : 1;
	while (form->rows % form->store)
		form->store /= 2;
}

/* ---- The plan ---- */

static void cast_name(const struct tile *tile, char name[KERNEL_CHOICE_MAX])
{
	snprintf(name, KERNEL_CHOICE_MAX, "tile %ux%u t%u", tile->rows, tile->columns, tile->threads);
}

/* The tiles that fit the device, the planner's own first.  Matrices of less than two of the first
 * for each multiprocessor take the second. */
static int cast_tiles(const struct form *form, const struct kernel_limits *limits,
					  struct tile out[TILES])
{
	uint64_t large = (uint64_t)plan_divide_up(form->rows, tiles[0].rows) *
					 (uint64_t)plan_divide_up(form->columns, tiles[0].columns);
	int first = large < 2 * (uint64_t)limits->multiprocessors, count = 0;

	for (int i = 0; i < TILES; i++) {
		const struct tile *tile = &tiles[i == 0 ? first : i == first ? 0 : i];
		if (tile->threads <= limits->max_threads &&
			tile->rows * tile->columns <= limits->shared_default)
			out[count++] = *tile;
	}
	return count;
}

static void cast_touch(const struct kernel_problem *problem, const struct form *form,
					   struct kernel_plan *out)
{
	plan_touch(problem, X, form->vector * kernel_dtype_bytes(form->from), out);
	if (plan_has(problem, SCALE))
		plan_touch(problem, SCALE, 4, out);
	plan_touch(problem, Y, form->turned ? form->store : form->vector, out);
	if (plan_has(problem, TRANSPOSED))
		plan_touch(problem, TRANSPOSED, form->turned ? form->vector : form->store, out);
}

static int cast_make(const struct kernel_problem *problem, const struct form *form,
					 const struct tile *tile, const struct kernel_limits *limits, bool generic,
					 struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint64_t down = (uint64_t)plan_divide_up(form->rows, tile->rows);
	uint64_t along = (uint64_t)plan_divide_up(form->columns, tile->columns);
	uint64_t blocks = down * along * (uint64_t)form->batch.rows;
	bool loop = generic;

	if (generic) {
		plan_generic_launch(out, limits, SOURCE, blocks,
							limits->max_threads < tile->threads ? limits->max_threads / 32 * 32
																: tile->threads);
	} else {
		loop = plan_launch(out, limits, blocks, tile->threads);
		snprintf(out->source, sizeof(out->source), SOURCE);
		cast_name(tile, out->choice);
	}
	out->shared_bytes = tile->rows * tile->columns;
	plan_print(&id, "cast_transpose<%s, %s, %u, %u, %u, %u, %u, %s>", plan_dtype_name(form->from),
			   quantize_type(form->to), tile->rows, tile->columns, form->vector, form->store,
			   generic ? 0 : tile->threads, loop ? "true" : "false");
	plan_arg_pointer(out, X);
	for (int i = SCALE; i <= TRANSPOSED; i++) {
		int operand = i == SCALE || !form->turned ? i : Y + TRANSPOSED - i;
		plan_arg_pointer(out, operand);
	}
	plan_arg_scalar(out, 8, (uint64_t)form->rows);
	plan_arg_scalar(out, 8, (uint64_t)form->columns);
	plan_arg_scalar(out, 8, (uint64_t)form->row_step);
	plan_arg_scalar(out, 8, (uint64_t)form->column_step);
	plan_arg_divisor(out, 8, down);
	plan_arg_divisor(out, 8, along);
	plan_arg_scalar(out, 8, blocks);
	rows_pass_sizes(out, &form->batch, 8);
	rows_pass_strides(out, &form->batch, 0);
	cast_touch(problem, form, out);
	snprintf(out->note, sizeof(out->note),
			 "tiles of %u by %u, read in vectors of %u elements, transposed in such of %u%s; sizes "
			 "and strides are arguments",
			 tile->rows, tile->columns, form->vector, form->store,
			 form->turned ? "; x lies transposed" : "");
	return plan_check_name(&id, out, error);
}

int cast_transpose_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
						const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct tile fitting[TILES];
	struct form form;
	int64_t elements;
	int status = cast_check(problem, error), count;

	if (status)
		return status;
	plan_elements(&problem->tensors[X], &elements);
	if (elements == 0) {
		plan_no_elements(out);
		return KILN_OK;
	}
	cast_form(problem, &form);
	if (plan_is_generic(choice)) {
		if (form.vector != 16 / kernel_dtype_bytes(form.from) || form.store != 16)
			form.vector = form.store = 1;
		return cast_make(problem, &form, &tile_generic, limits, true, out, error);
	}
	count = cast_tiles(&form, limits, fitting);
	if (count == 0)
		return plan_refuse(error, KILN_ENOTSUP,
						   "%s: a tile needs blocks of %u threads and %u bytes of shared memory, "
						   "which %s has not",
						   problem->op, tiles[TILES - 1].threads,
						   tiles[TILES - 1].rows * tiles[TILES - 1].columns, limits->target);
	for (int i = 0; i < count; i++) {
		char name[KERNEL_CHOICE_MAX];
		cast_name(&fitting[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return cast_make(problem, &form, &fitting[i], limits, false, out, error);
	}
	return rows_no_candidate(problem, choice, &form.batch, limits, error);
}

int cast_transpose_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						   char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct tile fitting[TILES];
	char error[KERNEL_ERROR_MAX];
	struct form form;
	int count;

	if (cast_check(problem, error))
		return 0;
	cast_form(problem, &form);
	count = cast_tiles(&form, limits, fitting);
	for (int i = 0; i < count; i++)
		cast_name(&fitting[i], names[i]);
	return count;
}
