/*
 * help.c: 'kiln help': prints the tables of commands and options, for people and as JSON, and the
 * daemon's own table of requests.  It adds no text of its own about a command.
 */
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/json.h"
#include "client/cli/member.h"
#include "client/cli/problem.h"
#include "client/cli/table.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

/* ---- For people ---- */

static void print_options(const struct cli_option *options)
{
	for (; options && options->name; options++) {
		char left[48];
		snprintf(left, sizeof(left), "--%s%s%s", options->name, options->value ? " " : "",
				 options->value ? options->value : "");
		printf("  %-24s %s\n", left, options->help);
	}
}

/* "  layer_norm    --with gamma,beta,.. --eps --axes", in lines of 100 columns */
static void print_operator(const struct plan_op *row, const struct cli_option *options)
{
	char names[CLI_NAMES_MAX], word[CLI_NAMES_MAX + 32];
	int column = printf("  %-24s", row->name);

	for (; options->name; options++) {
		bool with = !strcmp(options->name, "with");
		if (!cli_option_special(options->name) || !cli_operator_takes(row, options->name))
			continue;
		snprintf(word, sizeof(word), "--%s%s%s", options->name, with ? " " : "",
				 with ? cli_operator_optional(row, names) : "");
		if (column + 1 + (int)strlen(word) > 100)
			column = printf("\n%26s", "") - 1;
		column += printf(" %s", word);
	}
	putchar('\n');
}

static void print_examples(const struct cli_command *command)
{
	puts("\nexamples:");
	for (const struct cli_example *example = command->examples; example->line; example++)
		printf("  # %s\n  %s\n", example->what, example->line);
}

static void print_command(const struct cli_command *command)
{
	const struct cli_option *options = cli_options(command);

	printf("usage: kiln %s%s%s%s\n\n%s\n", command->name, command->usage[0] ? " " : "",
		   command->usage, options ? " [OPTION]..." : "", command->help);
	if (options) {
		puts("\noptions:");
		print_options(options);
	}
	if (cli_describes_problem(command)) {
		puts("\noperators, and the options that are not for all of them:");
		for (const struct plan_op *row = plan_op_next(NULL); row; row = plan_op_next(row))
			if (!row->names)
				print_operator(row, options);
	}
	print_examples(command);
	puts("\nglobal options: see 'kiln help'");
}

static void print_commands(const struct cli *cli)
{
	puts("usage: kiln [GLOBAL OPTION]... COMMAND [ARGUMENT]...");
	for (const struct cli_group *group = cli->groups; group->title; group++) {
		printf("\n%s:\n", group->title);
		for (const struct cli_command *const *at = group->commands; *at; at++) {
			char left[48];
			snprintf(left, sizeof(left), "%s %s", (*at)->name, (*at)->usage);
			printf("  %-27s %s\n", left, (*at)->help);
		}
	}
	puts("\nglobal options:");
	print_options(cli_global_options);
	puts("\nexit status: 0 fine, 1 what was asked for failed, 2 the command line is wrong");
}

int help_groups(const struct cli *cli)
{
	puts("usage: kiln [GLOBAL OPTION]... COMMAND [ARGUMENT]...\n");
	for (const struct cli_group *group = cli->groups; group->title; group++) {
		int column = printf("  %-24s", group->title);
		for (const struct cli_command *const *at = group->commands; *at; at++) {
			if (column + 2 + (int)strlen((*at)->name) > 80)
				column = printf("\n%26s", "") - 1;
			column += printf(" %s%s", (*at)->name, at[1] ? "," : "");
		}
		putchar('\n');
	}
	puts("\nexamples:\n"
		 "  kiln run softmax --shape 1024x4096 --time\n"
		 "  kiln explain softmax --shape 1024x4096 --target sm_90\n"
		 "  kiln run map 'y[i,j] = x[i,j] * s' --shape x=8x16 --set s=2.5\n\n"
		 "'kiln help' says what each does, and 'kiln help COMMAND' what it takes");
	return CLI_OK;
}

/* ---- As JSON ---- */

static void write_options(const char *name, const struct cli_option *options)
{
	json_list_begin(name);
	for (; options && options->name; options++) {
		json_item_begin();
		json_string("name", options->name);
		json_string("value", options->value ? options->value : "");
		json_string("help", options->help);
		json_item_end();
	}
	json_list_end();
}

static void write_command(const struct cli_group *group, const struct cli_command *command)
{
	json_item_begin();
	json_string("name", command->name);
	json_string("group", group->title);
	json_string("arguments", command->usage);
	json_string("help", command->help);
	write_options("options", cli_options(command));
	json_list_begin("examples");
	for (const struct cli_example *example = command->examples; example->line; example++) {
		json_item_begin();
		json_string("line", example->line);
		json_string("what", example->what);
		json_item_end();
	}
	json_list_end();
	json_item_end();
}

/* ---- What is asked for ---- */

/* One word stands for all commands that begin with it. */
static bool is_asked_for(const struct cli_command *command, const char *first, const char *second)
{
	const char *word = cli_second_word(command, first);
	return second ? word && !strcmp(word, second) : word || !strcmp(command->name, first);
}

static int help_about(const struct cli *cli, const char *first, const char *second)
{
	int found = 0;

	for (const struct cli_group *group = cli->groups; group->title; group++)
		for (const struct cli_command *const *at = group->commands; *at; at++) {
			if (!is_asked_for(*at, first, second))
				continue;
			if (!found++ && cli->json) {
				json_begin();
				json_list_begin("commands");
			}
			if (cli->json) {
				write_command(group, *at);
				continue;
			}
			if (found > 1)
				putchar('\n');
			print_command(*at);
		}
	if (!found)
		return cli_no_command(cli, first, second);
	if (cli->json) {
		json_list_end();
		json_end();
	}
	return CLI_OK;
}

static int help_all(const struct cli *cli)
{
	if (!cli->json) {
		print_commands(cli);
		return CLI_OK;
	}
	json_begin();
	json_list_begin("commands");
	for (const struct cli_group *group = cli->groups; group->title; group++)
		for (const struct cli_command *const *at = group->commands; *at; at++)
			write_command(group, *at);
	json_list_end();
	write_options("global_options", cli_global_options);
	json_end();
	return CLI_OK;
}

/* Prints the daemon's own table of requests. */
static void print_requests(struct cli *cli, const kiln_reply *reply)
{
	static const char *const headers[] = {"REQUEST", "ARGUMENTS", "REPLY"};
	struct table table;

	(void)cli;
	table_begin(&table, headers, 3);
	for (int i = 0; i < kiln_reply_count(reply, "requests"); i++) {
		table_cell(&table, "%s", member_str(reply, "requests[%d].name", i));
		table_cell(&table, "%s", member_str(reply, "requests[%d].arguments", i));
		table_cell(&table, "%s", member_str(reply, "requests[%d].reply", i));
	}
	table_end(&table);
}

static int cli_help(struct cli *cli)
{
	const char *first = cli->positional[0], *second = cli->positional[1];
	kiln_attr section = cli_attr_string("section", "requests");

	if (!first)
		return help_all(cli);
	if (!strcmp(first, "requests") && !second)
		return cli_answer(cli, "info", &section, 1, print_requests);
	return help_about(cli, first, second);
}

int help_command(struct cli *cli)
{
	char name[64];
	char *space;

	if (!cli->command)
		return help_all(cli);
	if (cli->group)
		return help_about(cli, cli->group, NULL);
	snprintf(name, sizeof(name), "%s", cli->command->name);
	space = strchr(name, ' ');
	if (space)
		*space++ = 0;
	return help_about(cli, name, space);
}

/* ---- The command ---- */

static const struct cli_example help_examples[] = {
	{"kiln help cache", "all commands of the cache"},
	{"kiln help requests", "what a client may ask of the daemon"},
	{0}};

const struct cli_command command_help = {"help",      cli_help,
										 "[COMMAND]", "this list, one command, or 'requests'",
										 {0, 2},      .examples = help_examples};
