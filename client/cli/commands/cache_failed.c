/*
 * cache_failed.c: 'kiln cache ls --failed' and 'kiln cache retry': failed compiles, which the
 * daemon remembers.
 */
#include "cache.h"
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/table.h"
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* "for ever", or how much longer the daemon remembers. */
static const char *kept_for(int64_t until, char text[FIGURE_MAX])
{
	if (!until)
		return "for ever";
	return figure_ago(until - (int64_t)time(NULL), text);
}

int failed_list(struct cli *cli, int64_t limit)
{
	static const char *const headers[] = {"KEY",   "OP",    "TARGET", "STATUS",
										  ">HITS", ">KEPT", "ERROR"};
	kiln_attr args[] = {cli_attr_int("limit", limit)};
	struct table table;
	kiln_reply *reply;

	if (cli_request(cli, "cache.failed", args, 1, &reply))
		return CLI_FAILED;
	if (!cli_json(cli, reply)) {
		int rows = kiln_reply_count(reply, "rows");
		table_begin(&table, headers, 7);
		for (int i = 0; i < rows; i++) {
			char path[64], figure[FIGURE_MAX];
#define MEMBER(name) (snprintf(path, sizeof(path), "rows[%d]." name, i), path)
			table_cell(&table, "%.*s", CLI_SHORT_KEY, kiln_reply_str(reply, MEMBER("key")));
			table_cell(&table, "%s", kiln_reply_str(reply, MEMBER("op")));
			table_cell(&table, "%s", kiln_reply_str(reply, MEMBER("target")));
			table_cell(&table, "%s", kiln_reply_str(reply, MEMBER("status")));
			table_cell(&table, "%" PRId64, kiln_reply_int(reply, MEMBER("hits")));
			table_cell(&table, "%s", kept_for(kiln_reply_int(reply, MEMBER("until")), figure));
			table_cell(&table, "%s", kiln_reply_str(reply, MEMBER("error")));
#undef MEMBER
		}
		table_end(&table);
		cache_rows_rest(reply);
	}
	kiln_reply_free(reply);
	return CLI_OK;
}

void failed_print(const kiln_reply *reply)
{
	char figure[FIGURE_MAX];

	print_pair("failed", "%s", kiln_reply_str(reply, "status"));
	print_pair("error", "%s", kiln_reply_str(reply, "error"));
	print_pair("kept", "%s", kept_for(kiln_reply_int(reply, "until"), figure));
}

static int cli_cache_retry(struct cli *cli)
{
	const char *key = cli->positional_count ? cli->positional[0] : NULL;
	kiln_attr arg = key ? cli_attr_string("key", key) : cli_attr_int("all", 1);
	kiln_reply *reply;

	if (!key == !cli_value(cli, "all"))
		return cli_usage("'kiln cache retry' needs either a KEY, as 'kiln cache ls --failed' "
						 "lists them, or --all");
	if (cli_request(cli, "cache.retry", &arg, 1, &reply))
		return CLI_FAILED;
	if (!cli_json(cli, reply))
		printf("forgotten %" PRId64 "\n", kiln_reply_int(reply, "removed"));
	kiln_reply_free(reply);
	return CLI_OK;
}

/* ---- The command ---- */

static const struct cli_option retry_options[] = {
	{"all", NULL, "forget all failures"},
	{0},
};

const struct cli_command command_cache_retry = {"cache retry",
												cli_cache_retry,
												"[KEY]",
												"forget a failure, so that it is compiled again",
												retry_options,
												0,
												1,
												0};
