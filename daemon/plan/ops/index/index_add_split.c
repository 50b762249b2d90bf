/*
 * index_add_split.c: sums of rows for few places that many indices name each: into how many chunks
 * the list is cut, whose sums are added up in their order.
 *
 * As many blocks as run at once, each with a chunk for some columns, are the most that pays: every
 * chunk leaves a sum of each place in scratch memory.
 */
#include "index.h"

#include <stdio.h>
#include <string.h>

#define HELD 8          /* indices of a thread */
#define AT_ONCE 1024    /* threads of a multiprocessor */
#define STATE_BYTES 512 /* before the layers: EARLIER_STATE words */
#define MOST_SCRATCH (64 << 20)
#define LEAST_EACH 16 /* rows of a place in a chunk, on average */
#define LEAST_LANE 4  /* bytes of a lane */
#define MOST_VECTOR 8 /* elements of a lane: registers hold no more sums */
#define LEAST_COUNT 512
#define PAYS_PLACES 512
#define LEAST_CHUNKS 4
#define MAX_WAYS INDEX_ADD_SPLITS

struct split_way {
	uint32_t threads, vector, layer_vector; /* elements */
	uint32_t chunk, chunks, parts;
	int64_t adders, blocks;
	uint64_t layers; /* bytes */
	uint32_t shared;
	char name[KERNEL_CHOICE_MAX];
};

static int64_t least_of(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Elements of a lane: of those with which fewest lanes of a warp are idle, the most. */
static uint32_t split_vector(const struct index_add *add)
{
	int64_t most = 0;
	uint32_t best = 1;

	for (uint32_t vector = least_of(add->vector, MOST_VECTOR); vector >= 1; vector /= 2) {
		int64_t turn = 32 * (int64_t)vector, all = plan_divide_up(add->form.columns, turn) * turn;
		if (most == 0 || all < most) {
			most = all;
			best = vector;
		}
	}
	return best;
}

/* Finds the chunks: so many as blocks run at once, but long ones.  Where they are few, blocks have
 * fewer columns.  false: there are too many sums. */
static bool find_chunks(const struct index_add *add, const struct kernel_limits *limits,
						struct split_way *way)
{
	int64_t most = HELD * (int64_t)way->threads, few = add->count / (LEAST_EACH * add->end);
	int64_t wanted = (int64_t)limits->multiprocessors * AT_ONCE / way->threads, uses, chunks;

	for (way->vector = split_vector(add);; way->vector /= 2) {
		if (__builtin_mul_overflow(add->form.rows,
								   plan_divide_up(add->form.columns, 32 * (int64_t)way->vector),
								   &uses))
			return false;
		chunks = least_of(wanted / uses, few);
		chunks = chunks * most > add->count ? chunks : plan_divide_up(add->count, most);
		if (2 * chunks * uses > wanted || way->vector * add->index.element <= LEAST_LANE ||
			way->vector == 1)
			break;
	}
	way->chunk = (uint32_t)plan_divide_up(add->count, chunks);
	way->chunks = (uint32_t)plan_divide_up(add->count, way->chunk);
	way->parts = (uint32_t)plan_divide_up(way->threads / 32, add->end);
	return !__builtin_mul_overflow(way->chunks, uses, &way->adders);
}

static bool make_way(const struct index_add *add, const struct kernel_limits *limits,
					 uint32_t threads, struct split_way *way)
{
	uint32_t most = HELD * threads;
	int64_t sums;

	*way = (struct split_way){.threads = threads};
	if (__builtin_mul_overflow(add->form.rows, add->form.columns, &sums) ||
		__builtin_mul_overflow(sums, add->end, &sums) || sums > MOST_SCRATCH ||
		add->end > (int64_t)most / LEAST_EACH || threads > limits->max_threads ||
		!find_chunks(add, limits, way))
		return false;
	way->layers =
		(uint64_t)way->chunks * way->parts * (uint64_t)sums * (add->index.element == 8 ? 8 : 4);
	/* A thread of the last blocks has so many sums that all multiprocessors have some. */
	way->layer_vector = way->vector < 4 ? way->vector : 4;
	while (way->layer_vector > 1 &&
		   sums / way->layer_vector / threads < (int64_t)limits->multiprocessors)
		way->layer_vector /= 2;
	way->blocks = way->adders + plan_divide_up(sums / way->layer_vector, threads);
	way->shared = ((((uint32_t)add->end + 1) / 2 | 1) * 2 * (threads / 32) + most) * 2;
	snprintf(way->name, sizeof(way->name), INDEX_ADD_SPLIT "%u", threads);
	return way->layers <= MOST_SCRATCH && way->shared <= limits->shared_optin &&
		   way->blocks <= INT32_MAX && way->blocks <= limits->grid_x;
}

/* The likely best one first. */
static int split_ways(const struct index_add *add, const struct kernel_limits *limits,
					  struct split_way ways[MAX_WAYS])
{
	static const uint32_t threads[MAX_WAYS] = {1024, 512, 256};
	int count = 0;

	if (add->index.op.each || add->count > INT32_MAX || add->end > INT32_MAX ||
		add->count / (LEAST_EACH * LEAST_CHUNKS) < add->end)
		return 0;
	for (int i = 0; i < MAX_WAYS; i++)
		if (make_way(add, limits, threads[i], &ways[count]))
			count++;
	return count;
}

int index_add_splits(const struct index_add *add, const struct kernel_limits *limits,
					 char names[][KERNEL_CHOICE_MAX])
{
	struct split_way ways[MAX_WAYS];
	int count = split_ways(add, limits, ways);

	for (int i = 0; i < count; i++)
		memcpy(names[i], ways[i].name, KERNEL_CHOICE_MAX);
	return count;
}

bool index_add_split_pays(const struct index_add *add)
{
	return add->count >= LEAST_COUNT && add->end <= PAYS_PLACES;
}

int index_add_split_plan(const struct kernel_problem *problem, const struct index_add *add,
						 const char *choice, const struct kernel_limits *limits,
						 struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct index_problem *index = &add->index;
	struct split_way ways[MAX_WAYS];
	const struct split_way *way = ways;

	(void)split_ways(add, limits, ways);
	while (strcmp(way->name, choice) != 0)
		way++;
	plan_launch(out, limits, (uint64_t)way->blocks, way->threads);
	snprintf(out->source, sizeof(out->source), "ops/index_add_split.cuh");
	memcpy(out->choice, way->name, sizeof(out->choice));
	out->shared_bytes = (way->shared + 15) / 16 * 16;
	plan_print(&id, "index_add_split<IndexAddSplitShape<%s, %s, %s, %u, %u, %u, %u>",
			   index_add_element(index->dtype), plan_dtype_name(index->index),
			   plan_bounds_name(index->bounds), way->vector, way->layer_vector, way->threads, HELD);
	index_add_print_places(add, &id);
	plan_print(&id, ">");
	index_add_pass_operands(add, out);
	plan_arg_scalar(out, 4, way->chunk);
	plan_arg_scalar(out, 4, way->chunks);
	plan_arg_scalar(out, 4, way->parts);
	plan_arg_scalar(out, 4, (uint64_t)way->adders);
	out->scratch.counters = STATE_BYTES;
	out->scratch.bytes = STATE_BYTES + way->layers;
	plan_arg_scratch(out);
	index_add_alpha(add, out);
	index_add_extents(problem, add, way->vector, index->index_bytes, out);
	snprintf(out->note, sizeof(out->note),
			 "%u chunks of %u of the %lld indices; a block adds up the rows of one for %u columns, "
			 "others what chunks have left",
			 way->chunks, way->chunk, (long long)add->count, 32 * way->vector);
	return plan_check_name(&id, out, error);
}
