/*
 * family.h: what a family of operators defines, and what builds the list of cases.
 *
 * The file tests/ops/NAME.c defines NAME_family and NAME_ops; nothing else has to name it.
 */
#ifndef KILN_TESTS_OPS_FAMILY_H
#define KILN_TESTS_OPS_FAMILY_H

#include "cases.h"

#define CASES_MOST 4096 /* on the list, and one more */

/* A call that the planner refuses, and its whole sentence. */
struct cases_refusal {
	const char *sentence; /* NULL ends a list */
	void (*make)(struct cases_case *c);
};

struct cases_family {
	const char *name;                                        /* that of its file */
	void (*add)(void);                                       /* adds its cases by cases_add() */
	void (*random)(uint64_t *state, struct cases_case *out); /* makes up a small one */
	const struct cases_refusal *refusals;                    /* NULL: a unit test has them */
};

/* A new case at the end of the list, zeroed but for op and flags; never NULL. */
struct cases_case *cases_add(const struct cases_op *op, unsigned flags);
/* Adds to the name of a case. */
void cases_name(struct cases_case *c, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* ... what an operand is: " f32 8x16", " none", " f16 8x16 strides 32,1 at 4". */
void cases_name_operand(struct cases_case *c, int operand);
/* "f16", or "none". */
const char *cases_dtype_name(kiln_dtype dtype);
/* Row-major strides. */
void cases_contiguous(struct cases_operand *operand);
/* The offset in elements of element number i, counted in row-major order of the shape. */
int64_t cases_offset(const struct cases_operand *operand, int64_t i);

#endif
