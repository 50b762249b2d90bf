/*
 * problem.c: from options to the first operand and the attributes, by the operator's row.
 * Checks that options are for the operator and fit together; whether the request is right is the
 * daemon's to say.
 */
#include "problem.h"
#include "failure.h"
#include "files.h"
#include "values.h"

#include <stdio.h>
#include <string.h>

/* ---- Which options ---- */

/* All options that the operator takes and others do not: "--axis, --scale". */
static void list_options(const struct cli *cli, const struct plan_op *row, char *text, size_t size)
{
	const char *before = "";

	text[0] = 0;
	for (const struct cli_option *option = cli_options(cli->command); option->name; option++) {
		size_t used = strlen(text);
		if (!cli_option_special(option->name) || !cli_operator_takes(row, option->name))
			continue;
		snprintf(text + used, size - used, "%s--%s", before, option->name);
		before = ", ";
	}
}

static int check_options(const struct cli *cli, const struct plan_op *row)
{
	const struct cli_option *options = cli_options(cli->command);
	char taken[256];

	for (int i = 0; options[i].name; i++) {
		if (!cli->values[i] || cli_operator_takes(row, options[i].name))
			continue;
		list_options(cli, row, taken, sizeof(taken));
		return cli_usage("--%s is no option of %s, which takes %s, and those of all operators; see "
						 "'kiln help %s'",
						 options[i].name, row->name, taken, cli->command->name);
	}
	return CLI_OK;
}

/* ---- The first operand ---- */

static int first_from_file(const struct cli *cli, struct file *file, kiln_tensor *x)
{
	static const char *const layout[] = {"stride", "offset"};
	const char *dtype = cli_value(cli, "dtype"), *shape = cli_value(cli, "shape");
	int status = CLI_OK;

	for (int i = 0; i < 2; i++)
		if (cli_value(cli, layout[i]))
			return cli_usage("--%s '%s': %s comes from %s, and is contiguous", layout[i],
							 cli_value(cli, layout[i]), file->name, file->path);
	if (dtype)
		status = files_check_dtype(file, "--dtype", dtype);
	if (!status && shape)
		status = files_check_shape(file, "--shape", shape);
	*x = files_tensor(file);
	return status;
}

static int first_operand(const struct cli *cli, struct cli_problem *problem)
{
	struct file *file =
		problem->row ? files_in(problem->files, problem->row->operands[0].name) : NULL;
	kiln_tensor *x = &problem->tensors[0];
	const char *dtype = cli_value(cli, "dtype"), *stride = cli_value(cli, "stride");
	const char *shape = cli_value(cli, "shape"), *offset = cli_value(cli, "offset");
	int status, strides;

	if (file)
		return first_from_file(cli, file, x);
	if (!shape)
		return cli_usage("'kiln %s' needs --shape, as --shape 2x3x4", cli->command->name);
	x->contiguous = 1;
	status = cli_dims("--shape", shape, x->shape, &x->rank);
	cli_problem_strides(x);
	if (!status)
		status = cli_dtype("--dtype", dtype ? dtype : "f32", &x->dtype);
	if (!status && offset)
		status = cli_bytes("--offset", offset, &x->offset);
	if (status || !stride)
		return status;
	x->contiguous = 0;
	status = cli_dims("--stride", stride, x->stride, &strides);
	if (!status && strides != x->rank)
		return cli_usage("--stride '%s': %d strides for %d axes of --shape '%s'", stride, strides,
						 x->rank, shape);
	return status;
}

/* ---- Attributes ---- */

static int read_perm(const struct cli *cli, struct cli_problem *problem, const char *value,
					 int *count)
{
	int rank = problem->tensors[0].rank;
	int status = cli_perm("--perm", value, problem->perm, count);

	if (!status && *count != rank && !cli_value(cli, "shape"))
		return cli_usage("--perm '%s': %d axes for %d axes of x", value, *count, rank);
	if (!status && *count != rank)
		return cli_usage("--perm '%s': %d axes for %d axes of --shape '%s'", value, *count, rank,
						 cli_value(cli, "shape"));
	return status;
}

static int read_attribute(const struct cli *cli, struct cli_problem *problem, const char *name,
						  kiln_attr_kind kind)
{
	kiln_attr attr = {.name = name, .kind = kind, .ints = problem->perm};
	const char *value = cli_value(cli, name);
	char option[32];
	int status = CLI_OK;

	if (!value)
		return CLI_OK;
	snprintf(option, sizeof(option), "--%s", name);
	if (attr.kind == KILN_ATTR_INTS && strcmp(name, "perm") != 0)
		status = cli_axes(option, value, problem->perm, &attr.count);
	else if (attr.kind == KILN_ATTR_INTS)
		status = read_perm(cli, problem, value, &attr.count);
	else if (attr.kind == KILN_ATTR_REAL)
		status = cli_real(option, value, &attr.f);
	else if (attr.kind == KILN_ATTR_STRING)
		attr.s = value;
	else if (!value[0]) /* a flag */
		attr.i = 1;
	else
		status = cli_integer(option, value, INT64_MIN, INT64_MAX, &attr.i);
	problem->attrs[problem->attr_count++] = attr;
	return status;
}

int cli_problem(const struct cli *cli, struct files *files, struct cli_problem *problem)
{
	bool all = cli_operand_given(cli);
	int status = CLI_OK;

	memset(problem, 0, sizeof(*problem));
	problem->op = cli->positional[0];
	problem->row = cli_operator(problem->op);
	problem->tensor_count = 1;
	problem->files = files;
	if (problem->row)
		status = check_options(cli, problem->row);
	if (!status)
		status = cli_problem_files(cli, problem);
	if (!status)
		status = all ? cli_operand_list(cli, problem) : first_operand(cli, problem);
	for (const struct op_attribute *attribute = problem->row ? problem->row->attributes : NULL;
		 !status && attribute && attribute->name; attribute++)
		if (attribute->needed && !cli_value(cli, attribute->name))
			status = cli_usage("'kiln %s %s' needs --%s, as --%s %s", cli->command->name,
							   problem->op, attribute->name, attribute->name, attribute->value);
	for (const struct cli_option *option = cli_options(cli->command); !status && option->name;
		 option++) {
		const struct op_attribute *attribute = cli_attribute(problem->row, option->name);
		if (attribute)
			status = read_attribute(cli, problem, attribute->name, attribute->kind);
	}
	if (!status)
		status = read_attribute(cli, problem, PLAN_CHOICE, KILN_ATTR_STRING);
	if (!status && problem->row && !all)
		status = cli_problem_operands(cli, problem);
	return status;
}
