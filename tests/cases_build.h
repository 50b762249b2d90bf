/*
 * cases_build.h: what the files that make up the list of cases share.
 */
#ifndef KILN_TESTS_CASES_BUILD_H
#define KILN_TESTS_CASES_BUILD_H

#include "cases.h"

#define CASES_MOST 4096 /* on the list, and one more */

/* A new case at the end of the list, zeroed but for op and flags; never NULL. */
struct cases_case *cases_add(const struct cases_op *op, unsigned flags);
/* Adds to the name of a case. */
void cases_name(struct cases_case *c, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* ... what an operand is: " f32 8x16", " none", " f16 8x16 strides 32,1 at 4". */
void cases_name_operand(struct cases_case *c, int operand);
/* Row-major strides. */
void cases_contiguous(struct cases_operand *operand);
/* The offset in elements of element number i, counted in row-major order of the shape. */
int64_t cases_offset(const struct cases_operand *operand, int64_t i);

/* The families.  Each adds its cases, or makes up one small random one. */
void cases_add_permute(void);
void cases_add_softmax(void);        /* softmax, log_softmax and their backward */
void cases_add_masked_softmax(void); /* and its backward */
void cases_add_norm(void);           /* layer_norm, rms_norm */
void cases_add_norm_backward(void);
void cases_add_gather(void); /* and its backward */
void cases_add_giou(void);   /* giou, giou_loss and their backward */
void cases_add_map(void);
void cases_random_permute(uint64_t *state, struct cases_case *out);
void cases_random_softmax(uint64_t *state, struct cases_case *out);
void cases_random_masked_softmax(uint64_t *state, struct cases_case *out);
void cases_random_norm(uint64_t *state, struct cases_case *out);
void cases_random_norm_backward(uint64_t *state, struct cases_case *out);
void cases_random_gather(uint64_t *state, struct cases_case *out);
void cases_random_giou(uint64_t *state, struct cases_case *out);
void cases_random_map(uint64_t *state, struct cases_case *out);

/* Judges one float: |got - expected| <= relative * |expected| + absolute; NaN agrees with NaN, an
 * infinity with itself.  Notes what is wrong, keeping what was noted before. */
void cases_judge(struct cases_verdict *verdict, int operand, int64_t element, double got,
				 double expected, double relative, double absolute);

#endif
