/*
 * test_freeze: programs for which nothing may be compiled: they are told at once, and what to run;
 * what they are told to run makes their kernel.
 */
#include "tests/ops/common/cases.h"
#include "harness.h"

#include <kiln/ops.h>

#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 8192
#define CASES 48

static kiln_client *open_with(const struct kilnd *daemon, const char *on_miss)
{
	kiln_connect_options options = {
		.size = sizeof(options),
		.socket = daemon->socket,
		.device = "cpu",
		.timeout_ms = CALL_TIMEOUT_MS,
		.on_miss = on_miss,
	};
	kiln_client *client = NULL;

	assert_ok(kiln_connect(&options, &client));
	return client;
}

/* The command of the last failure's sentence, or of its log. */
static void read_line(char line[LINE_MAX_BYTES])
{
	const char *found = strstr(kiln_errmsg(), "this makes it: ");

	if (!strstr(kiln_errmsg(), "(key ") || (!found && !kiln_errlog()[0]))
		fail_msg("no key or command in: %s", kiln_errmsg());
	snprintf(line, LINE_MAX_BYTES, "%s", found ? found + strlen("this makes it: ") : kiln_errlog());
	assert_int_equal(strncmp(line, "kiln compile ", 13), 0);
}

/* Runs it as a person would, in a directory; or asks with it, and does not compile. */
static void run_line(const struct kilnd *daemon, const char *line, bool explain, char *out,
					 size_t size)
{
	char command[LINE_MAX_BYTES + 600], path[300];

	snprintf(path, sizeof(path), "%s", getenv("KILN"));
	snprintf(command, sizeof(command),
			 "cd '%s' && PATH='%s':\"$PATH\" KILN_SOCKET='%s' KILN_DEVICE=cpu kiln %s %s --json",
			 daemon->dir, dirname(path), daemon->socket, explain ? "explain" : "compile",
			 line + strlen("kiln compile "));
	FILE *pipe = popen(command, "r");
	assert_non_null(pipe);
	size_t got = fread(out, 1, size - 1, pipe);
	out[got] = 0;
	if (pclose(pipe) != 0)
		fail_msg("%s failed: %s", line, out);
}

/* ---- The command ---- */

/* The key that the command asks for is the one that was missed. */
static void check_line(const struct kilnd *daemon, const char *name)
{
	char line[LINE_MAX_BYTES], key[13], wanted[24];
	static char out[1 << 16];
	const char *at = strstr(kiln_errmsg(), "(key ");

	read_line(line);
	snprintf(key, sizeof(key), "%s", at + 5);
	snprintf(wanted, sizeof(wanted), "\"%s", key);
	run_line(daemon, line, true, out, sizeof(out));
	if (!strstr(out, wanted))
		fail_msg("%s: %s is not %s", name, line, key);
}

/* Problems of all operators: strided, at odd addresses, with operands left out. */
static void test_lines(void **state)
{
	struct kilnd *daemon = *state;
	int checked = 0;

	kilnd_start(daemon, NULL);
	kiln_client *client = open_with(daemon, "error");
	for (uint64_t i = 0; i < CASES; i++) {
		struct cases_case c;
		kiln_tensor tensors[CASES_MAX_OPERANDS];
		kiln_attr attrs[CASES_MAX_ATTRS];
		kiln_call *call = NULL;
		cases_random(7, i, &c);
		cases_tensors(&c, tensors);
		cases_attrs(&c, attrs);
		int status =
			kiln_prepare(client, c.op->name, tensors, c.operand_count, attrs, c.attr_count, &call);
		if (status == KILN_OK) { /* a copy */
			assert_string_equal(kiln_call_origin(call), "copy");
			kiln_call_free(call);
			continue;
		}
		if (status != KILN_EFROZEN)
			fail_msg("%s: %s", c.name, kiln_errmsg());
		check_line(daemon, c.name);
		checked++;
	}
	assert_true(checked > CASES / 2);
	assert_int_equal(info_int(client, "counters.frozen"), checked);
	assert_int_equal(info_int(client, "counters.jobs"), 0);
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* Refused, made by what the sentence says, and then found. */
static void expect_made(const struct kilnd *daemon, kiln_client *client, const char *op,
						const kiln_tensor *tensors, int count, const kiln_attr *attrs,
						int attr_count)
{
	char line[LINE_MAX_BYTES], out[4096];
	kiln_call *call = NULL;

	assert_int_equal(kiln_prepare(client, op, tensors, count, attrs, attr_count, &call),
					 KILN_EFROZEN);
	read_line(line);
	run_line(daemon, line, false, out, sizeof(out));
	assert_non_null(strstr(out, "\"compiled\""));
	assert_ok(kiln_prepare(client, op, tensors, count, attrs, attr_count, &call));
	assert_string_equal(kiln_call_origin(call), "hit");
	kiln_call_free(call);
}

static void test_made(void **state)
{
	struct kilnd *daemon = *state;
	/* Operands in another order than the statement's, and a name in need of quotes. */
	const char *statement = "y[i] = x[i] * s + b[i]";
	const int64_t shape[1] = {37};
	kiln_tensor x = kiln_tensor_make(NULL, 0, KILN_F32, 1, shape);
	kiln_attr attrs[] = {string_attr("statement", statement),
						 string_attr("names", "b, x, y"),
						 {.name = "s", .kind = KILN_ATTR_REAL, .f = 2}};
	struct permute turned = transpose(9, 21);
	kiln_tensor tensors[2] = {permute_input(&turned, NULL), permute_output(&turned, NULL)};
	kiln_attr perm = perm_attr(&turned);

	kilnd_start(daemon, NULL);
	kiln_client *client = open_with(daemon, "error");
	expect_made(daemon, client, "map", (const kiln_tensor[]){x, x, x}, 3, attrs, 3);
	expect_made(daemon, client, "permute", tensors, 2, &perm, 1);
	assert_int_equal(info_int(client, "counters.frozen"), 2);
	assert_int_equal(info_int(client, "counters.compiles"), 2);
	assert_int_equal(info_int(client, "counters.lookups_frozen"), 2);
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void write_file(const struct kilnd *daemon, const char *name, const char *text)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/%s", daemon->dir, name);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static void test_made_raw(void **state)
{
	struct kilnd *daemon = *state;
	const char *source = "#include \"factor.h\"\n#include <stdint.h>\n"
						 "template <class T> __global__ void scale(T *x, int32_t n)\n"
						 "{ if ((int32_t)threadIdx.x < n) x[threadIdx.x] *= FACTOR + TEXT[0]; }\n";
	const kiln_text header = {"factor.h", "#define FACTOR 3\n", 0};
	const kiln_text macro = {"TEXT", "\"it's\"", 0};
	const char *const options[] = {"-std=c++20"};
	kiln_raw raw = {.size = sizeof(raw),
					.name = "scale it.cu",
					.source = source,
					.entry = "scale<float>",
					.headers = &header,
					.header_count = 1,
					.macros = &macro,
					.macro_count = 1,
					.options = options,
					.option_count = 1};
	char line[LINE_MAX_BYTES], out[8192];
	kiln_call *call = NULL;

	kilnd_start(daemon, NULL);
	write_file(daemon, "scale it.cu", source);
	write_file(daemon, "factor.h", header.text);
	kiln_client *client = open_with(daemon, "error");
	assert_int_equal(kiln_prepare_raw(client, &raw, &call), KILN_EFROZEN);
	read_line(line);
	run_line(daemon, line, false, out, sizeof(out));
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	assert_string_equal(kiln_call_origin(call), "hit");
	kiln_call_free(call);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A command that has no room in the sentence is in the log. */
static void test_long(void **state)
{
	struct kilnd *daemon = *state;
	char statement[1200] = "y[i] = x[i]", line[LINE_MAX_BYTES];
	const int64_t shape[1] = {5};
	kiln_tensor x = kiln_tensor_make(NULL, 0, KILN_F32, 1, shape);
	kiln_call *call = NULL;

	memset(statement + strlen(statement), ' ', 1000);
	memcpy(statement + 1000, "+ 1", 4);
	kiln_attr attrs[] = {string_attr("statement", statement), string_attr("names", "x,y")};
	kilnd_start(daemon, NULL);
	kiln_client *client = open_with(daemon, "error");
	assert_int_equal(kiln_prepare(client, "map", (const kiln_tensor[]){x, x}, 2, attrs, 2, &call),
					 KILN_EFROZEN);
	assert_sentence("the log has the command");
	assert_non_null(strstr(kiln_errlog(), statement));
	check_line(daemon, "a long statement");
	read_line(line);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Whom it is for ---- */

static int ask(kiln_client *client, const struct permute *problem, bool compile)
{
	kiln_tensor tensors[2] = {permute_input(problem, NULL), permute_output(problem, NULL)};
	kiln_attr perm = perm_attr(problem);
	kiln_call *call = NULL;
	kiln_reply *reply = NULL;
	int status = compile ? kiln_compile(client, "permute", tensors, 2, &perm, 1, NULL, &reply)
						 : kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call);

	kiln_call_free(call);
	kiln_reply_free(reply);
	return status;
}

/* The daemon's rule is the least strict that a session can have. */
static void test_floor(void **state)
{
	struct kilnd *daemon = *state;
	struct permute one = transpose(11, 23), other = transpose(13, 23);

	kilnd_start(daemon, OPTIONS("--on-miss", "error"));
	kiln_client *client = open_with(daemon, "compile");
	assert_int_equal(ask(client, &one, false), KILN_EFROZEN);
	assert_sentence("on-miss error");
	/* The owner's own request is no miss. */
	assert_ok(ask(client, &other, true));
	assert_ok(ask(client, &other, false));
	assert_int_equal(info_int(client, "counters.compiles"), 1);
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_warn(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(15, 23);
	char *log;

	kilnd_start(daemon, OPTIONS("--on-miss", "warn"));
	kiln_client *client = open_with(daemon, NULL);
	assert_ok(ask(client, &problem, false));
	assert_ok(ask(client, &problem, false));
	kilnd_await_log(daemon, "kiln compile permute --operand f32:15x23 --operand f32:23x15");
	log = kilnd_log(daemon);
	char *found = strstr(log, "has permute for cpu compiled (key ");
	assert_non_null(found);
	assert_null(strstr(found + 1, "has permute for cpu compiled"));
	free(log);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* There are hundreds of generic kernels: a busy machine may take long for all, not for one. */
static void await_warmed(kiln_client *client)
{
	int64_t failed = 0, end = 0;

	await_info_at_least(client, "tiers.failed", 1);
	while (info_int(client, "tiers.warming")) {
		int64_t now = info_int(client, "tiers.failed");
		if (now != failed)
			end = now_ms() + CALL_TIMEOUT_MS;
		failed = now;
		assert_in_range(now_ms(), 0, end);
		pause_ms(10);
	}
}

/* Neither is anything compiled from the start, where no program may have it. */
static void test_start(void **state)
{
	struct kilnd *daemon = *state;

	kilnd_start(daemon, OPTIONS("--on-miss", "fallback", "--specialize", "lazy",
								"--test-warm-generics", "all"));
	kiln_client *client = client_open(daemon);
	await_warmed(client);
	assert_int_equal(info_int(client, "tiers.failed"), info_int(client, "tiers.generics"));
	assert_int_equal(info_int(client, "counters.jobs"), 0);
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);
}

static int ask_alone(const struct kilnd *daemon, void *arg)
{
	int status;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);

	return client && ask(client, arg, false) == KILN_OK ? 0 : 1;
}

/* The generic kernel instead, if it is there; it is not compiled either. */
static void test_fallback(void **state)
{
	struct kilnd *daemon = *state;
	struct permute one = transpose(27, 23), other = transpose(29, 31);
	kiln_tensor tensors[2] = {permute_input(&other, NULL), permute_output(&other, NULL)};
	kiln_attr perm = perm_attr(&other);
	char line[LINE_MAX_BYTES], out[4096];
	kiln_call *call = NULL;

	kilnd_start(daemon, NULL);
	kiln_client *client = open_with(daemon, "fallback");
	assert_int_equal(ask(client, &one, false), KILN_EFROZEN);
	assert_sentence("--choice generic");
	read_line(line);
	run_line(daemon, line, false, out, sizeof(out));
	/* It is the same for other shapes. */
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call));
	assert_non_null(strstr(kiln_call_plan(call), "generic"));
	kiln_call_free(call);
	assert_ok(ask(client, &one, false));
	assert_int_equal(info_int(client, "counters.jobs"), 1);
	assert_counters_add_up(client);
	kiln_close(client);
	/* And nobody else's business. */
	client = open_with(daemon, "error");
	assert_int_equal(ask(client, &one, false), KILN_EFROZEN);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A client that may not wait for its own compile does not wait for another's. */
static void test_not_joined(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(17, 23);

	kilnd_start(daemon, OPTIONS("--workers", "1", "--test-liveness-timeout", "60000"));
	kiln_client *frozen = open_with(daemon, "error");
	await_info(frozen, "workers.idle", 1);
	pid_t compiler = compiler_process(frozen, "idle");
	process_stop(compiler);
	pid_t other = process_start(daemon, ask_alone, &problem);
	await_info(frozen, "busy.compiling", 1);
	assert_int_equal(ask(frozen, &problem, false), KILN_EFROZEN);
	assert_int_equal(info_int(frozen, "busy.compiling"), 1);
	assert_int_equal(kill(compiler, SIGCONT), 0);
	assert_int_equal(process_wait(other, CALL_TIMEOUT_MS), EXITED(0));
	assert_ok(ask(frozen, &problem, false));
	assert_counters_add_up(frozen);
	kiln_close(frozen);
	kilnd_stop(daemon);
}

/* A kernel that was there, and is in no cache when a new device process needs it. */
static void test_reload(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(19, 23);
	kiln_tensor tensors[2] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	kiln_call *call = NULL;
	kiln_ticket ticket;

	kilnd_start(daemon, NULL);
	kiln_client *client = open_with(daemon, "error");
	kiln_operand operands[2] = {{0}};
	for (int i = 0; i < 2; i++)
		assert_ok(kiln_alloc(client, 19 * 23 * 4, KILN_BUFFER_SHARED, NULL, &operands[i].buffer));
	assert_ok(ask(client, &problem, true));
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call));
	cache_clear(client, NULL);
	debug_str(client, "expire", NULL, NULL);
	debug_str(client, "kill", "role", "executor");
	await_info(client, "counters.executor_faults", 1);
	assert_ok(kiln_submit(call, operands, 2, 0, &ticket));
	assert_int_equal(kiln_wait(client, ticket, CALL_TIMEOUT_MS), KILN_EFROZEN);
	assert_sentence("kiln compile permute ");
	assert_counters_add_up(client);
	for (int i = 0; i < 2; i++)
		kiln_free(operands[i].buffer);
	kiln_call_free(call);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_words(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(25, 23);
	kiln_connect_options options = {
		.size = sizeof(options), .socket = daemon->socket, .device = "cpu", .on_miss = "never"};
	kiln_client *client = NULL;

	kilnd_start(daemon, NULL);
	assert_int_equal(kiln_connect(&options, &client), KILN_EINVAL);
	assert_sentence("on_miss is \"never\"; it may be compile, warn, fallback or error");
	/* A program that was built before there was such an option. */
	options.size = offsetof(kiln_connect_options, on_miss);
	assert_ok(kiln_connect(&options, &client));
	kiln_close(client);
	options.size -= 1;
	assert_int_equal(kiln_connect(&options, &client), KILN_EINVAL);
	/* The environment says it for programs that do not. */
	setenv("KILN_CLIENT_ON_MISS", "error", 1);
	client = open_with(daemon, NULL);
	unsetenv("KILN_CLIENT_ON_MISS");
	assert_int_equal(ask(client, &problem, false), KILN_EFROZEN);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_lines),    HARNESS_TEST(test_made),  HARNESS_TEST(test_made_raw),
		HARNESS_TEST(test_long),     HARNESS_TEST(test_floor), HARNESS_TEST(test_warn),
		HARNESS_TEST(test_fallback), HARNESS_TEST(test_start), HARNESS_TEST(test_not_joined),
		HARNESS_TEST(test_reload),   HARNESS_TEST(test_words),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
