/*
 * value.h: what eval.c (words and elements) and value.c (the value of an
 * expression) share.
 */
#ifndef KILN_TESTS_OPS_MAP_VALUE_H
#define KILN_TESTS_OPS_MAP_VALUE_H

#include "eval.h"

/* Element number i of memory, and what one rounding to a type may add (eval.c). */
struct eval_value eval_load(kiln_dtype dtype, const void *memory, int64_t i);
double eval_rounding(kiln_dtype dtype, double value);
/* A float as the type has it. */
struct eval_value eval_rounded(kiln_dtype dtype, struct eval_value a);
bool eval_is_real(kiln_dtype dtype);
bool eval_is_sign(const struct eval_token *token, const char *sign);

/* Bits of the integer type that a dtype is computed in, and an integer made one of that type. */
unsigned eval_bits(kiln_dtype dtype);
struct eval_value eval_wrap(struct eval_value a, kiln_dtype dtype);

/* Is a value that is not exact perhaps 0?  Then unsure is set. */
bool eval_truth(struct eval_value a, bool *unsure);
/* A part of the right side, from the word at eval->at on (value.c), and a reduction behind its name
 * (reduction.c). */
struct eval_value eval_expression(struct eval *eval);
struct eval_value eval_reduction(struct eval *eval, const struct eval_token *token);
/* Finds the indices of reductions and where these end; false: it makes no sense.  Then, once all
 * indices are known, what each depends on. */
bool eval_find_own(struct eval *eval);
void eval_find_depends(struct eval *eval);
bool eval_take(struct eval *eval, const char *sign);
/* The right side at eval->place (value.c), and two of its operations. */
struct eval_value eval_right(struct eval *eval);
/* The right side with its dtype and nothing read, of a statement that may make no sense. */
struct eval_value eval_unread(struct eval *eval);
struct eval_value eval_as_real(struct eval_value a);
struct eval_value eval_arithmetic(struct eval *eval, char sign, struct eval_value a,
								  struct eval_value b);
/* The dtype that two values meet in, that an operator and a function make of them
 * (dtype.c). */
kiln_dtype eval_meet(const struct eval_value *a, const struct eval_value *b);
kiln_dtype eval_combined(const char *sign, const struct eval_value *a, const struct eval_value *b);
kiln_dtype eval_called(const char *name, const struct eval_value *args, int count);
/* The less, or the greater, of two; a NaN loses. */
struct eval_value eval_smaller(struct eval_value a, struct eval_value b, bool less);

#endif
