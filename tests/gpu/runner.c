/*
 * runner: see runner.h.
 */
#include "runner.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 64
#define JUDGE_BLOCK 65536 /* elements */
#define JUDGE_SAMPLE 16   /* one block in so many is judged however long it takes */
#define FILL_BLOCK (1 << 20)

static int passed, failed;

/* ---- Options ---- */

static bool take_number(const char *text, long long most, long long *out)
{
	char *end = NULL;
	long long value = text ? strtoll(text, &end, 10) : -1;
	if (!text || end == text || *end || value < 0 || value > most)
		return false;
	*out = value;
	return true;
}

static bool take_word(struct runner_options *out, const char *name, const char *value)
{
	long long number;
	if (!value)
		return false;
	if (strcmp(name, "--socket") == 0)
		out->socket = value;
	else if (strcmp(name, "--device") == 0)
		out->device = value;
	else if (strcmp(name, "--memory") == 0)
		out->memory = value;
	else if (strcmp(name, "--json") == 0)
		out->json = value;
	else if (strcmp(name, "--ops") == 0)
		out->ops = value;
	else if (!take_number(value, 1 << 30, &number))
		return false;
	else if (strcmp(name, "--seed") == 0)
		out->seed = (uint64_t)number;
	else if (strcmp(name, "--threads") == 0)
		out->threads = number < 1 ? 1 : number > MOST_THREADS ? MOST_THREADS : (int)number;
	else if (strcmp(name, "--seconds") == 0)
		out->seconds = (int)number;
	else if (strcmp(name, "--count") == 0)
		out->count = (int)number;
	else
		return false;
	return true;
}

bool runner_options_read(int argc, char **argv, struct runner_options *out)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	const char *slash = strrchr(argv[0], '/');
	/* One that is stopped has told how far it came. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	memset(out, 0, sizeof(*out));
	out->program = slash ? slash + 1 : argv[0];
	out->device = "cuda:0";
	out->memory = "held";
	out->seed = 1;
	out->seconds = 60;
	out->threads = cores < 1 ? 1 : cores > 16 ? 16 : (int)cores;
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--quick") == 0) {
			out->quick = true;
		} else if (strcmp(argv[i], "--huge") == 0) {
			out->huge = true;
		} else if (strcmp(argv[i], "--reverse") == 0) {
			out->reverse = true;
		} else if (strcmp(argv[i], "--copies") == 0) {
			out->copies = true;
		} else if (strcmp(argv[i], "--graph") == 0) {
			out->graph = true;
		} else if (strcmp(argv[i], "--generic") == 0) {
			out->generic = true;
		} else if (take_word(out, argv[i], i + 1 < argc ? argv[i + 1] : NULL)) {
			i++;
		} else {
			fprintf(stderr, "%s: option \"%s\" is unknown, or its value is missing or wrong\n",
					out->program, argv[i]);
			return false;
		}
	}
	return true;
}

kiln_client *runner_connect(const struct runner_options *options)
{
	kiln_client *client = NULL;
	kiln_connect_options connect = {.size = sizeof(connect),
									.socket = options->socket,
									.device = options->device,
									.timeout_ms = 60000};
	if (kiln_connect(&connect, &client) != KILN_OK) {
		fprintf(stderr, "%s: %s\n", options->program, kiln_errmsg());
		return NULL;
	}
	return client;
}

/* ---- Counting ---- */

void runner_pass(void)
{
	passed++;
}

void runner_fail(const char *name, const char *format, ...)
{
	va_list args;
	failed++;
	printf("FAIL %s: ", name);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}

int runner_end(const struct runner_options *options)
{
	printf("%s: %d passed, %d failed\n", options->program, passed, failed);
	fflush(stdout);
	return failed == 0 && passed > 0 ? 0 : 1;
}

/* ---- Time and figures ---- */

double runner_now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

double runner_percentile(double *values, int count, double part)
{
	int at = (int)(part * count);
	if (count < 1)
		return 0;
	qsort(values, (size_t)count, sizeof(*values), by_value);
	return values[at < count ? at : count - 1];
}

void runner_figure(const struct runner_options *options, const char *name, double value,
				   const char *unit)
{
	printf("  %-52s %12.2f %s\n", name, value, unit);
	FILE *json = options->json ? fopen(options->json, "a") : NULL;
	if (!json)
		return;
	fprintf(json, "{\"program\": \"%s\", \"figure\": \"%s\", \"value\": %.4f, \"unit\": \"%s\"}\n",
			options->program, name, value, unit);
	fclose(json);
}

/* ---- Threads ---- */

struct crew {
	runner_body *body;
	void *arg;
	int64_t count, step;
	_Atomic int64_t next;
};

static void *crew_member(void *arg)
{
	struct crew *crew = arg;
	for (;;) {
		int64_t first = atomic_fetch_add(&crew->next, crew->step);
		if (first >= crew->count)
			return NULL;
		int64_t last = first + crew->step < crew->count ? first + crew->step : crew->count;
		crew->body(crew->arg, first, last);
	}
}

void runner_parallel(const struct runner_options *options, int64_t count, int64_t step,
					 runner_body *body, void *arg)
{
	struct crew crew = {body, arg, count, step, 0};
	pthread_t threads[MOST_THREADS];
	int started = 0;
	while (started < options->threads - 1 && (started + 1) * step < count &&
		   pthread_create(&threads[started], NULL, crew_member, &crew) == 0)
		started++;
	crew_member(&crew);
	for (int i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}

/* ---- Device time ---- */

double runner_metric(kiln_client *client, const char *beginning)
{
	kiln_reply *reply = NULL;
	double sum = 0;
	if (kiln_request(client, "metrics", NULL, 0, &reply) != KILN_OK)
		return -1;
	for (const char *line = kiln_reply_str(reply, "text"); line; line = strchr(line, '\n')) {
		line += *line == '\n';
		const char *value = strchr(line, ' ');
		if (value && !strncmp(line, beginning, strlen(beginning)))
			sum += strtod(value, NULL);
	}
	kiln_reply_free(reply);
	return sum;
}

bool runner_within(double value, double other, double part)
{
	return value >= other * (1 - part) && value <= other * (1 + part);
}

int runner_clock(kiln_client *client, kiln_call *call, const kiln_operand operands[2], int count,
				 struct runner_clock *clock)
{
	enum { MOST = 64 };
	kiln_ticket tickets[MOST];
	char busy[128];
	int status = KILN_OK, submitted = 0;
	snprintf(busy, sizeof(busy), "kiln_device_busy_seconds_total{device=\"%s\"}",
			 kiln_device(client));
	clock->counted -= runner_metric(client, busy);
	while (submitted < count && submitted < MOST && status == KILN_OK) {
		status = kiln_submit(call, operands, 2, 0, &tickets[submitted]);
		submitted += status == KILN_OK;
	}
	for (int i = 0; i < submitted; i++) {
		double micros = 0;
		int ended = kiln_wait_time(client, tickets[i], 60000, &micros);
		status = status == KILN_OK ? ended : status;
		clock->device += micros / 1e6;
	}
	clock->counted += runner_metric(client, busy);
	return status;
}

/* ---- Data ---- */

struct filling {
	unsigned char *bytes;
	uint64_t seed;
};

static void fill_part(void *arg, int64_t first, int64_t last)
{
	const struct filling *filling = arg;
	cases_fill(filling->bytes + first, (uint64_t)first, (uint64_t)(last - first), filling->seed);
}

void runner_fill(const struct runner_options *options, void *bytes, uint64_t count, uint64_t seed)
{
	struct filling filling = {bytes, seed};
	runner_parallel(options, (int64_t)count, 8 << 20, fill_part, &filling);
}

static unsigned char poison_at(uint64_t i, uint64_t seed)
{
	return (unsigned char)((i * 37 + seed * 11) ^ 0xa5);
}

static void poison_part(void *arg, int64_t first, int64_t last)
{
	const struct filling *filling = arg;
	for (int64_t i = first; i < last; i++)
		filling->bytes[i] = poison_at((uint64_t)i, filling->seed);
}

void runner_poison(const struct runner_options *options, void *bytes, uint64_t count, uint64_t seed)
{
	struct filling filling = {bytes, seed};
	runner_parallel(options, (int64_t)count, 8 << 20, poison_part, &filling);
}

int64_t runner_poison_broken(const void *bytes, uint64_t count, uint64_t seed)
{
	const unsigned char *at = bytes;
	for (uint64_t i = 0; i < count; i++)
		if (at[i] != poison_at(i, seed))
			return (int64_t)i;
	return -1;
}

struct operand_filling {
	const struct cases_operand *operand;
	void *bytes;
	uint64_t seed;
};

static void fill_memory(void *arg, int64_t first, int64_t last)
{
	const struct operand_filling *filling = arg;
	cases_fill_memory(filling->operand, filling->bytes, first, last, filling->seed);
}

static void fill_rows(void *arg, int64_t first, int64_t last)
{
	const struct operand_filling *filling = arg;
	cases_fill_rows(filling->operand, filling->bytes, first, last, filling->seed);
}

void runner_fill_operand(const struct runner_options *options, const struct cases_operand *operand,
						 void *bytes, uint64_t seed)
{
	struct operand_filling filling = {operand, bytes, seed};
	int64_t count = (int64_t)(cases_bytes(operand) / cases_element(operand));
	int64_t rows = cases_rows(operand), step = rows ? FILL_BLOCK * rows / count : 0;
	runner_parallel(options, count, FILL_BLOCK, fill_memory, &filling);
	runner_parallel(options, rows, step > 0 ? step : 1, fill_rows, &filling);
}

/* ---- Judging ---- */

struct judging {
	const struct cases_case *c;
	const void *const *memory;
	int64_t units, step, samples; /* blocks of step units; the first so many are samples */
	double end;
	pthread_mutex_t lock;
	struct cases_verdict *verdict;
	_Atomic bool partial;
};

/* Every sixteenth block, then the others in order. */
static int64_t block_at(const struct judging *judging, int64_t place)
{
	if (place < judging->samples)
		return place * JUDGE_SAMPLE;
	place -= judging->samples;
	return place + place / (JUDGE_SAMPLE - 1) + 1;
}

static void judge_part(void *arg, int64_t first, int64_t last)
{
	struct judging *judging = arg;
	for (int64_t place = first; place < last; place++) {
		int64_t unit = block_at(judging, place) * judging->step;
		int64_t end = unit + judging->step < judging->units ? unit + judging->step : judging->units;
		struct cases_verdict verdict = {0};
		if (place >= judging->samples && runner_now_us() > judging->end) {
			atomic_store(&judging->partial, true);
			return;
		}
		cases_judge(judging->c, judging->memory, unit, end, &verdict);
		pthread_mutex_lock(&judging->lock);
		if (verdict.wrong &&
			(!judging->verdict->wrong || verdict.element < judging->verdict->element))
			*judging->verdict = verdict;
		pthread_mutex_unlock(&judging->lock);
	}
}

bool runner_judge(const struct runner_options *options, const struct cases_case *c,
				  const void *const memory[], double seconds, struct cases_verdict *verdict)
{
	int64_t elements = 1, blocks;
	struct judging judging = {.c = c,
							  .memory = memory,
							  .units = c->op->units(c),
							  .end = runner_now_us() + seconds * 1e6,
							  .lock = PTHREAD_MUTEX_INITIALIZER,
							  .verdict = verdict};
	for (int i = 0; i < c->operand_count; i++)
		if (cases_elements(&c->operand[i]) > elements)
			elements = cases_elements(&c->operand[i]);
	judging.step = (int64_t)((double)judging.units / (double)elements * JUDGE_BLOCK);
	judging.step = judging.step < 1 ? 1 : judging.step;
	blocks = (judging.units + judging.step - 1) / judging.step;
	judging.samples = (blocks + JUDGE_SAMPLE - 1) / JUDGE_SAMPLE;
	runner_parallel(options, blocks, 1, judge_part, &judging);
	return !atomic_load(&judging.partial);
}
