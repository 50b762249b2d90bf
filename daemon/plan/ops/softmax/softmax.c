/*
 * softmax.c: softmax, log_softmax and their backward: what a request must satisfy, and the kernel
 * that takes it.  The rows are in softmax_form.c.
 */
#include "softmax.h"

#include <stdio.h>
#include <string.h>

/* The four operators: operands 0 .. inputs are inputs, the next is the output. */
struct softmax_op {
	int inputs;
	bool log;
};

static struct softmax_op op_of(const struct kernel_problem *problem)
{
	return (struct softmax_op){strstr(problem->op, "backward") ? 2 : 1,
							   strncmp(problem->op, "log_", 4) == 0};
}

static const int operand_index[] = {0, 1, 2};

static void form_of(const struct kernel_problem *problem, struct softmax_op op,
					struct softmax_form *form)
{
	softmax_form(problem, operand_index, op.inputs + 1, plan_axis(problem), form);
	if (op.log)
		form->need.around += 9; /* log() itself */
}

static int softmax_check(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	int inputs = op_of(problem).inputs;
	int status = rows_check_float(problem, 0, error);

	for (int i = 1; i <= inputs && !status; i++)
		status = rows_check_like(problem, i, 0, error);
	if (!status)
		status = rows_check_contiguous(problem, inputs, error);
	return status;
}

int softmax_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	rows_infer_like(problem, op_of(problem).inputs, 0);
	return softmax_check(problem, error);
}

/* The template-id, after grid and block are known. */
static void softmax_print_kernel(const struct softmax_form *form, const struct softmax_way *way,
								 struct softmax_op op, bool loop, struct plan_text *id)
{
	bool whole = way->tile.whole;
	bool cluster = way->tile.cluster > 1;
	const char *kind = way->tile.teams        ? (cluster ? "ring_cluster" : "ring")
					   : cluster              ? (whole ? "whole_cluster" : "panel_cluster")
					   : whole                ? "whole"
					   : way->tile.cluster    ? "panel"
					   : way->strided         ? "strided"
					   : way->row.gapped      ? "gapped"
					   : way->row.pairs       ? "pairs"
					   : way->row.staged      ? "staged"
					   : way->row.stream      ? "stream"
					   : way->row.cluster > 1 ? "cluster"
											  : "rows";

	plan_print(id, "softmax%s_%s<", op.inputs > 1 ? "_backward" : "", kind);
	if (way->strided)
		softmax_print_tile(id, form, &way->tile);
	else
		rows_print_shape(id, form->dtype, &form->rows, &way->row);
	plan_print(id, ", %s", op.log ? "true" : "false");
	if (way->row.gapped) {
		rows_print_sizes(id, &form->rows);
		rows_print_strides(id, &form->rows, 0);
		plan_print(id, ", %s", rows_index_type(&form->rows));
	}
	if (!way->row.staged && !whole) { /* whose rows have no gaps */
		plan_print(id, ", %s", loop ? "true" : "false");
		if (way->strided)
			softmax_print_sides(id, form);
		else
			softmax_print_rows(id, form);
	}
	plan_print(id, ">");
}

static int softmax_plan_way(const struct softmax_form *form, const struct softmax_way *way,
							const struct kernel_limits *limits, struct softmax_op op, double scale,
							struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint64_t work = (uint64_t)form->rows.rows;
	bool loop = way->strided ? softmax_tile_launch(form, &way->tile, limits, out, &work)
							 : rows_launch(&form->rows, &form->need, &way->row, limits, out);

	snprintf(out->source, sizeof(out->source), "ops/softmax%s%s.cuh",
			 !way->strided && !way->row.staged && op.inputs > 1 ? "_backward" : "",
			 way->tile.teams     ? "_ring"
			 : way->tile.whole   ? "_whole"
			 : way->tile.cluster ? "_panel"
			 : way->strided      ? "_strided"
			 : way->row.pairs    ? "_pairs"
			 : way->row.staged   ? "_staged"
			 : way->row.stream   ? "_stream"
								 : "");
	softmax_print_kernel(form, way, op, loop, &id);
	for (int i = 0; i <= op.inputs; i++)
		plan_arg_pointer(out, i);
	if (op.inputs > 1)
		plan_arg_real(out, form->dtype, scale);
	else
		softmax_scale_args(out, form->dtype, scale);
	plan_arg_scalar(out, 8, work);
	return plan_check_name(&id, out, error);
}

static void softmax_describe(const struct softmax_form *form, const struct softmax_way *way,
							 struct kernel_plan *out)
{
	memcpy(out->choice, way->name, sizeof(out->choice));
	if (way->strided)
		snprintf(out->note, sizeof(out->note),
				 "rows of %lld elements side by side; threads a row: %u; elements a thread: %u%s",
				 (long long)form->rows.columns,
				 way->tile.split * (way->tile.cluster ? way->tile.cluster : 1), way->tile.held,
				 way->tile.twice ? " at a time, read twice" : "");
	else
		rows_describe(&form->rows, &form->need, &way->row,
					  way->row.stream ? " at a time, read twice" : "", out);
}

int softmax_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct softmax_op op = op_of(problem);
	struct softmax_way ways[SOFTMAX_MAX_WAYS];
	struct softmax_form form;
	double scale = plan_real(problem, "scale");
	int status = softmax_check(problem, error), count, chosen;
	int64_t elements;

	if (status)
		return status;
	plan_elements(&problem->tensors[0], &elements);
	if (elements == 0) {
		plan_no_elements(out);
		return KILN_OK;
	}
	form_of(problem, op, &form);
	if (plan_is_generic(choice)) {
		softmax_generic(problem, &form, op.inputs + 1, op.log, scale, limits, out);
		return KILN_OK;
	}
	count = softmax_ways(&form, limits, ways);
	chosen = softmax_way_find(ways, count, choice);
	if (chosen < 0)
		return rows_no_candidate(problem, choice, &form.rows, limits, error);
	status = softmax_plan_way(&form, &ways[chosen], limits, op, scale, out, error);
	if (status)
		return status;
	softmax_extents(problem, operand_index, op.inputs + 1,
					ways[chosen].tile.whole ? 16
					: ways[chosen].strided  ? ways[chosen].tile.vector * form.need.element
											: rows_alignment(&ways[chosen].row, form.need.element),
					out);
	softmax_describe(&form, &ways[chosen], out);
	return KILN_OK;
}

int softmax_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
					char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct softmax_way ways[SOFTMAX_MAX_WAYS];
	struct softmax_form form;
	int count;

	form_of(problem, op_of(problem), &form);
	count = softmax_ways(&form, limits, ways);
	for (int i = 0; i < count; i++)
		memcpy(names[i], ways[i].name, KERNEL_CHOICE_MAX);
	return count;
}
