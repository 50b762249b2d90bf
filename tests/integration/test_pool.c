/*
 * test_pool: which compile is next: what somebody waits for before what nobody waits for, a worker
 * kept free for it, and a worker of its own for each user's source.
 *
 * The first compiles hang until all others have asked.  Then they are killed and tried again, and
 * the next so many fail at once: how a compile ends says whether it was among those.
 */
#include "harness.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define ASKERS 5
#define ALL 1000 /* of the compiles of a test */
#define IMPATIENCE_MS 900

/* A program that asks for one kernel and waits for the answer. */
struct asker {
	const struct kilnd *daemon;
	bool background;
	int64_t rows;       /* of the transposition that it asks for */
	const char *source; /* a kernel of its own instead */
	pthread_t thread;
	int status; /* of the answer */
};

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
	kiln_reply_free(reply);
	kiln_close(client);
	return NULL;
}

static void start(struct asker *asker)
{
	assert_int_equal(pthread_create(&asker->thread, NULL, ask, asker), 0);
}

static void join(struct asker *asker, int status)
{
	pthread_join(asker->thread, NULL);
	assert_int_equal(asker->status, status);
}

/* A daemon with all workers idle, whose next compiles hang. */
static kiln_client *open_hanging(struct kilnd *daemon, const char *workers, int count)
{
	kiln_client *client;

	kilnd_start(daemon, OPTIONS("--workers", workers));
	client = client_open(daemon);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	debug_int(client, "hang-compile", "count", count);
	return client;
}

/* The next compiles fail, those included that hang now. */
static void let_go(kiln_client *client, int failing)
{
	const kiln_attr what = string_attr("what", "children");
	kiln_reply *reply;

	debug_int(client, "fail-compile", "count", failing);
	assert_ok(kiln_request(client, "debug", &what, 1, &reply));
	for (int i = 0; i < kiln_reply_count(reply, "rows"); i++) {
		char path[32];
		snprintf(path, sizeof(path), "rows[%d].state", i);
		bool is_busy = strcmp(kiln_reply_str(reply, path), "busy") == 0;
		snprintf(path, sizeof(path), "rows[%d].role", i);
		bool is_compiler = strcmp(kiln_reply_str(reply, path), "compiler") == 0;
		snprintf(path, sizeof(path), "rows[%d].pid", i);
		if (is_compiler && is_busy)
			assert_int_equal(kill((pid_t)kiln_reply_int(reply, path), SIGKILL), 0);
	}
	kiln_reply_free(reply);
}

static void test_interactive_first(void **state)
{
	struct kilnd *daemon = *state;
	struct asker askers[ASKERS];
	kiln_client *client = open_hanging(daemon, "1", 1);

	for (int i = 0; i < ASKERS; i++) {
		askers[i] = (struct asker){.daemon = daemon, .background = i < ASKERS - 1, .rows = 40 + i};
		start(&askers[i]);
		await_info(client, "busy.compiling", i + 1);
	}
	assert_int_equal(info_int(client, "workers.queued"), ASKERS - 1);
	assert_int_equal(info_int(client, "workers.queued_background"), ASKERS - 2);
	let_go(client, 2);
	for (int i = 0; i < ASKERS; i++)
		join(&askers[i], i == 0 || i == ASKERS - 1 ? KILN_ECOMPILE : KILN_OK);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_one_worker_left(void **state)
{
	struct kilnd *daemon = *state;
	struct asker askers[ASKERS];
	kiln_client *client = open_hanging(daemon, "3", 3);

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
	let_go(client, ALL);
	for (int i = 0; i < 5; i++)
		join(&askers[i], KILN_ECOMPILE);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A compile that nobody waited for has somebody who does. */
static void test_joined(void **state)
{
	struct kilnd *daemon = *state;
	struct asker askers[ASKERS];
	kiln_client *client = open_hanging(daemon, "1", 1);

	for (int i = 0; i < ASKERS - 1; i++) {
		askers[i] = (struct asker){.daemon = daemon, .background = true, .rows = 60 + i};
		start(&askers[i]);
		await_info(client, "busy.compiling", i + 1);
	}
	askers[ASKERS - 1] = (struct asker){.daemon = daemon, .rows = 60 + ASKERS - 2};
	start(&askers[ASKERS - 1]);
	await_info(client, "busy.waiting", ASKERS);
	/* Both have the answer, and before those that had been waiting for longer. */
	let_go(client, 2);
	for (int i = 0; i < ASKERS; i++)
		join(&askers[i], i == 0 || i >= ASKERS - 2 ? KILN_ECOMPILE : KILN_OK);
	assert_int_equal(info_int(client, "counters.jobs"), ASKERS - 1);
	assert_int_equal(info_int(client, "counters.failures"), 3);
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
	kiln_client *client = open_hanging(daemon, "1", 0);

	debug_int(client, "fail-compile", "count", ALL);
	start(&own);
	join(&own, KILN_ECOMPILE);
	/* It was the first of its worker, which has been replaced. */
	await_info(client, "workers.idle", 1);
	assert_int_equal(info_int(client, "workers.started"), 2);
	start(&shipped);
	join(&shipped, KILN_ECOMPILE);
	assert_int_equal(info_int(client, "workers.started"), 2);
	own.source = "extern \"C\" __global__ void twice(float *x) { *x += *x; }\n";
	start(&own);
	join(&own, KILN_ECOMPILE);
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
	kiln_client *client = open_hanging(daemon, "3", 3);

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
	let_go(client, ALL);
	for (int i = 0; i < 3; i++)
		join(&askers[i], KILN_ECOMPILE);
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
	debug_int(client, "hang-compile", "count", 1);
	for (int i = 0; i < 2; i++) {
		askers[i] = (struct asker){.daemon = daemon, .rows = 96 + i};
		start(&askers[i]);
	}
	await_info(client, "workers.held", 1);
	assert_int_equal(info_int(client, "workers.busy"), 1);
	let_go(client, ALL);
	for (int i = 0; i < 2; i++)
		join(&askers[i], KILN_ECOMPILE);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* The last who waits for a background compile leaves, too. */
static void test_background_left(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client = open_hanging(daemon, "1", 1), *other = NULL;
	kiln_connect_options options = {.size = sizeof(options),
									.socket = daemon->socket,
									.device = "cpu",
									.timeout_ms = IMPATIENCE_MS,
									.flags = KILN_CONNECT_BACKGROUND};
	kiln_reply *reply = NULL;

	for (int64_t end = now_ms() + CALL_TIMEOUT_MS; !other && now_ms() < end;)
		(void)kiln_connect(&options, &other); /* which has no more time than a request */
	assert_non_null(other);
	assert_int_equal(ask_shipped(other, 80, &reply), KILN_ETIMEDOUT);
	await_info(client, "workers.busy", 1);
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
