/*
 * trace.c: 'kiln trace': writes what the daemon does for a while, as a timeline.
 */
#include "client/cli/daemon.h"
#include "client/cli/deadlines.h"
#include "client/cli/failure.h"
#include "client/cli/json.h"
#include "client/cli/values.h"
#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int trace_write(const struct cli *cli, const char *path, const void *bytes, size_t size)
{
	FILE *out = fopen(path, "wb");
	bool good = out && fwrite(bytes, 1, size, out) == size;

	good = out && !fclose(out) && good;
	return good ? CLI_OK : cli_failed_here(cli, KILN_EIO, "trace: '%s': %s", path, strerror(errno));
}

static void trace_report(const struct cli *cli, const kiln_reply *reply, const char *path)
{
	int64_t spans = kiln_reply_int(reply, "spans"), dropped = kiln_reply_int(reply, "dropped");
	int64_t missed = kiln_reply_int(reply, "missed");

	if (cli->json) {
		json_begin();
		json_string("output", path);
		json_int("spans", spans);
		json_int("dropped", dropped);
		json_int("missed", missed);
		json_end();
		return;
	}
	printf("wrote %" PRId64 " spans to '%s': open it at ui.perfetto.dev\n", spans, path);
	if (dropped)
		printf("had no room for %" PRId64 " more\n", dropped);
	if (missed)
		printf("missed %" PRId64 " calls on devices, which came too fast\n", missed);
}

static int cli_trace(struct cli *cli)
{
	const char *path = cli_value(cli, "output"), *given = cli_value(cli, "seconds");
	int64_t seconds = 5;
	kiln_reply *reply;
	size_t bytes;

	if (!path)
		return cli_usage("trace: --output FILE is missing");
	if (given && cli_integer("--seconds", given, 1, 60, &seconds))
		return CLI_USAGE;
	kiln_attr ms = cli_attr_int("ms", seconds * 1000);
	if (!cli->timeout_ms)
		cli->timeout_ms = (int)seconds * 1000 + DEADLINE_CLI_MS;
	if (cli_request(cli, "trace", &ms, 1, &reply))
		return CLI_FAILED;
	const void *trace = kiln_reply_bin(reply, "trace", &bytes);
	int status = trace_write(cli, path, trace, bytes);
	if (!status)
		trace_report(cli, reply, path);
	kiln_reply_free(reply);
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
