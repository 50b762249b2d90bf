/*
 * progress.h: one line on a terminal that says how far a command is.  Nothing is printed where
 * standard error is no terminal, or with --json.
 */
#ifndef KILN_CLI_PROGRESS_H
#define KILN_CLI_PROGRESS_H

#include "cli.h"

/* Replaces the line. */
void progress_print(const struct cli *cli, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Removes it. */
void progress_end(const struct cli *cli);

#endif
