/*
 * index_select.c: index_select, embedding and take_along_axis: which kernel moves what the indices
 * name, and how much a thread of it.
 *
 *   gather    the last dimension is indexed: rows are staged in shared memory, as gather has it
 *   rows      one index moves a run of elements
 *   bands     the same, for some vectors of all runs, then for the next ones: what a later index
 *             names again is still in the device's cache
 *   skew      the same, where runs are no whole vectors of 16 bytes
 *   panel     each element has an index, and the axis is not the last: index_panel.c
 *   elements  everything else
 *
 * A thread of rows waits for its index before it can ask for its vector, so it has two of them.
 */
#include "index_select.h"

#include <stdio.h>
#include <string.h>

#define MAX_WAYS 8
#define BAND 16u              /* vectors of a row that blocks go over all rows for */
#define BAND_ROWS (160 << 10) /* of src, at most */
#define BAND_LEAST (32 << 20) /* bytes of src, at least */
#define BAND_ONCE (6 << 20)   /* bytes of all rows of a band */

struct select_way {
	bool skew;
	uint32_t threads, held; /* vectors of a thread */
	uint32_t band;          /* vectors of a row that blocks go over all rows for; 0: whole rows */
	bool once;              /* dst is the first to leave the cache */
	int64_t blocks;
	char name[KERNEL_CHOICE_MAX];
};

/* ---- Candidates of rows ---- */

static void select_add_way(const struct select_problem *select, const struct kernel_limits *limits,
						   bool skew, uint32_t threads, uint32_t held,
						   struct select_way ways[MAX_WAYS], int *count)
{
	struct select_way *way = &ways[*count];
	uint32_t each = (skew ? 16 : select->width) / select->index.element;

	if (threads > limits->max_threads)
		return;
	*way = (struct select_way){.skew = skew, .threads = threads, .held = held};
	way->blocks = plan_divide_up(plan_divide_up(select->count, each), (int64_t)threads * way->held);
	snprintf(way->name, sizeof(way->name), "%s %ux%u", skew ? "skew" : "rows", threads, held);
	(*count)++;
}

/* Do bands find rows in the cache that indices name again?  They do not help where the cache keeps
 * all of src, where it does not even keep a band of all rows, and where few rows are named
 * twice. */
static bool bands_pay(const struct select_problem *select)
{
	const struct index_problem *index = &select->index;
	int64_t rows = index->few.shape[index->axis];

	return select->form.rows == index->indices && rows <= BAND_ROWS && index->indices >= rows / 2 &&
		   rows >= BAND_LEAST / (select->form.columns * index->element);
}

static void select_add_bands(const struct select_problem *select,
							 const struct kernel_limits *limits, struct select_way ways[MAX_WAYS],
							 int *count)
{
	const struct index_problem *index = &select->index;
	int64_t vectors = select->form.columns * index->element / 16;
	struct select_way *way = &ways[*count];

	*way = (struct select_way){.threads = SELECT_THREADS / 2, .held = 2, .band = BAND};
	/* dst keeps a larger band from staying in the cache. */
	way->once = index->few.shape[index->axis] * BAND * 16 >= BAND_ONCE;
	way->blocks = vectors / BAND * plan_divide_up(select->form.rows, SELECT_THREADS / BAND);
	if (select->width < 16 || vectors % BAND || vectors < 2 * BAND ||
		way->threads > limits->max_threads || way->blocks > limits->grid_x)
		return;
	snprintf(way->name, sizeof(way->name), "bands %ux2", SELECT_THREADS / 2);
	(*count)++;
}

/* The planner's own first. */
static int select_find_ways(const struct kernel_problem *problem,
							const struct select_problem *select, const struct kernel_limits *limits,
							struct select_way ways[MAX_WAYS])
{
	uint64_t bytes = (uint64_t)select->form.columns * select->index.element;
	bool skew = select->width < 16 && bytes >= 64 &&
				problem->tensors[select->index.op.many].alignment >= 16;
	bool bands = bands_pay(select);
	int count = 0;

	if (bands)
		select_add_bands(select, limits, ways, &count);
	/* Two vectors that are cut out at once leave registers for fewer threads. */
	select_add_way(select, limits, skew, SELECT_THREADS / 2, skew ? 1 : 2, ways, &count);
	select_add_way(select, limits, skew, SELECT_THREADS, skew ? 1 : 2, ways, &count);
	select_add_way(select, limits, skew, SELECT_THREADS / 2, skew ? 2 : 1, ways, &count);
	select_add_way(select, limits, skew, SELECT_THREADS / 2, 4, ways, &count);
	if (skew)
		select_add_way(select, limits, false, SELECT_THREADS, 2, ways, &count);
	if (count == 0)
		select_add_way(select, limits, skew, 32, 2, ways, &count);
	if (!bands)
		select_add_bands(select, limits, ways, &count);
	return count;
}

/* ---- The plan ---- */

/* Bytes read and written, each once: no more of src than is wanted. */
static uint64_t moved_bytes(const struct kernel_problem *problem,
							const struct select_problem *select)
{
	uint64_t bytes = (uint64_t)select->count * select->index.element;
	uint64_t distinct = plan_distinct_bytes(&problem->tensors[select->index.op.few]);

	return bytes + (bytes < distinct ? bytes : distinct) +
		   plan_distinct_bytes(&problem->tensors[1]);
}

static void print_places(const struct select_problem *select, struct plan_text *id)
{
	plan_print(id, ", IndexPlaces<%lld", (long long)select->axis);
	rows_print_sizes(id, &select->form);
	for (int i = 0; i < 3; i++)
		rows_print_strides(id, &select->form, i);
	plan_print(id, ">, %s",
			   select->index.few.shape[select->index.axis] < INT32_MAX ? "u32" : "u64");
}

static void pass_operands(const struct select_problem *select, int64_t count,
						  struct kernel_plan *out)
{
	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	plan_arg_scalar(out, 8, (uint64_t)count);
	plan_arg_scalar(out, 8, (uint64_t)select->index.few.shape[select->index.axis]);
	index_report_arg(&select->index, out);
}

static int plan_rows(const struct kernel_problem *problem, const struct select_problem *select,
					 const struct select_way *way, const struct kernel_limits *limits,
					 struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct index_problem *index = &select->index;
	uint32_t width = way->skew ? 16 : select->width, each = width / index->element;
	int64_t vectors = plan_divide_up(select->count, each), most = way->threads * way->held;
	int64_t beyond = way->band ? most / way->band * select->form.columns : most * each;
	bool loop = plan_launch(out, limits, (uint64_t)way->blocks, way->threads);
	bool wide = loop || select->count > INT32_MAX - beyond;

	snprintf(out->source, sizeof(out->source), "ops/index_select.cuh");
	plan_print(&id, "index_rows<IndexRow<%u, %s, %s, %lld, %u, %u, %u, %s, %u, %s>", index->element,
			   plan_dtype_name(index->index), plan_bounds_name(index->bounds),
			   (long long)select->form.columns, width, way->held, way->threads,
			   way->skew ? "true" : "false", way->band, way->once ? "true" : "false");
	print_places(select, &id);
	plan_print(&id, ", %s, %s>", wide ? "u64" : "u32", loop ? "true" : "false");
	pass_operands(select, way->skew ? select->count : vectors, out);
	index_select_extents(problem, way->skew ? index->element : width, index->index_bytes, width,
						 out);
	memcpy(out->choice, way->name, sizeof(out->choice));
	snprintf(out->note, sizeof(out->note),
			 "an index moves %lld elements; %u vectors of %u bytes a thread%s",
			 (long long)select->form.columns, way->held, width,
			 way->skew ? ", cut out of the two around them" : "");
	return plan_check_name(&id, out, error);
}

/* ---- Elements ---- */

/* The most elements, to 16 bytes, that can be stored at once, with 64 bytes of indices at most. */
static uint32_t select_find_vector(const struct kernel_problem *problem,
								   const struct select_problem *select)
{
	const struct index_problem *index = &select->index;
	uint32_t v = 16 / index->element, address = problem->tensors[index->op.many].alignment;

	while (v > 1 && (v * index->element > address || v * index->index_bytes > 64))
		v /= 2;
	return v;
}

/* Bytes of the indices of a vector that are loaded at once, or 0. */
static uint32_t select_find_load(const struct kernel_problem *problem,
								 const struct select_problem *select, uint32_t vector)
{
	uint32_t bytes = vector * select->index.index_bytes, load = problem->tensors[1].alignment;

	if (select->form.step[1] != 1 || select->form.columns % vector || vector == 1)
		return 0;
	load = load < 16 ? load : 16;
	load = load < bytes ? load : bytes;
	return rows_narrow(&select->form, 1, select->index.index_bytes, load);
}

static int plan_elements_way(const struct kernel_problem *problem,
							 const struct select_problem *select,
							 const struct kernel_limits *limits, struct kernel_plan *out,
							 char error[KERNEL_ERROR_MAX])
{
	struct plan_text id = {.text = out->instantiation, .size = sizeof(out->instantiation)};
	const struct index_problem *index = &select->index;
	uint32_t vector = select_find_vector(problem, select),
			 load = select_find_load(problem, select, vector);
	uint32_t threads = limits->max_threads < SELECT_THREADS ? 32 : SELECT_THREADS;
	bool loop = plan_launch(
		out, limits, (uint64_t)plan_divide_up(select->count, (int64_t)threads * vector), threads);
	bool wide = loop || select->count > INT32_MAX - (int64_t)threads * vector;

	snprintf(out->source, sizeof(out->source), "ops/index_select.cuh");
	plan_print(&id, "index_elements<IndexElements<%u, %s, %s, %lld, %u, %u, %u", index->element,
			   plan_dtype_name(index->index), plan_bounds_name(index->bounds),
			   (long long)select->form.columns, vector, load, threads);
	for (int i = 0; i < 3; i++)
		rows_print_step(&id, &select->form, i);
	plan_print(&id, ">");
	print_places(select, &id);
	plan_print(&id, ", %s, %s>", wide ? "u64" : "u32", loop ? "true" : "false");
	pass_operands(select, select->count, out);
	index_select_extents(problem, index->element, load ? load : index->index_bytes,
						 vector * index->element, out);
	snprintf(out->choice, sizeof(out->choice), "elements %u", threads);
	snprintf(out->note, sizeof(out->note), "a thread makes %u elements, stored as one", vector);
	return plan_check_name(&id, out, error);
}

/* ---- For the rows ---- */

static int plan_exact(const struct kernel_problem *problem, const struct select_problem *select,
					  const struct kernel_limits *limits, const char *choice,
					  struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct index_panel panels[INDEX_PANELS];
	struct select_way ways[MAX_WAYS];
	struct gather_problem gather;
	int count, chosen = 0, status;

	if (select->kind == SELECT_GATHER) {
		index_as_gather(&select->index, select->unit, &gather);
		return gather_plan_rows(problem, &gather, limits, choice, out, error);
	}
	if (select->kind == SELECT_ELEMENTS) {
		count = index_panels(problem, &select->index, limits, panels);
		for (int i = 0; i < count && i < INDEX_PANELS; i++)
			if (choice ? !strcmp(choice, panels[i].name) : panels[i].usual)
				return index_panel_plan(problem, &select->index, &panels[i], limits, out, error);
		status = plan_elements_way(problem, select, limits, out, error);
		return status || !choice || !strcmp(choice, out->choice)
				   ? status
				   : index_no_candidate(problem, choice, limits, error);
	}
	count = select_find_ways(problem, select, limits, ways);
	while (choice && chosen < count && strcmp(choice, ways[chosen].name) != 0)
		chosen++;
	if (chosen == count)
		return index_no_candidate(problem, choice, limits, error);
	return plan_rows(problem, select, &ways[chosen], limits, out, error);
}

int index_select_plan(const struct kernel_problem *problem, const struct kernel_limits *limits,
					  const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX])
{
	struct select_problem select;
	int status = index_select_check(problem, &select, error);

	if (status)
		return status;
	if (select.count == 0) {
		index_select_extents(problem, 1, 1, 1, out);
		plan_no_elements(out);
		return KILN_OK;
	}
	if (plan_is_generic(choice))
		index_select_generic(problem, &select, limits, out);
	else
		status = plan_exact(problem, &select, limits, choice, out, error);
	out->bytes_moved = moved_bytes(problem, &select);
	return status;
}

static int choices_elements(const struct kernel_problem *problem,
							const struct select_problem *select, const struct kernel_limits *limits,
							char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct index_panel panels[INDEX_PANELS];
	int count = index_panels(problem, &select->index, limits, panels), own = 0, n = 0;
	struct kernel_plan plan = {0};
	char error[KERNEL_ERROR_MAX];

	if (plan_elements_way(problem, select, limits, &plan, error))
		return 0;
	while (own < count && !panels[own].usual)
		own++;
	if (own < count)
		memcpy(names[n++], panels[own].name, KERNEL_CHOICE_MAX);
	memcpy(names[n++], plan.choice, KERNEL_CHOICE_MAX);
	for (int i = 0; i < count; i++)
		if (i != own)
			memcpy(names[n++], panels[i].name, KERNEL_CHOICE_MAX);
	return n;
}

int index_select_choices(const struct kernel_problem *problem, const struct kernel_limits *limits,
						 char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX])
{
	struct select_problem select;
	struct select_way ways[MAX_WAYS];
	struct gather_problem gather;
	char error[KERNEL_ERROR_MAX];
	int count;

	if (index_select_check(problem, &select, error) || select.count == 0)
		return 0;
	if (select.kind == SELECT_GATHER) {
		index_as_gather(&select.index, select.unit, &gather);
		return gather_choices_rows(problem, &gather, limits, names);
	}
	if (select.kind == SELECT_ELEMENTS)
		return choices_elements(problem, &select, limits, names);
	count = select_find_ways(problem, &select, limits, ways);
	for (int i = 0; i < count; i++)
		memcpy(names[i], ways[i].name, KERNEL_CHOICE_MAX);
	return count;
}
