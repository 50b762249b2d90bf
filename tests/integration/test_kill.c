/*
 * test_kill: SIGKILL to each kind of process in the middle of work.  A survivor finishes or gets a
 * clear error without waiting for a deadline, nothing is left over, and the next run works.
 */
#include "fault_scene.h"
#include "peer.h"
#include "workload.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Longer than any of them: a death is heard of, and nobody waits until a deadline has passed. */
#define DEADLINES "600000"
#define PATIENT OPTIONS("--test-liveness-timeout", DEADLINES, "--launch-timeout", DEADLINES)
#define GRACE_MS STOP_TIMEOUT_MS

/* After whatever happened: the daemon works, its cache is sound, and it holds what it held before.
 */
static void assert_sound(struct kilnd *daemon, kiln_client *client, int fds)
{
	struct permute problem = transpose(33, 77);

	assert_permutes(client, &problem, NULL);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	await_info(client, "server.sessions", 1);
	assert_counters_add_up(client);
	assert_cache_verifies(client, 1);
	assert_fds_at_most(daemon->pid, fds);
}

static int settle(struct kilnd *daemon, kiln_client *client)
{
	struct permute problem = transpose(34, 78);
	assert_permutes(client, &problem, NULL);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	return count_fds(daemon->pid);
}

/* A daemon, clients of which workload_start() makes it busy, and what it held before that. */
struct busy {
	struct kilnd *daemon;
	struct workload *workload;
	pid_t pids[WORKLOAD_CLIENTS];
	kiln_client *client;
	int fds;
};

static void busy_open(struct kilnd *daemon, struct busy *busy)
{
	kilnd_start(daemon, PATIENT);
	*busy =
		(struct busy){.daemon = daemon, .workload = workload_new(), .client = client_open(daemon)};
	busy->fds = settle(daemon, busy->client);
}

static void busy_close(struct busy *busy)
{
	assert_sound(busy->daemon, busy->client, busy->fds);
	kiln_close(busy->client);
	workload_free(busy->workload);
	kilnd_stop(busy->daemon);
}

static void test_executor(void **state)
{
	struct busy busy;
	int64_t killed = 0;

	busy_open(*state, &busy);
	busy.workload->allowed[0] = KILN_EDEVICE;
	busy.workload->allowed[1] = KILN_ELOST;
	workload_start(busy.daemon, busy.workload, busy.pids);
	for (int i = 1; i <= 3; i++) {
		workload_await(busy.workload, 150 * i);
		killed = now_ms();
		kill(device_process(busy.client, 0), SIGKILL);
		await_info_at_least(busy.client, "executors[0].restarts", i);
	}
	workload_join(busy.workload, busy.pids, -1);
	for (int i = 0; i < WORKLOAD_CLIENTS; i++) {
		assert_int_equal(atomic_load(&busy.workload->ends[i].done), WORKLOAD_CALLS);
		if (busy.workload->ends[i].latest_failure > killed + GRACE_MS)
			fail_msg("client %d failed %lld ms after the kill: %s", i,
					 (long long)(busy.workload->ends[i].latest_failure - killed),
					 busy.workload->ends[i].why);
	}
	assert_int_equal(info_int(busy.client, "counters.executor_faults"), 3);
	busy_close(&busy);
}

/* A worker is only a compile tried again: no client sees it.  A compile that is killed twice is an
 * error, so the compiles that the last kill may have hit end before the next kill. */
static void test_worker(void **state)
{
	struct busy busy;

	busy_open(*state, &busy);
	workload_start(busy.daemon, busy.workload, busy.pids);
	for (int i = 1; i <= 3; i++) {
		workload_await(busy.workload, 5 * i);
		kill(compiler_process(busy.client, NULL), SIGKILL);
		await_info_at_least(busy.client, "counters.worker_faults", i);
		workload_await_round(busy.workload);
	}
	workload_join(busy.workload, busy.pids, -1);
	assert_int_equal(info_int(busy.client, "counters.failures"), 0);
	assert_int_equal(info_int(busy.client, "counters.compiles"),
					 info_int(busy.client, "cache.rows"));
	busy_close(&busy);
}

static int permute_once(const struct kilnd *daemon, void *arg)
{
	struct permute problem = transpose(7, 9);
	char origin[16], why[400];
	int status;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);

	(void)arg;
	if (client)
		status = permute_check(client, &problem, 1, origin, why);
	kiln_close(client);
	return status ? 1 : 0;
}

/* Makes a compiler that says nothing before there is a file "go" beside it. */
static void make_held_compiler(const struct kilnd *daemon, char variable[128], char go[80])
{
	char path[80];

	snprintf(path, sizeof(path), "%s/g++", daemon->dir);
	snprintf(go, 80, "%s/go", daemon->dir);
	snprintf(variable, 128, "KILN_CXX=%s", path);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "#!/bin/sh\nwhile [ ! -e %s ]; do sleep 0.02; done\nexec g++ \"$@\"\n", go);
	fclose(file);
	assert_int_equal(chmod(path, 0700), 0);
}

/* The first of a daemon, of which it learns what compilers there are: who waits for that waits for
 * the next. */
static void test_first_worker(void **state)
{
	struct kilnd *daemon = *state;
	kiln_connect_options options = {
		.size = sizeof(options), .socket = daemon->socket, .device = "none", .timeout_ms = 20000};
	kiln_client *watcher = NULL;
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	char variable[128], go[80];

	make_held_compiler(daemon, variable, go);
	kilnd_spawn(daemon, OPTIONS("--workers", "1"), (const char *const[]){variable, NULL}, -1);
	while (kiln_connect(&options, &watcher) && now_ms() < end)
		pause_ms(1);
	pid_t waiting = process_start(daemon, permute_once, NULL);
	await_info_at_least(watcher, "busy.waiting", 1);
	for (int i = 1; i <= 2; i++) {
		await_info(watcher, "workers.starting", 1);
		kill(compiler_process(watcher, "starting"), SIGKILL);
		await_info(watcher, "counters.worker_faults", i);
	}
	close(creat(go, 0600));
	assert_int_equal(process_wait(waiting, CALL_TIMEOUT_MS), 0);
	assert_int_equal(info_int(watcher, "counters.failures"), 0);
	kiln_close(watcher);
	kilnd_stop(daemon);
}

static void test_client(void **state)
{
	struct busy busy;

	busy_open(*state, &busy);
	workload_start(busy.daemon, busy.workload, busy.pids);
	workload_await(busy.workload, 100);
	kill(busy.pids[2], SIGKILL);
	workload_join(busy.workload, busy.pids, 2);
	for (int i = 0; i < WORKLOAD_CLIENTS; i++)
		if (i != 2)
			assert_int_equal(atomic_load(&busy.workload->ends[i].done), WORKLOAD_CALLS);
	assert_true(atomic_load(&busy.workload->ends[2].done) < WORKLOAD_CALLS);
	busy_close(&busy);
}

static void test_broker(void **state)
{
	struct kilnd *daemon = *state;
	struct workload *workload = workload_new();
	pid_t pids[WORKLOAD_CLIENTS];
	kiln_client *client;
	int64_t killed;
	int rows;

	kilnd_start(daemon, PATIENT);
	workload->allowed[0] = KILN_ECONN;
	workload->ends_on_failure = true;
	workload_start(daemon, workload, pids);
	workload_await(workload, 100);
	killed = now_ms();
	kill(daemon->pid, SIGKILL);
	assert_true(WIFSIGNALED(kilnd_wait(daemon, GRACE_MS)));
	workload_join(workload, pids, -1);
	for (int i = 0; i < WORKLOAD_CLIENTS; i++) {
		assert_int_equal(workload->ends[i].last_status, KILN_ECONN);
		if (workload->ends[i].latest_failure > killed + GRACE_MS)
			fail_msg("client %d waited %lld ms", i,
					 (long long)(workload->ends[i].latest_failure - killed));
	}
	/* Its children went with it. */
	assert_no_children();
	assert_int_equal(access(daemon->socket, F_OK), 0);

	/* The next one takes the socket over, and the cache is sound and of use. */
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	rows = (int)info_int(client, "cache.rows");
	assert_true(rows > 0);
	assert_cache_verifies(client, rows);
	memset(workload, 0, sizeof(*workload));
	workload_start(daemon, workload, pids);
	workload_join(workload, pids, -1);
	assert_int_equal(info_int(client, "counters.failures"), 0);
	assert_int_equal(info_int(client, "counters.compiles") + rows, info_int(client, "cache.rows"));
	kiln_close(client);
	workload_free(workload);
	kilnd_stop(daemon);
}

/* ---- What becomes of buffers and calls ---- */

#define MANY 64

static int hold_buffers(const struct kilnd *daemon, void *arg)
{
	atomic_int *held = arg;
	int status;
	kiln_client *client = client_try(daemon, CALL_TIMEOUT_MS, &status);

	for (int i = 0; client && i < MANY; i++) {
		kiln_buffer *buffer;
		if (kiln_alloc(client, 8192, i % 2 ? KILN_BUFFER_SHARED : 0, "mine", &buffer))
			return 1;
		atomic_fetch_add(held, 1);
	}
	for (;;)
		pause();
}

static void test_buffers_of_the_dead(void **state)
{
	struct kilnd *daemon = *state;
	atomic_int *held =
		mmap(NULL, sizeof(*held), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	kiln_client *client;
	int fds, maps;
	pid_t executor, pid;

	assert_true(held != MAP_FAILED);
	kilnd_start(daemon, NULL);
	client = client_open(daemon);
	fds = settle(daemon, client);
	executor = device_process(client, 0);
	maps = count_shared_maps(executor);
	pid = process_start(daemon, hold_buffers, held);
	while (atomic_load(held) < MANY && now_ms() < end)
		pause_ms(1);
	assert_int_equal(atomic_load(held), MANY);
	assert_true(count_shared_maps(executor) >= maps + MANY / 2);
	kill(pid, SIGKILL);
	assert_true(WIFSIGNALED(process_wait(pid, 5000)));
	assert_shared_maps_at_most(executor, maps);
	await_info(client, "server.sessions", 1);
	assert_fds_at_most(daemon->pid, fds);
	munmap(held, sizeof(*held));
	kiln_close(client);
	kilnd_stop(daemon);
}

struct bench {
	kiln_client *client;
	struct permute problem;
	uint8_t in[4096], expected[4096], out[4096];
	kiln_operand operands[2];
	kiln_call *call;
};

static void bench_open(struct bench *bench, kiln_buffer *x, kiln_buffer *y)
{
	kiln_tensor tensors[2];
	kiln_attr perm;

	bench->problem = transpose(32, 32);
	bench->operands[0].buffer = x;
	bench->operands[1].buffer = y;
	tensors[0] = permute_input(&bench->problem, x);
	tensors[1] = permute_output(&bench->problem, y);
	perm = perm_attr(&bench->problem);
	fill_random(bench->in, 4096, 3);
	permute_reference(&bench->problem, bench->in, bench->expected);
	if (kiln_prepare(bench->client, "permute", tensors, 2, &perm, 1, &bench->call))
		fail_msg("prepare: %s", kiln_errmsg());
}

static int bench_run(struct bench *bench)
{
	kiln_ticket ticket;
	int status = kiln_submit(bench->call, bench->operands, 2, 0, &ticket);
	return status ? status : kiln_wait(bench->client, ticket, CALL_TIMEOUT_MS);
}

static void kill_executor(kiln_client *client, int64_t restarts)
{
	kill(device_process(client, 0), SIGKILL);
	await_info(client, "executors[0].restarts", restarts);
}

static void test_held_buffers_are_lost(void **state)
{
	struct kilnd *daemon = *state;
	struct bench bench = {0};
	kiln_buffer *x, *y;

	kilnd_start(daemon, NULL);
	bench.client = client_open(daemon);
	assert_ok(kiln_alloc(bench.client, 4096, 0, "weights", &x));
	assert_ok(kiln_alloc(bench.client, 4096, 0, "result", &y));
	bench_open(&bench, x, y);
	assert_ok(kiln_write(x, 0, bench.in, 4096));
	assert_ok(bench_run(&bench));
	kill_executor(bench.client, 1);
	assert_int_equal(bench_run(&bench), KILN_ELOST);
	assert_sentence("weights");
	assert_int_equal(kiln_read(y, 0, bench.out, 4096), KILN_ELOST);
	assert_sentence("result");
	/* A part is not all of it. */
	assert_ok(kiln_write(y, 0, bench.out, 4096));
	assert_ok(kiln_write(x, 0, bench.in, 4095));
	assert_int_equal(bench_run(&bench), KILN_ELOST);
	assert_sentence("weights");
	assert_ok(kiln_write(x, 0, bench.in, 4096));
	assert_ok(bench_run(&bench));
	assert_ok(kiln_read(y, 0, bench.out, 4096));
	assert_memory_equal(bench.out, bench.expected, 4096);
	kiln_call_free(bench.call);
	kiln_free(x);
	kiln_free(y);
	kiln_close(bench.client);
	kilnd_stop(daemon);
}

static void test_shared_and_lent_survive(void **state)
{
	struct kilnd *daemon = *state;
	struct bench bench = {0};
	kiln_buffer *x, *y;
	void *out;
	uint8_t *lent;
	int fd = memfd_create("lent", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	lent = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(lent != MAP_FAILED);
	kilnd_start(daemon, NULL);
	bench.client = client_open(daemon);
	assert_ok(kiln_lend_fd(bench.client, fd, 0, 4096, "lent", &x));
	assert_ok(kiln_alloc(bench.client, 4096, KILN_BUFFER_SHARED, "shared", &y));
	assert_ok(kiln_map(y, &out));
	bench_open(&bench, x, y);
	memcpy(lent, bench.in, 4096);
	assert_ok(bench_run(&bench));
	assert_memory_equal(out, bench.expected, 4096);
	for (int i = 1; i <= 3; i++) {
		kill_executor(bench.client, i);
		memset(out, i, 4096);
		if (bench_run(&bench))
			fail_msg("after restart %d: %s", i, kiln_errmsg());
		assert_memory_equal(out, bench.expected, 4096);
	}
	kiln_call_free(bench.call);
	kiln_free(x);
	kiln_free(y);
	kiln_close(bench.client);
	munmap(lent, 4096);
	close(fd);
	kilnd_stop(daemon);
}

static void test_call_in_flight(void **state)
{
	struct kilnd *daemon = *state;
	struct bench bench = {0};
	kiln_buffer *x, *y;
	kiln_ticket ticket;
	kiln_client *other;
	int64_t start;

	kilnd_start(daemon, PATIENT);
	bench.client = client_open(daemon);
	other = client_open(daemon);
	assert_ok(kiln_alloc(bench.client, 4096, KILN_BUFFER_SHARED, "x", &x));
	assert_ok(kiln_alloc(bench.client, 4096, KILN_BUFFER_SHARED, "y", &y));
	bench_open(&bench, x, y);
	assert_ok(kiln_write(x, 0, bench.in, 4096));
	debug_int(other, "delay-launch", "ms", 60000);
	assert_ok(kiln_submit(bench.call, bench.operands, 2, 0, &ticket));
	await_info_at_least(other, "executors[0].inflight", 1);
	debug_int(other, "delay-launch", "ms", 0);
	start = now_ms();
	debug_str(other, "kill", "role", "executor");
	assert_int_equal(kiln_wait(bench.client, ticket, CALL_TIMEOUT_MS), KILN_EDEVICE);
	assert_in_range(now_ms() - start, 0, GRACE_MS);
	assert_sentence("cpu");
	assert_ok(bench_run(&bench));
	assert_ok(kiln_read(y, 0, bench.out, 4096));
	assert_memory_equal(bench.out, bench.expected, 4096);
	kiln_call_free(bench.call);
	kiln_free(x);
	kiln_free(y);
	kiln_close(other);
	kiln_close(bench.client);
	kilnd_stop(daemon);
}

/* ---- A death that the broker has not heard of ---- */

/* Requests that the broker answers in the same turn, while the process ends. */
#define PEERS 6
#define EACH 60

static void post(struct peer *peer, const char *type, const char *what, const char *role)
{
	struct wire_out out;

	peer_begin(peer, &out, type);
	if (what)
		wire_put_str(&out, "what", what);
	if (role)
		wire_put_str(&out, "role", role);
	peer_send(peer, &out, -1);
}

/* In one turn of its loop the broker kills the device process, and is asked for a launch whose
 * kernel has to be loaded there first. */
static void test_load_for_the_dead(void **state)
{
	struct kilnd *daemon = *state;
	struct peer peers[PEERS];
	kiln_ticket ticket;

	kilnd_start(daemon, OPTIONS("--workers", "1"));
	kiln_client *watch = client_open(daemon);
	struct pair pair = open_pair(daemon, "off");
	pair_warm(&pair);
	for (int i = 0; i < PEERS; i++)
		peer_open(&peers[i], daemon, "");
	for (int round = 1; round <= 4; round++) {
		debug_str(watch, "kill", "role", "executor");
		await_info(watch, "executors[0].restarts", 2 * round - 1);
		(void)device_process(watch, 0);
		matrix_put(pair.x, 3);
		pair_run(&pair, false); /* both buffers are there, and one of the two kernels */
		process_stop(daemon->pid);
		post(&peers[0], "debug", "kill", "executor");
		for (int i = 0; i < PEERS * EACH; i++)
			post(&peers[i / EACH], "info", NULL, NULL);
		assert_ok(pair_submit(&pair, true, 0, &ticket));
		assert_int_equal(kill(daemon->pid, SIGCONT), 0);
		int status = kiln_wait(pair.client, ticket, CALL_TIMEOUT_MS);
		assert_true(status == KILN_OK || status == KILN_EDEVICE || status == KILN_ELOST);
		for (int i = 0; i < PEERS; i++)
			for (uint64_t id = 0; id != peers[i].id;)
				assert_int_equal(peer_take(&peers[i], &id), KILN_OK);
		await_info(watch, "executors[0].restarts", 2 * round);
	}
	for (int i = 0; i < PEERS; i++)
		peer_close(&peers[i]);
	pair_close(&pair);
	kiln_close(watch);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_executor),
		HARNESS_TEST(test_worker),
		HARNESS_TEST(test_first_worker),
		HARNESS_TEST(test_client),
		HARNESS_TEST(test_broker),
		HARNESS_TEST(test_buffers_of_the_dead),
		HARNESS_TEST(test_held_buffers_are_lost),
		HARNESS_TEST(test_shared_and_lent_survive),
		HARNESS_TEST(test_call_in_flight),
		HARNESS_TEST(test_load_for_the_dead),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
