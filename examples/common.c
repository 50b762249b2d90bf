/*
 * common.c: what the examples that time something share; common.h says what each function does.
 */
#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS 50 /* at most, and for about this long: */
#define SECONDS 0.5
#define IN_FLIGHT 64       /* calls that nobody has waited for yet */
#define DEADLINE_MS 120000 /* of one call */

kiln_client *begin(int argc, char **argv, int *small)
{
	kiln_connect_options options = {.size = sizeof(options), .flags = KILN_CONNECT_AUTOSTART};
	kiln_client *client = NULL;

	*small = argc == 2 && strcmp(argv[1], "--small") == 0;
	if (argc > 1 && !*small) {
		fprintf(stderr, "usage: %s [--small]\n", argv[0]);
		exit(2);
	}
	setvbuf(stdout, NULL, _IOLBF, 0); /* each row is seen when it is there, in a file too */
	must(kiln_connect(&options, &client));
	return client;
}

void must(int status)
{
	if (status == KILN_OK)
		return;
	fprintf(stderr, "%s: %s\n%s", kiln_status_name(status), kiln_errmsg(), kiln_errlog());
	exit(1);
}

void expect(double got, double want, double tolerance, const char *what, int64_t at)
{
	if (got == want || fabs(got - want) <= tolerance)
		return;
	fprintf(stderr, "%s: number %lld is %.9g and should be %.9g\n", what, (long long)at, got, want);
	exit(1);
}

double random_at(uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return (double)(x >> 11) * 0x1p-52 - 1;
}

void *host(size_t bytes)
{
	void *memory = calloc(bytes ? bytes : 1, 1);

	if (!memory) {
		fprintf(stderr, "no %zu bytes of memory here: try --small\n", bytes);
		exit(1);
	}
	return memory;
}

kiln_buffer *device(kiln_client *client, const char *name, const void *source, size_t bytes)
{
	kiln_buffer *buffer = NULL;

	must(kiln_alloc(client, bytes, 0, name, &buffer));
	if (source)
		must(kiln_write(buffer, 0, source, bytes));
	return buffer;
}

void *fetch(kiln_buffer *buffer)
{
	void *memory = host(kiln_buffer_bytes(buffer));

	must(kiln_read(buffer, 0, memory, kiln_buffer_bytes(buffer)));
	return memory;
}

void spoil(kiln_buffer *buffer)
{
	const size_t bytes = (size_t)kiln_buffer_bytes(buffer);
	void *memory = host(bytes);

	memset(memory, 0xff, bytes);
	must(kiln_write(buffer, 0, memory, bytes));
	free(memory);
}

struct step prepare(kiln_client *client, const char *op, const kiln_tensor *tensors, int count,
					const kiln_attr *attrs, int attr_count)
{
	struct step step = {.count = count};

	must(kiln_prepare(client, op, tensors, count, attrs, attr_count, &step.call));
	for (int i = 0; i < count; i++)
		step.operands[i] = (kiln_operand){tensors[i].buffer, tensors[i].offset};
	return step;
}

struct step prepare_raw(kiln_client *client, const char *source, const char *entry,
						const kiln_launch *launch)
{
	kiln_raw raw = {.size = sizeof(raw), .source = source, .entry = entry};
	struct step step = {.launch = launch};

	must(kiln_prepare_raw(client, &raw, &step.call));
	return step;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The steps follow each other without waiting for answers in between: calls of a client run in the
 * order in which they were submitted. */
struct took run(kiln_client *client, const struct step *steps, int count)
{
	kiln_ticket tickets[IN_FLIGHT];
	struct took took = {0, now()};

	for (int i = 0, waited = 0; waited < count;) {
		if (i < count && i - waited < IN_FLIGHT) {
			const struct step *step = &steps[i];
			kiln_ticket *ticket = &tickets[i++ % IN_FLIGHT];
			must(step->launch ? kiln_submit_raw(step->call, step->launch, 0, ticket)
							  : kiln_submit(step->call, step->operands, step->count, 0, ticket));
		} else {
			double micros;
			must(kiln_wait_time(client, tickets[waited++ % IN_FLIGHT], DEADLINE_MS, &micros));
			took.device += micros;
		}
	}
	took.wall = (now() - took.wall) * 1e6;
	return took;
}

struct took measure(kiln_client *client, const struct step *steps, int count)
{
	struct took sum = {0, 0};
	int runs = 0;

	run(client, steps, count);
	while (runs < RUNS && sum.wall < SECONDS * 1e6) {
		struct took took = run(client, steps, count);
		sum.device += took.device;
		sum.wall += took.wall;
		runs++;
	}
	return (struct took){sum.device / runs, sum.wall / runs};
}

struct took measure_copy(kiln_client *client, size_t moved)
{
	const int64_t bytes = (int64_t)(moved / 2), identity = 0;
	kiln_attr perm = kiln_attr_ints("perm", &identity, 1);
	kiln_buffer *from = device(client, "from", NULL, (size_t)bytes);
	kiln_buffer *to = device(client, "to", NULL, (size_t)bytes);
	kiln_tensor tensors[2];
	struct step step;
	struct took took;

	tensors[0] = kiln_tensor_make(from, 0, KILN_U8, 1, &bytes);
	tensors[1] = kiln_tensor_make(to, 0, KILN_U8, 1, &bytes);
	step = prepare(client, "permute", tensors, 2, &perm, 1);
	took = measure(client, &step, 1);
	kiln_call_free(step.call);
	kiln_free(to);
	kiln_free(from);
	return took;
}

void print_head(const kiln_client *client, const char *what)
{
	printf("%s on %s\n%-38s %12s %12s %8s %12s\n", what, kiln_device(client), "", "device us",
		   "its copy us", "copies", "wall us");
}

/* A device without a clock says 0; then the program's own time stands for it. */
void print_row(const char *name, struct took took, struct took copy)
{
	int told = took.device > 0 && copy.device > 0;

	printf("%-38s %12.1f %12.1f %8.2f %12.1f\n", name, took.device, copy.device,
		   told ? took.device / copy.device : took.wall / copy.wall, took.wall);
}
