/*
 * operator.h: a Python function for each operator.  The build writes the table from the planner's
 * rows (scripts/python_operators.c).
 */
#ifndef KILN_PYTHON_OPERATOR_H
#define KILN_PYTHON_OPERATOR_H

#include "problem.h"

enum parameter_kind {
	PARAMETER_INPUT, /* a tensor; None where it is not required */
	PARAMETER_WANT,  /* an output that may be left out: a tensor, True, or None */
	PARAMETER_OUT,   /* the output: a tensor, or None for one to be made */
	PARAMETER_INT,
	PARAMETER_REAL,
	PARAMETER_TEXT,
	PARAMETER_TYPE,    /* an element type: the planner's word, torch's or NumPy's, or a dtype */
	PARAMETER_INTS,    /* dimensions, each one once */
	PARAMETER_OVER,    /* some dimensions, or one */
	PARAMETER_IGNORED, /* torch's alone: says nothing that would be otherwise */
	PARAMETER_DTYPE,   /* what the first operand is cast to before the call */
	PARAMETER_SHAPE, /* the trailing dimensions of the first operand, of which the attribute is the
						number */
};

struct parameter {
	const char *name;
	enum parameter_kind kind;
	bool required;
	int operand;           /* of tensors: its place */
	const char *attribute; /* of the others: the planner's name */
	const char *preset;    /* NULL: nothing is passed where the caller passes nothing;
							  "epsilon": of the type computed in; else a text; of
							  PARAMETER_WANT "True"; of PARAMETER_DTYPE what small
							  integers and bools are cast to */
	const char *also;      /* another name that it has in torch, or NULL */
};

struct operator_operand {
	const char *name; /* the planner's, which its sentences have */
	bool written;
	bool kept; /* an output that the caller passes; what the call does not write stays */
	enum shape_rule shape; /* SHAPE_PLANNED: the planner says */
	enum dtype_rule dtype;
	int input; /* an output that is there where this operand is; -1: it depends on none */
};

struct operator_row {
	const char *name;
	const char *documentation; /* begins with the signature */
	const struct operator_operand *operands;
	int operand_count;
	const struct parameter *parameters;
	int parameter_count;
	int positional;
};

extern const struct operator_row operator_rows[];
extern const int operator_row_count;

#define PARAMETERS_MOST 24

/* Gives the sentence of the exception that is set the names of the function's parameters. */
void operator_name_error(const struct operator_row *row);

#endif
