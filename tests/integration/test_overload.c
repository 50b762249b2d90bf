/*
 * test_overload: a session that goes beyond its limits is told each time which one it was, what it
 * allows and by which option; and another one beside it never notices.  The daemon's memory for a
 * session and for a prepared call is bounded, too.  docs/limits.md lists the limits, and where the
 * others are tested.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_MOST 3
#define SESSIONS 24
#define CALLS 300
#define SESSION_KIB 40 /* measured: 19 */
#define CALL_KIB 30    /* measured: 17 */

/* One that wants too much, and one that works. */
struct scene {
	struct kilnd *daemon;
	struct permute problem;
	kiln_client *greedy, *modest;
};

/* Refused, with words of the sentence; and the others go on. */
static void assert_refused(const struct scene *scene, int status, const char *option,
						   const char *value)
{
	assert_int_equal(status, KILN_ELIMIT);
	assert_sentence(option);
	assert_sentence(value);
	assert_permutes(scene->modest, &scene->problem, NULL);
}

static void refuse_sessions(const struct scene *scene)
{
	int status;
	kiln_client *third = client_open(scene->daemon), *more;
	for (int i = 0; i < 3; i++) {
		more = client_try(scene->daemon, 5000, &status);
		assert_null(more);
		assert_refused(scene, status, "--max-sessions", "kilnd has 3 sessions");
	}
	/* There is room again as soon as one goes. */
	kiln_close(third);
	await_info(scene->modest, "server.sessions", 2);
	kiln_close(client_open(scene->daemon));
}

static void refuse_buffers(const struct scene *scene)
{
	kiln_buffer *buffers[4] = {0};
	for (int i = 0; i < 3; i++)
		assert_ok(kiln_alloc(scene->greedy, 100, 0, "b", &buffers[i]));
	assert_refused(scene, kiln_alloc(scene->greedy, 100, 0, "b", &buffers[3]), "--max-buffers",
				   "3 buffers");
	kiln_free(buffers[2]);
	assert_refused(scene, kiln_alloc(scene->greedy, 65536, 0, "b", &buffers[3]), "--max-bytes",
				   "65536");
	assert_ok(kiln_alloc(scene->greedy, 65536 - 200, 0, "b", &buffers[3]));
	kiln_free(buffers[0]);
	kiln_free(buffers[1]);
	kiln_free(buffers[3]);
}

static kiln_call *prepare(const struct scene *scene, const kiln_operand operands[2], int *status)
{
	kiln_tensor tensors[2] = {permute_input(&scene->problem, operands[0].buffer),
							  permute_output(&scene->problem, operands[1].buffer)};
	kiln_attr perm = perm_attr(&scene->problem);
	kiln_call *call = NULL;
	*status = kiln_prepare(scene->greedy, "permute", tensors, 2, &perm, 1, &call);
	return call;
}

static void refuse_calls(const struct scene *scene, const kiln_operand operands[2])
{
	kiln_call *calls[CALLS_MOST + 1], *graph = NULL;
	kiln_work works[3];
	int status;
	for (int i = 0; i <= CALLS_MOST; i++) {
		calls[i] = prepare(scene, operands, &status);
		if (i < CALLS_MOST)
			assert_ok(status);
	}
	assert_refused(scene, status, "--max-calls", "3 prepared calls");
	kiln_call_free(calls[1]);
	for (int i = 0; i < 3; i++)
		works[i] = (kiln_work){calls[0], operands, 2};
	assert_refused(scene, kiln_prepare_graph(scene->greedy, works, 3, &graph),
				   "more than the 2 that it may have", "the 2 that it may have");
	assert_ok(kiln_prepare_graph(scene->greedy, works, 2, &graph));
	kiln_call_free(graph);
	kiln_call_free(calls[0]);
	kiln_call_free(calls[2]);
}

static void refuse_submissions(const struct scene *scene, const kiln_operand operands[2])
{
	int status, statuses[6];
	kiln_ticket tickets[6];
	kiln_call *call = prepare(scene, operands, &status);
	debug_int(scene->greedy, "delay-launch", "ms", 100);
	for (int i = 0; i < 6; i++)
		assert_ok(kiln_submit(call, operands, 2, 0, &tickets[i]));
	for (int i = 5; i >= 0; i--) {
		statuses[i] = kiln_wait(scene->greedy, tickets[i], CALL_TIMEOUT_MS);
		if (statuses[i])
			assert_sentence("this session has 4 requests in flight, the most it may have "
							"(--max-inflight)");
		if (i == 4)
			assert_permutes(scene->modest, &scene->problem, NULL);
	}
	for (int i = 0; i < 6; i++)
		assert_int_equal(statuses[i], i < 4 ? KILN_OK : KILN_ELIMIT);
	debug_int(scene->greedy, "delay-launch", "ms", 0);
	kiln_call_free(call);
}

static void refuse_messages(const struct scene *scene)
{
	char text[6000];
	kiln_reply *reply;
	memset(text, 'k', sizeof(text));
	text[sizeof(text) - 1] = 0;
	kiln_attr key = string_attr("key", text);
	assert_refused(scene, kiln_request(scene->greedy, "cache.show", &key, 1, &reply), "4096",
				   "cache.show");
}

static void test_limits(void **state)
{
	struct scene scene = {.daemon = *state, .problem = transpose(8, 8)};
	kiln_operand operands[2] = {{0}};
	kilnd_start(scene.daemon, OPTIONS("--max-sessions", "3", "--max-buffers", "3", "--max-bytes",
									  "64K", "--max-inflight", "4", "--max-calls", "3",
									  "--test-max-graph-calls", "2", "--max-message", "4K"));
	scene.greedy = client_open(scene.daemon);
	scene.modest = client_open(scene.daemon);
	assert_permutes(scene.modest, &scene.problem, NULL);
	refuse_sessions(&scene);
	refuse_buffers(&scene);
	assert_ok(kiln_alloc(scene.greedy, 256, 0, "x", &operands[0].buffer));
	assert_ok(kiln_alloc(scene.greedy, 256, 0, "y", &operands[1].buffer));
	refuse_calls(&scene, operands);
	refuse_submissions(&scene, operands);
	refuse_messages(&scene);
	/* A client that was refused works on as well. */
	kiln_free(operands[0].buffer);
	kiln_free(operands[1].buffer);
	assert_permutes(scene.greedy, &scene.problem, NULL);
	kiln_close(scene.greedy);
	kiln_close(scene.modest);
	kilnd_stop(scene.daemon);
}

/* ---- Memory ---- */

/* The daemon has grown by at most `most` KiB for each of count. */
static void assert_grown(const struct kilnd *daemon, int64_t before, int count, int most)
{
	int64_t each = (resident_kib(daemon->pid) - before) / count;
	if (!getenv("KILN_SANITIZE") && each > most)
		fail_msg("the daemon has grown by %lld KiB for each of %d; the most is %d", (long long)each,
				 count, most);
}

static void test_memory(void **state)
{
	struct scene scene = {.daemon = *state};
	kiln_client *idle[SESSIONS];
	kiln_call *calls[CALLS];
	kiln_operand none[2] = {{0}};
	int status;
	kilnd_start(scene.daemon, NULL);
	scene.greedy = client_open(scene.daemon);
	scene.problem = transpose(8, 8);
	assert_permutes(scene.greedy, &scene.problem, NULL);
	int64_t before = resident_kib(scene.daemon->pid);
	for (int i = 0; i < SESSIONS; i++)
		idle[i] = client_open(scene.daemon);
	assert_grown(scene.daemon, before, SESSIONS, SESSION_KIB);
	before = resident_kib(scene.daemon->pid);
	for (int i = 0; i < CALLS; i++) {
		calls[i] = prepare(&scene, none, &status);
		assert_ok(status);
	}
	assert_grown(scene.daemon, before, CALLS, CALL_KIB);
	for (int i = 0; i < CALLS; i++)
		kiln_call_free(calls[i]);
	for (int i = 0; i < SESSIONS; i++)
		kiln_close(idle[i]);
	kiln_close(scene.greedy);
	kilnd_stop(scene.daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_limits),
		HARNESS_TEST(test_memory),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
