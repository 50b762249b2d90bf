/*
 * act_mul.c: act(x) * other and its backward: the reference, and what is on the list.
 *
 *   act_mul           y = act(x) * other; without other the first half of x's last dimension is x
 *                     and the second other
 *   act_mul_backward  dx = dy * other * act'(x), dother = dy * act(x); without other dx has both
 *
 *   silu       x * s(x), s(x) = 1 / (1 + exp(-x))
 *   gelu       x * n(x), n(x) = (1 + erf(x / sqrt(2))) / 2
 *   gelu_tanh  x * (1 + tanh(u)) / 2 = x * s(2 * u), u = sqrt(2 / pi) * (x + 0.044715 * x^3)
 *   relu       x above 0, else 0; its derivative at 0 is 0
 *
 * How far off a result may be: s and n lie between 0 and 1 and are wrong by a few roundings of 1,
 * and so is x times the derivatives of both.  So act(x) may be off by 12 roundings of |x|, act'(x)
 * by 16 of 1, and products by as many of theirs.
 */
#include "common/reference.h"

#include <math.h>
#include <string.h>

static bool is_backward(const struct cases_case *c)
{
	return strcmp(c->op->name, "act_mul_backward") == 0;
}

static bool is_split(const struct cases_case *c)
{
	return c->operand[1].dtype == KILN_DTYPE_NONE;
}

/* ---- The reference ---- */

/* Beyond 1000 on either side an activation is all or nothing.  1 - s(x) is s(-x): a difference
 * would lose the bits that x multiplies. */
static double slope_of(const struct cases_case *c, double x)
{
	x = x > 1000 ? 1000 : x < -1000 ? -1000 : x;
	if (reference_is(c, "act", "gelu"))
		return 0.5 * erfc(x * -M_SQRT1_2) + x * exp(-x * x / 2) * M_2_SQRTPI * M_SQRT1_2 / 2;
	if (reference_is(c, "act", "gelu_tanh")) {
		double k = 2 * M_2_SQRTPI * M_SQRT1_2, z = k * (x + 0.044715 * x * x * x);
		double s = reference_sigmoid(z), rest = reference_sigmoid(-z);
		return s + x * s * rest * k * (1 + 3 * 0.044715 * x * x);
	}
	if (reference_is(c, "act", "relu"))
		return x > 0 ? 1 : isnan(x) ? 1 : 0;
	return reference_sigmoid(x) * (1 + x * reference_sigmoid(-x));
}

static int64_t units(const struct cases_case *c)
{
	return cases_elements(&c->operand[2]);
}

static double read(const struct reference *r, int operand, int64_t at)
{
	return cases_get(r->c->operand[operand].dtype, r->memory[operand], at);
}

/* Hands on what the activation or its slope gives, times a factor.  Where the former may be flushed
 * to zero and the factor is infinite, the product is an infinity or NaN, as a device likes. */
static void answer(const struct reference *r, int operand, int64_t at, double of_x, double factor,
				   double off)
{
	kiln_dtype dtype = r->c->operand[0].dtype;
	double value = factor * of_x, allowed = off * reference_unit(dtype) +
											reference_rounding(dtype, value) +
											4 * reference_floor(dtype) * fmax(1, off);
	bool open = isinf(factor) && fabs(of_x) < 16 * reference_floor(dtype);

	reference_value(r, operand, at, value, open ? REFERENCE_NO_NUMBER : allowed);
}

/* Element number i of y or dy, where it lies in a row of x, other, dx and dother. */
static void element(const struct reference *r, int64_t i)
{
	const struct cases_operand *operand = r->c->operand, *x = &operand[0];
	int last = x->rank - 1;
	bool split = is_split(r->c);
	int64_t width = x->rank ? operand[2].shape[last] : 1, row = i / width, column = i % width;
	int64_t a_at = 0, b_at = 0, dx_at = split ? row * 2 * width + column : i;

	if (x->rank) {
		int64_t step = x->stride[last];
		a_at = reference_at(x, 0, last, row) + column * step;
		b_at = split ? a_at + width * step
					 : reference_at(&operand[1], 0, last, row) + column * operand[1].stride[last];
	}
	double a = read(r, 0, a_at), b = read(r, split ? 0 : 1, b_at), value = reference_act(r->c, a);
	if (!is_backward(r->c)) {
		answer(r, 2, i, value, b, 12 * fabs(a * b));
		return;
	}
	double dy = read(r, 2, reference_at(&operand[2], 0, operand[2].rank, i));
	if (operand[3].dtype != KILN_DTYPE_NONE)
		answer(r, 3, dx_at, slope_of(r->c, a), dy * b, 16 * fabs(dy * b));
	if (split)
		answer(r, 3, dx_at + width, value, dy, 12 * fabs(dy * a));
	else if (operand[4].dtype != KILN_DTYPE_NONE)
		answer(r, 4, i, value, dy, 12 * fabs(dy * a));
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	for (int64_t i = first; i < last; i++)
		element(r, i);
}

static const struct cases_op forward = {"act_mul", units, reference};
static const struct cases_op backward = {"act_mul_backward", units, reference};

/* ---- The cases ---- */

static const char *const acts[] = {"silu", "gelu", "gelu_tanh", "relu"};

static const struct cases_op *op_of(int64_t turn)
{
	return turn % 2 ? &backward : &forward;
}

/* shape: of y and dy. */
static void operands(struct cases_case *c, kiln_dtype dtype, const struct make_shape *shape,
					 bool split, int act)
{
	struct make_shape whole = *shape;

	if (split && shape->rank)
		whole.size[shape->rank - 1] *= 2;
	make_input(c, 0, dtype, &whole);
	if (split)
		make_none(c, 1);
	else
		make_input(c, 1, dtype, shape);
	make_input(c, 2, dtype, shape)->output = !is_backward(c);
	if (is_backward(c)) {
		make_output(c, 3, dtype, &whole);
		if (split)
			make_none(c, 4);
		else
			make_output(c, 4, dtype, shape);
	}
	if (act)
		make_word(c, "act", acts[act]);
}

static void name(struct cases_case *c)
{
	make_name(c, is_backward(c) ? "x, other?, dy, dx?, dother?" : "x, other?, y");
}

static struct cases_case *add(int64_t turn, kiln_dtype dtype, const struct make_shape *shape,
							  bool split, unsigned flags)
{
	struct cases_case *c = cases_add(op_of(turn), flags);

	operands(c, dtype, shape, split, (int)(turn / 2 % 4));
	name(c);
	return c;
}

static void add_types(void)
{
	static const struct make_shape shape = {2, {37, 96}};

	for (int i = 0; i < 64; i++)
		add(i / 4, make_float(i % 4), &shape, i / 32 == (i / 4) % 2, 0);
}

/* Odd widths, halves that are not aligned alike, one element, and nothing. */
static void add_shapes(void)
{
	static const struct make_shape shapes[] = {{0, {0}},           {1, {1}},       {1, {777}},
											   {2, {33, 7}},       {2, {5, 1023}}, {2, {3, 100}},
											   {2, {600, 1}},      {3, {4, 0, 3}}, {2, {0, 64}},
											   {4, {2, 3, 5, 24}}, {2, {2, 4099}}};

	for (int i = 0; i < MAKE_COUNT(shapes); i++)
		for (int k = 0; k < 4; k++)
			if (shapes[i].rank || k < 2)
				add(k + 2 * (i % 4), make_float(i + k), &shapes[i], k >= 2, 0);
}

/* Gaps, repeats, another order, addresses that are aligned to elements alone, and one gradient. */
static void add_layouts(void)
{
	static const struct {
		struct make_shape shape;
		int64_t stride[3];
		int operand;
		bool split;
	} layouts[] = {
		{{2, {5, 64}}, {160, 1}, 0, true},         {{2, {5, 64}}, {131, 1}, 0, true},
		{{2, {33, 40}}, {0, 1}, 1, false},         {{2, {33, 40}}, {1, 0}, 1, false},
		{{2, {9, 1024}}, {1032, 1}, 0, false},     {{2, {9, 50}}, {57, 1}, 1, false},
		{{3, {5, 6, 64}}, {64, 320, 1}, 0, false}, {{2, {40, 24}}, {1, 40}, 0, false},
	};

	for (int i = 0; i < 2 * MAKE_COUNT(layouts); i++) {
		struct cases_case *c = cases_add(op_of(i), 0);
		operands(c, make_float(i / 2 + i), &layouts[i / 2].shape, layouts[i / 2].split, i / 3 % 4);
		make_strided(&c->operand[layouts[i / 2].operand], layouts[i / 2].stride);
		name(c);
	}
	for (int i = 0; i < 12; i++) {
		struct cases_case *c = cases_add(op_of(i), 0);
		int moved = i / 2 % 3;
		operands(c, make_float(i / 2), &(struct make_shape){2, {6, 200}}, i >= 6, i % 4);
		if (moved == 1 && i >= 6)
			moved = 0;
		c->operand[moved].offset = cases_element(&c->operand[moved]) % 16;
		if (is_backward(c) && i < 6)
			make_none(c, 3 + i / 2 % 2);
		name(c);
	}
}

static void add_values(void)
{
	for (int i = 0; i < 8; i++) {
		struct cases_case *c = cases_add(op_of(i), 0);
		operands(c, make_float(i / 2), &(struct make_shape){2, {15, 96}}, i / 2 % 2, i / 2);
		c->operand[0].fill = CASES_UNUSUAL;
		c->operand[0].deviation = 40;
		name(c);
	}
	/* Powers that no f64 holds. */
	for (int i = 0; i < 8; i++) {
		struct cases_case *c = cases_add(op_of(i), 0);
		operands(c, KILN_F64, &(struct make_shape){2, {15, 96}}, i / 2 % 2, i / 2);
		c->operand[0].mean = -1000;
		c->operand[0].deviation = 40;
		name(c);
	}
}

static void add_timed(void)
{
	static const int64_t columns[] = {11008, 14336, 28672};
	const unsigned flags = CASES_BENCH | CASES_BIG;

	for (int i = 0; i < MAKE_COUNT(columns); i++)
		for (int k = 0; k < 2; k++)
			add(k, i == 1 ? KILN_F32 : KILN_BF16,
				&(struct make_shape){2, {(1 << 26) / columns[i], columns[i]}}, i < 2, flags);
	add(2, KILN_F16, &(struct make_shape){2, {8192, 8192}}, true, flags);
	add(4, KILN_F16, &(struct make_shape){2, {8192, 8191}}, true, flags);
	add(5, KILN_F32, &(struct make_shape){2, {8192, 8192}}, false, flags);
	add(0, KILN_BF16, &(struct make_shape){2, {150000, 14336}}, true, CASES_BIG | CASES_HUGE);
}

static void add_all(void)
{
	add_types();
	add_shapes();
	add_layouts();
	add_values();
	add_timed();
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape;
	bool split = make_chance(state, 2);

	memset(out, 0, sizeof(*out));
	out->op = op_of(make_below(state, 2));
	make_random_shape(state, 4, &shape);
	operands(out, make_float(make_below(state, 4)), &shape, split, (int)make_below(state, 4));
	for (int i = 0; i < out->operand_count; i++)
		if (out->operand[i].dtype != KILN_DTYPE_NONE)
			make_random_layout(state, &out->operand[i]);
	if (is_backward(out) && !split && make_chance(state, 3))
		make_none(out, 3 + (int)make_below(state, 2));
	name(out);
}

/* ---- What the planner refuses ---- */

static const struct make_shape small = {2, {3, 4}};

static void bad_dtype(struct cases_case *c)
{
	c->op = &forward;
	operands(c, KILN_I32, &small, false, 0);
}

static void bad_act(struct cases_case *c)
{
	c->op = &forward;
	operands(c, KILN_F32, &small, false, 0);
	make_word(c, "act", "swish");
}

static void bad_other(struct cases_case *c)
{
	c->op = &forward;
	operands(c, KILN_F32, &small, false, 0);
	c->operand[1].shape[1] = 5;
}

static void bad_odd(struct cases_case *c)
{
	c->op = &forward;
	operands(c, KILN_F32, &small, true, 0);
	c->operand[0].shape[1] = 7;
}

static void bad_rank(struct cases_case *c)
{
	c->op = &backward;
	operands(c, KILN_F32, &(struct make_shape){0, {0}}, true, 0);
}

static void bad_half(struct cases_case *c)
{
	c->op = &backward;
	operands(c, KILN_F16, &small, true, 0);
	c->operand[2].shape[1] = 8;
}

static void bad_both(struct cases_case *c)
{
	c->op = &backward;
	operands(c, KILN_F16, &small, true, 0);
	make_output(c, 4, KILN_F16, &small);
}

static void bad_output(struct cases_case *c)
{
	c->op = &forward;
	operands(c, KILN_F32, &small, false, 0);
	make_strided(&c->operand[2], (const int64_t[]){8, 1});
}

static const struct cases_refusal refusals[] = {
	{"act_mul: x is i32; it must be f16, bf16, f32 or f64", bad_dtype},
	{"act_mul: act is \"swish\"; it may be one of: silu, gelu, gelu_tanh, relu", bad_act},
	{"act_mul: dimension 1 has size 4 in x and 5 in other; they must agree", bad_other},
	{"act_mul: dimension 1 of x has size 7; without other it must be even", bad_odd},
	{"act_mul_backward: x has rank 0; without other it needs a dimension to be split", bad_rank},
	{"act_mul_backward: dimension 1 has size 8 in x and 8 in dy; without other it must be half in "
	 "dy",
	 bad_half},
	{"act_mul_backward: dother is there and other is not; without other dx has both", bad_both},
	{"act_mul: dimension 0 of y has stride 8; y must be contiguous, which is stride 4 there",
	 bad_output},
	{NULL, NULL},
};

const struct cases_op *const act_mul_ops[] = {&forward, &backward, NULL};
const struct cases_family act_mul_family = {
	.name = "act_mul", .add = add_all, .random = add_random, .refusals = refusals};
