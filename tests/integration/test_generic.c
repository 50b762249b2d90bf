/*
 * test_generic: generic kernels through the daemon: one object serves batches and statements of any
 * size, with the right results.  Choice names them here; which call gets one by itself is in
 * test_tiers.c.
 */
#include "harness.h"

#include "tests/ops/common/cases.h"
#include <kiln/ops.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RAGGED 24

/* Everything of a case but its call. */
struct memory {
	kiln_buffer *buffer[CASES_MAX_OPERANDS];
	uint8_t *host[CASES_MAX_OPERANDS];
	kiln_tensor tensors[CASES_MAX_OPERANDS];
};

static void memory_open(kiln_client *client, const struct cases_case *c, struct memory *memory)
{
	memset(memory, 0, sizeof(*memory));
	cases_tensors(c, memory->tensors);
	for (int i = 0; i < c->operand_count; i++) {
		const struct cases_operand *operand = &c->operand[i];
		uint64_t begin = operand->offset, bytes = begin + cases_bytes(operand);
		if (operand->dtype == KILN_DTYPE_NONE)
			continue;
		memory->host[i] = calloc(1, bytes + 16);
		if (!operand->output)
			cases_fill_operand(operand, memory->host[i] + begin, 5 + (uint64_t)i);
		assert_ok(kiln_alloc(client, bytes + 16, 0, NULL, &memory->buffer[i]));
		assert_ok(kiln_write(memory->buffer[i], 0, memory->host[i], bytes));
		memory->tensors[i].buffer = memory->buffer[i];
		memory->tensors[i].offset = begin;
	}
}

/* Results come back and are judged. */
static void memory_close(const struct cases_case *c, struct memory *memory)
{
	const void *at[CASES_MAX_OPERANDS] = {NULL};
	struct cases_verdict verdict = {0};

	for (int i = 0; i < c->operand_count; i++) {
		const struct cases_operand *operand = &c->operand[i];
		if (!memory->buffer[i])
			continue;
		if (operand->output)
			assert_ok(kiln_read(memory->buffer[i], 0, memory->host[i],
								operand->offset + cases_bytes(operand)));
		at[i] = memory->host[i] + operand->offset;
	}
	cases_judge(c, at, 0, c->op->units(c), &verdict);
	if (verdict.wrong)
		fail_msg("%s: element %lld of operand %d is %g, not %g", c->name,
				 (long long)verdict.element, verdict.operand, verdict.got, verdict.expected);
	for (int i = 0; i < c->operand_count; i++) {
		if (memory->buffer[i])
			assert_ok(kiln_free(memory->buffer[i]));
		free(memory->host[i]);
	}
}

static void run_generic(kiln_client *client, const struct cases_case *c)
{
	kiln_attr attrs[CASES_MAX_ATTRS + 1];
	struct memory memory;

	cases_attrs(c, attrs);
	attrs[c->attr_count] = string_attr("choice", "generic");
	memory_open(client, c, &memory);
	assert_ok(
		kiln_run(client, c->op->name, memory.tensors, c->operand_count, attrs, c->attr_count + 1));
	memory_close(c, &memory);
}

static bool is_ragged(const struct cases_case *c)
{
	return strcmp(c->op->name, "giou_loss") == 0 && c->operand[2].dtype != KILN_DTYPE_NONE &&
		   c->operand[0].dtype == KILN_F32 && c->operand[1].dtype == KILN_F32;
}

/* Any number of samples, of predictions and of targets, offsets that cut them anywhere: one object,
 * compiled once. */
static void test_ragged_batches(void **state)
{
	struct kilnd *daemon = *state;
	struct cases_case c;
	int found = 0;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	for (uint64_t i = 0; found < RAGGED; i++) {
		assert_in_range(i, 0, 200000);
		cases_random(20261122, i, &c);
		if (!is_ragged(&c))
			continue;
		run_generic(client, &c);
		found++;
	}
	assert_int_equal(info_int(client, "counters.compiles"), 1);
	assert_int_equal(info_int(client, "cache.rows"), 1);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* One text of a statement, whatever its sizes; and transposes, whose sizes are in no name. */
static void test_sizes(void **state)
{
	struct kilnd *daemon = *state;
	const char *last = "map y[i,j] = x[i,j] * 2 + b[j] :";
	struct cases_case c;
	int maps = 0, permutes = 0;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	for (uint64_t i = 0; maps < 12 || permutes < 12; i++) {
		assert_in_range(i, 0, 200000);
		cases_random(20261123, i, &c);
		bool f32 = c.operand[0].dtype == KILN_F32 && c.operand[1].dtype == KILN_F32;
		if (f32 && maps < 12 && strncmp(c.name, last, strlen(last)) == 0 &&
			c.operand[2].dtype == KILN_F32) {
			run_generic(client, &c);
			maps++;
		} else if (f32 && permutes < 12 && strcmp(c.op->name, "permute") == 0) {
			run_generic(client, &c);
			permutes++;
		}
	}
	assert_in_range(info_int(client, "counters.compiles"), 2, 14);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A choice like any other: explained, and refused where a name is wrong. */
static void test_choice(void **state)
{
	struct kilnd *daemon = *state;
	const int64_t shape[2] = {300, 200}, perm[2] = {1, 0};
	kiln_tensor x = kiln_tensor_make(NULL, 0, KILN_F32, 2, shape);
	kiln_attr attrs[2] = {kiln_attr_ints("perm", perm, 2), string_attr("choice", "generic")};
	kiln_reply *reply;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	assert_ok(kiln_explain(client, "permute", &x, 1, attrs, 2, NULL, &reply));
	assert_string_equal(kiln_reply_str(reply, "plan.variant"), "generic");
	assert_non_null(strstr(kiln_reply_str(reply, "text"), "permute_tile_generic<4>"));
	for (int i = 0; i < kiln_reply_count(reply, "choices"); i++) {
		char path[32];
		snprintf(path, sizeof(path), "choices[%d]", i);
		assert_string_not_equal(kiln_reply_str(reply, path), "generic");
	}
	kiln_reply_free(reply);
	attrs[1] = string_attr("choice", "generics");
	assert_int_equal(kiln_explain(client, "permute", &x, 1, attrs, 2, NULL, &reply), KILN_EINVAL);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_ragged_batches),
		HARNESS_TEST(test_sizes),
		HARNESS_TEST(test_choice),
	};

	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
