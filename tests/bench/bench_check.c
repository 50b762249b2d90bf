/*
 * bench_check.c: whether the results of a kernel are right, by a sample of the case's units that is
 * spread over all of them, its ends included.
 *
 * Only the judge knows by which bytes of the outputs a unit is judged.  So it is asked: what has
 * not been read back yet is no number, the judge names the first element that it finds wrong, the
 * piece around it is read back, and the judge is asked again.  An element that is wrong in a piece
 * that was read is wrong.  The next kernel of the same case has the same pieces read at once.
 */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANGES 64
#define RANGE_ELEMENTS 4096 /* of outputs, about, in one range */
#define LONG_UNIT 32768     /* elements of units of which a quarter will do */
#define PIECE 65536u        /* bytes */

struct range {
	int64_t first, last;
	bool pending;
	struct cases_verdict verdict;
};

struct bench_sample {
	struct runner_options runner;
	struct bench_data *data;
	struct range ranges[RANGES];
	int count;
	int *read[CASES_MAX_OPERANDS]; /* of each piece of an output: in which look; 0: not yet */
	int looks;
	int64_t pieces[CASES_MAX_OPERANDS];
	const void *memory[CASES_MAX_OPERANDS];
};

static void choose_ranges(struct bench_sample *sample)
{
	const struct cases_case *c = sample->data->c;
	int64_t units = c->op->units(c), elements = 0, length;
	int most = RANGES;

	for (int i = 0; i < c->operand_count; i++)
		if (c->operand[i].output)
			elements += cases_elements(&c->operand[i]);
	if (units < 1)
		return;
	if (elements / units > LONG_UNIT)
		most = RANGES / 4;
	length = RANGE_ELEMENTS / (elements / units + 1) + 1;
	if (length > (units + most - 1) / most)
		length = (units + most - 1) / most;
	for (int i = 0; i < most; i++) {
		struct range *range = &sample->ranges[i];
		range->first = (int64_t)((double)(units - length) * i / (most - 1));
		range->last = range->first + length;
	}
	sample->count = most;
}

struct bench_sample *bench_sample_open(const struct bench_options *options, struct bench_data *data)
{
	struct bench_sample *sample = calloc(1, sizeof(*sample));

	if (!sample)
		return NULL;
	sample->runner = options->runner;
	sample->data = data;
	choose_ranges(sample);
	for (int i = 0; i < data->c->operand_count; i++) {
		const struct cases_operand *operand = &data->c->operand[i];
		sample->memory[i] = data->host[i];
		if (operand->dtype == KILN_DTYPE_NONE || !operand->output)
			continue;
		sample->pieces[i] = (int64_t)(cases_bytes(operand) / PIECE + 1);
		sample->read[i] = calloc((size_t)sample->pieces[i], sizeof(*sample->read[i]));
		if (!sample->read[i]) {
			bench_sample_close(sample);
			return NULL;
		}
	}
	return sample;
}

void bench_sample_close(struct bench_sample *sample)
{
	for (int i = 0; sample && i < CASES_MAX_OPERANDS; i++)
		free(sample->read[i]);
	free(sample);
}

static bool read_piece(const struct bench_way *way, struct bench_sample *sample, int operand,
					   int64_t piece)
{
	static unsigned char bytes[PIECE];
	const struct bench_place *place = &sample->data->work.places[operand];
	uint64_t at = (uint64_t)piece * PIECE, all = cases_bytes(&sample->data->c->operand[operand]);
	uint64_t part = all - at < PIECE ? all - at : PIECE;

	sample->read[operand][piece] = sample->looks;
	if (!way->get(bytes, place->pool, place->at + at, part))
		return false;
	memcpy(sample->data->host[operand] + at, bytes, part);
	return true;
}

/* Reads again the sample by which an earlier kernel was judged. */
static bool read_again(const struct bench_way *way, struct bench_sample *sample)
{
	for (int i = 0; i < sample->data->c->operand_count; i++)
		for (int64_t piece = 0; piece < sample->pieces[i]; piece++)
			if (sample->read[i][piece] && !read_piece(way, sample, i, piece))
				return false;
	return true;
}

static void judge_part(void *arg, int64_t first, int64_t last)
{
	struct bench_sample *sample = arg;
	const struct cases_case *c = sample->data->c;

	for (int64_t i = first; i < last; i++) {
		struct range *range = &sample->ranges[i];
		if (!range->pending)
			continue;
		memset(&range->verdict, 0, sizeof(range->verdict));
		cases_judge(c, sample->memory, range->first, range->last, &range->verdict);
	}
}

static void describe(const struct bench_sample *sample, const struct cases_verdict *verdict,
					 char why[400])
{
	char name[16];

	bench_operand_name(sample->data->c, verdict->operand, name);
	snprintf(why, 400, "element %" PRId64 " of %s is %g and should be %g, give or take %g",
			 verdict->element, name, verdict->got, verdict->expected, verdict->allowed);
}

/* One look at all ranges that are not settled; false: something is wrong, or cannot be read. */
static bool look(const struct bench_way *way, struct bench_sample *sample, int *pending,
				 char why[400])
{
	runner_parallel(&sample->runner, sample->count, 1, judge_part, sample);
	sample->looks++;
	*pending = 0;
	for (int i = 0; i < sample->count; i++) {
		struct range *range = &sample->ranges[i];
		const struct cases_verdict *verdict = &range->verdict;
		range->pending = range->pending && verdict->wrong;
		if (!range->pending)
			continue;
		const struct cases_operand *operand = &sample->data->c->operand[verdict->operand];
		int64_t piece = verdict->element * cases_element(operand) / PIECE;
		int *read = &sample->read[verdict->operand][piece];
		if (*read && *read < sample->looks) {
			describe(sample, verdict, why);
			return false;
		}
		/* Another range may have had it read just now. */
		if (!*read && !read_piece(way, sample, verdict->operand, piece)) {
			snprintf(why, 400, "%.390s", way->why());
			return false;
		}
		*pending += 1;
	}
	return true;
}

bool bench_check(const struct bench_way *way, struct bench_ready *ready,
				 struct bench_sample *sample, char why[400])
{
	double micros;
	int pending = 0;

	why[0] = 0;
	sample->looks = 1;
	if (!bench_data_poison(way, sample->data) || !way->batch(ready, 1, &micros) ||
		!read_again(way, sample)) {
		snprintf(why, 400, "%.390s", way->why());
		return false;
	}
	for (int i = 0; i < sample->count; i++)
		sample->ranges[i].pending = true;
	do {
		if (!look(way, sample, &pending, why))
			return false;
	} while (pending);
	return true;
}
