/*
 * executor_quiet: when to do what stalls a device.  On a GPU a module is loaded, and a lent
 * allocation closed, only when all that runs has ended, and until then the driver starts nothing
 * for anybody: done at once, one client's new kernel would stop all others for as long as the
 * slowest kernel takes, and fifty of them for fifty loads more.  So such tasks wait, by the time
 * they are due:
 *
 * - When nothing is in flight they are done: all of them, or while somebody waits to launch for a
 *   TURN, and the rest after those launches.
 * - What is due and still waits ends this patience: the executor holds, that is, takes no launch
 *   from lanes and nothing from the socket, where the order of launches, buffers and kernels is
 *   thus kept.  A hold takes as long as what is in flight; where that is short, it is dear to wait
 *   and cheap to hold, and so the patience is at most DRAINS times that.  When what is in flight
 *   has ended, a turn is done.  It may take a share of the time that the hold took, for who waited
 *   for 20 ms does not feel a few more, and the hold is over.
 * - After a hold all may launch for as long as it took, so that they get half of the time whoever
 *   brings how many kernels.
 * - What runs for long is not waited for: a hold ends after DEADLINE_HOLD_US though nothing could
 *   be done, and others launch beside that kernel, which they could not while the driver waited for
 *   it.  The next hold may take twice as long, and so on: one comes that is long enough, so that a
 *   client that keeps the device busy for ever cannot keep another from its first kernel.  What
 *   does not end at all is the affair of --launch-timeout.
 *
 * A held launch is none that is stuck: it is not in flight.
 */
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "executor.h"

#include <poll.h>

#define TURN_SHARE 4 /* of what a hold took */
#define DRAINS 8
/* Of a load.  Somebody waits for a free, but not to launch; for the lazy ones nobody does. */
#define FREE_PATIENCE 4
#define LAZY_PATIENCE 20

bool exec_quiet_waits(const struct exec *executor, const struct device_memory *memory)
{
	if (exec_misdeed_holds(executor))
		return true;
	return executor->quiet.patience_us && executor->ops->stalls && executor->ops->stalls(memory);
}

static uint64_t patience(const struct exec_quiet *quiet, enum exec_task_kind kind)
{
	static const int times[] = {
		[EXEC_TASK_LOAD] = 1,
		[EXEC_TASK_FREE] = FREE_PATIENCE,
		[EXEC_TASK_LAZY] = LAZY_PATIENCE,
	};
	uint64_t most_us = quiet->patience_us;
	if (quiet->drain_us && quiet->drain_us * DRAINS < most_us)
		most_us = quiet->drain_us * DRAINS;
	return most_us * (uint64_t)times[kind];
}

void exec_quiet_add(struct exec *executor, struct exec_task *task, enum exec_task_kind kind)
{
	struct exec_quiet *quiet = &executor->quiet;
	struct exec_task **link = &quiet->first;
	task->kind = kind;
	task->added_us = util_now_us();
	if (!quiet->first) {
		quiet->epoch++;
		quiet->left = (int)exec_in_flight(executor);
		quiet->came_us = task->added_us;
		quiet->drain_us = 0;
	}
	task->due_us = task->added_us + patience(quiet, kind);
	while (*link && (*link)->due_us <= task->due_us)
		link = &(*link)->next;
	task->next = *link;
	*link = task;
}

void exec_quiet_ended(struct exec *executor, const struct exec_flight *flight)
{
	struct exec_quiet *quiet = &executor->quiet;
	if (!quiet->first || quiet->left == 0 || flight->epoch == quiet->epoch || --quiet->left > 0)
		return;
	/* Known now: who waits already may be due sooner.  The order stays. */
	quiet->drain_us = util_now_us() - quiet->came_us + 1;
	for (struct exec_task *task = quiet->first; task; task = task->next)
		task->due_us = task->added_us + patience(quiet, task->kind);
}

/* For the broker's counters; done: tasks, held_us: how long launches had to wait for them. */
static void say(struct exec *executor, bool begun, uint64_t done, uint64_t held_us)
{
	struct wire_out message;
	wire_begin(&message, "event", 0);
	wire_put_str(&message, "what", "quiet");
	wire_put_bool(&message, "begun", begun);
	wire_put_uint(&message, "done", done);
	wire_put_uint(&message, "held", held_us);
	exec_send(executor, &message, -1);
}

static bool somebody_waits(const struct exec *executor)
{
	struct pollfd sock = {.fd = executor->sock, .events = POLLIN};
	return exec_lanes_waiting(executor) || poll(&sock, 1, 0) > 0;
}

static void let_go(struct exec *executor, uint64_t done)
{
	struct exec_quiet *quiet = &executor->quiet;
	uint64_t now = util_now_us(), held_us = quiet->holds ? now - quiet->since_us : 0;
	quiet->limit_us = done ? DEADLINE_HOLD_US : 2 * quiet->limit_us;
	quiet->rest_us = now + held_us;
	quiet->holds = false;
	say(executor, false, done, held_us);
}

static void take_turn(struct exec *executor, uint64_t now)
{
	struct exec_quiet *quiet = &executor->quiet;
	uint64_t turn_us = quiet->holds ? (now - quiet->since_us) / TURN_SHARE : 0, done = 0;
	turn_us = turn_us > PAUSE_TURN_US ? turn_us : PAUSE_TURN_US;
	do {
		struct exec_task *task = quiet->first;
		quiet->first = task->next;
		task->perform(executor, task->what);
		done++;
	} while (quiet->first && (util_now_us() - now < turn_us || !somebody_waits(executor)));
	let_go(executor, done);
}

void exec_quiet_serve(struct exec *executor)
{
	struct exec_quiet *quiet = &executor->quiet;
	if (!quiet->first || exec_misdeed_holds(executor))
		return;
	uint64_t now = util_now_us();
	if (exec_in_flight(executor) == 0) {
		take_turn(executor, now);
	} else if (quiet->holds && now - quiet->since_us >= quiet->limit_us) {
		let_go(executor, 0);
	} else if (!quiet->holds && now >= quiet->first->due_us && now >= quiet->rest_us) {
		quiet->holds = true;
		quiet->since_us = now;
		say(executor, true, 0, 0);
	}
}

int exec_quiet_patience(const struct exec *executor, int patience)
{
	const struct exec_quiet *quiet = &executor->quiet;
	if (!quiet->first || patience == 0 || exec_misdeed_holds(executor))
		return patience;
	if (exec_in_flight(executor) == 0)
		return 0;
	uint64_t now = util_now_us(), until = quiet->since_us + quiet->limit_us;
	if (!quiet->holds)
		until = quiet->first->due_us > quiet->rest_us ? quiet->first->due_us : quiet->rest_us;
	int left = until > now ? (int)((until - now) / 1000 + 1) : 1;
	return patience < 0 || left < patience ? left : patience;
}

void exec_quiet_open(struct exec *executor, uint32_t patience_ms)
{
	executor->quiet = (struct exec_quiet){
		.patience_us = (uint64_t)patience_ms * 1000,
		.limit_us = DEADLINE_HOLD_US,
	};
}

void exec_quiet_close(struct exec *executor)
{
	while (executor->quiet.first) {
		struct exec_task *task = executor->quiet.first;
		executor->quiet.first = task->next;
		task->perform(executor, task->what);
	}
}
