/* decode: from a message's op, tensors and attrs to a problem. */
#ifndef KILN_DAEMON_DECODE_H
#define KILN_DAEMON_DECODE_H

#include <client/wire/wire.h>

#include "buffer.h"

/*
 * buffers[i] and offsets[i] say where tensor i lies (NULL: nowhere, or it is left out); the
 * alignment of tensors follows from that.  KILN_OK, or a status with a sentence.
 */
int decode_problem(struct session *session, struct wire_in *message, struct kernel_problem *problem,
				   struct buffer *buffers[KERNEL_MAX_OPERANDS],
				   uint64_t offsets[KERNEL_MAX_OPERANDS], char error[KERNEL_ERROR_MAX]);

#endif
