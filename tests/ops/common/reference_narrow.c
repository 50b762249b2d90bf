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
	double low = reference_rounded(dtype, value - off),
		   high = reference_rounded(dtype, value + off);

	reference_value(r, operand, element, reference_rounded(dtype, value),
					isnan(low) || isnan(high) ? 0 : fabs(high - low));
}
