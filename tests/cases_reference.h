/*
 * cases_reference.h: what the references of the float operators share, and their answers for
 * whoever tests the references themselves.
 *
 * An answer is worked out in f64 from the definition and handed on one element at a time, with how
 * far a result may be from it: to a judge, or into arrays.
 */
#ifndef KILN_TESTS_CASES_REFERENCE_H
#define KILN_TESTS_CASES_REFERENCE_H

#include "cases_make.h"

/* One call of a reference. */
struct reference {
	const struct cases_case *c;
	const void *const *memory;     /* as cases_op.judge has it */
	double *const *values;         /* not NULL: answers go to values[operand][element] */
	struct cases_verdict *verdict; /* where values is NULL: the results in memory are judged */
};

/* Hands on one answer. */
void reference_value(const struct reference *r, int operand, int64_t element, double expected,
					 double allowed);

/* ---- Attributes ---- */

int64_t reference_int(const struct cases_case *c, const char *name, int64_t otherwise);
double reference_real(const struct cases_case *c, const char *name, double otherwise);
/* Is this the value of the attribute? */
bool reference_is(const struct cases_case *c, const char *name, const char *value);

/* ---- Places ---- */

/* The offset in elements of number i, counted in row-major order of dimensions [first, last). */
int64_t reference_at(const struct cases_operand *operand, int first, int last, int64_t i);
/* The product of sizes [first, last). */
int64_t reference_product(const struct cases_operand *operand, int first, int last);
/* Memory for a judge; never NULL.  free() frees it. */
void *reference_memory(int64_t count, size_t size);

/* ---- Errors ---- */

/* Half the distance of 1 and the next number of the type that dtype is computed in. */
double reference_unit(kiln_dtype dtype);
/* The least normal number of that type: below it, results may be flushed to zero. */
double reference_floor(kiln_dtype dtype);
/* The distance of neighbouring numbers of dtype around value, subnormals included. */
double reference_ulp(kiln_dtype dtype, double value);
/* What rounding from the computing type to dtype may add: one ulp (a half of its own, and a half
 * for where the computed value lay); 0 when it is the computing type itself. */
double reference_rounding(kiln_dtype dtype, double value);
/* `f32` for what is computed in f32, 1e-12 for f64. */
double reference_relative(kiln_dtype dtype, double f32);

/* ---- One row of softmax, shared by the plain and the masked ---- */

struct reference_row {
	int64_t count;
	long double *z;   /* what is exponentiated */
	const bool *live; /* NULL: all are */
	/* The magnitude of the terms that were added to make z in the computing type; 0 if none. */
	const double *added;
	double scale;
	/* Found by reference_softmax: */
	int64_t lives;
	bool nan; /* no number: NaN or +inf among the live, or nothing but -inf */
	long double most, sum;
};

void reference_softmax(struct reference_row *row);
/* Element k of the softmax, and how far from it is right. */
double reference_softmax_value(const struct reference_row *row, kiln_dtype dtype, int64_t k,
							   double *allowed);

/* ---- The operators ---- */

extern const struct cases_op softmax_op, log_softmax_op;
extern const struct cases_op softmax_backward_op, log_softmax_backward_op;
extern const struct cases_op masked_softmax_op, masked_softmax_backward_op;
extern const struct cases_op layer_norm_op, rms_norm_op;
extern const struct cases_op layer_norm_backward_op, rms_norm_backward_op;
extern const struct cases_op gather_op, gather_backward_op;
extern const struct cases_op map_op;
extern const struct cases_op giou_op, giou_loss_op, giou_backward_op, giou_loss_backward_op;

/* The answers of units [first, last) of a case of the family. */
void softmax_reference(const struct reference *r, int64_t first, int64_t last);
void masked_softmax_reference(const struct reference *r, int64_t first, int64_t last);
void norm_reference(const struct reference *r, int64_t first, int64_t last);
void norm_backward_reference(const struct reference *r, int64_t first, int64_t last);
void giou_reference(const struct reference *r, int64_t first, int64_t last);

#endif
