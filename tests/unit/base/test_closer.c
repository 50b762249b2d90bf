/*
 * closer: no child inherits a descriptor that is to be closed, also where the thread that closes it
 * is made to wait just before it does.
 */
#include "daemon/base/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the above */
#include <cmocka.h>

#define SPIN_US 20000
#define ROUNDS 5

static void settled_means_closed(void **state)
{
	(void)state;
	assert_true(closer_open(NULL, NULL));
	closer_spin(SPIN_US);
	for (int i = 0; i < ROUNDS; i++) {
		int pair[2];
		assert_int_equal(pipe(pair), 0);
		closer_put(1, pair[1]);
		/* A busy machine may not let the thread come to its close() in the time of one wait. */
		bool settled = false;
		for (int tries = 0; tries < 100 && !settled; tries++)
			settled = closer_settle();
		assert_true(settled);
		assert_int_equal(fcntl(pair[1], F_GETFD), -1);
		assert_int_equal(errno, EBADF);
		close(pair[0]);
	}
	closer_spin(0);
	closer_detach();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settled_means_closed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
