/*
 * kiln_reference_softmax: softmax, log_softmax and masked_softmax, and their gradients.
 *
 *   z = scale * x, over the elements of a row that are kept:
 *   softmax               y = exp(z - most) / sum exp(z - most); 0 at what is masked
 *   log_softmax           y = z - most - log(sum exp(z - most))
 *   softmax_backward      dx = scale * y * (dy - sum(dy * y)); 0 at what is masked
 *   log_softmax_backward  dx = scale * (dy - exp(y) * sum(dy))
 *
 * What is allowed: 2e-6 of a result (above 4096 columns 1e-5; f64 1e-12) and what rounding the
 * argument of exp costs; of a gradient 1e-5 of its terms, which may cancel; an ulp for f16, bf16.
 */
#include "problem.h"
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The rows of a problem: one every inner elements, in blocks of inner rows. */
struct rows {
	int64_t count, columns, inner;
	double scale;
	bool logarithm;
	bool additive; /* of backward no mask is: y has it in it */
	/* Of the row that is looked at: */
	bool *kept;
	double *added; /* to scale * x */
	int64_t keeps;
};

/* The first element of a row, in row-major order; its elements lie inner apart. */
static int64_t row_begin(const struct rows *rows, int64_t row)
{
	return row / rows->inner * rows->inner * rows->columns + row % rows->inner;
}

static bool rows_make(struct check *check, struct rows *rows)
{
	const kiln_tensor *first = &check->operands[0].tensor;
	int64_t axis = cli_problem_int(check->problem, "axis", -1);
	int at = (int)(axis < 0 ? axis + first->rank : axis);

	rows->columns = first->shape[at];
	rows->inner = check_product(first, at + 1, first->rank);
	rows->count = check_product(first, 0, at) * rows->inner;
	rows->scale = cli_problem_real(check->problem, "scale", 1);
	rows->logarithm = !strncmp(check->problem->op, "log_", 4);
	rows->additive = check_find(check, "x") == 0 &&
					 !strcmp(cli_problem_text(check->problem, "kind", ""), "additive");
	rows->kept = check_memory(check, rows->columns, sizeof(*rows->kept));
	rows->added = check_memory(check, rows->columns, sizeof(*rows->added));
	return !check->no_memory;
}

static void rows_free(struct rows *rows)
{
	free(rows->kept);
	free(rows->added);
}

/* ---- Masks ---- */

/* Which element of the mask is for a row of x (its last axis left out): shapes are aligned at the
 * end, and a size of 1 is for all. */
static int64_t mask_place(const kiln_tensor *x, const kiln_tensor *mask, int mask_rank, int64_t row)
{
	int64_t place = 0, step = 1;

	for (int k = x->rank - 2, m = mask_rank - 1; m >= 0; k--, m--) {
		if (mask->shape[m] != 1)
			place += row % x->shape[k] * step;
		step *= mask->shape[m];
		row /= x->shape[k];
	}
	return place;
}

static void look_at_mask(const struct check *check, struct rows *rows, int64_t row)
{
	const struct cli_problem *problem = check->problem;
	const kiln_tensor *x = &check->operands[0].tensor;
	const char *kind = cli_problem_text(problem, "kind", "");
	bool keep = cli_problem_int(problem, "keep", 0) != 0;
	int64_t diagonal = cli_problem_int(problem, "diagonal", 0);
	int64_t query = x->rank > 1 ? row % x->shape[x->rank - 2] : 0;
	int mask = check_find(check, "mask"), dims = 0;
	int64_t begin = 0, last = 1;
	double length = 0;

	if (mask >= 0)
		dims = check->operands[mask].tensor.rank;
	if (!strcmp(kind, "lengths")) {
		length = check_get(check, mask, mask_place(x, &check->operands[mask].tensor, dims, row));
	} else if (dims > 0) {
		last = check->operands[mask].tensor.shape[dims - 1];
		begin = mask_place(x, &check->operands[mask].tensor, dims - 1, row) * last;
	}
	rows->keeps = 0;
	for (int64_t k = 0; k < rows->columns; k++) {
		rows->kept[k] = true;
		if (!strcmp(kind, "bool"))
			rows->kept[k] = (check_get(check, mask, begin + (last == 1 ? 0 : k)) != 0) == keep;
		else if (!strcmp(kind, "lengths"))
			rows->kept[k] = (double)k < length;
		else if (!strcmp(kind, "causal"))
			rows->kept[k] = k - diagonal <= query;
		else if (rows->additive) {
			rows->added[k] = check_get(check, mask, begin + (last == 1 ? 0 : k));
			rows->kept[k] = !isinf(rows->added[k]);
		}
		rows->keeps += rows->kept[k];
	}
}

/* ---- Forward ---- */

/* A row in which nothing is kept. */
static void check_empty(struct check *check, const struct rows *rows, int y, int64_t begin)
{
	const char *empty = cli_problem_text(check->problem, "empty", "zero");
	kiln_dtype dtype = check->operands[y].tensor.dtype;
	double value = !strcmp(empty, "nan")       ? (double)NAN
				   : !strcmp(empty, "uniform") ? 1 / (double)rows->columns
											   : 0;
	double allowed =
		value > 0 ? check_relative(dtype, 2e-6) * value + check_rounding(dtype, dtype, value) : 0;

	for (int64_t k = 0; k < rows->columns; k++)
		check_value(check, y, begin + k * rows->inner, value, allowed);
}

static void check_row(struct check *check, const struct rows *rows, int y, int64_t begin, double *z)
{
	kiln_dtype dtype = check->operands[y].tensor.dtype;
	double most = -(double)INFINITY, unit = check_unit(dtype);
	double relative = check_relative(dtype, rows->columns > 4096 ? 1e-5 : 2e-6);
	long double sum = 0;

	for (int64_t k = 0; k < rows->columns; k++) {
		z[k] = rows->scale * check_get(check, 0, begin + k * rows->inner) + rows->added[k];
		if (rows->kept[k])
			most = fmax(most, z[k]);
	}
	for (int64_t k = 0; k < rows->columns; k++)
		sum += rows->kept[k] ? exp(z[k] - most) : 0;
	for (int64_t k = 0; k < rows->columns && !check->wrong; k++) {
		double value = 0, allowed = 0;
		if (rows->kept[k] && rows->logarithm) {
			value = (double)(z[k] - most - logl(sum));
			allowed = relative * fmax(fabs(value), 1) + check_rounding(dtype, dtype, value);
		} else if (rows->kept[k]) {
			value = (double)(exp(z[k] - most) / sum);
			/* The argument is rounded up to three times, a sum as its terms are. */
			allowed = 3 * fabs(z[k] - most);
			if (rows->additive)
				allowed += 2 * (fabs(rows->added[k]) + fabs(z[k] - rows->added[k]) + fabs(most));
			allowed = value * (relative + unit * allowed) + check_rounding(dtype, dtype, value) +
					  check_least(dtype);
		}
		check_value(check, y, begin + k * rows->inner, value, allowed);
	}
}

void reference_softmax(struct check *check)
{
	struct rows rows = {0};
	int y = check_find(check, "y");
	double *z = NULL;

	if (rows_make(check, &rows))
		z = check_memory(check, rows.columns, sizeof(*z));
	for (int64_t row = 0; z && row < rows.count && !check->wrong; row++) {
		look_at_mask(check, &rows, row);
		if (rows.keeps)
			check_row(check, &rows, y, row_begin(&rows, row), z);
		else
			check_empty(check, &rows, y, row_begin(&rows, row));
	}
	free(z);
	rows_free(&rows);
}

/* ---- Backward ---- */

static void check_gradient(struct check *check, const struct rows *rows, int dx, int64_t begin)
{
	kiln_dtype dtype = check->operands[dx].tensor.dtype;
	double relative = check_relative(dtype, 1e-5), unit = check_unit(dtype);
	long double sum = 0, terms = 0;

	for (int64_t k = 0; k < rows->columns; k++) {
		double y = check_get(check, 0, begin + k * rows->inner);
		double dy = check_get(check, 1, begin + k * rows->inner);
		double term = rows->logarithm ? dy : dy * y;
		if (!rows->kept[k])
			continue;
		sum += term;
		terms += fabs(term);
	}
	for (int64_t k = 0; k < rows->columns; k++) {
		double y = check_get(check, 0, begin + k * rows->inner);
		double dy = check_get(check, 1, begin + k * rows->inner);
		double factor = rows->logarithm ? exp(y) : y, value = 0, allowed = 0;
		if (rows->kept[k]) {
			value = rows->logarithm ? (double)(rows->scale * (dy - factor * sum))
									: (double)(rows->scale * factor * (dy - sum));
			allowed = (rows->logarithm ? fabs(dy) : fabs(factor * dy)) * relative +
					  fabs(factor) * (double)terms *
						  (relative + (rows->logarithm ? 2 * unit * fabs(y) : 0));
			allowed = allowed * fabs(rows->scale) + check_rounding(dtype, dtype, value) +
					  check_least(dtype);
		}
		check_value(check, dx, begin + k * rows->inner, value, allowed);
	}
}

void reference_softmax_backward(struct check *check)
{
	struct rows rows = {0};
	int dx = check_find(check, "dx");
	bool made = rows_make(check, &rows);

	for (int64_t row = 0; made && row < rows.count && !check->wrong; row++) {
		look_at_mask(check, &rows, row);
		check_gradient(check, &rows, dx, row_begin(&rows, row));
	}
	rows_free(&rows);
}
