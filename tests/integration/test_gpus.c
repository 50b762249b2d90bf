/*
 * test_gpus: several GPUs: what is known of them from the start, what they are called, and that
 * what happens to one leaves the others alone.  Over the fake driver, and by kernels that are
 * copies, which need no compiler.
 */
#include "harness.h"

#ifdef KILN_FAKE_CUDA_LIBRARY

#include "gpu_scene.h"

#include <signal.h>
#include <sys/wait.h>

#define UUID0 "GPU-00112233-4455-6677-8899-aabbccddeeff"
#define UUID1 "GPU-01122334-4556-6778-899a-abbccddeef00"
#define UUID2 "GPU-02132435-4657-6879-8a9b-acbdcedff001"
#define BYTES 65536
#define BRIEF_MS 150     /* of a call that is to hang */
#define AT_ONCE_MS 10000 /* of one that is not, on a busy machine */

static const char *row_str(const kiln_reply *reply, int row, const char *member)
{
	static char path[64];
	snprintf(path, sizeof(path), "rows[%d].%s", row, member);
	return kiln_reply_str(reply, path);
}

static void assert_row(const kiln_reply *reply, const char *name, const char *state,
					   const char *uuid, const char *bus)
{
	int row = gpu_row(reply, "rows", "name", name);
	assert_int_not_equal(row, -1);
	assert_string_equal(row_str(reply, row, "state"), state);
	assert_string_equal(row_str(reply, row, "uuid"), uuid);
	assert_string_equal(row_str(reply, row, "bus"), bus);
}

/* ---- Known from the start, and by name ---- */

static void test_known(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *viewer;
	gpu_start(daemon, "gpus=3", "auto");
	assert_ok(connect_to(daemon, "none", &viewer));
	kiln_reply *reply = gpu_ask(viewer, "devices");
	assert_int_equal(kiln_reply_count(reply, "rows"), 4);
	assert_row(reply, "cuda:0", "present", UUID0, "0000:18:00.0");
	assert_row(reply, "cuda:1", "present", UUID1, "0000:19:00.0");
	assert_row(reply, "cuda:2", "present", UUID2, "0000:1a:00.0");
	assert_int_equal(kiln_reply_int(reply, "rows[2].memory"), 256 << 20);
	assert_string_equal(kiln_reply_str(reply, "rows[2].target"), "sm_90");
	kiln_reply_free(reply);
	/* Nobody has used them, so they have no process. */
	assert_int_not_equal(gpu_process(viewer, "cuda:0", NULL), 0);
	assert_int_equal(gpu_process(viewer, "cuda:1", NULL), 0);
	kiln_close(viewer);
	gpu_end(daemon);
}

static void assert_called(const struct kilnd *daemon, const char *name, const char *device)
{
	kiln_client *client;
	assert_ok(connect_to(daemon, name, &client));
	assert_string_equal(kiln_device(client), device);
	kiln_close(client);
}

static void test_names(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;
	gpu_start(daemon, "gpus=2", "auto");
	assert_called(daemon, UUID1, "cuda:1");
	assert_called(daemon, "GPU-01", "cuda:1");
	assert_called(daemon, "gpu-00112233-4455-6677-8899-AABBCCDDEEFF", "cuda:0");
	assert_called(daemon, NULL, "cuda:0");
	assert_int_equal(connect_to(daemon, "GPU-0", &client), KILN_ENOTSUP);
	assert_sentence("device \"GPU-0\" is the beginning of several: cuda:0 (" UUID0
					"), cuda:1 (" UUID1 "); write more of it");
	assert_int_equal(connect_to(daemon, "GPU-7", &client), KILN_ENOTSUP);
	assert_sentence("no device \"GPU-7\"; it has cuda:0 (" UUID0 "), cpu, cuda:1 (" UUID1);
	assert_int_equal(connect_to(daemon, "cuda:2", &client), KILN_ENOTSUP);
	assert_sentence("kilnd has no device \"cuda:2\"; it has cuda:0");
	assert_int_equal(connect_to(daemon, "GPU-", &client), KILN_ENOTSUP);
	gpu_end(daemon);
}

/* The daemon is told which by UUIDs, of which one is another's, and one is nobody's. */
static void test_named_to_the_daemon(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;
	gpu_start(daemon, "gpus=3,mig=1", "MIG-02,cpu,GPU-77,cuda:1");
	assert_ok(connect_to(daemon, "none", &client));
	kiln_reply *reply = gpu_ask(client, "devices");
	assert_int_equal(kiln_reply_count(reply, "rows"), 4);
	assert_row(reply, "cuda:2", "present",
			   "MIG"
			   "-02132435-4657-6879-8a9b-acbdcedff001",
			   "0000:1a:00.0");
	assert_row(reply, "GPU-77", "absent", "", "");
	int row = gpu_row(reply, "rows", "name", "GPU-77");
	assert_non_null(strstr(row_str(reply, row, "reason"),
						   "GPU-77 is none of the GPUs here: cuda:0 MIG-00112233"));
	kiln_reply_free(reply);
	kiln_close(client);
	assert_called(daemon, "MIG-02", "cuda:2");
	/* The whole UUID of a driver is enough: nobody need know what it is one of. */
	assert_called(daemon, UUID2, "cuda:2");
	gpu_end(daemon);
}

/* A driver that does not answer keeps `devices` for a moment only, and nobody else. */
static void test_slow_to_say(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;
	gpu_start(daemon, "cuInit=-1", "auto");
	assert_ok(connect_to(daemon, "cpu", &client));
	int64_t start = now_ms();
	kiln_reply *reply = gpu_ask(client, "devices");
	assert_in_range(now_ms() - start, 1900, 10000);
	assert_row(reply, "cuda:0", "unknown", "", "");
	kiln_reply_free(reply);
	assert_int_equal(kill(gpu_process(client, "cuda:0", NULL), SIGKILL), 0);
	gpu_is(daemon, "gpus=2");
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (reply = gpu_ask(client, "devices"), gpu_row(reply, "rows", "uuid", UUID1) < 0) {
		kiln_reply_free(reply);
		assert_in_range(now_ms(), 0, end);
	}
	kiln_reply_free(reply);
	kiln_close(client);
	gpu_end(daemon);
}

/* One UUID is no second device. */
static void test_named_twice(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;
	gpu_start(daemon, "gpus=2", "cuda:1,cpu");
	assert_ok(connect_to(daemon, "GPU-01", &client));
	assert_string_equal(kiln_device(client), "cuda:1");
	kiln_close(client);
	kilnd_stop(daemon);
	kilnd_start(daemon, OPTIONS("--device", "cuda:1,GPU-01,cpu"));
	assert_ok(connect_to(daemon, "none", &client));
	kiln_reply *reply = gpu_ask(client, "devices");
	int absent = gpu_row(reply, "rows", "state", "absent");
	assert_int_not_equal(absent, -1);
	assert_int_not_equal(gpu_row(reply, "rows", "state", "present"), -1);
	kiln_reply_free(reply);
	kiln_close(client);
	assert_called(daemon, "cuda:1", "cuda:1");
	gpu_end(daemon);
}

/* ---- What happens to one leaves the other alone ---- */

struct side {
	kiln_client *client;
	kiln_buffer *x, *y;
	kiln_call *call; /* copies x to y */
};

static int open_side(const struct kilnd *daemon, const char *device, uint32_t timeout_ms,
					 struct side *side)
{
	static const struct permute same = {
		.dtype = KILN_F32, .rank = 1, .shape = {BYTES / 4}, .perm = {0}};
	const kiln_connect_options options = {.size = sizeof(options),
										  .socket = daemon->socket,
										  .device = device,
										  .timeout_ms = timeout_ms};
	*side = (struct side){0};
	int status = kiln_connect(&options, &side->client);
	if (status == KILN_OK)
		status = kiln_alloc(side->client, BYTES, 0, "x", &side->x);
	if (status == KILN_OK)
		status = kiln_alloc(side->client, BYTES, 0, "y", &side->y);
	if (status != KILN_OK)
		return status;
	const kiln_tensor tensors[] = {permute_input(&same, side->x), permute_output(&same, side->y)};
	const kiln_attr perm = perm_attr(&same);
	return kiln_prepare(side->client, "permute", tensors, 2, &perm, 1, &side->call);
}

static int use(const struct side *side, uint8_t mark, int timeout_ms)
{
	static uint8_t bytes[BYTES];
	const kiln_operand operands[] = {{side->x, 0}, {side->y, 0}};
	kiln_ticket ticket = 0;
	memset(bytes, mark, sizeof(bytes));
	int status = kiln_write(side->x, 0, bytes, BYTES);
	if (status == KILN_OK)
		status = kiln_submit(side->call, operands, 2, 0, &ticket);
	if (status == KILN_OK)
		status = kiln_wait(side->client, ticket, timeout_ms);
	memset(bytes, 0, sizeof(bytes));
	if (status == KILN_OK)
		status = kiln_read(side->y, 0, bytes, BYTES);
	for (size_t i = 0; status == KILN_OK && i < BYTES; i++)
		status = bytes[i] == mark ? KILN_OK : KILN_EINTERNAL;
	return status;
}

static void close_side(struct side *side)
{
	kiln_call_free(side->call);
	(void)kiln_free(side->x);
	(void)kiln_free(side->y);
	kiln_close(side->client);
}

/* The client of the GPU that fails: 0 if it was told so. */
static int fail_on_second(const struct kilnd *daemon, void *arg)
{
	struct side side;
	(void)arg;
	int status = open_side(daemon, "cuda:1", BRIEF_MS, &side);
	if (status == KILN_OK)
		status = use(&side, 7, BRIEF_MS);
	close_side(&side);
	/* EAGAIN: a call that has not ended. */
	return status == KILN_EDEVICE || status == KILN_ETIMEDOUT || status == KILN_ENOTSUP ||
				   status == KILN_EAGAIN
			   ? 0
			   : 1;
}

static void await_second(const struct kilnd *daemon)
{
	struct side side;
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	int status;
	do {
		status = open_side(daemon, "cuda:1", CALL_TIMEOUT_MS, &side);
		if (status == KILN_OK)
			status = use(&side, 9, CALL_TIMEOUT_MS);
		close_side(&side);
	} while (status != KILN_OK && now_ms() < end && (pause_ms(5), true));
	assert_int_equal(status, KILN_OK);
}

static void test_each_step(void **state)
{
	static const struct {
		const char *settings;
		bool hangs;
	} steps[] = {
		{"1:cuDevicePrimaryCtxRetain=-1", true},
		{"1:cuDevicePrimaryCtxRetain=999", false},
		{"1:cuMemAllocFromPoolAsync=-1", true},
		{"1:cuMemcpyHtoDAsync=-1", true},
		{"1:cuMemcpyDtoDAsync=-1", true},
		{"1:cuMemcpyDtoDAsync=719", false},
		{"1:cuStreamQuery=719,1:cuEventQuery=719", false},
		{"1:cuMemcpyDtoHAsync=-1", true},
	};
	struct kilnd *daemon = *state;
	struct side first;
	kiln_client *viewer;
	int64_t restarts, calls = 0;
	char settings[128];
	gpu_start(daemon, "gpus=2", "auto");
	assert_ok(connect_to(daemon, "none", &viewer));
	assert_ok(open_side(daemon, "cuda:0", CALL_TIMEOUT_MS, &first));
	debug_int(viewer, "restart-pause", "ms", 5);
	pid_t pid = gpu_process(viewer, "cuda:0", NULL);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		/* The step may need a fresh process. */
		pid_t second = gpu_process(viewer, "cuda:1", NULL);
		snprintf(settings, sizeof(settings), "gpus=2,%s", steps[i].settings);
		if (second && strstr(settings, "Retain"))
			kill(second, SIGKILL);
		gpu_is(daemon, settings);
		pid_t child = process_start(daemon, fail_on_second, NULL);
		int status, uses = 0;
		/* The first GPU works all the time, at least as long as the other's client waits. */
		do {
			int64_t start = now_ms();
			assert_ok(use(&first, (uint8_t)++uses, CALL_TIMEOUT_MS));
			assert_in_range(now_ms() - start, 0, AT_ONCE_MS);
		} while (waitpid(child, &status, WNOHANG) == 0);
		if (status != 0)
			fail_msg("with %s the client of cuda:1 was not told", steps[i].settings);
		calls += uses;
		gpu_is(daemon, "gpus=2");
		second = gpu_process(viewer, "cuda:1", NULL);
		if (steps[i].hangs && second)
			kill(second, SIGKILL);
		await_second(daemon);
	}
	assert_int_equal(gpu_process(viewer, "cuda:0", &restarts), pid);
	assert_int_equal(restarts, 0);
	(void)gpu_process(viewer, "cuda:1", &restarts);
	assert_in_range(restarts, 6, INT64_MAX);
	assert_in_range(info_int(viewer, "counters.launches"), calls, INT64_MAX);
	close_side(&first);
	kiln_close(viewer);
	gpu_end(daemon);
}

/* The first GPU goes away, and the driver counts those that are left from 0 on: a process that
 * starts then still finds its own, and the first one's does not take another's. */
static void test_counted_anew(void **state)
{
	struct kilnd *daemon = *state;
	struct side side;
	kiln_client *viewer;
	gpu_start(daemon, "gpus=2", "auto");
	assert_ok(connect_to(daemon, "none", &viewer));
	debug_int(viewer, "restart-pause", "ms", 5);
	assert_ok(open_side(daemon, "cuda:1", CALL_TIMEOUT_MS, &side));
	assert_ok(use(&side, 1, CALL_TIMEOUT_MS));
	close_side(&side);
	gpu_is(daemon, "gpus=2,gone=1");
	assert_int_equal(kill(gpu_process(viewer, "cuda:0", NULL), SIGKILL), 0);
	assert_int_equal(kill(gpu_process(viewer, "cuda:1", NULL), SIGKILL), 0);
	await_second(daemon);
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	for (;;) {
		kiln_reply *reply = gpu_ask(viewer, "devices");
		int row = gpu_row(reply, "rows", "name", "cuda:0");
		bool lost = !strcmp(row_str(reply, row, "state"), "lost");
		if (lost) {
			assert_row(reply, "cuda:0", "lost", UUID0, "0000:18:00.0");
			assert_non_null(strstr(row_str(reply, row, "reason"),
								   UUID1 " is cuda:1 already, and there is no more " UUID0));
			assert_row(reply, "cuda:1", "present", UUID1, "0000:19:00.0");
		}
		kiln_reply_free(reply);
		if (lost)
			break;
		assert_in_range(now_ms(), 0, end);
		pause_ms(5);
	}
	kiln_close(viewer);
	gpu_end(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_known),
		HARNESS_TEST(test_names),
		HARNESS_TEST(test_named_to_the_daemon),
		HARNESS_TEST(test_named_twice),
		HARNESS_TEST(test_slow_to_say),
		HARNESS_TEST(test_each_step),
		HARNESS_TEST(test_counted_anew),
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
