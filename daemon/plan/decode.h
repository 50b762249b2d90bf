/*
 * decode: reads a problem from a message's op, tensors and attrs.  Checks their form; the planner
 * checks their meaning.
 */
#ifndef KILN_DAEMON_PLAN_DECODE_H
#define KILN_DAEMON_PLAN_DECODE_H

#include "client/wire/wire.h"
#include "op.h"

/* Tensor i lies at offsets[i] of the buffer with number buffers[i]; 0: it names none, or is left
 * out.  The caller knows buffers, and sets alignments.  KILN_OK, or a status with a sentence. */
int plan_decode(struct wire_in *message, struct kernel_problem *problem,
				uint64_t buffers[KERNEL_MAX_OPERANDS], uint64_t offsets[KERNEL_MAX_OPERANDS],
				char error[KERNEL_ERROR_MAX]);
/* The name of tensor i in sentences: its operand's, or "operand 5". */
const char *plan_decode_name(const struct plan_op *op, int i, char number[24]);

#endif
