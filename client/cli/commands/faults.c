/*
 * faults.c: 'kiln faults ls' and 'show': the daemon's reports of processes that ended and of
 * damage.
 */
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>

static void print_faults(struct cli *cli, const kiln_reply *reply)
{
	static const char *const headers[] = {"REPORT", "KIND", "DEVICE", ">TIMES", "LAST", "SAID"};
	struct table table;

	(void)cli;
	table_begin(&table, headers, 6);
	for (int i = 0; i < kiln_reply_count(reply, "rows"); i++) {
		table_cell(&table, "%s", member_str(reply, "rows[%d].report", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].kind", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].device", i));
		table_cell(&table, "%" PRId64, member_int(reply, "rows[%d].times", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].last", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].said", i));
	}
	table_end(&table);
	if (kiln_reply_count(reply, "rows"))
		printf("they are in %s\n", kiln_reply_str(reply, "directory"));
}

static int cli_faults_ls(struct cli *cli)
{
	return cli_answer(cli, "fault.ls", NULL, 0, print_faults);
}

/* Prints the source of a kernel that was in flight, if the cache still has it. */
static void print_source(struct cli *cli, const kiln_reply *report, int row)
{
	kiln_attr key = cli_attr_string("key", member_str(report, "kernels[%d].key", row));
	kiln_reply *reply;

	printf("\nsource of kernel %s\n", key.s);
	if (cli_request(cli, "cache.show", &key, 1, &reply))
		return;
	fputs(kiln_reply_str(reply, "source"), stdout);
	kiln_reply_free(reply);
}

static void print_fault(struct cli *cli, const kiln_reply *reply)
{
	fputs(kiln_reply_str(reply, "text"), stdout);
	for (int i = 0; cli_value(cli, "with-source") && i < kiln_reply_count(reply, "kernels"); i++)
		print_source(cli, reply, i);
}

static int cli_faults_show(struct cli *cli)
{
	kiln_attr report = cli_attr_string("report", cli->positional_count ? cli->positional[0] : "");

	if (cli->json && cli_value(cli, "with-source"))
		return cli_usage("faults show: --with-source goes not with --json, which has the keys");
	return cli_answer(cli, "fault.show", &report, 1, print_fault);
}

/* ---- The commands ---- */

static const struct cli_option faults_show_options[] = {
	{"with-source", NULL, "and the texts of the kernels that were in flight"},
	{0},
};

static const struct cli_example faults_ls_examples[] = {{"kiln faults ls", "the newest first"},
														{0}};

const struct cli_command command_faults_ls = {
	"faults ls", cli_faults_ls, "", "reports of device processes and compilers that ended",
	.examples = faults_ls_examples};

static const struct cli_example faults_show_examples[] = {
	{"kiln faults show", "the newest, with what was in flight"}, {0}};

const struct cli_command command_faults_show = {"faults show",
												cli_faults_show,
												"[REPORT]",
												"one of them; without REPORT the newest",
												{0, 1},
												faults_show_options,
												.examples = faults_show_examples};
