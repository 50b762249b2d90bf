/*
 * trace.h: traces in files: of all that the daemon does ('kiln trace'), or of what one client asks
 * for (--trace of 'kiln run').
 */
#ifndef KILN_CLI_COMMANDS_TRACE_H
#define KILN_CLI_COMMANDS_TRACE_H

#include "client/cli/cli.h"

/* Counts what the file of a trace has and lacks; path NULL: there is none. */
struct trace_file {
	const char *path;
	int64_t spans, dropped, missed;
};

#define TRACE_OPTION                                               \
	{                                                              \
		"trace", "FILE", "a timeline of these calls, for Perfetto" \
	}

/* With --trace: sees that the file can be written, and begins a trace of this client. */
int trace_begin(const struct cli *cli, kiln_client *client, struct trace_file *file);
/* Ends and writes it, also after calls that have failed; then it says nothing more. */
int trace_end(const struct cli *cli, kiln_client *client, struct trace_file *file, int status);
/* Members of the JSON object, and lines for people. */
void trace_print_json(const struct trace_file *file);
void trace_print(const struct trace_file *file);

#endif
