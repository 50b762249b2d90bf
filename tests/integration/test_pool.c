/*
 * test_pool: which compile is next: what somebody waits for before what nobody waits for, a worker
 * kept free for it, and a worker of its own for each user's source.
 */
#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define ASKERS 8
#define DELAY_MS 150 /* of every compile, which then fails by itself */
#define HELD_MS 2000 /* of one that goes on until all others have asked */

/* A program that asks for one kernel and waits for the answer. */
struct asker {
	const struct kilnd *daemon;
	bool background;
	int64_t rows;       /* of the transposition that it asks for */
	const char *source; /* a kernel of its own instead */
	pthread_t thread;
	int status, order; /* of the answers */
};

static atomic_int answers;

static int ask_shipped(kiln_client *client, int64_t rows, kiln_reply **reply)
{
	struct permute problem = transpose(rows, 33);
	kiln_tensor tensors[2] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);

	return kiln_compile(client, "permute", tensors, 2, &perm, 1, "cpu", reply);
}

static int ask_own(kiln_client *client, const char *source, kiln_reply **reply)
{
	kiln_raw raw = {.size = sizeof(raw), .source = source, .entry = "twice"};

	return kiln_compile_raw(client, &raw, "cpu", reply);
}

static void *ask(void *arg)
{
	struct asker *asker = arg;
	kiln_connect_options options = {
		.size = sizeof(options),
		.socket = asker->daemon->socket,
		.device = "cpu",
		.timeout_ms = CALL_TIMEOUT_MS,
		.flags = asker->background ? KILN_CONNECT_BACKGROUND : 0,
	};
	kiln_client *client = NULL;
	kiln_reply *reply = NULL;

	asker->status = kiln_connect(&options, &client);
	if (asker->status == KILN_OK)
		asker->status = asker->source ? ask_own(client, asker->source, &reply)
									  : ask_shipped(client, asker->rows, &reply);
	asker->order = atomic_fetch_add(&answers, 1);
	kiln_reply_free(reply);
	kiln_close(client);
	return NULL;
}

static void start(struct asker *asker)
{
	assert_int_equal(pthread_create(&asker->thread, NULL, ask, asker), 0);
}

static void join(struct asker *asker)
{
	pthread_join(asker->thread, NULL);
	assert_int_equal(asker->status, KILN_ECOMPILE);
}

/* A daemon whose compiles last DELAY_MS and fail, with all workers idle. */
static kiln_client *open_slow(struct kilnd *daemon, const char *workers)
{
	kiln_client *client;

	kilnd_start(daemon, OPTIONS("--workers", workers));
	client = client_open(daemon);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	debug_int(client, "delay-compile", "ms", DELAY_MS);
	debug_int(client, "fail-compile", "count", 1000);
	atomic_store(&answers, 0);
	return client;
}

static void test_interactive_first(void **state)
{
	struct kilnd *daemon = *state;
	struct asker askers[ASKERS];
	kiln_client *client = open_slow(daemon, "1");

	debug_int(client, "delay-compile", "ms", HELD_MS);
	for (int i = 0; i < ASKERS; i++)
		askers[i] = (struct asker){.daemon = daemon, .background = i < ASKERS - 1, .rows = 40 + i};
	for (int i = 0; i < ASKERS - 1; i++)
		start(&askers[i]);
	await_info(client, "workers.queued", ASKERS - 2);
	assert_int_equal(info_int(client, "workers.queued_background"), ASKERS - 2);
	debug_int(client, "delay-compile", "ms", DELAY_MS);
	start(&askers[ASKERS - 1]);
	await_info(client, "workers.queued", ASKERS - 1);
	for (int i = 0; i < ASKERS; i++)
		join(&askers[i]);
	/* After the one that was under way; two answers may be heard of in either order. */
	assert_in_range(askers[ASKERS - 1].order, 1, 2);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_one_worker_left(void **state)
{
	struct kilnd *daemon = *state;
	struct asker askers[ASKERS];
	kiln_client *client = open_slow(daemon, "3");

	debug_int(client, "delay-compile", "ms", HELD_MS);
	for (int i = 0; i < 4; i++) {
		askers[i] = (struct asker){.daemon = daemon, .background = true, .rows = 50 + i};
		start(&askers[i]);
	}
	await_info(client, "workers.queued_background", 2);
	assert_int_equal(info_int(client, "workers.busy"), 2);
	assert_int_equal(info_int(client, "workers.idle"), 1);
	askers[4] = (struct asker){.daemon = daemon, .rows = 54};
	start(&askers[4]);
	await_info(client, "workers.busy", 3);
	assert_int_equal(info_int(client, "workers.queued_background"), 2);
	for (int i = 0; i < 5; i++)
		join(&askers[i]);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A compile that nobody waited for has somebody who does. */
static void test_joined(void **state)
{
	struct kilnd *daemon = *state;
	struct asker askers[ASKERS];
	kiln_client *client = open_slow(daemon, "1");

	debug_int(client, "delay-compile", "ms", HELD_MS);
	for (int i = 0; i < ASKERS - 1; i++) {
		askers[i] = (struct asker){.daemon = daemon, .background = true, .rows = 60 + i};
		start(&askers[i]);
		await_info(client, "busy.compiling", i + 1);
	}
	debug_int(client, "delay-compile", "ms", DELAY_MS);
	askers[ASKERS - 1] = (struct asker){.daemon = daemon, .rows = 60 + ASKERS - 2};
	start(&askers[ASKERS - 1]);
	for (int i = 0; i < ASKERS; i++)
		join(&askers[i]);
	/* Both have the answer, and before those that had been waiting for longer. */
	assert_true(askers[ASKERS - 1].order < askers[ASKERS - 3].order);
	assert_true(askers[ASKERS - 2].order < askers[ASKERS - 3].order);
	assert_int_equal(info_int(client, "counters.jobs"), ASKERS - 1);
	assert_int_equal(info_int(client, "counters.failures"), ASKERS);
	kiln_close(client);
	kilnd_stop(daemon);
}

static const char twice[] = "extern \"C\" __global__ void twice(float *x) { *x *= 2; }\n";

/* No other job before it in its worker, and none after it. */
static void test_own_worker(void **state)
{
	struct kilnd *daemon = *state;
	struct asker shipped = {.daemon = daemon, .rows = 70},
				 own = {.daemon = daemon, .source = twice};
	kiln_client *client = open_slow(daemon, "1");

	start(&own);
	join(&own);
	/* It was the first of its worker, which has been replaced. */
	await_info(client, "workers.idle", 1);
	assert_int_equal(info_int(client, "workers.started"), 2);
	start(&shipped);
	join(&shipped);
	assert_int_equal(info_int(client, "workers.started"), 2);
	own.source = "extern \"C\" __global__ void twice(float *x) { *x += *x; }\n";
	start(&own);
	join(&own);
	await_info(client, "workers.idle", 1);
	/* One for it, and one for those after it. */
	assert_int_equal(info_int(client, "workers.started"), 4);
	assert_int_equal(info_int(client, "workers.recycled"), 3);
	assert_int_equal(info_int(client, "counters.worker_faults"), 0);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* One at a time where there is memory for one, and all together when there is more. */
static void test_memory(void **state)
{
	struct kilnd *daemon = *state;
	struct asker askers[ASKERS];
	kiln_client *client = open_slow(daemon, "3");

	debug_int(client, "delay-compile", "ms", HELD_MS);
	debug_int(client, "available-memory", "bytes", 1);
	for (int i = 0; i < 3; i++) {
		askers[i] = (struct asker){.daemon = daemon, .rows = 90 + i};
		start(&askers[i]);
	}
	await_info(client, "workers.held", 2);
	assert_int_equal(info_int(client, "workers.busy"), 1);
	assert_true(info_int(client, "workers.memory_waits") >= 1);
	assert_true(info_int(client, "workers.resident_bytes") > 1 << 20);
	debug_int(client, "available-memory", "bytes", 0);
	await_info(client, "workers.busy", 3);
	await_info(client, "workers.held", 0);
	for (int i = 0; i < 3; i++)
		join(&askers[i]);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* The cap is one for all, and what compiles take is measured. */
static void test_memory_cap(void **state)
{
	struct kilnd *daemon = *state;
	struct asker askers[2];
	struct permute problem = transpose(95, 33);

	kilnd_start(daemon, OPTIONS("--workers", "2", "--test-compile-memory", "64M"));
	kiln_client *client = client_open(daemon);
	await_info(client, "workers.idle", 2);
	assert_int_equal(info_int(client, "workers.job_bytes.host"), 256 << 20);
	assert_permutes(client, &problem, "compiled");
	/* By the host's compiler, which is a program of some size. */
	assert_true(info_int(client, "workers.job_bytes.host") < 256 << 20);
	assert_true(info_int(client, "workers.job_bytes.host") > 8 << 20);
	assert_int_equal(info_int(client, "workers.job_bytes.host_own"), 256 << 20);
	debug_int(client, "delay-compile", "ms", DELAY_MS);
	debug_int(client, "fail-compile", "count", 2);
	for (int i = 0; i < 2; i++) {
		askers[i] = (struct asker){.daemon = daemon, .rows = 96 + i};
		start(&askers[i]);
	}
	await_info(client, "workers.held", 1);
	assert_int_equal(info_int(client, "workers.busy"), 1);
	for (int i = 0; i < 2; i++)
		join(&askers[i]);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* The last who waits for a background compile leaves, too. */
static void test_background_left(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client = open_slow(daemon, "1"), *other;
	kiln_connect_options options = {.size = sizeof(options),
									.socket = daemon->socket,
									.device = "cpu",
									.timeout_ms = 6 * DELAY_MS,
									.flags = KILN_CONNECT_BACKGROUND};
	kiln_reply *reply = NULL;

	debug_int(client, "delay-compile", "ms", 0);
	debug_int(client, "hang-compile", "count", 1);
	assert_ok(kiln_connect(&options, &other));
	assert_int_equal(ask_shipped(other, 80, &reply), KILN_ETIMEDOUT);
	assert_int_equal(info_int(client, "workers.busy"), 1);
	kiln_close(other);
	await_info(client, "counters.canceled", 1);
	await_info(client, "workers.idle", 1);
	assert_int_equal(info_int(client, "workers.killed"), 1);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_interactive_first),
		HARNESS_TEST(test_one_worker_left),
		HARNESS_TEST(test_joined),
		HARNESS_TEST(test_own_worker),
		HARNESS_TEST(test_background_left),
		HARNESS_TEST(test_memory),
		HARNESS_TEST(test_memory_cap),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
