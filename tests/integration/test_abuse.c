/*
 * test_abuse: peers that cost much and give nothing: who does not read, who sends descriptors that
 * nobody wants, and frames that lie about their size.  Meanwhile a client that works is served as
 * before, and afterwards the daemon holds what it held.
 */
#include "abuse_scene.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOW_READERS 8
#define ASKED_AT_ONCE 50 /* of a reader, between two requests of the client that works */

/* ---- Who does not read ---- */

/* Asks until nothing more goes out, or the daemon has hung up. */
static bool ask_more(int sock, uint64_t *id)
{
	for (int i = 0; i < ASKED_AT_ONCE; i++) {
		struct wire_out out;
		int status;
		wire_begin(&out, "info", ++*id);
		assert_int_equal(wire_end(&out), KILN_OK);
		status = frame_send(sock, out.buffer.data, out.buffer.size, NULL, 0);
		wire_out_free(&out);
		if (status == KILN_ECONN)
			return false;
		if (status != KILN_OK)
			return true;
	}
	return true;
}

static void test_slow_readers(void **state)
{
	static struct abuse_times times;
	struct kilnd *daemon = *state;
	int socks[SLOW_READERS], gone = 0;
	uint64_t ids[SLOW_READERS];

	kilnd_start(daemon, OPTIONS("--max-queued", "64K"));
	kiln_client *client = client_open(daemon);
	struct abuse_held before = abuse_settle(daemon, client);
	times.count = 0;
	for (int i = 0; i < SLOW_READERS; i++) {
		socks[i] = raw_greeted(daemon);
		assert_true(socks[i] >= 0);
		ids[i] = 1;
	}
	for (int64_t end = now_ms() + CALL_TIMEOUT_MS; gone < SLOW_READERS && now_ms() < end;) {
		for (int i = 0; i < SLOW_READERS; i++) {
			if (socks[i] < 0 || ask_more(socks[i], &ids[i]))
				continue;
			close(socks[i]);
			socks[i] = -1;
			gone++;
		}
		abuse_work(client, &times);
	}
	assert_int_equal(gone, SLOW_READERS);
	abuse_assert_logged(daemon, "does not read its replies: more than 65536 bytes are queued "
								"(--max-queued); it was ended");
	while (times.count < 100)
		abuse_work(client, &times);
	abuse_assert_served("slow readers", &times, SLOW_READERS * ASKED_AT_ONCE);
	abuse_assert_over(daemon, client, before);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* Slow is not deaf: as long as it fits into the queue every answer comes. */
static void test_late_reader(void **state)
{
	struct kilnd *daemon = *state;
	uint64_t id;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	struct abuse_held before = abuse_settle(daemon, client);
	int sock = raw_greeted(daemon);
	assert_true(sock >= 0);
	for (uint64_t i = 2; i < 302; i++) {
		struct wire_out out;
		wire_begin(&out, "info", i);
		assert_int_equal(raw_put(sock, &out, NULL, 0), KILN_OK);
	}
	/* All of them have been answered, as far as the daemon can. */
	assert_int_equal(info_int(client, "server.sessions"), 2);
	for (uint64_t i = 2; i < 302; i++) {
		assert_int_equal(raw_take(sock, CALL_TIMEOUT_MS, &id, NULL, NULL), KILN_OK);
		assert_int_equal(id, i);
	}
	close(sock);
	abuse_assert_over(daemon, client, before);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Descriptors and sizes ---- */

static void test_descriptor_floods(void **state)
{
	static const uint8_t none[] = "KF\0\0\1\0\0\0\x80", four[] = "KF\0\4\1\0\0\0\x80";
	struct kilnd *daemon = *state;
	int fds[ABUSE_FDS];

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	struct abuse_held before = abuse_settle(daemon, client);
	int memory = frame_memfd("flood", 4096);
	assert_true(memory >= 0);
	for (int i = 0; i < ABUSE_FDS; i++)
		fds[i] = memory;
	for (int i = 0; i < 20; i++) {
		int sock = raw_greeted(daemon);
		assert_true(sock >= 0);
		assert_true(raw_send(sock, i % 2 ? four : none, 9, fds, ABUSE_FDS));
		raw_expect_refused(sock, KILN_EPROTO, "as many descriptors as its header says");
	}
	/* Some more than the header says, and one end of the connection itself. */
	int sock = raw_greeted(daemon);
	fds[0] = sock;
	assert_true(raw_send(sock, none, 9, fds, 2));
	raw_expect_refused(sock, KILN_EPROTO, "as many descriptors as its header says");
	/* Well-formed ones on requests that want none are closed, and the answers come. */
	sock = raw_greeted(daemon);
	fds[0] = memory;
	for (uint64_t i = 2; i < 202; i++) {
		struct wire_out out;
		uint64_t id;
		wire_begin(&out, i % 2 ? "info" : "devices", i);
		assert_int_equal(raw_put(sock, &out, fds, FRAME_MAX_FDS), KILN_OK);
		assert_int_equal(raw_take(sock, CALL_TIMEOUT_MS, &id, NULL, NULL), KILN_OK);
	}
	assert_fds_at_most(daemon->pid, before.fds + 1);
	close(sock);
	close(memory);
	abuse_assert_over(daemon, client, before);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A payload in a memfd: its size, seals, and what the header says. */
static void send_bulk(const struct kilnd *daemon, uint64_t size, uint32_t said, int seals,
					  int status, const char *words)
{
	uint8_t header[8] = {'K', 'F', 1, 0};
	int memory = memfd_create("bulk", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int sock = raw_greeted(daemon);

	assert_true(memory >= 0 && sock >= 0);
	assert_int_equal(ftruncate(memory, (off_t)size), 0);
	assert_int_equal(fcntl(memory, F_ADD_SEALS, seals), 0);
	for (int i = 0; i < 4; i++)
		header[4 + i] = (uint8_t)(said >> 8 * i);
	assert_true(raw_send(sock, header, sizeof(header), &memory, 1));
	close(memory);
	raw_expect_refused(sock, status, words);
}

static void test_oversize_frames(void **state)
{
	const int sealed = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
	struct kilnd *daemon = *state;
	const size_t bytes = 120 << 10;

	kilnd_start(daemon, OPTIONS("--max-message", "1M"));
	kiln_client *client = client_open(daemon);
	struct abuse_held before = abuse_settle(daemon, client);
	uint8_t *large = calloc(1, bytes);
	assert_non_null(large);
	memcpy(large, "KF\0\0", 4);
	for (int i = 0; i < 3; i++) {
		uint32_t said = i == 0 ? (uint32_t)(bytes - 8) : i == 1 ? 1 : UINT32_MAX;
		int sock = raw_greeted(daemon);
		assert_true(sock >= 0);
		for (int k = 0; k < 4; k++)
			large[4 + k] = (uint8_t)(said >> 8 * k);
		assert_true(raw_send(sock, large, bytes, NULL, 0));
		raw_expect_refused(sock, KILN_EPROTO, "not of the size its header says");
	}
	free(large);
	send_bulk(daemon, 2 << 20, 2 << 20, sealed, KILN_ELIMIT,
			  "larger than 1048576 bytes, the most kilnd takes (--max-message)");
	send_bulk(daemon, (uint64_t)8 << 30, 65536, sealed, KILN_EPROTO, "not of the size");
	send_bulk(daemon, 65536, 65536, F_SEAL_SHRINK, KILN_EPROTO, "sealed against every change");
	send_bulk(daemon, 0, 0, sealed, KILN_EPROTO, "not of the size");
	/* A megabyte of nothing is a message that says nothing. */
	send_bulk(daemon, 1 << 20, 1 << 20, sealed, KILN_EPROTO, "cannot be read");
	abuse_assert_over(daemon, client, before);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_slow_readers),
		HARNESS_TEST(test_late_reader),
		HARNESS_TEST(test_descriptor_floods),
		HARNESS_TEST(test_oversize_frames),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
