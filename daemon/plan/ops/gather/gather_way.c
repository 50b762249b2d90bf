/*
 * gather_way.c: the candidates for rows of gather: how much a block has, and what moves at once.
 *
 * Figures of an H200 speak for blocks of 128 threads that stage some kilobytes of src and store 16
 * bytes a thread once or twice.  Rows that shared memory does not hold, or of which little is
 * wanted, are not staged.  Short rows that share their list go by ops/gather_list.cuh if they are
 * no whole vectors, or if its indices are long: each index is looked at once for several of them.
 */
#include "gather.h"

#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES 4096 /* of dst, or of src, that are worth a block */
#define MOST_ROWS 64
#define MOST_PLACES 32  /* that a thread keeps in registers */
#define LIST_BYTES 6144 /* of src or dst that a block of a list has, at least */
#define LIST_MOST 65534 /* elements of a row, and indices */
#define LIST_TURNS 16
#define LIST_THREADS 512
#define SHORT_ROW 512    /* bytes of dst */
#define MOSTLY_ROW 16384 /* of src */
#define SECTOR_PART 20   /* of 32 bytes of src: five indices for eight sectors touch most */
#define BULK_ROW 49152   /* of src, which bulk copies bring */
#define TINY_ROW 128     /* bytes of dst, which its ends are most of */
#define BESIDE 32        /* of shared memory, beside rows */
#define ALONG_INDICES (2 << 20)
#define ALONG_ROWS (9 << 20)

/* All rows of one list are taken one after another where one row of each list is as much as a cache
 * keeps beside them. */
bool gather_along(const struct gather_problem *gather)
{
	int64_t indices = gather->lists * gather->many;
	int64_t elements = gather->lists * (gather->few + gather->many);

	return gather->lists > 1 && indices >= ALONG_INDICES / gather->index_bytes &&
		   elements >= ALONG_ROWS / gather->element;
}

/* ---- What moves at once ---- */

bool gather_is_dense(const struct gather_problem *gather)
{
	const struct rows_form *form = &gather->form;
	int64_t expected = gather->few;

	for (int k = form->rank - 1; k >= 0; k--) {
		if (form->stride[0][k] != expected)
			return false;
		expected *= form->size[k];
	}
	return form->step[0] == 1;
}

static uint32_t find_load(const struct kernel_problem *problem, const struct gather_problem *gather,
						  uint32_t rows)
{
	uint32_t element = gather->element, width = problem->tensors[0].alignment;
	uint64_t bytes = (uint64_t)gather->few * element;

	if (gather_is_dense(gather)) {
		width = width < 16 ? width : 16;
		while (width > element && bytes * rows % width)
			width /= 2;
		return width;
	}
	return gather->form.step[0] == 1 ? gather_aligned(gather, 0, element, width, bytes, 16)
									 : element;
}

static void find_vectors(const struct kernel_problem *problem, const struct gather_problem *gather,
						 struct gather_way *way)
{
	uint32_t v = 16 / gather->element, address = problem->tensors[2].alignment;
	uint32_t bytes = gather->index_bytes;

	while (v > 1 && ((way->most && v > way->most) || v * gather->element > address ||
					 v * bytes > 64 || (uint64_t)gather->many * way->rows % v))
		v /= 2;
	/* Halves that lie in one row are better than wholes that may lie in two. */
	if (gather->many % v && gather->many % (v / 2) == 0)
		v /= 2;
	way->vector = v;
	way->index_load = 0;
	if (gather->many % v == 0 && gather->index_step == 1)
		way->index_load = gather_aligned(gather, 1, bytes, problem->tensors[1].alignment,
										 (uint64_t)v * bytes, 16);
	way->load = way->stage ? find_load(problem, gather, way->rows) : gather->element;
	way->skew = way->stage && way->load < 16 && gather->element < 16 && gather_is_dense(gather);
	if (way->skew)
		way->load = gather->element;
}

/* ---- Candidates ---- */

static bool is_way(const struct gather_way *ways, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (strcmp(ways[i].name, name) == 0)
			return true;
	return false;
}

/* false: a block cannot do so many rows. */
static bool make_way(const struct kernel_problem *problem, const struct gather_problem *gather,
					 const struct kernel_limits *limits, struct gather_way *way)
{
	int64_t run = gather->many * way->rows, units;
	uint32_t steps;

	find_vectors(problem, gather, way);
	units = plan_divide_up(run, way->vector);
	steps = (way->index_load ? MOST_PLACES : MOST_PLACES / 2) / way->vector;
	steps = steps < 1 || way->most ? 1 : steps < 4 ? steps : 4;
	while (way->threads > limits->max_threads)
		way->threads /= 2;
	while (2 * way->threads <= limits->max_threads && way->threads < 1024 &&
		   units > (int64_t)way->threads * steps)
		way->threads *= 2;
	while (way->threads > 32 && units <= way->threads / 2)
		way->threads /= 2;
	/* No more than leave none idle in the last turn. */
	if (units <= (int64_t)way->threads * steps) {
		int64_t turns = plan_divide_up((uint64_t)units, way->threads);
		way->threads =
			(uint32_t)plan_divide_up(plan_divide_up((uint64_t)units, (uint64_t)turns), 32) * 32;
	}
	way->part = run;
	if (units > (int64_t)way->threads * steps) {
		int64_t parts = plan_divide_up(units, (int64_t)way->threads * steps);
		if (way->rows > 1)
			return false;
		way->part = plan_divide_up(units, parts) * way->vector;
	}
	snprintf(way->name, sizeof(way->name), way->most ? "%s %ux%ux%u" : "%s %ux%u",
			 way->stage ? "stage" : "direct", way->rows, way->threads, way->most);
	return true;
}

/* Room for the vectors around rows is that for rows, and a vector. */
uint32_t gather_stage_shared(const struct gather_problem *gather, const struct gather_way *way)
{
	uint64_t bytes = (uint64_t)way->rows * (uint64_t)gather->few * gather->element;

	return (uint32_t)plan_divide_up((int64_t)bytes, 16) * 16 + (way->skew ? 16 : 0);
}

static bool gather_fits(const struct gather_problem *gather, uint32_t rows, uint64_t shared)
{
	return gather->few > 0 && (uint64_t)gather->few <= (shared - BESIDE) / gather->element / rows;
}

/* Finds so many rows that a block has enough to do, and that its part of dst begins where a vector
 * may.  The number of all rows does not count: with few of them the launch takes the time, and all
 * batches have one kernel. */
static uint32_t gather_find_rows(const struct gather_problem *gather,
								 const struct kernel_limits *limits, bool stage)
{
	int64_t most = gather->few > gather->many && stage ? gather->few : gather->many;
	int64_t bytes = most * gather->element, row = gather->many * gather->element;
	uint32_t rows = 1;

	while (rows < MOST_ROWS && (!stage || gather_fits(gather, 2 * rows, limits->shared_default)) &&
		   (rows * bytes < BLOCK_BYTES || (rows * row % 16 && rows * bytes < 2 * BLOCK_BYTES)))
		rows *= 2;
	return rows;
}

static void gather_add(const struct kernel_problem *problem, const struct gather_problem *gather,
					   const struct kernel_limits *limits, const struct gather_way *wanted,
					   struct gather_way ways[GATHER_WAYS], int *count)
{
	struct gather_way way = *wanted;

	if (*count == GATHER_WAYS || way.rows == 0 || way.rows > MOST_ROWS ||
		(way.stage && !gather_fits(gather, way.rows, limits->shared_optin)))
		return;
	while (!make_way(problem, gather, limits, &way))
		way.rows /= 2;
	if (!is_way(ways, *count, way.name))
		ways[(*count)++] = way;
}

static void gather_add_way(const struct kernel_problem *problem,
						   const struct gather_problem *gather, const struct kernel_limits *limits,
						   bool stage, uint32_t rows, uint32_t threads,
						   struct gather_way ways[GATHER_WAYS], int *count)
{
	struct gather_way way = {.stage = stage, .rows = rows, .threads = threads};

	gather_add(problem, gather, limits, &way, ways, count);
}

/* Few elements of a thread: where each is a sector of its own, threads are what waits for them. */
static void gather_add_spread(const struct kernel_problem *problem,
							  const struct gather_problem *gather,
							  const struct kernel_limits *limits, uint32_t rows, uint32_t most,
							  struct gather_way ways[GATHER_WAYS], int *count)
{
	struct gather_way way = {.rows = rows, .threads = 256, .most = most};

	gather_add(problem, gather, limits, &way, ways, count);
}

/* GatherList in ops/gather_list.cuh computes the same. */
uint32_t gather_list_shared(const struct gather_problem *gather, const struct gather_way *way)
{
	uint32_t loads = ((uint32_t)gather->few * gather->element + 14) / 16 + 1;

	return way->rows * loads * 16 + ((uint32_t)gather->many + 4 * way->vector) * 2;
}

static void gather_add_list_of(const struct gather_problem *gather,
							   const struct kernel_limits *limits, uint32_t rows, uint32_t threads,
							   uint32_t shared, struct gather_way ways[GATHER_WAYS], int *count)
{
	struct gather_way way = {.list = true, .stage = true, .rows = rows, .threads = threads};
	uint32_t element = gather->element;

	if (rows < 1 || gather->outer < 2 || element > 8 || gather->few < 1 ||
		gather->few > LIST_MOST || gather->many > LIST_MOST || gather->form.step[0] != 1 ||
		*count == GATHER_WAYS)
		return;
	way.vector = element == 1 ? 8 : 16 / element;
	if (gather_list_shared(gather, &way) > shared || way.threads > limits->max_threads)
		return;
	way.load = element;
	way.index_load = gather->index_bytes;
	snprintf(way.name, sizeof(way.name), "list %ux%u", way.rows, way.threads);
	if (!is_way(ways, *count, way.name))
		ways[(*count)++] = way;
}

/* rows: half or all of those that are LIST_BYTES. */
static void gather_add_list(const struct gather_problem *gather, const struct kernel_limits *limits,
							uint32_t divisor, uint32_t threads, struct gather_way ways[GATHER_WAYS],
							int *count)
{
	int64_t most = gather->few > gather->many ? gather->few : gather->many;
	int64_t bytes = most * gather->element;
	struct gather_way way = {.rows = 1, .vector = gather->element == 1 ? 8 : 16 / gather->element};

	while (way.rows < MOST_ROWS && bytes < LIST_BYTES && way.rows * divisor * bytes < LIST_BYTES)
		way.rows *= 2;
	while (way.rows > 1 && gather_list_shared(gather, &way) > limits->shared_default)
		way.rows /= 2;
	gather_add_list_of(gather, limits, way.rows, threads, limits->shared_default, ways, count);
}

/* Many rows for each look at an index: so many as LIST_TURNS of many threads store, and as shared
 * memory holds twice. */
static void gather_add_lists(const struct gather_problem *gather,
							 const struct kernel_limits *limits,
							 struct gather_way ways[GATHER_WAYS], int *count)
{
	struct gather_way way = {.rows = 1, .vector = gather->element == 1 ? 8 : 16 / gather->element};
	uint32_t most = limits->shared_optin / 2 - 1024, threads = LIST_THREADS;
	int64_t units;

	if (gather->element > 8 || gather->few > LIST_MOST || gather->many > LIST_MOST)
		return;
	units = plan_divide_up((uint64_t)gather->many, way.vector);
	while (2 * way.rows <= MOST_ROWS && 2 * way.rows * units <= LIST_TURNS * LIST_THREADS) {
		way.rows *= 2;
		if (gather_list_shared(gather, &way) > most) {
			way.rows /= 2;
			break;
		}
	}
	if (gather_list_shared(gather, &way) > limits->shared_optin / 3)
		threads *= 2; /* few blocks have to be large ones */
	gather_add_list_of(gather, limits, way.rows, threads, most, ways, count);
	gather_add_list_of(gather, limits, way.rows / 2, threads, most, ways, count);
	gather_add_list_of(gather, limits, way.rows, threads / 2, most, ways, count);
	gather_add_list_of(gather, limits, way.rows / 2, threads / 2, most, ways, count);
}

int gather_ways(const struct kernel_problem *problem, const struct gather_problem *gather,
				const struct kernel_limits *limits, struct gather_way ways[GATHER_WAYS])
{
	uint32_t staged = gather_find_rows(gather, limits, true),
			 direct = gather_find_rows(gather, limits, false);
	int64_t row = gather->many * gather->element;
	/* So few that most sectors of a row are not touched. */
	bool little = gather->many < gather->few / 8 &&
				  gather->many < gather->few * gather->element / SECTOR_PART;
	bool whole = row % 16 == 0;
	/* Src is most of what is read, in whole vectors, and stored in such or in words. */
	bool mostly = 2 * gather->many <= gather->few &&
				  (gather->element >= 4 || (whole && gather->few * gather->element % 16 == 0 &&
											gather->few * gather->element <= MOSTLY_ROW));
	/* Rows share what is read of long indices, or what it takes to store between vectors. */
	bool shared = !little && !mostly && row >= TINY_ROW &&
				  gather->few * gather->element < BULK_ROW &&
				  (row % 8 || (gather->element <= 2 && gather->index_bytes == 8));
	int count = 0;

	memset(ways, 0, sizeof(*ways) * GATHER_WAYS);
	if (shared && row <= SHORT_ROW)
		gather_add_list(gather, limits, 1, 128, ways, &count);
	if (shared)
		gather_add_lists(gather, limits, ways, &count);
	/* Few rows a block: what they read is far apart. */
	if (little) {
		uint32_t few = direct < 4 ? 1 : direct / 4;
		/* Two of a thread share sectors where these are no more than the indices. */
		bool apart = gather->many * 32 < gather->few * gather->element;
		uint32_t most = gather->element == 4 || (gather->index_bytes >= 4 && apart) ? 1 : 2;
		for (int i = 0; gather->element <= 4 && i < 2; i++)
			gather_add_spread(problem, gather, limits, few, i ? 3 - most : most, ways, &count);
		gather_add_way(problem, gather, limits, false, few, 256, ways, &count);
	}
	if (row < TINY_ROW && row % 8)
		gather_add_way(problem, gather, limits, true, 2 * staged, 256, ways, &count);
	/* Two long rows that share the one list are worth a larger block. */
	if (gather->lists == 1 && whole && gather->few * gather->element >= 2 * BLOCK_BYTES)
		gather_add_way(problem, gather, limits, true, 2 * staged, 256, ways, &count);
	/* Blocks that store little have more rows. */
	if (2 * gather->many <= gather->few && staged > 1)
		gather_add_way(problem, gather, limits, true, 2 * staged, 256, ways, &count);
	gather_add_way(problem, gather, limits, true, staged, 128, ways, &count);
	gather_add_way(problem, gather, limits, true, 2 * staged, 128, ways, &count);
	gather_add_way(problem, gather, limits, true, staged / 2, 64, ways, &count);
	gather_add_way(problem, gather, limits, true, 2 * staged, 256, ways, &count);
	gather_add_way(problem, gather, limits, false, direct, 256, ways, &count);
	gather_add_way(problem, gather, limits, false, direct, 128, ways, &count);
	gather_add_way(problem, gather, limits, false, direct / 2, 256, ways, &count);
	gather_add_list(gather, limits, 1, 128, ways, &count);
	gather_add_list(gather, limits, 2, 128, ways, &count);
	if (!little && !shared)
		gather_add_lists(gather, limits, ways, &count);
	return count;
}
