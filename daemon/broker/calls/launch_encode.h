/* launch_put: how messages to device processes, and answers to clients, describe a launch. */
#ifndef KILN_DAEMON_LAUNCH_ENCODE_H
#define KILN_DAEMON_LAUNCH_ENCODE_H

#include <client/wire/wire.h>

#include "daemon/plan/kernel.h"

/* Puts members "grid", "block" and "shared". */
void launch_put_shape(struct wire_out *message, const struct kernel_plan *plan);
/* Puts an element of member "args": [0, operand], [1, bytes, value], [2], [3] or bytes. */
void launch_put_argument(struct wire_out *message, const struct kernel_arg *arg);
/* Puts member "scratch", [bytes, counters], if the kernel has any. */
void launch_put_scratch(struct wire_out *message, const struct kernel_scratch *scratch);

#endif
