/*
 * test_operands: operands that are left out, from the library to the kernel and back: what may be,
 * what may not, and what prepared calls take for them.
 */
#include "harness.h"

#include <kiln/ops.h>
#include <string.h>

static const int64_t shape[2] = {6, 4}, turned[2] = {4, 6}, perm[2] = {1, 0};

static kiln_buffer *filled(kiln_client *client, const float *values, int count)
{
	kiln_buffer *buffer;
	assert_ok(kiln_alloc(client, (uint64_t)count * 4, 0, NULL, &buffer));
	assert_ok(kiln_write(buffer, 0, values, (uint64_t)count * 4));
	return buffer;
}

/* The shape of y follows from x, but a call cannot run without a place for it. */
static void test_required(void **state)
{
	struct kilnd *daemon = *state;
	const float values[24] = {1, 2, 3};
	kiln_attr attr = kiln_attr_ints("perm", perm, 2);
	kiln_call *call;
	kiln_reply *reply;
	kiln_ticket ticket;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	kiln_buffer *x = filled(client, values, 24), *y = filled(client, values, 24);
	kiln_tensor tensors[3] = {kiln_tensor_make(x, 0, KILN_F32, 2, shape), kiln_tensor_none(),
							  kiln_tensor_none()};
	kiln_operand operands[2] = {{x, 0}, {NULL, 0}};

	assert_ok(kiln_explain(client, "permute", tensors, 1, &attr, 1, NULL, &reply));
	assert_non_null(strstr(kiln_reply_str(reply, "text"), "y              96 bytes written"));
	kiln_reply_free(reply);
	for (int given = 1; given <= 2; given++) {
		assert_ok(kiln_prepare(client, "permute", tensors, given, &attr, 1, &call));
		assert_ok(kiln_submit(call, operands, given, 0, &ticket));
		assert_int_equal(kiln_wait(client, ticket, KILN_FOREVER), KILN_EINVAL);
		assert_sentence(given == 1
							? "permute: the call was prepared without y, which it needs to run"
							: "permute: y has no buffer");
		kiln_call_free(call);
	}
	assert_int_equal(kiln_prepare(client, "permute", tensors + 1, 1, &attr, 1, &call), KILN_EINVAL);
	assert_sentence("x is missing");
	assert_int_equal(kiln_prepare(client, "permute", tensors, 3, &attr, 1, &call), KILN_EINVAL);
	assert_sentence("permute takes 2 tensors (x, y), not 3");
	tensors[1] = kiln_tensor_make(y, 0, KILN_F32, 2, turned);
	assert_ok(kiln_run(client, "permute", tensors, 2, &attr, 1));
	assert_ok(kiln_free(x));
	assert_ok(kiln_free(y));
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {HARNESS_TEST(test_required)};

	harness_begin(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
