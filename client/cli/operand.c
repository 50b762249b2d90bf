/*
 * operand.c: --operand, which says all of one operand in a word: TYPE:SHAPE[:STRIDES][@OFFSET].
 * With it any problem can be described, as the daemon describes one in its sentences; what follows
 * from the first operand elsewhere is said here.
 */
#include "failure.h"
#include "problem.h"
#include "values.h"

#include <string.h>

#define SPEC_MOST 512

/* Cuts text behind the first of this character, which ends it there; NULL: there is none. */
static char *cut(char *text, char at)
{
	char *found = strchr(text, at);

	if (found)
		*found++ = 0;
	return found;
}

int cli_operand_read(const char *text, kiln_tensor *tensor)
{
	char copy[SPEC_MOST], *offset, *shape, *strides;
	int status, count;

	*tensor = (kiln_tensor){.contiguous = 1};
	if (!strcmp(text, "-"))
		return CLI_OK;
	if (strlen(text) >= sizeof(copy))
		return cli_usage("--operand '%.40s...': longer than %d characters", text, SPEC_MOST - 1);
	memcpy(copy, text, strlen(text) + 1);
	offset = cut(copy, '@');
	shape = cut(copy, ':');
	strides = shape ? cut(shape, ':') : NULL;
	if (!shape)
		return cli_usage("--operand '%s': expected TYPE:SHAPE[:STRIDES][@OFFSET], as f32:2x3, or - "
						 "for one that is left out",
						 text);
	status = cli_dtype("--operand", copy, &tensor->dtype);
	if (!status)
		status = cli_dims("--operand", shape, tensor->shape, &tensor->rank);
	cli_problem_strides(tensor);
	if (!status && offset)
		status = cli_bytes("--operand", offset, &tensor->offset);
	if (status || !strides)
		return status;
	tensor->contiguous = 0;
	status = cli_dims("--operand", strides, tensor->stride, &count);
	if (!status && count != tensor->rank)
		return cli_usage("--operand '%s': %d strides for %d axes", text, count, tensor->rank);
	return status;
}

/* Options that say a part of what --operand says. */
static int check_alone(const struct cli *cli)
{
	static const char *const first[] = {"shape", "dtype", "stride", "offset"};
	const struct cli_option *options = cli_options(cli->command);

	for (int i = 0; options[i].name; i++) {
		bool clashes = cli_option_special(options[i].name) && !cli_attribute(NULL, options[i].name);
		for (int k = 0; k < 4; k++)
			clashes = clashes || !strcmp(options[i].name, first[k]);
		if (clashes && cli->values[i])
			return cli_usage("--%s '%s': --operand says it all, and neither goes with the other",
							 options[i].name, cli->values[i]);
	}
	return CLI_OK;
}

int cli_operand_list(const struct cli *cli, struct cli_problem *problem)
{
	int status = check_alone(cli), at = 0;
	const char *text;

	problem->tensor_count = 0;
	while (!status && (text = cli_next(cli, "operand", &at))) {
		if (problem->tensor_count == KILN_MAX_OPERANDS)
			return cli_usage("--operand '%s': more than %d operands", text, KILN_MAX_OPERANDS);
		status = cli_operand_read(text, &problem->tensors[problem->tensor_count++]);
	}
	return status;
}

bool cli_operand_given(const struct cli *cli)
{
	int at = 0;

	return cli_next(cli, "operand", &at) != NULL;
}
