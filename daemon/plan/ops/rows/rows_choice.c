/*
 * rows_choice.c: how a row is spread over threads: the candidates.  Which of them is the best,
 * rows_cost.c says.
 */
#include "rows.h"

#include <stdlib.h>
#include <string.h>

uint32_t rows_narrow(const struct rows_form *form, int operand, uint32_t element, uint32_t bytes)
{
	for (int k = 0; k < form->rank; k++)
		while (bytes > element && (uint64_t)form->stride[operand][k] * element % bytes)
			bytes /= 2;
	return bytes;
}

uint32_t rows_vector(const struct rows_form *form, const struct rows_need *need)
{
	uint32_t bytes = need->alignment < 16 ? need->alignment : 16;

	for (int i = 0; i < form->operands; i++) {
		if (!(need->held & 1u << i))
			continue;
		if (form->step[i] != 1 && form->columns > 1)
			return 1;
		bytes = rows_narrow(form, i, need->element, bytes);
	}
	while (bytes > need->element && form->columns * need->element % bytes)
		bytes /= 2;
	return bytes > need->element ? bytes / need->element : 1;
}

bool rows_congruent(const struct rows_form *form, const struct rows_need *need)
{
	int64_t unit = 16 / need->element;
	int first = -1;

	if (need->alignment < 16)
		return false;
	for (int i = 0; i < form->operands; i++) {
		if (!(need->held & 1u << i))
			continue;
		if (form->step[i] != 1)
			return false;
		first = first < 0 ? i : first;
		for (int k = 0; k < form->rank; k++)
			if ((form->stride[i][k] - form->stride[first][k]) % unit)
				return false;
	}
	return true;
}

uint32_t rows_group(uint64_t vectors, uint32_t held)
{
	uint64_t size = plan_divide_up(vectors, held);

	if (size > 32)
		return (uint32_t)plan_divide_up(size, 32) * 32;
	for (uint32_t power = 1;; power *= 2)
		if (power >= size)
			return power;
}

#define MOST_OFFERED 128
#define MOST_WANTED 32

struct search {
	const struct rows_form *form;
	const struct rows_need *need;
	const struct kernel_limits *limits;
	uint64_t vectors; /* that a row may touch */
	struct rows_shape base;
	struct rows_shape *out;
	int count, most;
};

static uint32_t rows_shape_shared_bytes(const struct rows_need *need,
										const struct rows_shape *shape)
{
	return shape->slots * need->streams * shape->size * shape->rows * 16;
}

/* One more, unless it is there. */
static void rows_shape_keep(struct search *search, const struct rows_shape *shape)
{
	for (int i = 0; i < search->count; i++)
		if (memcmp(&search->out[i], shape, sizeof(*shape)) == 0)
			return;
	if (search->count < search->most)
		search->out[search->count++] = *shape;
}

static void offer(struct search *search, uint32_t held, uint32_t slots, uint32_t rows,
				  uint32_t cluster)
{
	const struct rows_need *need = search->need;
	struct rows_shape shape = search->base;
	uint32_t words = rows_words(need, search->base.vector);

	shape.held = held;
	shape.slots = slots;
	shape.cluster = cluster;
	shape.size = rows_group(plan_divide_up(search->vectors, cluster), held);
	shape.rows = rows;
	/* A block is whole warps. */
	while (shape.size * shape.rows % 32)
		shape.rows *= 2;
	if (shape.size * shape.rows > search->limits->max_threads ||
		(held - slots) * words > need->registers ||
		rows_shape_shared_bytes(need, &shape) > search->limits->shared_optin)
		return;
	if (slots && (!need->slots || shape.vector * need->element != 16))
		return;
	/* The registers of a multiprocessor: 64 Ki words.  For clusters the compiler saves them. */
	if ((cluster > 1 && need->converted && held - slots > 6) ||
		((held - slots) * words + 24 + need->around) * shape.size * shape.rows > 65536)
		return;
	rows_shape_keep(search, &shape);
}

static bool clusters_possible(const struct search *search)
{
	const char *target = search->limits->target;

	return search->need->clusters && (uint64_t)search->form->rows <= search->limits->grid_x / 8 &&
		   strncmp(target, "sm_", 3) == 0 && strtol(target + 3, NULL, 10) >= 90 &&
		   search->vectors >= 4096;
}

static void offer_clusters(struct search *search)
{
	static const uint32_t blocks[] = {2, 4, 8}, threads[] = {256, 512, 1024};

	if (!clusters_possible(search))
		return;
	for (int b = 0; b < 3 && search->vectors >= blocks[b] * 2048; b++) {
		for (int t = 0; t < 3; t++) {
			uint32_t held =
				(uint32_t)plan_divide_up(search->vectors, (uint64_t)blocks[b] * threads[t]);
			for (uint32_t slots = 0; slots <= held; slots += held / 4 ? held / 4 : 1)
				offer(search, held, slots, 1, blocks[b]);
		}
	}
}

/* Long steps for long rows; a block is busy with all of its threads for two steps at least. */
static void offer_streams(struct search *search)
{
	static const uint32_t threads[] = {1024, 512, 256}, helds[] = {4, 2, 1, 8};
	uint32_t most = search->limits->max_threads / 32 * 32;
	uint32_t words = rows_words(search->need, search->base.vector);
	struct rows_shape shape = search->base;

	if (!search->need->stream)
		return;
	shape.stream = true;
	shape.rows = shape.cluster = 1;
	for (int h = 0; h < 4; h++) {
		for (int t = 0; t < 3; t++) {
			shape.held = search->vectors < 16384 && h < 2 ? helds[1 - h] : helds[h];
			shape.size = threads[t] < most ? threads[t] : most;
			if ((shape.held * words + 16 + search->need->around) * shape.size > 65536)
				continue;
			if (shape.held * words <= 48 && shape.held * search->need->streams <= 8 &&
				(shape.size * shape.held <= search->vectors || (shape.held == 1 && t == 2)))
				rows_shape_keep(search, &shape);
		}
	}
}

/*
 * Every number of vectors a thread with which fewer threads do, in registers or in slots; as many
 * rows as fill blocks of 32 to 512 threads.
 */
static void offer_helds(struct search *search)
{
	static const uint32_t helds[] = {2, 1, 4, 3, 8, 5, 6, 16, 7, 12, 10, 13};

	for (size_t h = 0; h < sizeof(helds) / sizeof(helds[0]); h++) {
		uint32_t held = helds[h], size = rows_group(search->vectors, held);
		if (held > 1 && (size < 4 || rows_group(search->vectors, held - 1) == size))
			continue;
		for (uint32_t rows = 1; rows == 1 || size * rows <= 512; rows *= 2)
			if (size >= 32 || size * rows >= 64)
				offer(search, held, 0, rows, 1);
		if (search->vectors >= 256) {
			offer(search, held, held / 2, 1, 1);
			if (held >= 8)
				offer(search, held, held - held / 4, 1, 1);
			offer(search, held, held, 1, 1);
		}
	}
}

/* Hands on the cheapest first; those that cost the same as they were offered. */
static int hand_on(struct search *search, struct rows_shape *out, int most)
{
	double cost[MOST_OFFERED];

	for (int i = 0; i < search->count; i++) {
		struct rows_shape shape = search->out[i];
		double own = rows_cost(search->need, &shape, search->vectors, search->limits);
		int at = i;
		for (; at > 0 && cost[at - 1] > own; at--) {
			cost[at] = cost[at - 1];
			search->out[at] = search->out[at - 1];
		}
		cost[at] = own;
		search->out[at] = shape;
	}
	most = search->count < most ? search->count : most;
	memcpy(out, search->out, (size_t)most * sizeof(*out));
	return most;
}

int rows_shapes(const struct rows_form *form, const struct rows_need *need,
				const struct kernel_limits *limits, struct rows_shape *out, int most)
{
	struct rows_shape offered[MOST_OFFERED];
	struct search search = {form, need, limits, 0, {0}, offered, 0, MOST_OFFERED};
	uint32_t vector = rows_vector(form, need), wide = 16 / need->element;

	search.base.vector = vector;
	search.vectors = plan_divide_up((uint64_t)form->columns, vector);
	if (vector < wide && need->skew && form->columns >= 4 * (int64_t)wide &&
		rows_congruent(form, need)) {
		search.base.vector = wide;
		search.base.skewed = true;
		search.vectors = plan_divide_up((uint64_t)form->columns + 2 * wide - 2, wide);
	}
	if (form->columns <= INT32_MAX / 2)
		offer_helds(&search);
	offer_streams(&search);
	if (form->columns <= INT32_MAX / 2)
		offer_clusters(&search);
	return hand_on(&search, out, most < MOST_WANTED ? most : MOST_WANTED);
}

void rows_shape_name(const struct rows_shape *shape, char name[KERNEL_CHOICE_MAX])
{
	struct plan_text text = {.text = name, .size = KERNEL_CHOICE_MAX};

	if (shape->stream) {
		plan_print(&text, "stream %ux%u", shape->size, shape->held);
		return;
	}
	if (shape->cluster > 1)
		plan_print(&text, "cluster%u %ux%u", shape->cluster, shape->size, shape->held);
	else
		plan_print(&text, "%s %ux%u",
				   shape->slots    ? "slots"
				   : shape->skewed ? "skewed"
								   : "rows",
				   shape->size, shape->held);
	if (shape->slots)
		plan_print(&text, "/%u", shape->slots);
	if (shape->cluster == 1)
		plan_print(&text, " r%u", shape->rows);
}

int rows_shape_find(const struct rows_shape *shapes, int count, const char *name)
{
	for (int i = 0; i < count; i++) {
		char known[KERNEL_CHOICE_MAX];
		rows_shape_name(&shapes[i], known);
		if (!name || strcmp(name, known) == 0)
			return i;
	}
	return -1;
}

void rows_print_shape(struct plan_text *text, kiln_dtype dtype, const struct rows_form *form,
					  const struct rows_shape *shape)
{
	const char *skewed = shape->skewed ? "true" : "false";

	plan_print(text, "%s<%s, %lld, %u, %u", shape->stream ? "RowStream" : "RowShape",
			   plan_dtype_name(dtype), (long long)form->columns, shape->vector, shape->held);
	if (shape->stream)
		plan_print(text, ", %u, %s>", shape->size, skewed);
	else
		plan_print(text, ", %u, %u, %u, %u, %s>", shape->slots, shape->size, shape->rows,
				   shape->cluster, skewed);
}

uint32_t rows_alignment(const struct rows_shape *shape, uint32_t element)
{
	return shape->vector * element;
}

bool rows_launch(const struct rows_form *form, const struct rows_need *need,
				 const struct rows_shape *shape, const struct kernel_limits *limits,
				 struct kernel_plan *out)
{
	uint64_t blocks = plan_divide_up((uint64_t)form->rows, shape->rows) * shape->cluster;

	out->shared_bytes = rows_shape_shared_bytes(need, shape);
	return plan_launch(out, limits, blocks, shape->size * shape->rows);
}
