/*
 * gather_group.c: gathers whose lists many rows share, for several rows at a time: which part of a
 * list a block has.
 *
 * A part is long enough for the rows of src to be a small part of what moves.
 */
#include "gather.h"

#include <stdio.h>
#include <string.h>

#define LEAST_PART 1024  /* indices of a block, if there are so many */
#define LEAST_TIMES 2    /* indices for each element of a row of src, likewise */
#define PAYS_TIMES 4     /* indices for each element of a row of src that make it pay */
#define PAYS_BYTES 65536 /* of shared memory, likewise: a multiprocessor has three blocks */
#define MOST 0x7fffffff  /* elements of a row and indices are numbers of 32 bits */

/* The most bytes, to `most`, with which the rows of an operand of the form are aligned. */
static uint32_t aligned(const struct gather_problem *gather, int operand, uint32_t element,
						uint32_t address, uint64_t bytes, uint32_t most)
{
	uint32_t width = address < most ? address : most;

	while (width > element && bytes % width)
		width /= 2;
	return rows_narrow(&gather->form, operand, element, width);
}

/* How rows of src come to shared memory; GatherGroup in ops/gather_group.cuh computes the same. */
static void stage_rows(const struct kernel_problem *problem, const struct gather_problem *gather,
					   struct gather_group *out)
{
	uint32_t element = gather->element, load = element == 1 ? 4 : element == 2 ? 8 : 16;
	uint32_t width = aligned(gather, 0, element, problem->tensors[0].alignment,
							 (uint64_t)gather->few * element, load);

	out->skew = width < load;
	out->load = out->skew ? element : load;
	out->shared =
		(uint32_t)(plan_divide_up(gather->few * element, load) * load / element + 7) / 8 * 128;
}

/* false: there is none of so many bytes. */
static bool make_group(const struct kernel_problem *problem, const struct gather_problem *gather,
					   const struct kernel_limits *limits, uint32_t bytes, struct gather_group *out)
{
	uint32_t element = gather->element, v = bytes / element;
	int64_t part, parts, units;

	while (v > 1 && (gather->many % v || v * element > problem->tensors[2].alignment))
		v /= 2;
	if (v * element < bytes || gather->many < 1)
		return false;
	*out = (struct gather_group){.vector = v, .rows = 16 / element, .threads = 128};
	stage_rows(problem, gather, out);
	if (gather->index_step == 1)
		out->index_load = aligned(gather, 1, gather->index_bytes, problem->tensors[1].alignment,
								  (uint64_t)v * gather->index_bytes,
								  v * gather->index_bytes < 16 ? v * gather->index_bytes : 16);
	while (out->threads < 1024 && out->threads * 128 < out->shared)
		out->threads *= 2;
	part = LEAST_TIMES * gather->few > LEAST_PART ? LEAST_TIMES * gather->few : LEAST_PART;
	units = gather->many / v;
	parts = part < gather->many ? gather->many / part : 1;
	out->part = plan_divide_up(units, parts) * v;
	while (out->threads > 32 && out->threads / 2 * v >= out->part)
		out->threads /= 2;
	snprintf(out->name, sizeof(out->name), "group %ux%u", out->threads, v);
	return out->threads <= limits->max_threads && out->shared <= limits->shared_optin;
}

#define FULL 75      /* of a hundred threads have an index in every turn, at least */
#define MOST_TURNS 8 /* of a thread */

/* Adds parts that so many threads take in so many turns, if that leaves few of them idle. */
static void add_part(const struct gather_problem *gather, const struct kernel_limits *limits,
					 const struct gather_group *like, uint32_t threads, uint32_t turns,
					 struct gather_group out[GATHER_GROUPS], int *count)
{
	int64_t room = (int64_t)threads * turns * like->vector;
	int64_t parts = plan_divide_up((uint64_t)gather->many, (uint64_t)room);
	struct gather_group group = *like;

	group.threads = threads;
	group.part =
		plan_divide_up((uint64_t)(gather->many / like->vector), (uint64_t)parts) * like->vector;
	if (*count == GATHER_GROUPS || threads > limits->max_threads ||
		100 * gather->many < FULL * parts * room || (parts > 1 && group.part < gather->few))
		return;
	snprintf(group.name, sizeof(group.name), "group %ux%u p%lld", threads, like->vector,
			 (long long)group.part);
	out[(*count)++] = group;
}

/* Aligned vectors of a row of dst, wherever it begins. */
static int64_t odd_units(const struct gather_problem *gather, uint32_t vector)
{
	return plan_divide_up((uint64_t)gather->many + vector - 1, vector);
}

/* Of rows of dst that begin anywhere: a warp has 31 of their vectors in each turn. */
static void add_odd(const struct kernel_problem *problem, const struct gather_problem *gather,
					const struct kernel_limits *limits, uint32_t threads, uint32_t turns,
					struct gather_group out[GATHER_GROUPS], int *count)
{
	struct gather_group group = {
		.odd = true, .vector = 16 / gather->element, .rows = 16 / gather->element};
	int64_t units = odd_units(gather, group.vector), room = (int64_t)threads / 32 * 31 * turns;
	int64_t parts = plan_divide_up((uint64_t)units, (uint64_t)room);

	group.threads = threads;
	group.part = plan_divide_up((uint64_t)units, (uint64_t)parts);
	stage_rows(problem, gather, &group);
	if (*count == GATHER_GROUPS || threads > limits->max_threads ||
		group.shared > limits->shared_optin || 2 * units < parts * room ||
		(parts > 1 && group.part * group.vector < gather->few))
		return;
	snprintf(group.name, sizeof(group.name), "group %ux%u o%lld", threads, group.vector,
			 (long long)group.part);
	out[(*count)++] = group;
}

int gather_groups(const struct kernel_problem *problem, const struct gather_problem *gather,
				  const struct kernel_limits *limits, struct gather_group out[GATHER_GROUPS])
{
	uint32_t element = gather->element;
	int count = 0;

	if (problem->tensors[0].rank < 2 || element > 8 || gather->outer < 16 / element ||
		gather->few < 1 || gather->few > limits->shared_optin / 16 || gather->many > MOST ||
		(gather->form.step[0] != 1 && gather->few > 1))
		return 0;
	for (uint32_t bytes = 16; bytes >= 4 && bytes >= element; bytes /= 2)
		if ((element > 1 || bytes == 4) && count < GATHER_GROUPS &&
			make_group(problem, gather, limits, bytes, &out[count]))
			count++;
	for (uint32_t turns = 1; turns <= MOST_TURNS && count; turns += 1 + turns / 4)
		for (uint32_t threads = 64; threads <= 256; threads += threads < 192 ? 32 : 64)
			add_part(gather, limits, &out[0], threads, turns, out, &count);
	if (element > 1 && gather->many * element % 16)
		for (uint32_t turns = 1; turns <= MOST_TURNS; turns += 1 + turns / 4)
			for (uint32_t threads = 64; threads <= 256; threads += threads < 192 ? 32 : 64)
				add_odd(problem, gather, limits, threads, turns, out, &count);
	return count;
}

bool gather_group_pays(const struct gather_problem *gather, const struct gather_group *group)
{
	/* An index is read once for several rows, and a small element once with its neighbours. */
	return !group->odd && gather->many / PAYS_TIMES >= gather->few && group->shared <= PAYS_BYTES &&
		   (gather->element <= 2 || gather->index_bytes >= gather->element);
}

int gather_group_plan(const struct kernel_problem *problem, const struct gather_problem *gather,
					  const struct gather_group *group, const struct kernel_limits *limits,
					  struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int64_t parts =
		plan_divide_up((uint64_t)(group->odd ? odd_units(gather, group->vector) : gather->many),
					   (uint64_t)group->part);
	int64_t items;
	bool loop;

	if (__builtin_mul_overflow(plan_divide_up(gather->outer, group->rows) * gather->lists, parts,
							   &items))
		return plan_refuse(error, KILN_ENOTSUP, "%s: there are too many rows and indices",
						   problem->op);
	loop = plan_launch(out, limits, (uint64_t)items, group->threads);
	snprintf(out->source, sizeof(out->source), "ops/gather_group.cuh");
	memcpy(out->choice, group->name, sizeof(out->choice));
	out->shared_bytes = group->shared;
	plan_print(&id, "gather_group%s<GatherGroup<%u, %s, %s, %lld, %lld, %lld, %u, %s, %u, %u%s>",
			   group->odd ? "_odd" : "", gather->element, gather_index_name(gather),
			   plan_bounds_name(gather->bounds), (long long)gather->few, (long long)gather->many,
			   (long long)group->part, group->threads, group->skew ? "true" : "false",
			   group->vector, group->index_load, group->odd ? ", true" : "");
	plan_print(&id, ", ScatterPlaces<%lld, %lld", (long long)gather->form.step[0],
			   (long long)gather->index_step);
	rows_print_sizes(&id, &gather->form);
	rows_print_strides(&id, &gather->form, 0);
	rows_print_strides(&id, &gather->form, 1);
	plan_print(&id, ">, %lld, %s, %s>", (long long)gather->lists,
			   items > INT32_MAX || gather->form.rows > INT32_MAX ? "i64" : "u32",
			   loop ? "true" : "false");
	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	plan_arg_scalar(out, 8, (uint64_t)gather->outer);
	plan_arg_scalar(out, 8, (uint64_t)items);
	gather_report_arg(gather, out);
	gather_extents(problem, gather, group->load,
				   group->index_load ? group->index_load : gather->index_bytes,
				   group->odd ? gather->element : group->vector * gather->element, out);
	snprintf(out->note, sizeof(out->note),
			 "%lld of a list's %lld indices are looked at once for %u of its rows",
			 (long long)group->part * (group->odd ? group->vector : 1), (long long)gather->many,
			 group->rows);
	return plan_check_name(&id, out, error);
}
