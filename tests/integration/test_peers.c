/*
 * test_peers: those who are not let in, and those who break the protocol.  Whatever a client sends,
 * only its own session ends.  Speaks frames by itself.
 */
#include "storm.h"

#include <client/wire/frame.h>
#include <client/wire/protocol.h>
#include <client/wire/wire.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int raw_connect(const struct kilnd *daemon)
{
	int sock = raw_open(daemon);

	assert_true(sock >= 0);
	return sock;
}

static void raw_send(int sock, struct wire_out *out)
{
	assert_int_equal(wire_end(out), KILN_OK);
	assert_int_equal(
		frame_send_wait(sock, out->buffer.data, out->buffer.size, NULL, 0, CALL_TIMEOUT_MS),
		KILN_OK);
	wire_out_free(out);
}

/* The status of the next reply; KILN_ECONN when the daemon hung up. */
static int raw_reply(int sock, char *sentence, size_t size)
{
	char unread[16];

	return raw_said(sock, CALL_TIMEOUT_MS, sentence ? sentence : unread,
					sentence ? size : sizeof(unread));
}

static int greeted_socket(const struct kilnd *daemon)
{
	int sock = raw_greeted(daemon);

	assert_true(sock >= 0);
	return sock;
}

/* The daemon hangs up, perhaps after some last words. */
static void expect_hangup(int sock)
{
	for (int i = 0; i < 8; i++) {
		int status = raw_reply(sock, NULL, 0);
		if (status == KILN_ECONN) {
			close(sock);
			return;
		}
		if (status == KILN_ETIMEDOUT)
			break;
	}
	fail_msg("the daemon did not hang up");
}

/* ---- Hostile bytes ---- */

static void test_hostile_bytes(void **state)
{
	static const struct {
		const char *bytes;
		size_t size;
	} payloads[] = {
		{"KF\0\0\5\0\0\0\xdd\xff\xff\xff\xff", 13}, /* a list of 4 billion */
		{"KF\0\0\5\0\0\0\xdf\xff\xff\xff\xff", 13}, /* a map of 4 billion */
		{"KF\0\0\5\0\0\0\xdb\xff\xff\xff\xff", 13}, /* a string of 4 GiB */
		{"KF\0\0\x0c\0\0\0\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x90", 20}, /* too deep */
		{"KF\0\0\1\0\0\0\xc1", 9},     /* never a value */
		{"KF\0\0\1\0\0\0\x07", 9},     /* no map */
		{"KF\0\0\xff\xff\xff\xff", 8}, /* a length without bytes */
		{"KF\1\1\0\0\0\0", 8},         /* descriptors that are not there */
		{"GET / HTTP/1.0\r\n\r\n", 18},
		{"K", 1},
	};
	struct kilnd *daemon = *state;
	struct permute problem = transpose(11, 13);
	kiln_client *client;
	int before;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &problem, NULL);
	before = count_fds(daemon->pid);
	for (size_t i = 0; i < sizeof(payloads) / sizeof(payloads[0]); i++)
		for (int greeted = 0; greeted < 2; greeted++) {
			int sock = greeted ? greeted_socket(daemon) : raw_connect(daemon);
			assert_int_equal(send(sock, payloads[i].bytes, payloads[i].size, MSG_NOSIGNAL),
							 payloads[i].size);
			expect_hangup(sock);
		}
	assert_int_equal(info_int(client, "counters.protocol_errors"),
					 2 * sizeof(payloads) / sizeof(payloads[0]));
	assert_permutes(client, &problem, "hit");
	assert_fds_at_most(daemon->pid, before);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_hello_comes_first(void **state)
{
	struct kilnd *daemon = *state;
	char sentence[400];
	struct wire_out out;
	int sock;

	kilnd_start(daemon, NULL);
	sock = raw_connect(daemon);
	wire_begin(&out, "info", 1);
	raw_send(sock, &out);
	assert_true(raw_reply(sock, sentence, sizeof(sentence)) < 0);
	expect_hangup(sock);

	sock = raw_connect(daemon);
	wire_begin(&out, "hello", 1);
	wire_put_int(&out, "proto", PROTOCOL_VERSION + 1);
	wire_put_str(&out, "version", "9.0.0");
	raw_send(sock, &out);
	assert_int_equal(raw_reply(sock, sentence, sizeof(sentence)), KILN_EVERSION);
	assert_true(sentence[0]);
	expect_hangup(sock);
	kilnd_stop(daemon);
}

static void test_odd_requests(void **state)
{
	struct kilnd *daemon = *state;
	char sentence[400], large[8192];
	struct wire_out out;
	int sock;

	kilnd_start(daemon, OPTIONS("--max-message", "4K"));
	sock = greeted_socket(daemon);
	/* Unknown ones, and ones without what they need, are answered. */
	wire_begin(&out, "make.coffee", 7);
	raw_send(sock, &out);
	assert_true(raw_reply(sock, sentence, sizeof(sentence)) < 0);
	assert_non_null(strstr(sentence, "make.coffee"));
	static const char *const bare[] = {"explain", "compile",   "alloc",     "lend",   "free",
									   "write",   "read",      "prepare",   "submit", "release",
									   "debug",   "cache.get", "cache.show"};
	for (size_t i = 0; i < sizeof(bare) / sizeof(bare[0]); i++) {
		wire_begin(&out, bare[i], 100 + i);
		raw_send(sock, &out);
		if (raw_reply(sock, sentence, sizeof(sentence)) >= 0 || strlen(sentence) < 10)
			fail_msg("%s without arguments: \"%s\"", bare[i], sentence);
	}
	/* CUDA memory is not for this device, however it is lent. */
	static const char *const kinds[] = {"ipc", "pool"};
	for (size_t i = 0; i < 2; i++) {
		wire_begin(&out, "lend", 150 + i);
		wire_put_str(&out, "kind", kinds[i]);
		wire_put_uint(&out, "bytes", 16);
		wire_put_uint(&out, "span", 16);
		raw_send(sock, &out);
		assert_int_equal(raw_reply(sock, sentence, sizeof(sentence)), KILN_ENOTSUP);
		assert_non_null(strstr(sentence, "device cpu"));
	}
	wire_begin(&out, "lend", 160);
	wire_put_str(&out, "kind", "hat");
	wire_put_uint(&out, "bytes", 16);
	raw_send(sock, &out);
	assert_int_equal(raw_reply(sock, sentence, sizeof(sentence)), KILN_EINVAL);
	assert_non_null(strstr(sentence, "ipc, fd or pool, not hat"));
	/* Ids of another session, or of nobody. */
	wire_begin(&out, "free", 200);
	wire_put_uint(&out, "buf", 1);
	raw_send(sock, &out);
	assert_int_equal(raw_reply(sock, sentence, sizeof(sentence)), KILN_ENOENT);
	/* A message over the limit. */
	memset(large, 'x', sizeof(large));
	large[sizeof(large) - 1] = 0;
	wire_begin(&out, "cache.show", 300);
	wire_put_str(&out, "key", large);
	raw_send(sock, &out);
	expect_hangup(sock);
	kilnd_stop(daemon);
}

/* A message of the usual size that would take long to decode. */
static void test_too_many_values(void **state)
{
	static int64_t ones[WIRE_MAX_ASKED];
	struct kilnd *daemon = *state;
	char sentence[400];
	struct wire_out out;

	kilnd_start(daemon, NULL);
	for (size_t i = 0; i < WIRE_MAX_ASKED; i++)
		ones[i] = 1;
	for (int over = 0; over < 2; over++) {
		int sock = greeted_socket(daemon);
		wire_begin(&out, "devices", 7);
		/* Beside them: the message, its names, type, id and the list itself. */
		wire_put_ints(&out, "of", ones, WIRE_MAX_ASKED - 7 + over);
		raw_send(sock, &out);
		int status = raw_reply(sock, sentence, sizeof(sentence));
		assert_int_equal(status, over ? KILN_EPROTO : KILN_OK);
		if (over) {
			assert_non_null(strstr(sentence, "it holds too many values"));
			expect_hangup(sock);
		} else {
			close(sock);
		}
	}
	kilnd_stop(daemon);
}

/* A client that asks and never reads costs the daemon a bounded queue, then the session. */
static void test_deaf_client(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(12, 13);
	kiln_client *client;
	int sock, status = KILN_OK;

	kilnd_start(daemon, OPTIONS("--max-queued", "64K"));
	client = client_open(daemon);
	sock = greeted_socket(daemon);
	for (int i = 0; i < 20000 && status == KILN_OK; i++) {
		struct wire_out out;
		wire_begin(&out, "info", (uint64_t)i + 2);
		assert_int_equal(wire_end(&out), KILN_OK);
		status = frame_send_wait(sock, out.buffer.data, out.buffer.size, NULL, 0, 5000);
		wire_out_free(&out);
	}
	assert_int_equal(status, KILN_ECONN);
	close(sock);
	assert_permutes(client, &problem, NULL);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Other users ---- */

#define NOBODY 65534

static int connect_as_nobody(const struct kilnd *daemon, void *unused)
{
	struct permute problem = transpose(3, 9);
	char why[400];
	int status;
	kiln_client *client;

	if (!become_user(NOBODY, NOBODY, NULL, 0))
		return 9;
	client = client_try(daemon, CALL_TIMEOUT_MS, &status);
	(void)unused;
	if (!client)
		return status == KILN_EPERM ? 3 : 4;
	status = permute_check(client, &problem, 1, NULL, why);
	if (status)
		fprintf(stderr, "%s\n", why);
	kiln_reply *reply;
	/* Users' programs, not operators: the daemon is not theirs to stop. */
	bool stopped = kiln_request(client, "stop", NULL, 0, &reply) == KILN_OK;
	/* Nor is the upkeep of its cache, nor what others asked for. */
	static const char *const kept_back[] = {
		"cache.verify", "cache.recompile", "cache.trim", "cache.clear", "cache.pin",
		"cache.unpin",  "recent",          "slow",       "trace"};
	bool kept = true;
	for (size_t i = 0; i < sizeof(kept_back) / sizeof(*kept_back); i++) {
		char sentence[100];
		snprintf(sentence, sizeof(sentence),
				 "%s is for uid 0, whose kilnd this is, not for uid 65534", kept_back[i]);
		kept = kept && kiln_request(client, kept_back[i], NULL, 0, &reply) == KILN_EPERM &&
			   !strcmp(kiln_errmsg(), sentence);
		if (!kept)
			fprintf(stderr, "%s: %s\n", kept_back[i], kiln_errmsg());
	}
	kiln_close(client);
	return status ? 5 : stopped ? 6 : kept ? 0 : 7;
}

static void test_foreign_users(void **state)
{
	struct kilnd *daemon = *state;

	skip_unless_root();
	kilnd_for_guests(daemon, 0, 0, 0);
	kilnd_start(daemon, NULL);
	assert_int_equal(process_wait(process_start(daemon, connect_as_nobody, NULL), CALL_TIMEOUT_MS),
					 EXITED(3));
	kilnd_stop(daemon);

	kilnd_start(daemon, OPTIONS("--allow-uid", "65534"));
	assert_int_equal(
		process_wait(process_start(daemon, connect_as_nobody, NULL), 3 * CALL_TIMEOUT_MS),
		EXITED(0));
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_hostile_bytes), HARNESS_TEST(test_hello_comes_first),
		HARNESS_TEST(test_odd_requests),  HARNESS_TEST(test_too_many_values),
		HARNESS_TEST(test_deaf_client),   HARNESS_TEST(test_foreign_users),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
