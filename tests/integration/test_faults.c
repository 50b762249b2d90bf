/*
 * test_faults: children that do what they must not: compilers and device processes that die, hang,
 * answer nonsense or what nobody asked, at each step of a call.  Who asked is told in one sentence,
 * or nothing where it could be done again; everybody else goes on, and nothing is left behind.
 */
#include "lane_scene.h"

#include "daemon/sandbox/sandbox.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define HANG_MS 100
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

/* ---- Asking for faults ---- */

static void fail_start(kiln_client *client, const char *fault, const char *role, int count)
{
	kiln_attr args[] = {string_attr("what", "fail-start"), string_attr("misdeed", fault),
						string_attr("role", role), int_attr("count", count)};
	kiln_reply *reply;
	assert_ok(kiln_request(client, "debug", args, 4, &reply));
	kiln_reply_free(reply);
}

static void expect(const char *what, int got, int status, const char *words)
{
	if (got != status || (status && !strstr(kiln_errmsg(), words)))
		fail_msg("%s: %s \"%s\", not %s with \"%s\"", what, kiln_status_name(got),
				 got ? kiln_errmsg() : "", kiln_status_name(status), words);
	/* One sentence. */
	if (status && (strchr(kiln_errmsg(), '\n') || strlen(kiln_errmsg()) < 10))
		fail_msg("%s: \"%s\" is no sentence", what, kiln_errmsg());
}

/* ---- Device processes ---- */

struct scene {
	struct kilnd *daemon;
	kiln_client *watch;
	struct pair plain, lane; /* by message, and through a lane */
	const char *fault, *at;
	int deaths;
};

/* From here on; what hangs is not waited for as long as usual. */
static void arm(const struct scene *scene)
{
	bool hangs = !strcmp(scene->fault, "hang") || !strcmp(scene->fault, "lament");
	debug_fail_device(scene->watch, scene->fault, scene->at, false);
	debug_int(scene->watch, "call-deadline", "ms", hangs ? HANG_MS : 0);
}

/* There is another device process, which has nothing but what is written first. */
static void renew(struct scene *scene)
{
	debug_str(scene->watch, "kill", "role", "executor");
	await_info(scene->watch, "executors[0].restarts", ++scene->deaths);
	matrix_put(scene->lane.x, 3);
}

static int place(struct scene *scene)
{
	kiln_buffer *buffer = NULL;
	arm(scene);
	int status = kiln_alloc(scene->plain.client, 64, 0, "new", &buffer);
	kiln_free(buffer);
	return status;
}

/* A buffer that its client has already comes into the next process when it is used. */
static int place_again(struct scene *scene)
{
	char bytes[64] = "bytes";
	kiln_buffer *buffer = NULL;
	assert_ok(kiln_alloc(scene->plain.client, sizeof(bytes), KILN_BUFFER_SHARED, "old", &buffer));
	renew(scene);
	arm(scene);
	int status = kiln_write(buffer, 0, bytes, sizeof(bytes));
	kiln_free(buffer);
	return status;
}

/* Its kernel is in the cache, and not in this process. */
static int load(struct scene *scene)
{
	struct permute problem = transpose(7, 11);
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	kiln_call *call = NULL;
	arm(scene);
	int status = kiln_prepare(scene->plain.client, "permute", tensors, 2, &perm, 1, &call);
	if (status == KILN_OK)
		kiln_call_free(call);
	return status;
}

static int run(struct pair *pair)
{
	kiln_ticket ticket;
	int status = pair_submit(pair, false, 0, &ticket);
	return status ? status : kiln_wait(pair->client, ticket, CALL_TIMEOUT_MS);
}

static int launch(struct scene *scene)
{
	matrix_put(scene->plain.x, 3);
	arm(scene);
	return run(&scene->plain);
}

static int launch_in_lane(struct scene *scene)
{
	pair_warm(&scene->lane);
	arm(scene);
	/* Behind it. */
	matrix_put(scene->lane.x, 3);
	return run(&scene->lane);
}

/* Of a process that has no lane yet. */
static int launch_first(struct scene *scene)
{
	renew(scene);
	arm(scene);
	return run(&scene->lane);
}

static int write_some(struct scene *scene)
{
	char bytes[64] = "";
	matrix_put(scene->plain.x, 3);
	arm(scene);
	return kiln_write(scene->plain.x, 0, bytes, sizeof(bytes));
}

static int read_some(struct scene *scene)
{
	char bytes[64];
	matrix_put(scene->plain.x, 3);
	arm(scene);
	return kiln_read(scene->plain.x, 0, bytes, sizeof(bytes));
}

static int release(struct scene *scene)
{
	char bytes[64] = "";
	kiln_buffer *buffer;
	assert_ok(kiln_alloc(scene->plain.client, sizeof(bytes), 0, "old", &buffer));
	assert_ok(kiln_write(buffer, 0, bytes, sizeof(bytes)));
	arm(scene);
	return kiln_free(buffer);
}

static int graph(struct scene *scene)
{
	struct pair *pair = &scene->plain;
	kiln_operand operands[2][2];
	kiln_work works[] = {pair_work(pair, false, operands[0]), pair_work(pair, true, operands[1])};
	kiln_ticket ticket;
	kiln_call *call;
	bool later = strcmp(scene->at, "graph") != 0;
	matrix_put(pair->x, 3);
	if (!later)
		arm(scene);
	int status = kiln_prepare_graph(pair->client, works, 2, &call);
	if (status)
		return status;
	if (later)
		arm(scene);
	status = kiln_submit(call, NULL, 0, 0, &ticket);
	if (!status)
		status = kiln_wait(pair->client, ticket, CALL_TIMEOUT_MS);
	kiln_call_free(call);
	return status;
}

/* Of a session that ends. */
static int leave(struct scene *scene)
{
	kiln_client *client = client_open(scene->daemon);
	kiln_buffer *buffer;
	char bytes[64] = "";
	assert_ok(kiln_alloc(client, sizeof(bytes), 0, "left", &buffer));
	assert_ok(kiln_write(buffer, 0, bytes, sizeof(bytes)));
	arm(scene);
	kiln_close(client);
	kiln_free(buffer);
	return KILN_OK;
}

#define NOTHING_COMPLETED "nothing completed on cpu for " TEXT(HANG_MS) " ms"
#define LOST "were lost when the device process ended; write it again"
#define UNREADABLE "the device process of cpu sent what cannot be read: "

static const struct cell {
	const char *fault, *at;
	int (*step)(struct scene *scene);
	int status;
	const char *words;
	bool stays;
	const char *lost; /* it may also end in KILN_ELOST with this */
} cells[] = {
	/* Whatever it does instead of a launch. */
	{"crash", "launch", launch, KILN_EDEVICE, "was killed by signal 11"},
	{"kill", "launch", launch, KILN_EDEVICE, "was killed by signal 9"},
	{"leave", "launch", launch, KILN_EDEVICE, "ended with status 0"},
	{"hang", "launch", launch, KILN_ETIMEDOUT, NOTHING_COMPLETED},
	{"lament", "launch", launch, KILN_ETIMEDOUT, "cannot go on"},
	{"bytes", "launch", launch, KILN_EDEVICE, UNREADABLE},
	{"length", "launch", launch, KILN_EDEVICE, UNREADABLE},
	{"header", "launch", launch, KILN_EDEVICE, UNREADABLE "a message is not of the size"},
	{"short", "launch", launch, KILN_EDEVICE, UNREADABLE "a message is not of the size"},
	{"type", "launch", launch, KILN_EDEVICE, "sent a message of a kind that there is not"},
	{"other", "launch", launch, KILN_EDEVICE, "answered what it was not asked"},
	{"status", "launch", launch, KILN_EDEVICE, "answered with a status that there is not"},
	{"twice", "launch", launch, KILN_EINVAL, "wrong on request"},
	{"flood", "launch", launch, KILN_OK, "", true},
	/* It has run, and is not told of. */
	{"kill", "answer", launch, KILN_EDEVICE, "was killed by signal 9"},
	{"hang", "answer", launch, KILN_ETIMEDOUT, NOTHING_COMPLETED},
	{"status", "answer", launch, KILN_EDEVICE, "answered with a status that there is not"},
	/* Through the lane, of which the broker sees nothing. */
	{"kill", "entry", launch_in_lane, KILN_EDEVICE, "was killed by signal 9"},
	{"hang", "entry", launch_in_lane, KILN_EDEVICE, NOTHING_COMPLETED},
	{"kill", "told", launch_in_lane, KILN_EDEVICE, "was killed by signal 9"},
	{"hang", "told", launch_in_lane, KILN_EDEVICE, NOTHING_COMPLETED},
	/* A process that is gone before the launch is sent never had it: that waits for the next one,
	 * which has no longer what the first had. */
	{"kill", "lane.open", launch_first, KILN_EDEVICE, "was killed by signal 9", .lost = LOST},
	{"kill", "lane.bind", launch_first, KILN_EDEVICE, "was killed by signal 9", .lost = LOST},
	{"hang", "lane.bind", launch_first, KILN_EDEVICE, NOTHING_COMPLETED},
	{"cells", "told", launch_in_lane, KILN_EPROTO, "in status -2147483648, which there is not",
	 true},
	/* What can be done again is. */
	{"kill", "load", load, KILN_OK, ""},
	{"hang", "load", load, KILN_ETIMEDOUT, NOTHING_COMPLETED},
	{"bytes", "load", load, KILN_OK, ""},
	{"kill", "end", leave, KILN_OK, ""},
	{"kill", "free", release, KILN_OK, ""},
	{"hang", "free", release, KILN_OK, ""},
	/* What cannot is told of. */
	{"kill", "alloc", place, KILN_EDEVICE, "buffer new of 64 bytes could not be made: "},
	{"kill", "import", place_again, KILN_EDEVICE, "buffer old cannot be used: "},
	{"other", "import", place_again, KILN_EDEVICE, "answered what it was not asked"},
	{"hang", "import", place_again, KILN_ETIMEDOUT, NOTHING_COMPLETED},
	{"hang", "alloc", place, KILN_ETIMEDOUT, NOTHING_COMPLETED},
	{"kill", "copy", write_some, KILN_EDEVICE, "was killed by signal 9"},
	{"hang", "copy", write_some, KILN_ETIMEDOUT, NOTHING_COMPLETED},
	{"kill", "copy", read_some, KILN_EDEVICE, "was killed by signal 9"},
	{"short", "answer", read_some, KILN_EDEVICE, UNREADABLE},
	{"kill", "graph", graph, KILN_EDEVICE, "was killed by signal 9"},
	{"hang", "graph", graph, KILN_ETIMEDOUT, NOTHING_COMPLETED},
	{"kill", "graph.launch", graph, KILN_EDEVICE, "was killed by signal 9"},
	{"hang", "graph.launch", graph, KILN_ETIMEDOUT, NOTHING_COMPLETED},
};

static struct pair open_pair(const struct kilnd *daemon, const char *lane)
{
	struct pair pair;
	setenv("KILN_LANE", lane, 1);
	pair_open(daemon, &pair);
	unsetenv("KILN_LANE");
	return pair;
}

/* Both clients go on, in the next process if there had to be one. */
static void assert_works(struct scene *scene, const struct cell *cell)
{
	debug_int(scene->watch, "call-deadline", "ms", 0);
	scene->deaths += !cell->stays;
	await_info(scene->watch, "executors[0].restarts", scene->deaths);
	pair_warm(&scene->plain);
	assert_transposed(&scene->plain, 0);
	pair_warm(&scene->lane);
	assert_transposed(&scene->lane, 0);
	assert_counters_add_up(scene->watch);
}

static void device_processes(void **state)
{
	struct kilnd *daemon = *state;
	struct scene scene = {.daemon = daemon};

	/* A quarter of it is how often lanes are looked at. */
	kilnd_start(daemon, OPTIONS("--launch-timeout", "2000"));
	scene.watch = client_open(daemon);
	debug_int(scene.watch, "restart-pause", "ms", 1);
	scene.plain = open_pair(daemon, "off");
	scene.lane = open_pair(daemon, "on");
	kiln_call_free(transpose_prepare(scene.watch, 7, 11));
	pair_warm(&scene.lane);
	int fds = count_fds(daemon->pid);
	for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
		char what[64];
		scene.fault = cells[i].fault;
		scene.at = cells[i].at;
		int64_t from = now_ms();
		snprintf(what, sizeof(what), "%s at %s", scene.fault, scene.at);
		int got = cells[i].step(&scene);
		if (got == KILN_ELOST && cells[i].lost)
			expect(what, got, KILN_ELOST, cells[i].lost);
		else
			expect(what, got, cells[i].status, cells[i].words);
		assert_works(&scene, &cells[i]);
		if (getenv("KILN_TEST_TIMES"))
			print_message("%s: %d ms\n", what, (int)(now_ms() - from));
	}
	assert_int_equal(info_int(scene.watch, "counters.executor_faults"), scene.deaths);
	assert_fds_at_most(daemon->pid, fds);
	pair_close(&scene.plain);
	pair_close(&scene.lane);
	await_info(scene.watch, "executors[0].buffers", 0);
	kiln_close(scene.watch);
	kilnd_stop(daemon);
}

static rlim_t limit(pid_t pid, int what, rlim_t most)
{
	struct rlimit now, next;
	assert_int_equal(prlimit(pid, (__rlimit_resource_t)what, NULL, &now), 0);
	next = (struct rlimit){most, now.rlim_max};
	assert_int_equal(prlimit(pid, (__rlimit_resource_t)what, &next, NULL), 0);
	return now.rlim_cur;
}

/* What wants more is refused, and nothing else. */
static void without_what_they_need(void **state)
{
	struct kilnd *daemon = *state;
	struct pair pair;
	kiln_buffer *large;

	kilnd_start(daemon, NULL);
	kiln_client *client = client_open(daemon);
	struct permute problem = transpose(7, 11);
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	kiln_reply *reply;
	kiln_call *call;
	assert_ok(kiln_compile(client, "permute", tensors, 2, &perm, 1, "cpu", &reply));
	kiln_reply_free(reply);
	pair_open(daemon, &pair);
	pair_warm(&pair);
	pid_t pid = (pid_t)info_int(client, "executors[0].pid");
	rlim_t usual = limit(pid, RLIMIT_NOFILE, 3);
	expect("load", kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call), KILN_EIO,
		   "cannot be put into a memfd: Too many open files");
	pair_run(&pair, true);
	limit(pid, RLIMIT_NOFILE, usual);
	assert_ok(kiln_prepare(client, "permute", tensors, 2, &perm, 1, &call));
	kiln_call_free(call);
#if !SANDBOX_SANITIZED /* a sanitizer would end the process */
	usual = limit(pid, RLIMIT_AS, 1 << 20);
	expect("alloc", kiln_alloc(client, 256 << 20, 0, "large", &large), KILN_ENOMEM,
		   "buffer large of 268435456 bytes could not be made");
	limit(pid, RLIMIT_AS, usual);
#endif
	pair_run(&pair, false);
	assert_ok(kiln_alloc(client, 256 << 20, 0, "large", &large));
	kiln_free(large);
	assert_transposed(&pair, 0);
	assert_int_equal(info_int(client, "counters.executor_faults"), 0);
	assert_counters_add_up(client);
	pair_close(&pair);
	kiln_close(client);
	kilnd_stop(daemon);
}

/* ---- Processes of users' kernels ---- */

#define WORDS 64

static const char source[] = "__global__ void add(unsigned *x) { x[threadIdx.x] += 1; }\n";

struct user {
	kiln_client *client;
	kiln_call *call;
	kiln_buffer *x;
};

static int user_prepare(struct user *user)
{
	kiln_raw raw = {.size = sizeof(raw), .name = "mine.cu", .source = source, .entry = "add"};
	return kiln_prepare_raw(user->client, &raw, &user->call);
}

static int user_run(struct user *user)
{
	kiln_raw_arg arg = {.buffer = user->x};
	kiln_launch how = {.size = sizeof(how), .block = {WORDS}, .args = &arg, .arg_count = 1};
	kiln_ticket ticket;
	int status = kiln_submit_raw(user->call, &how, 0, &ticket);
	return status ? status : kiln_wait(user->client, ticket, CALL_TIMEOUT_MS);
}

/* Whatever becomes of it, the process that all share does not hear of it. */
static void users_processes(void **state)
{
	static const struct {
		const char *fault, *at;
		int status;
		const char *words;
	} rows[] = {
		{"kill", "import", KILN_EDEVICE, "buffer x cannot be used: "},
		{"kill", "launch", KILN_EDEVICE, "kernel add of mine.cu: "},
		{"hang", "answer", KILN_ETIMEDOUT, NOTHING_COMPLETED},
		{"length", "answer", KILN_EDEVICE, UNREADABLE},
		{"other", "launch", KILN_EDEVICE, "answered what it was not asked"},
		{"status", "launch", KILN_EDEVICE, "answered with a status that there is not"},
	};
	struct kilnd *daemon = *state;
	struct user user;
	unsigned words[WORDS] = {0};

	kilnd_start(daemon, NULL);
	user.client = client_open(daemon);
	assert_ok(kiln_alloc(user.client, sizeof(words), KILN_BUFFER_SHARED, "x", &user.x));
	assert_ok(user_prepare(&user));
	assert_ok(kiln_write(user.x, 0, words, sizeof(words)));
	for (int i = 0; i < (int)(sizeof(rows) / sizeof(rows[0])); i++) {
		debug_fail_device(user.client, rows[i].fault, rows[i].at, true);
		debug_int(user.client, "call-deadline", "ms", strcmp(rows[i].fault, "hang") ? 0 : HANG_MS);
		expect(rows[i].fault, user_run(&user), rows[i].status, rows[i].words);
		debug_int(user.client, "call-deadline", "ms", 0);
		await_info(user.client, "executors[1].restarts", i + 1);
		assert_ok(user_run(&user));
		assert_int_equal(info_int(user.client, "executors[0].restarts"), 0);
	}
	assert_counters_add_up(user.client);
	kiln_free(user.x);
	kiln_call_free(user.call);
	kiln_close(user.client);
	kilnd_stop(daemon);
}

/* ---- Before they are ready ---- */

static void starts(void **state)
{
	struct kilnd *daemon = *state;
	struct user user;
	struct pair pair;

	kilnd_start(daemon, OPTIONS("--workers", "1"));
	pair_open(daemon, &pair);
	pair_warm(&pair);
	user.client = client_open(daemon);
	debug_int(user.client, "restart-pause", "ms", 1);
	/* A few times is nothing, five times is the device's own fault. */
	fail_start(user.client, "bytes", "executor", 4);
	assert_ok(user_prepare(&user));
	assert_int_equal(info_int(user.client, "executors[1].restarts"), 4);
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
	/* The only compiler ends eight times before it is ready; the ninth is. */
	fail_start(user.client, "leave", "compiler", 8);
	debug_str(user.client, "kill", "role", "compiler");
	struct permute problem = transpose(9, 14);
	char why[400];
	assert_int_equal(permute_check(user.client, &problem, 1, NULL, why), KILN_EIO);
	if (!strstr(why, "no compiler worker could be started: it ended with status 0"))
		fail_msg("%s", why);
	assert_permutes(user.client, &problem, "compiled");
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
	pid_t held = (pid_t)info_int(watch, "executors[0].pid");
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

	setenv("TMPDIR", daemon->dir, 1);
	kilnd_start(daemon, OPTIONS("--workers", "1"));
	unsetenv("TMPDIR");
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
	/* What was not compiled well is not kept. */
	await_info(client, "cache.rows", 3);
	assert_fds_at_most(daemon->pid, fds);
	/* A worker that has no more files or memory ends, and one whose directory somebody has cleaned
	 * away is let go: the job is done in another. */
	int64_t recycled = info_int(client, "workers.recycled");
	wear_out(client, RLIMIT_NOFILE, 3);
	assert_ok(prepare_other(client, count));
	wear_out(client, RLIMIT_AS, 1 << 20);
	assert_ok(prepare_other(client, count + 1));
	assert_int_equal(info_int(client, "counters.worker_faults"), lost + 2);
	assert_int_equal(info_int(client, "workers.recycled"), recycled);
	snprintf(command, sizeof(command), "rm -rf %s/kiln-*", daemon->dir);
	assert_int_equal(system(command), 0);
	assert_ok(prepare_other(client, count + 2));
	assert_int_equal(info_int(client, "counters.worker_faults"), lost + 2);
	assert_int_equal(info_int(client, "workers.recycled"), recycled + 1);
	await_info(client, "cache.rows", 6);
	assert_counters_add_up(client);
	kiln_close(client);
	kilnd_stop(daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(device_processes),   HARNESS_TEST(without_what_they_need),
		HARNESS_TEST(users_processes),    HARNESS_TEST(starts),
		HARNESS_TEST(held_by_the_system), HARNESS_TEST(compilers),
	};
	harness_begin(200);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
