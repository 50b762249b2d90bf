/*
 * attrs.c: attributes as the operator's row has them: their names, kinds, ranges and defaults, each
 * refusal with its sentence.
 */
#include "client/wire/plain.h"
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int plan_attrs_check_names(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	char known[256] = "";
	struct plan_text list = {.text = known, .size = sizeof(known)};

	for (const struct op_attribute *row = problem->attributes; row->name; row++)
		plan_print(&list, "%s%s", known[0] ? ", " : "", row->name);
	for (int i = 0; i < problem->attr_count; i++) {
		const struct kernel_attr *attr = &problem->attrs[i];
		const struct op_attribute *row = problem->attributes;
		while (row->name && strncmp(row->name, attr->name, sizeof(attr->name)) != 0)
			row++;
		if (!row->name)
			return plan_refuse(error, KILN_EINVAL,
							   "%s: there is no attribute \"%.24s\"; those it takes: %s",
							   problem->op, attr->name, known);
		if (plan_attr(problem, attr->name) != attr)
			return plan_refuse(error, KILN_EINVAL, "%s: %.24s is given twice", problem->op,
							   attr->name);
	}
	return KILN_OK;
}

static int check_integer(const struct kernel_problem *problem, const struct op_attribute *row,
						 const struct kernel_attr *attr, char error[KERNEL_ERROR_MAX])
{
	int64_t rank = problem->tensors[0].rank, least = row->least, most = row->most;
	char name[16];

	plan_operand_name(problem->operands, 0, name);
	if (row->range == OP_AXIS || row->range == OP_AXES) {
		if (rank == 0)
			return plan_refuse(error, KILN_EINVAL, "%s: %s has rank 0; it needs a dimension to %s",
							   problem->op, name, row->range == OP_AXIS ? "go along" : "normalize");
		least = row->range == OP_AXIS ? -rank : 1;
		most = row->range == OP_AXIS ? rank - 1 : rank;
	}
	if (!attr)
		return KILN_OK;
	if (attr->kind != KILN_ATTR_INT)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is not an integer", problem->op, row->name);
	if (attr->i < least || attr->i > most)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %lld; it may be %lld to %lld",
						   problem->op, row->name, (long long)attr->i, (long long)least,
						   (long long)most);
	return KILN_OK;
}

static int check_real(const struct kernel_problem *problem, const struct op_attribute *row,
					  const struct kernel_attr *attr, char error[KERNEL_ERROR_MAX])
{
	kiln_dtype dtype = problem->tensors[0].dtype;
	double value;

	if (!attr)
		return KILN_OK;
	if (attr->kind != KILN_ATTR_REAL && attr->kind != KILN_ATTR_INT)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is not a number", problem->op, row->name);
	value = attr->kind == KILN_ATTR_REAL ? attr->f : (double)attr->i;
	if (!isfinite(value))
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %g; it must be finite", problem->op,
						   row->name, value);
	if (row->range == OP_FROM && value < (double)row->least)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %g; it must be %lld or more", problem->op,
						   row->name, value, (long long)row->least);
	if (plan_is_float(dtype) && dtype != KILN_F64 && !isfinite((float)value))
		return plan_refuse(error, KILN_EINVAL,
						   "%s: %s is %g; %s is computed in f32, where it must be finite",
						   problem->op, row->name, value, plan_dtype_name(dtype));
	return KILN_OK;
}

/* The position of a text among the words; -1: it is none of them. */
static int find_word(const struct op_attribute *row, const char *text)
{
	for (int i = 0; row->words[i]; i++)
		if (strcmp(row->words[i], text) == 0)
			return i;
	return -1;
}

static int check_word(const struct kernel_problem *problem, const struct op_attribute *row,
					  const struct kernel_attr *attr, char error[KERNEL_ERROR_MAX])
{
	const char *text = attr ? plan_attr_text(problem, row->name) : NULL;
	char known[128] = "";
	struct plan_text list = {.text = known, .size = sizeof(known)};

	if (attr ? text && find_word(row, text) >= 0 : !row->needed)
		return KILN_OK;
	for (int i = 0; row->words[i]; i++)
		plan_print(&list, "%s%s", i ? ", " : "", row->words[i]);
	if (!text)
		return plan_refuse(error, KILN_EINVAL, "%s: %s is %s; it may be one of: %s", problem->op,
						   row->name, attr ? "not a text" : "missing", known);
	return plan_refuse(error, KILN_EINVAL, "%s: %s is \"%.*s\"; it may be one of: %s", problem->op,
					   row->name, PLAIN_CUT(text, 40), known);
}

int plan_attrs_check_values(const struct kernel_problem *problem, char error[KERNEL_ERROR_MAX])
{
	int status = KILN_OK;

	for (const struct op_attribute *row = problem->attributes; row->name && !status; row++) {
		const struct kernel_attr *attr = plan_attr(problem, row->name);
		if (row->range == OP_WORD)
			status = check_word(problem, row, attr, error);
		else if (row->range == OP_FINITE || row->range == OP_FROM)
			status = check_real(problem, row, attr, error);
		else if (row->range != OP_ANY)
			status = check_integer(problem, row, attr, error);
	}
	return status;
}

/* The row of an attribute that the operator has. */
static const struct op_attribute *find_row(const struct kernel_problem *problem, const char *name)
{
	const struct op_attribute *row = problem->attributes;

	while (strcmp(row->name, name) != 0)
		row++;
	return row;
}

double plan_real(const struct kernel_problem *problem, const char *name)
{
	const struct kernel_attr *attr = plan_attr(problem, name);
	const char *usual = find_row(problem, name)->usual;

	if (attr)
		return attr->kind == KILN_ATTR_REAL ? attr->f : (double)attr->i;
	return usual ? strtod(usual, NULL) : 0;
}

int64_t plan_int(const struct kernel_problem *problem, const char *name)
{
	const struct kernel_attr *attr = plan_attr(problem, name);
	const char *usual = find_row(problem, name)->usual;

	return attr ? attr->i : usual ? strtoll(usual, NULL, 10) : 0;
}

int plan_word(const struct kernel_problem *problem, const char *name)
{
	const struct op_attribute *row = find_row(problem, name);
	const char *text = plan_attr_text(problem, name), *usual = row->usual;

	return text || usual ? find_word(row, text ? text : usual) : 0;
}

int plan_axis(const struct kernel_problem *problem)
{
	int64_t axis = plan_int(problem, "axis");

	return (int)(axis < 0 ? axis + problem->tensors[0].rank : axis);
}

const char *plan_attr_text(const struct kernel_problem *problem, const char *name)
{
	const struct kernel_attr *attr = plan_attr(problem, name);

	return attr && attr->kind == KILN_ATTR_STRING ? kernel_attr_text(problem, attr) : NULL;
}

enum plan_bounds plan_bounds(const struct kernel_problem *problem)
{
	const char *word = plan_attr_text(problem, "bounds");

	return !word || strcmp(word, "check") == 0 ? PLAN_CHECK
		   : strcmp(word, "clamp") == 0        ? PLAN_CLAMP
											   : PLAN_TRUST;
}

const char *plan_bounds_name(enum plan_bounds bounds)
{
	return bounds == PLAN_CHECK   ? "INDICES_CHECK"
		   : bounds == PLAN_CLAMP ? "INDICES_CLAMP"
								  : "INDICES_TRUST";
}
