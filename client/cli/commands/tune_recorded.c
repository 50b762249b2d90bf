/*
 * tune_recorded.c: 'kiln tune --recorded': the daemon writes what it was asked for as command
 * lines, and each is tuned as if it had been typed.
 */
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/grow.h"
#include "client/cli/values.h"
#include "tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "kiln compile "
#define WORDS_MOST 512

bool tune_classes_add(struct tune_classes *classes, const char *name)
{
	char **place, *copy;

	for (size_t i = 0; i < classes->count; i++)
		if (!strcmp(classes->names[i], name))
			return false;
	/* Without memory the class may be tuned once more. */
	copy = strdup(name);
	place = copy ? grow(&classes->names, classes->count, &classes->capacity, sizeof(*place)) : NULL;
	if (place) {
		*place = copy;
		classes->count++;
	} else
		free(copy);
	return true;
}

/* Takes the next word of a line, which the daemon has quoted for a shell, and ends it with a zero;
 * NULL: there is none. */
static char *next_word(char **rest)
{
	char *from = *rest + strspn(*rest, " "), *word = from, *to = from;
	bool quoted = false;

	if (!*from)
		return NULL;
	for (; *from && (quoted || *from != ' '); from++)
		if (*from == '\'')
			quoted = !quoted;
		else if (*from == '\\' && !quoted && from[1])
			*to++ = *++from;
		else
			*to++ = *from;
	*rest = *from ? from + 1 : from;
	*to = 0;
	return word;
}

/* Reads the words as a command line of this command, with the options that were given to it. */
static int parse(const struct cli *cli, char *line, struct cli *out)
{
	char *words[WORDS_MOST] = {"kiln", "tune"}, *word;
	int count = 2, status;

	while (count < WORDS_MOST && (word = next_word(&line)))
		words[count++] = word;
	status = cli_parse(cli->groups, count, words, out);
	if (status)
		return status;
	for (int i = 0; cli_options(cli->command)[i].name; i++)
		if (!out->values[i])
			out->values[i] = cli->values[i];
	out->socket = cli->socket;
	out->device = cli->device;
	out->timeout_ms = cli->timeout_ms;
	out->json = cli->json;
	out->connect_flags = cli->connect_flags;
	out->autostart = cli->autostart;
	return CLI_OK;
}

/* Tunes what a page has.  A command that names its choice leaves nothing to choose. */
static int tune_page(const struct cli *cli, char *text, tune_line *tune_one,
					 struct tune_classes *classes)
{
	static struct cli line;
	int status = CLI_OK;
	char *at;

	while ((at = strsep(&text, "\n"))) {
		if (strncmp(at, COMMAND, strlen(COMMAND)) != 0 || strstr(at, " --choice "))
			continue;
		if (parse(cli, at + strlen(COMMAND), &line) || tune_one(&line, classes))
			status = CLI_FAILED;
	}
	return status;
}

static int tune_pages(const struct cli *cli, kiln_client *client, tune_line *tune_one,
					  struct tune_classes *classes)
{
	kiln_reply *reply = NULL, *page;
	int status = CLI_OK;

	do {
		kiln_attr args[2] = {cli_attr_int("commands", 1)};
		if (reply)
			args[1] = cli_attr_string("next", kiln_reply_str(reply, "next"));
		int got = kiln_request(client, "record", args, reply ? 2 : 1, &page);
		kiln_reply_free(reply);
		if (got)
			return cli_failed(cli, got, "tune --recorded");
		reply = page;
		char *text = strdup(kiln_reply_str(reply, "text"));
		if (text && tune_page(cli, text, tune_one, classes))
			status = CLI_FAILED;
		free(text);
	} while (kiln_reply_int(reply, "more"));
	kiln_reply_free(reply);
	return status;
}

int tune_recorded(struct cli *cli, tune_line *tune_one)
{
	struct tune_classes classes = {0};
	kiln_client *client;

	if (cli_connect(cli, &client))
		return CLI_FAILED;
	int status = tune_pages(cli, client, tune_one, &classes);
	if (!status && !classes.count && !cli->json)
		puts("nothing to tune: kilnd was asked for nothing with several candidates");
	kiln_close(client);
	while (classes.count)
		free(classes.names[--classes.count]);
	free(classes.names);
	return status;
}
