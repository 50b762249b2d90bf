/*
 * gather.c: dst[i, j, k] = src[i, j, idx[j, k]]: the plan of a gather by one of its candidates
 * (gather_way.c, gather_group.c, gather_alike.c).
 */
#include "gather.h"

#include <stdio.h>
#include <string.h>

static void print_list(const struct gather_problem *gather, const struct gather_way *way,
					   const char *number, bool loop, struct plan_text *id)
{
	plan_print(id, "gather_list<GatherList<%u, %s, %s, %lld, %lld, %u, %u, %u>", gather->element,
			   gather_index_name(gather), plan_bounds_name(gather->bounds), (long long)gather->few,
			   (long long)gather->many, way->rows, way->threads, way->vector);
	plan_print(id, ", GatherListPlaces<%lld", (long long)gather->index_step);
	rows_print_sizes(id, &gather->form);
	rows_print_strides(id, &gather->form, 0);
	rows_print_strides(id, &gather->form, 1);
	plan_print(id, ">, %lld, %s, %s>", (long long)gather->lists, number, loop ? "true" : "false");
}

static void gather_print_kernel(const struct gather_problem *gather, const struct gather_way *way,
								const char *number, bool loop, struct plan_text *id)
{
	plan_print(
		id, "gather_rows<GatherShape<%u, %s, %s, %lld, %lld, %s, %u, %lld, %u, %u, %u, %u, %s>",
		gather->element, gather_index_name(gather), plan_bounds_name(gather->bounds),
		(long long)gather->few, (long long)gather->many, way->stage ? "true" : "false", way->rows,
		(long long)way->part, way->threads, way->skew ? 0 : way->load, way->vector, way->index_load,
		way->rows == 1 && gather_along(gather) ? "true" : "false");
	plan_print(id, ", GatherPlaces<%s, %lld, %lld", gather_is_dense(gather) ? "true" : "false",
			   (long long)gather->form.step[0], (long long)gather->index_step);
	rows_print_sizes(id, &gather->form);
	rows_print_strides(id, &gather->form, 0);
	rows_print_strides(id, &gather->form, 1);
	plan_print(id, ">, %s, %s>", number, loop ? "true" : "false");
}

static int gather_plan_way(const struct kernel_problem *problem,
						   const struct gather_problem *gather, const struct gather_way *way,
						   const struct kernel_limits *limits, struct kernel_plan *out,
						   char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int64_t parts = way->list ? 1 : plan_divide_up(gather->many * way->rows, way->part);
	int64_t blocks = plan_divide_up(gather->form.rows, way->rows), items;
	const char *number;
	bool loop;

	if (__builtin_mul_overflow(blocks, parts, &items))
		return plan_refuse(error, KILN_ENOTSUP, "%s: there are too many rows and indices",
						   problem->op);
	if (way->list)
		items = plan_divide_up(gather->outer, way->rows) * gather->lists;
	loop = plan_launch(out, limits, items, way->threads);
	number = items > INT32_MAX || gather->form.rows > INT32_MAX ? "i64" : "u32";
	snprintf(out->source, sizeof(out->source), "ops/gather%s.cuh", way->list ? "_list" : "");
	if (way->list)
		out->shared_bytes = (gather_list_shared(gather, way) + 15) / 16 * 16;
	else if (way->stage)
		out->shared_bytes = gather_stage_shared(gather, way);
	(way->list ? print_list : gather_print_kernel)(gather, way, number, loop, &id);
	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	plan_arg_scalar(out, 8, (uint64_t)(way->list ? gather->outer : gather->form.rows));
	plan_arg_scalar(out, 8, (uint64_t)(way->list ? items : gather->lists));
	gather_report_arg(gather, out);
	gather_extents(problem, gather, way->load,
				   way->index_load ? way->index_load : gather->index_bytes,
				   way->list ? gather->element : way->vector * gather->element, out);
	return plan_check_name(&id, out, error);
}

static void gather_describe(const struct gather_problem *gather, const struct gather_way *way,
							struct kernel_plan *out)
{
	memcpy(out->choice, way->name, sizeof(out->choice));
	snprintf(out->note, sizeof(out->note),
			 "%lld of %lld elements a row, %s; %u row%s a block%s, %u bytes stored at once",
			 (long long)gather->many, (long long)gather->few,
			 way->stage ? "which shared memory holds" : "read where they are", way->rows,
			 way->rows == 1 ? "" : "s",
			 !way->list && way->part < gather->many * way->rows ? " or a part of one" : "",
			 way->vector * gather->element);
}

int gather_plan_rows(const struct kernel_problem *problem, const struct gather_problem *gather,
					 const struct kernel_limits *limits, const char *choice,
					 struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct gather_way ways[GATHER_WAYS];
	struct gather_group groups[GATHER_GROUPS];
	int count = gather_ways(problem, gather, limits, ways), chosen = 0, status;
	int grouped = gather_groups(problem, gather, limits, groups);
	struct gather_alike alikes[GATHER_ALIKES];
	int alike = gather_alikes(problem, gather, limits, alikes);

	for (int i = 0; i < alike; i++)
		if (choice ? strcmp(choice, alikes[i].name) == 0
				   : i == 0 && gather_alike_pays(gather, &alikes[0]))
			return gather_alike_plan(problem, gather, &alikes[i], limits, out, error);
	for (int i = 0; i < grouped; i++)
		if (choice ? strcmp(choice, groups[i].name) == 0
				   : i == 0 && gather_group_pays(gather, &groups[0]))
			return gather_group_plan(problem, gather, &groups[i], limits, out, error);
	while (choice && chosen < count && strcmp(choice, ways[chosen].name) != 0)
		chosen++;
	if (chosen == count)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: there is no candidate \"%s\" for rows of %lld elements and "
						   "%lld indices on %s",
						   problem->op, choice, (long long)gather->few, (long long)gather->many,
						   limits->target);
	status = gather_plan_way(problem, gather, &ways[chosen], limits, out, error);
	if (!status)
		gather_describe(gather, &ways[chosen], out);
	return status;
}

int gather_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
				const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct gather_problem gather;
	int status = gather_check(problem, &gather, error);

	if (status)
		return status;
	if (gather.form.rows == 0 || gather.many == 0) {
		gather_extents(problem, &gather, 1, 1, 1, out);
		plan_no_elements(out);
		return KILN_OK;
	}
	if (plan_is_generic(choice))
		return gather_generic(problem, &gather, limits, out, error);
	return gather_plan_rows(problem, &gather, limits, choice, out, error);
}

int gather_choices_rows(const struct kernel_problem *problem, const struct gather_problem *gather,
						const struct kernel_limits *limits,
						char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct gather_way ways[GATHER_WAYS];
	struct gather_group groups[GATHER_GROUPS];
	int count = gather_ways(problem, gather, limits, ways);
	int grouped = gather_groups(problem, gather, limits, groups);

	struct gather_alike alikes[GATHER_ALIKES];
	int alike = gather_alikes(problem, gather, limits, alikes), all = 0;
	bool alike_first = alike && gather_alike_pays(gather, &alikes[0]);
	bool group_first = grouped && gather_group_pays(gather, &groups[0]);

	for (int i = 0; i < alike && alike_first; i++)
		memcpy(names[all++], alikes[i].name, KERNEL_CHOICE_MAX);
	for (int i = 0; i < grouped && group_first; i++)
		memcpy(names[all++], groups[i].name, KERNEL_CHOICE_MAX);
	for (int i = 0; i < count; i++)
		memcpy(names[all++], ways[i].name, KERNEL_CHOICE_MAX);
	for (int i = 0; i < grouped && !group_first; i++)
		memcpy(names[all++], groups[i].name, KERNEL_CHOICE_MAX);
	for (int i = 0; i < alike && !alike_first; i++)
		memcpy(names[all++], alikes[i].name, KERNEL_CHOICE_MAX);
	return all;
}

int gather_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
				   char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct gather_problem gather;
	char error[KERNEL_ERROR_MAX];

	if (gather_check(problem, &gather, error))
		return 0;
	return gather_choices_rows(problem, &gather, limits, names);
}

int gather_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct kernel_tensor *src = &problem->tensors[0], *idx = &problem->tensors[1];
	struct kernel_tensor *dst = &problem->tensors[2];
	struct gather_problem gather;

	if (dst->dtype == KILN_DTYPE_NONE && src->rank >= 1 && idx->rank >= 1) {
		*dst = *src;
		dst->alignment = 16;
		dst->shape[dst->rank - 1] = idx->shape[idx->rank - 1];
		plan_contiguous(dst);
	} else {
		rows_infer_like(problem, 2, 0);
	}
	return gather_check(problem, &gather, error);
}
