/*
 * topk_ways.c: how rows of topk and sort may be spread over threads, and which way comes first.
 */
#include "daemon/plan/ops/topk/topk.h"

#include <stdio.h>
#include <string.h>

#define BESIDE 1040u /* TOPK_BESIDE */
#define SAMPLED_BESIDE 192u

bool topk_is_small(kiln_dtype dtype)
{
	return dtype == KILN_I8 || dtype == KILN_U8 || dtype == KILN_I16 || dtype == KILN_BOOL;
}

void topk_find_form(const struct kernel_problem *problem, struct topk_form *form)
{
	const struct kernel_tensor *x = &problem->tensors[TOPK_X];
	const struct kernel_tensor *values = &problem->tensors[TOPK_VALUES];
	const struct kernel_tensor *indices = &problem->tensors[TOPK_INDICES];
	bool sort = strcmp(problem->op, "sort") == 0;
	int64_t begins[KILN_MAX_RANK];
	const int64_t *const strides[] = {x->stride, begins};
	int culprit, axis = plan_axis(problem);

	memset(form, 0, sizeof(*form));
	form->dtype = x->dtype;
	form->element = kernel_dtype_bytes(x->dtype);
	form->k = values->shape[axis];
	form->greatest = plan_int(problem, sort ? "descending" : "largest") != 0;
	/* Rows of the results have another length than x's: what lies along them is left out. */
	memcpy(begins, values->stride, sizeof(begins));
	begins[axis] = 0;
	/* One axis always merges with itself. */
	rows_form(&form->rows, x->rank, x->shape, 2, strides, axis, 1, &culprit);
	form->rows.step[1] = form->rows.columns > 1 ? values->stride[axis] : 1;
	form->read = form->element;
	if (form->rows.step[0] == 1)
		form->read =
			rows_narrow(&form->rows, 0, form->element, x->alignment < 16 ? x->alignment : 16);
	while ((uint64_t)form->rows.columns * form->element % form->read)
		form->read /= 2;
	form->out = form->k % 2 == 0 && form->rows.step[1] == 1 &&
						values->alignment >= 2 * form->element &&
						(indices->dtype == KILN_DTYPE_NONE || indices->alignment >= 16)
					? 2
					: 1;
}

uint32_t topk_way_bytes(const struct topk_way *way)
{
	uint32_t entries = way->room * way->entry + (way->whole ? 0 : BESIDE), ring, bins;

	if (way->kind == TOPK_WHOLE)
		return entries;
	if (way->kind == TOPK_ROWS)
		return way->rows * entries;
	ring = way->threads * way->held * way->stages * 16;
	bins = way->bins * 4 + (way->sorted + SAMPLED_BESIDE) * 8;
	return entries + (ring > bins ? ring : bins);
}

/* ---- Short rows, in registers ---- */

#define SHORT_THREADS 128u
#define SHORT_COLUMNS 1024
#define LIST_MOST 16  /* results that a lane keeps */
#define EACH_MOST 64u /* elements that a lane of these has */

/* A way of rows in so many lanes; false: too many elements for them, or too few. */
static bool fill_list(const struct topk_form *form, uint32_t lanes, struct topk_way *out)
{
	uint32_t vector = form->read / form->element;
	uint32_t vectors = (uint32_t)form->rows.columns / vector;
	uint32_t each = (vectors + lanes - 1) / lanes * vector;

	*out = (struct topk_way){.kind = TOPK_LIST, .threads = SHORT_THREADS, .vector = vector};
	out->rows = SHORT_THREADS / lanes;
	out->lanes = lanes;
	out->each = each;
	out->sorted = plan_power_of_two(form->k, TOPK_COLUMNS_MOST);
	return each <= EACH_MOST && (lanes == 1 || (vectors > lanes / 2 && each >= 4));
}

static bool fill_network(const struct topk_form *form, uint32_t each, struct topk_way *out)
{
	uint32_t vector = form->read / form->element;
	uint32_t all = plan_power_of_two(form->rows.columns, TOPK_COLUMNS_MOST);

	*out = (struct topk_way){.kind = TOPK_NETWORK, .threads = SHORT_THREADS, .vector = vector};
	out->lanes = all > each ? all / each : 1;
	out->each = each;
	out->rows = SHORT_THREADS / out->lanes;
	return each >= vector && out->lanes <= 32 && (each <= 8 || all >= each);
}

/* Few lanes merge less; with more than `wanted` elements each, too few threads run at once. */
static int find_short(const struct topk_form *form, const struct kernel_limits *limits,
					  struct topk_way ways[TOPK_MAX_WAYS])
{
	static const uint32_t each[] = {16, 32, 8};
	uint32_t wanted = form->element == 2 ? 32 : 16;
	int count = 0;

	if (form->element > 4 || topk_is_small(form->dtype) || form->rows.columns > SHORT_COLUMNS ||
		limits->max_threads < SHORT_THREADS)
		return 0;
	for (uint32_t lanes = 1; lanes <= 32 && count < 2 && form->k <= LIST_MOST; lanes *= 2)
		if (fill_list(form, lanes, &ways[count]) && (ways[count].each <= wanted || lanes == 32))
			count++;
	for (int i = 0; i < 3; i++)
		count += fill_network(form, each[i], &ways[count]);
	return count;
}

/* ---- Long rows: a sample of each says what is collected ---- */

#define SAMPLED_COLUMNS 16384
#define SAMPLED_SMALL (1 << 17) /* bytes of a row */

static uint32_t root_above(uint64_t square)
{
	uint32_t root = 0;

	while ((uint64_t)root * root < square)
		root++;
	return root;
}

/*
 * Finds how many entries of a sample of so many are wanted so that k or more are collected of all
 * rows in a random order but one in 100 000; and how many there must be room for, likewise.  Their
 * number scatters as its root.
 */
static void fill_want(const struct topk_form *form, uint32_t entries, struct topk_way *out)
{
	uint64_t columns = (uint64_t)form->rows.columns, upto;
	uint64_t least = ((uint64_t)form->k * entries + columns - 1) / columns;

	out->want = (uint32_t)least + 1;
	while (4 * (out->want - least) * (out->want - least) < 81 * (uint64_t)out->want)
		out->want++;
	upto = out->want + out->want / 8;
	upto = (upto + 4 * root_above(upto)) * columns / entries;
	if (upto < entries)
		upto = entries;
	if (upto < out->sorted)
		upto = out->sorted;
	out->room = (uint32_t)(upto + 255) / 256 * 256;
}

static bool fill_sampled(const struct topk_form *form, uint32_t threads,
						 const struct kernel_limits *limits, struct topk_way *out)
{
	uint32_t entries;

	*out = (struct topk_way){.kind = TOPK_SAMPLED, .threads = threads, .rows = 1, .entry = 8};
	out->vector = 16 / form->element;
	out->held = 4;
	out->stages = 2;
	out->sorted = plan_power_of_two(form->k, TOPK_COLUMNS_MOST);
	out->bins = out->sorted > 256 ? 4096 : 1024;
	entries = out->sorted > 256 ? 4096 : 2048;
	out->sample = entries / (threads * out->vector);
	if (out->sample == 0)
		out->sample = 1;
	entries = out->sample * threads * out->vector;
	fill_want(form, entries, out);
	return form->rows.columns >= 4 * (int64_t)entries && out->room <= form->rows.columns / 4 &&
		   threads <= limits->max_threads && topk_way_bytes(out) <= limits->shared_optin;
}

static int find_sampled(const struct topk_form *form, const struct kernel_limits *limits,
						struct topk_way *ways)
{
	/* Two large blocks at once; the few vectors of a shorter row are enough for a small one. */
	uint32_t first = form->rows.columns * form->element < SAMPLED_SMALL ? 256 : 512;
	int count = 0;

	if (form->element > 4 || topk_is_small(form->dtype) || form->rows.step[0] != 1 ||
		form->rows.columns < SAMPLED_COLUMNS)
		return 0;
	count += fill_sampled(form, first, limits, &ways[count]);
	return count + fill_sampled(form, 768 - first, limits, &ways[count]);
}

/* ---- Rows by way of shared memory ---- */

/* Fills in the shape of a block of so many threads. */
static void fill_rows(const struct topk_form *form, uint32_t threads, uint32_t rows,
					  const struct kernel_limits *limits, struct topk_way *out)
{
	uint32_t columns = (uint32_t)form->rows.columns,
			 all = plan_power_of_two(columns, TOPK_COLUMNS_MOST);

	*out = (struct topk_way){.kind = TOPK_ROWS, .threads = threads, .rows = rows, .held = 4};
	out->vector = form->rows.step[0] != 1 ? 1 : form->element > 1 ? 16 / form->element : 8;
	out->sorted = plan_power_of_two(form->k, TOPK_COLUMNS_MOST);
	/* Nothing is selected if all are sorted in the end, or if a warp sorts them at once. */
	out->whole = all == out->sorted || all <= 32;
	if (out->whole)
		out->sorted = all;
	out->entry = out->whole && form->element <= 2 ? 4 : form->element == 8 ? 16 : 8;
	out->room = out->sorted > 4 ? out->sorted : 4;
	if (!out->whole) {
		out->room = 4 * out->sorted > 2048 ? 4 * out->sorted : 2048;
		if (out->room > columns)
			out->room = (columns + 3) / 4 * 4;
	}
	if (topk_way_bytes(out) > limits->shared_optin && out->room > 2 * out->sorted)
		out->room = 2 * out->sorted;
	out->scratch = topk_way_bytes(out) > limits->shared_optin;
}

/* A warp has a short row, and a block a long one. */
static int find_rows(const struct topk_form *form, const struct kernel_limits *limits,
					 struct topk_way ways[TOPK_MAX_WAYS])
{
	static const uint32_t threads[] = {0, 256, 512, 128, 1024, 64, 32};
	uint32_t wanted = 256;
	struct topk_way way;
	int count = 0;

	fill_rows(form, 128, 4, limits, &way);
	if (form->rows.columns <= (way.whole ? 256 : 512) && !way.scratch && limits->max_threads >= 128)
		ways[count++] = way;
	if (way.whole)
		wanted = way.sorted < 256 ? 64 : way.sorted > 4096 ? 1024 : way.sorted / 4;
	else if (form->rows.columns <= 4096)
		wanted = 128;
	else if (way.sorted > 512)
		wanted = 512;
	for (int i = 0; i < 7; i++) {
		uint32_t here = i ? threads[i] : wanted;
		if (here > limits->max_threads || (i && here == wanted) || (here == 32 && count))
			continue;
		fill_rows(form, here, 1, limits, &ways[count++]);
	}
	return count;
}

/* Rows of so many elements, and shorter ones side by side, are sorted by so many threads. */
#define WHOLE_SIDE_BY_SIDE 1024u
#define WHOLE_TILE 256 /* TOPK_TILE */
#define WHOLE_EACH 8u  /* TOPK_EACH */

static void fill_whole(const struct topk_form *form, const struct kernel_limits *limits,
					   struct topk_way *out)
{
	uint32_t threads = TOPK_GENERIC_THREADS;

	*out = (struct topk_way){.kind = TOPK_WHOLE, .whole = true};
	while (threads > limits->max_threads)
		threads /= 2;
	out->entry = form->element == 8 ? 16 : form->element == 4 ? 8 : 4;
	out->sorted = plan_power_of_two(form->rows.columns, TOPK_COLUMNS_MOST);
	if (out->sorted < WHOLE_EACH)
		out->sorted = WHOLE_EACH;
	out->room = out->sorted > WHOLE_TILE ? out->sorted : WHOLE_SIDE_BY_SIDE;
	if (out->sorted <= WHOLE_TILE && out->room > threads * WHOLE_EACH)
		out->room = threads * WHOLE_EACH;
	out->threads = out->room / WHOLE_EACH < threads ? out->room / WHOLE_EACH : threads;
	out->rows = out->room / out->sorted;
	out->scratch = topk_way_bytes(out) > limits->shared_optin;
}

void topk_generic_way(const struct topk_form *form, const struct kernel_limits *limits,
					  struct topk_way *way)
{
	uint32_t threads = TOPK_GENERIC_THREADS;

	while (threads > limits->max_threads || (threads > 32 && threads > form->rows.columns / 4))
		threads /= 2;
	fill_rows(form, threads, 1, limits, way);
	if (way->whole || form->rows.columns <= WHOLE_TILE)
		fill_whole(form, limits, way);
}

/* ---- All of them ---- */

int topk_find_ways(const struct topk_form *form, const struct kernel_limits *limits,
				   struct topk_way ways[TOPK_MAX_WAYS])
{
	int count = find_short(form, limits, ways);

	count += find_sampled(form, limits, ways + count);
	return count + find_rows(form, limits, ways + count);
}

void topk_way_name(const struct topk_way *way, char name[KERNEL_CHOICE_MAX])
{
	if (way->kind == TOPK_ROWS)
		snprintf(name, KERNEL_CHOICE_MAX, "%s %u", way->rows > 1 ? "warps" : "block",
				 way->rows > 1 ? way->rows : way->threads);
	else if (way->kind == TOPK_SAMPLED)
		snprintf(name, KERNEL_CHOICE_MAX, "sampled %u", way->threads);
	else
		snprintf(name, KERNEL_CHOICE_MAX, "%s %ux%u", way->kind == TOPK_LIST ? "list" : "network",
				 way->lanes, way->each);
}
