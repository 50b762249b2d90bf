/*
 * kiln_reference_gather: gather and its backward by their definition.
 */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t last_size(const kiln_tensor *tensor)
{
	return tensor->rank ? tensor->shape[tensor->rank - 1] : 1;
}

/* The element of few that an index names.  A call with bounds check did not come here with one that
 * is out of range; with trust there is nothing to be sure of, and -1. */
static int64_t place_of(struct check *check, int64_t element, int64_t few)
{
	double index = check_get(check, 1, element);
	bool clamp = !strcmp(cli_problem_text(check->problem, "bounds", ""), "clamp");

	if (index >= 0 && index < (double)few)
		return (int64_t)index;
	if (clamp)
		return index < 0 ? 0 : few - 1;
	if (!check->wrong)
		check_wrong(check, 1, element, "out of range", "in it: --bounds trust relies on that");
	return -1;
}

/* dst[i, j, k] = src[i, j, idx[j, k]], bit for bit. */
void reference_gather(struct check *check)
{
	const struct check_operand *src = &check->operands[0], *dst = &check->operands[2];
	int64_t few = last_size(&src->tensor), many = last_size(&dst->tensor);
	int64_t lists = check->operands[1].tensor.shape[0];

	check->exact = true;
	for (int64_t i = 0; i < dst->elements; i++) {
		int64_t row = i / many, list = row % lists;
		int64_t place = place_of(check, list * many + i % many, few);
		if (place < 0 || !check_bytes(check, 2, i, check_at(src, row * few + place)))
			return;
	}
}

static bool is_real(kiln_dtype dtype)
{
	return dtype == KILN_F16 || dtype == KILN_BF16 || dtype == KILN_F32 || dtype == KILN_F64;
}

struct sums {
	double *sum, *magnitude, *count;
	uint64_t *bits; /* of integers, which wrap */
};

static void add_up(struct check *check, int64_t row, int64_t few, int64_t many,
				   const struct sums *sums)
{
	const struct check_operand *ddst = &check->operands[0];
	int64_t list = row % check->operands[1].tensor.shape[0];
	size_t size = kiln_dtype_size(ddst->tensor.dtype);

	memset(sums->sum, 0, 3 * (size_t)few * sizeof(double));
	memset(sums->bits, 0, (size_t)few * sizeof(uint64_t));
	for (int64_t k = 0; k < many; k++) {
		int64_t p = place_of(check, list * many + k, few);
		uint64_t bits = 0;
		if (p < 0)
			return;
		if (is_real(ddst->tensor.dtype)) {
			double value = check_get(check, 0, row * many + k);
			sums->sum[p] += value;
			sums->magnitude[p] += fabs(value);
			sums->count[p]++;
		} else {
			memcpy(&bits, check_at(ddst, row * many + k), size);
			sums->bits[p] += bits;
		}
	}
}

/* dsrc[i, j, p] = the sum of ddst[i, j, k] over the k with idx[j, k] = p: of floats, each term is
 * rounded once as it is added. */
void reference_gather_backward(struct check *check)
{
	const struct check_operand *dsrc = &check->operands[2];
	kiln_dtype dtype = dsrc->tensor.dtype;
	int64_t few = last_size(&dsrc->tensor), many = last_size(&check->operands[0].tensor);
	double *numbers = check_memory(check, 3 * few, sizeof(*numbers));
	uint64_t *bits = check_memory(check, few, sizeof(*bits));
	struct sums sums = {numbers, numbers + few, numbers + 2 * few, bits};

	check->exact = !is_real(dtype);
	for (int64_t row = 0; bits && numbers && few && row < dsrc->elements / few; row++) {
		add_up(check, row, few, many, &sums);
		for (int64_t p = 0; p < few && !check->wrong; p++) {
			double value = sums.sum[p];
			double allowed = sums.count[p] * check_unit(dtype) * sums.magnitude[p] +
							 check_rounding(dtype, dtype, value);
			if (check->exact)
				check_bytes(check, 2, row * few + p, (const uint8_t *)&sums.bits[p]);
			else
				check_value(check, 2, row * few + p, value, allowed);
		}
	}
	free(numbers);
	free(bits);
}
