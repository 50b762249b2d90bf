/*
 * launch_trace.c: what a trace of a client's calls costs it: kernels of 20 us, each waited for, and
 * queued; with and without a trace in turns, so that what drifts meets both.
 */
#include "launch.h"

#include <kiln/ops.h>

#include <stdio.h>
#include <stdlib.h>

#define KERNEL_US 20
#define SIZE_MOST (64ll << 20) /* elements; some devices are slow, and none is that fast */
#define MOST_ROUNDS 20

struct traced {
	struct service service;
	double device_us;
};

static bool open_size(struct bench *bench, int64_t elements, struct traced *traced)
{
	struct service *service = &traced->service;
	kiln_tensor tensors[2];
	kiln_attr attrs[2];
	double times[11];
	kiln_ticket ticket;
	service_describe(tensors, attrs);
	service->client = runner_connect(&bench->options);
	for (int i = 0; i < 2; i++) {
		tensors[i] = kiln_tensor_make(NULL, 0, KILN_F32, 1, &elements);
		if (!service->client || kiln_alloc(service->client, (uint64_t)elements * 4, 0,
										   i ? "y" : "x", &service->operands[i].buffer))
			return false;
	}
	if (kiln_prepare(service->client, "map", tensors, 2, attrs, 2, &service->call))
		return false;
	for (int i = 0; i < 11; i++)
		if (kiln_submit(service->call, service->operands, 2, 0, &ticket) ||
			kiln_wait_time(service->client, ticket, LAUNCH_DEADLINE_MS, &times[i]))
			return false;
	traced->device_us = runner_percentile(times, 11, 0.5);
	return true;
}

/* The smallest array, of a power of two times 64 Ki, whose kernel takes that long. */
static bool open_traced(struct bench *bench, struct traced *traced)
{
	for (int64_t elements = LAUNCH_ELEMENTS; elements <= SIZE_MOST; elements *= 2) {
		if (!open_size(bench, elements, traced))
			return false;
		if (traced->device_us >= KERNEL_US || elements == SIZE_MOST)
			return true;
		service_close(&traced->service);
	}
	return false;
}

/* The median of a launch that is waited for, or of LAUNCH_DEPTH queued ones; negative: failed. */
static double measure(const struct traced *traced, int launches, bool queued)
{
	const struct service *service = &traced->service;
	double *times = calloc((size_t)launches, sizeof(*times)), median = -1;
	int depth = queued ? LAUNCH_DEPTH : 1, done = 0;
	bool good = times;
	while (good && done < launches) {
		kiln_ticket tickets[LAUNCH_DEPTH];
		double begin = runner_now_us();
		for (int i = 0; i < depth && good; i++)
			good = !kiln_submit(service->call, service->operands, 2, 0, &tickets[i]);
		for (int i = depth - 1; i >= 0 && good; i--)
			good = !kiln_wait(service->client, tickets[i], LAUNCH_DEADLINE_MS);
		times[done++] = (runner_now_us() - begin) / depth;
	}
	if (good)
		median = runner_percentile(times, done, 0.5);
	free(times);
	return median;
}

/* One round of both; what the trace missed, or -1. */
static int64_t measure_round(const struct traced *traced, int launches, double single[2],
							 double queue[2])
{
	kiln_client *client = traced->service.client;
	kiln_reply *reply = NULL;
	int64_t missed = -1;
	single[0] = measure(traced, launches, false);
	queue[0] = measure(traced, launches / 10, true);
	if (single[0] < 0 || queue[0] < 0 || kiln_request(client, "trace.begin", NULL, 0, &reply))
		return -1;
	kiln_reply_free(reply);
	reply = NULL;
	single[1] = measure(traced, launches, false);
	queue[1] = measure(traced, launches / 10, true);
	if (!kiln_request(client, "trace.end", NULL, 0, &reply) && single[1] > 0 && queue[1] > 0 &&
		kiln_reply_int(reply, "spans") > 0)
		missed = kiln_reply_int(reply, "missed") + kiln_reply_int(reply, "dropped");
	kiln_reply_free(reply);
	return missed;
}

static void show(const struct bench *bench, const char *what, double *times[2], int rounds)
{
	double off = runner_percentile(times[0], rounds, 0.5);
	double on = runner_percentile(times[1], rounds, 0.5);
	char name[64];
	snprintf(name, sizeof(name), "%s, no trace", what);
	table_row(bench, &(struct figure){name, off, "us", 0, NULL, AIM_NONE, 0});
	snprintf(name, sizeof(name), "%s, traced", what);
	table_row(bench, &(struct figure){name, on, "us", on / off, "no trace", AIM_AT_MOST, 1.02});
}

void launch_trace(struct bench *bench)
{
	double single[2][MOST_ROUNDS], queue[2][MOST_ROUNDS];
	struct traced traced = {.service.client = NULL};
	int rounds = bench->options.quick ? 3 : MOST_ROUNDS, round = 0;
	int launches = bench->options.quick ? 50 : 1000;
	int64_t missed = 0;
	table_section("one program whose calls are traced");
	bool good = open_traced(bench, &traced);
	for (; good && round < rounds; round++) {
		double one[2], many[2];
		int64_t more = measure_round(&traced, launches, one, many);
		good = more >= 0;
		for (int i = 0; i < 2 && good; i++) {
			single[i][round] = one[i];
			queue[i][round] = many[i];
		}
		missed += more;
	}
	if (good) {
		table_row(bench,
				  &(struct figure){"on the device", traced.device_us, "us", 0, NULL, AIM_NONE, 0});
		show(bench, "launch and wait", (double *[]){single[0], single[1]}, rounds);
		show(bench, "64 queued, each", (double *[]){queue[0], queue[1]}, rounds);
		table_row(bench, &(struct figure){"calls that are in no trace", (double)missed, "", 0, NULL,
										  AIM_NONE, 0});
		runner_pass();
	} else {
		runner_fail("traced", "%s", kiln_errmsg());
	}
	service_close(&traced.service);
}
