/* pool_queue.c: chooses the next of the jobs that wait for a worker, and the worker for it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/list.h"
#include "pool_state.h"

static void pool_queue_assert_valid(const struct pool_job *job)
{
	assert((job->state == POOL_JOB_CHOSEN) == (job->chosen != NULL));
	(void)job;
}

/* ---- The queues ---- */

static void choose_last(struct pool_queue *queue, struct pool_job *job)
{
	job->chosen = queue;
	job->state = POOL_JOB_CHOSEN;
	QUEUE_APPEND(queue->head, queue->tail, job);
}

static void choose_first(struct pool_queue *queue, struct pool_job *job)
{
	job->chosen = queue;
	job->state = POOL_JOB_CHOSEN;
	QUEUE_PUSH(queue->head, queue->tail, job);
}

static void unchoose(struct pool_job *job)
{
	struct pool_queue *queue = job->chosen;
	if (!queue)
		return;
	QUEUE_REMOVE(queue->head, queue->tail, job);
	job->chosen = NULL;
	job->state = POOL_JOB_QUEUED;
}

static void list(struct pool *pool, struct pool_job *job)
{
	job->state = POOL_JOB_QUEUED;
	job->all_previous = NULL;
	job->all_next = pool->queued;
	if (pool->queued)
		pool->queued->all_previous = job;
	pool->queued = job;
	pool->queued_count[job->priority]++;
}

/* Takes a job out of all lists, unless a worker has it. */
static void take_out(struct pool *pool, struct pool_job *job)
{
	pool_queue_assert_valid(job);
	if (job->state == POOL_JOB_COMPILING)
		return;
	turns_leave_all(&job->item);
	unchoose(job);
	if (job->all_previous)
		job->all_previous->all_next = job->all_next;
	else
		pool->queued = job->all_next;
	if (job->all_next)
		job->all_next->all_previous = job->all_previous;
	pool->queued_count[job->priority]--;
	job->state = POOL_JOB_COMPILING;
}

void queue_put_back(struct pool *pool, struct pool_job *job)
{
	list(pool, job);
	choose_first(&pool->queues[job->priority], job);
}

struct pool_job *queue_pop(struct pool *pool)
{
	struct pool_job *job = pool->queued;
	if (job)
		take_out(pool, job);
	return job;
}

/* The job whose turn it is, chosen; NULL: none waits. */
static struct pool_job *choose_next(struct pool_queue *queue)
{
	struct pool_job *job = (struct pool_job *)turns_take(&queue->turns);
	if (!job)
		return NULL;
	unchoose(job); /* by those who are in less of a hurry */
	choose_last(queue, job);
	return job;
}

static const char *compiler_of(const struct pool *pool, const struct compile_job *job)
{
	return !strcmp(job->target, "cpu") ? pool->toolchains.host.id : pool->toolchains.nvrtc.id;
}

struct pool_job *queue_pop_stale(struct pool *pool)
{
	struct pool_job *job = pool->queued;
	while (job && !strcmp(job->compiler, compiler_of(pool, job->job)))
		job = job->all_next;
	if (job)
		take_out(pool, job);
	return job;
}

/* ---- Which worker ---- */

struct slot *queue_slot_of(const struct pool *pool, const struct pool_job *job)
{
	for (int i = 0; i < pool->count; i++)
		if (pool->slots[i].job == job)
			return &pool->slots[i];
	return NULL;
}

static int count_slots(const struct pool *pool, enum worker_state state)
{
	int count = 0;
	for (int i = 0; i < pool->count; i++)
		count += pool->slots[i].worker.state == state;
	return count;
}

static bool is_fresh(const struct slot *slot)
{
	return slot->worker.jobs_done == 0;
}

/* Returns an idle worker, fresh or not as wanted if there is one. */
static struct slot *find_idle(struct pool *pool, bool fresh)
{
	struct slot *found = NULL;
	for (int i = 0; i < pool->count; i++) {
		struct slot *slot = &pool->slots[i];
		if (slot->worker.state == WORKER_IDLE && (!found || is_fresh(slot) == fresh))
			found = slot;
	}
	return found;
}

/* Keeps one worker idle for interactive jobs, unless there is only one. */
static bool may_take(const struct pool *pool, enum pool_priority priority)
{
	int idle = count_slots(pool, WORKER_IDLE), gone = count_slots(pool, WORKER_EMPTY);
	return priority == POOL_INTERACTIVE ? idle > 0
										: idle > 1 || (idle == 1 && gone == pool->count - 1);
}

/* Returns the worker for a job; NULL: the job needs a fresh one, which is on its way.  coming: the
 * number of workers that start, less those that jobs before this one wait for. */
static struct slot *find_worker(struct pool *pool, const struct pool_job *job, int *coming)
{
	bool fresh = job->job->user_files > 0 || job->fresh;
	struct slot *slot = find_idle(pool, fresh);
	if (!fresh || is_fresh(slot))
		return slot;
	/* A user's source shares its compiler process with no other job, and a job that failed in a
	 * worn process gets a new one. */
	if (*coming > 0)
		--*coming;
	else
		slot_renew(slot);
	return NULL;
}

void queue_assign(struct broker *broker)
{
	struct pool *pool = broker->pool;
	int coming = count_slots(pool, WORKER_STARTING);
	for (int i = 0; i < POOL_PRIORITIES; i++) {
		struct pool_queue *queue = &pool->queues[i];
		struct pool_job *next, *job = queue->head;
		for (; may_take(pool, (enum pool_priority)i); job = next) {
			if (!job && !(job = choose_next(queue)))
				break;
			/* No job behind this one may take the memory that it waits for. */
			if (!memory_admits(broker, job->job))
				return;
			struct slot *slot = find_worker(pool, job, &coming);
			next = job->next;
			if (slot) {
				take_out(pool, job);
				slot_send(slot, job);
			}
		}
	}
}

/* ---- What the broker asks ---- */

struct pool_job *pool_submit(struct broker *broker, const struct compile_job *job, pool_done done,
							 void *arg)
{
	struct pool_job *item = calloc(1, sizeof(*item));
	if (!item)
		return NULL;
	item->job = job;
	item->priority = POOL_BACKGROUND;
	item->done = done;
	item->arg = arg;
	item->since_us = util_now_us();
	snprintf(item->compiler, sizeof(item->compiler), "%s", compiler_of(broker->pool, job));
	list(broker->pool, item);
	return item;
}

static void raise_to(struct pool *pool, struct pool_job *job, enum pool_priority priority)
{
	if (priority >= job->priority)
		return;
	if (job->state != POOL_JOB_COMPILING) {
		pool->queued_count[job->priority]--;
		pool->queued_count[priority]++;
	}
	job->priority = priority;
}

void pool_join(struct broker *broker, struct pool_job *job, enum pool_priority priority,
			   struct turn_owner owner, struct turn_place *place)
{
	struct pool *pool = broker->pool;
	struct pool_queue *queue = &pool->queues[priority];
	raise_to(pool, job, priority);
	pool_queue_assert_valid(job);
	if (job->state == POOL_JOB_COMPILING || (job->chosen && job->chosen <= queue))
		return;
	/* Without memory for a turn the job has its turn now. */
	if (turns_join(&queue->turns, &job->item, place, owner) < 0) {
		unchoose(job);
		choose_last(queue, job);
	}
	queue_assign(broker);
}

void pool_cancel(struct broker *broker, struct pool_job *job)
{
	struct pool *pool = broker->pool;
	take_out(pool, job);
	struct slot *slot = queue_slot_of(pool, job);
	if (slot)
		slot_abort(slot);
	free(job);
}

bool pool_running(const struct broker *broker, const struct pool_job *job)
{
	return queue_slot_of(broker->pool, job) != NULL;
}
