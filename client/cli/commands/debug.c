/*
 * debug.c: 'kiln debug': asks a daemon with --test-requests for faults, whose arguments stand by
 * position.
 */
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "client/cli/values.h"
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ARG_NONE, ARG_COUNT, ARG_TEXT };

static const struct debug_what {
	const char *name;
	const char *args[2];
	int kinds[2];
	int least;
} whats[] = {
	{"delay-compile", {"ms"}, {ARG_COUNT}, 1},
	{"fail-compile", {"count"}, {ARG_COUNT}, 1},
	{"hang-compile", {"count"}, {ARG_COUNT}, 1},
	{"crash-compile", {"count"}, {ARG_COUNT}, 1},
	{"available-memory", {"bytes"}, {ARG_COUNT}, 1},
	{"delay-store", {"ms"}, {ARG_COUNT}, 1},
	{"delay-launch", {"ms"}, {ARG_COUNT}, 1},
	{"kill", {"role", "pid"}, {ARG_TEXT, ARG_COUNT}, 1},
	{"drop", {NULL}, {ARG_NONE}, 0},
	{"corrupt", {"key"}, {ARG_TEXT}, 1},
	{"children", {NULL}, {ARG_NONE}, 0},
	{"expire", {NULL}, {ARG_NONE}, 0},
	{"store-fault", {"kind", "ms"}, {ARG_TEXT, ARG_COUNT}, 1},
	{"store-deadline", {"ms"}, {ARG_COUNT}, 1},
	{"look", {NULL}, {ARG_NONE}, 0},
};

/* Finds the row of this name, or prints all names. */
static const struct debug_what *find_what(const char *name)
{
	for (size_t i = 0; i < sizeof(whats) / sizeof(whats[0]); i++)
		if (!strcmp(whats[i].name, name))
			return &whats[i];
	fprintf(stderr, "kiln: debug: '%s' is nothing it can do; it can do", name);
	for (size_t i = 0; i < sizeof(whats) / sizeof(whats[0]); i++)
		fprintf(stderr, "%s %s", i ? "," : "", whats[i].name);
	fputc('\n', stderr);
	return NULL;
}

static int read_args(const struct cli *cli, const struct debug_what *what, kiln_attr args[3],
					 int *count)
{
	int given = cli->positional_count - 1;

	args[0] = cli_attr_string("what", what->name);
	*count = 1;
	for (int i = 0; i < given; i++) {
		const char *text = cli->positional[i + 1];
		int64_t value;
		if (!what->args[i])
			return cli_usage("debug %s: '%s' is one argument too many", what->name, text);
		if (what->kinds[i] == ARG_TEXT)
			args[(*count)++] = cli_attr_string(what->args[i], text);
		else if (cli_integer(what->args[i], text, 0, INT32_MAX, &value))
			return CLI_USAGE;
		else
			args[(*count)++] = cli_attr_int(what->args[i], value);
	}
	if (given < what->least)
		return cli_usage("debug %s needs %s", what->name, what->args[given]);
	return CLI_OK;
}

/* Prints the children, which 'children' alone answers with. */
static void print_children(struct cli *cli, const kiln_reply *reply)
{
	static const char *const headers[] = {"ROLE", ">PID", "STATE", "DEVICE"};
	struct table table;

	(void)cli;
	if (!kiln_reply_has(reply, "rows"))
		return;
	table_begin(&table, headers, 4);
	for (int i = 0; i < kiln_reply_count(reply, "rows"); i++) {
		table_cell(&table, "%s", member_str(reply, "rows[%d].role", i));
		table_cell(&table, "%" PRId64, member_int(reply, "rows[%d].pid", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].state", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].device", i));
	}
	table_end(&table);
}

static int cli_debug(struct cli *cli)
{
	const struct debug_what *what = find_what(cli->positional[0]);
	kiln_attr args[3];
	int count;

	if (!what || read_args(cli, what, args, &count))
		return CLI_USAGE;
	return cli_answer(cli, "debug", args, count, print_children);
}

/* ---- The command ---- */

static const struct cli_example debug_examples[] = {
	{"kiln debug delay-compile 500", "each compile begins half a second later"}, {0}};

const struct cli_command command_debug = {"debug",
										  cli_debug,
										  "WHAT [VALUE [VALUE]]",
										  "what tests ask of kilnd --test-requests",
										  {1, 3},
										  .examples = debug_examples};
