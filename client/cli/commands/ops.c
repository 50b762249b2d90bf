/* ops.c: 'kiln ops': the operators that the daemon has. */
#include "client/cli/daemon.h"
#include "client/cli/member.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

static void print_ops(struct cli *cli, const kiln_reply *reply)
{
	(void)cli;
	for (int i = 0; i < kiln_reply_count(reply, "rows"); i++) {
		/* "axis: which (default -1); scale: factor", which is printed as a line each */
		const char *attributes = member_str(reply, "rows[%d].attributes", i);
		printf("%s%s (%s)\n  %s\n", i ? "\n" : "", member_str(reply, "rows[%d].name", i),
			   member_str(reply, "rows[%d].operands", i), member_str(reply, "rows[%d].summary", i));
		while (*attributes) {
			size_t length = strcspn(attributes, ";");
			printf("    %.*s\n", (int)length, attributes);
			attributes += length;
			attributes += strspn(attributes, "; ");
		}
	}
}

static int cli_ops(struct cli *cli)
{
	return cli_answer(cli, "ops", NULL, 0, print_ops);
}

static const struct cli_example ops_examples[] = {
	{"kiln ops", "each operator, its operands and attributes"}, {0}};

const struct cli_command command_ops = {"ops", cli_ops, "", "the operators",
										.examples = ops_examples};
