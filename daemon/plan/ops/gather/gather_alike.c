/*
 * gather_alike.c: gathers whose lists many rows share, where a block takes rows that begin equally
 * far behind a vector of dst: how many rows, and which part of a list.
 */
#include "gather.h"

#include <stdio.h>
#include <string.h>

#define MOST 0x7ffffff /* elements of a row and indices, and these as bytes, have 32 bits */

/* Bytes of planes' rows of dst that a part of a list makes, at least: of words, of halves. */
#define PART_WORDS 16384
#define PART_HALVES 32768
#define SMALL 128 /* threads of blocks */
#define LARGE 256
#define IDLE 14 /* more of a hundred threads that make a large block lose */
/* Limits within which it is the likely best: bytes of shared memory, of which a multiprocessor has
 * three times as many; elements of a row of src, at least: of 2 bytes, of 4 bytes, and where rows
 * of dst are short. */
#define PAYS_BYTES 73728
#define PAYS_HALVES 384
#define PAYS_WORDS 1024
#define PAYS_ROW 2048
/* Elements of a row of dst that is short. */
#define SHORT_LEAST 64
#define SHORT_MOST 1000
#define SHORT_FEW 192 /* of src, of which a block takes fewer rows */
#define LONG_ROW 4096 /* elements of src that leave room for one plane */

/* Fills in all but threads and planes, which the caller has set, for `parts` parts of a list;
 * GatherAlike in ops/gather_alike.cuh computes the same. */
static void make_alike(const struct kernel_problem *problem, const struct gather_problem *gather,
					   uint32_t parts, struct gather_alike *out)
{
	struct gather_planes planes = gather_planes_of(problem, gather, out->planes);
	uint32_t element = gather->element, store = element == 1 ? 8 : 16, vector = store / element;

	out->skew = planes.skew;
	out->load = planes.load;
	out->even =
		(uint64_t)gather->many * element % store == 0 && problem->tensors[2].alignment >= store;
	out->store = out->even ? store : element;
	out->rows = planes.rows;
	out->vectors = plan_divide_up((uint64_t)gather->many + (out->even ? 0 : vector - 1), vector);
	out->part = plan_divide_up((uint64_t)out->vectors, parts);
	if (parts > 1) /* whole turns of the block */
		out->part = plan_divide_up((uint64_t)out->part, out->threads) * out->threads;
	out->parts = plan_divide_up((uint64_t)out->vectors, (uint64_t)out->part);
	out->shared = planes.shared + out->threads * vector * 2;
	snprintf(out->name, sizeof(out->name), "alike %u p%u /%lld", out->threads, out->planes,
			 (long long)out->parts);
}

static void add_alike(const struct kernel_problem *problem, const struct gather_problem *gather,
					  const struct kernel_limits *limits, uint32_t threads, uint32_t planes,
					  uint32_t parts, struct gather_alike out[GATHER_ALIKES], int *count)
{
	struct gather_alike alike = {.threads = threads, .planes = planes};

	if (*count == GATHER_ALIKES || threads > limits->max_threads || parts < 1)
		return;
	make_alike(problem, gather, parts, &alike);
	for (int i = 0; i < *count; i++)
		if (strcmp(out[i].name, alike.name) == 0)
			return;
	if (alike.shared <= limits->shared_optin)
		out[(*count)++] = alike;
}

/* Returns how many of a hundred threads have nothing to do. */
static uint32_t idle(int64_t vectors, uint32_t threads)
{
	return (uint32_t)(100 - 100 * vectors / (plan_divide_up((uint64_t)vectors, threads) * threads));
}

/* Returns small blocks where large ones would have one turn that stores much, or would idle. */
static uint32_t find_threads(const struct gather_problem *gather)
{
	int64_t vectors = plan_divide_up((uint64_t)gather->many * gather->element, 16);

	if (gather->few >= LONG_ROW)
		return LARGE;
	if (vectors <= LARGE)
		return vectors <= SMALL || 4 * gather->few <= 5 * gather->many ? SMALL : LARGE;
	return idle(vectors, SMALL) + IDLE < idle(vectors, LARGE) ? SMALL : LARGE;
}

/* Returns one plane where rows of src are so long that two leave little of shared memory, and are
 * much of what is moved. */
static uint32_t find_planes(const struct gather_problem *gather)
{
	int64_t few = gather->few, many = gather->many;

	return few >= LONG_ROW && (gather->element >= 4 || 4 * many <= 7 * few || few > 2 * LONG_ROW)
			   ? 1
			   : 2;
}

/* Are rows of dst short, and halves that are no whole vectors?  Small blocks take many of them. */
static bool is_short(const struct gather_problem *gather)
{
	int64_t many = gather->many;

	return gather->element == 2 && many % 8 != 0 && many >= SHORT_LEAST && many < SHORT_MOST &&
		   2 * many >= gather->few;
}

static void add_short(const struct kernel_problem *problem, const struct gather_problem *gather,
					  const struct kernel_limits *limits, struct gather_alike out[GATHER_ALIKES],
					  int *count)
{
	int64_t vectors = plan_divide_up((uint64_t)gather->many + 7, 8);
	bool tiny = vectors <= 32 || (vectors <= 64 && gather->index_bytes < 4) ||
				idle(vectors, 32) + IDLE < idle(vectors, 64);
	bool few = vectors > 96 || gather->few >= SHORT_FEW;

	add_alike(problem, gather, limits, tiny ? 32 : 64, few ? 2 : 4, 1, out, count);
}

int gather_alikes(const struct kernel_problem *problem, const struct gather_problem *gather,
				  const struct kernel_limits *limits, struct gather_alike out[GATHER_ALIKES])
{
	uint32_t element = gather->element, word = element > 4 ? element : 4;
	uint32_t threads = find_threads(gather), usual = find_planes(gather);
	int count = 0;

	if (!gather_has_planes(problem, gather, MOST))
		return 0;
	if (is_short(gather))
		add_short(problem, gather, limits, out, &count);
	for (int p = 0; p < 2; p++) {
		uint32_t planes = p ? 3 - usual : usual;
		int64_t parts = gather->many * planes * word / (element < 4 ? PART_HALVES : PART_WORDS);
		/* Each part puts the rows of src into planes again. */
		int64_t most = 2 * gather->many / gather->few / 5;
		parts = parts < most ? parts : most;
		for (int k = 0; k < 2; k++)
			add_alike(problem, gather, limits, k ? SMALL + LARGE - threads : threads, planes,
					  parts < 1 ? 1 : (uint32_t)parts, out, &count);
	}
	return count;
}

bool gather_alike_pays(const struct gather_problem *gather, const struct gather_alike *alike)
{
	int64_t few = gather->few, many = gather->many, words = gather->index_bytes == 1 ? 8 : 2;
	bool some = alike->vectors >= SMALL, grows = 2 * many >= 3 * few;
	/* Long rows of which much is wanted: a stage reads their indices once for each. */
	bool plain = alike->even && !alike->skew && few >= LONG_ROW && 6 * many >= few;

	if (alike->threads < SMALL)
		return true;
	if (alike->shared > PAYS_BYTES || (alike->skew && few >= 2 * LONG_ROW))
		return false;
	if (gather->element == 4)
		return (some && plain) || (some && alike->even && many >= 2 * few && few >= PAYS_WORDS) ||
			   (alike->vectors >= LARGE && many >= words * few);
	if (gather->element != 2)
		return false;
	if (!alike->even)
		return many >= few / 8 && (some || few >= PAYS_ROW);
	/* Groups do as well where rows of src are short and indices are. */
	if (few < PAYS_HALVES)
		return some && grows && (gather->index_bytes >= 4 || alike->vectors <= LARGE);
	return some && (plain || grows || (4 * many >= 3 * few && (!alike->skew || few >= LONG_ROW)));
}

int gather_alike_plan(const struct kernel_problem *problem, const struct gather_problem *gather,
					  const struct gather_alike *alike, const struct kernel_limits *limits,
					  struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	uint64_t bytes = (uint64_t)gather->lists * (uint64_t)gather->many * gather->element;
	uint64_t low = bytes & (0 - bytes), store = gather->element == 1 ? 8 : 16;
	int64_t period = low < store ? (int64_t)(store / low) : 1, items;
	bool loop;

	/* Rows of dst that begin equally far behind a vector are `period` apart. */
	if (__builtin_mul_overflow(
			plan_divide_up((uint64_t)gather->outer, (uint64_t)alike->rows * (uint64_t)period) *
				period * gather->lists,
			alike->parts, &items))
		return plan_refuse(error, KILN_ENOTSUP, "%s: there are too many rows and indices",
						   problem->op);
	loop = plan_launch(out, limits, (uint64_t)items, alike->threads);
	snprintf(out->source, sizeof(out->source), "ops/gather_alike.cuh");
	memcpy(out->choice, alike->name, sizeof(out->choice));
	out->shared_bytes = alike->shared;
	plan_print(&id, "gather_alike<GatherAlike<%u, %s, %s, %lld, %lld, %u, %lld, %u, %s, %s, %s>",
			   gather->element, gather_index_name(gather), plan_bounds_name(gather->bounds),
			   (long long)gather->few, (long long)gather->many, alike->planes,
			   (long long)alike->part, alike->threads, alike->skew ? "true" : "false",
			   alike->even ? "true" : "false", gather_along(gather) ? "true" : "false");
	gather_pass_lists(gather, gather->lists, items, loop, &id, out);
	gather_extents(problem, gather, alike->load, gather->index_bytes, alike->store, out);
	snprintf(out->note, sizeof(out->note),
			 "%lld of a list's %lld indices are looked at once for %u of its rows that begin alike",
			 (long long)(gather->many / alike->parts), (long long)gather->many, alike->rows);
	return plan_check_name(&id, out, error);
}
