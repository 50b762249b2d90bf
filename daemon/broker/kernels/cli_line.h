/*
 * cli_line: the `kiln compile ...` that asks for a problem or for a user's kernel.  It lacks
 * nothing but --target or --device.  Sentences that say how to make a kernel quote it.  Knows no
 * session and no cache.
 */
#ifndef KILN_DAEMON_CLI_LINE_H
#define KILN_DAEMON_CLI_LINE_H

#include "daemon/compile/compile.h"
#include "daemon/plan/kernel.h"

/* Both quote for a shell; the caller frees the line.  NULL without memory.
 * The problem is complete, as plan_infer() leaves it. */
char *line_of_problem(const struct kernel_problem *problem);
/* Files have the names that their owner gave them.  The last `extra` files come with kilnd, and are
 * left out. */
char *line_of_raw(const struct compile_job *job, int extra);

#endif
