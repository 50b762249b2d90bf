/*
 * scan.c: scans along rows: how the rows lie, and the plan.
 */
#include "scan_shape.h"

#include <stdio.h>
#include <string.h>

#define INPUTS 3 /* a kernel has so many, and two outputs */
#define OUTPUTS 2

/* Do vectors of so many elements begin where an operand's rows do, or rows side by side? */
static bool scan_fits(const struct kernel_problem *problem, const struct scan_form *form,
					  int operand, uint32_t vector)
{
	const struct rows_form *rows = &form->rows;
	const struct kernel_tensor *tensor = &problem->tensors[operand];
	uint32_t element = kernel_dtype_bytes(tensor->dtype);
	uint32_t bytes = vector * element < 16 ? vector * element : 16, unit = bytes / element;
	int last = rows->rank - 1, along = form->strided ? last : rows->rank;

	if ((form->strided ? rows->stride[operand][last] : rows->step[operand]) != 1 ||
		(form->strided ? rows->size[last] : rows->columns) % vector)
		return false;
	for (int k = 0; k < along; k++)
		if (rows->stride[operand][k] % unit)
			return false;
	return tensor->alignment >= bytes && (!form->strided || rows->step[operand] % unit == 0);
}

static bool scan_all_fit(const struct kernel_problem *problem, const struct scan_form *form,
						 uint32_t vector)
{
	for (int i = 0; i < form->rows.operands; i++)
		if (!scan_fits(problem, form, i, vector))
			return false;
	return true;
}

/* Do rows begin equally far beyond a vector in all operands? */
static bool scan_congruent(const struct kernel_problem *problem, const struct scan_form *form,
						   uint32_t vector)
{
	const struct rows_form *rows = &form->rows;

	for (int i = 0; i < rows->operands; i++) {
		if (rows->step[i] != 1 || problem->tensors[i].alignment < 16)
			return false;
		for (int k = 0; k < rows->rank; k++)
			if ((rows->stride[i][k] - rows->stride[0][k]) % vector)
				return false;
	}
	return true;
}

void scan_find_form(const struct kernel_problem *problem, int inputs, int outputs,
					struct scan_form *form)
{
	const struct kernel_tensor *x = &problem->tensors[0];
	const int64_t *strides[INPUTS + OUTPUTS];
	uint32_t wide;
	int culprit;

	memset(form, 0, sizeof(*form));
	form->inputs = inputs;
	form->outputs = outputs;
	form->dtype = x->dtype;
	form->element = kernel_dtype_bytes(x->dtype);
	for (int i = 0; i < inputs + outputs; i++)
		strides[i] = problem->tensors[i].stride;
	/* One axis always merges with itself. */
	rows_form(&form->rows, x->rank, x->shape, inputs + outputs, strides, plan_axis(problem), 1,
			  &culprit);
	form->strided = form->rows.step[inputs] != 1;
	wide = 16 / form->element;
	form->vector = wide;
	while (form->vector > 1 && !scan_all_fit(problem, form, form->vector))
		form->vector /= 2;
	form->skewed = !form->strided && form->vector < wide &&
				   form->rows.columns >= 4 * (int64_t)wide && scan_congruent(problem, form, wide);
	if (form->skewed)
		form->vector = wide;
}

/* ---- Choices ---- */

static bool is_skewed(const struct scan_form *form, const struct scan_shape *shape)
{
	return form->skewed && shape->vector > 1;
}

static void name_shape(const struct scan_form *form, const struct scan_shape *shape,
					   char name[KERNEL_CHOICE_MAX])
{
	char early[16] = "";

	if (shape->early > 1)
		snprintf(early, sizeof(early), " ring%u", shape->early);
	else if (shape->early)
		snprintf(early, sizeof(early), " early");
	snprintf(name, KERNEL_CHOICE_MAX, "%s %ux%ux%u%s",
			 shape->chain             ? "chain"
			 : form->strided          ? "columns"
			 : is_skewed(form, shape) ? "skewed"
									  : "rows",
			 shape->side, shape->size, shape->held, early);
}

int scan_choices(const struct scan_form *form, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct scan_shape shapes[SCAN_SHAPES_MOST];
	int count = scan_shapes(form, limits, shapes);

	for (int i = 0; i < count; i++)
		name_shape(form, &shapes[i], names[i]);
	return count;
}

/* ---- The plan ---- */

static void scan_print_kernel(const struct scan_form *form, const struct scan_shape *shape,
							  bool generic, struct plan_text *id)
{
	const struct rows_form *rows = &form->rows;
	bool strided = form->strided;

	plan_print(id, "scan_%s%s<%s, %u, %u",
			   shape->chain ? "chain"
			   : strided    ? "columns"
							: "rows",
			   generic ? "_generic" : "", generic ? form->generic_monoid : form->monoid,
			   shape->vector, shape->held);
	if (generic && !strided)
		plan_print(id, ", %u, %s", SCAN_GENERIC_THREADS,
				   scan_generic_short(form) ? "false" : "true");
	else if (strided)
		plan_print(id, ", %u, %u", shape->side, generic ? SCAN_GENERIC_THREADS / 32 : shape->size);
	else
		plan_print(id, ", %u, %u, %s", shape->size, shape->side,
				   is_skewed(form, shape) ? "true" : "false");
	if (!generic && strided && !shape->chain)
		plan_print(id, ", %u", shape->early);
	else if (!generic && !strided)
		plan_print(id, ", %s", shape->early ? "true" : "false");
	plan_print(id, ", %s", form->reverse ? "true" : "false");
	if (!generic) {
		plan_print(id, ", %s, %lld", form->exclusive ? "true" : "false", (long long)rows->columns);
		if (strided)
			rows_print_step(id, rows, form->inputs);
		rows_print_sizes(id, rows);
		rows_print_strides(id, rows, form->inputs);
		plan_print(id, ", %s", rows_index_type(rows));
		for (int i = 0; i < form->inputs; i++) {
			plan_print(id, ", ScanIn<%lld", (long long)rows->step[i]);
			rows_print_strides(id, rows, i);
			plan_print(id, ">");
		}
	}
	plan_print(id, ">");
}

static void pass_arguments(const struct scan_form *form, bool generic, struct kernel_plan *out)
{
	const struct rows_form *rows = &form->rows;

	/* Those that are not there have the places of y, and no address. */
	for (int i = 0; i < INPUTS + OUTPUTS; i++) {
		int operand = i < INPUTS ? i : form->inputs + i - INPUTS;
		bool there = i < INPUTS ? i < form->inputs : i - INPUTS < form->outputs;
		if (there)
			plan_arg_pointer(out, operand);
		else
			plan_arg_scalar(out, 8, 0);
	}
	plan_arg_scalar(out, 8, (uint64_t)rows->rows);
	if (!generic)
		return;
	plan_arg_scalar(out, 8, (uint64_t)rows->columns);
	rows_pass_sizes(out, rows, 8);
	for (int i = 0; i <= INPUTS; i++)
		rows_pass_strides(out, rows, i < form->inputs ? i : form->inputs);
	for (int i = 0; i <= INPUTS; i++)
		plan_arg_scalar(out, 8, (uint64_t)rows->step[i < form->inputs ? i : form->inputs]);
	plan_arg_scalar(out, 4, form->exclusive);
}

static int plan_shape(const struct kernel_problem *problem, const struct scan_form *form,
					  const struct scan_shape *shape, bool generic,
					  const struct kernel_limits *limits, struct kernel_plan *out,
					  char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint64_t each = form->strided ? (uint64_t)shape->side * shape->vector : shape->side;

	plan_generic_launch(out, limits, form->source, ((uint64_t)form->rows.rows + each - 1) / each,
						shape->size * shape->side);
	out->shared_bytes = scan_ring_bytes(shape);
	if (shape->chain)
		out->grid[0] *= (uint32_t)scan_chain_tiles(form, shape);
	scan_print_kernel(form, shape, generic, &id);
	pass_arguments(form, generic, out);
	if (shape->chain) {
		out->scratch = scan_chain_scratch(form, shape);
		plan_arg_scratch(out);
	}
	for (int i = 0; i < form->inputs + form->outputs; i++) {
		uint32_t bytes = shape->vector * kernel_dtype_bytes(problem->tensors[i].dtype);
		plan_touch(problem, i, bytes < 16 ? bytes : 16, out);
	}
	if (!generic) {
		name_shape(form, shape, out->choice);
		snprintf(out->variant, sizeof(out->variant), "%s",
				 shape->chain    ? "chain"
				 : form->strided ? "columns"
								 : "rows");
	}
	snprintf(out->note, sizeof(out->note),
			 "rows of %lld elements%s; threads a row: %u; vectors a thread: %u of %u bytes%s",
			 (long long)form->rows.columns, form->strided ? " side by side" : "", shape->size,
			 shape->held, shape->vector * form->element,
			 generic ? "; sizes and strides are arguments" : "");
	return plan_check_name(&id, out, error);
}

int scan_plan(const struct kernel_problem *problem, const struct scan_form *form,
			  const struct kernel_limits *limits, const char *choice, struct kernel_plan *out,
			  char error[KERNEL_ERROR_MAX])
{
	struct scan_shape shapes[SCAN_SHAPES_MOST];
	int count;

	if (plan_is_generic(choice)) {
		shapes[0] = scan_generic_shape(form, limits);
		return plan_shape(problem, form, &shapes[0], true, limits, out, error);
	}
	count = scan_shapes(form, limits, shapes);
	for (int i = 0; i < count; i++) {
		char name[KERNEL_CHOICE_MAX];
		name_shape(form, &shapes[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return plan_shape(problem, form, &shapes[i], false, limits, out, error);
	}
	return rows_no_candidate(problem, choice, &form->rows, limits, error);
}

void scan_made(int layout, int operands, kiln_dtype dtype, struct kernel_problem *out)
{
	static const int64_t shapes[SCAN_LAYOUTS][3] = {{2, 3}, {2, 1024}, {2, 1024}, {2, 3, 5}};

	for (int i = 0; i < operands; i++)
		plan_made_tensor(out, i, dtype, layout == 3 ? 3 : 2, shapes[layout]);
	if (layout == 3)
		plan_made_int(out, "axis", 1);
	/* Elements apart from one another move one by one. */
	if (layout == 2)
		for (int k = 0; k < 2; k++)
			out->tensors[0].stride[k] *= 2;
}
