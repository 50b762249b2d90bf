/*
 * test_abuse_connects: connections that cost much and give nothing: who connects and says nothing,
 * or half of a hello, a daemon without descriptors, and a thousand connects a second.  Meanwhile a
 * client that works is served as before, and afterwards the daemon holds what it held.
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
	debug_int(client, "hello-deadline", "ms", 400);
	for (int i = 0; i < SILENT_PEERS; i++) {
		socks[i] = raw_open(daemon);
		assert_true(socks[i] >= 0);
		/* Some close one direction: they can hear still, but will never speak. */
		if (i % 4 == 1)
			assert_int_equal(shutdown(socks[i], SHUT_WR), 0);
	}
	/* Half of a hello is a message of its own, and none. */
	int half = raw_open(daemon);
	raw_hello(&out, 1);
	assert_int_equal(wire_end(&out), KILN_OK);
	assert_true(raw_send(half, "KF\0\0\x30\0\0\0", 8, NULL, 0));
	assert_true(send(half, out.buffer.data, out.buffer.size, MSG_NOSIGNAL) != 0);
	wire_out_free(&out);
	raw_expect_refused(half, KILN_EPROTO, "not of the size its header says");
	for (int64_t end = now_ms() + 300; now_ms() < end || times.count < 100;)
		abuse_work(client, &times);
	for (int i = 0; i < SILENT_PEERS; i++) {
		if (i % 4 != 1) {
			raw_expect_refused(socks[i], KILN_ETIMEDOUT, "no hello came within 400 ms");
			continue;
		}
		char sentence[400];
		assert_int_equal(raw_said(socks[i], ABUSE_ANSWER_MS, sentence, sizeof(sentence)),
						 KILN_ECONN);
		close(socks[i]);
	}
	abuse_assert_served("half-open peers", &times);
	abuse_assert_over(daemon, client, before);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- No descriptors ---- */

static void set_files(const struct kilnd *daemon, rlim_t most, rlim_t *before)
{
	struct rlimit files;

	assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, NULL, &files), 0);
	if (before)
		*before = files.rlim_cur;
	files.rlim_cur = most;
	assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, &files, NULL), 0);
}

/* Of the processors, used by the daemon so far. */
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
	uint8_t bytes[64] = {0};
	kiln_buffer *buffer = NULL;
	rlim_t usual;
	uint64_t id;

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
		status = raw_put(socks[i], &out, NULL, 0);
		if (status == KILN_OK)
			status = raw_take(socks[i], ABUSE_ANSWER_MS, &id, NULL, NULL);
		turned_away += status == KILN_ECONN;
		if (status != KILN_OK)
			assert_int_equal(status, KILN_ECONN);
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
	assert_sentence("kilnd lost the descriptors of write: it has as many files open as it may");
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
	while (!atomic_load(&connects->ended) && now_ms() < began + 60000)
		abuse_work(client, &times);
	double seconds = (double)(now_ms() - began) / 1000;
	assert_int_equal(process_wait(pid, 10000), EXITED(0));
	fprintf(stderr, "%d connects in %.2f s: %.0f a second\n", atomic_load(&connects->made), seconds,
			atomic_load(&connects->made) / seconds);
	assert_int_equal(atomic_load(&connects->failed), 0);
	await_info(client, "server.sessions", 1);
	/* Each was accepted once, and none is forgotten. */
	assert_int_equal(info_int(client, "counters.sessions") - accepted, CONNECTS);
	while (times.count < 100)
		abuse_work(client, &times);
	abuse_assert_served("connects", &times);
	abuse_assert_over(daemon, client, before);
	kiln_close(client);
	kilnd_stop(daemon);
	munmap(connects, sizeof(*connects));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_half_open_peers),
		HARNESS_TEST(test_out_of_descriptors),
		HARNESS_TEST(test_connect_storm),
	};
	harness_begin(240);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
