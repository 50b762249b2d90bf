/*
 * index_add_link.c: sums of rows by indices in blocks for which the list of indices is linked once
 * in scratch memory: how many places and vectors of their rows a block has.
 */
#include "index.h"

#include <stdio.h>
#include <string.h>

#define HELD 4u         /* indices that a thread links; ops/index_add_link.cuh has it, too */
#define STATE_BYTES 512 /* before the heads: EARLIER_STATE words */
#define MOST_SCRATCH (64 << 20)
#define MOST_LINKED 15    /* indices of a place, on average, that are worth linking */
#define MOST_SORTED 32    /* that are worth sorting in buckets */
#define LEAST_COUNT 512   /* indices, likewise */
#define LEAST_ROW 64      /* bytes, likewise */
#define TURNS 16u         /* of the threads of a block, about; where it has buckets, one */
#define BLOCKS 16         /* of a multiprocessor, at least, where there are places for them */
#define ENTRIES 8192u     /* of the places of a block, at most */
#define ROOM 48u          /* entries of a place: few have more, if MOST_LINKED is the average */
#define BUCKET_ENTRIES 8u /* of the buckets of a block, those of a thread, at most */
#define MOST_VECTOR 8u
#define MAX_WAYS INDEX_ADD_LINKS

struct link_way {
	uint32_t threads, each;
	bool buckets;
	uint32_t vector;           /* elements: registers hold no more than eight sums */
	uint32_t wide, rows, room; /* vectors of a row; places; entries of each */
	int64_t linkers, blocks, uses;
	char name[KERNEL_CHOICE_MAX];
};

static uint64_t counter_bytes(const struct index_add *add, const struct link_way *way)
{
	return STATE_BYTES + (uint64_t)add->end * (way->uses > 1 ? 8 : 4);
}

/* Behind the counters. */
static uint64_t link_bytes(const struct index_add *add, const struct link_way *way)
{
	return way->buckets ? (uint64_t)add->end * way->room * 4 : (uint64_t)add->count * 4;
}

/* Indices of a place. */
static double average_of(const struct index_add *add)
{
	return (double)add->count / (double)add->end;
}

/* Few of some numbers that are equally likely have more than this: four deviations.  Two sizes for
 * each power of two, so that few kernels do for all counts. */
static uint32_t bucket_room(const struct index_add *add)
{
	double average = average_of(add), more;
	uint32_t room = 32;

	do {
		room = room & (room - 1) ? room / 3 * 4 : room / 2 * 3;
		more = room - 16 - average;
	} while ((more < 0 || more * more < 16 * average) && room < UINT16_MAX / 2);
	return room;
}

static bool make_way(const struct index_add *add, const struct kernel_limits *limits,
					 uint32_t threads, uint32_t each, bool buckets, struct link_way *way)
{
	uint32_t turn = threads * each * (buckets ? 1 : TURNS);
	uint32_t vector = add->vector < MOST_VECTOR ? add->vector : MOST_VECTOR;
	int64_t vectors = add->form.columns / vector, parts, chunks, most;
	int64_t entries = buckets ? BUCKET_ENTRIES * threads : ENTRIES;

	*way =
		(struct link_way){.threads = threads, .each = each, .buckets = buckets, .vector = vector};
	way->wide = vectors < turn ? (uint32_t)vectors : turn;
	parts = plan_divide_up(vectors, way->wide);
	most = add->end / (BLOCKS * (int64_t)limits->multiprocessors);
	way->rows = turn / way->wide;
	way->rows = way->rows < most ? way->rows : most > 1 ? (uint32_t)most : 1;
	way->room = buckets ? bucket_room(add) : ROOM;
	if (way->room > entries)
		return false;
	most = entries / way->room < threads ? entries / way->room : threads;
	way->rows = way->rows < most ? way->rows : (uint32_t)most;
	way->linkers = plan_divide_up(add->count, (int64_t)HELD * threads);
	chunks = plan_divide_up(add->end, way->rows);
	if (threads > limits->max_threads ||
		__builtin_mul_overflow(add->form.rows, parts, &way->uses) ||
		__builtin_mul_overflow(way->uses, chunks, &way->blocks) || way->uses > UINT32_MAX ||
		way->blocks + way->linkers > INT32_MAX || way->blocks + way->linkers > limits->grid_x)
		return false;
	snprintf(way->name, sizeof(way->name), "%s%ux%u", buckets ? INDEX_ADD_BUCKET : INDEX_ADD_LINK,
			 threads, each);
	return counter_bytes(add, way) + link_bytes(add, way) <= MOST_SCRATCH;
}

/* Are buckets likely better than links? */
static bool buckets_pay(const struct index_add *add)
{
	double average = average_of(add);

	return average > MOST_LINKED && average <= MOST_SORTED;
}

/* The likely best one first. */
static int link_ways(const struct index_add *add, const struct kernel_limits *limits,
					 struct link_way ways[MAX_WAYS])
{
	static const struct {
		uint32_t threads, each;
		bool buckets;
	} shapes[MAX_WAYS] = {{256, 1, false}, {256, 2, false}, {512, 1, false}, {128, 1, true}};
	bool usual = buckets_pay(add);
	struct link_way way;
	int count = 0;
	bool swap;

	if (add->index.op.each || add->count < 1 || add->count > INT32_MAX || add->end > INT32_MAX)
		return 0;
	/* Halves have registers left for a second vector at a time, unless a block has one place. */
	swap = add->index.element == 2 && add->end >= 2 * BLOCKS * (int64_t)limits->multiprocessors;
	for (int i = 0; i < 2 * MAX_WAYS; i++) {
		int shape = i % MAX_WAYS;
		shape = swap && shape < 2 ? 1 - shape : shape;
		if ((shapes[shape].buckets == usual) == (i < MAX_WAYS) &&
			make_way(add, limits, shapes[shape].threads, shapes[shape].each, shapes[shape].buckets,
					 &way))
			ways[count++] = way;
	}
	return count;
}

int index_add_links(const struct index_add *add, const struct kernel_limits *limits,
					char names[][KERNEL_CHOICE_MAX])
{
	struct link_way ways[MAX_WAYS];
	int count = link_ways(add, limits, ways);

	for (int i = 0; i < count; i++)
		memcpy(names[i], ways[i].name, KERNEL_CHOICE_MAX);
	return count;
}

bool index_add_link_pays(const struct index_add *add, const struct kernel_limits *limits)
{
	struct link_way ways[MAX_WAYS];

	/* Atomics take over from links alone if the order is free, so that two kernels do for all
	 * counts. */
	if (link_ways(add, limits, ways) == 0 || (!add->any_order && add->count < LEAST_COUNT) ||
		add->form.columns * add->index.element < LEAST_ROW)
		return false;
	/* Chains beat links of many indices. */
	return average_of(add) <= (ways->buckets ? MOST_SORTED : MOST_LINKED + 1);
}

int index_add_link_plan(const struct kernel_problem *problem, const struct index_add *add,
						const char *choice, const struct kernel_limits *limits,
						struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct index_problem *index = &add->index;
	struct link_way ways[MAX_WAYS];
	const struct link_way *way = ways;

	(void)link_ways(add, limits, ways);
	while (strcmp(way->name, choice) != 0)
		way++;
	plan_launch(out, limits, (uint64_t)(way->blocks + way->linkers), way->threads);
	snprintf(out->source, sizeof(out->source), "ops/index_add_link.cuh");
	memcpy(out->choice, way->name, sizeof(out->choice));
	plan_print(&id, "index_add_link<IndexAddLinkShape<%s, %s, %s, %u, %u, %u, %u, %u, %u, %s>",
			   index_add_element(index->dtype), plan_dtype_name(index->index),
			   plan_bounds_name(index->bounds), way->vector, way->wide, way->rows, way->room,
			   way->threads, way->each, way->buckets ? "true" : "false");
	index_add_print_places(add, &id);
	plan_print(&id, ">");
	index_add_pass_operands(add, out);
	plan_arg_scalar(out, 4, (uint64_t)way->linkers);
	out->scratch.counters = counter_bytes(add, way);
	out->scratch.bytes = out->scratch.counters + link_bytes(add, way);
	plan_arg_scratch(out);
	index_add_alpha(add, out);
	index_add_extents(problem, add, way->vector, index->index_bytes, out);
	snprintf(out->note, sizeof(out->note),
			 "some blocks %s the list of indices; others have %u of %lld places, %u vector%s of %u "
			 "elements of each",
			 way->buckets ? "sort" : "link", way->rows, (long long)add->end, way->wide,
			 way->wide == 1 ? "" : "s", way->vector);
	return plan_check_name(&id, out, error);
}
