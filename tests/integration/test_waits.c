/*
 * test_waits: `kiln debug waits`: each kind of wait is made on purpose, seen, and gone afterwards;
 * and the list comes at once though a child stands still.  The clients here have no patience: the
 * daemon goes on with it until they leave.
 */
#include "peer.h"
#include "waits_seen.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define IMPATIENCE_MS 60

static kiln_client *impatient(const struct kilnd *daemon)
{
	int status;
	int64_t end = now_ms() + START_TIMEOUT_MS;
	kiln_client *client = client_try(daemon, START_TIMEOUT_MS, &status);
	assert_non_null(client);
	kiln_close(client); /* the device process is there now */
	/* Connecting, too, has no more time than that. */
	do
		client = client_try(daemon, IMPATIENCE_MS, &status);
	while (!client && now_ms() < end);
	assert_non_null(client);
	return client;
}

static void ask_and_give_up(kiln_client *client, int columns)
{
	struct permute problem = transpose(7, columns);
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	kiln_call *call = NULL;
	assert_int_equal(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call), KILN_ETIMEDOUT);
}

/* The client may give up before the daemon has come to its request. */
static struct wait_seen await_waits(kiln_client *observer, const char *what, int count)
{
	struct wait_seen seen = {0};
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (waits_count(observer, what, &seen) != count) {
		assert_in_range(now_ms(), 0, end);
		pause_ms(5);
	}
	return seen;
}

/* ---- Compilers ---- */

static void test_compiles(void **state)
{
	struct kilnd *daemon = *state;
	kilnd_start(daemon, OPTIONS("--workers", "2", "--compile-timeout", "30000"));
	kiln_client *observer = observer_open(daemon), *clients[3];
	await_info(observer, "workers.idle", 2);
	debug_int(observer, "delay-compile", "ms", 20000);
	for (int i = 0; i < 3; i++) {
		clients[i] = impatient(daemon);
		ask_and_give_up(clients[i], 30 + i);
	}
	struct wait_seen queued = await_waits(observer, "queued", 1);
	struct wait_seen compiling = await_waits(observer, "compiling", 2);
	assert_int_equal(compiling.pid, getpid());
	assert_int_equal(compiling.uid, getuid());
	assert_string_equal(compiling.asked, "prepare");
	assert_string_equal(compiling.of, "compiler");
	assert_int_equal(strlen(compiling.key), 64);
	assert_true(compiling.of_pid > 0 && kill((pid_t)compiling.of_pid, 0) == 0);
	assert_in_range(compiling.left_ms, 15000, 30000);
	assert_true(compiling.age_ms >= queued.age_ms);
	assert_int_equal(queued.of_pid, 0);
	assert_int_equal(queued.left_ms, -1);
	assert_non_null(strstr(queued.text, "its turn at a compiler for cpu, with 0 others"));
	/* One who leaves makes room. */
	kiln_close(clients[0]);
	await_no_wait(observer, "queued");
	kiln_close(clients[2]);
	await_info(observer, "workers.idle", 1);
	debug_int(observer, "available-memory", "bytes", 1);
	ask_and_give_up(clients[1], 40);
	struct wait_seen memory = await_wait(observer, "memory");
	assert_non_null(strstr(memory.text, "memory for its compile"));
	kiln_close(clients[1]);
	await_no_wait(observer, "memory");
	await_no_wait(observer, "compiling");
	kiln_close(observer);
	kilnd_stop(daemon);
}

/* Before the first worker has said what compilers there are; and the worker itself. */
static void test_starts(void **state)
{
	struct kilnd *daemon = *state;
	char slow[128];
	snprintf(slow, sizeof(slow), "%s/slow.sh", daemon->dir);
	FILE *script = fopen(slow, "w");
	assert_non_null(script);
	fputs("#!/bin/sh\nwhile [ ! -e \"$(dirname \"$0\")/go\" ]; do sleep 0.02; done\nexec \"$@\"\n",
		  script);
	fclose(script);
	chmod(slow, 0700);
	kilnd_spawn(daemon, OPTIONS("--device", "cpu", "--executor-wrapper", slow), NULL, -1);
	kiln_client *observer = NULL;
	for (int64_t end = now_ms() + START_TIMEOUT_MS; !observer && now_ms() < end; pause_ms(10))
		if (access(daemon->socket, F_OK) == 0)
			observer = observer_open(daemon);
	assert_non_null(observer);
	struct wait_seen start = await_wait(observer, "start");
	assert_int_equal(start.session, 0);
	assert_true(start.left_ms > 0);
	/* A client waits for its device. */
	struct peer peer = {.sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), .texts = -1};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct wire_out out;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", daemon->socket);
	assert_int_equal(connect(peer.sock, (struct sockaddr *)&address, sizeof(address)), 0);
	struct wait_seen hello = await_wait(observer, "hello");
	assert_int_equal(hello.pid, getpid());
	assert_in_range(hello.left_ms, 5000, 10000);
	peer_begin(&peer, &out, "hello");
	wire_put_uint(&out, "proto", 1);
	assert_int_equal(wire_end(&out), KILN_OK);
	assert_int_equal(frame_send(peer.sock, out.buffer.data, out.buffer.size, NULL, 0), KILN_OK);
	wire_out_free(&out);
	struct wait_seen device = await_wait(observer, "device");
	assert_string_equal(device.asked, "hello");
	assert_string_equal(device.device, "cpu");
	assert_string_equal(device.of, "executor");
	await_no_wait(observer, "hello");
	memcpy(strrchr(slow, '/'), "/go", 4);
	close(open(slow, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	await_no_wait(observer, "device");
	await_no_wait(observer, "start");
	close(peer.sock);
	kiln_close(observer);
	kilnd_await(daemon);
	kilnd_stop(daemon);
}

/* ---- The store ---- */

/* Every call of the disk waits until there is no fault any more. */
static void slow_disk(kiln_client *client, const char *kind)
{
	const kiln_attr args[] = {string_attr("what", "store-fault"), string_attr("kind", kind),
							  int_attr("ms", strcmp(kind, "slow") ? 0 : 2 * CALL_TIMEOUT_MS)};
	kiln_reply *reply = NULL;
	assert_ok(kiln_request(client, "debug", args, 3, &reply));
	kiln_reply_free(reply);
}

static void test_store(void **state)
{
	struct kilnd *daemon = *state;
	kilnd_start(daemon, NULL);
	kiln_client *observer = observer_open(daemon), *client = impatient(daemon);
	kiln_client *patient = client_open(daemon);
	struct permute written = transpose(7, 49);
	slow_disk(patient, "slow");
	assert_permutes(patient, &written, "compiled"); /* whose row is being written from now on */
	ask_and_give_up(client, 50);
	struct wait_seen seen = await_waits(observer, "store", 2); /* and the daemon for its disk */
	assert_string_equal(seen.of, "store");
	slow_disk(patient, "none");
	kiln_close(client);
	kiln_close(patient);
	await_no_wait(observer, "store");
	kiln_close(observer);
	kilnd_stop(daemon);
}

/* ---- The device ---- */

struct calls {
	kiln_client *client;
	kiln_buffer *x, *y;
	kiln_call *call;
	kiln_ticket tickets[3];
};

static void calls_open(struct calls *calls, const struct kilnd *daemon, const char *lane)
{
	struct permute problem = transpose(8, 8);
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	setenv("KILN_LANE", lane, 1);
	calls->client = client_open(daemon);
	unsetenv("KILN_LANE");
	assert_ok(kiln_alloc(calls->client, 256, 0, "x", &calls->x));
	assert_ok(kiln_alloc(calls->client, 256, 0, "y", &calls->y));
	assert_ok(kiln_prepare(calls->client, "permute", tensors, 2, &perm, 1, &calls->call));
}

static void submit(struct calls *calls, int i, unsigned stream, kiln_ticket after)
{
	const kiln_submit_options options = {.size = sizeof(options), .stream = stream, .after = after};
	assert_ok(kiln_submit_with(calls->call, (kiln_operand[]){{calls->x, 0}, {calls->y, 0}}, 2,
							   &options, &calls->tickets[i]));
}

/* The device process stands still until all has been seen, however long that takes. */
static pid_t see_launches(kiln_client *observer, struct calls *calls)
{
	process_stop(device_process(observer, 0));
	submit(calls, 0, 0, 0);
	submit(calls, 1, 1, calls->tickets[0]);
	submit(calls, 2, 0, 0);
	struct wait_seen launch = await_wait(observer, "launch");
	struct wait_seen ticket = await_waits(observer, "ticket", 1);
	struct wait_seen order = await_waits(observer, "order", 1);
	assert_string_equal(launch.asked, "submit");
	assert_string_equal(launch.device, "cpu");
	assert_int_equal(launch.of_pid, info_int(observer, "executors[0].pid"));
	assert_in_range(launch.left_ms, 20000, 30000);
	assert_non_null(strstr(ticket.text, "which it follows"));
	assert_non_null(strstr(order.text, "which is before it"));
	kill((pid_t)launch.of_pid, SIGCONT);
	for (int i = 0; i < 3; i++)
		assert_ok(kiln_wait(calls->client, calls->tickets[i], CALL_TIMEOUT_MS));
	for (const char *const *what = (const char *const[]){"launch", "ticket", "order", NULL}; *what;
		 what++)
		await_no_wait(observer, *what);
	return (pid_t)launch.of_pid;
}

/* A device process that stands still keeps nobody from being told who waits for it. */
static void see_stopped(const struct kilnd *daemon, kiln_client *observer, pid_t executor)
{
	kiln_client *hasty = impatient(daemon);
	kiln_buffer *own = NULL, *more = NULL;
	char bytes[256] = {0};
	assert_ok(kiln_alloc(hasty, sizeof(bytes), 0, NULL, &own));
	process_stop(executor);
	assert_int_equal(kiln_alloc(hasty, 64, 0, NULL, &more), KILN_ETIMEDOUT);
	assert_int_equal(kiln_write(own, 0, bytes, sizeof(bytes)), KILN_ETIMEDOUT);
	assert_int_equal(kiln_free(own), KILN_ETIMEDOUT);
	ask_and_give_up(hasty, 90);
	int64_t began = now_ms();
	struct wait_seen place = await_wait(observer, "place");
	struct wait_seen transfer = await_wait(observer, "transfer");
	struct wait_seen release = await_wait(observer, "free");
	assert_in_range(now_ms() - began, 0, 8000);
	struct wait_seen load = await_wait(observer, "load");
	assert_string_equal(load.asked, "prepare");
	assert_int_equal(strlen(load.key), 64);
	assert_string_equal(place.asked, "alloc");
	assert_string_equal(transfer.asked, "write");
	assert_string_equal(release.asked, "free");
	assert_int_equal(transfer.of_pid, executor);
	kill(executor, SIGCONT);
	await_no_wait(observer, "place");
	await_no_wait(observer, "transfer");
	await_no_wait(observer, "free");
	await_no_wait(observer, "load");
	kiln_close(hasty);
}

static void test_launches(void **state)
{
	struct kilnd *daemon = *state;
	struct calls calls;
	kilnd_start(daemon, NULL);
	kiln_client *observer = observer_open(daemon);
	calls_open(&calls, daemon, "off");
	submit(&calls, 0, 0, 0);
	assert_ok(kiln_wait(calls.client, calls.tickets[0], CALL_TIMEOUT_MS)); /* it is loaded */
	see_stopped(daemon, observer, see_launches(observer, &calls));

	/* A daemon that is told to end waits, too. */
	pid_t executor = device_process(observer, 0);
	process_stop(executor);
	submit(&calls, 0, 0, 0);
	await_wait(observer, "launch");
	kill(daemon->pid, SIGTERM);
	struct wait_seen drain = await_wait(observer, "drain");
	assert_in_range(drain.left_ms, 1, 5000);
	kill(executor, SIGCONT);
	assert_ok(kiln_wait(calls.client, calls.tickets[0], CALL_TIMEOUT_MS));
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	kiln_call_free(calls.call);
	kiln_close(calls.client);
	kiln_free(calls.x);
	kiln_free(calls.y);
	kiln_close(observer);
}

/* A launch that the broker never saw, in a device process that hangs when it has taken it. */
static void test_lanes(void **state)
{
	struct kilnd *daemon = *state;
	struct calls calls;
	kiln_ticket ticket;
	kilnd_start(daemon, NULL);
	calls_open(&calls, daemon, "on");
	kiln_client *observer = observer_open(daemon);
	const kiln_operand operands[] = {{calls.x, 0}, {calls.y, 0}};
	/* The first goes by message. */
	while (info_int(observer, "counters.lane_launches") == 0) {
		assert_ok(kiln_submit(calls.call, operands, 2, 0, &ticket));
		assert_ok(kiln_wait(calls.client, ticket, CALL_TIMEOUT_MS));
	}
	pid_t executor = device_process(observer, 0);
	debug_fail_device(calls.client, "hang", "entry", false);
	assert_ok(kiln_submit(calls.call, operands, 2, 0, &ticket));
	struct wait_seen seen = await_wait(observer, "launch");
	assert_string_equal(seen.asked, "lane");
	assert_int_equal(seen.of_pid, executor);
	assert_int_equal(seen.count, 1);
	assert_in_range(seen.left_ms, 1, 30000);
	kill(executor, SIGKILL);
	assert_int_equal(kiln_wait(calls.client, ticket, CALL_TIMEOUT_MS), KILN_EDEVICE);
	await_no_wait(observer, "launch");
	kiln_call_free(calls.call);
	kiln_free(calls.x);
	kiln_free(calls.y);
	kiln_close(calls.client);
	kiln_close(observer);
	kilnd_stop(daemon);
}

/* ---- Those who do not read ---- */

static void test_readers(void **state)
{
	struct kilnd *daemon = *state;
	struct peer peer;
	struct wait_seen seen;
	kilnd_start(daemon, NULL);
	kiln_client *observer = observer_open(daemon);
	peer_open(&peer, daemon, "");
	for (int i = 0; i < 4000 && !waits_count(observer, "reader", &seen);) {
		for (int k = 0; k < 50; k++, i++) {
			struct wire_out out;
			peer_begin(&peer, &out, "ops");
			assert_int_equal(wire_end(&out), KILN_OK);
			frame_send_wait(peer.sock, out.buffer.data, out.buffer.size, NULL, 0, 1000);
			wire_out_free(&out);
		}
	}
	seen = await_wait(observer, "reader");
	assert_string_equal(seen.of, "client");
	assert_true(seen.count > 0);
	peer_close(&peer);
	await_no_wait(observer, "reader");
	kiln_close(observer);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_compiles), HARNESS_TEST(test_starts), HARNESS_TEST(test_store),
		HARNESS_TEST(test_launches), HARNESS_TEST(test_lanes),  HARNESS_TEST(test_readers),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
