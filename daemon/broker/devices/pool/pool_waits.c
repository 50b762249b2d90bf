/* pool_waits.c: notes of those who wait for a compiler. */
#include "pool_state.h"

#include "daemon/base/util.h"

void pool_note(const struct broker *broker, const struct pool_job *job, struct wait_note *note)
{
	const struct pool *pool = broker->pool;
	const struct slot *slot = queue_slot_of(pool, job);
	note->of = "compiler";
	if (slot) {
		note->what = "compiling";
		note->pid = worker_pid(&slot->worker);
		note->left_ms = waits_timer_left(&slot->worker.timer);
		waits_say(note, "its compile for %s", job->job->target);
	} else if (pool->memory.holds && job->chosen) {
		note->what = "memory";
		waits_say(note, "memory for its compile for %s", job->job->target);
	} else {
		note->what = "queued";
		waits_say(note, "its turn at a compiler for %s, with %d others", job->job->target,
				  pool->queued_count[POOL_INTERACTIVE] + pool->queued_count[POOL_BACKGROUND] - 1);
	}
}

static void note_job(const struct broker *broker, const struct pool_job *job, waits_visit visit,
					 void *arg)
{
	struct wait_note note = {
		.owner = job->arg, .since_us = job->since_us, .left_ms = WAITS_NO_DEADLINE};
	pool_note(broker, job, &note);
	visit(arg, &note);
}

static void note_slot(const struct slot *slot, waits_visit visit, void *arg)
{
	bool starting = slot->worker.state == WORKER_STARTING;
	struct wait_note note = {
		.what = "start",
		.of = "compiler",
		.pid = worker_pid(&slot->worker),
		.since_us = slot->worker.launched_us,
		.left_ms = starting ? waits_timer_left(&slot->worker.timer) : WAITS_NO_DEADLINE,
	};
	if (!starting &&
		(slot->worker.state != WORKER_EMPTY || !uv_is_active((uv_handle_t *)&slot->worker.timer)))
		return;
	waits_say(&note, "%s of a compiler worker", starting ? "the start" : "the next start");
	visit(arg, &note);
}

void pool_waits(const struct broker *broker, waits_visit visit, void *arg)
{
	const struct pool *pool = broker->pool;
	for (int i = 0; i < pool->count; i++) {
		note_slot(&pool->slots[i], visit, arg);
		if (pool->slots[i].job)
			note_job(broker, pool->slots[i].job, visit, arg);
	}
	for (const struct pool_job *job = pool->queued; job; job = job->all_next)
		note_job(broker, job, visit, arg);
	for (const struct known_waiter *waiter = pool->waiters; waiter; waiter = waiter->next) {
		struct wait_note note = {.owner = waiter->arg,
								 .what = "compilers",
								 .of = "compiler",
								 .since_us = waiter->since_us,
								 .left_ms = WAITS_NO_DEADLINE};
		waits_say(&note, "the first compiler worker, which says what compilers are here");
		visit(arg, &note);
	}
}
