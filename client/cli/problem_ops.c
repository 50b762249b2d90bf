/*
 * problem_ops.c: the options of the command line that come from the rows of the operators, and
 * which operator takes which.
 */
#include "problem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const struct plan_op *cli_operator(const char *name)
{
	const struct plan_op *row = plan_find(name);

	return row && !row->names ? row : NULL;
}

/* The operators that describe their operands and attributes by a row alone. */
static const struct plan_op *next_operator(const struct plan_op *row)
{
	do
		row = plan_op_next(row);
	while (row && row->names);
	return row;
}

/* ---- Options ---- */

#define TYPED_MOST 48
#define TEXT_MOST 80

/* Texts that are put together from a row live as long as the process. */
static struct {
	struct cli_option options[CLI_MAX_OPTIONS + 1];
	int count;
	char names[TYPED_MOST][TEXT_MOST], helps[CLI_MAX_OPTIONS][TEXT_MOST];
	int typed;
	const struct cli_option *own;
} made;

static int option_at(const char *name)
{
	for (int i = 0; i < made.count; i++)
		if (!strcmp(made.options[i].name, name))
			return i;
	return -1;
}

static void add_option(const char *name, const char *value, const char *help)
{
	if (option_at(name) >= 0)
		return;
	assert(made.count < CLI_MAX_OPTIONS);
	snprintf(made.helps[made.count], TEXT_MOST, "%s", help);
	made.options[made.count] = (struct cli_option){name, value, made.helps[made.count], CLI_ONCE};
	made.count++;
}

static bool is_typed(const struct op_operand *operand)
{
	return operand->dtype == OP_OWN || operand->dtype == OP_MASK_DTYPE ||
		   operand->dtype == OP_INDEX;
}

/* Operators may have indices and numbers under one name: the option says both. */
static void add_help(int at, const char *help)
{
	size_t used = strlen(made.helps[at]);

	if (strstr(made.helps[at], help))
		return;
	assert(used + strlen("; ") + strlen(help) < TEXT_MOST);
	snprintf(made.helps[at] + used, TEXT_MOST - used, "; %s", help);
}

static void add_dtype(const struct plan_op *row, const struct op_operand *operand)
{
	char help[TEXT_MOST];
	int at;

	if (!is_typed(operand))
		return;
	assert(made.typed < TYPED_MOST);
	snprintf(made.names[made.typed], TEXT_MOST, "%s-dtype", operand->name);
	if (operand->dtype == OP_INDEX)
		snprintf(help, sizeof(help), "type of indices: u8, u16, i32, i64 (i32)");
	else if (operand->dtype == OP_MASK_DTYPE)
		snprintf(help, sizeof(help), "its element type (bool; i32; for additive x's)");
	else
		snprintf(help, sizeof(help), "element type of %s (%s's)", operand->name,
				 row->operands[0].name);
	at = option_at(made.names[made.typed]);
	if (at >= 0)
		add_help(at, help);
	else
		add_option(made.names[made.typed++], "TYPE", help);
}

static void add_operand(const struct plan_op *row, const struct op_operand *operand)
{
	if (operand->shape == OP_MASK_SHAPE)
		add_option("mask", "8x1x9", "its shape (x's; for lengths without the last axis)");
	if (operand->shape == OP_LAST || operand->shape == OP_ALONG)
		add_option("last", "N", "size of dst, or of dsrc in backward, along the indexed axis");
	if (operand->presence == OP_OPTIONAL || operand->presence == OP_USUAL)
		add_option("with", "gamma,..", "the optional operands that are there (none; backward dx)");
	add_dtype(row, operand);
}

const struct cli_option *cli_problem_options(const struct cli_option *own)
{
	static const struct cli_option first[] = {
		{"shape", "2x3x4", "shape of the first operand; \"scalar\" for rank 0"},
		{"dtype", "TYPE", "its element type: f32, f16, u8, ... (f32)", CLI_NAMED},
		{"stride", "3,1", "its strides in elements; 0 repeats (row-major)"},
		{"offset", "BYTES", "where it begins in its buffer (0)"},
		{0},
	};

	if (made.own == own)
		return made.options;
	made.count = made.typed = 0;
	for (int i = 0; first[i].name; i++)
		made.options[made.count++] = first[i];
	for (const struct plan_op *row = next_operator(NULL); row; row = next_operator(row)) {
		for (const struct op_attribute *attribute = row->attributes; attribute->name; attribute++) {
			const char *usual = attribute->usual;
			char help[TEXT_MOST];
			snprintf(help, sizeof(help), "%s%s%s%s", attribute->help, usual ? " (" : "",
					 usual ? usual : "", usual ? ")" : "");
			add_option(attribute->name, attribute->value, help);
		}
		for (const struct op_operand *operand = row->operands; operand->name; operand++)
			add_operand(row, operand);
	}
	add_option("choice", "NAME", "the candidate to take: one that explain lists, or generic");
	made.own = own;
	for (; own->name; own++) {
		assert(made.count < CLI_MAX_OPTIONS);
		made.options[made.count++] = *own;
	}
	made.options[made.count] = (struct cli_option){0};
	return made.options;
}

/* ---- Which operator takes which ---- */

const struct op_attribute *cli_attribute(const struct plan_op *row, const char *option)
{
	for (const struct plan_op *at = row ? row : next_operator(NULL); at;
		 at = row ? NULL : next_operator(at))
		for (const struct op_attribute *attribute = at->attributes; attribute->name; attribute++)
			if (!strcmp(attribute->name, option))
				return attribute;
	return NULL;
}

bool cli_option_special(const char *option)
{
	size_t length = strlen(option);

	return cli_attribute(NULL, option) || !strcmp(option, "with") || !strcmp(option, "mask") ||
		   !strcmp(option, "last") || (length > 6 && !strcmp(option + length - 6, "-dtype"));
}

bool cli_describes_problem(const struct cli_command *command)
{
	return command->merge == cli_problem_options;
}

const char *cli_operator_optional(const struct plan_op *row, char names[CLI_NAMES_MAX])
{
	size_t used = 0;

	names[0] = 0;
	for (const struct op_operand *operand = row->operands; operand->name; operand++)
		if (operand->presence == OP_OPTIONAL || operand->presence == OP_USUAL)
			used += (size_t)snprintf(names + used, CLI_NAMES_MAX - used, "%s%s", used ? "," : "",
									 operand->name);
	return names;
}

bool cli_operator_takes(const struct plan_op *row, const char *option)
{
	if (!cli_option_special(option))
		return true;
	if (cli_attribute(row, option))
		return true;
	for (const struct op_operand *operand = row->operands; operand->name; operand++) {
		bool named = operand->presence == OP_OPTIONAL || operand->presence == OP_USUAL;
		size_t length = strlen(operand->name);
		if ((named && !strcmp(option, "with")) ||
			(operand->shape == OP_MASK_SHAPE && !strcmp(option, "mask")) ||
			((operand->shape == OP_LAST || operand->shape == OP_ALONG) &&
			 !strcmp(option, "last")) ||
			(is_typed(operand) && !strncmp(option, operand->name, length) &&
			 !strcmp(option + length, "-dtype")))
			return true;
	}
	return false;
}
