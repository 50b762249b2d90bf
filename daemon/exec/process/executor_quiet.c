/*
 * executor_quiet: decides when to do tasks that stall a device.  A GPU loads a module, and closes a
 * lent allocation, only when all that runs has ended; until then the driver starts nothing for
 * anybody.  If the process did that at once, one client's new kernel would stop all others for as
 * long as the slowest kernel takes.  So such tasks wait, in the order in which they are due:
 *
 *   NONE --(a task is added)--> WAITS --(its patience ends)--> HOLDS
 *     ^                           | ^                            |
 *     |                           | +--(tasks are left)----------+
 *     +--(a turn did the last)----+------------------------------+
 *
 * - WAITS: when nothing is in flight, the process does a turn: all tasks, but while a client waits
 *   to launch it does tasks for PAUSE_TURN_US only, and the rest after those launches.
 * - HOLDS: the process takes no launch from lanes and nothing from the socket, so that the order of
 *   launches, buffers and kernels stays.  A hold takes as long as what is in flight.  Where that is
 *   short, holding is cheap and waiting is dear: the patience is at most DRAINS times that.  When
 *   nothing is in flight any more, the process does a turn, which may take a share of the time that
 *   the hold took: a client that waited for 20 ms does not feel a few more.  The hold is over.
 * - After a hold all may launch for as long as it took.  So they get half of the time, however many
 *   kernels others bring.
 * - A hold ends after limit_us though nothing could be done: the process does not wait for a kernel
 *   that runs for long, and the others launch beside it.  The next hold may take twice as long, and
 *   so on, until one is long enough: a client that keeps the device busy for ever cannot keep
 *   another from its first kernel.  --launch-timeout ends a kernel that never ends.
 *
 * A launch that is held is not in flight, so no deadline counts against it.
 */
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_flight.h"

#include <assert.h>
#include <poll.h>

#define TURN_SHARE 4 /* a turn takes this part of what its hold took */
#define DRAINS 8
/* Times the patience of a load.  A client waits for a free, but need not wait to launch; nobody
 * waits for a lazy task. */
#define FREE_PATIENCE 4
#define LAZY_PATIENCE 20

bool exec_quiet_waits(const struct exec *executor, const struct device_memory *memory)
{
	if (exec_misdeed_holds(executor))
		return true;
	return executor->quiet.patience_us && executor->ops->stalls && executor->ops->stalls(memory);
}

/* Holds between turns: within one the last task may be under way. */
static void quiet_assert_valid(const struct exec_quiet *quiet)
{
	assert((quiet->state == QUIET_NONE) == !quiet->first);
	assert(quiet->left >= 0);
	(void)quiet;
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

void exec_quiet_do(struct exec *executor, struct exec_task *task,
				   const struct device_memory *memory)
{
	struct exec_quiet *quiet = &executor->quiet;
	struct exec_task **link = &quiet->first;
	if (!exec_quiet_waits(executor, memory)) {
		task->perform(executor, task->what);
		return;
	}
	task->added_us = util_now_us();
	if (quiet->state == QUIET_NONE)
		quiet->state = QUIET_WAITS;
	if (!quiet->first) {
		launchers_stop(executor);
		quiet->epoch++;
		quiet->left = (int)exec_in_flight(executor);
		quiet->came_us = task->added_us;
		quiet->drain_us = 0;
		quiet->drained_us = 0;
		launchers_go(executor);
	}
	task->due_us = task->added_us + patience(quiet, task->kind);
	while (*link && (*link)->due_us <= task->due_us)
		link = &(*link)->next;
	task->next = *link;
	*link = task;
	quiet_assert_valid(quiet);
}

void exec_quiet_hand_over(struct launcher *launcher, struct exec_task *task,
						  const struct device_memory *memory)
{
	if (launcher_is_main(launcher)) {
		exec_quiet_do(launcher->executor, task, memory);
		return;
	}
	task->memory = memory;
	pthread_mutex_lock(&launcher->mutex);
	task->next = launcher->handed;
	launcher->handed = task;
	pthread_mutex_unlock(&launcher->mutex);
	launcher_tell(launcher);
}

/* Returns the tasks that the launcher has handed over, the first first. */
static struct exec_task *take_handed(struct launcher *launcher)
{
	struct exec_task *tasks = NULL;
	pthread_mutex_lock(&launcher->mutex);
	while (launcher->handed) {
		struct exec_task *task = launcher->handed;
		launcher->handed = task->next;
		task->next = tasks;
		tasks = task;
	}
	pthread_mutex_unlock(&launcher->mutex);
	return tasks;
}

void exec_quiet_take_handed(struct exec *executor)
{
	for (int i = 1; i < executor->launcher_count; i++) {
		struct exec_task *next;
		for (struct exec_task *task = take_handed(&executor->launchers[i]); task; task = next) {
			next = task->next;
			exec_quiet_do(executor, task, task->memory);
		}
	}
}

void exec_quiet_ended(struct launcher *launcher, const struct exec_flight *flight)
{
	struct exec_quiet *quiet = &launcher->executor->quiet;
	if (flight->epoch != quiet->epoch && atomic_fetch_sub(&quiet->left, 1) == 1)
		atomic_store(&quiet->drained_us, util_now_us());
}

/* All launches that were in flight when the first task came have ended: the tasks may be due sooner
 * now.  Their order stays. */
static void take_drained(struct exec_quiet *quiet)
{
	uint64_t drained_us = atomic_load(&quiet->drained_us);
	if (!drained_us || quiet->drain_us)
		return;
	quiet->drain_us = drained_us - quiet->came_us + 1;
	for (struct exec_task *task = quiet->first; task; task = task->next)
		task->due_us = task->added_us + patience(quiet, task->kind);
}

/* Tells the broker, for its counters, that a hold begins, or how many tasks were done and for how
 * long launches had to wait for them. */
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

static bool somebody_waits(const struct exec *executor, exec_waiting *lanes_wait)
{
	struct pollfd sock = {.fd = executor->sock, .events = POLLIN};
	for (int i = 0; i < executor->launcher_count; i++)
		if (lanes_wait(&executor->launchers[i]))
			return true;
	return poll(&sock, 1, 0) > 0;
}

static void let_go(struct exec *executor, uint64_t done)
{
	struct exec_quiet *quiet = &executor->quiet;
	uint64_t now = util_now_us(), held_us = quiet->state == QUIET_HOLDS ? now - quiet->since_us : 0;
	quiet->limit_us = done ? DEADLINE_HOLD_US : 2 * quiet->limit_us;
	quiet->rest_us = now + held_us;
	quiet->state = quiet->first ? QUIET_WAITS : QUIET_NONE;
	launchers_touch(executor);
	quiet_assert_valid(quiet);
	say(executor, false, done, held_us);
}

static void take_turn(struct exec *executor, uint64_t now, exec_waiting *lanes_wait)
{
	struct exec_quiet *quiet = &executor->quiet;
	uint64_t turn_us = quiet->state == QUIET_HOLDS ? (now - quiet->since_us) / TURN_SHARE : 0,
			 done = 0;
	turn_us = turn_us > PAUSE_TURN_US ? turn_us : PAUSE_TURN_US;
	do {
		struct exec_task *task = quiet->first;
		quiet->first = task->next;
		task->perform(executor, task->what);
		done++;
	} while (quiet->first &&
			 (util_now_us() - now < turn_us || !somebody_waits(executor, lanes_wait)));
	let_go(executor, done);
}

void exec_quiet_serve(struct exec *executor, exec_waiting *lanes_wait)
{
	struct exec_quiet *quiet = &executor->quiet;
	if (!quiet->first || exec_misdeed_holds(executor))
		return;
	uint64_t now = util_now_us();
	take_drained(quiet);
	bool idle = exec_in_flight(executor) == 0, holds = quiet->state == QUIET_HOLDS;
	bool ends = holds && now - quiet->since_us >= quiet->limit_us;
	bool begins = !holds && now >= quiet->first->due_us && now >= quiet->rest_us;
	if (!idle && !ends && !begins)
		return;
	launchers_stop(executor);
	exec_quiet_take_handed(executor); /* behind what has ended */
	if (exec_in_flight(executor) == 0) {
		take_turn(executor, now, lanes_wait);
	} else if (ends) {
		let_go(executor, 0);
	} else if (begins) {
		quiet->state = QUIET_HOLDS;
		quiet->since_us = now;
		say(executor, true, 0, 0);
	}
	launchers_go(executor);
}

int exec_quiet_patience(const struct exec *executor, int patience)
{
	const struct exec_quiet *quiet = &executor->quiet;
	if (!quiet->first || patience == 0 || exec_misdeed_holds(executor))
		return patience;
	if (exec_in_flight(executor) == 0)
		return 0;
	uint64_t now = util_now_us(), until = quiet->since_us + quiet->limit_us;
	if (quiet->state != QUIET_HOLDS)
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
