/*
 * map_sizes.c: the sizes of a statement: the extents of loops, how far each access moves along
 * them, sizes and strides of what is read by computed subscripts, and how many terms a sum has.
 * The source of an exact kernel has them as numbers.  That of the generic kernel, which serves all
 * sizes, has them as arguments.
 */
#include "map.h"

#include <stdarg.h>
#include <stdio.h>

struct sizes {
	struct map_size *list;
	int count;
};

static void map_sizes_add(struct sizes *sizes, const char *type, uint32_t bytes, uint64_t value,
						  const char *format, ...) __attribute__((format(printf, 5, 6)));

static void map_sizes_add(struct sizes *sizes, const char *type, uint32_t bytes, uint64_t value,
						  const char *format, ...)
{
	struct map_size *size = &sizes->list[sizes->count];
	va_list args;

	if (sizes->count == MAP_SIZES)
		return;
	va_start(args, format);
	vsnprintf(size->name, sizeof(size->name), format, args);
	va_end(args);
	size->type = type;
	size->bytes = bytes;
	size->value = value;
	sizes->count++;
}

/* Extents of the loops that are divided by, as three arguments each. */
static void add_loops(const struct map *map, const struct map_loops *loops, struct sizes *sizes)
{
	uint32_t bytes = loops->wide ? 8 : 4;

	for (int k = 1; k < loops->count; k++) {
		int64_t extent = loops->loop[k].extent;
		struct kernel_plan divisor = {0};
		bool first = k == loops->outputs && loops->inner > k;
		for (int s = 0; s < loops->stages; s++)
			first = first || (k == loops->stage[s].first && loops->inner > k);
		if (first && !map->checked)
			continue;
		if (loops->stages ? loops->along >> k & 1 : k == loops->vector_loop)
			extent /= loops->vector;
		plan_arg_divisor(&divisor, bytes, extent > 0 ? (uint64_t)extent : 1);
		map_sizes_add(sizes, "Number", bytes, divisor.args[0].value, "e%d_size", k);
		map_sizes_add(sizes, "Number", bytes, divisor.args[1].value, "e%d_magic", k);
		map_sizes_add(sizes, "u32", 4, divisor.args[2].value, "e%d_shift", k);
	}
}

static void add_direct(const struct map *map, const struct map_loops *loops, int number,
					   struct sizes *sizes)
{
	const struct map_access *access = &map->access[number];
	uint32_t bytes = loops->wide ? 8 : 4;

	for (int k = 0; k < loops->count; k++)
		if (map_moves(map, access, loops, k) &&
			(k != map_vector_loop(map, access, loops) || map_step(map, access, loops) == 2))
			map_sizes_add(sizes, "Offset", bytes, (uint64_t)map_stride(map, access, loops, k),
						  "t%d_%d", number, k);
}

static void add_taken(const struct map *map, const struct map_loops *loops, int number,
					  struct sizes *sizes)
{
	const struct map_access *access = &map->access[number];
	const struct kernel_tensor *tensor = &map->problem->tensors[access->operand];
	uint32_t bytes = loops->wide ? 8 : 4;

	for (int k = 0; k < tensor->rank; k++) {
		map_sizes_add(sizes, "i64", 8, (uint64_t)tensor->shape[k], "z%d_%d", number, k);
		map_sizes_add(sizes, "Offset", bytes, (uint64_t)tensor->stride[k], "u%d_%d", number, k);
	}
}

bool map_sizes(const struct map *map, const struct map_loops *loops,
			   struct map_size list[MAP_SIZES], int *count)
{
	struct map_scalar scalars[KERNEL_MAX_ATTRS * 2];
	struct sizes sizes = {list, 0};

	*count = 0;
	if (!map->generic)
		return true;
	add_loops(map, loops, &sizes);
	for (int i = 0; i < map->access_count; i++)
		if (map->access[i].direct)
			add_direct(map, loops, i, &sizes);
		else
			add_taken(map, loops, i, &sizes);
	for (int k = 0; k < loops->inner && loops->stages > 0; k++)
		if (loops->loop[k].last < map->output_rank)
			map_sizes_add(&sizes, "Offset", loops->wide ? 8 : 4,
						  (uint64_t)map_output_stride(map, loops, k), "o%d", k);
	for (int s = 0; s < loops->stages; s++)
		map_sizes_add(&sizes, "Number", loops->wide ? 8 : 4, (uint64_t)loops->stage[s].terms,
					  "terms%d", s);
	if (map->reduce != MAP_PLAIN) {
		int64_t terms = loops->rows ? loops->terms / loops->vector : loops->terms;
		map_sizes_add(&sizes, "Number", loops->wide ? 8 : 4, (uint64_t)terms, "terms");
		map_sizes_add(&sizes, "u32", 4, (uint64_t)loops->pieces, "pieces");
	}
	*count = sizes.count;
	/* Besides operands and scalars: the number of elements, scratch memory, the report. */
	return sizes.count + map->operand_count + map_scalars(map, scalars) + 3 <= KERNEL_MAX_ARGS;
}
