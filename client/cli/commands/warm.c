/*
 * warm.c: 'kiln warm': compiles all kernels of a manifest into the cache, before anybody asks for
 * them.  The daemon understands the lines; here a line is a text with a number.
 */
#include "warm.h"
#include "client/cli/daemon.h"
#include "client/cli/deadlines.h"
#include "client/cli/failure.h"
#include "client/cli/grow.h"
#include "client/cli/json.h"
#include "client/cli/member.h"
#include "client/cli/table.h"
#include "client/cli/values.h"
#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD "kiln-manifest "
#define VERSION 1
#define LINE_MOST 16384
#define LINES_MOST 1000000
#define FAILURES_SHOWN 100

/* ---- Lines ---- */

static int add_line(struct warm *warm, int number, const char *text)
{
	if (warm->line_count == LINES_MOST)
		return cli_failed_here(warm->cli, KILN_ELIMIT, "warm: '%s' has more than %d problems",
							   warm->path, LINES_MOST);
	struct warm_line *line =
		grow(&warm->lines, (size_t)warm->line_count, &warm->line_capacity, sizeof(*line));
	if (line)
		*line = (struct warm_line){number, strdup(text)};
	if (!line || !line->text)
		return cli_failed_here(warm->cli, KILN_ENOMEM, "warm: out of memory");
	warm->line_count++;
	return CLI_OK;
}

static int check_head(const struct warm *warm, const char *line)
{
	char *end = NULL;
	long version = strncmp(line, HEAD, strlen(HEAD)) ? -1 : strtol(line + strlen(HEAD), &end, 10);

	if (version == VERSION && !end[strspn(end, " \t\r\n")])
		return CLI_OK;
	if (version > VERSION)
		return cli_failed_here(warm->cli, KILN_EVERSION,
							   "warm: '%s' is a manifest of version %ld, and this kiln reads "
							   "version %d",
							   warm->path, version, VERSION);
	return cli_failed_here(warm->cli, KILN_EINVAL,
						   "warm: '%s', line 1: a manifest begins with the line \"" HEAD "%d\"",
						   warm->path, VERSION);
}

/* Refuses a line that is too long, or has a zero byte. */
static int read_lines(struct warm *warm, FILE *in)
{
	static char text[LINE_MOST];
	int number = 0, status = CLI_OK;

	while (!status && fgets(text, sizeof(text), in)) {
		size_t size = strlen(text);
		number++;
		if (size && text[size - 1] == '\n')
			text[--size] = 0;
		else if (!feof(in))
			return cli_failed_here(warm->cli, KILN_EINVAL,
								   "warm: '%s', line %d: it has %d bytes or more, or a zero byte",
								   warm->path, number, LINE_MOST);
		if (number == 1)
			status = check_head(warm, text);
		else if (!strchr("#\r", text[strspn(text, " \t")]))
			status = add_line(warm, number, text);
	}
	if (!status && ferror(in))
		status =
			cli_failed_here(warm->cli, KILN_EIO, "warm: '%s': %s", warm->path, strerror(errno));
	if (!status && !number)
		status = check_head(warm, "");
	return status;
}

static int read_manifest(struct warm *warm)
{
	FILE *in = strcmp(warm->path, "-") != 0 ? fopen(warm->path, "r") : stdin;
	int status;

	if (!in)
		return cli_failed_here(warm->cli, KILN_EIO, "warm: '%s': %s", warm->path, strerror(errno));
	status = read_lines(warm, in);
	if (in != stdin)
		fclose(in);
	return status;
}

/* Takes the generic kernels, which the daemon lists as lines. */
static int list_generic(struct warm *warm, kiln_client *client)
{
	kiln_attr arg = cli_attr_int("generic", 1);
	kiln_reply *reply;
	int status = kiln_request(client, "record", &arg, 1, &reply);
	char *text, *rest, *line;

	if (status)
		return cli_failed(warm->cli, status, "warm");
	text = rest = strdup(kiln_reply_str(reply, "text"));
	kiln_reply_free(reply);
	while (rest && (line = strsep(&rest, "\n")) && !status)
		if (line[0])
			status = add_line(warm, 0, line);
	free(text);
	return status;
}

/* Takes the most used kernels of the cache. */
static int list_used(struct warm *warm, kiln_client *client, int64_t limit)
{
	kiln_attr args[] = {cli_attr_int("limit", limit), cli_attr_string("sort", "hits")};
	kiln_reply *reply;
	int status = kiln_request(client, "cache.ls", args, 2, &reply), rows;

	if (status)
		return cli_failed(warm->cli, status, "warm");
	rows = kiln_reply_count(reply, "rows");
	for (int i = 0; i < rows && !status; i++) {
		char line[128];
		snprintf(line, sizeof(line), "kernel %s", member_str(reply, "rows[%d].key", i));
		status = add_line(warm, 0, line);
	}
	kiln_reply_free(reply);
	return status;
}

/* ---- The command line ---- */

static int read_targets(struct warm *warm, char *list)
{
	char *name;

	while (list && (name = strsep(&list, ","))) {
		if (!name[0] || warm->target_count == WARM_TARGETS)
			return cli_usage("--target: expected 1 to %d names with ',' between: sm_80,sm_90,cpu",
							 WARM_TARGETS);
		for (int i = 0; i < warm->target_count; i++)
			if (!strcmp(warm->targets[i], name))
				return cli_usage("--target: %s is there twice", name);
		warm->targets[warm->target_count++] = name;
	}
	return CLI_OK;
}

static int warm_read_options(struct warm *warm, char *targets, char absolute[PATH_MAX],
							 int64_t *limit)
{
	const struct cli *cli = warm->cli;
	const char *most = cli_value(cli, "limit"), *compiler = cli_value(cli, "compiler");
	bool used = !cli->positional_count && !cli_value(cli, "generic");

	if (read_targets(warm, targets))
		return CLI_USAGE;
	if (compiler && access(compiler, F_OK) != 0)
		return cli_usage("--compiler '%s': %s", compiler, strerror(errno));
	if (compiler && cli_path("--compiler", compiler, absolute))
		return CLI_USAGE;
	warm->compiler = compiler ? absolute : NULL;
	if (cli->positional_count && cli_value(cli, "generic"))
		return cli_usage("warm: either a manifest or --generic");
	if (used && !warm->compiler)
		return cli_usage("warm: which kernels? a MANIFEST, --generic, or --compiler for those "
						 "of the cache");
	if (most && !used)
		return cli_usage("--limit goes with --compiler and no manifest");
	return most ? cli_integer("--limit", most, 1, 10000, limit) : CLI_OK;
}

/* ---- What is said in the end ---- */

/* Sorts failures by line, in the order of the manifest. */
static int by_place(const void *a, const void *b)
{
	const struct warm_failure *x = a, *y = b;

	if (x->line != y->line)
		return x->line < y->line ? -1 : 1;
	return x->target < y->target ? -1 : x->target > y->target;
}

static void print_failure(const struct warm *warm, const struct warm_failure *failure, int same)
{
	const struct warm_line *line = &warm->lines[failure->line];
	char what[128];

	if (line->number)
		snprintf(what, sizeof(what), "'%.60s', line %d", warm->path, line->number);
	else
		snprintf(what, sizeof(what), "%.100s", line->text);
	fprintf(stderr, "kiln: warm: %s", what);
	/* A sentence for all targets is about the line. */
	for (int i = 0; i < same && warm->target_count && (same == 1 || same < warm->target_count); i++)
		fprintf(stderr, "%s%s", i ? ", " : ", for ", warm->targets[failure[i].target]);
	fprintf(stderr, ": %s\n", failure->error);
}

static void print_failures(const struct warm *warm)
{
	int shown = 0, at = 0;

	if (warm->failure_count)
		qsort(warm->failures, (size_t)warm->failure_count, sizeof(*warm->failures), by_place);
	for (; at < warm->failure_count && shown < FAILURES_SHOWN; shown++) {
		const struct warm_failure *failure = &warm->failures[at];
		int same = 1; /* failures of one line with one sentence */
		while (at + same < warm->failure_count && failure[same].line == failure->line &&
			   !strcmp(failure[same].error, failure->error))
			same++;
		print_failure(warm, failure, same);
		at += same;
	}
	if (warm->failed > at)
		fprintf(stderr, "kiln: warm: and %" PRId64 " more\n", warm->failed - at);
}

static void warm_print_json(const struct warm *warm)
{
	json_begin();
	json_int("problems", warm->line_count);
	json_int("kernels", warm_all(warm));
	json_int("hits", warm->hits);
	json_int("compiled", warm->compiled);
	json_int("copies", warm->copies);
	json_int("skipped", warm->skipped);
	json_int("failed", warm->failed);
	json_real("seconds", warm->seconds);
	json_list_begin("failures");
	for (int i = 0; i < warm->failure_count; i++) {
		const struct warm_failure *failure = &warm->failures[i];
		json_item_begin();
		json_int("line", warm->lines[failure->line].number);
		json_string("text", warm->lines[failure->line].text);
		json_string("target", warm->target_count ? warm->targets[failure->target] : "");
		json_string("error", kiln_status_name(failure->status));
		json_string("message", failure->error);
		json_item_end();
	}
	json_list_end();
	json_end();
}

static void print_done(const struct warm *warm)
{
	char took[FIGURE_MAX];

	printf("warmed %" PRId64 " of %" PRId64 ": %" PRId64 " were there, %" PRId64 " compiled",
		   warm_all(warm) - warm->failed, warm_all(warm), warm->hits, warm->compiled);
	if (warm->copies)
		printf(", %" PRId64 " need no kernel", warm->copies);
	if (warm->skipped)
		printf(", %" PRId64 " are for another kind of target", warm->skipped);
	printf(", in %s\n", figure_micros(warm->seconds * 1e6, took));
}

/* ---- The command ---- */

/* A failure that is no line's fault is said once. */
static int check_targets(struct warm *warm, kiln_client *client)
{
	for (int i = 0; i < warm->target_count; i++) {
		kiln_attr arg = cli_attr_string("target", warm->targets[i]);
		kiln_reply *reply;
		int status = kiln_request(client, "warm", &arg, 1, &reply);
		if (status)
			return cli_failed(warm->cli, status, "warm --target");
		kiln_reply_free(reply);
	}
	return CLI_OK;
}

static int run_warm(struct warm *warm, int64_t limit)
{
	kiln_client *client;
	int status = warm->path ? read_manifest(warm) : CLI_OK;

	if (status)
		return status;
	if (cli_connect(warm->cli, &client))
		return CLI_FAILED;
	status = check_targets(warm, client);
	if (!status && cli_value(warm->cli, "generic"))
		status = list_generic(warm, client);
	else if (!status && !warm->path)
		status = list_used(warm, client, limit);
	if (!status)
		status = warm_run(warm, client);
	kiln_close(client);
	print_failures(warm);
	if (status)
		return status;
	if (warm->cli->json)
		warm_print_json(warm);
	else
		print_done(warm);
	return warm->failed ? CLI_FAILED : CLI_OK;
}

static int cli_warm(struct cli *cli)
{
	struct warm warm = {.cli = cli, .path = cli->positional[0]};
	const char *targets = cli_value(cli, "target");
	char *list = targets ? strdup(targets) : NULL, absolute[PATH_MAX];
	int64_t limit = 1000;
	int status = warm_read_options(&warm, list, absolute, &limit);

	if (!cli->timeout_ms)
		cli->timeout_ms = DEADLINE_WARM_MS;
	cli->connect_flags = KILN_CONNECT_BACKGROUND;
	if (!status)
		status = run_warm(&warm, limit);
	for (int i = 0; i < warm.line_count; i++)
		free(warm.lines[i].text);
	free(warm.lines);
	free(warm.failures);
	free(list);
	return status;
}

/* ---- The command ---- */

static const struct cli_option warm_options[] = {
	{"target", "LIST", "for these targets: sm_80,sm_90,cpu (the device's)"},
	{"generic", NULL, "the shipped generic kernels, instead of a manifest"},
	{"compiler", "PATH",
	 "by this libnvrtc, its directory, or C++ compiler, which the host will use"},
	{"limit", "N", "without a manifest: the N kernels of the cache used most (1000)"},
	{0},
};

static const struct cli_example warm_examples[] = {
	{"kiln warm model.jsonl --target sm_80,sm_90", "for two kinds of GPU, before the model starts"},
	{"kiln warm --generic", "the generic kernels of all operators"},
	{0}};

const struct cli_command command_warm = {
	"warm", cli_warm,     "[MANIFEST]",  "compile what a manifest lists into the cache",
	{0, 1}, warm_options, CLI_ON_DEVICE, .examples = warm_examples};
