/*
 * gpu_latency: what a call costs: specializing a kernel, finding it in the cache, calling it again
 * and again, one at a time and queued.
 */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 256 /* 64 Ki floats */

struct pair {
	kiln_tensor tensors[2];
	int64_t perm[2];
	kiln_attr attr;
};

#define LARGE_SIDE 16384 /* 1 GiB */

static void describe(struct pair *pair, int64_t rows, int64_t columns)
{
	memset(pair, 0, sizeof(*pair));
	for (int i = 0; i < 2; i++) {
		pair->tensors[i].dtype = KILN_F32;
		pair->tensors[i].rank = 2;
		pair->tensors[i].contiguous = 1;
		pair->tensors[i].shape[i] = rows;
		pair->tensors[i].shape[1 - i] = columns;
	}
	pair->perm[0] = 1;
	pair->attr.name = "perm";
	pair->attr.kind = KILN_ATTR_INTS;
	pair->attr.ints = pair->perm;
	pair->attr.count = 2;
}

/* The microseconds of a prepare that ended as wanted; negative: it did not. */
static double prepare_once(const struct runner_options *options, int64_t columns,
						   const char *origin)
{
	struct pair pair;
	kiln_call *call = NULL;
	double micros = -1;
	kiln_client *client = runner_connect(options);
	describe(&pair, 1000, columns);
	double start = runner_now_us();
	if (!client ||
		kiln_prepare(client, "permute", pair.tensors, 2, &pair.attr, 1, &call) != KILN_OK)
		runner_fail("prepare", "%s", client ? kiln_errmsg() : "no connection");
	else if (strcmp(kiln_call_origin(call), origin) != 0)
		runner_fail("prepare", "1000x%lld came by \"%s\" and not by \"%s\"", (long long)columns,
					kiln_call_origin(call), origin);
	else
		micros = runner_now_us() - start;
	kiln_call_free(call);
	kiln_close(client);
	return micros;
}

/* Every prepare of a size not asked for before; `first` keeps runs over one cache apart. */
static void measure_prepare(const struct runner_options *options, int64_t first, const char *origin,
							const char *name)
{
	enum { COUNT = 12 };
	double times[COUNT];
	char label[96];
	int measured = 0;
	for (int i = 0; i < COUNT; i++) {
		double micros = prepare_once(options, first + i, origin);
		if (micros >= 0) {
			times[measured++] = micros;
			runner_pass();
		}
	}
	if (measured == 0)
		return;
	snprintf(label, sizeof(label), "%s, median", name);
	runner_figure(options, label, runner_percentile(times, measured, 0.5), "us");
	snprintf(label, sizeof(label), "%s, worst of %d", name, measured);
	runner_figure(options, label, runner_percentile(times, measured, 1.0), "us");
}

/* One at a time: submit and wait. */
static bool one_by_one(kiln_client *client, kiln_call *call, const kiln_operand *operands,
					   double *times, int count)
{
	for (int i = 0; i < count; i++) {
		kiln_ticket ticket;
		double start = runner_now_us();
		if (kiln_submit(call, operands, 2, 0, &ticket) != KILN_OK ||
			kiln_wait(client, ticket, 10000) != KILN_OK)
			return false;
		times[i] = runner_now_us() - start;
	}
	return true;
}

/* Up to `depth` submitted at once. */
static bool queued(kiln_client *client, kiln_call *call, const kiln_operand *operands, int count,
				   int depth)
{
	kiln_ticket tickets[64];
	for (int i = 0; i < count + depth; i++) {
		if (i >= depth && kiln_wait(client, tickets[i % depth], 10000) != KILN_OK)
			return false;
		if (i < count && kiln_submit(call, operands, 2, 0, &tickets[i % depth]) != KILN_OK)
			return false;
	}
	return true;
}

static void measure_calls(const struct runner_options *options, kiln_client *client)
{
	struct pair pair;
	kiln_call *call = NULL;
	int count = options->quick ? 500 : 5000, depth = 32;
	double *times = calloc((size_t)count, sizeof(*times));
	kiln_operand operands[2] = {{NULL, 0}, {NULL, 0}};
	describe(&pair, SIDE, SIDE);
	if (!times || kiln_alloc(client, SIDE * SIDE * 4, 0, "x", &operands[0].buffer) != KILN_OK ||
		kiln_alloc(client, SIDE * SIDE * 4, 0, "y", &operands[1].buffer) != KILN_OK ||
		kiln_prepare(client, "permute", pair.tensors, 2, &pair.attr, 1, &call) != KILN_OK ||
		!one_by_one(client, call, operands, times, 1)) {
		runner_fail("calls", "%s", kiln_errmsg());
		goto done;
	}
	runner_figure(options, "first call of a prepared kernel", times[0], "us");
	if (!one_by_one(client, call, operands, times, count)) {
		runner_fail("calls one by one", "%s", kiln_errmsg());
		goto done;
	}
	runner_figure(options, "call of 64 Ki floats, one at a time, p50",
				  runner_percentile(times, count, 0.5), "us");
	runner_figure(options, "call of 64 Ki floats, one at a time, p99",
				  runner_percentile(times, count, 0.99), "us");
	double start = runner_now_us();
	if (!queued(client, call, operands, count, depth)) {
		runner_fail("calls queued", "%s", kiln_errmsg());
		goto done;
	}
	runner_figure(options, "call of 64 Ki floats, 32 queued, each",
				  (runner_now_us() - start) / count, "us");
	runner_pass();
done:
	kiln_call_free(call);
	kiln_free(operands[0].buffer);
	kiln_free(operands[1].buffer);
	free(times);
}

/* The daemon's account of the device's time beside the device's clock.  Device cpu hears of ends as
 * its machine has time, so there it is not judged. */
static void measure_clock(const struct runner_options *options, kiln_client *client)
{
	bool gpu = !strncmp(options->device, "cuda", 4);
	int64_t side = gpu ? LARGE_SIDE : 1024;
	struct runner_clock first = {0}, clock = {0};
	struct pair pair;
	kiln_call *call = NULL;
	kiln_operand operands[2] = {{NULL, 0}, {NULL, 0}};
	uint64_t bytes = (uint64_t)side * (uint64_t)side * 4;
	describe(&pair, side, side);
	if (kiln_alloc(client, bytes, 0, "x", &operands[0].buffer) != KILN_OK ||
		kiln_alloc(client, bytes, 0, "y", &operands[1].buffer) != KILN_OK ||
		kiln_prepare(client, "permute", pair.tensors, 2, &pair.attr, 1, &call) != KILN_OK ||
		runner_clock(client, call, operands, 1, &first) != KILN_OK ||
		runner_clock(client, call, operands, 64, &clock) != KILN_OK) {
		runner_fail("device time", "%s", kiln_errmsg());
	} else {
		runner_figure(options, "device time as the daemon counts it, beside the device's clock",
					  clock.counted / clock.device, "");
		RUNNER_CHECK("device time", !gpu || runner_within(clock.counted, clock.device, 0.02));
	}
	kiln_call_free(call);
	kiln_free(operands[0].buffer);
	kiln_free(operands[1].buffer);
}

int main(int argc, char **argv)
{
	struct runner_options options;
	if (!runner_options_read(argc, argv, &options))
		return 2;
	kiln_client *client = runner_connect(&options);
	if (!client)
		return 1;
	/* Odd sizes that nobody else asks for, so that each is a kernel of its own. */
	int64_t first = 2001 + (int64_t)options.seed * 64;
	measure_prepare(&options, first, "compiled", "cold: plan, compile, store");
	measure_prepare(&options, first, "hit", "warm: plan, find in the cache");
	measure_calls(&options, client);
	measure_clock(&options, client);
	kiln_close(client);
	return runner_end(&options);
}
