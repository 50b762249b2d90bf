/*
 * act_mul.c: act(x) * other and its backward: what a request must satisfy, how its vectors are
 * spread over threads, and the operators' rows.
 *
 * Without other, x has both side by side: the first half of its last dimension is x, the second
 * other.  Then dx has both gradients, too.
 */
#include "daemon/plan/ops/rows/flat.h"

#include <stdio.h>
#include <string.h>

#define SOURCE "ops/act_mul.cuh"
#define GENERIC_THREADS 256u

enum { X, OTHER, Y, DY = 2, DX, DOTHER };

/* A problem as rows of columns; all that merges is one row of any length. */
struct form {
	struct rows_form rows; /* of x, other and, backward, dy */
	bool backward, split, one;
	int64_t elements;
	int64_t half;  /* split: elements from a row of x to that of other */
	int64_t width; /* split: columns of a row of dy */
	kiln_dtype dtype;
	uint32_t element, vector;
	enum flat_way way;
	int act;
};

static bool is_backward(const struct kernel_problem *problem)
{
	return strcmp(problem->op, "act_mul_backward") == 0;
}

/* ---- What a request must satisfy ---- */

/* y or dy: x's shape; split: half of its last dimension. */
static int check_halved(const struct kernel_problem *problem, int index,
						char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[X], *half = &problem->tensors[index];
	struct kernel_problem whole;
	char name[16];
	int last = x->rank - 1;

	plan_operand_name(problem->operands, index, name);
	if (plan_has(problem, OTHER))
		return rows_check_like(problem, index, X, error);
	if (half->rank == x->rank && 2 * half->shape[last] != x->shape[last])
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d has size %lld in x and %lld in %s; without other it "
						   "must be half in %s",
						   problem->op, last, (long long)x->shape[last],
						   (long long)half->shape[last], name, name);
	whole = *problem;
	if (half->rank == x->rank)
		whole.tensors[index].shape[last] = x->shape[last];
	return rows_check_like(&whole, index, X, error);
}

static int check_split(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	const struct kernel_tensor *x = &problem->tensors[X];

	if (x->rank == 0)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: x has rank 0; without other it needs a dimension to be split",
						   problem->op);
	if (x->shape[x->rank - 1] % 2)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dimension %d of x has size %lld; without other it must be even",
						   problem->op, x->rank - 1, (long long)x->shape[x->rank - 1]);
	if (is_backward(problem) && plan_has(problem, DOTHER))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dother is there and other is not; without other dx has both",
						   problem->op);
	return KILN_OK;
}

static int act_mul_check(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	int last = is_backward(problem) ? DOTHER : Y, status = rows_check_float(problem, X, error);

	if (!status)
		status = plan_has(problem, OTHER) ? rows_check_like(problem, OTHER, X, error)
										  : check_split(problem, error);
	if (!status)
		status = check_halved(problem, Y, error);
	for (int i = is_backward(problem) ? DX : Y; i <= last && !status; i++) {
		if (!plan_has(problem, i))
			continue;
		status = i == Y ? KILN_OK : rows_check_like(problem, i, X, error);
		if (!status)
			status = rows_check_contiguous(problem, i, error);
	}
	return status;
}

static int act_mul_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct kernel_tensor *y = &problem->tensors[Y];
	int last = problem->tensors[X].rank - 1;

	if (!is_backward(problem) && !plan_has(problem, Y)) {
		rows_infer_like(problem, Y, X);
		if (!plan_has(problem, OTHER) && last >= 0)
			y->shape[last] /= 2;
		plan_contiguous(y);
	}
	return act_mul_check(problem, error);
}

/* ---- Rows ---- */

/* A row is half of x's last dimension if x has both. */
static void act_mul_find_rows(const struct kernel_problem *problem, struct form *form)
{
	const struct kernel_tensor *shape = &problem->tensors[form->backward ? DY : Y];
	int operands = form->backward ? 3 : 2, rank = shape->rank, culprit;
	struct rows_form *rows = &form->rows;
	const int64_t *stride[3];

	for (int i = 0; i < operands; i++)
		stride[i] = problem->tensors[i == OTHER && form->split ? X : i].stride;
	if (!form->split) {
		form->elements = flat_rows(rows, rank, shape->shape, operands, stride, &form->one);
		return;
	}
	(void)rows_form(rows, rank, shape->shape, operands, stride, rank - 1, 1, &culprit);
	form->elements = rows->rows * rows->columns;
}

/* The widest vector that results take, and how operands are read in such. */
static void act_mul_find_vector(const struct kernel_problem *problem, struct form *form)
{
	int first = form->backward ? DX : Y, last = form->backward ? DOTHER : Y;
	const struct rows_form *rows = &form->rows;
	uint32_t bytes = 16, read;

	for (int i = first; i <= last; i++)
		if (plan_has(problem, i) && problem->tensors[i].alignment < bytes)
			bytes = problem->tensors[i].alignment;
	while (bytes > form->element && form->backward && form->split &&
		   (uint64_t)form->width * form->element % bytes)
		bytes /= 2;
	read = bytes;
	for (int i = 0; i < rows->operands; i++) {
		int operand = i == 1 && form->split ? X : i;
		uint32_t address = problem->tensors[operand].alignment;
		read = rows_narrow(rows, i, form->element, address < read ? address : read);
	}
	while (read > form->element &&
		   ((!form->one && (uint64_t)rows->columns * form->element % read) ||
			(form->split && (uint64_t)form->half * form->element % read)))
		read /= 2;
	form->vector = bytes / form->element;
	form->way = read == bytes ? FLAT_WHOLE : FLAT_SKEWED;
	for (int i = 0; i < rows->operands; i++)
		if (rows->step[i] != 1 && rows->columns > 1)
			form->way = FLAT_APART;
}

static void act_mul_find_form(const struct kernel_problem *problem, struct form *form)
{
	const struct kernel_tensor *x = &problem->tensors[X];

	memset(form, 0, sizeof(*form));
	form->backward = is_backward(problem);
	form->split = !plan_has(problem, OTHER);
	form->dtype = x->dtype;
	form->element = kernel_dtype_bytes(x->dtype);
	form->act = plan_word(problem, "act");
	if (form->split) {
		form->width = x->shape[x->rank - 1] / 2;
		form->half = form->width * x->stride[x->rank - 1];
	}
	act_mul_find_rows(problem, form);
	act_mul_find_vector(problem, form);
}

/* ---- The plan ---- */

static void print_operands(struct plan_text *id, const struct form *form)
{
	rows_print_sizes(id, &form->rows);
	for (int i = 0; i < form->rows.operands; i++) {
		rows_print_step(id, &form->rows, i);
		rows_print_strides(id, &form->rows, i);
	}
}

static void act_mul_print_kernel(const struct form *form, uint32_t threads, bool loop,
								 struct plan_text *id)
{
	static const char *const acts[] = {"ACT_SILU", "ACT_GELU", "ACT_GELU_TANH", "ACT_RELU"};
	/* A thread goes as far as one step beyond the last element. */
	const char *index = form->elements > INT32_MAX ? "i64" : "u32";

	plan_print(id, "act_mul%s<%s, %u, %s, %s, %u, %s", form->backward ? "_backward" : "",
			   plan_dtype_name(form->dtype), form->vector, flat_way_name(form->way),
			   acts[form->act], threads, loop ? "true" : "false");
	if (form->backward)
		plan_print(id, ", %s", form->split ? "true" : "false");
	plan_print(id, ", %lld", form->one ? 0 : (long long)form->rows.columns);
	print_operands(id, form);
	plan_print(id, ", %s>", index);
}

static void pass_operands(const struct form *form, struct kernel_plan *out)
{
	for (int i = X; i <= (form->backward ? DOTHER : Y); i++)
		plan_arg_pointer(out, i);
	plan_arg_scalar(out, 8, (uint64_t)form->elements);
	plan_arg_scalar(out, 8, (uint64_t)form->half);
	if (form->backward)
		plan_arg_scalar(out, 8, (uint64_t)form->width);
}

static void touch(const struct kernel_problem *problem, const struct form *form,
				  struct kernel_plan *out)
{
	for (int i = X; i <= (form->backward ? DOTHER : Y); i++) {
		bool written = i >= (form->backward ? DX : Y);
		if (plan_has(problem, i))
			plan_touch(problem, i,
					   (written || form->way == FLAT_WHOLE ? form->vector : 1) * form->element,
					   out);
	}
	if (!form->backward && !form->split)
		plan_over(problem, Y, X, out);
	if (form->backward && plan_has(problem, DX))
		plan_over(problem, DX, X, out);
	if (form->backward && plan_has(problem, DOTHER))
		plan_over(problem, DOTHER, OTHER, out);
}

static void act_mul_describe(const struct form *form, uint32_t threads, struct kernel_plan *out)
{
	snprintf(out->note, sizeof(out->note), "a vector of %u bytes a thread, %u threads a block%s%s",
			 form->vector * form->element, threads,
			 form->way == FLAT_SKEWED  ? "; operands are cut out of two"
			 : form->way == FLAT_APART ? "; operands are read element by element"
									   : "",
			 out->variant[0] ? "; sizes and strides are arguments" : "");
}

static int act_mul_plan_exact(const struct kernel_problem *problem, const struct form *form,
							  uint32_t threads, const struct kernel_limits *limits,
							  struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint64_t vectors = (uint64_t)plan_divide_up(form->elements, form->vector);
	bool loop = plan_launch(out, limits, (vectors + threads - 1) / threads, threads);

	snprintf(out->source, sizeof(out->source), SOURCE);
	act_mul_print_kernel(form, threads, loop, &id);
	pass_operands(form, out);
	touch(problem, form, out);
	act_mul_describe(form, threads, out);
	return plan_check_name(&id, out, error);
}

/* Vectors of 16 bytes, of aligned operands or, forward, cut out of two; or elements. */
static int act_mul_plan_generic(const struct kernel_problem *problem, struct form *form,
								const struct kernel_limits *limits, struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};

	if (form->way == FLAT_APART || (form->way == FLAT_SKEWED && form->backward) ||
		form->vector * form->element != 16) {
		form->vector = 1;
		form->way = FLAT_APART;
	}
	plan_generic_spread(out, limits, SOURCE, (uint64_t)plan_divide_up(form->elements, form->vector),
						GENERIC_THREADS);
	plan_print(&id, "act_mul%s_generic<%s, %u, %s", form->backward ? "_backward" : "",
			   plan_dtype_name(form->dtype), form->vector, flat_way_name(form->way));
	if (form->backward)
		plan_print(&id, ", %s", form->split ? "true" : "false");
	plan_print(&id, ">");
	pass_operands(form, out);
	plan_arg_scalar(out, 4, (uint64_t)form->act);
	plan_arg_divisor(out, 8, (uint64_t)form->rows.columns);
	plan_arg_scalar(out, 4, form->one);
	for (int i = 0; i < form->rows.operands; i++)
		plan_arg_scalar(out, 8, (uint64_t)form->rows.step[i]);
	rows_pass_sizes(out, &form->rows, 8);
	for (int i = 0; i < form->rows.operands; i++)
		rows_pass_strides(out, &form->rows, i);
	touch(problem, form, out);
	act_mul_describe(form, out->block[0], out);
	return KILN_OK;
}

static int act_mul_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
						const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	int status = act_mul_check(problem, error);
	bool wanted = !is_backward(problem) || plan_has(problem, DX) || plan_has(problem, DOTHER);
	struct form form;
	int64_t elements;
	uint32_t threads;

	if (status)
		return status;
	plan_elements(&problem->tensors[X], &elements);
	if (elements == 0 || !wanted) {
		plan_no_elements(out);
		return KILN_OK;
	}
	act_mul_find_form(problem, &form);
	if (plan_is_generic(choice))
		return act_mul_plan_generic(problem, &form, limits, out);
	threads = flat_threads(flat_way_word(form.way), limits, choice, out->choice);
	if (threads > 0)
		return act_mul_plan_exact(problem, &form, threads, limits, out, error);
	return rows_no_candidate(problem, choice, &form.rows, limits, error);
}

static int act_mul_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						   char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct form form;

	act_mul_find_form(problem, &form);
	return flat_choices(flat_way_word(form.way), limits, names);
}

/* Each type has two, by vectors and by elements; forward a third, by vectors that are cut out of
 * two; and backward as many again for x with both. */
static int act_mul_made(int index, bool backward, struct kernel_problem *out)
{
	static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64};
	int kinds = backward ? 4 : 3, kind = index % kinds;
	bool apart = kind & 1, split = kind & 2;
	int64_t width = apart ? 3 : split && !backward ? 67 : 64, shape[] = {2, width};
	kiln_dtype dtype;

	if (index >= 4 * kinds)
		return KILN_ENOENT;
	dtype = dtypes[index / kinds];
	shape[1] = split ? 2 * width : width;
	plan_made_tensor(out, X, dtype, 2, shape);
	if (!split)
		plan_made_tensor(out, OTHER, dtype, 2, shape);
	if (backward)
		plan_made_tensor(out, DX, dtype, 2, shape);
	shape[1] = width;
	plan_made_tensor(out, Y, dtype, 2, shape);
	if (apart)
		out->tensors[Y].alignment = kernel_dtype_bytes(dtype);
	if (apart && backward)
		out->tensors[DX].alignment = kernel_dtype_bytes(dtype);
	return KILN_OK;
}

static int act_mul_generics(int index, struct kernel_problem *out)
{
	return act_mul_made(index, false, out);
}

static int act_mul_backward_generics(int index, struct kernel_problem *out)
{
	return act_mul_made(index, true, out);
}

/* ---- The rows of the operators ---- */

#define ACT(full)                                                                                 \
	{                                                                                             \
		"act", KILN_ATTR_STRING, "WORD", "the activation: silu, gelu, gelu_tanh or relu", "silu", \
			OP_WORD, .words = {"silu", "gelu", "gelu_tanh", "relu"}, .text = full                 \
	}

const struct plan_op plan_ops_act_mul[] = {
	{
		.name = "act_mul",
		.operands = {{"x", OP_NORMAL},
					 {"other", OP_NORMAL, .presence = OP_OPTIONAL},
					 {"y", .shape = OP_HALVED}},
		.attributes = {ACT("silu (default), gelu (by erf), gelu_tanh or relu")},
		.summary = "y = act(x) * other; without other, the first half of x's last dimension is "
				   "activated and multiplied by the second",
		.plan = act_mul_plan,
		.infer = act_mul_infer,
		.choices = act_mul_choices,
		.generics = act_mul_generics,
	},
	{
		.name = "act_mul_backward",
		.operands = {{"x", OP_NORMAL},
					 {"other", OP_NORMAL, .presence = OP_OPTIONAL},
					 {"dy", OP_NORMAL, OP_HALVED},
					 {"dx", .presence = OP_USUAL},
					 {"dother", .presence = OP_OPTIONAL}},
		.attributes = {ACT("as of act_mul")},
		.summary = "dx = dy * other * the derivative of act at x, dother = dy * act(x); without "
				   "other dx has both, as x has",
		.plan = act_mul_plan,
		.infer = act_mul_infer,
		.choices = act_mul_choices,
		.generics = act_mul_backward_generics,
	},
	{.name = NULL},
};
