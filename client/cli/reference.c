/*
 * kiln_reference: comparing what a call wrote with what a reference works out, and permute's.
 */
#include "reference.h"
#include "data.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Elements ---- */

int check_find(const struct check *check, const char *name)
{
	for (int i = 0; i < check->count; i++)
		if (!strcmp(check->operands[i].name, name))
			return check->operands[i].tensor.dtype == KILN_DTYPE_NONE ? -1 : i;
	return -1;
}

const uint8_t *check_at(const struct check_operand *operand, int64_t element)
{
	const kiln_tensor *tensor = &operand->tensor;
	int64_t at = element;

	if (!tensor->contiguous) {
		at = 0;
		for (int k = tensor->rank - 1; k >= 0; k--) {
			at += element % tensor->shape[k] * tensor->stride[k];
			element /= tensor->shape[k];
		}
	}
	return operand->data + tensor->offset + (uint64_t)at * kiln_dtype_size(tensor->dtype);
}

double check_get(const struct check *check, int operand, int64_t element)
{
	const struct check_operand *from = &check->operands[operand];
	return data_real(from->tensor.dtype, check_at(from, element));
}

/* ---- Comparing ---- */

void check_wrong(struct check *check, int operand, int64_t element, const char *got,
				 const char *expected)
{
	const kiln_tensor *tensor = &check->operands[operand].tensor;
	int64_t index[KILN_MAX_RANK] = {0};

	for (int k = tensor->rank - 1; k >= 0; k--) {
		index[k] = element % tensor->shape[k];
		element /= tensor->shape[k];
	}
	fprintf(stderr, "kiln: run %s: wrong result: %s[", check->problem->op,
			check->operands[operand].name);
	for (int k = 0; k < tensor->rank; k++)
		fprintf(stderr, "%s%" PRId64, k ? "," : "", index[k]);
	fprintf(stderr, "] is %s and must be %s\n", got, expected);
	check->wrong = true;
}

/* Infinity is right if a number that is allowed rounds to it. */
static bool is_overflow(kiln_dtype dtype, double got, double expected, double allowed)
{
	double largest = dtype == KILN_F16    ? 65520
					 : dtype == KILN_BF16 ? 0x1.ffp127
					 : dtype == KILN_F32  ? 0x1.ffffffp127
										  : DBL_MAX;

	return isinf(got) && (got > 0 ? expected : -expected) + allowed >= largest;
}

void check_value(struct check *check, int operand, int64_t element, double expected, double allowed)
{
	double got = check_get(check, operand, element), error = fabs(got - expected);
	char is[32], must[80];

	if (check->wrong)
		return;
	check->verified++;
	if (isnan(expected) ? isnan(got) : got == expected)
		return;
	if (is_overflow(check->operands[operand].tensor.dtype, got, expected, allowed))
		return;
	if (error <= allowed) {
		check->worst = fmax(check->worst, error / allowed);
		return;
	}
	snprintf(is, sizeof(is), "%.9g", got);
	snprintf(must, sizeof(must), "%.9g, within %.3g", expected, allowed);
	check_wrong(check, operand, element, is, must);
}

static void print_hex(const uint8_t *bytes, size_t size, char text[40])
{
	snprintf(text, 40, "0x");
	for (size_t i = 0; i < size; i++)
		snprintf(text + 2 + 2 * i, 40 - 2 - 2 * i, "%02x", bytes[i]);
}

bool check_bytes(struct check *check, int operand, int64_t element, const uint8_t *expected)
{
	const struct check_operand *from = &check->operands[operand];
	const uint8_t *got = check_at(from, element);
	size_t size = kiln_dtype_size(from->tensor.dtype);
	char is[40], must[40];

	check->verified++;
	if (memcmp(got, expected, size) == 0)
		return true;
	print_hex(got, size, is);
	print_hex(expected, size, must);
	check_wrong(check, operand, element, is, must);
	return false;
}

void *check_memory(struct check *check, int64_t count, size_t size)
{
	void *memory = calloc(count > 0 ? (size_t)count : 1, size);

	check->no_memory = check->no_memory || !memory;
	return memory;
}

int64_t check_product(const kiln_tensor *tensor, int first, int last)
{
	int64_t product = 1;

	for (int k = first; k < last; k++)
		product *= tensor->shape[k];
	return product;
}

/* ---- What is allowed ---- */

double check_unit(kiln_dtype dtype)
{
	return dtype == KILN_F64 ? DBL_EPSILON / 2 : (double)FLT_EPSILON / 2;
}

double check_least(kiln_dtype dtype)
{
	return dtype == KILN_F64 ? DBL_MIN : (double)FLT_MIN;
}

double check_relative(kiln_dtype dtype, double f32)
{
	return dtype == KILN_F64 ? 1e-12 : f32;
}

double check_rounding(kiln_dtype of, kiln_dtype dtype, double value)
{
	double least, epsilon;
	int exponent;

	if (dtype == KILN_F64 || (dtype == KILN_F32 && of != KILN_F64) || !isfinite(value))
		return 0;
	epsilon = dtype == KILN_F32 ? (double)FLT_EPSILON : dtype == KILN_F16 ? 0x1p-10 : 0x1p-7;
	least = dtype == KILN_F16 ? 0x1p-24 : (double)FLT_MIN * epsilon;
	frexp(value, &exponent);
	return value != 0 ? fmax(ldexp(epsilon, exponent - 1), least) : least;
}

/* ---- permute ---- */

/* y[i0,i1,..] = x[..], where axis k of y is axis perm[k] of x: every element, in y's order. */
void reference_permute(struct check *check)
{
	const struct check_operand *from = &check->operands[0], *to = &check->operands[1];
	const kiln_tensor *x = &from->tensor, *y = &to->tensor;
	size_t size = kiln_dtype_size(x->dtype);
	int64_t index[KILN_MAX_RANK] = {0};

	check->exact = true;
	for (int64_t i = 0; i < to->elements; i++) {
		uint64_t at = 0;
		for (int k = 0; k < y->rank; k++)
			at += (uint64_t)(index[k] * x->stride[check->problem->perm[k]]);
		if (!check_bytes(check, 1, i, from->data + x->offset + at * size))
			return;
		for (int k = y->rank - 1; k >= 0 && ++index[k] == y->shape[k]; k--)
			index[k] = 0;
	}
}

const struct reference_row reference_rows[] = {
	{"permute", reference_permute},
	{"softmax", reference_softmax},
	{"log_softmax", reference_softmax},
	{"softmax_backward", reference_softmax_backward},
	{"log_softmax_backward", reference_softmax_backward},
	{"masked_softmax", reference_softmax},
	{"masked_softmax_backward", reference_softmax_backward},
	{"layer_norm", reference_norm},
	{"rms_norm", reference_norm},
	{"layer_norm_backward", reference_norm_backward},
	{"rms_norm_backward", reference_norm_backward},
	{"gather", reference_gather},
	{"gather_backward", reference_gather_backward},
	{"giou", reference_giou},
	{"giou_backward", reference_giou},
	{"giou_loss", reference_giou},
	{"giou_loss_backward", reference_giou},
	{"map", reference_map},
	{NULL, NULL},
};
