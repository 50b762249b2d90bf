/*
 * kiln_raw_plan: a kernel of the user's own without running it: whether the cache has it (explain
 * raw), and compiling it ahead of use, for targets that are not here, too (compile raw).
 */
#include "problem.h"
#include "raw.h"

#include <stdlib.h>

typedef int ask_function(kiln_client *client, const kiln_raw *raw, const char *target,
						 kiln_reply **out);

static int ask(struct cli *cli, ask_function *function, kiln_reply **reply)
{
	struct raw_run *run = calloc(1, sizeof(*run));
	const char *name = cli->command->name;
	kiln_client *client;
	int status;

	if (!run) {
		fprintf(stderr, "kiln: %s: no memory\n", name);
		return CLI_FAILED;
	}
	status = raw_read_kernel(cli, run);
	if (!status)
		status = cli_connect(cli, &client);
	if (!status) {
		status = function(client, &run->raw, cli_value(cli, "target"), reply);
		if (status)
			status = cli_failed(cli, status, "%s", name);
		kiln_close(client);
	}
	raw_forget(run);
	free(run);
	return status;
}

int cli_explain_raw(struct cli *cli)
{
	kiln_reply *reply;
	int status = ask(cli, kiln_explain_raw, &reply);

	return status ? status : explain_answer(cli, reply);
}

int cli_compile_raw(struct cli *cli)
{
	kiln_reply *reply;
	int status = ask(cli, kiln_compile_raw, &reply);

	return status ? status : compile_answer(cli, reply);
}
