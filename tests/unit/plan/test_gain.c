/* test_gain.c: what exact kernels are expected to save: more where data stay in the cache, nothing
 * that is less than nothing, and something for devices and operators that nobody has measured. */
#include "daemon/plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

static double gain(const char *op, const char *variant, const char *target, uint64_t bytes,
				   double *us)
{
	struct kernel_plan plan = {.bytes_moved = bytes};
	struct kernel_limits limits = {0};

	snprintf(plan.op, sizeof(plan.op), "%s", op);
	snprintf(plan.variant, sizeof(plan.variant), "%s", variant);
	snprintf(limits.target, sizeof(limits.target), "%s", target);
	return plan_gain(&plan, &limits, us);
}

static void by_size(void **state)
{
	(void)state;
	double small_us, large_us, huge_us;
	double small = gain("permute", "gather", "sm_90", 1 << 20, &small_us);
	double large = gain("permute", "gather", "sm_90", 1 << 30, &large_us);

	assert_true(small >= large && large >= 1);
	gain("permute", "gather", "sm_90", UINT64_C(1) << 31, &huge_us);
	/* A launch of nothing takes time, too; twice the bytes take twice as long but for that. */
	assert_true(small_us > 1 && small_us < 10);
	assert_true(huge_us > 1.9 * large_us && huge_us < 2 * large_us);
	assert_true(large_us > 200 && large_us < 500);
}

static void of_the_unknown(void **state)
{
	(void)state;
	double us;

	assert_true(gain("new_operator", "", "sm_199", 1 << 20, &us) > 1);
	assert_true(us > 0);
	assert_true(gain("map", "unroll", "cpu", 1 << 20, &us) >= 1);
	assert_true(us > 1000);
	/* The longest name that fits. */
	gain("sm_90", "", "sm_103", 0, &us);
	assert_true(us > 0 && us < 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_size),
		cmocka_unit_test(of_the_unknown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
