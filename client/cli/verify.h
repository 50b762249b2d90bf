/*
 * verify.h: how `kiln run` verifies a call: each element that the call had to write is compared
 * with the reference of the operator, which the tests of the kernels use as well (tests/ops).
 */
#ifndef KILN_CLI_VERIFY_H
#define KILN_CLI_VERIFY_H

#include "problem.h"

struct check_operand {
	const char *name;
	kiln_tensor tensor; /* dtype KILN_DTYPE_NONE: it is left out */
	bool written;
	int64_t elements;
	uint64_t bytes; /* of its buffer, up to the last byte that is touched */
	uint8_t *data;  /* what the buffer holds; for one that is written, what the call left there */
};

struct check {
	const struct cli_problem *problem;
	struct check_operand operands[KILN_MAX_OPERANDS];
	int count;
	bool exact;       /* every element was compared bit for bit */
	bool wrong;       /* an element was, and has been named on stderr */
	int64_t verified; /* elements */
	double worst;     /* the largest error, as a part of what is allowed */
};

/* Fills in exact, wrong, verified and worst. */
void check_results(struct check *check);

#endif
