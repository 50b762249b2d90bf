/*
 * cli_line: how one asks for a kernel on the command line: a problem, or a user's kernel, as a `kiln
 * compile ...` that lacks nothing but --target or --device, for sentences that say what to run.
 * Knows no session and no cache.
 */
#ifndef KILN_DAEMON_CLI_LINE_H
#define KILN_DAEMON_CLI_LINE_H

#include "daemon/compile/compile.h"
#include "daemon/plan/kernel.h"

/* For a shell, malloc'd; NULL without memory.  The problem is complete, as plan_infer() leaves it.
 */
char *line_of_problem(const struct kernel_problem *problem);
/* The files by the names that their owner gave them; the last extra ones of the user's are not of
 * the user's own. */
char *line_of_raw(const struct compile_job *job, int extra);

#endif
