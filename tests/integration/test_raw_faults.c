/*
 * test_raw_faults: users' kernels that go wrong, and the process of their own that they go wrong
 * in: what each of them ends in, what survives, and that nobody else hears of it.
 */
#include "workload.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORDS 1024
#define BYTES (WORDS * sizeof(uint32_t))
#define DEADLINE_MS 300

static const char source[] = "__global__ void add(unsigned *x, unsigned n)\n"
							 "{\n"
							 "	x[threadIdx.x] += n;\n"
							 "}\n"
							 "__global__ void beyond(unsigned *x)\n"
							 "{\n"
							 "	x[threadIdx.x] = 1;\n"
							 "	if (threadIdx.x == 7)\n"
							 "		x[1024 + 16] = 2;\n"
							 "}\n"
							 "__global__ void endless(volatile unsigned *x)\n"
							 "{\n"
							 "	while (x[0] != 123456789)\n"
							 "		;\n"
							 "}\n";

struct user {
	kiln_client *client;
	kiln_call *add, *beyond, *endless;
	kiln_raw_arg args[2];
	kiln_launch launch;
	uint32_t n;
};

static kiln_call *prepare(kiln_client *client, const char *entry)
{
	kiln_raw raw = {.size = sizeof(raw), .name = "mine.cu", .source = source, .entry = entry};
	kiln_call *call;
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	return call;
}

static void user_open(struct user *user, const struct kilnd *daemon)
{
	user->client = client_open(daemon);
	user->add = prepare(user->client, "add");
	user->beyond = prepare(user->client, "beyond");
	user->endless = prepare(user->client, "endless");
	user->n = 1;
	user->args[1] = (kiln_raw_arg){.value = &user->n, .bytes = sizeof(user->n)};
	user->launch = (kiln_launch){.size = sizeof(kiln_launch), .block = {WORDS}, .args = user->args};
}

static void user_close(struct user *user)
{
	kiln_call_free(user->add);
	kiln_call_free(user->beyond);
	kiln_call_free(user->endless);
	kiln_close(user->client);
}

static kiln_ticket submit(struct user *user, kiln_call *call, kiln_buffer *buffer)
{
	kiln_ticket ticket;
	user->args[0] = (kiln_raw_arg){.buffer = buffer};
	user->launch.arg_count = call == user->add ? 2 : 1;
	user->launch.timeout_ms = call == user->endless ? DEADLINE_MS : 0;
	assert_ok(kiln_submit_raw(call, &user->launch, 0, &ticket));
	return ticket;
}

static int run(struct user *user, kiln_call *call, kiln_buffer *buffer)
{
	return kiln_wait(user->client, submit(user, call, buffer), CALL_TIMEOUT_MS);
}

static void assert_words(kiln_buffer *buffer, uint32_t expected)
{
	uint32_t words[WORDS];
	assert_ok(kiln_read(buffer, 0, words, BYTES));
	for (int i = 0; i < WORDS; i++)
		assert_int_equal(words[i], expected);
}

/* ---- Nobody else hears of it ---- */

static void test_others_go_on(void **state)
{
	struct kilnd *daemon = *state;
	struct workload *workload = workload_new();
	pid_t pids[WORKLOAD_CLIENTS];
	struct user user;
	kiln_buffer *x;
	int rounds = 0;

	kilnd_start(daemon, NULL);
	user_open(&user, daemon);
	assert_ok(kiln_alloc(user.client, BYTES, 0, "x", &x));
	workload_start(daemon, workload, pids);
	workload_await(workload, 1);
	do {
		kiln_raw wrong = {
			.size = sizeof(wrong), .source = "__global__ void k() { x = 1; }", .entry = "k"};
		kiln_call *none;
		assert_int_equal(run(&user, user.beyond, x), KILN_EDEVICE);
		assert_sentence("kernel beyond of mine.cu");
		assert_sentence("thread (7,0,0): writes beyond the end of argument 0, at byte ");
		assert_int_equal(run(&user, user.endless, x), KILN_ETIMEDOUT);
		assert_sentence("kernel endless of mine.cu");
		assert_sentence("300 ms");
		assert_int_equal(kiln_prepare_raw(user.client, &wrong, &none), KILN_ECOMPILE);
		assert_sentence("raw.cu:1:");
		rounds++;
	} while (workload_done(workload) < WORKLOAD_CLIENTS * WORKLOAD_CALLS / 2);
	/* All their calls went well: no status was allowed but success. */
	workload_join(workload, pids, -1);
	assert_int_equal(info_int(user.client, "counters.executor_faults"), 2 * rounds);
	assert_int_equal(info_int(user.client, "executors[0].restarts"), 0);
	assert_int_equal(info_int(user.client, "executors[0].session"), 0);
	assert_int_equal(info_int(user.client, "executors[1].restarts"), 2 * rounds);
	assert_true(info_int(user.client, "executors[1].session") > 0);
	kiln_free(x);
	user_close(&user);
	workload_free(workload);
	kilnd_stop(daemon);
}

/* ---- Memory ---- */

static void test_memory_survives(void **state)
{
	struct kilnd *daemon = *state;
	struct user user;
	uint32_t words[WORDS] = {0};
	kiln_buffer *held, *shared, *lent, *unused;
	int fd = memfd_create("lent", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0 && ftruncate(fd, BYTES) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	kilnd_start(daemon, NULL);
	user_open(&user, daemon);
	assert_ok(kiln_alloc(user.client, BYTES, 0, "held", &held));
	assert_ok(kiln_alloc(user.client, BYTES, KILN_BUFFER_SHARED, "shared", &shared));
	assert_ok(kiln_lend_fd(user.client, fd, 0, BYTES, "lent", &lent));
	assert_ok(kiln_alloc(user.client, BYTES, 0, "unused", &unused));
	memset(words, 1, sizeof(words));
	kiln_buffer *all[] = {held, shared, lent};
	for (int i = 0; i < 3; i++) {
		assert_ok(kiln_write(all[i], 0, words, BYTES));
		assert_ok(run(&user, user.add, all[i]));
		assert_words(all[i], 0x01010102);
	}
	/* A fault in the session's own process touches only what it wrote. */
	assert_int_equal(run(&user, user.beyond, held), KILN_EDEVICE);
	for (int i = 1; i < 3; i++) {
		assert_words(all[i], 0x01010102);
		assert_ok(run(&user, user.add, all[i]));
		assert_words(all[i], 0x01010103);
	}
	assert_words(unused, 0);
	/* Memory that two processes share outlives one of them; memory of one alone does not. */
	assert_ok(kiln_write(held, 0, words, BYTES));
	kill(device_process(user.client, 0), SIGKILL);
	await_info(user.client, "executors[0].restarts", 1);
	assert_ok(run(&user, user.add, held));
	assert_words(held, 0x01010102);
	assert_int_equal(kiln_read(unused, 0, words, BYTES), KILN_ELOST);
	assert_int_equal(run(&user, user.add, unused), KILN_ELOST);
	assert_sentence("unused");
	/* A kernel that only writes all of it brings it back. */
	user.args[0] = (kiln_raw_arg){.buffer = unused, .access = KILN_WRITE};
	kiln_ticket ticket;
	user.launch.arg_count = 2;
	assert_ok(kiln_submit_raw(user.add, &user.launch, 0, &ticket));
	assert_ok(kiln_wait(user.client, ticket, CALL_TIMEOUT_MS));
	assert_words(unused, 1);
	for (int i = 0; i < 3; i++)
		kiln_free(all[i]);
	kiln_free(unused);
	/* No buffer is left in either process. */
	await_info(user.client, "executors[0].buffers", 0);
	await_info(user.client, "executors[1].buffers", 0);
	assert_shared_maps_at_most(device_process(user.client, 1), 0);
	close(fd);
	user_close(&user);
	kilnd_stop(daemon);
}

/* ---- Order ---- */

/* x is turned by an operator between additions by kernels, and nothing is waited for. */
static void test_order_over_both_processes(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(32, 32);
	const kiln_attr perm = perm_attr(&problem);
	uint8_t in[BYTES], expected[BYTES], out[BYTES];
	kiln_ticket tickets[10];
	struct user user;
	kiln_call *turn;
	kiln_buffer *x, *y;

	kilnd_start(daemon, NULL);
	user_open(&user, daemon);
	assert_ok(kiln_alloc(user.client, BYTES, 0, "x", &x));
	assert_ok(kiln_alloc(user.client, BYTES, 0, "y", &y));
	kiln_tensor tensors[] = {permute_input(&problem, x), permute_output(&problem, y)};
	const kiln_operand operands[2][2] = {{{x, 0}, {y, 0}}, {{y, 0}, {x, 0}}};
	assert_ok(kiln_prepare(user.client, "permute", tensors, 2, &perm, 1, &turn));
	fill_random(in, BYTES, 5);
	assert_ok(kiln_write(x, 0, in, BYTES));
	for (int i = 0; i < 5; i++) {
		kiln_buffer *to = i % 2 ? x : y;
		assert_ok(kiln_submit(turn, operands[i % 2], 2, 0, &tickets[2 * i]));
		tickets[2 * i + 1] = submit(&user, user.add, to);
	}
	for (int i = 9; i >= 0; i--)
		assert_ok(kiln_wait(user.client, tickets[i], CALL_TIMEOUT_MS));
	permute_reference(&problem, in, expected);
	assert_ok(kiln_read(y, 0, out, BYTES));
	for (int i = 0; i < WORDS; i++) {
		uint32_t before, after;
		memcpy(&before, expected + 4 * i, 4);
		memcpy(&after, out + 4 * i, 4);
		assert_int_equal(after, (uint32_t)(before + 5));
	}
	/* A call after a kernel that fails is not run; calls sent with it end with its process. */
	tickets[0] = submit(&user, user.endless, x);
	tickets[1] = submit(&user, user.add, x);
	assert_ok(kiln_submit(turn, operands[0], 2, tickets[0], &tickets[2]));
	assert_ok(kiln_submit(turn, operands[0], 2, 0, &tickets[3]));
	assert_int_equal(kiln_wait(user.client, tickets[0], CALL_TIMEOUT_MS), KILN_ETIMEDOUT);
	assert_int_equal(kiln_wait(user.client, tickets[1], CALL_TIMEOUT_MS), KILN_EDEVICE);
	assert_int_equal(kiln_wait(user.client, tickets[2], CALL_TIMEOUT_MS), KILN_ECANCELED);
	assert_ok(kiln_wait(user.client, tickets[3], CALL_TIMEOUT_MS));
	kiln_call_free(turn);
	kiln_free(x);
	kiln_free(y);
	user_close(&user);
	kilnd_stop(daemon);
}

static void test_a_queued_launch_is_canceled(void **state)
{
	struct kilnd *daemon = *state;
	struct user user;
	kiln_buffer *x;

	kilnd_start(daemon, OPTIONS("--test-requests"));
	user_open(&user, daemon);
	assert_ok(kiln_alloc(user.client, BYTES, 0, "x", &x));
	debug_int(user.client, "delay-launch", "ms", 10000);
	kiln_ticket slow = submit(&user, user.add, x);
	assert_ok(kiln_cancel(user.client, slow));
	assert_int_equal(kiln_wait(user.client, slow, CALL_TIMEOUT_MS), KILN_ECANCELED);
	debug_int(user.client, "delay-launch", "ms", 0);
	assert_words(x, 0);
	assert_ok(run(&user, user.add, x));
	assert_words(x, 1);
	kiln_free(x);
	user_close(&user);
	kilnd_stop(daemon);
}

/* A load may end the process, too: the client is told once, and nobody tries for ever. */
static void test_a_kernel_that_cannot_be_loaded(void **state)
{
	struct kilnd *daemon = *state;
	const kiln_raw raw = {.size = sizeof(raw),
						  .name = "boom.cu",
						  .source = "struct boom { boom() { *(volatile int *)8 = 1; } } b;\n"
									"__global__ void k() {}\n",
						  .entry = "k"};
	struct user user;
	kiln_buffer *x;
	kiln_call *call;

	kilnd_start(daemon, NULL);
	user_open(&user, daemon);
	assert_int_equal(kiln_prepare_raw(user.client, &raw, &call), KILN_EDEVICE);
	assert_sentence("kernel k of boom.cu cannot be loaded");
	assert_sentence("signal 11");
	await_info(user.client, "executors[1].restarts", 1);
	assert_ok(kiln_alloc(user.client, BYTES, 0, "x", &x));
	assert_ok(run(&user, user.add, x));
	assert_words(x, 1);
	assert_int_equal(info_int(user.client, "executors[1].restarts"), 1);
	kiln_free(x);
	user_close(&user);
	kilnd_stop(daemon);
}

/* ---- The processes ---- */

static int count_executors(kiln_client *client)
{
	kiln_reply *reply;
	assert_ok(kiln_request(client, "info", NULL, 0, &reply));
	int count = kiln_reply_count(reply, "executors");
	kiln_reply_free(reply);
	return count;
}

static void test_a_process_for_each_session(void **state)
{
	struct kilnd *daemon = *state;
	const kiln_raw raw = {.size = sizeof(raw), .name = "mine.cu", .source = source, .entry = "add"};
	struct user users[2];
	kiln_call *call;
	int64_t end = now_ms() + CALL_TIMEOUT_MS;

	kilnd_start(daemon, OPTIONS("--max-own", "2"));
	kiln_client *client = client_open(daemon);
	assert_int_equal(count_executors(client), 1);
	for (int i = 0; i < 2; i++)
		user_open(&users[i], daemon);
	assert_int_equal(count_executors(client), 3);
	assert_int_equal(kiln_prepare_raw(client, &raw, &call), KILN_ELIMIT);
	assert_sentence("--max-own");
	/* Compiling needs none. */
	kiln_reply *reply;
	assert_ok(kiln_compile_raw(client, &raw, "cpu", &reply));
	assert_string_equal(kiln_reply_str(reply, "origin"), "hit");
	kiln_reply_free(reply);
	user_close(&users[0]);
	while (count_executors(client) > 2 && now_ms() < end)
		pause_ms(1);
	assert_ok(kiln_prepare_raw(client, &raw, &call));
	kiln_call_free(call);
	user_close(&users[1]);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* A client that goes away in the middle leaves nothing behind; the harness looks for processes. */
static void test_gone_in_the_middle(void **state)
{
	struct kilnd *daemon = *state;
	struct user user;
	kiln_buffer *x;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	user_open(&user, daemon);
	assert_ok(kiln_alloc(user.client, BYTES, 0, "x", &x));
	submit(&user, user.endless, x);
	submit(&user, user.add, x);
	user_close(&user);
	await_info(client, "server.sessions", 1);
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (count_executors(client) > 1 && now_ms() < end)
		pause_ms(1);
	assert_int_equal(count_executors(client), 1);
	await_info(client, "executors[0].buffers", 0);
	kiln_free(x);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* One that becomes the process; then one that waits for it, and has something to say at its end. */
static void test_wrapper(void **state)
{
	struct kilnd *daemon = *state;
	const char *const environment[] = {"KILN_EXECUTOR_WRAPPER=env  KILN_WRAPPED=yes", NULL};
	char path[64], text[8192];
	struct user user;
	kiln_buffer *x;

	kilnd_spawn(daemon, NULL, environment, -1);
	kilnd_await(daemon);
	user_open(&user, daemon);
	for (int i = 0; i < 2; i++) {
		char member[40];
		snprintf(member, sizeof(member), "executors[%d].pid", i);
		snprintf(path, sizeof(path), "/proc/%d/environ", (int)info_int(user.client, member));
		FILE *file = fopen(path, "r");
		assert_non_null(file);
		size_t bytes = fread(text, 1, sizeof(text), file);
		fclose(file);
		assert_non_null(memmem(text, bytes, "KILN_WRAPPED=yes", 16));
	}
	user_close(&user);
	kilnd_stop(daemon);

	char script[128], said[128], command[192];
	snprintf(script, sizeof(script), "%s/wrapper", daemon->dir);
	snprintf(said, sizeof(said), "%s/said", daemon->dir);
	FILE *file = fopen(script, "w");
	assert_non_null(file);
	fprintf(file, "\"$@\"\necho \"status $?\" >>%s\n", said);
	fclose(file);
	snprintf(command, sizeof(command), "sh %s", script);
	kilnd_start(daemon, OPTIONS("--executor-wrapper", command));
	user_open(&user, daemon);
	assert_ok(kiln_alloc(user.client, BYTES, 0, "x", &x));
	assert_ok(run(&user, user.add, x));
	assert_words(x, 1);
	assert_int_equal(run(&user, user.beyond, x), KILN_EDEVICE);
	kiln_free(x);
	user_close(&user);
	kilnd_stop(daemon);
	/* A fault, and the ends of two processes that were sent away. */
	file = fopen(said, "r");
	assert_non_null(file);
	size_t bytes = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[bytes] = 0;
	assert_string_equal(text, "status 4\nstatus 0\nstatus 0\n");
}

/* ---- Long texts, which the daemon lets go when they are compiled ---- */

static void test_long_texts_are_let_go(void **state)
{
	static char header[(600 << 10) + 1];
	const kiln_text texts[] = {{"empty.h", "", 0}, {"long.h", header, 0}};
	struct kilnd *daemon = *state;
	kiln_raw raw = {.size = sizeof(raw),
					.name = "long.cu",
					.source = "#include \"long.h\"\n__global__ void add(unsigned *x, unsigned n)\n"
							  "{\n\tx[threadIdx.x] += BY * n;\n}\n",
					.entry = "add",
					.headers = texts,
					.header_count = 2};
	struct user user;
	kiln_buffer *x;
	int64_t freed;

	memset(header, '\n', sizeof(header) - 1);
	memcpy(header, "#define BY 3", 12);
	kilnd_start(daemon, NULL);
	user_open(&user, daemon);
	kiln_call_free(user.add);
	assert_ok(kiln_prepare_raw(user.client, &raw, &user.add));
	assert_ok(kiln_alloc(user.client, BYTES, 0, "x", &x));
	assert_ok(run(&user, user.add, x));
	/* A new process takes the kernel from the cache. */
	assert_int_equal(run(&user, user.endless, x), KILN_ETIMEDOUT);
	assert_ok(run(&user, user.add, x));
	assert_true(cache_clear(user.client, &freed) > 0);
	assert_int_equal(run(&user, user.endless, x), KILN_ETIMEDOUT);
	assert_int_equal(run(&user, user.add, x), KILN_ENOENT);
	assert_sentence("its texts were let go when it had been compiled: prepare it again");
	kiln_call_free(user.add);
	assert_ok(kiln_prepare_raw(user.client, &raw, &user.add));
	assert_string_equal(kiln_call_origin(user.add), "compiled");
	assert_ok(run(&user, user.add, x));
	assert_words(x, 9);
	kiln_free(x);
	user_close(&user);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_others_go_on),
		HARNESS_TEST(test_long_texts_are_let_go),
		HARNESS_TEST(test_memory_survives),
		HARNESS_TEST(test_order_over_both_processes),
		HARNESS_TEST(test_a_queued_launch_is_canceled),
		HARNESS_TEST(test_a_kernel_that_cannot_be_loaded),
		HARNESS_TEST(test_a_process_for_each_session),
		HARNESS_TEST(test_gone_in_the_middle),
		HARNESS_TEST(test_wrapper),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
