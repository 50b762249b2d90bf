/*
 * debug_waits.c: 'kiln debug waits': who waits now, for what and since when.  The daemon answers
 * without asking another process.
 */
#include "client/cli/daemon.h"
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "commands.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The name of a process of this host; "": there is none. */
static const char *process_name(int64_t pid, char name[32])
{
	char path[48];
	FILE *file;

	name[0] = 0;
	snprintf(path, sizeof(path), "/proc/%" PRId64 "/comm", pid);
	file = pid > 0 ? fopen(path, "r") : NULL;
	if (file && !fgets(name, 32, file))
		name[0] = 0;
	if (file)
		fclose(file);
	name[strcspn(name, "\n")] = 0;
	for (char *at = name; *at; at++)
		if (!isprint((unsigned char)*at))
			*at = '?';
	return name;
}

static void cell_time(struct table *table, int64_t ms)
{
	char figure[FIGURE_MAX];
	table_cell(table, "%s", figure_micros((double)ms * 1e3, figure));
}

static void add_row(struct table *table, const kiln_reply *reply, int i)
{
	int64_t session = member_int(reply, "rows[%d].session", i);
	int64_t pid = member_int(reply, "rows[%d].pid", i);
	int64_t of_pid = member_int(reply, "rows[%d].of_pid", i);
	int64_t count = member_int(reply, "rows[%d].count", i);
	const char *of = member_str(reply, "rows[%d].of", i);
	const char *key = member_str(reply, "rows[%d].key", i);
	char name[32], times[32] = "";

	cell_time(table, member_int(reply, "rows[%d].age_ms", i));
	if (member_has(reply, "rows[%d].left_ms", i))
		cell_time(table, member_int(reply, "rows[%d].left_ms", i));
	else
		table_cell(table, "-");
	if (session) {
		table_cell(table, "%" PRId64, session);
		table_cell(table, "%" PRId64, pid);
		table_cell(table, "%" PRId64, member_int(reply, "rows[%d].uid", i));
	} else {
		for (int k = 0; k < 3; k++)
			table_cell(table, "-");
	}
	table_cell(table, "%s", session ? process_name(pid, name) : "kilnd");
	table_cell(table, "%s", member_str(reply, "rows[%d].asked", i));
	if (of_pid > 0)
		table_cell(table, "%s %" PRId64, of, of_pid);
	else
		table_cell(table, "%s", of);
	if (count > 1)
		snprintf(times, sizeof(times), "%" PRId64 " times ", count);
	table_cell(table, "%s: %s%s%s%.*s", member_str(reply, "rows[%d].what", i), times,
			   member_str(reply, "rows[%d].text", i), key[0] ? ", key " : "", CLI_SHORT_KEY, key);
}

static void print_waits(struct cli *cli, const kiln_reply *reply)
{
	static const char *const headers[] = {">WAITED", ">LEFT", ">SESSION", ">PID", ">UID",
										  "NAME",    "ASKED", "OF",       "FOR"};
	int64_t rows = kiln_reply_count(reply, "rows"), all = kiln_reply_int(reply, "all");
	struct table table;

	(void)cli;
	table_begin(&table, headers, 9);
	for (int i = 0; i < rows; i++)
		add_row(&table, reply, i);
	table_end(&table);
	if (all > rows)
		printf("and %" PRId64 " more, who have not waited so long\n", all - rows);
}

static int cli_debug_waits(struct cli *cli)
{
	return cli_answer(cli, "waits", NULL, 0, print_waits);
}

/* ---- The command ---- */

static const struct cli_example debug_waits_examples[] = {
	{"kiln debug waits", "a call, its request and its deadline, a line each"}, {0}};

const struct cli_command command_debug_waits = {"debug waits", cli_debug_waits, "",
												"who waits now, for what, of whom and since when",
												.examples = debug_waits_examples};
