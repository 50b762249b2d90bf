/*
 * test_postmortem: what goes wrong leaves a report that the sentence names: of a device process
 * that is killed, overruns or faults, of compilers that die, of a cache that is damaged, of a lane
 * with nonsense in it; a storm is one report and a count, and a report that cannot be written is
 * one line of the log.
 */
#include "lane_scene.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Reports ---- */

/* The one that a sentence names. */
static void name_in(const char *sentence, char id[32])
{
	const char *at = strstr(sentence, "; report: kiln faults show ");
	if (!at)
		fail_msg("\"%s\" names no report", sentence);
	snprintf(id, 32, "%.20s", at + strlen("; report: kiln faults show "));
}

static kiln_reply *show(kiln_client *client, const char *id)
{
	kiln_attr report = string_attr("report", id);
	kiln_reply *reply = NULL;
	check_ok(kiln_request(client, "fault.show", &report, 1, &reply), "fault.show", __FILE__,
			 __LINE__);
	return reply;
}

static void assert_says(const kiln_reply *report, const char *part)
{
	const char *text = kiln_reply_str(report, "text");
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in the report: %s", part, text);
}

static int count_reports(kiln_client *client)
{
	kiln_reply *reply = NULL;
	assert_ok(kiln_request(client, "fault.ls", NULL, 0, &reply));
	int count = kiln_reply_count(reply, "rows");
	kiln_reply_free(reply);
	return count;
}

/* A device process has begun a call and not ended it: the daemon's report of now says so. */
static void await_in_flight(kiln_client *client)
{
	int64_t until = now_ms() + CALL_TIMEOUT_MS;
	for (bool seen = false; !seen; pause_ms(2)) {
		kiln_reply *reply = NULL;
		assert_ok(kiln_request(client, "fault.now", NULL, 0, &reply));
		seen = strstr(kiln_reply_str(reply, "text"), ", in flight for ") != NULL;
		kiln_reply_free(reply);
		assert_true(now_ms() < until);
	}
}

/* Checks the parts that every report has. */
static void assert_whole(const kiln_reply *report, const char *kind)
{
	assert_string_equal(kiln_reply_str(report, "kind"), kind);
	assert_says(report, "\nkilnd          0.");
	assert_says(report, "\nhost           Linux ");
	assert_says(report, "\nthe end of the daemon's log\n");
	assert_says(report, "\nsettings\n  --socket ");
	assert_says(report, "counters that are not 0\n  ");
	assert_says(report, "\ndevice processes\n");
}

/* ---- Device processes ---- */

static void test_killed(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	struct permute problem = transpose(ROWS, COLUMNS);
	char id[32], again[32];
	kiln_ticket ticket;
	kilnd_start(daemon, NULL);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	/* Killed while a launch is in flight, which came by message. */
	debug_int(pair.client, "delay-launch", "ms", 10000);
	assert_ok(pair_submit(&pair, false, 0, &ticket));
	await_in_flight(pair.client);
	debug_str(pair.client, "kill", "role", "executor");
	assert_int_equal(kiln_wait(pair.client, ticket, CALL_TIMEOUT_MS), KILN_EDEVICE);
	name_in(kiln_errmsg(), id);
	kiln_reply *report = show(pair.client, id);
	assert_whole(report, "device");
	assert_int_equal(kiln_reply_int(report, "times"), 1);
	assert_non_null(strstr(kiln_reply_str(report, "said"), "killed by signal 9"));
	assert_says(report, "ended by signal 9 (Killed)\n");
	assert_says(report, ", by message of session 2 (pid ");
	assert_says(report, "permute");
	assert_says(report, "permute x=f32:");
	assert_says(report, "grid ");
	assert_says(report, ", in flight for ");
	assert_says(report, "  launch, for ");
	/* And those that went through the lane before. */
	assert_says(report, ", by lane of session 2 (pid ");
	assert_int_equal(kiln_reply_count(report, "kernels"), 1);
	assert_int_equal(strlen(kiln_reply_str(report, "kernels[0].key")), 64);
	kiln_reply_free(report);

	/* Again and again: one report. */
	debug_int(pair.client, "delay-launch", "ms", 0);
	for (int64_t i = 2; i <= 4; i++) {
		assert_permutes(pair.client, &problem, NULL);
		debug_str(pair.client, "kill", "role", "executor");
		await_info(pair.client, "counters.executor_faults", i);
	}
	report = show(pair.client, "");
	snprintf(again, sizeof(again), "%s", kiln_reply_str(report, "report"));
	assert_string_equal(again, id);
	kiln_reply_free(report);
	assert_int_equal(count_reports(pair.client), 1);
	assert_int_equal(info_int(pair.client, "counters.fault_repeats"), 3);
	report = show(pair.client, id);
	assert_int_equal(kiln_reply_int(report, "times"), 4);
	kiln_reply_free(report);
	pair_close(&pair);
}

static const char source[] = "__global__ void beyond(unsigned *x)\n"
							 "{\n"
							 "	x[1 << 28] = 2;\n"
							 "}\n"
							 "__global__ void endless(volatile unsigned *x)\n"
							 "{\n"
							 "	while (x[0] != 123456789)\n"
							 "		;\n"
							 "}\n";

/* Ends so; id: of the report that its sentence names. */
static void run_raw(kiln_client *client, const char *entry, uint32_t timeout_ms, int status,
					char id[32])
{
	kiln_raw raw = {.size = sizeof(raw), .name = "mine.cu", .source = source, .entry = entry};
	kiln_launch launch = {.size = sizeof(kiln_launch), .block = {32}, .timeout_ms = timeout_ms};
	kiln_raw_arg args[1];
	kiln_buffer *x;
	kiln_call *call;
	kiln_ticket ticket;
	assert_ok(kiln_alloc(client, 4096, 0, "confidential", &x));
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	args[0] = (kiln_raw_arg){.buffer = x};
	launch.args = args;
	launch.arg_count = 1;
	assert_ok(kiln_submit_raw(call, &launch, 0, &ticket));
	int ended = kiln_wait(client, ticket, CALL_TIMEOUT_MS);
	if (ended != status)
		fail_msg("%s ended in %s: %s", entry, kiln_status_name(ended), kiln_errmsg());
	name_in(kiln_errmsg(), id);
	kiln_call_free(call);
	kiln_free(x);
}

static void test_own_kernels(void **state)
{
	struct kilnd *daemon = *state;
	char id[32];
	kilnd_start(daemon, OPTIONS("--compile-timeout=2000"));
	kiln_client *client = client_open(daemon);
	run_raw(client, "beyond", CALL_TIMEOUT_MS, KILN_EDEVICE, id);
	kiln_reply *report = show(client, id);
	assert_whole(report, "device");
	assert_says(report, ", which the device failed on, in flight for ");
	assert_says(report, "kernel beyond of mine.cu");
	assert_says(report, "grid 1x1x1, block 32x1x1");
	assert_says(report, "ended with status 4\n");
	/* Names of buffers, and the text of a kernel, are its user's own. */
	assert_null(strstr(kiln_reply_str(report, "text"), "confidential"));
	assert_null(strstr(kiln_reply_str(report, "text"), "1 << 28"));
	kiln_reply_free(report);
	run_raw(client, "endless", 300, KILN_ETIMEDOUT, id);
	report = show(client, id);
	assert_says(report, "nothing completed on cpu for 300 ms");
	assert_says(report, "kernel endless of mine.cu");
	kiln_reply_free(report);
	assert_int_equal(count_reports(client), 2);

	/* A compiler that dies on a source, twice, and one that hangs. */
	debug_int(client, "crash-compile", "count", 2);
	kiln_raw raw = {.size = sizeof(raw), .name = "mine.cu", .source = source, .entry = "other"};
	kiln_reply *reply = NULL;
	assert_int_equal(kiln_compile_raw(client, &raw, "cpu", &reply), KILN_ECOMPILE);
	name_in(kiln_errmsg(), id);
	report = show(client, id);
	assert_whole(report, "compiler");
	assert_int_equal(kiln_reply_int(report, "times"), 2);
	assert_says(report, "\nthe compile\n  other for cpu");
	assert_int_equal(kiln_reply_count(report, "kernels"), 1);
	kiln_reply_free(report);
	debug_int(client, "hang-compile", "count", 1);
	raw.entry = "another";
	assert_int_equal(kiln_compile_raw(client, &raw, "cpu", &reply), KILN_ETIMEDOUT);
	name_in(kiln_errmsg(), id);
	report = show(client, id);
	assert_says(report, "(it had passed its deadline)");
	kiln_reply_free(report);
	assert_int_equal(count_reports(client), 4);
	kiln_close(client);
}

/* ---- The rest ---- */

static void test_lane(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kilnd_start(daemon, NULL);
	kiln_client *watcher = client_open(daemon);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	struct lane_memory *lane = lane_find(NULL);
	assert_non_null(lane);
	uint64_t next = atomic_load(&lane->header.tail);
	atomic_store(&lane->entries[next % LANE_ENTRIES].sequence, (uint32_t)next + 77);
	lane_ring();
	await_info(watcher, "counters.faults", 1);
	kiln_reply *report = show(watcher, "");
	assert_whole(report, "lane");
	assert_non_null(strstr(kiln_reply_str(report, "said"), "the memory of its lane has entry "));
	assert_says(report, ", by lane of session 3 (pid ");
	kiln_reply_free(report);
	pair_close(&pair);
	kiln_close(watcher);
}

#define NOTED 32 /* calls of lanes, of each device process: the newest that were bound */

static void run_once(const struct pair *pair, kiln_call *call, const kiln_operand *operands)
{
	kiln_ticket ticket;
	assert_ok(kiln_submit(call, operands, operands ? 2 : 0, 0, &ticket));
	assert_ok(kiln_wait(pair->client, ticket, CALL_TIMEOUT_MS));
}

/* The report tells of calls that were bound before those that are noted what their session says: a
 * kernel, a graph, or nothing of what was released. */
static void test_calls_of_long_ago(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_call *calls[NOTED + 1], *graph;
	kiln_operand sides[2][2];
	kilnd_start(daemon, NULL);
	kiln_client *watcher = client_open(daemon);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	const kiln_operand operands[] = {{pair.x, 0}, {pair.y, 0}};
	const kiln_work works[] = {pair_work(&pair, false, sides[0]), pair_work(&pair, true, sides[1])};
	assert_ok(kiln_prepare_graph(pair.client, works, 2, &graph));
	run_once(&pair, graph, NULL);
	for (int i = 0; i <= NOTED; i++) {
		calls[i] = transpose_prepare(pair.client, ROWS, COLUMNS);
		run_once(&pair, calls[i], operands);
	}
	int64_t before = lane_launches(&pair);
	run_once(&pair, pair.there, operands);
	run_once(&pair, graph, NULL);
	run_once(&pair, calls[0], operands);
	assert_true(lane_launches(&pair) >= before + 3);
	kiln_call_free(calls[0]);
	debug_str(watcher, "kill", "role", "executor");
	await_info(watcher, "counters.fault_reports", 1);
	kiln_reply *report = show(watcher, "");
	assert_says(report, ", by lane of session 3 (pid ");
	assert_says(report, ", permute first of a graph of 2");
	assert_says(report, ", a call that is there no more\n");
	kiln_reply_free(report);
	for (int i = 1; i <= NOTED; i++)
		kiln_call_free(calls[i]);
	kiln_call_free(graph);
	pair_close(&pair);
	kiln_close(watcher);
}

static void damage(const struct kilnd *daemon)
{
	char path[160];
	static const char nonsense[4096] = "nonsense";
	snprintf(path, sizeof(path), "%s/kiln.db", daemon->cache);
	int fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, nonsense, sizeof(nonsense), 0), sizeof(nonsense));
	close(fd);
}

/* A program that says something and becomes the device process. */
static void write_wrapper(const struct kilnd *daemon, char path[96])
{
	snprintf(path, 96, "%s/wrapper", daemon->dir);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs("#!/bin/sh\necho these are its words, at 0x7f0011223344 >&2\nexec \"$@\"\n", file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, 0700), 0);
}

static void assert_last_words(kiln_client *client)
{
	debug_str(client, "kill", "role", "executor");
	await_info(client, "counters.fault_reports", 1);
	kiln_reply *report = show(client, "");
	assert_says(report, "said on its standard error\n  these are its words, at 0x............\n");
	kiln_reply_free(report);
}

static void test_store(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(8, 12);
	char command[256], why[400], origin[16], wrapper[96];
	write_wrapper(daemon, wrapper);
	kilnd_start(daemon, OPTIONS("--executor-wrapper", wrapper));
	kiln_client *client = client_open(daemon);
	assert_permutes(client, &problem, "compiled");
	assert_last_words(client);
	kiln_close(client);
	kilnd_stop(daemon);
	damage(daemon);
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_int_equal(count_reports(client), 2);
	kiln_reply *report = show(client, "");
	assert_whole(report, "store");
	assert_says(report, "was moved to kiln.db.bad-1, and a new one begun");
	kiln_reply_free(report);

	/* Where reports cannot be written, that is a line, and nothing else. */
	snprintf(command, sizeof(command), "rm -r %s/faults && touch %s/faults", daemon->cache,
			 daemon->cache);
	assert_int_equal(system(command), 0);
	debug_str(client, "kill", "role", "executor");
	await_info(client, "counters.fault_failures", 1);
	assert_int_equal(permute_check(client, &problem, 7, origin, why), KILN_OK);
	kilnd_await_log(daemon, "the directory of reports, ");
	kiln_close(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_killed), HARNESS_TEST(test_own_kernels),
		HARNESS_TEST(test_lane),   HARNESS_TEST(test_calls_of_long_ago),
		HARNESS_TEST(test_store),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
