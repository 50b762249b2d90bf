/*
 * map_way.c: how a statement can be given to threads: the candidates, the planner's own first.
 */
#include "map.h"

#include <stdio.h>
#include <string.h>

#define MOST_WORDS 64 /* of loads that a thread has in flight */
#define GENERIC_THREADS 256
#define HELD_WORDS 64 /* of a row that a thread holds; map_most_words of ops/map_rows.cuh */

/* Words that a thread holds of one vector. */
static int words_held(const struct map *map, const struct map_loops *loops)
{
	int words = 0;

	for (int i = 0; i < map->access_count; i++) {
		const struct map_access *access = &map->access[i];
		int bytes = (int)kernel_dtype_bytes(map->problem->tensors[access->operand].dtype);
		int64_t step = map_stride(map, access, loops, loops->vector_loop);
		if (!access->direct)
			words += loops->vector;
		else if (step == 1)
			words += (bytes * loops->vector + 3) / 4;
		else
			words += step ? loops->vector * ((bytes + 3) / 4) : (bytes + 3) / 4;
	}
	return words ? words : 1;
}

static void map_way_add_way(const struct kernel_limits *limits, uint32_t threads, uint32_t share,
							bool sum, struct map_way ways[MAP_WAYS], int *count)
{
	struct map_way way = {.threads = threads, .share = share};

	while (way.threads > limits->max_threads)
		way.threads /= 2;
	while (sum && way.share > way.threads)
		way.share /= 2;
	if (share == 0 || *count == MAP_WAYS)
		return;
	snprintf(way.name, sizeof(way.name), "%s%u x%u", sum ? "split " : "unroll ", way.share,
			 way.threads);
	for (int i = 0; i < *count; i++)
		if (strcmp(ways[i].name, way.name) == 0)
			return;
	ways[(*count)++] = way;
}

/* The number of threads that share a sum follows from its terms alone, so that the number of
 * outputs changes no bit of them. */
static uint32_t find_split(const struct map_loops *loops)
{
	int64_t terms = loops->rows ? loops->terms / loops->vector : loops->terms;
	uint32_t split = 1, most = loops->rows ? 256 : 32;

	while (split < most && terms / split >= (loops->rows ? 16 : 64))
		split *= 2;
	return split;
}

/* ---- Rows ---- */

/* Threads that share a row, or a vector of rows, follow from what a row has alone.  A row that
 * registers hold has so many threads that each has a vector or two, or four where it keeps terms,
 * for many threads wait long for each other. */
static uint32_t find_row_split(const struct map *map, const struct map_loops *loops)
{
	const struct map_stage *sweep = &loops->stage[loops->stages - 1];
	uint32_t reads = 0, split = 1;
	int64_t words, terms = 1;
	bool keeps = false;

	for (int s = 0; s < loops->stages; s++) {
		reads |= loops->stage[s].reads;
		keeps = keeps || loops->stage[s].keeps;
		terms = loops->stage[s].terms > terms ? loops->stage[s].terms : terms;
	}
	words = map_held_words(map, loops, reads);
	if (loops->rows && loops->holds && sweep->terms * words <= 1024 * HELD_WORDS) {
		while (split < 32 && split < terms)
			split *= 2;
		while (split < 1024 && (terms > (keeps && split >= 256 ? 4 : 2) * (int64_t)split))
			split *= 2;
		return split;
	}
	if (!loops->rows && loops->holds && sweep->terms * words <= 64 * HELD_WORDS) {
		while (split < 64 && terms * words > split * HELD_WORDS / 2)
			split *= 2;
		return split;
	}
	while (split < (loops->rows ? 512 : 32) && terms / split >= (loops->rows ? 8 : 32))
		split *= 2;
	return split;
}

/* Columns meet in shared memory. */
static uint32_t most_row_threads(const struct map_loops *loops)
{
	return loops->rows ? 1024 : 4096 / (uint32_t)loops->vector;
}

static void add_row_way(const struct map_loops *loops, const struct kernel_limits *limits,
						uint32_t threads, uint32_t split, struct map_way ways[MAP_WAYS], int *count)
{
	uint32_t lanes = loops->rows ? 1 : 8;

	threads = threads > split * lanes ? threads : split * lanes;
	while (threads > limits->max_threads || threads > most_row_threads(loops))
		threads /= 2;
	map_way_add_way(limits, threads, split, true, ways, count);
}

static int row_ways(const struct map *map, const struct map_loops *loops,
					const struct kernel_limits *limits, struct map_way ways[MAP_WAYS])
{
	uint32_t split = find_row_split(map, loops);
	int count = 0;

	add_row_way(loops, limits, loops->rows ? 128 : 256, split, ways, &count);
	add_row_way(loops, limits, loops->rows ? 128 : 256, split * 2, ways, &count);
	add_row_way(loops, limits, loops->rows ? 128 : 256, split / 2, ways, &count);
	add_row_way(loops, limits, loops->rows ? 256 : 512, split, ways, &count);
	add_row_way(loops, limits, loops->rows ? 128 : 256, split / 4, ways, &count);
	return count;
}

/* The planner's own first. */
int map_ways(const struct map *map, const struct map_loops *loops,
			 const struct kernel_limits *limits, struct map_way ways[MAP_WAYS])
{
	bool sum = map->reduce != MAP_PLAIN;
	int count = 0, held = words_held(map, loops);
	uint32_t share;

	memset(ways, 0, sizeof(*ways) * MAP_WAYS);
	if (loops->stages > 0)
		return row_ways(map, loops, limits, ways);
	if (sum) {
		share = find_split(loops);
		map_way_add_way(limits, 256, share, true, ways, &count);
		map_way_add_way(limits, 256, share * 4, true, ways, &count);
		map_way_add_way(limits, 256, share * 2, true, ways, &count);
		map_way_add_way(limits, 256, share / 2, true, ways, &count);
		map_way_add_way(limits, 512, share * 2, true, ways, &count);
		map_way_add_way(limits, 128, share, true, ways, &count);
		return count;
	}
	/* Many small blocks that each move one vector a thread: two of bytes that become halves, and
	 * many of single elements. */
	share = loops->vector == 1 ? 8 : held < 4 ? 2 : 1;
	map_way_add_way(limits, loops->vector == 1 ? 256 : 128, share, false, ways, &count);
	for (uint32_t unroll = 1; unroll <= 8; unroll *= 2)
		for (uint32_t threads = 128; threads <= 512; threads *= 2)
			if ((int)unroll * held <= 2 * MOST_WORDS || unroll == 1)
				map_way_add_way(limits, threads, unroll, false, ways, &count);
	return count;
}

/* As many vectors a thread as there are registers for, so that they share what their indices cost,
 * or one where there is little work. */
static uint32_t generic_vectors(const struct map *map, const struct map_loops *loops,
								const struct kernel_limits *limits)
{
	int64_t blocks = loops->elements / loops->vector / (GENERIC_THREADS * 4);

	return blocks < 2 * (int64_t)limits->multiprocessors || 4 * words_held(map, loops) > MOST_WORDS
			   ? 1
			   : 4;
}

/* Takes the nearest split below that has a kernel. */
struct map_way map_generic_way(const struct map *map, const struct map_loops *loops,
							   const struct kernel_limits *limits)
{
	struct map_way ways[MAP_WAYS];
	uint32_t most = loops->rows ? 256 : 32, middle = loops->rows ? 16 : 8;
	struct map_way way;

	map_ways(map, loops, limits, ways);
	way = ways[0];
	if (loops->stages > 0)
		way.share = way.share >= 256 ? 256 : way.share >= 32 ? 32 : 8;
	else if (map->reduce != MAP_PLAIN)
		way.share = way.share >= most ? most : way.share >= middle ? middle : 1;
	else
		way = (struct map_way){.threads = GENERIC_THREADS,
							   .share = generic_vectors(map, loops, limits)};
	while (way.threads > limits->max_threads)
		way.threads /= 2;
	while (way.share > way.threads && loops->stages > 0)
		way.share /= 2;
	while (way.share > way.threads)
		way.share = way.share == most ? middle : 1;
	snprintf(way.name, sizeof(way.name), "%s", PLAN_GENERIC);
	return way;
}

struct kernel_scratch map_scratch(const struct map *map, const struct map_loops *loops,
								  const struct map_way *way)
{
	enum map_type type = map_sum_type(map);
	uint64_t bytes = type == MAP_F32 || type == MAP_I32 || type == MAP_U32 ? 4 : 8;
	uint64_t outs = loops->rows ? 1 : (uint64_t)loops->vector, lanes = way->threads / way->share;
	uint64_t groups = ((uint64_t)loops->elements / outs + lanes - 1) / lanes;
	uint64_t counters = (groups * 4 + 255) / 256 * 256;

	if (map->reduce == MAP_PLAIN || loops->pieces == 1)
		return (struct kernel_scratch){0};
	return (struct kernel_scratch){.bytes = counters +
											groups * (uint64_t)loops->pieces * lanes * outs * bytes,
								   .counters = counters};
}
