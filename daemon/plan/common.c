/*
 * common.c: what every operator's planning needs: checks that hold for any tensor, sizes in bytes
 * without overflow, attributes by name, and text of bounded size.  Knows no operator.
 */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/wire/plain.h"

int plan_refuse(char error[KERNEL_ERROR_MAX], int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	plain_vprint(error, KERNEL_ERROR_MAX, format, args);
	va_end(args);
	return status;
}

void plan_print(struct plan_text *text, const char *format, ...)
{
	va_list args;
	int added;

	if (text->full)
		return;
	va_start(args, format);
	added = plain_vprint(text->text + text->used, text->size - text->used, format, args);
	va_end(args);
	if (added < 0 || (size_t)added >= text->size - text->used) {
		text->text[text->used] = 0; /* whole pieces only */
		text->full = true;
	} else {
		text->used += (size_t)added;
	}
}

void plan_add(struct plan_text *text, const char *bytes, size_t size)
{
	if (text->full || size >= text->size - text->used) {
		text->full = true;
		return;
	}
	memcpy(text->text + text->used, bytes, size);
	text->used += size;
	text->text[text->used] = 0;
}

void plan_add_number(struct plan_text *text, int64_t value)
{
	char digits[24];
	size_t at = sizeof(digits);
	uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;

	do
		digits[--at] = (char)('0' + rest % 10);
	while (rest /= 10);
	if (value < 0)
		digits[--at] = '-';
	plan_add(text, digits + at, sizeof(digits) - at);
}

int plan_check_name(const struct plan_text *name, const struct kernel_plan *plan,
					char error[KERNEL_ERROR_MAX])
{
	if (!name->full)
		return KILN_OK;
	return plan_refuse(error, KILN_ENOTSUP,
					   "%s: the name of the kernel would be longer than %d characters", plan->op,
					   KERNEL_INSTANTIATION_MAX);
}

const char *plan_dtype_name(kiln_dtype dtype)
{
	switch (dtype) {
#define NAME(NAME_, name, value, bytes) \
	case KILN_##NAME_:                  \
		return #name;
		KILN_DTYPE_LIST(NAME)
#undef NAME
	default:
		return "no dtype";
	}
}

int plan_operand_count(const char *list)
{
	int count = 1;

	for (const char *at = list; *at; at++)
		count += *at == ',';
	return count;
}

/* Finds operand number index in the list; "operand" beyond it. */
static const char *find_operand(const char *list, int index)
{
	const char *at = list;

	for (; index > 0 && (at = strchr(at, ',')); index--)
		at += 2;
	return at ? at : "operand";
}

void plan_operand_name(const char *list, int index, char name[16])
{
	const char *at = find_operand(list, index);
	int length = 0;

	for (; length < 15 && at[length] && at[length] != ',' && at[length] != '?'; length++)
		name[length] = at[length];
	name[length] = 0;
}

bool plan_operand_optional(const char *list, int index)
{
	const char *at = find_operand(list, index);

	return at[strcspn(at, ",?")] == '?';
}

void plan_contiguous(struct kernel_tensor *tensor)
{
	int64_t stride = 1;

	for (int k = tensor->rank - 1; k >= 0; k--) {
		tensor->stride[k] = stride;
		/* A size of 0 leaves the strides of a tensor with one element there. */
		if (tensor->shape[k] > 0 && __builtin_mul_overflow(stride, tensor->shape[k], &stride))
			stride = INT64_MAX;
	}
}

bool plan_elements(const struct kernel_tensor *tensor, int64_t *count)
{
	*count = 1;
	for (int k = 0; k < tensor->rank; k++)
		if (tensor->shape[k] == 0)
			*count = 0;
	for (int k = 0; k < tensor->rank && *count; k++)
		if (__builtin_mul_overflow(*count, tensor->shape[k], count))
			return false;
	return true;
}

bool plan_extent(const struct kernel_tensor *tensor, uint64_t *bytes)
{
	int64_t count, last = 0, all;

	*bytes = 0;
	if (!plan_elements(tensor, &count))
		return false;
	if (count == 0)
		return true;
	for (int k = 0; k < tensor->rank; k++) {
		int64_t step;
		if (__builtin_mul_overflow(tensor->shape[k] - 1, tensor->stride[k], &step) ||
			__builtin_add_overflow(last, step, &last))
			return false;
	}
	if (__builtin_add_overflow(last, 1, &last) ||
		__builtin_mul_overflow(last, (int64_t)kernel_dtype_bytes(tensor->dtype), &all))
		return false;
	*bytes = (uint64_t)all;
	return true;
}

uint64_t plan_distinct_bytes(const struct kernel_tensor *tensor)
{
	uint64_t bytes = kernel_dtype_bytes(tensor->dtype);

	for (int k = 0; k < tensor->rank; k++)
		if (tensor->stride[k] || tensor->shape[k] == 0)
			bytes *= (uint64_t)tensor->shape[k];
	return bytes;
}

/* The dimensions of more than one element, by rising strides; how many. */
static int by_stride(const struct kernel_tensor *tensor, int order[KILN_MAX_RANK])
{
	int count = 0;

	for (int k = 0; k < tensor->rank; k++) {
		int at = count;
		if (tensor->shape[k] < 2)
			continue;
		for (; at > 0 && tensor->stride[order[at - 1]] > tensor->stride[k]; at--)
			order[at] = order[at - 1];
		order[at] = k;
		count++;
	}
	return count;
}

void plan_period(const struct kernel_tensor *tensor, uint64_t *period, uint64_t *width)
{
	int order[KILN_MAX_RANK], count = by_stride(tensor, order), at = 0;
	int64_t element = kernel_dtype_bytes(tensor->dtype), inner = 1;

	*period = *width = 0;
	for (; at < count && tensor->stride[order[at]] <= inner; at++)
		inner += (tensor->shape[order[at]] - 1) * tensor->stride[order[at]];
	for (int i = at; i < count; i++)
		if (tensor->stride[order[i]] % tensor->stride[order[at]])
			return;
	if (at == count)
		return;
	*period = (uint64_t)(tensor->stride[order[at]] * element);
	*width = (uint64_t)(inner * element);
}

bool plan_is_distinct(const struct kernel_tensor *tensor)
{
	int order[KILN_MAX_RANK], count = by_stride(tensor, order);
	int64_t inner = 1;

	for (int i = 0; i < count; i++) {
		if (tensor->stride[order[i]] < inner)
			return false;
		inner += (tensor->shape[order[i]] - 1) * tensor->stride[order[i]];
	}
	return true;
}

bool plan_lies_alike(const struct kernel_tensor *a, const struct kernel_tensor *b)
{
	for (int k = 0; k < a->rank; k++)
		if (a->shape[k] > 1 && a->stride[k] != b->stride[k])
			return false;
	return true;
}

void plan_over(const struct kernel_problem *problem, int output, int input, struct kernel_plan *out)
{
	if (plan_lies_alike(&problem->tensors[output], &problem->tensors[input]))
		out->extents[output].over = (uint8_t)(1 + input);
}

void plan_touch(const struct kernel_problem *problem, int index, uint32_t alignment,
				struct kernel_plan *out)
{
	plan_extent(&problem->tensors[index], &out->extents[index].bytes);
	out->extents[index].alignment = alignment;
	out->bytes_moved += plan_distinct_bytes(&problem->tensors[index]);
}

int64_t plan_batch_stride(int rank, const int64_t *shape, const int64_t *stride)
{
	int64_t extent = 1;

	if (shape[0] != 1 || stride[0] == 0)
		return stride[0];
	for (int k = 1; k < rank; k++) {
		int64_t step;
		if (__builtin_mul_overflow(shape[k] - 1, stride[k], &step) ||
			__builtin_add_overflow(extent, step, &extent))
			return stride[0];
	}
	return stride[0] < extent ? extent : stride[0];
}

const struct kernel_attr *plan_attr(const struct kernel_problem *problem, const char *name)
{
	for (int i = 0; i < problem->attr_count; i++)
		if (strncmp(problem->attrs[i].name, name, sizeof(problem->attrs[i].name)) == 0)
			return &problem->attrs[i];
	return NULL;
}

/* Planners round sizes up to units, which 63 bits then hold. */
#define MOST_BYTES (INT64_MAX / 2)

static int check_sizes(const char *op, const char *name, const struct kernel_tensor *tensor,
					   char error[KERNEL_ERROR_MAX])
{
	/* Planners multiply the sizes beside one of 0, too. */
	struct kernel_tensor filled = *tensor;
	bool empty = false;
	int64_t count, bytes;
	uint64_t extent;

	for (int k = 0; k < tensor->rank; k++) {
		if (tensor->shape[k] < 0)
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d of %s has size %lld; sizes are 0 or more", op, k,
							   name, (long long)tensor->shape[k]);
		if (tensor->stride[k] < 0)
			return plan_refuse(error, KILN_EINVAL,
							   "%s: dimension %d of %s has stride %lld; strides are 0 or more", op,
							   k, name, (long long)tensor->stride[k]);
		if (tensor->shape[k] == 0) {
			filled.shape[k] = 1;
			empty = true;
		}
	}
	if (!plan_elements(&filled, &count) ||
		__builtin_mul_overflow(count, (int64_t)kernel_dtype_bytes(tensor->dtype), &bytes) ||
		bytes > MOST_BYTES)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s has more elements than 62 bits can count in bytes%s", op, name,
						   empty ? ", sizes of 0 counted as 1" : "");
	if (!plan_extent(&filled, &extent) || extent > MOST_BYTES)
		return plan_refuse(error, KILN_EINVAL,
						   "%s: the strides of %s reach further than 62 bits can count in bytes",
						   op, name);
	return KILN_OK;
}

int plan_check_tensor(const char *op, const char *operands, int index,
					  const struct kernel_tensor *tensor, char error[KERNEL_ERROR_MAX])
{
	char name[16];

	plan_operand_name(operands, index, name);
	if (tensor->dtype == KILN_DTYPE_NONE)
		return KILN_OK;
	if (kernel_dtype_bytes(tensor->dtype) == 0)
		return plan_refuse(error, KILN_EINVAL, "%s: %s has dtype %d, which is no element type", op,
						   name, (int)tensor->dtype);
	if (tensor->rank < 0 || tensor->rank > KILN_MAX_RANK)
		return plan_refuse(error, KILN_EINVAL, "%s: %s has rank %d; ranks are 0 to %d", op, name,
						   tensor->rank, KILN_MAX_RANK);
	if (tensor->alignment == 0 || (tensor->alignment & (tensor->alignment - 1)))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s has an alignment of %u bytes, which is no power of two", op,
						   name, tensor->alignment);
	return check_sizes(op, name, tensor, error);
}

int plan_check_summand(const struct kernel_problem *problem, int index,
					   char error[KERNEL_ERROR_MAX])
{
	kiln_dtype dtype = problem->tensors[index].dtype;
	char name[16];

	if (dtype != KILN_BOOL && dtype != KILN_C64 && dtype != KILN_C128 && dtype != KILN_F8E4M3 &&
		dtype != KILN_F8E5M2)
		return KILN_OK;
	plan_operand_name(problem->operands, index, name);
	return plan_refuse(error, KILN_EINVAL,
					   "%s: %s is %s; it must be an integer or a float of 16 bits or more, which "
					   "can be added up",
					   problem->op, name, plan_dtype_name(dtype));
}

void plan_no_elements(struct kernel_plan *plan)
{
	plan->kind = KERNEL_NOTHING;
	plan->bytes_moved = 0;
	snprintf(plan->variant, sizeof(plan->variant), "nothing");
	snprintf(plan->note, sizeof(plan->note), "there are no elements");
}

void plan_arg_pointer(struct kernel_plan *plan, int operand)
{
	struct kernel_arg *arg = &plan->args[plan->arg_count++];

	arg->kind = KERNEL_ARG_POINTER;
	arg->operand = operand;
	arg->bytes = 8;
}

void plan_arg_scratch(struct kernel_plan *plan)
{
	struct kernel_arg *arg = &plan->args[plan->arg_count++];

	arg->kind = KERNEL_ARG_SCRATCH;
	arg->operand = -1;
	arg->bytes = 8;
}

void plan_arg_report(struct kernel_plan *plan, uint64_t indices, uint64_t end)
{
	struct kernel_arg *arg = &plan->args[plan->arg_count++];

	arg->kind = KERNEL_ARG_REPORT;
	arg->operand = -1;
	arg->bytes = 8;
	plan->report = (struct kernel_report){indices, end};
}

void plan_arg_scalar(struct kernel_plan *plan, uint32_t bytes, uint64_t value)
{
	struct kernel_arg *arg = &plan->args[plan->arg_count++];

	arg->kind = KERNEL_ARG_SCALAR;
	arg->operand = -1;
	arg->bytes = bytes;
	arg->value = value;
}

void plan_arg_real(struct kernel_plan *plan, kiln_dtype dtype, double value)
{
	float single = (float)value;
	uint32_t bytes = dtype == KILN_F64 ? 8 : 4;
	uint64_t bits = 0;

	memcpy(&bits, dtype == KILN_F64 ? (const void *)&value : (const void *)&single, bytes);
	plan_arg_scalar(plan, bytes, bits);
}
