/*
 * test_raw_peers: requests about users' kernels that no library would send.  Each is answered with
 * a status and a sentence, and the session goes on.  Speaks frames by itself.
 */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAME_32 "a_name_that_is_of_32_characters_"
#define OWNER 4300 /* the daemon's user where there are guests */
#define FULL_BYTES ((uint64_t)16 << 20)

static const char source[] = "__global__ void k(int *x, int n) { *x = n; }\n";
static const char long_name[] = NAME_32 NAME_32 NAME_32 NAME_32; /* by one byte too long */

/* ---- Kernels ---- */

static void begin_kernel(struct peer *peer, struct wire_out *out, uint64_t bytes)
{
	peer_begin(peer, out, "raw.prepare");
	wire_map_begin(out, "raw");
	wire_put_str(out, "entry", "k");
	wire_put_uint(out, "bytes", bytes);
}

static void put_headers(struct wire_out *out, int count, const char *name, uint64_t bytes)
{
	wire_list_begin(out, "headers");
	for (int i = 0; i < count; i++) {
		wire_map_begin(out, NULL);
		wire_put_str(out, "n", name);
		wire_put_uint(out, "c", bytes);
		wire_map_end(out);
	}
	wire_list_end(out);
}

static void expect_kernel(struct peer *peer, struct wire_out *out, int fd, int status,
						  const char *word)
{
	wire_map_end(out);
	peer_expect(peer, out, fd, status, word);
}

static void test_kernels(void **state)
{
	struct kilnd *daemon = *state;
	const uint64_t bytes = sizeof(source) - 1;
	struct wire_out out;
	struct peer peer;
	int pipes[2], loose = memfd_create("loose", MFD_CLOEXEC);

	kilnd_start(daemon, NULL);
	peer_open(&peer, daemon, source);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(ftruncate(loose, 4096), 0);

	peer_begin(&peer, &out, "raw.prepare");
	peer_expect(&peer, &out, peer.texts, KILN_EINVAL, "the entry of a kernel has 1 to");
	peer_begin(&peer, &out, "raw.prepare");
	wire_put_str(&out, "raw", "text");
	peer_expect(&peer, &out, peer.texts, KILN_EINVAL, "the entry of a kernel has 1 to");
	begin_kernel(&peer, &out, bytes);
	expect_kernel(&peer, &out, -1, KILN_EPROTO, "a memfd sealed against shrinking");
	begin_kernel(&peer, &out, bytes);
	expect_kernel(&peer, &out, loose, KILN_EPROTO, "a memfd sealed against shrinking");
	begin_kernel(&peer, &out, bytes);
	expect_kernel(&peer, &out, pipes[0], KILN_EPROTO, "a memfd sealed against shrinking");
	begin_kernel(&peer, &out, bytes + 1);
	expect_kernel(&peer, &out, peer.texts, KILN_EPROTO, "of at least 46 bytes");
	begin_kernel(&peer, &out, UINT64_MAX);
	expect_kernel(&peer, &out, peer.texts, KILN_ELIMIT, "a source may have 1048576 bytes");
	begin_kernel(&peer, &out, bytes);
	put_headers(&out, 2049, "a.h", 0);
	expect_kernel(&peer, &out, peer.texts, KILN_ELIMIT, "2048 headers");
	/* Sums that would wrap around. */
	begin_kernel(&peer, &out, bytes);
	put_headers(&out, 2, "a.h", UINT64_MAX / 2 + 1);
	expect_kernel(&peer, &out, peer.texts, KILN_ELIMIT, "with its headers 16777216");
	begin_kernel(&peer, &out, bytes);
	put_headers(&out, 1, "a.h", 1);
	expect_kernel(&peer, &out, peer.texts, KILN_EPROTO, "of at least 46 bytes");
	begin_kernel(&peer, &out, bytes - 1);
	put_headers(&out, 1, NULL, 1);
	expect_kernel(&peer, &out, peer.texts, KILN_EINVAL, "header 0 has no name");
	begin_kernel(&peer, &out, bytes);
	wire_put_str(&out, "name",
				 "a name that is much longer than what anybody would call a file, or");
	expect_kernel(&peer, &out, peer.texts, KILN_EINVAL, "at most 63 bytes");
	begin_kernel(&peer, &out, bytes);
	wire_put_ints(&out, "options", (const int64_t[]){1, 2}, 2);
	expect_kernel(&peer, &out, peer.texts, KILN_EINVAL, "option 0 is no text");
	begin_kernel(&peer, &out, bytes);
	wire_put_ints(&out, "macros", (const int64_t[]){1, 2}, 2);
	expect_kernel(&peer, &out, peer.texts, KILN_EINVAL, "macro 0 has no name");
	/* And then one that is right. */
	begin_kernel(&peer, &out, bytes);
	expect_kernel(&peer, &out, peer.texts, KILN_OK, "");
	assert_true(peer.made > 0);
	close(loose);
	close(pipes[0]);
	close(pipes[1]);
	peer_close(&peer);
	kilnd_stop(daemon);
}

static void test_long_names(void **state)
{
	struct kilnd *daemon = *state;
	struct wire_out out;
	struct peer peer;

	kilnd_start(daemon, NULL);
	peer_open(&peer, daemon, source);
	begin_kernel(&peer, &out, sizeof(source) - 1);
	put_headers(&out, 1, long_name, 0);
	expect_kernel(&peer, &out, peer.texts, KILN_ELIMIT,
				  "at most 127 bytes, and that of header 0 has 128: a_name");
	begin_kernel(&peer, &out, sizeof(source) - 1);
	put_headers(&out, 1, long_name + 1, 0);
	expect_kernel(&peer, &out, peer.texts, KILN_OK, "");
	peer_close(&peer);
	kilnd_stop(daemon);
}

/* Such pages can be taken away below whoever maps them, seals or not: nobody does, neither for a
 * source nor for a copy nor as lent memory.  None is used. */
static void test_huge_pages(void **state)
{
	static const char *const copies[] = {"write", "read"};
	struct kilnd *daemon = *state;
	struct wire_out out;
	struct peer peer;
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd < 0) {
		fprintf(stderr, "SKIPPED: memfd_create(MFD_HUGETLB): %s\n", strerror(errno));
		skip();
	}
	assert_int_equal(ftruncate(fd, 1 << 30), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	kilnd_start(daemon, NULL);
	peer_open(&peer, daemon, source);
	begin_kernel(&peer, &out, sizeof(source) - 1);
	expect_kernel(&peer, &out, fd, KILN_EPROTO, "without huge pages");
	peer_begin(&peer, &out, "alloc");
	wire_put_uint(&out, "bytes", 4096);
	peer_expect(&peer, &out, -1, KILN_OK, "");
	uint64_t buffer = peer.made;
	for (int i = 0; i < 2; i++) {
		peer_begin(&peer, &out, copies[i]);
		wire_put_uint(&out, "buf", buffer);
		wire_put_uint(&out, "bytes", 4096);
		peer_expect(&peer, &out, fd, KILN_EPROTO, "without huge pages");
	}
	peer_begin(&peer, &out, "lend");
	wire_put_str(&out, "kind", "fd");
	wire_put_uint(&out, "bytes", 4096);
	wire_put_uint(&out, "span", 4096);
	peer_expect(&peer, &out, fd, KILN_EINVAL, "MFD_HUGETLB");
	close(fd);
	peer_close(&peer);
	kilnd_stop(daemon);
}

/* Reading and checking texts takes a while: not the loop does it, which serves others meanwhile. */
static void test_texts_are_read_aside(void **state)
{
	struct kilnd *daemon = *state;
	struct wire_out out;
	struct peer peer;
	uint64_t id, kernel;
	int zeros = frame_memfd("zeros", 16);

	kilnd_start(daemon, NULL);
	kiln_client *observer = client_open(daemon);
	await_info(observer, "workers.idle", 1);
	peer_open(&peer, daemon, source);
	debug_int(observer, "delay-store", "ms", CALL_TIMEOUT_MS);
	begin_kernel(&peer, &out, 16);
	wire_map_end(&out);
	peer_send(&peer, &out, zeros);
	kernel = peer.id;
	peer_begin(&peer, &out, "devices");
	peer_send(&peer, &out, -1);
	assert_int_equal(peer_take(&peer, &id), KILN_OK);
	assert_int_equal(id, peer.id);
	debug_int(observer, "delay-store", "ms", 0);
	assert_int_equal(peer_take(&peer, &id), KILN_EINVAL);
	assert_int_equal(id, kernel);
	assert_non_null(strstr(peer.sentence, "has a zero byte in it"));
	debug_int(observer, "delay-store", "ms", CALL_TIMEOUT_MS);
	/* A session that goes meanwhile takes its request along. */
	begin_kernel(&peer, &out, 16);
	wire_map_end(&out);
	peer_send(&peer, &out, zeros);
	peer_close(&peer);
	await_info(observer, "server.sessions", 1);
	debug_int(observer, "delay-store", "ms", 0);
	close(zeros);
	kiln_close(observer);
	kilnd_stop(daemon);
}

/* Texts that wait take the daemon's memory.  Here one memfd is all of them, and each kernel leaves
 * 64 KiB of what it may have to its names: 16 kernels are a session's budget. */
static void send_full(struct peer *peer, const char *type, int texts)
{
	struct wire_out out;
	peer_begin(peer, &out, type);
	wire_put_str(&out, "target", strcmp(type, "raw.compile") ? NULL : "sm_90");
	wire_map_begin(&out, "raw");
	wire_put_str(&out, "entry", "k");
	wire_put_uint(&out, "bytes", sizeof(source) - 1);
	put_headers(&out, 1, "a.h", FULL_BYTES - (64 << 10));
	wire_map_end(&out);
	peer_send(peer, &out, texts);
}

/* The last message is refused, before any other is answered. */
static void expect_refused(struct peer *peer, const char *word)
{
	uint64_t id;
	assert_int_equal(peer_take(peer, &id), KILN_ELIMIT);
	assert_int_equal(id, peer->id);
	if (!strstr(peer->sentence, word))
		fail_msg("\"%s\" has no \"%s\"", peer->sentence, word);
}

static void test_texts_have_a_budget(void **state)
{
	static char value[900 << 10];
	struct kilnd *daemon = *state;
	struct wire_out out;
	struct peer peer;
	uint64_t id;
	int texts = frame_memfd("texts", FULL_BYTES);

	kilnd_start(daemon, NULL);
	kiln_client *observer = client_open(daemon);
	await_info(observer, "workers.idle", 1);
	peer_open(&peer, daemon, source);
	debug_int(observer, "delay-store", "ms", CALL_TIMEOUT_MS);
	for (int i = 0; i <= 16; i++)
		send_full(&peer, "raw.prepare", texts);
	expect_refused(&peer, "holds 255 MiB of texts of this session's kernels");
	/* Others have budgets of their own, and those of a session that ends are free again. */
	peer_close(&peer);
	await_info(observer, "server.sessions", 1);
	debug_int(observer, "delay-store", "ms", 0);
	peer_open(&peer, daemon, source);
	send_full(&peer, "raw.prepare", texts);
	assert_int_equal(peer_take(&peer, &id), KILN_EINVAL);
	assert_non_null(strstr(peer.sentence, "has a zero byte in it"));
	/* Names and values count as well: of these, 96 have 254 MiB. */
	debug_int(observer, "delay-store", "ms", CALL_TIMEOUT_MS);
	memset(value, 'v', sizeof(value) - 1);
	for (int i = 0; i <= 96; i++) {
		begin_kernel(&peer, &out, sizeof(source) - 1);
		wire_list_begin(&out, "macros");
		wire_map_begin(&out, NULL);
		wire_put_str(&out, "n", "M");
		wire_put_str(&out, "v", value);
		wire_map_end(&out);
		wire_list_end(&out);
		wire_map_end(&out);
		peer_send(&peer, &out, peer.texts);
	}
	expect_refused(&peer, "of texts of this session's kernels, and 256 MiB are the most");
	peer_close(&peer);
	debug_int(observer, "delay-store", "ms", 0);
	close(texts);
	kiln_close(observer);
	kilnd_stop(daemon);
}

static void open_as(struct peer *peer, const struct kilnd *daemon, uid_t uid)
{
	assert_int_equal(seteuid(uid), 0);
	peer_open(peer, daemon, source);
	assert_int_equal(seteuid(0), 0);
}

/* Sums of several sessions: a guest's, those of all guests, and all.  The operator, whose share is
 * no guest's, is served when the guests have all of theirs. */
static void test_sums_have_a_budget(void **state)
{
	static const char *const refusals[] = {
		"holds 255 MiB of texts of guest uid 4410's kernels, and 256 MiB are the most", NULL,
		"holds 765 MiB of texts of all guests' kernels, and 768 MiB are the most",
		"holds 1020 MiB of texts of all sessions' kernels, and 1024 MiB are the most"};
	const uid_t users[] = {4410, 4411, 4412, OWNER}, next[] = {4410, 0, 4413, 0};
	struct kilnd *daemon = *state;
	struct peer peers[4], refused;
	int texts = frame_memfd("texts", FULL_BYTES);

	skip_unless_root();
	kilnd_for_guests(daemon, OWNER, OWNER, 0);
	kilnd_start(daemon, OPTIONS("--allow-uid", "4410,4411,4412,4413"));
	kiln_client *observer = client_open(daemon);
	await_info(observer, "workers.idle", 1);
	debug_int(observer, "delay-store", "ms", CALL_TIMEOUT_MS);
	for (int user = 0; user < 4; user++) {
		open_as(&peers[user], daemon, users[user]);
		for (int i = 0; i < 16; i++)
			send_full(&peers[user], "raw.compile", texts);
		if (!refusals[user])
			continue;
		open_as(&refused, daemon, next[user]);
		send_full(&refused, "raw.compile", texts);
		expect_refused(&refused, refusals[user]);
		peer_close(&refused);
	}
	for (int user = 0; user < 4; user++)
		peer_close(&peers[user]);
	debug_int(observer, "delay-store", "ms", 0);
	await_info(observer, "server.sessions", 1);
	close(texts);
	kiln_close(observer);
	kilnd_stop(daemon);
}

/* ---- Launches ---- */

static void begin_launch(struct peer *peer, struct wire_out *out, uint64_t call, int64_t grid)
{
	peer_begin(peer, out, "raw.submit");
	wire_put_uint(out, "call", call);
	wire_put_ints(out, "grid", (const int64_t[]){grid, 1, 1}, 3);
	wire_put_ints(out, "block", (const int64_t[]){1, 1, 1}, 3);
	wire_list_begin(out, "args");
}

static void expect_launch(struct peer *peer, struct wire_out *out, int status, const char *word)
{
	wire_list_end(out);
	peer_expect(peer, out, -1, status, word);
}

/* One list of arguments, one answer. */
static void expect_args(struct peer *peer, uint64_t call, const int64_t *memory, int numbers,
						int times, int status, const char *word)
{
	struct wire_out out;
	begin_launch(peer, &out, call, 1);
	for (int i = 0; i < times; i++)
		wire_put_ints(&out, NULL, memory, numbers);
	expect_launch(peer, &out, status, word);
}

static void expect_values(struct peer *peer, uint64_t call, const int64_t *memory, size_t bytes,
						  int times, int status, const char *word)
{
	static const char zeros[40000];
	struct wire_out out;
	begin_launch(peer, &out, call, 1);
	if (memory)
		wire_put_ints(&out, NULL, memory, 4);
	for (int i = 0; i < times; i++)
		wire_put_bin(&out, NULL, zeros, bytes);
	expect_launch(peer, &out, status, word);
}

static void expect_grid(struct peer *peer, uint64_t call, const int64_t *memory, int64_t grid,
						int status, const char *word)
{
	struct wire_out out;
	begin_launch(peer, &out, call, grid);
	wire_put_ints(&out, NULL, memory, 4);
	wire_put_bin(&out, NULL, "abcd", 4);
	expect_launch(peer, &out, status, word);
}

static void test_launches(void **state)
{
	struct kilnd *daemon = *state;
	struct wire_out out;
	struct peer peer;

	kilnd_start(daemon, NULL);
	peer_open(&peer, daemon, source);
	begin_kernel(&peer, &out, sizeof(source) - 1);
	expect_kernel(&peer, &out, peer.texts, KILN_OK, "");
	const uint64_t call = peer.made;
	peer_begin(&peer, &out, "alloc");
	wire_put_uint(&out, "bytes", 4);
	peer_expect(&peer, &out, -1, KILN_OK, "");
	const int64_t memory[] = {(int64_t)peer.made, 0, 4, 3}, beyond[] = {memory[0], 4, 1, 3},
				  absent[] = {memory[0] + 1000, 0, 4, 3}, odd[] = {memory[0], -1, 4, 3};

	peer_begin(&peer, &out, "submit");
	wire_put_uint(&out, "call", call);
	peer_expect(&peer, &out, -1, KILN_EINVAL, "submitted with raw.submit");
	peer_begin(&peer, &out, "raw.submit");
	wire_put_uint(&out, "call", call);
	peer_expect(&peer, &out, -1, KILN_EPROTO, "grid and block of three numbers");
	expect_grid(&peer, call + 1000, memory, 1, KILN_ENOENT, "has no user's kernel");
	expect_grid(&peer, call, memory, -1, KILN_EPROTO, "grid and block of three numbers");
	expect_grid(&peer, call, memory, INT64_MAX, KILN_EINVAL, "a grid of 9223372036854775807x1x1");
	begin_launch(&peer, &out, call, 1);
	wire_put_int(&out, NULL, 7);
	expect_launch(&peer, &out, KILN_EPROTO, "argument 0 is neither a value nor");
	expect_args(&peer, call, memory, 3, 1, KILN_EPROTO, "argument 0 is neither a value nor");
	expect_args(&peer, call, odd, 4, 1, KILN_EPROTO, "argument 0 is neither a value nor");
	expect_args(&peer, call, absent, 4, 1, KILN_ENOENT, "which this session does not have");
	expect_args(&peer, call, beyond, 4, 1, KILN_EINVAL, "argument 0 needs 1 bytes at offset 4");
	expect_args(&peer, call, memory, 4, 17, KILN_ELIMIT, "at most 16 arguments that are memory");
	expect_values(&peer, call, NULL, 40000, 1, KILN_ELIMIT, "the most are 64 and 32764");
	expect_values(&peer, call, NULL, 1, 65, KILN_ELIMIT, "65 arguments");
	expect_values(&peer, call, memory, 0, 1, KILN_EPROTO, "argument 1 is neither");
	expect_values(&peer, call, memory, 4, 1, KILN_OK, "");
	peer_close(&peer);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_kernels),
		HARNESS_TEST(test_long_names),
		HARNESS_TEST(test_huge_pages),
		HARNESS_TEST(test_texts_are_read_aside),
		HARNESS_TEST(test_texts_have_a_budget),
		HARNESS_TEST(test_sums_have_a_budget),
		HARNESS_TEST(test_launches),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
