/*
 * kiln_reference_norm: layer_norm and rms_norm, and their gradients.
 *
 *   s = x + residual, over a row: mean (rms: 0), rstd = 1 / sqrt(mean of (s - mean)^2 + eps)
 *   n = (s - mean) * rstd, y = n * gamma + beta, sum = s
 *   backward, with n as above and g = dy * gamma:
 *   dx = rstd * (g - mean(g) - n * mean(g * n)); rms: without mean(g)
 *   dgamma = sum of dy * n over the rows, dbeta = sum of dy
 *
 * What is allowed, in f32 (f64 1e-12 each): y, rstd and mean 1e-5, and what an error of the mean,
 * of a few units of the row's magnitude, does to y and rstd; dx 1e-5 of its terms, which may
 * cancel; dgamma and dbeta 5e-6 of the root of the sum of squares of their terms, which is
 * sqrt(rows) for terms about 1, and of the result; sum one rounding.  An ulp for f16 and bf16.
 */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct norm {
	int64_t rows, columns;
	bool rms;
	/* Places of operands; below 0 are left out. */
	int gamma, beta, residual, y, mean, rstd, sum;
	int dx, dgamma, dbeta;
	double eps;
	kiln_dtype dtype;
	double relative; /* 1e-5, or what f64 has */
};

static void norm_make(const struct check *check, struct norm *norm)
{
	const kiln_tensor *x = &check->operands[0].tensor;
	int split = x->rank - (int)cli_problem_int(check->problem, "axes", 1);

	*norm = (struct norm){
		.rows = check_product(x, 0, split),
		.columns = check_product(x, split, x->rank),
		.rms = !strncmp(check->problem->op, "rms", 3),
		.gamma = check_find(check, "gamma"),
		.beta = check_find(check, "beta"),
		.residual = check_find(check, "residual"),
		.y = check_find(check, "y"),
		.mean = check_find(check, "mean"),
		.rstd = check_find(check, "rstd"),
		.sum = check_find(check, "sum"),
		.dx = check_find(check, "dx"),
		.dgamma = check_find(check, "dgamma"),
		.dbeta = check_find(check, "dbeta"),
		.eps = cli_problem_real(check->problem, "eps", 1e-5),
		.dtype = x->dtype,
		.relative = check_relative(x->dtype, 1e-5),
	};
}

/* ---- Forward ---- */

/* One row of s, and what was found of it. */
struct row {
	double *s;
	double mean, rstd, magnitude; /* the mean of |s| */
	double mean_error;            /* absolute */
	double rstd_error;            /* relative */
};

static void measure(const struct check *check, const struct norm *norm, int64_t begin,
					struct row *row)
{
	double unit = check_unit(norm->dtype), count = (double)norm->columns;
	long double sum = 0, magnitude = 0, squares = 0;

	for (int64_t k = 0; k < norm->columns; k++) {
		row->s[k] = check_get(check, 0, begin + k);
		if (norm->residual >= 0)
			row->s[k] += check_get(check, norm->residual, begin + k);
		sum += row->s[k];
		magnitude += fabs(row->s[k]);
	}
	row->mean = norm->rms ? 0 : (double)(sum / count);
	for (int64_t k = 0; k < norm->columns; k++) {
		long double away = row->s[k] - row->mean;
		squares += away * away;
	}
	row->rstd = 1 / sqrt((double)(squares / count) + norm->eps);
	row->magnitude = (double)(magnitude / count);
	row->mean_error = norm->rms ? 0 : (norm->columns > 4096 ? 32 : 16) * unit * row->magnitude;
	row->rstd_error = norm->relative + pow(row->mean_error * row->rstd, 2) +
					  (norm->residual < 0 ? 0 : unit * row->magnitude * row->rstd);
}

static void check_row(struct check *check, const struct norm *norm, int64_t number,
					  const struct row *row)
{
	int64_t begin = number * norm->columns;
	double unit = check_unit(norm->dtype);

	for (int64_t k = 0; k < norm->columns && !check->wrong; k++) {
		double gamma = norm->gamma < 0 ? 1 : check_get(check, norm->gamma, k);
		double beta = norm->beta < 0 ? 0 : check_get(check, norm->beta, k);
		double n = (row->s[k] - row->mean) * row->rstd, value = n * gamma + beta;
		double rounded = norm->residual < 0 ? 0 : unit * fabs(row->s[k]);
		double allowed =
			fabs(gamma) * (fabs(n) * row->rstd_error + row->rstd * (row->mean_error + rounded)) +
			norm->relative * fabs(beta) + check_rounding(norm->dtype, norm->dtype, value);
		check_value(check, norm->y, begin + k, value, allowed + check_least(norm->dtype));
		if (norm->sum >= 0)
			check_value(check, norm->sum, begin + k, row->s[k],
						check_rounding(norm->dtype, norm->dtype, row->s[k]) +
							2 * unit * fabs(row->s[k]));
	}
	if (norm->mean >= 0)
		check_value(check, norm->mean, number, row->mean, norm->relative * row->magnitude);
	if (norm->rstd >= 0)
		check_value(check, norm->rstd, number, row->rstd, row->rstd * row->rstd_error);
}

void reference_norm(struct check *check)
{
	struct norm norm;
	struct row row = {0};

	norm_make(check, &norm);
	row.s = check_memory(check, norm.columns, sizeof(*row.s));
	for (int64_t i = 0; row.s && i < norm.rows && !check->wrong; i++) {
		measure(check, &norm, i * norm.columns, &row);
		check_row(check, &norm, i, &row);
	}
	free(row.s);
}

/* ---- Backward ---- */

/* The sums over the rows, and of their squares: room for all columns each. */
struct sums {
	long double *dgamma, *dgamma_squares, *dbeta, *dbeta_squares;
};

static void check_dx(struct check *check, const struct norm *norm, int64_t begin, double rstd,
					 const double *g, const double *n)
{
	double count = (double)norm->columns;
	long double sum = 0, product = 0, sum_terms = 0, product_terms = 0;

	for (int64_t k = 0; k < norm->columns; k++) {
		sum += norm->rms ? 0 : g[k];
		sum_terms += norm->rms ? 0 : fabs(g[k]);
		product += (long double)g[k] * n[k];
		product_terms += fabs(g[k] * n[k]);
	}
	for (int64_t k = 0; k < norm->columns && !check->wrong; k++) {
		double value = (double)(rstd * (g[k] - sum / count - n[k] * (product / count)));
		double terms =
			(double)(fabs(g[k]) + sum_terms / count + fabs(n[k]) * (product_terms / count));
		check_value(check, norm->dx, begin + k, value,
					norm->relative * fabs(rstd) * terms +
						check_rounding(norm->dtype, norm->dtype, value) + check_least(norm->dtype));
	}
}

static void check_gradients(struct check *check, const struct norm *norm, struct sums *sums,
							double *g, double *n)
{
	for (int64_t i = 0; i < norm->rows && !check->wrong; i++) {
		int64_t begin = i * norm->columns;
		double mean = norm->rms ? 0 : check_get(check, norm->mean, i);
		double rstd = check_get(check, norm->rstd, i);
		for (int64_t k = 0; k < norm->columns; k++) {
			double dy = check_get(check, 1, begin + k);
			long double term;
			n[k] = (check_get(check, 0, begin + k) - mean) * rstd;
			g[k] = dy * (norm->gamma < 0 ? 1 : check_get(check, norm->gamma, k));
			term = (long double)dy * n[k];
			sums->dgamma[k] += term;
			sums->dgamma_squares[k] += term * term;
			sums->dbeta[k] += dy;
			sums->dbeta_squares[k] += (long double)dy * dy;
		}
		if (norm->dx >= 0)
			check_dx(check, norm, begin, rstd, g, n);
	}
}

static void check_sums(struct check *check, const struct norm *norm, int operand,
					   const long double *sum, const long double *squares)
{
	kiln_dtype dtype = check->operands[operand].tensor.dtype;
	double relative = check_relative(norm->dtype, 5e-6);

	for (int64_t k = 0; k < norm->columns; k++) {
		double value = (double)sum[k];
		check_value(check, operand, k, value,
					relative * ((double)sqrtl(squares[k]) + fabs(value)) +
						check_rounding(norm->dtype, dtype, value));
	}
}

void reference_norm_backward(struct check *check)
{
	struct norm norm;
	struct sums sums;
	long double *four;
	double *two;

	norm_make(check, &norm);
	two = check_memory(check, 2 * norm.columns, sizeof(*two));
	four = check_memory(check, 4 * norm.columns, sizeof(*four));
	if (two && four) {
		sums = (struct sums){four, four + norm.columns, four + 2 * norm.columns,
							 four + 3 * norm.columns};
		check_gradients(check, &norm, &sums, two, two + norm.columns);
		if (norm.dgamma >= 0)
			check_sums(check, &norm, norm.dgamma, sums.dgamma, sums.dgamma_squares);
		if (norm.dbeta >= 0)
			check_sums(check, &norm, norm.dbeta, sums.dbeta, sums.dbeta_squares);
	}
	free(two);
	free(four);
}
