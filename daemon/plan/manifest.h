/*
 * manifest: a problem as a line of text, and back: what a manifest consists of (docs/warm.md).
 *
 *   softmax x=f16:64x1000 y=f16:64x1000 axis=-1 scale=0.125   # a comment
 *
 * Operands are NAME=TYPE:SHAPE, then /STRIDES if it is not row-major, and @ALIGNMENT in bytes if
 * that is not 16; outputs that follow from the inputs may be left out.  Attributes are NAME=VALUE:
 * an integer, a real, a list of integers in brackets, or a text in quotes.
 */
#ifndef KILN_DAEMON_PLAN_MANIFEST_H
#define KILN_DAEMON_PLAN_MANIFEST_H

#include "plan.h"

#define MANIFEST_ALIGNMENT 16
#define MANIFEST_LINE_MAX 16384 /* bytes of a line, with its zero byte */

/* Prints a valid problem, without an end of line; false where it has no room. */
bool manifest_print(const struct kernel_problem *problem, char *text, size_t size);

/*
 * Reads one, up to its end, which is a comment, an end of line or that of the text.  A printed
 * manifest is read as the same problem.  KILN_OK, or KILN_EINVAL with a sentence that begins
 * "column N: ", counted from 1; what the values mean is for plan_infer and plan_problem to say.
 */
int manifest_read(const char *text, struct kernel_problem *out, char error[KERNEL_ERROR_MAX]);

/* The list of an operator's operands for this problem, which may name them itself. */
int manifest_operands(const struct kernel_problem *problem, const struct plan_op *op,
					  char list[KERNEL_OPERANDS_MAX], char error[KERNEL_ERROR_MAX]);
/* Points to the operator's name, or, on a line without one, to the comment or the end of the
 * line. */
const char *manifest_begin(const char *text);

#endif
