/* decode: reads a problem from a message's op, tensors and attrs. */
#ifndef KILN_DAEMON_DECODE_H
#define KILN_DAEMON_DECODE_H

#include <client/wire/wire.h>

#include "buffer.h"

/*
 * buffers[i] and offsets[i] are the place of tensor i, which sets its alignment; NULL: it has none,
 * or it is left out.  KILN_OK, or a status with a sentence.
 */
int decode_problem(struct session *session, struct wire_in *message, struct kernel_problem *problem,
				   struct buffer *buffers[KERNEL_MAX_OPERANDS],
				   uint64_t offsets[KERNEL_MAX_OPERANDS], char error[KERNEL_ERROR_MAX]);

#endif
