/*
 * topk_plan.c: the plan of a way: which kernel, its launch and its arguments.
 */
#include "daemon/plan/ops/topk/topk.h"

#include <stdio.h>
#include <string.h>

int topk_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct topk_way ways[TOPK_MAX_WAYS];
	struct topk_form form;
	int count;

	topk_find_form(problem, &form);
	count = topk_find_ways(&form, limits, ways);
	for (int i = 0; i < count; i++)
		topk_way_name(&ways[i], names[i]);
	return count;
}

static const char *flag_text(bool value)
{
	return value ? "true" : "false";
}

/* The template-id's end: where rows begin. */
static void print_places(struct plan_text *id, const struct rows_form *rows)
{
	rows_print_sizes(id, rows);
	for (int i = 0; i < 2; i++)
		rows_print_strides(id, rows, i);
	plan_print(id, ", %s>", rows_index_type(rows));
}

static void print_kernel(const struct topk_form *form, const struct topk_way *way, bool generic,
						 struct plan_text *id)
{
	static const char *const entries[] = {
		[4] = "Entry<u32>", [8] = "Entry<u64>", [16] = "EntryWide"};
	const char *dtype = plan_dtype_name(form->dtype), *greatest = flag_text(form->greatest);

	switch (way->kind) {
	case TOPK_LIST:
	case TOPK_NETWORK:
		plan_print(id, "topk_%s<%s, %u, %u, %u, %u, %s, %lld, %lld, %u",
				   way->kind == TOPK_LIST ? "list" : "network", dtype, way->vector, way->lanes,
				   way->kind == TOPK_LIST ? way->threads : way->each,
				   way->kind == TOPK_LIST ? way->sorted : way->threads, greatest,
				   (long long)form->rows.columns, (long long)form->k, form->out);
		break;
	case TOPK_SAMPLED:
		plan_print(id, "topk_sampled<%s, %u, %u, %u, %u, %u, %u, %u, %u, %s, %lld, %lld", dtype,
				   way->held, way->stages, way->threads, way->sample, way->want, way->bins,
				   way->room, way->sorted, greatest, (long long)form->rows.columns,
				   (long long)form->k);
		rows_print_step(id, &form->rows, 1);
		print_places(id, &form->rows);
		return;
	case TOPK_WHOLE:
		plan_print(id, "topk_whole_generic<%s, %s, %u>", dtype, entries[way->entry],
				   TOPK_GENERIC_THREADS);
		return;
	case TOPK_ROWS:
		plan_print(id, "topk_rows%s<%s, %s, %u, %u", generic ? "_generic" : "", dtype,
				   entries[way->entry], way->vector, way->held);
		if (generic) {
			plan_print(id, ", %u>", TOPK_GENERIC_THREADS);
			return;
		}
		plan_print(id, ", %u, %u, %s, %s, %s, %u, %u, %lld", way->threads, way->rows, greatest,
				   flag_text(way->whole), flag_text(way->scratch), way->sorted, way->room,
				   (long long)form->rows.columns);
		break;
	}
	for (int i = 0; i < 2; i++)
		rows_print_step(id, &form->rows, i);
	print_places(id, &form->rows);
}

static void pass_arguments(const struct topk_form *form, const struct topk_way *way, bool generic,
						   struct kernel_plan *out)
{
	const struct rows_form *rows = &form->rows;

	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	if (way->kind >= TOPK_ROWS && way->scratch)
		plan_arg_scratch(out);
	else if (way->kind >= TOPK_ROWS)
		plan_arg_scalar(out, 8, 0);
	plan_arg_scalar(out, 8, (uint64_t)rows->rows);
	if (way->kind >= TOPK_ROWS)
		plan_arg_scalar(out, 4, (uint64_t)form->k);
	if (!generic)
		return;
	for (int i = 0; i < 2; i++)
		plan_arg_scalar(out, 8, (uint64_t)rows->step[i]);
	plan_arg_scalar(out, 4, (uint64_t)rows->columns);
	plan_arg_scalar(out, 4, way->sorted);
	plan_arg_scalar(out, 4, way->room);
	plan_arg_scalar(out, 4, form->greatest);
	rows_pass_sizes(out, rows, 8);
	for (int i = 0; i < 2; i++)
		rows_pass_strides(out, rows, i);
}

/* Says what the operands' addresses must be multiples of. */
static void touch_operands(const struct kernel_problem *problem, const struct topk_form *form,
						   const struct topk_way *way, struct kernel_plan *out)
{
	bool rows = way->kind >= TOPK_SAMPLED;

	plan_touch(problem, TOPK_X, rows ? form->element : way->vector * form->element, out);
	plan_touch(problem, TOPK_VALUES, (rows ? 1 : form->out) * form->element, out);
	if (plan_has(problem, TOPK_INDICES))
		plan_touch(problem, TOPK_INDICES, rows ? 8 : 8 * form->out, out);
}

static void describe(const struct topk_form *form, const struct topk_way *way, bool generic,
					 struct kernel_plan *out)
{
	static const char *const variants[] = {[TOPK_LIST] = "list",
										   [TOPK_NETWORK] = "network",
										   [TOPK_SAMPLED] = "sampled",
										   [TOPK_ROWS] = "filtered"};
	char how[96];

	if (!generic) {
		topk_way_name(way, out->choice);
		snprintf(out->variant, sizeof(out->variant), "%s",
				 way->kind == TOPK_ROWS && way->whole ? "whole" : variants[way->kind]);
	}
	if (way->kind == TOPK_LIST)
		snprintf(how, sizeof(how), "each keeps the first of its elements");
	else if (way->kind == TOPK_NETWORK)
		snprintf(how, sizeof(how), "they sort all in registers");
	else if (way->kind == TOPK_SAMPLED)
		snprintf(how, sizeof(how), "a sample says what is collected, up to %u", way->room);
	else
		snprintf(how, sizeof(how), "%s%u entries are sorted",
				 way->whole ? "" : "what may be among them is collected, and ", way->sorted);
	snprintf(out->note, sizeof(out->note), "%lld of rows of %lld elements; threads a row: %u; %s%s",
			 (long long)form->k, (long long)form->rows.columns, way->threads / way->rows, how,
			 generic ? "; sizes and strides are arguments" : "");
}

static int plan_way(const struct kernel_problem *problem, const struct topk_form *form,
					const struct topk_way *way, bool generic, const struct kernel_limits *limits,
					struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint64_t blocks = (uint64_t)plan_divide_up(form->rows.rows, way->rows);
	static const char *const sources[] = {[TOPK_LIST] = "ops/topk_short.cuh",
										  [TOPK_NETWORK] = "ops/topk_short.cuh",
										  [TOPK_SAMPLED] = "ops/topk_sampled.cuh",
										  [TOPK_ROWS] = "ops/topk.cuh",
										  [TOPK_WHOLE] = "ops/topk_whole_generic.cuh"};
	bool shared = way->kind >= TOPK_SAMPLED;

	/* As many as run at once take the rows in turn. */
	if (way->scratch && blocks > 2 * limits->multiprocessors)
		blocks = 2 * limits->multiprocessors;
	plan_generic_launch(out, limits, sources[way->kind], blocks, way->threads);
	if (way->scratch)
		out->scratch.bytes = out->grid[0] * topk_way_bytes(way);
	else if (shared)
		out->shared_bytes = topk_way_bytes(way);
	print_kernel(form, way, generic, &id);
	pass_arguments(form, way, generic, out);
	touch_operands(problem, form, way, out);
	describe(form, way, generic, out);
	return plan_check_name(&id, out, error);
}

int topk_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
			  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct topk_way ways[TOPK_MAX_WAYS];
	struct topk_form form;
	int64_t elements;
	int count, status = topk_check(problem, error);

	if (status)
		return status;
	plan_elements(&problem->tensors[TOPK_VALUES], &elements);
	if (elements == 0) {
		plan_no_elements(out);
		return KILN_OK;
	}
	topk_find_form(problem, &form);
	if (plan_is_generic(choice)) {
		topk_generic_way(&form, limits, &ways[0]);
		return plan_way(problem, &form, &ways[0], true, limits, out, error);
	}
	count = topk_find_ways(&form, limits, ways);
	for (int i = 0; i < count; i++) {
		char name[KERNEL_CHOICE_MAX];
		topk_way_name(&ways[i], name);
		if (!choice || strcmp(choice, name) == 0)
			return plan_way(problem, &form, &ways[i], false, limits, out, error);
	}
	return rows_no_candidate(problem, choice, &form.rows, limits, error);
}
