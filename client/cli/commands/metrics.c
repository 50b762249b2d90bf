/* metrics.c: 'kiln metrics': the daemon's figures as OpenMetrics. */
#include "client/cli/daemon.h"
#include "commands.h"

#include <stdio.h>

static void print_metrics(struct cli *cli, const kiln_reply *reply)
{
	(void)cli;
	fputs(kiln_reply_str(reply, "text"), stdout);
}

static int cli_metrics(struct cli *cli)
{
	return cli_answer(cli, "metrics", NULL, 0, print_metrics);
}

static const struct cli_example metrics_examples[] = {
	{"kiln metrics", "as kilnd --metrics serves them to Prometheus"},
	{"kiln metrics | grep device_seconds", "for whom devices worked, and how long"},
	{0}};

const struct cli_command command_metrics = {"metrics", cli_metrics, "",
											"the daemon's figures as OpenMetrics",
											.examples = metrics_examples};
