/*
 * test_tune: winners of tuning: kept beside the kernels, used when a problem of their class is
 * planned, said by explain; never against a choice that the caller named, and not used when the
 * planner does not know them.
 */
#include "tuned_scene.h"

#include <stdio.h>
#include <string.h>

#define WHEN 1795219200 /* 2026-11-21 */

static kiln_reply *ask(kiln_client *client, const char *request, const kiln_attr *args, int count)
{
	kiln_reply *reply;
	if (kiln_request(client, request, args, count, &reply))
		fail_msg("%s: %s", request, kiln_errmsg());
	return reply;
}

static void put(kiln_client *client, const struct tuned_class *class, const char *choice)
{
	kiln_attr args[TUNED_ARGS];
	tuned_row(class, choice, WHEN, args);
	kiln_reply_free(ask(client, "tuned.put", args, TUNED_ARGS));
}

static int64_t forget(kiln_client *client, const struct tuned_class *class)
{
	kiln_attr args[TUNED_ARGS];
	if (class)
		tuned_row(class, "", WHEN, args);
	kiln_reply *reply = ask(client, "tuned.rm", args, class ? 3 : 0);
	int64_t removed = kiln_reply_int(reply, "removed");
	kiln_reply_free(reply);
	return removed;
}

/* Batches of transposes: the batch is known at run time only. */
static struct permute batch(int64_t count)
{
	return (struct permute){
		.dtype = KILN_F32, .rank = 3, .shape = {count, 90, 70}, .perm = {0, 2, 1}};
}

static void assert_choice(kiln_client *client, const struct permute *problem, const char *choice,
						  bool tuned)
{
	kiln_reply *reply = tuned_explain(client, problem, NULL);
	assert_string_equal(kiln_reply_str(reply, "plan.choice"), choice);
	assert_int_equal(kiln_reply_has(reply, "tuned"), tuned);
	assert_int_equal(strstr(kiln_reply_str(reply, "text"), "\ntuned ") != NULL, tuned);
	kiln_reply_free(reply);
}

static void test_winner_is_used(void **state)
{
	struct kilnd *daemon = *state;
	struct permute two = batch(2), five = batch(5), other = transpose(20, 90);
	kiln_client *client;
	kiln_reply *reply;
	char line[200];

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	struct tuned_class class = tuned_class_of(client, &two), same = tuned_class_of(client, &five);
	assert_true(class.count >= 2);
	assert_string_equal(class.signature, same.signature);
	assert_permutes(client, &two, "compiled");
	assert_choice(client, &two, class.choices[0], false);

	put(client, &class, class.choices[1]);
	assert_choice(client, &two, class.choices[1], true);
	assert_choice(client, &five, class.choices[1], true);
	assert_choice(client, &other, tuned_class_of(client, &other).choices[0], false);
	reply = tuned_explain(client, &five, NULL);
	snprintf(line, sizeof(line), "\ntuned          %s, 253 us against 270 (2026-11-21)\n",
			 class.choices[1]);
	assert_non_null(strstr(kiln_reply_str(reply, "text"), line));
	assert_string_equal(kiln_reply_str(reply, "tuned.choice"), class.choices[1]);
	assert_string_equal(kiln_reply_str(reply, "tuned.refused"), "");
	assert_string_equal(kiln_reply_str(reply, "choices[0]"), class.choices[0]);
	assert_string_equal(kiln_reply_str(reply, "signature"), class.signature);
	assert_string_not_equal(kiln_reply_str(reply, "plan.instantiation"), class.signature);
	kiln_reply_free(reply);
	/* Another kernel, and right. */
	assert_permutes(client, &five, "compiled");
	assert_permutes(client, &two, "hit");
	kiln_close(client);
	kilnd_stop(daemon);

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	assert_choice(client, &two, class.choices[1], true);
	/* A choice that the caller names stands. */
	reply = tuned_explain(client, &two, class.choices[0]);
	assert_string_equal(kiln_reply_str(reply, "plan.choice"), class.choices[0]);
	assert_false(kiln_reply_has(reply, "tuned"));
	kiln_reply_free(reply);
	assert_int_equal(forget(client, &class), 1);
	assert_int_equal(forget(client, &class), 0);
	assert_choice(client, &two, class.choices[0], false);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A call that is prepared already keeps its kernel. */
static void test_prepared_calls_stay(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = batch(300);
	uint64_t bytes = permute_input_bytes(&problem);
	kiln_tensor x = permute_input(&problem, NULL);
	kiln_attr perm = perm_attr(&problem);
	kiln_buffer *from, *to;
	kiln_call *call, *later;
	kiln_client *client;
	kiln_ticket ticket;
	double micros = 0;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	struct tuned_class class = tuned_class_of(client, &problem);
	assert_ok(kiln_alloc(client, bytes, 0, "from", &from));
	assert_ok(kiln_alloc(client, bytes, 0, "to", &to));
	kiln_tensor tensors[2] = {x, permute_output(&problem, NULL)};
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call));
	assert_null(strstr(kiln_call_plan(call), "\ntuned "));
	put(client, &class, class.choices[class.count > 1]);
	const kiln_operand operands[2] = {{from, 0}, {to, 0}};
	assert_ok(kiln_submit(call, operands, 2, 0, &ticket));
	assert_ok(kiln_wait_time(client, ticket, CALL_TIMEOUT_MS, &micros));
	assert_true(micros > 0);
	assert_null(strstr(kiln_call_plan(call), "\ntuned "));
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &later));
	assert_non_null(strstr(kiln_call_plan(later), "\ntuned "));
	kiln_call_free(call);
	kiln_call_free(later);
	kiln_free(from);
	kiln_free(to);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_unknown_winner_is_not_used(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = batch(2);
	kiln_client *client;
	kiln_reply *reply;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	struct tuned_class class = tuned_class_of(client, &problem);
	put(client, &class, "a name of tomorrow");
	reply = tuned_explain(client, &problem, NULL);
	assert_string_equal(kiln_reply_str(reply, "plan.choice"), class.choices[0]);
	assert_non_null(strstr(kiln_reply_str(reply, "tuned.refused"), "a name of tomorrow"));
	assert_non_null(strstr(kiln_reply_str(reply, "text"),
						   "\ntuned          a name of tomorrow of 2026-11-21 is not used: "));
	kiln_reply_free(reply);
	assert_permutes(client, &problem, "compiled");
	/* For other devices it says nothing. */
	forget(client, NULL);
	snprintf(class.model, sizeof(class.model), "NVIDIA H200");
	put(client, &class, class.choices[class.count > 1]);
	assert_choice(client, &problem, class.choices[0], false);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_table(void **state)
{
	struct kilnd *daemon = *state;
	struct tuned_class first = {.model = "B", .target = "sm_90", .signature = "k<1>"},
					   second = {.model = "A", .target = "cpu", .signature = "k<2>"};
	kiln_client *client;
	kiln_reply *reply;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	put(client, &first, "one");
	put(client, &second, "two");
	put(client, &first, "three");
	kiln_reply_free(ask(client, "cache.clear", NULL, 0));
	reply = ask(client, "tuned.ls", NULL, 0);
	assert_int_equal(kiln_reply_count(reply, "rows"), 2);
	assert_string_equal(kiln_reply_str(reply, "rows[0].model"), "A");
	assert_string_equal(kiln_reply_str(reply, "rows[1].model"), "B");
	assert_string_equal(kiln_reply_str(reply, "rows[1].target"), "sm_90");
	assert_string_equal(kiln_reply_str(reply, "rows[1].signature"), "k<1>");
	assert_string_equal(kiln_reply_str(reply, "rows[1].op"), "permute");
	assert_string_equal(kiln_reply_str(reply, "rows[1].choice"), "three");
	assert_string_equal(kiln_reply_str(reply, "rows[1].version"), "0.1.0");
	assert_true(kiln_reply_real(reply, "rows[1].micros") == 253.2);
	assert_true(kiln_reply_real(reply, "rows[1].own_micros") == 270);
	assert_int_equal(kiln_reply_int(reply, "rows[1].candidates"), 12);
	assert_int_equal(kiln_reply_int(reply, "rows[1].when"), 1795219200);
	kiln_reply_free(reply);
	assert_int_equal(forget(client, NULL), 2);
	reply = ask(client, "tuned.ls", NULL, 0);
	assert_int_equal(kiln_reply_count(reply, "rows"), 0);
	kiln_reply_free(reply);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_refusals(void **state)
{
	struct kilnd *daemon = *state;
	struct tuned_class class = {.model = "A", .target = "cpu", .signature = "k<2>"};
	static char long_text[1100];
	kiln_attr args[TUNED_ARGS];
	kiln_client *client;
	kiln_reply *reply;

	memset(long_text, 'x', sizeof(long_text) - 1);
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
#define REFUSED(request, count, word)                                                  \
	assert_int_equal(kiln_request(client, request, args, count, &reply), KILN_EINVAL); \
	assert_sentence(word)
	tuned_row(&class, "one", WHEN, args);
	REFUSED("tuned.put", 3, "needs op");
	REFUSED("tuned.put", 5, "needs micros");
	REFUSED("tuned.rm", 2, "needs signature");
	REFUSED("tuned.rm", 1, "needs target");
	args[TUNED_MICROS].f = 0;
	REFUSED("tuned.put", TUNED_ARGS, "above 0");
	tuned_row(&class, long_text, WHEN, args);
	REFUSED("tuned.put", TUNED_ARGS, "choice, a text of 1 to 47 bytes; it has 1099");
	tuned_row(&class, "one", WHEN, args);
	args[TUNED_SIGNATURE].s = long_text;
	REFUSED("tuned.put", TUNED_ARGS, "1 to 1023 bytes");
	args[TUNED_SIGNATURE].s = "";
	REFUSED("tuned.put", TUNED_ARGS, "needs signature");
	args[TUNED_SIGNATURE].s = "a\tb";
	REFUSED("tuned.put", TUNED_ARGS, "signature of a winner of tuning has the control character 9");
	args[TUNED_MODEL] = int_attr("model", 4);
	REFUSED("tuned.put", TUNED_ARGS, "needs model");
#undef REFUSED
	reply = ask(client, "tuned.ls", NULL, 0);
	assert_int_equal(kiln_reply_count(reply, "rows"), 0);
	kiln_reply_free(reply);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_winner_is_used),
		HARNESS_TEST(test_prepared_calls_stay),
		HARNESS_TEST(test_unknown_winner_is_not_used),
		HARNESS_TEST(test_table),
		HARNESS_TEST(test_refusals),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
