/*
 * cases_masked_reference.c: the reference of masked_softmax, softmax over the elements of a row
 * that are not masked, and of its backward.
 *
 *   y = 0 where masked, else the softmax of scale * x over the others; whatever a masked element
 *   holds is not looked at.  A row with nothing left: zeros, NaN or 1 / columns everywhere, by the
 *   attribute `empty`.  dx = scale * y * (dy - sum(dy * y)), the sum over the others; 0 where
 *   masked.
 *
 * What is masked, by kind: bool: where the mask is not 0 (keep 1: where it is 0).  lengths: columns
 * from the length on.  causal: columns beyond query + diagonal.  additive: the mask is added to
 * scale * x, and -inf masks, as nothing can be added that would bring the element back; backward
 * knows no additive mask and looks at y and dy everywhere.
 *
 * Errors are softmax's; masked elements are exactly 0.
 */
#include "cases_reference.h"

#include <math.h>
#include <stdlib.h>

static bool is_backward(const struct cases_case *c)
{
	return c->op == &masked_softmax_backward_op;
}

/* ---- The reference ---- */

static const struct cases_operand *mask_of(const struct cases_case *c)
{
	return &c->operand[is_backward(c) ? 2 : 1];
}

/* The offset of the mask's element for row number `row` of x, in the mask's first `dims`
 * dimensions, which are aligned with x's leading dimensions from the last of them on. */
static int64_t mask_row(const struct cases_case *c, int dims, int64_t row)
{
	const struct cases_operand *x = &c->operand[0], *mask = mask_of(c);
	int64_t at = 0;

	for (int k = x->rank - 2, m = dims - 1; m >= 0; k--, m--) {
		if (mask->shape[m] != 1)
			at += row % x->shape[k] * mask->stride[m];
		row /= x->shape[k];
	}
	return at;
}

static void live_bool(const struct cases_case *c, const void *memory, int64_t row, int64_t columns,
					  bool *live)
{
	const struct cases_operand *mask = mask_of(c);
	bool keep = reference_int(c, "keep", 0) != 0;
	int64_t at = mask_row(c, mask->rank - 1, row), step = 0;

	if (mask->rank && mask->shape[mask->rank - 1] != 1)
		step = mask->stride[mask->rank - 1];
	for (int64_t k = 0; k < columns; k++)
		live[k] = (cases_get(mask->dtype, memory, at + k * step) != 0) == keep;
}

/* Which elements of a row are not masked; for additive masks, also what is to be added. */
static void live_elements(const struct reference *r, int64_t row, int64_t columns, bool *live,
						  double *added)
{
	const struct cases_case *c = r->c;
	const struct cases_operand *x = &c->operand[0], *mask = mask_of(c);
	const void *memory = r->memory[is_backward(c) ? 2 : 1];

	if (reference_is(c, "kind", "bool")) {
		live_bool(c, memory, row, columns, live);
	} else if (reference_is(c, "kind", "lengths")) {
		double length = cases_get(mask->dtype, memory, mask_row(c, mask->rank, row));
		for (int64_t k = 0; k < columns; k++)
			live[k] = (double)k < length;
	} else if (reference_is(c, "kind", "causal")) {
		int64_t query = x->rank > 1 ? row % x->shape[x->rank - 2] : 0;
		for (int64_t k = 0; k < columns; k++)
			live[k] = k <= query + reference_int(c, "diagonal", 0);
	} else if (is_backward(c)) {
		for (int64_t k = 0; k < columns; k++)
			live[k] = true;
	} else {
		int64_t at = mask_row(c, mask->rank - 1, row), step = 0;
		if (mask->rank && mask->shape[mask->rank - 1] != 1)
			step = mask->stride[mask->rank - 1];
		for (int64_t k = 0; k < columns; k++) {
			added[k] = cases_get(mask->dtype, memory, at + k * step);
			live[k] = !(isinf(added[k]) && added[k] < 0);
		}
	}
}

/* The row's place in an operand of x's shape. */
static int64_t row_at(const struct cases_operand *operand, int64_t row)
{
	return reference_at(operand, 0, operand->rank - 1, row);
}

static void forward(const struct reference *r, int64_t row, struct reference_row *work, bool *live,
					double *added)
{
	const struct cases_operand *x = &r->c->operand[0];
	int64_t at = row_at(x, row), step = x->stride[x->rank - 1], to = row * work->count;
	bool additive = reference_is(r->c, "kind", "additive");
	double empty = reference_is(r->c, "empty", "nan")       ? NAN
				   : reference_is(r->c, "empty", "uniform") ? 1 / (double)work->count
															: 0;

	live_elements(r, row, work->count, live, added);
	for (int64_t k = 0; k < work->count; k++) {
		double value = cases_get(x->dtype, r->memory[0], at + k * step);
		work->z[k] = (long double)work->scale * value;
		if (additive) {
			work->z[k] += added[k];
			added[k] = fabs(added[k]) + fabs(work->scale * value);
		}
	}
	work->live = live;
	work->added = additive ? added : NULL;
	reference_softmax(work);
	for (int64_t k = 0; k < work->count; k++) {
		double allowed, value = reference_softmax_value(work, x->dtype, k, &allowed);
		if (work->lives == 0) {
			value = empty;
			allowed = empty > 0 ? reference_relative(x->dtype, 2e-6) * empty +
									  reference_rounding(x->dtype, empty)
								: 0;
		}
		reference_value(r, 2, to + k, value, allowed);
	}
}

/* y and dy have room for a row. */
static void backward(const struct reference *r, int64_t row, int64_t columns, bool *live, double *y,
					 double *dy)
{
	const struct cases_operand *operand = r->c->operand;
	kiln_dtype dtype = operand[0].dtype;
	int64_t y_at = row_at(&operand[0], row), dy_at = row_at(&operand[1], row);
	int64_t y_step = operand[0].stride[operand[0].rank - 1];
	int64_t dy_step = operand[1].stride[operand[1].rank - 1];
	double scale = reference_real(r->c, "scale", 1), rtol = reference_relative(dtype, 1e-5);
	long double sum = 0, magnitude = 0;

	live_elements(r, row, columns, live, NULL);
	for (int64_t k = 0; k < columns; k++) {
		y[k] = cases_get(dtype, r->memory[0], y_at + k * y_step);
		dy[k] = cases_get(dtype, r->memory[1], dy_at + k * dy_step);
		if (!live[k])
			continue;
		sum += (long double)dy[k] * y[k];
		magnitude += fabs(dy[k] * y[k]);
	}
	for (int64_t k = 0; k < columns; k++) {
		double value = 0, allowed = 0;
		if (live[k]) {
			value = (double)(scale * y[k] * (dy[k] - sum));
			allowed = rtol * fabs(scale * y[k]) * (fabs(dy[k]) + (double)magnitude) +
					  reference_rounding(dtype, value) + reference_floor(dtype);
		}
		reference_value(r, 3, row * columns + k, value, allowed);
	}
}

void masked_softmax_reference(const struct reference *r, int64_t first, int64_t last)
{
	const struct cases_operand *x = &r->c->operand[0];
	struct reference_row row = {.count = x->shape[x->rank - 1],
								.scale = reference_real(r->c, "scale", 1)};
	bool *live = reference_memory(row.count, sizeof(*live));
	double *two = reference_memory(2 * row.count, sizeof(*two));

	row.z = reference_memory(row.count, sizeof(*row.z));
	for (int64_t unit = first; unit < last; unit++)
		if (is_backward(r->c))
			backward(r, unit, row.count, live, two, two + row.count);
		else
			forward(r, unit, &row, live, two);
	free(live);
	free(two);
	free(row.z);
}

static int64_t units(const struct cases_case *c)
{
	return reference_product(&c->operand[0], 0, c->operand[0].rank - 1);
}

static void judge(const struct cases_case *c, const void *const memory[], int64_t first,
				  int64_t last, struct cases_verdict *verdict)
{
	const struct reference r = {.c = c, .memory = memory, .verdict = verdict};

	masked_softmax_reference(&r, first, last);
}

const struct cases_op masked_softmax_op = {"masked_softmax", units, judge};
const struct cases_op masked_softmax_backward_op = {"masked_softmax_backward", units, judge};
