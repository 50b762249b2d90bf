/*
 * map_range.c: how far indices go, and what integers can be.
 */
#include "map.h"

#include <string.h>

/* ---- Extents of indices ---- */

/* A subscript that is an index by itself says how far the index goes.  A dimension of size 1 of an
 * input goes with any. */
static int take_extent(struct map *map, int index, int operand, int k, int column)
{
	const struct kernel_tensor *tensor = &map->problem->tensors[operand];
	struct map_index *known = &map->index[index];
	int64_t size = tensor->shape[k];

	if (known->extent < 0 || (known->extent == 1 && operand != map->output))
		known->extent = size;
	else if (known->extent != size && (size != 1 || operand == map->output))
		return map_refuse(
			map, column, "index %s goes over %lld values, and dimension %d of %s has size %lld",
			known->name, (long long)known->extent, k, map->name[operand], (long long)size);
	return KILN_OK;
}

static int walk_subscripts(struct map *map, int number)
{
	const struct map_node *node = &map->node[number];
	int status = KILN_OK;

	for (int k = 0; k < node->kids && !status; k++) {
		const struct map_node *kid = &map->node[node->kid[k]];
		bool plain = node->kind == MAP_ACCESS && kid->kind == MAP_INDEX;
		if (plain)
			status = take_extent(map, kid->which, node->which, k, kid->column);
		else
			status = walk_subscripts(map, node->kid[k]);
	}
	return status;
}

int map_extents(struct map *map)
{
	const struct kernel_tensor *output = &map->problem->tensors[map->output];
	int status = KILN_OK;

	if (output->dtype != KILN_DTYPE_NONE && output->rank != map->output_rank)
		return map_refuse(map, map->output_column, "%s has %d subscript%s here and rank %d",
						  map->name[map->output], map->output_rank,
						  map->output_rank == 1 ? "" : "s", output->rank);
	/* The output's first: nothing is repeated in it. */
	for (int k = 0; k < map->output_rank && output->dtype != KILN_DTYPE_NONE; k++)
		map->index[k].extent = output->shape[k];
	status = walk_subscripts(map, map->value);
	for (int k = 0; k < map->index_count && !status; k++) {
		const struct map_index *index = &map->index[k];
		if (index->extent < 0)
			return map_refuse(map, index->column,
							  "how far %s goes is not known: no operand that is there has it as a "
							  "subscript by itself",
							  index->name);
		if (k < map->output_rank && output->dtype != KILN_DTYPE_NONE &&
			index->extent != output->shape[k])
			return map_refuse(
				map, index->column,
				"index %s goes over %lld values, and dimension %d of %s has size %lld", index->name,
				(long long)index->extent, k, map->name[map->output], (long long)output->shape[k]);
	}
	return status;
}

/* ---- Ranges of integers ---- */

static bool fits_type(enum map_type type, int64_t low, int64_t high)
{
	switch (type) {
	case MAP_BOOL:
		return low >= 0 && high <= 1;
	case MAP_I32:
		return low >= INT32_MIN && high <= INT32_MAX;
	case MAP_U32:
		return low >= 0 && high <= UINT32_MAX;
	case MAP_U64:
		return low >= 0;
	default:
		return type == MAP_I64;
	}
}

static void set_range(struct map_node *node, int64_t low, int64_t high)
{
	node->ranged = fits_type(node->type, low, high);
	node->low = low;
	node->high = high;
}

static void range_access(const struct map *map, struct map_node *node)
{
	switch (map->problem->tensors[node->which].dtype) {
	case KILN_BOOL:
		set_range(node, 0, 1);
		break;
	case KILN_U8:
		set_range(node, 0, UINT8_MAX);
		break;
	case KILN_I8:
		set_range(node, INT8_MIN, INT8_MAX);
		break;
	case KILN_U16:
		set_range(node, 0, UINT16_MAX);
		break;
	case KILN_I16:
		set_range(node, INT16_MIN, INT16_MAX);
		break;
	default:
		break;
	}
}

static void range_product(struct map_node *node, const struct map_node *a, const struct map_node *b)
{
	int64_t low = INT64_MAX, high = INT64_MIN, product;

	for (int i = 0; i < 4; i++) {
		if (__builtin_mul_overflow(i & 1 ? a->low : a->high, i & 2 ? b->low : b->high, &product))
			return;
		low = product < low ? product : low;
		high = product > high ? product : high;
	}
	set_range(node, low, high);
}

static void range_binary(struct map_node *node, const struct map_node *a, const struct map_node *b)
{
	int64_t low, high;

	if (node->op == MAP_ADD && !__builtin_add_overflow(a->low, b->low, &low) &&
		!__builtin_add_overflow(a->high, b->high, &high))
		set_range(node, low, high);
	else if (node->op == MAP_SUB && !__builtin_sub_overflow(a->low, b->high, &low) &&
			 !__builtin_sub_overflow(a->high, b->low, &high))
		set_range(node, low, high);
	else if (node->op == MAP_MUL)
		range_product(node, a, b);
	else if (node->op == MAP_DIV && b->low == b->high && b->low > 0)
		set_range(node, a->low / b->low, a->high / b->low);
	else if (node->op == MAP_MOD && b->low == b->high && b->low > 0)
		set_range(node, a->low < 0 ? 1 - b->low : 0, a->high < 0 ? 0 : b->low - 1);
	else if (node->op == MAP_AND && a->low >= 0 && b->low >= 0)
		set_range(node, 0, a->high < b->high ? a->high : b->high);
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static void range_call(const struct map *map, struct map_node *node)
{
	const char *name = map_functions[node->which].name;
	const struct map_node *a = &map->node[node->kid[0]];
	int64_t low = a->low, high = a->high;

	if (strcmp(name, "abs") == 0) {
		if (low > INT64_MIN)
			set_range(node, low > 0 ? low : high < 0 ? -high : 0, most(high, -low));
		return;
	}
	if (strcmp(name, "clamp") == 0) {
		const struct map_node *from = &map->node[node->kid[1]], *to = &map->node[node->kid[2]];
		set_range(node, least(most(low, from->low), to->low),
				  least(most(high, from->high), to->high));
		return;
	}
	for (int k = 1; k < node->kids; k++) {
		const struct map_node *b = &map->node[node->kid[k]];
		low = strcmp(name, "min") ? most(low, b->low) : least(low, b->low);
		high = strcmp(name, "min") ? most(high, b->high) : least(high, b->high);
	}
	set_range(node, low, high);
}

/* A clamp or a min of something unknown is known in part: its own type bounds it. */
static void range_by_type(struct map_node *node)
{
	if (node->ranged || map_is_float(node->type))
		return;
	if (node->type == MAP_U64)
		return;
	node->ranged = true;
	node->low = node->type == MAP_I64 ? INT64_MIN : node->type == MAP_I32 ? INT32_MIN : 0;
	node->high = node->type == MAP_I64   ? INT64_MAX
				 : node->type == MAP_I32 ? INT32_MAX
				 : node->type == MAP_U32 ? UINT32_MAX
										 : 1;
}

/* A generic kernel knows of its indices no more than how many bits they have. */
static int64_t index_high(const struct map *map, const struct map_index *index)
{
	if (map->generic)
		return index->extent <= INT32_MAX ? INT32_MAX : INT64_MAX;
	return most(index->extent - 1, 0);
}

static void range_node(struct map *map, int number)
{
	struct map_node *node = &map->node[number];
	const struct map_node *a, *b;
	bool ranged = true;

	for (int k = 0; k < node->kids; k++) {
		range_node(map, node->kid[k]);
		ranged = ranged && (map->node[node->kid[k]].ranged);
	}
	node->ranged = false;
	if (map_is_float(node->type))
		return;
	a = node->kids > 0 ? &map->node[node->kid[0]] : NULL;
	b = node->kids > 1 ? &map->node[node->kid[1]] : NULL;
	if (node->kind == MAP_NUMBER)
		set_range(node, node->i, node->i);
	else if (node->kind == MAP_INDEX)
		set_range(node, 0, index_high(map, &map->index[node->which]));
	else if (node->kind == MAP_ACCESS)
		range_access(map, node);
	else if (node->kind == MAP_UNARY && node->op == MAP_NEGATE && ranged && a->low > INT64_MIN)
		set_range(node, -a->high, -a->low);
	else if (node->kind == MAP_BINARY && ranged)
		range_binary(node, a, b);
	else if (node->kind == MAP_CHOICE && map->node[node->kid[1]].ranged &&
			 map->node[node->kid[2]].ranged)
		set_range(node, least(b->low, map->node[node->kid[2]].low),
				  most(b->high, map->node[node->kid[2]].high));
	else if (node->kind == MAP_CALL && ranged && map_functions[node->which].takes == MAP_SAME)
		range_call(map, node);
	else if (node->kind == MAP_REDUCE && (node->which == MAP_MIN || node->which == MAP_MAX) &&
			 a->ranged)
		set_range(node, a->low, a->high);
	range_by_type(node);
}

/* A node without a type gets 32 bits if every part of it fits them. */
static bool narrow(struct map *map, int number)
{
	struct map_node *node = &map->node[number];
	bool all = true;

	if (node->type == MAP_I32 || node->type == MAP_BOOL)
		return true;
	if (node->type != MAP_I64 || !node->untyped || !node->ranged ||
		!fits_type(MAP_I32, node->low, node->high) || node->kind == MAP_SCALAR)
		return false;
	for (int k = node->kind == MAP_CHOICE; k < node->kids; k++) {
		const struct map_node *kid = &map->node[node->kid[k]];
		all = all && kid->ranged && fits_type(MAP_I32, kid->low, kid->high) &&
			  narrow(map, node->kid[k]);
	}
	if (all)
		node->type = node->common = MAP_I32;
	return all;
}

static void narrow_all(struct map *map, int number)
{
	struct map_node *node = &map->node[number];
	bool compares = node->kind == MAP_BINARY && node->op >= MAP_LT && node->op <= MAP_NE;

	for (int k = 0; k < node->kids; k++)
		narrow_all(map, node->kid[k]);
	if (node->kind == MAP_ACCESS)
		for (int k = 0; k < node->kids; k++)
			narrow(map, node->kid[k]);
	if (compares && node->common == MAP_I64 && narrow(map, node->kid[0]) &&
		narrow(map, node->kid[1]))
		node->common = MAP_I32;
}

void map_ranges(struct map *map)
{
	range_node(map, map->value);
	narrow_all(map, map->value);
}
