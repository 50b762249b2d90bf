/* lookup_end.c: a kernel that is nowhere is compiled, and kept. */
#include "lookup.h"

#include <stdlib.h>
#include <string.h>

#include "failed_keys.h"
#include "freeze.h"
#include "daemon/broker/devices/remote/remote.h"
#include "daemon/broker/front/session.h"
#include "daemon/broker/devices/store.h"
#include "tier.h"
#include "daemon/base/util.h"

void flight_unlink(struct flight *flight)
{
	struct broker *broker = flight->broker;
	if (flight->previous)
		flight->previous->next = flight->next;
	else
		broker->flights = flight->next;
	if (flight->next)
		flight->next->previous = flight->previous;
	map_remove(&broker->flights_by_key, flight->key, KERNEL_KEY_HEX - 1);
}

void flight_free(struct flight *flight)
{
	cache_row_free(&flight->row);
	cache_failure_free(&flight->failure);
	kernel_drop(flight->ref);
	free(flight->key_text);
	free(flight);
}

static void put_work(struct cache *cache, void *arg)
{
	struct flight *flight = arg;
	flight->lookup_status = cache_put(cache, &flight->row, flight->error);
}

static void put_done(struct broker *broker, void *arg)
{
	struct flight *flight = arg;
	/* The kernel runs all the same; the next daemon will compile it again. */
	if (flight->lookup_status != KILN_OK)
		util_log(UTIL_WARN, "kernel %.12s is not kept on disk: %s", flight->key, flight->error);
	if (flight->phase == FLIGHT_COMPILE)
		remote_compiled(broker, &flight->row);
	flight_free(flight);
}

/* Its waiters were answered: the row goes to where the next will find it. */
void flight_keep_row(struct flight *flight)
{
	if (store_is_crowded(flight->broker)) {
		flight->lookup_status = util_fail(flight->error, sizeof(flight->error), KILN_EIO,
										  "too many wait for the disk already");
		put_done(flight->broker, flight);
		return;
	}
	if (store_run(flight->broker, put_work, put_done, flight) == KILN_OK)
		return;
	remote_not_compiled(flight->broker, flight->key);
	flight_free(flight);
}

void job_take_result(struct cache_row *row, struct compile_result *result)
{
	row->entry = result->entry;
	row->source = result->source;
	row->log = result->log;
	row->object = result->object;
	row->object_bytes = result->object_bytes;
	row->registers = result->registers;
	row->shared_bytes = result->shared_bytes;
	row->spill_bytes = result->spill_bytes;
	row->local_bytes = result->local_bytes;
	row->compile_micros = result->micros;
	row->created = row->used = util_wall_s();
	result->entry = result->source = result->log = NULL;
	result->object = NULL;
}

static void take_result(struct flight *flight, struct compile_result *result)
{
	struct cache_row *row = &flight->row;
	struct kernel_ref *ref = flight->ref;
	memcpy(row->key, flight->key, sizeof(row->key));
	memcpy(row->op, ref->plan.op, sizeof(row->op));
	memcpy(row->target, ref->target, sizeof(row->target));
	row->instantiation = util_strdup(ref->plan.instantiation);
	row->key_text = flight->key_text;
	flight->key_text = NULL;
	row->plan = util_strdup(kernel_text(ref));
	tier_note_compile(flight->broker, ref->target, result->micros);
	job_take_result(row, result);
}

static void compiled(void *arg, struct compile_result *result)
{
	struct flight *flight = arg;
	struct broker *broker = flight->broker;
	flight->job = NULL;
	flight_unlink(flight);
	if (result->status != KILN_OK) {
		failure_keep(broker, flight->ref, flight->key, flight->key_text, result);
		remote_not_compiled(broker, flight->key);
		broker->counters.jobs_failed++;
		flight_finish(flight, result->status, JOB_COMPILED, result->error,
					  result->log ? result->log : "");
		flight_free(flight);
	} else {
		broker->counters.jobs_done++;
		take_result(flight, result);
		flight_finish(flight, KILN_OK, JOB_COMPILED, NULL, NULL);
		flight_keep_row(flight);
	}
	server_progress(broker);
}

/* Stops what is under way for it and forgets it; no lookup. */
void flight_drop(struct flight *flight)
{
	struct broker *broker = flight->broker;
	if (flight->phase == FLIGHT_REMOTE) {
		broker->counters.lookups_left++;
		remote_leave(broker, flight->fetch);
	} else {
		broker->counters.canceled++;
		pool_cancel(broker, flight->job);
		remote_not_compiled(broker, flight->key);
	}
	flight_unlink(flight);
	flight_free(flight);
}

void flight_cancel_if_unwanted(struct flight *flight)
{
	struct broker *broker = flight->broker;
	/* A lookup under way comes back soon and finds nobody. */
	if (flight->waits || flight->finished || flight->phase == FLIGHT_LOOKUP)
		return;
	flight_drop(flight);
	server_progress(broker);
}

void flight_join(struct job_wait *wait)
{
	struct flight *flight = wait->flight;
	struct turn_owner owner = session_turn(wait->terms.asker);
	if (flight->looking)
		store_join(flight->looking, owner, &wait->place);
	else if (flight->job)
		pool_join(flight->broker, flight->job, wait->terms.priority, owner, &wait->place);
}

/* Of those who stay, the first who wants to hear of it. */
static void warn_of(const struct flight *flight)
{
	const struct job_wait *wait = flight->waits;
	while (wait && wait->terms.on_miss != OPTIONS_MISS_WARN)
		wait = wait->next;
	if (wait)
		freeze_warn(wait->ref, &wait->terms);
}

/* It is nowhere: whoever may have it compiled waits on. */
void flight_compile(struct flight *flight)
{
	struct broker *broker = flight->broker;
	/* Nothing is under way that who leaves now would stop. */
	flight->phase = FLIGHT_LOOKUP;
	flight_answer_lookers(flight);
	uint64_t *left =
		flight->waits ? &broker->counters.lookups_frozen : &broker->counters.lookups_left;
	flight_refuse_frozen(flight);
	if (!flight->waits) {
		(*left)++;
		remote_not_compiled(broker, flight->key);
		flight_unlink(flight);
		flight_free(flight);
		return;
	}
	warn_of(flight);
	flight->phase = FLIGHT_COMPILE;
	broker->counters.jobs++;
	/* Whoever asks next has another key. */
	bool replaced = strcmp(flight->compiler, job_compiler(broker, flight->ref->target)) != 0;
	if (!replaced)
		flight->job = pool_submit(broker, &flight->ref->job, compiled, flight);
	for (struct job_wait *wait = flight->waits; wait && flight->job; wait = wait->next)
		flight_join(wait);
	if (flight->job)
		return;
	broker->counters.jobs_failed++;
	remote_not_compiled(broker, flight->key);
	flight_unlink(flight);
	flight_finish(flight, replaced ? KILN_EIO : KILN_ENOMEM, JOB_COMPILED,
				  replaced ? "the compiler was replaced while the kernel was looked for: ask again"
						   : "out of memory for a compile job",
				  "");
	flight_free(flight);
}
