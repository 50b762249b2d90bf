/*
 * bench_daemon.c: launching through a running kilnd, as any program does; the times are the
 * device's own, which the daemon passes on.
 */
#include "bench.h"

#include <kiln/ops.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLACK 4096        /* behind each pool */
#define MOST_LAUNCHES 128 /* of a batch */
#define MOST_BLOCKERS 128 /* large copies before it */
#define BLOCKER (512ull << 20)
#define VECTOR_GAP 16 /* vectors between the halves of what is copied */
#define DEADLINE_MS 120000

struct bench_ready {
	struct bench_work work;
	kiln_call *call;
};

static struct {
	kiln_client *client;
	kiln_buffer *pool[2], *blocker;
	struct bench_ready block; /* the call that keeps the device busy */
	int blockers;
	char why[400];
} service;

static bool good(int status, const char *what)
{
	if (status != KILN_OK)
		snprintf(service.why, sizeof(service.why), "%s: %s", what, kiln_errmsg());
	return status == KILN_OK;
}

static const char *daemon_why(void)
{
	return service.why;
}

/* ---- Calls ---- */

static int prepare_permute(const kiln_tensor tensors[2], const int64_t *perm, int rank,
						   kiln_call **call)
{
	const kiln_attr attr = {.name = "perm", .kind = KILN_ATTR_INTS, .ints = perm, .count = rank};

	return kiln_prepare(service.client, "permute", tensors, 2, &attr, 1, call);
}

/* Identity over bytes: the driver's own copy. */
static int prepare_memcpy(uint64_t bytes, kiln_call **call)
{
	const int64_t shape = (int64_t)bytes, perm = 0;
	const kiln_tensor tensors[2] = {kiln_tensor_make(NULL, 0, KILN_U8, 1, &shape),
									kiln_tensor_make(NULL, 0, KILN_U8, 1, &shape)};

	return prepare_permute(tensors, &perm, 1, call);
}

/* Two halves that lie a little apart: too much for the driver's copy, and the plainest kernel. */
static int prepare_vectors(uint64_t bytes, kiln_call **call)
{
	const int64_t half = bytes < 32 ? 1 : (int64_t)(bytes / 32), perm[2] = {0, 1};
	const int64_t shape[2] = {2, half};
	kiln_tensor tensors[2] = {kiln_tensor_make(NULL, 0, KILN_C128, 2, shape),
							  kiln_tensor_make(NULL, 0, KILN_C128, 2, shape)};

	tensors[0].contiguous = 0;
	tensors[0].stride[0] = half + VECTOR_GAP;
	tensors[0].stride[1] = 1;
	return prepare_permute(tensors, perm, 2, call);
}

static int prepare_case(const struct bench_work *work, kiln_call **call)
{
	kiln_tensor tensors[CASES_MAX_OPERANDS];
	kiln_attr attrs[CASES_MAX_ATTRS + 1];
	int count = work->c->attr_count;

	cases_tensors(work->c, tensors);
	cases_attrs(work->c, attrs);
	/* The daemon's planner knows how many processors its device has, and makes its own choice. */
	if (work->item->plan.choice[0] && !work->item->own)
		attrs[count++] = (kiln_attr){
			.name = PLAN_CHOICE, .kind = KILN_ATTR_STRING, .s = work->item->plan.choice};
	return kiln_prepare(service.client, work->c->op->name, tensors, work->c->operand_count, attrs,
						count, call);
}

static bool daemon_prepare(const struct bench_work *work, struct bench_ready **out)
{
	struct bench_ready *ready = calloc(1, sizeof(*ready));
	int status;

	if (!ready)
		return false;
	ready->work = *work;
	if (work->kind == BENCH_MEMCPY)
		status = prepare_memcpy(work->bytes, &ready->call);
	else if (work->kind == BENCH_VECTORS)
		status = prepare_vectors(work->bytes, &ready->call);
	else
		status = prepare_case(work, &ready->call);
	if (!good(status, "preparing")) {
		free(ready);
		return false;
	}
	*out = ready;
	return true;
}

static void daemon_release(struct bench_ready *ready)
{
	kiln_call_free(ready->call);
	free(ready);
}

static bool submit(const struct bench_ready *ready, int set, kiln_ticket *ticket)
{
	const struct bench_work *work = &ready->work;
	kiln_operand operands[KERNEL_MAX_OPERANDS] = {{NULL, 0}};

	for (int i = 0; i < work->place_count; i++) {
		const struct bench_place *place = &work->places[i];
		if (place->absent)
			continue;
		operands[i].buffer = service.pool[place->pool];
		operands[i].offset = place->at + (uint64_t)set * work->step[place->pool];
	}
	return good(kiln_submit(ready->call, operands, work->place_count, 0, ticket), "submitting");
}

/* ---- Memory ---- */

static bool daemon_put(enum bench_pool pool, uint64_t at, const void *host, uint64_t bytes)
{
	return good(kiln_write(service.pool[pool], at, host, bytes), "writing");
}

static bool daemon_get(void *host, enum bench_pool pool, uint64_t at, uint64_t bytes)
{
	return good(kiln_read(service.pool[pool], at, host, bytes), "reading");
}

static bool daemon_copy(enum bench_pool pool, uint64_t to, uint64_t from, uint64_t bytes)
{
	const kiln_operand operands[2] = {{service.pool[pool], from}, {service.pool[pool], to}};
	kiln_ticket ticket;
	kiln_call *call = NULL;
	bool copied = good(prepare_memcpy(bytes, &call), "preparing a copy") &&
				  good(kiln_submit(call, operands, 2, 0, &ticket), "copying") &&
				  good(kiln_wait(service.client, ticket, DEADLINE_MS), "copying");

	kiln_call_free(call);
	return copied;
}

static bool daemon_open(const struct bench_options *options, struct bench_objects *objects,
						const uint64_t pool_bytes[2], uint64_t scratch_bytes, char why[400])
{
	const uint64_t half = pool_bytes[0] / 2 < BLOCKER ? pool_bytes[0] / 2 : BLOCKER;
	struct runner_options runner = options->runner;

	(void)objects, (void)scratch_bytes;
	memset(&service, 0, sizeof(service));
	service.blockers = 8;
	runner.program = "bench_kernels";
	runner.socket = options->socket;
	runner.device = options->device;
	service.client = runner_connect(&runner);
	if (!service.client) {
		snprintf(why, 400, "no daemon");
		return false;
	}
	if (good(kiln_alloc(service.client, pool_bytes[0] + SLACK, 0, "inputs", &service.pool[0]),
			 "inputs") &&
		good(kiln_alloc(service.client, pool_bytes[1] + SLACK, 0, "outputs", &service.pool[1]),
			 "outputs") &&
		good(kiln_alloc(service.client, 2 * half, 0, "blocker", &service.blocker), "blocker") &&
		good(prepare_memcpy(half, &service.block.call), "blocker"))
		return true;
	snprintf(why, 400, "%.390s", service.why);
	return false;
}

static void daemon_close(void)
{
	kiln_call_free(service.block.call);
	kiln_free(service.pool[0]);
	kiln_free(service.pool[1]);
	kiln_free(service.blocker);
	kiln_close(service.client);
}

/* ---- Launching ---- */

/* Large copies that keep the device busy while what follows is submitted. */
static bool submit_blockers(kiln_ticket *tickets)
{
	const kiln_operand halves[2] = {{service.blocker, kiln_buffer_bytes(service.blocker) / 2},
									{service.blocker, 0}};

	for (int i = 0; i < service.blockers; i++)
		if (!good(kiln_submit(service.block.call, halves, 2, 0, &tickets[i]), "submitting"))
			return false;
	return true;
}

static bool collect(const kiln_ticket *tickets, int count, double *micros)
{
	bool all = true;

	for (int i = 0; i < count; i++)
		all =
			good(kiln_wait_time(service.client, tickets[i], DEADLINE_MS, &micros[i]), "waiting") &&
			all;
	return all;
}

static bool run_batch(const struct bench_ready *ready, int blockers, int count, double *busy_us,
					  double *host_us, double *micros)
{
	kiln_ticket tickets[MOST_BLOCKERS + MOST_LAUNCHES];
	double all[MOST_BLOCKERS + MOST_LAUNCHES];

	if (blockers && !submit_blockers(tickets))
		return false;
	double began = runner_now_us();
	for (int i = 0; i < count; i++)
		if (!submit(ready, i % ready->work.sets, &tickets[blockers + i]))
			return false;
	*host_us = runner_now_us() - began;
	if (!collect(tickets, blockers + count, all))
		return false;
	for (int i = 0; i < blockers; i++)
		*busy_us += all[i];
	memcpy(micros, all + blockers, (size_t)count * sizeof(*micros));
	return true;
}

static bool daemon_batch(struct bench_ready *ready, int count, double *micros)
{
	count = count < MOST_LAUNCHES ? count : MOST_LAUNCHES;
	for (;;) {
		double host_us, busy_us = 0;
		if (!run_batch(ready, service.blockers, count, &busy_us, &host_us, micros))
			return false;
		/* The device must not have waited for this program. */
		if (host_us < busy_us || service.blockers * 2 > MOST_BLOCKERS)
			return true;
		service.blockers *= 2;
	}
}

static bool daemon_wall(struct bench_ready *ready, int count, double *micros)
{
	double ignored[MOST_LAUNCHES], host_us, busy_us = 0, began = runner_now_us();

	count = count < MOST_LAUNCHES ? count : MOST_LAUNCHES;
	if (!run_batch(ready, 0, count, &busy_us, &host_us, ignored))
		return false;
	*micros = runner_now_us() - began;
	return true;
}

const struct bench_way bench_daemon = {
	.name = "daemon",
	.open = daemon_open,
	.close = daemon_close,
	.put = daemon_put,
	.get = daemon_get,
	.copy = daemon_copy,
	.prepare = daemon_prepare,
	.release = daemon_release,
	.batch = daemon_batch,
	.wall = daemon_wall,
	.why = daemon_why,
};
