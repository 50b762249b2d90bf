/* raw_launch: one launch of a user's kernel: the grid, block and arguments that a plan has for
 * other kernels. */
#ifndef KILN_DAEMON_RAW_LAUNCH_H
#define KILN_DAEMON_RAW_LAUNCH_H

#include <client/wire/wire.h>

#include "buffer.h"

struct raw_launch;

/* Reads a launch, which the caller frees.  KILN_OK, or a status with a sentence. */
int raw_launch_open(struct session *session, struct wire_in *message, struct raw_launch **out,
					char error[KERNEL_ERROR_MAX]);

#endif
