/*
 * cumsum.c: cumulative sums along an axis and their like, and gradients, which go from the end.
 *
 *   cumsum                 y[k] = x[0] + .. + x[k]
 *   cumsum_backward        dx[k] = dy[k] + .. + dy[last]
 *   cumprod                y[k] = x[0] * .. * x[k]
 *   cumprod_backward       dx[j] = y[j - 1] * (dy[j] + x[j + 1] * (dy[j + 1] + x[j + 2] * ...))
 *   cummax, cummin         y[k] = the largest, or smallest, of x[0] .. x[k]; indices[k]: its number
 *   logcumsumexp           y[k] = log(exp(x[0]) + .. + exp(x[k]))
 *   logcumsumexp_backward  dx[j] = dy[j] * exp(x[j] - y[j]) + .. + dy[last] * exp(x[j] - y[last])
 *
 * reverse: each from the other end; exclusive: each without the element itself.
 *
 * Integers wrap, so each bit is given.  Floats are added up in f32 or f64 in some order: k + 1
 * numbers take k additions, each of which rounds a partial sum, and no partial sum is larger than
 * the sum of magnitudes.  Few of the roundings go the same way, so a result may be off by 16 + 8 *
 * sqrt(k) of them, and by all k at most; f16 and bf16 are rounded once more.  A product is off by
 * as many roundings of itself.  Exponentials are off by some units each, and by as many as their
 * argument is large; those of a chain are multiplied.
 */
#include "common/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool op_is(const struct cases_case *c, const char *name)
{
	return strcmp(c->op->name, name) == 0;
}

static bool is_backward(const struct cases_case *c)
{
	return strstr(c->op->name, "_backward") != NULL;
}

static bool is_from_end(const struct cases_case *c)
{
	return is_backward(c) != (reference_int(c, "reverse", 0) != 0);
}

static bool is_exclusive(const struct cases_case *c)
{
	return reference_int(c, "exclusive", 0) != 0;
}

/* ---- The reference ---- */

/* One row of each operand, in the order in which the scan goes over it. */
struct row {
	const struct reference *r;
	int64_t first[CASES_MAX_OPERANDS], step[CASES_MAX_OPERANDS], count;
	bool without; /* the element itself */
	kiln_dtype dtype;
};

static struct row row_of(const struct reference *r, int64_t unit)
{
	const struct cases_case *c = r->c;
	int axis = reference_axis(c);
	struct row row = {.r = r,
					  .count = c->operand[0].shape[axis],
					  .without = is_exclusive(c),
					  .dtype = c->operand[0].dtype};

	for (int i = 0; i < c->operand_count; i++) {
		const struct cases_operand *operand = &c->operand[i];
		int64_t inner = reference_product(operand, axis + 1, operand->rank);
		if (operand->dtype == KILN_DTYPE_NONE)
			continue;
		row.first[i] = reference_at(operand, 0, axis, unit / inner) +
					   reference_at(operand, axis + 1, operand->rank, unit % inner);
		row.step[i] = operand->stride[axis];
		if (is_from_end(c)) {
			row.first[i] += (row.count - 1) * row.step[i];
			row.step[i] = -row.step[i];
		}
	}
	return row;
}

static int64_t place(const struct row *row, int operand, int64_t i)
{
	return row->first[operand] + i * row->step[operand];
}

static double get(const struct row *row, int operand, int64_t i)
{
	return cases_get(row->dtype, row->r->memory[operand], place(row, operand, i));
}

/* Hands on a number of which `magnitude` was rounded as often as `i` elements ask for. */
static void give(const struct row *row, int operand, int64_t i, double value, double magnitude,
				 double more)
{
	double roundings = fmin((double)i, 16 + 8 * sqrt((double)i)) + more;

	reference_value(row->r, operand, place(row, operand, i), value,
					roundings * reference_unit(row->dtype) * magnitude +
						reference_rounding(row->dtype, value) + reference_floor(row->dtype));
}

static void add_floats(const struct row *row)
{
	long double sum = 0, magnitude = 0;

	for (int64_t i = 0; i < row->count; i++) {
		double x = get(row, 0, i), before = (double)sum, magnitude_before = (double)magnitude;
		sum += x;
		magnitude += fabs(x);
		give(row, 1, i, row->without ? before : (double)sum,
			 row->without ? magnitude_before : (double)magnitude, 0);
	}
}

static void multiply_floats(const struct row *row)
{
	long double product = 1;

	for (int64_t i = 0; i < row->count; i++) {
		double before = (double)product, value;
		product *= get(row, 0, i);
		value = row->without ? before : (double)product;
		give(row, 1, i, value, fabs(value), 1);
	}
}

/* Sums, or products, whose lower bytes depend on the lower bytes alone. */
static void combine_integers(const struct row *row, bool product)
{
	size_t size = cases_element(&row->r->c->operand[0]);
	uint64_t all = product, before;

	for (int64_t i = 0; i < row->count; i++) {
		uint64_t x = 0;
		memcpy(&x, (const char *)row->r->memory[0] + (size_t)place(row, 0, i) * size, size);
		before = all;
		all = product ? all * x : all + x;
		reference_bytes(row->r, 1, place(row, 1, i), row->without ? &before : &all);
	}
}

static int64_t get_integer(const struct row *row, int64_t i)
{
	if (row->dtype == KILN_I32)
		return ((const int32_t *)row->r->memory[0])[place(row, 0, i)];
	return ((const int64_t *)row->r->memory[0])[place(row, 0, i)];
}

/* Finds the last of equals that the scan comes to, or the last NaN. */
static void find_best(const struct row *row, bool least)
{
	bool whole = !cases_is_float(row->dtype), narrow = row->dtype == KILN_I32;
	int64_t best = -1, integer = least ? INT64_MAX : INT64_MIN;
	double number = least ? INFINITY : -INFINITY;

	if (narrow)
		integer = least ? INT32_MAX : INT32_MIN;
	for (int64_t i = 0; i < row->count; i++) {
		int64_t before = integer, place_before = best, given;
		double number_before = number, x = whole ? 0 : get(row, 0, i);
		int64_t z = whole ? get_integer(row, i) : 0;
		if (whole ? (least ? z <= integer : z >= integer)
				  : isnan(x) || (!isnan(number) && (least ? x <= number : x >= number))) {
			number = x;
			integer = z;
			best = is_from_end(row->r->c) ? row->count - 1 - i : i;
		}
		given = row->without ? before : integer;
		if (whole)
			reference_bytes(row->r, 1, place(row, 1, i), &given);
		else
			reference_value(row->r, 1, place(row, 1, i), row->without ? number_before : number, 0);
		if (row->r->c->operand[2].dtype != KILN_DTYPE_NONE)
			reference_bytes(row->r, 2, place(row, 2, i), row->without ? &place_before : &best);
	}
}

static void add_exponentials(const struct row *row)
{
	long double most = -INFINITY, sum = 0;

	for (int64_t i = 0; i < row->count; i++) {
		double x = get(row, 0, i), before = (double)(most + logl(sum)), value;
		if (x == most || isnan(x) || isnan(most)) {
			sum += 1;
			most += isnan(x) ? x : 0;
		} else {
			sum = x > most ? sum * expl(most - x) + 1 : sum + expl(x - most);
			most = fmaxl(most, x);
		}
		value = row->without ? before : (double)(most + logl(sum));
		give(row, 1, i, value, isfinite(value) ? 1 + fabs(value) : 0, 16);
	}
}

/* x, y, dy -> dx, from the last element on. */
static void product_gradient(const struct row *row)
{
	long double behind = 0, magnitude = 0;

	for (int64_t i = 0; i < row->count; i++) {
		double x = get(row, 0, i), dy = get(row, 2, i), before = 1;
		if (row->without || i + 1 < row->count)
			before = get(row, 1, row->without ? i : i + 1);
		if (!row->without) {
			behind += dy;
			magnitude += fabs(dy);
		}
		give(row, 3, i, before * (double)behind, 2 * fabs(before) * (double)magnitude, 2);
		behind *= x;
		magnitude *= fabs(x);
		if (row->without) {
			behind += dy;
			magnitude += fabs(dy);
		}
	}
}

static void exponential_gradient(const struct row *row)
{
	long double sum = 0, magnitude = 0;

	for (int64_t i = 0; i < row->count; i++) {
		double x = get(row, 0, i), y = get(row, 1, i), dy = get(row, 2, i);
		long double before = sum, magnitude_before = magnitude, factor = expl(x);
		sum += dy * expl(-y);
		magnitude += fabs(dy) * expl(-y);
		give(row, 3, i, (double)(factor * (row->without ? before : sum)),
			 (double)(factor * (row->without ? magnitude_before : magnitude)),
			 64 + 2 * sqrt((double)i));
	}
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	for (int64_t unit = first; unit < last; unit++) {
		struct row row = row_of(r, unit);
		bool product = op_is(r->c, "cumprod");
		if (op_is(r->c, "cumprod_backward"))
			product_gradient(&row);
		else if (op_is(r->c, "logcumsumexp_backward"))
			exponential_gradient(&row);
		else if (op_is(r->c, "logcumsumexp"))
			add_exponentials(&row);
		else if (op_is(r->c, "cummax") || op_is(r->c, "cummin"))
			find_best(&row, op_is(r->c, "cummin"));
		else if (!cases_is_float(row.dtype))
			combine_integers(&row, product);
		else if (product)
			multiply_floats(&row);
		else
			add_floats(&row);
	}
}

static const struct cases_op forward = {"cumsum", reference_lines, reference};
static const struct cases_op backward = {"cumsum_backward", reference_lines, reference};
static const struct cases_op others[] = {
	{"cumprod", reference_lines, reference},
	{"cumprod_backward", reference_lines, reference},
	{"cummax", reference_lines, reference},
	{"cummin", reference_lines, reference},
	{"logcumsumexp", reference_lines, reference},
	{"logcumsumexp_backward", reference_lines, reference},
};

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

static bool is_best(const struct cases_case *c)
{
	return op_is(c, "cummax") || op_is(c, "cummin");
}

/* x, y, dy, dx */
static bool is_product_gradient(const struct cases_case *c)
{
	return op_is(c, "cumprod_backward") || op_is(c, "logcumsumexp_backward");
}

/* Factors lie about one, so that their products do. */
static void operands(struct cases_case *c, kiln_dtype dtype, const struct make_shape *shape)
{
	int last = is_product_gradient(c) ? 3 : 1;

	for (int i = 0; i < last; i++) {
		make_input(c, i, dtype, shape);
		if (strncmp(c->op->name, "cumprod", 7) == 0 && i < 2) {
			c->operand[i].mean = 1;
			c->operand[i].deviation = i ? 0.5 : 0.01;
		}
	}
	make_output(c, last, dtype, shape);
	if (is_best(c))
		make_output(c, 2, KILN_I64, shape);
}

static void name(struct cases_case *c)
{
	make_name(c, is_product_gradient(c) ? "x, y, dy, dx"
				 : is_best(c)           ? "x, y, indices?"
				 : is_backward(c)       ? "dy, dx"
										: "x, y");
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
		{{2, {1100, 40}}, 0},
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

/* Many elements of few rows, whose blocks share a row: whole groups of tiles and parts of them. */
static void add_chains(void)
{
	static const struct make_shape shapes[] = {
		{2, {5000, 24}}, {2, {1024, 56}}, {2, {3001, 264}}, {2, {20001, 40}}};

	for (int i = 0; i < 3 * MAKE_COUNT(shapes); i++) {
		struct cases_case *c = cases_add(i % 3 == 2 ? &others[0] : op_of(i), 0);
		operands(c, i % 4 == 3 ? KILN_I32 : dtype_of(i + i / 3), &shapes[i / 3]);
		make_int(c, "axis", 0);
		if (i % 2)
			make_int(c, "exclusive", 1);
		if (i % 5 > 2)
			make_int(c, "reverse", 1);
		name(c);
	}
}

/* NaN and infinities reach what follows them in their row, and nothing else. */
static void add_values(void)
{
	static const int64_t columns[] = {96, 1023, 5000}, short_rows[] = {323, 324, 320};

	for (int i = 0; i < 6; i++) {
		const struct make_shape along = {2, {15, columns[i / 2]}}, across = {2, {500, 24}};
		struct cases_case *c = cases_add(op_of(i), 0);
		operands(c, make_float(i), i < 4 ? &along : &across);
		c->operand[0].fill = CASES_UNUSUAL;
		if (i >= 4)
			make_int(c, "axis", 0);
		name(c);
	}
	/* Rows of a vector, a thread each: some begin far below their largest. */
	for (int i = 0; i < MAKE_COUNT(short_rows); i++) {
		struct cases_case *c = cases_add(&others[4], 0);
		operands(c, make_float(i), &(struct make_shape){2, {short_rows[i], i ? 8 : 4}});
		c->operand[0].deviation = 30;
		name(c);
	}
}

/* The other operators: each way through a kernel, types and ends in turn. */
static void add_others(void)
{
	static const struct {
		struct make_shape shape;
		int axis;
	} shapes[] = {{{2, {9, 40}}, -1},    {{2, {5, 1023}}, -1}, {{2, {2, 20000}}, -1},
				  {{3, {3, 70, 24}}, 1}, {{3, {2, 33, 5}}, 1}, {{2, {4, 2048}}, -1}};

	for (int i = 0; i < MAKE_COUNT(shapes) * MAKE_COUNT(others); i++) {
		int turn = i + i / MAKE_COUNT(others);
		struct cases_case *c = cases_add(&others[i % MAKE_COUNT(others)], 0);
		bool floats = is_backward(c) || op_is(c, "logcumsumexp");
		operands(c, floats ? make_float(turn) : dtype_of(turn),
				 &shapes[i / MAKE_COUNT(others)].shape);
		if (shapes[i / MAKE_COUNT(others)].axis != -1)
			make_int(c, "axis", shapes[i / MAKE_COUNT(others)].axis);
		if (turn % 2)
			make_int(c, "exclusive", 1);
		if (turn % 3 == 1)
			make_int(c, "reverse", 1);
		if (is_best(c) && turn % 4 == 3)
			make_none(c, 2);
		name(c);
	}
	/* Ties, NaN and infinities: halves of few bits have many equals. */
	for (int i = 0; i < 4; i++) {
		struct cases_case *c = cases_add(&others[i < 3 ? 2 + i : 2], 0);
		operands(c, make_float(i + 1), &(struct make_shape){2, {15, i < 3 ? 333 : 96}});
		c->operand[0].fill = CASES_UNUSUAL;
		if (i % 2)
			make_int(c, "reverse", 1);
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
	for (int k = 0; k < 2; k++) {
		add(op_of(k), dtype_of(k), &(struct make_shape){3, {32, 1000, 4096}}, 1, flags);
		add(&forward, dtype_of(k), &(struct make_shape){2, {16384, 16384}}, 0, flags);
		add(&forward, dtype_of(k), &(struct make_shape){2, {65536, 2048}}, 0, flags);
	}
	for (int i = 0; i < MAKE_COUNT(others); i++) {
		add(&others[i], dtype_of(i % 2), &(struct make_shape){2, {8192, 4096}}, -1, flags);
		add(&others[i], KILN_F32, &(struct make_shape){3, {32, 1000, 1024}}, 1, flags);
	}
}

static void add_all(void)
{
	add_widths();
	add_axes();
	add_layouts();
	add_ends();
	add_chains();
	add_values();
	add_others();
	add_timed();
	/* Beyond 2^31 elements. */
	add(&forward, KILN_F16, &(struct make_shape){2, {(INT64_C(1) << 25) + 5, 64}}, -1,
		CASES_BIG | CASES_HUGE);
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape;

	memset(out, 0, sizeof(*out));
	out->op = make_chance(state, 2) ? op_of(make_below(state, 2))
									: &others[make_below(state, MAKE_COUNT(others))];
	make_random_shape(state, 5, &shape);
	operands(out,
			 is_product_gradient(out) || op_is(out, "logcumsumexp")
				 ? make_float((int64_t)make_below(state, 4))
				 : dtype_of(make_below(state, 6)),
			 &shape);
	/* Unusual elements stay with the operators that say how they count. */
	if (cases_is_float(out->operand[0].dtype) && (out->op == &forward || out->op == &backward))
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

static void bad_integers(struct cases_case *c)
{
	c->op = &others[5];
	operands(c, KILN_I32, &(struct make_shape){2, {3, 4}});
}

static void bad_numbers(struct cases_case *c)
{
	c->op = &others[2];
	operands(c, KILN_F16, &(struct make_shape){2, {3, 4}});
	c->operand[2].dtype = KILN_I32;
}

static void bad_gradient(struct cases_case *c)
{
	c->op = &others[1];
	operands(c, KILN_F16, &(struct make_shape){2, {3, 4}});
	c->operand[2].dtype = KILN_F32;
}

static const struct cases_refusal refusals[] = {
	{"cumsum: x is u8; it must be f16, bf16, f32, f64, i32 or i64", bad_dtype},
	{"cumsum_backward: dy has rank 0; it needs a dimension to go along", bad_rank},
	{"cumsum: axis is 2; it may be -2 to 1", bad_axis},
	{"cumsum: there is no attribute \"inclusive\"; those it takes: axis, "
	 "exclusive, reverse",
	 bad_attribute},
	{"cumsum_backward: dimension 1 has size 4 in dy and 5 in dx; they must agree", bad_output},
	{"logcumsumexp_backward: x is i32; it must be f16, bf16, f32 or f64", bad_integers},
	{"cummax: indices is i32; it must be i64", bad_numbers},
	{"cumprod_backward: x is f16 and dy is f32; they must agree", bad_gradient},
	{NULL, NULL},
};

const struct cases_op *const cumsum_ops[] = {&forward,   &backward,  &others[0],
											 &others[1], &others[2], &others[3],
											 &others[4], &others[5], NULL};
const struct cases_family cumsum_family = {
	.name = "cumsum", .add = add_all, .random = add_random, .refusals = refusals};
