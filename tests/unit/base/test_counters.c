/*
 * counters: histograms against sorted values, the equations as text, and tallies that stay bounded
 * and lose nothing.
 */
#include "daemon/base/counters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

/* ---- Histograms ---- */

#define VALUES 5000

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* At most an eighth above the value that is in that place, and never below it. */
static void check_quantile(const struct histogram *histogram, const uint64_t *sorted, size_t count,
						   unsigned per_mille)
{
	uint64_t exact = sorted[(count * per_mille + 999) / 1000 - 1];
	uint64_t got = histogram_quantile(histogram, per_mille);
	if (got < exact || got - exact > exact / HISTOGRAM_STEPS)
		fail_msg("%u per mille: %llu instead of %llu", per_mille, (unsigned long long)got,
				 (unsigned long long)exact);
}

static void quantiles_are_those_of_sorted_values(void **state)
{
	static uint64_t values[VALUES];
	static const unsigned shifts[] = {61, 54, 44, 34, 29};
	uint64_t random = 88172645463325252u;
	(void)state;
	for (size_t range = 0; range < sizeof(shifts) / sizeof(*shifts); range++) {
		struct histogram histogram = {0};
		for (size_t i = 0; i < VALUES; i++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			values[i] = random >> shifts[range];
			histogram_note(&histogram, values[i]);
		}
		qsort(values, VALUES, sizeof(*values), by_value);
		assert_int_equal(histogram.count, VALUES);
		assert_int_equal(histogram.most, values[VALUES - 1]);
		for (unsigned per_mille = 1; per_mille <= 1000; per_mille++)
			check_quantile(&histogram, values, VALUES, per_mille);
	}
}

static void every_bucket_ends_before_the_next_begins(void **state)
{
	(void)state;
	for (unsigned bit = 0; bit < 64; bit++)
		for (int64_t near = -1; near <= 1; near++) {
			struct histogram histogram = {0};
			uint64_t value = (UINT64_C(1) << bit) + (uint64_t)near;
			histogram_note(&histogram, value);
			assert_int_equal(histogram_quantile(&histogram, 500), value);
			histogram_note(&histogram, UINT64_MAX);
			check_quantile(&histogram, (const uint64_t[]){value, UINT64_MAX}, 2, 1000);
			/* Values beyond the last octave share a bucket. */
			if (bit < 36 && near < 1)
				check_quantile(&histogram, (const uint64_t[]){value, UINT64_MAX}, 2, 500);
		}
}

static void empty_and_added(void **state)
{
	struct histogram a = {0}, b = {0};
	(void)state;
	assert_int_equal(histogram_quantile(&a, 500), 0);
	assert_int_equal(histogram_quantile(&a, 990), 0);
	for (uint64_t i = 1; i <= 4; i++)
		histogram_note(i % 2 ? &a : &b, i);
	histogram_add(&a, &b);
	assert_int_equal(a.count, 4);
	assert_int_equal(a.most, 4);
	for (unsigned i = 1; i <= 4; i++)
		assert_int_equal(histogram_quantile(&a, i * 250), i);
}

/* ---- Equations ---- */

static void equations_name_only_what_there_is(void **state)
{
	struct counters counters = {0};
	struct gauges gauges = {0};
	uint64_t left, right;
	int rows = 0;
	(void)state;
	for (const struct identity *row = counters_identities; row->name; row++, rows++)
		if (!counters_sides(row->text, &counters, &gauges, &left, &right))
			fail_msg("cannot be read: %s", row->text);
	assert_true(rows >= 10);
}

static void sides_are_summed(void **state)
{
	struct counters counters = {.requests = 7, .hits = 5, .shared = 2};
	struct gauges gauges = {.waiting = 3};
	uint64_t left, right;
	(void)state;
	assert_true(counters_sides("requests = hits + shared", &counters, &gauges, &left, &right));
	assert_int_equal(left, 7);
	assert_int_equal(right, 7);
	assert_true(counters_sides("requests + waiting = shared", &counters, &gauges, &left, &right));
	assert_int_equal(left, 10);
	assert_int_equal(right, 2);
}

static void what_is_no_equation_is_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"requests",
		"requests = ",
		"requests = hit",
		"= hits",
		"requests = hits = shared",
		"requests=hits",
		"requests - hits",
		"requests = hits shared",
		"requests = hits +",
	};
	struct counters counters = {0};
	struct gauges gauges = {0};
	uint64_t left, right;
	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (counters_sides(texts[i], &counters, &gauges, &left, &right))
			fail_msg("taken: %s", texts[i]);
}

/* Each counter that says how a request was answered is in the equation of requests. */
static void answers_are_all_in_the_equation(void **state)
{
	const struct identity *row = counters_identities;
	char word[64];
	(void)state;
	while (strcmp(row->name, "requests") != 0)
		row++;
#define CHECK(name)                                                                           \
	snprintf(word, sizeof(word), " %s", #name);                                               \
	if (strcmp(#name, "requests") && strncmp(#name, "launch", 6) && !strstr(row->text, word)) \
		fail_msg("%s is not in: %s", #name, row->text);
	TALLY_COUNTERS(CHECK)
#undef CHECK
}

/* ---- Tallies ---- */

static void operators_are_bounded(void **state)
{
	struct operator_tallies tallies = {0};
	struct tally *first = operator_tally(&tallies, "permute");
	char name[24];
	uint64_t sum = 0;
	(void)state;
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < TALLY_OPERATORS_MOST + 10; i++) {
			snprintf(name, sizeof(name), "op%d", i);
			operator_tally(&tallies, name)->requests++;
		}
	assert_ptr_equal(operator_tally(&tallies, "permute"), first);
	assert_int_equal(tallies.count, TALLY_OPERATORS_MOST);
	/* One place is permute's. */
	assert_int_equal(tallies.others.requests, 2 * 11);
	for (int i = 0; i < tallies.count; i++)
		sum += tallies.rows[i]->tally.requests;
	assert_int_equal(sum + tallies.others.requests, 2 * (TALLY_OPERATORS_MOST + 10));
	operator_tallies_free(&tallies);
	assert_int_equal(tallies.count, 0);
}

static void ended_sessions_are_bounded(void **state)
{
	static struct ended_sessions ended;
	static struct ended_session session;
	uint64_t sum = 0;
	(void)state;
	/* One that did nothing takes nobody's place. */
	session.id = 1;
	ended_sessions_add(&ended, &session);
	assert_int_equal(ended.next, 0);
	for (uint64_t i = 2; i < 2 + TALLY_SESSIONS_MOST + 5; i++) {
		session.id = i;
		session.tally.requests = i;
		histogram_note(&session.tally.compile, i);
		ended_sessions_add(&ended, &session);
	}
	assert_int_equal(ended.older.requests, 2 + 3 + 4 + 5 + 6);
	assert_int_equal(ended.older.compile.count, 1 + 2 + 3 + 4 + 5);
	assert_int_equal(ended.older.compile.most, 6);
	for (int i = 0; i < TALLY_SESSIONS_MOST; i++) {
		assert_true(ended.rows[i].id > 6);
		sum += ended.rows[i].tally.requests;
	}
	assert_int_equal(sum, (7 + 22) * TALLY_SESSIONS_MOST / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quantiles_are_those_of_sorted_values),
		cmocka_unit_test(every_bucket_ends_before_the_next_begins),
		cmocka_unit_test(empty_and_added),
		cmocka_unit_test(equations_name_only_what_there_is),
		cmocka_unit_test(sides_are_summed),
		cmocka_unit_test(what_is_no_equation_is_refused),
		cmocka_unit_test(answers_are_all_in_the_equation),
		cmocka_unit_test(operators_are_bounded),
		cmocka_unit_test(ended_sessions_are_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
