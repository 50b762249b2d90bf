/*
 * problem.h: one call of an operator as the command line describes it, for all commands that
 * take one.  Operands, attributes and options come from the operator's row in the planner
 * (daemon/plan/op.h), which is linked in; the daemon is asked for none of it, so that faults show.
 */
#ifndef KILN_CLIENT_KILN_PROBLEM_H
#define KILN_CLIENT_KILN_PROBLEM_H

#include "daemon/plan/op.h"
#include "files.h"

/* NULL for one that is not known here, or whose operands have names of the problem's own: it may
 * still be described by its first operand. */
const struct plan_op *cli_operator(const char *name);
/* Is the option for this operator, or for all of them? */
bool cli_operator_takes(const struct plan_op *row, const char *option);
/* Is the option for some operators only? */
bool cli_option_special(const char *option);
/* The attribute that an option stands for; of the first operator that has it if row is NULL.  NULL:
 * the option is no attribute. */
const struct op_attribute *cli_attribute(const struct plan_op *row, const char *option);

/* Puts the options that describe a problem before a command's own. */
const struct cli_option *cli_problem_options(const struct cli_option *own);
/* Does the command begin its options with those that describe a problem? */
bool cli_describes_problem(const struct cli_command *command);
/* Writes the operands that --with may name: "gamma,beta,mean". */
#define CLI_NAMES_MAX 128
const char *cli_operator_optional(const struct plan_op *row, char names[CLI_NAMES_MAX]);

struct cli_problem {
	const char *op;
	const struct plan_op *row;              /* NULL: not known here */
	kiln_tensor tensors[KILN_MAX_OPERANDS]; /* with strides, contiguous or not */
	int tensor_count;
	kiln_attr attrs[KILN_MAX_ATTRS];
	int attr_count;
	int64_t perm[KILN_MAX_RANK];
	struct files *files;                  /* what operands come from and go to; NULL: nothing */
	int64_t index_end[KILN_MAX_OPERANDS]; /* of random indices; 0: as gather has it */
};

/* Reads the options below; prints a sentence and returns CLI_USAGE if they do not fit together.
 * The daemon checks what depends on the operator, as whether an axis is in range.  files
 * (may be NULL) give shapes and types, too, and must outlive the problem. */
int cli_problem(const struct cli *cli, struct files *files, struct cli_problem *problem);

/* Its parts: whether files are for operands of this operator, the operands after the first
 * (problem_operands.c), and row-major strides (problem_attrs.c). */
int cli_problem_files(const struct cli *cli, const struct cli_problem *problem);
int cli_problem_operands(const struct cli *cli, struct cli_problem *problem);
void cli_problem_strides(kiln_tensor *tensor);
/* The dimension of the first operand that indices are for. */
int cli_problem_indexed_axis(const struct cli_problem *problem);
/* The dimension of a paged cache that numbers the slots of a block. */
int cli_problem_place(const struct cli_problem *problem);

/* --operand (operand.c): is one given, all of them, and one without its name. */
bool cli_operand_given(const struct cli *cli);
int cli_operand_list(const struct cli *cli, struct cli_problem *problem);
int cli_operand_read(const char *text, kiln_tensor *tensor);
#define CLI_OPERAND_OPTION                                                                        \
	{                                                                                             \
		"operand", "T:2x3:3,1@4", "one operand: type, shape, strides, offset; -: none (in turn)", \
			CLI_MANY                                                                              \
	}

/* The attribute's value, or otherwise if it was not given. */
int64_t cli_problem_int(const struct cli_problem *problem, const char *name, int64_t otherwise);
const char *cli_problem_text(const struct cli_problem *problem, const char *name,
							 const char *otherwise);
/* Is the operand one that the call writes? */
bool cli_problem_written(const struct cli_problem *problem, int operand);

/* Values that are valid for the operand and of the kind it is for; bytes counts from the beginning
 * of its buffer (data.c). */
void data_operand(const struct cli_problem *problem, int operand, void *data, uint64_t bytes,
				  uint64_t seed);

#endif
