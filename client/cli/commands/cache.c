/*
 * cache.c: 'kiln cache ls', 'show' and 'get'.  cache_failed.c prints what only failed compiles
 * have.
 */
#include "cache.h"
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/sink.h"
#include "client/cli/table.h"
#include "client/cli/values.h"
#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int list_kernels(struct cli *cli, const kiln_attr *args, int count)
{
	kiln_client *client;
	kiln_reply *reply = NULL;
	int status;

	if (cli_connect(cli, &client))
		return CLI_FAILED;
	status = kiln_request(client, "cache.ls", args, count, &reply);
	if (status) {
		status = cli_failed(cli, status, "cache ls");
	} else {
		cache_rows_print(reply, true, client);
		cache_rows_rest(reply);
		if (kiln_reply_str(reply, "trouble")[0])
			fprintf(stderr, "kiln: cache ls: %s\n", kiln_reply_str(reply, "trouble"));
	}
	kiln_reply_free(reply);
	kiln_close(client);
	return status;
}

static int cli_cache_ls(struct cli *cli)
{
	const char *sort = cli_value(cli, "sort"), *limit = cli_value(cli, "limit");
	const char *op = cli_value(cli, "op");
	int64_t most = 50;
	kiln_attr args[3];
	int count = 0;

	if (limit && cli_integer("--limit", limit, 1, 1000000, &most))
		return CLI_USAGE;
	if (sort && strcmp(sort, "used") && strcmp(sort, "hits") && strcmp(sort, "bytes") &&
		strcmp(sort, "created"))
		return cli_usage("--sort '%s': expected used, hits, bytes or created", sort);
	if (cli_value(cli, "failed"))
		return sort || op ? cli_usage("--sort and --op go with kernels, not with --failed")
						  : failed_list(cli, most);
	args[count++] = cli_attr_int("limit", most);
	if (sort)
		args[count++] = cli_attr_string("sort", sort);
	if (op)
		args[count++] = cli_attr_string("op", op);
	return cli->json ? cli_answer(cli, "cache.ls", args, count, NULL)
					 : list_kernels(cli, args, count);
}

static void print_date(const char *name, int64_t seconds)
{
	char text[FIGURE_MAX] = "unknown";

	figure_date(seconds, "%Y-%m-%d %H:%M:%S UTC", text);
	print_pair(name, "%s", text);
}

/* An object for the cpu has no figures of a GPU's. */
static void print_figure(const kiln_reply *reply, const char *name, const char *member,
						 const char *unit)
{
	int64_t value = kiln_reply_int(reply, member);
	char figure[FIGURE_MAX];

	if (value >= 0)
		print_pair(name, "%s", figure_known(value, unit, figure));
}

static void print_row(const kiln_reply *reply)
{
	char figure[FIGURE_MAX];

	print_pair("key", "%s", kiln_reply_str(reply, "key"));
	print_pair("op", "%s", kiln_reply_str(reply, "op"));
	print_pair("instantiation", "%s", kiln_reply_str(reply, "instantiation"));
	print_pair("target", "%s", kiln_reply_str(reply, "target"));
	if (kiln_reply_int(reply, "failed")) {
		failed_print(reply);
	} else {
		print_pair("object", "%" PRId64 " bytes", kiln_reply_int(reply, "bytes"));
		print_figure(reply, "registers", "registers", "");
		print_figure(reply, "shared memory", "shared", "bytes");
		print_figure(reply, "spills", "spills", "bytes");
	}
	print_pair("compiled in", "%s",
			   figure_micros(kiln_reply_real(reply, "compile_micros"), figure));
	print_date("created", kiln_reply_int(reply, "created"));
	print_date("last used", kiln_reply_int(reply, "used"));
	print_pair("hits", "%" PRId64, kiln_reply_int(reply, "hits"));
	if (!kiln_reply_int(reply, "failed")) {
		print_pair("on disk", "%" PRId64 " bytes", kiln_reply_int(reply, "size"));
		print_pair("compiler", "%s", kiln_reply_str(reply, "compiler"));
		print_pair("pinned", "%s", kiln_reply_int(reply, "pinned") ? "yes" : "no");
	}
}

/* Prints the row, and under a title each of its texts that was asked for. */
static void print_shown(struct cli *cli, const kiln_reply *reply)
{
	static const struct {
		const char *option, *title, *member;
	} texts[] = {{NULL, "plan", "plan"},
				 {"key", "key text", "key_text"},
				 {"log", "log", "log"},
				 {"source", "source", "source"}};

	print_row(reply);
	for (int i = 0; i < 4; i++)
		if (!texts[i].option || cli_value(cli, texts[i].option)) {
			printf("\n%s:\n", texts[i].title);
			print_text(kiln_reply_str(reply, texts[i].member));
		}
}

static int cli_cache_show(struct cli *cli)
{
	kiln_attr key = cli_attr_string("key", cli->positional[0]);

	return cli_answer(cli, "cache.show", &key, 1, print_shown);
}

/* ---- get ---- */

static int write_object(const char *path, const void *object, size_t bytes)
{
	FILE *out = path ? fopen(path, "wb") : sink_bytes();
	bool good;

	if (!out) {
		fprintf(stderr, "kiln: --output '%s': %s\n", path, strerror(errno));
		return CLI_FAILED;
	}
	good = fwrite(object, 1, bytes, out) == bytes;
	if (path)
		good = !fclose(out) && good;
	if (good)
		return CLI_OK;
	fprintf(stderr, "kiln: cache get: %s cannot be written: %s\n", path ? path : "standard output",
			strerror(errno));
	return CLI_FAILED;
}

static int cli_cache_get(struct cli *cli)
{
	kiln_attr key = cli_attr_string("key", cli->positional[0]);
	const char *path = cli_value(cli, "output");
	int status = CLI_OK;
	const void *object;
	kiln_reply *reply;
	size_t bytes;

	if (!path && !cli->json && isatty(STDOUT_FILENO))
		return cli_usage("cache get: the object is binary and standard output is a terminal; "
						 "redirect it, or use --output FILE");
	if (cli_request(cli, "cache.get", &key, 1, &reply))
		return CLI_FAILED;
	object = kiln_reply_bin(reply, "object", &bytes);
	if (path || !cli->json)
		status = write_object(path, object, object ? bytes : 0);
	if (!status && cli->json)
		puts(kiln_reply_json(reply));
	kiln_reply_free(reply);
	return status;
}

/* ---- The commands ---- */

static const struct cli_option ls_options[] = {
	{"sort", "ORDER", "used, hits, bytes or created, largest first (used)"},
	{"op", "OP", "only those of this operator: softmax, map, raw"},
	{"limit", "N", "at most N rows (50)"},
	{"failed", NULL, "the compiles that failed instead, which are remembered"},
	{0},
};

static const struct cli_option show_options[] = {
	{"source", NULL, "print the source as it was compiled"},
	{"log", NULL, "print what the compiler said"},
	{"key", NULL, "print the text that the key is the hash of"},
	{0},
};

static const struct cli_option get_options[] = {
	{"output", "FILE", "write to FILE instead of standard output"},
	{0},
};

static const struct cli_example cache_ls_examples[] = {
	{"kiln cache ls --sort hits --limit 10", "the ten that are asked for most"},
	{"kiln cache ls --op map", "kernels of statements, by their statements"},
	{"kiln cache ls --failed", "compiles that failed, and are remembered"},
	{0}};

const struct cli_command command_cache_ls = {"cache ls",
											 cli_cache_ls,
											 "",
											 "the compiled kernels",
											 {0, 0},
											 ls_options,
											 .examples = cache_ls_examples};

static const struct cli_example cache_show_examples[] = {
	{"kiln cache show 3f9a --source", "the source, by the beginning of its key"}, {0}};

const struct cli_command command_cache_show = {"cache show",
											   cli_cache_show,
											   "KEY",
											   "one of them; a unique beginning of the key will do",
											   {1, 1},
											   show_options,
											   .examples = cache_show_examples};

static const struct cli_example cache_get_examples[] = {
	{"kiln cache get 3f9a --output softmax.cubin", "for cuobjdump"}, {0}};

const struct cli_command command_cache_get = {"cache get",
											  cli_cache_get,
											  "KEY",
											  "its object (cubin), byte for byte",
											  {1, 1},
											  get_options,
											  .examples = cache_get_examples};
