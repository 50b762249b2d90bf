/*
 * test_figures: what the daemon says it did is what it did: how each request was answered, for the
 * broker, the operator and the session; what was left, canceled and lost on the way; and how long
 * things took.
 */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- All figures ---- */

static kiln_reply *all_figures(kiln_client *client)
{
	const kiln_attr section = string_attr("section", "all");
	kiln_reply *reply = NULL;

	assert_ok(kiln_request(client, "info", &section, 1, &reply));
	return reply;
}

/* A figure of the row of a list whose member is so much; -1: there is no such row. */
static int64_t row_figure(const kiln_reply *reply, const char *list, const char *member,
						  const char *text, int64_t number, const char *figure)
{
	int rows = kiln_reply_count(reply, list);
	char path[96];

	for (int i = 0; i < rows; i++) {
		snprintf(path, sizeof(path), "%s[%d].%s", list, i, member);
		if (text ? strcmp(kiln_reply_str(reply, path), text) != 0
				 : kiln_reply_int(reply, path) != number)
			continue;
		snprintf(path, sizeof(path), "%s[%d].%s", list, i, figure);
		return kiln_reply_int(reply, path);
	}
	return -1;
}

static int64_t of_permute(const kiln_reply *reply, const char *figure)
{
	return row_figure(reply, "operators", "op", "permute", 0, figure);
}

static int64_t of_process(const kiln_reply *reply, pid_t pid, const char *figure)
{
	return row_figure(reply, "sessions", "pid", NULL, pid, figure);
}

/* The operator's and the session's counter. */
static void assert_both(kiln_client *client, const char *name, int64_t value)
{
	kiln_reply *reply = all_figures(client);
	int64_t of_operator = of_permute(reply, name), mine = of_process(reply, getpid(), name);

	if (of_operator != value || mine != value)
		fail_msg("%s is %lld and %lld instead of %lld: %s", name, (long long)of_operator,
				 (long long)mine, (long long)value, kiln_reply_json(reply));
	kiln_reply_free(reply);
	assert_counters_add_up(client);
}

/* ---- Answers ---- */

static void test_answers(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(24, 40), other = transpose(25, 41);
	kiln_client *client;
	char why[400];

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	assert_both(client, "compiles", 1);
	assert_both(client, "micros.compile.count", 1);
	assert_both(client, "micros.load.count", 1);
	/* It is loaded, and so nothing is loaded again. */
	assert_permutes(client, &problem, "hit");
	assert_both(client, "memory_hits", 1);
	assert_both(client, "disk_hits", 0);
	assert_both(client, "micros.memory_hit.count", 1);
	assert_both(client, "micros.load.count", 1);
	debug_int(client, "fail-compile", "count", 1);
	assert_int_equal(permute_check(client, &other, 1, NULL, why), KILN_ECOMPILE);
	assert_both(client, "failures", 1);
	assert_int_equal(permute_check(client, &other, 1, NULL, why), KILN_ECOMPILE);
	assert_both(client, "remembered", 1);
	assert_both(client, "requests", 4);
	assert_both(client, "launches", 2);
	assert_int_equal(info_int(client, "counters.jobs_done"), 1);
	assert_int_equal(info_int(client, "counters.jobs_failed"), 1);
	assert_int_equal(info_int(client, "counters.lookup_failures"), 1);
	kiln_close(client);
	kilnd_stop(daemon);

	/* The next daemon has it on disk only, once. */
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_permutes(client, &problem, "hit");
	assert_both(client, "disk_hits", 1);
	assert_both(client, "memory_hits", 0);
	assert_both(client, "micros.disk_hit.count", 1);
	assert_both(client, "micros.load.count", 1);
	assert_permutes(client, &problem, "hit");
	assert_both(client, "memory_hits", 1);
	assert_int_equal(info_int(client, "counters.hits"), 2);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A compile that takes so long takes at least so long in all that says how long it took. */
static void test_times(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(26, 42);
	kiln_client *client;
	kiln_reply *reply;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	debug_int(client, "delay-compile", "ms", 200);
	assert_permutes(client, &problem, "compiled");
	reply = all_figures(client);
	assert_true(of_permute(reply, "micros.compile.p50") >= 200000);
	assert_true(of_permute(reply, "micros.compile.p99") >= 200000);
	assert_int_equal(of_permute(reply, "micros.compile.max"),
					 of_process(reply, getpid(), "micros.compile.max"));
	assert_true(of_permute(reply, "micros.load.max") > 0);
	assert_int_equal(of_permute(reply, "micros.memory_hit.count"), 0);
	kiln_reply_free(reply);
	kiln_close(client);
}

/* ---- Sessions ---- */

static int run_once(const struct kilnd *daemon, void *arg)
{
	int status;
	char why[400];
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);

	if (!client)
		return 1;
	status = permute_check(client, arg, 1, NULL, why);
	kiln_close(client);
	return status ? 2 : 0;
}

/* The figures of a session are kept when it is gone; those of many as one sum. */
static void test_ended_sessions(void **state)
{
	enum { SESSIONS = 20, KEPT = 16 };
	struct kilnd *daemon = *state;
	struct permute problem = transpose(27, 43);
	kiln_client *client;
	kiln_reply *reply;
	pid_t last = 0;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	for (int i = 0; i < SESSIONS; i++) {
		last = process_start(daemon, run_once, &problem);
		assert_int_equal(process_wait(last, 2 * CALL_TIMEOUT_MS), EXITED(0));
	}
	await_info(client, "server.sessions", 1);
	assert_counters_add_up(client);
	reply = all_figures(client);
	assert_int_equal(kiln_reply_count(reply, "sessions"), KEPT + 1);
	assert_int_equal(of_process(reply, last, "requests"), 1);
	assert_int_equal(of_process(reply, last, "launches"), 1);
	assert_int_equal(of_process(reply, last, "ended"), 1);
	assert_int_equal(of_process(reply, getpid(), "requests"), 0);
	assert_int_equal(of_process(reply, getpid(), "ended"), 0);
	assert_int_equal(kiln_reply_int(reply, "older_sessions.requests"), SESSIONS - KEPT);
	assert_int_equal(kiln_reply_int(reply, "older_sessions.launches"), SESSIONS - KEPT);
	assert_int_equal(kiln_reply_int(reply, "older_sessions.compiles"), 1);
	assert_int_equal(of_permute(reply, "requests"), SESSIONS);
	kiln_reply_free(reply);
	kiln_close(client);
}

/* ---- What is left and lost ---- */

static void test_left_and_canceled(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(28, 44);
	kiln_client *client;
	kiln_reply *reply;
	pid_t asker;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	debug_int(client, "delay-compile", "ms", 60000);
	asker = process_start(daemon, run_once, &problem);
	await_info(client, "busy.compiling", 1);
	assert_int_equal(info_int(client, "busy.waiting"), 1);
	assert_counters_add_up(client);
	reply = all_figures(client);
	assert_int_equal(kiln_reply_count(reply, "flights"), 1);
	assert_int_equal(kiln_reply_int(reply, "flights[0].waiters"), 1);
	assert_int_equal(kiln_reply_int(reply, "flights[0].owner"), of_process(reply, asker, "id"));
	assert_string_equal(kiln_reply_str(reply, "flights[0].op"), "permute");
	assert_string_equal(kiln_reply_str(reply, "flights[0].state"), "compiling");
	assert_true(kiln_reply_int(reply, "flights[0].age_us") > 0);
	kiln_reply_free(reply);
	kill(asker, SIGKILL);
	process_wait(asker, CALL_TIMEOUT_MS);
	await_info(client, "counters.left", 1);
	assert_int_equal(info_int(client, "counters.canceled"), 1);
	assert_int_equal(info_int(client, "counters.asked"), 1);
	assert_int_equal(info_int(client, "counters.requests"), 0);
	assert_int_equal(info_int(client, "busy.compiling"), 0);
	assert_counters_add_up(client);
	kiln_close(client);
}

/* Launched late by the daemon; its client is gone by then. */
static void test_lost(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(29, 45);
	kiln_client *client;
	pid_t launcher;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	debug_int(client, "delay-launch", "ms", 1000);
	launcher = process_start(daemon, run_once, &problem);
	await_info(client, "busy.launching", 1);
	assert_counters_add_up(client);
	kill(launcher, SIGKILL);
	process_wait(launcher, CALL_TIMEOUT_MS);
	await_info(client, "counters.message_lost", 1);
	assert_int_equal(info_int(client, "counters.launches"), 0);
	assert_int_equal(info_int(client, "counters.submitted"), 1);
	assert_int_equal(info_int(client, "busy.launching"), 0);
	assert_counters_add_up(client);
	kiln_close(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_answers),        HARNESS_TEST(test_times),
		HARNESS_TEST(test_ended_sessions), HARNESS_TEST(test_left_and_canceled),
		HARNESS_TEST(test_lost),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
