/*
 * test_crowds: guests and strangers who connect so often that nobody else would get in.  The
 * operator does, and so does each guest who is modest.  Needs root, which alone can be several
 * users.
 */
#include "abuse_scene.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define OWNER 4300 /* the daemon's user and its group */
#define GUEST 4400
#define OTHER 4401
#define SILENT_MOST 256

/* A process of another user found one of these. */
enum { SERVED, REFUSED, NOT_REACHED, NO_USER, NO_CLIENT, WRONG, TOO_MUCH };

static int be_served(const struct kilnd *daemon, void *unused)
{
	struct permute problem = transpose(3, 9);
	char why[400];
	int status;
	(void)unused;
	if (!become_user(GUEST, GUEST, NULL, 0))
		return NO_USER;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);
	if (!client)
		return NO_CLIENT;
	status = permute_check(client, &problem, 1, NULL, why);
	kiln_close(client);
	return status == KILN_OK ? SERVED : WRONG;
}

/* ---- Silence ---- */

/* Says nothing, and is told all the same. */
static int be_turned_away(const struct kilnd *daemon, void *unused)
{
	char sentence[400];
	(void)unused;
	if (!become_user(OTHER, OTHER, NULL, 0))
		return NO_USER;
	int sock = raw_open(daemon);
	if (sock < 0)
		return NOT_REACHED;
	if (raw_said(sock, CALL_TIMEOUT_MS, sentence, sizeof(sentence)) != KILN_EPERM ||
		!strstr(sentence, "uid 4401 may not use this kilnd of uid 4300"))
		return WRONG;
	return raw_said(sock, CALL_TIMEOUT_MS, sentence, sizeof(sentence)) == KILN_ECONN ? REFUSED
																					 : TOO_MUCH;
}

struct crowd {
	uid_t uid;
	int to_test[2]; /* a byte when all stand there */
	int ended;      /* the first of them that were ended */
	const char *refusal;
};

/* Many silent connections, in which the daemon has as many as it keeps; they stand until the test
 * closes the pipe. */
static int stand_silent(const struct kilnd *daemon, void *arg)
{
	struct crowd *crowd = arg;
	static int socks[2 * SILENT_MOST];
	char sentence[400];
	if (!become_user(crowd->uid, crowd->uid, NULL, 0))
		return NO_USER;
	for (int i = 0; i < 2 * SILENT_MOST; i++) {
		socks[i] = raw_open(daemon);
		if (socks[i] < 0)
			return NOT_REACHED;
	}
	for (int i = 0; i < crowd->ended; i++)
		if (raw_said(socks[i], CALL_TIMEOUT_MS, sentence, sizeof(sentence)) != KILN_ELIMIT ||
			!strstr(sentence, "256 connections have said no hello, the most that kilnd keeps, and "
							  "uid 4400 has most of them; this was its oldest"))
			return REFUSED;
	/* The next one is there still. */
	if (raw_said(socks[crowd->ended], 0, sentence, sizeof(sentence)) != KILN_ETIMEDOUT)
		return TOO_MUCH;
	if (write(crowd->to_test[1], "x", 1) != 1)
		return WRONG;
	for (;;)
		pause();
}

static void test_silent_crowd(void **state)
{
	struct kilnd *daemon = *state;
	struct crowd crowd = {.uid = GUEST, .ended = SILENT_MOST + 1};
	struct permute problem = transpose(13, 4);
	struct wire_out out;
	char byte;
	uint64_t id;

	skip_unless_root();
	kilnd_for_guests(daemon, OWNER, OWNER, 0);
	kilnd_start(daemon, OPTIONS("--allow-uid", "4400"));
	kiln_client *client = client_open(daemon);
	struct abuse_held before = abuse_settle(daemon, client);
	/* However slow the machine is, it is the crowd that ends a silent connection here. */
	debug_int(client, "hello-deadline", "ms", 300000);
	debug_int(client, "idle-executor", "ms", 100); /* the guest's device process goes with him */
	/* The operator's own silent connection is older than all of the guest's. */
	int mine = raw_open(daemon);
	assert_true(mine >= 0);
	assert_int_equal(pipe(crowd.to_test), 0);
	pid_t pid = process_start(daemon, stand_silent, &crowd);
	close(crowd.to_test[1]);
	if (read(crowd.to_test[0], &byte, 1) != 1)
		fail_msg("the crowd ended with %#x", process_wait(pid, CALL_TIMEOUT_MS));
	assert_fds_at_most(daemon->pid, before.fds + SILENT_MOST);
	assert_int_equal(info_int(client, "server.sessions"), 1);
	/* Operator, guest: each is served. */
	raw_hello(&out, 1);
	assert_int_equal(raw_put(mine, &out, NULL, 0), KILN_OK);
	assert_int_equal(raw_take(mine, CALL_TIMEOUT_MS, &id, NULL, NULL), KILN_OK);
	kiln_client *other = client_open(daemon);
	assert_permutes(other, &problem, NULL);
	pid_t guest = process_start(daemon, be_served, NULL);
	assert_int_equal(process_wait(guest, 2 * CALL_TIMEOUT_MS), EXITED(SERVED));
	/* A stranger is none of them: he is gone before he could say anything. */
	pid_t stranger = process_start(daemon, be_turned_away, NULL);
	assert_int_equal(process_wait(stranger, CALL_TIMEOUT_MS), EXITED(REFUSED));
	kill(pid, SIGKILL);
	process_wait(pid, CALL_TIMEOUT_MS);
	close(crowd.to_test[0]);
	close(mine);
	kiln_close(other);
	assert_fds_at_most(daemon->pid, before.fds);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Shares ---- */

/* As many sessions as a guest's share, and no more; and no guest has a place of the operator's. */
static int take_share(const struct kilnd *daemon, void *unused)
{
	kiln_client *clients[4];
	int status;
	(void)unused;
	if (!become_user(GUEST, GUEST, NULL, 0))
		return NO_USER;
	for (int i = 0; i < 4; i++) {
		clients[i] = client_try(daemon, CALL_TIMEOUT_MS, &status);
		if ((clients[i] != NULL) != (i < 2))
			return i < 2 ? NO_CLIENT : TOO_MUCH;
	}
	if (status != KILN_ELIMIT ||
		strcmp(kiln_errmsg(), "uid 4400 has 2 sessions, the most that a guest of this kilnd may "
							  "have: one in 4 of --max-sessions 8") != 0)
		return WRONG;
	kiln_close(clients[0]);
	for (int64_t end = now_ms() + CALL_TIMEOUT_MS;
		 !(clients[0] = client_try(daemon, 5000, &status));)
		if (now_ms() > end)
			return NO_CLIENT;
	kiln_close(clients[0]);
	kiln_close(clients[1]);
	return SERVED;
}

static int hold_share(const struct kilnd *daemon, void *arg)
{
	struct crowd *crowd = arg;
	int status;
	if (!become_user(crowd->uid, crowd->uid, NULL, 0))
		return NO_USER;
	for (int i = 0; i < 2; i++)
		if (!client_try(daemon, CALL_TIMEOUT_MS, &status))
			return status == KILN_ELIMIT && strcmp(kiln_errmsg(), crowd->refusal) == 0 ? REFUSED
																					   : WRONG;
	if (write(crowd->to_test[1], "x", 1) != 1)
		return WRONG;
	for (;;)
		pause();
}

static void test_shares(void **state)
{
	struct kilnd *daemon = *state;
	struct crowd crowd = {.refusal = "the guests of this kilnd have 6 sessions, the most that they "
									 "may have together: the others of --max-sessions 8 are for "
									 "uid 4300"};
	pid_t guests[3];
	char byte;
	skip_unless_root();
	kilnd_for_guests(daemon, OWNER, OWNER, 0);
	kilnd_start(daemon, OPTIONS("--allow-uid", "4400,4410,4411,4412", "--max-sessions", "8"));
	pid_t pid = process_start(daemon, take_share, NULL);
	assert_int_equal(process_wait(pid, 2 * CALL_TIMEOUT_MS), EXITED(SERVED));
	/* Three of them have theirs, which leaves none to the fourth, and one to the operator. */
	assert_int_equal(pipe(crowd.to_test), 0);
	for (int i = 0; i < 3; i++) {
		crowd.uid = (uid_t)(4410 + i);
		guests[i] = process_start(daemon, hold_share, &crowd);
		assert_int_equal(read(crowd.to_test[0], &byte, 1), 1);
	}
	crowd.uid = GUEST;
	pid = process_start(daemon, hold_share, &crowd);
	assert_int_equal(process_wait(pid, CALL_TIMEOUT_MS), EXITED(REFUSED));
	kiln_client *first = client_open(daemon), *second = client_open(daemon);
	assert_int_equal(info_int(first, "server.sessions"), 8);
	for (int i = 0; i < 3; i++) {
		kill(guests[i], SIGKILL);
		process_wait(guests[i], CALL_TIMEOUT_MS);
	}
	close(crowd.to_test[0]);
	close(crowd.to_test[1]);
	kiln_close(first);
	kiln_close(second);
	kilnd_stop(daemon);
}

/* ---- Descriptors ---- */

#define FILES 240 /* that the daemon may open, far more than it needs itself */

/* Shared buffers, each with a descriptor, until there are no more; it holds them until its end. */
static int hold_descriptors(const struct kilnd *daemon, void *arg)
{
	struct crowd *crowd = arg;
	kiln_buffer *buffer;
	int status;
	if (!become_user(crowd->uid, crowd->uid, NULL, 0))
		return NO_USER;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);
	if (!client)
		return NO_CLIENT;
	for (int i = 0; i < FILES && status == KILN_OK; i++)
		status = kiln_alloc(client, 4096, KILN_BUFFER_SHARED, "x", &buffer);
	if (status != KILN_ELIMIT || !strstr(kiln_errmsg(), crowd->refusal))
		return WRONG;
	/* Nor does it get in again, or send one. */
	if (client_try(daemon, CALL_TIMEOUT_MS, &status) || status != KILN_ELIMIT ||
		!strstr(kiln_errmsg(), crowd->refusal))
		return TOO_MUCH;
	char bytes[16] = "";
	if (kiln_alloc(client, sizeof(bytes), 0, "held", &buffer) != KILN_OK ||
		kiln_write(buffer, 0, bytes, sizeof(bytes)) != KILN_ELIMIT ||
		!strstr(kiln_errmsg(), crowd->refusal))
		return TOO_MUCH;
	if (write(crowd->to_test[1], "x", 1) != 1)
		return WRONG;
	for (;;)
		pause();
}

/* A guest that takes all it can leaves the operator enough to come in, and to work. */
static void test_descriptors_of_guests(void **state)
{
	struct kilnd *daemon = *state;
	struct crowd crowd = {.uid = GUEST,
						  .refusal = "kilnd has as many files open as it may have for guests "
									 "(three quarters of ulimit -n)"};
	struct permute problem = transpose(13, 4);
	struct rlimit files;
	kiln_buffer *buffer = NULL;
	char byte;

	skip_unless_root();
	/* The daemon is root's, for not every root may set the limits of another user's process. */
	kilnd_for_guests(daemon, 0, 0, 0);
	kilnd_start(daemon, OPTIONS("--allow-uid", "4400"));
	kiln_client *client = client_open(daemon);
	debug_int(client, "idle-executor", "ms", 100);
	abuse_settle(daemon, client);
	kiln_close(client);
	assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, NULL, &files), 0);
	files.rlim_cur = FILES;
	assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, &files, NULL), 0);
	assert_int_equal(pipe(crowd.to_test), 0);
	pid_t guest = process_start(daemon, hold_descriptors, &crowd);
	close(crowd.to_test[1]);
	if (read(crowd.to_test[0], &byte, 1) != 1)
		fail_msg("the guest ended with %#x", process_wait(guest, CALL_TIMEOUT_MS));
	client = client_open(daemon);
	assert_permutes(client, &problem, NULL);
	assert_ok(kiln_alloc(client, 4096, KILN_BUFFER_SHARED, "mine", &buffer));
	assert_ok(kiln_free(buffer));
	kill(guest, SIGKILL);
	process_wait(guest, CALL_TIMEOUT_MS);
	close(crowd.to_test[0]);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_silent_crowd),
		HARNESS_TEST(test_shares),
		HARNESS_TEST(test_descriptors_of_guests),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
