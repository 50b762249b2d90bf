/*
 * cache_upkeep.c: 'kiln cache trim', 'clear', 'pin' and 'unpin'.  The daemon works in pieces and
 * the command asks for one after another, so an interrupt stops the work.
 */
#include "cache.h"
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/interrupt.h"
#include "client/cli/json.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "client/cli/values.h"
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Trim and clear ---- */

/* A request, and the sums over its pieces. */
struct trimming {
	const char *request;
	kiln_attr args[10];
	int count, bytes, left, next; /* members of args, or -1 */
	bool dry_run;
	int64_t wanted_bytes, wanted_left;
	int64_t removed, freed;
};

static int cache_upkeep_add(struct trimming *trim, kiln_attr arg)
{
	trim->args[trim->count] = arg;
	return trim->count++;
}

static int read_trim(struct cli *cli, struct trimming *trim)
{
	const char *rows = cli_value(cli, "rows");
	uint64_t bytes;

	if (cache_filters(cli, trim->args, &trim->count))
		return CLI_USAGE;
	if (rows && cli_integer("--rows", rows, 0, 1000000000, &trim->wanted_left))
		return CLI_USAGE;
	if (rows)
		trim->left = cache_upkeep_add(trim, cli_attr_int("left", trim->wanted_left));
	if (cli->positional_count) {
		if (cli_bytes("BYTES", cli->positional[0], &bytes))
			return CLI_USAGE;
		trim->wanted_bytes = (int64_t)bytes;
		trim->bytes = cache_upkeep_add(trim, cli_attr_int("bytes", trim->wanted_bytes));
	}
	if (!trim->count)
		return cli_usage("cache trim: what is to go? BYTES or --rows that may stay, --older-than, "
						 "--op, --target or --compiler; 'kiln cache clear' removes all");
	trim->dry_run = cli_value(cli, "dry-run") != NULL;
	if (trim->dry_run)
		cache_upkeep_add(trim, cli_attr_int("dry_run", 1));
	return CLI_OK;
}

static void cache_upkeep_print_json(const struct trimming *trim, const kiln_reply *last)
{
	json_begin();
	json_int("removed", trim->removed);
	json_int("freed", trim->freed);
	json_int("bytes", kiln_reply_int(last, "bytes"));
	json_int("left", kiln_reply_int(last, "left"));
	json_int("pinned", kiln_reply_int(last, "pinned"));
	json_int("dry_run", trim->dry_run);
	json_end();
}

static void print_removed(const struct trimming *trim, const kiln_reply *last)
{
	int64_t bytes = kiln_reply_int(last, "bytes"), pinned = kiln_reply_int(last, "pinned");
	char freed[FIGURE_MAX], left[FIGURE_MAX];

	printf("%s %" PRId64 ", %s %s, %s %s", trim->dry_run ? "would remove" : "removed",
		   trim->removed, trim->dry_run ? "free" : "freed",
		   figure_bytes((uint64_t)trim->freed, freed), trim->dry_run ? "leave" : "left",
		   figure_bytes((uint64_t)(bytes - (trim->dry_run ? trim->freed : 0)), left));
	if (pinned)
		printf(", %" PRId64 " pinned", pinned);
	putchar('\n');
}

static int run_pieces(struct cli *cli, kiln_client *client, struct trimming *trim)
{
	kiln_reply *reply = NULL;
	bool more = true, listed = false;

	interrupt_watch();
	while (more) {
		int status;

		kiln_reply_free(reply);
		status = kiln_request(client, trim->request, trim->args, trim->count, &reply);
		if (status) {
			progress_end(cli);
			return cli_failed(cli, status, "%s", cli->command->name);
		}
		trim->removed += kiln_reply_int(reply, "removed");
		trim->freed += kiln_reply_int(reply, "freed");
		more = kiln_reply_int(reply, "more");
		trim->args[trim->next].i = kiln_reply_int(reply, "next");
		/* A dry run removes nothing, so the next piece allows for what is counted already. */
		if (trim->dry_run && trim->bytes >= 0)
			trim->args[trim->bytes].i = trim->wanted_bytes + trim->freed;
		if (trim->dry_run && trim->left >= 0)
			trim->args[trim->left].i = trim->wanted_left + trim->removed;
		if (trim->dry_run && !cli->json && kiln_reply_count(reply, "rows")) {
			cache_rows_print(reply, !listed, client);
			listed = true;
		}
		progress_print(cli, "trimmed %" PRId64 " of %" PRId64, trim->removed,
					   trim->removed + (trim->dry_run ? 0 : kiln_reply_int(reply, "left")));
		more = more && !interrupt_seen();
	}
	progress_end(cli);
	if (cli->json)
		cache_upkeep_print_json(trim, reply);
	else
		print_removed(trim, reply);
	kiln_reply_free(reply);
	if (interrupt_seen())
		interrupt_end(cli->command->name);
	return CLI_OK;
}

static int run_trim(struct cli *cli, struct trimming *trim)
{
	kiln_client *client;
	int status;

	trim->next = cache_upkeep_add(trim, cli_attr_int("next", 0));
	if (cli_connect(cli, &client))
		return CLI_FAILED;
	status = run_pieces(cli, client, trim);
	kiln_close(client);
	return status;
}

static int cli_cache_trim(struct cli *cli)
{
	struct trimming trim = {.request = "cache.trim", .bytes = -1, .left = -1};

	return read_trim(cli, &trim) ? CLI_USAGE : run_trim(cli, &trim);
}

static int cli_cache_clear(struct cli *cli)
{
	struct trimming trim = {.request = "cache.clear", .bytes = -1, .left = -1};

	return run_trim(cli, &trim);
}

/* ---- Pins ---- */

static void print_pinned(struct cli *cli, const kiln_reply *reply)
{
	printf("%s %.*s\n", cli->command == &command_cache_pin ? "pinned" : "unpinned", CLI_SHORT_KEY,
		   kiln_reply_str(reply, "key"));
}

static int set_pin(struct cli *cli)
{
	kiln_attr key = cli_attr_string("key", cli->positional[0]);

	return cli_answer(cli, cli->command == &command_cache_pin ? "cache.pin" : "cache.unpin", &key,
					  1, print_pinned);
}

/* ---- The commands ---- */

static const struct cli_option trim_options[] = {
	{"rows", "N", "so many kernels may stay"},
	{"older-than", "TIME", "only those not used for so long: 90s, 15m, 12h, 30d, 2w"},
	CACHE_FILTER_OPTIONS,
	{"dry-run", NULL, "list what would go, and remove nothing"},
	{0},
};

static const struct cli_example cache_pin_examples[] = {
	{"kiln cache pin 3f9a", "by the beginning of its key"}, {0}};

const struct cli_command command_cache_pin = {
	"cache pin", set_pin, "KEY", "never trim this one", {1, 1}, .examples = cache_pin_examples};

static const struct cli_example cache_unpin_examples[] = {
	{"kiln cache unpin 3f9a", "by the beginning of its key"}, {0}};

const struct cli_command command_cache_unpin = {"cache unpin", set_pin,
												"KEY",         "trim it like any other",
												{1, 1},        .examples = cache_unpin_examples};

static const struct cli_example cache_trim_examples[] = {
	{"kiln cache trim 200M", "down to 200 MB"},
	{"kiln cache trim --older-than 30d --dry-run", "what a month without use would cost"},
	{0}};

const struct cli_command command_cache_trim = {"cache trim",
											   cli_cache_trim,
											   "[BYTES]",
											   "remove the least recently used down to BYTES",
											   {0, 1},
											   trim_options,
											   .examples = cache_trim_examples};

static const struct cli_example cache_clear_examples[] = {
	{"kiln cache clear", "all but what is pinned"}, {0}};

const struct cli_command command_cache_clear = {"cache clear", cli_cache_clear, "",
												"remove all that are not pinned",
												.examples = cache_clear_examples};
