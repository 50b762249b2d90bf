/*
 * raw.c: 'kiln run raw': compiles a kernel of the user's own, launches it once, writes its outputs
 * to files, and with --time times it beside a copy of as many bytes.
 */
#include "raw.h"
#include "client/cli/check_daemon.h"
#include "client/cli/daemon.h"
#include "client/cli/failure.h"
#include "client/cli/files.h"
#include "client/cli/timing.h"
#include "client/wire/plain.h"
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((size_t)1 << 20)

/* ---- Memory ---- */

static int make_buffers(struct raw_run *run)
{
	for (int i = 0; i < run->launch.arg_count; i++) {
		struct raw_arg *arg = &run->args[i];
		kiln_raw_arg *launch = &run->launch_args[i];
		int status;
		if (!arg->access) {
			*launch = (kiln_raw_arg){.value = arg->value, .bytes = kiln_dtype_size(arg->dtype)};
			continue;
		}
		status = kiln_alloc(run->client, arg->array.bytes, 0, arg->text, &arg->buffer);
		if (!status && arg->access & KILN_READ && arg->array.bytes)
			status = kiln_write(arg->buffer, 0, arg->array.data, arg->array.bytes);
		if (status)
			return cli_failed(run->cli, status, "run raw: memory for --%s '%s'", arg->option,
							  arg->text);
		*launch =
			(kiln_raw_arg){.buffer = arg->buffer, .bytes = arg->array.bytes, .access = arg->access};
		run->bytes += arg->array.bytes * (arg->access == (KILN_READ | KILN_WRITE) ? 2 : 1);
	}
	run->launch.args = run->launch_args;
	return CLI_OK;
}

static int write_files(struct raw_run *run)
{
	int status = CLI_OK;

	for (int i = 0; !status && i < run->launch.arg_count; i++) {
		struct raw_arg *arg = &run->args[i];
		if (!arg->path)
			continue;
		if (arg->array.bytes)
			status = kiln_read(arg->buffer, 0, arg->array.data, arg->array.bytes);
		if (status)
			return cli_failed(run->cli, status, "run raw: reading %s", arg->path);
		status = files_store(run->cli, arg->path, &arg->array);
	}
	return status;
}

/* ---- Calls ---- */

/* The work to time: the kernel, or a copy. */
struct work {
	struct raw_run *run;
	kiln_call *copy; /* NULL: the kernel */
	kiln_operand operands[2];
};

static int call_once(const struct work *work, double *took, double *device)
{
	struct raw_run *run = work->run;
	double start = time_us();
	kiln_ticket ticket;
	int status = work->copy ? kiln_submit(work->copy, work->operands, 2, 0, &ticket)
							: kiln_submit_raw(run->call, &run->launch, 0, &ticket);

	if (!status)
		status = kiln_wait_time(run->client, ticket, run->wait_ms, device);
	*took = time_us() - start;
	return status ? cli_failed_wait(run->cli, status, run->wait_ms,
									work->copy ? "run raw: copying" : "run raw")
				  : CLI_OK;
}

/* Takes the medians, and the best. */
static int call_often(const struct work *work, double *middle, double *best, double *device)
{
	struct raw_run *run = work->run;
	int64_t calls = run->calls, count = 0;
	double *times = calloc((size_t)calls * 2, sizeof(*times)), start = time_us();
	int status = times ? CLI_OK : CLI_FAILED;

	if (!times)
		fputs("kiln: run raw: no memory for the times\n", stderr);
	while (!status && count < calls &&
		   !(count && run->enough_us > 0 && time_us() - start > run->enough_us)) {
		status = call_once(work, &times[count], &times[calls + count]);
		count++;
	}
	if (!status) {
		time_sort(times, count);
		time_sort(times + calls, count);
		*middle = times[count / 2];
		*best = times[0];
		*device = times[calls + count / 2];
		if (!work->copy)
			run->calls = count;
	}
	free(times);
	return status;
}

/* ---- The copy ---- */

/* The kernel need not have written its memory. */
static int fill_user_kernel(kiln_buffer *buffer, uint64_t bytes)
{
	uint8_t *piece = malloc(PIECE_BYTES);
	int status = piece ? KILN_OK : KILN_ENOMEM;

	if (piece)
		memset(piece, 90, PIECE_BYTES);
	for (uint64_t at = 0; !status && at < bytes; at += PIECE_BYTES)
		status = kiln_write(buffer, at, piece, bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES);
	free(piece);
	return status;
}

static int time_copy(struct raw_run *run)
{
	kiln_tensor tensor = {.dtype = KILN_U8, .rank = 1, .contiguous = 1};
	kiln_tensor tensors[2];
	kiln_attr perm = {.name = "perm", .kind = KILN_ATTR_INTS, .ints = (int64_t[]){0}, .count = 1};
	struct work work = {.run = run};
	uint64_t bytes = run->bytes / 2;
	double first, unused;
	int status = KILN_OK;

	tensor.shape[0] = (int64_t)bytes;
	tensors[0] = tensors[1] = tensor;
	for (int i = 0; !status && i < 2; i++)
		status = kiln_alloc(run->client, bytes, 0, "copy", &work.operands[i].buffer);
	if (!status)
		status = fill_user_kernel(work.operands[0].buffer, bytes);
	if (!status)
		status = kiln_prepare(run->client, "permute", tensors, 2, &perm, 1, &work.copy);
	if (status)
		status = cli_failed(run->cli, status, "run raw: preparing the copy");
	if (!status)
		status = call_once(&work, &first, &unused);
	if (!status)
		status = call_often(&work, &run->copy_us, &unused, &run->copy_device_us);
	kiln_call_free(work.copy);
	kiln_free(work.operands[0].buffer);
	kiln_free(work.operands[1].buffer);
	return status;
}

/* ---- The command ---- */

/* Shows what the kernel has printed; as JSON it is a member of the report. */
static void show_printed(struct raw_run *run)
{
	const char *text = kiln_printed(run->client, &run->cut);
	size_t size = text ? strlen(text) : 0;
	char *shown = run->cli->json ? NULL : plain_copy(text ? text : "", size, PLAIN_TEXT);

	run->printed = text ? text : "";
	if (shown)
		fputs(shown, stdout);
	free(shown);
	if (!run->cli->json && run->cut)
		printf("%s(%" PRIu64 " bytes more were printed and are not kept)\n",
			   size && text[size - 1] != '\n' ? "\n" : "", run->cut);
}

static int raw_launch(struct raw_run *run)
{
	struct work kernel = {.run = run};
	double unused, start = time_us();
	int status = kiln_prepare_raw(run->client, &run->raw, &run->call);

	run->prepare_us = time_us() - start;
	if (status)
		return cli_failed(run->cli, status, "run raw");
	status = make_buffers(run);
	if (!status)
		status = call_once(&kernel, &run->first_us, &unused);
	show_printed(run);
	run->first_us += run->prepare_us;
	if (!status)
		status = write_files(run);
	if (!status && run->calls)
		status = call_often(&kernel, &run->warm_us, &run->best_us, &run->device_us);
	return !status && run->calls && run->bytes > 1 ? time_copy(run) : status;
}

static int cli_run_raw(struct cli *cli)
{
	struct raw_run *run = calloc(1, sizeof(*run));
	int status;

	if (!run) {
		fputs("kiln: run raw: no memory\n", stderr);
		return CLI_FAILED;
	}
	status = raw_read(cli, run);
	if (!status)
		status = cli_connect(cli, &run->client);
	if (!status)
		status = trace_begin(cli, run->client, &run->trace);
	if (!status)
		status = trace_end(cli, run->client, &run->trace, raw_launch(run));
	if (!status && cli->json)
		raw_print_json(run);
	else if (!status)
		raw_print_report(run);
	/* As for an operator: nothing is asked of a daemon that may not answer. */
	kiln_close(run->client);
	kiln_call_free(run->call);
	for (int i = 0; i < run->launch.arg_count; i++)
		kiln_free(run->args[i].buffer);
	raw_forget(run);
	free(run);
	return status;
}

/* ---- The command ---- */

static const struct cli_option raw_options[] = {
	RAW_OPTIONS,
	{"grid", "X[,Y[,Z]]", "blocks; also 16x16"},
	{"block", "X[,Y[,Z]]", "threads of a block"},
	{"shared", "BYTES", "dynamic shared memory of a block (0)"},
	{"in", "FILE", "argument: memory that the kernel reads, from a .npy file", CLI_MANY},
	{"inout", "FILE=FILE", "argument: the same, and where it goes afterwards", CLI_MANY},
	{"out", "FILE:TYPE:SHAPE", "argument: zeros that it writes, and where they go", CLI_MANY},
	{"random", "TYPE:SHAPE", "argument: memory with random values: f32:1024x1024", CLI_MANY},
	{"scalar", "TYPE:VALUE", "argument: a number by value: f32:2.5, i64:1000", CLI_MANY},
	{"seed", "N", "seed of the random values (1)"},
	{"time", "[N]", "time N more calls (100, or what 10 s allow), and a copy of as many bytes"},
	TRACE_OPTION,
	CLI_CHECK_OPTIONS,
	{0},
};

static const struct cli_example run_raw_examples[] = {
	{"kiln run raw scale.cu --grid 4 --block 256 --random f32:1024 --scalar f32:2.5",
	 "memory and a number as arguments"},
	{"kiln run raw scale.cu --entry 'scale<float, 4>' --grid 4 --block 256 --out y.npy:f32:1024",
	 "an instantiation of a template"},
	{0}};

const struct cli_command command_run_raw = {
	"run raw", cli_run_raw, "FILE.cu",     "run a kernel of your own; -: standard input",
	{1, 1},    raw_options, CLI_ON_DEVICE, .examples = run_raw_examples};
