/*
 * completion.c: 'kiln completion': what a shell needs to complete lines of kiln.  The scripts are
 * the same for all releases: they ask `kiln __complete WORD...`, which answers from the tables that
 * 'kiln help' prints.
 */
#include "client/cli/failure.h"
#include "client/cli/problem.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

/* ---- Scripts ---- */

static const char bash_script[] =
	"# Completion of kiln in bash: source this file, or install it as completions/kiln.\n"
	"_kiln() {\n"
	"\tlocal IFS=$'\\n'\n"
	"\tCOMPREPLY=($(compgen -W \"$(kiln __complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" \\\n"
	"\t\t2>/dev/null | cut -f1)\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
	"}\n"
	"complete -o default -F _kiln kiln\n";

static const char zsh_script[] =
	"#compdef kiln\n"
	"# Completion of kiln in zsh: source this file, or install it as site-functions/_kiln.\n"
	"_kiln() {\n"
	"\tlocal -a found\n"
	"\tlocal word about\n"
	"\twhile IFS=$'\\t' read -r word about; do\n"
	"\t\tfound+=(\"${word//:/\\\\:}:$about\")\n"
	"\tdone < <(kiln __complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)\n"
	"\tif (( $#found )); then _describe kiln found; else _files; fi\n"
	"}\n"
	"if [[ $funcstack[1] == _kiln ]]; then _kiln \"$@\"; else compdef _kiln kiln; fi\n";

static const char fish_script[] =
	"# Completion of kiln in fish: install it as vendor_completions.d/kiln.fish.\n"
	"function __kiln_words\n"
	"\tset -l words (commandline -opc) (commandline -ct)\n"
	"\tkiln __complete $words[2..-1] 2>/dev/null\n"
	"end\n"
	"complete -c kiln -a '(__kiln_words)'\n";

static int cli_completion(struct cli *cli)
{
	static const struct {
		const char *shell, *script;
	} scripts[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
		if (!strcmp(cli->positional[0], scripts[i].shell)) {
			fputs(scripts[i].script, stdout);
			return CLI_OK;
		}
	return cli_usage("completion '%s': it is not one of bash, zsh, fish", cli->positional[0]);
}

/* ---- What may come next ---- */

/* A line as far as its words before the last say. */
struct line {
	const struct cli_group *groups;
	const char *first, *second; /* the words of the command; NULL: not there */
	const struct cli_command *command;
	const struct cli_option *valued; /* the option whose value comes next; NULL: none */
	int arguments;                   /* of the command */
};

static void say(const char *word, const char *help)
{
	printf("%s\t%s\n", word, help);
}

static const struct cli_command *find_command(const struct line *line)
{
	const struct cli cli = {.groups = line->groups};
	const struct cli_command *found = NULL;
	if (line->first && line->second)
		found = cli_find(&cli, line->first, line->second);
	return found || !line->first ? found : cli_find(&cli, line->first, NULL);
}

static const struct cli_option *find_option(const struct cli_option *options, const char *name)
{
	for (; options && options->name; options++)
		if (!strcmp(options->name, name))
			return options;
	return NULL;
}

static void follow_option(struct line *line, const char *name)
{
	const struct cli_option *option =
		line->command ? find_option(cli_options(line->command), name) : NULL;
	if (!option)
		option = find_option(cli_global_options, name);
	line->valued = option && option->value && option->value[0] != '[' ? option : NULL;
}

static void follow_word(struct line *line, const char *word)
{
	const struct cli_command *before = line->command;
	if (line->valued)
		line->valued = NULL;
	else if (!strncmp(word, "--", 2))
		follow_option(line, word + 2);
	else if (!line->first)
		line->first = word;
	else if (!line->second)
		line->second = word;
	else
		line->arguments++;
	line->command = find_command(line);
	/* The second word was the command's first argument. */
	if (!before && line->command && line->second && !strchr(line->command->name, ' '))
		line->arguments++;
	else if (before && before == line->command && line->second == word)
		line->arguments++;
}

static void say_options(const struct cli_option *options)
{
	char name[64];
	for (; options && options->name; options++) {
		snprintf(name, sizeof(name), "--%s", options->name);
		say(name, options->help);
	}
}

static void say_operators(void)
{
	for (const struct plan_op *row = plan_op_next(NULL); row; row = plan_op_next(row))
		if (!row->names)
			say(row->name, row->summary);
}

/* The first words of commands: of a group that has no command of its own name, its title. */
static void say_commands(const struct cli_group *groups)
{
	const struct cli cli = {.groups = groups};
	char last[64] = "", word[64];
	for (const struct cli_group *group = groups; group->title; group++)
		for (const struct cli_command *const *at = group->commands; *at; at++) {
			const char *space = strchr((*at)->name, ' ');
			if (!space) {
				say((*at)->name, (*at)->help);
				continue;
			}
			snprintf(word, sizeof(word), "%.*s", (int)(space - (*at)->name), (*at)->name);
			if (strcmp(word, last) != 0 && !cli_find(&cli, word, NULL))
				say(word, group->title);
			snprintf(last, sizeof(last), "%s", word);
		}
}

static void say_second_words(const struct cli_group *groups, const char *first)
{
	for (const struct cli_group *group = groups; group->title; group++)
		for (const struct cli_command *const *at = group->commands; *at; at++)
			if (cli_second_word(*at, first))
				say(cli_second_word(*at, first), (*at)->help);
}

static void say_value(const struct cli_option *option)
{
#define SAY_DTYPE(NAME, name, value, bytes) say(#name, "element type");
	if (strstr(option->value, "OP")) {
		say_operators();
	} else if (strstr(option->value, "TYPE")) {
		KILN_DTYPE_LIST(SAY_DTYPE)
	} else if (!strcmp(option->name, "device")) {
		say("cpu", "the host's processors");
		say("cuda:0", "the first GPU");
	}
#undef SAY_DTYPE
}

int completion_words(const struct cli_group *groups, int count, char **words)
{
	struct line line = {.groups = groups};
	const char *current = count > 0 ? words[count - 1] : "";
	for (int i = 0; i < count - 1; i++)
		follow_word(&line, words[i]);
	if (line.valued) {
		say_value(line.valued);
	} else if (current[0] == '-') {
		say_options(line.command ? cli_options(line.command) : NULL);
		say_options(cli_global_options);
	} else if (!line.first) {
		say_commands(groups);
	} else if (!line.second) {
		say_second_words(groups, line.first);
		if (line.command && strstr(line.command->usage, "OP"))
			say_operators();
		else if (line.command && !strcmp(line.command->name, "help"))
			say_commands(groups);
	} else if (line.arguments == 1 && line.command && !strcmp(line.command->name, "help")) {
		say_second_words(groups, line.second);
	}
	return CLI_OK;
}

/* ---- The command ---- */

static const struct cli_example completion_examples[] = {
	{"kiln completion bash > ~/.local/share/bash-completion/completions/kiln", "for bash"},
	{"kiln completion fish > ~/.config/fish/completions/kiln.fish", "for fish"},
	{0}};

const struct cli_command command_completion = {
	"completion", cli_completion,
	"SHELL",      "what bash, zsh or fish needs to complete lines of kiln",
	{1, 1},       .examples = completion_examples};
