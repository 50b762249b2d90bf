/*
 * map_fold.c: the reductions of the right side.
 *
 * A reduction that depends on indices of the left side alone has a value for each row, that is for
 * each value of these indices, and is worked out before the row's elements.  The row's indices are
 * those of all such reductions together.  Reductions whose indices go equally far, in the same
 * order, share them.  They also share them with the indices of the left side that do not number the
 * row.  So x[i,j] and max[k](x[i,k]) read the same elements, and max[k](x[i,k]) and max[l](x[i,l])
 * are one reduction.
 *
 * A reduction that depends on another one's own index is local.
 */
#include "map.h"

static uint32_t bit(int index)
{
	return UINT32_C(1) << index;
}

static uint32_t own_indices(const struct map *map, int number)
{
	const struct map_node *node = &map->node[number];
	uint32_t set = 0;

	for (int k = 1; k < node->kids; k++)
		set |= bit(map->node[node->kid[k]].which);
	return set;
}

/* The indices that a value depends on. */
static uint32_t free_indices(const struct map *map, int number)
{
	const struct map_node *node = &map->node[number];
	uint32_t set = 0;

	if (node->kind == MAP_INDEX)
		return bit(node->which);
	if (node->kind == MAP_REDUCE)
		return free_indices(map, node->kid[0]) & ~own_indices(map, number);
	for (int k = 0; k < node->kids; k++)
		set |= free_indices(map, node->kid[k]);
	return set;
}

/* Marks local reductions and the row's indices.  bound: the indices of the reductions around. */
static void place_reductions(struct map *map, int number, uint32_t bound)
{
	struct map_node *node = &map->node[number];
	uint32_t depends;

	if (node->kind != MAP_REDUCE) {
		for (int k = 0; k < node->kids; k++)
			place_reductions(map, node->kid[k], bound);
		return;
	}
	depends = free_indices(map, number);
	for (int k = 0; k < map->index_count; k++) {
		if (!(depends & bound) && (depends & bit(k)))
			map->index[k].row = true;
		if ((depends & bound) && (own_indices(map, number) & bit(k)))
			map->index[k].local = true;
	}
	place_reductions(map, node->kid[0], bound | own_indices(map, number));
}

static bool is_local(const struct map *map, int number)
{
	return map->index[map->node[map->node[number].kid[1]].which].local;
}

/* ---- One index for all that go equally far ---- */

static void rename_index(struct map *map, int number, int from, int to)
{
	struct map_node *node = &map->node[number];

	if (node->kind == MAP_INDEX && node->which == from)
		node->which = to;
	for (int k = 0; k < node->kids; k++)
		rename_index(map, node->kid[k], from, to);
}

static bool go_equally_far(const struct map *map, const int *a, const int *b, int count)
{
	for (int k = 0; k < count; k++)
		if (map->index[a[k]].extent != map->index[b[k]].extent)
			return false;
	return true;
}

static int list_own(const struct map *map, int number, int list[MAP_KIDS])
{
	const struct map_node *node = &map->node[number];

	for (int k = 1; k < node->kids; k++)
		list[k - 1] = map->node[node->kid[k]].which;
	return node->kids - 1;
}

/* The left side's that are none of the row's. */
static int list_swept(const struct map *map, int list[MAP_INDICES])
{
	int count = 0;

	for (int k = 0; k < map->output_rank; k++)
		if (!map->index[k].row)
			list[count++] = k;
	return count;
}

static void bring_together(struct map *map, int number)
{
	int own[MAP_KIDS], other[MAP_INDICES], count = list_own(map, number, own);
	bool found = list_swept(map, other) == count && go_equally_far(map, own, other, count);

	for (int i = 0; i < map->fold_count && !found; i++)
		found = !map->fold[i].local && list_own(map, map->fold[i].node, other) == count &&
				go_equally_far(map, own, other, count);
	/* Each index keeps its own name if the first that strays is to be named. */
	for (int k = 0; k < count && found && !map->checked; k++)
		if (own[k] != other[k])
			rename_index(map, number, own[k], other[k]);
}

/* ---- The list ---- */

/* Finds the reductions that differ, inner ones first. */
static int list_folds(struct map *map, int number)
{
	struct map_node *node = &map->node[number];
	int status = KILN_OK;

	for (int k = 0; k < node->kids && !status; k++)
		status = list_folds(map, node->kid[k]);
	if (status || node->kind != MAP_REDUCE)
		return status;
	if (!is_local(map, number))
		bring_together(map, number);
	for (node->fold = 0; node->fold < map->fold_count; node->fold++)
		if (map_same(map, map->fold[node->fold].node, number))
			return KILN_OK;
	if (map->fold_count == MAP_FOLDS)
		return map_refuse(map, node->column, "the statement has more than %d reductions",
						  MAP_FOLDS);
	map->fold[map->fold_count++] =
		(struct map_fold){.node = number, .local = is_local(map, number)};
	return KILN_OK;
}

int map_folds(struct map *map)
{
	int swept[MAP_INDICES], rows = 0, last = -1;
	int status;

	place_reductions(map, map->value, 0);
	status = list_folds(map, map->value);
	for (int i = 0; i < map->fold_count; i++)
		if (!map->fold[i].local) {
			rows++;
			last = i;
		}
	/* A value for each element from one reduction is a sum with something done to it. */
	if (!status && rows == 1 && list_swept(map, swept) == 0) {
		const struct map_node *node = &map->node[map->fold[last].node];
		map->reduce = (enum map_reduce)node->which;
		map->term = node->kid[0];
	}
	return status;
}

int map_check_folds(struct map *map)
{
	for (int k = 0; k < map->output_rank; k++)
		if (map->index[k].extent == 0)
			return KILN_OK;
	for (int i = 0; i < map->node_count; i++) {
		const struct map_node *node = &map->node[i];
		if (node->kind != MAP_REDUCE || (node->which != MAP_MIN && node->which != MAP_MAX))
			continue;
		for (int k = 1; k < node->kids; k++) {
			const struct map_index *index = &map->index[map->node[node->kid[k]].which];
			if (index->extent == 0)
				return map_refuse(map, node->column,
								  "%s over %s is of nothing: the index goes over no value",
								  node->which == MAP_MIN ? "min" : "max", index->name);
		}
	}
	return KILN_OK;
}

uint32_t map_reads(const struct map *map, int number)
{
	const struct map_node *node = &map->node[number];
	uint32_t set = 0;

	if (node->kind == MAP_REDUCE && !map->fold[node->fold].local)
		return 0;
	for (int i = 0; i < map->access_count && node->kind == MAP_ACCESS; i++)
		if (map_same(map, map->access[i].node, number))
			set |= bit(i);
	for (int k = 0; k < node->kids; k++)
		set |= map_reads(map, node->kid[k]);
	return set;
}
