/*
 * test_guests: who is let in by --allow-uid and --allow-gid alone, as users that are real: a daemon
 * of one user, programs of others.  No test changes a mode that kilnd sets.  Needs root, which
 * alone can be several users.
 */
#include "abuse_scene.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define OWNER 4300 /* the daemon's user and its group */
#define GUEST 4400
#define OTHER 4401
#define GROUP 4321 /* the daemon's user is in it */
#define FOREIGN 4322
#define GROUPS 100
#define LAUNCHES 40

struct visitor {
	uid_t uid;
	gid_t gid, groups[GROUPS];
	int count;
};

/* ---- Visitors ---- */

enum { SERVED, NOT_REACHED, REFUSED, NO_USER, NO_CLIENT, WRONG, TOO_MUCH };

static int launch(kiln_client *client)
{
	struct permute problem = transpose(5, 7);
	kiln_buffer *x, *y;
	kiln_call *call;
	kiln_ticket ticket;
	int status = kiln_alloc(client, permute_input_bytes(&problem), 0, "x", &x);
	if (status == KILN_OK)
		status = kiln_alloc(client, permute_output_bytes(&problem), KILN_BUFFER_SHARED, "y", &y);
	if (status != KILN_OK)
		return status;
	const kiln_tensor tensors[] = {permute_input(&problem, x), permute_output(&problem, y)};
	const kiln_operand operands[] = {{x, 0}, {y, 0}};
	const kiln_attr perm = perm_attr(&problem);
	status = kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call);
	for (int i = 0; status == KILN_OK && i < LAUNCHES; i++) {
		status = kiln_submit(call, operands, 2, 0, &ticket);
		if (status == KILN_OK)
			status = kiln_wait(client, ticket, CALL_TIMEOUT_MS);
	}
	return status;
}

static int visit(const struct kilnd *daemon, void *arg)
{
	const struct visitor *visitor = arg;
	struct permute problem = transpose(3, 9);
	kiln_reply *reply;
	char why[400];
	int status;
	if (!become_user(visitor->uid, visitor->gid, visitor->groups, visitor->count))
		return NO_USER;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);
	if (!client && status == KILN_EPERM && strstr(kiln_errmsg(), "may not be used by this user"))
		return NOT_REACHED;
	snprintf(why, sizeof(why), "uid %u may not use this kilnd of uid %u; start it with",
			 visitor->uid, daemon->uid);
	if (!client && status == KILN_EPERM && strncmp(kiln_errmsg(), why, strlen(why)) == 0)
		return REFUSED;
	if (!client) {
		fprintf(stderr, "%s\n", kiln_errmsg());
		return NO_CLIENT;
	}
	snprintf(why, sizeof(why), "launches");
	status = permute_check(client, &problem, 1, NULL, why);
	if (status == KILN_OK)
		status = launch(client);
	if (status != KILN_OK) {
		fprintf(stderr, "%s: %s\n", why, kiln_errmsg());
		return WRONG;
	}
	bool stopped = kiln_request(client, "stop", NULL, 0, &reply) == KILN_OK;
	kiln_close(client);
	return stopped ? TOO_MUCH : SERVED;
}

static void expect_visit(const struct kilnd *daemon, struct visitor visitor, int result)
{
	pid_t pid = process_start(daemon, visit, &visitor);
	int status = process_wait(pid, 2 * CALL_TIMEOUT_MS);
	if (status != EXITED(result))
		fail_msg("uid %u, gid %u and %d more: %#x instead of %d", visitor.uid, visitor.gid,
				 visitor.count, status, result);
}

static void expect_mode(const char *path, mode_t mode, gid_t group)
{
	struct stat status;
	assert_int_equal(stat(path, &status), 0);
	if ((status.st_mode & 0777) != mode || (group && status.st_gid != group))
		fail_msg("%s has mode %03o and group %u instead of %03o and %u", path,
				 status.st_mode & 0777, status.st_gid, mode, group);
}

static void end_suddenly(struct kilnd *daemon)
{
	kill(daemon->pid, SIGKILL);
	kilnd_wait(daemon, STOP_TIMEOUT_MS);
	assert_no_children();
}

static void look(kiln_client *client)
{
	const kiln_attr what = string_attr("what", "look");
	kiln_reply *reply = NULL;
	assert_ok(kiln_request(client, "debug", &what, 1, &reply));
	kiln_reply_free(reply);
}

/* ---- Modes ---- */

/* Each daemon finds the directory that the one before it made. */
static void follow_options(struct kilnd *daemon, bool gives_foreign)
{
	const struct {
		const char *const *options;
		mode_t socket, directory;
		gid_t group;
	} rows[] = {
		{NULL, 0600, 0700, 0},
		{OPTIONS("--allow-gid", "4321"), 0660, 0710, GROUP},
		{OPTIONS("--allow-gid", "4322"), gives_foreign ? 0660 : 0666, gives_foreign ? 0710 : 0711,
		 gives_foreign ? FOREIGN : 0},
		{OPTIONS("--allow-uid", "4400"), 0666, 0711, 0},
		{OPTIONS("--allow-gid", "4321,4322"), 0666, 0711, 0},
		{OPTIONS("--allow-gid", "4321", "--allow-uid", "4400"), 0666, 0711, 0},
		{OPTIONS("--allow-gid", "4321"), 0660, 0710, GROUP},
		{NULL, 0600, 0700, 0},
	};
	char directory[80];
	snprintf(directory, sizeof(directory), "%s/run", daemon->dir);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		kilnd_start(daemon, rows[i].options);
		expect_mode(daemon->socket, rows[i].socket, rows[i].group);
		expect_mode(directory, rows[i].directory, rows[i].group);
		expect_mode(daemon->dir, 0711, 0);
		/* The socket that is made anew, and its directory, are as the first ones. */
		kiln_client *client = client_open(daemon);
		char lock[128];
		snprintf(lock, sizeof(lock), "%s.lock", daemon->socket);
		assert_int_equal(unlink(daemon->socket), 0);
		assert_int_equal(unlink(lock), 0);
		assert_int_equal(rmdir(directory), 0);
		look(client);
		expect_mode(daemon->socket, rows[i].socket, rows[i].group);
		expect_mode(directory, rows[i].directory, rows[i].group);
		kiln_close(client);
		if (i % 2)
			end_suddenly(daemon);
		else
			kilnd_stop(daemon);
	}
	char *log = kilnd_log(daemon);
	assert_null(strstr(log, "keeps"));
	free(log);
}

static void test_modes_follow_options(void **state)
{
	skip_unless_root();
	kilnd_for_guests(*state, OWNER, OWNER, GROUP);
	follow_options(*state, false);
}

static void test_modes_of_root(void **state)
{
	skip_unless_root();
	kilnd_for_guests(*state, 0, 0, 0);
	follow_options(*state, true);
}

/* A directory that somebody else made keeps its mode, and the log tells what that costs. */
static void test_a_directory_of_ones_own(void **state)
{
	struct kilnd *daemon = *state;
	char directory[80], sentence[240];
	skip_unless_root();
	kilnd_for_guests(daemon, OWNER, OWNER, GROUP);
	snprintf(directory, sizeof(directory), "%s/run", daemon->dir);
	assert_int_equal(mkdir(directory, 0700), 0);
	assert_int_equal(chown(directory, OWNER, OWNER), 0);
	kilnd_start(daemon, OPTIONS("--allow-gid", "4321"));
	expect_mode(directory, 0700, OWNER);
	expect_mode(daemon->socket, 0660, GROUP);
	snprintf(
		sentence, sizeof(sentence),
		"--allow-gid 4321: the directory %s (uid 4300, gid 4300, mode 700) keeps gid 4321 out: "
		"let others pass it (chmod o+x), or name another place with --socket",
		directory);
	abuse_assert_logged(daemon, sentence);
	expect_visit(daemon, (struct visitor){.uid = GUEST, .gid = GROUP}, NOT_REACHED);
	/* The remedy helps. */
	assert_int_equal(chmod(directory, 0701), 0);
	expect_visit(daemon, (struct visitor){.uid = GUEST, .gid = GROUP}, SERVED);
	kilnd_stop(daemon);
	kilnd_start(daemon, NULL);
	expect_mode(directory, 0701, OWNER);
	kilnd_stop(daemon);
}

/* ---- Who gets in ---- */

static struct visitor with_groups(uid_t uid, gid_t last)
{
	struct visitor visitor = {.uid = uid, .gid = uid, .count = GROUPS};
	for (int i = 0; i < GROUPS; i++)
		visitor.groups[i] = 50000 + (gid_t)i;
	visitor.groups[GROUPS - 1] = last;
	return visitor;
}

static void test_one_group(void **state)
{
	struct kilnd *daemon = *state;
	skip_unless_root();
	kilnd_for_guests(daemon, OWNER, OWNER, GROUP);
	kilnd_start(daemon, OPTIONS("--allow-gid", "4321"));
	expect_visit(daemon, (struct visitor){.uid = OWNER, .gid = OWNER}, TOO_MUCH);
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);

	kilnd_start(daemon, OPTIONS("--allow-gid", "4321"));
	kiln_client *client = client_open(daemon);
	int64_t launches = info_int(client, "counters.lane_launches");
	expect_visit(daemon, (struct visitor){.uid = GUEST, .gid = GROUP}, SERVED);
	/* A guest has a lane as the owner has. */
	assert_true(info_int(client, "counters.lane_launches") > launches);
	expect_visit(daemon, with_groups(OTHER, GROUP), SERVED);
	expect_visit(daemon, (struct visitor){.uid = OTHER, .gid = FOREIGN}, NOT_REACHED);
	expect_visit(daemon, with_groups(OTHER, FOREIGN), NOT_REACHED);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_several(void **state)
{
	struct kilnd *daemon = *state;
	skip_unless_root();
	kilnd_for_guests(daemon, OWNER, OWNER, GROUP);
	kilnd_start(daemon, OPTIONS("--allow-gid", "4999,4322", "--allow-uid", "4400"));
	kiln_client *client = client_open(daemon);
	expect_visit(daemon, (struct visitor){.uid = GUEST, .gid = GUEST}, SERVED);
	expect_visit(daemon, (struct visitor){.uid = OTHER, .gid = FOREIGN}, SERVED);
	expect_visit(daemon, with_groups(OTHER, FOREIGN), SERVED);
	assert_int_equal(info_int(client, "counters.refused"), 0);
	expect_visit(daemon, (struct visitor){.uid = OTHER, .gid = GROUP}, REFUSED);
	expect_visit(daemon, with_groups(OTHER, GROUP), REFUSED);
	assert_int_equal(info_int(client, "counters.refused"), 2);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Inherited sockets ---- */

static int listen_at(const char *path, mode_t mode, gid_t group)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	assert_int_equal(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	/* As systemd does with SocketMode= and SocketGroup=. */
	assert_int_equal(chmod(path, mode), 0);
	assert_int_equal(chown(path, OWNER, group), 0);
	assert_int_equal(listen(sock, 8), 0);
	return sock;
}

static void stop_inherited(struct kilnd *daemon)
{
	kill(daemon->pid, SIGTERM);
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	unlink(daemon->socket);
}

static void test_inherited(void **state)
{
	struct kilnd *daemon = *state;
	char sentence[300];
	skip_unless_root();
	kilnd_for_guests(daemon, OWNER, OWNER, GROUP);
	snprintf(daemon->socket, sizeof(daemon->socket), "%s/kiln.sock", daemon->dir);
	int sock = listen_at(daemon->socket, 0660, GROUP);
	kilnd_spawn(daemon, OPTIONS("--allow-gid", "4321"), NULL, sock);
	kilnd_await(daemon);
	expect_visit(daemon, (struct visitor){.uid = GUEST, .gid = GROUP}, SERVED);
	char *log = kilnd_log(daemon);
	assert_null(strstr(log, "keeps"));
	free(log);
	stop_inherited(daemon);
	close(sock);

	sock = listen_at(daemon->socket, 0600, OWNER);
	kilnd_spawn(daemon, OPTIONS("--allow-gid", "4321"), NULL, sock);
	kilnd_await(daemon);
	snprintf(sentence, sizeof(sentence),
			 "--allow-gid 4321: the inherited socket %s (uid 4300, gid 4300, mode 600) keeps gid "
			 "4321 out: set SocketMode= and SocketGroup= in the socket unit",
			 daemon->socket);
	abuse_assert_logged(daemon, sentence);
	expect_visit(daemon, (struct visitor){.uid = GUEST, .gid = GROUP}, NOT_REACHED);
	stop_inherited(daemon);
	close(sock);
}

/* ---- A daemon that a program starts ---- */

/* The library makes the directory that it chooses, and the mode is kilnd's all the same. */
static void test_autostarted(void **state)
{
	struct kilnd *daemon = *state;
	kiln_connect_options options = {.size = sizeof(options),
									.device = "cpu",
									.daemon = getenv("KILND"),
									.timeout_ms = START_TIMEOUT_MS,
									.flags = KILN_CONNECT_AUTOSTART};
	char directory[80];
	kiln_client *client;
	skip_unless_root();
	kilnd_for_guests(daemon, 0, 0, 0);
	snprintf(directory, sizeof(directory), "%s/kiln", daemon->dir);
	snprintf(daemon->socket, sizeof(daemon->socket), "%.80s/kiln.sock", directory);
	unsetenv("KILN_SOCKET");
	setenv("XDG_RUNTIME_DIR", daemon->dir, 1);
	setenv("KILN_ALLOW_GID", "4321", 1);
	setenv("KILN_CACHE_DIR", daemon->cache, 1);
	assert_ok(kiln_connect(&options, &client));
	unsetenv("XDG_RUNTIME_DIR");
	unsetenv("KILN_ALLOW_GID");
	unsetenv("KILN_CACHE_DIR");
	expect_mode(directory, 0710, GROUP);
	expect_mode(daemon->socket, 0660, GROUP);
	expect_visit(daemon, (struct visitor){.uid = GUEST, .gid = GROUP}, SERVED);
	/* No harness ends this one. */
	kiln_reply *reply = NULL;
	pid_t pid = (pid_t)info_int(client, "server.pid");
	assert_ok(kiln_request(client, "stop", NULL, 0, &reply));
	kiln_reply_free(reply);
	kiln_close(client);
	process_wait(pid, STOP_TIMEOUT_MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_modes_follow_options),
		HARNESS_TEST(test_modes_of_root),
		HARNESS_TEST(test_a_directory_of_ones_own),
		HARNESS_TEST(test_one_group),
		HARNESS_TEST(test_several),
		HARNESS_TEST(test_inherited),
		HARNESS_TEST(test_autostarted),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
