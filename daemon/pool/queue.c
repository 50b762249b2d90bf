/* queue.c: the jobs that wait for a worker: which is next, and which worker is for it. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

/* ---- The queues ---- */

static void append(struct pool *pool, struct pool_job *job)
{
	struct pool_queue *queue = &pool->queues[job->priority];
	job->next = NULL;
	if (queue->tail)
		queue->tail->next = job;
	else
		queue->head = job;
	queue->tail = job;
	queue->count++;
}

/* False: it is in no queue. */
static bool take_out(struct pool *pool, struct pool_job *job)
{
	struct pool_queue *queue = &pool->queues[job->priority];
	struct pool_job **link = &queue->head, *previous = NULL;
	for (; *link && *link != job; link = &(*link)->next)
		previous = *link;
	if (!*link)
		return false;
	*link = job->next;
	if (queue->tail == job)
		queue->tail = previous;
	queue->count--;
	return true;
}

void queue_put_back(struct pool *pool, struct pool_job *job)
{
	struct pool_queue *queue = &pool->queues[job->priority];
	job->next = queue->head;
	queue->head = job;
	if (!queue->tail)
		queue->tail = job;
	queue->count++;
}

struct pool_job *queue_pop(struct pool *pool)
{
	for (int i = 0; i < POOL_PRIORITIES; i++) {
		struct pool_job *job = pool->queues[i].head;
		if (job) {
			take_out(pool, job);
			return job;
		}
	}
	return NULL;
}

static const char *compiler_of(const struct pool *pool, const struct compile_job *job)
{
	return !strcmp(job->target, "cpu") ? pool->toolchains.host.id : pool->toolchains.nvrtc.id;
}

struct pool_job *queue_pop_stale(struct pool *pool)
{
	for (int i = 0; i < POOL_PRIORITIES; i++)
		for (struct pool_job *job = pool->queues[i].head; job; job = job->next)
			if (strcmp(job->compiler, compiler_of(pool, job->job)) != 0) {
				take_out(pool, job);
				return job;
			}
	return NULL;
}

/* ---- Which worker ---- */

static int count_slots(const struct pool *pool, enum slot_state state)
{
	int count = 0;
	for (int i = 0; i < pool->count; i++)
		count += pool->slots[i].state == state;
	return count;
}

static bool is_fresh(const struct slot *slot)
{
	return slot->jobs_done == 0;
}

/* An idle worker, if it can be one that is fresh or not, as wanted. */
static struct slot *find_idle(struct pool *pool, bool fresh)
{
	struct slot *found = NULL;
	for (int i = 0; i < pool->count; i++) {
		struct slot *slot = &pool->slots[i];
		if (slot->state == SLOT_IDLE && (!found || is_fresh(slot) == fresh))
			found = slot;
	}
	return found;
}

/* Somebody who waits shall find a worker; where one is all there is, it works. */
static bool may_take(const struct pool *pool, enum pool_priority priority)
{
	int idle = count_slots(pool, SLOT_IDLE), gone = count_slots(pool, SLOT_EMPTY);
	return priority == POOL_INTERACTIVE ? idle > 0
										: idle > 1 || (idle == 1 && gone == pool->count - 1);
}

/* The worker for a job; NULL: a fresh one is needed and on its way.  coming: workers that start and
 * that no job before this one waits for. */
static struct slot *choose(struct pool *pool, const struct pool_job *job, int *coming)
{
	bool fresh = job->job->user_files > 0 || job->fresh;
	struct slot *slot = find_idle(pool, fresh);
	if (!fresh || is_fresh(slot))
		return slot;
	/* What a user's source may do to its compiler reaches no other job, and no other job it; nor
	 * does what jobs before have left of its memory. */
	if (*coming > 0)
		--*coming;
	else
		slot_renew(slot);
	return NULL;
}

void queue_assign(struct broker *broker)
{
	struct pool *pool = broker->pool;
	int coming = count_slots(pool, SLOT_STARTING);
	for (int i = 0; i < POOL_PRIORITIES; i++) {
		struct pool_job *next, *job = pool->queues[i].head;
		for (; job && may_take(pool, job->priority); job = next) {
			/* Who is behind does not get what it waits for. */
			if (!memory_admits(broker, job->job))
				return;
			struct slot *slot = choose(pool, job, &coming);
			next = job->next;
			if (slot && take_out(pool, job))
				slot_send(slot, job);
		}
	}
}

/* ---- What the broker asks ---- */

struct pool_job *pool_submit(struct broker *broker, const struct compile_job *job,
							 enum pool_priority priority, pool_done done, void *arg)
{
	struct pool_job *item = calloc(1, sizeof *item);
	if (!item)
		return NULL;
	item->job = job;
	item->priority = priority;
	item->done = done;
	item->arg = arg;
	item->since_us = util_now_us();
	snprintf(item->compiler, sizeof item->compiler, "%s", compiler_of(broker->pool, job));
	append(broker->pool, item);
	queue_assign(broker);
	return item;
}

void pool_raise(struct broker *broker, struct pool_job *job)
{
	bool queued;
	if (job->priority == POOL_INTERACTIVE)
		return;
	queued = take_out(broker->pool, job);
	job->priority = POOL_INTERACTIVE;
	if (queued) {
		append(broker->pool, job);
		queue_assign(broker);
	}
}

void pool_cancel(struct broker *broker, struct pool_job *job)
{
	struct pool *pool = broker->pool;
	take_out(pool, job);
	for (int i = 0; i < pool->count; i++)
		if (pool->slots[i].job == job)
			slot_abort(&pool->slots[i]);
	free(job);
}

bool pool_running(const struct broker *broker, const struct pool_job *job)
{
	for (int i = 0; i < broker->pool->count; i++)
		if (broker->pool->slots[i].job == job)
			return true;
	return false;
}
