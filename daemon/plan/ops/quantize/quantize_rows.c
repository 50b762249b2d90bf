/*
 * quantize_rows.c: the plan of dynamic_quantize, which finds a scale for each row, or for each
 * group, which is a row of its own then.
 *
 * The least scale is that of vLLM, so that a row of zeros has a scale that can be divided by: for
 * rows of f8 1 / (512 * the largest number), as its quantization for each token has it, for all
 * else 1e-10 / the largest number, as its quantization for groups has it.
 */
#include "quantize.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GENERIC_COUNT 4u /* vectors that a thread takes in a step */
#define REGISTERS 32     /* words of a row that a thread keeps */

enum { X, Y, SCALE };

struct form {
	struct rows_form rows; /* of x and y */
	struct rows_need need;
	const struct kernel_problem *problem;
	kiln_dtype from, to;
	int64_t groups; /* of a row of x; 0: its scale is that of all */
};

void quantize_limits(struct kernel_plan *out, kiln_dtype to, bool group)
{
	float largest = to == KILN_F8E4M3 ? 448 : to == KILN_F8E5M2 ? 57344 : 127;
	float least = (to == KILN_I8 || group ? 1e-10f : 1.0f / 512) / largest;
	double share = 1 / (double)largest;
	float high = (float)share;

	if ((double)high > share)
		high = nextafterf(high, 0);
	plan_arg_real(out, KILN_F32, (double)high);
	plan_arg_real(out, KILN_F32, share - (double)high);
	plan_arg_real(out, KILN_F32, (double)least);
}

static void quantize_find_form(const struct kernel_problem *problem, int64_t group,
							   struct form *form)
{
	const struct kernel_tensor *x = &problem->tensors[X], *y = &problem->tensors[Y];
	int64_t shape[KILN_MAX_RANK + 1], stride[2][KILN_MAX_RANK + 1];
	const int64_t *const strides[] = {stride[0], stride[1]};
	uint32_t element = kernel_dtype_bytes(x->dtype);
	int last = x->rank - 1, axis = last + (group > 0), culprit;

	memset(form, 0, sizeof(*form));
	for (int i = 0; i < 2; i++)
		memcpy(stride[i], problem->tensors[i].stride, sizeof(stride[0]));
	memcpy(shape, x->shape, sizeof(shape[0]) * (size_t)x->rank);
	if (group) {
		shape[axis] = group;
		shape[last] /= group;
		for (int i = 0; i < 2; i++) {
			stride[i][axis] = problem->tensors[i].stride[last];
			stride[i][last] = group * stride[i][axis];
		}
	}
	/* One axis always is one dimension. */
	(void)rows_form(&form->rows, axis + 1, shape, 2, strides, axis, 1, &culprit);
	form->from = x->dtype;
	form->to = y->dtype;
	form->problem = problem;
	form->groups = group ? x->shape[last] / group : 0;
	form->need = (struct rows_need){.element = element,
									.streams = 1,
									.held = 3,
									.alignment = x->alignment,
									.registers = REGISTERS,
									.skew = true,
									.slots = true,
									.stream = true};
	/* y has a byte where x has an element. */
	if (y->alignment * element < form->need.alignment)
		form->need.alignment = y->alignment * element;
}

/* An H200 likes small groups whose threads have two vectors, in blocks of 256, and 256 threads for
 * longer rows, which leave it with more blocks. */
static int quantize_rows_shapes(const struct form *form, const struct kernel_limits *limits,
								struct rows_shape *out, int most)
{
	int count = rows_shapes(&form->rows, &form->need, limits, out, most);
	uint64_t vectors;

	if (count == 0 || out[0].skewed || out[0].vector * form->need.element != 16)
		return count;
	vectors = (uint64_t)form->rows.columns / out[0].vector;
	if (vectors <= 32) {
		uint32_t size = rows_group(vectors, 2);
		quantize_prefer(out, count, &(struct rows_shape){.size = size, .rows = 256 / size});
	} else if (vectors > 256) {
		quantize_prefer(out, count, &(struct rows_shape){.size = 256, .rows = 1});
	}
	return count;
}

static void quantize_rows_pass(const struct form *form, struct kernel_plan *out)
{
	for (int i = X; i <= SCALE; i++)
		plan_arg_pointer(out, i);
	quantize_limits(out, form->to, form->groups > 0);
	quantize_pass_scales(form->problem, SCALE, form->groups > 0, out);
	plan_arg_scalar(out, 8, (uint64_t)form->rows.rows);
}

static void quantize_rows_touch(const struct kernel_problem *problem, const struct form *form,
								uint32_t vector, struct kernel_plan *out)
{
	plan_touch(problem, X, vector * form->need.element, out);
	plan_touch(problem, Y, vector, out);
	if (plan_has(problem, SCALE))
		plan_touch(problem, SCALE, 4, out);
}

static int quantize_rows_exact(const struct kernel_problem *problem, const struct form *form,
							   const struct rows_shape *shape, const struct kernel_limits *limits,
							   struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	bool loop = rows_launch(&form->rows, &form->need, shape, limits, out);

	snprintf(out->source, sizeof(out->source), "ops/quantize_rows.cuh");
	rows_shape_name(shape, out->choice);
	plan_print(&id, "quantize_rows%s<", shape->stream ? "_stream" : "");
	rows_print_shape(&id, form->from, &form->rows, shape);
	plan_print(&id, ", %s", loop ? "true" : "false");
	rows_print_step(&id, &form->rows, X);
	rows_print_sizes(&id, &form->rows);
	for (int i = X; i <= Y; i++)
		rows_print_strides(&id, &form->rows, i);
	plan_print(&id, ", %s, %s, %lld>", rows_index_type(&form->rows), quantize_type(form->to),
			   (long long)(form->groups ? form->groups : 1));
	quantize_rows_pass(form, out);
	quantize_rows_touch(problem, form, shape->vector, out);
	rows_describe(&form->rows, &form->need, shape, shape->stream ? " at a time, read twice" : "",
				  out);
	return plan_check_name(&id, out, error);
}

#define SPACE_RANK 7 /* of common/space.cuh */

static int quantize_rows_generic(const struct kernel_problem *problem, const struct form *form,
								 const struct kernel_limits *limits, struct kernel_plan *out,
								 char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	struct rows_any any;

	if (form->rows.rank > SPACE_RANK)
		return plan_refuse(error, KILN_ENOTSUP,
						   "%s: groups of x lie in %d dimensions that do not merge; the generic "
						   "kernel takes %d",
						   problem->op, form->rows.rank, SPACE_RANK);
	rows_any(&form->rows, &form->need, GENERIC_COUNT, ROWS_ANY_THREADS, limits, &any);
	plan_generic_launch(out, limits, "ops/quantize_rows.cuh", any.blocks, any.threads);
	plan_print(&id, "quantize_rows_generic<%s, %u, %s>", plan_dtype_name(form->from), any.vector,
			   quantize_type(form->to));
	quantize_rows_pass(form, out);
	plan_arg_scalar(out, 8, (uint64_t)form->rows.columns);
	plan_arg_scalar(out, 4, any.shift);
	plan_arg_scalar(out, 8, (uint64_t)form->rows.step[X]);
	plan_arg_scalar(out, 8, form->groups ? (uint64_t)form->groups : 1);
	rows_pass_sizes(out, &form->rows, 8);
	for (int i = X; i <= Y; i++)
		rows_pass_strides(out, &form->rows, i);
	quantize_rows_touch(problem, form, any.vector, out);
	rows_any_describe(&any, form->need.element, out);
	return KILN_OK;
}

bool quantize_whole_groups(const struct rows_form *form, const struct rows_need *need,
						   int64_t group, const struct rows_any *any, uint32_t *lanes)
{
	uint64_t row = any->shift < ROWS_ANY_ALONE ? UINT64_C(1) << any->shift : any->threads;

	*lanes = 0;
	if (any->vector == 1 || group == 0 || rows_vector(form, need) != any->vector)
		return false;
	while (*lanes < 5 && (int64_t)any->vector << *lanes < group)
		++*lanes;
	return (int64_t)any->vector << *lanes == group && row % (UINT64_C(1) << *lanes) == 0;
}

int quantize_rows_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
					   const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct rows_shape shapes[PLAN_MAX_CHOICES];
	struct form form;
	int64_t group;
	int status = quantize_check(problem, &group, error), count, chosen;

	if (status)
		return status;
	quantize_find_form(problem, group, &form);
	/* Rows of nothing have scales. */
	if (form.rows.rows == 0 || (form.rows.columns == 0 && !plan_has(problem, SCALE))) {
		plan_no_elements(out);
		return KILN_OK;
	}
	if (plan_is_generic(choice))
		return quantize_rows_generic(problem, &form, limits, out, error);
	count = quantize_rows_shapes(&form, limits, shapes, PLAN_MAX_CHOICES);
	chosen = rows_shape_find(shapes, count, choice);
	if (chosen < 0)
		return rows_no_candidate(problem, choice, &form.rows, limits, error);
	return quantize_rows_exact(problem, &form, &shapes[chosen], limits, out, error);
}

int quantize_rows_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						  char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct rows_shape shapes[PLAN_MAX_CHOICES];
	char error[KERNEL_ERROR_MAX];
	struct form form;
	int64_t group;
	int count;

	if (quantize_check(problem, &group, error))
		return 0;
	quantize_find_form(problem, group, &form);
	count = quantize_rows_shapes(&form, limits, shapes, PLAN_MAX_CHOICES);
	for (int i = 0; i < count; i++)
		rows_shape_name(&shapes[i], names[i]);
	return count;
}
