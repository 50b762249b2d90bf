/*
 * gather_backward_way.c: the candidates of gather_backward: how much a block chains and sums up.
 *
 * A block chains a list of indices once for `rows` of the rows that share it.  More rows are less
 * chaining, fewer are more blocks.  Blocks take FEW_ROWS, as long as larger ones would be fewer
 * than two for each multiprocessor.  There is nothing between: all batches have two kernels.
 *
 * If at least so many rows share a list as fill 16 bytes with an element of each, a block sums up
 * these together: one access to shared memory does for all.  It chains the list for several such
 * groups, as long as there are blocks for all multiprocessors.
 */
#include "gather_backward.h"

#include <stdio.h>
#include <string.h>

#define LARGEST_CHUNK 8192
#define LARGEST_TILE 8192
#define BLOCK_BYTES 16384 /* of ddst that a block has, at least if there are rows for it */
#define MOST_ROWS 32
#define FEW_ROWS 4
#define LINK_BYTES 40960 /* of shared memory, which leave a multiprocessor five blocks */
#define LINK_MOST 16383  /* elements of dsrc, and indices */
#define LINKED 8         /* indices of an element that are put in order in registers */
#define LINK_BLOCKS 3    /* of a multiprocessor, at least */
#define TURNS 4          /* groups of rows, usually */
#define MOST_TURNS 8

static uint32_t round_up(uint32_t value)
{
	return (value + 15) / 16 * 16;
}

/* ScatterShape in ops/gather_backward.cuh computes the same. */
static uint32_t gather_backward_shared_bytes(const struct gather_problem *gather,
											 const struct scatter_way *way)
{
	uint32_t compute = gather->element == 8 ? 8 : 4;
	uint32_t sums = gather->many > way->tile ? way->chunk * compute : 0;

	return round_up(sums) + way->rows * round_up(way->tile * gather->element) + way->chunk * 2 +
		   way->tile * 2;
}

/* The most bytes of ddst that are aligned in all rows. */
static uint32_t find_load(const struct kernel_problem *problem, const struct gather_problem *gather)
{
	uint32_t element = gather->element;

	if (gather->form.step[0] != 1 && gather->many > 1)
		return element;
	return gather_aligned(gather, 0, element, problem->tensors[0].alignment,
						  (uint64_t)gather->many * element, 16);
}

/* Elements of dsrc that make a word, if rows are whole words. */
static uint32_t find_vector(const struct kernel_problem *problem,
							const struct gather_problem *gather)
{
	uint32_t vector = gather->element < 4 ? 4 / gather->element : 1;

	while (vector > 1 &&
		   (gather->few % vector || vector * gather->element > problem->tensors[2].alignment))
		vector /= 2;
	return vector;
}

static void backward_make_way(const struct kernel_problem *problem,
							  const struct gather_problem *gather,
							  const struct kernel_limits *limits, struct scatter_way *way)
{
	while (way->threads > limits->max_threads / 32 * 32)
		way->threads /= 2;
	way->load = find_load(problem, gather);
	way->vector = find_vector(problem, gather);
	way->chunk = gather->few < LARGEST_CHUNK ? (uint32_t)gather->few : LARGEST_CHUNK;
	way->tile = gather->many < LARGEST_TILE ? (uint32_t)gather->many : LARGEST_TILE;
	way->tile = way->tile ? way->tile : 1;
	if (gather->many > way->tile)
		way->rows = 1;
	while (gather_backward_shared_bytes(gather, way) > limits->shared_optin)
		if (way->rows > 1)
			way->rows /= 2;
		else if (way->tile * (gather->element + 2) > way->chunk * 2)
			way->tile = (way->tile / 2 + 15) / 16 * 16;
		else if (way->chunk > 32)
			way->chunk = (way->chunk / 2 + 15) / 16 * 16;
		else
			way->threads /= 2;
	if (gather->many > way->tile)
		way->rows = 1;
	way->shared = round_up(gather_backward_shared_bytes(gather, way));
	snprintf(way->name, sizeof(way->name), "chain %u r%u", way->threads, way->rows);
}

static void gather_backward_add_way(const struct kernel_problem *problem,
									const struct gather_problem *gather,
									const struct kernel_limits *limits, uint32_t threads,
									uint32_t rows, struct scatter_way ways[SCATTER_WAYS],
									int *count)
{
	struct scatter_way way = {.threads = threads, .rows = rows};

	if (rows < 1 || rows > MOST_ROWS)
		return;
	backward_make_way(problem, gather, limits, &way);
	for (int i = 0; i < *count; i++)
		if (strcmp(ways[i].name, way.name) == 0)
			return;
	ways[(*count)++] = way;
}

/* Elements of as many rows as fill 16 bytes, so many times; ScatterLink in
 * ops/gather_backward_link.cuh computes the same.  false: a block has no room for them, they have
 * no list together, or it is long beside what it names. */
static bool make_link(const struct kernel_problem *problem, const struct gather_problem *gather,
					  const struct kernel_limits *limits, uint32_t turns, struct scatter_way *way)
{
	uint32_t element = gather->element, load = element == 2 ? 8 : 16;
	int64_t loads = plan_divide_up(gather->many * element, load), units, slots;

	if (problem->tensors[0].rank < 3 || element < 2 || gather->many < 1 ||
		gather->many >= LINK_MOST || gather->few >= LINK_MOST ||
		gather->many > LINKED * gather->few || (gather->form.step[0] != 1 && gather->many > 1))
		return false;
	*way = (struct scatter_way){.turns = turns, .rows = 16 / element, .threads = 64};
	way->load = find_load(problem, gather);
	way->skew = way->load < load;
	way->load = way->skew ? element : load;
	way->vector = find_vector(problem, gather);
	way->tile = (uint32_t)gather->many;
	way->chunk = (uint32_t)gather->few;
	slots = plan_divide_up(loads * load / element, 8) * 8;
	way->shared = (uint32_t)slots * 18 + (way->tile + 8) / 8 * 16 + (way->chunk + 4) / 4 * 16;
	way->shared = round_up(way->shared + way->chunk * 2);
	units = loads > gather->few / way->vector / 2 ? loads : gather->few / way->vector / 2;
	while (way->threads < 256 && way->threads < units)
		way->threads *= 2;
	snprintf(way->name, sizeof(way->name), "link %u r%ux%u", way->threads, way->rows, turns);
	return way->shared <= limits->shared_optin && way->threads <= limits->max_threads;
}

/* Groups of rows for which a block chains its list: some, where that leaves enough blocks. */
static uint32_t find_turns(const struct gather_problem *gather, const struct kernel_limits *limits)
{
	int64_t groups = plan_divide_up(gather->outer, 16 / gather->element) * gather->lists;
	uint32_t turns = 1;

	while (turns < TURNS && groups / (2 * turns) >= LINK_BLOCKS * (int64_t)limits->multiprocessors)
		turns *= 2;
	return turns;
}

int scatter_ways(const struct kernel_problem *problem, const struct gather_problem *gather,
				 const struct kernel_limits *limits, struct scatter_way ways[SCATTER_WAYS])
{
	int64_t chunks = plan_divide_up(gather->few, LARGEST_CHUNK),
			row = gather->many * gather->element;
	int64_t blocks = 2 * (int64_t)limits->multiprocessors;
	uint32_t rows = 1, threads = gather->few > 1024 || gather->many > 2048 ? 512 : 128;
	uint32_t own = find_turns(gather, limits);
	struct scatter_way link;
	bool linked = make_link(problem, gather, limits, own, &link);
	int count = 0;

	/* A row has a list of its own if there are no leading dimensions. */
	while (problem->tensors[0].rank > 2 && rows < MOST_ROWS && 2 * rows * row <= BLOCK_BYTES)
		rows *= 2;
	if (rows > FEW_ROWS && plan_divide_up(gather->outer, rows) * gather->lists * chunks < blocks)
		rows = FEW_ROWS;
	memset(ways, 0, sizeof(*ways) * SCATTER_WAYS);
	if (linked && link.shared <= LINK_BYTES)
		ways[count++] = link;
	gather_backward_add_way(problem, gather, limits, threads, rows, ways, &count);
	gather_backward_add_way(problem, gather, limits, threads, rows / 2, ways, &count);
	gather_backward_add_way(problem, gather, limits, threads, rows * 2, ways, &count);
	gather_backward_add_way(problem, gather, limits, threads * 2, rows, ways, &count);
	gather_backward_add_way(problem, gather, limits, threads * 2, rows * 2, ways, &count);
	if (linked && link.shared > LINK_BYTES)
		ways[count++] = link;
	for (uint32_t turns = 1; turns <= MOST_TURNS; turns *= 2)
		if (turns != own && count < SCATTER_WAYS &&
			make_link(problem, gather, limits, turns, &link))
			ways[count++] = link;
	return count;
}
