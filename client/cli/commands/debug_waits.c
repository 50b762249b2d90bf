/*
 * debug_waits.c: 'kiln debug waits': who waits now, for what and since when.  The daemon answers
 * without asking another process.
 */
#include "client/cli/daemon.h"
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

/* "compiler 1234", "client", "". */
static void cell_of_whom(struct table *table, const char *of, int64_t pid)
{
	if (pid > 0)
		table_cell(table, "%s %" PRId64, of, pid);
	else
		table_cell(table, "%s", of);
}

static void cell_time(struct table *table, int64_t ms)
{
	char figure[FIGURE_MAX];
	table_cell(table, "%s", figure_micros((double)ms * 1e3, figure));
}

static void add_row(struct table *table, const kiln_reply *reply, int i)
{
	char path[64], name[32];
#define MEMBER(member) (snprintf(path, sizeof(path), "rows[%d]." member, i), path)
	int64_t session = kiln_reply_int(reply, MEMBER("session"));
	int64_t pid = kiln_reply_int(reply, MEMBER("pid"));
	int64_t count = kiln_reply_int(reply, MEMBER("count"));
	const char *key = kiln_reply_str(reply, MEMBER("key"));
	char times[32] = "";

	cell_time(table, kiln_reply_int(reply, MEMBER("age_ms")));
	if (kiln_reply_has(reply, MEMBER("left_ms")))
		cell_time(table, kiln_reply_int(reply, MEMBER("left_ms")));
	else
		table_cell(table, "-");
	if (session) {
		table_cell(table, "%" PRId64, session);
		table_cell(table, "%" PRId64, pid);
		table_cell(table, "%" PRId64, kiln_reply_int(reply, MEMBER("uid")));
	} else {
		for (int k = 0; k < 3; k++)
			table_cell(table, "-");
	}
	table_cell(table, "%s", session ? process_name(pid, name) : "kilnd");
	table_cell(table, "%s", kiln_reply_str(reply, MEMBER("asked")));
	cell_of_whom(table, kiln_reply_str(reply, MEMBER("of")),
				 kiln_reply_int(reply, MEMBER("of_pid")));
	if (count > 1)
		snprintf(times, sizeof(times), "%" PRId64 " times ", count);
	table_cell(table, "%s: %s%s%s%.*s", kiln_reply_str(reply, MEMBER("what")), times,
			   kiln_reply_str(reply, MEMBER("text")), key[0] ? ", key " : "", CLI_SHORT_KEY, key);
#undef MEMBER
}

static int cli_debug_waits(struct cli *cli)
{
	static const char *const headers[] = {">WAITED", ">LEFT", ">SESSION", ">PID", ">UID",
										  "NAME",    "ASKED", "OF",       "FOR"};
	struct table table;
	kiln_reply *reply;

	if (cli_request(cli, "waits", NULL, 0, &reply))
		return CLI_FAILED;
	if (!cli_json(cli, reply)) {
		int rows = kiln_reply_count(reply, "rows");
		int64_t all = kiln_reply_int(reply, "all");
		table_begin(&table, headers, 9);
		for (int i = 0; i < rows; i++)
			add_row(&table, reply, i);
		table_end(&table);
		if (all > rows)
			printf("and %" PRId64 " more, who have not waited so long\n", all - rows);
	}
	kiln_reply_free(reply);
	return CLI_OK;
}

/* ---- The command ---- */

const struct cli_command command_debug_waits = {"debug waits",
												cli_debug_waits,
												"",
												"who waits now, for what, of whom and since when",
												NULL,
												0,
												0,
												0};
