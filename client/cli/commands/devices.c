/* devices.c: 'kiln devices': the devices of the host. */
#include "client/cli/daemon.h"
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "commands.h"

static void print_devices(struct cli *cli, const kiln_reply *reply)
{
	static const char *const headers[] = {"DEVICE", "STATE",   "TARGET", ">MEMORY",
										  "UUID",   "PCI BUS", "MODEL"};
	char figure[FIGURE_MAX];
	struct table table;

	(void)cli;
	table_begin(&table, headers, 7);
	for (int i = 0; i < kiln_reply_count(reply, "rows"); i++) {
		const char *reason = member_str(reply, "rows[%d].reason", i);
		const char *was = member_str(reply, "rows[%d].was", i);
		int64_t memory = member_int(reply, "rows[%d].memory", i);
		table_cell(&table, "%s", member_str(reply, "rows[%d].name", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].state", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].target", i));
		table_cell(&table, "%s", memory > 0 ? figure_bytes((uint64_t)memory, figure) : "");
		table_cell(&table, "%s", member_str(reply, "rows[%d].uuid", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].bus", i));
		if (reason[0])
			table_cell(&table, "%s", reason);
		else
			table_cell(&table, "%s%s%s", member_str(reply, "rows[%d].model", i),
					   was[0] ? "; was " : "", was);
	}
	table_end(&table);
}

static int cli_devices(struct cli *cli)
{
	return cli_answer(cli, "devices", NULL, 0, print_devices);
}

static const struct cli_example devices_examples[] = {
	{"kiln devices", "each device, its target, its memory and its UUID"}, {0}};

const struct cli_command command_devices = {"devices", cli_devices, "",
											"the devices, and why one is missing",
											.examples = devices_examples};
