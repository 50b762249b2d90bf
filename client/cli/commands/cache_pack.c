/*
 * cache_pack.c: 'kiln cache export' and 'import': kernels to and from a sealed file.  The daemon
 * reads and writes the file, since it has the cache and the keys.
 */
#include "cache.h"
#include "client/cli/daemon.h"
#include "client/cli/deadlines.h"
#include "client/cli/failure.h"
#include "client/cli/table.h"
#include "client/cli/values.h"
#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ARGS_MOST 8

/* Makes the path absolute, since the daemon has another working directory. */
static int absolute(const char *path, char out[PATH_MAX])
{
	char here[PATH_MAX] = "";

	if (path[0] != '/' && !getcwd(here, sizeof(here)))
		return cli_usage("'%s': %s", path, strerror(errno));
	if (!path[0] || !strcmp(path, "-"))
		return cli_usage("'%s': a pack is a file", path);
	if (snprintf(out, PATH_MAX, "%s%s%s", here, here[0] ? "/" : "", path) >= PATH_MAX)
		return cli_usage("'%.60s...': a path has at most %d bytes", path, PATH_MAX - 1);
	return CLI_OK;
}

static int cache_pack_ask(struct cli *cli, const char *request, const kiln_attr *args, int count,
						  kiln_reply **reply)
{
	if (!cli->timeout_ms)
		cli->timeout_ms = DEADLINE_PACK_MS;
	return cli_request(cli, request, args, count, reply);
}

/* ---- Export ---- */

static int read_filters(const struct cli *cli, kiln_attr args[ARGS_MOST], int *count)
{
	static const char *const names[] = {"op", "target", "compiler", "key"};
	const char *age = cli_value(cli, "older-than"), *days = cli_value(cli, "days");
	int64_t number;

	if (age) {
		if (cli_age("--older-than", age, &number))
			return CLI_USAGE;
		args[(*count)++] = cli_attr_int("older_than", number);
	}
	if (days) {
		if (cli_integer("--days", days, 1, 36500, &number))
			return CLI_USAGE;
		args[(*count)++] = cli_attr_int("days", number);
	}
	for (int i = 0; i < 4; i++)
		if (cli_value(cli, names[i]))
			args[(*count)++] = cli_attr_string(names[i], cli_value(cli, names[i]));
	return CLI_OK;
}

static int cli_cache_export(struct cli *cli)
{
	char path[PATH_MAX], figure[FIGURE_MAX];
	kiln_attr args[ARGS_MOST];
	kiln_reply *reply;
	int count = 0;

	if (absolute(cli->positional[0], path) || read_filters(cli, args, &count))
		return CLI_USAGE;
	args[count++] = cli_attr_string("path", path);
	if (cache_pack_ask(cli, "cache.export", args, count, &reply))
		return CLI_FAILED;
	if (!cli_json(cli, reply))
		printf("exported %" PRId64 " kernels, %s, to '%s', sealed by key %s (%s)\n",
			   kiln_reply_int(reply, "rows"),
			   figure_bytes((uint64_t)kiln_reply_int(reply, "bytes"), figure), cli->positional[0],
			   kiln_reply_str(reply, "key"), kiln_reply_str(reply, "key_id"));
	kiln_reply_free(reply);
	return CLI_OK;
}

/* ---- Import ---- */

/* Prints the compilers of the kernels: only a daemon with that compiler finds them. */
static void print_foreign(const kiln_reply *reply)
{
	int count = kiln_reply_count(reply, "compilers");

	for (int i = 0; i < count; i++) {
		char path[64], here[64];
		snprintf(path, sizeof(path), "compilers[%d].compiler", i);
		snprintf(here, sizeof(here), "compilers[%d].here", i);
		if (!kiln_reply_int(reply, here))
			printf("some are by %s, which is not here: they wait for it\n",
				   kiln_reply_str(reply, path));
	}
}

static void print_imported(const struct cli *cli, const kiln_reply *reply)
{
	time_t when = (time_t)kiln_reply_int(reply, "when");
	struct tm parts;
	char date[32] = "some day";

	if (gmtime_r(&when, &parts))
		strftime(date, sizeof(date), "%Y-%m-%d", &parts);
	printf("imported %" PRId64 " of %" PRId64
		   " kernels from '%s', sealed by key %s (%s) on %s; %" PRId64 " were there\n",
		   kiln_reply_int(reply, "imported"), kiln_reply_int(reply, "rows"), cli->positional[0],
		   kiln_reply_str(reply, "key"), kiln_reply_str(reply, "key_id"), date,
		   kiln_reply_int(reply, "present"));
	print_foreign(reply);
}

static int cli_cache_import(struct cli *cli)
{
	char path[PATH_MAX];
	kiln_attr arg;
	kiln_reply *reply;

	if (absolute(cli->positional[0], path))
		return CLI_USAGE;
	arg = cli_attr_string("path", path);
	if (cache_pack_ask(cli, "cache.import", &arg, 1, &reply))
		return CLI_FAILED;
	if (!cli_json(cli, reply))
		print_imported(cli, reply);
	kiln_reply_free(reply);
	return CLI_OK;
}

/* ---- The commands ---- */

static const struct cli_option export_options[] = {
	{"op", "OP", "only those of this operator"},
	{"target", "NAME", "only those for this target: cpu, sm_90"},
	{"compiler", "TEXT", "only those whose compiler has this in its name: 'nvrtc 12.8'"},
	{"older-than", "TIME", "only those not used for so long: 90s, 15m, 12h, 30d, 2w"},
	{"key", "NAME", "sealed by this key (kilnd's --sign-key, or the only one)"},
	{"days", "N", "not to be imported after so many days (for ever)"},
	{0},
};

const struct cli_command command_cache_export = {"cache export",
												 cli_cache_export,
												 "FILE",
												 "write kernels to a sealed file, for other hosts",
												 export_options,
												 1,
												 1,
												 0};

const struct cli_command command_cache_import = {
	"cache import", cli_cache_import, "FILE", "take in what a trusted key has sealed", NULL, 1, 1,
	CLI_STARTS};
