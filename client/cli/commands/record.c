/*
 * record.c: 'kiln record': writes down the kernels that the daemon was asked for, as a manifest
 * that 'kiln warm' compiles on any machine.
 */
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/json.h"
#include "client/cli/table.h"
#include "client/cli/values.h"
#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PATH_MOST 4096

/* The output: a file that appears as a whole, or standard output. */
struct target {
	FILE *out;
	const char *path; /* NULL: standard output */
	char temporary[PATH_MOST];
};

static int target_open(const struct cli *cli, const char *path, struct target *target)
{
	*target = (struct target){.out = stdout, .path = path};
	if (!path)
		return CLI_OK;
	snprintf(target->temporary, sizeof(target->temporary), "%s.part%ld", path, (long)getpid());
	target->out = fopen(target->temporary, "wx");
	if (target->out)
		return CLI_OK;
	return cli_failed_here(cli, KILN_EIO, "record: '%s': %s", path, strerror(errno));
}

static int target_close(const struct cli *cli, struct target *target, int status)
{
	bool good = !ferror(target->out);

	if (!target->path)
		return status;
	good = !fclose(target->out) && good;
	if (!status && good && !rename(target->temporary, target->path))
		return CLI_OK;
	if (!status)
		status = cli_failed_here(cli, KILN_EIO, "record: '%s' cannot be written: %s", target->path,
								 strerror(errno));
	unlink(target->temporary);
	return status;
}

static void write_head(const struct cli *cli, FILE *out)
{
	char date[FIGURE_MAX] = "";

	figure_date((int64_t)time(NULL), "%Y-%m-%dT%H:%MZ", date);
	fprintf(out, "kiln-manifest 1\n# %s, by kiln %s, %s\n",
			cli_value(cli, "generic") ? "The generic kernels" : "What kilnd was asked for",
			KILN_VERSION_STRING, date);
}

/* Reads all pages.  The last page has the figures of all. */
static int write_pages(const struct cli *cli, kiln_client *client, FILE *out, int64_t *problems,
					   int64_t *left_out)
{
	kiln_reply *reply = NULL, *page;
	bool more = true;

	while (more) {
		kiln_attr args[2];
		int count = 0, status;
		if (reply)
			args[count++] = cli_attr_string("next", kiln_reply_str(reply, "next"));
		if (cli_value(cli, "generic"))
			args[count++] = cli_attr_int("generic", 1);
		status = kiln_request(client, "record", args, count, &page);
		kiln_reply_free(reply);
		if (status)
			return cli_failed(cli, status, "record");
		reply = page;
		fputs(kiln_reply_str(reply, "text"), out);
		more = kiln_reply_int(reply, "more");
	}
	*problems = kiln_reply_int(reply, "problems");
	*left_out = kiln_reply_int(reply, "left_out");
	if (*left_out)
		fprintf(out, "# %" PRId64 " requests more were for problems that there was no room for\n",
				*left_out);
	kiln_reply_free(reply);
	return CLI_OK;
}

static void record_report(const struct cli *cli, const char *path, int64_t problems,
						  int64_t left_out)
{
	if (cli->json) {
		json_begin();
		json_int("problems", problems);
		json_int("left_out", left_out);
		json_end();
	} else
		printf("recorded %" PRId64 " problems in '%s'%s\n", problems, path,
			   left_out ? ", and had no room for others" : "");
}

static int record_once(const struct cli *cli, kiln_client *client, const char *path)
{
	int64_t problems = 0, left_out = 0;
	struct target target;
	int status = target_open(cli, path, &target);

	if (status)
		return status;
	write_head(cli, target.out);
	status = write_pages(cli, client, target.out, &problems, &left_out);
	status = target_close(cli, &target, status);
	if (!status && path && !cli_value(cli, "follow"))
		record_report(cli, path, problems, left_out);
	return status;
}

static int cli_record(struct cli *cli)
{
	const char *path = cli_value(cli, "output"), *every = cli_value(cli, "follow");
	kiln_client *client;
	int64_t seconds = 0;
	int status;

	if (every && cli_integer("--follow", every, 1, 86400, &seconds))
		return CLI_USAGE;
	if ((cli->json || every) && !path)
		return cli_usage("record: with %s the manifest needs --output FILE",
						 every ? "--follow" : "--json");
	if (path && strlen(path) + 32 > PATH_MOST)
		return cli_usage("--output '%.60s...': a path has at most %d bytes", path, PATH_MOST - 32);
	if (cli_connect(cli, &client))
		return CLI_FAILED;
	status = record_once(cli, client, path);
	/* An interrupt or the daemon's end leaves the file as it was written last. */
	while (every && !status) {
		sleep((unsigned)seconds);
		status = record_once(cli, client, path);
	}
	kiln_close(client);
	return status;
}

/* ---- The command ---- */

static const struct cli_option record_options[] = {
	{"output", "FILE", "write to FILE, as a whole, instead of standard output"},
	{"follow", "SECONDS", "write FILE again every so often, until interrupted"},
	{"generic", NULL, "the shipped generic kernels instead"},
	{0},
};

static const struct cli_example record_examples[] = {
	{"kiln record --output model.jsonl", "what was asked for until now"}, {0}};

const struct cli_command command_record = {
	"record",
	cli_record,
	"",
	"what the daemon was asked for, as a manifest for 'kiln warm'",
	{0, 0},
	record_options,
	.examples = record_examples};
