/*
 * test_gpus: several GPUs: what is known of them from the start, what they are called, and that
 * what happens to one leaves the others alone.  Over the fake driver, and by copies alone, which
 * need no compiler.
 */
#include "harness.h"

#ifdef KILN_FAKE_CUDA_LIBRARY

#include "gpu_scene.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define UUID0 "GPU-00112233-4455-6677-8899-aabbccddeeff"
#define UUID1 "GPU-01122334-4556-6778-899a-abbccddeef00"
#define UUID2 "GPU-02132435-4657-6879-8a9b-acbdcedff001"
#define BYTES 65536
#define BRIEF_MS 150    /* of a call that is to hang */
#define AT_ONCE_MS 2000 /* of one that is not, on a busy machine */

static kiln_reply *ask(kiln_client *client, const char *request)
{
	kiln_reply *reply;
	assert_ok(kiln_request(client, request, NULL, 0, &reply));
	return reply;
}

/* The row of `devices` or of the processes of `info` whose member has this value; -1: none. */
static int find_row(const kiln_reply *reply, const char *rows, const char *member,
					const char *value)
{
	char path[64];
	for (int i = 0; i < kiln_reply_count(reply, rows); i++) {
		snprintf(path, sizeof(path), "%s[%d].%s", rows, i, member);
		if (!strcmp(kiln_reply_str(reply, path), value))
			return i;
	}
	return -1;
}

static const char *row_str(const kiln_reply *reply, int row, const char *member)
{
	static char path[64];
	snprintf(path, sizeof(path), "rows[%d].%s", row, member);
	return kiln_reply_str(reply, path);
}

static void assert_row(const kiln_reply *reply, const char *name, const char *state,
					   const char *uuid, const char *bus)
{
	int row = find_row(reply, "rows", "name", name);
	assert_int_not_equal(row, -1);
	assert_string_equal(row_str(reply, row, "state"), state);
	assert_string_equal(row_str(reply, row, "uuid"), uuid);
	assert_string_equal(row_str(reply, row, "bus"), bus);
}

/* The pid of a device's process, 0: it has none; restarts may be NULL. */
static pid_t process_of(kiln_client *viewer, const char *device, int64_t *restarts)
{
	char path[64];
	kiln_reply *reply = ask(viewer, "info");
	int row = find_row(reply, "executors", "device", device);
	snprintf(path, sizeof(path), "executors[%d].pid", row);
	pid_t pid = row >= 0 ? (pid_t)kiln_reply_int(reply, path) : 0;
	snprintf(path, sizeof(path), "executors[%d].restarts", row);
	if (restarts)
		*restarts = kiln_reply_int(reply, path);
	kiln_reply_free(reply);
	return pid;
}

/* ---- Known from the start, and by name ---- */

static void test_known(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *viewer;
	gpu_start(daemon, "gpus=3", "auto");
	assert_ok(connect_to(daemon, "none", &viewer));
	kiln_reply *reply = ask(viewer, "devices");
	assert_int_equal(kiln_reply_count(reply, "rows"), 4);
	assert_row(reply, "cuda:0", "present", UUID0, "0000:18:00.0");
	assert_row(reply, "cuda:1", "present", UUID1, "0000:19:00.0");
	assert_row(reply, "cuda:2", "present", UUID2, "0000:1a:00.0");
	assert_int_equal(kiln_reply_int(reply, "rows[2].memory"), 256 << 20);
	assert_string_equal(kiln_reply_str(reply, "rows[2].target"), "sm_90");
	kiln_reply_free(reply);
	/* Nobody has used them, so they have no process. */
	assert_int_not_equal(process_of(viewer, "cuda:0", NULL), 0);
	assert_int_equal(process_of(viewer, "cuda:1", NULL), 0);
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
	kiln_reply *reply = ask(client, "devices");
	assert_int_equal(kiln_reply_count(reply, "rows"), 4);
	assert_row(reply, "cuda:2", "present",
			   "MIG"
			   "-02132435-4657-6879-8a9b-acbdcedff001",
			   "0000:1a:00.0");
	assert_row(reply, "GPU-77", "absent", "", "");
	int row = find_row(reply, "rows", "name", "GPU-77");
	assert_non_null(strstr(row_str(reply, row, "reason"),
						   "GPU-77 is none of the GPUs here: cuda:0 MIG-00112233"));
	kiln_reply_free(reply);
	kiln_close(client);
	assert_called(daemon, "MIG-02", "cuda:2");
	/* Whoever has the whole UUID from a driver need not know what it is one of. */
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
	kiln_reply *reply = ask(client, "devices");
	assert_in_range(now_ms() - start, 1900, 10000);
	assert_row(reply, "cuda:0", "unknown", "", "");
	kiln_reply_free(reply);
	assert_int_equal(kill(process_of(client, "cuda:0", NULL), SIGKILL), 0);
	gpu_is(daemon, "gpus=2");
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (reply = ask(client, "devices"), find_row(reply, "rows", "uuid", UUID1) < 0) {
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
	kiln_reply *reply = ask(client, "devices");
	int absent = find_row(reply, "rows", "state", "absent");
	assert_int_not_equal(absent, -1);
	assert_int_not_equal(find_row(reply, "rows", "state", "present"), -1);
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
	pid_t pid = process_of(viewer, "cuda:0", NULL);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		/* What the step needs may be a fresh process. */
		pid_t second = process_of(viewer, "cuda:1", NULL);
		snprintf(settings, sizeof(settings), "gpus=2,%s", steps[i].settings);
		if (second && strstr(settings, "Retain"))
			kill(second, SIGKILL);
		gpu_is(daemon, settings);
		pid_t child = process_start(daemon, fail_on_second, NULL);
		int status, uses = 0;
		/* The first GPU works all the time, at least as long as the other's client waits. */
		while (waitpid(child, &status, WNOHANG) == 0) {
			int64_t start = now_ms();
			assert_ok(use(&first, (uint8_t)++uses, CALL_TIMEOUT_MS));
			assert_in_range(now_ms() - start, 0, AT_ONCE_MS);
		}
		if (status != 0)
			fail_msg("with %s the client of cuda:1 was not told", steps[i].settings);
		assert_in_range(uses, 1, INT64_MAX);
		calls += uses;
		gpu_is(daemon, "gpus=2");
		second = process_of(viewer, "cuda:1", NULL);
		if (steps[i].hangs && second)
			kill(second, SIGKILL);
		await_second(daemon);
	}
	assert_int_equal(process_of(viewer, "cuda:0", &restarts), pid);
	assert_int_equal(restarts, 0);
	(void)process_of(viewer, "cuda:1", &restarts);
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
	assert_int_equal(kill(process_of(viewer, "cuda:0", NULL), SIGKILL), 0);
	assert_int_equal(kill(process_of(viewer, "cuda:1", NULL), SIGKILL), 0);
	await_second(daemon);
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	for (;;) {
		kiln_reply *reply = ask(viewer, "devices");
		int row = find_row(reply, "rows", "name", "cuda:0");
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

/* ---- Copies from one to another ---- */

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
		kiln_reply *reply = ask(viewer, "info");
		snprintf(path, sizeof(path), "executors[%d].lent_bytes",
				 find_row(reply, "executors", "device", device));
		lent = kiln_reply_int(reply, path);
		kiln_reply_free(reply);
		assert_in_range(now_ms(), 0, end);
	}
}

static void test_copies(void **state)
{
	struct kilnd *daemon = *state;
	struct both both;
	gpu_start(daemon, "gpus=2", "auto");
	open_both(&both, daemon, "cuda:0", "cuda:1");
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
	close_both(&both);
	gpu_end(daemon);
}

/* These two cannot reach each other: the bytes go through the host. */
static void test_out_of_reach(void **state)
{
	struct kilnd *daemon = *state;
	struct both both;
	gpu_start(daemon, "gpus=2,1:cuMemSetAccess=217", "auto");
	open_both(&both, daemon, "cuda:0", "cuda:1");
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 1), 1);
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 3), 1);
	gpu_is(daemon, "gpus=2,0:cuMemCreate=2");
	assert_int_equal(assert_copies(&both, 1, LARGE - 100, 5), 0);
	close_both(&both);
	gpu_end(daemon);
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
	gpu_start(daemon, "gpus=2", "auto");
	open_both(&both, daemon, "cuda:0", "cuda:1");
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 1), 0);
	gpu_is(daemon, "gpus=2,1:cuMemcpyDtoDAsync=719");
	assert_int_equal(kiln_copy(both.buffers[1], 0, both.buffers[0], 0, LARGE), KILN_EDEVICE);
	assert_sentence("719");
	gpu_is(daemon, "gpus=2");
	await_use(both.buffers[1], both.expected);
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 2), 0);
	pid_t pid = process_of(both.viewer, "cuda:0", NULL);
	assert_int_equal(kill(pid, SIGKILL), 0);
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (kiln_read(both.buffers[0], 0, both.expected, LARGE) != KILN_OK ||
		   process_of(both.viewer, "cuda:0", NULL) == pid) {
		assert_in_range(now_ms(), 0, end);
		pause_ms(5);
	}
	assert_ok(kiln_copy(both.buffers[1], 0, both.buffers[0], 0, LARGE));
	assert_ok(kiln_read(both.buffers[1], 0, both.got, LARGE));
	assert_memory_equal(both.got, both.expected, LARGE);
	close_both(&both);
	gpu_end(daemon);
}

/* The source's memory becomes another, in a process that cannot import the old one: the copy is of
 * the new. */
static void test_other_memory(void **state)
{
	struct kilnd *daemon = *state;
	struct both both;
	gpu_start(daemon, "gpus=2", "auto");
	open_both(&both, daemon, "cuda:0", "cuda:1");
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 1), 0);
	gpu_is(daemon, "gpus=2,0:cuMemImportFromShareableHandle=999");
	assert_int_equal(kill(process_of(both.viewer, "cuda:0", NULL), SIGKILL), 0);
	await_use(both.buffers[0], both.expected);
	gpu_is(daemon, "gpus=2");
	assert_int_equal(assert_copies(&both, 0, LARGE - 100, 2), 0);
	await_lent(both.viewer, "cuda:1", LARGE);
	close_both(&both);
	gpu_end(daemon);
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
	gpu_start(daemon, "gpus=2", "auto");
	open_both(&both, daemon, "cuda:0", "cuda:1");
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
	close_both(&both);
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
		HARNESS_TEST(test_copies),
		HARNESS_TEST(test_out_of_reach),
		HARNESS_TEST(test_other_copies),
		HARNESS_TEST(test_ends_that_go),
		HARNESS_TEST(test_other_memory),
		HARNESS_TEST(test_freed_meanwhile),
	};
	harness_begin(120);
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
