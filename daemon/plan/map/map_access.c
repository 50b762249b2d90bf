/*
 * map_access.c: the places at which a statement reads operands: how each moves along the indices,
 * and which subscripts are within their dimension whatever the data is.
 */
#include "map.h"

#include <string.h>

/* start + the sum of coefficient * index, if it is one. */
static bool is_affine(const struct map *map, int number, struct map_subscript *out)
{
	const struct map_node *node = &map->node[number];
	struct map_subscript a = {0}, b = {0};
	int64_t factor;

	memset(out, 0, sizeof(*out));
	if (node->kind == MAP_NUMBER) {
		out->start = node->i;
		return true;
	}
	if (node->kind == MAP_INDEX) {
		out->coefficient[node->which] = 1;
		return true;
	}
	if (node->kind == MAP_UNARY && node->op == MAP_NEGATE && is_affine(map, node->kid[0], &a)) {
		factor = -1;
	} else if (node->kind == MAP_BINARY && node->op <= MAP_MUL &&
			   is_affine(map, node->kid[0], &a) && is_affine(map, node->kid[1], &b)) {
		const struct map_node *right = &map->node[node->kid[1]];
		factor = node->op == MAP_SUB ? -1 : 1;
		if (node->op == MAP_MUL) {
			bool first = map->node[node->kid[0]].kind == MAP_NUMBER;
			if (!first && right->kind != MAP_NUMBER)
				return false;
			factor = first ? a.start : b.start;
			a = first ? b : a;
			memset(&b, 0, sizeof(b));
		} else {
			struct map_subscript swap = a;
			a = b;
			b = swap;
		}
	} else {
		return false;
	}
	if (__builtin_mul_overflow(a.start, factor, &a.start) ||
		__builtin_add_overflow(a.start, b.start, &out->start))
		return false;
	for (int k = 0; k < MAP_INDICES; k++)
		if (__builtin_mul_overflow(a.coefficient[k], factor, &a.coefficient[k]) ||
			__builtin_add_overflow(a.coefficient[k], b.coefficient[k], &out->coefficient[k]))
			return false;
	return true;
}

static bool affine_within(const struct map *map, const struct map_subscript *s, int64_t size)
{
	int64_t low = s->start, high = s->start, step;

	for (int k = 0; k < map->index_count; k++) {
		if (s->coefficient[k] == 0)
			continue;
		if (__builtin_mul_overflow(s->coefficient[k], map->index[k].extent - 1, &step) ||
			__builtin_add_overflow(step < 0 ? low : high, step, step < 0 ? &low : &high))
			return false;
	}
	return low >= 0 && high < size;
}

static bool depends_on(const struct map *map, int number, int index)
{
	const struct map_node *node = &map->node[number];
	bool depends = node->kind == MAP_INDEX && node->which == index;

	for (int k = 0; k < node->kids && !depends; k++)
		depends = depends_on(map, node->kid[k], index);
	return depends;
}

/* A dimension of size 1 goes with any index. */
static bool is_repeated(const struct map_node *subscript, int64_t size)
{
	return subscript->kind == MAP_INDEX && size == 1;
}

static void describe_access(struct map *map, struct map_access *access)
{
	const struct map_node *node = &map->node[access->node];
	const struct kernel_tensor *tensor = &map->problem->tensors[access->operand];

	bool idle = false; /* nothing is ever read */

	for (int i = 0; i < (map->fold_count ? map->output_rank : map->index_count); i++)
		idle = idle || map->index[i].extent == 0;
	access->direct = !map->checked;
	idle = idle && !map->generic;
	for (int k = 0; k < node->kids; k++) {
		const struct map_node *kid = &map->node[node->kid[k]];
		struct map_subscript *s = &access->subscript[k];
		s->affine = is_affine(map, node->kid[k], s);
		for (int i = 0; i < map->index_count; i++) /* an index that is always 0 moves nothing */
			if ((map->index[i].extent <= 1 || is_repeated(kid, tensor->shape[k])) &&
				!(k == 0 && map_is_batch_of_one(map, i)))
				s->coefficient[i] = 0;
		s->within = s->affine ? affine_within(map, s, tensor->shape[k])
							  : kid->ranged && kid->low >= 0 && kid->high < tensor->shape[k];
		if (map->checked && !is_repeated(kid, tensor->shape[k]))
			s->within = false;
		if (map->generic) {
			s->within = kid->kind == MAP_INDEX && !map->checked;
			access->direct = access->direct && kid->kind == MAP_INDEX;
		}
		s->within = s->within || idle;
		access->direct = access->direct && s->affine && s->within;
	}
	/* Offsets fit 63 bits, for the operand's do and all of it is within. */
	for (int k = 0; k < node->kids && access->direct; k++) {
		int64_t stride =
			k ? tensor->stride[k] : plan_batch_stride(tensor->rank, tensor->shape, tensor->stride);
		access->start += access->subscript[k].start * stride;
		for (int i = 0; i < map->index_count; i++)
			access->coefficient[i] += access->subscript[k].coefficient[i] * stride;
	}
	/* Along a thread's own loop nothing is loaded before. */
	for (int i = 0; i < map->index_count; i++)
		if (map->index[i].local && depends_on(map, access->node, i))
			access->direct = false;
}

bool map_same(const struct map *map, int a, int b)
{
	const struct map_node *x = &map->node[a], *y = &map->node[b];

	if (x->kind != y->kind || x->which != y->which || x->op != y->op || x->i != y->i ||
		x->kids != y->kids || x->type != y->type)
		return false;
	if (x->kind == MAP_NUMBER && x->f != y->f)
		return false;
	for (int k = 0; k < x->kids; k++)
		if (!map_same(map, x->kid[k], y->kid[k]))
			return false;
	return true;
}

static int find_accesses(struct map *map, int number)
{
	struct map_node *node = &map->node[number];
	int status = KILN_OK;

	for (int k = 0; k < node->kids && !status; k++)
		status = find_accesses(map, node->kid[k]);
	if (status || node->kind != MAP_ACCESS)
		return status;
	for (int i = 0; i < map->access_count; i++)
		if (map_same(map, map->access[i].node, number))
			return KILN_OK;
	if (map->access_count == MAP_ACCESSES)
		return map_refuse(map, node->column, "the statement reads operands at more than %d places",
						  MAP_ACCESSES);
	map->access[map->access_count] = (struct map_access){.node = number, .operand = node->which};
	describe_access(map, &map->access[map->access_count++]);
	return KILN_OK;
}

/* An access that needs a subscript's value needs the indices in it, too. */
static void name_indices(struct map *map, int number)
{
	const struct map_node *node = &map->node[number];

	if (node->kind == MAP_INDEX)
		map->index[node->which].named = true;
	for (int k = 0; k < node->kids; k++)
		name_indices(map, node->kid[k]);
}

static void name_needed(struct map *map, int number, bool needed)
{
	const struct map_node *node = &map->node[number];

	if (node->kind == MAP_INDEX && needed)
		map->index[node->which].named = true;
	/* A reduction's own indices are no values. */
	for (int k = 0; k < (node->kind == MAP_REDUCE ? 1 : node->kids) && node->kind != MAP_ACCESS;
		 k++)
		name_needed(map, node->kid[k], true);
}

int map_accesses(struct map *map)
{
	int status = find_accesses(map, map->value);

	for (int k = 0; k < map->index_count; k++)
		map->index[k].named = map->checked;
	name_needed(map, map->value, true);
	for (int i = 0; i < map->access_count; i++)
		if (!map->access[i].direct)
			name_indices(map, map->access[i].node);
	return status;
}
