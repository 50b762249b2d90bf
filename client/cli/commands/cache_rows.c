/*
 * cache_rows.c: rows of the cache for all commands that have them: as a table, and page by page.
 */
#include "cache.h"
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define PAGE 1000

void cache_rows_print(const kiln_reply *reply, bool headers)
{
	static const char *const names[] = {"KEY",   "OP",    "TARGET", ">BYTES", ">SIZE",
										">HITS", ">USED", "PIN",    "KERNEL"};
	int rows = kiln_reply_count(reply, "rows");
	int64_t now = (int64_t)time(NULL);
	struct table table;

	table_begin(&table, headers ? names : NULL, 9);
	for (int i = 0; i < rows; i++) {
		char path[64], figure[FIGURE_MAX];
#define MEMBER(name) (snprintf(path, sizeof(path), "rows[%d]." name, i), path)
		table_cell(&table, "%.*s", CLI_SHORT_KEY, kiln_reply_str(reply, MEMBER("key")));
		table_cell(&table, "%s", kiln_reply_str(reply, MEMBER("op")));
		table_cell(&table, "%s", kiln_reply_str(reply, MEMBER("target")));
		table_cell(&table, "%" PRId64, kiln_reply_int(reply, MEMBER("bytes")));
		table_cell(&table, "%" PRId64, kiln_reply_int(reply, MEMBER("size")));
		table_cell(&table, "%" PRId64, kiln_reply_int(reply, MEMBER("hits")));
		table_cell(&table, "%s", figure_ago(now - kiln_reply_int(reply, MEMBER("used")), figure));
		table_cell(&table, "%s", kiln_reply_int(reply, MEMBER("pinned")) ? "*" : "");
		table_cell(&table, "%s", kiln_reply_str(reply, MEMBER("instantiation")));
#undef MEMBER
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

int cache_rows_each(struct cli *cli, kiln_client *client, cache_row_visit visit, void *arg)
{
	kiln_attr args[] = {cli_attr_string("sort", "key"), cli_attr_int("limit", PAGE),
						cli_attr_string("next", "")};
	char key[80] = "", path[64];
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
		snprintf(path, sizeof(path), "rows[%d].key", rows - 1);
		snprintf(key, sizeof(key), "%s", rows ? kiln_reply_str(reply, path) : "");
		kiln_reply_free(reply);
	}
	return CLI_OK;
}
