/* lookup_end.c: compiles a kernel that no cache has, keeps it, and stops unwanted lookups. */
#include "lookup.h"

#include <stdlib.h>
#include <string.h>

#include "failed_keys.h"
#include "freeze.h"
#include "raw.h"
#include "daemon/broker/devices/events.h"
#include "daemon/broker/devices/remote/remote.h"
#include "daemon/broker/requests/session.h"
#include "daemon/broker/devices/store.h"
#include "daemon/base/list.h"
#include "daemon/base/util.h"

void lookup_unlink(struct lookup *lookup)
{
	struct broker *broker = lookup->broker;
	LIST_REMOVE(broker->lookups, lookup);
	if (!is_beside(lookup->purpose))
		map_remove(&broker->lookups_by_key, lookup->key, KERNEL_KEY_HEX - 1);
}

void lookup_free(struct lookup *lookup)
{
	cache_row_free(&lookup->row);
	cache_failure_free(&lookup->failure);
	kernel_drop(lookup->ref);
	free(lookup->key_text);
	free(lookup);
}

static void put_work(struct cache *cache, void *arg)
{
	struct lookup *lookup = arg;
	lookup->put_us[0] = util_now_us();
	lookup->cache_status = cache_put(cache, &lookup->row, lookup->error);
	lookup->put_us[1] = util_now_us();
}

static void put_done(struct broker *broker, void *arg)
{
	struct lookup *lookup = arg;
	lookup_trace(lookup, "store");
	/* The kernel runs all the same; the next daemon compiles it once more. */
	if (lookup->cache_status != KILN_OK)
		util_log(UTIL_WARN, "kernel %.12s is not kept on disk: %s", lookup->key, lookup->error);
	if (lookup->purpose == JOB_RECOMPILE)
		lookup_finish(lookup, lookup->cache_status, JOB_COMPILED, lookup->error, "");
	else if (lookup->origin == JOB_COMPILED)
		remote_compiled(broker, &lookup->row);
	lookup_free(lookup);
}

void lookup_keep_row(struct lookup *lookup)
{
	if (store_is_crowded(lookup->broker))
		lookup->cache_status = util_fail(lookup->error, sizeof(lookup->error), KILN_EIO,
										 "too many wait for the disk already");
	else if (store_run(lookup->broker, put_work, put_done, lookup) == KILN_OK)
		return;
	else
		lookup->cache_status = util_fail(lookup->error, sizeof(lookup->error), KILN_ENOMEM,
										 "out of memory for a kernel");
	put_done(lookup->broker, lookup);
}

/* Moves entry, texts, object and figures of a compile into a row. */
static void job_take_result(struct cache_row *row, struct compile_result *result)
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

double job_compile_us(const struct broker *broker, const char *target, double first_us)
{
	bool host = !strcmp(target, "cpu");
	uint64_t count = broker->compiles[host].micros.count;
	return count ? broker->compiles[host].sum / (double)count : first_us;
}

static void take_result(struct lookup *lookup, struct compile_result *result)
{
	struct cache_row *row = &lookup->row;
	struct kernel_ref *ref = lookup->ref;
	memcpy(row->key, lookup->key, sizeof(row->key));
	memcpy(row->op, ref->plan.op, sizeof(row->op));
	memcpy(row->target, ref->target, sizeof(row->target));
	row->instantiation = util_strdup(ref->plan.instantiation);
	row->key_text = lookup->key_text;
	lookup->key_text = NULL;
	row->plan = util_strdup(kernel_text(ref));
	bool host = !strcmp(ref->target, "cpu");
	histogram_note(&lookup->broker->compiles[host].micros, (uint64_t)result->micros);
	lookup->broker->compiles[host].sum += (double)result->micros;
	job_take_result(row, result);
}

static void compiled(void *arg, struct compile_result *result)
{
	struct lookup *lookup = arg;
	struct broker *broker = lookup->broker;
	lookup->job = NULL;
	lookup->alt = NULL;
	lookup_trace(lookup, "compile");
	lookup_unlink(lookup);
	if (result->status != KILN_OK) {
		lookup->row.compile_micros = result->micros;
		if (!is_beside(lookup->purpose))
			failed_keys_keep(broker, lookup->ref, lookup->key, lookup->key_text, result);
		remote_not_compiled(broker, lookup->key);
		broker->counters.jobs_failed++;
		lookup_finish(lookup, result->status, JOB_COMPILED, result->error,
					  result->log ? result->log : "");
		lookup_free(lookup);
	} else {
		broker->counters.jobs_done++;
		take_result(lookup, result);
		lookup->state = LOOKUP_ANSWERING;
		if (lookup->purpose != JOB_RECOMPILE)
			lookup_finish(lookup, KILN_OK, JOB_COMPILED, NULL, NULL);
		if (lookup->purpose == JOB_VERIFY)
			lookup_free(lookup);
		else
			lookup_keep_row(lookup);
	}
	broker_progress(broker);
}

void lookup_drop(struct lookup *lookup)
{
	struct broker *broker = lookup->broker;
	if (lookup->state == LOOKUP_REMOTE) {
		broker->counters.lookups_left++;
		remote_leave(broker, lookup->fetch);
	} else {
		broker->counters.canceled++;
		if (lookup->alt)
			alt_compiler_cancel(lookup->alt);
		else
			pool_cancel(broker, lookup->job);
		remote_not_compiled(broker, lookup->key);
	}
	lookup_unlink(lookup);
	lookup_free(lookup);
}

void lookup_cancel_if_unwanted(struct lookup *lookup)
{
	struct broker *broker = lookup->broker;
	lookup_assert_valid(lookup);
	if (lookup->waits || (lookup->state != LOOKUP_REMOTE && lookup->state != LOOKUP_COMPILING))
		return;
	lookup_drop(lookup);
	broker_progress(broker);
}

void lookup_join(struct job_wait *wait)
{
	struct lookup *lookup = wait->lookup;
	struct turn_owner owner = session_turn(wait->terms.asker);
	if (lookup->looking)
		store_join(lookup->looking, owner, &wait->place);
	else if (lookup->job)
		pool_join(lookup->broker, lookup->job, wait->terms.priority, owner, &wait->place);
}

/* A kernel whose texts were let go cannot be compiled; another wait's may have its own. */
static bool has_texts(struct lookup *lookup)
{
	const struct job_wait *wait = lookup->waits;
	while (wait && raw_is_gone(lookup->ref)) {
		if (!raw_is_gone(wait->ref)) {
			kernel_drop(lookup->ref);
			lookup->ref = kernel_hold(wait->ref);
		}
		wait = wait->next;
	}
	return !raw_is_gone(lookup->ref);
}

/* Returns the sentence of lookup_compile() where it cannot begin; NULL: it has begun. */
static const char *lookup_begin(struct lookup *lookup, int *status)
{
	struct broker *broker = lookup->broker;
	if (!has_texts(lookup)) {
		*status = lookup->ref->unit ? KILN_ENOTSUP : KILN_ENOENT;
		return lookup->ref->unit
				   ? RAW_BY_NAME
				   : "the cache has lost this kernel, and its texts were let go when it had been "
					 "compiled: prepare it again";
	}
	lookup->alt = lookup->waits->terms.compiler;
	if (lookup->alt) {
		alt_compiler_submit(lookup->alt, &lookup->ref->job, compiled, lookup);
		return NULL;
	}
	/* The compiler changed meanwhile: the key is stale. */
	*status = KILN_EIO;
	if (strcmp(lookup->compiler, job_compiler(broker, lookup->ref->target)) != 0)
		return "the compiler was replaced while the kernel was looked for: ask again";
	*status = KILN_ENOMEM;
	lookup->job = pool_submit(broker, &lookup->ref->job, compiled, lookup);
	for (struct job_wait *wait = lookup->waits; wait && lookup->job; wait = wait->next)
		lookup_join(wait);
	return lookup->job ? NULL : "out of memory for a compile job";
}

void lookup_compile(struct lookup *lookup)
{
	struct broker *broker = lookup->broker;
	lookup->state = LOOKUP_MISSED;
	lookup_answer_lookers(lookup);
	uint64_t *left =
		lookup->waits ? &broker->counters.lookups_frozen : &broker->counters.lookups_left;
	lookup_refuse_frozen(lookup);
	if (!lookup->waits) {
		(*left)++;
		remote_not_compiled(broker, lookup->key);
		lookup_unlink(lookup);
		lookup_free(lookup);
		return;
	}
	for (const struct job_wait *wait = lookup->waits; wait; wait = wait->next)
		if (wait->terms.on_miss == OPTIONS_MISS_WARN) {
			freeze_warn(wait->ref, &wait->terms);
			break; /* one warning a compile */
		}
	lookup->state = LOOKUP_COMPILING;
	lookup->missed_us = util_now_us();
	broker->counters.jobs++;
	int status;
	const char *why = lookup_begin(lookup, &status);
	if (!why)
		return;
	broker->counters.jobs_failed++;
	remote_not_compiled(broker, lookup->key);
	lookup_unlink(lookup);
	lookup_finish(lookup, status, JOB_COMPILED, why, "");
	lookup_free(lookup);
}
