/*
 * cache_rows.c: rows of the cache for all commands that have them: as a table, and page by page.
 */
#include "cache.h"
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "client/cli/values.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PAGE 1000

/* Finds the value of a line of plan_explain(), "macro          M=2", behind at; NULL: there is
 * none.  *length: of the value. */
static const char *line_of(const char *at, const char *name, int *length)
{
	size_t size = strlen(name);

	for (; *at; at += strcspn(at, "\n"), at += *at == '\n')
		if (!strncmp(at, name, size) && at[size] == ' ') {
			at += size + strspn(at + size, " ");
			*length = (int)strcspn(at, "\n");
			return at;
		}
	return NULL;
}

/* Tells what people know a kernel by: a map's statement, a raw kernel's file and macros. */
static void tell_name(kiln_client *client, const kiln_reply *reply, int row, char *name,
					  size_t size)
{
	const char *op = member_str(reply, "rows[%d].op", row), *plan, *at;
	kiln_attr key = cli_attr_string("key", member_str(reply, "rows[%d].key", row));
	kiln_reply *shown = NULL;
	int length;

	snprintf(name, size, "%s", member_str(reply, "rows[%d].instantiation", row));
	if (!client || (strcmp(op, "map") && strcmp(op, "raw")) ||
		kiln_request(client, "cache.show", &key, 1, &shown))
		return;
	plan = kiln_reply_str(shown, "plan");
	at = line_of(plan, "statement", &length);
	if (!strcmp(op, "map") && at)
		snprintf(name, size, "%.*s", length, at);
	at = line_of(plan, "source", &length);
	if (!strcmp(op, "raw") && at) {
		size_t used = strlen(name);
		snprintf(name + used, size - used, " of %.*s", length, at);
		while ((at = line_of(at + length, "macro", &length))) {
			used = strlen(name);
			snprintf(name + used, size - used, " -D%.*s", length, at);
		}
	}
	kiln_reply_free(shown);
}

void cache_rows_print(const kiln_reply *reply, bool headers, kiln_client *client)
{
	static const char *const names[] = {"KEY",   "OP",    "TARGET", ">OBJECT", ">DISK",
										">HITS", ">USED", "PIN",    "KERNEL"};
	int64_t now = (int64_t)time(NULL);
	char figure[FIGURE_MAX], name[512];
	struct table table;

	table_begin(&table, headers ? names : NULL, 9);
	for (int i = 0; i < kiln_reply_count(reply, "rows"); i++) {
		tell_name(client, reply, i, name, sizeof(name));
		table_cell(&table, "%.*s", CLI_SHORT_KEY, member_str(reply, "rows[%d].key", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].op", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].target", i));
		table_cell(&table, "%s",
				   figure_bytes((uint64_t)member_int(reply, "rows[%d].bytes", i), figure));
		table_cell(&table, "%s",
				   figure_bytes((uint64_t)member_int(reply, "rows[%d].size", i), figure));
		table_cell(&table, "%" PRId64, member_int(reply, "rows[%d].hits", i));
		table_cell(&table, "%s", figure_ago(now - member_int(reply, "rows[%d].used", i), figure));
		table_cell(&table, "%s", member_int(reply, "rows[%d].pinned", i) ? "*" : "");
		table_cell(&table, "%s", name);
	}
	table_end(&table);
}

void cache_rows_rest(const kiln_reply *reply)
{
	int64_t rest = kiln_reply_int(reply, "all") - kiln_reply_count(reply, "rows");

	if (rest > 0)
		printf("and %" PRId64 " more: --limit N shows more than %d\n", rest,
			   kiln_reply_count(reply, "rows"));
}

int cache_filters(const struct cli *cli, kiln_attr *args, int *count)
{
	static const char *const names[] = {"op", "target", "compiler"};
	const char *age = cli_value(cli, "older-than");
	int64_t seconds;

	if (age && cli_age("--older-than", age, &seconds))
		return CLI_USAGE;
	if (age)
		args[(*count)++] = cli_attr_int("older_than", seconds);
	for (int i = 0; i < 3; i++)
		if (cli_value(cli, names[i]))
			args[(*count)++] = cli_attr_string(names[i], cli_value(cli, names[i]));
	return CLI_OK;
}

int cache_rows_each(struct cli *cli, kiln_client *client, cache_row_visit visit, void *arg)
{
	kiln_attr args[] = {cli_attr_string("sort", "key"), cli_attr_int("limit", PAGE),
						cli_attr_string("next", "")};
	char key[80] = "";
	int rows = PAGE;

	while (rows == PAGE) {
		kiln_reply *reply;
		int status;

		args[2].s = key;
		status = kiln_request(client, "cache.ls", args, 3, &reply);
		if (status)
			return cli_failed(cli, status, "%s", cli->command->name);
		rows = kiln_reply_count(reply, "rows");
		for (int i = 0; i < rows; i++)
			visit(reply, i, arg);
		snprintf(key, sizeof(key), "%s", rows ? member_str(reply, "rows[%d].key", rows - 1) : "");
		kiln_reply_free(reply);
	}
	return CLI_OK;
}
