/*
 * kiln_problem_ops: the table of the operators: what each takes on the command line, and by which
 * loops it is verified.  An operator is one row; an attribute of a new name is one more here and an
 * option in problem.h.
 */
#include "problem.h"

#include "reference.h"

#include <stdio.h>
#include <string.h>

#define LIKE_FIRST(name, data, presence)               \
	{                                                  \
		name, SHAPE_FIRST, DTYPE_FIRST, data, presence \
	}
#define IN(name, data) LIKE_FIRST(name, data, PRESENT)
#define OUT(name) LIKE_FIRST(name, DATA_WRITTEN, PRESENT)
#define COLUMNS(name, data)                             \
	{                                                   \
		name, SHAPE_TRAILING, DTYPE_OWN, data, OPTIONAL \
	}
#define ROWS(name, data, presence)                          \
	{                                                       \
		name, SHAPE_LEADING, DTYPE_COMPUTED, data, presence \
	}
#define MASK                                               \
	{                                                      \
		"mask", SHAPE_MASK, DTYPE_MASK, DATA_MASK, BY_KIND \
	}

#define IDX                                                      \
	{                                                            \
		"idx", SHAPE_INDICES, DTYPE_INDEX, DATA_INDICES, PRESENT \
	}
#define LAST(name)                                           \
	{                                                        \
		name, SHAPE_LAST, DTYPE_FIRST, DATA_WRITTEN, PRESENT \
	}
#define PAIRS(name, data)                               \
	{                                                   \
		name, SHAPE_LEADING, DTYPE_FIRST, data, PRESENT \
	}
#define TARGET(shape)                                     \
	{                                                     \
		"target", shape, DTYPE_OWN, DATA_TARGETS, PRESENT \
	}
#define OFFSETS                                                     \
	{                                                               \
		"offsets", SHAPE_OFFSETS, DTYPE_I32, DATA_OFFSETS, OPTIONAL \
	}
#define ONE(name, dtype, data, presence)       \
	{                                          \
		name, SHAPE_ONE, dtype, data, presence \
	}

const struct cli_operator cli_operators[] = {
	{"permute", {IN("x", DATA_BITS), OUT("y")}, {"perm"}, "perm", reference_permute},
	{"softmax", {IN("x", DATA_NORMAL), OUT("y")}, {"axis", "scale"}, NULL, reference_softmax},
	{"log_softmax", {IN("x", DATA_NORMAL), OUT("y")}, {"axis", "scale"}, NULL, reference_softmax},
	{"softmax_backward",
	 {IN("y", DATA_PROBABILITY), IN("dy", DATA_NORMAL), OUT("dx")},
	 {"axis", "scale"},
	 NULL,
	 reference_softmax_backward},
	{"log_softmax_backward",
	 {IN("y", DATA_LOGARITHM), IN("dy", DATA_NORMAL), OUT("dx")},
	 {"axis", "scale"},
	 NULL,
	 reference_softmax_backward},
	{"masked_softmax",
	 {IN("x", DATA_NORMAL), MASK, OUT("y")},
	 {"kind", "keep", "empty", "scale", "diagonal"},
	 "kind",
	 reference_softmax},
	{"masked_softmax_backward",
	 {IN("y", DATA_PROBABILITY), IN("dy", DATA_NORMAL), MASK, OUT("dx")},
	 {"kind", "keep", "scale", "diagonal"},
	 "kind",
	 reference_softmax_backward},
	{"layer_norm",
	 {IN("x", DATA_NORMAL), COLUMNS("gamma", DATA_ABOUT_ONE), COLUMNS("beta", DATA_NORMAL),
	  LIKE_FIRST("residual", DATA_NORMAL, OPTIONAL), OUT("y"), ROWS("mean", DATA_WRITTEN, OPTIONAL),
	  ROWS("rstd", DATA_WRITTEN, OPTIONAL), LIKE_FIRST("sum", DATA_WRITTEN, OPTIONAL)},
	 {"eps", "axes"},
	 NULL,
	 reference_norm},
	{"rms_norm",
	 {IN("x", DATA_NORMAL), COLUMNS("gamma", DATA_ABOUT_ONE), COLUMNS("beta", DATA_NORMAL),
	  LIKE_FIRST("residual", DATA_NORMAL, OPTIONAL), OUT("y"), ROWS("rstd", DATA_WRITTEN, OPTIONAL),
	  LIKE_FIRST("sum", DATA_WRITTEN, OPTIONAL)},
	 {"eps", "axes"},
	 NULL,
	 reference_norm},
	{"layer_norm_backward",
	 {IN("x", DATA_NORMAL), IN("dy", DATA_NORMAL), COLUMNS("gamma", DATA_ABOUT_ONE),
	  ROWS("mean", DATA_NORMAL, PRESENT), ROWS("rstd", DATA_ABOUT_ONE, PRESENT),
	  LIKE_FIRST("dx", DATA_WRITTEN, USUAL), COLUMNS("dgamma", DATA_WRITTEN),
	  COLUMNS("dbeta", DATA_WRITTEN)},
	 {"axes"},
	 NULL,
	 reference_norm_backward},
	{"rms_norm_backward",
	 {IN("x", DATA_NORMAL), IN("dy", DATA_NORMAL), COLUMNS("gamma", DATA_ABOUT_ONE),
	  ROWS("rstd", DATA_ABOUT_ONE, PRESENT), LIKE_FIRST("dx", DATA_WRITTEN, USUAL),
	  COLUMNS("dgamma", DATA_WRITTEN), COLUMNS("dbeta", DATA_WRITTEN)},
	 {"axes"},
	 NULL,
	 reference_norm_backward},
	{"gather", {IN("src", DATA_BITS), IDX, LAST("dst")}, {"bounds"}, NULL, reference_gather},
	{"gather_backward",
	 {IN("ddst", DATA_NORMAL), IDX, LAST("dsrc")},
	 {"bounds"},
	 NULL,
	 reference_gather_backward},
	{"giou",
	 {IN("pred", DATA_BOXES), TARGET(SHAPE_FIRST), PAIRS("y", DATA_WRITTEN)},
	 {"clamp"},
	 NULL,
	 reference_giou},
	{"giou_backward",
	 {IN("pred", DATA_BOXES), TARGET(SHAPE_FIRST), PAIRS("dy", DATA_NORMAL), OUT("dpred")},
	 {"clamp"},
	 NULL,
	 reference_giou},
	{"giou_loss",
	 {IN("pred", DATA_BOXES), TARGET(SHAPE_TARGETS), OFFSETS,
	  ONE("loss", DTYPE_COMPUTED, DATA_WRITTEN, PRESENT),
	  ONE("count", DTYPE_I64, DATA_WRITTEN, OPTIONAL)},
	 {"clamp"},
	 NULL,
	 reference_giou},
	{"giou_loss_backward",
	 {IN("pred", DATA_BOXES), TARGET(SHAPE_TARGETS), OFFSETS,
	  ONE("count", DTYPE_I64, DATA_COUNT, PRESENT),
	  ONE("dloss", DTYPE_COMPUTED, DATA_NORMAL, PRESENT), OUT("dpred")},
	 {"clamp"},
	 NULL,
	 reference_giou},
	{.name = NULL},
};

/* choice is for all of them. */
const struct cli_attribute cli_attributes[] = {
	{"perm", KILN_ATTR_INTS},
	{"axis", KILN_ATTR_INT},
	{"scale", KILN_ATTR_REAL},
	{"kind", KILN_ATTR_STRING},
	{"keep", KILN_ATTR_INT},
	{"empty", KILN_ATTR_STRING},
	{"diagonal", KILN_ATTR_INT},
	{"eps", KILN_ATTR_REAL},
	{"axes", KILN_ATTR_INT},
	{"bounds", KILN_ATTR_STRING},
	{"clamp", KILN_ATTR_INT},
	{"choice", KILN_ATTR_STRING},
	{.name = NULL},
};

const struct cli_operator *cli_operator(const char *name)
{
	for (const struct cli_operator *row = cli_operators; row->name; row++)
		if (!strcmp(row->name, name))
			return row;
	return NULL;
}

/* "gamma-dtype" is gamma's. */
static bool is_dtype_of(const char *option, const char *operand)
{
	size_t length = strlen(operand);
	return !strncmp(option, operand, length) && !strcmp(option + length, "-dtype");
}

bool cli_option_special(const char *option)
{
	size_t length = strlen(option);

	for (int i = 0; cli_attributes[i].name; i++)
		if (!strcmp(cli_attributes[i].name, option))
			return strcmp(option, "choice") != 0;
	return !strcmp(option, "with") || !strcmp(option, "mask") || !strcmp(option, "last") ||
		   (length > 6 && !strcmp(option + length - 6, "-dtype"));
}

bool cli_describes_problem(const struct cli_command *command)
{
	return command->options && !strcmp(command->options[0].name, "shape");
}

const char *cli_operator_optional(const struct cli_operator *row, char names[CLI_NAMES_MAX])
{
	size_t used = 0;

	names[0] = 0;
	for (const struct cli_operand *operand = row->operands; operand->name; operand++)
		if (operand->presence == OPTIONAL || operand->presence == USUAL)
			used += (size_t)snprintf(names + used, CLI_NAMES_MAX - used, "%s%s", used ? "," : "",
									 operand->name);
	return names;
}

bool cli_operator_takes(const struct cli_operator *row, const char *option)
{
	if (!cli_option_special(option))
		return true;
	for (int i = 0; row->attributes[i]; i++)
		if (!strcmp(row->attributes[i], option))
			return true;
	for (const struct cli_operand *operand = row->operands; operand->name; operand++) {
		bool named = operand->presence == OPTIONAL || operand->presence == USUAL;
		bool typed = operand->dtype == DTYPE_OWN || operand->dtype == DTYPE_MASK ||
					 operand->dtype == DTYPE_INDEX;
		if ((named && !strcmp(option, "with")) ||
			(operand->shape == SHAPE_MASK && !strcmp(option, "mask")) ||
			(operand->shape == SHAPE_LAST && !strcmp(option, "last")) ||
			(typed && is_dtype_of(option, operand->name)))
			return true;
	}
	return false;
}
