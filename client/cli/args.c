/*
 * args.c: reads the command line by the tables of commands and options.
 */
#include "failure.h"
#include "nearest.h"
#include "values.h"

#include <stdio.h>
#include <string.h>

const struct cli_option cli_global_options[] = {
	{"socket", "PATH", "the daemon's socket ($KILN_SOCKET)"},
	{"device", "NAME", "device of this command: cpu, cuda:0, GPU-UUID ($KILN_DEVICE)"},
	{"json", NULL, "print the daemon's answer as JSON"},
	{"timeout", "TIME", "give up after TIME: 30s, 500ms (30s)"},
	{"autostart", NULL, "start a daemon if none answers ($KILN_AUTOSTART=1)"},
	{"no-autostart", NULL, "never start one (default)"},
	{"help", NULL, "explain the command and exit"},
	{"version", NULL, "print the version and exit"},
	{0},
};

/* ---- Options ---- */

const struct cli_option *cli_options(const struct cli_command *command)
{
	return command->merge ? command->merge(command->options) : command->options;
}

static int find_option(const struct cli_option *options, const char *name, size_t length)
{
	for (int i = 0; options && options[i].name; i++)
		if (strlen(options[i].name) == length && !memcmp(options[i].name, name, length))
			return i;
	return -1;
}

static int set_global(struct cli *cli, const char *name, const char *value)
{
	if (!strcmp(name, "socket")) {
		if (!value[0])
			return cli_usage("--socket '': a path is needed");
		cli->socket = value;
	} else if (!strcmp(name, "device"))
		cli->device = value;
	else if (!strcmp(name, "timeout"))
		return cli_time("--timeout", value, &cli->timeout_ms);
	else if (!strcmp(name, "json"))
		cli->json = true;
	else if (!strcmp(name, "autostart"))
		cli->autostart = 1;
	else if (!strcmp(name, "no-autostart"))
		cli->autostart = 0;
	else if (!strcmp(name, "help"))
		cli->help = true;
	else
		cli->version = true;
	return CLI_OK;
}

static int keep_value(struct cli *cli, int option, const char *value)
{
	const struct cli_option *row = &cli_options(cli->command)[option];

	if (row->often == CLI_MANY || (row->often == CLI_NAMED && strchr(value, '='))) {
		if (cli->given_count == CLI_MAX_GIVEN)
			return cli_usage("--%s '%s': more than %d of such options", row->name, value,
							 CLI_MAX_GIVEN);
		cli->given[cli->given_count++] = (struct cli_given){row->name, value};
		return CLI_OK;
	}
	if (cli->values[option])
		return cli_usage("--%s is given twice ('%s' and '%s')", row->name, cli->values[option],
						 value);
	cli->values[option] = value;
	return CLI_OK;
}

static int refuse_option(const struct cli *cli, const char *name, size_t length)
{
	const struct cli_option *options = cli->command ? cli_options(cli->command) : NULL;
	struct nearest nearest = nearest_to(name, length);
	char meant[NEAREST_WORDS_MAX];
	for (; options && options->name; options++)
		nearest_try(&nearest, options->name);
	for (const struct cli_option *global = cli_global_options; global->name; global++)
		nearest_try(&nearest, global->name);
	nearest_words(&nearest, "--", meant);
	return cli->command
			   ? cli_usage("--%.*s is no option of 'kiln %s'%s; see 'kiln help %s'", (int)length,
						   name, cli->command->name, meant, cli->command->name)
			   : cli_usage("--%.*s is no global option%s; see 'kiln help'", (int)length, name,
						   meant);
}

static int parse_option(struct cli *cli, char **argv, int *at)
{
	const char *name = argv[*at] + 2;
	const char *equals = strchr(name, '=');
	size_t length = equals ? (size_t)(equals - name) : strlen(name);
	const struct cli_option *options = cli->command ? cli_options(cli->command) : NULL;
	int own = find_option(options, name, length);
	int global = own < 0 ? find_option(cli_global_options, name, length) : -1;
	const struct cli_option *option;
	const char *value = "", *next = argv[*at + 1];

	if (own < 0 && global < 0)
		return refuse_option(cli, name, length);
	option = own >= 0 ? &options[own] : &cli_global_options[global];
	bool optional = option->value && option->value[0] == '[';
	if (equals) {
		if (!option->value)
			return cli_usage("--%s takes no value, but '%s' was given", option->name, equals + 1);
		value = equals + 1;
	} else if (next && option->value && (!optional || (next[0] >= '0' && next[0] <= '9'))) {
		/* An optional value is taken only if it looks like a number. */
		value = next;
		++*at;
	} else if (option->value && !optional)
		return cli_usage("--%s needs a value: --%s %s", option->name, option->name, option->value);
	return global >= 0 ? set_global(cli, option->name, value) : keep_value(cli, own, value);
}

const struct cli_command *cli_find(const struct cli *cli, const char *first, const char *second)
{
	char name[64];

	snprintf(name, sizeof(name), second ? "%s %s" : "%s", first, second);
	for (const struct cli_group *group = cli->groups; group->title; group++)
		for (const struct cli_command *const *command = group->commands; *command; command++)
			if (!strcmp((*command)->name, name))
				return *command;
	return NULL;
}

const char *cli_second_word(const struct cli_command *command, const char *first)
{
	size_t length = strlen(first);
	bool begins = !strncmp(command->name, first, length) && command->name[length] == ' ';
	return begins ? command->name + length + 1 : NULL;
}

/* One word is no command, or with a second one (else NULL) no command of a group or a command. */
int cli_no_command(const struct cli *cli, const char *first, const char *second)
{
	bool grouped = second && (cli_find(cli, first, "ls") || cli_find(cli, first, NULL));
	const char *word = grouped ? second : first;
	struct nearest nearest = nearest_to(word, strlen(word));
	char meant[NEAREST_WORDS_MAX], names[64];
	for (const struct cli_group *group = cli->groups; group->title; group++)
		for (const struct cli_command *const *command = group->commands; *command; command++) {
			const char *name = (*command)->name, *inside = cli_second_word(*command, first);
			snprintf(names, sizeof(names), "%.*s", (int)strcspn(name, " "), name);
			if (!grouped)
				nearest_try(&nearest, names);
			else if (inside)
				nearest_try(&nearest, inside);
		}
	if (!grouped)
		return cli_usage("'%s' is no command%s; see 'kiln help'", first,
						 nearest_words(&nearest, "", meant));
	snprintf(names, sizeof(names), "%s ", first);
	return cli_usage("'%s' is no command of 'kiln %s'%s; 'kiln help %s' lists them", second, first,
					 nearest_words(&nearest, names, meant), first);
}

/* Finds the command named by argv[*at], and by the word after it for commands of two words. */
static int parse_command(struct cli *cli, char **argv, int *at)
{
	const char *first = argv[*at], *second = argv[*at + 1];

	if (second && second[0] == '-')
		second = NULL;
	cli->command = second ? cli_find(cli, first, second) : NULL;
	if (cli->command) {
		++*at;
		return CLI_OK;
	}
	cli->command = cli_find(cli, first, NULL);
	if (cli->command)
		return CLI_OK;
	if (!second) {
		cli->command = cli_find(cli, first, "ls");
		cli->group = cli->command ? first : NULL;
	}
	if (cli->command)
		return CLI_OK;
	return cli_no_command(cli, first, second);
}

/* Reads -I FOLDER or -IFOLDER, of a command that has the option. */
static int parse_folder(struct cli *cli, char **argv, int *at)
{
	const struct cli_option *options = cli->command ? cli_options(cli->command) : NULL;
	int option = find_option(options, CLI_FOLDER, strlen(CLI_FOLDER));
	const char *value = argv[*at] + 2;

	if (option < 0)
		return cli_usage("'%s' is no option; see 'kiln help'", argv[*at]);
	if (!value[0] && !argv[*at + 1])
		return cli_usage("-I needs a value: -I %s", options[option].value);
	return keep_value(cli, option, value[0] ? value : argv[++*at]);
}

int cli_parse(const struct cli_group *groups, int argc, char **argv, struct cli *cli)
{
	bool options = true;

	*cli = (struct cli){.groups = groups, .autostart = -1};
	for (int i = 1; i < argc; i++) {
		int status = CLI_OK;
		if (options && !strcmp(argv[i], "--"))
			options = false;
		else if (options && !strcmp(argv[i], "-h"))
			cli->help = true;
		else if (options && !strncmp(argv[i], "--", 2))
			status = parse_option(cli, argv, &i);
		else if (options && !strncmp(argv[i], "-I", 2))
			status = parse_folder(cli, argv, &i);
		else if (options && argv[i][0] == '-' && argv[i][1])
			status = cli_usage("'%s' is no option; see 'kiln help'", argv[i]);
		else if (!cli->command)
			status = parse_command(cli, argv, &i);
		else if (cli->positional_count < cli->command->positional.most)
			cli->positional[cli->positional_count++] = argv[i];
		else
			status = cli_usage("'%s' is one argument too many for 'kiln %s'; usage: kiln %s%s%s",
							   argv[i], cli->command->name, cli->command->name,
							   cli->command->usage[0] ? " " : "", cli->command->usage);
		if (status)
			return status;
	}
	if (!cli->command || cli->help || cli->positional_count >= cli->command->positional.least)
		return CLI_OK;
	return cli_usage("'kiln %s' needs more arguments; usage: kiln %s %s; see 'kiln help %s'",
					 cli->command->name, cli->command->name, cli->command->usage,
					 cli->command->name);
}

const char *cli_value(const struct cli *cli, const char *option)
{
	int i = find_option(cli_options(cli->command), option, strlen(option));
	return i < 0 ? NULL : cli->values[i];
}

const char *cli_next(const struct cli *cli, const char *option, int *at)
{
	while (*at < cli->given_count) {
		const struct cli_given *given = &cli->given[(*at)++];
		if (!strcmp(given->option, option))
			return given->value;
	}
	return NULL;
}
