/*
 * index_add_link.c: sums of rows by indices in small blocks, for which the list of indices is
 * linked once in scratch memory, or which read a short list: how many places and vectors of their
 * rows a block has.
 */
#include "index.h"

#include <stdio.h>
#include <string.h>

#define HELD 4u         /* indices that a thread links; ops/index_add_link.cuh has it, too */
#define STATE_BYTES 512 /* before the heads; likewise */
#define MOST_SCRATCH (64 << 20)
#define SHORT_LIST 16384 /* bytes of indices that each block may read */
#define MOST_EACH 4      /* indices of a place, on average, that are worth linking */
#define LEAST_COUNT 512  /* indices, likewise */
#define LEAST_ROW 64     /* bytes, likewise */
#define ENTRIES 1024u    /* of the places of a block */
#define LEAST_ROOM 16u   /* entries of a place */
#define MOST_ROOM 32u
#define MAX_WAYS INDEX_ADD_LINKS

struct link_way {
	bool link; /* else blocks read the list */
	uint32_t threads, each;
	uint32_t wide, rows, room; /* vectors of a row; places; entries of each */
	int64_t linkers, blocks, uses;
	char name[KERNEL_CHOICE_MAX];
};

static uint64_t counter_bytes(const struct index_add *add, const struct link_way *way)
{
	return STATE_BYTES + (uint64_t)add->end * (way->uses > 1 ? 8 : 4);
}

static bool make_way(const struct index_add *add, const struct kernel_limits *limits, bool link,
					 uint32_t threads, uint32_t each, struct link_way *way)
{
	int64_t vectors = add->form.columns / add->vector, parts, chunks;
	uint32_t room;

	*way = (struct link_way){.link = link, .threads = threads, .each = each};
	way->wide = vectors < threads * each ? (uint32_t)vectors : threads * each;
	way->rows = link ? threads * each / way->wide : 1;
	way->rows = way->rows < threads ? way->rows : threads;
	room = ENTRIES / way->rows;
	way->room = room < LEAST_ROOM ? LEAST_ROOM : room < MOST_ROOM ? room : MOST_ROOM;
	way->linkers = link ? plan_divide_up(add->count, (int64_t)HELD * threads) : 0;
	parts = plan_divide_up(vectors, way->wide);
	chunks = plan_divide_up(add->end, way->rows);
	if (threads > limits->max_threads || (!link && vectors < threads) ||
		__builtin_mul_overflow(add->form.rows, parts, &way->uses) ||
		__builtin_mul_overflow(way->uses, chunks, &way->blocks) || way->uses > UINT32_MAX ||
		way->blocks + way->linkers > INT32_MAX || way->blocks + way->linkers > limits->grid_x)
		return false;
	snprintf(way->name, sizeof(way->name), "%s %ux%u", link ? "link" : "list", threads, each);
	return !link || counter_bytes(add, way) + (uint64_t)add->count * 4 <= MOST_SCRATCH;
}

/* Is it the likely best one?  Blocks that share a place count those that have looked at it. */
static bool is_usual(const struct index_add *add, const struct link_way *way)
{
	int64_t vectors = add->form.columns / add->vector;

	if (!way->link)
		return way->threads == 256 && way->each == 1;
	return way->threads == (vectors > 512 ? 512u : 256u) && way->each == (vectors > 256 ? 2u : 1u);
}

static int link_ways(const struct index_add *add, const struct kernel_limits *limits,
					 struct link_way ways[MAX_WAYS])
{
	static const struct {
		uint32_t threads, each;
	} shapes[] = {{256, 1}, {256, 2}, {512, 1}, {512, 2}, {128, 2}};
	bool small = add->count * add->index.index_bytes <= SHORT_LIST;
	int count = 0;

	if (add->index.op.each || add->count < 1 || add->count > INT32_MAX || add->end > INT32_MAX)
		return 0;
	for (int i = 0; i < 2 * (int)(sizeof(shapes) / sizeof(shapes[0])) && count < MAX_WAYS; i++) {
		struct link_way way;
		bool link = i % 2 == 1;
		if ((!link && !small) ||
			!make_way(add, limits, link, shapes[i / 2].threads, shapes[i / 2].each, &way))
			continue;
		ways[count++] = way;
		if (is_usual(add, &way) && (ways[0].link == link || !small)) {
			ways[count - 1] = ways[0];
			ways[0] = way;
		}
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

bool index_add_link_pays(const struct index_add *add)
{
	return add->count >= LEAST_COUNT && add->count / MOST_EACH <= add->end &&
		   add->form.columns * add->index.element >= LEAST_ROW;
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
	plan_print(&id, "index_add_link<IndexAddLinkShape<%s, %s, %s, %u, %s, %u, %u, %u, %u, %u>",
			   index_add_element(index->dtype), plan_dtype_name(index->index),
			   plan_bounds_name(index->bounds), add->vector, way->link ? "true" : "false",
			   way->wide, way->rows, way->room, way->threads, way->each);
	index_add_print_places(add, &id);
	plan_print(&id, ">");
	index_add_pass_operands(add, out);
	plan_arg_scalar(out, 4, (uint64_t)way->linkers);
	if (way->link) {
		out->scratch.counters = counter_bytes(add, way);
		out->scratch.bytes = out->scratch.counters + (uint64_t)add->count * 4;
		plan_arg_scratch(out);
	} else {
		plan_arg_scalar(out, 8, 0);
	}
	index_add_alpha(add, out);
	index_add_extents(problem, add, add->vector, index->index_bytes, out);
	snprintf(out->note, sizeof(out->note),
			 "%s; a block has %u of %lld places, %u vector%s of %u elements of each",
			 way->link ? "some blocks link the list of indices" : "blocks read the list of indices",
			 way->rows, (long long)add->end, way->wide, way->wide == 1 ? "" : "s", add->vector);
	return plan_check_name(&id, out, error);
}
