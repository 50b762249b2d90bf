/*
 * The thread that wakes clients: each eventfd is written at least as often as it takes, and never
 * after it was drained.
 */
#include "daemon/exec/waker.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#define CLIENTS 8
#define ROUNDS 20000

static void await(int fd)
{
	struct pollfd watch = {.fd = fd, .events = POLLIN};
	uint64_t count;
	assert_int_equal(poll(&watch, 1, 10000), 1);
	assert_int_equal(read(fd, &count, sizeof count), sizeof count);
}

static void wakes(struct waker *waker)
{
	int fds[CLIENTS];
	for (int i = 0; i < CLIENTS; i++)
		fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	/* Seldom, often, and more than its queue holds. */
	for (int burst = 1; burst <= 4096; burst *= 16) {
		for (int round = 0; round < ROUNDS / burst; round++) {
			for (int i = 0; i < burst; i++)
				waker_wake(waker, fds[i % CLIENTS]);
			for (int i = 0; i < CLIENTS && i < burst; i++)
				await(fds[i]);
			waker_drain(waker);
			for (int i = 0; i < CLIENTS; i++) {
				uint64_t left;
				(void)!read(fds[i], &left, sizeof left);
			}
		}
	}
	/* After that nobody writes any more. */
	waker_wake(waker, fds[0]);
	waker_drain(waker);
	await(fds[0]);
	for (int i = 0; i < CLIENTS; i++) {
		uint64_t left;
		assert_int_equal(read(fds[i], &left, sizeof left), -1);
		close(fds[i]);
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
