/*
 * reference.h: what `kiln run` verifies a call by: plain loops in f64, written from the
 * operators' definitions alone.  They know no kernel and no variant, and must stay so: they are
 * what the kernels are measured against.
 *
 * A reference works out every element that a call had to write and hands it to check_value, with
 * how far a result may be from it.
 */
#ifndef KILN_CLIENT_KILN_REFERENCE_H
#define KILN_CLIENT_KILN_REFERENCE_H

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
	bool exact;       /* compared bit for bit */
	bool wrong;       /* an element was, and has been named on stderr */
	bool no_memory;   /* the reference could not be worked out */
	int64_t verified; /* elements */
	double worst;     /* the largest error, as a part of what is allowed */
};

struct reference_row {
	const char *op; /* NULL ends the table */
	void (*check)(struct check *check);
};
extern const struct reference_row reference_rows[];

void reference_permute(struct check *check);
void reference_softmax(struct check *check); /* log and masked, too */
void reference_softmax_backward(struct check *check);
void reference_norm(struct check *check); /* layer and rms */
void reference_norm_backward(struct check *check);
void reference_gather(struct check *check);
void reference_gather_backward(struct check *check);
void reference_giou(struct check *check); /* loss and backward, too */
void reference_map(struct check *check);

/* ---- For references (reference.c) ---- */

/* The place of an operand; -1 for one that is left out or that the operator does not have. */
int check_find(const struct check *check, const char *name);
/* Where an element is, counted in row-major order of the shape, whatever the strides are. */
const uint8_t *check_at(const struct check_operand *operand, int64_t element);
/* The element there. */
double check_get(const struct check *check, int operand, int64_t element);
/* Compares a result; not a number is right where expected is none.  Says what is wrong once. */
void check_value(struct check *check, int operand, int64_t element, double expected,
				 double allowed);
/* The same for what is right with these bytes only; false if it is not. */
bool check_bytes(struct check *check, int operand, int64_t element, const uint8_t *expected);
/* Names an element that is wrong, by texts for what it is and must be. */
void check_wrong(struct check *check, int operand, int64_t element, const char *got,
				 const char *expected);
/* Zeroed numbers for a row or more; NULL, and check->no_memory, if there is no memory. */
void *check_memory(struct check *check, int64_t count, size_t size);

/* The product of a shape's sizes [first, last). */
int64_t check_product(const kiln_tensor *tensor, int first, int last);

/* Half the distance of 1 and the next number of the type that dtype is computed in. */
double check_unit(kiln_dtype dtype);
/* The bound for f32, or 1e-12 for what is computed in f64. */
double check_relative(kiln_dtype dtype, double f32);
/* What one rounding from the type that of is computed in to dtype may add: an ulp around value. */
double check_rounding(kiln_dtype of, kiln_dtype dtype, double value);
/* The least normal number of the type that dtype is computed in. */
double check_least(kiln_dtype dtype);

#endif
