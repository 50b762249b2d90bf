/*
 * raw_args.c: reads the command line of 'kiln run raw' into a source and a launch.  Options that
 * stand for an argument of the kernel come in the kernel's order.
 */
#include "client/cli/data.h"
#include "client/cli/deadlines.h"
#include "client/cli/failure.h"
#include "client/cli/files.h"
#include "client/cli/timing.h"
#include "client/cli/values.h"
#include "raw.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MOST ((size_t)16 << 20) /* bytes of a source or header; the library takes no more */

/* ---- Source and headers ---- */

/* Reads a file; raw_forget() frees the text.  "-" is standard input. */
static int read_text(struct raw_run *run, const char *path, const char **text, size_t *bytes)
{
	bool standard = !strcmp(path, "-");
	FILE *file = standard ? stdin : fopen(path, "rb");
	char *space = malloc(TEXT_MOST + 2);
	int error = space ? 0 : ENOMEM;

	if (!file)
		error = errno;
	*bytes = error ? 0 : fread(space, 1, TEXT_MOST + 1, file);
	if (!error && ferror(file))
		error = errno;
	if (file && !standard)
		fclose(file);
	run->texts[run->text_count] = space;
	run->text_count += space != NULL;
	if (error)
		return cli_failed_here(run->cli, KILN_EIO, "%s: %s cannot be read: %s",
							   run->cli->command->name, standard ? "standard input" : path,
							   strerror(error));
	if (*bytes > TEXT_MOST)
		return cli_failed_here(run->cli, KILN_ELIMIT, "%s: %s has over %zu bytes",
							   run->cli->command->name, standard ? "standard input" : path,
							   TEXT_MOST);
	space[*bytes] = 0;
	*text = space;
	return CLI_OK;
}

/* Copies a text; raw_forget() frees the copy. */
static char *copy_text(struct raw_run *run, const char *text, size_t length)
{
	char *copy = strndup(text, length);

	if (!copy)
		fprintf(stderr, "kiln: %s: no memory for the command line\n", run->cli->command->name);
	run->texts[run->text_count] = copy;
	run->text_count += copy != NULL;
	return copy;
}

static int read_source(struct raw_run *run, const char *path)
{
	kiln_raw *raw = &run->raw;

	raw->size = sizeof(*raw);
	raw->name = strcmp(path, "-") ? path : "<stdin>";
	raw->entry = cli_value(run->cli, "entry");
	if (!raw->entry)
		return cli_usage("'kiln %s' needs --entry, as --entry 'scale<float>'",
						 run->cli->command->name);
	return read_text(run, path, &raw->source, &raw->source_bytes);
}

/* Reads FILE, which the source includes by the name behind its last '/', or NAME=FILE. */
static int read_include(struct raw_run *run, const char *text)
{
	kiln_text *header = &run->headers[run->raw.header_count++];
	const char *equals = strchr(text, '='), *path = equals ? equals + 1 : text;
	const char *slash = strrchr(path, '/');

	header->name = equals  ? copy_text(run, text, (size_t)(equals - text))
				   : slash ? slash + 1
						   : path;
	return header->name ? read_text(run, path, &header->text, &header->bytes) : CLI_FAILED;
}

/* ---- Arguments ---- */

/* Reads "f32:1024x1024" from text + at on. */
static int read_array(const struct raw_arg *arg, const char *spec, struct npy *array)
{
	size_t length = strcspn(spec, ":");
	char option[16], type[16];
	int64_t bytes;
	int status;

	snprintf(option, sizeof(option), "--%s", arg->option);
	snprintf(type, sizeof(type), "%.*s", (int)(length < 15 ? length : 15), spec);
	status = cli_dtype(option, type, &array->dtype);
	if (!status)
		status = cli_dims(option, spec + length + 1, array->shape, &array->rank);
	bytes = (int64_t)kiln_dtype_size(array->dtype);
	for (int k = 0; !status && k < array->rank; k++)
		if (__builtin_mul_overflow(bytes, array->shape[k], &bytes))
			return cli_usage("%s '%s': more bytes than an address can name", option, arg->text);
	array->bytes = (uint64_t)bytes;
	array->data = status ? NULL : calloc(bytes ? (size_t)bytes : 1, 1);
	if (!status && !array->data) {
		fprintf(stderr, "kiln: run raw: no memory for %s '%s'\n", option, arg->text);
		return CLI_FAILED;
	}
	return status;
}

/* Reads FILE:TYPE:SHAPE; FILE may have ':' in it. */
static int read_out(struct raw_run *run, struct raw_arg *arg)
{
	const char *last = strrchr(arg->text, ':'), *type = last;

	while (type && type > arg->text && *--type != ':')
		;
	if (!last || type == arg->text)
		return cli_usage("--out '%s': expected FILE:TYPE:SHAPE, as y.npy:f32:1024x1024", arg->text);
	arg->access = KILN_WRITE;
	arg->path = copy_text(run, arg->text, (size_t)(type - arg->text));
	return arg->path ? read_array(arg, type + 1, &arg->array) : CLI_FAILED;
}

static int read_inout(struct raw_run *run, struct raw_arg *arg)
{
	const char *equals = strchr(arg->text, '=');
	char *from;

	if (!equals || equals == arg->text || !equals[1])
		return cli_usage("--inout '%s': expected FILE=FILE: where it comes from, and goes to",
						 arg->text);
	arg->access = KILN_READ | KILN_WRITE;
	from = copy_text(run, arg->text, (size_t)(equals - arg->text));
	arg->path = copy_text(run, equals + 1, strlen(equals + 1));
	return from && arg->path ? files_load(run->cli, from, &arg->array) : CLI_FAILED;
}

static int read_random(const struct raw_run *run, struct raw_arg *arg)
{
	int status;

	if (!strchr(arg->text, ':'))
		return cli_usage("--random '%s': expected TYPE:SHAPE, as f32:1024x1024", arg->text);
	arg->access = KILN_READ;
	status = read_array(arg, arg->text, &arg->array);
	if (!status)
		data_random(arg->array.dtype, arg->array.data, arg->array.bytes,
					(uint64_t)run->seed + (uint64_t)run->launch.arg_count);
	return status;
}

static int read_arg(struct raw_run *run, const struct cli_given *given)
{
	struct raw_arg *arg = &run->args[run->launch.arg_count];

	if (run->launch.arg_count == KILN_MAX_RAW_ARGS)
		return cli_usage("--%s '%s': more than %d arguments", given->option, given->value,
						 KILN_MAX_RAW_ARGS);
	run->launch.arg_count++;
	arg->option = given->option;
	arg->text = given->value;
	if (!strcmp(arg->option, "scalar"))
		return cli_scalar("--scalar", arg->text, &arg->dtype, arg->value);
	if (!strcmp(arg->option, "random"))
		return read_random(run, arg);
	if (!strcmp(arg->option, "inout"))
		return read_inout(run, arg);
	if (!strcmp(arg->option, "out"))
		return read_out(run, arg);
	arg->access = KILN_READ;
	return files_load(run->cli, arg->text, &arg->array);
}

/* Reads all options that may come more than once, each kind in its order. */
static int read_given(struct raw_run *run)
{
	int status = CLI_OK;

	for (int i = 0; !status && i < run->cli->given_count; i++) {
		const struct cli_given *given = &run->cli->given[i];
		if (!strcmp(given->option, "include"))
			status = read_include(run, given->value);
		else if (!strcmp(given->option, "macro")) {
			kiln_text *macro = &run->macros[run->raw.macro_count++];
			size_t length = strcspn(given->value, "=");
			macro->name = copy_text(run, given->value, length);
			macro->text = given->value[length] ? given->value + length + 1 : NULL;
			status = macro->name ? CLI_OK : CLI_FAILED;
		} else if (!strcmp(given->option, "option"))
			run->options[run->raw.option_count++] = given->value;
		else if (!strcmp(given->option, CLI_FOLDER))
			run->folders[run->raw.folder_count++] = given->value;
		else
			status = read_arg(run, given);
	}
	run->raw.headers = run->headers;
	run->raw.macros = run->macros;
	run->raw.options = run->options;
	run->raw.folders = run->folders;
	/* One file serves one argument. */
	for (int i = 0; !status && i < run->launch.arg_count; i++)
		for (int j = 0; run->args[i].path && j < i; j++)
			if (run->args[j].path && !strcmp(run->args[i].path, run->args[j].path))
				return cli_usage("--%s '%s': argument %d goes to %s, too", run->args[i].option,
								 run->args[i].text, j, run->args[j].path);
	return status;
}

/* ---- The launch ---- */

static int read_sizes(const struct raw_run *run, const char *option, uint32_t sizes[3])
{
	const char *text = cli_value(run->cli, option);
	int64_t values[KILN_MAX_RANK];
	char name[16];
	int count, status;

	if (!text)
		return cli_usage("'kiln run raw' needs --%s, as --%s 64 or --%s 16x16", option, option,
						 option);
	snprintf(name, sizeof(name), "--%s", option);
	status = cli_dims(name, text, values, &count);
	for (int k = 0; k < 3; k++)
		sizes[k] = 1;
	for (int k = 0; !status && k < count; k++)
		if (count > 3 || values[k] < 1 || values[k] > INT32_MAX)
			count = 0;
		else
			sizes[k] = (uint32_t)values[k];
	if (!status && !count)
		return cli_usage("%s '%s': expected one to three sizes from 1 to %d, as 64 or 16x16", name,
						 text, INT32_MAX);
	return status;
}

static int read_launch(struct raw_run *run)
{
	const char *shared = cli_value(run->cli, "shared"), *calls = cli_value(run->cli, "time");
	const char *seed = cli_value(run->cli, "seed");
	int timeout = run->cli->timeout_ms ? run->cli->timeout_ms : DEADLINE_CLI_MS;
	int patience = cli_value(run->cli, "check") ? DEADLINE_CHECK_TIMES : 1;
	uint64_t bytes = 0;
	int status = read_sizes(run, "grid", run->launch.grid);

	if (!status)
		status = read_sizes(run, "block", run->launch.block);
	if (!status && shared)
		status = cli_bytes("--shared", shared, &bytes);
	if (bytes > INT32_MAX)
		return cli_usage("--shared '%s': a block has at most %d bytes", shared, INT32_MAX);
	run->launch.shared_bytes = (uint32_t)bytes;
	run->calls = calls ? TIME_CALLS : 0;
	run->enough_us = calls && !calls[0] ? TIME_ENOUGH_US : 0;
	run->seed = 1;
	if (!status && calls && calls[0])
		status = cli_integer("--time", calls, 1, 1000000, &run->calls);
	if (!status && seed)
		status = cli_integer("--seed", seed, 0, INT64_MAX, &run->seed);
	run->launch.size = sizeof(run->launch);
	run->launch.timeout_ms = timeout > patience ? timeout / patience : 1;
	if (__builtin_add_overflow(timeout, DEADLINE_RAW_ANSWER_MS, &run->wait_ms))
		run->wait_ms = INT32_MAX;
	return status;
}

int raw_read_kernel(struct cli *cli, struct raw_run *run)
{
	int status;

	run->cli = cli;
	status = read_source(run, cli->positional[0]);
	return status ? status : read_given(run);
}

int raw_read(struct cli *cli, struct raw_run *run)
{
	int status;

	run->cli = cli;
	status = read_launch(run);
	return status ? status : raw_read_kernel(cli, run);
}

void raw_forget(struct raw_run *run)
{
	for (int i = 0; i < run->launch.arg_count; i++)
		free(run->args[i].array.data);
	for (int i = 0; i < run->text_count; i++)
		free(run->texts[i]);
}
