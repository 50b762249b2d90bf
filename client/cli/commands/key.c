/*
 * key.c: 'kiln key': the keys that seal packs here, and the public keys that this host trusts.
 */
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/member.h"
#include "client/cli/json.h"
#include "client/cli/table.h"
#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void print_made(struct cli *cli, const kiln_reply *reply)
{
	(void)cli;
	printf("made key %s (%s), which is trusted here\nfor other hosts: %s\n",
		   kiln_reply_str(reply, "name"), kiln_reply_str(reply, "key_id"),
		   kiln_reply_str(reply, "path"));
}

static int cli_key_new(struct cli *cli)
{
	kiln_attr name = cli_attr_string("name", cli->positional[0]);

	return cli_answer(cli, "key.new", &name, 1, print_made);
}

static void print_keys(struct cli *cli, const kiln_reply *reply)
{
	static const char *const headers[] = {"NAME", "ID", "SEALS", "TRUSTED"};
	struct table table;

	(void)cli;
	table_begin(&table, headers, 4);
	for (int i = 0; i < kiln_reply_count(reply, "rows"); i++) {
		table_cell(&table, "%s", member_str(reply, "rows[%d].name", i));
		table_cell(&table, "%s", member_str(reply, "rows[%d].key_id", i));
		table_cell(&table, "%s", member_int(reply, "rows[%d].secret", i) ? "yes" : "no");
		table_cell(&table, "%s", member_int(reply, "rows[%d].trusted", i) ? "yes" : "no");
	}
	table_end(&table);
}

static int cli_key_ls(struct cli *cli)
{
	return cli_answer(cli, "key.ls", NULL, 0, print_keys);
}

static int cli_key_show(struct cli *cli)
{
	const char *wanted = cli->positional[0], *line = NULL;
	kiln_reply *reply;
	int status = CLI_OK;

	if (cli_request(cli, "key.ls", NULL, 0, &reply))
		return CLI_FAILED;
	for (int i = 0; i < kiln_reply_count(reply, "rows") && !line; i++)
		if (!strcmp(member_str(reply, "rows[%d].name", i), wanted) ||
			!strcmp(member_str(reply, "rows[%d].key_id", i), wanted))
			line = member_str(reply, "rows[%d].public", i);
	if (!line)
		status = cli_failed_here(cli, KILN_ENOENT, "key show: there is no key '%s'", wanted);
	else if (cli->json) {
		json_begin();
		json_string("public", line);
		json_end();
	} else
		puts(line);
	kiln_reply_free(reply);
	return status;
}

/* Reads the line with a public key; "-" is standard input. */
static int read_line(const struct cli *cli, const char *path, char line[256])
{
	FILE *in = strcmp(path, "-") != 0 ? fopen(path, "r") : stdin;
	size_t got;
	int failed;

	if (!in)
		return cli_failed_here(cli, KILN_EIO, "key trust: '%s': %s", path, strerror(errno));
	got = fread(line, 1, 255, in);
	failed = ferror(in) ? errno : 0;
	line[got] = 0;
	/* A zero byte ends the text, which is then no key. */
	if (in != stdin)
		fclose(in);
	if (failed)
		return cli_failed_here(cli, KILN_EIO, "key trust: '%s': %s", path, strerror(failed));
	return CLI_OK;
}

static void print_trusted(struct cli *cli, const kiln_reply *reply)
{
	printf("trusts key %s (%s)%s\n", kiln_reply_str(reply, "name"), kiln_reply_str(reply, "key_id"),
		   cli->command == &command_key_distrust ? " no more" : "");
}

static int cli_key_trust(struct cli *cli)
{
	const char *name = cli_value(cli, "name");
	kiln_attr args[2];
	char line[256];

	if (read_line(cli, cli->positional[0], line))
		return CLI_FAILED;
	args[0] = cli_attr_string("public", line);
	args[1] = cli_attr_string("name", name);
	return cli_answer(cli, "key.trust", args, name ? 2 : 1, print_trusted);
}

static int cli_key_distrust(struct cli *cli)
{
	kiln_attr name = cli_attr_string("name", cli->positional[0]);

	return cli_answer(cli, "key.distrust", &name, 1, print_trusted);
}

/* ---- The commands ---- */

static const struct cli_option key_trust_options[] = {
	{"name", "NAME", "what it is called here (what its owner calls it)"},
	{0},
};

static const struct cli_example key_ls_examples[] = {{"kiln key ls", "names, and what each may do"},
													 {0}};

const struct cli_command command_key_ls = {
	"key ls", cli_key_ls, "",         "the keys that seal packs here, and those that are trusted",
	{0, 0},   NULL,       CLI_STARTS, .examples = key_ls_examples};

static const struct cli_example key_new_examples[] = {
	{"kiln key new build-host", "make it, and keep its secret half here"}, {0}};

const struct cli_command command_key_new = {
	"key new", cli_key_new, "NAME",     "make a key that seals",
	{1, 1},    NULL,        CLI_STARTS, .examples = key_new_examples};

static const struct cli_example key_show_examples[] = {
	{"kiln key show build-host", "to be trusted elsewhere"}, {0}};

const struct cli_command command_key_show = {
	"key show", cli_key_show, "NAME",     "its public half, for other hosts",
	{1, 1},     NULL,         CLI_STARTS, .examples = key_show_examples};

static const struct cli_example key_trust_examples[] = {
	{"kiln key trust build-host.pub", "take in its packs from now on"}, {0}};

const struct cli_command command_key_trust = {
	"key trust", cli_key_trust,     "FILE",     "believe what this public key seals",
	{1, 1},      key_trust_options, CLI_STARTS, .examples = key_trust_examples};

static const struct cli_example key_distrust_examples[] = {
	{"kiln key distrust build-host", "no more of its packs"}, {0}};

const struct cli_command command_key_distrust = {"key distrust", cli_key_distrust,
												 "NAME",         "believe it no more",
												 {1, 1},         NULL,
												 CLI_STARTS,     .examples = key_distrust_examples};
