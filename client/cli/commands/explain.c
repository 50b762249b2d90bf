/*
 * explain.c: 'kiln explain' and 'kiln compile', of operators and statements, for this machine's
 * device or for another target.
 */
#include "explain.h"
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/map_problem.h"
#include "client/cli/member.h"
#include "client/cli/problem.h"
#include "client/cli/table.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

typedef int ask_function(kiln_client *client, const char *op, const kiln_tensor *tensors,
						 int tensor_count, const kiln_attr *attrs, int attr_count,
						 const char *target, kiln_reply **out);

static int explain_ask(struct cli *cli, ask_function *function, print_reply *print)
{
	bool map = strchr(cli->command->name, ' ') != NULL; /* "explain map" */
	struct cli_problem problem;
	kiln_client *client;
	kiln_reply *reply;
	int status = map ? cli_map_problem(cli, NULL, &problem) : cli_problem(cli, NULL, &problem);

	if (status)
		return status;
	if (cli_connect(cli, &client))
		return CLI_FAILED;
	status = function(client, problem.op, problem.tensors, problem.tensor_count, problem.attrs,
					  problem.attr_count, cli_value(cli, "target"), &reply);
	if (status)
		status = cli_failed(cli, status, "%s%s%s", cli->command->name, map ? "" : " ",
							map ? "" : problem.op);
	kiln_close(client);
	return status ? status : cli_show(cli, reply, print);
}

/* Prints the names that --choice takes; the daemon lists none for a statement. */
static void print_choices(const kiln_reply *reply)
{
	int count = kiln_reply_count(reply, "choices");

	if (count < 2)
		return;
	printf("%-14s ", "candidates");
	for (int i = 0; i < count; i++)
		printf("%s%s", i ? ", " : "", member_str(reply, "choices[%d]", i));
	putchar('\n');
}

void explain_print(struct cli *cli, const kiln_reply *reply)
{
	const char *key = kiln_reply_str(reply, "key");

	print_text(kiln_reply_str(reply, "text"));
	print_choices(reply);
	if (key[0]) {
		print_pair("key", "%s", key);
		print_pair("cached", "%s", kiln_reply_int(reply, "cached") ? "yes" : "no");
	}
	if (kiln_reply_int(reply, "failed"))
		print_pair("failed", "%s: %s", kiln_reply_str(reply, "status"),
				   kiln_reply_str(reply, "error"));
	if (cli_value(cli, "why"))
		why_print(reply);
}

static int cli_explain(struct cli *cli)
{
	return explain_ask(cli, kiln_explain, explain_print);
}

void compile_print(struct cli *cli, const kiln_reply *reply)
{
	const char *key = kiln_reply_str(reply, "key");
	char figure[FIGURE_MAX];

	(void)cli;
	print_text(kiln_reply_str(reply, "text"));
	if (key[0])
		print_pair("key", "%s", key);
	print_pair("origin", "%s", kiln_reply_str(reply, "origin"));
	if (key[0]) {
		print_pair("object", "%s", figure_bytes((uint64_t)kiln_reply_int(reply, "bytes"), figure));
		print_pair("took", "%s", figure_micros(kiln_reply_real(reply, "micros"), figure));
	}
}

static int cli_compile(struct cli *cli)
{
	return explain_ask(cli, kiln_compile, compile_print);
}

/* ---- The commands ---- */

static const struct cli_option explain_options[] = {
	CLI_OPERAND_OPTION,
	{"target", "NAME", "plan for this target: cpu, sm_90 (the device's)"},
	WHY_OPTION,
	{0},
};

static const struct cli_option map_explain_options[] = {
	MAP_OPTIONS,
	CLI_OPERAND_OPTION,
	{"target", "NAME", "for this target: cpu, sm_75 .. sm_120 (the device's)"},
	WHY_OPTION,
	{0},
};

static const struct cli_option compile_options[] = {
	CLI_OPERAND_OPTION,
	{"target", "NAME", "compile for this target: cpu, sm_75 .. sm_120 (the device's)"},
	{0},
};

static const struct cli_option map_compile_options[] = {
	MAP_OPTIONS,
	CLI_OPERAND_OPTION,
	{"target", "NAME", "for this target: cpu, sm_75 .. sm_120 (the device's)"},
	{0},
};

static const struct cli_example explain_examples[] = {
	{"kiln explain softmax --shape 1024x4096", "the kernel that would be taken, and the others"},
	{"kiln explain softmax --shape 1024x4096 --target sm_90", "without such a GPU"},
	{"kiln explain softmax --shape 1024x4096 --why", "why the cache does not have it"},
	{0}};

const struct cli_command command_explain = {"explain",
											cli_explain,
											"OP",
											"what the planner chooses, without compiling",
											{1, 1},
											explain_options,
											CLI_ON_DEVICE,
											cli_problem_options,
											.examples = explain_examples};

static const struct cli_example explain_map_examples[] = {
	{"kiln explain map 'y[i] = x[i] * s' --shape x=1000 --set s=2", "its kernel, grid and memory"},
	{0}};

const struct cli_command command_explain_map = {
	"explain map", cli_explain,         "STATEMENT",   "what the planner makes of a statement",
	{1, 1},        map_explain_options, CLI_ON_DEVICE, .examples = explain_map_examples};

static const struct cli_example compile_examples[] = {
	{"kiln compile softmax --shape 1024x4096 --target sm_90", "for a GPU that is elsewhere"}, {0}};

const struct cli_command command_compile = {"compile",
											cli_compile,
											"OP",
											"compile into the cache, without a device",
											{1, 1},
											compile_options,
											CLI_ON_DEVICE,
											cli_problem_options,
											.examples = compile_examples};

static const struct cli_example compile_map_examples[] = {
	{"kiln compile map 'y[i] = x[i] * s' --shape x=1000 --set s=2 --target sm_90",
	 "for a GPU that is elsewhere"},
	{0}};

const struct cli_command command_compile_map = {
	"compile map", cli_compile,         "STATEMENT",   "compile a statement into the cache",
	{1, 1},        map_compile_options, CLI_ON_DEVICE, .examples = compile_map_examples};
