/*
 * manifest_print.c: problems as text.  Knows operators by their names and those of their
 * operands, and nothing of what they do.
 */
#include "manifest.h"

#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int manifest_operands(const struct kernel_problem *problem, const struct plan_op *op,
					  char list[KERNEL_OPERANDS_MAX], char error[KERNEL_ERROR_MAX])
{
	if (op->names)
		return op->names(problem, list, error);
	plan_operands(op, list);
	return KILN_OK;
}

static void print_ints(struct plan_text *out, const int64_t *values, int count, char between)
{
	for (int i = 0; i < count; i++) {
		plan_add(out, &between, i > 0);
		plan_add_number(out, values[i]);
	}
}

static bool is_contiguous(const struct kernel_tensor *tensor)
{
	struct kernel_tensor plain = *tensor;

	plan_contiguous(&plain);
	return memcmp(plain.stride, tensor->stride, (size_t)tensor->rank * sizeof(plain.stride[0])) ==
		   0;
}

/* " NAME=" */
static void print_name(struct plan_text *out, const char *name)
{
	plan_add(out, " ", 1);
	plan_add(out, name, strlen(name));
	plan_add(out, "=", 1);
}

static void print_tensor(struct plan_text *out, const struct kernel_tensor *tensor)
{
	const char *dtype = plan_dtype_name(tensor->dtype);

	plan_add(out, dtype, strlen(dtype));
	plan_add(out, ":", 1);
	if (tensor->rank)
		print_ints(out, tensor->shape, tensor->rank, 'x');
	else
		plan_print(out, "scalar");
	if (!is_contiguous(tensor)) {
		plan_print(out, "/");
		print_ints(out, tensor->stride, tensor->rank, ',');
	}
	if (tensor->alignment == MANIFEST_ALIGNMENT)
		return;
	plan_add(out, "@", 1);
	plan_add_number(out, tensor->alignment);
}

static void print_text(struct plan_text *out, const char *text)
{
	plan_print(out, "\"");
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\')
			plan_print(out, "\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			plan_print(out, "\\x%02x", c);
		else
			plan_print(out, "%c", c);
	}
	plan_print(out, "\"");
}

/* The digits read as a real again, and as this one. */
static void print_real(struct plan_text *out, double value)
{
	char digits[40];

	snprintf(digits, sizeof(digits), "%.15g", value);
	if (strtod(digits, NULL) != value)
		snprintf(digits, sizeof(digits), "%.17g", value);
	plan_print(out, "%s%s", digits, strpbrk(digits, ".en") ? "" : ".0");
}

static void print_attr(struct plan_text *out, const struct kernel_problem *problem,
					   const struct kernel_attr *attr)
{
	print_name(out, attr->name);
	switch (attr->kind) {
	case KILN_ATTR_INT:
		plan_add_number(out, attr->i);
		break;
	case KILN_ATTR_REAL:
		print_real(out, attr->f);
		break;
	case KILN_ATTR_INTS:
		plan_add(out, "[", 1);
		print_ints(out, attr->ints, attr->count, ',');
		plan_add(out, "]", 1);
		break;
	case KILN_ATTR_STRING:
		print_text(out, kernel_attr_text(problem, attr));
		break;
	}
}

bool manifest_print(const struct kernel_problem *problem, char *text, size_t size)
{
	struct plan_text out = {.text = text, .size = size};
	const struct plan_op *op = plan_find(problem->op);
	char list[KERNEL_OPERANDS_MAX], ignored[KERNEL_ERROR_MAX], name[16];

	if (!op || manifest_operands(problem, op, list, ignored) != KILN_OK)
		return false;
	text[0] = 0;
	plan_add(&out, problem->op, strlen(problem->op));
	for (int i = 0; i < problem->tensor_count; i++) {
		if (problem->tensors[i].dtype == KILN_DTYPE_NONE)
			continue;
		plan_operand_name(list, i, name);
		print_name(&out, name);
		print_tensor(&out, &problem->tensors[i]);
	}
	for (int i = 0; i < problem->attr_count; i++)
		print_attr(&out, problem, &problem->attrs[i]);
	return !out.full;
}
