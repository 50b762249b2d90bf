/*
 * kiln_data: values for the operands of any operator: random ones that are valid for their type,
 * and whether two results are close.  Knows types, and no operator.
 */
#include "kiln_cli.h"

#include <math.h>
#include <string.h>

uint64_t data_next(uint64_t *state)
{
	/* splitmix64 */
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* About normal, of variance 1, within 3.5: four uniform numbers, added. */
static double normal(uint64_t *state)
{
	uint64_t bits = data_next(state), sum = 0;

	for (int i = 0; i < 4; i++)
		sum += bits >> 16 * i & 0xffff;
	return ((double)sum - 2 * 65535.0) / 65536.0 * 1.7320508075688772;
}

/* The bits of a value of moderate size, cut off: it is random anyhow. */
static uint16_t to_f16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	uint32_t sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 0xff;
	if (exponent < 113)
		return (uint16_t)sign;
	return (uint16_t)(sign | (exponent - 112) << 10 | (bits >> 13 & 0x3ff));
}

static uint16_t to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)(bits >> 16);
}

static void fill_reals(kiln_dtype dtype, uint8_t *at, uint64_t bytes, uint64_t *state)
{
	size_t size = dtype == KILN_C64 ? 4 : dtype == KILN_C128 ? 8 : kiln_dtype_size(dtype);

	for (; bytes >= size; bytes -= size, at += size) {
		double value = normal(state);
		float narrow = (float)value;
		uint16_t half = dtype == KILN_F16 ? to_f16(narrow) : to_bf16(narrow);
		if (size == 8)
			memcpy(at, &value, 8);
		else if (size == 4)
			memcpy(at, &narrow, 4);
		else
			memcpy(at, &half, 2);
	}
}

/* 0 to below most, in the machine's order of bytes: the lowest byte first. */
static void fill_integers(size_t size, uint8_t *at, uint64_t bytes, unsigned most, uint64_t *state)
{
	memset(at, 0, bytes);
	for (; bytes >= size; bytes -= size, at += size)
		at[0] = (uint8_t)(data_next(state) % most);
}

void data_fill(kiln_dtype dtype, void *data, uint64_t bytes, uint64_t seed)
{
	uint64_t state = seed;

	switch (dtype) {
	case KILN_F16:
	case KILN_BF16:
	case KILN_F32:
	case KILN_F64:
	case KILN_C64:
	case KILN_C128:
		fill_reals(dtype, data, bytes, &state);
		break;
	case KILN_BOOL:
		fill_integers(1, data, bytes, 2, &state);
		break;
	default:
		fill_integers(kiln_dtype_size(dtype), data, bytes, 16, &state);
	}
}

/* ---- Comparing ---- */

static double from_f16(uint16_t bits)
{
	int exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
	double value = exponent == 31  ? mantissa ? (double)NAN : (double)INFINITY
				   : exponent == 0 ? ldexp(mantissa, -24)
								   : ldexp(mantissa + 1024, exponent - 25);

	return bits & 0x8000 ? -value : value;
}

double data_real(kiln_dtype dtype, const void *at)
{
	uint32_t word = 0;
	float narrow;
	double wide;

	switch (dtype) {
	case KILN_F64:
		memcpy(&wide, at, 8);
		return wide;
	case KILN_F16:
		memcpy(&word, at, 2);
		return from_f16((uint16_t)word);
	case KILN_BF16:
		memcpy(&word, at, 2);
		word <<= 16;
		break;
	default:
		memcpy(&word, at, 4);
	}
	memcpy(&narrow, &word, 4);
	return (double)narrow;
}

/* How far two right results may lie apart, as part of the larger of a value and the typical one. */
static double bound_of(kiln_dtype dtype)
{
	switch (dtype) {
	case KILN_F16:
		return 0.01;
	case KILN_BF16:
		return 0.05;
	case KILN_F32:
		return 1e-3;
	case KILN_F64:
		return 1e-7;
	default:
		return 0;
	}
}

bool data_close(kiln_dtype dtype, const void *a, const void *b, uint64_t bytes)
{
	const uint8_t *left = a, *right = b;
	double bound = bound_of(dtype), typical = 0;
	size_t size = kiln_dtype_size(dtype);
	uint64_t finite = 0;

	if (!bytes || !memcmp(a, b, bytes))
		return true;
	if (!(bound > 0))
		return false;
	for (uint64_t i = 0; i + size <= bytes; i += size) {
		double value = data_real(dtype, left + i);
		if (isfinite(value)) {
			typical += value * value;
			finite++;
		}
	}
	typical = finite ? sqrt(typical / (double)finite) : 0;
	for (uint64_t i = 0; i + size <= bytes; i += size) {
		double x = data_real(dtype, left + i), y = data_real(dtype, right + i);
		if (!memcmp(left + i, right + i, size) || (isnan(x) && isnan(y)))
			continue;
		if (!isfinite(x) || !(fabs(x - y) <= bound * fmax(fabs(x), typical)))
			return false;
	}
	return true;
}
