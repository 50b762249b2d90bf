/*
 * test_references_calculus: the references against values known by hand, and the backward ones
 * against central differences of the forward ones, in f64.
 */
#include "reference_scene.h"

#include <math.h>

#define STEP 1e-5
#define NEAR 1e-8 /* of the differences' own error: STEP squared, and rounding over STEP */

static struct cases_case case_of(const struct cases_op *op)
{
	return (struct cases_case){.op = op};
}

static void set(struct scene *s, int operand, const double *values)
{
	for (int64_t i = 0; i < cases_elements(&s->c.operand[operand]); i++)
		scene_put(s, operand, i, values[i]);
}

static void assert_answers(struct scene *s, int operand, const double *expected)
{
	for (int64_t i = 0; i < cases_elements(&s->c.operand[operand]); i++) {
		double got = s->answers[operand][i];
		if (isnan(expected[i]) ? !isnan(got) : !(fabs(got - expected[i]) <= 1e-14))
			fail_msg("%s operand %d element %d is %.17g, not %.17g", s->c.op->name, operand, (int)i,
					 got, expected[i]);
	}
}

/* ---- By hand ---- */

static void test_softmax_by_hand(void **state)
{
	const struct make_shape shape = {2, {2, 4}};
	const double x[] = {0, log(2), log(3), log(4), 7, 7, 7, -INFINITY};
	const double y[] = {0.1, 0.2, 0.3, 0.4, 1. / 3, 1. / 3, 1. / 3, 0};
	const double squares[] = {1. / 30, 4. / 30, 9. / 30, 16. / 30, 1. / 3, 1. / 3, 1. / 3, 0};
	const double halves[] = {
		1 / (1 + exp(7)),      2 / (2 + exp(7)),      3 / (3 + exp(7)),      1,
		exp(7) / (1 + exp(7)), exp(7) / (2 + exp(7)), exp(7) / (3 + exp(7)), 0};

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct scene s;
		struct cases_case c =
			case_of(i == 3 ? reference_of("log_softmax") : reference_of("softmax"));
		double logarithms[8];
		make_input(&c, 0, KILN_F64, &shape);
		make_output(&c, 1, KILN_F64, &shape);
		if (i == 1)
			make_real(&c, "scale", 2);
		if (i == 2)
			make_int(&c, "axis", -2);
		scene_open(&s, &c, 1);
		set(&s, 0, x);
		scene_answer(&s);
		for (int k = 0; k < 7; k++)
			logarithms[k] = log(y[k]);
		logarithms[7] = 0; /* minus infinity, which is looked at below */
		if (i == 3) {
			assert_true(isinf(s.answers[1][7]) && s.answers[1][7] < 0);
			s.answers[1][7] = 0;
		}
		assert_answers(&s, 1, i == 0 ? y : i == 1 ? squares : i == 2 ? halves : logarithms);
		scene_close(&s);
	}
}

/* Rows without a number: NaN or +inf in it, or nothing but -inf. */
static void test_no_number(void **state)
{
	const struct make_shape shape = {2, {4, 2}};
	const double x[] = {NAN, 1, INFINITY, 1, -INFINITY, -INFINITY, -INFINITY, 1};
	const double y[] = {NAN, NAN, NAN, NAN, NAN, NAN, 0, 1};
	struct cases_case c = case_of(reference_of("softmax"));
	struct scene s;

	(void)state;
	make_input(&c, 0, KILN_F64, &shape);
	make_output(&c, 1, KILN_F64, &shape);
	scene_open(&s, &c, 1);
	set(&s, 0, x);
	scene_answer(&s);
	assert_answers(&s, 1, y);
	scene_close(&s);
}

/* An infinite gradient times a slope that may be rounded to 0: no finite number is right. */
static void test_infinite_factor(void **state)
{
	const struct make_shape shape = {1, {1}};
	const double right[] = {NAN, INFINITY, -INFINITY}, x = -1, other = 1, dy = INFINITY;
	struct cases_case c = case_of(reference_of("act_mul_backward"));
	struct scene s;

	(void)state;
	make_input(&c, 0, KILN_F16, &shape);
	make_input(&c, 1, KILN_F16, &shape);
	make_input(&c, 2, KILN_F16, &shape);
	make_output(&c, 3, KILN_F16, &shape);
	make_none(&c, 4);
	make_word(&c, "act", "relu");
	scene_open(&s, &c, 1);
	set(&s, 0, &x);
	set(&s, 1, &other);
	set(&s, 2, &dy);
	for (int i = 0; i < 3; i++) {
		scene_put(&s, 3, 0, right[i]);
		assert_false(scene_judge(&s).wrong);
	}
	scene_put(&s, 3, 0, 0.5);
	assert_true(scene_judge(&s).wrong);
	scene_close(&s);
}

static void test_softmax_backward_by_hand(void **state)
{
	const struct make_shape shape = {1, {2}};
	const double y[] = {0.25, 0.75}, dy[] = {1, 0}, dx[] = {0.1875, -0.1875};
	const double logarithms[] = {log(0.25), log(0.75)}, log_dx[] = {1.5, -1.5};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct scene s;
		struct cases_case c =
			case_of(i ? reference_of("log_softmax_backward") : reference_of("softmax_backward"));
		make_input(&c, 0, KILN_F64, &shape);
		make_input(&c, 1, KILN_F64, &shape);
		make_output(&c, 2, KILN_F64, &shape);
		if (i)
			make_real(&c, "scale", 2);
		scene_open(&s, &c, 1);
		set(&s, 0, i ? logarithms : y);
		set(&s, 1, dy);
		scene_answer(&s);
		assert_answers(&s, 2, i ? log_dx : dx);
		scene_close(&s);
	}
}

/* A masked_softmax of f64 with a mask of this dtype and shape (none: NULL). */
static void masked(struct scene *s, const char *kind, const struct make_shape *shape,
				   kiln_dtype dtype, const struct make_shape *mask)
{
	struct cases_case c = case_of(reference_of("masked_softmax"));

	make_input(&c, 0, KILN_F64, shape);
	make_none(&c, 1);
	if (mask)
		make_input(&c, 1, dtype, mask);
	make_output(&c, 2, KILN_F64, shape);
	make_word(&c, "kind", kind);
	scene_open(s, &c, 1);
}

static void test_masked_by_hand(void **state)
{
	static const struct make_shape shape = {2, {3, 3}}, rows = {1, {3}}, columns = {1, {3}};
	static const double x[] = {0, 1000, 0, 5, 5, 5, NAN, 2, INFINITY};
	static const double flags[] = {0, 7, 0}, lengths[] = {1, -4, 2}, added[] = {0, -INFINITY, 0};
	static const double bools[] = {0.5, 0, 0.5, 0.5, 0, 0.5, NAN, 0, NAN};
	static const double kept[] = {0, 1, 0, 0, 1, 0, 0, 1, 0};
	static const double prefix[] = {1, 0, 0, 1. / 3, 1. / 3, 1. / 3, NAN, NAN, 0};
	static const double causal[] = {NAN, NAN, NAN, 1, 0, 0, NAN, NAN, 0};
	struct scene s;

	(void)state;
	for (int keep = 0; keep < 2; keep++) {
		masked(&s, "bool", &shape, KILN_U8, &columns);
		make_int(&s.c, "keep", keep);
		set(&s, 0, x);
		set(&s, 1, flags);
		scene_answer(&s);
		assert_answers(&s, 2, keep ? kept : bools);
		scene_close(&s);
	}
	masked(&s, "lengths", &shape, KILN_I32, &rows);
	make_word(&s.c, "empty", "uniform");
	set(&s, 0, x);
	set(&s, 1, lengths);
	scene_answer(&s);
	assert_answers(&s, 2, prefix);
	scene_close(&s);
	masked(&s, "causal", &shape, 0, NULL);
	make_int(&s.c, "diagonal", -1);
	make_word(&s.c, "empty", "nan");
	set(&s, 0, x);
	scene_answer(&s);
	assert_answers(&s, 2, causal);
	scene_close(&s);
	masked(&s, "additive", &shape, KILN_F16, &columns);
	set(&s, 0, x);
	set(&s, 1, added);
	scene_answer(&s);
	assert_answers(&s, 2, bools);
	scene_close(&s);
}

/* A mask's dimensions stand under x's last ones; those of size 1 are for all. */
static void test_mask_broadcast(void **state)
{
	static const struct make_shape shape = {3, {2, 2, 2}}, mask = {3, {2, 1, 2}}, low = {2, {2, 1}};
	static const double flags[] = {1, 0, 0, 1}, planes[] = {0, 1, 0, 1, 1, 0, 1, 0};
	static const double rows[] = {0, 1}, all[] = {0.5, 0.5, 0, 0, 0.5, 0.5, 0, 0};
	static const double x[8] = {0};
	struct scene s;

	(void)state;
	masked(&s, "bool", &shape, KILN_BOOL, &mask);
	set(&s, 0, x);
	set(&s, 1, flags);
	scene_answer(&s);
	assert_answers(&s, 2, planes);
	scene_close(&s);
	masked(&s, "bool", &shape, KILN_BOOL, &low);
	set(&s, 0, x);
	set(&s, 1, rows);
	scene_answer(&s);
	assert_answers(&s, 2, all);
	scene_close(&s);
}

static void test_norm_by_hand(void **state)
{
	static const struct make_shape shape = {1, {4}}, scalar = {0, {0}};
	static const double x[] = {1, 2, 3, 4}, gamma[] = {1, 1, 2, 2}, beta[] = {0, 1, 0, 1};
	static const double other[] = {0, -2, 0, -2}; /* with x: 1, 0, 3, 2 */
	const double r = 1 / sqrt(1.25), rms = 1 / sqrt(3.5);
	const double y[] = {-1.5 * r, -0.5 * r + 1, r, 3 * r + 1};
	const double root[] = {rms, 1, 6 * rms, 4 * rms + 1}, sum[] = {1, 0, 3, 2};
	const double mean[] = {2.5}, rstd[] = {r}, root_rstd[] = {rms};
	struct scene s;

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct cases_case c = case_of(i ? reference_of("rms_norm") : reference_of("layer_norm"));
		make_input(&c, 0, KILN_F64, &shape);
		make_input(&c, 1, KILN_F64, &shape);
		make_input(&c, 2, KILN_F64, &shape);
		make_none(&c, 3);
		if (i)
			make_input(&c, 3, KILN_F64, &shape);
		make_output(&c, 4, KILN_F64, &shape);
		make_output(&c, 5, KILN_F64, &scalar);
		make_output(&c, 6, KILN_F64, i ? &shape : &scalar);
		make_real(&c, "eps", 0);
		scene_open(&s, &c, 1);
		set(&s, 0, x);
		set(&s, 1, gamma);
		set(&s, 2, beta);
		if (i)
			set(&s, 3, other);
		scene_answer(&s);
		assert_answers(&s, 4, i ? root : y);
		assert_answers(&s, 5, i ? root_rstd : mean);
		assert_answers(&s, 6, i ? sum : rstd);
		scene_close(&s);
	}
}

static void test_norm_backward_by_hand(void **state)
{
	static const struct make_shape shape = {2, {2, 4}}, rows = {1, {2}}, columns = {1, {4}};
	static const double x[] = {-1, -1, 1, 1, 3, 3, 7, 7}, dy[] = {4, 0, 0, 0, 0, 0, 0, 2};
	static const double mean[] = {0, 5}, rstd[] = {1, 0.5}, none[] = {0};
	static const double dx[] = {2, -2, 0, 0, 0, 0, -0.5, 0.5};
	static const double dgamma[] = {-4, 0, 0, 2}, dbeta[] = {4, 0, 0, 2};

	(void)state;
	for (int i = 0; i < 2; i++) {
		/* The second time without rows, where sums are zeros. */
		const struct make_shape empty = {2, {0, 4}}, nothing = {1, {0}};
		struct cases_case c = case_of(reference_of("layer_norm_backward"));
		struct scene s;
		make_input(&c, 0, KILN_F64, i ? &empty : &shape);
		make_input(&c, 1, KILN_F64, i ? &empty : &shape);
		make_none(&c, 2);
		make_input(&c, 3, KILN_F64, i ? &nothing : &rows);
		make_input(&c, 4, KILN_F64, i ? &nothing : &rows);
		make_output(&c, 5, KILN_F64, i ? &empty : &shape);
		make_output(&c, 6, KILN_F64, &columns);
		make_output(&c, 7, KILN_F64, &columns);
		scene_open(&s, &c, 1);
		set(&s, 0, x);
		set(&s, 1, dy);
		set(&s, 3, i ? none : mean);
		set(&s, 4, rstd);
		for (int k = 0; k < 4; k++)
			s.answers[6][k] = s.answers[7][k] = NAN;
		scene_answer(&s);
		assert_answers(&s, 5, dx);
		assert_answers(&s, 6, i ? (const double[4]){0} : dgamma);
		assert_answers(&s, 7, i ? (const double[4]){0} : dbeta);
		scene_close(&s);
	}
}

/* ---- Central differences ---- */

/* sum(dy * y) of a forward scene: its gradient is what backward computes. */
static double loss(struct scene *forward, int y, const double *dy)
{
	long double all = 0;

	scene_answer(forward);
	for (int64_t i = 0; i < cases_elements(&forward->c.operand[y]); i++)
		all += (long double)dy[i] * forward->answers[y][i];
	return (double)all;
}

/* Compares an answer of backward with differences over an input of forward. */
static void assert_gradient(struct scene *forward, int input, int y, const double *dy,
							const struct scene *backward, int output)
{
	for (int64_t i = 0; i < cases_elements(&forward->c.operand[input]); i++) {
		double x = scene_get(forward, input, i), above, below, slope;
		scene_put(forward, input, i, x + STEP);
		above = loss(forward, y, dy);
		scene_put(forward, input, i, x - STEP);
		below = loss(forward, y, dy);
		scene_put(forward, input, i, x);
		slope = (above - below) / (2 * STEP);
		if (!(fabs(slope - backward->answers[output][i]) <= NEAR * fmax(1, fabs(slope))))
			fail_msg("%s: element %d of operand %d is %.12g, differences say %.12g",
					 backward->c.op->name, (int)i, output, backward->answers[output][i], slope);
	}
}

static void copy_attrs(struct cases_case *to, const struct cases_case *from)
{
	memcpy(to->attr, from->attr, sizeof(to->attr));
	to->attr_count = from->attr_count;
}

/* mask: the mask's place in forward, 0 for none; backward has it one further on. */
static void softmax_gradient(const struct cases_case *c, const struct cases_op *op, int mask)
{
	struct scene forward, backward;
	struct cases_case b = case_of(op);
	const struct cases_operand *x = &c->operand[0];
	struct make_shape shape = {.rank = x->rank};
	int y = c->operand_count - 1;

	memcpy(shape.size, x->shape, sizeof(shape.size));
	scene_open(&forward, c, 5);
	make_input(&b, 0, KILN_F64, &shape);
	make_input(&b, 1, KILN_F64, &shape);
	if (mask) {
		make_none(&b, 2);
		/* An additive mask has nothing but its place left. */
		if (!reference_is(c, "kind", "additive"))
			b.operand[2] = c->operand[1];
	}
	make_output(&b, y + 1, KILN_F64, &shape);
	copy_attrs(&b, c);
	scene_open(&backward, &b, 6);
	scene_answer(&forward);
	set(&backward, 0, forward.answers[y]);
	if (mask && backward.memory[2])
		memcpy(backward.memory[2], forward.memory[1], cases_bytes(&c->operand[1]));
	scene_answer(&backward);
	assert_gradient(&forward, 0, y, backward.memory[1], &backward, y + 1);
	scene_close(&forward);
	scene_close(&backward);
}

static void test_softmax_gradient(void **state)
{
	static const struct make_shape shape = {3, {3, 5, 4}};

	(void)state;
	for (int i = 0; i < 6; i++) {
		struct cases_case c =
			case_of(i % 2 ? reference_of("log_softmax") : reference_of("softmax"));
		make_input(&c, 0, KILN_F64, &shape);
		make_output(&c, 1, KILN_F64, &shape);
		if (i >= 2)
			make_int(&c, "axis", i / 2 - 1);
		if (i % 3)
			make_real(&c, "scale", i % 3 == 1 ? 1. / 3 : -1.7);
		softmax_gradient(
			&c, i % 2 ? reference_of("log_softmax_backward") : reference_of("softmax_backward"), 0);
	}
}

static void test_masked_gradient(void **state)
{
	static const struct make_shape shape = {3, {3, 5, 6}}, lengths = {2, {3, 1}};
	static const char *const kinds[] = {"bool", "lengths", "causal", "additive"};
	static const kiln_dtype dtypes[] = {KILN_BOOL, KILN_I32, 0, KILN_F32};
	static const enum cases_fill fills[] = {CASES_FLAGS, CASES_LENGTHS, 0, CASES_NORMAL};

	(void)state;
	for (int i = 0; i < 8; i++) {
		struct cases_case c = case_of(reference_of("masked_softmax"));
		int kind = i % 4;
		make_input(&c, 0, KILN_F64, &shape);
		make_none(&c, 1);
		if (kind != 2) {
			struct cases_operand *mask =
				make_input(&c, 1, dtypes[kind], kind == 1 ? &lengths : &shape);
			mask->fill = fills[kind];
			mask->most = 6;
		}
		make_output(&c, 2, KILN_F64, &shape);
		make_word(&c, "kind", kinds[kind]);
		if (i >= 4) {
			make_real(&c, "scale", 0.6);
			make_int(&c, kind == 2 ? "diagonal" : "keep", 1);
		}
		softmax_gradient(&c, reference_of("masked_softmax_backward"), 1);
	}
}

/* gamma: with or without. */
static void norm_gradient(bool rms, bool gamma, int axes)
{
	static const struct make_shape shape = {3, {4, 3, 5}};
	struct make_shape leading = {3 - axes, {4, 3}}, trailing = {axes, {3, 5}};
	struct cases_case c = case_of(rms ? reference_of("rms_norm") : reference_of("layer_norm"));
	struct cases_case b =
		case_of(rms ? reference_of("rms_norm_backward") : reference_of("layer_norm_backward"));
	struct scene forward, backward;
	int rstd = rms ? 3 : 4;

	if (axes == 1)
		trailing.size[0] = 5;
	make_input(&c, 0, KILN_F64, &shape)->mean = 0.5;
	c.operand[0].deviation = 1;
	/* With all of them one, gamma and beta change nothing but can be varied. */
	make_input(&c, 1, KILN_F64, &trailing);
	make_input(&c, 2, KILN_F64, &trailing);
	make_none(&c, 3);
	make_output(&c, 4, KILN_F64, &shape);
	make_output(&c, 5, KILN_F64, &leading);
	if (!rms)
		make_output(&c, 6, KILN_F64, &leading);
	make_int(&c, "axes", axes);
	make_input(&b, 0, KILN_F64, &shape);
	make_input(&b, 1, KILN_F64, &shape);
	make_none(&b, 2);
	if (gamma)
		make_input(&b, 2, KILN_F64, &trailing);
	for (int i = 3; i <= rstd; i++)
		make_input(&b, i, KILN_F64, &leading);
	make_output(&b, rstd + 1, KILN_F64, &shape);
	make_output(&b, rstd + 2, KILN_F64, &trailing);
	make_output(&b, rstd + 3, KILN_F64, &trailing);
	copy_attrs(&b, &c);
	make_real(&c, "eps", 0.01);
	scene_open(&forward, &c, 8);
	scene_open(&backward, &b, 9);
	for (int64_t i = 0; i < cases_elements(&c.operand[1]); i++)
		if (gamma)
			scene_put(&backward, 2, i, scene_get(&forward, 1, i));
		else
			scene_put(&forward, 1, i, 1);
	scene_answer(&forward);
	set(&backward, 0, forward.memory[0]);
	for (int i = 3; i <= rstd; i++)
		set(&backward, i, forward.answers[i + 2]);
	scene_answer(&backward);
	assert_gradient(&forward, 0, 4, backward.memory[1], &backward, rstd + 1);
	assert_gradient(&forward, 1, 4, backward.memory[1], &backward, rstd + 2);
	assert_gradient(&forward, 2, 4, backward.memory[1], &backward, rstd + 3);
	scene_close(&forward);
	scene_close(&backward);
}

static void test_norm_gradient(void **state)
{
	(void)state;
	for (int i = 0; i < 8; i++)
		norm_gradient(i & 1, i & 2, i & 4 ? 2 : 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_softmax_by_hand),  cmocka_unit_test(test_no_number),
		cmocka_unit_test(test_infinite_factor),  cmocka_unit_test(test_softmax_backward_by_hand),
		cmocka_unit_test(test_masked_by_hand),   cmocka_unit_test(test_mask_broadcast),
		cmocka_unit_test(test_norm_by_hand),     cmocka_unit_test(test_norm_backward_by_hand),
		cmocka_unit_test(test_softmax_gradient), cmocka_unit_test(test_masked_gradient),
		cmocka_unit_test(test_norm_gradient),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
