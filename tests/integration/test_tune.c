/*
 * test_tune: winners of tuning: kept beside the kernels, used when a problem of their class is
 * planned, said by explain; never against a choice that the caller named, and not used when the
 * planner does not know them.
 */
#include "harness.h"

#include <stdio.h>
#include <string.h>

/* What a winner is found by, and the candidates, as explain tells them. */
struct class
{
	char model[96], target[16], signature[1100];
	char choices[2][64];
	int count;
};

static kiln_reply *explain(kiln_client *client, const struct permute *problem, const char *choice)
{
	kiln_tensor x = permute_input(problem, NULL);
	kiln_attr attrs[2] = {perm_attr(problem), string_attr("choice", choice)};
	kiln_reply *reply;
	if (kiln_explain(client, "permute", &x, 1, attrs, choice ? 2 : 1, NULL, &reply))
		fail_msg("explain: %s", kiln_errmsg());
	return reply;
}

static struct class class_of(kiln_client *client, const struct permute *problem)
{
	kiln_reply *reply = explain(client, problem, NULL);
	struct class class = {.count = kiln_reply_count(reply, "choices")};
	snprintf(class.model, sizeof(class.model), "%s", kiln_reply_str(reply, "model"));
	snprintf(class.target, sizeof(class.target), "%s", kiln_reply_str(reply, "target"));
	snprintf(class.signature, sizeof(class.signature), "%s", kiln_reply_str(reply, "signature"));
	snprintf(class.choices[0], 64, "%s", kiln_reply_str(reply, "choices[0]"));
	snprintf(class.choices[1], 64, "%s", kiln_reply_str(reply, "choices[1]"));
	kiln_reply_free(reply);
	return class;
}

enum { ARGS = 10, AT_MODEL = 0, AT_SIGNATURE = 2, AT_CHOICE = 4, AT_MICROS = 5 };

/* The first three name the row. */
static void row_args(const struct class *class, const char *choice, kiln_attr args[ARGS])
{
	args[0] = string_attr("model", class->model);
	args[1] = string_attr("target", class->target);
	args[2] = string_attr("signature", class->signature);
	args[3] = string_attr("op", "permute");
	args[4] = string_attr("choice", choice);
	args[5] = (kiln_attr){.name = "micros", .kind = KILN_ATTR_REAL, .f = 253.2};
	args[6] = (kiln_attr){.name = "own_micros", .kind = KILN_ATTR_REAL, .f = 270};
	args[7] = int_attr("candidates", 12);
	args[8] = int_attr("when", 1795219200);
	args[9] = string_attr("version", "0.1.0");
}

static kiln_reply *ask(kiln_client *client, const char *request, const kiln_attr *args, int count)
{
	kiln_reply *reply;
	if (kiln_request(client, request, args, count, &reply))
		fail_msg("%s: %s", request, kiln_errmsg());
	return reply;
}

static void put(kiln_client *client, const struct class *class, const char *choice)
{
	kiln_attr args[ARGS];
	row_args(class, choice, args);
	kiln_reply_free(ask(client, "tuned.put", args, ARGS));
}

static int64_t forget(kiln_client *client, const struct class *class)
{
	kiln_attr args[ARGS];
	if (class)
		row_args(class, "", args);
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
	kiln_reply *reply = explain(client, problem, NULL);
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
	struct class class = class_of(client, &two), same = class_of(client, &five);
	assert_true(class.count >= 2);
	assert_string_equal(class.signature, same.signature);
	assert_permutes(client, &two, "compiled");
	assert_choice(client, &two, class.choices[0], false);

	put(client, &class, class.choices[1]);
	assert_choice(client, &two, class.choices[1], true);
	assert_choice(client, &five, class.choices[1], true);
	assert_choice(client, &other, class_of(client, &other).choices[0], false);
	reply = explain(client, &five, NULL);
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
	/* What the caller names stands. */
	reply = explain(client, &two, class.choices[0]);
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
	struct class class = class_of(client, &problem);
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
	struct class class = class_of(client, &problem);
	put(client, &class, "a name of tomorrow");
	reply = explain(client, &problem, NULL);
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
	struct class first = {"B", "sm_90", "k<1>", {"", ""}, 0},
				 second = {"A", "cpu", "k<2>", {"", ""}, 0};
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
	struct class class = {"A", "cpu", "k<2>", {"", ""}, 0};
	static char long_text[1100];
	kiln_attr args[ARGS];
	kiln_client *client;
	kiln_reply *reply;

	memset(long_text, 'x', sizeof(long_text) - 1);
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
#define REFUSED(request, count, word)                                                  \
	assert_int_equal(kiln_request(client, request, args, count, &reply), KILN_EINVAL); \
	assert_sentence(word)
	row_args(&class, "one", args);
	REFUSED("tuned.put", 3, "needs op");
	REFUSED("tuned.put", 5, "needs micros");
	REFUSED("tuned.rm", 2, "needs signature");
	REFUSED("tuned.rm", 1, "needs target");
	args[AT_MICROS].f = 0;
	REFUSED("tuned.put", ARGS, "above 0");
	row_args(&class, long_text, args);
	REFUSED("tuned.put", ARGS, "choice, a text of 1 to 47 bytes; it has 1099");
	row_args(&class, "one", args);
	args[AT_SIGNATURE].s = long_text;
	REFUSED("tuned.put", ARGS, "1 to 1023 bytes");
	args[AT_SIGNATURE].s = "";
	REFUSED("tuned.put", ARGS, "needs signature");
	args[AT_SIGNATURE].s = "a\tb";
	REFUSED("tuned.put", ARGS, "signature of a winner of tuning has the control character 9");
	args[AT_MODEL] = int_attr("model", 4);
	REFUSED("tuned.put", ARGS, "needs model");
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
	harness_begin(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
