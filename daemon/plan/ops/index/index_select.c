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
#include "index.h"

#include <stdio.h>
#include <string.h>

#define MAX_WAYS 8
#define THREADS 256u
#define BAND 16u              /* vectors of a row that blocks go over all rows for */
#define BAND_ROWS (160 << 10) /* of src, at most */
#define BAND_LEAST (32 << 20) /* bytes of src, at least */
#define BAND_ONCE (6 << 20)   /* bytes of all rows of a band */

enum select_kind { SELECT_GATHER, SELECT_ROWS, SELECT_ELEMENTS };

struct select_problem {
	struct index_problem index;
	enum select_kind kind;
	int64_t unit;          /* GATHER: elements that move together */
	struct rows_form form; /* rows of dst; operands: src, idx, the number among those of an index */
	int64_t axis;          /* elements of src from one index to the next */
	int64_t count;         /* elements of dst */
	uint32_t width;        /* ROWS: bytes that all runs are whole numbers of */
};

struct select_way {
	bool skew;
	uint32_t threads, held; /* vectors of a thread */
	uint32_t band;          /* vectors of a row that blocks go over all rows for; 0: whole rows */
	bool once;              /* dst is the first to leave the cache */
	int64_t blocks;
	char name[KERNEL_CHOICE_MAX];
};

/* ---- The request as rows ---- */

/* How many dimensions at the end, after the axis, lie without gaps in src. */
static int count_run(const struct index_problem *index)
{
	const struct kernel_tensor *src = &index->few;
	int64_t expected = 1;
	int k = src->rank;

	while (k > index->axis + 1 && (src->shape[k - 1] == 1 || src->stride[k - 1] == expected)) {
		expected *= src->shape[k - 1];
		k--;
	}
	return src->rank - k;
}

/* Numbers the rows of dst, whose last `axes` dimensions are columns. */
static void number_rows(struct select_problem *out, int axes)
{
	const struct index_problem *index = &out->index;
	const struct kernel_tensor *dst = &index->many;
	int64_t src[KILN_MAX_RANK], idx[KILN_MAX_RANK], other[KILN_MAX_RANK] = {0}, next = 1;
	const int64_t *stride[] = {src, idx, other};
	int first = dst->rank - axes, culprit;
	bool rows = out->kind == SELECT_ROWS;

	memcpy(src, index->few.stride, sizeof(src));
	memcpy(idx, index->idx_stride, sizeof(idx));
	src[index->axis] = 0;
	for (int k = dst->rank - 1; k >= 0 && !index->op.each; k--) {
		/* The dimensions before the axis of an embedding have indices of their own. */
		if (k == index->axis || (rows && k >= first) || (index->op.flat && k < index->axis))
			continue;
		other[k] = next;
		next *= dst->shape[k];
	}
	(void)rows_form(&out->form, dst->rank, dst->shape, 3, stride, first, axes, &culprit);
	out->axis = index->few.stride[index->axis];
}

/* As many dimensions at the end as merge in all operands are columns. */
static void number_elements(struct select_problem *out)
{
	const struct index_problem *index = &out->index;
	const struct kernel_tensor *dst = &index->many;
	int axes = 0, k = dst->rank - 1;

	/* A lone dimension numbers the rows, so that its size is an argument. */
	while (k > 0 && dst->shape[k] == 1)
		k--;
	if (k > 0)
		axes = 1;
	for (; axes < dst->rank && dst->rank - axes > index->axis + 1; axes++) {
		int64_t src = index->few.stride[dst->rank - axes - 1];
		int64_t idx = index->idx_stride[dst->rank - axes - 1];
		int64_t size = dst->shape[dst->rank - axes];
		if (axes == 0 || src != index->few.stride[dst->rank - axes] * size ||
			idx != index->idx_stride[dst->rank - axes] * size)
			break;
	}
	number_rows(out, axes);
}

/* Are all strides of src multiples of so many elements, but for those of the run itself? */
static bool divides(const struct index_problem *index, int64_t unit)
{
	for (int k = 0; k <= index->axis; k++)
		if (index->few.shape[k] > 1 && index->few.stride[k] % unit)
			return false;
	return true;
}

static uint32_t find_width(const struct kernel_problem *problem,
						   const struct select_problem *select)
{
	const struct rows_form *form = &select->form;
	uint32_t element = select->index.element, width = 16;

	while (width > element &&
		   ((uint64_t)form->columns * element % width || (uint64_t)select->axis * element % width ||
			problem->tensors[select->index.op.few].alignment < width ||
			problem->tensors[select->index.op.many].alignment < width))
		width /= 2;
	return rows_narrow(form, 0, element, width);
}

static void find_kind(const struct kernel_problem *problem, struct select_problem *out)
{
	const struct index_problem *index = &out->index;
	const struct kernel_tensor *dst = &index->many;
	int last = dst->rank - 1, run;
	int64_t unit = 1;
	uint64_t bytes;

	run = index->op.each ? 0 : count_run(index);
	for (int k = dst->rank - run; k < dst->rank; k++)
		unit *= dst->shape[k];
	bytes = (uint64_t)unit * index->element;
	while (last > index->axis && dst->shape[last] == 1)
		last--;
	out->unit = 1;
	out->kind = SELECT_ELEMENTS;
	if (index->axis > 0 && last == index->axis && !index->op.flat) {
		out->kind = SELECT_GATHER;
	} else if (run > 0 && unit > 1) {
		bool all = run == dst->rank - 1 - index->axis && !index->op.flat;
		bool little = all && index->axis > 0 && bytes <= 16 && (bytes & (bytes - 1)) == 0 &&
					  divides(index, unit) && problem->tensors[index->op.few].alignment >= bytes &&
					  problem->tensors[index->op.many].alignment >= bytes;
		out->kind = little ? SELECT_GATHER : SELECT_ROWS;
		out->unit = little ? unit : 1;
	}
	if (out->kind == SELECT_ROWS) {
		number_rows(out, run);
		out->width = find_width(problem, out);
	} else {
		number_elements(out);
	}
}

static int select_check(const struct kernel_problem *problem, struct select_problem *out,
						char error[KERNEL_ERROR_MAX])
{
	int status;

	memset(out, 0, sizeof(*out));
	status = index_check(problem, &out->index, error);
	if (status)
		return status;
	plan_elements(&out->index.many, &out->count);
	if (out->count > 0)
		find_kind(problem, out);
	return KILN_OK;
}

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

/* Do bands find rows in the cache that indices name again?  Not where all of src stays there, nor
 * where a band of all rows does not, nor where few rows are named twice. */
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

	*way = (struct select_way){.threads = THREADS / 2, .held = 2, .band = BAND};
	/* dst keeps a larger band from staying in the cache. */
	way->once = index->few.shape[index->axis] * BAND * 16 >= BAND_ONCE;
	way->blocks = vectors / BAND * plan_divide_up(select->form.rows, THREADS / BAND);
	if (select->width < 16 || vectors % BAND || vectors < 2 * BAND ||
		way->threads > limits->max_threads || way->blocks > limits->grid_x)
		return;
	snprintf(way->name, sizeof(way->name), "bands %ux2", THREADS / 2);
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
	select_add_way(select, limits, skew, THREADS / 2, skew ? 1 : 2, ways, &count);
	select_add_way(select, limits, skew, THREADS, skew ? 1 : 2, ways, &count);
	select_add_way(select, limits, skew, THREADS / 2, skew ? 2 : 1, ways, &count);
	select_add_way(select, limits, skew, THREADS / 2, 4, ways, &count);
	if (skew)
		select_add_way(select, limits, false, THREADS, 2, ways, &count);
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

static void select_extents(const struct kernel_problem *problem, uint32_t src, uint32_t idx,
						   uint32_t dst, struct kernel_plan *out)
{
	const uint32_t alignment[] = {src, idx, dst};

	for (int i = 0; i < 3; i++)
		plan_touch(problem, i, alignment[i], out);
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
	select_extents(problem, way->skew ? index->element : width, index->index_bytes, width, out);
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
	uint32_t threads = limits->max_threads < THREADS ? 32 : THREADS;
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
	select_extents(problem, index->element, load ? load : index->index_bytes,
				   vector * index->element, out);
	snprintf(out->choice, sizeof(out->choice), "elements %u", threads);
	snprintf(out->note, sizeof(out->note), "a thread makes %u elements, stored as one", vector);
	return plan_check_name(&id, out, error);
}

/* ---- Generic plans ---- */

static void pass_space(const struct select_problem *select, struct kernel_plan *out)
{
	rows_pass_sizes(out, &select->form, 8);
	for (int i = 0; i < 3; i++)
		rows_pass_strides(out, &select->form, i);
}

static int plan_generic_rows(const struct kernel_problem *problem,
							 const struct select_problem *select,
							 const struct kernel_limits *limits, struct kernel_plan *out)
{
	const struct index_problem *index = &select->index;
	uint32_t width = select->width == 16 ? 16 : index->element;
	int64_t columns = select->form.columns * index->element / width;
	int64_t count = select->count * index->element / width;

	plan_generic_spread(out, limits, "ops/index_select.cuh", (uint64_t)plan_divide_up(count, 2),
						THREADS);
	snprintf(out->instantiation, sizeof(out->instantiation), "index_rows_generic<%u>", width);
	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	index_report_arg(index, out);
	plan_arg_scalar(out, 8, (uint64_t)count);
	plan_arg_divisor(out, 8, (uint64_t)columns);
	plan_arg_scalar(out, 8, (uint64_t)index->few.shape[index->axis]);
	plan_arg_scalar(out, 8, (uint64_t)select->axis);
	plan_arg_scalar(out, 4, index->element);
	plan_arg_scalar(out, 4, index->index_bytes);
	plan_arg_scalar(out, 4, index->bounds);
	pass_space(select, out);
	select_extents(problem, width, index->index_bytes, width, out);
	snprintf(out->note, sizeof(out->note),
			 "an index moves %lld vectors of %u bytes; sizes and strides are arguments",
			 (long long)columns, width);
	return KILN_OK;
}

static int plan_generic_elements(const struct kernel_problem *problem,
								 const struct select_problem *select,
								 const struct kernel_limits *limits, struct kernel_plan *out)
{
	const struct index_problem *index = &select->index;
	uint32_t vector = index->element <= 4 ? 4 : 16 / index->element;
	bool run = select->form.columns % vector == 0;
	bool whole = problem->tensors[index->op.many].alignment >= vector * index->element;

	plan_generic_spread(out, limits, "ops/index_select.cuh",
						(uint64_t)plan_divide_up(select->count, vector), THREADS);
	snprintf(out->instantiation, sizeof(out->instantiation), "index_elements_generic<%u>",
			 index->element);
	for (int i = 0; i < 3; i++)
		plan_arg_pointer(out, i);
	index_report_arg(index, out);
	plan_arg_scalar(out, 8, (uint64_t)select->count);
	plan_arg_divisor(out, 8, (uint64_t)select->form.columns);
	plan_arg_scalar(out, 8, (uint64_t)index->few.shape[index->axis]);
	plan_arg_scalar(out, 8, (uint64_t)select->axis);
	plan_arg_scalar(out, 4, run);
	plan_arg_scalar(out, 4, whole);
	plan_arg_scalar(out, 4, index->index_bytes);
	plan_arg_scalar(out, 4, index->bounds);
	plan_arg_scalar(out, 8, (uint64_t)select->form.step[0]);
	plan_arg_scalar(out, 8, (uint64_t)select->form.step[1]);
	plan_arg_scalar(out, 8, (uint64_t)select->form.step[2]);
	pass_space(select, out);
	select_extents(problem, index->element, index->index_bytes,
				   whole ? vector * index->element : index->element, out);
	snprintf(out->note, sizeof(out->note),
			 "a thread makes %u elements; sizes and strides are arguments", vector);
	return KILN_OK;
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
	int status = select_check(problem, &select, error);

	if (status)
		return status;
	if (select.count == 0) {
		select_extents(problem, 1, 1, 1, out);
		plan_no_elements(out);
		return KILN_OK;
	}
	if (plan_is_generic(choice))
		status = (select.kind == SELECT_ROWS ? plan_generic_rows : plan_generic_elements)(
			problem, &select, limits, out);
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

	if (select_check(problem, &select, error) || select.count == 0)
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

/* One of each size. */
static const kiln_dtype elements[] = {KILN_F32, KILN_F16, KILN_I8, KILN_F64, KILN_C128};

int index_select_generics(int index, struct kernel_problem *out)
{
	/* Rows of such elements, which one index moves, and elements apart. */
	int64_t columns = index < 5 ? 7 : 1;

	if (index >= 10)
		return KILN_ENOENT;
	plan_made_tensor(out, 0, elements[index % 5], 2, (const int64_t[]){3, columns});
	plan_made_tensor(out, 1, KILN_I32, 1, (const int64_t[]){4});
	plan_made_tensor(out, 2, elements[index % 5], 2, (const int64_t[]){4, columns});
	return KILN_OK;
}

int take_along_axis_generics(int index, struct kernel_problem *out)
{
	if (index >= 5)
		return KILN_ENOENT;
	plan_made_tensor(out, 0, elements[index], 2, (const int64_t[]){3, 7});
	plan_made_tensor(out, 1, KILN_I32, 2, (const int64_t[]){3, 4});
	plan_made_tensor(out, 2, elements[index], 2, (const int64_t[]){3, 4});
	return KILN_OK;
}
