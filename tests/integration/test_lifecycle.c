/*
 * test_lifecycle: how a daemon starts, whom it lets in, what it does with those who break the
 * rules, and how it ends.
 */
#include "harness.h"

#include <client/wire/frame.h>
#include <client/wire/wire.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	return address;
}

static int bound_socket(const char *path, int type)
{
	struct sockaddr_un address = address_of(path);
	int sock = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	assert_true(sock >= 0);
	assert_int_equal(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	return sock;
}

/* ---- Starting ---- */

static void expect_datagram(int sock, const char *word)
{
	struct pollfd poller = {.fd = sock, .events = POLLIN};
	char text[512];
	ssize_t size;

	assert_int_equal(poll(&poller, 1, START_TIMEOUT_MS), 1);
	size = recv(sock, text, sizeof(text) - 1, 0);
	assert_true(size > 0);
	text[size] = 0;
	if (!strstr(text, word))
		fail_msg("expected %s, got %s", word, text);
}

/* A terminal that goes ends a daemon, but not one that was started by nohup. */
static void test_hangup(void **state)
{
	struct kilnd *daemon = *state;
	char *log;

	signal(SIGHUP, SIG_IGN);
	kilnd_start(daemon, NULL);
	signal(SIGHUP, SIG_DFL);
	kill(daemon->pid, SIGHUP);
	kiln_close(client_open(daemon));
	kilnd_stop(daemon);
	log = kilnd_log(daemon);
	assert_non_null(strstr(log, "stopping: Terminated"));
	free(log);
	kilnd_start(daemon, NULL);
	kill(daemon->pid, SIGHUP);
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	log = kilnd_log(daemon);
	assert_non_null(strstr(log, "stopping: Hangup"));
	free(log);
}

/* Those that a pipe without a reader, a full quota or somebody else's child would bring. */
static void test_other_signals(void **state)
{
	static const int signals[] = {SIGPIPE, SIGXFSZ, SIGCHLD, SIGCONT, SIGURG, SIGWINCH};
	struct kilnd *daemon = *state;

	kilnd_start(daemon, NULL);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		assert_int_equal(kill(daemon->pid, signals[i]), 0);
	kiln_close(client_open(daemon));
	kilnd_stop(daemon);
}

static void test_readiness(void **state)
{
	struct kilnd *daemon = *state;
	char path[96], variable[128];
	const char *environment[] = {variable, NULL};
	kiln_client *client;
	int sock;

	snprintf(path, sizeof(path), "%s/notify", daemon->dir);
	snprintf(variable, sizeof(variable), "NOTIFY_SOCKET=%s", path);
	sock = bound_socket(path, SOCK_DGRAM);
	kilnd_spawn(daemon, NULL, environment, -1);
	expect_datagram(sock, "READY=1");
	/* Ready means ready: no second try is needed. */
	client = client_open(daemon);
	kiln_close(client);
	kill(daemon->pid, SIGTERM);
	expect_datagram(sock, "STOPPING=1");
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	close(sock);
}

static void test_socket_activation(void **state)
{
	struct kilnd *daemon = *state;
	int sock = bound_socket(daemon->socket, SOCK_SEQPACKET);
	struct permute problem = transpose(6, 9);
	kiln_client *client;

	assert_int_equal(listen(sock, 8), 0);
	kilnd_spawn(daemon, NULL, NULL, sock);
	client = client_open(daemon);
	assert_permutes(client, &problem, NULL);
	kiln_close(client);
	kill(daemon->pid, SIGTERM);
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	/* The socket is its owner's, who may start another daemon on it. */
	assert_int_equal(access(daemon->socket, F_OK), 0);
	kilnd_spawn(daemon, NULL, NULL, sock);
	client = client_open(daemon);
	assert_permutes(client, &problem, "hit");
	kiln_close(client);
	kill(daemon->pid, SIGTERM);
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	close(sock);
}

static void expect_refused_start(struct kilnd *first, const char *socket, const char *cache,
								 const char *word)
{
	struct kilnd second = *first;
	char pid[16], *log;
	int status;

	second.pid = 0;
	snprintf(second.log, sizeof(second.log), "%s/log2", first->dir);
	kilnd_spawn(&second, OPTIONS("--socket", socket, "--cache-dir", cache), NULL, -1);
	status = kilnd_wait(&second, STOP_TIMEOUT_MS);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
	log = kilnd_log(&second);
	snprintf(pid, sizeof(pid), "%d", first->pid);
	if (!strstr(log, word) || !strstr(log, pid))
		fail_msg("the sentence does not name %s and process %s: %s", word, pid, log);
	free(log);
	unlink(second.log);
}

static void test_second_daemon(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(5, 9);
	char other_cache[96], other_socket[96];
	kiln_client *client;

	snprintf(other_cache, sizeof(other_cache), "%s/cache2", daemon->dir);
	snprintf(other_socket, sizeof(other_socket), "%s/other.sock", daemon->dir);
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	expect_refused_start(daemon, daemon->socket, other_cache, daemon->socket);
	expect_refused_start(daemon, other_socket, daemon->cache, daemon->cache);
	assert_int_equal(access(other_socket, F_OK), -1);
	/* The first one did not notice. */
	assert_permutes(client, &problem, NULL);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_stale_socket(void **state)
{
	struct kilnd *daemon = *state;
	struct stat status;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	assert_int_equal(stat(daemon->socket, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	kill(daemon->pid, SIGKILL);
	kilnd_wait(daemon, 2000);
	assert_no_children();
	assert_int_equal(access(daemon->socket, F_OK), 0);
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	kiln_close(client);
	kilnd_stop(daemon);

	/* A file that is no socket is not taken over. */
	FILE *file = fopen(daemon->socket, "w");
	assert_non_null(file);
	fclose(file);
	kilnd_spawn(daemon, NULL, NULL, -1);
	assert_true(WEXITSTATUS(kilnd_wait(daemon, STOP_TIMEOUT_MS)) != 0);
	assert_int_equal(access(daemon->socket, F_OK), 0);
}

static void test_autostart(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(7, 9);
	kiln_connect_options options = {.size = sizeof(options),
									.socket = daemon->socket,
									.device = "cpu",
									.timeout_ms = START_TIMEOUT_MS};
	kiln_client *client, *second;
	kiln_reply *reply;
	int64_t end;

	/* Nobody names it: it is found beside the library. */
	unsetenv("KILN_DAEMON");
	setenv("KILN_CACHE_DIR", daemon->cache, 1);
	setenv("KILN_DEVICES", "cpu", 1);
	assert_int_equal(kiln_connect(&options, &client), KILN_ECONN);
	assert_sentence(daemon->socket);
	options.flags = KILN_CONNECT_AUTOSTART;
	if (kiln_connect(&options, &client))
		fail_msg("autostart: %s", kiln_errmsg());
	assert_permutes(client, &problem, "compiled");
	/* A second client finds the same daemon. */
	assert_ok(kiln_connect(&options, &second));
	assert_int_equal(info_int(client, "server.pid"), info_int(second, "server.pid"));
	kiln_close(client);
	assert_ok(kiln_request(second, "stop", NULL, 0, &reply));
	kiln_reply_free(reply);
	kiln_close(second);
	end = now_ms() + STOP_TIMEOUT_MS;
	while (access(daemon->socket, F_OK) == 0 && now_ms() < end)
		pause_ms(5);
	assert_int_equal(access(daemon->socket, F_OK), -1);
	assert_no_children();
	unsetenv("KILN_CACHE_DIR");
	unsetenv("KILN_DEVICES");
}

/* ---- Ending ---- */

struct slow {
	kiln_client *client;
	kiln_buffer *x, *y;
	kiln_call *call;
	kiln_ticket ticket;
	pid_t executor;
};

/* Submits a launch and sees that it is under way, in a device process that then stands still. */
static void submit_slow(struct slow *slow, struct kilnd *daemon)
{
	struct permute problem = transpose(4, 4);
	kiln_tensor tensors[2];
	kiln_attr perm = perm_attr(&problem);
	kiln_operand operands[2] = {0};

	setenv("KILN_LANE", "off", 1);
	slow->client = client_open(daemon);
	unsetenv("KILN_LANE");
	assert_ok(kiln_alloc(slow->client, 64, 0, "x", &slow->x));
	assert_ok(kiln_alloc(slow->client, 64, 0, "y", &slow->y));
	tensors[0] = permute_input(&problem, slow->x);
	tensors[1] = permute_output(&problem, slow->y);
	operands[0].buffer = slow->x;
	operands[1].buffer = slow->y;
	assert_ok(kiln_prepare(slow->client, "permute", tensors, 2, &perm, 1, &slow->call));
	assert_ok(kiln_submit(slow->call, operands, 2, 0, &slow->ticket)); /* which loads the kernel */
	assert_ok(kiln_wait(slow->client, slow->ticket, CALL_TIMEOUT_MS));
	slow->executor = device_process(slow->client, 0);
	process_stop(slow->executor);
	assert_ok(kiln_submit(slow->call, operands, 2, 0, &slow->ticket));
	await_info_at_least(slow->client, "executors[0].inflight", 1);
}

static void free_slow(struct slow *slow)
{
	kiln_call_free(slow->call);
	kiln_free(slow->x);
	kiln_free(slow->y);
	kiln_close(slow->client);
}

static void test_drain(void **state)
{
	struct kilnd *daemon = *state;
	struct slow slow;
	int status;

	kilnd_start(daemon, NULL);
	submit_slow(&slow, daemon);
	kill(daemon->pid, SIGTERM);
	kilnd_await_log(daemon, "stopping: ");
	kill(slow.executor, SIGCONT);
	/* The launch under way ends well; a client that comes now is turned away. */
	assert_ok(kiln_wait(slow.client, slow.ticket, CALL_TIMEOUT_MS));
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	assert_null(client_try(daemon, 1000, &status));
	assert_int_equal(status, KILN_ECONN);
	free_slow(&slow);
	assert_no_children();
	assert_int_equal(access(daemon->socket, F_OK), -1);
}

static void test_drain_deadline(void **state)
{
	struct kilnd *daemon = *state;
	struct slow slow;
	int64_t start;
	int status;

	kilnd_start(daemon, OPTIONS("--test-drain-timeout", "300"));
	submit_slow(&slow, daemon);
	start = now_ms();
	kill(daemon->pid, SIGINT);
	status = kiln_wait(slow.client, slow.ticket, CALL_TIMEOUT_MS);
	if (status != KILN_ECONN && status != KILN_ECANCELED && status != KILN_EDEVICE)
		fail_msg("unexpected end: %s", kiln_status_name(status));
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	assert_true(now_ms() - start >= 250);
	free_slow(&slow);
	assert_no_children();
	assert_int_equal(access(daemon->socket, F_OK), -1);
}

/* Connects before the daemon, which ends after a second without a client, has ended. */
static kiln_client *try_idle(struct kilnd *daemon)
{
	kiln_client *client;
	int status;

	kilnd_spawn(daemon, OPTIONS("--idle-exit", "1"), NULL, -1);
	while (!(client = client_try(daemon, START_TIMEOUT_MS, &status)) &&
		   waitpid(daemon->pid, &status, WNOHANG) == 0)
		pause_ms(5);
	daemon->pid = client ? daemon->pid : 0;
	return client;
}

static void test_idle_exit(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client = NULL;

	for (int i = 0; i < 10 && !client; i++)
		client = try_idle(daemon);
	assert_non_null(client);
	/* While somebody is connected it stays. */
	pause_ms(1500);
	assert_int_equal(info_int(client, "server.pid"), daemon->pid);
	kiln_close(client);
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	assert_no_children();
	assert_int_equal(access(daemon->socket, F_OK), -1);
}

static void test_stop_request(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;
	kiln_reply *reply;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_ok(kiln_request(client, "stop", NULL, 0, &reply));
	kiln_reply_free(reply);
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_ECONN);
	kiln_close(client);
	assert_no_children();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_hangup),         HARNESS_TEST(test_other_signals),
		HARNESS_TEST(test_readiness),      HARNESS_TEST(test_socket_activation),
		HARNESS_TEST(test_second_daemon),  HARNESS_TEST(test_stale_socket),
		HARNESS_TEST(test_autostart),      HARNESS_TEST(test_drain),
		HARNESS_TEST(test_drain_deadline), HARNESS_TEST(test_idle_exit),
		HARNESS_TEST(test_stop_request),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
