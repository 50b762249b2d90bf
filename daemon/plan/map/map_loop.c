/*
 * map_loop.c: how the elements of a statement are gone through: which indices can be one loop,
 * along which loop vectors lie, and how many bytes each access can move at once.
 */
#include "map.h"

#include <string.h>

#define MOST_BYTES 32 /* of one operand that an element-wise vector loads */

/* Do two neighbouring indices, the slower first, follow one another in all that is read? */
static bool can_join(const struct map *map, int slow, int fast)
{
	int64_t step;

	if (map->index[slow].named || map->index[fast].named)
		return false;
	if ((map->index[slow].extent == 1 && !map_is_batch_of_one(map, slow)) ||
		map->index[fast].extent == 1)
		return true;
	for (int i = 0; i < map->access_count; i++) {
		const int64_t *coefficient = map->access[i].coefficient;
		if (__builtin_mul_overflow(coefficient[fast], map->index[fast].extent, &step) ||
			coefficient[slow] != step)
			return false;
	}
	return true;
}

static void add_loops(const struct map *map, int first, int last, struct map_loops *out)
{
	bool fresh = true;

	for (int k = first; k < last; k++) {
		struct map_loop *loop = out->count ? &out->loop[out->count - 1] : NULL;
		/* A size of 1 is like any other if sizes are arguments. */
		if (map->index[k].extent == 1 && !map->generic && !map_is_batch_of_one(map, k))
			continue;
		if (!fresh && can_join(map, loop->last, k)) {
			if (map->index[k].extent != 1)
				loop->last = k;
			loop->extent *= map->index[k].extent;
		} else {
			out->loop[out->count++] =
				(struct map_loop){.first = k, .last = k, .extent = map->index[k].extent};
		}
		fresh = false;
	}
}

static int64_t product(const struct map *map, int first, int last)
{
	int64_t all = 1;

	for (int k = first; k < last; k++)
		if (__builtin_mul_overflow(all, map->index[k].extent, &all))
			return INT64_MAX;
	return all;
}

int64_t map_stride(const struct map *map, const struct map_access *access,
				   const struct map_loops *loops, int loop)
{
	(void)map;
	return loop < 0 ? 0 : access->coefficient[loops->loop[loop].last];
}

static uint32_t element(const struct map *map, int operand)
{
	return kernel_dtype_bytes(map->problem->tensors[operand].dtype);
}

/* Counts the accesses that lie side by side along a loop, and finds their largest element. */
static int count_along(const struct map *map, const struct map_loops *loops, int loop,
					   uint32_t *largest)
{
	int count = 0;

	for (int i = 0; i < map->access_count; i++) {
		const struct map_access *access = &map->access[i];
		if (!access->direct || map_stride(map, access, loops, loop) != 1)
			continue;
		count++;
		if (element(map, access->operand) > *largest)
			*largest = element(map, access->operand);
	}
	return count;
}

static uint32_t whole(const struct map *map, int operand, const struct map_loops *loops)
{
	uint32_t bytes = element(map, operand) * (uint32_t)loops->vector;

	return bytes < 16 ? bytes : 16;
}

static bool all_whole(const struct map *map, const struct map_loops *loops)
{
	for (int i = 0; i < map->access_count; i++) {
		const struct map_access *access = &map->access[i];
		if (access->direct && map_stride(map, access, loops, loops->vector_loop) == 1 &&
			map_width(map, access, loops) < whole(map, access->operand, loops))
			return false;
	}
	return loops->rows || map_store_width(map, loops) == whole(map, map->output, loops);
}

static void choose_vector(const struct map *map, struct map_loops *out)
{
	uint32_t store = element(map, map->output), along_rows = 1, along = 1, vector;
	bool sum = map->reduce != MAP_PLAIN;
	int rows =
		sum && out->count > out->outputs ? count_along(map, out, out->count - 1, &along_rows) : 0;
	int columns = count_along(map, out, out->outputs - 1, &along);

	out->rows = sum && (out->outputs == 0 || rows > columns);
	out->vector_loop = (out->rows ? out->count : out->outputs) - 1;
	if (out->rows && out->count == out->outputs)
		out->vector_loop = -1; /* one term */
	if (out->rows)
		vector = 16 / along_rows;
	else
		vector = 16 / store < MOST_BYTES / along ? 16 / store : MOST_BYTES / along;
	if (sum && vector > 8)
		vector = 8;
	/* The rest at the end of a loop can be done by itself if there is no other loop around it. */
	while (vector > 1 && (out->vector_loop < 0 ||
						  (out->loop[out->vector_loop].extent % vector && (sum || out->count > 1))))
		vector /= map->generic ? vector : 2;
	out->vector = (int)vector;
	/* Few kernels: with whole vectors everywhere, or without any. */
	if (map->generic && !all_whole(map, out))
		out->vector = 1;
}

static bool needs_wide(const struct map *map, const struct map_loops *loops)
{
	uint64_t bytes;

	for (int i = 0; i < map->operand_count; i++) {
		const struct kernel_tensor *tensor = &map->problem->tensors[i];
		plan_extent(tensor, &bytes);
		if (bytes / kernel_dtype_bytes(tensor->dtype) > INT32_MAX / 2)
			return true;
	}
	return loops->elements > INT32_MAX / 2 || loops->terms > INT32_MAX / 2;
}

/* The number of pieces follows from the terms alone, as long as there is memory for the results of
 * all pieces. */
static int64_t count_pieces(const struct map *map, const struct map_loops *loops)
{
	int64_t steps = loops->rows ? loops->terms / loops->vector : loops->terms;
	int64_t each = loops->rows ? 4096 : 1024, pieces = steps / each;

	if (map->reduce == MAP_PLAIN || pieces < 2)
		return 1;
	pieces = pieces < 256 ? pieces : 256;
	return loops->elements <= KERNEL_SCRATCH_MAX / 32 / pieces ? pieces : 1;
}

void map_loops(const struct map *map, struct map_loops *out)
{
	memset(out, 0, sizeof(*out));
	add_loops(map, 0, map->output_rank, out);
	out->outputs = out->count;
	add_loops(map, map->output_rank, map->index_count, out);
	out->elements = product(map, 0, map->output_rank);
	out->terms = product(map, map->output_rank, map->index_count);
	choose_vector(map, out);
	out->wide = needs_wide(map, out);
	out->pieces = count_pieces(map, out);
}

static uint32_t shrink(uint32_t width, int64_t step, uint32_t bytes)
{
	while (width > bytes && ((uint64_t)step * bytes) % width)
		width /= 2;
	return width;
}

uint32_t map_width(const struct map *map, const struct map_access *access,
				   const struct map_loops *loops)
{
	const struct kernel_tensor *tensor = &map->problem->tensors[access->operand];
	uint32_t bytes = element(map, access->operand), width = bytes * (uint32_t)loops->vector;

	if (!access->direct || map_stride(map, access, loops, loops->vector_loop) != 1)
		return bytes;
	width = width < 16 ? width : 16;
	while (width > bytes && width > tensor->alignment)
		width /= 2;
	for (int k = 0; k < loops->count; k++)
		if (k != loops->vector_loop)
			width = shrink(width, map_stride(map, access, loops, k), bytes);
	return shrink(width, access->start, bytes);
}

uint32_t map_store_width(const struct map *map, const struct map_loops *loops)
{
	uint32_t bytes = element(map, map->output), width = bytes;

	if (!loops->rows)
		width *= (uint32_t)loops->vector;
	width = width < 16 ? width : 16;
	while (width > bytes && width > map->problem->tensors[map->output].alignment)
		width /= 2;
	return width;
}
