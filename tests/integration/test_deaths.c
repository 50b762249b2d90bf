/*
 * test_deaths: a client at each step of a call at once: compiling, waiting for a compiler, loading,
 * making a buffer, copying, freeing, launched by message, through the lane, behind another entry,
 * in a process of its own.  Then one kind of process dies: the device processes and the compiler;
 * the clients; the broker.  Each client is told what it must be told, and nothing is left behind.
 */
#include "harness.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Longer than any of them: a death is heard of, and nobody waits until a deadline has passed. */
#define DEADLINES "600000"
#define GRACE_MS STOP_TIMEOUT_MS
#define BYTES (32 * 32 * 4)

static const char endless[] = "__global__ void endless(volatile unsigned *x)\n"
							  "{\n"
							  "	while (x[0] != 123456789)\n"
							  "		;\n"
							  "}\n";

/* ---- What a client does ---- */

/* In memory shared with the test. */
struct seat {
	atomic_bool ready, go, sent, done;
	int status;
	char sentence[400];
};

struct party {
	struct seat *seat;
	kiln_client *client;
	kiln_buffer *x, *y;
	kiln_operand operands[2];
	kiln_call *call;
};

static int prepare(struct party *party, int64_t rows, int64_t columns, kiln_call **out)
{
	struct permute problem = transpose(rows, columns);
	kiln_tensor tensors[] = {permute_input(&problem, NULL), permute_output(&problem, NULL)};
	kiln_attr perm = perm_attr(&problem);
	return kiln_prepare(party->client, "permute", tensors, 2, &perm, 1, out);
}

static int submit(struct party *party, unsigned stream, kiln_ticket after, kiln_ticket *ticket)
{
	kiln_submit_options how = {.size = sizeof(how), .stream = stream, .after = after};
	return kiln_submit_with(party->call, party->operands, 2, &how, ticket);
}

static int await_ticket(struct party *party, kiln_ticket ticket)
{
	atomic_store(&party->seat->sent, true);
	return kiln_wait(party->client, ticket, 2 * CALL_TIMEOUT_MS);
}

/* Until it has been launched through its lane, if it has one. */
static int furnish(struct party *party)
{
	static const char data[BYTES] = "data";
	kiln_ticket ticket;
	int status = kiln_alloc(party->client, BYTES, 0, "x", &party->x);
	if (!status)
		status = kiln_alloc(party->client, BYTES, 0, "y", &party->y);
	if (!status)
		status = kiln_write(party->x, 0, data, BYTES);
	if (!status)
		status = prepare(party, 32, 32, &party->call);
	party->operands[0].buffer = party->x;
	party->operands[1].buffer = party->y;
	for (int i = 0; i < 3 && !status; i++) {
		status = submit(party, 0, 0, &ticket);
		if (!status)
			status = kiln_wait(party->client, ticket, CALL_TIMEOUT_MS);
	}
	return status;
}

static int furnish_own(struct party *party)
{
	const kiln_raw raw = {
		.size = sizeof(raw), .name = "mine.cu", .source = endless, .entry = "endless"};
	int status = kiln_alloc(party->client, BYTES, 0, "x", &party->x);
	return status ? status : kiln_prepare_raw(party->client, &raw, &party->call);
}

static int nothing(struct party *party)
{
	(void)party;
	return KILN_OK;
}

static int launch(struct party *party)
{
	kiln_ticket ticket;
	int status = submit(party, 0, 0, &ticket);
	return status ? status : await_ticket(party, ticket);
}

static int launch_behind(struct party *party)
{
	kiln_ticket first, second;
	int status = submit(party, 0, 0, &first);
	if (!status)
		status = submit(party, 1, first, &second);
	return status ? status : await_ticket(party, second);
}

static int launch_own(struct party *party)
{
	kiln_raw_arg arg = {.buffer = party->x};
	kiln_launch how = {.size = sizeof(how), .block = {1}, .args = &arg, .arg_count = 1};
	kiln_ticket ticket;
	int status = kiln_submit_raw(party->call, &how, 0, &ticket);
	return status ? status : await_ticket(party, ticket);
}

static int compile_one(struct party *party)
{
	return prepare(party, 12, 40 + party->seat->status, &party->call);
}

static int load(struct party *party)
{
	return prepare(party, 16, 24, &party->call);
}

static int allocate(struct party *party)
{
	kiln_buffer *buffer;
	return kiln_alloc(party->client, 64, 0, "new", &buffer);
}

static int write_some(struct party *party)
{
	return kiln_write(party->x, 0, "some", 4);
}

static int read_some(struct party *party)
{
	char bytes[4];
	return kiln_read(party->x, 0, bytes, sizeof(bytes));
}

static int release(struct party *party)
{
	return kiln_free(party->y);
}

static int make_graph(struct party *party)
{
	const kiln_work work = {party->call, party->operands, 2};
	kiln_call *graph;
	return kiln_prepare_graph(party->client, &work, 1, &graph);
}

static int explain(struct party *party)
{
	kiln_reply *reply;
	atomic_store(&party->seat->sent, true);
	return kiln_request(party->client, "info", NULL, 0, &reply);
}

/* ---- Who does what, and what it comes to ---- */

/* The call has reached no other process, the device's, its own, a queue, or the compiler. */
enum arrival { BY_WORD, BY_DEVICE, BY_OWN, BY_QUEUE, BY_COMPILER };

static const struct step {
	const char *name;
	int (*furnish)(struct party *party);
	int (*act)(struct party *party);
	enum arrival arrival; /* how the daemon shows that it is there */
	const char *lane;
	int status; /* when the device processes and the compiler have died */
	const char *words;
} steps[] = {
	{"launched by message", furnish, launch, BY_DEVICE, "off", KILN_EDEVICE, "killed by signal 9"},
	{"compiling", nothing, compile_one, BY_COMPILER, "on", KILN_OK, ""},
	{"waiting for a compiler", nothing, compile_one, BY_QUEUE, "on", KILN_OK, ""},
	{"in its own process", furnish_own, launch_own, BY_OWN, "on", KILN_EDEVICE,
	 "kernel endless of mine.cu: the device process of cpu was killed by signal 9"},
	{"loading", nothing, load, BY_DEVICE, "on", KILN_OK, ""},
	{"in the lane", furnish, launch, BY_WORD, "on", KILN_EDEVICE, "killed by signal 9"},
	{"behind another in the lane", furnish, launch_behind, BY_WORD, "on", KILN_EDEVICE,
	 "killed by signal 9"},
	{"making a buffer", nothing, allocate, BY_DEVICE, "on", KILN_EDEVICE, "buffer new of 64 bytes"},
	{"writing", furnish, write_some, BY_DEVICE, "on", KILN_EDEVICE, "killed by signal 9"},
	{"reading", furnish, read_some, BY_DEVICE, "on", KILN_EDEVICE, "killed by signal 9"},
	{"freeing", furnish, release, BY_DEVICE, "on", KILN_OK, ""},
	{"making a graph", furnish, make_graph, BY_DEVICE, "on", KILN_EDEVICE, "killed by signal 9"},
};

#define STEPS ((int)(sizeof(steps) / sizeof(steps[0])))
#define FLYING 0
#define COMPILING 1
#define LOADING 4

struct scene {
	struct kilnd *daemon;
	kiln_client *watch;
	struct seat *seats; /* STEPS, and one more */
	pid_t pids[STEPS + 1];
};

struct place {
	const struct step *step;
	struct seat *seat;
};

static int sit(const struct kilnd *daemon, void *arg)
{
	const struct place *place = arg;
	struct party party = {.seat = place->seat};
	int status;
	setenv("KILN_LANE", place->step->lane, 1);
	party.client = client_try(daemon, 2 * CALL_TIMEOUT_MS, &status);
	if (party.client)
		status = place->step->furnish(&party);
	if (!status) {
		atomic_store(&party.seat->ready, true);
		while (!atomic_load(&party.seat->go))
			pause_ms(1);
		status = place->step->act(&party);
	}
	party.seat->status = status;
	snprintf(party.seat->sentence, sizeof(party.seat->sentence), "%s", status ? kiln_errmsg() : "");
	atomic_store(&party.seat->done, true);
	kiln_close(party.client);
	return 0;
}

static void await_flag(atomic_bool *flag, const struct seat *seat, const char *what)
{
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (!atomic_load(flag)) {
		if (atomic_load(&seat->done) || now_ms() > end)
			fail_msg("%s: %s \"%s\"", what, kiln_status_name(seat->status), seat->sentence);
		pause_ms(1);
	}
}

static void come(struct scene *scene, int i, int round)
{
	struct place place = {&steps[i], &scene->seats[i]};
	memset(place.seat, 0, sizeof(*place.seat));
	place.seat->status = 2 * round + (i == COMPILING); /* whose kernel nobody has */
	scene->pids[i] = process_start(scene->daemon, sit, &place);
}

static void act(struct scene *scene, int i)
{
	static const char *const figures[] = {[BY_DEVICE] = "executors[0].inflight",
										  [BY_OWN] = "executors[1].inflight",
										  [BY_QUEUE] = "workers.queued",
										  [BY_COMPILER] = "workers.busy"};
	const char *figure = figures[steps[i].arrival];
	struct seat *seat = &scene->seats[i];
	int64_t before = figure ? info_int(scene->watch, figure) : 0;
	await_flag(&seat->ready, seat, steps[i].name);
	atomic_store(&seat->go, true);
	int64_t end = now_ms() + CALL_TIMEOUT_MS;
	while (figure && info_int(scene->watch, figure) <= before)
		if (atomic_load(&seat->done) || now_ms() > end)
			fail_msg("%s: %s \"%s\", and %s is %lld", steps[i].name, kiln_status_name(seat->status),
					 seat->sentence, figure, (long long)before);
	if (!figure)
		await_flag(&seat->sent, seat, steps[i].name);
	assert_false(atomic_load(&seat->done));
}

static void hang_at_load(kiln_client *client)
{
	int64_t before = info_int(client, "executors[0].inflight");
	debug_fail_device(client, "hang", "load", false);
	await_info(client, "executors[0].inflight", before);
}

/* All are where they are to be.  The device process hangs from the load on. */
static void gather(struct scene *scene, int round)
{
	come(scene, FLYING, round);
	await_flag(&scene->seats[FLYING].ready, &scene->seats[FLYING], steps[FLYING].name);
	debug_int(scene->watch, "delay-launch", "ms", 60000);
	act(scene, FLYING);
	debug_int(scene->watch, "delay-launch", "ms", 0);
	for (int i = FLYING + 1; i < STEPS; i++)
		come(scene, i, round);
	for (int i = FLYING + 1; i < STEPS; i++)
		await_flag(&scene->seats[i].ready, &scene->seats[i], steps[i].name);
	await_info(scene->watch, "workers.idle", 1);
	debug_int(scene->watch, "hang-compile", "count", 1);
	for (int i = FLYING + 1; i < STEPS; i++) {
		if (i == LOADING)
			hang_at_load(scene->watch);
		act(scene, i);
	}
}

static void dismiss(struct scene *scene, int i, int status, const char *words)
{
	const struct seat *seat = &scene->seats[i];
	assert_int_equal(process_wait(scene->pids[i], GRACE_MS), EXITED(0));
	if (seat->status != status || (status && !strstr(seat->sentence, words)) ||
		strchr(seat->sentence, '\n'))
		fail_msg("%s: %s \"%s\", not %s with \"%s\"", steps[i].name, kiln_status_name(seat->status),
				 seat->sentence, kiln_status_name(status), words);
}

static void await_one_executor(kiln_client *client)
{
	int64_t end = now_ms() + GRACE_MS;
	int count;
	do {
		kiln_reply *reply;
		assert_ok(kiln_request(client, "info", NULL, 0, &reply));
		count = kiln_reply_count(reply, "executors");
		kiln_reply_free(reply);
	} while (count > 1 && now_ms() < end);
	assert_int_equal(count, 1);
}

/* Nothing of them is left. */
static void assert_over(struct scene *scene, int fds)
{
	await_info(scene->watch, "server.sessions", 1);
	await_info(scene->watch, "workers.idle", 1);
	await_info(scene->watch, "workers.queued", 0);
	await_info(scene->watch, "executors[0].inflight", 0);
	await_info(scene->watch, "executors[0].buffers", 0);
	await_one_executor(scene->watch);
	assert_fds_at_most(scene->daemon->pid, fds);
	assert_counters_add_up(scene->watch);
	struct permute problem = transpose(32, 32);
	assert_permutes(scene->watch, &problem, "hit");
}

static void kill_one(kiln_client *client, int row)
{
	assert_int_equal(kill(device_process(client, row), SIGKILL), 0);
}

/* ---- Deaths ---- */

static void children_die(struct scene *scene)
{
	int64_t lost = info_int(scene->watch, "counters.executor_faults");
	kill_one(scene->watch, 1);
	debug_str(scene->watch, "kill", "role", "compiler");
	kill_one(scene->watch, 0);
	for (int i = 0; i < STEPS; i++)
		dismiss(scene, i, steps[i].status, steps[i].words);
	assert_int_equal(info_int(scene->watch, "counters.executor_faults"), lost + 2);
	assert_int_equal(info_int(scene->watch, "counters.worker_faults"), 1);
}

static void clients_die(struct scene *scene)
{
	int64_t canceled = info_int(scene->watch, "counters.canceled");
	for (int i = 0; i < STEPS; i++)
		kill(scene->pids[i], SIGKILL);
	for (int i = 0; i < STEPS; i++)
		assert_true(WIFSIGNALED(process_wait(scene->pids[i], GRACE_MS)));
	await_info(scene->watch, "server.sessions", 1);
	await_info(scene->watch, "counters.canceled", canceled + 2);
	/* It hangs as before; what it holds is found to be gone in the next. */
	kill_one(scene->watch, 0);
}

static void broker_dies(struct scene *scene)
{
	static const struct step connecting = {.name = "connecting", .furnish = nothing, .lane = "on"},
							 asking = {"asking", nothing, explain, BY_WORD, "on", 0, ""};
	struct seat *seat = &scene->seats[STEPS];
	struct place place = {&asking, seat};
	memset(seat, 0, sizeof(*seat));
	scene->pids[STEPS] = process_start(scene->daemon, sit, &place);
	await_flag(&seat->ready, seat, asking.name);
	process_stop(scene->daemon->pid);
	atomic_store(&seat->go, true);
	await_flag(&seat->sent, seat, asking.name);
	place = (struct place){&connecting, mmap(NULL, sizeof(*seat), PROT_READ | PROT_WRITE,
											 MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
	assert_true(place.seat != MAP_FAILED);
	pid_t newcomer = process_start(scene->daemon, sit, &place);
	pause_ms(50); /* of these two the daemon shows nothing */
	kill(scene->daemon->pid, SIGKILL);
	assert_true(WIFSIGNALED(kilnd_wait(scene->daemon, GRACE_MS)));
	for (int i = 0; i < STEPS; i++)
		dismiss(scene, i, KILN_ECONN, "went away");
	assert_int_equal(process_wait(scene->pids[STEPS], GRACE_MS), EXITED(0));
	assert_int_equal(seat->status, KILN_ECONN);
	assert_int_equal(process_wait(newcomer, GRACE_MS), EXITED(0));
	assert_int_equal(place.seat->status, KILN_ECONN);
	munmap(place.seat, sizeof(*seat));
	assert_no_children();
}

static void at_each_step(void **state)
{
	struct scene scene = {.daemon = *state};
	size_t bytes = sizeof(struct seat) * (STEPS + 1);
	kiln_reply *reply;

	scene.seats = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(scene.seats != MAP_FAILED);
	kilnd_start(scene.daemon, OPTIONS("--workers", "1", "--test-liveness-timeout", DEADLINES,
									  "--launch-timeout", DEADLINES));
	scene.watch = client_open(scene.daemon);
	debug_int(scene.watch, "restart-pause", "ms", 1);
	struct permute loaded = transpose(16, 24), used = transpose(32, 32);
	kiln_tensor tensors[] = {permute_input(&loaded, NULL), permute_output(&loaded, NULL)};
	kiln_attr args = perm_attr(&loaded);
	assert_ok(kiln_compile(scene.watch, "permute", tensors, 2, &args, 1, "cpu", &reply));
	kiln_reply_free(reply);
	assert_permutes(scene.watch, &used, "compiled");
	await_info(scene.watch, "workers.idle", 1);
	int fds = count_fds(scene.daemon->pid);
	gather(&scene, 0);
	children_die(&scene);
	assert_over(&scene, fds);
	gather(&scene, 1);
	clients_die(&scene);
	assert_over(&scene, fds);
	gather(&scene, 2);
	broker_dies(&scene);
	kiln_close(scene.watch);
	/* The next one has the cache. */
	kilnd_start(scene.daemon, NULL);
	scene.watch = client_open(scene.daemon);
	assert_permutes(scene.watch, &used, "hit");
	assert_cache_verifies(scene.watch, 4);
	kiln_close(scene.watch);
	munmap(scene.seats, bytes);
	kilnd_stop(scene.daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HARNESS_TEST(at_each_step),
	};
	harness_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
