/*
 * tune_time.c: tuning's work on the device: sets of buffers used in turn, so that a launch finds
 * nothing in a cache that a program's launch would not find there; the results of every candidate,
 * compared with those of the planner's own choice; and times, in rounds over all candidates, so
 * that a drifting clock hits all of them.
 *
 * A group of launches stands behind a few large copies: the whole group is queued when the device
 * gets to it, and begins with cold caches.  Times are the device's own.
 */
#include "client/cli/daemon.h"
#include "client/cli/data.h"
#include "client/cli/failure.h"
#include "client/cli/interrupt.h"
#include "client/cli/problem.h"
#include "client/cli/progress.h"
#include "client/cli/timing.h"
#include "tune.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_BYTES (1ull << 30) /* bytes of all sets */
#define POOL_BYTES_CPU (32ull << 20)
#define BLOCK_BYTES (256ull << 20) /* bytes that the blocker copies */
#define GROUP_MOST 16
#define GROUP_LEAST 4
#define GROUP_MICROS 4000.0
#define ROUNDS_LEAST 3
#define FINALISTS 3 /* candidates besides the planner's own */
#define HOPELESS \
	4.0 /* a candidate this many times slower than the best of the first rounds is out */
#define FAR_BEHIND 1.25 /* and than the best of later rounds */
#define FIRST_PHASE 0.5 /* share of the time */
#define FRESH_BYTES (32ull << 20)
#define PIECE_BYTES (1ull << 20) /* bytes of an output that are compared at once */
#define PIECES 128
#define PIECE_ROOM (PIECE_BYTES + 4096) /* the last piece takes what rounding left over */
#define POISON 0xA5 /* fills outputs before a call, so that an element not written shows */

static bool is_cpu(const struct tune *tune)
{
	return !strcmp(kiln_device(tune->client), "cpu");
}

/* ---- Buffers ---- */

static void free_set(struct tune *tune, int set)
{
	for (int i = 0; i < tune->operand_count; i++) {
		kiln_free(tune->buffers[set][i]);
		tune->buffers[set][i] = NULL;
	}
}

static int make_set(struct tune *tune, int set)
{
	int status = KILN_OK;

	for (int i = 0; !status && i < tune->operand_count; i++)
		if (tune->operands[i].tensor.dtype != KILN_DTYPE_NONE)
			status = kiln_alloc(tune->client, tune->operands[i].bytes, 0, "tune",
								&tune->buffers[set][i]);
	if (status)
		free_set(tune, set);
	return status;
}

/* Without device memory for the blocker, times are a little less steady. */
static void make_blocker(struct tune *tune)
{
	const int64_t bytes = BLOCK_BYTES, perm = 0;
	kiln_tensor flat[2] = {{.dtype = KILN_U8, .rank = 1, .contiguous = 1, .shape = {bytes}}};
	kiln_attr attr = {.name = "perm", .kind = KILN_ATTR_INTS, .ints = &perm, .count = 1};

	flat[1] = flat[0];
	if (is_cpu(tune) || kiln_alloc(tune->client, 2 * BLOCK_BYTES, 0, "blocker", &tune->blocker))
		return;
	if (kiln_prepare(tune->client, "permute", flat, 2, &attr, 1, &tune->block)) {
		kiln_free(tune->blocker);
		tune->blocker = NULL;
	}
}

/* Fills FRESH_BYTES with random numbers and repeats them, since making more takes longer than all
 * launches.  The number of elements is odd, so that rows do not repeat with them. */
static void tune_time_fill(struct tune *tune, int i, uint8_t *data)
{
	const struct tune_operand *operand = &tune->operands[i];
	uint64_t size = kiln_dtype_size(operand->tensor.dtype), begin = operand->tensor.offset;
	uint64_t fresh = (FRESH_BYTES / size - 1) * size, end = begin + fresh;

	if (operand->bytes <= begin || operand->bytes - begin <= fresh)
		end = operand->bytes;
	data_operand(&tune->problem, i, data, end, (uint64_t)tune->seed);
	for (uint64_t at = end, bytes; at < operand->bytes; at += bytes) {
		bytes = operand->bytes - at < fresh ? operand->bytes - at : fresh;
		memcpy(data + at, data + begin, bytes);
	}
}

/* The same values in every set. */
static int fill_input(struct tune *tune, int i)
{
	struct tune_operand *operand = &tune->operands[i];
	uint8_t *data = malloc(operand->bytes ? operand->bytes : 1);
	int status = KILN_OK;

	if (!data) {
		fprintf(stderr, "kiln: tune: no memory for %" PRIu64 " bytes of data\n", operand->bytes);
		return CLI_FAILED;
	}
	tune_time_fill(tune, i, data);
	for (int set = 0; !status && operand->bytes && set < tune->sets; set++)
		status = kiln_write(tune->buffers[set][i], 0, data, operand->bytes);
	free(data);
	return status ? cli_failed(tune->cli, status, "tune: filling operand %d", i) : CLI_OK;
}

int tune_make_buffers(struct tune *tune)
{
	uint64_t pool = is_cpu(tune) ? POOL_BYTES_CPU : POOL_BYTES;
	uint64_t wanted = pool / (tune->set_bytes ? tune->set_bytes : 1);
	int status = make_set(tune, 0);

	if (status)
		return cli_failed(tune->cli, status, "tune: allocating");
	make_blocker(tune);
	/* A limit or the device may allow fewer sets. */
	tune->sets = 1;
	while ((uint64_t)tune->sets < wanted && tune->sets < TUNE_SETS && !make_set(tune, tune->sets))
		tune->sets++;
	for (int i = 0; !status && i < tune->operand_count; i++)
		if (tune->operands[i].tensor.dtype != KILN_DTYPE_NONE && !tune->operands[i].written)
			status = fill_input(tune, i);
	return status;
}

/* ---- Launching ---- */

static int submit(struct tune *tune, struct candidate *candidate, int set, kiln_ticket *ticket)
{
	kiln_operand operands[KILN_MAX_OPERANDS];

	for (int i = 0; i < tune->operand_count; i++)
		operands[i] = (kiln_operand){tune->buffers[set][i], tune->operands[i].tensor.offset};
	return kiln_submit(candidate->call, operands, tune->operand_count, 0, ticket);
}

/* Takes one time of a candidate: the mean over a group of launches. */
static int time_group(struct tune *tune, struct candidate *candidate, int round)
{
	const kiln_operand halves[2] = {{tune->blocker, 0}, {tune->blocker, BLOCK_BYTES}};
	char what[96];
	kiln_ticket tickets[GROUP_MOST];
	double sum = 0, micros;
	int count = 0, status = KILN_OK;

	for (int i = 0; tune->block && i < TUNE_BLOCKS; i++)
		if (kiln_submit(tune->block, halves, 2, 0, &tune->blocks[i]))
			tune->blocks[i] = 0;
	while (!status && count < tune->group) {
		int set = (round * tune->group + count) % tune->sets;
		status = submit(tune, candidate, set, &tickets[count]);
		count += !status;
	}
	for (int i = 0; i < TUNE_BLOCKS; i++)
		if (tune->blocks[i]) {
			kiln_wait(tune->client, tune->blocks[i], tune->timeout_ms);
			tune->blocks[i] = 0;
		}
	for (int i = 0; !status && i < count; i++) {
		status = kiln_wait_time(tune->client, tickets[i], tune->timeout_ms, &micros);
		sum += status ? 0 : micros;
	}
	if (status) {
		snprintf(what, sizeof(what), "tune: running %.64s", candidate->name);
		return cli_failed_wait(tune->cli, status, tune->timeout_ms, what);
	}
	candidate->times[candidate->rounds++] = sum / count;
	return CLI_OK;
}

/* ---- Results ---- */

/*
 * Calls the visitor for the compared pieces of an output: all of it; or, of an output larger than
 * PIECES pieces, so many at even distances, with the first and the last bytes.  Reading a gigabyte
 * for each of thirty candidates would take longer than timing them.
 */
static int piece_count(const struct tune_operand *operand)
{
	uint64_t all = (operand->bytes + PIECE_BYTES - 1) / PIECE_BYTES;
	return all < PIECES ? (int)all : PIECES;
}

/* Returns where the piece begins, on a multiple of 16 bytes. */
static uint64_t piece_start(const struct tune_operand *operand, int number)
{
	if (operand->bytes <= PIECES * PIECE_BYTES)
		return (uint64_t)number * PIECE_BYTES;
	return (operand->bytes - PIECE_BYTES + 15) / (PIECES - 1) * (uint64_t)number & ~15ull;
}

static uint64_t piece_bytes(const struct tune_operand *operand, int number)
{
	uint64_t left = operand->bytes - piece_start(operand, number);
	return left < PIECE_BYTES || number == PIECES - 1 ? left : PIECE_BYTES;
}

static int poison(struct tune *tune, int i)
{
	const struct tune_operand *operand = &tune->operands[i];
	uint8_t *data = malloc(PIECE_ROOM);
	int status = data ? KILN_OK : KILN_ENOMEM;

	if (data)
		memset(data, POISON, PIECE_ROOM);
	for (int k = 0; !status && k < piece_count(operand); k++)
		status =
			kiln_write(tune->buffers[0][i], piece_start(operand, k), data, piece_bytes(operand, k));
	free(data);
	return status;
}

/* Keeps the first output, and compares later ones with it. */
static int look_at(struct tune *tune, int i, bool *close)
{
	struct tune_operand *operand = &tune->operands[i];
	int count = piece_count(operand), status = KILN_OK;
	bool first = !operand->reference;
	uint8_t *data = malloc(PIECE_ROOM);

	if (first)
		operand->reference = malloc((size_t)count * PIECE_ROOM + 1);
	if (!data || !operand->reference)
		status = KILN_ENOMEM;
	for (int k = 0; !status && k < count; k++) {
		uint8_t *kept = operand->reference + (size_t)k * PIECE_ROOM;
		uint64_t bytes = piece_bytes(operand, k);
		status =
			kiln_read(tune->buffers[0][i], piece_start(operand, k), first ? kept : data, bytes);
		if (!status && !first && memcmp(kept, data, bytes))
			*close = *close && data_close(operand->tensor.dtype, kept, data, bytes);
	}
	free(data);
	return status;
}

/* Runs the candidate once, on outputs that hold something else. */
static int tune_time_check(struct tune *tune, struct candidate *candidate)
{
	char what[96];
	kiln_ticket ticket;
	double micros; /* asks for the time, so that later calls are timed, too */
	bool close = true;
	int status = KILN_OK;

	for (int i = 0; !status && i < tune->operand_count; i++)
		if (tune->operands[i].written)
			status = poison(tune, i);
	if (!status)
		status = submit(tune, candidate, 0, &ticket);
	if (!status)
		status = kiln_wait_time(tune->client, ticket, tune->timeout_ms, &micros);
	for (int i = 0; !status && i < tune->operand_count; i++)
		if (tune->operands[i].written)
			status = look_at(tune, i, &close);
	if (status == KILN_ENOMEM) {
		fputs("kiln: tune: no memory to compare results in\n", stderr);
		return CLI_FAILED;
	}
	if (status) {
		snprintf(what, sizeof(what), "tune: checking %.64s", candidate->name);
		return cli_failed_wait(tune->cli, status, tune->timeout_ms, what);
	}
	if (!close) {
		candidate->state = CANDIDATE_WRONG;
		fprintf(stderr, "kiln: tune: %s gives other results than %s and is left out\n",
				candidate->name, tune->candidates[0].name);
	}
	return CLI_OK;
}

static int tune_time_prepare(struct tune *tune, struct candidate *candidate)
{
	const struct cli_problem *problem = &tune->problem;
	kiln_tensor tensors[KILN_MAX_OPERANDS];
	kiln_attr attrs[KILN_MAX_ATTRS];
	int count = problem->attr_count, status;

	for (int i = 0; i < tune->operand_count; i++)
		tensors[i] = tune->operands[i].tensor;
	memcpy(attrs, problem->attrs, (size_t)count * sizeof(*attrs));
	attrs[count++] = cli_attr_string("choice", candidate->name);
	status = kiln_prepare(tune->client, problem->op, tensors, tune->operand_count, attrs, count,
						  &candidate->call);
	if (status == KILN_ECOMPILE && candidate != tune->candidates) {
		candidate->state = CANDIDATE_FAILED;
		fprintf(stderr, "kiln: tune: %s is left out: %s\n", candidate->name, kiln_errmsg());
		return CLI_OK;
	}
	return status ? cli_failed(tune->cli, status, "tune: preparing %s", candidate->name) : CLI_OK;
}

int tune_prepare(struct tune *tune)
{
	int status = CLI_OK;

	for (int i = 0; !status && i < tune->count && !interrupt_seen(); i++) {
		struct candidate *candidate = &tune->candidates[i];
		progress_print(tune->cli, "%d candidates: preparing %d", tune->count, i + 1);
		status = tune_time_prepare(tune, candidate);
		if (!status && candidate->state == CANDIDATE_LIVE)
			status = tune_time_check(tune, candidate);
	}
	return status;
}

/* ---- Rounds ---- */

static double median(const struct candidate *candidate)
{
	double sorted[TUNE_ROUNDS];
	int n = candidate->rounds;

	memcpy(sorted, candidate->times, (size_t)n * sizeof(*sorted));
	time_sort(sorted, n);
	return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

/* The best time of live candidates; the planner's own choice is always live. */
static double best_time(const struct tune *tune)
{
	double best = tune->candidates[0].micros;

	for (int i = 1; i < tune->count; i++) {
		const struct candidate *candidate = &tune->candidates[i];
		if (candidate->state == CANDIDATE_LIVE && candidate->micros < best)
			best = candidate->micros;
	}
	return best;
}

/* Keeps the first candidates of a list by time, and the planner's own choice. */
static void drop_behind(struct tune *tune, double bound)
{
	for (int i = 1; i < tune->count; i++) {
		struct candidate *candidate = &tune->candidates[i];
		if (candidate->state == CANDIDATE_LIVE && candidate->micros > bound)
			candidate->state = CANDIDATE_SLOW;
	}
}

static void tune_assert_valid(const struct tune *tune)
{
	assert(tune->count == 0 || tune->candidates[0].state == CANDIDATE_LIVE);
	for (int i = 0; i < tune->count; i++) {
		const struct candidate *candidate = &tune->candidates[i];
		(void)candidate;
		assert((candidate->state == CANDIDATE_FAILED) == !candidate->call);
		assert(candidate->rounds >= 0 && candidate->rounds <= TUNE_ROUNDS);
	}
}

/* Times all live candidates in rounds until the time is up. */
static int time_rounds(struct tune *tune, const char *what, int least, double until)
{
	int status = CLI_OK, round = 0;

	while (!status && !interrupt_seen() && round < TUNE_ROUNDS &&
		   (round < least || time_us() / 1e6 < until)) {
		progress_print(tune->cli, "%d candidates: %s %d", tune->count, what, round + 1);
		for (int i = 0; !status && i < tune->count; i++) {
			/* Each round begins with another candidate. */
			struct candidate *candidate = &tune->candidates[(i + round) % tune->count];
			if (candidate->state != CANDIDATE_LIVE)
				continue;
			status = time_group(tune, candidate, round);
			if (!status)
				candidate->micros = median(candidate);
		}
		round++;
		drop_behind(tune, (round < ROUNDS_LEAST ? HOPELESS : FAR_BEHIND) * best_time(tune));
	}
	tune->rounds = round;
	tune_assert_valid(tune);
	return status;
}

/* The time of the candidate in this place among live ones other than the planner's own. */
static double time_at_place(const struct tune *tune, int place)
{
	double times[TUNE_CANDIDATES];
	int count = 0;

	for (int i = 1; i < tune->count; i++)
		if (tune->candidates[i].state == CANDIDATE_LIVE)
			times[count++] = tune->candidates[i].micros;
	time_sort(times, count);
	return count > place ? times[place] : count ? times[count - 1] : 0;
}

/* Sets the size of a group: small for long kernels.  The first group warms up and is not counted.
 */
static int choose_group(struct tune *tune)
{
	struct candidate *own = &tune->candidates[0];
	int status;

	tune->group = GROUP_LEAST;
	status = time_group(tune, own, 0);
	if (status)
		return status;
	if (own->times[0] * GROUP_MOST <= GROUP_MICROS)
		tune->group = GROUP_MOST;
	own->rounds = 0;
	return CLI_OK;
}

int tune_time(struct tune *tune)
{
	double start = time_us() / 1e6;
	int status = interrupt_seen() ? CLI_OK : choose_group(tune);

	if (!status)
		status = time_rounds(tune, "round", ROUNDS_LEAST, start + FIRST_PHASE * tune->seconds);
	if (status || interrupt_seen())
		return status;
	/* The best of many is partly luck, so the finalists are timed anew. */
	drop_behind(tune, time_at_place(tune, FINALISTS - 1));
	for (int i = 0; i < tune->count; i++)
		if (tune->candidates[i].state == CANDIDATE_LIVE)
			tune->candidates[i].rounds = 0;
	return time_rounds(tune, "final round", TUNE_ROUNDS_FINAL, start + tune->seconds);
}

void tune_free(struct tune *tune)
{
	for (int i = 0; i < tune->count; i++)
		kiln_call_free(tune->candidates[i].call);
	kiln_call_free(tune->block);
	kiln_free(tune->blocker);
	for (int set = 0; set < tune->sets; set++)
		free_set(tune, set);
	for (int i = 0; i < tune->operand_count; i++)
		free(tune->operands[i].reference);
}
