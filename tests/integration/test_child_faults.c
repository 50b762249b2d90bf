/*
 * test_child_faults: children as such: that do not come up, that the system does not let end, and
 * compilers that die, hang, answer nonsense or what nobody asked.
 */
#include <sys/stat.h>

#include "fault_scene.h"

/* ---- Before they are ready ---- */

#define FEW_STARTS 4 /* failures in a row that nobody is told of */
#define ENDLESS 1000000

static void fail_start(kiln_client *client, const char *fault, const char *role, int count)
{
	kiln_attr args[] = {string_attr("what", "fail-start"), string_attr("misdeed", fault),
						string_attr("role", role), int_attr("count", count)};
	kiln_reply *reply;
	assert_ok(kiln_request(client, "debug", args, 4, &reply));
	kiln_reply_free(reply);
}

static void starts(void **state)
{
	struct kilnd *daemon = *state;
	struct user user;
	struct pair pair;
	char why[400];
	int status;

	kilnd_start(daemon, OPTIONS("--workers", "1"));
	pair_open(daemon, &pair);
	pair_warm(&pair);
	user.client = client_open(daemon);
	debug_int(user.client, "restart-pause", "ms", 1);
	/* A few times is nothing, five times is the device's own fault. */
	fail_start(user.client, "bytes", "executor", FEW_STARTS);
	assert_ok(user_prepare(&user));
	assert_in_range(info_int(user.client, "executors[1].restarts"), 1, FEW_STARTS);
	kiln_call_free(user.call);
	kiln_close(user.client);
	user.client = client_open(daemon);
	fail_start(user.client, "crash", "executor", 5);
	expect("crash", user_prepare(&user), KILN_ENOTSUP, "the device process of cpu was killed by");
	kiln_close(user.client);
	user.client = client_open(daemon);
	debug_int(user.client, "start-deadline", "ms", 100);
	fail_start(user.client, "hang", "executor", 5);
	expect("hang", user_prepare(&user), KILN_ENOTSUP, "was not ready after 100 ms");
	debug_int(user.client, "start-deadline", "ms", 0);
	pair_run(&pair, false);
	/* The only compiler ends again and again before it is ready, and one call is told of that. */
	fail_start(user.client, "leave", "compiler", ENDLESS);
	debug_str(user.client, "kill", "role", "compiler");
	struct permute problem = transpose(9, 14);
	assert_int_equal(permute_check(user.client, &problem, 1, NULL, why), KILN_EIO);
	if (!strstr(why, "no compiler worker could be started: it ended with status 0"))
		fail_msg("%s", why);
	assert_in_range(info_int(user.client, "counters.worker_faults"), FEW_STARTS + 1, ENDLESS);
	fail_start(user.client, "leave", "compiler", 0);
	/* A start that was under way ends as well; the next does not. */
	for (int i = 0; (status = permute_check(user.client, &problem, 1, NULL, why)) == KILN_EIO; i++)
		assert_in_range(i, 0, 3);
	if (status)
		fail_msg("%s", why);
	kiln_close(user.client);
	pair_close(&pair);
	kilnd_stop(daemon);
}

/* ---- Held by the system ---- */

static void spare_children(kiln_client *client, int count)
{
	kiln_attr args[] = {string_attr("what", "spare-children"), int_attr("count", count),
						int_attr("ms", HANG_MS)};
	kiln_reply *reply;
	assert_ok(kiln_request(client, "debug", args, 3, &reply));
	kiln_reply_free(reply);
}

static void await_gone(pid_t pid)
{
	int64_t until = now_ms() + CALL_TIMEOUT_MS;
	while (kill(pid, 0) == 0) {
		if (now_ms() > until)
			fail_msg("process %d is still there", (int)pid);
		pause_ms(2);
	}
}

/* In a driver that does not come back, SIGKILL ends nobody: nobody waits for that. */
static void held_by_the_system(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;

	kilnd_start(daemon, OPTIONS("--workers", "1"));
	pair = open_pair(daemon, "off");
	pair_warm(&pair);
	kiln_client *watch = client_open(daemon);
	debug_int(watch, "restart-pause", "ms", 1);
	pid_t held = device_process(watch, 0);
	int fds = count_fds(daemon->pid);
	spare_children(watch, 1);
	matrix_put(pair.x, 3);
	debug_fail_device(watch, "hang", "launch", false);
	debug_int(watch, "call-deadline", "ms", HANG_MS);
	expect("held", run(&pair), KILN_ETIMEDOUT, NOTHING_COMPLETED);
	debug_int(watch, "call-deadline", "ms", 0);
	await_info(watch, "executors[0].restarts", 1);
	pair_warm(&pair);
	assert_transposed(&pair, 0);
	assert_int_equal(kill(held, 0), 0);
	/* The system lets it go at last. */
	assert_int_equal(kill(held, SIGKILL), 0);
	await_gone(held);
	assert_int_equal(info_int(watch, "executors[0].restarts"), 1);
	assert_fds_at_most(daemon->pid, fds);

	spare_children(watch, 1);
	debug_str(watch, "kill", "role", "compiler");
	await_info(watch, "counters.worker_faults", 1);
	struct permute problem = transpose(9, 14);
	assert_permutes(watch, &problem, "compiled");
	assert_counters_add_up(watch);

	/* Nor does a daemon that ends wait for them. */
	spare_children(watch, 2);
	pair_close(&pair);
	kiln_close(watch);
	kilnd_stop(daemon);
}

/* ---- Compilers ---- */

static int prepare_other(kiln_client *client, int number)
{
	struct permute problem = transpose(3 + number, 50);
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	kiln_call *call = NULL;
	int status = kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call);
	if (status == KILN_OK)
		kiln_call_free(call);
	return status;
}

/* Each of the next compiles goes wrong so often; and how it ends. */
static const struct {
	const char *fault;
	int times, status;
	const char *words;
	int lost; /* workers */
} compiles[] = {
	{"kill", 2, KILN_ECOMPILE, "was killed by signal 9 (Killed) on permute_", 2},
	{"leave", 2, KILN_ECOMPILE, "ended with status 0 on permute_", 2},
	{"bytes", 2, KILN_ECOMPILE, "sent what cannot be read: ", 2},
	{"length", 2, KILN_ECOMPILE, "sent what cannot be read: ", 2},
	{"header", 2, KILN_ECOMPILE, "sent what cannot be read: a message is not of the size", 2},
	{"short", 2, KILN_ECOMPILE, "sent what cannot be read: a message is not of the size", 2},
	{"type", 2, KILN_ECOMPILE, "answered with what is no result", 2},
	{"other", 2, KILN_ECOMPILE, "answered what it was not asked", 2},
	{"status", 2, KILN_ECOMPILE, "answered with what is no result", 2},
	{"twice", 1, KILN_EINVAL, "wrong on request", 1},
	{"flood", 2, KILN_ECOMPILE, "answered with what is no result", 2},
	{"nothing", 2, KILN_ECOMPILE, "answered with what is no result", 2},
	{"text", 2, KILN_ECOMPILE, "answered with what is no result", 2},
	/* It looks like an object, and is found out where it is loaded. */
	{"cut", 2, KILN_ECOMPILE, "cannot be loaded", 0},
	/* The second one does it. */
	{"cut", 1, KILN_OK, "", 0},
	{"entry", 1, KILN_OK, "", 0},
	{"other", 1, KILN_OK, "", 1},
};

/* One that has come to its limits, as if jobs before had leaked what it has. */
static void wear_out(kiln_client *client, int what, rlim_t most)
{
	kiln_reply *reply;
	kiln_attr children = string_attr("what", "children");
	await_info(client, "workers.idle", 1);
	assert_ok(kiln_request(client, "debug", &children, 1, &reply));
	assert_string_equal(kiln_reply_str(reply, "rows[1].role"), "compiler");
	limit((pid_t)kiln_reply_int(reply, "rows[1].pid"), what, most);
	kiln_reply_free(reply);
}

static void compilers(void **state)
{
	struct kilnd *daemon = *state;
	int lost = 0, count = (int)(sizeof(compiles) / sizeof(compiles[0])), fds = 0;
	char command[128];

	kilnd_start(daemon, OPTIONS("--workers", "1"));
	kiln_client *client = client_open(daemon);
	debug_int(client, "restart-pause", "ms", 1);
	for (int i = 0; i < count; i++) {
		char what[32];
		snprintf(what, sizeof(what), "%s-compile", compiles[i].fault);
		debug_int(client, what, "count", compiles[i].times);
		expect(what, prepare_other(client, i), compiles[i].status, compiles[i].words);
		lost += compiles[i].lost;
		await_info(client, "counters.worker_faults", lost);
		await_info(client, "workers.idle", 1);
		assert_counters_add_up(client);
		fds = fds ? fds : count_fds(daemon->pid);
	}
	/* A failed compile is not kept. */
	await_info(client, "cache.rows", 3);
	assert_fds_at_most(daemon->pid, fds);
	/* A worker that has no more files or memory ends, and one whose directory somebody has cleaned
	 * away is let go: the job is done in another. */
	int64_t recycled = info_int(client, "workers.recycled");
	wear_out(client, RLIMIT_NOFILE, 3);
	assert_ok(prepare_other(client, count));
	assert_int_equal(info_int(client, "counters.worker_faults"), ++lost);
	assert_int_equal(info_int(client, "workers.recycled"), recycled);
	/* One that can map no more memory may get by with what it has. */
	wear_out(client, RLIMIT_AS, 1 << 20);
	assert_ok(prepare_other(client, count + 1));
	await_info(client, "workers.idle", 1);
	int64_t faults = info_int(client, "counters.worker_faults");
	assert_in_range(faults, lost, lost + 1);
	recycled = info_int(client, "workers.recycled");
	snprintf(command, sizeof(command), "rm -rf %s/kiln-*", daemon->dir);
	assert_int_equal(system(command), 0);
	assert_ok(prepare_other(client, count + 2));
	assert_int_equal(info_int(client, "counters.worker_faults"), faults);
	assert_int_equal(info_int(client, "workers.recycled"), recycled + 1);
	await_info(client, "cache.rows", 6);
	assert_counters_add_up(client);
	kiln_close(client);
	/* A worker that is killed leaves its directory; the end of the daemon removes it. */
	snprintf(command, sizeof(command), "%s/kiln-cc.killed", daemon->dir);
	assert_int_equal(mkdir(command, 0700), 0);
	kilnd_stop(daemon);
	assert_int_equal(access(command, F_OK), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(starts),
		HARNESS_TEST(held_by_the_system),
		HARNESS_TEST(compilers),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
