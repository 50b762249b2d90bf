/*
 * test_operands: operands that are left out, from the library to the kernel and back: what may be,
 * what may not, and what prepared calls take for them.
 */
#include "harness.h"

#include "tests/ops/common/cases.h"

#include <kiln/ops.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t shape[2] = {6, 4}, turned[2] = {4, 6}, perm[2] = {1, 0};

static kiln_buffer *filled(kiln_client *client, const float *values, int count)
{
	kiln_buffer *buffer;
	assert_ok(kiln_alloc(client, (uint64_t)count * 4, 0, NULL, &buffer));
	assert_ok(kiln_write(buffer, 0, values, (uint64_t)count * 4));
	return buffer;
}

/* The shape of y follows from x, which is enough to explain it, but a call needs all that is
 * required. */
static void test_required(void **state)
{
	struct kilnd *daemon = *state;
	const float values[24] = {1, 2, 3};
	kiln_attr attr = kiln_attr_ints("perm", perm, 2);
	kiln_call *call;
	kiln_reply *reply;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	kiln_buffer *x = filled(client, values, 24), *y = filled(client, values, 24);
	kiln_tensor tensors[3] = {kiln_tensor_make(x, 0, KILN_F32, 2, shape), kiln_tensor_none(),
							  kiln_tensor_none()};

	assert_ok(kiln_explain(client, "permute", tensors, 1, &attr, 1, NULL, &reply));
	assert_non_null(strstr(kiln_reply_str(reply, "text"), "y              96 bytes written"));
	kiln_reply_free(reply);
	for (int given = 1; given <= 2; given++) {
		assert_int_equal(kiln_prepare(client, "permute", tensors, given, &attr, 1, &call),
						 KILN_EINVAL);
		assert_sentence("permute: y is missing");
		assert_int_equal(kiln_run(client, "permute", tensors, given, &attr, 1), KILN_EINVAL);
		assert_sentence("permute: y is missing");
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

/* ---- Every required operand of every operator ---- */

/* Whether operand i of "x, mask?, y" is required, and its name. */
static bool is_required(const char *operands, int i, char name[64])
{
	while (i-- > 0)
		operands += strcspn(operands, ",") + strlen(", ");
	snprintf(name, 64, "%.*s", (int)strcspn(operands, ","), operands);
	return name[strlen(name) - 1] != '?';
}

static void assert_missing(kiln_client *client, const struct cases_case *c, int left_out, int given,
						   const char *name)
{
	kiln_tensor tensors[CASES_MAX_OPERANDS];
	kiln_attr attrs[CASES_MAX_ATTRS];
	kiln_call *call = NULL;
	char sentence[160];
	cases_tensors(c, tensors);
	cases_attrs(c, attrs);
	tensors[left_out] = kiln_tensor_none();
	int status = kiln_prepare(client, c->op->name, tensors, given, attrs, c->attr_count, &call);
	if (status != KILN_EINVAL)
		fail_msg("%s without %s: %s", c->name, name, kiln_status_name(status));
	snprintf(sentence, sizeof(sentence), "%s: %s is missing; its operands are: ", c->op->name,
			 name);
	assert_sentence(sentence);
}

/* The operands of a case: of map, those that its statement names. */
static void list_operands(const struct cases_case *c, const char *listed, char list[512])
{
	kiln_attr attrs[CASES_MAX_ATTRS];
	cases_attrs(c, attrs);
	snprintf(list, 512, "%s", listed);
	for (int i = 0; i < c->attr_count; i++)
		if (strcmp(attrs[i].name, "names") == 0) {
			size_t used = 0;
			for (const char *at = attrs[i].s; *at && used < 500; at++)
				used += (size_t)snprintf(list + used, 512 - used, *at == ',' ? ", " : "%c", *at);
		}
}

static int leave_out_each(kiln_client *client, const struct cases_case *c, const char *listed)
{
	char list[512], name[64];
	int count = 0;
	list_operands(c, listed, list);
	for (int i = 0; i < c->operand_count; i++)
		if (is_required(list, i, name)) {
			assert_missing(client, c, i, c->operand_count, name);
			/* ... and where the tensors end before it. */
			if (i == c->operand_count - 1)
				assert_missing(client, c, i, i, name);
			count++;
		}
	return count;
}

static void test_each_operator(void **state)
{
	struct kilnd *daemon = *state;
	kiln_reply *ops;
	int cases, seen = 0;
	const struct cases_case *all = cases_all(&cases);
	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	assert_ok(kiln_request(client, "ops", NULL, 0, &ops));
	int rows = kiln_reply_count(ops, "rows");
	assert_true(rows > 0);
	for (int row = 0; row < rows; row++) {
		char path[32];
		snprintf(path, sizeof(path), "rows[%d].name", row);
		const char *name = kiln_reply_str(ops, path);
		const struct cases_case *c = all;
		while (c < all + cases && strcmp(c->op->name, name) != 0)
			c++;
		if (c == all + cases)
			fail_msg("no case has the operator %s", name);
		snprintf(path, sizeof(path), "rows[%d].operands", row);
		int required = leave_out_each(client, c, kiln_reply_str(ops, path));
		print_message("%s: %d\n", name, required);
		assert_true(required >= 2);
		seen += required;
	}
	assert_true(seen > 2 * rows);
	kiln_reply_free(ops);
	/* Nothing was compiled, nor looked for. */
	assert_int_equal(info_int(client, "counters.requests"), 0);
	assert_int_equal(info_int(client, "counters.compiles"), 0);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Optional ones: layer_norm, which has six of them ---- */

enum { ROWS = 6, COLUMNS = 4, COUNT = ROWS * COLUMNS };

struct scene {
	float x[COUNT], residual[COUNT], gamma[COLUMNS], beta[COLUMNS];
	kiln_buffer *of_x, *of_residual, *of_gamma, *of_beta, *of_y, *of_mean;
};

static kiln_tensor matrix(kiln_buffer *buffer)
{
	return kiln_tensor_make(buffer, 0, KILN_F32, 2, shape);
}

static kiln_tensor vector(kiln_buffer *buffer, int64_t length)
{
	return kiln_tensor_make(buffer, 0, KILN_F32, 1, &length);
}

static void fill_scene(kiln_client *client, struct scene *scene)
{
	for (int i = 0; i < COUNT; i++) {
		scene->x[i] = (float)(i * i % 17) * 0.5f - 3;
		scene->residual[i] = (float)(i * 7 % 11) * 0.25f;
	}
	for (int i = 0; i < COLUMNS; i++) {
		scene->gamma[i] = (float)(i + 1) * 0.5f;
		scene->beta[i] = (float)i - 1;
	}
	scene->of_x = filled(client, scene->x, COUNT);
	scene->of_residual = filled(client, scene->residual, COUNT);
	scene->of_gamma = filled(client, scene->gamma, COLUMNS);
	scene->of_beta = filled(client, scene->beta, COLUMNS);
	scene->of_y = filled(client, scene->x, COUNT);
	scene->of_mean = filled(client, scene->x, ROWS);
}

static void free_scene(struct scene *scene)
{
	assert_ok(kiln_free(scene->of_x));
	assert_ok(kiln_free(scene->of_residual));
	assert_ok(kiln_free(scene->of_gamma));
	assert_ok(kiln_free(scene->of_beta));
	assert_ok(kiln_free(scene->of_y));
	assert_ok(kiln_free(scene->of_mean));
}

static void near(double value, double expected)
{
	if (fabs(value - expected) > 1e-5)
		fail_msg("%.9g is not %.9g", value, expected);
}

/* Compares y (and mean) with what the operands that are there make. */
static void check_norm(const struct scene *scene, bool residual, bool gamma, bool beta, bool means)
{
	float y[COUNT], found[ROWS];
	assert_ok(kiln_read(scene->of_y, 0, y, sizeof(y)));
	assert_ok(kiln_read(scene->of_mean, 0, found, sizeof(found)));
	for (int r = 0; r < ROWS; r++) {
		double v[COLUMNS], mean = 0, variance = 0;
		for (int c = 0; c < COLUMNS; c++) {
			v[c] = scene->x[r * COLUMNS + c] + (residual ? scene->residual[r * COLUMNS + c] : 0.0);
			mean += v[c] / COLUMNS;
		}
		for (int c = 0; c < COLUMNS; c++)
			variance += (v[c] - mean) * (v[c] - mean) / COLUMNS;
		for (int c = 0; c < COLUMNS; c++)
			near(y[r * COLUMNS + c],
				 (v[c] - mean) / sqrt(variance + 1e-5) * (gamma ? scene->gamma[c] : 1.0) +
					 (beta ? scene->beta[c] : 0.0));
		near(found[r], means ? mean : scene->x[r]);
	}
}

static void test_optional(void **state)
{
	struct kilnd *daemon = *state;
	struct scene scene;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	fill_scene(client, &scene);
	kiln_tensor x = matrix(scene.of_x), y = matrix(scene.of_y), none = kiln_tensor_none();
	kiln_tensor gamma = vector(scene.of_gamma, COLUMNS), beta = vector(scene.of_beta, COLUMNS);

	assert_ok(kiln_layer_norm(client, x, none, none, y, 1e-5));
	check_norm(&scene, false, false, false, false);
	assert_ok(kiln_layer_norm(client, x, none, beta, y, 1e-5));
	check_norm(&scene, false, false, true, false);
	assert_ok(kiln_layer_norm(client, x, gamma, beta, y, 1e-5));
	check_norm(&scene, false, true, true, false);
	kiln_norm norm = kiln_norm_make();
	norm.residual = matrix(scene.of_residual);
	norm.gamma = gamma;
	norm.mean = vector(scene.of_mean, ROWS);
	assert_ok(kiln_layer_norm_with(client, x, y, &norm));
	check_norm(&scene, true, true, false, true);

	/* Each output with each other operand, wherever those that are left out stand. */
	norm.sum = y;
	assert_int_equal(kiln_layer_norm_with(client, x, y, &norm), KILN_EINVAL);
	assert_sentence("y and sum overlap");
	norm.sum = norm.residual;
	assert_int_equal(kiln_layer_norm_with(client, x, y, &norm), KILN_EINVAL);
	assert_sentence("residual and sum overlap");
	norm.sum = none;
	norm.rstd = vector(scene.of_beta, ROWS);
	assert_int_equal(kiln_layer_norm_with(client, x, y, &norm), KILN_EINVAL);
	assert_sentence("rstd needs 24 bytes");
	norm.rstd = none;
	assert_int_equal(kiln_rms_norm_with(client, x, y, &norm), KILN_EINVAL);
	assert_sentence("rms_norm takes 7 tensors");
	free_scene(&scene);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* Tensors that end early, and addresses that the prepared kernel is not for. */
static void test_prepared(void **state)
{
	struct kilnd *daemon = *state;
	struct scene scene;
	kiln_call *call;
	kiln_reply *reply;
	kiln_ticket ticket;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	fill_scene(client, &scene);
	kiln_tensor tensors[5] = {matrix(scene.of_x), kiln_tensor_none(),
							  vector(scene.of_beta, COLUMNS), kiln_tensor_none(),
							  matrix(scene.of_y)};
	assert_ok(kiln_explain(client, "layer_norm", tensors, 5, NULL, 0, NULL, &reply));
	assert_non_null(strstr(kiln_reply_str(reply, "text"), "gamma          left out\n"));
	assert_non_null(strstr(kiln_reply_str(reply, "text"), "rstd           left out\n"));
	kiln_reply_free(reply);

	assert_ok(kiln_prepare(client, "layer_norm", tensors, 5, NULL, 0, &call));
	kiln_operand operands[5] = {
		{scene.of_x, 0}, {NULL, 0}, {scene.of_beta, 0}, {NULL, 0}, {scene.of_y, 0}};
	for (uint64_t offset = 0; offset <= 4; offset += 4) {
		kiln_buffer *moved;
		assert_ok(kiln_alloc(client, sizeof(scene.x) + offset, 0, NULL, &moved));
		assert_ok(kiln_write(moved, offset, scene.x, sizeof(scene.x)));
		operands[0] = (kiln_operand){moved, offset};
		assert_ok(kiln_submit(call, operands, 5, 0, &ticket));
		assert_ok(kiln_wait(client, ticket, KILN_FOREVER));
		check_norm(&scene, false, false, true, false);
		assert_ok(kiln_write(scene.of_y, 0, scene.x, sizeof(scene.x)));
		assert_ok(kiln_free(moved));
	}
	operands[0] = (kiln_operand){scene.of_y, 0};
	assert_ok(kiln_submit(call, operands, 5, 0, &ticket));
	assert_int_equal(kiln_wait(client, ticket, KILN_FOREVER), KILN_EINVAL);
	assert_sentence("x and y overlap");
	operands[1].buffer = scene.of_gamma;
	assert_int_equal(kiln_submit(call, operands, 5, 0, &ticket), KILN_EINVAL);
	assert_sentence("operand 1 has a buffer, and the call was prepared without it");
	kiln_call_free(call);
	free_scene(&scene);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- In place: rope, of parts of one tensor ---- */

enum { TOKENS = 5, Q_HEADS = 2, K_HEADS = 1, HEADS = Q_HEADS + 2 * K_HEADS, DIM = 6, HALF = 2 };

/* Heads of qkv from `first` on. */
static kiln_tensor part(kiln_buffer *qkv, int first, int count)
{
	const int64_t sizes[3] = {TOKENS, count, DIM};
	kiln_tensor tensor = kiln_tensor_make(qkv, (uint64_t)first * DIM * 4, KILN_F32, 3, sizes);
	tensor.contiguous = 0;
	tensor.stride[0] = HEADS * DIM;
	tensor.stride[1] = DIM;
	tensor.stride[2] = 1;
	return tensor;
}

/* Turns q and k of qkv, of which v stays as it is, and the elements of a head behind 2 * HALF. */
static void check_turned(const float *was, const float *is, const float *cos, const float *sin)
{
	for (int at = 0; at < TOKENS * HEADS * DIM; at++) {
		int token = at / (HEADS * DIM), head = at / DIM % HEADS, i = at % DIM;
		const float *c = cos + token * HALF, *s = sin + token * HALF;
		if (head >= Q_HEADS + K_HEADS || i >= 2 * HALF)
			assert_memory_equal(&is[at], &was[at], 4);
		else if (i < HALF)
			near(is[at], was[at] * c[i] - was[at + HALF] * s[i]);
		else
			near(is[at], was[at] * c[i - HALF] + was[at - HALF] * s[i - HALF]);
	}
}

static void test_in_place(void **state)
{
	struct kilnd *daemon = *state;
	float values[TOKENS * HEADS * DIM], found[TOKENS * HEADS * DIM], cos[TOKENS * HALF];
	float sin[TOKENS * HALF];
	const int64_t table[2] = {TOKENS, HALF};
	kiln_rope_options options = kiln_rope_make();

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	for (int i = 0; i < TOKENS * HEADS * DIM; i++)
		values[i] = (float)(i * i % 23) - 11;
	for (int i = 0; i < TOKENS * HALF; i++) {
		cos[i] = (float)i / 8;
		sin[i] = 1 - (float)i / 16;
	}
	kiln_buffer *qkv = filled(client, values, TOKENS * HEADS * DIM);
	kiln_buffer *of_cos = filled(client, cos, TOKENS * HALF);
	kiln_buffer *of_sin = filled(client, sin, TOKENS * HALF);
	kiln_tensor q = part(qkv, 0, Q_HEADS), k = part(qkv, Q_HEADS, K_HEADS);
	kiln_tensor c = kiln_tensor_make(of_cos, 0, KILN_F32, 2, table);
	kiln_tensor s = kiln_tensor_make(of_sin, 0, KILN_F32, 2, table), none = kiln_tensor_none();

	/* The daemon checks the first launches, the device process those of the lane. */
	for (int i = 0; i < 5; i++) {
		assert_ok(kiln_write(qkv, 0, values, sizeof(values)));
		assert_ok(kiln_rope(client, q, c, s, k, none, q, k, &options));
		assert_ok(kiln_read(qkv, 0, found, sizeof(found)));
		check_turned(values, found, cos, sin);
	}
	assert_true(info_int(client, "counters.lane_launches") > 0);
	/* Each in its own place, or nowhere. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kiln_rope(client, q, c, s, k, none, q, part(qkv, 1, 1), &options),
						 KILN_EINVAL);
		assert_sentence("q and k_out overlap");
		assert_int_equal(kiln_rope(client, k, c, s, part(qkv, 0, 1), none, part(qkv, 0, 1),
								   part(qkv, 3, 1), &options),
						 KILN_EINVAL);
		assert_sentence("k and q_out overlap");
		assert_int_equal(kiln_rope(client, q, c, s, none, none, part(qkv, 1, 2), none, &options),
						 KILN_EINVAL);
		assert_sentence("q and q_out overlap");
	}
	assert_ok(kiln_rope(client, q, c, s, k, none, q, part(qkv, 3, 1), &options));
	kiln_free(qkv);
	kiln_free(of_cos);
	kiln_free(of_sin);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_required), HARNESS_TEST(test_each_operator), HARNESS_TEST(test_optional),
		HARNESS_TEST(test_prepared), HARNESS_TEST(test_in_place),
	};

	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
