/*
 * failure.h: failures in words: one sentence on standard error, and with --json an object on
 * standard output.  Each function returns the exit status.
 */
#ifndef KILN_CLI_FAILURE_H
#define KILN_CLI_FAILURE_H

#include "cli.h"

/* The command line is wrong: "kiln: sentence".  Returns CLI_USAGE. */
int cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The library failed with this status: "kiln: FORMAT: the library's sentence", and the compiler's
 * log if there is one.  Returns CLI_FAILED. */
int cli_failed(const struct cli *cli, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The command itself failed: "kiln: FORMAT".  status names the failure in the JSON object.  Returns
 * CLI_FAILED. */
int cli_failed_here(const struct cli *cli, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* kiln_wait() or kiln_wait_time() failed; KILN_EAGAIN is the end of --timeout.  Returns CLI_FAILED.
 */
int cli_failed_wait(const struct cli *cli, int status, int timeout_ms, const char *what);

#endif
