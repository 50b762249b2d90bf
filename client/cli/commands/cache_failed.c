/*
 * cache_failed.c: 'kiln cache ls --failed' and 'kiln cache retry': failed compiles, which the
 * daemon remembers.
 */
#include "cache.h"
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* "for ever", or how much longer the daemon remembers. */
static const char *kept_for(int64_t until, char text[FIGURE_MAX])
{
	if (!until)
		return "for ever";
	return figure_ago(until - (int64_t)time(NULL), text);
}

static void print_failed(struct cli *cli, const kiln_reply *reply)
{
	static const char *const headers[] = {"KEY",   "OP",    "TARGET", "STATUS",
										  ">HITS", ">KEPT", "ERROR"};
	char figure[FIGURE_MAX];
	struct table table;

	(void)cli;
	table_begin(&table, headers, 7);
	for (int i = 0; i < kiln_reply_count(reply, "rows"); i++) {
		table_cell(&table, "%.*s", CLI_SHORT_KEY, member_str(reply, "rows[%d].key", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].op", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].target", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].status", i));
		table_cell(&table, "%" PRId64, member_int(reply, "rows[%d].hits", i));
		table_cell(&table, "%s", kept_for(member_int(reply, "rows[%d].until", i), figure));
		table_cell(&table, "%s", member_str(reply, "rows[%d].error", i));
	}
	table_end(&table);
	cache_rows_rest(reply);
}

int failed_list(struct cli *cli, int64_t limit)
{
	kiln_attr arg = cli_attr_int("limit", limit);

	return cli_answer(cli, "cache.failed", &arg, 1, print_failed);
}

void failed_print(const kiln_reply *reply)
{
	char figure[FIGURE_MAX];

	print_pair("failed", "%s", kiln_reply_str(reply, "status"));
	print_pair("error", "%s", kiln_reply_str(reply, "error"));
	print_pair("kept", "%s", kept_for(kiln_reply_int(reply, "until"), figure));
}

static void print_forgotten(struct cli *cli, const kiln_reply *reply)
{
	(void)cli;
	printf("forgotten %" PRId64 "\n", kiln_reply_int(reply, "removed"));
}

static int cli_cache_retry(struct cli *cli)
{
	const char *key = cli->positional_count ? cli->positional[0] : NULL;
	kiln_attr arg = key ? cli_attr_string("key", key) : cli_attr_int("all", 1);

	if (!key == !cli_value(cli, "all"))
		return cli_usage("'kiln cache retry' needs either a KEY, as 'kiln cache ls --failed' "
						 "lists them, or --all");
	return cli_answer(cli, "cache.retry", &arg, 1, print_forgotten);
}

/* ---- The command ---- */

static const struct cli_option retry_options[] = {
	{"all", NULL, "forget all failures"},
	{0},
};

static const struct cli_example cache_retry_examples[] = {
	{"kiln cache retry --all", "after the compiler was mended"}, {0}};

const struct cli_command command_cache_retry = {"cache retry",
												cli_cache_retry,
												"[KEY]",
												"forget a failure, so that it is compiled again",
												{0, 1},
												retry_options,
												.examples = cache_retry_examples};
