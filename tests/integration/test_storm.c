/*
 * test_storm: the daemon under everything at once: well-behaved, polite and rude clients, children
 * that are killed, compiles that fail, hang and crash; from a seed ($KILN_STORM_SEED), for a time
 * ($KILN_STORM_MS).  Afterwards it is as before.  And single scenes that a storm meets too rarely.
 */
#include "storm.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRIENDS 3
#define POLITE 2
#define RUDE 2
#define BUFFERS 6
#define EXECUTOR_KILLS 5 /* each makes the next start later */

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	return text ? strtoull(text, NULL, 0) : otherwise;
}

/* ---- Clients that use the library ---- */

/* When children die and compiles fail, a call may end in anything that has a reason, but not in
 * silence and not in wrong bytes. */
static void judge(struct storm *storm, const char *what, int status)
{
	bool silent = status == KILN_ETIMEDOUT && !strstr(kiln_errmsg(), "--compile-timeout");
	if (silent || status == KILN_EAGAIN || status == KILN_EINTERNAL || status == KILN_EPROTO ||
		status == KILN_ECONN || status == KILN_ENOTSUP || (status && strlen(kiln_errmsg()) < 10))
		storm_wrong(storm, "%s: %s: %.300s", what, kiln_status_name(status), kiln_errmsg());
}

struct friend
{
	struct storm *storm;
	uint64_t state;
	kiln_client *client;
	kiln_buffer *buffers[BUFFERS];
	kiln_call *call;
	kiln_ticket tickets[8];
};

static void friend_submit(struct friend *f)
{
	kiln_operand operands[2];
	int slot = storm_pick(&f->state, 8);
	kiln_ticket after = storm_pick(&f->state, 3) ? 0 : f->tickets[slot];

	for (int i = 0; i < 2; i++)
		operands[i] = (kiln_operand){f->buffers[storm_pick(&f->state, BUFFERS)],
									 storm_pick(&f->state, 6) ? 0 : 4000};
	if (!f->call || !operands[0].buffer || !operands[1].buffer)
		return;
	/* Some tickets are never waited for. */
	if (f->tickets[slot] && storm_pick(&f->state, 4)) {
		int status = kiln_wait(f->client, f->tickets[slot], STORM_CALL_MS);
		judge(f->storm, "wait", status);
		after = 0;
	}
	f->tickets[slot] = 0;
	judge(f->storm, "submit", kiln_submit(f->call, operands, 2, after, &f->tickets[slot]));
	if (!storm_pick(&f->state, 4))
		judge(f->storm, "cancel", kiln_cancel(f->client, f->tickets[slot]));
}

static void friend_prepare(struct friend *f)
{
	struct permute problem = transpose(2 + storm_pick(&f->state, 4), 2 + storm_pick(&f->state, 5));
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);

	kiln_call_free(f->call);
	f->call = NULL;
	judge(f->storm, "prepare", kiln_prepare(f->client, "permute", tensors, 2, &perm, 1, &f->call));
}

static void friend_buffer(struct friend *f)
{
	uint8_t bytes[1024] = {0};
	kiln_buffer **buffer = &f->buffers[storm_pick(&f->state, BUFFERS)];

	if (!*buffer)
		judge(f->storm, "alloc",
			  kiln_alloc(f->client, 4096, storm_pick(&f->state, 2) ? KILN_BUFFER_SHARED : 0, "b",
						 buffer));
	else if (!storm_pick(&f->state, 4)) {
		judge(f->storm, "free", kiln_free(*buffer));
		*buffer = NULL;
	} else if (storm_pick(&f->state, 2))
		judge(f->storm, "write",
			  kiln_write(*buffer, (uint64_t)storm_pick(&f->state, 4200), bytes, sizeof(bytes)));
	else
		judge(f->storm, "read",
			  kiln_read(*buffer, (uint64_t)storm_pick(&f->state, 4200), bytes, sizeof(bytes)));
}

static void friend_session(struct friend *f)
{
	for (int i = storm_pick(&f->state, 60); i > 0 && !atomic_load(&f->storm->stop); i--) {
		struct permute problem =
			transpose(2 + storm_pick(&f->state, 5), 2 + storm_pick(&f->state, 6));
		char why[400];
		int kind = storm_pick(&f->state, 8), status;
		atomic_fetch_add(&f->storm->steps, 1);
		if (kind < 4) {
			friend_submit(f);
		} else if (kind < 6) {
			friend_buffer(f);
		} else if (kind < 7) {
			friend_prepare(f);
		} else if ((status = permute_check(f->client, &problem, (uint64_t)i, NULL, why))) {
			if (status == KILN_EINTERNAL)
				storm_wrong(f->storm, "%s", why);
			judge(f->storm, "permute", status);
		}
	}
}

static int befriend(const struct kilnd *daemon, void *arg)
{
	const struct storm_seat *seat = arg;
	struct storm *storm = seat->storm;
	uint64_t state = storm_start(seat);

	while (!atomic_load(&storm->stop) && !atomic_load(&storm->wrong)) {
		struct friend f = {.storm = storm, .state = storm_next(&state)};
		int status;
		f.client = client_try(daemon, STORM_CALL_MS, &status);
		if (!f.client) {
			storm_wrong(storm, "no connection: %.300s", kiln_errmsg());
			return 1;
		}
		friend_session(&f);
		/* With work under way, and all that it has. */
		kiln_close(f.client);
		kiln_call_free(f.call);
		for (int i = 0; i < BUFFERS; i++)
			kiln_free(f.buffers[i]);
	}
	return 0;
}

/* ---- What happens to the daemon meanwhile ---- */

static bool kill_one(kiln_client *client, const char *role)
{
	const kiln_attr args[] = {string_attr("what", "kill"), string_attr("role", role)};
	kiln_reply *reply = NULL;
	int status = kiln_request(client, "debug", args, 2, &reply);
	kiln_reply_free(reply);
	return status == KILN_OK; /* there may be none at the moment */
}

/* The compiles that failed on request are not to fail for good. */
static void forget_failures(kiln_client *client)
{
	const kiln_attr all = int_attr("all", 1);
	kiln_reply *reply = NULL;
	int status = kiln_request(client, "cache.retry", &all, 1, &reply);
	assert_int_equal(status, KILN_OK);
	kiln_reply_free(reply);
}

static const char *const faults[] = {"hang-compile", "crash-compile", "fail-compile"};

/* How many device processes it killed. */
static int trouble(kiln_client *client, struct storm *storm, int64_t ms)
{
	uint64_t state = storm->seed;
	int64_t end = now_ms() + ms, next_kill = now_ms() + 300;
	int killed = 0;

	while (now_ms() < end && !atomic_load(&storm->wrong)) {
		int kind = storm_pick(&state, 40);
		if (kind < 6)
			debug_int(client, faults[kind < 1 ? 0 : kind < 3 ? 1 : 2], "count", 1);
		else if (kind < 12)
			debug_int(client, "delay-compile", "ms", 40 * storm_pick(&state, 3));
		else if (kind < 18)
			debug_int(client, "delay-launch", "ms", 2 * storm_pick(&state, 3));
		else if (kind < 20)
			kill_one(client, "compiler");
		else if (kind < 26)
			forget_failures(client);
		if (killed < EXECUTOR_KILLS && now_ms() > next_kill) {
			killed += kill_one(client, "executor");
			next_kill = now_ms() + ms / (2 * EXECUTOR_KILLS) + storm_pick(&state, 200);
		}
		pause_ms(20 + storm_pick(&state, 60));
	}
	debug_int(client, "delay-compile", "ms", 0);
	debug_int(client, "delay-launch", "ms", 0);
	for (int i = 0; i < 3; i++)
		debug_int(client, faults[i], "count", 0);
	forget_failures(client);
	return killed;
}

/* ---- The storm ---- */

static void assert_no_sanitizer(const struct kilnd *daemon)
{
	char *log = kilnd_log(daemon);
	assert_non_null(log);
	if (strstr(log, "Sanitizer") || strstr(log, "runtime error"))
		fail_msg("a sanitizer spoke:\n%s", log);
	free(log);
}

struct before {
	int fds, maps;
};

/* The second that a compile has in these tests is short for a machine with other work. */
static void assert_serves(kiln_client *client, const struct permute *problem)
{
	char why[400], origin[16];
	int status = KILN_ETIMEDOUT;
	for (int i = 0; i < 10 && status == KILN_ETIMEDOUT; i++) {
		forget_failures(client); /* else the daemon would remember it */
		status = permute_check(client, problem, 7, origin, why);
	}
	if (status)
		fail_msg("a permute: %s", why);
}

static struct before settle(struct kilnd *daemon, kiln_client *client)
{
	struct permute problem = transpose(40, 50);
	assert_serves(client, &problem);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	return (struct before){count_fds(daemon->pid), count_shared_maps(device_process(client, 0))};
}

static void assert_as_before(struct kilnd *daemon, kiln_client *client, struct before before)
{
	struct permute problem = transpose(41, 50);

	await_info(client, "server.sessions", 1);
	assert_serves(client, &problem);
	await_info(client, "workers.idle", info_int(client, "workers.count"));
	await_info(client, "executors[0].buffers", 0);
	await_info(client, "executors[0].inflight", 0);
	assert_int_equal(info_int(client, "workers.queued"), 0);
	assert_counters_add_up(client);
	assert_cache_verifies(client, 1);
	assert_fds_at_most(daemon->pid, before.fds);
	assert_shared_maps_at_most(device_process(client, 0), before.maps);
	assert_no_sanitizer(daemon);
}

static void test_storm(void **state)
{
	static process_body *const bodies[] = {befriend, storm_polite, storm_rude};
	struct kilnd *daemon = *state;
	struct storm *storm =
		mmap(NULL, sizeof(*storm), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct storm_seat seats[FRIENDS + POLITE + RUDE];
	pid_t pids[FRIENDS + POLITE + RUDE];

	assert_true(storm != MAP_FAILED);
	storm->seed = from_environment("KILN_STORM_SEED", 20261121);
	fprintf(stderr, "KILN_STORM_SEED=%llu\n", (unsigned long long)storm->seed);
	kilnd_start(daemon, OPTIONS("--workers", "2", "--test-worker-jobs", "12", "--compile-timeout",
								"1000", "--max-inflight", "40", "--max-buffers", "24"));
	kiln_client *client = client_open(daemon);
	struct before before = settle(daemon, client);
	for (int i = 0; i < FRIENDS + POLITE + RUDE; i++) {
		seats[i] = (struct storm_seat){storm, i + 1};
		pids[i] = process_start(daemon,
								bodies[i < FRIENDS            ? 0
									   : i < FRIENDS + POLITE ? 1
															  : 2],
								&seats[i]);
	}
	int killed = trouble(client, storm, (int64_t)from_environment("KILN_STORM_MS", 9000));
	atomic_store(&storm->stop, 1);
	for (int i = 0; i < FRIENDS + POLITE + RUDE; i++) {
		int status = process_wait(pids[i], 2 * STORM_CALL_MS);
		if (status)
			storm_wrong(storm, "client %d ended with wait status %#x", i, (unsigned)status);
	}
	fprintf(stderr, "%d requests, %d answers counted, %d device processes killed\n",
			atomic_load(&storm->steps), atomic_load(&storm->answered), killed);
	if (atomic_load(&storm->wrong)) {
		char *log = kilnd_log(daemon);
		fprintf(stderr, "%s\n", log);
		free(log);
		fail_msg("%s", storm->why);
	}
	assert_true(atomic_load(&storm->answered) > 20);
	/* No client ended a device process. */
	assert_true(info_int(client, "counters.executor_faults") <= killed);
	assert_as_before(daemon, client, before);
	kiln_close(client);
	kilnd_stop(daemon);
	munmap(storm, sizeof(*storm));
}

/* ---- Scenes ---- */

static int greeted(const struct kilnd *daemon)
{
	int sock = raw_greeted(daemon);

	assert_true(sock >= 0);
	return sock;
}

/* The last one for whom the daemon drains leaves: there is nothing more to wait for. */
static void test_leaves_while_draining(void **state)
{
	struct kilnd *daemon = *state;
	struct wire_out out;
	int64_t start;

	kilnd_start(daemon, OPTIONS("--test-drain-timeout", "60000"));
	int sock = greeted(daemon);
	kiln_client *client = client_open(daemon);
	debug_int(client, "delay-compile", "ms", 60000);
	raw_problem(&out, "prepare", 2, 5, 6);
	assert_int_equal(raw_put(sock, &out, NULL, 0), KILN_OK);
	await_info_at_least(client, "workers.busy", 1);
	kiln_close(client);
	start = now_ms();
	kill(daemon->pid, SIGTERM);
	while (access(daemon->socket, F_OK) == 0 && now_ms() < start + STOP_TIMEOUT_MS)
		pause_ms(2);
	close(sock);
	assert_int_equal(kilnd_wait(daemon, STOP_TIMEOUT_MS), 0);
	assert_no_children();
}

static void test_one_hello(void **state)
{
	struct kilnd *daemon = *state;
	int refused = 0, sock = -1;
	uint64_t id;

	/* The device process is still on its way when both come. */
	kilnd_spawn(daemon, NULL, NULL, -1);
	for (int64_t end = now_ms() + START_TIMEOUT_MS; sock < 0 && now_ms() < end;)
		sock = raw_open(daemon);
	assert_true(sock >= 0);
	for (uint64_t i = 1; i <= 2; i++) {
		struct wire_out out;
		raw_hello(&out, i);
		assert_int_equal(raw_put(sock, &out, NULL, 0), KILN_OK);
	}
	for (int i = 0; i < 2; i++) {
		int status = raw_take(sock, STORM_CALL_MS, &id, NULL, NULL);
		refused += id == 2 && status == KILN_EPROTO;
	}
	assert_int_equal(refused, 1);
	close(sock);
	kilnd_await(daemon);
	kilnd_stop(daemon);
}

/* A client that never takes what waits for it is let go, not tried for ever. */
static void test_takes_no_more(void **state)
{
	struct kilnd *daemon = *state;
	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	int sock = greeted(daemon), status;
	uint64_t id, last = 0;

	for (int i = 0; i < 2000; i++) {
		struct wire_out out;
		wire_begin(&out, "info", (uint64_t)i + 2);
		assert_int_equal(raw_put(sock, &out, NULL, 0), KILN_OK);
	}
	assert_int_equal(info_int(client, "server.sessions"), 2);
	/* Room for more, which nobody will read: seen by the daemon at once, not in this order. */
	process_stop(daemon->pid);
	assert_int_equal(waitpid(daemon->pid, &status, WUNTRACED), daemon->pid);
	assert_true(WIFSTOPPED(status));
	while (raw_take(sock, 0, &id, NULL, NULL) == KILN_OK)
		last = id;
	assert_true(last > 1 && last < 2001);
	assert_int_equal(shutdown(sock, SHUT_RD), 0);
	assert_int_equal(kill(daemon->pid, SIGCONT), 0);
	await_info(client, "server.sessions", 1);
	close(sock);
	kiln_close(client);
	kilnd_stop(daemon);
}

static void test_follows_itself(void **state)
{
	struct kilnd *daemon = *state;
	struct wire_out out;
	uint64_t id, call = 0, buf = 0;
	kilnd_start(daemon, NULL);
	int sock = greeted(daemon);

	wire_begin(&out, "alloc", 1);
	wire_put_uint(&out, "bytes", 4096);
	assert_int_equal(raw_put(sock, &out, NULL, 0), KILN_OK);
	assert_int_equal(raw_take(sock, STORM_CALL_MS, &id, &buf, NULL), KILN_OK);
	raw_problem(&out, "prepare", 2, 5, 6);
	assert_int_equal(raw_put(sock, &out, NULL, 0), KILN_OK);
	assert_int_equal(raw_take(sock, STORM_CALL_MS, &id, NULL, &call), KILN_OK);
	wire_begin(&out, "submit", 3);
	wire_put_uint(&out, "call", call);
	wire_put_uint(&out, "after", 3);
	wire_list_begin(&out, "operands");
	for (int i = 0; i < 2; i++) {
		wire_list_begin(&out, NULL);
		wire_put_uint(&out, NULL, buf);
		wire_put_uint(&out, NULL, i ? 2048 : 0);
		wire_list_end(&out);
	}
	wire_list_end(&out);
	assert_int_equal(raw_put(sock, &out, NULL, 0), KILN_OK);
	assert_int_equal(raw_take(sock, STORM_CALL_MS, &id, NULL, NULL), KILN_EINVAL);
	assert_int_equal(id, 3);
	close(sock);
	kilnd_stop(daemon);
}

/* A client's patience is not its neighbours': the device process outlives it. */
static void test_impatience(void **state)
{
	struct kilnd *daemon = *state;
	struct permute problem = transpose(8, 8);
	kiln_attr perm = perm_attr(&problem);
	kiln_buffer *x, *y;
	kiln_call *call;
	kiln_ticket ticket;
	int status;

	kilnd_start(daemon, NULL);
	kiln_client *other = client_open(daemon);
	assert_permutes(other, &problem, NULL);
	kiln_client *client;
	while (!(client = client_try(daemon, 1500, &status)))
		assert_int_equal(status, KILN_ETIMEDOUT); /* connecting has no more time than a call */
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	assert_ok(kiln_alloc(client, 256, 0, "x", &x));
	assert_ok(kiln_alloc(client, 256, 0, "y", &y));
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call));
	debug_int(other, "delay-launch", "ms", 2500);
	assert_ok(kiln_submit(call, (kiln_operand[]){{x, 0}, {y, 0}}, 2, 0, &ticket));
	assert_int_equal(kiln_wait(client, ticket, 100), KILN_EAGAIN);
	assert_ok(kiln_wait(client, ticket, STORM_CALL_MS));
	assert_int_equal(info_int(other, "executors[0].restarts"), 0);
	kiln_call_free(call);
	kiln_close(client);
	kiln_free(x);
	kiln_free(y);
	kiln_close(other);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(test_leaves_while_draining),
		HARNESS_TEST(test_one_hello),
		HARNESS_TEST(test_takes_no_more),
		HARNESS_TEST(test_follows_itself),
		HARNESS_TEST(test_impatience),
		HARNESS_TEST(test_storm),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
