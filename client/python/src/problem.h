/*
 * problem.h: one call of one operator: its operands and attributes, from the objects that were
 * passed to the result.  operator.c and call.c fill one in; nothing here knows an operator's name.
 *
 *   problem_begin() -> problem_input(), problem_output(), problem_attr() -> problem_run()
 *   -> problem_end()
 */
#ifndef KILN_PYTHON_PROBLEM_H
#define KILN_PYTHON_PROBLEM_H

#include "connection.h"
#include "view.h"

/* How an output that may be left out, and is wanted, follows from the first operand. */
enum shape_rule {
	SHAPE_PLANNED,
	SHAPE_FIRST,
	SHAPE_TRAILING,
	SHAPE_LEADING,
	SHAPE_ONE,
	SHAPE_GROUPS,
	SHAPE_HALVED_GROUPS,
	SHAPE_TRANSPOSED,
	SHAPE_FIRST_K
};
enum dtype_rule {
	DTYPE_FIRST,
	DTYPE_COMPUTED,
	DTYPE_OWN,
	DTYPE_I32,
	DTYPE_I64,
	DTYPE_SUMMED,
	DTYPE_TO
};

enum role {
	ROLE_LEFT_OUT,
	ROLE_INPUT,
	ROLE_GIVEN, /* an output that the caller passed */
	ROLE_KEPT,  /* such an output, which the call writes in part */
	ROLE_MADE,  /* an output that the call makes */
};

struct problem_operand {
	enum role role;
	const char *name;
	PyObject
		*object; /* borrowed, but of ROLE_MADE, where it is NULL until it is made, and a copy */
	bool copied; /* the object is a copy of the caller's */
	enum shape_rule shape;
	enum dtype_rule dtype;
	struct view view; /* of ROLE_MADE once it is made */
};

struct problem {
	const char *op;
	const struct kind *kind; /* of the first tensor, as are the next three */
	PyObject *like;
	const struct view *like_view;
	int device;
	PyObject *redirect; /* a tensor's kind gets the call; borrowed, NULL: it runs here */
	bool unread;        /* such a tensor was not read, and none behind it */
	bool settled;       /* no kind gets the call */
	bool along;         /* it goes along a dimension; a tensor of rank 0 has one, as in torch */
	bool reduces;       /* its result lacks that dimension, unless keepdim is 1 */
	bool point;         /* the first tensor has rank 0, and is read as one element in a row */
	int count;
	struct problem_operand operands[KILN_MAX_OPERANDS];
	int attr_count;
	kiln_attr attrs[KILN_MAX_ATTRS];
	int64_t ints[KILN_MAX_RANK]; /* of the one attribute that is a list */
};

void problem_begin(struct problem *problem, const char *op);
/* Add the next operand; 0 or RAISED. */
int problem_input(struct problem *problem, PyObject *object, const char *name);
/* object: a tensor to write, or NULL for one to make. */
int problem_output(struct problem *problem, PyObject *object, const char *name,
				   enum shape_rule shape, enum dtype_rule dtype);
/* Puts a packed copy in the place of the last input, where its library makes such and it is not
 * packed: 0 or RAISED. */
int problem_pack(struct problem *problem);
int problem_kept(struct problem *problem, PyObject *object, const char *name);
int problem_left_out(struct problem *problem, const char *name);
/* Adds an attribute, whose kind and value the caller fills in; NULL with an exception. */
kiln_attr *problem_attr(struct problem *problem, const char *name, kiln_attr_kind kind);
/* Runs it: the output, or a tuple of several; a new reference. */
PyObject *problem_run(struct problem *problem);
void problem_end(struct problem *problem);

#endif
