/*
 * The thread that wakes clients: each pipe is written at least as often as it takes, and never
 * after it was drained.
 */
#include "daemon/exec/process/waker.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#define CLIENTS 8
#define ROUNDS 20000

static void empty(int fd)
{
	char bytes[4096];
	while (read(fd, bytes, sizeof(bytes)) > 0)
		;
}

static void await(int fd)
{
	struct pollfd watch = {.fd = fd, .events = POLLIN};
	assert_int_equal(poll(&watch, 1, 10000), 1);
	empty(fd);
}

static void wakes(struct waker *waker)
{
	int fds[CLIENTS], ends[CLIENTS][2];
	for (int i = 0; i < CLIENTS; i++) {
		assert_int_equal(pipe2(ends[i], O_CLOEXEC | O_NONBLOCK), 0);
		fds[i] = ends[i][1];
	}
	/* Seldom, often, and more than its queue holds. */
	for (int burst = 1; burst <= 4096; burst *= 16) {
		for (int round = 0; round < ROUNDS / burst; round++) {
			for (int i = 0; i < burst; i++)
				waker_wake(waker, fds[i % CLIENTS]);
			for (int i = 0; i < CLIENTS && i < burst; i++)
				await(ends[i][0]);
			waker_drain(waker);
			for (int i = 0; i < CLIENTS; i++)
				empty(ends[i][0]);
		}
	}
	/* After that nobody writes any more. */
	waker_wake(waker, fds[0]);
	waker_drain(waker);
	await(ends[0][0]);
	for (int i = 0; i < CLIENTS; i++) {
		char left;
		assert_int_equal(read(ends[i][0], &left, 1), -1);
		close(ends[i][0]);
		close(ends[i][1]);
	}
}

static void with_a_thread(void **state)
{
	(void)state;
	struct waker *waker = waker_start();
	assert_non_null(waker);
	wakes(waker);
	waker_stop(waker);
}

static void without_one(void **state)
{
	(void)state;
	wakes(NULL);
	waker_stop(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(with_a_thread),
		cmocka_unit_test(without_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
