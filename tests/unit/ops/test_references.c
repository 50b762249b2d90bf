/*
 * test_references: the judges of the float operators.  Results that textbook loops compute, in f32
 * where an operator computes in f32, are right; the same with one element off, or with a NaN too
 * many or too few, are wrong, and the element is named.
 */
#include "reference_scene.h"

#include <math.h>

#define MOST_ELEMENTS 20000
#define MOST_COLUMNS 1100
#define MOST_JACOBIAN 130 /* columns: a row costs their square */

static bool in_f64;

/* The computing type's rounding. */
static double f(double value)
{
	return in_f64 ? value : (double)(float)value;
}

/* Pairwise, as textbooks have it. */
static double sum(const double *values, int64_t count)
{
	if (count < 2)
		return count ? values[0] : 0;
	return f(sum(values, count / 2) + sum(values + count / 2, count - count / 2));
}

/* ---- Textbook loops over a contiguous matrix ---- */

/* z: the row; live: which of it counts. */
static void naive_softmax(const double *z, const bool *live, int64_t n, bool logarithm, double *y)
{
	double terms[MOST_COLUMNS] = {0}, most = -INFINITY, total;

	for (int64_t k = 0; k < n; k++)
		if (live[k] && !(z[k] <= most))
			most = isnan(most) ? most : z[k];
	for (int64_t k = 0; k < n; k++)
		terms[k] = live[k] ? f(exp(f(z[k] - most))) : 0;
	total = sum(terms, n);
	for (int64_t k = 0; k < n; k++)
		y[k] = logarithm ? f(f(z[k] - most) - f(log(total))) : f(terms[k] / total);
	for (int64_t k = 0; k < n; k++)
		y[k] = live[k] ? y[k] : 0;
}

/* dx = J^T dy with J = scale * (diag(y) - y y^T); the logarithm's J = scale * (1 - 1 exp(y)^T). */
static void naive_softmax_backward(const double *y, const double *dy, const bool *live, int64_t n,
								   double scale, bool logarithm, double *dx)
{
	for (int64_t j = 0; j < n; j++) {
		long double all = 0;
		for (int64_t i = 0; i < n; i++) {
			if (!live[i] || !live[j])
				continue;
			if (logarithm)
				all += dy[i] * ((i == j) - (long double)exp(y[j]));
			else
				all += dy[i] * (long double)y[i] * ((i == j) - (long double)y[j]);
		}
		dx[j] = (double)(scale * all);
	}
}

/* Finds which elements of a row are left, for masks of x's own shape (lengths: one a row). */
static void naive_mask(const struct scene *s, int mask, int64_t row, int64_t n, bool *live)
{
	const struct cases_operand *x = &s->c.operand[0];

	for (int64_t k = 0; k < n; k++) {
		live[k] = true;
		if (reference_is(&s->c, "kind", "bool"))
			live[k] = !scene_get(s, mask, row * n + k) != (reference_int(&s->c, "keep", 0) == 1);
		else if (reference_is(&s->c, "kind", "lengths"))
			live[k] = scene_get(s, mask, row) > (double)k;
		else if (reference_is(&s->c, "kind", "causal"))
			live[k] = k - row % x->shape[0] <= reference_int(&s->c, "diagonal", 0);
		else if (s->memory[mask])
			live[k] = !(scene_get(s, mask, row * n + k) <= -INFINITY);
	}
}

static void softmax_row(struct scene *s, int64_t row, int64_t n)
{
	const struct cases_op *op = s->c.op;
	bool masked =
		op == reference_of("masked_softmax") || op == reference_of("masked_softmax_backward");
	bool back = op == reference_of("masked_softmax_backward") ||
				op == reference_of("softmax_backward") ||
				op == reference_of("log_softmax_backward");
	bool logarithm =
		op == reference_of("log_softmax") || op == reference_of("log_softmax_backward");
	bool live[MOST_COLUMNS], additive = reference_is(&s->c, "kind", "additive"), any = false;
	double a[MOST_COLUMNS], b[MOST_COLUMNS], out[MOST_COLUMNS];
	double scale = reference_real(&s->c, "scale", 1);

	for (int64_t k = 0; k < n; k++) {
		live[k] = true;
		a[k] = scene_get(s, 0, row * n + k);
		b[k] = back ? scene_get(s, 1, row * n + k) : 0;
	}
	if (masked)
		naive_mask(s, back ? 2 : 1, row, n, live);
	for (int64_t k = 0; k < n && !back; k++) {
		a[k] = f(f(scale) * a[k] + (additive ? scene_get(s, 1, row * n + k) : 0));
		any = any || live[k];
	}
	if (back)
		naive_softmax_backward(a, b, live, n, scale, logarithm, out);
	else
		naive_softmax(a, live, n, logarithm, out);
	for (int64_t k = 0; k < n && !back && !any; k++)
		out[k] = reference_is(&s->c, "empty", "nan")       ? NAN
				 : reference_is(&s->c, "empty", "uniform") ? 1. / (double)n
														   : 0;
	for (int64_t k = 0; k < n; k++)
		scene_put(s, s->c.operand_count - 1, row * n + k, out[k]);
}

static void norm_row(struct scene *s, int64_t row, int64_t n)
{
	bool rms = s->c.op == reference_of("rms_norm");
	int rstd_at = rms ? 5 : 6, sum_at = rms ? 6 : 7;
	double x[MOST_COLUMNS], squares[MOST_COLUMNS], mean = 0, rstd;

	for (int64_t k = 0; k < n; k++) {
		double whole = scene_get(s, 0, row * n + k);
		if (s->memory[3])
			whole += scene_get(s, 3, row * n + k);
		if (s->memory[sum_at])
			scene_put(s, sum_at, row * n + k, whole);
		x[k] = f(whole);
	}
	if (!rms)
		mean = f(sum(x, n) / (double)n);
	for (int64_t k = 0; k < n; k++)
		squares[k] = f(f(x[k] - mean) * f(x[k] - mean));
	rstd = f(1 / f(sqrt(f(f(sum(squares, n) / (double)n) + reference_real(&s->c, "eps", 1e-5)))));
	for (int64_t k = 0; k < n; k++) {
		double y = f(f(x[k] - mean) * rstd);
		if (s->memory[1])
			y = f(y * scene_get(s, 1, k));
		if (s->memory[2])
			y = f(y + scene_get(s, 2, k));
		scene_put(s, 4, row * n + k, y);
	}
	if (!rms && s->memory[5])
		scene_put(s, 5, row, mean);
	if (s->memory[rstd_at])
		scene_put(s, rstd_at, row, rstd);
}

/* dx = J^T g with J[i][j] = rstd * ((i == j) - 1 / n - xhat_i * xhat_j / n); rms: no 1 / n. */
static void norm_backward_row(struct scene *s, int64_t row, int64_t n)
{
	bool rms = s->c.op == reference_of("rms_norm_backward");
	int dx = rms ? 4 : 5;
	double g[MOST_COLUMNS], xhat[MOST_COLUMNS], rstd = scene_get(s, rms ? 3 : 4, row);
	double mean = rms ? 0 : scene_get(s, 3, row);

	for (int64_t k = 0; k < n; k++) {
		xhat[k] = (scene_get(s, 0, row * n + k) - mean) * rstd;
		g[k] = scene_get(s, 1, row * n + k) * (s->memory[2] ? scene_get(s, 2, k) : 1);
	}
	for (int64_t j = 0; j < n && s->memory[dx]; j++) {
		long double all = 0, one = 1;
		for (int64_t i = 0; i < n; i++)
			all += g[i] * ((i == j) - (rms ? 0 : one / n) - xhat[i] * (long double)xhat[j] / n);
		scene_put(s, dx, row * n + j, (double)(rstd * all));
	}
}

static void norm_backward_columns(struct scene *s, int64_t rows, int64_t n)
{
	bool rms = s->c.op == reference_of("rms_norm_backward");
	int dgamma = rms ? 5 : 6, dbeta = dgamma + 1;
	double *terms = reference_memory(2 * rows, sizeof(*terms)), *dy = terms + rows;

	for (int64_t k = 0; k < n; k++) {
		for (int64_t row = 0; row < rows; row++) {
			double x = scene_get(s, 0, row * n + k) - (rms ? 0 : scene_get(s, 3, row));
			dy[row] = scene_get(s, 1, row * n + k);
			terms[row] = f(dy[row] * f(f(x) * scene_get(s, rms ? 3 : 4, row)));
		}
		if (s->memory[dgamma])
			scene_put(s, dgamma, k, sum(terms, rows));
		if (dbeta < s->c.operand_count && s->memory[dbeta])
			scene_put(s, dbeta, k, sum(dy, rows));
	}
	free(terms);
}

static bool is_norm(const struct cases_op *op)
{
	return op == reference_of("layer_norm") || op == reference_of("rms_norm");
}

static bool is_norm_backward(const struct cases_op *op)
{
	return op == reference_of("layer_norm_backward") || op == reference_of("rms_norm_backward");
}

static void naive(struct scene *s)
{
	int64_t rows = s->c.operand[0].shape[0], n = s->c.operand[0].shape[1];

	in_f64 = s->c.operand[0].dtype == KILN_F64;
	for (int64_t row = 0; row < rows; row++)
		if (is_norm(s->c.op))
			norm_row(s, row, n);
		else if (is_norm_backward(s->c.op))
			norm_backward_row(s, row, n);
		else
			softmax_row(s, row, n);
	if (is_norm_backward(s->c.op))
		norm_backward_columns(s, rows, n);
}

/* ---- Which cases ---- */

static bool is_backward(const struct cases_op *op)
{
	return strstr(op->name, "backward") != NULL;
}

static const char *const judged[] = {
	"softmax",
	"log_softmax",
	"softmax_backward",
	"log_softmax_backward",
	"masked_softmax",
	"masked_softmax_backward",
	"layer_norm",
	"rms_norm",
	"layer_norm_backward",
	"rms_norm_backward",
};

static bool is_judged(const struct cases_op *op)
{
	for (int k = 0; k < MAKE_COUNT(judged); k++)
		if (strcmp(op->name, judged[k]) == 0)
			return true;
	return false;
}

/* The loops above are for small contiguous matrices whose rows are the last dimension, with masks
 * that are not broadcast.  They compute in the type of the rows, in which huge scales overflow. */
static bool fits(const struct cases_case *c)
{
	const struct cases_operand *x = &c->operand[0];
	bool unusual = false;

	if (!is_judged(c->op) || x->rank != 2 || cases_elements(x) == 0 ||
		cases_elements(x) > MOST_ELEMENTS || reference_int(c, "axis", -1) % 2 == 0 ||
		reference_int(c, "axes", 1) != 1 || fabs(reference_real(c, "scale", 1)) > 1e30)
		return false;
	for (int i = 0; i < c->operand_count; i++) {
		const struct cases_operand *operand = &c->operand[i];
		if (operand->dtype == KILN_DTYPE_NONE)
			continue;
		unusual = unusual || operand->fill == CASES_UNUSUAL;
		if (!operand->contiguous || (operand->fill == CASES_FLAGS && operand->rank != 2))
			return false;
		for (int k = 0; k < operand->rank; k++)
			if (operand->shape[k] !=
				x->shape[operand->rank == 1 && operand->shape[0] != x->shape[0] ? 1 : k])
				return false;
	}
	/* A Jacobian has terms of no number where the formula has none. */
	return x->shape[1] <= (is_backward(c->op) ? MOST_JACOBIAN : MOST_COLUMNS) &&
		   !(unusual && is_backward(c->op));
}

/* A number of the case's own: it stays what it is when the list gets another case. */
static uint64_t number_of(const struct cases_case *c)
{
	uint64_t number = UINT64_C(0xcbf29ce484222325);

	for (const char *at = c->name; *at; at++)
		number = (number ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
	return number >> 8;
}

static void test_textbook(void **state)
{
	int count, looked_at[MAKE_COUNT(judged)] = {0};
	const struct cases_case *all = cases_all(&count);

	(void)state;
	for (int i = 0; i < count; i++) {
		struct scene scene;
		struct cases_verdict verdict;
		if (!fits(&all[i]))
			continue;
		for (int k = 0; k < MAKE_COUNT(judged); k++)
			looked_at[k] += strcmp(all[i].op->name, judged[k]) == 0;
		scene_open(&scene, &all[i], number_of(&all[i]));
		naive(&scene);
		verdict = scene_judge(&scene);
		if (verdict.wrong)
			fail_msg("%s: operand %d element %lld: %.9g, expected %.9g +- %.3g", all[i].name,
					 verdict.operand, (long long)verdict.element, verdict.got, verdict.expected,
					 verdict.allowed);
		scene_close(&scene);
	}
	for (int k = 0; k < MAKE_COUNT(judged); k++)
		assert_in_range(looked_at[k], 5, 1000);
}

/* ---- One element wrong ---- */

static void assert_named(struct scene *scene, int operand, int64_t element, const char *what)
{
	struct cases_verdict verdict = scene_judge(scene);

	if (!verdict.wrong || verdict.operand != operand || verdict.element != element)
		fail_msg("%s: %s at element %lld of operand %d is not noticed", scene->c.name, what,
				 (long long)element, operand);
}

/* Each byte counts, whatever number it is part of.  An integer may be the next where a float was
 * rounded to it, so a lowest bit is no error of its own there. */
static void spoil_bytes(struct scene *scene, int operand, int64_t element)
{
	uint32_t bytes = cases_element(&scene->c.operand[operand]);
	unsigned char *at = (unsigned char *)scene->memory[operand] + element * bytes;
	unsigned char bit = scene->exact[operand][element] ? 1 : 4;

	for (uint32_t i = 0; i < bytes; i++) {
		at[i] ^= bit;
		assert_named(scene, operand, element, "another bit");
		at[i] ^= bit;
	}
}

static void spoil(struct scene *scene, int operand, int64_t element)
{
	double good = scene_get(scene, operand, element), expected = scene->answers[operand][element];
	kiln_dtype dtype = scene->c.operand[operand].dtype;
	double allowed;

	if (isnan(expected)) {
		scene_put(scene, operand, element, 0.5);
		assert_named(scene, operand, element, "a number where there is none");
	} else {
		scene_put(scene, operand, element, NAN);
		assert_named(scene, operand, element, "a NaN");
		allowed = scene_judge(scene).allowed;
		/* Where a result is exact, the next number is too much. */
		allowed = fmax(3 * allowed, reference_ulp(dtype, expected));
		scene_put(scene, operand, element, expected + allowed);
		assert_named(scene, operand, element, "too much");
		scene_put(scene, operand, element, expected - allowed);
		assert_named(scene, operand, element, "too little");
		/* 0.3: means far from 0; ulps: floats of 8 bits have few numbers, and three times the next
		 * but one is allowed; their range: the scale of what is quantized. */
		const double range = dtype == KILN_F8E5M2 ? 57344 : dtype == KILN_F8E4M3 ? 448 : 0;
		if (dtype != KILN_F64 && isfinite(expected) &&
			allowed >=
				0.05 * fabs(expected) + 0.3 + 6 * reference_ulp(dtype, expected) + 1e-5 * range)
			fail_msg("%s: operand %d element %lld: %.9g +- %.3g allows too much", scene->c.name,
					 operand, (long long)element, expected, allowed / 3);
	}
	scene_put(scene, operand, element, good);
	assert_false(scene_judge(scene).wrong);
}

/* A sum of thousands of elements may be right and as far off as one that test_spoiled() spoils. */
static bool is_small(const struct cases_case *c)
{
	for (int i = 0; i < c->operand_count; i++)
		if (cases_elements(&c->operand[i]) > 5000)
			return false;
	return true;
}

/* The reference's own answers, rounded, are right; each output's elements are looked at. */
static void test_spoiled(void **state)
{
	int count, spoiled = 0;
	const struct cases_case *all = cases_all(&count);

	(void)state;
	for (int i = 0; i < count; i++) {
		struct scene scene;
		const struct cases_case *c = &all[i];
		if (number_of(c) % 3 || !is_small(c))
			continue;
		scene_open(&scene, c, number_of(c));
		scene_write(&scene);
		assert_false(scene_judge(&scene).wrong);
		for (int o = 0; o < c->operand_count; o++) {
			int64_t elements = cases_elements(&c->operand[o]);
			/* A mean that is no finite number may be any such. */
			for (int n = 0; n < 4 && scene.answers[o] && elements; n++) {
				int64_t number = n == 3 ? elements - 1 : elements * n / 3;
				int64_t element = cases_offset(&c->operand[o], number);
				if (isinf(scene.answers[o][element]) || isinf(scene_get(&scene, o, element)))
					continue;
				if (scene.exact[o][element] || !cases_is_float(c->operand[o].dtype))
					spoil_bytes(&scene, o, element);
				else
					spoil(&scene, o, element);
				spoiled++;
			}
		}
		scene_close(&scene);
	}
	assert_true(spoiled > 500);
}

/* Random members of the list are valid for their references, and judged element by element. */
static void test_random(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 400; i++) {
		struct scene scene;
		struct cases_case c;
		cases_random(20261121, i, &c);
		scene_open(&scene, &c, i);
		scene_write(&scene);
		if (scene_judge(&scene).wrong)
			fail_msg("%s: the answers themselves are found wrong", c.name);
		scene_close(&scene);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_textbook),
		cmocka_unit_test(test_spoiled),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
