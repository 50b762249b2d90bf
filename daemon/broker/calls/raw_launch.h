/* raw_launch: one launch of a user's kernel: the grid, block and arguments that a plan has for
 * other kernels. */
#ifndef KILN_DAEMON_RAW_LAUNCH_H
#define KILN_DAEMON_RAW_LAUNCH_H

#include <client/wire/wire.h>

#include "buffer.h"

struct raw_launch {
	int64_t grid[3], block[3];
	uint32_t shared_bytes, timeout_ms;
	struct work_operand operands[KERNEL_MAX_OPERANDS];
	struct kernel_extent extents[KERNEL_MAX_OPERANDS];
	int operand_count;
	struct kernel_arg args[KERNEL_MAX_ARGS]; /* POINTER, and BYTES that point into data */
	int arg_count;
	uint8_t data[];
};

/* Reads a launch, which the caller frees.  KILN_OK, or a status with a sentence. */
int raw_launch_open(struct session *session, struct wire_in *message, struct raw_launch **out,
					char error[KERNEL_ERROR_MAX]);

#endif
