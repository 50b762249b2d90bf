/*
 * quantize.c: elements divided by a scale into 8 bits, and back: the reference, and what is on the
 * list.
 *
 *   quantize          y = x / scale
 *   dequantize        y = x * scale
 *   dynamic_quantize  scale = the largest magnitude of a row or group / the largest number of y's
 *                     type, and at least 1 / (512 * that number) for rows of f8, 1e-10 / that
 *                     number otherwise; y = x / scale
 *
 * A y of 8 bits is rounded to nearest, ties to even, and saturates; NaN becomes 0 in i8.  A NaN
 * does not count as a magnitude.
 *
 * How far off a result may be: a quotient may be off by two roundings of f32, so y is one of the
 * numbers of its type to which such a quotient rounds: one number, but next to the middle of two.
 * A product is rounded once in f32 and once to its type, a scale once.
 */
#include "common/reference.h"

#include <math.h>
#include <string.h>

enum { QUANTIZE, DEQUANTIZE, DYNAMIC };

static int kind_of(const struct cases_case *c)
{
	return strcmp(c->op->name, "quantize") == 0     ? QUANTIZE
		   : strcmp(c->op->name, "dequantize") == 0 ? DEQUANTIZE
													: DYNAMIC;
}

/* ---- The reference ---- */

static int64_t units(const struct cases_case *c)
{
	const struct cases_operand *x = &c->operand[0];

	return kind_of(c) == DYNAMIC ? reference_product(x, 0, x->rank - 1) : cases_elements(x);
}

static void quotient(const struct reference *r, int y, int64_t at, double x, double scale)
{
	double value = x / scale;

	reference_quotient(r, y, at, value, isinf(value) ? 0 : fabs(value) * 0x1p-22);
}

/* Returns where the scale of element i lies. */
static int64_t scale_of(const struct cases_case *c, int64_t i)
{
	const struct cases_operand *scale = &c->operand[1];
	int64_t number = i / (cases_elements(&c->operand[0]) / cases_elements(scale));

	return reference_at(scale, 0, scale->rank, number);
}

static void given(const struct reference *r, int64_t first, int64_t last)
{
	const struct cases_operand *x = &r->c->operand[0];
	kiln_dtype to = r->c->operand[2].dtype;

	for (int64_t i = first; i < last; i++) {
		double value = cases_get(x->dtype, r->memory[0], reference_at(x, 0, x->rank, i));
		double scale = cases_get(KILN_F32, r->memory[1], scale_of(r->c, i)), product;
		if (kind_of(r->c) == QUANTIZE) {
			quotient(r, 2, i, value, scale);
			continue;
		}
		product = value * scale;
		reference_value(r, 2, i, product,
						fabs(product) * 0x1p-24 + reference_rounding(to, product) + 0x1p-149);
	}
}

static void found(const struct reference *r, int64_t row)
{
	const struct cases_operand *x = &r->c->operand[0], *y = &r->c->operand[1];
	const int64_t columns = x->shape[x->rank - 1], step = x->stride[x->rank - 1];
	const int64_t start = reference_at(x, 0, x->rank - 1, row);
	int64_t group = reference_int(r->c, "group", 0), groups = group ? columns / group : 1;
	double largest = reference_largest(y->dtype);
	double least = reference_least_scale(y->dtype, group > 0);

	group = group ? group : columns;
	for (int64_t g = 0; g < groups; g++) {
		double most = 0;
		for (int64_t k = g * group; k < (g + 1) * group; k++)
			most = fmax(most, fabs(cases_get(x->dtype, r->memory[0], start + k * step)));
		double scale = (float)fmax(most / largest, least);
		if (r->c->operand[2].dtype != KILN_DTYPE_NONE)
			reference_value(
				r, 2, reference_at(&r->c->operand[2], 0, r->c->operand[2].rank, row * groups + g),
				scale, isinf(scale) ? 0 : scale * 0x1p-23);
		for (int64_t k = g * group; k < (g + 1) * group; k++)
			quotient(r, 1, row * columns + k, cases_get(x->dtype, r->memory[0], start + k * step),
					 scale);
	}
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	if (kind_of(r->c) != DYNAMIC) {
		given(r, first, last);
		return;
	}
	for (int64_t row = first; row < last; row++)
		found(r, row);
}

static const struct cases_op quantize = {"quantize", units, reference};
static const struct cases_op dequantize = {"dequantize", units, reference};
static const struct cases_op dynamic = {"dynamic_quantize", units, reference};
static const struct cases_op *const ops[] = {&quantize, &dequantize, &dynamic};

/* ---- The cases ---- */

static kiln_dtype wide_of(int64_t turn)
{
	static const kiln_dtype dtypes[] = {KILN_BF16, KILN_F32, KILN_F16};

	return dtypes[turn % 3];
}

static kiln_dtype narrow_of(int64_t turn)
{
	static const kiln_dtype dtypes[] = {KILN_F8E4M3, KILN_I8, KILN_F8E5M2};

	return dtypes[turn % 3];
}

static const char *word_of(kiln_dtype dtype)
{
	return dtype == KILN_F8E4M3   ? "f8e4m3"
		   : dtype == KILN_F8E5M2 ? "f8e5m2"
		   : dtype == KILN_I8     ? "i8"
		   : dtype == KILN_F16    ? "f16"
		   : dtype == KILN_BF16   ? "bf16"
								  : "f32";
}

/* group: of dynamic_quantize.  The others have a scale for each group of so many, for each row if
 * it is 0, and one for all if it is below 0. */
static void operands(struct cases_case *c, int64_t turn, const struct make_shape *shape,
					 int64_t group)
{
	bool back = kind_of(c) == DEQUANTIZE, dynamic_one = kind_of(c) == DYNAMIC;
	kiln_dtype wide = wide_of(turn), narrow = narrow_of(turn / 3);
	struct make_shape scales = *shape;
	struct cases_operand *scale;

	if (group < 0)
		scales.rank = 0;
	else if (group == 0)
		scales.rank--;
	else
		scales.size[scales.rank - 1] /= group;
	make_input(c, 0, back ? narrow : wide, shape)->deviation = 100;
	if (dynamic_one)
		make_output(c, 1, narrow, shape);
	scale = make_input(c, dynamic_one ? 2 : 1, KILN_F32, &scales);
	scale->output = dynamic_one;
	scale->mean = narrow == KILN_F8E5M2 ? 0.01 : 1;
	scale->deviation = scale->mean / 8;
	if (!dynamic_one)
		make_output(c, 2, back ? wide : narrow, shape);
	make_word(c, "to", word_of(back ? wide : narrow));
	if (dynamic_one && group)
		make_int(c, "group", group);
}

static void name(struct cases_case *c)
{
	make_name(c, kind_of(c) == DYNAMIC ? "x, y, scale?" : "x, scale, y");
}

static struct cases_case *add(int op, int64_t turn, const struct make_shape *shape, int64_t group,
							  unsigned flags)
{
	struct cases_case *c = cases_add(ops[op], flags);

	operands(c, turn, shape, group);
	name(c);
	return c;
}

static void add_types(void)
{
	static const struct make_shape shape = {2, {9, 384}};

	for (int i = 0; i < 9; i++) {
		add(QUANTIZE, i, &shape, i % 3 ? 128 : -1, 0);
		add(DEQUANTIZE, i, &shape, i % 3 == 1 ? 128 : -1, 0);
		add(DYNAMIC, i, &shape, i % 2 ? 0 : 128, 0);
	}
}

/* Odd widths, rows and groups that end within a vector, long rows, one element, and nothing. */
static void add_shapes(void)
{
	static const struct {
		struct make_shape shape;
		int64_t group;
	} shapes[] = {
		{{1, {1}}, 0},       {{2, {7, 33}}, 0},     {{2, {5, 1023}}, 0}, {{2, {12, 30}}, 10},
		{{2, {70, 3}}, 1},   {{3, {3, 5, 100}}, 0}, {{2, {3, 8192}}, 0}, {{2, {2, 70000}}, 0},
		{{3, {4, 0, 3}}, 0}, {{2, {4, 0}}, 0},      {{2, {3, 0}}, 128},  {{2, {2, 70001}}, 0},
	};

	for (int i = 0; i < MAKE_COUNT(shapes); i++)
		for (int k = 0; k < 3; k++) {
			add(k, i + k, &shapes[i].shape, shapes[i].group,
				shapes[i].shape.size[1] >= 70000 ? CASES_SLOW : 0);
		}
	add(QUANTIZE, 0, &(struct make_shape){0, {0}}, -1, 0);
	add(DEQUANTIZE, 1, &(struct make_shape){1, {777}}, -1, 0);
}

/* Gaps, another order, repeats, and addresses that are aligned to elements alone. */
static void add_layouts(void)
{
	static const struct {
		struct make_shape shape;
		int64_t stride[3];
		int64_t group;
	} layouts[] = {
		{{2, {9, 256}}, {264, 1}, 128},
		{{2, {9, 256}}, {257, 1}, 0},
		{{2, {40, 24}}, {1, 40}, 8},
		{{3, {5, 6, 64}}, {64, 320, 1}, 0},
	};

	for (int i = 0; i < MAKE_COUNT(layouts); i++)
		for (int k = 0; k < 3; k++) {
			struct cases_case *c = cases_add(ops[k], 0);
			operands(c, i + k, &layouts[i].shape, layouts[i].group);
			make_strided(&c->operand[0], layouts[i].stride);
			name(c);
		}
	for (int i = 0; i < 6; i++) {
		struct cases_case *c = cases_add(ops[i % 3], 0);
		int moved = i < 3 ? 0 : i % 3 == DYNAMIC ? 1 : 2;
		operands(c, i / 3, &(struct make_shape){2, {6, 200}}, 0);
		c->operand[moved].offset = cases_element(&c->operand[moved]) % 16;
		name(c);
	}
}

/* Scales by columns, as products of matrices in 8 bits want them: side by side, or with gaps. */
static void add_columns(void)
{
	static const struct {
		int64_t group, stride[3];
	} scales[] = {{128, {5, 1, 15}}, {128, {5, 1, 16}}, {24, {160, 32, 2}}, {0, {10, 2}}};

	for (int i = 0; i < 2 * MAKE_COUNT(scales); i++) {
		int turn = i / 2;
		struct cases_case *c = cases_add(ops[i % 2 ? turn % 2 : DYNAMIC], 0);
		int scale = kind_of(c) == DYNAMIC ? 2 : 1;
		operands(c, turn, &(struct make_shape){3, {3, 5, 384}}, scales[turn].group);
		make_strided(&c->operand[scale], scales[turn].stride);
		c->operand[scale].kept = kind_of(c) == DYNAMIC && turn > 0;
		name(c);
	}
}

/* Scales that are given and lie apart: groups of odd lengths, rows of x that do so, too, and one
 * scale that several rows, or all groups of a row, share. */
static void add_apart(void)
{
	static const struct {
		struct make_shape shape;
		int64_t group, stride[2], x_stride[2];
	} apart[] = {
		{{2, {70, 33}}, 11, {1, 70}, {33, 1}},   {{2, {9, 1023}}, 31, {1, 9}, {1030, 1}},
		{{2, {12, 256}}, 128, {0, 1}, {256, 1}}, {{2, {12, 256}}, 64, {1, 0}, {1, 12}},
		{{2, {40, 3}}, 1, {2, 80}, {3, 1}},      {{1, {777}}, 7, {3}, {1}},
		{{2, {3, 5000}}, 0, {7}, {5000, 1}},
	};

	for (int i = 0; i < MAKE_COUNT(apart); i++) {
		struct cases_case *c = cases_add(ops[i % 2], 0);
		operands(c, i, &apart[i].shape, apart[i].group);
		make_strided(&c->operand[1], apart[i].stride);
		make_strided(&c->operand[0], apart[i].x_stride);
		if (i % 3 == 2)
			c->operand[1].offset = 4;
		name(c);
	}
}

/* NaN, infinities, zeros, edges of roundings, and scales that have no accurate inverse. */
static void add_values(void)
{
	static const struct {
		double mean, deviation;
	} scales[] = {{1e-30, 1e-31}, {1e30, 1e29}, {3e-39, 1e-40}, {-1, 0.1}};

	for (int i = 0; i < 9; i++) {
		struct cases_case *c = add(DYNAMIC, i, &(struct make_shape){2, {16, 256}}, i % 2 * 128, 0);
		c->operand[0].fill = CASES_UNUSUAL;
		c->operand[0].deviation = i < 6 ? 40 : 1e-7;
		name(c);
	}
	for (int i = 0; i < 6; i++) {
		struct cases_case *c =
			add(QUANTIZE, 1 + 3 * (i % 3), &(struct make_shape){2, {8, 1600}}, 0, 0);
		c->operand[0].fill = i < 3 ? CASES_EDGES : CASES_UNUSUAL;
		c->operand[1].mean = i < 3 ? 1 : scales[i % 3].mean;
		c->operand[1].deviation = i < 3 ? 1e-9 : scales[i % 3].deviation;
		name(c);
	}
	for (int i = 0; i < 2; i++) { /* each code of a float of 8 bits in each place of a vector */
		struct cases_case *c = add(DEQUANTIZE, 1 + 6 * i, &(struct make_shape){2, {8, 4096}}, 0, 0);
		c->operand[0].fill = CASES_BITS;
		name(c);
	}
	for (int i = 0; i < 4; i++) {
		struct cases_case *c = add(i % 2, 3 * (i / 2), &(struct make_shape){2, {40, 24}}, 0, 0);
		c->operand[0].fill = CASES_UNUSUAL;
		c->operand[1].mean = scales[3 - i % 2].mean;
		c->operand[1].deviation = scales[3 - i % 2].deviation;
		name(c);
	}
}

static void add_timed(void)
{
	static const int64_t columns[] = {4096, 14336};
	const unsigned flags = CASES_BENCH | CASES_BIG;

	for (int i = 0; i < MAKE_COUNT(columns); i++) {
		const struct make_shape shape = {2, {(1 << 28) / columns[i], columns[i]}};
		add(DYNAMIC, 3 * i, &shape, 0, flags);
		add(DYNAMIC, 0, &shape, 128, flags);
	}
	add(DYNAMIC, 1, &(struct make_shape){2, {1 << 14, 8192}}, 0, flags);
	add(QUANTIZE, 0, &(struct make_shape){2, {1 << 15, 8192}}, -1, flags);
	add(QUANTIZE, 3, &(struct make_shape){2, {1 << 15, 8192}}, 128, flags);
	add(DEQUANTIZE, 0, &(struct make_shape){2, {1 << 15, 8192}}, 128, flags);
	add(DYNAMIC, 0, &(struct make_shape){2, {300000, 8192}}, 128, CASES_BIG | CASES_HUGE);
	add(QUANTIZE, 0, &(struct make_shape){2, {300000, 8192}}, 0, CASES_BIG | CASES_HUGE);
	add(DEQUANTIZE, 0, &(struct make_shape){2, {300000, 8192}}, 128, CASES_BIG | CASES_HUGE);
}

static void add_all(void)
{
	add_types();
	add_shapes();
	add_layouts();
	add_columns();
	add_apart();
	add_values();
	add_timed();
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape;
	int64_t group = 0;

	memset(out, 0, sizeof(*out));
	out->op = ops[make_below(state, 3)];
	make_random_shape(state, 4, &shape);
	for (int64_t wanted = make_below(state, 6); shape.size[shape.rank - 1] && wanted > group;)
		if (shape.size[shape.rank - 1] % ++group == 0)
			wanted = group;
	operands(out, make_below(state, 9), &shape, group);
	if (kind_of(out) != DYNAMIC && group > 0 && shape.rank == 2 && make_chance(state, 2)) {
		int64_t scales = cases_elements(&out->operand[1]);
		make_strided(&out->operand[1], (const int64_t[]){1 + make_below(state, 3), 1 + scales});
	}
	make_random_layout(state, &out->operand[0]);
	name(out);
}

/* ---- What the planner refuses ---- */

static const struct make_shape small = {2, {3, 4}};

static void bad_dtype(struct cases_case *c)
{
	c->op = &quantize;
	operands(c, 0, &small, 0);
	c->operand[0].dtype = KILN_F64;
}

static void bad_back(struct cases_case *c)
{
	c->op = &dequantize;
	operands(c, 0, &small, 0);
	c->operand[0].dtype = KILN_F16;
}

static void bad_to(struct cases_case *c)
{
	c->op = &dynamic;
	operands(c, 0, &small, 0);
	c->operand[1].dtype = KILN_I8;
}

static void bad_scale(struct cases_case *c)
{
	c->op = &quantize;
	operands(c, 0, &small, 0);
	c->operand[1].dtype = KILN_F16;
}

static void bad_scales(struct cases_case *c)
{
	c->op = &quantize;
	operands(c, 0, &small, 0);
	c->operand[1].shape[0] = 2;
}

static void bad_scale_rank(struct cases_case *c)
{
	c->op = &dequantize;
	operands(c, 0, &(struct make_shape){3, {2, 3, 4}}, 0);
	make_input(c, 1, KILN_F32, &(struct make_shape){1, {2}});
}

static void bad_groups(struct cases_case *c)
{
	c->op = &quantize;
	operands(c, 0, &small, 0);
	make_input(c, 1, KILN_F32, &(struct make_shape){2, {3, 3}});
}

static void bad_group(struct cases_case *c)
{
	c->op = &dynamic;
	operands(c, 0, &(struct make_shape){2, {3, 4}}, 2);
	c->operand[0].shape[1] = c->operand[1].shape[1] = 5;
}

static void bad_found(struct cases_case *c)
{
	c->op = &dynamic;
	operands(c, 0, &small, 2);
	make_output(c, 2, KILN_F32, &small);
}

static void bad_rank(struct cases_case *c)
{
	c->op = &dynamic;
	operands(c, 0, &(struct make_shape){1, {4}}, 0);
	c->operand[0].rank = c->operand[1].rank = 0;
}

static void bad_output(struct cases_case *c)
{
	c->op = &quantize;
	operands(c, 0, &small, 0);
	make_strided(&c->operand[2], (const int64_t[]){8, 1});
}

static void bad_places(struct cases_case *c)
{
	c->op = &dynamic;
	operands(c, 0, &small, 2);
	make_strided(&c->operand[2], (const int64_t[]){0, 1});
}

static void bad_spaces(struct cases_case *c)
{
	c->op = &dynamic;
	operands(c, 0, &(struct make_shape){3, {2, 3, 4}}, 2);
	make_strided(&c->operand[2], (const int64_t[]){7, 2, 1});
}

static void bad_given_spaces(struct cases_case *c)
{
	c->op = &dequantize;
	operands(c, 0, &(struct make_shape){3, {2, 3, 4}}, 2);
	make_strided(&c->operand[1], (const int64_t[]){7, 2, 1});
}

static const struct cases_refusal refusals[] = {
	{"quantize: x is f64; it must be f16, bf16 or f32", bad_dtype},
	{"dequantize: x is f16; it must be f8e4m3, f8e5m2 or i8", bad_back},
	{"dynamic_quantize: to is \"f8e4m3\" and y is i8; they must agree", bad_to},
	{"quantize: scale is f16; it must be f32", bad_scale},
	{"quantize: dimension 0 has size 3 in x and 2 in scale; they must agree", bad_scales},
	{"dequantize: x has rank 3 and scale rank 1; it must have x's dimensions but the last, one of "
	 "groups or not, or be one number",
	 bad_scale_rank},
	{"quantize: dimension 1 has size 4 in x and 3 in scale, which must be a divisor of it",
	 bad_groups},
	{"dynamic_quantize: dimension 1 of x has size 5, which is no multiple of group 2", bad_group},
	{"dynamic_quantize: dimension 1 of scale has size 4; it must be 2, one for each group of 2",
	 bad_found},
	{"dynamic_quantize: x has rank 0; it needs a dimension of which rows are made", bad_rank},
	{"quantize: dimension 0 of y has stride 8; y must be contiguous, which is stride 4 there",
	 bad_output},
	{"dynamic_quantize: elements of scale share their place; an output's must lie apart",
	 bad_places},
	{"dynamic_quantize: the dimensions of scale that number rows do not lie one after another: its "
	 "rows must be evenly spaced",
	 bad_spaces},
	{"dequantize: the dimensions of scale that number rows do not lie one after another: its rows "
	 "must be evenly spaced",
	 bad_given_spaces},
	{NULL, NULL},
};

const struct cases_op *const quantize_ops[] = {&quantize, &dequantize, &dynamic, NULL};
const struct cases_family quantize_family = {
	.name = "quantize", .add = add_all, .random = add_random, .refusals = refusals};
