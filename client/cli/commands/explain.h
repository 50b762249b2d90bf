/*
 * explain.h: what explain and compile print, of operators, statements and users' kernels.
 */
#ifndef KILN_CLI_EXPLAIN_H
#define KILN_CLI_EXPLAIN_H

#include "client/cli/cli.h"

#define WHY_OPTION                                                                  \
	{                                                                               \
		"why", NULL, "of a miss: the nearest kernel in the cache, and what differs" \
	}

/* Print the daemon's answer about one kernel. */
void explain_print(struct cli *cli, const kiln_reply *reply);
void compile_print(struct cli *cli, const kiln_reply *reply);
/* Prints whether the cache has the kernel, and else how the nearest one differs (explain_why.c). */
void why_print(const kiln_reply *reply);

#endif
