/*
 * cross_entropy_backward.c: which kernel takes the gradient of the loss of rows: a vector of it a
 * thread.
 */
#include "cross_entropy.h"

#include <stdio.h>
#include "daemon/plan/ops/rows/flat.h"

#define GENERIC_THREADS 256u
#define TARGETS_WIDE 4u /* CROSS_ENTROPY_WIDE */

/* Does x lie as dx does? */
static bool is_flat(const struct rows_form *form)
{
	int64_t expected = form->columns;

	for (int k = form->rank - 1; k >= 0; k--) {
		if (form->size[k] > 1 && form->stride[0][k] != expected)
			return false;
		expected *= form->size[k];
	}
	return form->step[0] == 1 || form->columns == 1;
}

/* The widest vector that dx takes, and how x is read in such. */
static uint32_t find_way(const struct kernel_problem *problem, const struct cross_entropy *call,
						 enum flat_way *way)
{
	const struct kernel_tensor *x = &problem->tensors[CROSS_ENTROPY_X];
	uint32_t bytes = problem->tensors[CROSS_ENTROPY_BACK_DX].alignment, read;

	bytes = bytes < 16 ? bytes : 16;
	read = x->alignment < bytes ? x->alignment : bytes;
	if (!is_flat(&call->form)) {
		read = rows_narrow(&call->form, 0, call->element, read);
		while (read > call->element && (uint64_t)call->columns * call->element % read)
			read /= 2;
	}
	*way = call->form.step[0] != 1 && call->columns > 1 ? FLAT_APART
		   : read == bytes                              ? FLAT_WHOLE
														: FLAT_SKEWED;
	return bytes / call->element;
}

static void touch_all(const struct kernel_problem *problem, uint32_t x, uint32_t dx,
					  struct kernel_plan *out)
{
	for (int i = 0; i <= CROSS_ENTROPY_BACK_DX; i++)
		plan_touch(problem, i,
				   kernel_dtype_bytes(problem->tensors[i].dtype) * (i == CROSS_ENTROPY_X ? x
																	: i == CROSS_ENTROPY_BACK_DX
																		? dx
																		: 1),
				   out);
	plan_over(problem, CROSS_ENTROPY_BACK_DX, CROSS_ENTROPY_X, out);
}

static void pass_all(const struct cross_entropy *call, int64_t elements, struct kernel_plan *out)
{
	for (int i = 0; i <= CROSS_ENTROPY_BACK_DX; i++)
		plan_arg_pointer(out, i);
	plan_arg_report(out, (uint64_t)call->rows, (uint64_t)call->columns);
	plan_arg_scalar(out, 8, (uint64_t)elements);
	cross_entropy_pass(call, out);
}

static void plan_any(const struct kernel_problem *problem, const struct cross_entropy *call,
					 const struct kernel_limits *limits, uint32_t vector, enum flat_way way,
					 struct kernel_plan *out)
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int64_t elements = call->rows * call->columns;

	if (way != FLAT_WHOLE || vector * call->element != 16) {
		vector = 1;
		way = FLAT_APART;
	}
	plan_generic_spread(out, limits, "ops/cross_entropy_backward.cuh",
						(uint64_t)plan_divide_up(elements, vector), GENERIC_THREADS);
	plan_print(&id, "cross_entropy_backward_generic<%s, %u, %s>", plan_dtype_name(call->dtype),
			   vector, flat_way_name(way));
	pass_all(call, elements, out);
	/* There are not arguments enough for one more. */
	if (call->target == KILN_I64)
		out->args[out->arg_count - 1].value |= TARGETS_WIDE;
	plan_arg_divisor(out, 8, (uint64_t)call->columns);
	plan_arg_scalar(out, 8, (uint64_t)call->form.step[0]);
	rows_pass_sizes(out, &call->form, 8);
	for (int i = 0; i < 4; i++)
		rows_pass_strides(out, &call->form, i);
	touch_all(problem, vector, vector, out);
	snprintf(out->note, sizeof(out->note),
			 "a vector of %u bytes a thread; sizes and strides are arguments",
			 vector * call->element);
}

static int plan_way(const struct kernel_problem *problem, const struct cross_entropy *call,
					const struct kernel_limits *limits, uint32_t vector, enum flat_way way,
					uint32_t threads, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int64_t elements = call->rows * call->columns;
	uint64_t vectors = (uint64_t)plan_divide_up(elements, vector);
	bool loop = plan_launch(out, limits, (vectors + threads - 1) / threads, threads);

	snprintf(out->source, sizeof(out->source), "ops/cross_entropy_backward.cuh");
	plan_print(&id, "cross_entropy_backward<%s, %u, %s, %s, %u, %s, %s, %lld",
			   plan_dtype_name(call->dtype), vector, flat_way_name(way),
			   call->cap != 0 ? "true" : "false", threads, loop ? "true" : "false",
			   plan_dtype_name(call->target), (long long)call->columns);
	rows_print_sizes(&id, &call->form);
	rows_print_step(&id, &call->form, 0);
	for (int i = 0; i < 4; i++)
		rows_print_strides(&id, &call->form, i);
	plan_print(&id, ", %s>", elements > INT32_MAX ? "i64" : "u32");
	pass_all(call, elements, out);
	touch_all(problem, way == FLAT_WHOLE ? vector : 1, vector, out);
	snprintf(out->note, sizeof(out->note), "a vector of %u bytes a thread, %u threads a block%s",
			 vector * call->element, threads,
			 way == FLAT_SKEWED  ? "; x is cut out of two"
			 : way == FLAT_APART ? "; x is read element by element"
								 : "");
	return plan_check_name(&id, out, error);
}

int cross_entropy_backward_plan(const struct kernel_problem *problem,
								const struct kernel_limits *limits, const char *choice,
								struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct cross_entropy call;
	int status = cross_entropy_check(problem, &call, error);
	uint32_t vector, threads;
	enum flat_way way;

	if (status)
		return status;
	if (call.rows == 0) {
		plan_no_elements(out);
		return KILN_OK;
	}
	vector = find_way(problem, &call, &way);
	if (plan_is_generic(choice)) {
		plan_any(problem, &call, limits, vector, way, out);
		return KILN_OK;
	}
	threads = flat_threads(flat_way_word(way), limits, choice, out->choice);
	if (threads > 0)
		return plan_way(problem, &call, limits, vector, way, threads, out, error);
	return rows_no_candidate(problem, choice, &call.form, limits, error);
}

int cross_entropy_backward_choices(const struct kernel_problem *problem,
								   const struct kernel_limits *limits,
								   char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct cross_entropy call;
	char error[KERNEL_ERROR_MAX];
	enum flat_way way;

	if (cross_entropy_check(problem, &call, error))
		return 0;
	(void)find_way(problem, &call, &way);
	return flat_choices(flat_way_word(way), limits, names);
}

/* Each type has two: by vectors and by elements. */
int cross_entropy_backward_generics(int index, struct kernel_problem *out)
{
	static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64};
	kiln_dtype dtype, computed;
	const int64_t shape[] = {2, 64};

	if (index >= 8)
		return KILN_ENOENT;
	dtype = dtypes[index / 2];
	computed = dtype == KILN_F64 ? KILN_F64 : KILN_F32;
	plan_made_tensor(out, CROSS_ENTROPY_X, dtype, 2, shape);
	if (index % 2)
		out->tensors[CROSS_ENTROPY_X].alignment = kernel_dtype_bytes(dtype);
	plan_made_tensor(out, CROSS_ENTROPY_TARGET, KILN_I64, 1, shape);
	plan_made_tensor(out, CROSS_ENTROPY_BACK_LSE, computed, 1, shape);
	plan_made_tensor(out, CROSS_ENTROPY_BACK_COUNT, KILN_I64, 0, NULL);
	plan_made_tensor(out, CROSS_ENTROPY_BACK_DLOSS, computed, 0, NULL);
	plan_made_tensor(out, CROSS_ENTROPY_BACK_DX, dtype, 2, shape);
	return KILN_OK;
}
