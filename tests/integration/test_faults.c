/*
 * test_faults: device processes that do what they must not: die, hang, answer nonsense or what
 * nobody asked, at each step of a call.  The program that asked is told in one sentence, or nothing
 * where it could be done again; everybody else goes on, and nothing is left behind.
 */
#include "fault_scene.h"

#include "daemon/sandbox/sandbox.h"

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

/* Launches for a process that has no lane yet. */
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

/* Ends a session. */
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
	{"kill", "lane.bind", launch_first, KILN_EDEVICE, "was killed by signal 9"},
	{"hang", "lane.bind", launch_first, KILN_ETIMEDOUT, NOTHING_COMPLETED},
	{"cells", "told", launch_in_lane, KILN_EPROTO, "in status -2147483648, which there is not",
	 true},
	/* Steps that can be done again are done again. */
	{"kill", "load", load, KILN_OK, ""},
	{"hang", "load", load, KILN_ETIMEDOUT, NOTHING_COMPLETED},
	{"bytes", "load", load, KILN_OK, ""},
	{"kill", "end", leave, KILN_OK, ""},
	{"kill", "free", release, KILN_OK, ""},
	{"hang", "free", release, KILN_OK, ""},
	/* Clients are told of steps that cannot. */
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

/* The broker looks for a lane's launches that do not end every quarter of --launch-timeout. */
static bool is_looked_for(const struct cell *cell)
{
	return cell->step == launch_in_lane && strcmp(cell->fault, "hang") == 0;
}

static void run_cells(struct kilnd *daemon, const char *timeout, bool looked_for)
{
	struct scene scene = {.daemon = daemon};

	kilnd_start(daemon, OPTIONS("--launch-timeout", timeout));
	scene.watch = client_open(daemon);
	debug_int(scene.watch, "restart-pause", "ms", 1);
	scene.plain = open_pair(daemon, "off");
	scene.lane = open_pair(daemon, "on");
	kiln_call_free(transpose_prepare(scene.watch, 7, 11));
	pair_warm(&scene.lane);
	int fds = count_fds(daemon->pid);
	for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
		char what[64];
		if (is_looked_for(&cells[i]) != looked_for)
			continue;
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

static void device_processes(void **state)
{
	run_cells(*state, TEXT(CALL_TIMEOUT_MS), false);
}

static void device_processes_that_hang_in_a_lane(void **state)
{
	run_cells(*state, "2000", true);
}

/* A step that wants more is refused, and nothing else is. */
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
	pid_t pid = device_process(client, 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(device_processes),
		HARNESS_TEST(device_processes_that_hang_in_a_lane),
		HARNESS_TEST(without_what_they_need),
		HARNESS_TEST(users_processes),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
