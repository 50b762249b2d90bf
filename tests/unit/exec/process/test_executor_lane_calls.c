/*
 * Calls that a lane of the executor process knows: bound by a message of their own or with a
 * launch, given another launch, told of, given up, and how many there may be.
 */
#include "executor_lane_scene.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_stays_for_what_is_parked),
		cmocka_unit_test(another_launch_takes_over),
		cmocka_unit_test(launches_are_told_of),
		cmocka_unit_test(a_launch_is_bound_on_its_way),
		cmocka_unit_test(an_entry_awaits_its_call),
		cmocka_unit_test(a_lane_knows_so_many_calls),
	};
	return cmocka_run_group_tests(tests, NULL, teardown);
}
