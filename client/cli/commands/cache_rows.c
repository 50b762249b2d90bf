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
#include <time.h>

#define PAGE 1000

void cache_rows_print(const kiln_reply *reply, bool headers)
{
	static const char *const names[] = {"KEY",   "OP",    "TARGET", ">BYTES", ">SIZE",
										">HITS", ">USED", "PIN",    "KERNEL"};
	int64_t now = (int64_t)time(NULL);
	char figure[FIGURE_MAX];
	struct table table;

	table_begin(&table, headers ? names : NULL, 9);
	for (int i = 0; i < kiln_reply_count(reply, "rows"); i++) {
		table_cell(&table, "%.*s", CLI_SHORT_KEY, member_str(reply, "rows[%d].key", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].op", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].target", i));
		table_cell(&table, "%" PRId64, member_int(reply, "rows[%d].bytes", i));
		table_cell(&table, "%" PRId64, member_int(reply, "rows[%d].size", i));
		table_cell(&table, "%" PRId64, member_int(reply, "rows[%d].hits", i));
		table_cell(&table, "%s", figure_ago(now - member_int(reply, "rows[%d].used", i), figure));
		table_cell(&table, "%s", member_int(reply, "rows[%d].pinned", i) ? "*" : "");
		table_cell(&table, "%s", member_str(reply, "rows[%d].instantiation", i));
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
