/*
 * test_cache: what the daemon keeps: listing and showing it, damage found and healed, trimming and
 * clearing.
 */
#include "harness.h"
#include "peer.h"
#include "waits_seen.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

static void fill_cache(kiln_client *client, int count)
{
	for (int i = 0; i < count; i++) {
		struct permute problem = transpose(20 + i, 90 + i);
		assert_permutes(client, &problem, "compiled");
	}
	await_info(client, "cache.rows", count);
}

static kiln_reply *ask(kiln_client *client, const char *request, const kiln_attr *args, int count)
{
	kiln_reply *reply;
	if (kiln_request(client, request, args, count, &reply))
		fail_msg("%s: %s", request, kiln_errmsg());
	return reply;
}

static void test_list_and_show(void **state)
{
	struct kilnd *daemon = *state;
	struct permute first = transpose(20, 90);
	kiln_attr args[2], key;
	kiln_reply *list, *row;
	kiln_client *client;
	char prefix[16];

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	fill_cache(client, 3);
	for (int i = 0; i < 4; i++)
		assert_permutes(client, &first, "hit");
	args[0] = string_attr("sort", "hits");
	args[1] = int_attr("limit", 2);
	list = ask(client, "cache.ls", args, 2);
	assert_int_equal(kiln_reply_count(list, "rows"), 2);
	assert_true(kiln_reply_int(list, "rows[0].hits") >= 4);
	assert_string_equal(kiln_reply_str(list, "rows[0].op"), "permute");
	assert_string_equal(kiln_reply_str(list, "rows[0].target"), "cpu");
	snprintf(prefix, sizeof(prefix), "%.12s", kiln_reply_str(list, "rows[0].key"));
	key = string_attr("key", prefix);
	row = ask(client, "cache.show", &key, 1);
	assert_string_equal(kiln_reply_str(row, "key"), kiln_reply_str(list, "rows[0].key"));
	assert_int_equal(kiln_reply_int(row, "bytes"), kiln_reply_int(list, "rows[0].bytes"));
	assert_true(kiln_reply_int(row, "compile_micros") > 0);
	assert_true(kiln_reply_int(row, "used") >= kiln_reply_int(row, "created"));
	assert_non_null(strstr(kiln_reply_str(row, "source"), kiln_reply_str(row, "instantiation")));
	kiln_reply_free(row);
	kiln_reply_free(list);
	key = string_attr("key", "ffffffffffffffff");
	assert_int_equal(kiln_request(client, "cache.show", &key, 1, &row), KILN_ENOENT);
	assert_sentence("ffffffff");
	key = string_attr("key", "no hex");
	assert_true(kiln_request(client, "cache.get", &key, 1, &row) < 0);
	args[0] = string_attr("sort", "beauty");
	assert_int_equal(kiln_request(client, "cache.ls", args, 1, &list), KILN_EINVAL);
	assert_sentence("beauty");
	kiln_close(client);
	kilnd_stop(daemon);
}

/* The key that a problem has, by the planner. */
static void key_of(kiln_client *client, const struct permute *problem, char key[72])
{
	kiln_tensor x = permute_input(problem, NULL);
	kiln_attr perm = perm_attr(problem);
	kiln_reply *reply;

	if (kiln_explain(client, "permute", &x, 1, &perm, 1, NULL, &reply))
		fail_msg("explain: %s", kiln_errmsg());
	snprintf(key, 72, "%s", kiln_reply_str(reply, "key"));
	kiln_reply_free(reply);
}

/* Only this row of so many is bad.  A request looks at as many as it has time for. */
static void assert_verify_finds(kiln_client *client, int64_t rows, const char *key)
{
	char last[72] = "";
	int64_t checked = 0, bad = 0;

	do {
		kiln_attr next = string_attr("next", last);
		kiln_reply *reply = ask(client, "cache.verify", &next, 1);
		checked += kiln_reply_int(reply, "checked");
		bad += kiln_reply_int(reply, "bad");
		if (kiln_reply_int(reply, "bad")) {
			assert_string_equal(kiln_reply_str(reply, "rows[0].key"), key);
			assert_true(kiln_reply_str(reply, "rows[0].why")[0]);
		}
		snprintf(last, sizeof(last), "%s", kiln_reply_str(reply, "next"));
		kiln_reply_free(reply);
	} while (last[0]);
	assert_int_equal(checked, rows);
	assert_int_equal(bad, 1);
}

static void test_damage_is_healed(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(20, 90);
	kiln_client *client;
	char key[72];

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	fill_cache(client, 2);
	key_of(client, &problem, key);
	kiln_close(client);
	kilnd_stop(daemon);

	/* A new daemon has no kernel loaded: it reads the row, finds it bad and compiles again. */
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	debug_str(client, "corrupt", "key", key);
	assert_permutes(client, &problem, "compiled");
	assert_permutes(client, &problem, "hit");
	assert_int_equal(info_int(client, "counters.failures"), 0);
	await_info(client, "cache.rows", 2);
	assert_cache_verifies(client, 2);

	/* verify finds it, names it and sets it aside. */
	debug_str(client, "corrupt", "key", key);
	assert_verify_finds(client, 2, key);
	assert_cache_verifies(client, 1);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_trim_and_clear(void **state)
{
	struct kilnd *daemon = *state;
	struct permute last = transpose(22, 92), first = transpose(20, 90);
	int64_t bytes, freed, removed;
	kiln_client *client;
	kiln_reply *reply;
	kiln_attr arg;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	fill_cache(client, 3);
	bytes = info_int(client, "cache.bytes");
	arg = int_attr("bytes", bytes - 1);
	reply = ask(client, "cache.trim", &arg, 1);
	removed = kiln_reply_int(reply, "removed");
	freed = kiln_reply_int(reply, "freed");
	assert_int_equal(removed, 1);
	assert_true(freed > 0);
	assert_int_equal(kiln_reply_int(reply, "bytes"), bytes - freed);
	kiln_reply_free(reply);
	assert_int_equal(info_int(client, "cache.rows"), 2);
	arg = int_attr("bytes", -1);
	assert_int_equal(kiln_request(client, "cache.trim", &arg, 1, &reply), KILN_EINVAL);

	assert_int_equal(cache_clear(client, &removed), 2);
	assert_int_equal(removed, bytes - freed);
	assert_int_equal(info_int(client, "cache.rows"), 0);
	assert_int_equal(info_int(client, "cache.bytes"), 0);
	/* Prepared calls go on, and what is asked for again is compiled again. */
	assert_permutes(client, &last, "compiled");
	assert_permutes(client, &first, "compiled");
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_cap(void **state)
{
	struct kilnd *daemon = *state;
	int64_t bytes;
	char cap[32];
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	fill_cache(client, 1);
	bytes = info_int(client, "cache.bytes");
	kiln_close(client);
	kilnd_stop(daemon);

	snprintf(cap, sizeof(cap), "%lld", (long long)bytes * 3);
	kilnd_start(daemon, OPTIONS("--cache-bytes", cap));
	client = client_open(daemon);
	for (int i = 0; i < 6; i++) {
		struct permute problem = transpose(50 + i, 70 + i);
		assert_permutes(client, &problem, "compiled");
	}
	assert_in_range(info_int(client, "cache.bytes"), 1, bytes * 3);
	assert_in_range(info_int(client, "cache.rows"), 1, 4);
	assert_cache_verifies(client, 1);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* When the client that asked is gone, the compiler is stopped, and nobody waits for it. */
static void test_recompile_ends_with_its_client(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(20, 90);
	kiln_client *client, *other;
	kiln_reply *reply;
	kiln_attr arg;
	int status;
	char key[72];

	kilnd_start(daemon, OPTIONS("--workers", "1"));
	client = client_open(daemon);
	fill_cache(client, 1);
	key_of(client, &problem, key);
	arg = string_attr("key", key);
	reply = ask(client, "cache.recompile", &arg, 1);
	assert_string_equal(kiln_reply_str(reply, "result"), "same");
	assert_string_equal(kiln_reply_str(reply, "key"), key);
	kiln_reply_free(reply);

	debug_int(client, "hang-compile", "count", 1);
	other = client_try(daemon, 300, &status);
	assert_non_null(other);
	assert_int_equal(kiln_request(other, "cache.recompile", &arg, 1, &reply), KILN_ETIMEDOUT);
	assert_int_equal(info_int(client, "workers.busy"), 1);
	kiln_close(other);
	await_info(client, "workers.busy", 0);
	assert_int_equal(info_int(client, "workers.killed"), 1);
	/* Nothing of it is among the compiles that programs asked for. */
	assert_int_equal(info_int(client, "counters.compiles"), 1);
	assert_counters_add_up(client);
	arg = string_attr("key", "ffffffff");
	assert_int_equal(kiln_request(client, "cache.recompile", &arg, 1, &reply), KILN_ENOENT);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* One client asks for one piece after the other, and another has its kernels between them. */
static void test_upkeep_lets_others_between(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(20, 90);
	kiln_attr args[2], next;
	kiln_client *client, *other;
	kiln_reply *reply;
	char key[72], pin[16];

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	other = client_open(daemon);
	fill_cache(client, 3);
	key_of(client, &problem, key);
	snprintf(pin, sizeof(pin), "%.12s", key);
	next = string_attr("key", pin);
	reply = ask(client, "cache.pin", &next, 1);
	assert_string_equal(kiln_reply_str(reply, "key"), key);
	kiln_reply_free(reply);
	assert_int_equal(info_int(client, "cache.pinned"), 1);

	/* From a key on: the place in the work is the client's. */
	next = string_attr("next", key);
	reply = ask(client, "cache.verify", &next, 1);
	assert_in_range(kiln_reply_int(reply, "checked"), 0, 2);
	assert_permutes(other, &problem, "hit");
	kiln_reply_free(reply);
	assert_cache_verifies(client, 3);
	args[0] = string_attr("op", "permute");
	args[1] = int_attr("dry_run", 1);
	reply = ask(client, "cache.trim", args, 2);
	assert_int_equal(kiln_reply_int(reply, "removed"), 2);
	assert_int_equal(kiln_reply_count(reply, "rows"), 2);
	assert_int_equal(kiln_reply_int(reply, "left"), 3);
	kiln_reply_free(reply);
	reply = ask(client, "cache.trim", args, 1);
	assert_int_equal(kiln_reply_int(reply, "removed"), 2);
	assert_int_equal(kiln_reply_int(reply, "left"), 1);
	kiln_reply_free(reply);
	args[0] = string_attr("op", "an operator that has a long name");
	assert_int_equal(kiln_request(client, "cache.trim", args, 1, &reply), KILN_EINVAL);
	assert_sentence("op \"an operator that has a long name\" is none that a kernel has");
	assert_int_equal(kiln_request(client, "cache.trim", NULL, 0, &reply), KILN_EINVAL);
	assert_sentence("cache.trim needs bytes, left, older_than");
	assert_permutes(other, &problem, "hit");
	kiln_close(other);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* The pin and what it is for are there for the next daemon; and a hit is not written at once, but
 * it is, although nobody asks for anything. */
static void test_pins_and_uses_last(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(20, 90);
	kiln_client *client;
	kiln_attr pin;
	char key[72];

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	fill_cache(client, 3);
	key_of(client, &problem, key);
	pin = string_attr("key", key);
	kiln_reply_free(ask(client, "cache.pin", &pin, 1));
	assert_permutes(client, &problem, "hit");
	assert_int_equal(info_int(client, "cache.uses_waiting"), 1);
	await_info(client, "cache.uses_waiting", 0);
	kiln_close(client);
	kilnd_stop(daemon);
	kilnd_start(daemon, OPTIONS("--test-cache-rows", "2"));
	client = client_open(daemon);
	assert_int_equal(info_int(client, "cache.pinned"), 1);
	assert_int_equal(info_int(client, "cache.cap_rows"), 2);
	for (int i = 0; i < 4; i++) {
		struct permute more = transpose(60 + i, 61);
		assert_permutes(client, &more, "compiled");
		assert_in_range(info_int(client, "cache.rows"), 1, 2);
	}
	assert_permutes(client, &problem, "hit");
	kiln_close(client);
	kilnd_stop(daemon);
}

/* Memory gives what it has at once while the disk keeps the store's thread: no other thread is
 * asked, which the delay would keep, too. */
static void test_memory_waits_for_no_disk(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(20, 90);
	struct wire_out message;
	struct peer other;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	fill_cache(client, 1);
	peer_open(&other, daemon, "");
	struct pollfd answer = {.fd = other.sock, .events = POLLIN};
	debug_int(client, "store-deadline", "ms", 2 * CALL_TIMEOUT_MS);
	debug_int(client, "delay-store", "ms", 2 * CALL_TIMEOUT_MS);
	peer_begin(&other, &message, "cache.ls");
	peer_send(&other, &message, -1);
	await_wait(client, "store");
	assert_permutes(client, &problem, "hit");
	assert_int_equal(poll(&answer, 1, 0), 0);
	debug_int(client, "delay-store", "ms", 0);
	await_info(client, "cache.uses_waiting", 0);
	assert_int_equal(info_int(client, "counters.lookup_hits"), 1);
	peer_close(&other);
	kiln_close(client);
	kilnd_stop(daemon);
}

static int has_compiled(const struct kilnd *daemon, void *arg)
{
	char origin[16], why[400];
	int status;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);

	status = client ? permute_check(client, arg, 1, origin, why) : status;
	kiln_close(client);
	return status || strcmp(origin, "compiled") != 0;
}

/* Memory still has a kernel that a device has refused, for the disk keeps the store's thread. */
static void test_memory_does_not_give_what_is_distrusted(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(20, 91);
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	struct wire_out message;
	struct peer other;
	kiln_reply *reply;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	debug_int(client, "cut-compile", "count", 1);
	assert_ok(kiln_compile(client, "permute", tensors, 2, &perm, 1, "cpu", &reply));
	kiln_reply_free(reply);
	await_info(client, "cache.rows", 1);
	peer_open(&other, daemon, "");
	debug_int(client, "store-deadline", "ms", 2 * CALL_TIMEOUT_MS);
	debug_int(client, "delay-store", "ms", 2 * CALL_TIMEOUT_MS);
	peer_begin(&other, &message, "cache.ls");
	peer_send(&other, &message, -1);
	await_wait(client, "store");
	pid_t asker = process_start(daemon, has_compiled, &problem);
	await_info(client, "busy.looking_up", 1); /* and memory has given it nothing */
	debug_int(client, "delay-store", "ms", 0);
	assert_int_equal(process_wait(asker, CALL_TIMEOUT_MS), EXITED(0));
	assert_counters_add_up(client);
	peer_close(&other);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_list_and_show),
		HARNESS_TEST(test_damage_is_healed),
		HARNESS_TEST(test_trim_and_clear),
		HARNESS_TEST(test_cap),
		HARNESS_TEST(test_recompile_ends_with_its_client),
		HARNESS_TEST(test_upkeep_lets_others_between),
		HARNESS_TEST(test_pins_and_uses_last),
		HARNESS_TEST(test_memory_waits_for_no_disk),
		HARNESS_TEST(test_memory_does_not_give_what_is_distrusted),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
