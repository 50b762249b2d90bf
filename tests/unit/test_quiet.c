/*
 * When an executor does what stalls a GPU, over the fake driver, whose kernels end when a test says
 * so: loads and closes wait for a moment in which nothing runs, launches are held for them when
 * that does not come, and nobody is held for ever.
 *
 * The executor is a thread here, so that the test has the driver that it uses.
 */
#include "cuda_scene.h"

#if !defined(KILN_HAVE_CUDA_H) || !defined(KILN_FAKE_CUDA_LIBRARY)

#include <stdio.h>

int main(void)
{
	puts("built without cuda.h: there is no device that stalls");
	return 77;
}

#else

#include "client/lane_memory.h"
#include "daemon/exec/exec.h"
#include "exec_peer.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#define LONG_MS 60000 /* a patience that no test waits for */

struct scene {
	struct peer peer;
	pthread_t thread;
	int exit_status;
	struct exec_options options;
	/* What the events said. */
	int begun, given_up;
	uint64_t idle, held, longest_us;
};

static void *serve(void *arg)
{
	struct scene *scene = arg;
	scene->exit_status = exec_main(&scene->options);
	return NULL;
}

/* ---- Requests ---- */

static uint64_t post_load(struct scene *scene, uint64_t module, const char *entry)
{
	struct wire_out message;
	begin(&scene->peer, &message, "load");
	wire_put_uint(&message, "mod", module);
	wire_put_str(&message, "entry", entry);
	wire_put_uint(&message, "shared", 0);
	wire_put_bin(&message, "object", image, sizeof image);
	return post(&scene->peer, &message, NULL, 0);
}

static uint64_t post_number(struct scene *scene, const char *type, const char *key, uint64_t value)
{
	struct wire_out message;
	begin(&scene->peer, &message, type);
	wire_put_uint(&message, key, value);
	return post(&scene->peer, &message, NULL, 0);
}

/* What of a launch is the same for one that is bound. */
static void put_fill(struct wire_out *message, uint64_t module, uint64_t buffer, uint64_t stream)
{
	wire_put_uint(message, "mod", module);
	wire_put_uint(message, "stream", stream);
	wire_put_ints(message, "grid", (int64_t[]){1, 1, 1}, 3);
	wire_put_ints(message, "block", (int64_t[]){32, 1, 1}, 3);
	wire_put_uint(message, "shared", 0);
	wire_list_begin(message, "args");
	wire_put_ints(message, NULL, (int64_t[]){0, 0}, 2);
	wire_put_ints(message, NULL, (int64_t[]){1, 8, 7}, 3);
	wire_put_ints(message, NULL, (int64_t[]){1, 4, 4}, 3);
	wire_list_end(message);
	wire_list_begin(message, "ops");
	wire_put_ints(message, NULL, (int64_t[]){(int64_t)buffer, 0, 16, 4, 1}, 5);
	wire_list_end(message);
}

/* Module 1 fills a buffer, which ends so many ms later at the soonest. */
static uint64_t post_slow_launch(struct scene *scene, uint64_t buffer, uint64_t stream,
								 uint64_t delay)
{
	struct wire_out message;
	begin(&scene->peer, &message, "launch");
	put_fill(&message, 1, buffer, stream);
	wire_put_uint(&message, "delay", delay);
	return post(&scene->peer, &message, NULL, 0);
}

static uint64_t post_launch(struct scene *scene, uint64_t buffer, uint64_t stream)
{
	return post_slow_launch(scene, buffer, stream, 0);
}

/* A quarter of what another process lends, from byte offset on. */
static uint64_t post_import(struct scene *scene, uint64_t buffer, int fd, uint64_t offset)
{
	struct fake_handle lent = {FAKE_HANDLE_MAGIC, getpid(), fd, 0, 4096};
	uint8_t handle[64] = {0};
	struct wire_out message;
	memcpy(handle, &lent, sizeof lent);
	begin(&scene->peer, &message, "import");
	wire_put_uint(&message, "buf", buffer);
	wire_put_str(&message, "kind", "ipc");
	wire_put_bin(&message, "handle", handle, sizeof handle);
	wire_put_uint(&message, "bufid", 77);
	wire_put_int(&message, "pid", getpid());
	wire_put_uint(&message, "span", 4096);
	wire_put_uint(&message, "offset", offset);
	wire_put_uint(&message, "bytes", 1024);
	return post(&scene->peer, &message, NULL, 0);
}

/* ---- Answers ---- */

/* True: it was an event, and is noted. */
static bool note_event(struct scene *scene)
{
	const msgpack_object *root = receive(&scene->peer);
	if (strcmp(wire_type(&answer), "event") != 0)
		return false;
	if (strcmp(wire_get_str(&answer, root, "what"), "progress") == 0)
		return true;
	assert_string_equal(wire_get_str(&answer, root, "what"), "quiet");
	uint64_t done = wire_get_uint(root, "done", 0), held_us = wire_get_uint(root, "held", 0);
	scene->begun += wire_get_bool(root, "begun", false);
	scene->given_up += !wire_get_bool(root, "begun", false) && done == 0;
	*(held_us ? &scene->held : &scene->idle) += done;
	scene->longest_us = held_us > scene->longest_us ? held_us : scene->longest_us;
	return true;
}

/* The next answer is to this request, and good. */
static void expect(struct scene *scene, uint64_t id)
{
	while (note_event(scene))
		;
	assert_string_equal(wire_type(&answer), "reply");
	assert_int_equal(wire_id(&answer), id);
	assert_string_equal(sentence(), "");
	assert_int_equal(wire_get_int(&answer.root, "st", 1), KILN_OK);
}

static int status_after_events(struct scene *scene, uint64_t id)
{
	while (note_event(scene))
		;
	assert_int_equal(wire_id(&answer), id);
	return (int)wire_get_int(&answer.root, "st", 1);
}

/* So many answers, all good, in whichever order. */
static void expect_many(struct scene *scene, int count)
{
	while (count > 0) {
		if (note_event(scene))
			continue;
		assert_int_equal(wire_get_int(&answer.root, "st", 1), KILN_OK);
		count--;
	}
}

/* Nothing was answered but this. */
static void expect_ping(struct scene *scene)
{
	expect(scene, post_number(scene, "ping", "x", 1));
}

static void await_hold(struct scene *scene)
{
	int begun = scene->begun;
	while (scene->begun == begun)
		assert_true(note_event(scene));
}

/* Until the driver has been called so often. */
static void await_calls(const char *function, int calls)
{
	uint64_t until = util_now_us() + WAIT_MS * 1000ull;
	while (fake->calls(function) < calls) {
		assert_true(util_now_us() < until);
		sched_yield();
	}
}

/* ---- The executor ---- */

/* With buffers 1 and 2, and module 1. */
static void open_scene(struct scene *scene, uint32_t patience_ms)
{
	int pair[2];
	*scene = (struct scene){.peer.next_id = 1};
	fake->reset();
	assert_int_equal(frame_pair(pair), KILN_OK);
	scene->peer.sock = pair[0];
	scene->options = (struct exec_options){
		.sock = pair[1], .device = "cuda:0", .wrapped = true, .quiet_patience_ms = patience_ms};
	assert_int_equal(pthread_create(&scene->thread, NULL, serve, scene), 0);
	receive(&scene->peer);
	assert_string_equal(wire_type(&answer), "ready");
	assert_int_equal(wire_get_int(&answer.root, "st", 1), KILN_OK);
	assert_int_equal(ask_alloc(&scene->peer, 1, 4096), KILN_OK);
	assert_int_equal(ask_alloc(&scene->peer, 2, 4096), KILN_OK);
	expect(scene, post_load(scene, 1, FAKE_FILL));
	expect_ping(scene);
}

/* A hold ends after 20 ms, be a machine as slow as it may: what is to be seen within one is tried
 * again when that was too short. */
#define TRIES 50

/* It leaves nothing behind at the driver. */
static void close_scene(struct scene *scene)
{
	forget_answer();
	close(scene->peer.sock);
	assert_int_equal(pthread_join(scene->thread, NULL), 0);
	assert_int_equal(scene->exit_status, 0);
	for (int kind = 0; kind < FAKE_LIVE_COUNT; kind++)
		assert_int_equal(fake->live(kind), 0);
}

/* ---- Tests ---- */

static void at_once_where_nothing_runs(void **state)
{
	(void)state;
	struct scene scene;
	open_scene(&scene, LONG_MS);
	expect(&scene, post_load(&scene, 2, FAKE_FILL));
	expect(&scene, post_number(&scene, "unload", "mod", 2));
	expect_ping(&scene);
	assert_int_equal(scene.idle, 3);
	assert_int_equal(scene.begun, 0);
	close_scene(&scene);
}

static void a_load_waits_for_the_kernel(void **state)
{
	(void)state;
	struct scene scene;
	open_scene(&scene, LONG_MS);
	fake->hold(1);
	post_launch(&scene, 1, 5);
	uint64_t load = post_load(&scene, 2, FAKE_FILL);
	expect_ping(&scene);
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
	/* Meanwhile others launch. */
	post_launch(&scene, 2, 6);
	await_calls("cuLaunchKernel", 2);
	expect_ping(&scene);
	fake->hold(0);
	expect_many(&scene, 2);
	expect(&scene, load);
	assert_int_equal(fake->calls("cuModuleLoadData"), 2);
	expect_ping(&scene);
	assert_int_equal(scene.begun, 0);
	assert_int_equal(scene.idle, 2);
	close_scene(&scene);
}

static void a_module_is_none_before_it_is_loaded(void **state)
{
	(void)state;
	struct scene scene;
	struct wire_out message;
	open_scene(&scene, LONG_MS);
	fake->hold(1);
	uint64_t first = post_launch(&scene, 1, 5);
	uint64_t load = post_load(&scene, 2, FAKE_FILL);
	begin(&scene.peer, &message, "launch");
	put_fill(&message, 2, 1, 5);
	assert_int_equal(ask(&scene.peer, &message), KILN_ENOENT);
	assert_string_equal(sentence(), "there is no module 2");
	assert_int_equal(ask_number(&scene.peer, "unload", "mod", 2), KILN_ENOENT);
	assert_string_equal(sentence(), "there is no module 2");
	uint64_t again = post_load(&scene, 2, FAKE_FILL);
	assert_int_equal(status_of(&scene.peer, again), KILN_EPROTO);
	fake->hold(0);
	expect(&scene, first);
	expect(&scene, load);
	close_scene(&scene);
}

static void a_load_that_fails_later_says_why(void **state)
{
	(void)state;
	struct scene scene;
	open_scene(&scene, LONG_MS);
	fake->hold(1);
	uint64_t first = post_launch(&scene, 1, 5);
	uint64_t load = post_load(&scene, 2, "nobody");
	expect_ping(&scene);
	fake->hold(0);
	expect(&scene, first);
	assert_int_equal(status_of(&scene.peer, load), KILN_EINTERNAL);
	assert_non_null(strstr(sentence(), "the object has no kernel nobody"));
	/* The number is free again. */
	expect(&scene, post_load(&scene, 2, FAKE_FILL));
	close_scene(&scene);
}

/* False: the hold was over too soon. */
static bool launches_are_held(void)
{
	struct scene scene;
	uint64_t ids[8], order[8];
	open_scene(&scene, 1);
	fake->hold(1);
	ids[0] = post_launch(&scene, 1, 5);
	ids[1] = post_load(&scene, 2, FAKE_FILL);
	await_hold(&scene);
	for (uint64_t i = 2; i < 8; i++)
		ids[i] = post_launch(&scene, 1 + i % 2, 6);
	/* The device is asked on, and given nothing. */
	await_calls("cuEventQuery", fake->calls("cuEventQuery") + 10);
	int launched = fake->calls("cuLaunchKernel");
	fake->hold(0);
	for (int i = 0; i < 8; i++) {
		expect_many(&scene, 1);
		order[i] = wire_id(&answer);
	}
	expect_ping(&scene);
	bool seen = scene.given_up == 0;
	if (seen) {
		assert_int_equal(launched, 1);
		assert_memory_equal(order, ids, sizeof ids);
		assert_int_equal(scene.held, 1);
		assert_true(scene.longest_us > 0);
	}
	close_scene(&scene);
	return seen;
}

static void launches_are_held_and_go_in_order(void **state)
{
	(void)state;
	int tries = 0;
	while (!launches_are_held())
		assert_true(++tries < TRIES);
}

/* What was in flight ends soon, and others have come meanwhile: so it goes on, and there is little
 * to be lost by a hold. */
static void no_patience_beside_short_kernels(void **state)
{
	(void)state;
	struct scene scene;
	open_scene(&scene, LONG_MS);
	uint64_t first = post_slow_launch(&scene, 1, 5, 5);
	uint64_t load = post_load(&scene, 2, FAKE_FILL);
	uint64_t second = post_slow_launch(&scene, 2, 6, LONG_MS);
	expect(&scene, first);
	await_hold(&scene);
	/* In a hold nothing is read, but it ends; and then the second is taken back. */
	uint64_t cancel = post_number(&scene, "cancel", "ticket", second);
	expect(&scene, cancel);
	assert_int_equal(scene.given_up, 1);
	assert_int_equal(status_after_events(&scene, second), KILN_ECANCELED);
	expect(&scene, load);
	close_scene(&scene);
}

/* As before: the others wait as long as the driver does. */
static void without_patience_it_is_done_at_once(void **state)
{
	(void)state;
	struct scene scene;
	open_scene(&scene, 0);
	fake->hold(1);
	uint64_t first = post_launch(&scene, 1, 5);
	expect(&scene, post_load(&scene, 2, FAKE_FILL));
	expect(&scene, post_number(&scene, "unload", "mod", 2));
	fake->hold(0);
	expect(&scene, first);
	expect_ping(&scene);
	assert_int_equal(scene.idle + scene.held, 0);
	close_scene(&scene);
}

static void a_kernel_that_does_not_end_holds_nobody_for_ever(void **state)
{
	(void)state;
	struct scene scene;
	open_scene(&scene, 1);
	fake->hold(1);
	post_launch(&scene, 1, 5);
	post_load(&scene, 2, FAKE_FILL);
	for (int i = 0; i < 3; i++) {
		await_hold(&scene);
		uint64_t longest_us = scene.longest_us;
		post_launch(&scene, 2, 6);
		await_calls("cuLaunchKernel", 2 + i);
		/* By then that hold has ended, and had taken longer than the one before. */
		while (scene.longest_us == longest_us)
			assert_true(note_event(&scene));
		assert_true(scene.longest_us >= 20000ull << i);
	}
	assert_int_equal(scene.held, 0);
	assert_int_equal(fake->calls("cuModuleLoadData"), 1);
	fake->hold(0);
	expect_many(&scene, 5);
	assert_int_equal(fake->calls("cuModuleLoadData"), 2);
	close_scene(&scene);
}

static void frees_that_stall_wait_and_others_do_not(void **state)
{
	(void)state;
	struct scene scene;
	int fd = frame_memfd("lent", 4096);
	open_scene(&scene, LONG_MS);
	expect(&scene, post_import(&scene, 3, fd, 0));
	expect(&scene, post_import(&scene, 4, fd, 1024));
	fake->hold(1);
	uint64_t first = post_launch(&scene, 1, 5);
	/* Memory of its own, and a lent buffer beside which another lies in the allocation. */
	expect(&scene, post_number(&scene, "free", "buf", 2));
	expect(&scene, post_number(&scene, "free", "buf", 3));
	uint64_t last = post_number(&scene, "free", "buf", 4);
	uint64_t used = post_number(&scene, "free", "buf", 1);
	uint64_t unload = post_number(&scene, "unload", "mod", 1);
	expect_ping(&scene);
	assert_int_equal(fake->calls("cuIpcCloseMemHandle"), 0);
	assert_int_equal(fake->live(FAKE_LIVE_IMPORTS), 1);
	fake->hold(0);
	expect(&scene, first);
	expect(&scene, used);
	expect(&scene, last);
	expect(&scene, unload);
	expect_ping(&scene);
	assert_int_equal(fake->calls("cuIpcCloseMemHandle"), 1);
	assert_int_equal(scene.idle, 3);
	close_scene(&scene);
	close(fd);
}

/* Who waits for a load is served before who waits for a free, and that before what nobody waits
 * for, whichever came first. */
static void the_hurried_first(void **state)
{
	(void)state;
	struct scene scene;
	int fd = frame_memfd("lent", 4096);
	open_scene(&scene, LONG_MS);
	expect(&scene, post_import(&scene, 3, fd, 0));
	expect(&scene, post_load(&scene, 2, FAKE_FILL));
	fake->hold(1);
	uint64_t first = post_launch(&scene, 1, 5);
	uint64_t unload = post_number(&scene, "unload", "mod", 2);
	uint64_t freed = post_number(&scene, "free", "buf", 3);
	uint64_t load = post_load(&scene, 4, FAKE_FILL);
	expect_ping(&scene);
	fake->hold(0);
	expect(&scene, first);
	expect(&scene, load);
	expect(&scene, freed);
	expect(&scene, unload);
	close_scene(&scene);
	close(fd);
}

/* Fifty kernels of 2 ms each to load: a launch does not wait for all of them. */
static void launches_go_between_loads(void **state)
{
	(void)state;
	struct scene scene;
	uint64_t loads[50], last = 0;
	int before = 0;
	open_scene(&scene, 1);
	fake->slow("cuModuleLoadData", 2000);
	fake->hold(1);
	uint64_t first = post_launch(&scene, 1, 5);
	for (int i = 0; i < 50; i++)
		loads[i] = post_load(&scene, 2 + (uint64_t)i, FAKE_FILL);
	await_hold(&scene);
	uint64_t launch = post_launch(&scene, 2, 6);
	fake->hold(0);
	expect(&scene, first);
	while (last != launch) {
		while (note_event(&scene))
			;
		last = wire_id(&answer);
		before += last != launch;
	}
	assert_in_range(before, 0, 49);
	for (int i = before; i < 50; i++)
		expect(&scene, loads[i]);
	close_scene(&scene);
}

/* ---- A lane ---- */

struct lane {
	struct lane_memory *memory;
	int fds[4], client; /* its end of the lifeline */
};

/* Stream 9 has buffer 8, and may launch call 3: module 1 fills it. */
static void open_lane(struct scene *scene, struct lane *lane)
{
	struct wire_out message;
	int lifeline[2];
	lane->fds[0] = frame_memfd("lane", sizeof *lane->memory);
	lane->fds[1] = eventfd(0, EFD_NONBLOCK);
	lane->fds[2] = eventfd(0, EFD_NONBLOCK);
	assert_int_equal(pipe(lifeline), 0);
	lane->fds[3] = lifeline[1];
	lane->client = lifeline[0];
	lane->memory =
		mmap(NULL, sizeof *lane->memory, PROT_READ | PROT_WRITE, MAP_SHARED, lane->fds[0], 0);
	assert_true(lane->memory != MAP_FAILED);
	lane->memory->header.magic = LANE_MAGIC;
	lane->memory->header.version = LANE_VERSION;
	lane->memory->header.entries = LANE_ENTRIES;
	lane->memory->header.spin_us = 50;
	begin(&scene->peer, &message, "lane.open");
	wire_put_uint(&message, "stream", 9);
	wire_put_uint(&message, "deadline", 300);
	expect(scene, post(&scene->peer, &message, lane->fds, 4));
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

static void close_lane(struct scene *scene, struct lane *lane)
{
	expect(scene, post_number(scene, "lane.close", "stream", 9));
	munmap(lane->memory, sizeof *lane->memory);
	for (int i = 0; i < 4; i++)
		close(lane->fds[i]);
	close(lane->client);
}

static void add_entry(struct lane *lane, uint32_t flags)
{
	struct lane_header *header = &lane->memory->header;
	uint64_t number = atomic_load(&header->tail);
	const uint64_t one = 1;
	lane->memory->entries[number % LANE_ENTRIES] =
		(struct lane_entry){.call = 3, .flags = flags, .operand_count = 1, .operands = {{8, 0}}};
	atomic_store(&header->tail, number + 1);
	assert_int_equal(write(lane->fds[1], &one, sizeof one), sizeof one);
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

/* Entries are held like messages. A lane whose launches take 0.3 s is stuck, and its process is
 * ended; one whose launches are held for longer is not. */
static bool entries_are_held(void)
{
	struct scene scene;
	struct lane lane;
	open_scene(&scene, 1);
	open_lane(&scene, &lane);
	add_entry(&lane, 0);
	await_entry(&lane, 0);
	fake->slow("cuModuleLoadData", 400000);
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
	bool seen = scene.given_up == 0;
	if (seen)
		assert_int_equal(launched, 2);
	close_scene(&scene);
	return seen;
}

static void entries_are_held_and_not_stuck(void **state)
{
	(void)state;
	int tries = 0;
	while (!entries_are_held())
		assert_true(++tries < TRIES);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(at_once_where_nothing_runs),
		cmocka_unit_test(a_load_waits_for_the_kernel),
		cmocka_unit_test(a_module_is_none_before_it_is_loaded),
		cmocka_unit_test(a_load_that_fails_later_says_why),
		cmocka_unit_test(launches_are_held_and_go_in_order),
		cmocka_unit_test(no_patience_beside_short_kernels),
		cmocka_unit_test(without_patience_it_is_done_at_once),
		cmocka_unit_test(a_kernel_that_does_not_end_holds_nobody_for_ever),
		cmocka_unit_test(frees_that_stall_wait_and_others_do_not),
		cmocka_unit_test(the_hurried_first),
		cmocka_unit_test(launches_go_between_loads),
		cmocka_unit_test(entries_are_held_and_not_stuck),
		cmocka_unit_test(words_are_unshared_when_nothing_runs),
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
