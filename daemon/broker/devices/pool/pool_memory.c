/*
 * pool_memory.c: decides whether there is memory for one more compile.  It compares what the
 * system, the control groups and the cap leave with what compiles of that kind have taken so far.
 */
#include "pool_state.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"

/* Estimates until the first compile of a kind is measured. */
#define NVRTC_BYTES ((uint64_t)64 << 20)
#define HOST_BYTES ((uint64_t)256 << 20)

static uint64_t *estimate_of(struct pool *pool, const struct compile_job *job)
{
	return &pool->memory.estimates[!strcmp(job->target, "cpu")][job->user_files > 0];
}

/* Returns the bytes that a worker keeps for its next compile: NVRTC keeps all that it had, the
 * host's compiler is a process that ends. */
static uint64_t kept_for(const struct slot *slot, const struct compile_job *job)
{
	bool keeps = strcmp(job->target, "cpu") != 0 && slot->resident > slot->base;
	return keeps ? slot->resident - slot->base : 0;
}

uint64_t memory_estimate(const struct pool *pool, const struct slot *slot,
						 const struct compile_job *job)
{
	uint64_t whole = *estimate_of((struct pool *)pool, job), kept = kept_for(slot, job);
	return whole > kept ? whole - kept : 0;
}

/* An estimate is the largest peak, and fades by an eighth with each job.  slot->resident is still
 * that of before the job. */
void memory_note(struct pool *pool, const struct slot *slot, const struct compile_job *job,
				 int64_t peak_bytes)
{
	uint64_t *estimate = estimate_of(pool, job);
	uint64_t took = (peak_bytes > 0 ? (uint64_t)peak_bytes : 0) + kept_for(slot, job);
	uint64_t faded = *estimate - *estimate / 8;
	if (took)
		*estimate = took > faded ? took : faded;
}

static void release(struct broker *broker)
{
	struct pool_memory *memory = &broker->pool->memory;
	memory->holds = false;
	uv_timer_stop(&memory->timer);
}

static void on_retry(uv_timer_t *timer)
{
	struct broker *broker = timer->data;
	queue_assign(broker);
	/* When the job that waited was canceled, no memory_admits() has released the hold. */
	if (!broker->pool->queued)
		release(broker);
}

static uint64_t available(const struct broker *broker)
{
	if (broker->test.available_bytes)
		return broker->test.available_bytes;
	return util_memory_available("/proc/meminfo", UTIL_OWN_CGROUP, UTIL_CGROUP_MOUNT);
}

bool memory_admits(struct broker *broker, const struct compile_job *job)
{
	struct pool *pool = broker->pool;
	uint64_t cap = broker->options.compile_memory, wanted = 0;
	uint64_t resident = 0, reserved = 0;
	int busy = 0;
	for (int i = 0; i < pool->count; i++) {
		const struct slot *slot = &pool->slots[i];
		busy += slot->worker.state == WORKER_BUSY;
		resident += slot->worker.state == WORKER_BUSY || slot->worker.state == WORKER_IDLE
						? slot->resident
						: 0;
		reserved += slot->worker.state == WORKER_BUSY ? slot->reserved : 0;
		/* Any idle worker may get the job. */
		uint64_t adds = slot->worker.state == WORKER_IDLE ? memory_estimate(pool, slot, job) : 0;
		wanted = adds > wanted ? adds : wanted;
	}
	/* Jobs that run may still add all that they are believed to. */
	if (busy &&
		((cap && resident + reserved + wanted > cap) || reserved + wanted > available(broker))) {
		if (!pool->memory.holds)
			uv_timer_start(&pool->memory.timer, on_retry, PAUSE_MEMORY_LOOK_MS,
						   PAUSE_MEMORY_LOOK_MS);
		pool->memory.waits += !pool->memory.holds;
		pool->memory.holds = true;
		return false;
	}
	release(broker);
	return true;
}

void memory_open(struct broker *broker)
{
	struct pool_memory *memory = &broker->pool->memory;
	for (int user = 0; user < 2; user++) {
		memory->estimates[0][user] = NVRTC_BYTES;
		memory->estimates[1][user] = HOST_BYTES;
	}
	memory->timer.data = broker;
	uv_timer_init(&broker->loop, &memory->timer);
}

void memory_close(struct broker *broker)
{
	uv_close((uv_handle_t *)&broker->pool->memory.timer, NULL);
}
