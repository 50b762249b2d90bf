/*
 * test_cuda_order_idle: calls in order with a CUDA stream that has nothing to do: they start
 * without it, and if they end soon, it never hears of them; if not, it waits for them, and the host
 * does not.  The device process stands still, and the test says in its stead that entries have
 * ended.
 */
#include "cuda_order.h"

#ifdef KILN_FAKE_CUDA_LIBRARY

#include <dirent.h>
#include <signal.h>

#define CALLS 20

/* True: each thread of the process stands still. */
static bool has_stopped(pid_t pid)
{
	char path[300], text[256];
	int moving = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *tasks = opendir(path);
	assert_non_null(tasks);
	for (struct dirent *entry; (entry = readdir(tasks));) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)pid, entry->d_name);
		FILE *file = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
		if (!file)
			continue;
		const char *rest = fgets(text, sizeof(text), file) ? strrchr(text, ')') : NULL;
		moving += !rest || rest[2] != 'T';
		fclose(file);
	}
	closedir(tasks);
	return moving == 0;
}

/* Stops the device process. */
static pid_t stop_executor(const struct scene *scene)
{
	pid_t pid = device_process(scene->other, 0);
	assert_true(pid > 1);
	process_stop(pid);
	for (int64_t end = now_ms() + STREAM_MS; !has_stopped(pid);) {
		assert_true(now_ms() < end);
		pause_ms(1);
	}
	return pid;
}

/* Says that the next entry has ended, which is not written yet. */
static void tell(void *arg)
{
	struct lane_memory *lane = arg;
	uint64_t number = atomic_load(&lane->header.tail);
	atomic_store(&lane->gates[number % LANE_ENTRIES].done, lane_gate_value(number));
}

static void ends_soon(void **state)
{
	kiln_ticket tickets[CALLS];
	struct scene scene;
	struct round round = {.first = 7};
	struct lane_memory *lane = lane_open(&scene, state);
	float first;
	round.from = scene.from;
	round.to = scene.to;
	produce(&round);
	assert_ok(submit(&scene, &tickets[0]));
	assert_ok(kiln_wait(scene.client, tickets[0], CALL_TIMEOUT_MS));
	assert_finishes(scene.stream);
	int told = fake->calls("cuStreamBatchMemOp");
	pid_t executor = stop_executor(&scene);
	streams->before_query(tell, lane);
	for (int i = 0; i < CALLS; i++) {
		assert_ok(submit(&scene, &tickets[i]));
		assert_ok(kiln_wait(scene.client, tickets[i], 0));
	}
	streams->before_query(NULL, NULL);
	assert_int_equal(fake->calls("cuStreamBatchMemOp"), told);
	kill(executor, SIGCONT);
	/* The calls themselves come before what the client asks for now. */
	assert_ok(kiln_read(scene.y, 0, &first, sizeof(first)));
	consume(&round);
	assert_right(&round, 1);
	assert_int_equal(host_waits(&scene), 0);
	scene_close(&scene);
}

/* The stream waits for the call, which did not wait for it. */
static void takes_long(void **state)
{
	struct scene scene;
	struct round round = {.first = 9, .wrong = -1};
	kiln_ticket ticket;
	scene_open(&scene, state, NULL);
	int writes = streams->writes(), waits = streams->waits();
	round.from = scene.from;
	round.to = scene.to;
	produce(&round);
	pid_t executor = stop_executor(&scene);
	assert_ok(submit(&scene, &ticket));
	streams->then(scene.stream, consume, &round);
	assert_int_equal(kiln_wait(scene.client, ticket, 50), KILN_EAGAIN);
	assert_int_equal(streams->finish(scene.stream, 0), 0);
	assert_int_equal(round.wrong, -1);
	kill(executor, SIGCONT);
	assert_finishes(scene.stream);
	assert_right(&round, 1);
	assert_ok(kiln_wait(scene.client, ticket, CALL_TIMEOUT_MS));
	assert_int_equal(streams->writes(), writes);
	assert_int_equal(streams->waits(), waits + 1);
	assert_int_equal(host_waits(&scene), 0);
	scene_close(&scene);
}

/* The device process dies while the stream waits for it. */
static void killed(void **state)
{
	struct scene scene;
	kiln_ticket ticket;
	scene_open(&scene, state, NULL);
	pid_t executor = stop_executor(&scene);
	assert_ok(submit(&scene, &ticket));
	assert_int_equal(streams->finish(scene.stream, 20), 0);
	kill(executor, SIGKILL);
	assert_finishes(scene.stream);
	assert_int_equal(kiln_wait(scene.client, ticket, CALL_TIMEOUT_MS), KILN_EDEVICE);
	scene_close(&scene);
}

/* The default stream waits for other streams, too, so the end must come by. */
static void default_stream(void **state)
{
	enum { MANY = 20 };
	struct scene scene;
	kiln_ticket ticket;
	scene_open(&scene, state, NULL);
	void *stream = streams->open(fake->context(0), 1);
	int writes = streams->writes();
	for (int i = 0; i < MANY; i++) {
		assert_ok(submit_at(&scene, scene.x, scene.y, stream, 0, &ticket));
		assert_finishes(stream);
		assert_ok(kiln_wait(scene.client, ticket, CALL_TIMEOUT_MS));
	}
	assert_int_equal(streams->writes(), writes + MANY);
	streams->close(stream);
	scene_close(&scene);
}

/* Another stream is captured: to ask whether this one is idle must not spoil that. */
static void beside_a_capture(void **state)
{
	struct scene scene;
	kiln_ticket ticket;
	scene_open(&scene, state, NULL);
	void *captured = streams->open(fake->context(0), 0);
	streams->capture(captured, 1);
	int writes = streams->writes();
	assert_ok(submit(&scene, &ticket));
	assert_ok(kiln_wait(scene.client, ticket, CALL_TIMEOUT_MS));
	assert_int_equal(streams->writes(), writes);
	streams->capture(captured, 0);
	streams->close(captured);
	scene_close(&scene); /* which finds faults() */
}

CUDA_ORDER_MAIN(HARNESS_TEST(ends_soon), HARNESS_TEST(takes_long), HARNESS_TEST(killed),
				HARNESS_TEST(default_stream), HARNESS_TEST(beside_a_capture))

#else
CUDA_ORDER_MAIN()
#endif
