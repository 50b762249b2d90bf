/*
 * test_descriptors: descriptors that a client sends and whose close() takes as long as it likes.
 * Wherever the daemon drops one, others are served meanwhile, and the daemon ends when it is told
 * to.  Speaks frames by itself.
 */
#include "slow_files.h"
#include "storm.h"

#include <client/wire/frame.h>
#include <client/wire/wire.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define REPLY_MS 10000 /* a descriptor keeps its closer for far longer */
#define NOBODY 65534
#define SLOW 8 /* CLOSER_SLOW: so many shut out their uid */

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* Whether this kernel can keep descriptors out of a socket. */
static bool has_passrights(void)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), off = 0;
	bool has = setsockopt(sock, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) == 0;

	close(sock);
	return has;
}

/* ---- The paths by which the daemon drops a descriptor ---- */

static int send_request(int sock, int fd)
{
	struct wire_out out;

	wire_begin(&out, "devices", 7);
	return raw_put(sock, &out, &fd, 1);
}

static int send_lend(int sock, int fd)
{
	struct wire_out out;

	wire_begin(&out, "lend", 7);
	wire_put_str(&out, "kind", "fd");
	wire_put_uint(&out, "bytes", 4096);
	return raw_put(sock, &out, &fd, 1);
}

static int send_write(int sock, int fd)
{
	struct wire_out out;

	wire_begin(&out, "write", 7);
	wire_put_uint(&out, "buf", 1);
	return raw_put(sock, &out, &fd, 1);
}

static int send_kernel(int sock, int fd, const char *type)
{
	struct wire_out out;

	wire_begin(&out, type, 7);
	wire_put_str(&out, "target", "cpu");
	wire_map_begin(&out, "raw");
	wire_put_str(&out, "entry", "k");
	wire_put_uint(&out, "bytes", 4);
	wire_map_end(&out);
	return raw_put(sock, &out, &fd, 1);
}

static int send_source(int sock, int fd)
{
	return send_kernel(sock, fd, "raw.explain");
}

/* A child that is started meanwhile closes what it inherits. */
static int send_prepare(int sock, int fd)
{
	return send_kernel(sock, fd, "raw.prepare");
}

static int send_bulk(int sock, int fd)
{
	return raw_bytes(sock, "KF\1\0\0\0\1\0", 8, &fd, 1);
}

static int send_bad_header(int sock, int fd)
{
	return raw_bytes(sock, "XF\0\1\0\0\0\0", 8, &fd, 1);
}

static int send_too_large(int sock, int fd)
{
	return raw_bytes(sock, "KF\1\0\0\0\0\x40", 8, &fd, 1);
}

static int send_untold(int sock, int fd)
{
	return raw_bytes(sock, "KF\0\0\1\0\0\0\x80", 9, &fd, 1);
}

static int send_many(int sock, int fd)
{
	int fds[FRAME_RIGHTS_MOST];

	for (int i = 0; i < FRAME_RIGHTS_MOST; i++)
		fds[i] = fd;
	return raw_bytes(sock, "KF\0\1\1\0\0\0\x80", 9, fds, FRAME_RIGHTS_MOST);
}

/* The session ends with the first; the second is in its socket's queue. */
static int send_behind(int sock, int fd)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int status = send_bad_header(sock, null);

	close(null);
	return status ? status : send_request(sock, fd);
}

static const struct path {
	const char *name;
	int (*send)(int sock, int fd);
	bool ends; /* the session, instead of an answer */
} paths[] = {
	{"a request that takes none", send_request, false},
	{"lend", send_lend, false},
	{"write", send_write, false},
	{"a source", send_source, false},
	{"a bulk message", send_bulk, true},
	{"a bad header", send_bad_header, true},
	{"a message that is too large", send_too_large, true},
	{"one that the header does not tell of", send_untold, true},
	{"one for a device process that is started", send_prepare, false},
	{"as many as there can be", send_many, true},
	{"one in the queue of a session that ends", send_behind, true},
};

/* Its answer, or its end, came. */
static void await_session(int sock, const struct path *path)
{
	char sentence[400];
	int status = raw_said(sock, REPLY_MS, sentence, sizeof(sentence));

	for (int i = 0; path->ends && status != KILN_ECONN && status != KILN_ETIMEDOUT && i < 4; i++)
		status = raw_said(sock, REPLY_MS, sentence, sizeof(sentence));
	if (status == KILN_ETIMEDOUT || (path->ends && status != KILN_ECONN))
		fail_msg("%s: the daemon neither answered nor hung up: %s", path->name,
				 kiln_status_name(status));
}

static void assert_served(const struct kilnd *daemon, int sock, const char *name)
{
	char sentence[400];
	struct wire_out out;

	wire_begin(&out, "devices", 9);
	assert_int_equal(raw_put(sock, &out, NULL, 0), KILN_OK);
	int status = raw_said(sock, REPLY_MS, sentence, sizeof(sentence));
	if (status != KILN_OK)
		fail_msg("after %s another client is not served: %s", name, kiln_status_name(status));
	/* Nor are new ones kept waiting. */
	int new = raw_greeted(daemon);
	if (new < 0)
		fail_msg("after %s nobody can connect", name);
	close(new);
}

/* The daemon is to have the last one, so it stands still until ours is closed. */
static void send_last(const struct kilnd *daemon, const struct path *path, int sock, int fd)
{
	process_stop(daemon->pid);
	int status = path->send(sock, fd);
	close(fd);
	assert_int_equal(kill(daemon->pid, SIGCONT), 0);
	if (status)
		fail_msg("%s: cannot be sent: %d", path->name, status);
}

static void test_lingering_sockets(void **state)
{
	struct kilnd *daemon = *state;
	struct slow_socket slow[sizeof(paths) / sizeof(paths[0])];
	int other;

	/* One uid's slow descriptors keep others of that uid waiting; each path gets a daemon. */
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		kilnd_start(daemon, NULL);
		other = raw_greeted(daemon);
		assert_true(other >= 0);
		int sock = raw_greeted(daemon);
		assert_true(sock >= 0);
		assert_true(slow_socket_open(&slow[i]));
		send_last(daemon, &paths[i], sock, slow[i].fd);
		await_session(sock, &paths[i]);
		close(sock);
		assert_served(daemon, other, paths[i].name);
		close(other);
		kilnd_stop(daemon);
		slow_socket_end(&slow[i]);
	}
}

/* Somebody whom the daemon has not let in sends none; an old kernel lets them through, and then
 * they are dropped like others. */
static void test_before_hello(void **state)
{
	struct kilnd *daemon = *state;
	struct slow_socket slow;
	char sentence[400];

	kilnd_start(daemon, NULL);
	int other = raw_greeted(daemon), sock = raw_open(daemon);
	assert_true(other >= 0 && sock >= 0);
	assert_true(slow_socket_open(&slow));
	process_stop(daemon->pid);
	int status = send_untold(sock, slow.fd);
	if (!status)
		close(slow.fd);
	assert_int_equal(kill(daemon->pid, SIGCONT), 0);
	assert_int_equal(status, has_passrights() ? EPERM : 0);
	if (!status)
		assert_int_not_equal(raw_said(sock, REPLY_MS, sentence, sizeof(sentence)), KILN_ETIMEDOUT);
	close(sock);
	assert_served(daemon, other, "one before hello");
	close(other);
	kilnd_stop(daemon);
	slow_socket_end(&slow);
	if (status)
		close(slow.fd);
}

static void test_fuse_file(void **state)
{
	struct kilnd *daemon = *state;
	struct slow_file slow;

	kilnd_start(daemon, NULL);
	if (!slow_file_open(&slow, daemon->dir)) {
		kilnd_stop(daemon);
		skip();
	}
	int other = raw_greeted(daemon);
	assert_true(other >= 0);
	/* Not all of them: more would shut out this uid. */
	static const int some[] = {0, 1, 4, 8};
	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
		const struct path *path = &paths[some[i]];
		int sock = raw_greeted(daemon);
		assert_true(sock >= 0);
		assert_int_equal(path->send(sock, slow.fd), 0);
		await_session(sock, path);
		assert_served(daemon, other, path->name);
		close(sock);
	}
	close(other);
	slow_file_end(&slow);
	kilnd_stop(daemon);
}

/* ---- A uid whose descriptors are never closed ---- */

/* The attacker and the test tell each other that they are ready. */
static void say(int sock)
{
	(void)!write(sock, "x", 1);
}

static bool hear(int sock)
{
	struct pollfd watch = {.fd = sock, .events = POLLIN};
	char byte;

	return poll(&watch, 1, 3 * REPLY_MS) == 1 && read(sock, &byte, 1) == 1;
}

static bool is_full(int status, const char *sentence)
{
	return status == KILN_ELIMIT && strstr(sentence, "cannot close the descriptors that programs");
}

/* Sends and sends until its session ends with a sentence. */
static bool flood(int sock)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), fds[FRAME_MAX_FDS];
	char sentence[400];
	int status = KILN_OK;

	for (int i = 0; i < FRAME_MAX_FDS; i++)
		fds[i] = null;
	for (int i = 0; i < 2000 && status == KILN_OK; i++) {
		struct wire_out out;
		wire_begin(&out, "devices", (uint64_t)i + 10);
		/* A session that has ended takes nothing more, and has said why. */
		(void)raw_put(sock, &out, fds, FRAME_MAX_FDS);
		status = raw_said(sock, REPLY_MS, sentence, sizeof(sentence));
	}
	close(null);
	return is_full(status, sentence);
}

static int attack_as_nobody(const struct kilnd *daemon, void *arg)
{
	const int test = *(const int *)arg;
	struct slow_socket slow[SLOW];
	char sentence[400];
	struct wire_out out;

	for (int i = 0; i < SLOW; i++)
		if (!slow_socket_open(&slow[i]))
			return 2;
	if (setgid(NOBODY) || setuid(NOBODY))
		return 3;
	int sock = raw_greeted(daemon);
	if (sock < 0)
		return 4;
	say(test);
	if (!hear(test))
		return 5;
	for (int i = 0; i < SLOW; i++) {
		if (send_request(sock, slow[i].fd))
			return 6;
		close(slow[i].fd);
	}
	say(test);
	for (int i = 0; i < SLOW; i++)
		if (raw_said(sock, REPLY_MS, sentence, sizeof(sentence)) != KILN_OK)
			return 7;
	if (!flood(sock))
		return 8;
	close(sock);
	/* Nor does it get in again. */
	sock = raw_open(daemon);
	raw_hello(&out, 1);
	(void)raw_put(sock, &out, NULL, 0);
	if (!is_full(raw_said(sock, REPLY_MS, sentence, sizeof(sentence)), sentence))
		return 9;
	close(sock);
	say(test);
	if (!hear(test))
		return 10;
	for (int i = 0; i < SLOW; i++)
		slow_socket_end(&slow[i]);
	/* Until what has piled up is closed. */
	for (int64_t until = now_ms() + REPLY_MS; now_ms() < until; pause_ms(10)) {
		sock = raw_greeted(daemon);
		if (sock >= 0)
			return 0;
	}
	return 11;
}

static void test_full(void **state)
{
	struct kilnd *daemon = *state;
	int pair[2];

	if (getuid() != 0) {
		fprintf(stderr, "SKIPPED: only root can become another user\n");
		skip();
	}
	kilnd_for_guests(daemon, 0, 0, 0);
	kilnd_start(daemon, OPTIONS("--allow-uid", "65534"));
	int other = raw_greeted(daemon);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	pid_t attacker = process_start(daemon, attack_as_nobody, &pair[1]);
	if (hear(pair[0])) {
		process_stop(daemon->pid);
		say(pair[0]);
		(void)hear(pair[0]);
		assert_int_equal(kill(daemon->pid, SIGCONT), 0);
		if (hear(pair[0]))
			assert_served(daemon, other, "a flood of another uid's");
		say(pair[0]);
	}
	assert_int_equal(process_wait(attacker, 3 * REPLY_MS), EXITED(0));
	kilnd_await_log(daemon, "cannot close the descriptors that programs of uid 65534");
	close(other);
	close(pair[0]);
	close(pair[1]);
	kilnd_stop(daemon);
}

/* ---- Strangers whose connections are never closed ---- */

#define CROWD 3
#define GUEST "65533"
#define OWNER 4300

/* The daemon closes a connection that may not be, with all that was sent before. */
static int crowd_as_nobody(const struct kilnd *daemon, void *arg)
{
	const int test = *(const int *)arg;
	struct slow_socket slow[CROWD];

	if (!become_user(NOBODY, NOBODY, NULL, 0))
		return 2;
	for (int i = 0; i < CROWD; i++)
		if (!slow_socket_open(&slow[i]))
			return 3;
	say(test);
	if (!hear(test))
		return 4;
	for (int i = 0; i < CROWD; i++) {
		int sock = raw_open(daemon);
		if (sock < 0 || send_request(sock, slow[i].fd))
			return 5;
		close(slow[i].fd);
	}
	say(test);
	if (!hear(test))
		return 6;
	for (int i = 0; i < CROWD; i++)
		slow_socket_end(&slow[i]);
	return 0;
}

static void await_log(const struct kilnd *daemon, const char *line)
{
	for (int64_t until = now_ms() + REPLY_MS; now_ms() < until; pause_ms(10)) {
		char *log = kilnd_log(daemon);
		bool has = strstr(log, line) != NULL;
		free(log);
		if (has)
			return;
	}
	fail_msg("the log has no line \"%s\"", line);
}

/* They are so many that nobody new is taken in; whoever is inside lacks nothing, children among it,
 * and new ones wait for no longer than the crowd stays. */
static void test_crowd_of_strangers(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(11, 5);
	char sentence[400];
	struct wire_out out;
	int pair[2];

	skip_unless_root();
	kilnd_for_guests(daemon, OWNER, OWNER, 0);
	kilnd_start(daemon, OPTIONS("--allow-uid", GUEST));
	kiln_client *client = client_open(daemon);
	debug_int(client, "admit-rights", "ms", 0);
	debug_int(client, "closer-sockets", "count", CROWD);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	pid_t crowd = process_start(daemon, crowd_as_nobody, &pair[1]);
	assert_true(hear(pair[0]));
	/* The daemon is to have the last ones. */
	process_stop(daemon->pid);
	say(pair[0]);
	bool sent = hear(pair[0]);
	assert_int_equal(kill(daemon->pid, SIGCONT), 0);
	assert_true(sent);
	await_log(daemon, "no new connections are taken until old ones are closed: programs of uid "
					  "65534 have sent descriptors");
	int sock = raw_open(daemon);
	assert_true(sock >= 0);
	raw_hello(&out, 1);
	assert_int_equal(raw_put(sock, &out, NULL, 0), KILN_OK);
	debug_str(client, "kill", "role", "executor");
	await_log(daemon, "was killed by signal 9");
	assert_permutes(client, &problem, NULL);
	say(pair[0]);
	assert_int_equal(raw_said(sock, REPLY_MS, sentence, sizeof(sentence)), KILN_OK);
	await_log(daemon, "new connections are taken again");
	assert_int_equal(process_wait(crowd, REPLY_MS), EXITED(0));
	close(sock);
	close(pair[0]);
	close(pair[1]);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- What may be lent ---- */

/* Nothing reaches a device process that would hold it. */
static void test_lent_files(void **state)
{
	struct kilnd *daemon = *state;
	char sentence[400];
	int pipes[2];

	kilnd_start(daemon, NULL);
	int sock = raw_greeted(daemon);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	const int fds[] = {pipes[0], sock, open("/dev/null", O_RDWR | O_CLOEXEC),
					   open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		assert_int_equal(send_lend(sock, fds[i]), KILN_OK);
		assert_int_equal(raw_said(sock, REPLY_MS, sentence, sizeof(sentence)), KILN_EPROTO);
		assert_non_null(strstr(sentence, "no descriptor of a memfd"));
	}
	for (size_t i = 1; i < sizeof(fds) / sizeof(fds[0]); i++)
		close(fds[i]);
	close(pipes[0]);
	close(pipes[1]);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_lingering_sockets),  HARNESS_TEST(test_before_hello),
		HARNESS_TEST(test_fuse_file),          HARNESS_TEST(test_full),
		HARNESS_TEST(test_crowd_of_strangers), HARNESS_TEST(test_lent_files),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
