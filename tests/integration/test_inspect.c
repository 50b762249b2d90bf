/*
 * test_inspect: what a daemon tells about itself, and what it refuses: devices, operators, plans,
 * compiling for targets that are not here, wrong requests.  A refusal is a sentence that names the
 * thing, the value and the rule.  Limits are test_overload's.
 */
#include "harness.h"

#include <stdio.h>
#include <string.h>

/* ---- Telling ---- */

static void test_devices_and_ops(void **state)
{
	struct kilnd *daemon = *state;
	kiln_reply *reply;
	kiln_client *client;
	bool found = false;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_ok(kiln_request(client, "devices", NULL, 0, &reply));
	assert_true(kiln_reply_count(reply, "rows") >= 1);
	assert_string_equal(kiln_reply_str(reply, "rows[0].name"), "cpu");
	assert_string_equal(kiln_reply_str(reply, "rows[0].target"), "cpu");
	kiln_reply_free(reply);

	assert_ok(kiln_request(client, "ops", NULL, 0, &reply));
	for (int i = 0; i < kiln_reply_count(reply, "rows"); i++) {
		char path[32];
		snprintf(path, sizeof(path), "rows[%d].name", i);
		found |= !strcmp(kiln_reply_str(reply, path), "permute");
	}
	assert_true(found);
	kiln_reply_free(reply);

	assert_int_equal(info_int(client, "server.pid"), daemon->pid);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	assert_true(info_int(client, "session.id") > 0);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_explain(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(100, 60), same = problem;
	kiln_tensor x = permute_input(&problem, NULL);
	kiln_attr perm = perm_attr(&problem);
	char key[72];
	kiln_reply *reply;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	/* y may be left out: the operator says what it is. */
	if (kiln_explain(client, "permute", &x, 1, &perm, 1, NULL, &reply))
		fail_msg("explain: %s", kiln_errmsg());
	assert_non_null(strstr(kiln_reply_str(reply, "text"), "permute"));
	assert_int_equal(strlen(kiln_reply_str(reply, "key")), 64);
	snprintf(key, sizeof(key), "%s", kiln_reply_str(reply, "key"));
	assert_int_equal(kiln_reply_int(reply, "cached"), 0);
	kiln_reply_free(reply);
	assert_int_equal(info_int(client, "counters.compiles"), 0);

	assert_permutes(client, &problem, "compiled");
	/* Axes of size 1 and merged runs do not matter: the canonical form is the key. */
	same.rank = 4;
	memcpy(same.shape, (int64_t[]){10, 10, 1, 60}, sizeof(int64_t[4]));
	memcpy(same.perm, (int64_t[]){2, 3, 0, 1}, sizeof(int64_t[4]));
	x = permute_input(&same, NULL);
	perm = perm_attr(&same);
	if (kiln_explain(client, "permute", &x, 1, &perm, 1, NULL, &reply))
		fail_msg("explain: %s", kiln_errmsg());
	assert_string_equal(kiln_reply_str(reply, "key"), key);
	assert_int_equal(kiln_reply_int(reply, "cached"), 1);
	kiln_reply_free(reply);
	assert_permutes(client, &same, "hit");
	kiln_close(client);
	kilnd_stop(daemon);
}

/* Compiles for a target and checks the row and the object; false if there is no such compiler. */
static bool compile_for(kiln_client *client, const char *target, const char *magic)
{
	struct permute problem = transpose(70, 90);
	kiln_tensor x = permute_input(&problem, NULL);
	kiln_attr perm = perm_attr(&problem), key;
	kiln_reply *reply, *row;
	const void *object;
	size_t bytes;
	int status = kiln_compile(client, "permute", &x, 1, &perm, 1, target, &reply);

	if (status == KILN_ENOTSUP)
		return false;
	if (status)
		fail_msg("compile for %s: %s", target, kiln_errmsg());
	assert_string_equal(kiln_reply_str(reply, "origin"), "compiled");
	key = string_attr("key", kiln_reply_str(reply, "key"));
	assert_ok(kiln_request(client, "cache.show", &key, 1, &row));
	assert_string_equal(kiln_reply_str(row, "target"), target);
	assert_string_equal(kiln_reply_str(row, "op"), "permute");
	assert_int_equal(kiln_reply_int(row, "bytes"), kiln_reply_int(reply, "bytes"));
	assert_non_null(strstr(kiln_reply_str(row, "instantiation"), "permute"));
	assert_non_null(strstr(kiln_reply_str(row, "key_text"), target));
	assert_true(strlen(kiln_reply_str(row, "source")) > 500);
	kiln_reply_free(row);
	assert_ok(kiln_request(client, "cache.get", &key, 1, &row));
	object = kiln_reply_bin(row, "object", &bytes);
	assert_int_equal(bytes, kiln_reply_int(reply, "bytes"));
	assert_memory_equal(object, magic, 4);
	kiln_reply_free(row);
	kiln_reply_free(reply);
	if (kiln_compile(client, "permute", &x, 1, &perm, 1, target, &reply))
		fail_msg("compile for %s: %s", target, kiln_errmsg());
	assert_string_equal(kiln_reply_str(reply, "origin"), "hit");
	kiln_reply_free(reply);
	return true;
}

static void test_compile(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(2, 3);
	kiln_tensor x = permute_input(&problem, NULL);
	kiln_attr perm = perm_attr(&problem);
	kiln_reply *reply;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_true(compile_for(client, "cpu", "\177ELF"));
	if (compile_for(client, "sm_90", "\177ELF")) {
		assert_int_equal(info_int(client, "cache.rows"), 2);
		assert_int_equal(info_int(client, "counters.compiles"), 2);
	} else
		fprintf(stderr, "SKIPPED: compiling for sm_90: %s\n", kiln_errmsg());
	assert_int_equal(kiln_compile(client, "permute", &x, 1, &perm, 1, "sm_1", &reply), KILN_EINVAL);
	assert_sentence("sm_1");
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Refusing ---- */

static void refused(kiln_client *client, const char *op, const struct permute *problem,
					const char *word)
{
	kiln_tensor x = permute_input(problem, NULL);
	kiln_attr perm = perm_attr(problem);
	kiln_reply *reply = NULL;
	int status = kiln_explain(client, op, &x, 1, &perm, 1, NULL, &reply);

	if (status != KILN_EINVAL)
		fail_msg("%s: expected a refusal, got %s", word, kiln_status_name(status));
	assert_null(reply);
	assert_sentence(word);
}

static void test_wrong_requests(void **state)
{
	struct kilnd *daemon = *state;
	struct permute twice = transpose(4, 5), outside = twice, negative = twice, untyped = twice;
	struct permute good = twice, huge = twice;
	kiln_reply *reply;
	kiln_client *client;

	twice.perm[1] = 1;
	outside.perm[0] = 2;
	negative.shape[0] = -3;
	untyped.dtype = (kiln_dtype)99;
	huge.shape[0] = INT64_MAX / 2;
	huge.shape[1] = 5;
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	refused(client, "permute", &twice, "perm");
	refused(client, "permute", &outside, "perm");
	refused(client, "permute", &negative, "-3");
	refused(client, "permute", &untyped, "99");
	refused(client, "permute", &huge, "x");
	refused(client, "transmute", &good, "transmute");
	assert_true(kiln_request(client, "no.such", NULL, 0, &reply) < 0);
	assert_sentence("no.such");
	assert_int_equal(info_int(client, "counters.compiles"), 0);
	/* None of it hurt the session. */
	assert_permutes(client, &good, NULL);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_operands_are_checked(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(16, 16);
	kiln_buffer *x, *y, *small;
	kiln_tensor tensors[2];
	kiln_attr perm = perm_attr(&problem);
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_ok(kiln_alloc(client, 1024, 0, "wide", &x));
	assert_ok(kiln_alloc(client, 1024, 0, "target", &y));
	assert_ok(kiln_alloc(client, 1023, 0, "narrow", &small));
	tensors[0] = permute_input(&problem, x);
	tensors[1] = permute_output(&problem, small);
	assert_int_equal(kiln_run(client, "permute", tensors, 2, &perm, 1), KILN_EINVAL);
	assert_sentence("narrow");
	tensors[1] = permute_output(&problem, y);
	tensors[1].offset = 4;
	assert_int_equal(kiln_run(client, "permute", tensors, 2, &perm, 1), KILN_EINVAL);
	assert_sentence("target");
	/* Input and output may not overlap. */
	tensors[1] = permute_output(&problem, x);
	assert_int_equal(kiln_run(client, "permute", tensors, 2, &perm, 1), KILN_EINVAL);
	assert_sentence("overlap");
	tensors[1] = permute_output(&problem, y);
	assert_ok(kiln_run(client, "permute", tensors, 2, &perm, 1));
	kiln_free(x);
	kiln_free(y);
	kiln_free(small);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_devices_and_ops),
		HARNESS_TEST(test_explain),
		HARNESS_TEST(test_compile),
		HARNESS_TEST(test_wrong_requests),
		HARNESS_TEST(test_operands_are_checked),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
