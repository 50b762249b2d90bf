/*
 * When an executor does what stalls a GPU: loads and closes wait for a moment in which nothing
 * runs, launches are held for them when that does not come, and nobody is held for ever.
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

#define LOADED 2 /* module 1, and what the device itself needs */

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
	uint64_t first = post_launch(&scene, 1, 5);
	uint64_t load = post_load(&scene, 2, FAKE_FILL);
	expect_ping(&scene);
	assert_int_equal(fake->calls("cuModuleLoadData"), LOADED);
	await_calls("cuEventQuery", fake->calls("cuEventQuery") + 2);
	/* Meanwhile others launch.  Their kernels end before the first one does: from its end on the
	 * patience is short, and a kernel that ended later could run for longer than that. */
	fake->hold(FAKE_HOLD_BUSY);
	expect(&scene, post_launch(&scene, 2, 6));
	expect_ping(&scene);
	assert_int_equal(fake->calls("cuModuleLoadData"), LOADED);
	fake->hold(0);
	expect(&scene, first);
	expect(&scene, load);
	assert_int_equal(fake->calls("cuModuleLoadData"), LOADED + 1);
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
	assert_int_equal(status_of(&scene.peer, load), KILN_ECOMPILE);
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
		assert_memory_equal(order, ids, sizeof(ids));
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

/* The flights end soon, and new ones come meanwhile, without an end: a hold loses little. */
static void no_patience_beside_short_kernels(void **state)
{
	(void)state;
	struct scene scene;
	open_scene(&scene, LONG_MS);
	fake->hold(1);
	uint64_t first = post_launch(&scene, 1, 5);
	uint64_t load = post_load(&scene, 2, FAKE_FILL);
	uint64_t second = post_slow_launch(&scene, 2, 6, LONG_MS);
	expect_ping(&scene);
	fake->hold(0);
	expect(&scene, first);
	await_hold(&scene);
	/* In a hold nothing is read, but each ends; and then the second is taken back. */
	uint64_t cancel = post_number(&scene, "cancel", "ticket", second);
	expect(&scene, cancel);
	assert_int_equal(scene.given_up, scene.begun);
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
		assert_true(scene.longest_us >= 50000ull << i);
	}
	assert_int_equal(scene.held, 0);
	assert_int_equal(fake->calls("cuModuleLoadData"), LOADED);
	fake->hold(0);
	expect_many(&scene, 5);
	assert_int_equal(fake->calls("cuModuleLoadData"), LOADED + 1);
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

/* A load is done before a free, and a free before a task for which nobody waits, in whatever order
 * they came. */
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

/* Fifty kernels of 2 ms each to load: a launch does not wait for all of them.  False: the hold was
 * over too soon, or took so long that its turn had time for all. */
static bool launches_go_between(void)
{
	enum { LOADS = 50, LOAD_US = 2000 };
	struct scene scene;
	uint64_t order[LOADS + 2];
	int at = 0;
	open_scene(&scene, 1);
	fake->slow("cuModuleLoadData", LOAD_US);
	fake->hold(1);
	uint64_t first = post_launch(&scene, 1, 5);
	for (uint64_t i = 0; i < LOADS; i++)
		post_load(&scene, 2 + i, FAKE_FILL);
	await_hold(&scene);
	uint64_t launch = post_launch(&scene, 2, 6);
	fake->hold(0);
	for (int i = 0; i < LOADS + 2; i++) {
		expect_many(&scene, 1);
		order[i] = wire_id(&answer);
		at = order[i] == launch ? i : at;
	}
	bool seen = scene.given_up == 0 && scene.longest_us < LOADS * LOAD_US;
	if (seen) {
		assert_in_range(at, 2, LOADS);
		for (int i = 0; i < LOADS + 2; i++)
			assert_int_equal(order[i], i == at ? launch : first + (uint64_t)i - (i > at));
	}
	close_scene(&scene);
	return seen;
}

static void launches_go_between_loads(void **state)
{
	(void)state;
	int tries = 0;
	while (!launches_go_between())
		assert_true(++tries < TRIES);
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
	};
	return cmocka_run_group_tests(tests, setup_all, NULL);
}

#endif
