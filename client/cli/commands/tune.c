/*
 * tune.c: 'kiln tune': times the planner's candidates for a problem on the device, and has the
 * daemon keep the winner for all problems of that class.  The planner's own choice stays unless
 * another one is faster by more than MARGIN, and by more than its times vary from round to round.
 */
#include "tune.h"
#include "client/cli/daemon.h"
#include "client/cli/deadlines.h"
#include "client/cli/failure.h"
#include "client/cli/interrupt.h"
#include "client/cli/json.h"
#include "client/cli/member.h"
#include "client/cli/problem.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "client/cli/values.h"
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MARGIN 0.02
#define SECONDS 5

/* ---- The problem ---- */

/* Takes the operands as the daemon completed them, with the offsets of the command line. */
static void take_operand(struct tune *tune, int i)
{
	struct tune_operand *operand = &tune->operands[i];
	kiln_tensor *tensor = &operand->tensor;

	tensor->dtype = (kiln_dtype)member_int(tune->plan, "operands[%d].d", i);
	if (tensor->dtype == KILN_DTYPE_NONE)
		return;
	tensor->rank = member_count(tune->plan, "operands[%d].s", i);
	for (int k = 0; k < tensor->rank && k < KILN_MAX_RANK; k++) {
		tensor->shape[k] = member_int(tune->plan, "operands[%d].s[%d]", i, k);
		tensor->stride[k] = member_int(tune->plan, "operands[%d].t[%d]", i, k);
	}
	if (i < tune->problem.tensor_count)
		tensor->offset = tune->problem.tensors[i].offset;
	operand->written = member_int(tune->plan, "operands[%d].written", i);
	operand->bytes = tensor->offset + (uint64_t)member_int(tune->plan, "operands[%d].bytes", i);
	tune->set_bytes += operand->bytes;
}

/* Reads explain's answer: operands, candidates, and the class that the winner is kept for. */
static int ask_plan(struct tune *tune)
{
	const struct cli_problem *problem = &tune->problem;
	int status = kiln_explain(tune->client, problem->op, problem->tensors, problem->tensor_count,
							  problem->attrs, problem->attr_count, NULL, &tune->plan);

	if (status)
		return cli_failed(tune->cli, status, "tune %s", problem->op);
	tune->operand_count = kiln_reply_count(tune->plan, "operands");
	if (tune->operand_count > KILN_MAX_OPERANDS)
		tune->operand_count = KILN_MAX_OPERANDS;
	for (int i = 0; i < tune->operand_count; i++)
		take_operand(tune, i);
	tune->count = kiln_reply_count(tune->plan, "choices");
	if (tune->count > TUNE_CANDIDATES)
		tune->count = TUNE_CANDIDATES;
	for (int i = 0; i < tune->count; i++)
		snprintf(tune->candidates[i].name, TUNE_NAME, "%s",
				 member_str(tune->plan, "choices[%d]", i));
	return CLI_OK;
}

/* ---- The winner ---- */

/* Live candidates have a time in every round. */
static bool beats_own(const struct tune *tune, const struct candidate *candidate)
{
	const struct candidate *own = &tune->candidates[0];

	return candidate->state == CANDIDATE_LIVE &&
		   tune_beats(own->times, candidate->times, own->rounds, MARGIN);
}

/* The planner's own choice wins unless another one beats it. */
static const struct candidate *find_winner(const struct tune *tune)
{
	const struct candidate *winner = &tune->candidates[0];

	for (int i = 1; i < tune->count; i++) {
		const struct candidate *candidate = &tune->candidates[i];
		if (candidate->micros < winner->micros && beats_own(tune, candidate))
			winner = candidate;
	}
	return winner;
}

static int tune_keep(struct tune *tune, const struct candidate *winner)
{
	kiln_attr args[] = {
		cli_attr_string("op", tune->problem.op),
		cli_attr_string("model", kiln_reply_str(tune->plan, "model")),
		cli_attr_string("target", kiln_reply_str(tune->plan, "target")),
		cli_attr_string("signature", kiln_reply_str(tune->plan, "signature")),
		cli_attr_string("choice", winner->name),
		{.name = "micros", .kind = KILN_ATTR_REAL, .f = winner->micros},
		{.name = "own_micros", .kind = KILN_ATTR_REAL, .f = tune->candidates[0].micros},
		cli_attr_int("candidates", tune->count),
		cli_attr_int("when", (int64_t)time(NULL)),
		cli_attr_string("version", KILN_VERSION_STRING),
	};
	/* An earlier winner that no longer wins must go; the first three attributes after op name it.
	 */
	bool own = winner == tune->candidates;
	kiln_reply *reply;
	int status = own ? kiln_request(tune->client, "tuned.rm", args + 1, 3, &reply)
					 : kiln_request(tune->client, "tuned.put", args,
									(int)(sizeof(args) / sizeof(args[0])), &reply);

	if (status)
		return cli_failed(tune->cli, status, "tune: keeping %s", winner->name);
	kiln_reply_free(reply);
	return CLI_OK;
}

/* ---- Report ---- */

static const char *note_of(const struct tune *tune, const struct candidate *candidate,
						   const struct candidate *winner)
{
	static const char *const states[] = {"", "not timed on", "does not compile", "wrong results"};

	if (candidate == winner)
		return candidate == tune->candidates ? "winner, and the planner's own" : "winner";
	if (candidate->state == CANDIDATE_LIVE && candidate != tune->candidates &&
		candidate->micros < tune->candidates[0].micros * (1 - MARGIN) &&
		!beats_own(tune, candidate))
		return "faster, but times differ by as much";
	return candidate == tune->candidates ? "the planner's own" : states[candidate->state];
}

static double ratio_of(const struct tune *tune, const struct candidate *candidate)
{
	double own = tune->candidates[0].micros;
	return own > 0 ? candidate->micros / own : 0;
}

static double speed_of(const struct tune *tune, const struct candidate *candidate)
{
	double bytes = kiln_reply_real(tune->plan, "plan.bytes_moved");
	return candidate->micros > 0 ? bytes / candidate->micros / 1e3 : 0;
}

static void tune_print_json(const struct tune *tune, const struct candidate *winner, bool changed)
{
	json_begin();
	json_string("op", tune->problem.op);
	json_string("device", kiln_device(tune->client));
	json_string("model", kiln_reply_str(tune->plan, "model"));
	json_string("target", kiln_reply_str(tune->plan, "target"));
	json_string("signature", kiln_reply_str(tune->plan, "signature"));
	json_int("sets", tune->sets);
	json_int("set_bytes", (int64_t)tune->set_bytes);
	json_int("group", tune->group);
	json_int("rounds", tune->rounds);
	json_list_begin("candidates");
	for (int i = 0; i < tune->count; i++) {
		const struct candidate *candidate = &tune->candidates[i];
		json_item_begin();
		json_string("choice", candidate->name);
		json_real("micros", candidate->micros);
		json_real("ratio", ratio_of(tune, candidate));
		json_real("gbps", speed_of(tune, candidate));
		json_string("note", note_of(tune, candidate, winner));
		json_item_end();
	}
	json_list_end();
	json_string("own", tune->candidates[0].name);
	json_string("winner", winner->name);
	json_int("kept", changed && winner != tune->candidates);
	json_int("forgot", changed && winner == tune->candidates);
	json_end();
}

/* Sorts by time; candidates without one come last, in their order. */
static int by_time(const void *a, const void *b)
{
	const struct candidate *left = *(const struct candidate *const *)a;
	const struct candidate *right = *(const struct candidate *const *)b;
	double x = left->micros > 0 ? left->micros : 1e300;
	double y = right->micros > 0 ? right->micros : 1e300;

	return x != y ? (x > y) - (x < y) : (left > right) - (left < right);
}

static void print_candidates(const struct tune *tune, const struct candidate *winner)
{
	static const char *const headers[] = {"CHOICE", ">MEDIAN", ">RATIO", ">SPEED", "NOTE"};
	const struct candidate *sorted[TUNE_CANDIDATES];
	char figure[FIGURE_MAX];
	struct table table;

	for (int i = 0; i < tune->count; i++)
		sorted[i] = &tune->candidates[i];
	qsort(sorted, (size_t)tune->count, sizeof(*sorted), by_time);
	table_begin(&table, headers, 5);
	for (int i = 0; i < tune->count; i++) {
		bool timed = sorted[i]->micros > 0;
		table_cell(&table, "%s", sorted[i]->name);
		table_cell(&table, "%s", timed ? figure_micros(sorted[i]->micros, figure) : "");
		if (timed) {
			table_cell(&table, "%.3f", ratio_of(tune, sorted[i]));
			table_cell(&table, "%.1f GB/s", speed_of(tune, sorted[i]));
		} else {
			table_cell(&table, "%s", "");
			table_cell(&table, "%s", "");
		}
		table_cell(&table, "%s", note_of(tune, sorted[i], winner));
	}
	table_end(&table);
}

static void print_report(const struct tune *tune, const struct candidate *winner, bool changed)
{
	char a[FIGURE_MAX], b[FIGURE_MAX];

	print_candidates(tune, winner);
	print_pair("device", "%s, %s (%s)", kiln_device(tune->client),
			   kiln_reply_str(tune->plan, "model"), kiln_reply_str(tune->plan, "target"));
	print_pair("class", "%s", kiln_reply_str(tune->plan, "signature"));
	print_pair("timed", "%d rounds of %d launches, over %d set%s of %s", tune->rounds, tune->group,
			   tune->sets, tune->sets == 1 ? "" : "s", figure_bytes(tune->set_bytes, a));
	if (winner == tune->candidates)
		print_pair("winner", "%s, the planner's own%s", winner->name,
				   changed ? "; the winner of before is forgotten" : "");
	else
		print_pair("winner", "%s, %s against %s%s", winner->name, figure_micros(winner->micros, a),
				   figure_micros(tune->candidates[0].micros, b),
				   changed ? ": kept" : ": not kept (--dry-run)");
}

/* ---- The command ---- */

static int tune_problem(struct tune *tune)
{
	const struct candidate *winner;
	bool dry = cli_value(tune->cli, "dry-run") != NULL;
	int status;

	interrupt_watch();
	status = tune_make_buffers(tune);
	if (!status)
		status = tune_prepare(tune);
	if (!status)
		status = tune_time(tune);
	progress_end(tune->cli);
	if (interrupt_seen()) {
		if (!tune->cli->json && tune->candidates[0].micros > 0)
			print_candidates(tune, find_winner(tune));
		interrupt_end("tune: no winner is kept");
	}
	if (status)
		return status;
	if (!(tune->candidates[0].micros > 0)) {
		fprintf(stderr, "kiln: tune: the device measures no time for %s: too little is done\n",
				tune->candidates[0].name);
		return CLI_FAILED;
	}
	winner = find_winner(tune);
	bool changed = !dry && (winner != tune->candidates || kiln_reply_has(tune->plan, "tuned"));
	if (changed)
		status = tune_keep(tune, winner);
	if (!status && tune->cli->json)
		tune_print_json(tune, winner, changed);
	else if (!status)
		print_report(tune, winner, changed);
	return status;
}

static int tune_read_options(struct cli *cli, struct tune *tune)
{
	const char *seconds = cli_value(cli, "seconds");
	int64_t value = SECONDS;
	int status = cli_problem(cli, NULL, &tune->problem);

	tune->cli = cli;
	tune->seed = 1;
	tune->timeout_ms = cli->timeout_ms ? cli->timeout_ms : DEADLINE_CLI_MS;
	if (!status && seconds)
		status = cli_integer("--seconds", seconds, 0, 3600, &value);
	tune->seconds = (double)value;
	for (int i = 0; !status && i < tune->problem.attr_count; i++)
		if (!strcmp(tune->problem.attrs[i].name, "choice"))
			status = cli_usage("'kiln tune' finds the choice by itself; leave it out");
	if (!status && tune->problem.attr_count >= KILN_MAX_ATTRS)
		status = cli_usage("'kiln tune' needs room for one attribute more: at most %d",
						   KILN_MAX_ATTRS - 1);
	return status;
}

/* Passes over a recorded problem whose class has one candidate, or was tuned already. */
static bool passed_over(const struct tune *tune, struct tune_classes *classes)
{
	if (tune->count < 2 || !tune_classes_add(classes, kiln_reply_str(tune->plan, "signature")))
		return true;
	if (classes->count > 1 && !tune->cli->json)
		putchar('\n');
	return false;
}

/* classes: NULL for a problem that was typed. */
static int with_problem(struct cli *cli, struct tune_classes *classes)
{
	struct tune *tune = calloc(1, sizeof(*tune));
	int status = tune ? tune_read_options(cli, tune) : CLI_FAILED;

	if (!tune)
		fputs("kiln: tune: out of memory\n", stderr);
	if (!status)
		status = cli_connect(cli, &tune->client);
	if (!status)
		status = ask_plan(tune);
	if (status || (classes && passed_over(tune, classes))) {
		/* It was said what failed, or there is nothing to say. */
	} else if (!kiln_reply_str(tune->plan, "signature")[0] || !tune->count) {
		if (cli->json)
			puts(kiln_reply_json(tune->plan));
		else
			printf("nothing to tune: variant %s has no kernel\n",
				   kiln_reply_str(tune->plan, "plan.variant"));
	} else if (cli_value(cli, "forget"))
		status = tune_forget(cli, tune->client, tune->plan);
	else
		status = tune_problem(tune);
	if (tune) {
		kiln_close(tune->client);
		tune_free(tune);
		kiln_reply_free(tune->plan);
	}
	free(tune);
	return status;
}

static int forget_all(struct cli *cli)
{
	kiln_client *client;
	int status;

	if (cli_connect(cli, &client))
		return CLI_FAILED;
	status = tune_forget(cli, client, NULL);
	kiln_close(client);
	return status;
}

static int cli_tune(struct cli *cli)
{
	const char *to = cli_value(cli, "export"), *from = cli_value(cli, "import");
	bool list = cli_value(cli, "list") != NULL, forget = cli_value(cli, "forget") != NULL;
	bool recorded = cli_value(cli, "recorded") != NULL;
	int actions = list + forget + recorded + (to != NULL) + (from != NULL);

	if (actions > 1)
		return cli_usage("'kiln tune': --recorded, --list, --export, --import and --forget exclude "
						 "each other");
	if (cli->positional_count && actions && !forget)
		return cli_usage("'kiln tune %s': --recorded, --list, --export and --import take no OP; "
						 "leave %s out",
						 cli->positional[0], cli->positional[0]);
	if (cli->positional_count)
		return with_problem(cli, NULL);
	if (cli_value(cli, "recorded"))
		return tune_recorded(cli, with_problem);
	cli->device = "none"; /* the daemon has the table of winners, so no device is needed */
	if (list)
		return tune_list(cli);
	if (to)
		return tune_export(cli, to);
	if (from)
		return tune_import(cli, from);
	if (forget)
		return forget_all(cli);
	return cli_usage("'kiln tune' needs OP or --recorded, --list, --export, --import, --forget: "
					 "'kiln help tune'");
}

/* ---- The command ---- */

static const struct cli_option tune_options[] = {
	{"seconds", "N", "time for so long, after compiling (5)"},
	{"dry-run", NULL, "print, and keep nothing"},
	{"recorded", NULL, "all that the daemon was asked for ('kiln record'), each class once"},
	{"forget", NULL, "remove the winner that is kept; without OP: all of them"},
	{"list", NULL, "the winners that are kept"},
	{"export", "FILE", "write them to FILE, a JSON object a line; -: standard output"},
	{"import", "FILE", "keep those that FILE has; -: standard input"},
	CLI_OPERAND_OPTION,
	{0},
};

static const struct cli_example tune_examples[] = {
	{"kiln tune softmax --shape 1024x4096", "time the candidates of this shape"},
	{"kiln tune --recorded --seconds 2", "whatever programs have asked for since kilnd started"},
	{"kiln tune --list", "the winners that are kept"},
	{0}};

const struct cli_command command_tune = {
	"tune",
	cli_tune,
	"[OP]",
	"time the planner's candidates on the device, and keep the best",
	{0, 1},
	tune_options,
	CLI_ON_DEVICE,
	cli_problem_options,
	.examples = tune_examples};
