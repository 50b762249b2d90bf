/*
 * map_problem.c: reads a statement of the operator map, and its options, into a problem that is
 * run, explained or compiled like any other.
 *
 * A name is an operand if it has subscripts and is no reduction's, or if an option gives it a shape
 * or a type.  A name with --set is a scalar.  Operands stand in the order in which the right side
 * names them; the output is the last.
 */
#include "map_problem.h"
#include "daemon.h"
#include "failure.h"
#include "files.h"
#include "problem.h"
#include "values.h"

#include "tests/ops/map/eval.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	struct plan_op row;
	char names[KILN_MAX_OPERANDS][EVAL_NAME], list[KILN_MAX_OPERANDS * EVAL_NAME];
	char scalars[KILN_MAX_ATTRS][EVAL_NAME];
	bool index[KILN_MAX_OPERANDS]; /* the operand stands in a subscript */
	int count;
} map;

/* ---- Names ---- */

/* The rest of the option's value for this operand; NULL: there is none. */
static const char *named_value(const struct cli *cli, const char *option, const char *name)
{
	size_t length = strlen(name);
	const char *value;
	int at = 0;

	while ((value = cli_next(cli, option, &at)))
		if (!strncmp(value, name, length) && value[length] == '=')
			return value + length + 1;
	return NULL;
}

static int map_problem_find(const char *name)
{
	for (int i = 0; i < map.count; i++)
		if (!strcmp(map.names[i], name))
			return i;
	return -1;
}

static int note_operand(const char *name, int depth)
{
	int at = map_problem_find(name);

	if (at < 0 && map.count == KILN_MAX_OPERANDS)
		return cli_usage("run map: more than %d operands", KILN_MAX_OPERANDS);
	if (at < 0) {
		at = map.count++;
		snprintf(map.names[at], EVAL_NAME, "%s", name);
	}
	map.index[at] = map.index[at] || depth > 0;
	return CLI_OK;
}

/* Collects the names of one side of the statement. */
static int find_operands(const struct cli *cli, struct files *files, const char *text,
						 const char *end)
{
	int depth = 0, status = CLI_OK;

	while (text < end && !status) {
		char name[EVAL_NAME];
		size_t length = 0;
		if (!isalpha((unsigned char)*text) && *text != '_') {
			depth += *text == '[' ? 1 : *text == ']' ? -1 : 0;
			text++;
			continue;
		}
		while (isalnum((unsigned char)text[length]) || text[length] == '_')
			length++;
		snprintf(name, sizeof(name), "%.*s", (int)length, text);
		text += length;
		if (length < EVAL_NAME &&
			((text[strspn(text, " ")] == '[' && !eval_is_reduction(name)) ||
			 named_value(cli, "shape", name) || named_value(cli, "dtype", name) ||
			 files_in(files, name) || files_out(files, name)))
			status = note_operand(name, depth);
		while (text < end && isalnum((unsigned char)*text)) /* the exponent of a number */
			text++;
	}
	return status;
}

static int name_operands(const struct cli *cli, struct files *files)
{
	const char *statement = cli->positional[0], *equals = strchr(statement, '=');
	const char *right = equals ? equals + 1 : statement;
	char left[EVAL_NAME] = "";
	size_t length = strspn(statement, " "), from = length;
	int status = find_operands(cli, files, right, statement + strlen(statement));

	while (isalnum((unsigned char)statement[length]) || statement[length] == '_')
		length++;
	snprintf(left, sizeof(left), "%.*s", (int)(length - from), statement + from);
	if (!status && (right == statement || !left[0] || map_problem_find(left) >= 0))
		return cli_usage("run map '%s': expected an operand, '=' and a value without that operand",
						 statement);
	return status ? status : note_operand(left, 0);
}

static int check_names(const struct cli *cli, const struct files *files)
{
	static const char *const options[] = {"shape", "dtype"};
	const char *value;
	int at;

	for (int i = 0; i < 2; i++)
		for (at = 0; (value = cli_next(cli, options[i], &at));) {
			char name[EVAL_NAME];
			snprintf(name, sizeof(name), "%.*s", (int)strcspn(value, "="), value);
			if (!strchr(value, '=') || map_problem_find(name) < 0)
				return cli_usage("--%s '%s': expected NAME=%s with an operand of the statement",
								 options[i], value, i ? "TYPE" : "2x3x4");
		}
	for (int i = 0; files && i < files->in_count + files->out_count; i++) {
		bool out = i >= files->in_count;
		const struct file *file = out ? &files->out[i - files->in_count] : &files->in[i];
		if (map_problem_find(file->name) < 0 ||
			(map_problem_find(file->name) == map.count - 1) != out)
			return cli_usage("--%s '%s=%s': the statement does not %s %s", out ? "out" : "in",
							 file->name, file->path, out ? "write" : "read", file->name);
	}
	return CLI_OK;
}

/* ---- Operands ---- */

static int make_tensor(const struct cli *cli, struct files *files, int i, kiln_tensor *tensor)
{
	const char *shape = named_value(cli, "shape", map.names[i]);
	const char *dtype = named_value(cli, "dtype", map.names[i]);
	struct file *file = files_in(files, map.names[i]);
	int status = CLI_OK;

	if (file) {
		if (dtype)
			status = files_check_dtype(file, "--dtype", dtype);
		if (!status && shape)
			status = files_check_shape(file, "--shape", shape);
		*tensor = files_tensor(file);
		return status;
	}
	tensor->contiguous = 1;
	tensor->rank = -1;
	if (shape)
		status = cli_dims("--shape", shape, tensor->shape, &tensor->rank);
	if (!status && !shape && i < map.count - 1)
		return cli_usage("'kiln %s' needs --shape %s=2x3x4, or --in %s=FILE", cli->command->name,
						 map.names[i], map.names[i]);
	if (!status)
		status = cli_dtype("--dtype", dtype ? dtype : map.index[i] ? "i32" : "f32", &tensor->dtype);
	cli_problem_strides(tensor);
	return status;
}

static void fill_eval(const struct cli_problem *problem, struct eval *eval)
{
	eval->statement = cli_problem_text(problem, "statement", "");
	eval->bounds = cli_problem_text(problem, "bounds", "check");
	eval->operands = map.count;
	for (int i = 0; i < map.count; i++) {
		struct eval_operand *to = &eval->operand[i];
		const kiln_tensor *tensor = &problem->tensors[i];
		memcpy(to->name, map.names[i], EVAL_NAME);
		to->dtype = tensor->dtype;
		to->rank = tensor->rank;
		memcpy(to->shape, tensor->shape, sizeof(to->shape));
		memcpy(to->stride, tensor->stride, sizeof(to->stride));
	}
	for (int i = 0; i < problem->attr_count; i++) {
		const kiln_attr *attr = &problem->attrs[i];
		struct eval_scalar *to = &eval->scalar[eval->scalars];
		if (attr->kind == KILN_ATTR_STRING || !strcmp(attr->name, "checked"))
			continue;
		snprintf(to->name, EVAL_NAME, "%s", attr->name);
		to->real = attr->kind == KILN_ATTR_REAL;
		to->f = attr->f;
		to->i = attr->i;
		eval->scalars++;
	}
}

/* Gives the output the shape of its indices, and the right side's type. */
static int make_output(const struct cli *cli, struct cli_problem *problem)
{
	kiln_tensor *output = &problem->tensors[map.count - 1];
	bool typed = named_value(cli, "dtype", map.names[map.count - 1]) != NULL;
	struct eval *eval;
	const char *wrong;

	if (output->rank >= 0 && typed)
		return CLI_OK;
	eval = calloc(1, sizeof(*eval));
	if (!eval)
		return CLI_FAILED;
	fill_eval(problem, eval);
	wrong = eval_open(eval);
	if (!wrong && !typed)
		output->dtype = eval_dtype(eval);
	if (output->rank >= 0) {
		/* A shape that was given stays; the daemon says what is wrong with it. */
		free(eval);
		return CLI_OK;
	}
	/* A shape found before an error need not fit a tensor. */
	output->rank = wrong ? 0 : eval->output_rank;
	for (int k = 0; k < output->rank && !wrong; k++) {
		output->shape[k] = eval->extent[k];
		if (eval->extent[k] < 0)
			wrong = "its shape does not follow from the others: say --shape";
	}
	free(eval);
	cli_problem_strides(output);
	return wrong ? cli_usage("%s '%s': %s: %s", cli->command->name, cli->positional[0],
							 map.names[map.count - 1], wrong)
				 : CLI_OK;
}

/* ---- Attributes ---- */

static int add_scalar(struct cli_problem *problem, const char *value)
{
	kiln_attr *attr = &problem->attrs[problem->attr_count];
	char *name = map.scalars[problem->attr_count], *end;
	size_t length = strcspn(value, "=");

	if (problem->attr_count == KILN_MAX_ATTRS)
		return cli_usage("--set '%s': more than %d attributes", value, KILN_MAX_ATTRS);
	if (!length || !value[length] || length >= EVAL_NAME)
		return cli_usage("--set '%s': expected NAME=NUMBER", value);
	snprintf(name, EVAL_NAME, "%.*s", (int)length, value);
	*attr = (kiln_attr){.name = name, .kind = KILN_ATTR_INT};
	value += length + 1;
	attr->i = strtoll(value, &end, 10);
	problem->attr_count++;
	if (end > value && *end == 0)
		return CLI_OK;
	attr->kind = KILN_ATTR_REAL;
	return cli_real("--set", value, &attr->f);
}

static void add_text(struct cli_problem *problem, const char *name, const char *value)
{
	if (value)
		problem->attrs[problem->attr_count++] = cli_attr_string(name, value);
}

static int add_attributes(const struct cli *cli, struct cli_problem *problem)
{
	const char *value;
	int at = 0, status = CLI_OK;

	map.list[0] = 0;
	for (int i = 0; i < map.count; i++)
		snprintf(map.list + strlen(map.list), sizeof(map.list) - strlen(map.list), "%s%s",
				 i ? "," : "", map.names[i]);
	add_text(problem, "statement", cli->positional[0]);
	add_text(problem, "names", map.list);
	add_text(problem, "bounds", cli_value(cli, "bounds"));
	add_text(problem, "choice", cli_value(cli, "choice"));
	if (cli_value(cli, "checked"))
		problem->attrs[problem->attr_count++] = cli_attr_int("checked", 1);
	while (!status && (value = cli_next(cli, "set", &at)))
		status = add_scalar(problem, value);
	return status;
}

/* ---- The problem ---- */

/* Keeps random indices below the least dimension that they may stand for. */
static int64_t least_size(const struct cli_problem *problem, int index)
{
	int64_t least = INT32_MAX;

	for (int i = 0; i < map.count - 1; i++)
		for (int k = 0; !map.index[i] && i != index && k < problem->tensors[i].rank; k++)
			if (problem->tensors[i].shape[k] < least)
				least = problem->tensors[i].shape[k];
	return least;
}

static void describe_operands(struct cli_problem *problem)
{
	map.row = (struct plan_op){.name = "map"};
	for (int i = 0; i < map.count; i++) {
		bool written = i == map.count - 1;
		map.row.operands[i] = (struct op_operand){.name = map.names[i],
												  .data = written        ? OP_WRITTEN
														  : map.index[i] ? OP_INDICES
																		 : OP_NORMAL};
		problem->index_end[i] = least_size(problem, i);
	}
	problem->row = &map.row;
}

/* Reads --operand, in the order in which the program would name the operands. */
static int read_operands(const struct cli *cli, struct cli_problem *problem)
{
	static const char *const others[] = {"shape", "dtype"};
	const char *value;
	int at, status = CLI_OK;

	for (int i = 0; i < 2; i++)
		if (at = 0, (value = cli_next(cli, others[i], &at)))
			return cli_usage("--%s '%s': --operand says it all, and neither goes with the other",
							 others[i], value);
	for (at = 0; !status && (value = cli_next(cli, "operand", &at));) {
		size_t length = strcspn(value, "=");
		if (!length || length >= EVAL_NAME || !value[length])
			return cli_usage("--operand '%s': expected NAME=TYPE:SHAPE, as x=f32:2x3", value);
		if (map.count == KILN_MAX_OPERANDS)
			return cli_usage("--operand '%s': more than %d operands", value, KILN_MAX_OPERANDS);
		snprintf(map.names[map.count], EVAL_NAME, "%.*s", (int)length, value);
		status = cli_operand_read(value + length + 1, &problem->tensors[map.count++]);
	}
	return status;
}

int cli_map_problem(const struct cli *cli, struct files *files, struct cli_problem *problem)
{
	bool all = cli_operand_given(cli);
	int status;

	memset(problem, 0, sizeof(*problem));
	memset(&map, 0, sizeof(map));
	problem->op = "map";
	problem->files = files;
	status = all ? read_operands(cli, problem) : name_operands(cli, files);
	if (!status && !all)
		status = check_names(cli, files);
	problem->tensor_count = map.count;
	for (int i = 0; i < map.count && !status && !all; i++)
		status = make_tensor(cli, files, i, &problem->tensors[i]);
	if (!status)
		status = add_attributes(cli, problem);
	if (!status && !all)
		status = make_output(cli, problem);
	if (!status)
		describe_operands(problem);
	return status;
}
