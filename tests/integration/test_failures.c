/*
 * test_failures: a compile that fails is an answer that is kept: for whoever asks next, in the same
 * words, after a restart, too, until what is asked for changes or somebody forgets it; what may
 * pass is kept for a while.  And of a miss: which row is nearest, and what it differs in.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const kiln_text wrong_h = {"a.h", "int first = nothing;\n", 0};
static const kiln_text right_h = {"a.h", "#define FIRST 1\n", 0};

static kiln_raw raw_with(const kiln_text *header)
{
	return (kiln_raw){.size = sizeof(kiln_raw),
					  .name = "mine.cu",
					  .source = "#include \"a.h\"\n__global__ void k(int *x) { *x = 1; }\n",
					  .entry = "k",
					  .headers = header,
					  .header_count = 1};
}

static int compile(kiln_client *client, const kiln_raw *raw)
{
	kiln_reply *reply = NULL;
	int status = kiln_compile_raw(client, raw, "cpu", &reply);
	kiln_reply_free(reply);
	return status;
}

static void retry_all(kiln_client *client, int removed)
{
	kiln_attr all = int_attr("all", 1);
	kiln_reply *reply = NULL;
	assert_int_equal(kiln_request(client, "cache.retry", &all, 1, &reply), KILN_OK);
	assert_int_equal(kiln_reply_int(reply, "removed"), removed);
	kiln_reply_free(reply);
}

static kiln_reply *failed_rows(kiln_client *client, int count)
{
	kiln_reply *reply = NULL;
	assert_int_equal(kiln_request(client, "cache.failed", NULL, 0, &reply), KILN_OK);
	assert_int_equal(kiln_reply_count(reply, "rows"), count);
	return reply;
}

/* Fails with these words, in the sentence and in the log. */
static void assert_fails_so(kiln_client *client, const kiln_raw *raw, const char *sentence,
							const char *log)
{
	assert_int_equal(compile(client, raw), KILN_ECOMPILE);
	assert_string_equal(kiln_errmsg(), sentence);
	assert_string_equal(kiln_errlog(), log);
}

static void test_remembered(void **state)
{
	struct kilnd *daemon = *state;
	kiln_raw wrong = raw_with(&wrong_h), right = raw_with(&right_h);
	char sentence[512], log[8192];

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	assert_int_equal(compile(client, &wrong), KILN_ECOMPILE);
	snprintf(sentence, sizeof(sentence), "%s", kiln_errmsg());
	snprintf(log, sizeof(log), "%s", kiln_errlog());
	assert_non_null(strstr(sentence, "a.h:1:"));
	assert_non_null(strstr(log, "kiln: this failure is remembered; `kiln cache retry "));
	assert_int_equal(info_int(client, "counters.failures"), 1);
	for (int i = 1; i <= 3; i++) {
		assert_fails_so(client, &wrong, sentence, log);
		assert_int_equal(info_int(client, "counters.remembered"), i);
	}
	assert_int_equal(info_int(client, "counters.failures"), 1);
	assert_int_equal(info_int(client, "cache.failures"), 1);
	assert_int_equal(info_int(client, "cache.rows"), 0);
	/* With another header it is another kernel. */
	assert_int_equal(compile(client, &right), KILN_OK);
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_fails_so(client, &wrong, sentence, log);
	assert_int_equal(info_int(client, "counters.remembered"), 1);
	assert_int_equal(info_int(client, "counters.failures"), 0);
	kiln_reply *rows = failed_rows(client, 1);
	assert_int_equal(kiln_reply_int(rows, "rows[0].until"), 0);
	assert_int_equal(kiln_reply_int(rows, "rows[0].hits"), 4);
	assert_string_equal(kiln_reply_str(rows, "rows[0].error"), sentence);
	assert_string_equal(kiln_reply_str(rows, "rows[0].status"), "KILN_ECOMPILE");
	kiln_reply_free(rows);
	retry_all(client, 1);
	assert_fails_so(client, &wrong, sentence, log);
	assert_int_equal(info_int(client, "counters.failures"), 1);
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_shown_and_retried(void **state)
{
	struct kilnd *daemon = *state;
	kiln_raw wrong = raw_with(&wrong_h);
	kiln_reply *reply = NULL;
	char key[65], error[512];

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	assert_int_equal(compile(client, &wrong), KILN_ECOMPILE);
	snprintf(error, sizeof(error), "%s", kiln_errmsg());
	kiln_reply *rows = failed_rows(client, 1);
	snprintf(key, sizeof(key), "%.10s", kiln_reply_str(rows, "rows[0].key"));
	kiln_reply_free(rows);
	kiln_attr arg = string_attr("key", key);
	assert_int_equal(kiln_request(client, "cache.show", &arg, 1, &reply), KILN_OK);
	assert_int_equal(kiln_reply_int(reply, "failed"), 1);
	assert_string_equal(kiln_reply_str(reply, "error"), error);
	assert_string_equal(kiln_reply_str(reply, "instantiation"), "k");
	assert_non_null(strstr(kiln_reply_str(reply, "source"), "int first = nothing;"));
	assert_non_null(strstr(kiln_reply_str(reply, "log"), "nothing"));
	assert_non_null(strstr(kiln_reply_str(reply, "key_text"), "source mine.cu\n"));
	kiln_reply_free(reply);
	reply = NULL;
	assert_int_equal(kiln_request(client, "cache.retry", &arg, 1, &reply), KILN_OK);
	kiln_reply_free(reply);
	reply = NULL;
	assert_int_equal(kiln_request(client, "cache.retry", &arg, 1, &reply), KILN_ENOENT);
	assert_sentence(key);
	assert_int_equal(kiln_request(client, "cache.retry", NULL, 0, &reply), KILN_EINVAL);
	assert_sentence("cache.retry needs either the key of a failure or all");
	assert_int_equal(kiln_request(client, "cache.show", &arg, 1, &reply), KILN_ENOENT);
	assert_sentence("no kernel in the cache has a key that begins with");
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A compiler that dies is what this compiler answers to this source; no further worker is lost. */
static void test_crash(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(44, 60);
	char why[400], again[400];

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	debug_int(client, "crash-compile", "count", 2);
	assert_int_equal(permute_check(client, &problem, 1, NULL, why), KILN_ECOMPILE);
	assert_non_null(strstr(why, "was killed by signal 11 (Segmentation fault) on permute_"));
	assert_non_null(strstr(why, "twice"));
	assert_int_equal(info_int(client, "counters.worker_faults"), 2);
	assert_int_equal(permute_check(client, &problem, 1, NULL, again), KILN_ECOMPILE);
	assert_string_equal(again, why);
	assert_int_equal(info_int(client, "counters.worker_faults"), 2);
	kiln_reply *rows = failed_rows(client, 1);
	assert_int_equal(kiln_reply_int(rows, "rows[0].until"), 0);
	kiln_attr key = string_attr("key", kiln_reply_str(rows, "rows[0].key"));
	kiln_reply *shown = NULL;
	/* The compiler took the source with it; it is there all the same. */
	assert_int_equal(kiln_request(client, "cache.show", &key, 1, &shown), KILN_OK);
	assert_non_null(strstr(kiln_reply_str(shown, "source"), "permute_"));
	assert_non_null(strstr(kiln_reply_str(shown, "key_text"), "toolchain host "));
	kiln_reply_free(shown);
	kiln_reply_free(rows);
	retry_all(client, 1);
	assert_permutes(client, &problem, "compiled");
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* The broker makes no unit of a user's on its event loop: such a failure is kept without one. */
static void test_crash_of_a_users(void **state)
{
	struct kilnd *daemon = *state;
	kiln_raw right = raw_with(&right_h);
	kiln_reply *shown = NULL;
	char sentence[512];

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	debug_int(client, "crash-compile", "count", 2);
	assert_int_equal(compile(client, &right), KILN_ECOMPILE);
	snprintf(sentence, sizeof(sentence), "%s", kiln_errmsg());
	assert_int_equal(compile(client, &right), KILN_ECOMPILE);
	assert_string_equal(kiln_errmsg(), sentence);
	assert_int_equal(info_int(client, "counters.worker_faults"), 2);
	kiln_reply *rows = failed_rows(client, 1);
	kiln_attr key = string_attr("key", kiln_reply_str(rows, "rows[0].key"));
	assert_int_equal(kiln_request(client, "cache.show", &key, 1, &shown), KILN_OK);
	assert_string_equal(kiln_reply_str(shown, "source"), "");
	assert_non_null(strstr(kiln_reply_str(shown, "key_text"), "source mine.cu\n"));
	kiln_reply_free(shown);
	kiln_reply_free(rows);
	retry_all(client, 1);
	assert_int_equal(compile(client, &right), KILN_OK);
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* The cache has a bound for each text of a failure. */
static void test_long_key(void **state)
{
	struct kilnd *daemon = *state;
	kiln_raw wrong = raw_with(&wrong_h);
	kiln_reply *shown = NULL;
	char sentence[512];

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	char *value = calloc(1, 200001);
	assert_non_null(value);
	memset(value, '7', 200000);
	const kiln_text macro = {"LONG", value, 0};
	wrong.macros = &macro;
	wrong.macro_count = 1;
	assert_int_equal(compile(client, &wrong), KILN_ECOMPILE);
	snprintf(sentence, sizeof(sentence), "%s", kiln_errmsg());
	int64_t compiles = info_int(client, "counters.compiles");
	assert_int_equal(compile(client, &wrong), KILN_ECOMPILE);
	assert_string_equal(kiln_errmsg(), sentence);
	assert_int_equal(info_int(client, "counters.compiles"), compiles);
	kiln_reply *rows = failed_rows(client, 1);
	kiln_attr key = string_attr("key", kiln_reply_str(rows, "rows[0].key"));
	assert_int_equal(kiln_request(client, "cache.show", &key, 1, &shown), KILN_OK);
	assert_string_equal(kiln_reply_str(shown, "key_text"), "");
	assert_non_null(strstr(kiln_reply_str(shown, "source"), "int first = nothing;"));
	kiln_reply_free(shown);
	kiln_reply_free(rows);
	free(value);
	kiln_close(client);
	kilnd_stop(daemon);
}

static int ask(const struct kilnd *daemon, void *arg)
{
	char why[400];
	int status;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);

	if (!client)
		return 1;
	status = permute_check(client, arg, 1, NULL, why);
	kiln_close(client);
	return status == KILN_ECOMPILE && strstr(why, "was killed by signal 9") ? 0 : 2;
}

/* Killed from outside, as the system does when memory runs out: that may pass. */
static void test_killed(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(45, 61);
	char why[400];

	kilnd_start(daemon, OPTIONS("--workers", "1"));
	kiln_client *client = client_open(daemon);
	await_info(client, "workers.idle", 1);
	debug_int(client, "hang-compile", "count", 2);
	pid_t pid = process_start(daemon, ask, &problem);
	for (int i = 1; i <= 2; i++) {
		await_info(client, "workers.busy", 1);
		debug_str(client, "kill", "role", "compiler");
		await_info(client, "counters.worker_faults", i);
	}
	assert_int_equal(process_wait(pid, CALL_TIMEOUT_MS), EXITED(0));
	assert_int_equal(permute_check(client, &problem, 1, NULL, why), KILN_ECOMPILE);
	assert_int_equal(info_int(client, "counters.remembered"), 1);
	kiln_reply *rows = failed_rows(client, 1);
	assert_in_range(kiln_reply_int(rows, "rows[0].until") - kiln_reply_int(rows, "rows[0].created"),
					300, 300);
	kiln_reply_free(rows);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_time_out(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(42, 58);
	char why[400], again[400];

	kilnd_start(daemon, OPTIONS("--compile-timeout", "1000", "--test-retry-after", "600"));
	kiln_client *client = client_open(daemon);
	debug_int(client, "hang-compile", "count", 1);
	assert_int_equal(permute_check(client, &problem, 1, NULL, why), KILN_ETIMEDOUT);
	assert_int_equal(permute_check(client, &problem, 1, NULL, again), KILN_ETIMEDOUT);
	assert_string_equal(again, why);
	assert_int_equal(info_int(client, "workers.killed"), 1);
	assert_int_equal(info_int(client, "counters.remembered"), 1);
	kiln_reply *rows = failed_rows(client, 1);
	assert_in_range(kiln_reply_int(rows, "rows[0].until") - kiln_reply_int(rows, "rows[0].created"),
					600, 600);
	kiln_reply_free(rows);
	kiln_close(client);
	kilnd_stop(daemon);

	/* The next daemon may have another deadline. */
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_int_equal(info_int(client, "cache.failures"), 0);
	assert_permutes(client, &problem, "compiled");
	kiln_close(client);
	kilnd_stop(daemon);
}

/* One compiler's failure with a source says nothing of another's. */
static void test_another_compiler(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(46, 62);
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	char why[400], path[128];
	kiln_reply *reply = NULL;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	debug_int(client, "crash-compile", "count", 2);
	assert_int_equal(permute_check(client, &problem, 1, NULL, why), KILN_ECOMPILE);
	kiln_close(client);
	kilnd_stop(daemon);

	snprintf(path, sizeof(path), "%s/other-g++", daemon->dir);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs("#!/bin/sh\nexec g++ \"$@\"\n", file);
	fclose(file);
	assert_int_equal(chmod(path, 0755), 0);
	setenv("KILN_CXX", path, 1);
	kilnd_start(daemon, NULL);
	unsetenv("KILN_CXX");
	client = client_open(daemon);
	assert_int_equal(kiln_explain(client, "permute", tensors, 2, &perm, 1, "cpu", &reply), KILN_OK);
	assert_int_equal(kiln_reply_int(reply, "failed"), 0);
	assert_int_equal(kiln_reply_int(reply, "near[0].failed"), 1);
	assert_int_equal(kiln_reply_count(reply, "near[0].differences"), 1);
	const char *text = kiln_reply_str(reply, "near[0].differences[0].text");
	if (strncmp(text, "compiler changed: host ", 23) != 0 || !strstr(text, " instead of host "))
		fail_msg("not another compiler: %s", text);
	kiln_reply_free(reply);
	assert_permutes(client, &problem, "compiled");
	assert_int_equal(info_int(client, "cache.failures"), 1);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Why a miss ---- */

static kiln_reply *explain_raw(kiln_client *client, const kiln_raw *raw, const char *target)
{
	kiln_reply *reply = NULL;
	if (kiln_explain_raw(client, raw, target, &reply))
		fail_msg("kiln_explain_raw: %s", kiln_errmsg());
	return reply;
}

static void assert_near(const kiln_reply *reply, const char *const *texts)
{
	char path[64];
	int count = 0;

	assert_int_equal(kiln_reply_int(reply, "cached"), 0);
	for (; texts[count]; count++) {
		snprintf(path, sizeof(path), "near[0].differences[%d].text", count);
		assert_string_equal(kiln_reply_str(reply, path), texts[count]);
	}
	assert_int_equal(kiln_reply_count(reply, "near[0].differences"), count);
}
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_why_raw(void **state)
{
	static const char *const fast[] = {"--use_fast_math"};
	static const kiln_text macro = {"N", "4", 0}, other_macro = {"N", "5", 0};
	struct kilnd *daemon = *state;
	kiln_raw raw = raw_with(&right_h), wrong = raw_with(&wrong_h);

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	raw.macros = &macro;
	raw.macro_count = 1;
	kiln_reply *reply = explain_raw(client, &raw, "cpu");
	assert_int_equal(kiln_reply_count(reply, "near"), 0);
	kiln_reply_free(reply);
	assert_int_equal(compile(client, &raw), KILN_OK);
	reply = explain_raw(client, &raw, NULL);
	assert_int_equal(kiln_reply_int(reply, "cached"), 1);
	assert_int_equal(kiln_reply_count(reply, "near"), 0);
	kiln_reply_free(reply);

	raw.options = fast;
	raw.option_count = 1;
	reply = explain_raw(client, &raw, "cpu");
	assert_near(reply, TEXTS("option --use_fast_math added"));
	kiln_reply_free(reply);
	/* Nearest is now the one without the option, or the one with another macro: one line each. */
	assert_int_equal(compile(client, &raw), KILN_OK);
	raw.macros = &other_macro;
	reply = explain_raw(client, &raw, "cpu");
	assert_near(reply, TEXTS("macro N=5 instead of 4"));
	assert_int_equal(kiln_reply_count(reply, "near"), 2);
	assert_int_equal(kiln_reply_int(reply, "near[1].distance"), 2);
	kiln_reply_free(reply);

	/* Failures are rows, too. */
	assert_int_equal(compile(client, &wrong), KILN_ECOMPILE);
	reply = explain_raw(client, &wrong, "cpu");
	assert_int_equal(kiln_reply_int(reply, "failed"), 1);
	assert_string_equal(kiln_reply_str(reply, "status"), "KILN_ECOMPILE");
	assert_non_null(strstr(kiln_reply_str(reply, "error"), "a.h:1:"));
	kiln_reply_free(reply);
	wrong.option_count = 1;
	wrong.options = fast;
	reply = explain_raw(client, &wrong, "cpu");
	assert_near(reply, TEXTS("option --use_fast_math added"));
	assert_int_equal(kiln_reply_int(reply, "near[0].failed"), 1);
	kiln_reply_free(reply);
	assert_int_equal(info_int(client, "counters.requests"), 3);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_why_operator(void **state)
{
	struct kilnd *daemon = *state;
	kiln_tensor tensors[2] = {{.dtype = KILN_F32, .rank = 2, .shape = {64, 1000}, .contiguous = 1}};
	kiln_reply *reply = NULL;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	tensors[1] = tensors[0];
	assert_int_equal(kiln_compile(client, "softmax", tensors, 2, NULL, 0, "cpu", &reply), KILN_OK);
	kiln_reply_free(reply);
	tensors[0].shape[1] = tensors[1].shape[1] = 1004;
	assert_int_equal(kiln_explain(client, "softmax", tensors, 2, NULL, 0, "cpu", &reply), KILN_OK);
	assert_string_equal(kiln_reply_str(reply, "near[0].differences[0].text"),
						"COLUMNS of RowShape is 1004 instead of 1000");
	kiln_reply_free(reply);
	/* The place of x decides by what width it can be read. */
	tensors[0].shape[1] = tensors[1].shape[1] = 1000;
	tensors[0].offset = 4;
	kiln_buffer *buffer;
	assert_int_equal(kiln_alloc(client, 256004, 0, "x", &buffer), KILN_OK);
	tensors[0].buffer = buffer;
	assert_int_equal(kiln_explain(client, "softmax", tensors, 2, NULL, 0, "cpu", &reply), KILN_OK);
	assert_string_equal(kiln_reply_str(reply, "near[0].differences[0].text"),
						"alignment of x 4 instead of 16");
	assert_string_equal(kiln_reply_str(reply, "near[0].differences[0].what"), "alignment");
	kiln_reply_free(reply);
	kiln_free(buffer);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_remembered), HARNESS_TEST(test_shown_and_retried),
		HARNESS_TEST(test_crash),      HARNESS_TEST(test_crash_of_a_users),
		HARNESS_TEST(test_long_key),   HARNESS_TEST(test_killed),
		HARNESS_TEST(test_time_out),   HARNESS_TEST(test_another_compiler),
		HARNESS_TEST(test_why_raw),    HARNESS_TEST(test_why_operator),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
