/*
 * cumsum.c: cumulative sums along an axis, and their backward, which adds up from the end.
 *
 *   cumsum           y[k] = x[0] + .. + x[k]
 *   cumsum_backward  dx[k] = dy[k] + .. + dy[last]
 *
 * reverse: each from the other end; exclusive: each without the element itself.
 *
 * Integers wrap, so each bit is given.  Floats are added up in f32 or f64 in some order: k + 1
 * numbers take k additions, each of which rounds a partial sum, and no partial sum is larger than
 * the sum of magnitudes.  Few of the roundings go the same way, so a result may be off by 16 + 8 *
 * sqrt(k) of them, and by all k at most; f16 and bf16 are rounded once more.
 */
#include "common/reference.h"

#include <math.h>
#include <string.h>

static bool is_backward(const struct cases_case *c)
{
	return strcmp(c->op->name, "cumsum_backward") == 0;
}

static bool is_from_end(const struct cases_case *c)
{
	return is_backward(c) != (reference_int(c, "reverse", 0) != 0);
}

static bool is_float(kiln_dtype dtype)
{
	return dtype != KILN_I32 && dtype != KILN_I64;
}

static int axis_of(const struct cases_case *c)
{
	int axis = (int)reference_int(c, "axis", -1);

	return axis < 0 ? axis + c->operand[0].rank : axis;
}

/* ---- The reference ---- */

static int64_t units(const struct cases_case *c)
{
	const struct cases_operand *x = &c->operand[0];
	int axis = axis_of(c);

	return reference_product(x, 0, axis) * reference_product(x, axis + 1, x->rank);
}

/* A row of an operand: where it begins, and how far its elements are apart. */
struct line {
	int64_t first, step;
};

static struct line line_of(const struct cases_operand *operand, int axis, int64_t unit)
{
	int64_t inner = reference_product(operand, axis + 1, operand->rank);
	struct line line = {.step = operand->stride[axis]};

	line.first = reference_at(operand, 0, axis, unit / inner) +
				 reference_at(operand, axis + 1, operand->rank, unit % inner);
	return line;
}

static void add_floats(const struct reference *r, struct line from, struct line to, int64_t count)
{
	kiln_dtype dtype = r->c->operand[0].dtype;
	bool from_end = is_from_end(r->c), without = reference_int(r->c, "exclusive", 0) != 0;
	long double sum = 0, magnitude = 0;

	for (int64_t i = 0; i < count; i++) {
		int64_t k = from_end ? count - 1 - i : i;
		double x = cases_get(dtype, r->memory[0], from.first + k * from.step), value, roundings;
		value = (double)sum;
		sum += x;
		if (!without) {
			magnitude += fabs(x);
			value = (double)sum;
		}
		roundings = fmin((double)i, 16 + 8 * sqrt((double)i));
		reference_value(r, 1, to.first + k * to.step, value,
						roundings * reference_unit(dtype) * (double)magnitude +
							reference_rounding(dtype, value) + reference_floor(dtype));
		if (without)
			magnitude += fabs(x);
	}
}

static void add_integers(const struct reference *r, struct line from, struct line to, int64_t count)
{
	size_t size = cases_element(&r->c->operand[0]);
	bool from_end = is_from_end(r->c), without = reference_int(r->c, "exclusive", 0) != 0;
	uint64_t sum = 0, before;

	for (int64_t i = 0; i < count; i++) {
		int64_t k = from_end ? count - 1 - i : i;
		uint64_t x = 0;
		/* The lower bytes of a sum depend on the lower bytes alone. */
		memcpy(&x, (const char *)r->memory[0] + (size_t)(from.first + k * from.step) * size, size);
		before = sum;
		sum += x;
		reference_bytes(r, 1, to.first + k * to.step, without ? &before : &sum);
	}
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	const struct cases_operand *x = &r->c->operand[0], *y = &r->c->operand[1];
	int axis = axis_of(r->c);

	for (int64_t unit = first; unit < last; unit++)
		(is_float(x->dtype) ? add_floats : add_integers)(r, line_of(x, axis, unit),
														 line_of(y, axis, unit), x->shape[axis]);
}

static const struct cases_op forward = {"cumsum", units, reference};
static const struct cases_op backward = {"cumsum_backward", units, reference};

/* ---- The cases ---- */

static const struct cases_op *op_of(int64_t turn)
{
	return turn % 3 == 1 ? &backward : &forward;
}

static kiln_dtype dtype_of(int64_t turn)
{
	static const kiln_dtype dtypes[] = {KILN_F32, KILN_F16,  KILN_I32,
										KILN_F64, KILN_BF16, KILN_I64};

	return dtypes[turn % MAKE_COUNT(dtypes)];
}

static void operands(struct cases_case *c, kiln_dtype dtype, const struct make_shape *shape)
{
	make_input(c, 0, dtype, shape);
	make_output(c, 1, dtype, shape);
}

static void name(struct cases_case *c)
{
	make_name(c, is_backward(c) ? "dy, dx" : "x, y");
}

static void add(const struct cases_op *op, kiln_dtype dtype, const struct make_shape *shape,
				int axis, unsigned flags)
{
	struct cases_case *c = cases_add(op, flags);

	operands(c, dtype, shape);
	if (axis != -1)
		make_int(c, "axis", axis);
	name(c);
}

static void add_widths(void)
{
	for (int i = 0; i < make_width_count; i++) {
		const struct make_shape shape = {2, {make_rows(make_widths[i]), make_widths[i]}};
		add(op_of(i), KILN_F32, &shape, -1, 0);
		add(op_of(i + 1), dtype_of(1 + i % 5), &shape, -1, 0);
	}
}

static void add_axes(void)
{
	static const struct {
		struct make_shape shape;
		int axis;
	} axes[] = {
		{{1, {777}}, 0},         {{1, {1}}, 0},          {{2, {1, 40}}, 0},
		{{2, {7, 33}}, 0},       {{2, {33, 7}}, -2},     {{2, {1000, 2}}, 0},
		{{2, {1000, 64}}, -2},   {{2, {100, 1000}}, 0},  {{3, {3, 33, 1}}, 1},
		{{3, {5, 7, 3}}, -2},    {{3, {4, 128, 32}}, 1}, {{3, {3, 128, 64}}, 0},
		{{3, {2, 1000, 33}}, 1}, {{3, {1, 5000, 3}}, 1}, {{4, {2, 19, 8, 8}}, 1},
		{{4, {3, 5, 16, 4}}, 2}, {{3, {4, 0, 3}}, 1},    {{3, {0, 6, 3}}, 1},
		{{2, {70000, 3}}, 1},    {{2, {3, 70000}}, 0},   {{8, {2, 1, 3, 1, 2, 2, 1, 5}}, 2},
	};

	for (int i = 0; i < MAKE_COUNT(axes); i++)
		for (int k = 0; k < 3; k++)
			add(op_of(i + k), dtype_of(i + 2 * k), &axes[i].shape, axes[i].axis,
				axes[i].shape.size[0] == 70000 ? CASES_SLOW : 0); /* a block a row */
}

/* Gaps, repeats, another order, and addresses that are aligned to elements alone. */
static void add_layouts(void)
{
	static const struct {
		struct make_shape shape;
		int64_t stride[3];
		int axis;
	} layouts[] = {
		{{2, {5, 64}}, {1, 5}, -1},           {{2, {33, 40}}, {0, 1}, -1},
		{{2, {33, 40}}, {1, 0}, -1},          {{2, {9, 1024}}, {1032, 1}, -1},
		{{3, {5, 6, 64}}, {64, 320, 1}, -1},  {{3, {5, 6, 64}}, {64, 320, 1}, 1},
		{{3, {3, 40, 24}}, {2000, 48, 2}, 1}, {{3, {3, 40, 24}}, {0, 24, 1}, 1},
	};

	for (int i = 0; i < 2 * MAKE_COUNT(layouts); i++) {
		struct cases_case *c = cases_add(op_of(i), 0);
		operands(c, dtype_of(i + i / 8), &layouts[i / 2].shape);
		make_strided(&c->operand[0], layouts[i / 2].stride);
		if (layouts[i / 2].axis != -1)
			make_int(c, "axis", layouts[i / 2].axis);
		if (i % 2)
			c->operand[0].offset = cases_element(&c->operand[0]) % 16;
		name(c);
	}
}

/* From the other end, and without the element itself. */
static void add_ends(void)
{
	static const struct make_shape shapes[] = {
		{2, {9, 40}}, {2, {5, 1023}}, {2, {3, 8192}}, {3, {3, 70, 24}}};

	for (int i = 0; i < 2 * MAKE_COUNT(shapes); i++) {
		struct cases_case *c = cases_add(op_of(i + i / 4), 0);
		operands(c, dtype_of(i + i / 6), &shapes[i / 2]);
		if (i / 2 == 3)
			make_int(c, "axis", 1);
		make_int(c, "exclusive", i % 3 != 2);
		make_int(c, "reverse", i % 3 != 0);
		name(c);
	}
}

/* NaN and infinities reach what follows them in their row, and nothing else. */
static void add_values(void)
{
	static const int64_t columns[] = {96, 1023, 5000};

	for (int i = 0; i < 6; i++) {
		const struct make_shape along = {2, {15, columns[i / 2]}}, across = {2, {500, 24}};
		struct cases_case *c = cases_add(op_of(i), 0);
		operands(c, make_float(i), i < 4 ? &along : &across);
		c->operand[0].fill = CASES_UNUSUAL;
		if (i >= 4)
			make_int(c, "axis", 0);
		name(c);
	}
}

static void add_timed(void)
{
	static const int64_t columns[] = {64, 1024, 1023, 8192, 131072};
	const unsigned flags = CASES_BENCH | CASES_BIG;
	const int64_t all = 1 << 27;

	for (int i = 0; i < MAKE_COUNT(columns); i++)
		for (int k = 0; k < 2; k++)
			add(op_of(i), dtype_of(k), &(struct make_shape){2, {all / columns[i], columns[i]}}, -1,
				flags);
	for (int k = 0; k < 2; k++)
		add(op_of(k), dtype_of(k), &(struct make_shape){3, {32, 1000, 4096}}, 1, flags);
}

static void add_all(void)
{
	add_widths();
	add_axes();
	add_layouts();
	add_ends();
	add_values();
	add_timed();
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape;

	memset(out, 0, sizeof(*out));
	out->op = op_of(make_below(state, 2));
	make_random_shape(state, 5, &shape);
	operands(out, dtype_of(make_below(state, 6)), &shape);
	if (is_float(out->operand[0].dtype))
		for (int i = 0; i < 2; i++)
			make_random_layout(state, &out->operand[i]);
	if (make_chance(state, 2))
		make_int(out, "axis", make_below(state, 2 * shape.rank) - shape.rank);
	if (make_chance(state, 4))
		make_int(out, "exclusive", 1);
	if (make_chance(state, 4))
		make_int(out, "reverse", 1);
	name(out);
}

/* ---- What the planner refuses ---- */

static void bad_dtype(struct cases_case *c)
{
	c->op = &forward;
	operands(c, KILN_U8, &(struct make_shape){2, {3, 4}});
}

static void bad_rank(struct cases_case *c)
{
	c->op = &backward;
	operands(c, KILN_F32, &(struct make_shape){0, {0}});
}

static void bad_axis(struct cases_case *c)
{
	c->op = &forward;
	operands(c, KILN_F32, &(struct make_shape){2, {3, 4}});
	make_int(c, "axis", 2);
}

static void bad_attribute(struct cases_case *c)
{
	c->op = &forward;
	operands(c, KILN_F32, &(struct make_shape){2, {3, 4}});
	make_int(c, "inclusive", 1);
}

static void bad_output(struct cases_case *c)
{
	c->op = &backward;
	operands(c, KILN_I32, &(struct make_shape){2, {3, 4}});
	c->operand[1].shape[1] = 5;
}

static const struct cases_refusal refusals[] = {
	{"cumsum: x is u8; it must be f16, bf16, f32, f64, i32 or i64", bad_dtype},
	{"cumsum_backward: dy has rank 0; it needs a dimension to go along", bad_rank},
	{"cumsum: axis is 2; it may be -2 to 1", bad_axis},
	{"cumsum: there is no attribute \"inclusive\"; those it takes: axis, "
	 "exclusive, reverse",
	 bad_attribute},
	{"cumsum_backward: dimension 1 has size 4 in dy and 5 in dx; they must agree", bad_output},
	{NULL, NULL},
};

const struct cases_op *const cumsum_ops[] = {&forward, &backward, NULL};
const struct cases_family cumsum_family = {
	.name = "cumsum", .add = add_all, .random = add_random, .refusals = refusals};
