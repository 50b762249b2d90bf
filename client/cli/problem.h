/*
 * problem.h: one call of an operator as the command line describes it, for all commands that
 * take one.  What an operator has (operands, attributes, a reference to verify it by) is one row of
 * the table in problem_ops.c; the daemon is asked for none of it, so that faults show.
 */
#ifndef KILN_CLIENT_KILN_PROBLEM_H
#define KILN_CLIENT_KILN_PROBLEM_H

#include "files.h"

struct check;

/* Everything follows from the first operand, whose shape, dtype, strides and offset are options. */
enum operand_shape {
	SHAPE_FIRST,    /* that of the first operand; of permute, in the order of --perm */
	SHAPE_TRAILING, /* its last axes, as many as attribute axes says */
	SHAPE_LEADING,  /* the others */
	SHAPE_MASK,     /* --mask, or what its kind makes natural */
	SHAPE_LAST,     /* that of the first, with --last for its last axis */
	SHAPE_INDICES,  /* a list for each of the first's last axis but one; for each element of dst */
	SHAPE_TARGETS,  /* that of the first; with offsets, half as many boxes in one row */
	SHAPE_OFFSETS,  /* one more than the first's first axis */
	SHAPE_ONE,      /* one number */
};

enum operand_dtype {
	DTYPE_FIRST,    /* that of the first operand */
	DTYPE_COMPUTED, /* the one that is computed in: f64 for f64, else f32 */
	DTYPE_OWN,      /* --NAME-dtype, or that of the first operand */
	DTYPE_MASK,     /* --mask-dtype, or by the kind of mask */
	DTYPE_INDEX,    /* --NAME-dtype, or i32 */
	DTYPE_I32,
	DTYPE_I64,
};

/* What it holds before a call; see data_operand. */
enum operand_data {
	DATA_WRITTEN, /* an output */
	DATA_BITS,    /* any bits at all */
	DATA_NORMAL,
	DATA_ABOUT_ONE,
	DATA_PROBABILITY, /* about the softmax of normal numbers along the axis */
	DATA_LOGARITHM,   /* of that */
	DATA_MASK,
	DATA_INDICES, /* in range */
	DATA_BOXES,   /* x1 < x2, y1 < y2 */
	DATA_TARGETS, /* the same, but one in four is padding: zeros */
	DATA_OFFSETS, /* rising from 0 to the number of targets */
	DATA_COUNT,   /* 1 to 100 */
};

enum operand_presence {
	PRESENT,  /* always */
	OPTIONAL, /* if --with names it */
	USUAL,    /* the same, or there is no --with */
	BY_KIND,  /* the mask, unless its kind does without */
};

#define OPERATOR_OPERANDS (KILN_MAX_OPERANDS + 1)
#define OPERATOR_ATTRIBUTES 7

struct cli_operand {
	const char *name; /* NULL ends a list */
	enum operand_shape shape;
	enum operand_dtype dtype;
	enum operand_data data;
	enum operand_presence presence;
};

struct cli_operator {
	const char *name; /* NULL ends the table */
	struct cli_operand operands[OPERATOR_OPERANDS];
	const char *attributes[OPERATOR_ATTRIBUTES]; /* ended by NULL */
	const char *needs;                           /* the one that must be given, or NULL */
	/* Compares all that a call has written with the definition; see reference.h. */
	void (*reference)(struct check *check);
};

struct cli_attribute {
	const char *name; /* and that of its option; NULL ends the table */
	kiln_attr_kind kind;
};

extern const struct cli_operator cli_operators[];
extern const struct cli_attribute cli_attributes[];

/* NULL for one that is not known here: it may still be described by its first operand. */
const struct cli_operator *cli_operator(const char *name);
/* Is the option for this operator, or for all of them? */
bool cli_operator_takes(const struct cli_operator *row, const char *option);
/* Is the option for some operators only? */
bool cli_option_special(const char *option);

/* Does the command begin its options with those that describe a problem? */
bool cli_describes_problem(const struct cli_command *command);
/* What --with may name: "gamma,beta,mean". */
#define CLI_NAMES_MAX 128
const char *cli_operator_optional(const struct cli_operator *row, char names[CLI_NAMES_MAX]);

struct cli_problem {
	const char *op;
	const struct cli_operator *row;         /* NULL: not known here */
	kiln_tensor tensors[KILN_MAX_OPERANDS]; /* with strides, contiguous or not */
	int tensor_count;
	kiln_attr attrs[KILN_MAX_ATTRS];
	int attr_count;
	int64_t perm[KILN_MAX_RANK];
	struct files *files;                  /* what operands come from and go to; NULL: nothing */
	int64_t index_end[KILN_MAX_OPERANDS]; /* of random indices; 0: as gather has it */
};

/* Reads the options below; prints a sentence and returns CLI_USAGE if they do not fit together.
 * What only the operator can say, as whether an axis is in range, is left to the daemon.  files
 * (may be NULL) give shapes and types, too, and must outlive the problem. */
int cli_problem(const struct cli *cli, struct files *files, struct cli_problem *problem);

/* Its parts: whether files are for operands of this operator, the operands after the first
 * (problem_operands.c), and row-major strides (problem_attrs.c). */
int cli_problem_files(const struct cli *cli, const struct cli_problem *problem);
int cli_problem_operands(const struct cli *cli, struct cli_problem *problem);
void cli_problem_strides(kiln_tensor *tensor);

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
double cli_problem_real(const struct cli_problem *problem, const char *name, double otherwise);
const char *cli_problem_text(const struct cli_problem *problem, const char *name,
							 const char *otherwise);
/* Is the operand one that the call writes? */
bool cli_problem_written(const struct cli_problem *problem, int operand);

/* Values that are valid for the operand and of the kind it is for; bytes counts from the beginning
 * of its buffer (data.c). */
void data_operand(const struct cli_problem *problem, int operand, void *data, uint64_t bytes,
				  uint64_t seed);

/* The options that describe a problem, to begin a command's own list with. */
#define CLI_PROBLEM_OPTIONS                                                               \
	{"shape", "2x3x4", "shape of the first operand; \"scalar\" for rank 0"},              \
		{"dtype", "TYPE", "its element type: f32, f16, u8, ... (f32)", CLI_NAMED},        \
		{"stride", "3,1", "its strides in elements; 0 repeats (row-major)"},              \
		{"offset", "BYTES", "where it begins in its buffer (0)"},                         \
		{"perm", "1,0", "axis k of y is axis perm[k] of x"},                              \
		{"axis", "N", "the axis to go along, from the end if below 0 (-1)"},              \
		{"scale", "X", "factor of x (1)"},                                                \
		{"kind", "bool", "what the mask is: bool, lengths, causal, additive"},            \
		{"mask", "8x1x9", "its shape (x's; for lengths without the last axis)"},          \
		{"mask-dtype", "TYPE", "its element type (bool; i32; for additive x's)"},         \
		{"keep", NULL, "a bool mask that is not 0 where elements are kept"},              \
		{"empty", "WORD", "rows with nothing kept become zero, nan or uniform (zero)"},   \
		{"diagonal", "N", "causal: row q keeps the columns up to q + N (0)"},             \
		{"with", "gamma,..", "the optional operands that are there (none; backward dx)"}, \
		{"gamma-dtype", "TYPE", "element type of gamma (x's)"},                           \
		{"beta-dtype", "TYPE", "element type of beta (x's)"},                             \
		{"dgamma-dtype", "TYPE", "element type of dgamma (x's)"},                         \
		{"dbeta-dtype", "TYPE", "element type of dbeta (x's)"},                           \
		{"eps", "X", "added to the variance, or mean square (1e-5)"},                     \
		{"axes", "N", "how many trailing axes are normalized (1)"},                       \
		{"last", "N", "last axis of dst, or of dsrc in backward (the first operand's)"},  \
		{"idx-dtype", "TYPE", "type of indices: u8, u16, i32, i64 (i32)"},                \
		{"bounds", "WORD", "indices out of range: check, clamp or trust (check)"},        \
		{"target-dtype", "TYPE", "element type of target (pred's)"},                      \
		{"clamp", "N", "sides of an intersection are at least 0: 1 or 0 (1)"},            \
	{                                                                                     \
		"choice", "NAME", "the candidate to take: one that explain lists, or generic"     \
	}

#endif
