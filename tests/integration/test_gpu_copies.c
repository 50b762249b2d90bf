/*
 * test_gpu_copies: bytes from one GPU to another, within one, and between one and the host: by
 * mappings of the source's memory where the two reach each other, and what becomes of these when
 * either end goes.  Over the fake driver.
 */
#include "harness.h"

#ifdef KILN_FAKE_CUDA_LIBRARY

#include "gpu_scene.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define BRIEF_MS 150 /* of a request that is to take its time */

#define LARGE (5u << 20)

static void fill(uint8_t *bytes, uint64_t seed)
{
	fill_random(bytes, LARGE, seed);
}

struct both {
	kiln_client *viewer;
	kiln_client *clients[2];
	kiln_buffer *buffers[2];
	uint8_t *expected, *got;
};

static void open_both(struct both *both, const struct kilnd *daemon, const char *one,
					  const char *other)
{
	const char *const names[] = {one, other};
	assert_ok(connect_to(daemon, "none", &both->viewer));
	both->expected = malloc(LARGE);
	both->got = malloc(LARGE);
	for (int i = 0; i < 2; i++) {
		assert_ok(connect_to(daemon, names[i], &both->clients[i]));
		assert_ok(kiln_alloc(both->clients[i], LARGE, 0, i ? "to" : "from", &both->buffers[i]));
	}
}

static void close_both(struct both *both)
{
	for (int i = 0; i < 2; i++) {
		assert_ok(kiln_free(both->buffers[i]));
		kiln_close(both->clients[i]);
	}
	kiln_close(both->viewer);
	free(both->expected);
	free(both->got);
}

/* Two GPUs that are as the settings say, and a buffer in each. */
static void begin_copies(struct kilnd *daemon, const char *settings, struct both *both)
{
	gpu_start(daemon, settings, "auto");
	open_both(both, daemon, "cuda:0", "cuda:1");
}

static void end_copies(struct kilnd *daemon, struct both *both)
{
	close_both(both);
	gpu_end(daemon);
}

/* Copies so many bytes from odd places; returns how many copies through the host that took. */
static int64_t assert_copies(struct both *both, int from, uint64_t bytes, uint64_t seed)
{
	const uint64_t from_at = 3, to_at = 70;
	kiln_buffer *source = both->buffers[from], *target = both->buffers[!from];
	fill(both->got, seed);
	assert_ok(kiln_write(source, 0, both->got, LARGE));
	fill(both->expected, seed + 1);
	assert_ok(kiln_write(target, 0, both->expected, LARGE));
	memcpy(both->expected + to_at, both->got + from_at, bytes);
	int64_t before = info_int(both->viewer, "counters.writes");
	assert_ok(kiln_copy(target, to_at, source, from_at, bytes));
	int64_t after = info_int(both->viewer, "counters.writes");
	assert_ok(kiln_read(target, 0, both->got, LARGE));
	assert_memory_equal(both->got, both->expected, LARGE);
	return after - before;
}

/* Until a device has mapped so much of others' memory. */
static void await_lent(kiln_client *viewer, const char *device, int64_t bytes)
{
	int64_t lent = -1, end = now_ms() + CALL_TIMEOUT_MS;
	while (lent != bytes) {
		char path[64];
		kiln_reply *reply = gpu_ask(viewer, "info");
		snprintf(path, sizeof(path), "executors[%d].lent_bytes",
				 gpu_row(reply, "executors", "device", device));
		lent = kiln_reply_int(reply, path);
		kiln_reply_free(reply);
		assert_in_range(now_ms(), 0, end);
	}
}

static void test_copies(void **state)
{
	struct kilnd *daemon = *state;
	struct both both;
	begin_copies(daemon, "gpus=2", &both);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(assert_copies(&both, i % 2, LARGE - 100, 10u * (unsigned)i), 0);
		assert_int_equal(assert_copies(&both, i % 2, 1001, 10u * (unsigned)i + 5), 1);
	}
	/* One mapping each way, whatever was copied, until the source is freed. */
	await_lent(both.viewer, "cuda:0", LARGE);
	await_lent(both.viewer, "cuda:1", LARGE);
	assert_ok(kiln_free(both.buffers[1]));
	await_lent(both.viewer, "cuda:0", 0);
	assert_ok(kiln_alloc(both.clients[1], LARGE, 0, "from", &both.buffers[1]));
	assert_ok(kiln_copy(both.buffers[0], LARGE, both.buffers[1], LARGE, 0));
	assert_int_equal(kiln_copy(both.buffers[0], 1, both.buffers[1], 0, LARGE), KILN_EINVAL);
	assert_sentence("5242880 bytes at offset 1 are not inside buffer \"from\" of 5242880");
	assert_int_equal(kiln_copy(both.buffers[0], 0, both.buffers[1], UINT64_MAX, 2), KILN_EINVAL);
	assert_int_equal(kiln_copy(NULL, 0, both.buffers[1], 0, 1), KILN_EINVAL);
	assert_sentence("to is NULL");
	end_copies(daemon, &both);
}

/* These two cannot reach each other: the bytes go through the host. */
static void test_out_of_reach(void **state)
{
	struct kilnd *daemon = *state;
	struct both both;
	begin_copies(daemon, "gpus=2,1:cuMemSetAccess=217", &both);
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 1), 1);
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 3), 1);
	gpu_is(daemon, "gpus=2,0:cuMemCreate=2");
	assert_int_equal(assert_copies(&both, 1, LARGE - 100, 5), 0);
	end_copies(daemon, &both);
}

/* Within a device, of one connection and of two, and between the host and a GPU. */
static void test_other_copies(void **state)
{
	static const char *const pairs[][2] = {{"cuda:0", "cuda:0"}, {"cpu", "cuda:1"}, {"cpu", "cpu"}};
	struct kilnd *daemon = *state;
	struct both both;
	gpu_start(daemon, "gpus=2", "auto");
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		open_both(&both, daemon, pairs[i][0], pairs[i][1]);
		bool gpu = !strcmp(pairs[i][0], "cuda:0");
		assert_int_equal(assert_copies(&both, 0, LARGE - 100, i), gpu ? 0 : 1);
		assert_int_equal(assert_copies(&both, 1, LARGE - 100, i), gpu ? 0 : 1);
		fill(both.expected, 99);
		assert_ok(kiln_write(both.buffers[0], 0, both.expected, LARGE));
		assert_ok(kiln_copy(both.buffers[0], 1 << 20, both.buffers[0], 0, 1 << 20));
		memcpy(both.expected + (1 << 20), both.expected, 1 << 20);
		assert_ok(kiln_read(both.buffers[0], 0, both.got, LARGE));
		assert_memory_equal(both.got, both.expected, LARGE);
		assert_int_equal(kiln_copy(both.buffers[0], 7, both.buffers[0], 0, 100), KILN_EINVAL);
		close_both(&both);
	}
	gpu_end(daemon);
}

/* Until the next process of its device is there. */
static void await_use(kiln_buffer *buffer, const uint8_t *bytes)
{
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (kiln_write(buffer, 0, bytes, LARGE) != KILN_OK) {
		assert_in_range(now_ms(), 0, end);
		pause_ms(5);
	}
}

/* Either end goes away: a copy says so, the next one succeeds, and what was shared is there still
 * when the process that made it is gone. */
static void test_ends_that_go(void **state)
{
	struct kilnd *daemon = *state;
	struct both both;
	begin_copies(daemon, "gpus=2", &both);
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 1), 0);
	gpu_is(daemon, "gpus=2,1:cuMemcpyDtoDAsync=719");
	assert_int_equal(kiln_copy(both.buffers[1], 0, both.buffers[0], 0, LARGE), KILN_EDEVICE);
	assert_sentence("719");
	gpu_is(daemon, "gpus=2");
	await_use(both.buffers[1], both.expected);
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 2), 0);
	pid_t pid = gpu_process(both.viewer, "cuda:0", NULL);
	assert_int_equal(kill(pid, SIGKILL), 0);
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (kiln_read(both.buffers[0], 0, both.expected, LARGE) != KILN_OK ||
		   gpu_process(both.viewer, "cuda:0", NULL) == pid) {
		assert_in_range(now_ms(), 0, end);
		pause_ms(5);
	}
	assert_ok(kiln_copy(both.buffers[1], 0, both.buffers[0], 0, LARGE));
	assert_ok(kiln_read(both.buffers[1], 0, both.got, LARGE));
	assert_memory_equal(both.got, both.expected, LARGE);
	end_copies(daemon, &both);
}

/* The source's memory becomes another, in a process that cannot import the old one: the copy is of
 * the new. */
static void test_other_memory(void **state)
{
	struct kilnd *daemon = *state;
	struct both both;
	begin_copies(daemon, "gpus=2", &both);
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 1), 0);
	gpu_is(daemon, "gpus=2,0:cuMemImportFromShareableHandle=999");
	assert_int_equal(kill(gpu_process(both.viewer, "cuda:0", NULL), SIGKILL), 0);
	await_use(both.buffers[0], both.expected);
	gpu_is(daemon, "gpus=2");
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 2), 0);
	await_lent(both.viewer, "cuda:1", LARGE);
	end_copies(daemon, &both);
}

struct looker {
	kiln_client *client;
	atomic_bool enough;
	int looked;
};

/* Is inside its client most of the time. */
static void *look_slowly(void *arg)
{
	struct looker *looker = arg;
	while (!atomic_load(&looker->enough)) {
		kiln_reply *reply = NULL;
		looker->looked += kiln_request(looker->client, "cache.ls", NULL, 0, &reply) == KILN_OK;
		kiln_reply_free(reply);
	}
	return NULL;
}

/* The source is freed while another thread is inside the destination's client, which lets go of
 * the mapping as it leaves; and after that client was closed. */
static void test_freed_meanwhile(void **state)
{
	struct kilnd *daemon = *state;
	struct both both;
	struct looker looker = {0};
	pthread_t thread;
	uint8_t byte;
	begin_copies(daemon, "gpus=2", &both);
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 1), 0);
	debug_int(both.viewer, "delay-store", "ms", BRIEF_MS);
	looker.client = both.clients[1];
	assert_int_equal(pthread_create(&thread, NULL, look_slowly, &looker), 0);
	while (kiln_read(both.buffers[1], 0, &byte, 1) != KILN_EBUSY)
		continue;
	assert_ok(kiln_free(both.buffers[0]));
	atomic_store(&looker.enough, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(looker.looked > 0);
	debug_int(both.viewer, "delay-store", "ms", 0);
	await_lent(both.viewer, "cuda:1", 0);
	assert_ok(kiln_alloc(both.clients[0], LARGE, 0, "from", &both.buffers[0]));
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 2), 0);
	assert_ok(kiln_free(both.buffers[1]));
	kiln_close(both.clients[1]);
	await_lent(both.viewer, "cuda:1", 0);
	/* A new connection to the same GPU gets a mapping of its own. */
	assert_ok(connect_to(daemon, "cuda:1", &both.clients[1]));
	assert_ok(kiln_alloc(both.clients[1], LARGE, 0, "to", &both.buffers[1]));
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 3), 0);
	await_lent(both.viewer, "cuda:1", LARGE);
	end_copies(daemon, &both);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_copies),       HARNESS_TEST(test_out_of_reach),
		HARNESS_TEST(test_other_copies), HARNESS_TEST(test_ends_that_go),
		HARNESS_TEST(test_other_memory), HARNESS_TEST(test_freed_meanwhile),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

#include <stdio.h>

int main(void)
{
	puts("built without cuda.h, so there is no fake driver");
	return 77;
}

#endif
