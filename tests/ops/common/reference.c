/*
 * reference.c: who takes the answers of a reference; places, errors and the softmax of one row.
 *
 * The errors of softmax.  Kernels compute exp(z - most) / sum in f32 (f64 for f64) with the
 * argument rounded two or three times, so a relative error of e^(z - most) grows with |z - most|:
 * by 2^-23 of it, and by 2^-24 more when the scale is no f32 number.  The terms of z (an additive
 * mask) were rounded too, in proportion to their size.  For the rest, the sum and exp itself, 2e-6
 * are granted, above 4096 columns 1e-5.
 */
#include "reference.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The operators ---- */

/* KILN_FAMILIES comes from CMake, as cases.c says. */
#define FAMILY(name) extern const struct cases_op *const name##_ops[];
KILN_FAMILIES
#undef FAMILY
#define FAMILY(name) name##_ops,
static const struct cases_op *const *const families[] = {KILN_FAMILIES};
#undef FAMILY

const struct cases_op *reference_of(const char *op)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		for (const struct cases_op *const *at = families[i]; *at; at++)
			if (strcmp((*at)->name, op) == 0)
				return *at;
	return NULL;
}

/* ---- Answers ---- */

void reference_value(const struct reference *r, int operand, int64_t element, double expected,
					 double allowed)
{
	r->value(r->taker, operand, element, expected, allowed);
}

void reference_bytes(const struct reference *r, int operand, int64_t element, const void *expected)
{
	r->bytes(r->taker, operand, element, expected);
}

void reference_invalid(const struct reference *r, int operand, int64_t element, const char *is,
					   const char *must)
{
	r->invalid(r->taker, operand, element, is, must);
}

struct judge {
	const struct cases_case *c;
	const void *const *memory;
	struct cases_verdict *verdict;
};

void cases_judge_value(struct cases_verdict *verdict, int operand, int64_t element, double got,
					   double expected, double relative, double absolute)
{
	double allowed = relative * fabs(expected) + absolute;

	/* An infinity is near nothing but itself. */
	if (verdict->wrong || (isnan(got) && isnan(expected)) || got == expected ||
		(isfinite(got) && isfinite(expected) && fabs(got - expected) <= allowed))
		return;
	verdict->wrong = true;
	verdict->operand = operand;
	verdict->element = element;
	verdict->got = got;
	verdict->expected = expected;
	verdict->allowed = allowed;
}

bool reference_overflows(kiln_dtype dtype, double got, double expected, double allowed)
{
	double largest = dtype == KILN_F8E4M3   ? 464
					 : dtype == KILN_F8E5M2 ? 61440
					 : dtype == KILN_F16    ? 65520
					 : dtype == KILN_BF16   ? 0x1.ffp127
					 : dtype == KILN_F32    ? 0x1.ffffffp127
											: DBL_MAX;

	/* f8e4m3 has NaN there. */
	if (dtype == KILN_F8E4M3 && isnan(got))
		return fabs(expected) + allowed > largest;
	return isinf(got) && (got > 0 ? expected : -expected) + allowed >= largest;
}

static void judge_value(void *taker, int operand, int64_t element, double expected, double allowed)
{
	const struct judge *judge = taker;
	kiln_dtype dtype = judge->c->operand[operand].dtype;
	double got = cases_get(dtype, judge->memory[operand], element);

	if (allowed == REFERENCE_OPEN || (allowed == REFERENCE_NO_NUMBER && !isfinite(got)))
		return;
	if (!reference_overflows(dtype, got, expected, allowed))
		cases_judge_value(judge->verdict, operand, element, got, expected, 0, allowed);
}

/* The first bytes of an element, as a number. */
static double bytes_of(const void *element, uint32_t bytes)
{
	uint64_t number = 0;

	memcpy(&number, element, bytes < 8 ? bytes : 8);
	return (double)number;
}

static void judge_bytes(void *taker, int operand, int64_t element, const void *expected)
{
	const struct judge *judge = taker;
	uint32_t bytes = cases_element(&judge->c->operand[operand]);
	const char *got = (const char *)judge->memory[operand] + element * bytes;

	if (judge->verdict->wrong || memcmp(got, expected, bytes) == 0)
		return;
	*judge->verdict = (struct cases_verdict){.wrong = true,
											 .operand = operand,
											 .element = element,
											 .got = bytes_of(got, bytes),
											 .expected = bytes_of(expected, bytes)};
}

static void judge_invalid(void *taker, int operand, int64_t element, const char *is,
						  const char *must)
{
	const struct judge *judge = taker;

	(void)is;
	(void)must;
	if (!judge->verdict->wrong)
		*judge->verdict =
			(struct cases_verdict){.wrong = true, .operand = operand, .element = element};
}

void cases_judge(const struct cases_case *c, const void *const memory[], int64_t first,
				 int64_t last, struct cases_verdict *verdict)
{
	struct judge judge = {c, memory, verdict};
	const struct reference r = {.c = c,
								.memory = memory,
								.taker = &judge,
								.value = judge_value,
								.bytes = judge_bytes,
								.invalid = judge_invalid};

	c->op->reference(&r, first, last);
}

struct answers {
	const struct cases_case *c;
	double *const *values;
};

static void keep_value(void *taker, int operand, int64_t element, double expected, double allowed)
{
	const struct answers *answers = taker;

	(void)allowed;
	answers->values[operand][element] = expected;
}

static void keep_bytes(void *taker, int operand, int64_t element, const void *expected)
{
	const struct answers *answers = taker;

	answers->values[operand][element] = cases_get(answers->c->operand[operand].dtype, expected, 0);
}

static void keep_nothing(void *taker, int operand, int64_t element, const char *is,
						 const char *must)
{
	(void)taker;
	(void)operand;
	(void)element;
	(void)is;
	(void)must;
}

void reference_answers(const struct cases_case *c, const void *const memory[],
					   double *const values[])
{
	struct answers answers = {c, values};
	const struct reference r = {.c = c,
								.memory = memory,
								.unwritten = true,
								.taker = &answers,
								.value = keep_value,
								.bytes = keep_bytes,
								.invalid = keep_nothing};

	c->op->reference(&r, 0, c->op->units(c));
}

/* ---- Attributes ---- */

static const kiln_attr *find_attr(const struct cases_case *c, const char *name)
{
	for (int i = 0; i < c->attr_count; i++)
		if (strcmp(c->attr[i].name, name) == 0)
			return &c->attr[i];
	return NULL;
}

int64_t reference_int(const struct cases_case *c, const char *name, int64_t otherwise)
{
	const kiln_attr *attr = find_attr(c, name);

	return attr ? attr->i : otherwise;
}

double reference_real(const struct cases_case *c, const char *name, double otherwise)
{
	const kiln_attr *attr = find_attr(c, name);

	return attr ? attr->f : otherwise;
}

bool reference_is(const struct cases_case *c, const char *name, const char *value)
{
	const kiln_attr *attr = find_attr(c, name);

	return attr && strcmp(attr->s, value) == 0;
}

/* ---- Places ---- */

int64_t reference_at(const struct cases_operand *operand, int first, int last, int64_t i)
{
	int64_t at = 0;

	for (int k = last - 1; k > first; k--) {
		at += i % operand->shape[k] * operand->stride[k];
		i /= operand->shape[k];
	}
	return first < last ? at + i * operand->stride[first] : 0;
}

int64_t reference_product(const struct cases_operand *operand, int first, int last)
{
	int64_t product = 1;

	for (int k = first; k < last; k++)
		product *= operand->shape[k];
	return product;
}

int reference_axis(const struct cases_case *c)
{
	int axis = (int)reference_int(c, "axis", -1);

	return axis < 0 ? axis + c->operand[0].rank : axis;
}

int64_t reference_lines(const struct cases_case *c)
{
	const struct cases_operand *x = &c->operand[0];
	int axis = reference_axis(c);

	return reference_product(x, 0, axis) * reference_product(x, axis + 1, x->rank);
}

int64_t reference_index(const struct cases_operand *idx, const void *memory, int64_t offset)
{
	const char *at = (const char *)memory + offset * cases_element(idx);
	int64_t wide;
	int32_t word;
	uint16_t half;

	if (idx->dtype == KILN_U8)
		return *(const uint8_t *)at;
	if (idx->dtype == KILN_U16) {
		memcpy(&half, at, sizeof(half));
		return half;
	}
	if (idx->dtype == KILN_I32) {
		memcpy(&word, at, sizeof(word));
		return word;
	}
	memcpy(&wide, at, sizeof(wide));
	return wide;
}

void *reference_memory(int64_t count, size_t size)
{
	void *memory = calloc(count > 0 ? (size_t)count : 1, size);

	if (!memory) {
		fprintf(stderr, "kiln: no memory for %lld numbers of the reference\n", (long long)count);
		exit(1);
	}
	return memory;
}

/* ---- Errors ---- */

double reference_unit(kiln_dtype dtype)
{
	return dtype == KILN_F64 ? 0x1p-53 : 0x1p-24;
}

double reference_floor(kiln_dtype dtype)
{
	return dtype == KILN_F64 ? DBL_MIN : FLT_MIN;
}

double reference_ulp(kiln_dtype dtype, double value)
{
	uint64_t bits;

	if (!isfinite(value))
		return 0;
	/* The power of two at or below |value|. */
	memcpy(&bits, &value, sizeof(bits));
	bits &= UINT64_C(0x7ff) << 52;
	memcpy(&value, &bits, sizeof(value));
	switch (dtype) {
	case KILN_F8E4M3:
		return fmax(value * 0x1p-3, 0x1p-9);
	case KILN_F8E5M2:
		return fmax(value * 0x1p-2, 0x1p-16);
	case KILN_F16:
		return fmax(value * 0x1p-10, 0x1p-24);
	case KILN_BF16:
		return fmax(value * 0x1p-7, 0x1p-133);
	case KILN_F32:
		return fmax(value * 0x1p-23, 0x1p-149);
	default:
		return fmax(value * 0x1p-52, 0x1p-1074);
	}
}

double reference_rounding(kiln_dtype dtype, double value)
{
	return dtype == KILN_F32 || dtype == KILN_F64 ? 0 : reference_ulp(dtype, value);
}

double reference_relative(kiln_dtype dtype, double f32)
{
	return dtype == KILN_F64 ? 1e-12 : f32;
}

/* ---- Softmax ---- */

void reference_softmax(struct reference_row *row)
{
	row->lives = 0;
	row->nan = false;
	row->most = -INFINITY;
	row->sum = 0;
	for (int64_t k = 0; k < row->count; k++) {
		if (row->live && !row->live[k])
			continue;
		row->lives++;
		row->nan = row->nan || isnan(row->z[k]);
		if (row->z[k] > row->most)
			row->most = row->z[k];
	}
	row->nan = row->nan || isinf(row->most);
	for (int64_t k = 0; k < row->count && !row->nan; k++)
		if (!row->live || row->live[k])
			row->sum += exp((double)(row->z[k] - row->most));
}

double reference_softmax_value(const struct reference_row *row, kiln_dtype dtype, int64_t k,
							   double *allowed)
{
	double unit = reference_unit(dtype), relative, argument, value;

	*allowed = 0;
	if (row->live && !row->live[k])
		return 0;
	if (row->nan)
		return NAN;
	argument = (double)(row->z[k] - row->most);
	value = (double)(exp(argument) / row->sum);
	*allowed = reference_floor(dtype) + reference_rounding(dtype, value);
	if (value == 0)
		return value;
	relative = reference_relative(dtype, row->count > 4096 ? 1e-5 : 2e-6);
	relative += fabs(argument) * unit * ((float)row->scale == row->scale ? 2 : 3);
	if (row->added)
		relative += 2 * unit * (row->added[k] + fabs((double)row->most));
	*allowed += relative * value;
	return value;
}
