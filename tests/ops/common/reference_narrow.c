/*
 * reference_narrow.c: numbers that are rounded to 8 bits and saturate.
 */
#include "reference.h"

#include <math.h>

double reference_largest(kiln_dtype dtype)
{
	return dtype == KILN_F8E4M3 ? 448 : dtype == KILN_F8E5M2 ? 57344 : 127;
}

double reference_least_scale(kiln_dtype dtype, bool group)
{
	return (dtype == KILN_I8 || group ? 1e-10 : 1.0 / 512) / reference_largest(dtype);
}

double reference_rounded(kiln_dtype dtype, double value)
{
	double most = reference_largest(dtype), least = dtype == KILN_I8 ? -128 : -most;
	unsigned char bits;

	if (isnan(value))
		return dtype == KILN_I8 ? 0 : value;
	value = value < least ? least : value > most ? most : value;
	if (dtype == KILN_I8)
		return nearbyint(value);
	cases_put(dtype, &bits, 0, value);
	return cases_get(dtype, &bits, 0);
}

void reference_quotient(const struct reference *r, int operand, int64_t element, double value,
						double off)
{
	kiln_dtype dtype = r->c->operand[operand].dtype;
	/* An infinity is off by nothing: less its share of itself it would be no number. */
	double part = isinf(value) ? 0 : off;
	double low = reference_rounded(dtype, value - part),
		   high = reference_rounded(dtype, value + part);

	reference_value(r, operand, element, reference_rounded(dtype, value),
					isnan(low) || isnan(high) ? 0 : fabs(high - low));
}

/* Elements [first, first + count) of a row have one scale, number `number` of all. */
static void quantize_part(const struct reference *r, int scale, int y, int scales, int64_t at,
						  int64_t count, int64_t number, const double *v, const double *off)
{
	const struct cases_operand *to = &r->c->operand[scales];
	kiln_dtype dtype = r->c->operand[y].dtype;
	bool given = r->c->operand[scale].dtype != KILN_DTYPE_NONE;
	double most = 0, most_off = 0, by, relative = 0;
	bool open = false;

	for (int64_t k = 0; k < count; k++) {
		most = fmax(most, fabs(v[k]));
		most_off = fmax(most_off, off[k]);
		open = open || off[k] < 0;
	}
	if (given) {
		by = cases_get(KILN_F32, r->memory[scale], 0);
	} else {
		double least = reference_least_scale(dtype, reference_int(r->c, "group", 0) > 0);
		by = (float)fmax(most / reference_largest(dtype), least);
		relative = isinf(by) ? 0 : most_off / reference_largest(dtype) / by + 0x1p-22;
	}
	if (to->dtype != KILN_DTYPE_NONE)
		reference_value(r, scales, reference_at(to, 0, to->rank, number), by,
						open        ? REFERENCE_OPEN
						: isinf(by) ? 0
									: relative * by);
	for (int64_t k = 0; k < count; k++) {
		double q = v[k] / by;
		if (given ? off[k] < 0 : open)
			reference_value(r, y, at + k, q, REFERENCE_OPEN);
		else
			reference_quotient(r, y, at + k, q,
							   isinf(q) ? 0 : fabs(q) * (relative + 0x1p-22) + off[k] / fabs(by));
	}
}

void reference_quantize(const struct reference *r, int scale, int y, int scales, int64_t row,
						const double *v, const double *off)
{
	const struct cases_operand *to = &r->c->operand[y];
	int64_t columns = to->shape[to->rank - 1], group = reference_int(r->c, "group", 0);
	int64_t groups = group ? columns / group : 1, each = group ? group : columns;

	for (int64_t g = 0; g < groups; g++)
		quantize_part(r, scale, y, scales, row * columns + g * each, each, row * groups + g,
					  v + g * each, off + g * each);
}
