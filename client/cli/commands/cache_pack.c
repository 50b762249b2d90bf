/*
 * cache_pack.c: 'kiln cache export' and 'import': kernels to and from a sealed file; 'backup' and
 * 'restore': to and from a file for the same user.  The daemon reads and writes the file, since it
 * has the cache and the keys.
 */
#include "cache.h"
#include "client/cli/daemon.h"
#include "client/cli/deadlines.h"
#include "client/cli/failure.h"
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "client/cli/values.h"
#include "commands.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define ARGS_MOST 8

/* Sends a request about the pack of the command line; its path becomes args[count]. */
static int ask_about_pack(struct cli *cli, const char *request, kiln_attr *args, int count,
						  print_reply *print)
{
	const char *pack = cli->positional[0];
	char path[PATH_MAX];

	if (!pack[0] || !strcmp(pack, "-"))
		return cli_usage("'%s': a %s is a file", pack, strstr(request, "port") ? "pack" : "backup");
	if (cli_path("", pack, path))
		return CLI_USAGE;
	args[count] = cli_attr_string("path", path);
	if (!cli->timeout_ms)
		cli->timeout_ms = DEADLINE_PACK_MS;
	return cli_answer(cli, request, args, count + 1, print);
}

/* ---- Export ---- */

static void print_exported(struct cli *cli, const kiln_reply *reply)
{
	char figure[FIGURE_MAX];

	printf("exported %" PRId64 " kernels and %" PRId64
		   " winners of tuning, %s, to '%s', sealed by key %s (%s)\n",
		   kiln_reply_int(reply, "rows"), kiln_reply_int(reply, "winners"),
		   figure_bytes((uint64_t)kiln_reply_int(reply, "bytes"), figure), cli->positional[0],
		   kiln_reply_str(reply, "key"), kiln_reply_str(reply, "key_id"));
}

static int cli_cache_export(struct cli *cli)
{
	const char *days = cli_value(cli, "days"), *key = cli_value(cli, "key");
	kiln_attr args[ARGS_MOST];
	int64_t number;
	int count = 0;

	if (cache_filters(cli, args, &count))
		return CLI_USAGE;
	if (days && cli_integer("--days", days, 1, 36500, &number))
		return CLI_USAGE;
	if (days)
		args[count++] = cli_attr_int("days", number);
	if (key)
		args[count++] = cli_attr_string("key", key);
	return ask_about_pack(cli, "cache.export", args, count, print_exported);
}

/* ---- Import ---- */

/* Only a daemon with the compiler of a kernel finds that kernel. */
static void print_absent(const kiln_reply *reply)
{
	for (int i = 0; i < kiln_reply_count(reply, "compilers"); i++)
		if (!member_int(reply, "compilers[%d].here", i))
			printf("some are by %s, which is not here: they wait for it\n",
				   member_str(reply, "compilers[%d].compiler", i));
}

static void print_imported(struct cli *cli, const kiln_reply *reply)
{
	int64_t winners = kiln_reply_int(reply, "winners");
	int64_t taken = kiln_reply_int(reply, "winners_taken");
	char date[FIGURE_MAX] = "some day";

	figure_date(kiln_reply_int(reply, "when"), "%Y-%m-%d", date);
	printf("imported %" PRId64 " of %" PRId64 " kernels and %" PRId64 " of %" PRId64
		   " winners of tuning from '%s', sealed by key %s (%s) on %s; %" PRId64 " and %" PRId64
		   " were there\n",
		   kiln_reply_int(reply, "imported"), kiln_reply_int(reply, "rows"), taken, winners,
		   cli->positional[0], kiln_reply_str(reply, "key"), kiln_reply_str(reply, "key_id"), date,
		   kiln_reply_int(reply, "present"), winners - taken);
	print_absent(reply);
}

static int cli_cache_import(struct cli *cli)
{
	kiln_attr arg;

	return ask_about_pack(cli, "cache.import", &arg, 0, print_imported);
}

/* ---- Backup and restore ---- */

static void print_backup(struct cli *cli, const kiln_reply *reply)
{
	char figure[FIGURE_MAX];

	printf("wrote %" PRId64 " kernels and %" PRId64
		   " winners of tuning, %s, to '%s'; keys are not in it\n",
		   kiln_reply_int(reply, "rows"), kiln_reply_int(reply, "winners"),
		   figure_bytes((uint64_t)kiln_reply_int(reply, "bytes"), figure), cli->positional[0]);
}

static int cli_cache_backup(struct cli *cli)
{
	kiln_attr arg;

	return ask_about_pack(cli, "cache.backup", &arg, 0, print_backup);
}

static void print_restored(struct cli *cli, const kiln_reply *reply)
{
	int64_t winners = kiln_reply_int(reply, "winners");
	int64_t taken = kiln_reply_int(reply, "winners_taken");

	printf("restored %" PRId64 " of %" PRId64 " kernels and %" PRId64 " of %" PRId64
		   " winners of tuning from '%s'; %" PRId64 " and %" PRId64 " were there\n",
		   kiln_reply_int(reply, "imported"), kiln_reply_int(reply, "rows"), taken, winners,
		   cli->positional[0], kiln_reply_int(reply, "present"), winners - taken);
	print_absent(reply);
}

static int cli_cache_restore(struct cli *cli)
{
	kiln_attr arg;

	return ask_about_pack(cli, "cache.restore", &arg, 0, print_restored);
}

/* ---- The commands ---- */

static const struct cli_option export_options[] = {
	CACHE_FILTER_OPTIONS,
	{"older-than", "TIME", "only those not used for so long: 90s, 15m, 12h, 30d, 2w"},
	{"key", "NAME", "sealed by this key (kilnd's --sign-key, or the only one)"},
	{"days", "N", "not to be imported after so many days (for ever)"},
	{0},
};

static const struct cli_example cache_export_examples[] = {
	{"kiln cache export fleet.kpack --key build-host", "all kernels, sealed by this key"}, {0}};

const struct cli_command command_cache_export = {"cache export",
												 cli_cache_export,
												 "FILE",
												 "write kernels to a sealed file, for other hosts",
												 {1, 1},
												 export_options,
												 .examples = cache_export_examples};

static const struct cli_example cache_import_examples[] = {
	{"kiln cache import fleet.kpack", "what a trusted key has sealed"}, {0}};

const struct cli_command command_cache_import = {
	"cache import", cli_cache_import,
	"FILE",         "take in what a trusted key has sealed",
	{1, 1},         NULL,
	CLI_STARTS,     .examples = cache_import_examples};

static const struct cli_example cache_backup_examples[] = {
	{"kiln cache backup kernels.backup", "all kernels, with pins and uses, while kilnd runs"}, {0}};

const struct cli_command command_cache_backup = {
	"cache backup", cli_cache_backup,
	"FILE",         "write all kernels to a file, without keys",
	{1, 1},         .examples = cache_backup_examples};

static const struct cli_example cache_restore_examples[] = {
	{"kiln cache restore kernels.backup", "into the cache of the same user; what is there stays"},
	{0}};

const struct cli_command command_cache_restore = {
	"cache restore", cli_cache_restore,
	"FILE",          "take in what 'cache backup' has written",
	{1, 1},          NULL,
	CLI_STARTS,      .examples = cache_restore_examples};
