/*
 * Quiet moments and lanes: entries are held as messages are, and what lanes share with a device is
 * given back when nothing runs.
 */
#include "quiet_scene.h"

#if !defined(KILN_HAVE_CUDA_H) || !defined(KILN_FAKE_CUDA_LIBRARY)

#include <stdio.h>

int main(void)
{
	puts("built without cuda.h: there is no device that stalls");
	return 77;
}

#else

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define DEADLINE_MS 300

struct lane {
	struct lane_memory *memory;
	int fds[LANE_EXEC_DESCRIPTORS], client; /* its end of the pipe */
};

/* Stream 9 has buffer 8, and may launch call 3: module 1 fills it. */
static void open_made(struct scene *scene, struct lane *lane)
{
	struct wire_out message;
	int ends[2];
	lane->fds[1] = eventfd(0, EFD_NONBLOCK);
	assert_int_equal(pipe(ends), 0);
	lane->fds[2] = ends[1];
	lane->fds[3] = frame_memfd("counts", sizeof(struct lane_counts));
	lane->client = ends[0];
	begin(&scene->peer, &message, "lane.open");
	wire_put_uint(&message, "stream", 9);
	wire_put_uint(&message, "deadline", DEADLINE_MS);
	expect(scene, post(&scene->peer, &message, lane->fds, LANE_EXEC_DESCRIPTORS));
	begin(&scene->peer, &message, "alloc");
	wire_put_uint(&message, "buf", 8);
	wire_put_uint(&message, "bytes", 64);
	wire_put_uint(&message, "stream", 9);
	expect(scene, post(&scene->peer, &message, NULL, 0));
	begin(&scene->peer, &message, "lane.bind");
	wire_put_uint(&message, "call", 3);
	put_fill(&message, 1, 0, 9);
	expect(scene, post(&scene->peer, &message, NULL, 0));
}

static void open_lane(struct scene *scene, struct lane *lane)
{
	lane->memory = make_lane_memory(&lane->fds[0]);
	open_made(scene, lane);
}

static void close_lane(struct scene *scene, struct lane *lane)
{
	expect(scene, post_number(scene, "lane.close", "stream", 9));
	munmap(lane->memory, sizeof(*lane->memory));
	for (int i = 0; i < LANE_EXEC_DESCRIPTORS; i++)
		close(lane->fds[i]);
	close(lane->client);
}

static void add_entry_on(struct lane *lane, uint32_t flags, uint32_t stream)
{
	struct lane_header *header = &lane->memory->header;
	uint64_t number = atomic_load(&header->tail);
	const uint64_t one = 1;
	lane->memory->entries[number % LANE_ENTRIES] = (struct lane_entry){
		.call = 3, .flags = flags, .stream = stream, .operand_count = 1, .operands = {{8, 0}}};
	lane_publish(lane->memory, number);
	assert_int_equal(write(lane->fds[1], &one, sizeof(one)), sizeof(one));
}

static void add_entry(struct lane *lane, uint32_t flags)
{
	add_entry_on(lane, flags, 0);
}

static void await_entry(struct lane *lane, uint64_t number)
{
	struct lane_cell *cell = &lane->memory->cells[number % LANE_ENTRIES];
	uint64_t until = util_now_us() + WAIT_MS * 1000ull;
	while (atomic_load(&cell->done) != number + 1) {
		assert_true(util_now_us() < until);
		sched_yield();
	}
	assert_int_equal(cell->status, KILN_OK);
}

/* In a process: never returns. */
static void hold_entries(void)
{
	struct scene scene;
	struct lane lane;
	open_scene(&scene, 1);
	open_lane(&scene, &lane);
	add_entry(&lane, 0);
	await_entry(&lane, 0);
	fake->slow("cuModuleLoadData", (DEADLINE_MS + 100) * 1000);
	fake->hold(1);
	uint64_t first = post_launch(&scene, 1, 5);
	uint64_t load = post_load(&scene, 2, FAKE_FILL);
	await_hold(&scene);
	add_entry(&lane, 0);
	await_calls("cuEventQuery", fake->calls("cuEventQuery") + 10);
	int launched = fake->calls("cuLaunchKernel");
	fake->hold(0);
	await_entry(&lane, 1);
	expect(&scene, first);
	expect(&scene, load);
	close_lane(&scene, &lane);
	if (scene.given_up > 0)
		_exit(EXEC_EXIT_FAULT);
	assert_int_equal(launched, 2);
	close_scene(&scene);
	_exit(0);
}

/* Entries are held like messages.  A lane whose launches take 0.3 s is stuck, and its process is
 * ended; one whose launches are held for longer is not.  A hold that was over too soon may end as
 * the stuck do. */
static void entries_are_held_and_not_stuck(void **state)
{
	(void)state;
	int status = -1;
	for (int tries = 0; status != 0 && tries < TRIES; tries++) {
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			alarm(WAIT_MS / 1000);
			hold_entries();
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_true(status == 0 || WEXITSTATUS(status) == EXEC_EXIT_FAULT);
	}
	assert_int_equal(status, 0);
}

/* The words of a lane are given back later; the lane itself is gone. */
static void words_are_unshared_when_nothing_runs(void **state)
{
	(void)state;
	struct scene scene;
	struct lane lane;
	open_scene(&scene, LONG_MS);
	open_lane(&scene, &lane);
	add_entry(&lane, LANE_DONE);
	await_entry(&lane, 0);
	fake->hold(1);
	uint64_t first = post_launch(&scene, 1, 5);
	close_lane(&scene, &lane);
	expect_ping(&scene);
	assert_int_equal(fake->calls("cuMemHostRegister"), 1);
	assert_int_equal(fake->calls("cuMemHostUnregister"), 0);
	fake->hold(0);
	expect(&scene, first);
	await_calls("cuMemHostUnregister", 1);
	close_scene(&scene);
}

/* The device process, and what its client does: never returns. */
static void keep_one_stream(struct lane *lane)
{
	struct scene scene;
	open_scene(&scene, LONG_MS);
	open_made(&scene, lane);
	fake->hold(1);
	int launched = fake->calls("cuLaunchKernel");
	add_entry_on(lane, LANE_TIMED, 1);
	await_calls("cuLaunchKernel", launched + 1);
	await_calls("cuEventQuery", fake->calls("cuEventQuery") + 2);
	fake->hold(FAKE_HOLD_BUSY);
	for (uint64_t number = 1;; number++) {
		add_entry_on(lane, LANE_TIMED, 0);
		await_entry(lane, number);
	}
}

/* False: the process had ended before others got on. */
static bool one_stream_is_kept(void)
{
	struct lane lane = {0};
	int status;
	lane.memory = make_lane_memory(&lane.fds[0]);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(WAIT_MS / 1000);
		keep_one_stream(&lane);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), EXEC_EXIT_FAULT);
	assert_int_equal(lane.memory->cells[0].status, KILN_ETIMEDOUT);
	assert_non_null(strstr(lane.memory->cells[0].error, "nothing completed on"));
	assert_int_equal(lane.memory->cells[1].status, KILN_OK);
	bool seen = atomic_load(&lane.memory->header.head) > 2;
	munmap(lane.memory, sizeof(*lane.memory));
	close(lane.fds[0]);
	return seen;
}

/* Others that get on do not excuse a stream that does not. */
static void deadline_of_a_stream(void **state)
{
	(void)state;
	int tries = 0;
	while (!one_stream_is_kept())
		assert_true(++tries < TRIES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deadline_of_a_stream),
		cmocka_unit_test(entries_are_held_and_not_stuck),
		cmocka_unit_test(words_are_unshared_when_nothing_runs),
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
