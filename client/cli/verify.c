/*
 * verify.c: a call of `kiln run` as a case of the references in tests/ops, and their answers
 * compared with what the call wrote.
 */
#include "verify.h"

#include "tests/ops/common/reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_VALUES (1 << 24) /* that map works out; a larger call is verified in part */

/* ---- What is wrong ---- */

static void print_wrong(struct check *check, int operand, int64_t element, const char *got,
						const char *expected)
{
	const kiln_tensor *tensor = &check->operands[operand].tensor;
	int64_t index[KILN_MAX_RANK] = {0};

	if (check->wrong)
		return;
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

static void take_invalid(void *taker, int operand, int64_t element, const char *is,
						 const char *must)
{
	print_wrong(taker, operand, element, is, must);
}

/* ---- Answers ---- */

/* The first element of an operand. */
static const uint8_t *first_of(const struct check_operand *operand)
{
	return operand->data + operand->tensor.offset;
}

/* Outputs are contiguous: an element's number is its place. */
static void take_value(void *taker, int operand, int64_t element, double expected, double allowed)
{
	struct check *check = taker;
	const struct check_operand *from = &check->operands[operand];
	double got, error;
	char is[32], must[80];

	check->exact = false;
	if (check->wrong)
		return;
	check->verified++;
	got = cases_get(from->tensor.dtype, first_of(from), element);
	error = fabs(got - expected);
	if ((isnan(expected) ? isnan(got) : got == expected) || allowed < 0 ||
		reference_overflows(from->tensor.dtype, got, expected, allowed))
		return;
	if (error <= allowed) {
		if (isfinite(allowed))
			check->worst = fmax(check->worst, error / allowed);
		return;
	}
	snprintf(is, sizeof(is), "%.9g", got);
	snprintf(must, sizeof(must), "%.9g, within %.3g", expected, allowed);
	print_wrong(check, operand, element, is, must);
}

static void print_hex(const uint8_t *bytes, size_t size, char text[40])
{
	snprintf(text, 40, "0x");
	for (size_t i = 0; i < size; i++)
		snprintf(text + 2 + 2 * i, 40 - 2 - 2 * i, "%02x", bytes[i]);
}

static void take_bytes(void *taker, int operand, int64_t element, const void *expected)
{
	struct check *check = taker;
	const struct check_operand *from = &check->operands[operand];
	size_t size = kiln_dtype_size(from->tensor.dtype);
	const uint8_t *got = first_of(from) + (uint64_t)element * size;
	char is[40], must[40];

	if (check->wrong)
		return;
	check->verified++;
	if (memcmp(got, expected, size) == 0)
		return;
	print_hex(got, size, is);
	print_hex(expected, size, must);
	print_wrong(check, operand, element, is, must);
}

/* ---- The call as a case ---- */

static void make_case(const struct check *check, struct cases_case *c,
					  const void *memory[CASES_MAX_OPERANDS])
{
	const struct cli_problem *problem = check->problem;

	*c = (struct cases_case){.op = reference_of(problem->op),
							 .operand_count = check->count,
							 .attr_count = problem->attr_count};
	for (int i = 0; i < check->count; i++) {
		const kiln_tensor *tensor = &check->operands[i].tensor;
		struct cases_operand *to = &c->operand[i];
		memory[i] = NULL;
		if (tensor->dtype == KILN_DTYPE_NONE)
			continue;
		to->dtype = tensor->dtype;
		to->output = check->operands[i].written;
		to->rank = tensor->rank;
		memcpy(to->shape, tensor->shape, sizeof(to->shape));
		memcpy(to->stride, tensor->stride, sizeof(to->stride));
		memory[i] = first_of(&check->operands[i]);
	}
	memcpy(c->attr, problem->attrs, (size_t)problem->attr_count * sizeof(c->attr[0]));
	memcpy(c->ints, problem->perm, sizeof(c->ints));
}

void check_results(struct check *check)
{
	struct cases_case c;
	const void *memory[CASES_MAX_OPERANDS];
	const struct reference r = {.c = &c,
								.memory = memory,
								.most = MOST_VALUES,
								.taker = check,
								.value = take_value,
								.bytes = take_bytes,
								.invalid = take_invalid};

	check->exact = true;
	make_case(check, &c, memory);
	c.op->reference(&r, 0, c.op->units(&c));
}
