/*
 * test_ticket.c: the table of submitted calls, and above all batches in it: they end once, with
 * their last call, in what the first that failed says; also where all are given up at once.
 */
#include "client/lib/ticket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ticket_table table;

static int end(void **state)
{
	(void)state;
	ticket_table_free(&table);
	return 0;
}

static void finish(uint64_t id, int status, const char *error)
{
	ticket_finish(&table, ticket_find(&table, id), status, error, NULL);
}

static void finish_part(uint64_t id, int part, int status, const char *error, double micros)
{
	ticket_finish_part(&table, ticket_find(&table, id), part, status, error, micros);
}

/* Ticket id, and behind it the tickets of its calls. */
static void add_batch(uint64_t id, int count)
{
	assert_int_equal(ticket_add_batch(&table, id, count), KILN_OK);
	for (int i = 0; i < count; i++)
		assert_int_equal(ticket_add_part(&table, id + 1 + (uint64_t)i, id, i), KILN_OK);
}

static void assert_done(uint64_t id, int status, const char *error)
{
	const struct ticket *ticket = ticket_find(&table, id);
	assert_non_null(ticket);
	assert_int_equal(ticket->state, TICKET_DONE);
	assert_int_equal(ticket->status, status);
	assert_int_equal(!ticket->error, !error);
	if (error)
		assert_string_equal(ticket->error, error);
	assert_int_equal(ticket_failed(&table, id), status != KILN_OK);
}

static void assert_counts(size_t done, size_t messages)
{
	assert_int_equal(table.done, done);
	assert_int_equal(table.messages, messages);
}

/* ---- Tests ---- */

static void one_of_the_lane(void **state)
{
	(void)state;
	assert_int_equal(ticket_add_lane(&table, 7, 100, 1), KILN_OK);
	assert_counts(0, 0);
	finish_part(7, 0, KILN_EINVAL, "no", 3);
	assert_done(7, KILN_EINVAL, "no"); /* nothing is said of a batch */
	assert_counts(1, 0);
	ticket_remove(&table, ticket_find(&table, 7));
	assert_counts(0, 0);
}

static void a_batch_of_the_lane(void **state)
{
	(void)state;
	assert_int_equal(ticket_add_lane(&table, 7, 100, 3), KILN_OK);
	for (int i = 2; i >= 0; i--) {
		assert_int_equal(ticket_find(&table, 7)->state, TICKET_UNDERWAY);
		finish_part(7, i, KILN_OK, NULL, 1.5);
	}
	assert_done(7, KILN_OK, NULL);
	assert_true(ticket_find(&table, 7)->micros == 4.5);
}

/* Whichever is heard of first. */
static void the_first_that_failed_speaks(void **state)
{
	static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}};
	(void)state;
	for (uint64_t i = 0; i < 4; i++) {
		assert_int_equal(ticket_add_lane(&table, 7 + i, 0, 3), KILN_OK);
		for (int k = 0; k < 3; k++) {
			int part = orders[i][k];
			finish_part(7 + i, part,
						part == 0   ? KILN_OK
						: part == 1 ? KILN_EINDEX
									: KILN_ECANCELED,
						part == 0   ? NULL
						: part == 1 ? "one"
									: "two",
						1);
		}
		assert_done(7 + i, KILN_EINDEX, "call 2 of 3: one");
	}
}

static void a_batch_by_message(void **state)
{
	(void)state;
	add_batch(10, 3);
	assert_int_equal(ticket_add(&table, 14), KILN_OK);
	assert_counts(0, 5);
	finish(12, KILN_EINDEX, "bad");
	assert_null(ticket_find(&table, 12));
	assert_true(ticket_failed(&table, 12));
	assert_false(ticket_failed(&table, 10));
	assert_int_equal(ticket_find(&table, 10)->status, KILN_EINDEX);
	finish(11, KILN_OK, NULL);
	assert_counts(0, 3);
	finish(13, KILN_ECANCELED, "follows");
	assert_done(10, KILN_EINDEX, "call 2 of 3: bad");
	assert_counts(1, 1);
	finish(14, KILN_OK, NULL);
	assert_counts(2, 0);
}

static void assert_empty(void)
{
	assert_int_equal(table.end - table.head, 0);
	assert_counts(0, 0);
}

/* It is under way until it has ended, and then nobody is told. */
static void what_was_given_up(void **state)
{
	(void)state;
	assert_int_equal(ticket_add(&table, 1), KILN_OK);
	assert_int_equal(ticket_add_lane(&table, 2, 100, 1), KILN_OK);
	assert_int_equal(ticket_add(&table, 3), KILN_OK);
	finish(3, KILN_OK, NULL);
	for (uint64_t id = 1; id <= 3; id++)
		ticket_give_up(&table, ticket_find(&table, id));
	assert_counts(0, 1);
	assert_null(ticket_find(&table, 2));
	assert_null(ticket_find(&table, 3));
	finish(1, KILN_EINVAL, "bad");
	assert_true(ticket_failed(&table, 1));
	assert_empty();
}

/* Its calls end all the same. */
static void a_batch_that_was_given_up(void **state)
{
	(void)state;
	add_batch(10, 2);
	ticket_give_up(&table, ticket_find(&table, 10));
	assert_counts(0, 3);
	finish(11, KILN_OK, NULL);
	finish(12, KILN_EINVAL, "bad");
	assert_empty();
}

static void all_are_given_up(void **state)
{
	(void)state;
	assert_int_equal(ticket_add_lane(&table, 3, 50, 2), KILN_OK);
	finish_part(3, 0, KILN_OK, NULL, 0);
	add_batch(10, 3);
	finish(11, KILN_OK, NULL);
	assert_int_equal(ticket_add(&table, 20), KILN_OK);
	ticket_finish_all(&table, KILN_ECONN, "gone");
	assert_done(3, KILN_ECONN, "gone");
	assert_done(10, KILN_ECONN, "call 2 of 3: gone");
	assert_done(20, KILN_ECONN, "gone");
	assert_counts(3, 0);
	/* Late ends of such tickets change nothing. */
	finish_part(3, 1, KILN_EINVAL, "late", 1);
	finish_part(10, 0, KILN_EINVAL, "late", 1);
	assert_done(3, KILN_ECONN, "gone");
	assert_done(10, KILN_ECONN, "call 2 of 3: gone");
	assert_counts(3, 0);
}

/* Nothing but calls of a batch that nobody waits for: the table is empty in the middle of it. */
static void all_leave_the_table(void **state)
{
	(void)state;
	assert_int_equal(ticket_add(&table, 1), KILN_OK);
	assert_int_equal(ticket_add(&table, 2), KILN_OK);
	add_batch(10, 3);
	finish(1, KILN_OK, NULL);
	finish(2, KILN_OK, NULL);
	ticket_remove(&table, ticket_find(&table, 1));
	ticket_remove(&table, ticket_find(&table, 2));
	ticket_give_up(&table, ticket_find(&table, 10));
	assert_true(table.head > 0);
	ticket_finish_all(&table, KILN_ECONN, "gone");
	assert_empty();
	assert_int_equal(ticket_add(&table, 21), KILN_OK);
	finish(21, KILN_OK, NULL);
	assert_done(21, KILN_OK, NULL);
	assert_counts(1, 0);
}

/* Tickets leave the table in front of, between and behind those that are to be told. */
static void some_leave_the_table(void **state)
{
	(void)state;
	assert_int_equal(ticket_add(&table, 1), KILN_OK);
	add_batch(10, 3);
	assert_int_equal(ticket_add(&table, 20), KILN_OK);
	assert_int_equal(ticket_add(&table, 21), KILN_OK);
	add_batch(30, 2);
	assert_int_equal(ticket_add(&table, 40), KILN_OK);
	for (uint64_t id = 10; id <= 40; id += 10)
		ticket_give_up(&table, ticket_find(&table, id));
	ticket_finish_all(&table, KILN_ECONN, "gone");
	assert_done(1, KILN_ECONN, "gone");
	assert_done(21, KILN_ECONN, "gone");
	assert_int_equal(table.end - table.head, 2);
	assert_counts(2, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(one_of_the_lane, end),
		cmocka_unit_test_teardown(a_batch_of_the_lane, end),
		cmocka_unit_test_teardown(the_first_that_failed_speaks, end),
		cmocka_unit_test_teardown(a_batch_by_message, end),
		cmocka_unit_test_teardown(what_was_given_up, end),
		cmocka_unit_test_teardown(a_batch_that_was_given_up, end),
		cmocka_unit_test_teardown(all_are_given_up, end),
		cmocka_unit_test_teardown(all_leave_the_table, end),
		cmocka_unit_test_teardown(some_leave_the_table, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
