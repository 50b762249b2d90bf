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

/* The nearest number of a 16-bit type, ties to even: a sign bit, `mantissa` bits, and an exponent
 * with this bias. */
static uint16_t to_half(double value, int mantissa, int bias)
{
	uint16_t sign = signbit(value) ? 0x8000 : 0;
	uint16_t infinity = (uint16_t)((0x7fff >> mantissa) << mantissa);
	double size = fabs(value), units;
	int exponent = 0, bits;

	if (isnan(value))
		return (uint16_t)(infinity | 1u << (mantissa - 1));
	if (isinf(value))
		return sign | infinity;
	frexp(size, &exponent);
	/* Zero and subnormal numbers have the least normal exponent. */
	exponent = size < ldexp(1, 1 - bias) ? 1 - bias : exponent - 1;
	if (exponent > bias)
		return sign | infinity;
	/* Counts units of the last place; an overflow carries into the exponent by itself. */
	units = nearbyint(ldexp(size, mantissa - exponent));
	bits = ((exponent + bias - 1) << mantissa) + (int)units;
	return (uint16_t)(sign | (bits < infinity ? bits : infinity));
}

static int read_real(const char *name, const char *text, const char *number, kiln_dtype dtype,
					 uint8_t value[8])
{
	char *end;
	double wide = strtod(number, &end);
	float narrow = strtof(number, NULL);
	uint16_t half = dtype == KILN_F16 ? to_half(wide, 10, 15) : to_half(wide, 7, 127);

	if (end == number || end[0])
		return cli_usage("%s '%s': expected a number after %s:, as 0.125 or 1e-5", name, text,
						 kiln_dtype_name(dtype));
	if (dtype == KILN_F64)
		memcpy(value, &wide, sizeof(wide));
	else if (dtype == KILN_F32)
		memcpy(value, &narrow, sizeof(narrow));
	else
		memcpy(value, &half, sizeof(half));
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
	if (*dtype == KILN_F16 || *dtype == KILN_BF16 || *dtype == KILN_F32 || *dtype == KILN_F64)
		return read_real(name, text, text + length + 1, *dtype, value);
	return read_integer(name, text, text + length + 1, *dtype, value);
}
