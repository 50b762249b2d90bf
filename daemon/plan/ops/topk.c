/*
 * topk.c: the first k of each row in order, and whole rows sorted: what a request must satisfy, how
 * rows are spread over threads, and the operators' rows.
 *
 * sort is topk of all columns, so both operators share all but the range of sizes.
 */
#include "daemon/plan/ops/rows/rows.h"

#include <stdio.h>
#include <string.h>

#define SOURCE "ops/topk.cuh"
#define SHAPES_MOST 8
#define K_MOST 2048
#define SORT_MOST 8192
#define COLUMNS_MOST (1 << 30)

enum { X, VALUES, INDICES };

/* The problem as rows of columns. */
struct form {
	struct rows_form rows; /* operand 0: x, 1: values, and indices as these */
	kiln_dtype dtype;
	uint32_t element;
	int64_t k;
	bool greatest;
};

/* A block has so many rows, each in a warp, or one; entries are of so many bytes. */
struct shape {
	uint32_t threads, rows, vector, held;
	uint32_t sorted, room, entry;
	bool whole;
	bool scratch; /* entries are in scratch memory: a block has too little of its own */
};

/* ---- What a request must satisfy ---- */

static bool is_sort(const struct kernel_problem *problem)
{
	return strcmp(problem->op, "sort") == 0;
}

/* The shape of the results. */
static int find_result(const struct kernel_problem *problem, kiln_dtype dtype,
					   struct kernel_tensor *out, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[X];
	int axis;
	int64_t columns, k;

	axis = plan_axis(problem);
	columns = x->shape[axis];
	k = is_sort(problem) ? columns : plan_int(problem, "k");
	if (k > columns)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: k is %lld; dimension %d of x has size %lld, and k may be no more",
						   problem->op, (long long)k, axis, (long long)columns);
	if (is_sort(problem) && columns > SORT_MOST)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d of x has size %lld; rows of up to %d are sorted",
						   problem->op, axis, (long long)columns, SORT_MOST);
	if (columns > COLUMNS_MOST)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d of x has size %lld; it may have up to %d", problem->op,
						   axis, (long long)columns, COLUMNS_MOST);
	*out = (struct kernel_tensor){.dtype = dtype, .rank = x->rank, .alignment = 16};
	memcpy(out->shape, x->shape, sizeof(out->shape));
	out->shape[axis] = k;
	plan_contiguous(out);
	return KILN_OK;
}

static int check_result(const struct kernel_problem *problem, int index,
						const struct kernel_tensor *right, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *is = &problem->tensors[index];
	char name[16];
	int status;

	plan_operand_name(problem->operands, index, name);
	if (is->dtype != right->dtype)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s; it must be %s", problem->op, name,
						   plan_dtype_name(is->dtype), plan_dtype_name(right->dtype));
	if (is->rank != right->rank)
		return plan_refuse(error, KILN_EINVAL, "%s: %s has rank %d; it must have rank %d",
						   problem->op, name, is->rank, right->rank);
	for (int i = 0; i < is->rank; i++)
		if (is->shape[i] != right->shape[i])
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d of %s has size %lld; it must be %lld", problem->op,
							   i, name, (long long)is->shape[i], (long long)right->shape[i]);
	status = rows_check_aligned(problem, index, error);
	return status ? status : rows_check_contiguous(problem, index, error);
}

static int topk_check(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	kiln_dtype dtype = problem->tensors[X].dtype;
	struct kernel_tensor right;
	int status;

	if (!plan_is_float(dtype) && dtype != KILN_I32 && dtype != KILN_I64)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: x is %s; it must be f16, bf16, f32, f64, i32 or i64", problem->op,
						   plan_dtype_name(dtype));
	status = rows_check_aligned(problem, X, error);
	if (!status)
		status = find_result(problem, dtype, &right, error);
	if (!status)
		status = check_result(problem, VALUES, &right, error);
	right.dtype = KILN_I64;
	if (!status && problem->tensors[INDICES].dtype != KILN_DTYPE_NONE)
		status = check_result(problem, INDICES, &right, error);
	return status;
}

static int topk_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct kernel_tensor *values = &problem->tensors[VALUES];

	if (values->dtype == KILN_DTYPE_NONE) {
		int status = find_result(problem, problem->tensors[X].dtype, values, error);
		if (status)
			return status;
	}
	return topk_check(problem, error);
}

static void find_form(const struct kernel_problem *problem, struct form *form)
{
	const struct kernel_tensor *x = &problem->tensors[X], *values = &problem->tensors[VALUES];
	int64_t begins[KILN_MAX_RANK];
	const int64_t *const strides[] = {x->stride, begins};
	int culprit, axis = plan_axis(problem);

	memset(form, 0, sizeof(*form));
	form->dtype = x->dtype;
	form->element = kernel_dtype_bytes(x->dtype);
	form->k = values->shape[axis];
	form->greatest = plan_int(problem, is_sort(problem) ? "descending" : "largest") != 0;
	/* Rows of the results have another length than x's: what lies along them is left out. */
	memcpy(begins, values->stride, sizeof(begins));
	begins[axis] = 0;
	/* One axis always merges with itself. */
	rows_form(&form->rows, x->rank, x->shape, 2, strides, axis, 1, &culprit);
	form->rows.step[1] = form->rows.columns > 1 ? values->stride[axis] : 1;
}

/* ---- How rows are spread ---- */

#define BESIDE 1040u /* TOPK_BESIDE */

static uint32_t power_from(int64_t least)
{
	uint32_t power = 1;

	while (power < least)
		power *= 2;
	return power;
}

static uint32_t shape_bytes(const struct shape *shape)
{
	return shape->rows * (shape->room * shape->entry + (shape->whole ? 0 : BESIDE));
}

/* Fills in the shape of a block of so many threads. */
static void fill_shape(const struct form *form, bool generic, uint32_t threads, uint32_t rows,
					   const struct kernel_limits *limits, struct shape *out)
{
	uint32_t columns = (uint32_t)form->rows.columns, all = power_from(columns);

	*out = (struct shape){.threads = threads, .rows = rows, .held = 4};
	out->vector = form->rows.step[0] == 1 ? 16 / form->element : 1;
	out->sorted = power_from(form->k);
	/* Where all are sorted in the end, or a warp sorts them at once, nothing is selected. */
	out->whole = all == out->sorted || all <= 32;
	if (out->whole)
		out->sorted = all;
	out->entry = out->whole && form->element == 2 && !generic ? 4 : form->element == 8 ? 16 : 8;
	out->room = out->sorted > 4 ? out->sorted : 4;
	if (!out->whole) {
		out->room = 4 * out->sorted > 2048 ? 4 * out->sorted : 2048;
		if (out->room > columns)
			out->room = (columns + 3) / 4 * 4;
	}
	if (shape_bytes(out) > limits->shared_optin && out->room > 2 * out->sorted)
		out->room = 2 * out->sorted;
	out->scratch = shape_bytes(out) > limits->shared_optin;
}

/* A warp has a short row, and a block a long one. */
static int find_shapes(const struct form *form, const struct kernel_limits *limits,
					   struct shape shapes[SHAPES_MOST])
{
	static const uint32_t threads[] = {0, 256, 512, 128, 1024, 64, 32};
	uint32_t wanted = 256;
	struct shape shape;
	int count = 0;

	fill_shape(form, false, 128, 4, limits, &shape);
	if (form->rows.columns <= (shape.whole ? 256 : 512) && !shape.scratch &&
		limits->max_threads >= 128)
		shapes[count++] = shape;
	if (shape.whole)
		wanted = shape.sorted < 256 ? 64 : shape.sorted > 4096 ? 1024 : shape.sorted / 4;
	else if (form->rows.columns <= 4096)
		wanted = 128;
	else if (shape.sorted > 512)
		wanted = 512;
	for (int i = 0; i < 7; i++) {
		uint32_t here = i ? threads[i] : wanted;
		if (here > limits->max_threads || (i && here == wanted) || (here == 32 && count))
			continue;
		fill_shape(form, false, here, 1, limits, &shapes[count++]);
	}
	return count;
}

static void name_shape(const struct shape *shape, char name[KERNEL_CHOICE_MAX])
{
	snprintf(name, KERNEL_CHOICE_MAX, "%s %u", shape->rows > 1 ? "warps" : "block",
			 shape->rows > 1 ? shape->rows : shape->threads);
}

static int topk_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct shape shapes[SHAPES_MOST];
	struct form form;
	int count;

	find_form(problem, &form);
	count = find_shapes(&form, limits, shapes);
	for (int i = 0; i < count; i++)
		name_shape(&shapes[i], names[i]);
	return count;
}

/* ---- The plan ---- */

#define GENERIC_THREADS 256u /* of a block, where the device has so many */

static const char *flag_text(bool value)
{
	return value ? "true" : "false";
}

static void print_kernel(const struct form *form, const struct shape *shape, bool generic,
						 struct plan_text *id)
{
	static const char *const entries[] = {
		[4] = "Entry<u32>", [8] = "Entry<u64>", [16] = "EntryWide"};
	const struct rows_form *rows = &form->rows;

	plan_print(id, "topk_rows%s<%s, %s, %u, %u", generic ? "_generic" : "",
			   plan_dtype_name(form->dtype), entries[shape->entry], shape->vector, shape->held);
	if (generic) {
		plan_print(id, ", %u>", GENERIC_THREADS);
		return;
	}
	plan_print(id, ", %u, %u, %s, %s, %s, %u, %u, %lld", shape->threads, shape->rows,
			   flag_text(form->greatest), flag_text(shape->whole), flag_text(shape->scratch),
			   shape->sorted, shape->room, (long long)rows->columns);
	for (int i = 0; i < 2; i++)
		rows_print_step(id, rows, i);
	rows_print_sizes(id, rows);
	for (int i = 0; i < 2; i++)
		rows_print_strides(id, rows, i);
	plan_print(id, ", %s>", rows_index_type(rows));
}

static void pass_arguments(const struct form *form, const struct shape *shape, bool generic,
						   struct kernel_plan *out)
{
	const struct rows_form *rows = &form->rows;

	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	if (shape->scratch)
		plan_arg_scratch(out);
	else
		plan_arg_scalar(out, 8, 0);
	plan_arg_scalar(out, 8, (uint64_t)rows->rows);
	plan_arg_scalar(out, 4, (uint64_t)form->k);
	if (!generic)
		return;
	for (int i = 0; i < 2; i++)
		plan_arg_scalar(out, 8, (uint64_t)rows->step[i]);
	plan_arg_scalar(out, 4, (uint64_t)rows->columns);
	plan_arg_scalar(out, 4, shape->sorted);
	plan_arg_scalar(out, 4, shape->room);
	plan_arg_scalar(out, 4, form->greatest);
	plan_arg_scalar(out, 4, shape->whole);
	rows_pass_sizes(out, rows, 8);
	for (int i = 0; i < 2; i++)
		rows_pass_strides(out, rows, i);
}

static int plan_topk_shape(const struct kernel_problem *problem, const struct form *form,
						   const struct shape *shape, bool generic,
						   const struct kernel_limits *limits, struct kernel_plan *out,
						   char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint64_t blocks = (uint64_t)plan_divide_up(form->rows.rows, shape->rows);

	/* As many as run at once take the rows in turn. */
	if (shape->scratch && blocks > 2 * limits->multiprocessors)
		blocks = 2 * limits->multiprocessors;
	plan_generic_launch(out, limits, SOURCE, blocks, shape->threads);
	if (shape->scratch)
		out->scratch.bytes = out->grid[0] * shape_bytes(shape);
	else
		out->shared_bytes = shape_bytes(shape);
	print_kernel(form, shape, generic, &id);
	pass_arguments(form, shape, generic, out);
	for (int i = X; i <= INDICES; i++)
		if (problem->tensors[i].dtype != KILN_DTYPE_NONE)
			plan_touch(problem, i, kernel_dtype_bytes(problem->tensors[i].dtype), out);
	if (!generic) {
		name_shape(shape, out->choice);
		snprintf(out->variant, sizeof(out->variant), "%s", shape->whole ? "whole" : "filtered");
	}
	snprintf(out->note, sizeof(out->note),
			 "%lld of rows of %lld elements; threads a row: %u; %s%u entries are sorted%s",
			 (long long)form->k, (long long)form->rows.columns, shape->threads / shape->rows,
			 shape->whole ? "" : "what may be among them is collected, and ", shape->sorted,
			 generic ? "; sizes and strides are arguments" : "");
	return plan_check_name(&id, out, error);
}

static int topk_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
					 const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	uint32_t threads = GENERIC_THREADS;
	struct shape shapes[SHAPES_MOST];
	int64_t elements;
	struct form form;
	int count, status = topk_check(problem, error);

	if (status)
		return status;
	plan_elements(&problem->tensors[VALUES], &elements);
	if (elements == 0) {
		plan_no_elements(out);
		return KILN_OK;
	}
	find_form(problem, &form);
	if (plan_is_generic(choice)) {
		while (threads > limits->max_threads || (threads > 32 && threads > form.rows.columns / 4))
			threads /= 2;
		fill_shape(&form, true, threads, 1, limits, &shapes[0]);
		return plan_topk_shape(problem, &form, &shapes[0], true, limits, out, error);
	}
	count = find_shapes(&form, limits, shapes);
	for (int i = 0; i < count; i++) {
		char name[KERNEL_CHOICE_MAX];
		name_shape(&shapes[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return plan_topk_shape(problem, &form, &shapes[i], false, limits, out, error);
	}
	return rows_no_candidate(problem, choice, &form.rows, limits, error);
}

/* Each type has two: rows whose elements lie side by side, and others. */
static int topk_generics(int index, struct kernel_problem *out)
{
	static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16, KILN_BF16,
										KILN_F64, KILN_I32, KILN_I64};
	static const int64_t shape[] = {4, 64, 8}, result[] = {4, 1, 8};
	int rank = index % 2 ? 3 : 2;

	if (index >= 2 * 6)
		return KILN_ENOENT;
	plan_made_tensor(out, X, dtypes[index / 2], rank, shape);
	plan_made_tensor(out, VALUES, dtypes[index / 2], rank, result);
	plan_made_int(out, "k", 1);
	plan_made_int(out, "axis", 1);
	return KILN_OK;
}

/* All of them are among those of topk. */
static int sort_generics(int index, struct kernel_problem *out)
{
	int status = topk_generics(index, out);

	if (status)
		return status;
	out->tensors[VALUES] = out->tensors[X];
	out->attrs[0] = out->attrs[1];
	out->attr_count = 1;
	return KILN_OK;
}

/* ---- The rows of the operators ---- */

#define AXIS                                                                                    \
	{                                                                                           \
		"axis", KILN_ATTR_INT, "N", "the dimension to go along, from the end if below 0", "-1", \
			OP_AXIS                                                                             \
	}

const struct plan_op plan_ops_topk[] = {
	{
		.name = "topk",
		.operands = {{"x", OP_NORMAL},
					 {"values", .shape = OP_FIRST_K},
					 {"indices", .shape = OP_FIRST_K, .dtype = OP_I64, .presence = OP_USUAL}},
		.attributes = {{"k", KILN_ATTR_INT, "N", "how many of each row", "1", OP_BETWEEN, 0, K_MOST,
						.needed = true},
					   AXIS,
					   {"largest", KILN_ATTR_INT, "N", "1: the greatest; 0: the least", "1",
						OP_BETWEEN, 0, 1, .text = "1 (default) for the greatest, 0 for the least"}},
		.summary = "values = the k greatest of x along an axis in order, or the least, and their "
				   "places; equals by place, and NaN is greater than any number",
		.plan = topk_plan,
		.infer = topk_infer,
		.choices = topk_choices,
		.generics = topk_generics,
	},
	{
		.name = "sort",
		.operands = {{"x", OP_NORMAL},
					 {"values"},
					 {"indices", .dtype = OP_I64, .presence = OP_USUAL}},
		.attributes = {AXIS,
					   {"descending", KILN_ATTR_INT, NULL, "from the greatest", "0", OP_BETWEEN, 0,
						1, .text = "1 to begin with the greatest"}},
		.summary = "values = x in order along an axis, and where each was; equals by place, and "
				   "NaN is greater than any number",
		.plan = topk_plan,
		.infer = topk_infer,
		.choices = topk_choices,
		.generics = sort_generics,
	},
	{.name = NULL},
};
