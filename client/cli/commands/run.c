/*
 * run.c: 'kiln run' and 'kiln run map': runs an operator on random data or on files, verifies every
 * output against the operator's reference, and times it.
 */
#include "run.h"
#include "client/cli/check_daemon.h"
#include "client/cli/daemon.h"
#include "client/cli/deadlines.h"
#include "client/cli/failure.h"
#include "client/cli/files.h"
#include "client/cli/map_problem.h"
#include "client/cli/nearest.h"
#include "client/cli/problem.h"
#include "client/cli/timing.h"
#include "client/cli/values.h"
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WARM_CALLS 5 /* or fewer, if they take WARM_US */
#define WARM_US 2e6
#define LONG_BYTES (64ull << 20) /* from so many bytes on, steps are announced */

/* ---- Running ---- */

/* Announces a step that takes long, on a terminal. */
static void tell(const struct run *run, const char *what)
{
	if (run->bytes >= LONG_BYTES && isatty(STDERR_FILENO))
		fprintf(stderr, "kiln: run: %s\n", what);
}

static int call_once(struct run *run, double *took, double *device)
{
	kiln_operand operands[KILN_MAX_OPERANDS];
	kiln_ticket ticket;
	char what[64];
	double start;
	int status;

	for (int i = 0; i < run->check.count; i++)
		operands[i] = (kiln_operand){run->buffers[i], run->problem.tensors[i].offset};
	start = time_us();
	status = kiln_submit(run->call, operands, run->check.count, 0, &ticket);
	if (!status)
		status = kiln_wait_time(run->client, ticket, run->timeout_ms, device);
	*took = time_us() - start;
	snprintf(what, sizeof(what), "run %.40s", run->problem.op);
	return status ? cli_failed_wait(run->cli, status, run->timeout_ms, what) : CLI_OK;
}

static int warm_calls(struct run *run)
{
	double *took = calloc((size_t)run->warm_calls, sizeof(*took)), device = 0, start = time_us();
	int status = took ? CLI_OK : CLI_FAILED;

	if (status)
		fputs("kiln: run: no memory for the times\n", stderr);
	for (int64_t i = 0; !status && i < run->warm_calls; i++) {
		status = call_once(run, &took[i], &device);
		run->device_us += device;
		if (run->enough_us > 0 && time_us() - start > run->enough_us)
			run->warm_calls = i + 1;
	}
	if (!status) {
		run->device_us /= (double)run->warm_calls;
		time_sort(took, run->warm_calls);
		run->warm_us = took[run->warm_calls / 2];
		run->best_us = took[0];
	}
	free(took);
	return status;
}

/* ---- Results ---- */

static int verify(struct run *run)
{
	int status = run_read_results(run);

	if (status)
		return status;
	run->check.verified = 0;
	check_results(&run->check);
	return run->check.wrong ? CLI_FAILED : CLI_OK;
}

/* Reads how many calls of the daemon have changed over to an exact kernel. */
static int read_promoted(struct run *run, int64_t *promoted)
{
	kiln_reply *reply;
	int status = kiln_request(run->client, "info", NULL, 0, &reply);

	if (status)
		return cli_failed(run->cli, status, "run %s", run->problem.op);
	*promoted = kiln_reply_int(reply, "counters.promoted");
	kiln_reply_free(reply);
	return CLI_OK;
}

/* An exact kernel that took over may give other bits than the first call: they are right, and the
 * next call gives the same. */
static int verify_exact(struct run *run, struct run_difference *difference)
{
	double took, device;
	int status = verify(run);

	if (!status)
		status = run_poison(run);
	if (!status)
		status = call_once(run, &took, &device);
	return status ? status : run_compare(run, difference);
}

/* Does the call ask for sums in any order? */
static bool is_any_order(const struct run *run)
{
	for (int i = 0; i < run->problem.attr_count; i++)
		if (strcmp(run->problem.attrs[i].name, "deterministic") == 0)
			return run->problem.attrs[i].i == 0;
	return false;
}

/* Compares the outputs of the last call with those of the first, bit for bit. */
static int verify_later_calls(struct run *run)
{
	struct run_difference difference;
	int64_t promoted;
	int status = run_compare(run, &difference);

	if (status || !difference.name)
		return status;
	if (is_any_order(run)) {
		run->any_order = true;
		return verify(run);
	}
	status = read_promoted(run, &promoted);
	run->kernel_changed = !status && promoted != run->promoted;
	if (run->kernel_changed)
		status = verify_exact(run, &difference);
	if (!status && difference.name) {
		fprintf(stderr,
				"kiln: run %s: wrong result: results differ from call to call: element %" PRIu64
				" of %s has other bits in a later one\n",
				run->problem.op, difference.element, difference.name);
		status = CLI_FAILED;
	}
	return status;
}

static int write_files(struct run *run)
{
	int status = CLI_OK;

	for (int i = 0; !status && i < run->check.count; i++) {
		const struct check_operand *operand = &run->check.operands[i];
		const struct file *file = files_out(&run->files, operand->name);
		if (file)
			status = files_write(run->cli, file, &operand->tensor, operand->data);
	}
	return status;
}

/* ---- The command ---- */

typedef int describe_function(const struct cli *cli, struct files *files,
							  struct cli_problem *problem);

static int run_read_options(struct cli *cli, describe_function *describe, struct run *run)
{
	const char *seed = cli_value(cli, "seed"), *calls = cli_value(cli, "time");
	int status;

	run->seed = 1;
	run->timeout_ms = cli->timeout_ms ? cli->timeout_ms : DEADLINE_CLI_MS;
	run->warm_calls = calls ? TIME_CALLS : cli_value(cli, "check") ? 1 : WARM_CALLS;
	run->enough_us = !calls ? WARM_US : calls[0] ? 0 : TIME_ENOUGH_US;
	status = files_read(cli, &run->files);
	if (!status)
		status = describe(cli, &run->files, &run->problem);
	if (!status && seed)
		status = cli_integer("--seed", seed, 0, INT64_MAX, &run->seed);
	if (!status && calls && calls[0])
		status = cli_integer("--time", calls, 1, 1000000, &run->warm_calls);
	return status ? status : run_take_operands(run);
}

static int run_problem(struct run *run)
{
	const struct cli_problem *problem = &run->problem;
	double device, start = time_us();
	int status = kiln_prepare(run->client, problem->op, problem->tensors, problem->tensor_count,
							  problem->attrs, problem->attr_count, &run->call);

	run->prepare_us = time_us() - start;
	if (status)
		return cli_failed(run->cli, status, "run %s", problem->op);
	tell(run, "making the data, and calling");
	status = run_make_data(run);
	if (!status)
		status = run_make_buffers(run);
	if (!status)
		status = read_promoted(run, &run->promoted);
	if (!status)
		status = call_once(run, &run->first_us, &device);
	run->first_us += run->prepare_us;
	if (!status) {
		tell(run, "verifying by plain loops");
		status = verify(run);
	}
	if (!status) {
		tell(run, "calling again, for the times");
		status = run_poison(run);
	}
	if (!status)
		status = warm_calls(run);
	if (!status)
		status = verify_later_calls(run);
	return status ? status : write_files(run);
}

static int run_described(struct cli *cli, describe_function *describe)
{
	struct run run = {.cli = cli};
	int status = run_read_options(cli, describe, &run);

	if (!status)
		status = cli_connect(cli, &run.client);
	if (!status)
		status = trace_begin(cli, run.client, &run.trace);
	if (!status)
		status = trace_end(cli, run.client, &run.trace, run_problem(&run));
	if (!status && cli->json)
		run_print_json(&run);
	else if (!status)
		run_print_report(&run, cli_value(cli, "time") != NULL);
	/* The end of the connection frees all in the daemon, which may answer nothing any more. */
	kiln_close(run.client);
	kiln_call_free(run.call);
	for (int i = 0; i < run.check.count; i++) {
		kiln_free(run.buffers[i]);
		free(run.check.operands[i].data);
	}
	files_free(&run.files);
	return status;
}

static int refuse_operator(const char *name)
{
	struct nearest nearest = nearest_to(name, strlen(name));
	char meant[NEAREST_WORDS_MAX];
	for (const struct plan_op *row = plan_op_next(NULL); row; row = plan_op_next(row))
		if (!row->names)
			nearest_try(&nearest, row->name);
	return cli_usage("run '%s': there is no operator of that name%s; 'kiln ops' lists those there "
					 "are",
					 name, nearest_words(&nearest, "", meant));
}

static int cli_run(struct cli *cli)
{
	if (!strcmp(cli->positional[0], "raw"))
		return cli_usage("run: 'raw' comes right after 'run', and options after it; see 'kiln help "
						 "run raw'");
	if (!cli_operator(cli->positional[0]))
		return refuse_operator(cli->positional[0]);
	return run_described(cli, cli_problem);
}

static int cli_run_map(struct cli *cli)
{
	return run_described(cli, cli_map_problem);
}

/* ---- The commands ---- */

#define RUN_OPTIONS                                                                           \
	{"in", "NAME=FILE", "the operand comes from a .npy file; shape and type, too", CLI_MANY}, \
		{"out", "NAME=FILE", "the operand that is written goes to a .npy file", CLI_MANY},    \
		{"seed", "N", "seed of the random data (1)"},                                         \
		{"time", "[N]", "time N warm calls (100, or what 10 s allow)"}, TRACE_OPTION,         \
		CLI_CHECK_OPTIONS

static const struct cli_option run_options[] = {
	RUN_OPTIONS,
	{0},
};

static const struct cli_option map_options[] = {
	MAP_OPTIONS,
	RUN_OPTIONS,
	{0},
};

static const struct cli_example run_examples[] = {
	{"kiln run softmax --shape 1024x4096 --time", "run, verify and time it"},
	{"kiln run permute --shape 300x500x7 --perm 2,0,1 --dtype f16", "halves, and another order"},
	{"kiln run softmax --shape 64x1000 --trace first.pftrace", "where the time of it goes"},
	{"kiln run layer_norm --in x=x.npy --out y=y.npy", "of a file of NumPy, into another"},
	{0}};

const struct cli_command command_run = {
	"run",
	cli_run,
	"OP",
	"run on random data or files, and verify against plain loops",
	{1, 1},
	run_options,
	CLI_ON_DEVICE,
	cli_problem_options,
	.examples = run_examples};

static const struct cli_example run_map_examples[] = {
	{"kiln run map 'y[i,j] = x[i,j] * s + b[j]' --shape x=8x16 --set s=2.5",
	 "an elementwise statement"},
	{"kiln run map 'y[i] = sum[j](x[i,j] * w[j])' --shape x=64x1000", "a reduction"},
	{0}};

const struct cli_command command_run_map = {
	"run map",     cli_run_map,
	"STATEMENT",   "run 'y[i] = x[i] * s' on random data or files, verified",
	{1, 1},        map_options,
	CLI_ON_DEVICE, .examples = run_map_examples};
