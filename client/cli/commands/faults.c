/*
 * faults.c: 'kiln faults ls' and 'show': the daemon's reports of processes that ended and of
 * damage.
 */
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/table.h"
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int cli_faults_ls(struct cli *cli)
{
	static const char *const headers[] = {"REPORT", "KIND", "DEVICE", ">TIMES", "LAST", "SAID"};
	static const char *const members[] = {"report", "kind", "device", "times", "last", "said"};
	kiln_reply *reply;

	if (cli_request(cli, "fault.ls", NULL, 0, &reply))
		return CLI_FAILED;
	if (!cli_json(cli, reply)) {
		int rows = kiln_reply_count(reply, "rows");
		struct table table;
		table_begin(&table, headers, 6);
		for (int row = 0; row < rows; row++)
			for (int i = 0; i < 6; i++) {
				char path[64];
				snprintf(path, sizeof(path), "rows[%d].%s", row, members[i]);
				if (!strcmp(members[i], "times"))
					table_cell(&table, "%" PRId64, kiln_reply_int(reply, path));
				else
					table_cell(&table, "%s", kiln_reply_str(reply, path));
			}
		table_end(&table);
		if (rows)
			printf("they are in %s\n", kiln_reply_str(reply, "directory"));
	}
	kiln_reply_free(reply);
	return CLI_OK;
}

/* Prints the source of a kernel that was in flight, if the cache still has it. */
static void print_source(struct cli *cli, const kiln_reply *report, int row)
{
	char path[32];
	kiln_reply *reply;
	kiln_attr key;

	snprintf(path, sizeof(path), "kernels[%d].key", row);
	key = cli_attr_string("key", kiln_reply_str(report, path));
	printf("\nsource of kernel %s\n", kiln_reply_str(report, path));
	if (cli_request(cli, "cache.show", &key, 1, &reply))
		return;
	fputs(kiln_reply_str(reply, "source"), stdout);
	kiln_reply_free(reply);
}

static int cli_faults_show(struct cli *cli)
{
	kiln_attr report = cli_attr_string("report", cli->positional_count ? cli->positional[0] : "");
	kiln_reply *reply;

	if (cli->json && cli_value(cli, "with-source"))
		return cli_usage("faults show: --with-source goes not with --json, which has the keys");
	if (cli_request(cli, "fault.show", &report, 1, &reply))
		return CLI_FAILED;
	if (!cli_json(cli, reply)) {
		fputs(kiln_reply_str(reply, "text"), stdout);
		for (int i = 0; cli_value(cli, "with-source") && i < kiln_reply_count(reply, "kernels");
			 i++)
			print_source(cli, reply, i);
	}
	kiln_reply_free(reply);
	return CLI_OK;
}

/* ---- The commands ---- */

static const struct cli_option faults_show_options[] = {
	{"with-source", NULL, "and the texts of the kernels that were in flight"},
	{0},
};

const struct cli_command command_faults_ls = {
	"faults ls", cli_faults_ls,
	"",          "reports of device processes and compilers that ended",
	NULL,        0,
	0,           0};

const struct cli_command command_faults_show = {"faults show",
												cli_faults_show,
												"[REPORT]",
												"one of them; without REPORT the newest",
												faults_show_options,
												0,
												1,
												0};
