/*
 * launcher_run: what the thread of a launcher does in a turn, how ends are told, and how the
 * process leaves when its device is broken.  The turns of the main thread are in executor.c.
 */
#include "launcher.h"
#include "executor.h"
#include "executor_flight.h"
#include "executor_lane.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/heart.h"
#include "daemon/base/util.h"
#include "waker.h"

#include <unistd.h>

/* ---- Ends ---- */

static void take_end(struct launcher *launcher, const struct device_done *done)
{
	if (done->ticket & EXEC_LANE_TICKET)
		exec_lane_finish(launcher, done);
	else
		exec_finish(launcher, done);
}

/* Tells of the ends that are good, and keeps what is most likely the culprit: the end that the
 * device names, or else the first bad one. */
static void finish_good(struct launcher *launcher, const struct device_done *done, int count,
						struct device_done *culprit)
{
	for (int i = 0; i < count; i++)
		if (done[i].status == KILN_OK)
			take_end(launcher, &done[i]);
		else if (culprit->status == KILN_OK || (done[i].culprit && !culprit->culprit))
			*culprit = done[i];
}

static const struct exec_flight *flight_of(const struct launcher *launcher, uint64_t ticket)
{
	return ticket & EXEC_LANE_TICKET ? exec_lane_flight(launcher, ticket)
									 : map_get_id(&launcher->flights, ticket);
}

/*
 * Answers the calls that ended well before the fault.  The others stay open: a client that hears of
 * its failure may send more at once, and this process would lose that too.  The broker answers for
 * them when the process has ended.
 */
static _Noreturn void leave_broken(struct launcher *failed, const struct device_done *done,
								   int count)
{
	struct exec *executor = failed->executor;
	struct device_done culprit = {.status = KILN_OK}, more[LAUNCHER_ENDS];
	const struct exec_flight *flight = NULL;
	finish_good(failed, done, count, &culprit);
	if (culprit.status != KILN_OK)
		flight = flight_of(failed, culprit.ticket);
	launchers_want(executor);
	for (int i = 0; i < executor->launcher_count; i++) {
		struct launcher *launcher = &executor->launchers[i];
		bool broken, named = culprit.culprit, any = culprit.status != KILN_OK;
		if (i > 0 && !launcher_await_rest(launcher, DEADLINE_REST_US))
			continue;
		if (launcher != failed && launcher_state(launcher) == LAUNCHER_BROKEN)
			finish_good(launcher, &launcher->culprit, launcher->culprit.status != KILN_OK,
						&culprit);
		else if (launcher != failed && launcher_state(launcher) != LAUNCHER_ABSENT)
			finish_good(launcher, more,
						launcher->ops->poll(launcher->device, launcher->epoll, 0, more,
											LAUNCHER_ENDS, &broken),
						&culprit);
		if (culprit.status != KILN_OK && (!any || (culprit.culprit && !named)))
			flight = flight_of(launcher, culprit.ticket);
		waker_drain(launcher->waker);
	}
	if (flight)
		exec_trail_blame(executor, flight->trail);
	exec_say_fault(executor, culprit.status != KILN_OK ? &culprit : NULL);
	_exit(EXEC_EXIT_FAULT);
}

/* The device is broken.  done: the ends that its part reported last; one of them may be the
 * culprit.  The main thread tells the broker and ends the process.  Another thread leaves that to
 * the main thread. */
static _Noreturn void fail(struct launcher *launcher, const struct device_done *done, int count)
{
	if (launcher_is_main(launcher))
		leave_broken(launcher, done, count);
	finish_good(launcher, done, count, &launcher->culprit);
	launcher_leave(launcher, LAUNCHER_BROKEN);
	launcher_tell(launcher);
	/* The main thread may be in a call of the driver that does not return. */
	usleep(DEADLINE_BROKEN_US);
	exec_say_fault(launcher->executor,
				   launcher->culprit.status != KILN_OK ? &launcher->culprit : NULL);
	_exit(EXEC_EXIT_FAULT);
}

void launcher_take_ends(struct launcher *launcher, struct device_done *done, int count, bool broken)
{
	if (broken)
		fail(launcher, done, count);
	for (int i = 0; i < count; i++)
		take_end(launcher, &done[i]);
	exec_account_settle(launcher);
	if (exec_lanes_overrun(launcher, &done[0]) || exec_pace_overrun(launcher, &done[0]))
		fail(launcher, done, 1);
}

/* ---- The thread ---- */

/* Looks for ends, or waits for them; a bell of the main thread ends that. */
static int look(struct launcher *launcher, int patience, struct device_done *done, bool *broken)
{
	if (patience == 0)
		return launcher->ops->poll(launcher->device, launcher->epoll, 0, done, LAUNCHER_ENDS,
								   broken);
	atomic_store(&launcher->blocks, true);
	if (atomic_load(&launcher->wanted))
		patience = 0;
	int count = launcher->ops->poll(launcher->device, launcher->epoll, patience, done,
									LAUNCHER_ENDS, broken);
	atomic_store(&launcher->blocks, false);
	launcher_take_rings(launcher);
	exec_lanes_wake(launcher);
	launcher->now_us = util_now_us();
	return count;
}

static void take_turn(struct launcher *launcher)
{
	struct exec *executor = launcher->executor;
	struct device_done done[LAUNCHER_ENDS];
	bool broken = false;
	launcher->now_us = launcher->turn_us = util_now_us();
	exec_lanes_serve(launcher);
	int patience = exec_pace_patience(launcher, exec_lanes_patience(launcher));
	patience = exec_account_patience(launcher, patience);
	if (patience != 0 && !exec_lanes_sleep(launcher))
		patience = 0;
	if (patience != 0 && launcher_in_flight(launcher) == 0) {
		atomic_store_explicit(&launcher->active, 0, memory_order_relaxed);
		heart_busy(executor->heart, &launcher->busy, false);
		launcher_rest(launcher, NULL);
		heart_busy(executor->heart, &launcher->busy, true);
		exec_lanes_wake(launcher);
		return;
	}
	int count = look(launcher, patience, done, &broken);
	launcher_take_ends(launcher, done, count, broken);
	atomic_thread_fence(memory_order_seq_cst);
	if (count > 0 && atomic_load_explicit(&executor->wants_ends, memory_order_relaxed))
		launcher_tell(launcher);
	exec_lanes_nap(launcher);
}

void *launcher_run(void *arg)
{
	struct launcher *launcher = arg;
	struct device_done done = {.status = KILN_OK};
	launcher_enter(launcher);
	if (launcher->ops->enter)
		done.status = launcher->ops->enter(launcher->device, done.error);
	if (done.status != KILN_OK)
		fail(launcher, &done, 1);
	heart_busy(launcher->executor->heart, &launcher->busy, true);
	while (!atomic_load_explicit(&launcher->ending, memory_order_relaxed)) {
		take_turn(launcher);
		if (launcher_wanted(launcher)) {
			launcher_leave(launcher, LAUNCHER_RESTS);
			launcher_enter(launcher);
		}
	}
	heart_busy(launcher->executor->heart, &launcher->busy, false);
	launcher_leave(launcher, LAUNCHER_RESTS);
	return NULL;
}

/* ---- The main thread ---- */

static void leave_if_broken(struct exec *executor)
{
	for (int i = 1; i < executor->launcher_count; i++) {
		struct launcher *launcher = &executor->launchers[i];
		if (launcher_state(launcher) == LAUNCHER_BROKEN)
			leave_broken(launcher, &launcher->culprit, launcher->culprit.status != KILN_OK);
	}
}

void launchers_listen(struct exec *executor)
{
	if (!atomic_load_explicit(&executor->told, memory_order_relaxed))
		return;
	atomic_store(&executor->told, false);
	leave_if_broken(executor);
	exec_quiet_take_handed(executor);
}
