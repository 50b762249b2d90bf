/*
 * problem_attrs.c: looks into a problem that has been read: its attributes, the operands it writes,
 * row-major strides.
 */
#include "problem.h"

#include <string.h>

void cli_problem_strides(kiln_tensor *tensor)
{
	int64_t row = 1;

	for (int k = tensor->rank - 1; k >= 0; k--) {
		tensor->stride[k] = row;
		/* One that is too large is found where bytes are counted. */
		(void)__builtin_mul_overflow(row, tensor->shape[k] ? tensor->shape[k] : 1, &row);
	}
}

static const kiln_attr *find_attr(const struct cli_problem *problem, const char *name)
{
	for (int i = 0; i < problem->attr_count; i++)
		if (!strcmp(problem->attrs[i].name, name))
			return &problem->attrs[i];
	return NULL;
}

int64_t cli_problem_int(const struct cli_problem *problem, const char *name, int64_t otherwise)
{
	const kiln_attr *attr = find_attr(problem, name);
	return attr ? attr->i : otherwise;
}

const char *cli_problem_text(const struct cli_problem *problem, const char *name,
							 const char *otherwise)
{
	const kiln_attr *attr = find_attr(problem, name);
	return attr ? attr->s : otherwise;
}

bool cli_problem_written(const struct cli_problem *problem, int operand)
{
	return problem->row && op_is_output(problem->row->operands[operand].data);
}
