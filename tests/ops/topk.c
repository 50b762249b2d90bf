/*
 * topk.c: the first k of rows in order, with their places, and rows sorted.
 *
 * Elements are moved and not computed, so each bit is given: of equals, 0 and -0 among them, the
 * one with the least place comes first, and NaN is greater than any number and equal to NaN.
 */
#include "common/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_sort(const struct cases_case *c)
{
	return strcmp(c->op->name, "sort") == 0;
}

/* ---- The reference ---- */

struct item {
	double number;
	int64_t integer, place, at;
};

static bool is_greater(const struct item *a, const struct item *b)
{
	if (isnan(a->number) || isnan(b->number))
		return isnan(a->number) && !isnan(b->number);
	return a->number > b->number || a->integer > b->integer;
}

static bool is_before(const struct item *a, const struct item *b, bool greatest)
{
	return greatest ? is_greater(a, b) : is_greater(b, a);
}

/* Puts an item behind those that come before it, of which there are `count`, in a list of `most`,
 * and behind its equals: places rise from call to call. */
static int64_t insert(struct item *list, int64_t count, int64_t most, const struct item *item,
					  bool greatest)
{
	int64_t low = 0, high = count;

	if (count == most && !is_before(item, &list[most - 1], greatest))
		return count;
	while (low < high) {
		int64_t middle = (low + high) / 2;
		bool before = is_before(item, &list[middle], greatest);
		*(before ? &high : &low) = before ? middle : middle + 1;
	}
	count += count < most;
	memmove(&list[low + 1], &list[low], (size_t)(count - 1 - low) * sizeof(*list));
	list[low] = *item;
	return count;
}

static struct item item_of(const struct reference *r, int64_t at, int64_t place)
{
	kiln_dtype dtype = r->c->operand[0].dtype;
	struct item item = {.place = place, .at = at};

	if (dtype == KILN_I64)
		memcpy(&item.integer, (const char *)r->memory[0] + at * 8, sizeof(item.integer));
	else
		item.number = cases_get(dtype, r->memory[0], at);
	return item;
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	const struct cases_case *c = r->c;
	const struct cases_operand *x = &c->operand[0], *y = &c->operand[1];
	int axis = reference_axis(c);
	int64_t columns = x->shape[axis], k = y->shape[axis];
	int64_t inner = reference_product(x, axis + 1, x->rank);
	struct item *list = reference_memory(k + 1, sizeof(*list));
	bool greatest = reference_int(c, is_sort(c) ? "descending" : "largest", !is_sort(c)) != 0;

	for (int64_t unit = first; unit < last; unit++) {
		int64_t from = reference_at(x, 0, axis, unit / inner) +
					   reference_at(x, axis + 1, x->rank, unit % inner);
		int64_t to = reference_at(y, 0, axis, unit / inner) +
					 reference_at(y, axis + 1, y->rank, unit % inner);
		int64_t count = 0;
		for (int64_t i = 0; i < columns && k > 0; i++) {
			struct item item = item_of(r, from + i * x->stride[axis], i);
			count = insert(list, count, k, &item, greatest);
		}
		for (int64_t i = 0; i < count; i++) {
			const char *value = (const char *)r->memory[0] + list[i].at * cases_element(x);
			reference_bytes(r, 1, to + i * y->stride[axis], value);
			if (c->operand[2].dtype != KILN_DTYPE_NONE)
				reference_bytes(r, 2, to + i * y->stride[axis], &list[i].place);
		}
	}
	free(list);
}

static const struct cases_op topk = {"topk", reference_lines, reference};
static const struct cases_op sort = {"sort", reference_lines, reference};

/* ---- The cases ---- */

static kiln_dtype dtype_of(int64_t turn)
{
	static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16,  KILN_I32,
										KILN_F64, KILN_BF16, KILN_I64};

	return dtypes[turn % MAKE_COUNT(dtypes)];
}

/* other: the least of topk, or descending. */
static struct cases_case *begin(struct cases_case *c, kiln_dtype dtype,
								const struct make_shape *shape, int axis, int64_t k, bool other)
{
	int along = axis < 0 ? axis + shape->rank : axis;
	struct make_shape result = *shape;

	make_input(c, 0, dtype, shape);
	if (!is_sort(c)) {
		result.size[along] = k;
		make_int(c, "k", k);
	}
	make_output(c, 1, dtype, &result);
	make_output(c, 2, KILN_I64, &result);
	if (axis != -1)
		make_int(c, "axis", axis);
	if (other)
		make_int(c, is_sort(c) ? "descending" : "largest", is_sort(c));
	return c;
}

static void name(struct cases_case *c)
{
	make_name(c, "x, values, indices");
}

static void add(const struct cases_op *op, kiln_dtype dtype, const struct make_shape *shape,
				int axis, int64_t k, bool other, unsigned flags)
{
	name(begin(cases_add(op, flags), dtype, shape, axis, k, other));
}

static void add_widths(void)
{
	static const int64_t ks[] = {1, 8, 50, 2, 600, 64, 2048, 7};
	int turn = 0;

	for (int i = 0; i < make_width_count; i++) {
		int64_t width = make_widths[i];
		const struct make_shape shape = {2, {make_rows(width), width}};
		for (int n = 0; n < 3; n++, turn++) {
			int64_t k = ks[(turn + turn / 8) % MAKE_COUNT(ks)];
			add(&topk, dtype_of(turn), &shape, -1, k < width ? k : width, turn / 2 % 2, 0);
		}
		if (width <= 8192)
			add(&sort, dtype_of(i), &shape, -1, width, i % 2, 0);
	}
}

static void add_axes(void)
{
	static const struct {
		struct make_shape shape;
		int axis;
		int64_t k;
	} axes[] = {
		{{1, {777}}, 0, 5},          {{1, {1}}, 0, 1},           {{2, {1000, 5}}, 0, 3},
		{{3, {3, 70, 24}}, 1, 9},    {{3, {2, 5000, 3}}, -2, 6}, {{3, {4, 9, 0}}, 1, 3},
		{{3, {4, 9, 5}}, 1, 0},      {{2, {3, 0}}, -1, 0},       {{2, {70000, 3}}, -1, 2},
		{{4, {2, 3, 4, 40}}, -1, 7},
	};

	for (int i = 0; i < MAKE_COUNT(axes); i++)
		for (int n = 0; n < 2; n++)
			add(n ? &sort : &topk, dtype_of(2 * i + n), &axes[i].shape, axes[i].axis, axes[i].k,
				i % 2, axes[i].shape.size[0] == 70000 ? CASES_SLOW : 0);
}

/* Gaps, repeats, another order, and addresses that are aligned to elements alone; without places.
 */
static void add_layouts(void)
{
	static const struct {
		struct make_shape shape;
		int64_t stride[3];
		int64_t k;
	} layouts[] = {
		{{2, {5, 640}}, {1, 5}, 30},
		{{2, {3, 5000}}, {1, 0}, 40},
		{{2, {33, 40}}, {0, 1}, 3},
		{{2, {4, 6000}}, {6007, 1}, 300},
		{{3, {2, 3, 700}}, {700, 1400, 1}, 9},
	};

	for (int i = 0; i < 2 * MAKE_COUNT(layouts); i++) {
		struct cases_case *c = cases_add(i % 4 == 2 ? &sort : &topk, 0);
		begin(c, dtype_of(i + i / 6), &layouts[i / 2].shape, -1, layouts[i / 2].k, i % 3 == 1);
		make_strided(&c->operand[0], layouts[i / 2].stride);
		if (i % 2)
			c->operand[0].offset = cases_element(&c->operand[0]) % 16;
		if (i % 4 == 1)
			make_none(c, 2);
		name(c);
	}
}

/* NaN, infinities, zeros of both signs, and many equals. */
static void add_values(void)
{
	static const struct make_shape rows[] = {{2, {15, 300}}, {2, {15, 9000}}, {2, {7, 20000}}};
	static const double means[][2] = {{1000, 1}, {0, 4e-8}};

	for (int i = 0; i < 8; i++) {
		struct cases_case *c = cases_add(i % 4 == 3 ? &sort : &topk, 0);
		const struct make_shape *shape = &rows[i % 4 == 3 ? 0 : i == 5 ? 2 : i / 4];
		begin(c, make_float(i + i / 4), shape, -1, i % 3 ? 200 : 7, i / 2 % 2);
		c->operand[0].fill = CASES_UNUSUAL;
		name(c);
	}
	for (int i = 0; i < 8; i++) {
		struct cases_case *c = cases_add(i % 4 == 3 ? &sort : &topk, 0);
		begin(c, i % 2 ? KILN_F16 : KILN_BF16, &rows[i % 4 == 3 ? 0 : i % 2], -1, i % 3 ? 100 : 7,
			  i / 2 % 2);
		c->operand[0].mean = means[i / 4][0];
		c->operand[0].deviation = means[i / 4][1];
		name(c);
	}
}

/* Long rows whose sample misleads: fewer than k numbers are collected, some NaN beside them. */
static void add_misleading(void)
{
	static const int64_t nans[] = {0, 10, 500};

	for (int i = 0; i < 6; i++) {
		struct cases_case *c = cases_add(&topk, 0);
		begin(c, KILN_F32, &(struct make_shape){2, {3, 100000}}, -1, i % 2 ? 64 : 50, true);
		c->operand[0].fill = CASES_MISLEADING;
		c->operand[0].most = nans[i / 2];
		name(c);
	}
}

/* Long rows of which more equals are collected behind the first k than there is room to put in
 * order. */
static void add_stepped(void)
{
	struct cases_case *c = cases_add(&topk, 0);

	begin(c, KILN_F32, &(struct make_shape){2, {3, 32764}}, -1, 2048, false);
	c->operand[0].fill = CASES_STEPPED;
	name(c);
}

/* Integers of 8 and 16 bits and bools, of which many are equal: rows that are sorted whole, by a
 * warp or a block, and such that are filtered; and addresses that are aligned to elements alone. */
static void add_small(void)
{
	static const kiln_dtype dtypes[] = {KILN_I8, KILN_U8, KILN_I16, KILN_BOOL};
	static const struct {
		struct make_shape shape;
		int axis;
		int64_t k;
	} rows[] = {{{2, {9, 33}}, -1, 5},
				{{2, {3, 5001}}, -1, 40},
				{{3, {3, 70, 5}}, 1, 9},
				{{1, {700}}, 0, 700}};

	for (int i = 0; i < 2 * MAKE_COUNT(rows); i++) {
		bool whole = i % 4 == 0 || i % 4 == 3;
		struct cases_case *c = cases_add(whole && i >= 4 ? &sort : &topk, 0);
		begin(c, dtypes[(i + i / 4) % MAKE_COUNT(dtypes)], &rows[i % 4].shape, rows[i % 4].axis,
			  rows[i % 4].k, i / 2 % 2);
		c->operand[0].offset = i / 4 * cases_element(&c->operand[0]);
		name(c);
	}
	add(&topk, KILN_U8, &(struct make_shape){2, {3, 0}}, -1, 0, false, 0);
}

static void add_timed(void)
{
	static const struct {
		int64_t columns, k;
	} sizes[] = {{64, 8}, {50257, 50}, {131072, 64}, {131072, 2048}};
	const unsigned flags = CASES_BENCH | CASES_BIG;

	for (int d = 0; d < 2; d++) {
		const int64_t all = INT64_C(1) << (26 + d);
		for (int i = 0; i < MAKE_COUNT(sizes); i++)
			add(&topk, dtype_of(d),
				&(struct make_shape){2, {all / sizes[i].columns, sizes[i].columns}}, -1, sizes[i].k,
				false, flags);
		add(&sort, dtype_of(d), &(struct make_shape){2, {all >> 12, 1 << 10}}, -1, 0, false, flags);
	}
}

static void add_all(void)
{
	add_widths();
	add_axes();
	add_layouts();
	add_values();
	add_misleading();
	add_stepped();
	add_small();
	add_timed();
	/* Beyond 2^31 elements. */
	add(&topk, KILN_F16, &(struct make_shape){2, {(INT64_C(1) << 25) + 5, 64}}, -1, 2, false,
		CASES_BIG | CASES_HUGE);
	add(&sort, KILN_F16, &(struct make_shape){2, {(INT64_C(1) << 25) + 5, 64}}, -1, 0, false,
		CASES_BIG | CASES_HUGE);
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape;
	int64_t columns;
	int axis;

	memset(out, 0, sizeof(*out));
	out->op = make_chance(state, 3) ? &sort : &topk;
	make_random_shape(state, 5, &shape);
	axis = shape.rank ? (int)make_below(state, 2 * shape.rank) - shape.rank : 0;
	columns = shape.size[axis < 0 ? axis + shape.rank : axis];
	if (columns > 8192)
		out->op = &topk;
	begin(out, dtype_of(make_below(state, 6)), &shape, axis,
		  make_below(state, (columns < 2048 ? columns : 2048) + 1), make_chance(state, 2));
	if (out->operand[0].dtype != KILN_I32 && out->operand[0].dtype != KILN_I64)
		make_random_layout(state, &out->operand[0]);
	if (make_chance(state, 4))
		make_none(out, 2);
	name(out);
}

/* ---- What the planner refuses ---- */

static const struct make_shape small = {2, {3, 4}};

static void bad_dtype(struct cases_case *c)
{
	c->op = &topk;
	begin(c, KILN_U16, &small, -1, 2, false);
}

static void bad_rank(struct cases_case *c)
{
	c->op = &sort;
	make_input(c, 0, KILN_F32, &(struct make_shape){0, {0}});
	make_output(c, 1, KILN_F32, &(struct make_shape){0, {0}});
	make_none(c, 2);
}

static void bad_k(struct cases_case *c)
{
	c->op = &topk;
	begin(c, KILN_F32, &small, 0, 4, false);
}

static void bad_many(struct cases_case *c)
{
	c->op = &topk;
	begin(c, KILN_F32, &(struct make_shape){2, {3, 4000}}, -1, 2049, false);
}

static void bad_long(struct cases_case *c)
{
	c->op = &sort;
	begin(c, KILN_F32, &(struct make_shape){2, {3, 8193}}, -1, 0, false);
}

static void bad_columns(struct cases_case *c)
{
	c->op = &topk;
	begin(c, KILN_F32, &(struct make_shape){1, {(1 << 30) + 1}}, -1, 2, false);
}

static void bad_values(struct cases_case *c)
{
	c->op = &topk;
	begin(c, KILN_F32, &small, -1, 2, false);
	c->operand[1].dtype = KILN_F16;
}

static void bad_size(struct cases_case *c)
{
	c->op = &topk;
	begin(c, KILN_F32, &small, -1, 2, false);
	c->operand[1].shape[1] = 3;
}

static void bad_places(struct cases_case *c)
{
	c->op = &sort;
	begin(c, KILN_F32, &small, -1, 0, false);
	c->operand[2].dtype = KILN_I32;
}

static void bad_places_rank(struct cases_case *c)
{
	c->op = &sort;
	begin(c, KILN_F32, &small, -1, 0, false);
	make_output(c, 2, KILN_I64, &(struct make_shape){1, {12}});
}

static const struct cases_refusal refusals[] = {
	{"topk: x is u16; it must be f16, bf16, f32, f64, i8, u8, i16, i32, i64 or bool", bad_dtype},
	{"sort: x has rank 0; it needs a dimension to go along", bad_rank},
	{"topk: k is 4; dimension 0 of x has size 3, and k may be no more", bad_k},
	{"topk: k is 2049; it may be 0 to 2048", bad_many},
	{"sort: dimension 1 of x has size 8193; rows of up to 8192 are sorted", bad_long},
	{"topk: dimension 0 of x has size 1073741825; it may have up to 1073741824", bad_columns},
	{"topk: values is f16; it must be f32", bad_values},
	{"topk: dimension 1 of values has size 3; it must be 2", bad_size},
	{"sort: indices is i32; it must be i64", bad_places},
	{"sort: indices has rank 1; it must have rank 2", bad_places_rank},
	{NULL, NULL},
};

const struct cases_op *const topk_ops[] = {&topk, &sort, NULL};
const struct cases_family topk_family = {
	.name = "topk", .add = add_all, .random = add_random, .refusals = refusals};
