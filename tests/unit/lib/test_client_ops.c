/*
 * The helpers of kiln/ops.h: which operands and attributes each sends, in which order.  Against a
 * fake daemon.
 */
#include "fake_daemon.h"

#include <kiln/ops.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct fake *fake;
static kiln_client *client;
static kiln_buffer *buffer;

static int setup(void **state)
{
	(void)state;
	fake = fake_start(NULL);
	return fake_connect(fake, FAKE_WAIT_MS, &client) || kiln_alloc(client, 4096, 0, NULL, &buffer);
}

static int teardown(void **state)
{
	(void)state;
	int status = kiln_free(buffer);
	kiln_close(client);
	fake_stop(fake);
	return status;
}

/* A tensor that is told by its size: n halves at byte 16*n. */
static kiln_tensor half(int64_t n)
{
	return kiln_tensor_make(buffer, (uint64_t)n * 16, KILN_F16, 1, &n);
}

/* Compares the last prepare: operator, sizes of the tensors (_: left out), attributes. */
static void expect(int status, const char *expected)
{
	char said[512] = "";
	const char *request = "", *at, *attrs;
	size_t used;
	kiln_reply *reply = NULL;
	assert_int_equal(status, KILN_OK);
	/* After its answer nothing is written to what was seen. */
	assert_int_equal(kiln_request(client, "info", NULL, 0, &reply), KILN_OK);
	kiln_reply_free(reply);
	for (int i = fake->seen_count - 1; i >= 0 && i > fake->seen_count - 9 && !*request; i--)
		if (strncmp(fake->seen[i % 8], "prepare(", 8) == 0)
			request = fake->seen[i % 8];
	at = strstr(request, "op=\"");
	attrs = strstr(request, "attrs=");
	assert_non_null(at);
	assert_non_null(attrs);
	used = (size_t)snprintf(said, sizeof(said), "%.*s", (int)strcspn(at + 4, "\""), at + 4);
	while ((at = strstr(at, "{d=")) && at < attrs) {
		const char *shape = strstr(at, "s=[");
		bool left_out = at[3] == '0';
		used += (size_t)snprintf(said + used, sizeof(said) - used, " %.*s",
								 left_out ? 1 : (int)strcspn(shape + 3, "]"),
								 left_out ? "_" : shape + 3);
		at++;
	}
	snprintf(said + used, sizeof(said) - used, " %.*s", (int)strcspn(attrs + 6, "}") + 1,
			 attrs + 6);
	assert_string_equal(said, expected);
}

static void softmax(void **state)
{
	(void)state;
	expect(kiln_softmax(client, half(1), half(2), -1, 0.5), "softmax 1 2 {axis=-1, scale=0.5}");
	expect(kiln_log_softmax(client, half(1), half(2), 0, 1.0), "log_softmax 1 2 {axis=0, scale=1}");
	expect(kiln_softmax_backward(client, half(1), half(2), half(3), 2, 1.0),
		   "softmax_backward 1 2 3 {axis=2, scale=1}");
	expect(kiln_log_softmax_backward(client, half(1), half(2), half(3), -1, 1.0),
		   "log_softmax_backward 1 2 3 {axis=-1, scale=1}");
}

static void masked_softmax(void **state)
{
	(void)state;
	kiln_mask_options mask = kiln_mask_make("causal");
	expect(kiln_masked_softmax(client, half(1), kiln_tensor_none(), half(2), &mask),
		   "masked_softmax 1 _ 2 {kind=\"causal\", scale=1, empty=\"zero\"}");
	mask.diagonal = -3;
	mask.empty = "nan";
	expect(kiln_masked_softmax(client, half(1), kiln_tensor_none(), half(2), &mask),
		   "masked_softmax 1 _ 2 {kind=\"causal\", scale=1, diagonal=-3, empty=\"nan\"}");
	mask = kiln_mask_make("bool");
	mask.keep = 1;
	mask.scale = 0.25;
	mask.empty = NULL;
	expect(kiln_masked_softmax_backward(client, half(1), half(2), half(3), half(4), &mask),
		   "masked_softmax_backward 1 2 3 4 {kind=\"bool\", scale=0.25, keep=1}");
	assert_int_equal(kiln_masked_softmax(client, half(1), half(3), half(2), &mask), KILN_EINVAL);
	assert_non_null(strstr(kiln_errmsg(), "\"empty\""));
}

static void norms(void **state)
{
	(void)state;
	kiln_norm norm = kiln_norm_make();
	expect(kiln_layer_norm(client, half(1), half(2), half(3), half(4), 0.5),
		   "layer_norm 1 2 3 _ 4 _ _ _ {eps=0.5, axes=1}");
	expect(kiln_rms_norm(client, half(1), half(2), half(4), 0.5),
		   "rms_norm 1 2 _ _ 4 _ _ {eps=0.5, axes=1}");
	norm.eps = 0.125;
	norm.axes = 3;
	norm.gamma = half(2);
	norm.residual = half(3);
	norm.rstd = half(5);
	norm.sum = half(6);
	expect(kiln_rms_norm_with(client, half(1), half(4), &norm),
		   "rms_norm 1 2 _ 3 4 5 6 {eps=0.125, axes=3}");
	norm.mean = half(7);
	expect(kiln_layer_norm_with(client, half(1), half(4), &norm),
		   "layer_norm 1 2 _ 3 4 7 5 6 {eps=0.125, axes=3}");
	/* The daemon refuses the eighth. */
	expect(kiln_rms_norm_with(client, half(1), half(4), &norm),
		   "rms_norm 1 2 _ 3 4 5 6 7 {eps=0.125, axes=3}");
	assert_true(kiln_norm_make().eps == 1e-5);
}

static void norm_gradients(void **state)
{
	(void)state;
	kiln_norm_grad grad = kiln_norm_grad_make();
	grad.rstd = half(3);
	grad.dgamma = half(4);
	expect(kiln_rms_norm_backward(client, half(1), half(2), &grad),
		   "rms_norm_backward 1 2 _ 3 _ 4 _ {axes=1}");
	grad.mean = half(5);
	grad.gamma = half(6);
	grad.dx = half(7);
	grad.dbeta = half(8);
	grad.axes = 2;
	expect(kiln_layer_norm_backward(client, half(1), half(2), &grad),
		   "layer_norm_backward 1 2 6 5 3 7 4 8 {axes=2}");
	expect(kiln_rms_norm_backward(client, half(1), half(2), &grad),
		   "rms_norm_backward 1 2 6 3 7 4 8 5 {axes=2}");
}

static void gathers(void **state)
{
	(void)state;
	expect(kiln_gather(client, half(1), half(2), half(3), "clamp"),
		   "gather 1 2 3 {bounds=\"clamp\"}");
	expect(kiln_gather_backward(client, half(1), half(2), half(3), "check"),
		   "gather_backward 1 2 3 {bounds=\"check\"}");
}

static void boxes(void **state)
{
	(void)state;
	kiln_tensor none = kiln_tensor_none();
	expect(kiln_giou(client, half(1), half(2), half(3), 1), "giou 1 2 3 {clamp=1}");
	expect(kiln_giou_backward(client, half(1), half(2), half(3), half(4), 0),
		   "giou_backward 1 2 3 4 {clamp=0}");
	expect(kiln_giou_loss(client, half(1), half(2), half(3), half(4), half(5), 1),
		   "giou_loss 1 2 3 4 5 {clamp=1}");
	expect(kiln_giou_loss(client, half(1), half(2), none, half(4), none, 0),
		   "giou_loss 1 2 _ 4 _ {clamp=0}");
	expect(kiln_giou_loss_backward(client, half(1), half(2), none, half(4), half(5), half(6), 1),
		   "giou_loss_backward 1 2 _ 4 5 6 {clamp=1}");
}

static void attributes(void **state)
{
	(void)state;
	const int64_t shape[1] = {1};
	kiln_tensor x = kiln_tensor_make(buffer, 0, KILN_F16, 1, shape);
	kiln_attr attrs[3] = {kiln_attr_int("a", INT64_MIN), kiln_attr_real("b", 0.5),
						  kiln_attr_text("c", "regs 128x2 b1")};
	expect(kiln_run(client, "softmax", &x, 1, attrs, 3),
		   "softmax 1 {a=-9223372036854775808, b=0.5, c=\"regs 128x2 b1\"}");
}

static void map(void **state)
{
	const kiln_map_tensor operands[] = {{"x", half(1)}, {"b", half(2)}, {"y", half(3)}};
	const kiln_map_scalar scalars[] = {{"s", 2.5}, {"n", 3}};
	kiln_map_options options = kiln_map_make();

	(void)state;
	expect(kiln_run_map(client, "y[i] = x[i] + b[i]", operands, 3, NULL),
		   "map 1 2 3 {statement=\"y[i] = x[i] + b[i]\", names=\"x,b,y\", bounds=\"check\", "
		   "checked=0}");
	options.scalars = scalars;
	options.scalar_count = 2;
	options.bounds = "zero";
	options.checked = 1;
	expect(kiln_run_map(client, "y[i] = x[i] * s", operands, 2, &options),
		   "map 1 2 {statement=\"y[i] = x[i] * s\", names=\"x,b\", bounds=\"zero\", checked=1, "
		   "s=2.5, n=3}");
	/* A wrong count is sent without names, and the daemon refuses it for that. */
	expect(kiln_run_map(client, "y[i] = 1", operands, -1, NULL),
		   "map {statement=\"y[i] = 1\", names=\"\", bounds=\"check\", checked=0}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(softmax),    cmocka_unit_test(masked_softmax),
		cmocka_unit_test(norms),      cmocka_unit_test(norm_gradients),
		cmocka_unit_test(gathers),    cmocka_unit_test(boxes),
		cmocka_unit_test(attributes), cmocka_unit_test(map),
	};
	unsetenv("KILN_DEVICE");
	unsetenv("KILN_DEBUG");
	return cmocka_run_group_tests(tests, setup, teardown);
}
