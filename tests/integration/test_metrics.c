/*
 * test_metrics: what the daemon says of devices' time is what they worked, and those who ask for
 * metrics over HTTP, slow, many or hostile, get an answer or an end.
 */
#include "lane_scene.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- Device time ---- */

static double metric(kiln_client *client, const char *name)
{
	kiln_reply *reply = NULL;
	char line[160];

	assert_ok(kiln_request(client, "metrics", NULL, 0, &reply));
	snprintf(line, sizeof(line), "\n%s ", name);
	const char *found = strstr(kiln_reply_str(reply, "text"), line);
	if (!found)
		fail_msg("no %s: %s", name, kiln_reply_str(reply, "text"));
	double value = strtod(found + strlen(line), NULL);
	kiln_reply_free(reply);
	return value;
}

static double seconds_of(kiln_client *client, const char *session)
{
	char name[128];

	snprintf(name, sizeof(name), "kiln_session_device_seconds_total{uid=\"%u\",session=\"%s\"}",
			 (unsigned)getuid(), session);
	return metric(client, name);
}

static double busy(kiln_client *client)
{
	return metric(client, "kiln_device_busy_seconds_total{device=\"cpu\"}");
}

static void open_named(const struct kilnd *daemon, const char *name, struct pair *pair)
{
	setenv("KILN_NAME", name, 1);
	pair_open(daemon, pair);
	unsetenv("KILN_NAME");
}

static void submit(struct pair *pair, int count, kiln_ticket *last)
{
	for (int i = 0; i < count; i++)
		assert_int_equal(pair_submit(pair, i % 2, 0, last), KILN_OK);
}

#define DELAY_S 0.02

/* Two programs at once, one with twice the work: its second half it has the device alone.  False: a
 * machine that does much else has kept them apart. */
static bool share(struct pair *more, struct pair *less)
{
	kiln_ticket last_more, last_less;
	double before = busy(more->client);
	double more_before = seconds_of(more->client, "more"),
		   less_before = seconds_of(more->client, "less");
	int64_t began = now_ms();
	submit(more, 20, &last_more);
	submit(less, 10, &last_less);
	assert_ok(kiln_wait(more->client, last_more, CALL_TIMEOUT_MS));
	assert_ok(kiln_wait(less->client, last_less, CALL_TIMEOUT_MS));
	double all = busy(more->client) - before, wall = (double)(now_ms() - began + 1) / 1e3;
	double of_more = seconds_of(more->client, "more") - more_before;
	double of_less = seconds_of(more->client, "less") - less_before;
	print_message("busy %.3f s of %.3f s: %.3f s and %.3f s\n", all, wall, of_more, of_less);
	assert_true(all >= 20 * DELAY_S && all <= wall);
	assert_true(of_more + of_less > all * 0.98 && of_more + of_less < all * 1.02);
	return of_less >= 10 * DELAY_S / 2 * 0.8 && of_less < of_more;
}

static void test_shares(void **state)
{
	struct kilnd *daemon = *state;
	struct pair more, less;
	bool fair = false;

	kilnd_start(daemon, NULL);
	open_named(daemon, "more", &more);
	open_named(daemon, "less", &less);
	pair_run(&more, false);
	pair_run(&less, false);
	debug_int(more.client, "delay-launch", "ms", (int)(DELAY_S * 1000));
	for (int i = 0; i < 10 && !fair; i++)
		fair = share(&more, &less);
	assert_true(fair);
	debug_int(more.client, "delay-launch", "ms", 0);
	pair_close(&less);
	/* An ended session keeps its time, also when its device process has ended. */
	double of_less = seconds_of(more.client, "less");
	debug_str(more.client, "kill", "role", "executor");
	await_info_at_least(more.client, "counters.executor_faults", 1);
	assert_true(seconds_of(more.client, "less") == of_less);
	pair_close(&more);
	kilnd_stop(daemon);
}

#define SIDE 1200

/* The device's own clock, of kernels that follow one another.  The process hears of an end some
 * time later, which a machine that does much else makes longer, now and then. */
static void test_the_devices_clock(void **state)
{
	struct kilnd *daemon = *state;
	kiln_buffer *x, *y;
	double best = INFINITY;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	kiln_call *call = transpose_prepare(client, SIDE, SIDE);
	assert_ok(kiln_alloc(client, SIDE * SIDE * 4, 0, "x", &x));
	assert_ok(kiln_alloc(client, SIDE * SIDE * 4, 0, "y", &y));
	const kiln_operand operands[] = {{x, 0}, {y, 0}};
	for (int round = 0; round < 10 && best > 1.02; round++) {
		double before = busy(client), clock = 0;
		for (int i = 0; i < 5; i++) {
			kiln_ticket ticket;
			double micros = 0;
			assert_ok(kiln_submit(call, operands, 2, 0, &ticket));
			assert_ok(kiln_wait_time(client, ticket, 20000, &micros));
			clock += micros / 1e6;
		}
		double ratio = (busy(client) - before) / clock;
		print_message("%.4f s by the device's clock, ratio %.4f\n", clock, ratio);
		assert_true(ratio >= 0.98);
		best = ratio < best ? ratio : best;
	}
	assert_true(best <= 1.25);
	kiln_call_free(call);
	kiln_free(x);
	kiln_free(y);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- HTTP ---- */

static int dial(const struct sockaddr *address, socklen_t size)
{
	const struct timeval patience = {.tv_sec = 20};
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, address, size) < 0)
		fail_msg("connect: %s", strerror(errno));
	return fd;
}

/* A connection to where `kiln status` says that metrics are. */
static int dial_port(kiln_client *client)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	kiln_reply *reply = NULL;

	assert_ok(kiln_request(client, "info", NULL, 0, &reply));
	const char *colon = strchr(kiln_reply_str(reply, "server.metrics"), ':');
	assert_non_null(colon);
	address.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	kiln_reply_free(reply);
	return dial((const struct sockaddr *)&address, sizeof(address));
}

/* Reads to the end, and closes. */
static const char *hear(int fd)
{
	static char answer[1 << 17];
	size_t used = 0;
	ssize_t got;

	while ((got = recv(fd, answer + used, sizeof(answer) - 1 - used, 0)) > 0)
		used += (size_t)got;
	assert_true(got == 0 || errno == ECONNRESET);
	answer[used] = 0;
	close(fd);
	return answer;
}

static void assert_answer(int fd, const char *request, size_t size, const char *beginning)
{
	assert_int_equal(send(fd, request, size, MSG_NOSIGNAL), size);
	const char *answer = hear(fd);
	if (strncmp(answer, beginning, strlen(beginning)) != 0)
		fail_msg("%.60s: %.200s", request, answer);
}

#define GET "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
#define GOOD "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"
#define ASK(text, beginning) assert_answer(dial_port(client), text, sizeof text - 1, beginning)

static void test_requests(void **state)
{
	struct kilnd *daemon = *state;
	static char long_one[9000];

	kilnd_start(daemon, OPTIONS("--metrics=127.0.0.1:0"));
	kiln_client *client = client_open(daemon);
	ASK(GET, GOOD);
	ASK("GET /metrics?x=1 HTTP/1.0\n\n", GOOD);
	ASK("GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0");
	ASK("HEAD /metrics HTTP/1.1\r\n\r\n", GOOD);
	ASK("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ");
	ASK("GET /metrics/../x HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ");
	ASK("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 405 ");
	ASK("GET /metrics\r\n\r\n", "HTTP/1.1 400 ");
	ASK("GET /metrics SMTP\r\n\r\n", "HTTP/1.1 400 ");
	ASK("\r\n\r\n", "HTTP/1.1 405 ");
	ASK("GET\0 /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 400 ");
	memset(long_one, 'a', sizeof(long_one));
	int fd = dial_port(client);
	send(fd, long_one, sizeof(long_one), MSG_NOSIGNAL);
	const char *answer = hear(fd); /* it may be lost with what was not read of the request */
	assert_true(!*answer || !strncmp(answer, "HTTP/1.1 431 ", 13));
	/* Byte by byte. */
	fd = dial_port(client);
	for (size_t i = 0; i < sizeof(GET) - 2; i++)
		assert_int_equal(send(fd, &GET[i], 1, MSG_NOSIGNAL), 1);
	assert_answer(fd, "\n", 1, GOOD);
	kiln_close(client);
	kilnd_stop(daemon);
}

#define SILENT 40

/* Silent ones keep nobody from an answer, and each ends before long. */
static void test_silent_peers(void **state)
{
	struct kilnd *daemon = *state;
	int fds[SILENT];
	char byte;

	kilnd_start(daemon, OPTIONS("--metrics=127.0.0.1:0"));
	kiln_client *client = client_open(daemon);
	int64_t began = now_ms(), before = info_int(client, "server.fds");
	for (int i = 0; i < SILENT; i++)
		fds[i] = dial_port(client);
	ASK(GET, GOOD);
	assert_true(info_int(client, "server.fds") <= before + 16);
	/* One that asks and never reads. */
	int deaf = dial_port(client);
	send(deaf, GET, sizeof(GET) - 1, MSG_NOSIGNAL);
	for (int i = 0; i < SILENT; i++) {
		assert_true(recv(fds[i], &byte, 1, 0) <= 0);
		assert_true(now_ms() - began < 15000);
		close(fds[i]);
	}
	assert_true(now_ms() - began >= 1500);
	ASK(GET, GOOD);
	close(deaf);
	/* One that is there when the daemon ends. */
	fds[0] = dial_port(client);
	kiln_close(client);
	kilnd_stop(daemon);
	close(fds[0]);
}

static void test_unix_socket(void **state)
{
	struct kilnd *daemon = *state;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char option[160];
	struct stat status;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/metrics.sock", daemon->dir);
	snprintf(option, sizeof(option), "--metrics=unix:%s", address.sun_path);
	for (int i = 0; i < 2; i++) {
		kilnd_start(daemon, OPTIONS(option));
		assert_int_equal(stat(address.sun_path, &status), 0);
		assert_int_equal(status.st_mode, S_IFSOCK | 0600);
		assert_answer(dial((const struct sockaddr *)&address, sizeof(address)), GET,
					  sizeof(GET) - 1, GOOD);
		/* The second time what a daemon left that was killed is in the way. */
		if (i == 0) {
			kill(daemon->pid, SIGKILL);
			kilnd_wait(daemon, STOP_TIMEOUT_MS);
			assert_no_children();
			assert_int_equal(stat(address.sun_path, &status), 0);
		} else {
			kilnd_stop(daemon);
			assert_int_equal(stat(address.sun_path, &status), -1);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_shares),      HARNESS_TEST(test_the_devices_clock),
		HARNESS_TEST(test_requests),    HARNESS_TEST(test_silent_peers),
		HARNESS_TEST(test_unix_socket),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
