/*
 * explain.c: 'kiln explain' and 'kiln compile', of operators and statements, for this machine's
 * device or for another target.
 */
#include "explain.h"
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/map_problem.h"
#include "client/cli/problem.h"
#include "client/cli/table.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

/* Prints a text of the daemon, which may lack the newline at its end. */
static void print_text(const char *text)
{
	size_t length = strlen(text);
	fputs(text, stdout);
	if (length && text[length - 1] != '\n')
		putchar('\n');
}

typedef int ask_function(kiln_client *client, const char *op, const kiln_tensor *tensors,
						 int tensor_count, const kiln_attr *attrs, int attr_count,
						 const char *target, kiln_reply **out);

/* Whether the command takes a statement. */
static bool is_map(const struct cli *cli)
{
	const char *second = strchr(cli->command->name, ' ');
	return second && !strcmp(second, " map");
}

static int explain_ask(struct cli *cli, ask_function *function, kiln_reply **reply)
{
	struct cli_problem problem;
	kiln_client *client;
	int status =
		is_map(cli) ? cli_map_problem(cli, NULL, &problem) : cli_problem(cli, NULL, &problem);

	if (status)
		return status;
	if (cli_connect(cli, &client))
		return CLI_FAILED;
	status = function(client, problem.op, problem.tensors, problem.tensor_count, problem.attrs,
					  problem.attr_count, cli_value(cli, "target"), reply);
	if (status)
		status = is_map(cli) ? cli_failed(cli, status, "%s", cli->command->name)
							 : cli_failed(cli, status, "%s %s", cli->command->name, problem.op);
	kiln_close(client);
	return status;
}

/* Prints the names that --choice takes; the daemon lists none for a statement. */
static void print_choices(const kiln_reply *reply)
{
	int count = kiln_reply_count(reply, "choices");
	char path[32];

	if (count < 2)
		return;
	printf("%-14s ", "candidates");
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "choices[%d]", i);
		printf("%s%s", i ? ", " : "", kiln_reply_str(reply, path));
	}
	putchar('\n');
}

static void print_explained(const struct cli *cli, const kiln_reply *reply)
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

int explain_answer(const struct cli *cli, kiln_reply *reply)
{
	if (!cli_json(cli, reply))
		print_explained(cli, reply);
	kiln_reply_free(reply);
	return CLI_OK;
}

static int cli_explain(struct cli *cli)
{
	kiln_reply *reply;
	int status = explain_ask(cli, kiln_explain, &reply);

	return status ? status : explain_answer(cli, reply);
}

static void print_compiled(const kiln_reply *reply)
{
	const char *key = kiln_reply_str(reply, "key");
	char figure[FIGURE_MAX];

	print_text(kiln_reply_str(reply, "text"));
	if (key[0])
		print_pair("key", "%s", key);
	print_pair("origin", "%s", kiln_reply_str(reply, "origin"));
	if (key[0]) {
		print_pair("object", "%s", figure_bytes((uint64_t)kiln_reply_int(reply, "bytes"), figure));
		print_pair("took", "%s", figure_micros(kiln_reply_real(reply, "micros"), figure));
	}
}

int compile_answer(const struct cli *cli, kiln_reply *reply)
{
	if (!cli_json(cli, reply))
		print_compiled(reply);
	kiln_reply_free(reply);
	return CLI_OK;
}

static int cli_compile(struct cli *cli)
{
	kiln_reply *reply;
	int status = explain_ask(cli, kiln_compile, &reply);

	return status ? status : compile_answer(cli, reply);
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

const struct cli_command command_explain = {
	"explain",          cli_explain, "OP", "what the planner chooses, without compiling",
	explain_options,    1,           1,    CLI_ON_DEVICE,
	cli_problem_options};

const struct cli_command command_explain_map = {
	"explain map",       cli_explain, "STATEMENT", "what the planner makes of a statement",
	map_explain_options, 1,           1,           CLI_ON_DEVICE};

const struct cli_command command_compile = {
	"compile",          cli_compile, "OP", "compile into the cache, without a device",
	compile_options,    1,           1,    CLI_ON_DEVICE,
	cli_problem_options};

const struct cli_command command_compile_map = {
	"compile map",       cli_compile, "STATEMENT", "compile a statement into the cache",
	map_compile_options, 1,           1,           CLI_ON_DEVICE};
