/*
 * norm_quantize.c: layer_norm and rms_norm along the last dimension, divided by scales into 8
 * bits: the reference, and what is on the list.
 *
 *   s = x + residual; v = (s - mean) * rstd * gamma + beta, rstd = 1 / sqrt(variance + eps);
 *   rms_norm: mean is 0.  y = v / scale, rounded to nearest and saturated; NaN is 0 in i8.  Without
 *   scale that of a row or group is its largest |v| / the largest number of y's type, and at least
 *   1e-10 / that number in i8 and of groups, 1 / (512 * that number) otherwise.  sum is s rounded
 *   once.
 *
 * How far off a result may be: v as in norm.c, by 32 roundings of f32 of the row's mean magnitude
 * times |gamma| * rstd, and by 2e-5 of its terms.  A scale is off by what the largest v is, and y
 * is one of the numbers to which a quotient that is off by so much rounds.
 */
#include "common/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { X, GAMMA, BETA, RESIDUAL, SCALE, Y, SCALES, SUM };

static bool is_rms(const struct cases_case *c)
{
	return strncmp(c->op->name, "rms", 3) == 0;
}

static bool has(const struct cases_case *c, int operand)
{
	return c->operand[operand].dtype != KILN_DTYPE_NONE;
}

/* ---- The reference ---- */

static int64_t units(const struct cases_case *c)
{
	return reference_product(&c->operand[X], 0, c->operand[X].rank - 1);
}

static double get(const struct reference *r, int operand, int64_t at)
{
	return cases_get(r->c->operand[operand].dtype, r->memory[operand], at);
}

/* v of a row, and how far each may be off. */
static void normalize(const struct reference *r, int64_t columns, const double *s, double *v,
					  double *off)
{
	long double sum = 0, squares = 0, magnitude = 0, mean = 0;
	double rstd, error;

	for (int64_t k = 0; k < columns; k++) {
		sum += s[k];
		magnitude += fabs(s[k]);
	}
	if (!is_rms(r->c))
		mean = sum / (double)columns;
	for (int64_t k = 0; k < columns; k++)
		squares += (s[k] - mean) * (s[k] - mean);
	rstd = (double)(1 / sqrtl(squares / (double)columns + reference_real(r->c, "eps", 1e-5)));
	error = 32 * 0x1p-24 * (double)magnitude / (double)columns;
	for (int64_t k = 0; k < columns; k++) {
		double gamma = has(r->c, GAMMA) ? get(r, GAMMA, k) : 1;
		double beta = has(r->c, BETA) ? get(r, BETA, k) : 0;
		double normal = (double)(s[k] - mean) * rstd;
		v[k] = normal * gamma + beta;
		off[k] = fabs(gamma) * rstd * error + 2e-5 * (fabs(normal * gamma) + fabs(beta));
	}
}

static void answer(const struct reference *r, int64_t row, int64_t columns, double *s)
{
	kiln_dtype from = r->c->operand[X].dtype;
	double *v = s + columns, *off = v + columns;

	normalize(r, columns, s, v, off);
	reference_quantize(r, SCALE, Y, SCALES, row, v, off);
	for (int64_t k = 0; has(r->c, SUM) && k < columns; k++)
		/* a little over half an ulp: the reference's own rounding */
		reference_value(r, SUM, row * columns + k, s[k], 0.5001 * reference_ulp(from, s[k]));
}

static void reference(const struct reference *r, int64_t first, int64_t last)
{
	const struct cases_operand *x = &r->c->operand[X], *other = &r->c->operand[RESIDUAL];
	int axis = x->rank - 1;
	int64_t columns = x->shape[axis];
	double *s = reference_memory(3 * columns + 1, sizeof(*s));

	for (int64_t row = first; row < last; row++) {
		for (int64_t k = 0; k < columns; k++) {
			s[k] = get(r, X, reference_at(x, 0, axis, row) + k * x->stride[axis]);
			if (has(r->c, RESIDUAL))
				s[k] +=
					get(r, RESIDUAL, reference_at(other, 0, axis, row) + k * other->stride[axis]);
		}
		answer(r, row, columns, s);
	}
	free(s);
}

static const struct cases_op layer_norm = {"layer_norm_quantize", units, reference};
static const struct cases_op rms_norm = {"rms_norm_quantize", units, reference};

/* ---- The cases ---- */

enum { WITH_GAMMA = 1, WITH_BETA = 2, WITH_RESIDUAL = 4, WITH_SCALE = 8, NO_SCALES = 16 };

/* Gives a case a scale for each group, and none for all. */
static void grouped(struct cases_case *c, int64_t group)
{
	struct make_shape groups = {c->operand[X].rank, {0}};

	memcpy(groups.size, c->operand[X].shape, sizeof(groups.size));
	groups.size[groups.rank - 1] /= group;
	make_none(c, SCALE);
	make_output(c, SCALES, KILN_F32, &groups);
	make_int(c, "group", group);
}

static void operands(struct cases_case *c, int64_t turn, const struct make_shape *shape,
					 unsigned with)
{
	static const kiln_dtype wide[] = {KILN_BF16, KILN_F32, KILN_F16},
							narrow[] = {KILN_F8E4M3, KILN_I8, KILN_F8E5M2};
	static const char *const words[] = {"f8e4m3", "i8", "f8e5m2"};
	kiln_dtype from = wide[turn % 3], of = turn % 2 ? KILN_F32 : from;
	struct make_shape rows = *shape, along = {1, {shape->size[shape->rank - 1]}};
	int to = (int)(turn / 3 % 3);

	rows.rank--;
	make_input(c, X, from, shape)->mean = 1;
	c->operand[X].deviation = 1;
	for (int i = GAMMA; i <= SUM; i++)
		make_none(c, i);
	if (with & WITH_GAMMA)
		make_input(c, GAMMA, of, &along);
	if (with & WITH_BETA)
		make_input(c, BETA, of, &along);
	if (with & WITH_RESIDUAL) {
		make_input(c, RESIDUAL, from, shape);
		make_output(c, SUM, from, shape);
	}
	if (with & WITH_SCALE)
		make_input(c, SCALE, KILN_F32, &(struct make_shape){0, {0}})->mean = 0.03;
	c->operand[SCALE].deviation = 1e-3;
	make_output(c, Y, narrow[to], shape);
	if (!(with & NO_SCALES))
		make_output(c, SCALES, KILN_F32, &rows);
	make_word(c, "to", words[to]);
}

static void name(struct cases_case *c)
{
	make_name(c, "x, gamma?, beta?, residual?, scale?, y, scales?, sum?");
}

static struct cases_case *add(bool rms, int64_t turn, const struct make_shape *shape, unsigned with,
							  unsigned flags)
{
	struct cases_case *c = cases_add(rms ? &rms_norm : &layer_norm, flags);

	operands(c, turn, shape, with);
	name(c);
	return c;
}

static void add_shapes(void)
{
	static const struct make_shape shapes[] = {{1, {96}},        {2, {7, 33}},   {2, {5, 1023}},
											   {3, {3, 5, 384}}, {2, {3, 8192}}, {2, {2, 70000}},
											   {2, {70, 3}}};
	static const struct make_shape nothing[] = {{2, {4, 0}}, {2, {0, 8}}, {3, {2, 3, 0}}, {1, {0}}};
	static const unsigned with[] = {NO_SCALES, WITH_RESIDUAL, WITH_RESIDUAL | WITH_GAMMA,
									WITH_SCALE};

	for (int i = 0; i < 9; i++)
		add(i % 2, i, &(struct make_shape){2, {9, 256}},
			(unsigned)(i * 7 % 16) | (i == 8 ? NO_SCALES : 0), 0);
	for (int i = 0; i < 2 * MAKE_COUNT(shapes); i++)
		add(i % 2, i, &shapes[i / 2], (unsigned)(i * 5 % 16),
			shapes[i / 2].size[1] == 70000 ? CASES_SLOW : 0);
	/* Narrow vectors, for gamma and beta have twice the bytes of x. */
	add(false, 3, &(struct make_shape){2, {5, 4096}}, WITH_GAMMA | WITH_BETA, 0);
	for (int i = 0; i < MAKE_COUNT(nothing); i++)
		add(i % 2, i, &nothing[i], with[i], 0);
}

/* Gaps, another order, addresses that are aligned to elements alone, and unusual numbers. */
static void add_layouts(void)
{
	static const int64_t strides[][2] = {{264, 1}, {257, 1}, {1, 9}, {0, 1}};

	for (int i = 0; i < 8; i++) {
		struct cases_case *c = cases_add(i % 2 ? &rms_norm : &layer_norm, 0);
		operands(c, i, &(struct make_shape){2, {9, 256}}, WITH_GAMMA | WITH_RESIDUAL);
		make_strided(&c->operand[i % 3 ? X : RESIDUAL], strides[i / 2]);
		name(c);
	}
	for (int i = 0; i < 4; i++) {
		struct cases_case *c = cases_add(i % 2 ? &rms_norm : &layer_norm, 0);
		int moved = i == 0 ? X : i == 1 ? GAMMA : i == 2 ? Y : SUM;
		operands(c, i, &(struct make_shape){2, {6, 200}}, WITH_GAMMA | WITH_BETA | WITH_RESIDUAL);
		c->operand[moved].offset = cases_element(&c->operand[moved]) % 16;
		name(c);
	}
	for (int i = 0; i < 4; i++) {
		struct cases_case *c = cases_add(i % 2 ? &rms_norm : &layer_norm, 0);
		operands(c, 3 * i, &(struct make_shape){2, {16, 256}}, i / 2 ? WITH_SCALE : WITH_GAMMA);
		c->operand[X].fill = CASES_NORMAL;
		c->operand[X].mean = i == 0 ? 1000 : 0;
		c->operand[X].deviation = i == 1 ? 1e-9 : 1;
		name(c);
	}
}

/* Groups that lanes share, and others; scales in column-major order, with gaps and without; unusual
 * numbers. */
static void add_groups(void)
{
	static const struct {
		struct make_shape shape;
		int64_t group;
	} groups[] = {{{2, {9, 384}}, 128}, {{2, {5, 4096}}, 128},        {{3, {2, 3, 96}}, 12},
				  {{2, {7, 70}}, 10},   {{2, {2, 65536 + 128}}, 128}, {{2, {0, 128}}, 128}};

	for (int i = 0; i < 2 * MAKE_COUNT(groups); i++) {
		struct cases_case *c = cases_add(i % 2 ? &rms_norm : &layer_norm, 0);
		operands(c, i, &groups[i / 2].shape, (unsigned)(i * 5 % 8));
		grouped(c, groups[i / 2].group);
		if (i < 2)
			make_strided(&c->operand[SCALES], (const int64_t[]){1, i ? 12 : 9});
		c->operand[SCALES].kept = i == 1;
		c->flags |= i / 2 == 4 ? CASES_SLOW : 0;
		name(c);
	}
	for (int i = 0; i < 6; i++) {
		struct cases_case *c = cases_add(i % 2 ? &rms_norm : &layer_norm, 0);
		operands(c, 3 * i, &(struct make_shape){2, {16, 256}}, i < 2 ? WITH_SCALE : WITH_GAMMA);
		if (i >= 4)
			grouped(c, 128);
		c->operand[X].fill = CASES_UNUSUAL;
		name(c);
	}
}

static void add_timed(void)
{
	const unsigned flags = CASES_BENCH | CASES_BIG;

	add(true, 0, &(struct make_shape){2, {1 << 15, 4096}}, WITH_GAMMA | WITH_RESIDUAL, flags);
	add(true, 0, &(struct make_shape){2, {1 << 14, 8192}}, WITH_GAMMA | WITH_RESIDUAL | WITH_SCALE,
		flags);
	add(false, 3, &(struct make_shape){2, {1 << 15, 4096}}, WITH_GAMMA | WITH_BETA, flags);
	for (int i = 0; i < 2; i++) {
		struct cases_case *c = cases_add(&rms_norm, flags);
		operands(c, 0, &(struct make_shape){2, {1 << 15 >> i, 4096 << i}},
				 WITH_GAMMA | (i ? WITH_RESIDUAL : 0));
		grouped(c, 128);
		name(c);
	}
	add(true, 0, &(struct make_shape){2, {300000, 8192}}, WITH_GAMMA, CASES_BIG | CASES_HUGE);
}

static void add_all(void)
{
	add_shapes();
	add_layouts();
	add_groups();
	add_timed();
}

static void add_random(uint64_t *state, struct cases_case *out)
{
	struct make_shape shape;
	unsigned with = (unsigned)make_below(state, 16);

	memset(out, 0, sizeof(*out));
	out->op = make_chance(state, 2) ? &rms_norm : &layer_norm;
	make_random_shape(state, 4, &shape);
	for (int k = 0; k < shape.rank; k++)
		shape.size[k] += shape.size[k] == 0;
	operands(out, make_below(state, 9), &shape, with);
	if (make_chance(state, 3)) {
		int64_t columns = shape.size[shape.rank - 1], group = make_below(state, columns) + 1;
		while (columns % group)
			group--;
		grouped(out, group);
	}
	name(out);
}

/* ---- What the planner refuses ---- */

static const struct make_shape small = {2, {3, 4}};

static void bad_gamma(struct cases_case *c)
{
	c->op = &rms_norm;
	operands(c, 0, &small, WITH_GAMMA);
	c->operand[GAMMA].shape[0] = 3;
}

static void bad_scale(struct cases_case *c)
{
	c->op = &rms_norm;
	operands(c, 0, &small, 0);
	make_input(c, SCALE, KILN_F32, &(struct make_shape){1, {3}});
}

static void bad_scales(struct cases_case *c)
{
	c->op = &layer_norm;
	operands(c, 0, &small, 0);
	make_output(c, SCALES, KILN_F32, &small);
}

static void bad_type(struct cases_case *c)
{
	c->op = &layer_norm;
	operands(c, 0, &small, WITH_SCALE);
	c->operand[SCALE].dtype = KILN_F16;
}

static void bad_sum(struct cases_case *c)
{
	c->op = &rms_norm;
	operands(c, 0, &small, WITH_RESIDUAL);
	make_none(c, RESIDUAL);
}

static void bad_group(struct cases_case *c)
{
	c->op = &rms_norm;
	operands(c, 0, &small, 0);
	make_int(c, "group", 3);
}

static void bad_both(struct cases_case *c)
{
	c->op = &layer_norm;
	operands(c, 0, &small, WITH_SCALE);
	make_int(c, "group", 2);
}

static void bad_groups(struct cases_case *c)
{
	c->op = &rms_norm;
	operands(c, 0, &small, 0);
	grouped(c, 2);
	c->operand[SCALES].shape[1] = 4;
}

static const struct cases_refusal refusals[] = {
	{"rms_norm_quantize: gamma has rank 1 and 3 elements; it must have rank 1 and 4, as x's last "
	 "dimension",
	 bad_gamma},
	{"rms_norm_quantize: scale has 3 elements; it must have one", bad_scale},
	{"layer_norm_quantize: scales must have y's dimensions but the last", bad_scales},
	{"layer_norm_quantize: scale is f16; it must be f32", bad_type},
	{"rms_norm_quantize: there is no residual; without it sum would be x and must be left out",
	 bad_sum},
	{"rms_norm_quantize: dimension 1 of y has size 4, which is no multiple of group 3", bad_group},
	{"layer_norm_quantize: scale is given and group is 2; only scales that are found have groups",
	 bad_both},
	{"rms_norm_quantize: dimension 1 of scales has size 4; it must be 2, one for each group of 2",
	 bad_groups},
	{NULL, NULL},
};

const struct cases_op *const norm_quantize_ops[] = {&layer_norm, &rms_norm, NULL};
const struct cases_family norm_quantize_family = {
	.name = "norm_quantize", .add = add_all, .random = add_random, .refusals = refusals};
