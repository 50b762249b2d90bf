/*
 * act_mul_quantize.c: act(x) * other along the last dimension, divided by scales into 8 bits: the
 * reference, and what is on the list.
 *
 *   v = act(x) * other; without other the first half of x's last dimension is x and the second
 *   other.  y = v / scale, rounded to nearest and saturated; NaN is 0 in i8.  Scales are given or
 *   found as of norm_quantize.c.
 *
 * How far off a result may be: v by 12 roundings of f32 of |x * other|, as in act_mul.c.  A scale
 * is off by what the largest v is, and y is one of the numbers to which a quotient that is off by
 * so much rounds.  Where act(x) may be flushed to zero and other is infinite, v is an infinity or
 * NaN, as a device likes, and nothing is asked of those whose scale is found with it.
 */
#include "common/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { X, OTHER, SCALE, Y, SCALES };

static bool has(const struct cases_case *c, int operand)
{
	return c->operand[operand].dtype != KILN_DTYPE_NONE;
}

/* ---- The reference ---- */

static int64_t units(const struct cases_case *c)
{
	return reference_product(&c->operand[Y], 0, c->operand[Y].rank - 1);
}

static double read(const struct reference *r, int operand, int64_t row, int64_t column)
{
	const struct cases_operand *at = &r->c->operand[operand];
	int last = at->rank - 1;

	return cases_get(at->dtype, r->memory[operand],
					 reference_at(at, 0, last, row) + column * at->stride[last]);
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	const struct cases_operand *y = &r->c->operand[Y];
	int64_t columns = y->shape[y->rank - 1];
	double *v = reference_memory(2 * columns + 1, sizeof(*v)), *off = v + columns;

	for (int64_t row = first; row < last; row++) {
		for (int64_t k = 0; k < columns; k++) {
			double a = read(r, X, row, k);
			double b = has(r->c, OTHER) ? read(r, OTHER, row, k) : read(r, X, row, columns + k);
			double value = reference_act(r->c, a);
			v[k] = value * b;
			off[k] = isfinite(v[k]) ? 12 * fabs(a * b) * 0x1p-24 + 0x1p-120 : 0;
			if (isinf(b) && fabs(value) < 16 * reference_floor(KILN_F32))
				off[k] = -1;
		}
		reference_quantize(r, SCALE, Y, SCALES, row, v, off);
	}
	free(v);
}

static const struct cases_op act_mul_quantize = {"act_mul_quantize", units, reference};

/* ---- The cases ---- */

static const char *const acts[] = {"silu", "gelu", "gelu_tanh", "relu"};

enum { SPLIT = 1, WITH_SCALE = 2, NO_SCALES = 4 };

/* shape: of y.  group: 0: rows have scales. */
static void operands(struct cases_case *c, int64_t turn, const struct make_shape *shape,
					 unsigned with, int64_t group)
{
	static const kiln_dtype wide[] = {KILN_BF16, KILN_F32, KILN_F16},
							narrow[] = {KILN_F8E4M3, KILN_I8, KILN_F8E5M2};
	static const char *const words[] = {"f8e4m3", "i8", "f8e5m2"};
	struct make_shape whole = *shape, scales = *shape;
	int to = (int)(turn / 3 % 3), last = shape->rank - 1;

	if (with & SPLIT)
		whole.size[last] *= 2;
	if (group)
		scales.size[last] /= group;
	else
		scales.rank--;
	make_input(c, X, wide[turn % 3], &whole);
	make_none(c, OTHER);
	make_none(c, SCALE);
	if (!(with & SPLIT))
		make_input(c, OTHER, wide[turn % 3], shape);
	if (with & WITH_SCALE)
		make_input(c, SCALE, KILN_F32, &(struct make_shape){0, {0}})->mean = 0.03;
	c->operand[SCALE].deviation = 1e-3;
	make_output(c, Y, narrow[to], shape);
	make_none(c, SCALES);
	if (!(with & NO_SCALES))
		make_output(c, SCALES, KILN_F32, &scales);
	make_word(c, "to", words[to]);
	if (turn % 4)
		make_word(c, "act", acts[turn % 4]);
	if (group)
		make_int(c, "group", group);
}

static void name(struct cases_case *c)
{
	make_name(c, "x, other?, scale?, y, scales?");
}

static void add(int64_t turn, const struct make_shape *shape, unsigned with, int64_t group,
				unsigned flags)
{
	struct cases_case *c = cases_add(&act_mul_quantize, flags);

	operands(c, turn, shape, with, group);
	name(c);
}

/* Each pair of types; odd widths, long rows, and nothing. */
static void add_shapes(void)
{
	static const struct {
		struct make_shape shape;
		unsigned with;
		int64_t group;
	} shapes[] = {
		{{1, {96}}, SPLIT, 0},
		{{2, {7, 33}}, 0, 0},
		{{2, {5, 1023}}, SPLIT, 0},
		{{2, {3, 8192}}, SPLIT, 128},
		{{2, {2, 70000}}, SPLIT, 0},
		{{2, {2, 65536 + 128}}, 0, 128},
		{{2, {7, 70}}, SPLIT, 10},
		{{3, {2, 3, 96}}, 0, 12},
		{{2, {4, 0}}, SPLIT | NO_SCALES, 0},
		{{3, {2, 3, 0}}, 0, 0},
		{{2, {4, 0}}, SPLIT | WITH_SCALE, 0},
		{{2, {0, 128}}, 0, 128},
	};
	static const unsigned with[] = {0, SPLIT, SPLIT | WITH_SCALE, NO_SCALES};

	for (int i = 0; i < 9; i++)
		add(i, &(struct make_shape){2, {9, 256}}, with[i % 4], i % 4 == 1 ? 128 : 0, 0);
	for (int i = 0; i < MAKE_COUNT(shapes); i++)
		add(i, &shapes[i].shape, shapes[i].with, shapes[i].group,
			shapes[i].shape.size[1] > 65536 ? CASES_SLOW : 0);
}

/* Gaps, another order, halves and addresses that are aligned to elements alone, scales in
 * column-major order, and unusual numbers. */
static void add_layouts(void)
{
	static const int64_t strides[][2] = {{264, 1}, {257, 1}, {1, 9}, {0, 1}};

	for (int i = 0; i < 4; i++) {
		struct cases_case *c = cases_add(&act_mul_quantize, 0);
		operands(c, i, &(struct make_shape){2, {9, 256}}, 0, i ? 0 : 128);
		make_strided(&c->operand[i % 2 ? X : OTHER], strides[i]);
		if (i == 0)
			make_strided(&c->operand[SCALES], (const int64_t[]){1, 9});
		name(c);
	}
	/* Scales that lie apart, of rows whose scale is given. */
	struct cases_case *apart = cases_add(&act_mul_quantize, 0);
	operands(apart, 0, &(struct make_shape){2, {9, 256}}, WITH_SCALE, 0);
	make_strided(&apart->operand[SCALES], (const int64_t[]){2});
	apart->operand[SCALES].kept = true;
	name(apart);
	for (int i = 0; i < 4; i++) {
		struct cases_case *c = cases_add(&act_mul_quantize, 0);
		int moved = i % 2 ? Y : X;
		operands(c, i, &(struct make_shape){2, {6, 200}}, i < 2 ? SPLIT : 0, i / 2 * 8);
		c->operand[moved].offset = cases_element(&c->operand[moved]) % 16;
		name(c);
	}
	for (int i = 0; i < 6; i++) {
		struct cases_case *c = cases_add(&act_mul_quantize, 0);
		operands(c, 3 * i, &(struct make_shape){2, {15, 256}}, i % 2, i / 2 % 2 * 128);
		c->operand[X].fill = CASES_UNUSUAL;
		c->operand[X].deviation = 40;
		name(c);
	}
}

static void add_timed(void)
{
	const unsigned flags = CASES_BENCH | CASES_BIG;
	const struct make_shape wide = {2, {6096, 11008}}, wider = {2, {4681, 14336}};

	add(0, &wide, SPLIT, 0, flags);
	add(0, &wide, SPLIT, 128, flags);
	add(0, &wider, SPLIT | WITH_SCALE | NO_SCALES, 0, flags);
	add(0, &wider, 0, 128, flags);
	add(0, &(struct make_shape){2, {150000, 14336}}, SPLIT, 128, CASES_BIG | CASES_HUGE);
}

static void add_all(void)
{
	add_shapes();
	add_layouts();
	add_timed();
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape;
	unsigned with = (unsigned)make_below(state, 4);
	int64_t group = 0, columns;

	memset(out, 0, sizeof(*out));
	out->op = &act_mul_quantize;
	make_random_shape(state, 4, &shape);
	for (int k = 0; k < shape.rank; k++)
		shape.size[k] += shape.size[k] == 0;
	columns = shape.size[shape.rank - 1];
	if (!(with & WITH_SCALE) && make_chance(state, 2))
		for (group = make_below(state, columns) + 1; columns % group;)
			group--;
	operands(out, make_below(state, 36), &shape, with, group);
	make_random_layout(state, &out->operand[X]);
	name(out);
}

/* ---- What the planner refuses ---- */

static const struct make_shape small = {2, {3, 4}};

static void bad_type(struct cases_case *c)
{
	c->op = &act_mul_quantize;
	operands(c, 0, &small, 0, 0);
	c->operand[X].dtype = KILN_F64;
}

static void bad_odd(struct cases_case *c)
{
	c->op = &act_mul_quantize;
	operands(c, 0, &small, SPLIT, 0);
	c->operand[X].shape[1] = 7;
}

static void bad_half(struct cases_case *c)
{
	c->op = &act_mul_quantize;
	operands(c, 0, &small, SPLIT, 0);
	c->operand[Y].shape[1] = 8;
}

static void bad_other(struct cases_case *c)
{
	c->op = &act_mul_quantize;
	operands(c, 0, &small, 0, 0);
	c->operand[OTHER].shape[1] = 5;
}

static void bad_rank(struct cases_case *c)
{
	c->op = &act_mul_quantize;
	operands(c, 0, &(struct make_shape){1, {4}}, SPLIT, 0);
	c->operand[X].rank = 0;
}

static void bad_groups(struct cases_case *c)
{
	c->op = &act_mul_quantize;
	operands(c, 0, &small, 0, 2);
	make_strided(&c->operand[SCALES], (const int64_t[]){0, 1});
}

static const struct cases_refusal refusals[] = {
	{"act_mul_quantize: x is f64; it must be f16, bf16 or f32", bad_type},
	{"act_mul_quantize: dimension 1 of x has size 7; without other it must be even", bad_odd},
	{"act_mul_quantize: dimension 1 of y has size 8; it must be 4", bad_half},
	{"act_mul_quantize: dimension 1 has size 4 in x and 5 in other; they must agree", bad_other},
	{"act_mul_quantize: x has rank 0; it needs a dimension of which rows are made", bad_rank},
	{"act_mul_quantize: elements of scales share their place; an output's must lie apart",
	 bad_groups},
	{NULL, NULL},
};

const struct cases_op *const act_mul_quantize_ops[] = {&act_mul_quantize, NULL};
const struct cases_family act_mul_quantize_family = {
	.name = "act_mul_quantize", .add = add_all, .random = add_random, .refusals = refusals};
