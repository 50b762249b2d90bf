/*
 * index_add_lists.c: sums of rows for places that many indices name each, where blocks list the
 * rows of each place.
 */
#include "index.h"

#include <stdio.h>

#define THREADS 128u
#define HELD 4u         /* indices of a thread */
#define ROOM 1024u      /* rows that are listed at once: `room` of IndexAddListsShape */
#define STATE_BYTES 512 /* before the lists: EARLIER_STATE words */
#define MOST_SCRATCH (64 << 20)
#define MOST_PLACES 1024 /* to put more in order takes long */
#define LEAST_PLACES 128 /* that are better listed than in chunks */
#define LEAST_EACH 32    /* rows of a place, on average */
#define LEAST_COUNT 4096

struct lists_way {
	uint32_t vector; /* elements of a lane */
	uint32_t pitch;  /* numbers of a chunk, and of a warp */
	int64_t sorters, blocks;
	uint64_t scratch;
	uint32_t shared;
};

/* false: there are too many places, or indices. */
static bool lists_way(const struct index_add *add, const struct kernel_limits *limits,
					  struct lists_way *way)
{
	uint32_t compute = add->index.element == 8 ? 8 : 4, sort, sum;
	int64_t each;

	if (add->index.op.each || add->count < 1 || add->count > INT32_MAX || add->end > MOST_PLACES ||
		THREADS > limits->max_threads)
		return false;
	way->vector = index_add_lane(add);
	way->pitch = (((uint32_t)add->end + 1) / 2 | 1) * 2;
	way->sorters = plan_divide_up(add->count, HELD * THREADS);
	each = plan_divide_up(add->form.columns, 32 * (int64_t)way->vector);
	if (__builtin_mul_overflow(each, add->form.rows, &each) ||
		__builtin_mul_overflow(each, add->end, &each))
		return false;
	way->blocks = way->sorters + each;
	way->scratch = (uint64_t)way->sorters * (way->pitch + HELD * THREADS) * 2;
	sort = (HELD * THREADS + way->pitch * (THREADS / 32)) * 2;
	sum = ROOM * 4 + THREADS * way->vector * compute;
	way->shared = ((sort > sum ? sort : sum) + 15) / 16 * 16;
	return way->scratch <= MOST_SCRATCH && way->shared <= limits->shared_optin &&
		   each <= INT32_MAX && way->blocks <= INT32_MAX && way->blocks <= limits->grid_x;
}

bool index_add_has_lists(const struct index_add *add, const struct kernel_limits *limits)
{
	struct lists_way way;

	return lists_way(add, limits, &way);
}

bool index_add_lists_pay(const struct index_add *add, const struct kernel_limits *limits)
{
	struct lists_way way;

	/* Each place has a block at least: a multiprocessor has eight at once, and few are too few. */
	return lists_way(add, limits, &way) && add->count >= LEAST_COUNT && add->end >= LEAST_PLACES &&
		   add->count / add->end > LEAST_EACH &&
		   way.blocks - way.sorters >= limits->multiprocessors * 6;
}

int index_add_lists_plan(const struct kernel_problem *problem, const struct index_add *add,
						 const struct kernel_limits *limits, struct kernel_plan *out,
						 char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct index_problem *index = &add->index;
	struct lists_way way;

	(void)lists_way(add, limits, &way);
	plan_launch(out, limits, (uint64_t)way.blocks, THREADS);
	snprintf(out->source, sizeof(out->source), "ops/index_add_lists.cuh");
	snprintf(out->choice, sizeof(out->choice), INDEX_ADD_LISTS);
	out->shared_bytes = way.shared;
	plan_print(&id, "index_add_lists<IndexAddListsShape<%s, %s, %s, %u, %u, %u>",
			   index_add_element(index->dtype), plan_dtype_name(index->index),
			   plan_bounds_name(index->bounds), way.vector, THREADS, HELD);
	index_add_print_places(add, &id);
	plan_print(&id, ">");
	index_add_pass_operands(add, out);
	plan_arg_scalar(out, 4, (uint64_t)way.sorters);
	out->scratch.counters = STATE_BYTES;
	out->scratch.bytes = STATE_BYTES + way.scratch;
	plan_arg_scratch(out);
	index_add_alpha(add, out);
	index_add_extents(problem, add, way.vector, index->index_bytes, out);
	snprintf(
		out->note, sizeof(out->note),
		"%lld blocks put %u of the %lld indices in order each; others list the rows of a place "
		"and add them up for %u columns",
		(long long)way.sorters, HELD * THREADS, (long long)add->count, 32 * way.vector);
	return plan_check_name(&id, out, error);
}
