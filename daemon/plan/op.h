/*
 * op.h: the row of an operator, from which everything that is said about the operator is made: the
 * helper in kiln/ops.h, `kiln ops`, the options of `kiln run` with their checks, docs/operators.md
 * and the words of the fuzzers.  docs/adding-an-operator.md explains each member by an example.
 *
 * The rows of a family stand in one array, plan_ops_NAME in ops/NAME.c or ops/NAME/NAME_ops.c.
 * CMake finds these files and writes the table of arrays, so no file lists the operators.
 */
#ifndef KILN_DAEMON_PLAN_OP_H
#define KILN_DAEMON_PLAN_OP_H

#include "kernel.h"

/*
 * The command line makes up all operands but the first, whose shape, dtype, strides and offset are
 * options.  Shape, dtype and data say how; the planner checks operands by itself.
 */
enum op_data {
	OP_WRITTEN, /* an output */
	OP_KEPT,    /* an output that the caller has already: what the call does not write stays */
	OP_BITS,    /* any bits at all */
	OP_NORMAL,
	OP_ABOUT_ONE,
	OP_PROBABILITY, /* about the softmax of normal numbers along the axis */
	OP_LOGARITHM,   /* the logarithm of such */
	OP_MASK,
	OP_INDICES, /* in range */
	OP_SLOTS,   /* in range of the slots that OP_PAGES have, each once at most */
	OP_BOXES,   /* x1 < x2, y1 < y2 */
	OP_TARGETS, /* boxes, but one in four is padding: zeros */
	OP_OFFSETS, /* rising from 0 to the number of targets */
	OP_COUNT,   /* 1 to 100 */
};

static inline bool op_is_output(enum op_data data)
{
	return data == OP_WRITTEN || data == OP_KEPT;
}

enum op_shape {
	OP_LIKE_FIRST, /* the first operand's; of permute, in the order of perm */
	OP_TRAILING,   /* the last axes of the first operand, as many as attribute axes says */
	OP_LEADING,    /* the other axes of the first operand */
	OP_MASK_SHAPE, /* --mask, or the shape that is natural for its kind */
	OP_LAST,       /* the first operand's, with --last for its last axis */
	OP_LISTS,  /* a list for each of the first's last axis but one, an index an element of dst */
	OP_HALVED, /* the first operand's, or half of its last axis where the second is left out */
	OP_TRANSPOSED, /* the first operand's with its last two axes swapped */
	OP_LOSS,       /* one number; with reduction none the first operand's without its last axis */
	OP_ALONG,      /* the first operand's, with --last along attribute axis, or its first axis */
	OP_LIST,       /* one list, an index for each slice along that axis of what has --last there */
	OP_TOKENS,     /* one for each token of the first operand, which attribute layout tells */
	OP_PAGES, /* blocks of slots for these, a slot as one token has it; attribute kv_layout tells */
	OP_ANGLES,        /* a row for each of these, half as long as a head */
	OP_LIKE_INPUT,    /* that of the input that the output goes with: k's of k_out */
	OP_GROUPS,        /* the first operand's, with one for each attribute group of its last axis, or
					  without that axis */
	OP_HALVED_GROUPS, /* the same of the halved */
	OP_PER_BOX,       /* the first operand's; with offsets, half as many boxes in one row */
	OP_BOUNDARIES,    /* one more than the first axis of the first operand */
	OP_ONE,           /* one number */
	OP_REDUCED,       /* the first operand's without the axes over which it is reduced, or, with
					  keepdim, with 1 for them */
	OP_FIRST_K,       /* the first operand's, with attribute k along attribute axis */
};

enum op_dtype {
	OP_SAME,       /* the first operand's */
	OP_COMPUTED,   /* the type that the first is computed in: f64 for f64, else f32 */
	OP_OWN,        /* --NAME-dtype, or the first operand's */
	OP_MASK_DTYPE, /* --mask-dtype, or by the kind of mask */
	OP_INDEX,      /* --NAME-dtype, or i32 */
	OP_I32,
	OP_I64,
	OP_SUMMED, /* i64 for integers and bools, else the first operand's */
	OP_BOOL,
	OP_TO, /* the one that attribute to names */
};

enum op_presence {
	OP_REQUIRED,
	OP_OPTIONAL,   /* the command line has it if --with names it */
	OP_USUAL,      /* optional; the command line has it without --with, too */
	OP_BY_KIND,    /* the mask: optional for the kinds that do without one */
	OP_WITH_INPUT, /* an output that is there where its input is: k_out with k */
};

/* A member that is left out is the first of its enum: {"y"} is an output like the first operand. */
struct op_operand {
	const char *name; /* NULL ends a list */
	enum op_data data;
	enum op_shape shape;
	enum op_dtype dtype;
	enum op_presence presence;
};

/* The values that an attribute may have.  attrs.c checks them before the operator's plan runs. */
enum op_range {
	OP_ANY,     /* the operator checks the value by itself */
	OP_FINITE,  /* a number that is finite in the type that the first operand is computed in */
	OP_FROM,    /* such a number, least or more */
	OP_BETWEEN, /* an integer, least to most */
	OP_AXIS,    /* a dimension of the first operand, counted from the end if below 0 */
	OP_AXES,    /* 1 to the first operand's rank */
	OP_WORD,    /* one of words */
};

#define OP_WORDS 5

struct op_attribute {
	const char *name; /* also of its option; NULL ends a list */
	kiln_attr_kind kind;
	const char *value; /* stands for the value in help: "N"; NULL: the option is a flag for 1 */
	const char *help;  /* the meaning in a few words */
	const char *usual; /* the default: "-1"; NULL: 0, or the first word */
	enum op_range range;
	int64_t least, most;
	const char *words[OP_WORDS]; /* NULL ends the list */
	const char *text;            /* the meaning in full, with the default; NULL: help says it all */
	bool needed;
};

/* The time of the generic kernel, divided by that of an exact kernel of this variant: for problems
 * that stay in the device's cache, and for larger ones. */
struct op_gain {
	const char *variant; /* NULL: any other of the operator */
	double in_cache, in_memory;
};

/* The attribute that any operator takes besides its own: the name of a candidate. */
#define PLAN_CHOICE "choice"

/* Candidates of one problem at most. */
#define PLAN_MAX_CHOICES 80

#define OP_OPERANDS (KILN_MAX_OPERANDS + 1)
#define OP_ATTRIBUTES 7
#define OP_GAINS 5

struct plan_op {
	const char *name;                              /* NULL ends an array */
	struct op_operand operands[OP_OPERANDS];       /* inputs, then outputs */
	struct op_attribute attributes[OP_ATTRIBUTES]; /* besides PLAN_CHOICE */
	const char *summary;                           /* one sentence */
	/* Ends with one without a variant; without any, the generic kernel is taken for a fifth
	 * slower. */
	struct op_gain gains[OP_GAINS];
	/* Writes the operands' names of one problem, which stand for those above; NULL: each problem
	 * has those above.  Fails as plan. */
	int (*names)(const struct kernel_problem *problem, char list[KERNEL_OPERANDS_MAX],
				 char error[KERNEL_ERROR_MAX]);
	/*
	 * KILN_OK, or KILN_EINVAL / KILN_ENOTSUP with a sentence in error.  All operands are in place;
	 * optional ones may have dtype KILN_DTYPE_NONE.  The names of attributes are checked.  choice:
	 * a name of a candidate, which is no attribute any more, or NULL for the planner's own.
	 */
	int (*plan)(const struct kernel_problem *problem, const struct kernel_limits *limits,
				const char *choice, struct kernel_plan *out, char error[KERNEL_ERROR_MAX]);
	/* Fills in the shapes and dtypes of required tensors that the caller left out (outputs),
	 * contiguous, or fails as plan.  All operands are in place; a required one that is left out
	 * has dtype KILN_DTYPE_NONE. */
	int (*infer)(struct kernel_problem *problem, char error[KERNEL_ERROR_MAX]);
	/* The candidates for a valid problem, the planner's own first; how many.  NULL: that one only.
	 */
	int (*choices)(const struct kernel_problem *problem, const struct kernel_limits *limits,
				   char names[PLAN_MAX_CHOICES][KERNEL_CHOICE_MAX]);
	/*
	 * A small valid problem, complete, whose plan with choice PLAN_GENERIC is number index of the
	 * operator's generic kernels: KILN_OK, or KILN_ENOENT past the last.  NULL: there are none, or
	 * they are each problem's own.  Every such plan of any problem has one of these kernels.
	 */
	int (*generics)(int index, struct kernel_problem *out);
	/* The sentence for what a launch of a valid problem reported, which is not 0; NULL: the
	 * device's own. */
	void (*report)(const struct kernel_problem *problem, uint64_t reported,
				   char error[KERNEL_ERROR_MAX]);
	/* torch casts bools and integers of 8 and 16 bits to i64 before; the Python function, too. */
	bool widens_integers;
};

/* The families, by name, each an array of operators; ended by NULL.  CMake writes the table. */
extern const struct plan_op *const plan_families[];
/* The operators one after the other; NULL gives the first, and the last gives NULL. */
const struct plan_op *plan_op_next(const struct plan_op *op);
const struct plan_op *plan_find(const char *op);
/* The place of the input that an output with presence OP_WITH_INPUT goes with; -1: it has another
 * presence. */
int plan_input_of(const struct plan_op *op, const struct op_operand *output);

/* "x, mask?, y": '?' marks operands that may be left out. */
void plan_operands(const struct plan_op *op, char list[KERNEL_OPERANDS_MAX]);
/* "axis: the dimension to go along (default -1); scale: factor of x (default 1)" */
#define OP_ATTRIBUTES_MAX 1024
void plan_attributes(const struct plan_op *op, char text[OP_ATTRIBUTES_MAX]);
/* Operand number index of such a list, without its mark; "operand" beyond the list. */
void plan_operand_name(const char *list, int index, char name[16]);
bool plan_operand_optional(const char *list, int index);
int plan_operand_count(const char *list);

#endif
