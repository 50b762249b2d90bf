/*
 * map_loop.c: how the elements of a statement are gone through: which indices can be one loop,
 * along which loop vectors lie, and how many bytes each access can move at once.
 */
#include "map.h"

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

/* Is the output's element behind the last of an index the next one of the index before? */
static bool follows(const struct map *map, int slow, int fast)
{
	for (int k = slow + 1; k < fast && fast < map->output_rank; k++)
		if (map->generic || map->index[k].extent != 1)
			return false;
	return (slow < map->output_rank) == (fast < map->output_rank);
}

void map_add_loops(const struct map *map, uint32_t set, struct map_loops *out)
{
	bool fresh = true;

	for (int k = 0; k < map->index_count; k++) {
		struct map_loop *loop = out->count ? &out->loop[out->count - 1] : NULL;
		int64_t joined;
		if (!(set >> k & 1))
			continue;
		/* A size of 1 is like any other if sizes are arguments. */
		if (map->index[k].extent == 1 && !map->generic && !map_is_batch_of_one(map, k))
			continue;
		if (!fresh && follows(map, loop->last, k) && can_join(map, loop->last, k) &&
			!__builtin_mul_overflow(loop->extent, map->index[k].extent, &joined)) {
			if (map->index[k].extent != 1)
				loop->last = k;
			loop->extent = joined;
		} else {
			out->loop[out->count++] =
				(struct map_loop){.first = k, .last = k, .extent = map->index[k].extent};
		}
		fresh = false;
	}
}

int64_t map_extent(const struct map *map, uint32_t set)
{
	int64_t all = 1;

	for (int k = 0; k < map->index_count; k++)
		if ((set >> k & 1) && __builtin_mul_overflow(all, map->index[k].extent, &all))
			return INT64_MAX;
	return all;
}

int64_t map_stride(const struct map *map, const struct map_access *access,
				   const struct map_loops *loops, int loop)
{
	(void)map;
	return loop < 0 ? 0 : access->coefficient[loops->loop[loop].last];
}

int64_t map_output_stride(const struct map *map, const struct map_loops *loops, int loop)
{
	int64_t stride = 1;

	if (loop < 0 || loops->loop[loop].last >= map->output_rank)
		return 0;
	for (int k = loops->loop[loop].last + 1; k < map->output_rank; k++)
		stride *= map->index[k].extent;
	return stride;
}

int map_vector_loop(const struct map *map, const struct map_access *access,
					const struct map_loops *loops)
{
	for (int k = 0; k < loops->count && loops->stages > 0; k++)
		if ((loops->along >> k & 1) && map_stride(map, access, loops, k) != 0)
			return k;
	return loops->vector_loop;
}

int64_t map_step(const struct map *map, const struct map_access *access,
				 const struct map_loops *loops)
{
	int64_t step = map_stride(map, access, loops, map_vector_loop(map, access, loops));

	return !map->generic || step == 0 || step == 1 ? step : 2;
}

bool map_moves(const struct map *map, const struct map_access *access,
			   const struct map_loops *loops, int loop)
{
	const struct map_node *node = &map->node[access->node];
	const struct map_loop *range = &loops->loop[loop];

	if (!map->generic)
		return map_stride(map, access, loops, loop) != 0;
	for (int k = 0; k < node->kids; k++) {
		int index = map->node[node->kid[k]].which;
		if (index >= range->first && index <= range->last)
			return true;
	}
	return false;
}

uint32_t map_element_bytes(const struct map *map, int operand)
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
		if (map_element_bytes(map, access->operand) > *largest)
			*largest = map_element_bytes(map, access->operand);
	}
	return count;
}

static uint32_t whole(const struct map *map, int operand, const struct map_loops *loops)
{
	uint32_t bytes = map_element_bytes(map, operand) * (uint32_t)loops->vector;

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
	uint32_t store = map_element_bytes(map, map->output), along_rows = 1, along = 1, vector;
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

bool map_needs_wide(const struct map *map, const struct map_loops *loops)
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
	for (int64_t most = loops->rows ? 4096 : 256; most >= 256; most /= 16) {
		pieces = pieces < most ? pieces : most;
		if (loops->elements <= KERNEL_SCRATCH_MAX / 32 / pieces)
			return pieces;
	}
	return 1;
}

uint32_t map_indices(int first, int last)
{
	uint32_t set = 0;

	for (int k = first; k < last; k++)
		set |= UINT32_C(1) << k;
	return set;
}

/* Indices that a sum goes over: a reduction's own, or all that the left side does not have. */
static uint32_t summed(const struct map *map)
{
	const struct map_fold *fold = map->fold;
	uint32_t set = 0;

	if (map->fold_count == 0)
		return map_indices(map->output_rank, map->index_count);
	while (fold->local)
		fold++;
	for (int k = 1; k < map->node[fold->node].kids; k++)
		set |= UINT32_C(1) << map->node[map->node[fold->node].kid[k]].which;
	return set;
}

/* Local reductions' indices are loops by themselves. */
void map_add_local_loops(const struct map *map, struct map_loops *out)
{
	for (int k = 0; k < map->index_count; k++)
		if (map->index[k].local)
			map_add_loops(map, UINT32_C(1) << k, out);
}

/* The loops of a statement without rows. */
void map_sum_loops(const struct map *map, struct map_loops *out)
{
	uint32_t terms = map->reduce == MAP_PLAIN ? 0 : summed(map);

	map_add_loops(map, map_indices(0, map->output_rank), out);
	out->outputs = out->count;
	map_add_loops(map, terms, out);
	out->inner = out->count;
	out->elements = map_extent(map, map_indices(0, map->output_rank));
	out->terms = map_extent(map, terms);
	choose_vector(map, out);
	out->pieces = count_pieces(map, out);
	map_add_local_loops(map, out);
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
	uint32_t bytes = map_element_bytes(map, access->operand),
			 width = bytes * (uint32_t)loops->vector;

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
	uint32_t bytes = map_element_bytes(map, map->output), width = bytes;
	bool along = !loops->rows;

	if (loops->stages > 0)
		along = map_output_stride(map, loops, loops->vector_loop) == 1;
	if (along)
		width *= (uint32_t)loops->vector;
	width = width < 16 ? width : 16;
	while (width > bytes && width > map->problem->tensors[map->output].alignment)
		width /= 2;
	for (int k = 0; k < loops->count && loops->stages > 0; k++)
		if (k != loops->vector_loop)
			width = shrink(width, map_output_stride(map, loops, k), bytes);
	return width;
}
