/*
 * Entries of a lane in the executor process on the cpu device, written as a client writes them and
 * spoken of as the broker does: which are parked and for how long, what follows what failed, what
 * is let go of, and what makes no sense.
 */
#include "executor_scene.h"

#include "client/wire/lane_memory.h"
#include "daemon/base/util.h"

#include <sched.h>
#include <sys/eventfd.h>

#define OWNER 9
#define CALL 3
#define BYTES 64
#define DEADLINE_MS 100
#define SPIN_US 50

struct scene {
	struct peer peer;
	struct lane_memory *lane;
	int fds[LANE_EXEC_DESCRIPTORS], client; /* its end of the pipe */
};

/* ---- Requests ---- */

/* Skips events: an executor says them by itself, and no test here waits for one. */
static int status_past_events(struct peer *peer, uint64_t id)
{
	do
		receive(peer);
	while (strcmp(wire_type(&answer), "event") == 0);
	assert_int_equal(wire_id(&answer), id);
	return (int)wire_get_int(&answer.root, "st", 1);
}

static int ask_past_events(struct peer *peer, struct wire_out *message)
{
	return status_past_events(peer, post(peer, message, NULL, 0));
}

static void begin_owned(struct scene *scene, struct wire_out *message, const char *type)
{
	begin(&scene->peer, message, type);
	wire_put_uint(message, "stream", OWNER);
}

/* type: bind or rebind. */
static int tell(struct scene *scene, const char *type, uint64_t call, const struct launch *launch,
				uint64_t notice)
{
	struct wire_out message;
	begin(&scene->peer, &message, type);
	wire_put_uint(&message, "call", call);
	wire_put_str(&message, "op", "copy");
	wire_put_uint(&message, "notice", notice);
	put_launch(&message, launch);
	return ask_past_events(&scene->peer, &message);
}

/* A copy of so many bytes from its first operand to its second. */
static int tell_copy(struct scene *scene, const char *type, uint64_t call, uint64_t bytes,
					 uint64_t notice)
{
	const struct launch copy = {.stream = OWNER,
								.copy = bytes,
								.operands = {{0, 0, bytes, 1}, {0, 0, bytes, 1}},
								.operand_count = 2};
	return tell(scene, type, call, &copy, notice);
}

static void bind_copy(struct scene *scene, uint64_t call)
{
	assert_int_equal(tell_copy(scene, "lane.bind", call, BYTES, 0), KILN_OK);
}

static int ask_of_lane(struct scene *scene, const char *type, const char *key, uint64_t value)
{
	struct wire_out message;
	begin_owned(scene, &message, type);
	wire_put_uint(&message, key, value);
	wire_put_uint(&message, "lane", OWNER);
	wire_put_uint(&message, "tail", UINT64_MAX); /* all there is */
	return ask_past_events(&scene->peer, &message);
}

/* The memory of a lane, and its descriptors. */
static void make_lane(struct scene *scene)
{
	int ends[2];
	scene->fds[0] = frame_memfd("lane", sizeof(*scene->lane));
	scene->fds[1] = eventfd(0, EFD_NONBLOCK);
	assert_int_equal(pipe(ends), 0);
	scene->client = ends[0];
	scene->fds[2] = ends[1];
	scene->fds[3] = frame_memfd("counts", sizeof(struct lane_counts));
	scene->lane =
		mmap(NULL, sizeof(*scene->lane), PROT_READ | PROT_WRITE, MAP_SHARED, scene->fds[0], 0);
	assert_true(scene->lane != MAP_FAILED);
	scene->lane->header.magic = LANE_MAGIC;
	scene->lane->header.version = LANE_VERSION;
	scene->lane->header.entries = LANE_ENTRIES;
	scene->lane->header.spin_us = SPIN_US;
}

static void unmake_lane(struct scene *scene)
{
	munmap(scene->lane, sizeof(*scene->lane));
	for (int i = 0; i < LANE_EXEC_DESCRIPTORS; i++)
		close(scene->fds[i]);
	close(scene->client);
}

/* With buffers 1 to 4 and a call; ready_ms: of ready words. */
static void open_patient(struct scene *scene, uint32_t ready_ms)
{
	struct wire_out message;
	begin_peer(&scene->peer, "cpu");
	for (uint64_t i = 1; i <= 4; i++) {
		begin_owned(scene, &message, "alloc");
		wire_put_uint(&message, "buf", i);
		wire_put_uint(&message, "bytes", BYTES);
		assert_int_equal(ask(&scene->peer, &message), KILN_OK);
	}
	make_lane(scene);
	begin_owned(scene, &message, "lane.open");
	wire_put_uint(&message, "deadline", DEADLINE_MS);
	wire_put_uint(&message, "ready", ready_ms);
	uint64_t id = post(&scene->peer, &message, scene->fds, LANE_EXEC_DESCRIPTORS);
	assert_int_equal(status_of(&scene->peer, id), KILN_OK);
	bind_copy(scene, CALL);
}

static void open_scene(struct scene *scene)
{
	open_patient(scene, 0);
}

static void close_scene(struct scene *scene)
{
	assert_int_equal(ask_of_lane(scene, "lane.close", "x", 0), KILN_OK);
	assert_int_equal(end_peer(&scene->peer), 0);
	unmake_lane(scene);
}

/* ---- Entries ---- */

static struct lane_entry copy_on(uint32_t stream)
{
	return (struct lane_entry){
		.call = CALL, .stream = stream, .operand_count = 2, .operands = {{1, 0}, {2, 0}}};
}

/* In the lane of another stream, which has buffers of its own. */
static struct lane_entry copy_of(uint64_t owner)
{
	return (struct lane_entry){
		.call = CALL, .operand_count = 2, .operands = {{10 + 2 * owner, 0}, {11 + 2 * owner, 0}}};
}

static struct lane_entry gated_on(uint32_t stream)
{
	struct lane_entry entry = copy_on(stream);
	entry.flags = LANE_READY;
	return entry;
}

static struct lane_entry after(uint64_t number, uint32_t stream)
{
	struct lane_entry entry = copy_on(stream);
	entry.after = number + 1;
	return entry;
}

/* Its number. */
static uint64_t add(struct scene *scene, struct lane_entry entry)
{
	struct lane_header *header = &scene->lane->header;
	uint64_t number = atomic_load(&header->tail);
	const uint64_t one = 1;
	entry.sequence = atomic_load(&scene->lane->entries[number % LANE_ENTRIES].sequence);
	scene->lane->entries[number % LANE_ENTRIES] = entry;
	lane_publish(scene->lane, number);
	assert_int_equal(write(scene->fds[1], &one, sizeof(one)), sizeof(one));
	return number;
}

static void open_gate(struct scene *scene, uint64_t number)
{
	atomic_store(&scene->lane->gates[number % LANE_ENTRIES].ready, lane_gate_value(number));
}

static bool has_ended(struct scene *scene, uint64_t number)
{
	return atomic_load(&scene->lane->cells[number % LANE_ENTRIES].done) == number + 1;
}

/* Waits for the end of an entry, which says this. */
static void expect(struct scene *scene, uint64_t number, int status, const char *part)
{
	const struct lane_cell *cell = &scene->lane->cells[number % LANE_ENTRIES];
	uint64_t until = util_now_us() + WAIT_MS * 1000ull;
	while (!has_ended(scene, number)) {
		assert_true(util_now_us() < until);
		sched_yield();
	}
	assert_int_equal(cell->status, status);
	if (!strstr(cell->error, part))
		fail_msg("the sentence \"%s\" does not say \"%s\"", cell->error, part);
}

/* An entry of its own stream is launched and ends: all before it have been looked at. */
static uint64_t pass_by(struct scene *scene)
{
	uint64_t number = add(scene, copy_on(15));
	expect(scene, number, KILN_OK, "");
	return number;
}

/* ---- Tests ---- */

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

/* Nobody may be ended for what waits for its client. */
static void parked_is_not_overdue(void **state)
{
	(void)state;
	struct scene scene;
	open_scene(&scene);
	uint64_t gated = add(&scene, gated_on(1)), until = util_now_us() + 3 * DEADLINE_MS * 1000ull;
	/* As long as three deadlines, and not more entries than places. */
	while (util_now_us() < until) {
		pass_by(&scene);
		usleep(DEADLINE_MS * 1000 / 20);
	}
	assert_false(has_ended(&scene, gated));
	open_gate(&scene, gated);
	expect(&scene, gated, KILN_OK, "");
	close_scene(&scene);
}

/* It has an end all the same, which is long in coming: it, and what follows it, are told. */
static void a_gate_that_stays_shut(void **state)
{
	(void)state;
	struct scene scene;
	open_patient(&scene, 300);
	struct lane_entry last = after(0, 1);
	last.flags = LANE_DONE;
	uint64_t began = util_now_us(), gated = add(&scene, gated_on(1)), follower = add(&scene, last);
	uint64_t other = add(&scene, copy_on(2));
	expect(&scene, other, KILN_OK, "");
	expect(&scene, gated, KILN_ETIMEDOUT, "did not come by for 300 ms");
	expect(&scene, follower, KILN_ECANCELED, "the call that this one follows did not succeed");
	assert_true(util_now_us() - began >= 300000);
	/* Its stream is let go after its client is told. */
	uint64_t until = util_now_us() + 5000000;
	while (!lane_gate_open(&scene.lane->gates[follower % LANE_ENTRIES].done, follower))
		assert_true(util_now_us() < until);
	uint64_t next = add(&scene, gated_on(1));
	open_gate(&scene, next);
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

/* A call that is given up stays for those parked that name it, and no longer. */
static void a_call_stays_for_what_is_parked(void **state)
{
	(void)state;
	struct scene scene;
	struct lane_entry named = gated_on(1), probe = copy_on(14);
	open_scene(&scene);
	bind_copy(&scene, CALL + 1);
	named.call = probe.call = CALL + 1;
	uint64_t first = add(&scene, named);
	assert_int_equal(ask_of_lane(&scene, "lane.unbind", "call", CALL + 1), KILN_OK);
	uint64_t later = add(&scene, gated_on(2));
	pass_by(&scene);
	open_gate(&scene, first);
	expect(&scene, first, KILN_OK, "");
	/* The other is still parked. */
	expect(&scene, add(&scene, probe), KILN_EINVAL, "which is not bound to it");
	assert_false(has_ended(&scene, later));
	bind_copy(&scene, CALL + 1);
	expect(&scene, add(&scene, probe), KILN_OK, "");
	open_gate(&scene, later);
	expect(&scene, later, KILN_OK, "");
	close_scene(&scene);
}

/* Entries that are taken or started from then on run the other launch, also parked ones. */
static void another_launch_takes_over(void **state)
{
	(void)state;
	struct scene scene;
	struct lane_entry small = copy_on(1), parked = gated_on(2);
	open_scene(&scene);
	/* Too short for this place, until the call is of fewer bytes. */
	small.operands[0].offset = parked.operands[0].offset = 1;
	expect(&scene, add(&scene, small), KILN_EINVAL, "are not within its buffer");
	uint64_t held = add(&scene, parked);
	pass_by(&scene);
	assert_int_equal(tell_copy(&scene, "lane.rebind", CALL, BYTES - 1, 0), KILN_OK);
	expect(&scene, add(&scene, small), KILN_OK, "");
	open_gate(&scene, held);
	expect(&scene, held, KILN_OK, "");
	/* A kernel that is not there is no copy, and the call stays what it is. */
	const struct launch none = {.says = LAUNCH_MOD,
								.stream = OWNER,
								.operands = {{0, 0, BYTES, 1}, {0, 0, BYTES, 1}},
								.operand_count = 2};
	assert_int_equal(tell(&scene, "lane.rebind", CALL, &none, 0), KILN_ENOENT);
	expect(&scene, add(&scene, small), KILN_OK, "");
	/* A call that is not bound any more needs no other launch. */
	assert_int_equal(tell_copy(&scene, "lane.rebind", CALL + 1, BYTES, 0), KILN_OK);
	struct lane_entry other = copy_on(1);
	other.call = CALL + 1;
	expect(&scene, add(&scene, other), KILN_EINVAL, "which is not bound to it");
	close_scene(&scene);
}

/* The broker is told of every so many launches of a call that it wants to hear of. */
static void launches_are_told_of(void **state)
{
	(void)state;
	struct scene scene;
	struct lane_entry entry = copy_on(1);
	open_scene(&scene);
	assert_int_equal(tell_copy(&scene, "lane.bind", CALL + 1, BYTES, 3), KILN_OK);
	entry.call = CALL + 1;
	for (int i = 0; i < 7; i++)
		expect(&scene, add(&scene, entry), KILN_OK, "");
	for (int heard = 0; heard < 2;) {
		receive(&scene.peer);
		const char *what = wire_get_str(&answer, &answer.root, "what");
		if (!what || strcmp(what, "used") != 0)
			continue;
		heard++;
		assert_int_equal(wire_get_uint(&answer.root, "stream", 0), OWNER);
		assert_int_equal(wire_get_uint(&answer.root, "call", 0), CALL + 1);
		assert_int_equal(wire_get_uint(&answer.root, "launches", 0), 3);
	}
	close_scene(&scene);
}

/* Binds a copy between the scene's buffers and launches it at once; *refused: it was not bound. */
static int bind_and_run(struct scene *scene, uint64_t call, bool *refused)
{
	const struct launch copy = {.stream = OWNER,
								.copy = BYTES,
								.operands = {{1, 0, BYTES, 1}, {2, 0, BYTES, 1}},
								.operand_count = 2};
	struct wire_out message;
	*refused = false;
	begin(&scene->peer, &message, "lane.bind");
	wire_put_uint(&message, "call", call);
	wire_put_bool(&message, "run", true);
	put_launch(&message, &copy);
	uint64_t id = post(&scene->peer, &message, NULL, 0);
	for (receive(&scene->peer); strcmp(wire_type(&answer), "event") == 0; receive(&scene->peer)) {
		const char *what = wire_get_str(&answer, &answer.root, "what");
		if (!what || strcmp(what, "unbound") != 0)
			continue;
		assert_int_equal(wire_get_uint(&answer.root, "stream", 0), OWNER);
		assert_non_null(strstr(wire_get_str(&answer, &answer.root, "err"), "its lane knows 4096"));
		*refused = true;
	}
	assert_int_equal(wire_id(&answer), id);
	assert_non_null(wire_get(&answer.root, "us")); /* it has run */
	return (int)wire_get_int(&answer.root, "st", 1);
}

static void a_launch_is_bound_on_its_way(void **state)
{
	(void)state;
	struct scene scene;
	struct lane_entry entry = copy_on(1);
	bool refused;
	open_scene(&scene);
	entry.call = CALL + 1;
	assert_int_equal(bind_and_run(&scene, entry.call, &refused), KILN_OK);
	assert_false(refused);
	expect(&scene, add(&scene, entry), KILN_OK, "");
	close_scene(&scene);
}

/* A client may know of a call before the message that binds it has come. */
static void an_entry_awaits_its_call(void **state)
{
	(void)state;
	struct scene scene;
	struct lane_entry entry = copy_on(1);
	open_scene(&scene);
	entry.call = CALL + 1;
	uint64_t number = add(&scene, entry);
	bind_copy(&scene, CALL + 1);
	expect(&scene, number, KILN_OK, "");
	entry.call = CALL + 2; /* which never comes */
	expect(&scene, add(&scene, entry), KILN_EINVAL, "which is not bound to it");
	entry.call = CALL + 1;
	expect(&scene, add(&scene, entry), KILN_OK, "");
	close_scene(&scene);
}

/* One too many is refused, and the lane serves those that it knows; where one goes is room. */
static void a_lane_knows_so_many_calls(void **state)
{
	enum { MOST = 4096 };
	(void)state;
	struct scene scene;
	struct lane_entry entry = copy_on(1);
	open_scene(&scene);
	for (uint64_t i = 1; i < MOST; i++)
		bind_copy(&scene, CALL + i);
	bool refused;
	assert_int_equal(tell_copy(&scene, "lane.bind", CALL + MOST, BYTES, 0), KILN_ELIMIT);
	assert_int_equal(bind_and_run(&scene, CALL + MOST, &refused), KILN_OK);
	assert_true(refused);
	expect(&scene, add(&scene, entry), KILN_OK, "");
	entry.call = CALL + MOST;
	expect(&scene, add(&scene, entry), KILN_EINVAL, "which is not bound to it");
	assert_int_equal(ask_of_lane(&scene, "lane.unbind", "call", CALL + 1), KILN_OK);
	bind_copy(&scene, CALL + MOST);
	expect(&scene, add(&scene, entry), KILN_OK, "");
	close_scene(&scene);
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
	open_other(scene, owner, 60000);
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
		cmocka_unit_test(parked_is_not_overdue),
		cmocka_unit_test(a_gate_that_stays_shut),
		cmocka_unit_test(a_failure_outlives_its_place),
		cmocka_unit_test(canceled_while_parked),
		cmocka_unit_test(closed_with_parked_entries),
		cmocka_unit_test(a_call_stays_for_what_is_parked),
		cmocka_unit_test(another_launch_takes_over),
		cmocka_unit_test(launches_are_told_of),
		cmocka_unit_test(a_launch_is_bound_on_its_way),
		cmocka_unit_test(an_entry_awaits_its_call),
		cmocka_unit_test(a_lane_knows_so_many_calls),
		cmocka_unit_test(full_lanes_keep_no_request_waiting),
		cmocka_unit_test(spins_as_there_are_cpus),
		cmocka_unit_test(nonsense),
	};
	return cmocka_run_group_tests(tests, NULL, teardown);
}
