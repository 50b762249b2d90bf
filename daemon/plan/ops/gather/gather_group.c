/*
 * gather_group.c: gathers whose lists many rows share, for several rows at a time: which part of a
 * list a block has, and how many rows.
 *
 * A model of what a block does beside its stores chooses threads, parts and planes.
 */
#include "gather.h"

#include <stdio.h>
#include <string.h>

#define SMALL_ROW 512    /* bytes of dst */
#define TINY_ROW 192     /* likewise */
#define PAYS_BYTES 65536 /* of shared memory that make it pay: a multiprocessor has three blocks */
#define MOST 0x7fff0000  /* bytes of a row of dst: 31 bits count them, and a turn more */

/* ---- Candidates ---- */

#define ALL 96 /* that are looked at */
#define SHAPES 8
/* Costs of stores of less than 16 bytes, of planes of more than two small rows that begin between
 * vectors, and of large blocks of one turn for these, or where indices are long. */
#define HALVES 4
#define QUARTERS 12
#define SKEWED 10
#define LONG 4

/* Threads and their turns, and how much worse than the best they are where nothing else tells, in
 * hundredths. */
static const struct block_shape {
	uint32_t threads, turns, worse;
} shapes[SHAPES] = {{128, 2, 2}, {256, 1, 0}, {256, 2, 8}, {128, 1, 2},
					{32, 1, 4},  {64, 1, 4},  {256, 3, 8}, {256, 4, 8}};

/* Loads of V indices and stores of V elements of each row; 0: there is no such vector. */
static uint32_t group_vector(const struct kernel_problem *problem,
							 const struct gather_problem *gather, uint32_t bytes)
{
	uint32_t v = bytes / gather->element;

	return v && gather->many % v == 0 && bytes <= problem->tensors[2].alignment ? v : 0;
}

/* Returns the cost of a block's shape, and of stores, rows and indices that do not suit it. */
static uint32_t worse_by(const struct gather_problem *gather, const struct gather_group *group)
{
	uint32_t element = gather->element, stored = group->vector * element;
	uint32_t worse = stored < 8 ? QUARTERS : stored < 16 ? HALVES : 0;
	bool skew = group->skew && element < 4;

	if (skew && group->planes > 2)
		worse += SKEWED;
	if (group->threads == 256 && group->turns == 1 &&
		(skew || gather->index_bytes > 2 * element || gather_along(gather)))
		worse += LONG;
	for (int k = 0; k < SHAPES; k++)
		if (shapes[k].threads == group->threads && shapes[k].turns == group->turns)
			worse += shapes[k].worse;
	return worse;
}

/*
 * Returns the cost of a way beyond the stores of dst, in hundredths of these.  The weights are read
 * off figures of an H200: threads without work in the last part of a list; rows of src that each
 * part stages; indices, which are read by way of the L2 cache once for all rows of a block, and
 * limit all where they are more than half of what is stored; rows that lie apart; blocks that store
 * little; and multiprocessors that hold few threads.
 */
static int64_t cost(const struct gather_problem *gather, const struct kernel_limits *limits,
					const struct gather_group *group)
{
	uint32_t element = gather->element, stored = group->rows * element;
	int64_t parts = plan_divide_up((uint64_t)gather->many, (uint64_t)group->part);
	int64_t looks = 100 * (int64_t)gather->index_bytes / stored, rows = 0, threads, held;
	int64_t bytes = (gather->many < group->part ? gather->many : group->part) * stored;

	for (uint32_t n = group->rows; n > 1; n /= 2)
		rows++;
	threads = 32 * (int64_t)group->threads < 1024 ? 32 * (int64_t)group->threads : 1024;
	held = (limits->shared_optin + 1024) / (group->shared + 1024) * group->threads;
	threads = held < threads ? held : threads;
	return worse_by(gather, group) + 20 * (parts * group->part - gather->many) / gather->many +
		   30 * parts * gather->few / gather->many +
		   (looks > 50 ? 6 + (looks - 50) * 65 / 100 : looks * 12 / 100) + 3 * rows +
		   60 * 1024 / (bytes + 1) + 10 * 1024 / (threads + 1) - 10;
}

static void add_group(const struct kernel_problem *problem, const struct gather_problem *gather,
					  const struct kernel_limits *limits, struct gather_group *group,
					  struct gather_group out[ALL], int *count)
{
	struct gather_planes planes = gather_planes_of(problem, gather, group->planes);
	uint32_t bytes = group->vector * gather->index_bytes;

	group->skew = planes.skew;
	group->rows = planes.rows;
	group->load = planes.load;
	group->shared = planes.shared;
	group->part = (int64_t)group->threads * group->turns * group->vector;
	if (*count == ALL || group->threads > limits->max_threads ||
		group->shared > limits->shared_optin ||
		(group->turns > 1 && gather->many <= group->part / group->turns))
		return;
	if (gather->index_step == 1)
		group->index_load = gather_aligned(gather, 1, gather->index_bytes,
										   problem->tensors[1].alignment, bytes, 16);
	snprintf(group->name, sizeof(group->name), "group %ux%ux%u p%u", group->threads, group->turns,
			 group->vector, group->planes);
	out[(*count)++] = *group;
}

static void add_planes(const struct kernel_problem *problem, const struct gather_problem *gather,
					   const struct kernel_limits *limits, uint32_t vector,
					   struct gather_group out[ALL], int *count)
{
	/* More are worth it where an index is longer than an element of all rows of a plane. */
	uint32_t most = gather->element == 4 && gather->index_bytes == 8 ? 8 : 4;

	for (uint32_t planes = 1; planes <= most; planes *= 2)
		for (int k = 0; k < SHAPES; k++) {
			struct gather_group group = {.vector = vector,
										 .planes = planes,
										 .threads = shapes[k].threads,
										 .turns = shapes[k].turns};
			add_group(problem, gather, limits, &group, out, count);
		}
}

/* Takes those that cost least, the best of them first. */
static int take_best(const struct gather_problem *gather, const struct kernel_limits *limits,
					 const struct gather_group *all, int count,
					 struct gather_group out[GATHER_GROUPS])
{
	int64_t value[ALL];
	int taken = 0;

	for (int i = 0; i < count; i++)
		value[i] = cost(gather, limits, &all[i]);
	for (; taken < GATHER_GROUPS; taken++) {
		int best = -1;
		for (int i = 0; i < count; i++)
			if (value[i] < INT64_MAX && (best < 0 || value[i] < value[best]))
				best = i;
		if (best < 0)
			break;
		out[taken] = all[best];
		value[best] = INT64_MAX;
	}
	return taken;
}

int gather_groups(const struct kernel_problem *problem, const struct gather_problem *gather,
				  const struct kernel_limits *limits, struct gather_group out[GATHER_GROUPS])
{
	struct gather_group all[ALL];
	uint32_t element = gather->element, first = element == 1 ? 8 : 16, vectors = 0;
	int count = 0;

	if (!gather_has_planes(problem, gather, MOST / element))
		return 0;
	for (uint32_t bytes = first; bytes >= 4 && bytes >= element && vectors < 2; bytes /= 2) {
		uint32_t vector = group_vector(problem, gather, bytes);
		vectors += vector > 0;
		if (vector)
			add_planes(problem, gather, limits, vector, all, &count);
	}
	return take_best(gather, limits, all, count, out);
}

bool gather_group_pays(const struct gather_problem *gather, const struct gather_group *group)
{
	uint32_t element = gather->element, stored = group->vector * element;
	int64_t few = gather->few, many = gather->many;
	bool small = element == 2 && many * element <= SMALL_ROW;
	/* An index is read once for several rows, and a small element once with its neighbours. */
	bool enough = element != 2 ? 2 * many >= 3 * few : small ? many >= few : 3 * many >= 2 * few;

	/* Tiny rows that follow one another move faster than such as share their list.  Short indices
	 * of words are worth no second look at src. */
	return enough && many * element > TINY_ROW && (element <= 2 || gather->index_bytes >= 4) &&
		   group->shared <= PAYS_BYTES && stored >= (small ? 4 : 8);
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
	plan_print(&id, "gather_group<GatherGroup<%u, %s, %s, %lld, %lld, %u, %u, %u, %s, %u, %u, %s>",
			   gather->element, gather_index_name(gather), plan_bounds_name(gather->bounds),
			   (long long)gather->few, (long long)gather->many, group->turns, group->planes,
			   group->threads, group->skew ? "true" : "false", group->vector, group->index_load,
			   gather_along(gather) ? "true" : "false");
	gather_pass_lists(gather, gather->lists, items, loop, &id, out);
	gather_extents(problem, gather, group->load,
				   group->index_load ? group->index_load : gather->index_bytes,
				   group->vector * gather->element, out);
	snprintf(out->note, sizeof(out->note),
			 "%lld of a list's %lld indices are looked at once for %u of its rows",
			 (long long)(group->part < gather->many ? group->part : gather->many),
			 (long long)gather->many, group->rows);
	return plan_check_name(&id, out, error);
}
