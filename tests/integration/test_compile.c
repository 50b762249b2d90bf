/*
 * test_compile: one compile a key, whoever asks and however it ends: shared by those who wait,
 * stopped when nobody waits, ended at its deadline, tried again when its worker dies.
 */
#include "harness.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define CLIENTS 4

/* Between the test and its client processes. */
struct board {
	atomic_int connected;
	atomic_bool go;
	struct {
		int status;
		char origin[16], why[400];
	} ends[CLIENTS];
	struct permute problem;
};

static struct board *make_board(struct permute problem)
{
	struct board *board =
		mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(board != MAP_FAILED);
	board->problem = problem;
	return board;
}

struct seat {
	struct board *board;
	int index;
};

static int ask(const struct kilnd *daemon, void *arg)
{
	const struct seat *seat = arg;
	struct board *board = seat->board;
	int status, i = seat->index;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);

	if (!client)
		return 1;
	atomic_fetch_add(&board->connected, 1);
	while (!atomic_load(&board->go))
		pause_ms(1);
	board->ends[i].status =
		permute_check(client, &board->problem, 1, board->ends[i].origin, board->ends[i].why);
	kiln_close(client);
	return 0;
}

/* Lets four processes ask for the same kernel at once.  The compiler hangs until all have asked.
 * Then it is killed, and another tries once more, in vain if it is to fail. */
static void ask_together(struct kilnd *daemon, kiln_client *client, struct board *board, bool fails)
{
	struct seat seats[CLIENTS];
	pid_t pids[CLIENTS];
	int64_t end = now_ms() + CALL_TIMEOUT_MS;

	for (int i = 0; i < CLIENTS; i++) {
		seats[i] = (struct seat){board, i};
		pids[i] = process_start(daemon, ask, &seats[i]);
	}
	while (atomic_load(&board->connected) < CLIENTS && now_ms() < end)
		pause_ms(1);
	assert_int_equal(atomic_load(&board->connected), CLIENTS);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	debug_int(client, "hang-compile", "count", 1);
	atomic_store(&board->go, true);
	await_info(client, "busy.waiting", CLIENTS);
	await_info(client, "workers.busy", 1);
	debug_int(client, "fail-compile", "count", fails);
	debug_str(client, "kill", "role", "compiler");
	for (int i = 0; i < CLIENTS; i++)
		assert_int_equal(process_wait(pids[i], 2 * CALL_TIMEOUT_MS), EXITED(0));
}

static void test_single_flight(void **state)
{
	struct kilnd *daemon = *state;
	struct board *board = make_board(transpose(40, 56));
	int compiled = 0, shared = 0;
	kiln_client *client;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	ask_together(daemon, client, board, false);
	for (int i = 0; i < CLIENTS; i++) {
		if (board->ends[i].status)
			fail_msg("client %d: %s", i, board->ends[i].why);
		compiled += !strcmp(board->ends[i].origin, "compiled");
		shared += !strcmp(board->ends[i].origin, "shared");
	}
	assert_int_equal(compiled, 1);
	assert_int_equal(shared, CLIENTS - 1);
	assert_int_equal(info_int(client, "counters.compiles"), 1);
	assert_int_equal(info_int(client, "counters.shared"), CLIENTS - 1);
	assert_int_equal(info_int(client, "cache.rows"), 1);
	assert_counters_add_up(client);
	kiln_close(client);
	munmap(board, sizeof(*board));
	kilnd_stop(daemon);
}

static void test_failure_reaches_all(void **state)
{
	struct kilnd *daemon = *state;
	struct board *board = make_board(transpose(41, 57));
	kiln_client *client;
	char why[400];

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	ask_together(daemon, client, board, true);
	for (int i = 0; i < CLIENTS; i++) {
		assert_int_equal(board->ends[i].status, KILN_ECOMPILE);
		assert_string_equal(board->ends[i].why, board->ends[0].why);
	}
	assert_int_equal(info_int(client, "counters.failures"), CLIENTS);
	assert_int_equal(info_int(client, "counters.compiles"), 0);
	assert_int_equal(info_int(client, "cache.rows"), 0);
	/* And whoever comes later. */
	assert_int_equal(permute_check(client, &board->problem, 1, NULL, why), KILN_ECOMPILE);
	assert_string_equal(why, board->ends[0].why);
	assert_int_equal(info_int(client, "counters.remembered"), 1);
	assert_counters_add_up(client);
	kiln_close(client);
	munmap(board, sizeof(*board));
	kilnd_stop(daemon);
}

static void expect_failure(kiln_client *client, const struct permute *problem, int expected,
						   const char *word)
{
	char why[400];
	int status = permute_check(client, problem, 1, NULL, why);
	if (status != expected || !strstr(why, word))
		fail_msg("expected %s naming %s, got %s", kiln_status_name(expected), word, why);
}

static void test_deadline(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(42, 58), other = transpose(8, 100);
	kiln_client *client;
	int64_t start;

	kilnd_start(daemon, OPTIONS("--compile-timeout", "1000", "--test-retry-after", "0"));
	client = client_open(daemon);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	debug_int(client, "hang-compile", "count", 1);
	start = now_ms();
	expect_failure(client, &problem, KILN_ETIMEDOUT, "--compile-timeout");
	assert_true(now_ms() - start >= 900);
	assert_int_equal(info_int(client, "workers.killed"), 1);
	/* The next job has a worker, and so has the same job again.  A real compile may take longer. */
	debug_int(client, "fail-compile", "count", 2);
	expect_failure(client, &other, KILN_ECOMPILE, "failed on request");
	expect_failure(client, &problem, KILN_ECOMPILE, "failed on request");
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_crash(void **state)
{
	struct kilnd *daemon = *state;
	struct permute once = transpose(43, 59), twice = transpose(44, 60);
	kiln_client *client;
	int before;

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	assert_permutes(client, &(struct permute){KILN_U8, 2, {5, 6}, {1, 0}}, "compiled");
	before = count_fds(daemon->pid);
	/* One worker lost: the job is tried again.  Two: the compiler is what is wrong. */
	debug_int(client, "crash-compile", "count", 1);
	assert_permutes(client, &once, "compiled");
	debug_int(client, "crash-compile", "count", 2);
	expect_failure(client, &twice, KILN_ECOMPILE, "twice");
	assert_int_equal(info_int(client, "counters.worker_faults"), 3);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	assert_fds_at_most(daemon->pid, before);
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_last_waiter_gone(void **state)
{
	struct kilnd *daemon = *state;
	struct board *board = make_board(transpose(45, 61));
	struct seat seats[2] = {{board, 0}, {board, 1}};
	kiln_client *client;
	pid_t pids[2];

	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	debug_int(client, "hang-compile", "count", 1);
	atomic_store(&board->go, true);
	for (int i = 0; i < 2; i++)
		pids[i] = process_start(daemon, ask, &seats[i]);
	await_info(client, "workers.busy", 1);
	/* The readiness check, this client and the two; the second has written its data and asks next.
	 */
	await_info(client, "counters.sessions", 4);
	await_info(client, "counters.writes", 2);
	pause_ms(50);
	kill(pids[1], SIGKILL);
	assert_true(WIFSIGNALED(process_wait(pids[1], 5000)));
	/* The first one still waits, so the job goes on. */
	assert_int_equal(info_int(client, "workers.busy"), 1);
	assert_int_equal(info_int(client, "counters.canceled"), 0);
	kill(pids[0], SIGKILL);
	assert_true(WIFSIGNALED(process_wait(pids[0], 5000)));
	await_info(client, "counters.canceled", 1);
	await_info(client, "workers.busy", 0);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	assert_permutes(client, &board->problem, "compiled");
	assert_counters_add_up(client);
	kiln_close(client);
	munmap(board, sizeof(*board));
	kilnd_stop(daemon);
}

static void test_recycling(void **state)
{
	struct kilnd *daemon = *state;
	kiln_client *client;

	kilnd_start(daemon, OPTIONS("--workers", "1", "--test-worker-jobs", "2"));
	client = client_open(daemon);
	for (int i = 0; i < 5; i++) {
		struct permute problem = transpose(10 + i, 70 + i);
		assert_permutes(client, &problem, "compiled");
	}
	assert_int_equal(info_int(client, "workers.recycled"), 2);
	assert_int_equal(info_int(client, "workers.started"), 3);
	assert_int_equal(info_int(client, "counters.worker_faults"), 0);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* Kernels that do not compile: the compiler's own words reach the caller. */
static void test_broken_source(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(46, 62);
	const char *source = getenv("SOURCE_DIR");
	char command[512], kernels[96];
	kiln_client *client;

	if (!source)
		skip();
	snprintf(kernels, sizeof(kernels), "%s/kernels", daemon->dir);
	snprintf(command, sizeof(command),
			 "cp -r '%s/kernel_src' '%s' && for file in '%s'/ops/permute*.cuh; do "
			 "echo '#error broken on purpose' >>\"$file\"; done",
			 source, kernels, kernels);
	assert_int_equal(system(command), 0);
	kilnd_start(daemon, OPTIONS("--kernel-dir", kernels));
	client = client_open(daemon);
	expect_failure(client, &problem, KILN_ECOMPILE, "broken on purpose");
	assert_int_equal(info_int(client, "counters.failures"), 1);
	assert_int_equal(info_int(client, "counters.worker_faults"), 0);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_single_flight),    HARNESS_TEST(test_failure_reaches_all),
		HARNESS_TEST(test_deadline),         HARNESS_TEST(test_crash),
		HARNESS_TEST(test_last_waiter_gone), HARNESS_TEST(test_recycling),
		HARNESS_TEST(test_broken_source),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
