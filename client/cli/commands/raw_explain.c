/*
 * raw_explain.c: 'kiln explain raw' and 'kiln compile raw': a kernel of the user's own without
 * running it, also for targets that this host lacks.
 */
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "commands.h"
#include "explain.h"
#include "raw.h"

#include <stdio.h>
#include <stdlib.h>

typedef int ask_function(kiln_client *client, const kiln_raw *raw, const char *target,
						 kiln_reply **out);

static int raw_explain_ask(struct cli *cli, ask_function *function, print_reply *print)
{
	struct raw_run *run = calloc(1, sizeof(*run));
	const char *name = cli->command->name;
	kiln_client *client;
	kiln_reply *reply;
	int status;

	if (!run) {
		fprintf(stderr, "kiln: %s: no memory\n", name);
		return CLI_FAILED;
	}
	status = raw_read_kernel(cli, run);
	if (!status)
		status = cli_connect(cli, &client);
	if (!status) {
		status = function(client, &run->raw, cli_value(cli, "target"), &reply);
		if (status)
			status = cli_failed(cli, status, "%s", name);
		kiln_close(client);
	}
	raw_forget(run);
	free(run);
	return status ? status : cli_show(cli, reply, print);
}

static int cli_explain_raw(struct cli *cli)
{
	return raw_explain_ask(cli, kiln_explain_raw, explain_print);
}

static int cli_compile_raw(struct cli *cli)
{
	return raw_explain_ask(cli, kiln_compile_raw, compile_print);
}

/* ---- The commands ---- */

static const struct cli_option raw_explain_options[] = {
	RAW_OPTIONS,
	{"target", "NAME", "for this target: cpu, sm_75 .. sm_120 (the device's)"},
	WHY_OPTION,
	{0},
};

static const struct cli_option raw_compile_options[] = {
	RAW_OPTIONS,
	{"target", "NAME", "compile for this target: cpu, sm_75 .. sm_120 (the device's)"},
	{0},
};

static const struct cli_example explain_raw_examples[] = {
	{"kiln explain raw scale.cu --why", "whether it is compiled, and why not"}, {0}};

const struct cli_command command_explain_raw = {
	"explain raw", cli_explain_raw,     "FILE.cu",     "whether the cache has a kernel of your own",
	{1, 1},        raw_explain_options, CLI_ON_DEVICE, .examples = explain_raw_examples};

static const struct cli_example compile_raw_examples[] = {
	{"kiln compile raw scale.cu --target sm_90 --macro N=4",
	 "with a macro, for a GPU that is elsewhere"},
	{0}};

const struct cli_command command_compile_raw = {
	"compile raw", cli_compile_raw,
	"FILE.cu",     "compile a kernel of your own into the cache",
	{1, 1},        raw_compile_options,
	CLI_ON_DEVICE, .examples = compile_raw_examples};
