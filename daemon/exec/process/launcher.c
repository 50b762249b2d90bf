/*
 * launcher: how the main thread stops the others, and which session has which.  launcher.h draws
 * the states of a launcher; launcher_run.c is what its thread does.
 */
#include "launcher.h"
#include "executor.h"
#include "executor_flight.h"
#include "executor_lane.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/heart.h"
#include "daemon/base/thread.h"
#include "daemon/base/util.h"
#include "waker.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_PER_LOOK 16
#define SPIN_CPUS \
	4 /* with fewer, a thread that spins keeps the one that it waits for from running */

bool launcher_is_main(const struct launcher *launcher)
{
	return launcher == &launcher->executor->launchers[0];
}

static void ring(const struct launcher *launcher)
{
	const uint64_t one = 1;
	ssize_t written = write(launcher->bell, &one, sizeof(one));
	(void)written; /* full: its thread has not woken yet, and will */
}

/* The thread that has the launcher calls this. */
static void launcher_assert_valid(const struct launcher *launcher)
{
	assert(launcher_is_main(launcher) || launcher_state(launcher) != LAUNCHER_ABSENT ||
		   (!launcher->lanes && launcher_in_flight(launcher) == 0));
	assert(launcher->messages == launcher->flights.count);
	(void)launcher;
}

/* ---- Resting ---- */

static void pause_while(const struct launcher *launcher, const atomic_bool *flag)
{
	if (launcher->executor->cpus < SPIN_CPUS)
		return;
	uint64_t until = util_now_us() + PAUSE_STOP_SPIN_US;
	while (atomic_load_explicit(flag, memory_order_relaxed) && util_now_us() < until)
		lane_pause();
}

void launcher_leave(struct launcher *launcher, enum launcher_state state)
{
	launcher_assert_valid(launcher);
	pthread_mutex_lock(&launcher->mutex);
	atomic_store_explicit(&launcher->state, state, memory_order_release);
	pthread_cond_signal(&launcher->rested);
	pthread_mutex_unlock(&launcher->mutex);
}

void launcher_enter(struct launcher *launcher)
{
	if (atomic_load(&launcher->wanted))
		pause_while(launcher, &launcher->wanted);
	pthread_mutex_lock(&launcher->mutex);
	while (atomic_load(&launcher->wanted))
		pthread_cond_wait(&launcher->goes, &launcher->mutex);
	atomic_store_explicit(&launcher->state, LAUNCHER_RUNS, memory_order_release);
	pthread_mutex_unlock(&launcher->mutex);
	launcher_assert_valid(launcher);
	launcher->now_us = util_now_us();
}

void launcher_take_rings(const struct launcher *launcher)
{
	struct epoll_event events[EVENTS_PER_LOOK];
	while (epoll_wait(launcher->epoll, events, EVENTS_PER_LOOK, 0) == EVENTS_PER_LOOK)
		;
}

void launcher_rest(struct launcher *launcher, const struct timespec *time)
{
	struct exec *executor = launcher->executor;
	struct pollfd wake = {.fd = launcher->epoll, .events = POLLIN};
	if (!launcher_is_main(launcher)) {
		launcher_leave(launcher, LAUNCHER_RESTS);
		ppoll(&wake, 1, time, NULL);
		launcher_take_rings(launcher);
		launcher_enter(launcher);
		return;
	}
	atomic_store(&executor->sleeps, true);
	if (!atomic_load(&executor->told))
		ppoll(&wake, 1, time, NULL);
	atomic_store(&executor->sleeps, false);
}

/* ---- Telling the main thread ---- */

void launcher_tell(struct launcher *launcher)
{
	exec_tell(launcher->executor);
}

void exec_tell(struct exec *executor)
{
	atomic_store(&executor->told, true);
	if (atomic_load(&executor->sleeps))
		ring(&executor->launchers[0]);
}

/* ---- Stopping ---- */

void launchers_want(struct exec *executor)
{
	for (int i = 1; i < executor->launcher_count; i++)
		atomic_store(&executor->launchers[i].wanted, true);
	for (int i = 1; i < executor->launcher_count; i++)
		if (atomic_load(&executor->launchers[i].blocks))
			ring(&executor->launchers[i]);
}

bool launcher_await_rest(struct launcher *launcher, uint64_t patience_us)
{
	const struct timespec until = thread_after_us(patience_us);
	int why = 0;
	pthread_mutex_lock(&launcher->mutex);
	while (why != ETIMEDOUT && launcher_state(launcher) == LAUNCHER_RUNS)
		why = pthread_cond_timedwait(&launcher->rested, &launcher->mutex, &until);
	bool rests = launcher_state(launcher) != LAUNCHER_RUNS;
	pthread_mutex_unlock(&launcher->mutex);
	return rests;
}

static void await_stop(struct launcher *launcher)
{
	uint64_t until = launcher->executor->cpus < SPIN_CPUS ? 0 : util_now_us() + PAUSE_STOP_SPIN_US;
	while (launcher_state(launcher) == LAUNCHER_RUNS && util_now_us() < until)
		lane_pause();
	/* A call of the driver may keep it for long: who asked for something has a deadline. */
	while (!launcher_await_rest(launcher, PAUSE_STOP_LOOK_US))
		;
}

static void let_go(struct launcher *launcher)
{
	launcher_assert_valid(launcher);
	pthread_mutex_lock(&launcher->mutex);
	atomic_store(&launcher->wanted, false);
	pthread_cond_signal(&launcher->goes);
	pthread_mutex_unlock(&launcher->mutex);
	if (launcher->touched && launcher_state(launcher) == LAUNCHER_RESTS)
		ring(launcher);
	launcher->touched = false;
}

void launchers_stop(struct exec *executor)
{
	if (executor->stops++ > 0)
		return;
	launchers_want(executor);
	for (int i = 1; i < executor->launcher_count; i++)
		await_stop(&executor->launchers[i]);
}

void launchers_go(struct exec *executor)
{
	if (--executor->stops > 0)
		return;
	for (int i = 1; i < executor->launcher_count; i++)
		if (!executor->launchers[i].alone)
			let_go(&executor->launchers[i]);
}

void launcher_stop_alone(struct launcher *launcher)
{
	if (launcher_is_main(launcher))
		return;
	launcher->alone = true;
	atomic_store(&launcher->wanted, true);
	if (atomic_load(&launcher->blocks))
		ring(launcher);
	await_stop(launcher);
}

void launcher_go_alone(struct launcher *launcher)
{
	if (launcher_is_main(launcher))
		return;
	launcher->alone = false;
	let_go(launcher);
}

void launchers_touch(struct exec *executor)
{
	for (int i = 1; i < executor->launcher_count; i++)
		executor->launchers[i].touched = true;
}

/* ---- Sessions ---- */

/* The launchers are stopped: the thread waits for launchers_go(). */
static bool start_thread(struct launcher *launcher)
{
	sigset_t all, before;
	atomic_store(&launcher->wanted, true);
	atomic_store(&launcher->state, LAUNCHER_RESTS);
	sigfillset(&all);
	/* A fault of the thread itself, not of a kernel, has to end the process. */
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGSYS);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool started =
		pthread_create(&launcher->thread, NULL, launcher->executor->launcher_body, launcher) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!started)
		atomic_store(&launcher->state, LAUNCHER_ABSENT);
	return started;
}

/* Threads that launch take turns at a lock of the driver, and two lose more by it than they gain.
 * On an H200 one launcher made 439 000 launches a second for 8 programs, two made 331 000 and four
 * 315 000; for 64 programs one made 223 000 to 276 000 and four 287 000 to 321 000. */
#ifdef KILN_TEST_HOOKS
#define SESSIONS_FIRST 1
#else
#define SESSIONS_FIRST 16
#endif

/* Returns the first launcher that has fewer than SESSIONS_FIRST sessions, the main thread's before
 * others: a session alone has the shortest way.  If there is none, the one with the fewest.  In a
 * process of tests any may be the first, by its pid. */
static struct launcher *next_launcher(struct exec *executor)
{
	int first = 0, count = executor->launcher_count;
#ifdef KILN_TEST_HOOKS
	first = (int)getpid() % count;
#endif
	struct launcher *best = &executor->launchers[first];
	for (int i = 1; i < count && best->sessions >= SESSIONS_FIRST; i++)
		if (executor->launchers[(first + i) % count].sessions < best->sessions)
			best = &executor->launchers[(first + i) % count];
	if (!launcher_is_main(best) && launcher_state(best) == LAUNCHER_ABSENT && !start_thread(best))
		return &executor->launchers[0];
	return best;
}

struct launcher *launchers_home(const struct exec *executor, uint64_t stream)
{
	return stream ? map_get_id(&executor->homes, stream) : NULL;
}

struct launcher *launchers_of(struct exec *executor, uint64_t stream, bool begins)
{
	struct launcher *launcher = launchers_home(executor, stream);
	if (!launcher && stream && begins) {
		launcher = next_launcher(executor);
		if (map_put_id(&executor->homes, stream, launcher) < 0)
			return NULL;
		launcher->sessions++;
	}
	if (!launcher)
		return &executor->launchers[0];
	launcher->touched = true;
	launcher->now_us = executor->launchers[0].now_us;
	return launcher;
}

void launchers_forget(struct exec *executor, uint64_t stream)
{
	struct launcher *launcher = map_remove_id(&executor->homes, stream);
	if (launcher)
		launcher->sessions--;
}

/* ---- Begin and end ---- */

static bool open_one(struct launcher *launcher, struct exec *executor)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = launcher};
	launcher->executor = executor;
	launcher->ops = executor->ops;
	pthread_mutex_init(&launcher->mutex, NULL);
	thread_condition(&launcher->rested);
	thread_condition(&launcher->goes);
	exec_pace_open(launcher);
	launcher->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (launcher->epoll < 0)
		launcher->epoll = epoll_create1(EPOLL_CLOEXEC);
	return launcher->bell >= 0 && launcher->epoll >= 0 &&
		   epoll_ctl(launcher->epoll, EPOLL_CTL_ADD, launcher->bell, &event) == 0;
}

int launchers_open(struct exec *executor, int count, void *(*body)(void *launcher),
				   char error[KERNEL_ERROR_MAX])
{
	struct device *parts[DEVICE_PARTS_MOST] = {executor->device};
	int status = KILN_OK;
	if (count > 1 && executor->ops->split)
		status = executor->ops->split(executor->device, count, parts, error);
	executor->launcher_count = executor->ops->split ? count : 1;
	executor->launcher_body = body;
	for (int i = 0; i < executor->launcher_count && status == KILN_OK; i++) {
		struct launcher *launcher = &executor->launchers[i];
		launcher->device = parts[i];
		atomic_store(&launcher->state, i > 0 ? LAUNCHER_ABSENT : LAUNCHER_RUNS);
		if (i > 0)
			launcher->epoll = -1;
		if (!open_one(launcher, executor))
			status = util_fail(error, KERNEL_ERROR_MAX, KILN_EIO,
							   "a launching thread cannot be woken: %s", strerror(errno));
	}
	return status;
}

void launchers_end(struct exec *executor)
{
	for (int i = 1; i < executor->launcher_count; i++)
		atomic_store(&executor->launchers[i].ending, true);
	launchers_touch(executor);
	launchers_go(executor);
	for (int i = 1; i < executor->launcher_count; i++)
		if (launcher_state(&executor->launchers[i]) != LAUNCHER_ABSENT)
			pthread_join(executor->launchers[i].thread, NULL);
}

void launchers_close(struct exec *executor)
{
	for (int i = 0; i < executor->launcher_count; i++) {
		struct launcher *launcher = &executor->launchers[i];
		map_free(&launcher->flights);
		map_free(&launcher->lines);
		map_free(&launcher->graphs);
		free(launcher->lane_table);
		waker_stop(launcher->waker);
		exec_unmap_kept(launcher);
		close(launcher->bell);
		if (i > 0)
			close(launcher->epoll);
	}
	map_free(&executor->homes);
}
