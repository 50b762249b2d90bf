/*
 * scalar.c: reads one number that a kernel takes by value, from "TYPE:VALUE".
 */
#include "failure.h"
#include "values.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A float of 8 or 16 bits.  over: the bits of an infinity, or of NaN where there is none. */
struct narrow {
	kiln_dtype dtype;
	int mantissa, bias;
	uint16_t sign, over;
};
static const struct narrow narrows[] = {
	{KILN_F16, 10, 15, 0x8000, 0x7c00},
	{KILN_BF16, 7, 127, 0x8000, 0x7f80},
	{KILN_F8E4M3, 3, 7, 0x80, 0x7f},
	{KILN_F8E5M2, 2, 15, 0x80, 0x7c},
};

static const struct narrow *narrow_of(kiln_dtype dtype)
{
	for (size_t i = 0; i < sizeof(narrows) / sizeof(narrows[0]); i++)
		if (narrows[i].dtype == dtype)
			return &narrows[i];
	return NULL;
}

/* The nearest number of the type, ties to even. */
static uint16_t to_narrow(double value, const struct narrow *to)
{
	uint16_t sign = signbit(value) ? to->sign : 0;
	double size = fabs(value), units;
	int exponent = 0, bits;

	if (isnan(value))
		return (uint16_t)(to->over | 1u << (to->mantissa - 1));
	if (isinf(value))
		return sign | to->over;
	frexp(size, &exponent);
	/* Zero and subnormal numbers have the least normal exponent. */
	exponent = size < ldexp(1, 1 - to->bias) ? 1 - to->bias : exponent - 1;
	/* Counts units of the last place; an overflow carries into the exponent by itself. */
	units = nearbyint(ldexp(size, to->mantissa - exponent));
	bits = ((exponent + to->bias - 1) << to->mantissa) + (int)units;
	return (uint16_t)(sign | (bits < to->over ? bits : to->over));
}

static int read_real(const char *name, const char *text, const char *number, kiln_dtype dtype,
					 uint8_t value[8])
{
	char *end;
	double wide = strtod(number, &end);
	float narrow = strtof(number, NULL);
	const struct narrow *to = narrow_of(dtype);
	uint16_t bits = to ? to_narrow(wide, to) : 0; /* little-endian, as all of these machines */

	if (end == number || end[0])
		return cli_usage("%s '%s': expected a number after %s:, as 0.125 or 1e-5", name, text,
						 kiln_dtype_name(dtype));
	if (dtype == KILN_F64)
		memcpy(value, &wide, sizeof(wide));
	else if (dtype == KILN_F32)
		memcpy(value, &narrow, sizeof(narrow));
	else
		memcpy(value, &bits, kiln_dtype_size(dtype));
	return CLI_OK;
}

static bool is_signed(kiln_dtype dtype)
{
	return dtype == KILN_I8 || dtype == KILN_I16 || dtype == KILN_I32 || dtype == KILN_I64;
}

static int read_integer(const char *name, const char *text, const char *number, kiln_dtype dtype,
						uint8_t value[8])
{
	int bits = 8 * (int)kiln_dtype_size(dtype);
	uint64_t most = dtype == KILN_BOOL ? 1 : UINT64_MAX >> (64 - bits + is_signed(dtype)), wide = 0;
	int64_t least = is_signed(dtype) ? -(int64_t)most - 1 : 0;
	bool negative = number[0] == '-', good;
	const char *digits = number + negative;
	char *end = NULL;

	errno = 0;
	good = digits[0] >= '0' && digits[0] <= '9';
	if (good)
		wide = strtoull(digits, &end, 10);
	good = good && !errno && !end[0] && wide <= (negative ? (uint64_t)0 - (uint64_t)least : most);
	if (!good)
		return cli_usage("%s '%s': expected an integer from %lld to %llu after %s:", name, text,
						 (long long)least, (unsigned long long)most, kiln_dtype_name(dtype));
	if (negative)
		wide = 0 - wide;
	memcpy(value, &wide, sizeof(wide)); /* little-endian, as all of these machines */
	return CLI_OK;
}

int cli_scalar(const char *name, const char *text, kiln_dtype *dtype, uint8_t value[8])
{
	size_t length = strcspn(text, ":");
	char type[16];

	snprintf(type, sizeof(type), "%.*s", (int)(length < 15 ? length : 15), text);
	*dtype = kiln_dtype_parse(type);
	if (!text[length] || *dtype == KILN_DTYPE_NONE || *dtype == KILN_C64 || *dtype == KILN_C128)
		return cli_usage("%s '%s': expected TYPE:VALUE, as f32:2.5, where TYPE is that of a real "
						 "number, of an integer or bool",
						 name, text);
	if (narrow_of(*dtype) || *dtype == KILN_F32 || *dtype == KILN_F64)
		return read_real(name, text, text + length + 1, *dtype, value);
	return read_integer(name, text, text + length + 1, *dtype, value);
}
