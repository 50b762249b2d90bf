/*
 * clients.c: what tests ask of a daemon, and the permute that they check it with, in plain loops.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

kiln_client *client_try(const struct kilnd *daemon, int timeout_ms, int *status)
{
	kiln_connect_options options = {
		.size = sizeof(options),
		.socket = daemon->socket,
		.device = "cpu",
		.timeout_ms = timeout_ms,
	};
	kiln_client *client = NULL;

	*status = kiln_connect(&options, &client);
	return *status ? NULL : client;
}

kiln_client *client_open(const struct kilnd *daemon)
{
	int status;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);
	if (!client)
		fail_msg("no connection: %s: %s", kiln_status_name(status), kiln_errmsg());
	return client;
}

/* ---- Figures ---- */

int64_t info_int(kiln_client *client, const char *path)
{
	kiln_reply *reply = NULL;
	int64_t value;

	if (kiln_request(client, "info", NULL, 0, &reply))
		fail_msg("info: %s", kiln_errmsg());
	if (!kiln_reply_has(reply, path))
		fail_msg("info has no %s: %s", path, kiln_reply_json(reply));
	value = kiln_reply_int(reply, path);
	kiln_reply_free(reply);
	return value;
}

pid_t device_process(kiln_client *client, int row)
{
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	char state[32], pid[32];

	snprintf(state, sizeof(state), "executors[%d].state", row);
	snprintf(pid, sizeof(pid), "executors[%d].pid", row);
	while (now_ms() < end) {
		kiln_reply *info = NULL;
		assert_ok(kiln_request(client, "info", NULL, 0, &info));
		const char *is = kiln_reply_str(info, state);
		pid_t ready = is && !strcmp(is, "ready") ? (pid_t)kiln_reply_int(info, pid) : 0;
		kiln_reply_free(info);
		if (ready > 0)
			return ready;
		pause_ms(2);
	}
	fail_msg("no device process of row %d became ready", row);
	return 0;
}

pid_t compiler_process(kiln_client *client, const char *state)
{
	const kiln_attr what = string_attr("what", "children");
	kiln_reply *reply;
	pid_t pid = 0;

	assert_ok(kiln_request(client, "debug", &what, 1, &reply));
	for (int i = 0; i < kiln_reply_count(reply, "rows") && !pid; i++) {
		char role[32], is[32], path[32];
		snprintf(role, sizeof(role), "rows[%d].role", i);
		snprintf(is, sizeof(is), "rows[%d].state", i);
		snprintf(path, sizeof(path), "rows[%d].pid", i);
		if (!strcmp(kiln_reply_str(reply, role), "compiler") &&
			(!state || !strcmp(kiln_reply_str(reply, is), state)))
			pid = (pid_t)kiln_reply_int(reply, path);
	}
	kiln_reply_free(reply);
	assert_true(pid > 0);
	return pid;
}

static void await(kiln_client *client, const char *path, int64_t least, int64_t most)
{
	int64_t end = now_ms() + CALL_TIMEOUT_MS, value;

	while ((value = info_int(client, path)) < least || value > most) {
		if (now_ms() > end)
			fail_msg("%s is %lld and did not become %lld", path, (long long)value,
					 (long long)least);
		pause_ms(2);
	}
}

void await_info(kiln_client *client, const char *path, int64_t value)
{
	await(client, path, value, value);
}

void await_info_at_least(kiln_client *client, const char *path, int64_t value)
{
	await(client, path, value, INT64_MAX);
}

static void debug(kiln_client *client, const kiln_attr *args, int count)
{
	kiln_reply *reply = NULL;
	if (kiln_request(client, "debug", args, count, &reply))
		fail_msg("debug %s: %s", args[0].s, kiln_errmsg());
	kiln_reply_free(reply);
}

void debug_int(kiln_client *client, const char *what, const char *name, int64_t value)
{
	const kiln_attr args[] = {string_attr("what", what), int_attr(name, value)};
	debug(client, args, 2);
}

void debug_str(kiln_client *client, const char *what, const char *name, const char *value)
{
	kiln_attr args[2] = {string_attr("what", what)};
	if (name)
		args[1] = string_attr(name, value);
	debug(client, args, name ? 2 : 1);
}

void debug_fail_device(kiln_client *client, const char *misdeed, const char *at, bool own)
{
	const kiln_attr args[] = {string_attr("what", "fail-device"), string_attr("misdeed", misdeed),
							  string_attr("at", at), string_attr("own", "yes")};
	debug(client, args, own ? 4 : 3);
}

void assert_cache_verifies(kiln_client *client, int64_t least_rows)
{
	char key[72] = "";
	int64_t checked = 0;

	do {
		kiln_attr next = string_attr("next", key);
		kiln_reply *reply = NULL;
		if (kiln_request(client, "cache.verify", &next, 1, &reply))
			fail_msg("cache.verify: %s", kiln_errmsg());
		if (kiln_reply_int(reply, "bad"))
			fail_msg("the cache does not verify: %s", kiln_reply_json(reply));
		checked += kiln_reply_int(reply, "checked");
		snprintf(key, sizeof(key), "%s", kiln_reply_str(reply, "next"));
		kiln_reply_free(reply);
	} while (key[0]);
	if (checked < least_rows)
		fail_msg("of %lld rows only %lld were there to verify", (long long)least_rows,
				 (long long)checked);
}

int64_t cache_clear(kiln_client *client, int64_t *freed)
{
	int64_t removed = 0, bytes = 0, after = 0;
	bool more = true;

	while (more) {
		kiln_attr next = int_attr("next", after);
		kiln_reply *reply = NULL;
		assert_ok(kiln_request(client, "cache.clear", &next, 1, &reply));
		removed += kiln_reply_int(reply, "removed");
		bytes += kiln_reply_int(reply, "freed");
		after = kiln_reply_int(reply, "next");
		more = kiln_reply_int(reply, "more") != 0;
		kiln_reply_free(reply);
	}
	if (freed)
		*freed = bytes;
	return removed;
}

void check_ok(int status, const char *call, const char *file, int line)
{
	if (status)
		fail_msg("%s:%d: %s: %s: %s", file, line, call, kiln_status_name(status), kiln_errmsg());
}

void assert_sentence(const char *word)
{
	const char *sentence = kiln_errmsg();
	if (!strstr(sentence, word))
		fail_msg("the sentence does not name %s: %s", word, sentence);
	if (strlen(sentence) < 10 || strchr(sentence, '\n'))
		fail_msg("no single sentence: %s", sentence);
}

/* ---- Problems ---- */

kiln_attr int_attr(const char *name, int64_t value)
{
	return (kiln_attr){.name = name, .kind = KILN_ATTR_INT, .i = value};
}

kiln_attr string_attr(const char *name, const char *value)
{
	return (kiln_attr){.name = name, .kind = KILN_ATTR_STRING, .s = value};
}

kiln_attr perm_attr(const struct permute *problem)
{
	return (kiln_attr){
		.name = "perm", .kind = KILN_ATTR_INTS, .ints = problem->perm, .count = problem->rank};
}

struct permute transpose(int64_t rows, int64_t columns)
{
	return (struct permute){.dtype = KILN_F32, .rank = 2, .shape = {rows, columns}, .perm = {1, 0}};
}

kiln_tensor permute_input(const struct permute *problem, kiln_buffer *buffer)
{
	kiln_tensor x = {.buffer = buffer,
					 .offset = problem->offset,
					 .dtype = problem->dtype,
					 .rank = problem->rank,
					 .contiguous = !problem->strided};
	memcpy(x.shape, problem->shape, sizeof(x.shape));
	memcpy(x.stride, problem->stride, sizeof(x.stride));
	return x;
}

kiln_tensor permute_output(const struct permute *problem, kiln_buffer *buffer)
{
	kiln_tensor y = {.buffer = buffer,
					 .offset = problem->y_offset,
					 .dtype = problem->dtype,
					 .rank = problem->rank,
					 .contiguous = 1};
	for (int k = 0; k < problem->rank; k++)
		y.shape[k] = problem->shape[problem->perm[k]];
	return y;
}

static int64_t elements(const struct permute *problem)
{
	int64_t count = 1;
	for (int k = 0; k < problem->rank; k++)
		count *= problem->shape[k];
	return count;
}

static void strides_of(const struct permute *problem, int64_t stride[KILN_MAX_RANK])
{
	int64_t row = 1;
	for (int k = problem->rank - 1; k >= 0; k--) {
		stride[k] = problem->strided ? problem->stride[k] : row;
		row *= problem->shape[k];
	}
}

uint64_t permute_input_bytes(const struct permute *problem)
{
	int64_t stride[KILN_MAX_RANK], last = 0;

	if (!elements(problem))
		return problem->offset;
	strides_of(problem, stride);
	for (int k = 0; k < problem->rank; k++)
		last += stride[k] * (problem->shape[k] - 1);
	return problem->offset + (uint64_t)(last + 1) * kiln_dtype_size(problem->dtype);
}

uint64_t permute_output_bytes(const struct permute *problem)
{
	return problem->y_offset + (uint64_t)elements(problem) * kiln_dtype_size(problem->dtype);
}

void permute_reference(const struct permute *problem, const uint8_t *in, uint8_t *out)
{
	size_t size = kiln_dtype_size(problem->dtype);
	int64_t stride[KILN_MAX_RANK], index[KILN_MAX_RANK] = {0}, count = elements(problem);

	strides_of(problem, stride);
	for (int64_t i = 0; i < count; i++) {
		int64_t at = 0;
		for (int k = 0; k < problem->rank; k++)
			at += index[k] * stride[problem->perm[k]];
		memcpy(out + problem->y_offset + (size_t)i * size, in + problem->offset + (size_t)at * size,
			   size);
		for (int k = problem->rank - 1; k >= 0; k--) {
			if (++index[k] < problem->shape[problem->perm[k]])
				break;
			index[k] = 0;
		}
	}
}

void fill_random(uint8_t *bytes, uint64_t count, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
	for (uint64_t i = 0; i < count; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		bytes[i] = (uint8_t)(state >> 24);
	}
}

/* ---- One permute, checked ---- */

struct check {
	kiln_buffer *x, *y;
	kiln_call *call;
	uint8_t *in, *out, *expected;
};

static int check_run(kiln_client *client, const struct permute *problem, struct check *check)
{
	kiln_tensor tensors[] = {permute_input(problem, check->x), permute_output(problem, check->y)};
	const kiln_operand operands[] = {{check->x, problem->offset}, {check->y, problem->y_offset}};
	kiln_attr perm = perm_attr(problem);
	kiln_ticket ticket;
	int status = kiln_prepare(client, "permute", tensors, 2, &perm, 1, &check->call);

	if (!status)
		status = kiln_submit(check->call, operands, 2, 0, &ticket);
	return status ? status : kiln_wait(client, ticket, CALL_TIMEOUT_MS);
}

static int check_steps(kiln_client *client, const struct permute *problem, uint64_t seed,
					   struct check *check)
{
	uint64_t in_bytes = permute_input_bytes(problem), out_bytes = permute_output_bytes(problem);
	int status = kiln_alloc(client, in_bytes, 0, "x", &check->x);

	if (!status)
		status = kiln_alloc(client, out_bytes, 0, "y", &check->y);
	check->in = malloc(in_bytes + 1);
	check->out = malloc(out_bytes + 1);
	check->expected = calloc(1, out_bytes + 1); /* before y_offset memory stays as it was */
	if (!check->in || !check->out || !check->expected)
		return KILN_ENOMEM;
	fill_random(check->in, in_bytes, seed);
	permute_reference(problem, check->in, check->expected);
	if (!status && in_bytes)
		status = kiln_write(check->x, 0, check->in, in_bytes);
	if (!status)
		status = check_run(client, problem, check);
	if (!status && out_bytes)
		status = kiln_read(check->y, 0, check->out, out_bytes);
	return status;
}

int permute_check(kiln_client *client, const struct permute *problem, uint64_t seed,
				  char origin[16], char why[400])
{
	uint64_t out_bytes = permute_output_bytes(problem), at = 0;
	struct check check = {0};
	int status = check_steps(client, problem, seed, &check);

	if (status)
		snprintf(why, 400, "%s: %s", kiln_status_name(status), kiln_errmsg());
	while (!status && at < out_bytes && check.out[at] == check.expected[at])
		at++;
	if (!status && at < out_bytes) {
		status = KILN_EINTERNAL;
		snprintf(why, 400, "byte %llu is %02x and must be %02x; plan: %.200s",
				 (unsigned long long)at, check.out[at], check.expected[at],
				 kiln_call_plan(check.call));
	}
	if (!status && origin)
		snprintf(origin, 16, "%s", kiln_call_origin(check.call));
	kiln_call_free(check.call);
	kiln_free(check.x);
	kiln_free(check.y);
	free(check.in);
	free(check.out);
	free(check.expected);
	return status;
}

void assert_permutes(kiln_client *client, const struct permute *problem, const char *origin)
{
	char why[400], got[16];
	int status = permute_check(client, problem, 7, got, why);

	if (status)
		fail_msg("permute of rank %d, %s: %s", problem->rank, kiln_dtype_name(problem->dtype), why);
	if (origin)
		assert_string_equal(got, origin);
}
