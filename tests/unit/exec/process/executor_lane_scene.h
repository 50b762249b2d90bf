/*
 * executor_lane_scene: an executor process on the cpu device with a lane, whose entries a test
 * writes as a client does, while it speaks of the lane's calls as the broker does.
 */
#ifndef KILN_TESTS_EXECUTOR_LANE_SCENE_H
#define KILN_TESTS_EXECUTOR_LANE_SCENE_H

#include "executor_scene.h"

#include "daemon/base/util.h"

#include <sched.h>
#include <sys/eventfd.h>

#define OWNER 9
#define CALL 3
#define BYTES 64
#define LONG_MS 60000 /* a deadline, or a delay, that no test waits for */

struct scene {
	struct peer peer;
	struct lane_memory *lane;
	int fds[LANE_EXEC_DESCRIPTORS], client; /* its end of the pipe */
};

/* ---- Requests ---- */

/* Skips events: an executor says them by itself, and no test here waits for one. */
static inline int status_past_events(struct peer *peer, uint64_t id)
{
	do
		receive(peer);
	while (strcmp(wire_type(&answer), "event") == 0);
	assert_int_equal(wire_id(&answer), id);
	return (int)wire_get_int(&answer.root, "st", 1);
}

static inline int ask_past_events(struct peer *peer, struct wire_out *message)
{
	return status_past_events(peer, post(peer, message, NULL, 0));
}

static inline void begin_owned(struct scene *scene, struct wire_out *message, const char *type)
{
	begin(&scene->peer, message, type);
	wire_put_uint(message, "stream", OWNER);
}

/* type: bind or rebind. */
static inline int tell(struct scene *scene, const char *type, uint64_t call,
					   const struct launch *launch, uint64_t notice)
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
static inline int tell_copy(struct scene *scene, const char *type, uint64_t call, uint64_t bytes,
							uint64_t notice)
{
	const struct launch copy = {.stream = OWNER,
								.copy = bytes,
								.operands = {{0, 0, bytes, 1}, {0, 0, bytes, 1}},
								.operand_count = 2};
	return tell(scene, type, call, &copy, notice);
}

static inline void bind_copy(struct scene *scene, uint64_t call)
{
	assert_int_equal(tell_copy(scene, "lane.bind", call, BYTES, 0), KILN_OK);
}

static inline int ask_of_lane(struct scene *scene, const char *type, const char *key,
							  uint64_t value)
{
	struct wire_out message;
	begin_owned(scene, &message, type);
	wire_put_uint(&message, key, value);
	wire_put_uint(&message, "lane", OWNER);
	wire_put_uint(&message, "tail", UINT64_MAX); /* all there is */
	return ask_past_events(&scene->peer, &message);
}

/* The memory of a lane, and its descriptors. */
static inline void make_lane(struct scene *scene)
{
	int ends[2];
	scene->lane = make_lane_memory(&scene->fds[0]);
	scene->fds[1] = eventfd(0, EFD_NONBLOCK);
	assert_int_equal(pipe(ends), 0);
	scene->client = ends[0];
	scene->fds[2] = ends[1];
	scene->fds[3] = frame_memfd("counts", sizeof(struct lane_counts));
}

static inline void unmake_lane(struct scene *scene)
{
	munmap(scene->lane, sizeof(*scene->lane));
	for (int i = 0; i < LANE_EXEC_DESCRIPTORS; i++)
		close(scene->fds[i]);
	close(scene->client);
}

/* With buffers 1 to 4 and a call.  The deadlines are those of launches and of ready words. */
static inline void open_until(struct scene *scene, uint32_t deadline_ms, uint32_t ready_ms)
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
	wire_put_uint(&message, "deadline", deadline_ms);
	wire_put_uint(&message, "ready", ready_ms);
	uint64_t id = post(&scene->peer, &message, scene->fds, LANE_EXEC_DESCRIPTORS);
	assert_int_equal(status_of(&scene->peer, id), KILN_OK);
	bind_copy(scene, CALL);
}

static inline void open_scene(struct scene *scene)
{
	open_until(scene, LONG_MS, 0);
}

static inline void close_scene(struct scene *scene)
{
	assert_int_equal(ask_of_lane(scene, "lane.close", "x", 0), KILN_OK);
	assert_int_equal(end_peer(&scene->peer), 0);
	unmake_lane(scene);
}

/* ---- Entries ---- */

static inline struct lane_entry copy_on(uint32_t stream)
{
	return (struct lane_entry){
		.call = CALL, .stream = stream, .operand_count = 2, .operands = {{1, 0}, {2, 0}}};
}

static inline struct lane_entry gated_on(uint32_t stream)
{
	struct lane_entry entry = copy_on(stream);
	entry.flags = LANE_READY;
	return entry;
}

static inline struct lane_entry after(uint64_t number, uint32_t stream)
{
	struct lane_entry entry = copy_on(stream);
	entry.after = number + 1;
	return entry;
}

/* Its number. */
static inline uint64_t add(struct scene *scene, struct lane_entry entry)
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

static inline void open_gate(struct scene *scene, uint64_t number)
{
	atomic_store(&scene->lane->gates[number % LANE_ENTRIES].ready, lane_gate_value(number));
}

static inline bool has_ended(struct scene *scene, uint64_t number)
{
	return atomic_load(&scene->lane->cells[number % LANE_ENTRIES].done) == number + 1;
}

/* Waits for the end of an entry, which says this. */
static inline void expect(struct scene *scene, uint64_t number, int status, const char *part)
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
static inline uint64_t pass_by(struct scene *scene)
{
	uint64_t number = add(scene, copy_on(15));
	expect(scene, number, KILN_OK, "");
	return number;
}

#endif
