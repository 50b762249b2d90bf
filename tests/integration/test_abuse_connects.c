/*
 * test_abuse_connects: connections that cost much and give nothing: who connects and says nothing,
 * or half of a hello, a daemon without places or descriptors, and a thousand connects a second.
 * Meanwhile a client that works is served as before, and afterwards the daemon holds what it held.
 */
#include "abuse_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define SILENT_PEERS 40
#define CONNECTS 2000

/* ---- Who says nothing ---- */

static void set_files(const struct kilnd *daemon, rlim_t most, rlim_t *before)
{
	struct rlimit files;

	assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, NULL, &files), 0);
	if (before)
		*before = files.rlim_cur;
	files.rlim_cur = most;
	assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, &files, NULL), 0);
}

static void test_half_open_peers(void **state)
{
	static struct abuse_times times;
	struct kilnd *daemon = *state;
	int socks[SILENT_PEERS];
	struct wire_out out;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	struct abuse_held before = abuse_settle(daemon, client);
	times.count = 0;
	/* Half of a hello is a message of its own, and none. */
	int half = raw_open(daemon);
	raw_hello(&out, 1);
	assert_int_equal(wire_end(&out), KILN_OK);
	assert_true(raw_send(half, "KF\0\0\x30\0\0\0", 8, NULL, 0));
	assert_true(send(half, out.buffer.data, out.buffer.size, MSG_NOSIGNAL) != 0);
	wire_out_free(&out);
	raw_expect_refused(half, KILN_EPROTO, "not of the size its header says");
	debug_int(client, "hello-deadline", "ms", 400);
	for (int i = 0; i < SILENT_PEERS; i++) {
		socks[i] = raw_open(daemon);
		assert_true(socks[i] >= 0);
		/* Some close one direction: they can hear still, but will never speak. */
		if (i % 4 == 1)
			assert_int_equal(shutdown(socks[i], SHUT_WR), 0);
	}
	for (int64_t end = now_ms() + 300; now_ms() < end || times.count < 100;)
		abuse_work(client, &times);
	for (int i = 0; i < SILENT_PEERS; i++) {
		if (i % 4 != 1) {
			raw_expect_refused(socks[i], KILN_ETIMEDOUT, "no hello came within 400 ms");
			continue;
		}
		char sentence[400];
		assert_int_equal(raw_said(socks[i], CALL_TIMEOUT_MS, sentence, sizeof(sentence)),
						 KILN_ECONN);
		close(socks[i]);
	}
	abuse_assert_served("half-open peers", &times, 0);
	abuse_assert_over(daemon, client, before);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A daemon that has few descriptors keeps few silent connections, the newest of them. */
static void test_silent_peers(void **state)
{
	struct kilnd *daemon = *state;
	int socks[SILENT_PEERS], kept = 0;
	char sentence[400];
	rlim_t usual;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	struct abuse_held before = abuse_settle(daemon, client);
	debug_int(client, "hello-deadline", "ms", 300000);
	set_files(daemon, (rlim_t)(before.fds + 2 * SILENT_PEERS), &usual);
	int most = (before.fds + 2 * SILENT_PEERS) / 4;
	assert_true(most < SILENT_PEERS);
	for (int i = 0; i < SILENT_PEERS; i++) {
		socks[i] = raw_open(daemon);
		assert_true(socks[i] >= 0);
	}
	for (int i = 0; i < SILENT_PEERS - most; i++)
		raw_expect_refused(socks[i], KILN_ELIMIT, "connections have said no hello, the most");
	for (int i = SILENT_PEERS - most; i < SILENT_PEERS; i++) {
		kept += raw_said(socks[i], 0, sentence, sizeof(sentence)) == KILN_ETIMEDOUT;
		close(socks[i]);
	}
	assert_int_equal(kept, most);
	set_files(daemon, usual, NULL);
	abuse_assert_over(daemon, client, before);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- No places ---- */

#define PLACES 5
#define COMMANDS 12 /* more than there are kept places */

static int ask_for(const struct kilnd *daemon, const char *device, const char *request,
				   kiln_client **client)
{
	kiln_connect_options options = {.size = sizeof(options),
									.socket = daemon->socket,
									.device = device,
									.timeout_ms = CALL_TIMEOUT_MS};
	kiln_reply *reply = NULL;
	int status = kiln_connect(&options, client);
	if (status == KILN_OK)
		status = kiln_request(*client, request, NULL, 0, &reply);
	kiln_reply_free(reply);
	return status;
}

/* A program took every session; the operator looks at the daemon, again and again, and stops it. */
static void test_full_house(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *clients[PLACES], *commands[COMMANDS], *more;
	kiln_reply *reply;

	kilnd_start(daemon, OPTIONS("--max-sessions", "5"));
	for (int i = 0; i < PLACES; i++)
		clients[i] = client_open(daemon);
	assert_int_equal(ask_for(daemon, "cpu", "info", &more), KILN_ELIMIT);
	assert_string_equal(kiln_errmsg(), "kilnd has 5 sessions, the most it allows (--max-sessions)");
	/* Those that never go give their places up, the first of them first. */
	for (int i = 0; i < COMMANDS; i++)
		assert_ok(ask_for(daemon, "none", i % 2 ? "info" : "waits", &commands[i]));
	assert_int_equal(kiln_request(commands[0], "info", NULL, 0, &reply), KILN_ELIMIT);
	assert_sentence("another command of the operator took the place of this one");
	assert_ok(kiln_request(commands[COMMANDS - 1], "info", NULL, 0, &reply));
	kiln_reply_free(reply);
	await_info(commands[COMMANDS - 1], "server.sessions", PLACES + 8);
	/* An ordinary place is the next program's, whoever has the kept ones. */
	kiln_close(clients[0]);
	await_info(commands[COMMANDS - 1], "server.sessions", PLACES + 7);
	clients[0] = client_open(daemon);
	for (int i = 0; i < COMMANDS; i++)
		kiln_close(commands[i]);
	await_info(clients[0], "server.sessions", PLACES);
	assert_ok(ask_for(daemon, "none", "stop", &more));
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	kiln_close(more);
	for (int i = 0; i < PLACES; i++)
		kiln_close(clients[i]);
}

/* ---- No descriptors ---- */

/* Returns the processor time that the daemon has used so far. */
static int64_t used_ms(pid_t pid)
{
	char path[64], text[1024], *at;
	unsigned long long user = 0, system = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_non_null(fgets(text, sizeof(text), file));
	fclose(file);
	at = strrchr(text, ')');
	assert_non_null(at);
	assert_int_equal(
		sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system),
		2);
	return (int64_t)(user + system) * 1000 / sysconf(_SC_CLK_TCK);
}

static void test_out_of_descriptors(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(22, 35);
	int socks[16], turned_away = 0, status;
	char said[256];
	uint8_t bytes[64] = {0};
	kiln_buffer *buffer = NULL;
	rlim_t usual;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	struct abuse_held before = abuse_settle(daemon, client);
	/* Room for two more clients, and nothing else. */
	set_files(daemon, (rlim_t)before.fds + 2, &usual);
	for (int i = 0; i < 16; i++) {
		struct wire_out out;
		socks[i] = raw_open(daemon);
		assert_true(socks[i] >= 0);
		raw_hello(&out, 1);
		/* A socket that is turned away may be closed before it says hello. */
		(void)raw_put(socks[i], &out, NULL, 0);
		status = raw_said(socks[i], CALL_TIMEOUT_MS, said, sizeof(said));
		if (status == KILN_OK)
			continue;
		assert_int_equal(status, KILN_ELIMIT);
		assert_string_equal(
			said, "kilnd has as many files open as it may have (ulimit -n); try again later");
		turned_away++;
	}
	/* Two, or some more: there may be gaps among the numbers of those that are open. */
	assert_true(turned_away >= 10 && turned_away <= 14);
	abuse_assert_logged(daemon, "a client was turned away: Too many open files");
	/* Those inside stay; what needs a descriptor is refused, and says why. */
	status = kiln_alloc(client, 4096, KILN_BUFFER_SHARED, "shared", &buffer);
	assert_true(status < 0);
	assert_sentence("kilnd has as many files open as it may have");
	assert_ok(kiln_alloc(client, 64, 0, "x", &buffer));
	assert_int_equal(kiln_write(buffer, 0, bytes, sizeof(bytes)), KILN_ELIMIT);
	assert_sentence("the descriptors of write were lost: kilnd has as many files open as it may");
	assert_true(info_int(client, "server.sessions") > 0);
	/* It does not spin meanwhile. */
	int64_t used = used_ms(daemon->pid);
	pause_ms(500);
	used = used_ms(daemon->pid) - used;
	if (used > 250)
		fail_msg("out of descriptors, the daemon used %lld of 500 ms", (long long)used);
	for (int i = 0; i < 16; i++)
		close(socks[i]);
	set_files(daemon, usual, NULL);
	assert_ok(kiln_write(buffer, 0, bytes, sizeof(bytes)));
	assert_ok(kiln_free(buffer));
	kiln_client *other = client_open(daemon);
	assert_permutes(other, &problem, NULL);
	kiln_close(other);
	abuse_assert_over(daemon, client, before);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- A thousand connects a second ---- */

struct connects {
	atomic_int made, failed, ended;
};

/* Connects and goes, one in four after a hello, one in sixteen in the middle of a request. */
static int connect_body(const struct kilnd *daemon, void *arg)
{
	struct connects *connects = arg;

	for (int i = 0; i < CONNECTS; i++) {
		int sock = raw_open(daemon);
		if (sock < 0) {
			atomic_fetch_add(&connects->failed, 1);
			continue;
		}
		if (i % 4 == 0) {
			struct wire_out out;
			raw_hello(&out, 1);
			(void)raw_put(sock, &out, NULL, 0);
			if (i % 16 == 0) {
				raw_problem(&out, "explain", 2, 5, 6);
				(void)raw_put(sock, &out, NULL, 0);
			}
		}
		close(sock);
		atomic_fetch_add(&connects->made, 1);
	}
	atomic_store(&connects->ended, 1);
	return 0;
}

static void test_connect_storm(void **state)
{
	static struct abuse_times times;
	struct kilnd *daemon = *state;
	struct connects *connects =
		mmap(NULL, sizeof(*connects), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(connects != MAP_FAILED);
	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	struct abuse_held before = abuse_settle(daemon, client);
	times.count = 0;
	int64_t accepted = info_int(client, "counters.sessions"), began = now_ms();
	pid_t pid = process_start(daemon, connect_body, connects);
	while (!atomic_load(&connects->ended) && now_ms() < began + 10 * CALL_TIMEOUT_MS)
		abuse_work(client, &times);
	double seconds = (double)(now_ms() - began) / 1000;
	assert_int_equal(process_wait(pid, STOP_TIMEOUT_MS), EXITED(0));
	fprintf(stderr, "%d connects in %.2f s: %.0f a second\n", atomic_load(&connects->made), seconds,
			atomic_load(&connects->made) / seconds);
	assert_int_equal(atomic_load(&connects->failed), 0);
	/* Each is accepted once, and none is forgotten. */
	await_info(client, "counters.sessions", accepted + CONNECTS);
	while (times.count < 100)
		abuse_work(client, &times);
	abuse_assert_served("connects", &times, 0);
	abuse_assert_over(daemon, client, before);
	kiln_close(client);
	kilnd_stop(daemon);
	munmap(connects, sizeof(*connects));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_half_open_peers), HARNESS_TEST(test_silent_peers),
		HARNESS_TEST(test_full_house),      HARNESS_TEST(test_out_of_descriptors),
		HARNESS_TEST(test_connect_storm),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
