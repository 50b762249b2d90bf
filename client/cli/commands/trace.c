/*
 * trace.c: 'kiln trace': writes what the daemon does for a while, as a timeline; and --trace of
 * 'kiln run', which writes what it does for one client.
 */
#include "trace.h"
#include "client/cli/daemon.h"
#include "client/cli/deadlines.h"
#include "client/cli/failure.h"
#include "client/cli/json.h"
#include "client/cli/values.h"
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int cannot_write(const struct cli *cli, const char *path)
{
	return cli_failed_here(cli, KILN_EIO, "%s: '%s': %s", cli->command->name, path,
						   strerror(errno));
}

/* Sees early that the file can be written, and leaves none. */
static int trace_check(const struct cli *cli, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	bool is_new = fd >= 0;

	if (!is_new && errno == EEXIST)
		fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return cannot_write(cli, path);
	close(fd);
	if (is_new)
		unlink(path);
	return CLI_OK;
}

static int trace_write(const struct cli *cli, const kiln_reply *reply, struct trace_file *file)
{
	size_t bytes;
	const void *trace = kiln_reply_bin(reply, "trace", &bytes);
	FILE *out = fopen(file->path, "wb");
	struct stat about;
	bool is_file = out && !fstat(fileno(out), &about) && S_ISREG(about.st_mode);
	bool good = out && fwrite(trace, 1, bytes, out) == bytes;
	bool closed = out && !fclose(out);

	if (!good || !closed) {
		int status = cannot_write(cli, file->path);
		if (is_file)
			unlink(file->path);
		return status;
	}
	file->spans = kiln_reply_int(reply, "spans");
	file->dropped = kiln_reply_int(reply, "dropped");
	file->missed = kiln_reply_int(reply, "missed");
	return CLI_OK;
}

void trace_print_json(const struct trace_file *file)
{
	if (!file->path)
		return;
	json_string("trace", file->path);
	json_int("spans", file->spans);
	json_int("dropped", file->dropped);
	json_int("missed", file->missed);
}

void trace_print(const struct trace_file *file)
{
	if (!file->path)
		return;
	printf("wrote %" PRId64 " span%s to '%s': open it at ui.perfetto.dev\n", file->spans,
		   file->spans == 1 ? "" : "s", file->path);
	if (file->dropped)
		printf("had no room for %" PRId64 " more\n", file->dropped);
	if (file->missed)
		printf("missed %" PRId64 " calls on devices, which came too fast\n", file->missed);
}

/* ---- Of one client ---- */

int trace_begin(const struct cli *cli, kiln_client *client, struct trace_file *file)
{
	kiln_reply *reply = NULL;
	const char *path = cli_value(cli, "trace");
	int status;

	if (!path)
		return CLI_OK;
	if (trace_check(cli, path))
		return CLI_FAILED;
	status = kiln_request(client, "trace.begin", NULL, 0, &reply);
	kiln_reply_free(reply);
	if (status)
		return cli_failed(cli, status, "%s: --trace", cli->command->name);
	file->path = path;
	return CLI_OK;
}

int trace_end(const struct cli *cli, kiln_client *client, struct trace_file *file, int status)
{
	kiln_reply *reply = NULL;
	int failed;

	if (!file->path)
		return status;
	failed = kiln_request(client, "trace.end", NULL, 0, &reply);
	/* Calls that ended with their connection have said why. */
	if (failed && !status)
		status = cli_failed(cli, failed, "%s: --trace", cli->command->name);
	else if (!failed)
		status = trace_write(cli, reply, file) || status ? CLI_FAILED : CLI_OK;
	kiln_reply_free(reply);
	return status;
}

/* ---- Of all ---- */

static int cli_trace(struct cli *cli)
{
	struct trace_file file = {.path = cli_value(cli, "output")};
	const char *given = cli_value(cli, "seconds");
	int64_t seconds = 5;
	kiln_reply *reply;

	if (!file.path)
		return cli_usage("trace: --output FILE is missing");
	if (given && cli_integer("--seconds", given, 1, 60, &seconds))
		return CLI_USAGE;
	if (trace_check(cli, file.path))
		return CLI_FAILED;
	kiln_attr ms = cli_attr_int("ms", seconds * 1000);
	if (!cli->timeout_ms)
		cli->timeout_ms = (int)seconds * 1000 + DEADLINE_CLI_MS;
	if (cli_request(cli, "trace", &ms, 1, &reply))
		return CLI_FAILED;
	int status = trace_write(cli, reply, &file);
	kiln_reply_free(reply);
	if (!status && cli->json) {
		json_begin();
		json_string("output", file.path);
		json_int("spans", file.spans);
		json_int("dropped", file.dropped);
		json_int("missed", file.missed);
		json_end();
	} else if (!status) {
		trace_print(&file);
	}
	return status;
}

static const struct cli_option trace_options[] = {
	{"seconds", "N", "for how long, 1 to 60 (5)"},
	{"output", "FILE", "where the trace goes"},
	{0},
};

static const struct cli_example trace_examples[] = {
	{"kiln trace --output busy.pftrace", "five seconds, to be opened at ui.perfetto.dev"}, {0}};

const struct cli_command command_trace = {
	"trace",
	cli_trace,
	"",
	"a timeline of requests, compiles and calls on devices, for Perfetto",
	{0, 0},
	trace_options,
	.examples = trace_examples};
