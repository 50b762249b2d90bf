/*
 * turns: whose turn is next: users, of a user its sessions, of a session the oldest; what several
 * wait for; who leaves.
 */
#include "daemon/base/turns.h"

#include <stdbool.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the above */
#include <cmocka.h>

#define ITEMS_MOST 2048

/* An item, and the places of up to two who wait for it. */
struct wait {
	struct turn_item item;
	struct turn_place places[2];
	struct turn_owner owner; /* of the first place */
};

static struct wait waits[ITEMS_MOST];
static struct turns turns;

static int setup(void **state)
{
	(void)state;
	for (int i = 0; i < ITEMS_MOST; i++)
		waits[i] = (struct wait){.item = {NULL}};
	turns = (struct turns){NULL};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	bool empty = !turns.next && turns.users.count == 0 && turns.lines.count == 0;
	turns_free(&turns);
	return empty ? 0 : -1;
}

static void join(int i, uint32_t uid, uint64_t session)
{
	waits[i].owner = (struct turn_owner){uid, session};
	assert_int_equal(turns_join(&turns, &waits[i].item, &waits[i].places[0], waits[i].owner), 0);
}

static void join_too(int i, uint32_t uid, uint64_t session)
{
	assert_int_equal(
		turns_join(&turns, &waits[i].item, &waits[i].places[1], (struct turn_owner){uid, session}),
		0);
}

/* Takes the next item; -1: there is none. */
static int take(void)
{
	const struct turn_item *next = turns_next(&turns), *taken = turns_take(&turns);
	assert_ptr_equal(next, taken);
	if (!taken)
		return -1;
	assert_null(taken->places);
	return (int)((const struct wait *)(const void *)taken - waits);
}

static void assert_order(const int *order, int count)
{
	for (int i = 0; i < count; i++)
		assert_int_equal(take(), order[i]);
	assert_int_equal(take(), -1);
}
#define ASSERT_ORDER(...) \
	assert_order((const int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int))

static void one_session_is_served_in_its_order(void **state)
{
	(void)state;
	assert_int_equal(take(), -1);
	for (int i = 0; i < 4; i++)
		join(i, 1000, 7);
	ASSERT_ORDER(0, 1, 2, 3);
}

static void one_request_comes_before_the_rest_of_another_session(void **state)
{
	(void)state;
	for (int i = 0; i < 900; i++)
		join(i, 1000, 1);
	assert_int_equal(take(), 0);
	join(900, 1000, 2);
	assert_int_equal(take(), 1);
	assert_int_equal(take(), 900);
	/* An owner that comes again is behind those who have waited meanwhile. */
	join(901, 1000, 2);
	assert_int_equal(take(), 2);
	assert_int_equal(take(), 901);
	for (int i = 3; i < 900; i++)
		assert_int_equal(take(), i);
}

/* Ten sessions of one user have as much as the one of another. */
static void users_take_turns_before_sessions_do(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++)
		join(i, 1000, 1 + (uint64_t)i % 10);
	for (int i = 20; i < 24; i++)
		join(i, 1001, 50);
	ASSERT_ORDER(0, 20, 1, 21, 2, 22, 3, 23, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,
				 19);
}

static void what_nobody_asked_for_has_turns_as_a_user_has(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		join(i, 1000, 1);
	for (int i = 3; i < 6; i++)
		join(i, TURN_NOBODY.uid, TURN_NOBODY.session);
	ASSERT_ORDER(0, 3, 1, 4, 2, 5);
}

/* It is next with the first of those who wait for it, and then no other's turn is spent on it. */
static void a_shared_item_is_next_with_whom_comes_first(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++)
		join(i, 1000, 1);
	join_too(3, 1001, 2);
	join(4, 1001, 2);
	ASSERT_ORDER(0, 3, 1, 4, 2);
	for (int i = 0; i < 3; i++)
		join(i, 1000, 1);
	join_too(0, 1001, 2);
	join(5, 1001, 2);
	ASSERT_ORDER(0, 5, 1, 2);
}

static void an_item_may_wait_in_two_lists(void **state)
{
	(void)state;
	struct turns second = {NULL};
	join(0, 1000, 1);
	join(1, 1000, 1);
	assert_int_equal(turns_join(&second, &waits[1].item, &waits[1].places[1], waits[1].owner), 0);
	assert_ptr_equal(turns_take(&second), &waits[1].item);
	assert_null(turns_next(&second));
	turns_free(&second);
	ASSERT_ORDER(0);
}

static void who_leaves_keeps_nobody_waiting(void **state)
{
	(void)state;
	for (int i = 0; i < 9; i++)
		join(i, 1000, 1 + (uint64_t)i % 3);
	join_too(2, 1001, 9);
	/* Session 1 ends; of session 3, which goes on, one request is given up. */
	for (int i = 0; i < 9; i += 3)
		turns_leave(&waits[i].places[0]);
	turns_leave(&waits[5].places[0]);
	/* The place that it gave up is still somebody else's. */
	turns_leave(&waits[2].places[0]);
	turns_leave(&waits[2].places[0]);
	ASSERT_ORDER(1, 2, 8, 4, 7);
	join(0, 1000, 1);
	join_too(0, 1000, 2);
	turns_leave_all(&waits[0].item);
	assert_int_equal(take(), -1);
}

/* The same numbers each time. */
static uint32_t chance(uint32_t most)
{
	static uint64_t state = 7;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % most;
}

/* Between two items of one user every other who waits all the while has one of theirs. */
static void nobody_is_passed_over(void **state)
{
	(void)state;
	enum { USERS = 5, SESSIONS = 4 };
	int passed[USERS][USERS] = {{0}}, waiting[USERS] = {0}, in_all = 0;
	for (int step = 0; step < 20000; step++) {
		int i = (int)chance(ITEMS_MOST);
		if (in_all < 300 && chance(2) && !waits[i].item.places) {
			uint32_t user = chance(USERS);
			join(i, user, 1 + user * SESSIONS + chance(SESSIONS));
			waiting[user]++;
			in_all++;
		} else if (chance(8) == 0 && waits[i].item.places) {
			turns_leave(&waits[i].places[0]);
			waiting[waits[i].owner.uid]--;
			in_all--;
		} else if ((i = take()) >= 0) {
			uint32_t user = waits[i].owner.uid;
			waiting[user]--;
			in_all--;
			for (int other = 0; other < USERS; other++) {
				passed[user][other] = 0;
				passed[other][user] += waiting[other] > 0;
				assert_in_range(passed[other][user], 0, 1);
			}
			passed[user][user] = 0;
		}
		for (int user = 0; user < USERS; user++)
			for (int other = 0; !waiting[user] && other < USERS; other++)
				passed[user][other] = 0;
	}
	while (take() >= 0)
		in_all--;
	assert_int_equal(in_all, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TURNS_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		TURNS_TEST(one_session_is_served_in_its_order),
		TURNS_TEST(one_request_comes_before_the_rest_of_another_session),
		TURNS_TEST(users_take_turns_before_sessions_do),
		TURNS_TEST(what_nobody_asked_for_has_turns_as_a_user_has),
		TURNS_TEST(a_shared_item_is_next_with_whom_comes_first),
		TURNS_TEST(an_item_may_wait_in_two_lists),
		TURNS_TEST(who_leaves_keeps_nobody_waiting),
		TURNS_TEST(nobody_is_passed_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
