/*
 * data.c: random values for the operands of any operator, as the operator's row asks for, and
 * whether two results are close.
 */
#include "data.h"
#include "problem.h"

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

/* A sum of four uniform numbers: about normal, of variance 1, within 3.5. */
static double normal(uint64_t *state)
{
	uint64_t bits = data_next(state), sum = 0;

	for (int i = 0; i < 4; i++)
		sum += bits >> 16 * i & 0xffff;
	return ((double)sum - 2 * 65535.0) / 65536.0 * 1.7320508075688772;
}

/* Cuts the bits of a value of moderate size off: it is random anyhow. */
static uint16_t to_f16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	uint32_t sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 0xff;
	if (exponent == 255)
		return (uint16_t)(sign | 0x7c00);
	if (exponent < 103)
		return (uint16_t)sign;
	if (exponent < 113)
		return (uint16_t)(sign | ((bits & 0x7fffff) | 0x800000) >> (126 - exponent));
	return (uint16_t)(sign | (exponent - 112) << 10 | (bits >> 13 & 0x3ff));
}

/* Does so for a float of 8 bits: an f32 that is smaller by the difference of the exponents has its
 * digits. */
static uint8_t to_f8(kiln_dtype dtype, float value)
{
	bool wide = dtype == KILN_F8E5M2;
	uint32_t bits;

	value *= wide ? 0x1p-112f : 0x1p-120f;
	memcpy(&bits, &value, sizeof(bits));
	return (uint8_t)((bits >> 24 & 0x80) | (bits >> (wide ? 21 : 20) & 0x7f));
}

static void put_real(kiln_dtype dtype, uint8_t *at, double value)
{
	float narrow = (float)value;
	uint32_t bits;
	uint16_t half;

	memcpy(&bits, &narrow, sizeof(bits));
	half = dtype == KILN_F16 ? to_f16(narrow) : (uint16_t)(bits >> 16);
	if (dtype == KILN_F64)
		memcpy(at, &value, 8);
	else if (dtype == KILN_F32)
		memcpy(at, &narrow, 4);
	else if (kiln_dtype_size(dtype) == 1)
		*at = to_f8(dtype, narrow);
	else
		memcpy(at, &half, 2);
}

/* ---- Operands ---- */

static bool is_real(kiln_dtype dtype)
{
	return dtype == KILN_F8E4M3 || dtype == KILN_F8E5M2 || dtype == KILN_F16 ||
		   dtype == KILN_BF16 || dtype == KILN_F32 || dtype == KILN_F64;
}

/* Any bits are valid; a bool is 0 or 1. */
static void fill_bits(kiln_dtype dtype, uint8_t *at, uint64_t bytes, uint64_t *state)
{
	for (uint64_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)(data_next(state) & (dtype == KILN_BOOL ? 1 : 255));
}

/* columns: size of a row, for probabilities. */
static void fill_reals(enum op_data data, kiln_dtype dtype, uint8_t *at, uint64_t count,
					   double columns, uint64_t *state)
{
	/* The mean of exp of a normal number is exp(1/2). */
	double shift = log(columns > 1 ? columns : 1) + 0.5;
	size_t size = kiln_dtype_size(dtype);

	for (uint64_t i = 0; i < count; i++) {
		double value = normal(state);
		if (data == OP_ABOUT_ONE)
			value = 1 + value / 4;
		else if (data == OP_LOGARITHM)
			value -= shift;
		else if (data == OP_PROBABILITY)
			value = exp(value - shift);
		put_real(dtype, at + i * size, value);
	}
}

/* A random number from 0 to most, with both ends more often. */
static int64_t random_length(int64_t most, uint64_t *state)
{
	uint64_t bits = data_next(state);

	return bits % 8 == 0 ? 0 : bits % 8 == 1 ? most : (int64_t)((bits >> 3) % ((uint64_t)most + 1));
}

/* A mask of sequences padded to one length: each row keeps its first elements.  columns: size of a
 * row of the mask. */
static void fill_mask(const struct cli_problem *problem, kiln_dtype dtype, uint8_t *at,
					  uint64_t count, int64_t columns, uint64_t *state)
{
	bool keep = cli_problem_int(problem, "keep", 0) != 0, real = is_real(dtype);
	size_t size = kiln_dtype_size(dtype);
	int64_t length = 0;

	for (uint64_t i = 0; i < count; i++, at += size) {
		int64_t column = (int64_t)(i % (uint64_t)columns);
		if (column == 0)
			length = random_length(columns, state);
		if (real)
			put_real(dtype, at, column < length ? normal(state) : -(double)INFINITY);
		else if ((column < length) == keep)
			at[0] = dtype == KILN_BOOL ? 1 : (uint8_t)(1 + data_next(state) % 255);
	}
}

/* Stores a number as any of the types below. */
static void put_number(kiln_dtype dtype, uint8_t *at, double value)
{
	int64_t wide = (int64_t)value;

	if (is_real(dtype))
		put_real(dtype, at, value);
	else
		memcpy(at, &wide, kiln_dtype_size(dtype)); /* little-endian, as all of these machines */
}

/* How many elements an index may name: along the axis of src or dsrc; of positions, the rows of a
 * table. */
static int64_t index_end(const struct cli_problem *problem)
{
	for (int i = 0; problem->row->operands[i].name; i++)
		if (problem->row->operands[i].shape == OP_ANGLES)
			return problem->tensors[i].shape[0];
	bool backward = !strcmp(problem->row->operands[0].name, "ddst");
	const kiln_tensor *few = &problem->tensors[backward ? 2 : 0];

	return few->rank ? few->shape[cli_problem_indexed_axis(problem)] : 0;
}

static void fill_indices(kiln_dtype dtype, uint8_t *at, uint64_t count, int64_t end,
						 uint64_t *state)
{
	size_t size = kiln_dtype_size(dtype);
	int64_t most = dtype == KILN_U8 ? 256 : dtype == KILN_U16 ? 65536 : INT32_MAX;

	end = end < 1 ? 1 : end < most ? end : most;
	for (uint64_t i = 0; i < count; i++)
		put_number(dtype, at + i * size, (double)(data_next(state) % (uint64_t)end));
}

/* Slots of the caches, each once at most where there are enough. */
static void fill_slots(const struct cli_problem *problem, kiln_dtype dtype, uint8_t *at,
					   uint64_t count, uint64_t *state)
{
	size_t size = kiln_dtype_size(dtype);
	uint64_t slots = 1, first;

	for (int i = 0; problem->row->operands[i].name; i++)
		if (problem->row->operands[i].shape == OP_PAGES)
			slots = (uint64_t)(problem->tensors[i].shape[0] *
							   problem->tensors[i].shape[cli_problem_place(problem)]);
	first = data_next(state) % slots;
	for (uint64_t i = 0; i < count; i++) /* a prime, so no slot comes twice before all have come */
		put_number(dtype, at + i * size, (double)((first + i % slots * 2147483647) % slots));
}

/* Boxes in fours within a picture of 256 by 256; padding is zeros. */
static void fill_boxes(kiln_dtype dtype, uint8_t *at, uint64_t count, bool padded, uint64_t *state)
{
	size_t size = kiln_dtype_size(dtype);
	double corner[2] = {0, 0};
	bool padding = false;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t bits = data_next(state);
		double part = (double)(bits >> 40) * 0x1p-24;
		if (i % 4 == 0)
			padding = padded && bits % 4 == 0;
		if (i % 4 < 2)
			corner[i % 2] = part * 150;
		put_number(dtype, at + i * size,
				   padding ? 0 : corner[i % 2] + (i % 4 < 2 ? 0 : 4 + part * 100));
	}
}

/* Fills operands of special kinds; false for all others. */
static bool fill_special(const struct cli_problem *problem, int operand, enum op_data kind,
						 kiln_dtype dtype, uint8_t *at, uint64_t count, uint64_t *state)
{
	int64_t end = problem->index_end[operand];
	uint64_t boxes = (uint64_t)problem->tensors[1].shape[0];

	switch (kind) {
	case OP_INDICES:
		fill_indices(dtype, at, count, end ? end : index_end(problem), state);
		return true;
	case OP_SLOTS:
		fill_slots(problem, dtype, at, count, state);
		return true;
	case OP_BOXES:
	case OP_TARGETS:
		fill_boxes(dtype, at, count, kind == OP_TARGETS, state);
		return true;
	case OP_OFFSETS:
		for (uint64_t i = 0; i < count; i++)
			put_number(KILN_I32, at + i * 4, (double)(count > 1 ? i * boxes / (count - 1) : 0));
		return true;
	case OP_COUNT:
		put_number(dtype, at, (double)(1 + data_next(state) % 100));
		return true;
	default:
		return false;
	}
}

/* The size of a row, at least 1, since it is a divisor. */
static int64_t last_size(const kiln_tensor *tensor)
{
	int64_t last = tensor->rank ? tensor->shape[tensor->rank - 1] : 1;
	return last > 0 ? last : 1;
}

void data_operand(const struct cli_problem *problem, int operand, void *data, uint64_t bytes,
				  uint64_t seed)
{
	const kiln_tensor *tensor = &problem->tensors[operand], *first = &problem->tensors[0];
	enum op_data kind = problem->row ? problem->row->operands[operand].data : OP_BITS;
	uint64_t state = seed + (uint64_t)operand, offset = tensor->offset < bytes ? tensor->offset : 0;
	uint64_t count = (bytes - offset) / kiln_dtype_size(tensor->dtype);
	int64_t axis = cli_problem_int(problem, "axis", -1);
	uint8_t *at = (uint8_t *)data + offset;

	memset(data, 0, bytes);
	if (fill_special(problem, operand, kind, tensor->dtype, at, count, &state))
		return;
	axis = axis < 0 && first->rank ? axis + first->rank : axis < 0 ? 0 : axis;
	if (kind == OP_MASK && !strcmp(cli_problem_text(problem, "kind", ""), "lengths"))
		for (uint64_t i = 0; i < count; i++)
			put_number(KILN_I32, at + i * 4, (double)random_length(last_size(first), &state));
	else if (kind == OP_MASK)
		fill_mask(problem, tensor->dtype, at, count, last_size(tensor), &state);
	else if (kind == OP_BITS || !is_real(tensor->dtype))
		fill_bits(tensor->dtype, data, bytes, &state);
	else
		fill_reals(kind, tensor->dtype, at, count, (double)first->shape[axis], &state);
}

void data_random(kiln_dtype dtype, void *data, uint64_t bytes, uint64_t seed)
{
	kiln_dtype part = dtype == KILN_C64 ? KILN_F32 : dtype == KILN_C128 ? KILN_F64 : dtype;
	uint64_t state = seed;

	if (is_real(part))
		fill_reals(OP_NORMAL, part, data, bytes / kiln_dtype_size(part), 1, &state);
	else
		fill_bits(part, data, bytes, &state);
}

/* ---- Comparing ---- */

static double from_f16(uint16_t bits)
{
	uint32_t exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
	uint32_t wide = (uint32_t)(bits & 0x8000) << 16 | (exponent + 112) << 23 | mantissa << 13;
	float value;

	if (exponent == 0) {
		value = (float)mantissa * 0x1p-24f;
		return bits & 0x8000 ? -(double)value : (double)value;
	}
	if (exponent == 31)
		wide |= 0x7f800000;
	memcpy(&value, &wide, sizeof(value));
	return (double)value;
}

static double from_f8(kiln_dtype dtype, uint8_t bits)
{
	int size = bits & 0x7f, shift = dtype == KILN_F8E5M2 ? 21 : 20;
	uint32_t wide = (uint32_t)size << shift;
	float value;

	memcpy(&value, &wide, sizeof(value));
	value *= shift == 21 ? 0x1p112f : 0x1p120f;
	if (size >= (shift == 21 ? 0x7c : 0x7f))
		value = shift == 21 && size == 0x7c ? INFINITY : NAN;
	return bits & 0x80 ? -(double)value : (double)value;
}

double data_real(kiln_dtype dtype, const void *at)
{
	uint32_t word = 0;
	int64_t integer = 0;
	float narrow;
	double wide;

	switch (dtype) {
	case KILN_F64:
		memcpy(&wide, at, 8);
		return wide;
	case KILN_F8E4M3:
	case KILN_F8E5M2:
		return from_f8(dtype, *(const uint8_t *)at);
	case KILN_F16:
		memcpy(&word, at, 2);
		return from_f16((uint16_t)word);
	case KILN_BF16:
		memcpy(&word, at, 2);
		word <<= 16;
		break;
	case KILN_BOOL:
	case KILN_U8:
		return *(const uint8_t *)at;
	case KILN_U16:
	case KILN_I64:
		memcpy(&integer, at, kiln_dtype_size(dtype));
		return (double)integer;
	case KILN_I32:
		memcpy(&word, at, 4);
		return (int32_t)word;
	default:
		memcpy(&word, at, 4);
	}
	memcpy(&narrow, &word, 4);
	return (double)narrow;
}

/* How far two right results may differ, relative to the larger of a value and the typical one. */
static double bound_of(kiln_dtype dtype)
{
	switch (dtype) {
	case KILN_F8E4M3:
		return 0.13;
	case KILN_F8E5M2:
		return 0.26;
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
