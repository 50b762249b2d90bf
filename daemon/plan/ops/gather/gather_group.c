/*
 * gather_group.c: gathers whose lists many rows share, for several rows at a time: which part of a
 * list a block has.
 *
 * A model of a block's time chooses threads and parts: its loads of src, its turns over the part,
 * and how many such blocks a multiprocessor holds.
 */
#include "gather.h"

#include <stdio.h>
#include <string.h>

#define SMALL_ROW 512    /* bytes of dst */
#define SMALL_FEW 128    /* elements of src */
#define PAYS_TIMES 8     /* short indices of words for each element of src that make it pay */
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

/* ---- Candidates ---- */

#define ALL 64       /* that are looked at */
#define MOST_TURNS 6 /* of a thread over a part of its list */
#define REGISTERS 65536
#define NEAR 85 /* of a hundred: as good as the best by the model */

/* Loads of V indices and stores of V elements of each row; 0: there is no such vector. */
static uint32_t group_vector(const struct kernel_problem *problem,
							 const struct gather_problem *gather, uint32_t bytes)
{
	uint32_t v = bytes / gather->element;

	return v && gather->many % v == 0 && bytes <= problem->tensors[2].alignment ? v : 0;
}

static void add_part(const struct kernel_problem *problem, const struct gather_problem *gather,
					 const struct kernel_limits *limits, uint32_t vector, uint32_t threads,
					 uint32_t turns, struct gather_group out[ALL], int *count)
{
	int64_t units = gather->many / vector, room = (int64_t)threads * turns;
	int64_t parts = plan_divide_up((uint64_t)units, (uint64_t)room);
	uint32_t bytes = vector * gather->index_bytes;
	struct gather_group group = {
		.vector = vector, .rows = 16 / gather->element, .threads = threads, .turns = turns};

	stage_rows(problem, gather, &group);
	group.part = plan_divide_up((uint64_t)units, (uint64_t)parts) * vector;
	if (*count == ALL || threads > limits->max_threads || group.shared > limits->shared_optin ||
		4 * units < 3 * parts * room)
		return;
	if (gather->index_step == 1)
		group.index_load = aligned(gather, 1, gather->index_bytes, problem->tensors[1].alignment,
								   bytes, bytes < 16 ? bytes : 16);
	snprintf(group.name, sizeof(group.name), "group %ux%u p%lld", threads, vector,
			 (long long)group.part);
	for (int i = 0; i < *count; i++)
		if (strcmp(out[i].name, group.name) == 0)
			return;
	out[(*count)++] = group;
}

/*
 * Elements that a multiprocessor makes in a time.  It holds as many blocks as registers and shared
 * memory allow, and a block takes as long as its loads of src and its turns.  The weights are
 * fitted to figures of an H200.
 */
static int64_t speed(const struct gather_problem *gather, const struct kernel_limits *limits,
					 const struct gather_group *group)
{
	uint32_t element = gather->element, bytes = group->vector * element;
	uint32_t registers = group->skew || (element == 2 && bytes == 16) ? 80 : 64;
	int64_t blocks = REGISTERS / 32 / registers / (group->threads / 32);
	int64_t held = (limits->shared_optin + 1024) / (group->shared + 1024);
	int64_t parts = plan_divide_up((uint64_t)gather->many, (uint64_t)group->part);
	int64_t loads = plan_divide_up((uint64_t)gather->few * element, element == 2 ? 8 : 16);
	int64_t time = 64 + 96 * plan_divide_up((uint64_t)loads, group->threads) +
				   group->turns * (64 + 8 * (int64_t)bytes);

	blocks = blocks < held ? blocks : held;
	return blocks * (gather->many * 4096 / parts) / time;
}

/* How far from two turns, in which indices of one are loaded while the other stores. */
static uint32_t off(const struct gather_group *group)
{
	return group->turns > 2 ? group->turns - 2 : 2 * (2 - group->turns);
}

/* Takes those that the model finds near the best, the likely best of them first. */
static int take_best(const struct gather_problem *gather, const struct kernel_limits *limits,
					 const struct gather_group *all, int count,
					 struct gather_group out[GATHER_GROUPS])
{
	int64_t value[ALL], most = 0;
	int taken = 0;

	for (int i = 0; i < count; i++) {
		value[i] = speed(gather, limits, &all[i]);
		most = value[i] > most ? value[i] : most;
	}
	for (; taken < GATHER_GROUPS; taken++) {
		int best = -1;
		for (int i = 0; i < count; i++)
			if (100 * value[i] >= NEAR * most &&
				(best < 0 || off(&all[i]) < off(&all[best]) ||
				 (off(&all[i]) == off(&all[best]) && value[i] > value[best])))
				best = i;
		if (best < 0)
			break;
		out[taken] = all[best];
		value[best] = -1;
	}
	return taken;
}

int gather_groups(const struct kernel_problem *problem, const struct gather_problem *gather,
				  const struct kernel_limits *limits, struct gather_group out[GATHER_GROUPS])
{
	static const uint32_t sizes[] = {64, 96, 128, 160, 192, 256};
	struct gather_group all[ALL];
	uint32_t element = gather->element;
	int count = 0;

	if (problem->tensors[0].rank < 2 || element > 8 || gather->outer < 16 / element ||
		gather->few < 1 || gather->many < 1 || gather->few > limits->shared_optin / 16 ||
		gather->many > MOST || (gather->form.step[0] != 1 && gather->few > 1))
		return 0;
	for (uint32_t bytes = element == 1 ? 4 : 16; bytes >= 4 && bytes >= element; bytes /= 2) {
		uint32_t vector = group_vector(problem, gather, bytes);
		for (uint32_t turns = 1; turns <= MOST_TURNS && vector; turns++)
			for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
				add_part(problem, gather, limits, vector, sizes[i], turns, all, &count);
		/* A list that is short for all of these. */
		if (vector && count == 0)
			add_part(problem, gather, limits, vector,
					 (uint32_t)plan_divide_up((uint64_t)gather->many / vector, 32) * 32, 1, all,
					 &count);
	}
	return take_best(gather, limits, all, count, out);
}

bool gather_group_pays(const struct gather_problem *gather, const struct gather_group *group)
{
	uint32_t element = gather->element, stored = group->vector * element;
	bool small = element == 2 && gather->many * element <= SMALL_ROW;
	/* Few bytes of indices are worth no second look at src. */
	bool bytes = gather->index_bytes == 1 && gather->few > SMALL_FEW && stored == 16;

	/* An index is read once for several rows, and a small element once with its neighbours. */
	return (small ? 3 : 2) * gather->many >= 3 * gather->few && group->shared <= PAYS_BYTES &&
		   stored >= (small ? 4 : 8) &&
		   (element <= 2 || gather->index_bytes >= element ||
			(!bytes && gather->many / PAYS_TIMES >= gather->few));
}

int gather_group_plan(const struct kernel_problem *problem, const struct gather_problem *gather,
					  const struct gather_group *group, const struct kernel_limits *limits,
					  struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	int64_t parts = plan_divide_up((uint64_t)gather->many, (uint64_t)group->part), items;
	bool loop;

	if (__builtin_mul_overflow(plan_divide_up(gather->outer, group->rows) * gather->lists, parts,
							   &items))
		return plan_refuse(error, KILN_ENOTSUP, "%s: there are too many rows and indices",
						   problem->op);
	loop = plan_launch(out, limits, (uint64_t)items, group->threads);
	snprintf(out->source, sizeof(out->source), "ops/gather_group.cuh");
	memcpy(out->choice, group->name, sizeof(out->choice));
	out->shared_bytes = group->shared;
	plan_print(&id, "gather_group<GatherGroup<%u, %s, %s, %lld, %lld, %lld, %u, %s, %u, %u>",
			   gather->element, gather_index_name(gather), plan_bounds_name(gather->bounds),
			   (long long)gather->few, (long long)gather->many, (long long)group->part,
			   group->threads, group->skew ? "true" : "false", group->vector, group->index_load);
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
				   group->vector * gather->element, out);
	snprintf(out->note, sizeof(out->note),
			 "%lld of a list's %lld indices are looked at once for %u of its rows",
			 (long long)group->part, (long long)gather->many, group->rows);
	return plan_check_name(&id, out, error);
}
