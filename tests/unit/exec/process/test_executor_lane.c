/*
 * Entries of a lane in the executor process on the cpu device: which are parked and for how long,
 * what follows what failed, lanes that are full or many, and what makes no sense.
 */
#include "executor_lane_scene.h"

#include "daemon/exec/process/launcher.h"

/* ---- A process that the system stops ---- */

enum { HOLD_DEADLINE_MS = 700, HOLD_DELAY_MS = 200, HOLD_MS = 1500 };

/* Shared with the executor process: 1 asks it to stand still behind its next look for ends. */
static _Atomic int *hold;

void __real_exec_lanes_wake(struct launcher *launcher);
void __wrap_exec_lanes_wake(struct launcher *launcher);

void __wrap_exec_lanes_wake(struct launcher *launcher)
{
	int asked = 1;
	if (launcher_in_flight(launcher) > 0 && atomic_compare_exchange_strong(hold, &asked, 2))
		usleep(HOLD_MS * 1000);
	__real_exec_lanes_wake(launcher);
}

uint64_t __real_cpu_begun_us(struct device *part, uint64_t ticket);
uint64_t __wrap_cpu_begun_us(struct device *part, uint64_t ticket);

/* While hold is set, the device tells as little of what runs as a GPU does. */
uint64_t __wrap_cpu_begun_us(struct device *part, uint64_t ticket)
{
	return atomic_load(hold) ? 1 : __real_cpu_begun_us(part, ticket);
}

/* The system stops the process that looks for ends, and meanwhile a kernel ends in time. */
static void held_behind_its_look(void **state)
{
	(void)state;
	struct scene scene;
	struct wire_out message;
	const struct launch launch = {.stream = OWNER,
								  .copy = BYTES,
								  .delay = HOLD_DELAY_MS,
								  .operands = {{1, 0, BYTES, 1}, {2, 0, BYTES, 1}},
								  .operand_count = 2};
	open_scene(&scene);
	begin(&scene.peer, &message, "launch");
	put_launch(&message, &launch);
	wire_put_uint(&message, "deadline", HOLD_DEADLINE_MS);
	uint64_t id = post(&scene.peer, &message, NULL, 0);
	pass_by(&scene);
	atomic_store(hold, 1);
	pass_by(&scene);
	assert_int_equal(status_past_events(&scene.peer, id), KILN_OK);
	assert_int_equal(atomic_load(hold), 2);
	atomic_store(hold, 0);
	close_scene(&scene);
}

/* ---- Entries ---- */

static void a_gate_holds_back_its_stream_alone(void **state)
{
	(void)state;
	struct scene scene;
	open_scene(&scene);
	uint64_t first = add(&scene, gated_on(1)), second = add(&scene, copy_on(1));
	uint64_t third = add(&scene, gated_on(1)), other = add(&scene, after(second, 2));
	pass_by(&scene);
	assert_false(has_ended(&scene, first) || has_ended(&scene, second) || has_ended(&scene, other));
	/* Out of turn it is of no use. */
	open_gate(&scene, third);
	pass_by(&scene);
	assert_false(has_ended(&scene, first) || has_ended(&scene, third));
	open_gate(&scene, first);
	expect(&scene, first, KILN_OK, "");
	expect(&scene, second, KILN_OK, "");
	expect(&scene, third, KILN_OK, "");
	expect(&scene, other, KILN_OK, "");
	close_scene(&scene);
}

/* Nobody may be ended for what waits for its client, nor for what waits behind another's launch. */
static void parked_is_not_overdue(void **state)
{
	enum { DEADLINE_MS = 100 };
	(void)state;
	struct scene scene;
	struct wire_out message;
	const struct launch slow = {.stream = OWNER,
								.copy = BYTES,
								.delay = LONG_MS,
								.operands = {{1, 0, BYTES, 1}, {2, 0, BYTES, 1}},
								.operand_count = 2};
	open_until(&scene, DEADLINE_MS, 0);
	post_launch(&scene.peer, &slow);
	begin(&scene.peer, &message, "ping");
	assert_int_equal(ask_past_events(&scene.peer, &message), KILN_OK);
	uint64_t behind = add(&scene, copy_on(0)), gated = add(&scene, gated_on(1));
	usleep(3 * DEADLINE_MS * 1000);
	assert_false(has_ended(&scene, behind) || has_ended(&scene, gated));
	assert_int_equal(ask_of_lane(&scene, "lane.cancel", "number", gated), KILN_OK);
	expect(&scene, gated, KILN_ECANCELED, "the call was canceled before it started");
	assert_false(has_ended(&scene, behind));
	assert_int_equal(end_peer(&scene.peer), 0);
	unmake_lane(&scene);
}

/* It has an end all the same, which is long in coming: it, and what follows it, are told. */
static void a_gate_that_stays_shut(void **state)
{
	(void)state;
	struct scene scene;
	open_until(&scene, LONG_MS, 300);
	struct lane_entry last = after(0, 1);
	last.flags = LANE_DONE;
	uint64_t began = util_now_us(), gated = add(&scene, gated_on(1)), follower = add(&scene, last);
	uint64_t other = add(&scene, copy_on(2));
	expect(&scene, other, KILN_OK, "");
	expect(&scene, gated, KILN_ETIMEDOUT, "did not come by for 300 ms");
	expect(&scene, follower, KILN_ECANCELED, "the call that this one follows did not succeed");
	assert_true(util_now_us() - began >= 300000);
	/* Its stream is let go after its client is told. */
	uint64_t until = util_now_us() + WAIT_MS * 1000ull;
	while (!lane_gate_open(&scene.lane->gates[follower % LANE_ENTRIES].done, follower))
		assert_true(util_now_us() < until);
	uint64_t next = atomic_load(&scene.lane->header.tail);
	open_gate(&scene, next);
	assert_int_equal(add(&scene, gated_on(1)), next);
	expect(&scene, next, KILN_OK, "");
	close_scene(&scene);
}

/* A failed entry's place is used again before what follows it may start. */
static void a_failure_outlives_its_place(void **state)
{
	(void)state;
	for (int late = 0; late < 2; late++) {
		struct scene scene;
		open_scene(&scene);
		struct lane_entry bad = late ? gated_on(3) : copy_on(3);
		bad.operands[0].offset = BYTES;
		uint64_t failed = add(&scene, bad), gated = add(&scene, gated_on(2));
		uint64_t follower = add(&scene, after(failed, 2)), good = add(&scene, copy_on(2));
		pass_by(&scene);
		open_gate(&scene, failed);
		expect(&scene, failed, KILN_EINVAL, "are not within its buffer");
		while (pass_by(&scene) < failed + LANE_ENTRIES)
			;
		assert_false(has_ended(&scene, follower));
		open_gate(&scene, gated);
		expect(&scene, gated, KILN_OK, "");
		expect(&scene, follower, KILN_ECANCELED, "the call that this one follows did not succeed");
		expect(&scene, good, KILN_OK, "");
		close_scene(&scene);
	}
}

static void canceled_while_parked(void **state)
{
	(void)state;
	struct scene scene;
	open_scene(&scene);
	uint64_t first = add(&scene, gated_on(1)), second = add(&scene, after(first, 1));
	uint64_t third = add(&scene, copy_on(1)), other = add(&scene, after(second, 2));
	assert_int_equal(ask_of_lane(&scene, "lane.cancel", "number", second), KILN_OK);
	expect(&scene, second, KILN_ECANCELED, "the call was canceled before it started");
	expect(&scene, other, KILN_ECANCELED, "did not succeed");
	pass_by(&scene);
	assert_false(has_ended(&scene, first) || has_ended(&scene, third));
	open_gate(&scene, first);
	expect(&scene, first, KILN_OK, "");
	expect(&scene, third, KILN_OK, "");
	/* An entry that has ended stays as it ended. */
	assert_int_equal(ask_of_lane(&scene, "lane.cancel", "number", first), KILN_OK);
	expect(&scene, first, KILN_OK, "");
	close_scene(&scene);
}

static void closed_with_parked_entries(void **state)
{
	(void)state;
	struct scene scene;
	open_scene(&scene);
	uint64_t gated = add(&scene, gated_on(1)), behind = add(&scene, copy_on(1));
	uint64_t other = add(&scene, after(behind, 2));
	assert_int_equal(ask_of_lane(&scene, "lane.close", "x", 0), KILN_OK);
	assert_true(has_ended(&scene, gated) && has_ended(&scene, behind) && has_ended(&scene, other));
	expect(&scene, gated, KILN_ECANCELED, "had not started when its lane was closed");
	expect(&scene, other, KILN_ECANCELED, "had not started when its lane was closed");
	close_scene(&scene);
}

/* In the lane of another stream, which has buffers of its own. */
static struct lane_entry copy_of(uint64_t owner)
{
	return (struct lane_entry){
		.call = CALL, .operand_count = 2, .operands = {{10 + 2 * owner, 0}, {11 + 2 * owner, 0}}};
}

/* Another stream's lane, with buffers and a call of its own.  delay: of its first launch, in ms. */
static void open_other(struct scene *scene, uint64_t owner, uint64_t delay)
{
	struct wire_out message;
	struct lane_entry entry = copy_of(owner);
	struct launch copy = {.stream = owner,
						  .copy = BYTES,
						  .delay = delay,
						  .operands = {{entry.operands[0].buffer, 0, BYTES, 1},
									   {entry.operands[1].buffer, 0, BYTES, 1}},
						  .operand_count = 2};
	for (int i = 0; i < 2; i++) {
		begin(&scene->peer, &message, "alloc");
		wire_put_uint(&message, "buf", entry.operands[i].buffer);
		wire_put_uint(&message, "bytes", BYTES);
		wire_put_uint(&message, "stream", owner);
		assert_int_equal(ask_past_events(&scene->peer, &message), KILN_OK);
	}
	make_lane(scene);
	begin(&scene->peer, &message, "lane.open");
	wire_put_uint(&message, "stream", owner);
	uint64_t id = post(&scene->peer, &message, scene->fds, LANE_EXEC_DESCRIPTORS);
	assert_int_equal(status_past_events(&scene->peer, id), KILN_OK);
	if (delay)
		post_launch(&scene->peer, &copy);
	copy.delay = 0;
	assert_int_equal(tell(scene, "lane.bind", CALL, &copy, 0), KILN_OK);
}

/* A lane whose entries all wait behind a launch that takes its time. */
static void open_full(struct scene *scene, uint64_t owner)
{
	open_other(scene, owner, LONG_MS);
	for (unsigned i = 0; i < LANE_ENTRIES; i++)
		add(scene, copy_of(owner));
}

/* However much goes through lanes, requests are heard. */
static void full_lanes_keep_no_request_waiting(void **state)
{
	enum { LANES = 17, MOST = 3072 };
	(void)state;
	static struct scene lanes[LANES];
	struct scene scene;
	struct wire_out message;
	uint64_t in_flight;
	open_scene(&scene);
	for (uint64_t i = 0; i < LANES; i++) {
		lanes[i].peer = scene.peer;
		open_full(&lanes[i], 100 + i);
		scene.peer = lanes[i].peer;
	}
	do {
		begin(&scene.peer, &message, "ping");
		assert_int_equal(ask_past_events(&scene.peer, &message), KILN_OK);
		in_flight = wire_get_uint(&answer.root, "inflight", 0);
	} while (in_flight < MOST + LANES);
	assert_int_equal(in_flight, MOST + LANES);
	assert_int_equal(end_peer(&scene.peer), 0);
	for (int i = 0; i < LANES; i++)
		unmake_lane(&lanes[i]);
	unmake_lane(&scene);
}

/* Its main thread waits in the kernel. */
static bool sleeps(pid_t pid)
{
	char path[64], state = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*d %*s %c", &state), 1);
	fclose(file);
	return state == 'S';
}

/* However many requests have come, an entry waits for few of them. */
static void many_requests_keep_no_lane_waiting(void **state)
{
	enum { PINGS = 48, FEW = 4 };
	(void)state;
	struct scene scene;
	struct peer *peer = &scene.peer;
	struct wire_out message;
	begin_launchers(peer, "cpu", 1);
	open_other(&scene, OWNER, LONG_MS);
	while (!atomic_load(&scene.lane->header.sleeping) || !sleeps(peer->pid))
		sched_yield();
	assert_int_equal(kill(peer->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(peer->pid, NULL, WUNTRACED), peer->pid);
	add(&scene, copy_of(OWNER));
	for (int i = 0; i < PINGS; i++) {
		begin(peer, &message, "ping");
		post(peer, &message, NULL, 0);
	}
	assert_int_equal(kill(peer->pid, SIGCONT), 0);
	for (uint64_t id = peer->next_id - PINGS; id < peer->next_id; id++) {
		assert_int_equal(status_past_events(peer, id), KILN_OK);
		if (id >= peer->next_id - PINGS + FEW)
			assert_int_equal(wire_get_uint(&answer.root, "inflight", 0), 2);
	}
	assert_int_equal(end_peer(peer), 0);
	unmake_lane(&scene);
}

/* Clients spin for several launches, and for all of a turn where there are CPUs for all who launch.
 * Where there are not, those whose turn comes late do not spin, as long as so many launch. */
static void spins_as_there_are_cpus(void **state)
{
	enum { LANES = 40 };
	(void)state;
	static struct scene lanes[LANES];
	struct scene scene;
	uint32_t crowded = 2 * LANES <= util_cpu_count() ? LANES * SPIN_US : 0;
	uint64_t until = util_now_us() + WAIT_MS * 1000ull;
	open_scene(&scene);
	const _Atomic uint32_t *spin_us = &scene.lane->header.spin_us;
	assert_int_equal(atomic_load(spin_us), 4 * SPIN_US);
	for (uint64_t i = 0; i < LANES; i++) {
		lanes[i].peer = scene.peer;
		open_other(&lanes[i], 100 + i, 0);
		scene.peer = lanes[i].peer;
	}
	while (atomic_load(spin_us) != crowded) {
		assert_true(util_now_us() < until);
		for (uint64_t i = 0; i < LANES; i++)
			add(&lanes[i], copy_of(100 + i));
		for (uint64_t i = 0; i < LANES; i++)
			expect(&lanes[i], atomic_load(&lanes[i].lane->header.tail) - 1, KILN_OK, "");
	}
	uint32_t alone = util_cpu_count() > 1 ? 4 * SPIN_US : SPIN_US;
	while (atomic_load(spin_us) != alone) {
		assert_true(util_now_us() < until);
		expect(&scene, add(&scene, copy_on(0)), KILN_OK, "");
	}
	assert_int_equal(end_peer(&scene.peer), 0);
	for (int i = 0; i < LANES; i++)
		unmake_lane(&lanes[i]);
	unmake_lane(&scene);
}

static void nonsense(void **state)
{
	(void)state;
	struct scene scene;
	struct lane_entry entry = copy_on(77);
	open_scene(&scene);
	expect(&scene, add(&scene, entry), KILN_EINVAL,
		   "an entry of a lane names stream 77; they are 0 to 15");
	entry = copy_on(UINT32_MAX);
	expect(&scene, add(&scene, entry), KILN_EINVAL, "names stream 4294967295");
	/* Nothing is waited for that has not come before. */
	uint64_t next = atomic_load(&scene.lane->header.tail);
	expect(&scene, add(&scene, after(next, 1)), KILN_OK, "");
	expect(&scene, add(&scene, after(next + 100, 2)), KILN_OK, "");
	expect(&scene, add(&scene, after(next + 1 + LANE_ENTRIES, 2)), KILN_OK, "");
	entry = copy_on(3);
	entry.after = UINT64_MAX;
	expect(&scene, add(&scene, entry), KILN_OK, "");
	/* All flags there could be: a gate, and it opens. */
	entry.flags = UINT32_MAX;
	uint64_t number = add(&scene, entry);
	pass_by(&scene);
	assert_false(has_ended(&scene, number));
	open_gate(&scene, number);
	expect(&scene, number, KILN_OK, "");
	close_scene(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_gate_holds_back_its_stream_alone),
		cmocka_unit_test(held_behind_its_look),
		cmocka_unit_test(parked_is_not_overdue),
		cmocka_unit_test(a_gate_that_stays_shut),
		cmocka_unit_test(a_failure_outlives_its_place),
		cmocka_unit_test(canceled_while_parked),
		cmocka_unit_test(closed_with_parked_entries),
		cmocka_unit_test(full_lanes_keep_no_request_waiting),
		cmocka_unit_test(many_requests_keep_no_lane_waiting),
		cmocka_unit_test(spins_as_there_are_cpus),
		cmocka_unit_test(nonsense),
	};
	hold = mmap(NULL, sizeof(*hold), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (hold == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, teardown);
}
