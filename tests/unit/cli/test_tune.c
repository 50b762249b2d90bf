/* tune: when a candidate beats the planner's own choice, and when the times say nothing. */
#include <client/cli/commands/tune.h>

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

#define ROUNDS 21
#define SHARE 0.02

/* Times around a middle, as a busy host has them: a generator of our own, so that each run is one.
 */
static void draw(double *times, unsigned seed, double middle, double noise)
{
	unsigned long long state = seed * 2654435761u + 1;
	for (int i = 0; i < ROUNDS; i++) {
		double sum = 0;
		for (int k = 0; k < 4; k++) {
			state = state * 6364136223846793005ull + 1442695040888963407ull;
			sum += (double)(state >> 40) / (double)(1 << 24) - 0.5;
		}
		times[i] = middle * (1 + noise * sum);
	}
}

static int wins(double middle, double noise)
{
	double own[ROUNDS], other[ROUNDS];
	int count = 0;
	for (unsigned seed = 1; seed <= 1000; seed++) {
		draw(own, 2 * seed, 100, noise);
		draw(other, 2 * seed + 1, middle, noise);
		count += tune_beats(own, other, ROUNDS, SHARE);
	}
	return count;
}

static void noise_wins_nothing(void **state)
{
	(void)state;
	assert_in_range(wins(100, 0), 0, 0);
	assert_in_range(wins(100, 0.01), 0, 0);
	assert_in_range(wins(100, 0.3), 0, 0);
	assert_in_range(wins(100, 1), 0, 0);
	/* Nor does what is less than the share, however steady. */
	assert_in_range(wins(98.5, 0), 0, 0);
	assert_in_range(wins(104, 0.3), 0, 0);
}

static void what_is_faster_wins(void **state)
{
	(void)state;
	assert_in_range(wins(97, 0), 1000, 1000);
	assert_in_range(wins(90, 0.02), 1000, 1000);
	assert_in_range(wins(60, 0.2), 1000, 1000);
}

/* A disturbed round is slow for both candidates, so the differences do not show it. */
static void a_slow_round_is_slow_for_both(void **state)
{
	(void)state;
	double own[ROUNDS], other[ROUNDS];
	draw(own, 7, 100, 0.001);
	draw(other, 8, 95, 0.001);
	for (int i = 0; i < ROUNDS; i += 3) {
		own[i] += 300;
		other[i] += 300;
	}
	assert_true(tune_beats(own, other, ROUNDS, SHARE));
	assert_false(tune_beats(other, own, ROUNDS, SHARE));
}

static void few_rounds_show_nothing(void **state)
{
	(void)state;
	double own[ROUNDS], other[ROUNDS];
	draw(own, 1, 100, 0);
	draw(other, 2, 50, 0);
	assert_false(tune_beats(own, other, 0, SHARE));
	assert_false(tune_beats(own, other, 6, SHARE));
	assert_true(tune_beats(own, other, 7, SHARE));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(noise_wins_nothing),
		cmocka_unit_test(what_is_faster_wins),
		cmocka_unit_test(a_slow_round_is_slow_for_both),
		cmocka_unit_test(few_rounds_show_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
