/*
 * gather_backward.c: dsrc[i, j, p] = the sum of ddst[i, j, k] over the k with idx[j, k] = p: the
 * plans, of the candidates in gather_backward_way.c and of the generic kernel.
 */
#include "gather_backward.h"

#include <stdio.h>
#include <string.h>

/* Integers wrap whatever their sign is. */
static const char *element_name(const struct gather_problem *gather)
{
	static const char *const words[] = {"u8", "u16", "", "u32", "", "", "", "u64"};

	return plan_is_float(gather->dtype) ? plan_dtype_name(gather->dtype)
										: words[gather->element == 2 ? 1 : gather->element - 1];
}

static void print_link(const struct gather_problem *gather, const struct scatter_way *way,
					   struct plan_text *id)
{
	plan_print(id, "gather_backward_link<ScatterLink<%s, %s, %s, %lld, %lld, %u, %s, %u>",
			   element_name(gather), gather_index_name(gather), plan_bounds_name(gather->bounds),
			   (long long)gather->few, (long long)gather->many, way->threads,
			   way->skew ? "true" : "false", way->vector);
}

static void print_rows(const struct gather_problem *gather, const struct scatter_way *way,
					   struct plan_text *id)
{
	plan_print(id,
			   "gather_backward_rows<ScatterShape<%s, %s, %s, %lld, %lld, %u, %u, %u, %u, %u, "
			   "%u>",
			   element_name(gather), gather_index_name(gather), plan_bounds_name(gather->bounds),
			   (long long)gather->few, (long long)gather->many, way->chunk, way->tile, way->rows,
			   way->threads, way->load, way->vector);
}

static int gather_backward_plan_way(const struct kernel_problem *problem,
									const struct gather_problem *gather,
									const struct scatter_way *way,
									const struct kernel_limits *limits, struct kernel_plan *out,
									char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int64_t chunks = plan_divide_up(gather->few, way->chunk), items;
	int64_t rows = way->rows * (way->turns ? way->turns : 1);
	bool loop;

	if (__builtin_mul_overflow(plan_divide_up(gather->outer, rows) * gather->lists, chunks, &items))
		return plan_refuse(error, KILN_ENOTSUP, "gather_backward: there are too many rows");
	loop = plan_launch(out, limits, items, way->threads);
	snprintf(out->source, sizeof(out->source), "ops/gather_backward%s.cuh",
			 way->turns ? "_link" : "");
	out->shared_bytes = way->shared;
	(way->turns ? print_link : print_rows)(gather, way, &id);
	gather_pass_lists(gather, problem->tensors[0].rank > 2 ? gather->lists : 0, items, loop, &id,
					  out);
	if (way->turns)
		plan_arg_scalar(out, 4, way->turns);
	gather_extents(problem, gather, way->load, gather->index_bytes, way->vector * gather->element,
				   out);
	return plan_check_name(&id, out, error);
}

static void gather_backward_describe(const struct gather_problem *gather,
									 const struct scatter_way *way, struct kernel_plan *out)
{
	memcpy(out->choice, way->name, sizeof(out->choice));
	if (way->turns)
		snprintf(out->note, sizeof(out->note),
				 "a list of %lld indices is chained for %u times %u of its rows, which are summed "
				 "up together",
				 (long long)gather->many, way->turns, way->rows);
	else if (gather->many > way->tile)
		snprintf(out->note, sizeof(out->note),
				 "lists of %lld indices are chained %u at a time, for each row",
				 (long long)gather->many, way->tile);
	else
		snprintf(
			out->note, sizeof(out->note),
			"a list of %lld indices is chained once for %u of its rows; %u of %lld sums a block",
			(long long)gather->many, way->rows, way->chunk, (long long)gather->few);
}

/* ---- The generic plan ---- */

#define LOADS 1u /* flags of ops/gather_backward_generic.cuh */
#define WORDS 2u

/* The planner's own way, as arguments. */
static void pass_way(const struct gather_problem *gather, const struct scatter_way *way,
					 uint64_t items, struct kernel_plan *out)
{
	bool loads = way->load == 16,
		 words = gather->element < 4 && way->vector > 1 && way->vector * gather->element == 4;
	uint32_t each = loads ? 16 / gather->element : 1, stored = words ? way->vector : 1;

	plan_arg_scalar(out, 8, (uint64_t)gather->outer);
	plan_arg_scalar(out, 8, items);
	plan_arg_scalar(out, 8, (uint64_t)gather->few);
	plan_arg_scalar(out, 8, (uint64_t)gather->many);
	plan_arg_divisor(out, 8, (uint64_t)plan_divide_up(gather->few, way->chunk));
	plan_arg_divisor(out, 8, (uint64_t)gather->lists);
	plan_arg_divisor(out, 4, (uint64_t)plan_divide_up(way->tile, each));
	plan_arg_divisor(out, 4, (uint64_t)plan_divide_up(way->chunk, stored));
	plan_arg_scalar(out, 4, way->chunk);
	plan_arg_scalar(out, 4, way->tile);
	plan_arg_scalar(out, 4, way->rows);
	plan_arg_scalar(out, 8, (uint64_t)gather->form.step[0]);
	plan_arg_scalar(out, 8, (uint64_t)gather->index_step);
	plan_arg_scalar(out, 4, gather->bounds);
	plan_arg_scalar(out, 4, (loads ? LOADS : 0) | (words ? WORDS : 0));
	rows_pass_sizes(out, &gather->form, 8);
	rows_pass_strides(out, &gather->form, 0);
	rows_pass_strides(out, &gather->form, 1);
}

static int gather_backward_plan_generic(const struct kernel_problem *problem,
										const struct gather_problem *gather,
										const struct scatter_way *way,
										const struct kernel_limits *limits, struct kernel_plan *out,
										char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int64_t items;

	if (__builtin_mul_overflow(plan_divide_up(gather->outer, way->rows) * gather->lists,
							   plan_divide_up(gather->few, way->chunk), &items))
		return plan_refuse(error, KILN_ENOTSUP, "gather_backward: there are too many rows");
	plan_generic_launch(out, limits, "ops/gather_backward_generic.cuh", (uint64_t)items,
						way->threads);
	out->shared_bytes = way->shared;
	plan_print(&id, "gather_backward_generic<%s, %s>", element_name(gather),
			   gather_index_name(gather));
	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	gather_report_arg(gather, out);
	pass_way(gather, way, (uint64_t)items, out);
	gather_extents(problem, gather, way->load == 16 ? 16 : gather->element, gather->index_bytes,
				   way->vector * gather->element, out);
	snprintf(out->note, sizeof(out->note),
			 "a list is chained for %u of its rows; sizes and strides are arguments", way->rows);
	return KILN_OK;
}

int gather_backward_generics(int index, struct kernel_problem *out)
{
	static const kiln_dtype elements[] = {KILN_F32, KILN_F16, KILN_BF16, KILN_F64,
										  KILN_I32, KILN_I64, KILN_I8,   KILN_I16};
	static const kiln_dtype indices[] = {KILN_I32, KILN_I64, KILN_U8, KILN_U16};

	if (index >= 8 * 4)
		return KILN_ENOENT;
	plan_made_tensor(out, 0, elements[index / 4], 3, (const int64_t[]){2, 3, 7});
	plan_made_tensor(out, 1, indices[index % 4], 2, (const int64_t[]){3, 7});
	plan_made_tensor(out, 2, elements[index / 4], 3, (const int64_t[]){2, 3, 5});
	return KILN_OK;
}

int gather_backward_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
						 const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct gather_problem gather;
	struct scatter_way ways[SCATTER_WAYS];
	int status = gather_check(problem, &gather, error), count, chosen = 0;

	if (status)
		return status;
	if (gather.form.rows == 0 || gather.few == 0) {
		gather_extents(problem, &gather, 1, 1, 1, out);
		plan_no_elements(out);
		return KILN_OK;
	}
	count = scatter_ways(problem, &gather, limits, ways);
	if (plan_is_generic(choice))
		return gather_backward_plan_generic(problem, &gather, &ways[ways[0].turns > 0], limits, out,
											error);
	while (choice && chosen < count && strcmp(choice, ways[chosen].name) != 0)
		chosen++;
	if (chosen == count)
		return plan_refuse(error, KILN_EINVAL,
						   "gather_backward: there is no candidate \"%s\" for rows of %lld "
						   "elements and %lld indices on %s",
						   choice, (long long)gather.few, (long long)gather.many, limits->target);
	status = gather_backward_plan_way(problem, &gather, &ways[chosen], limits, out, error);
	if (!status)
		gather_backward_describe(&gather, &ways[chosen], out);
	return status;
}

int gather_backward_choices(const struct kernel_problem *problem,
							const struct kernel_limits *limits,
							char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct gather_problem gather;
	struct scatter_way ways[SCATTER_WAYS];
	char error[KERNEL_ERROR_MAX];
	int count;

	if (gather_check(problem, &gather, error))
		return 0;
	count = scatter_ways(problem, &gather, limits, ways);
	for (int i = 0; i < count; i++)
		memcpy(names[i], ways[i].name, KERNEL_CHOICE_MAX);
	return count;
}

int gather_backward_infer(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	struct gather_problem gather;

	if (problem->tensors[2].dtype == KILN_DTYPE_NONE)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: dsrc is missing; how long its rows are does not follow from the "
						   "others",
						   problem->op);
	return gather_check(problem, &gather, error);
}
