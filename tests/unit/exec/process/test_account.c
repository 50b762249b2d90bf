/*
 * account: the time in which a device has work, and each account's part of it.
 */
#include "daemon/base/util.h"
#include "daemon/exec/process/executor.h"

#include <setjmp.h>
#include <stdarg.h>
/* after the above */
#include <cmocka.h>

#define AGO_US 50000

static struct exec executor;
static struct launcher launcher = {.executor = &executor};
static struct trail trail;

/* Where many programs want CPUs, the system stops the thread that launches until the kernel has
 * ended: it begins and ends in one turn. */
static void work_that_ends_in_the_turn_of_its_launch(void **state)
{
	(void)state;
	launcher.now_us = util_now_us() - AGO_US;
	exec_account_begin(&launcher, 1);
	exec_account_end(&launcher, 1);
	assert_true(trail.busy_us >= AGO_US);
	assert_true(trail.shares[1] >= AGO_US * (uint64_t)TRAIL_UNITS);
	/* The device has nothing to do until the next launch. */
	uint64_t before = trail.busy_us;
	launcher.now_us = util_now_us() + AGO_US;
	exec_account_begin(&launcher, 2);
	assert_true(trail.busy_us == before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(work_that_ends_in_the_turn_of_its_launch),
	};
	executor.trail = &trail;
	exec_account_open(&executor);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
