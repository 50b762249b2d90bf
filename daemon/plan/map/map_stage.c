/*
 * map_stage.c: a statement of rows is gone through row by row.  A row has a stage for each of its
 * reductions, in the order in which they need one another, and then the sweep over its elements.
 *
 * The threads of a row lie along it, with vectors of what a stage goes over; or they lie side by
 * side along the row's own last index.  The better way is that in which more operands lie side by
 * side.
 */
#include "map.h"

#include <string.h>

#define MOST_VECTOR 8
#define KEEP_TERMS 2048 /* vectors of a row: two for each of the most threads */

struct map_loops map_stage_view(const struct map_loops *loops, int stage)
{
	struct map_loops view = *loops;

	view.vector_loop = loops->stage[stage].vector_loop;
	view.vector = view.vector_loop < 0 ? 1 : loops->vector;
	view.now = stage;
	return view;
}

/* ---- Stages ---- */

static uint32_t own_set(const struct map *map, int number)
{
	const struct map_node *node = &map->node[number];
	uint32_t set = 0;

	for (int k = 1; k < node->kids; k++)
		set |= map_indices(map->node[node->kid[k]].which, map->node[node->kid[k]].which + 1);
	return set;
}

/* Stages that go over the same indices have the same loops. */
static void add_stage(const struct map *map, int fold, uint32_t over, int node,
					  struct map_loops *out)
{
	struct map_stage *stage = &out->stage[out->stages];

	*stage = (struct map_stage){.fold = fold, .over = over, .first = out->count};
	for (int i = 0; i < out->stages; i++) {
		if (out->stage[i].over != over)
			continue;
		stage->first = out->stage[i].first;
		stage->last = out->stage[i].last;
	}
	if (stage->first == out->count) {
		map_add_loops(map, over, out);
		stage->last = out->count;
	}
	stage->reads = map_reads(map, node);
	stage->vector_loop = -1;
	out->stages++;
}

static void add_stages(const struct map *map, struct map_loops *out)
{
	uint32_t rows = 0, all = map_indices(0, map->output_rank);

	for (int k = 0; k < map->output_rank; k++)
		rows |= map->index[k].row ? map_indices(k, k + 1) : 0;
	map_add_loops(map, rows, out);
	out->outputs = out->count;
	out->row_count = map_extent(map, rows);
	for (int i = 0; i < map->fold_count; i++)
		if (!map->fold[i].local)
			add_stage(map, i, own_set(map, map->fold[i].node), map->node[map->fold[i].node].kid[0],
					  out);
	add_stage(map, -1, all & ~rows, map->value, out);
	out->inner = out->count;
	map_add_local_loops(map, out);
	/* A value that stands still in a row is read once. */
	for (int i = 0; i < map->access_count; i++) {
		bool moves = !map->access[i].direct;
		for (int k = out->outputs; k < out->count; k++)
			moves = moves || map_moves(map, &map->access[i], out, k);
		out->own |= moves ? 0 : map_indices(i, i + 1);
	}
}

/* ---- Vectors ---- */

/* Counts a stage's accesses that lie side by side along a loop, and finds their largest element. */
static int count_along(const struct map *map, const struct map_loops *loops, uint32_t reads,
					   int loop, uint32_t *largest)
{
	int count = 0;

	for (int i = 0; i < map->access_count && loop >= 0; i++) {
		const struct map_access *access = &map->access[i];
		uint32_t bytes = map_element_bytes(map, access->operand);
		if (!(reads >> i & 1) || !access->direct || map_stride(map, access, loops, loop) != 1)
			continue;
		count++;
		*largest = bytes > *largest ? bytes : *largest;
	}
	return count;
}

/* The loop that vectors of a stage can lie along, and the largest element there. */
static int stage_vector(const struct map *map, const struct map_loops *loops,
						const struct map_stage *stage, uint32_t *largest)
{
	int loop = !loops->rows                 ? loops->outputs - 1
			   : stage->last > stage->first ? stage->last - 1
											: -1;
	bool stores = stage->fold < 0 && map_output_stride(map, loops, loop) == 1;

	*largest = 0;
	count_along(map, loops, stage->reads, loop, largest);
	if (stores && map_element_bytes(map, map->output) > *largest)
		*largest = map_element_bytes(map, map->output);
	/* Elements that lie apart are stored one by one, and along the row's index all go together. */
	if (stage->fold < 0 && !stores && (loops->rows || map->generic))
		*largest = 0;
	return loop;
}

static bool all_whole(const struct map *map, const struct map_loops *loops)
{
	for (int s = 0; s < loops->stages; s++) {
		struct map_loops view = map_stage_view(loops, s);
		for (int i = 0; i < map->access_count; i++) {
			const struct map_access *access = &map->access[i];
			uint32_t whole = map_element_bytes(map, access->operand) * (uint32_t)view.vector;
			if ((loops->stage[s].reads >> i & 1) && access->direct &&
				map_stride(map, access, loops, view.vector_loop) == 1 &&
				map_width(map, access, &view) < (whole < 16 ? whole : 16))
				return false;
		}
		if (loops->stage[s].fold < 0) {
			uint32_t whole = map_element_bytes(map, map->output) * (uint32_t)view.vector;
			if (map_store_width(map, &view) < (whole < 16 ? whole : 16))
				return false;
		}
		/* A loop has vectors in all stages or in none. */
		if (view.vector != loops->vector &&
			(!loops->rows || (loops->along >> (loops->stage[s].last - 1) & 1)))
			return false;
	}
	return true;
}

static void no_vectors(struct map_loops *out)
{
	out->vector = 1;
	out->along = 0;
	for (int s = 0; s < out->stages; s++)
		out->stage[s].vector_loop = -1;
}

static void choose_vectors(const struct map *map, struct map_loops *out)
{
	uint32_t vector = MOST_VECTOR, largest, columns_largest = 0;
	int along_rows = 0, along_columns = 0;
	bool any = false;

	for (int s = 0; s < out->stages; s++) {
		const struct map_stage *stage = &out->stage[s];
		along_rows += count_along(map, out, stage->reads,
								  stage->last > stage->first ? stage->last - 1 : -1, &largest);
		along_columns += count_along(map, out, stage->reads, out->outputs - 1, &columns_largest);
	}
	out->rows = out->outputs == 0 || along_rows > along_columns;
	for (int s = 0; s < out->stages; s++) {
		struct map_stage *stage = &out->stage[s];
		int loop = stage_vector(map, out, stage, &largest);
		if (loop < 0 || (largest == 0 && (out->rows || map->generic)))
			continue;
		stage->vector_loop = loop;
		any = any || largest > 0;
		vector = largest > 0 && 16 / largest < vector ? 16 / largest : vector;
		while (vector > 1 && out->loop[loop].extent % vector)
			vector /= map->generic ? vector : 2;
		out->along |= map_indices(loop, loop + 1);
	}
	out->vector = (int)vector;
	if (!any || vector == 1 || (map->generic && !all_whole(map, out)))
		no_vectors(out);
}

int map_held_words(const struct map *map, const struct map_loops *loops, uint32_t reads)
{
	int words = 0;

	for (int i = 0; i < map->access_count; i++) {
		const struct map_access *access = &map->access[i];
		int bytes = (int)map_element_bytes(map, access->operand);
		int64_t step = map_step(map, access, loops);
		if (!(reads >> i & 1) || !access->direct || (loops->own >> i & 1))
			continue;
		if (step == 1)
			words += (bytes * loops->vector + 3) / 4;
		else
			words += (step ? loops->vector : 1) * ((bytes + 3) / 4);
	}
	return words;
}

/* ---- Terms that are kept ---- */

static bool is_access_in(const struct map *map, uint32_t set, int number)
{
	for (int i = 0; i < map->access_count; i++)
		if (map_same(map, map->access[i].node, number))
			return set >> i & 1;
	return false;
}

bool map_stands(const struct map *map, const struct map_loops *loops, int number)
{
	const struct map_node *node = &map->node[number];

	if (node->kind == MAP_REDUCE)
		return !map->fold[node->fold].local;
	if (node->kind == MAP_INDEX)
		return map->index[node->which].row;
	if (node->kind == MAP_ACCESS && !is_access_in(map, loops->own, number))
		return false;
	for (int k = 0; k < node->kids && node->kind != MAP_ACCESS; k++)
		if (!map_stands(map, loops, node->kid[k]))
			return false;
	return true;
}

int map_kept(const struct map *map, const struct map_loops *view, int number)
{
	for (int s = 0; s < view->now; s++)
		if (view->stage[s].keeps &&
			map_same(map, map->node[map->fold[view->stage[s].fold].node].kid[0], number))
			return s;
	return -1;
}

/* Is a part of the statement in another one, but for reductions that are worked out before? */
static bool contains(const struct map *map, int number, int part)
{
	const struct map_node *node = &map->node[number];

	if (map_same(map, number, part))
		return true;
	for (int k = 0; k < node->kids && node->kind != MAP_REDUCE; k++)
		if (contains(map, node->kid[k], part))
			return true;
	return false;
}

/* Is a value dear enough to be kept, and does nothing but loads and arithmetic make it? */
static bool is_dear(const struct map *map, int number, bool *plain)
{
	const struct map_node *node = &map->node[number];
	bool dear = node->kind == MAP_CALL && map_functions[node->which].takes == MAP_FLOATS;

	if (node->kind == MAP_REDUCE) {
		*plain = *plain && !map->fold[node->fold].local;
		return false;
	}
	for (int i = 0; i < map->access_count && node->kind == MAP_ACCESS; i++)
		if (map_same(map, map->access[i].node, number))
			*plain = *plain && map->access[i].direct;
	for (int k = 0; k < node->kids; k++)
		dear = is_dear(map, node->kid[k], plain) || dear;
	return dear;
}

/* Has registers keep the terms of a stage which a later one would work out again. */
static void keep_terms(const struct map *map, struct map_loops *out)
{
	for (int s = 0; s < out->stages - 1 && out->holds && out->rows; s++) {
		struct map_stage *stage = &out->stage[s];
		const struct map_node *fold = &map->node[map->fold[stage->fold].node];
		bool plain = true, again = contains(map, map->value, fold->kid[0]);
		for (int later = s + 1; later < out->stages - 1; later++)
			again = again || contains(map, map->node[map->fold[out->stage[later].fold].node].kid[0],
									  fold->kid[0]);
		stage->keeps = again && stage->terms <= KEEP_TERMS && fold->common == MAP_F32 &&
					   map->node[fold->kid[0]].type == MAP_F32 &&
					   is_dear(map, fold->kid[0], &plain) && plain;
	}
}

static void row_loops(const struct map *map, struct map_loops *out)
{
	uint32_t reads = 0;

	add_stages(map, out);
	out->elements = map_extent(map, map_indices(0, map->output_rank));
	choose_vectors(map, out);
	out->pieces = 1;
	out->terms = 1;
	out->holds = !map->generic && !map->checked;
	for (int s = 0; s < out->stages; s++) {
		struct map_stage *stage = &out->stage[s];
		stage->terms = map_extent(map, stage->over);
		out->terms = stage->terms > out->terms ? stage->terms : out->terms;
		if (out->rows && stage->vector_loop >= 0)
			stage->terms /= out->vector;
		reads |= stage->reads;
		out->holds = out->holds && stage->over == out->stage[0].over && stage->terms > 0 &&
					 stage->vector_loop == out->stage[0].vector_loop;
	}
	out->vector_loop = out->stage[out->stages - 1].vector_loop;
	out->holds = out->holds && map_held_words(map, out, reads) > 0;
	keep_terms(map, out);
}

void map_loops(const struct map *map, struct map_loops *out)
{
	memset(out, 0, sizeof(*out));
	if (map_has_rows(map))
		row_loops(map, out);
	else
		map_sum_loops(map, out);
	out->wide = map_needs_wide(map, out);
}
