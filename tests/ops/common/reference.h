/*
 * reference.h: the references of the operators, which tests, benches and `kiln run` share: plain
 * loops in f64, written from the operators' definitions alone.  They know no kernel and no variant,
 * and must stay so: kernels are measured against them.
 *
 * A reference works out the elements that a call had to write, and hands each on with how far a
 * result may be from it: to a judge, into arrays, or to the command line.
 */
#ifndef KILN_TESTS_OPS_REFERENCE_H
#define KILN_TESTS_OPS_REFERENCE_H

#include "make.h"

/* In place of how far off a result may be. */
#define REFERENCE_OPEN (-1.)      /* nothing can be told: anything is right */
#define REFERENCE_NO_NUMBER (-2.) /* any infinity and any NaN is right */

/* One call of a reference. */
struct reference {
	const struct cases_case *c;
	const void *const *memory; /* as cases_judge() has it */
	bool unwritten;            /* outputs hold nothing yet */
	int64_t most;              /* of the numbers that map works out; 0: all */
	/* These take the answers, each with `taker`. */
	void *taker;
	/* A result may be off by `allowed`, or that is one of the two below. */
	void (*value)(void *taker, int operand, int64_t element, double expected, double allowed);
	/* A result is right with these bytes only. */
	void (*bytes)(void *taker, int operand, int64_t element, const void *expected);
	/* An input is not valid, so that nothing can be said; expected: "in range". */
	void (*invalid)(void *taker, int operand, int64_t element, const char *is, const char *must);
};

/* The operator of this name; NULL: no family has it. */
const struct cases_op *reference_of(const char *op);
/* All answers of a case, into values[operand][element]. */
void reference_answers(const struct cases_case *c, const void *const memory[],
					   double *const values[]);
/* Whether got is the infinity to which the type rounds a number within what is allowed. */
bool reference_overflows(kiln_dtype dtype, double got, double expected, double allowed);
/* Judges one float: |got - expected| <= relative * |expected| + absolute; NaN agrees with NaN, an
 * infinity with itself.  Notes what is wrong, keeping what was noted before. */
void cases_judge_value(struct cases_verdict *verdict, int operand, int64_t element, double got,
					   double expected, double relative, double absolute);

/* ---- For references: they hand on one answer ---- */

void reference_value(const struct reference *r, int operand, int64_t element, double expected,
					 double allowed);
void reference_bytes(const struct reference *r, int operand, int64_t element, const void *expected);
void reference_invalid(const struct reference *r, int operand, int64_t element, const char *is,
					   const char *must);

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
/* The dimension that attribute "axis" names; without it the last. */
int reference_axis(const struct cases_case *c);
/* The lines of operand 0 along that dimension. */
int64_t reference_lines(const struct cases_case *c);
/* The index at an offset, in elements, of an operand of indices. */
int64_t reference_index(const struct cases_operand *idx, const void *memory, int64_t offset);
/* Zeroed memory; never NULL: without memory the process ends.  free() frees it. */
void *reference_memory(int64_t count, size_t size);

/* ---- Errors ---- */

/* Half the distance of 1 and the next number of the type that dtype is computed in. */
double reference_unit(kiln_dtype dtype);
/* The least normal number of that type: below it, results may be flushed to zero. */
double reference_floor(kiln_dtype dtype);
/* The distance of neighbouring numbers of dtype around value, subnormals included. */
double reference_ulp(kiln_dtype dtype, double value);
/* Returns what rounding from the computing type to dtype may add: one ulp (a half of its own, and a
 * half for where the computed value lay); 0 when it is the computing type itself. */
double reference_rounding(kiln_dtype dtype, double value);
/* `f32` for what is computed in f32, 1e-12 for f64. */
double reference_relative(kiln_dtype dtype, double f32);

/* ---- Activations ---- */

double reference_sigmoid(double x);
/* The activation that attribute act names: silu, gelu, gelu_tanh or relu. */
double reference_act(const struct cases_case *c, double x);

/* ---- 8 bits that saturate: f8e4m3, f8e5m2 and i8 ---- */

/* The largest number of the type. */
double reference_largest(kiln_dtype dtype);
/* The scale below which none is found: 1e-10 / the largest number, and of rows of f8
 * 1 / (512 * that number). */
double reference_least_scale(kiln_dtype dtype, bool group);
/* The number of the type to which a value rounds, ties to even; NaN is 0 in i8. */
double reference_rounded(kiln_dtype dtype, double value);
/* Hands on a quotient that is rounded to the type of the operand, and may be off by so much: the
 * answer is one of the numbers to which such a quotient rounds. */
void reference_quotient(const struct reference *r, int operand, int64_t element, double value,
						double off);

/* Hands on row number `row` of operand y, that is v / scale, where v may be off by off[k].  The
 * scale is that of operand `scale`, one number, or without it found for the row, or for each
 * `group` of its elements as attribute group says; operand scales gets it.  off[k] below 0: nothing
 * is asked of element k, nor of those that share a scale which is found with it. */
void reference_quantize(const struct reference *r, int scale, int y, int scales, int64_t row,
						const double *v, const double *off);

/* ---- Paged caches: slots are numbered over all blocks ---- */

int64_t reference_slots(const struct cases_case *c, int cache);
/* The offset in elements of a head of a slot. */
int64_t reference_slot_at(const struct cases_case *c, int cache, int64_t slot, int64_t head);
/* A unit of a reference may be a chunk of slots, so that it hands on those that no token names, as
 * they were: how many chunks there are, and one of them, of cache and of the operand behind it.
 * slot_of returns the slot of a token; -1: it has none. */
int64_t reference_chunks(const struct cases_case *c, int cache);
void reference_chunk(const struct reference *r, int cache, int64_t chunk, int64_t tokens,
					 int64_t (*slot_of)(const struct reference *r, int64_t token));

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

#endif
