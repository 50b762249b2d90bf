/*
 * reference.c: sums, products, extremes, norms and the like over some dimensions.
 *
 * Integers are added and multiplied modulo 2^64, so each bit is given, as it is of extremes, their
 * numbers, and of any and all.  n floats are added up in f32 or f64 in some order: few of the n
 * roundings go the same way, so a sum may be off by 16 + 8 * sqrt(n) of them, and by n at most,
 * each half a unit of the sum of magnitudes; a product by n + 1 of itself.  A power and an
 * exponential are off by less than 64 roundings.  A variance is off as the sum of squared distances
 * from the first element: its offset costs nothing.  f16 and bf16 are rounded once more.
 */
#include "reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The dimensions of x: those that number the results, and the reduced ones. */
struct split {
	int kept, reduced;
	int64_t size[2][KILN_MAX_RANK], stride[2][KILN_MAX_RANK];
	int64_t results, count;
};

static struct split split_of(const struct cases_case *c)
{
	const struct cases_operand *x = &c->operand[0];
	struct split split = {.results = 1, .count = 1};
	unsigned over = (1u << x->rank) - 1;

	for (int i = 0; i < c->attr_count; i++) {
		if (strcmp(c->attr[i].name, "over") != 0)
			continue;
		over = 0;
		for (int k = 0; k < c->attr[i].count; k++)
			over |= 1u << (c->ints[k] < 0 ? c->ints[k] + x->rank : c->ints[k]);
	}
	for (int k = 0; k < x->rank; k++) {
		int is = over >> k & 1;
		int *place = is ? &split.reduced : &split.kept;
		split.size[is][*place] = x->shape[k];
		split.stride[is][(*place)++] = x->stride[k];
		*(is ? &split.count : &split.results) *= x->shape[k];
	}
	return split;
}

/* Where number i of the dimensions of a kind is. */
static int64_t place(const struct split *split, int is, int64_t i)
{
	int64_t at = 0;

	for (int k = (is ? split->reduced : split->kept) - 1; k >= 0; k--) {
		at += i % split->size[is][k] * split->stride[is][k];
		i /= split->size[is][k];
	}
	return at;
}

int64_t reduce_units(const struct cases_case *c)
{
	return split_of(c).results;
}

static bool is(const struct cases_case *c, const char *op)
{
	return strcmp(c->op->name, op) == 0;
}

/* ---- The reference ---- */

/* The elements of a result. */
struct row {
	const struct reference *r;
	kiln_dtype dtype;
	int64_t unit, count;
	const double *x;
	double unit_error, roundings; /* of one, and how many a sum may be off by */
};

static void give(const struct row *row, double value, double error)
{
	kiln_dtype dtype = row->r->c->operand[1].dtype;

	reference_value(row->r, 1, row->unit, value,
					error + reference_rounding(dtype, value) + reference_floor(dtype));
}

static void give_sum(const struct row *row)
{
	long double sum = 0, magnitude = 0;
	double count = is(row->r->c, "mean") ? (double)row->count : 1;

	for (int64_t i = 0; i < row->count; i++) {
		sum += row->x[i];
		magnitude += fabs(row->x[i]);
	}
	give(row, (double)(sum / count),
		 (double)((row->roundings + 1) * row->unit_error * magnitude / count));
}

static void give_product(const struct row *row)
{
	long double product = 1;

	for (int64_t i = 0; i < row->count; i++)
		product *= row->x[i];
	give(row, (double)product, (double)(row->count + 1) * row->unit_error * fabs((double)product));
}

/* Is b above a, or the first NaN? */
static bool is_above(bool least, double a, double b)
{
	return isnan(b) ? !isnan(a) : least ? b < a : b > a;
}

static void give_most(const struct row *row, bool least, bool place)
{
	int64_t most = 0;

	for (int64_t i = 1; i < row->count; i++)
		if (is_above(least, row->x[most], row->x[i]))
			most = i;
	if (place)
		reference_bytes(row->r, 1, row->unit, &most);
	else
		reference_value(row->r, 1, row->unit, row->x[most], 0);
}

static void give_truth(const struct row *row, bool all)
{
	uint8_t found = all;

	for (int64_t i = 0; i < row->count; i++)
		if ((row->x[i] != 0) != all)
			found = !all;
	reference_bytes(row->r, 1, row->unit, &found);
}

static void give_norm(const struct row *row)
{
	double order = reference_real(row->r->c, "ord", 2), value;
	long double sum = 0;
	bool nan = false;

	if (isinf(order)) {
		value = row->count ? fabs(row->x[0]) : 0;
		for (int64_t i = 0; i < row->count; i++) {
			nan = nan || isnan(row->x[i]);
			value = order > 0 ? fmax(value, fabs(row->x[i])) : fmin(value, fabs(row->x[i]));
		}
		reference_value(row->r, 1, row->unit, nan ? NAN : value, 0);
		return;
	}
	for (int64_t i = 0; i < row->count; i++)
		sum += order == 0 ? row->x[i] != 0 : powl(fabs(row->x[i]), order);
	value = (double)(order == 0 ? sum : powl(sum, 1 / (long double)order));
	give(row, value, value * (row->roundings + 64) * row->unit_error);
}

static void give_logarithm(const struct row *row)
{
	double most = -INFINITY, value;
	long double sum = 0;
	bool nan = false;

	for (int64_t i = 0; i < row->count; i++) {
		most = fmax(most, row->x[i]);
		nan = nan || isnan(row->x[i]);
	}
	for (int64_t i = 0; i < row->count && isfinite(most); i++)
		sum += expl(row->x[i] - most);
	value = nan ? NAN : isfinite(most) ? (double)(most + logl(sum)) : most;
	give(row, value, (row->roundings + 64 + 4 * fabs(most) + 4 * fabs(value)) * row->unit_error);
}

static void give_variance(const struct row *row)
{
	double less = reference_real(row->r->c, "correction", 1), divisor;
	long double sum = 0, squares = 0, spread = 0, mean;

	for (int64_t i = 0; i < row->count; i++) {
		sum += row->x[i];
		spread += ((long double)row->x[i] - row->x[0]) * ((long double)row->x[i] - row->x[0]);
	}
	mean = sum / row->count;
	for (int64_t i = 0; i < row->count; i++)
		squares += (row->x[i] - mean) * (row->x[i] - mean);
	divisor = fmax(0, (double)row->count - less);
	give(row, (double)(squares / divisor),
		 (double)spread * (row->roundings + 64) * row->unit_error / divisor);
}

static void give_float(const struct row *row)
{
	const struct cases_case *c = row->r->c;

	if (is(c, "sum") || is(c, "mean"))
		give_sum(row);
	else if (is(c, "prod"))
		give_product(row);
	else if (is(c, "vector_norm"))
		give_norm(row);
	else if (is(c, "logsumexp"))
		give_logarithm(row);
	else if (is(c, "var"))
		give_variance(row);
	else if (is(c, "any") || is(c, "all"))
		give_truth(row, is(c, "all"));
	else
		give_most(row, is(c, "amin") || is(c, "argmin"), is(c, "argmax") || is(c, "argmin"));
}

static int64_t integer(kiln_dtype dtype, const void *memory, int64_t at)
{
	int64_t wide;

	if (dtype != KILN_I64)
		return (int64_t)cases_get(dtype, memory, at);
	memcpy(&wide, (const char *)memory + at * 8, sizeof(wide));
	return wide;
}

/* Integers of 64 bits are no doubles. */
static void give_integers(const struct reference *r, const struct split *split, int64_t unit)
{
	const struct cases_case *c = r->c;
	kiln_dtype dtype = c->operand[0].dtype;
	int64_t from = place(split, 0, unit), most = 0, found = 0;
	uint64_t sum = 0, product = 1;
	bool least = is(c, "amin") || is(c, "argmin"), any = false, all = true;

	for (int64_t i = 0; i < split->count; i++) {
		int64_t x = integer(dtype, r->memory[0], from + place(split, 1, i));
		x = dtype == KILN_BOOL ? x != 0 : x;
		sum += (uint64_t)x;
		product *= (uint64_t)x;
		any = any || x;
		all = all && x;
		if (i == 0 || (least ? x < most : x > most)) {
			most = x;
			found = i;
		}
	}
	if (is(c, "sum") || is(c, "prod"))
		reference_bytes(r, 1, unit, is(c, "sum") ? &sum : &product);
	else if (is(c, "any") || is(c, "all"))
		reference_bytes(r, 1, unit, is(c, "any") ? &any : &all);
	else if (is(c, "argmax") || is(c, "argmin"))
		reference_bytes(r, 1, unit, &found);
	else
		reference_bytes(r, 1, unit, &most);
}

void reduce_reference(const struct reference *r, int64_t first, int64_t last)
{
	struct split split = split_of(r->c);
	kiln_dtype dtype = r->c->operand[0].dtype;
	double *x = reference_memory(cases_is_float(dtype) ? split.count + 1 : 1, sizeof(*x));
	struct row row = {.r = r, .dtype = dtype, .count = split.count, .x = x};

	row.unit_error = reference_unit(dtype);
	row.roundings = fmin((double)split.count, 16 + 8 * sqrt((double)split.count));
	for (int64_t unit = first; unit < last; unit++) {
		int64_t from = place(&split, 0, unit);
		if (!cases_is_float(dtype)) {
			give_integers(r, &split, unit);
			continue;
		}
		for (int64_t i = 0; i < split.count; i++)
			x[i] = cases_get(dtype, r->memory[0], from + place(&split, 1, i));
		row.unit = unit;
		give_float(&row);
	}
	free(x);
}
