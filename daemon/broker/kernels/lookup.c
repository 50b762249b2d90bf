/* lookup.c: looks for a kernel in the cache, then at the remote tier. */
#include "lookup.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "freeze.h"
#include "daemon/broker/devices/events.h"
#include "daemon/broker/devices/remote/remote.h"
#include "daemon/broker/requests/session.h"
#include "daemon/broker/devices/store.h"
#include "daemon/base/list.h"
#include "daemon/base/trace.h"
#include "daemon/base/util.h"

/* One read of the cache.  The store's thread owns it until lookup_read_done(); a slow disk may keep
 * it longer than its lookup lives. */
struct cache_read {
	struct lookup *lookup; /* NULL: the deadline has passed, and the lookup went on */
	char key[KERNEL_KEY_HEX];
	bool beside;
	struct cache_row row;
	struct cache_failure failure;
	int status;
	char error[KERNEL_ERROR_MAX];
};

void lookup_assert_valid(const struct lookup *lookup)
{
	assert(!lookup->looking || lookup->state == LOOKUP_CACHE);
	assert(!lookup->fetch || lookup->state == LOOKUP_REMOTE);
	assert((!lookup->job && !lookup->alt) || lookup->state == LOOKUP_COMPILING);
	assert(!lookup->job || !lookup->alt);
	assert(!is_beside(lookup->purpose) || lookup->waits == lookup->last_wait);
	assert(!lookup->waits == !lookup->last_wait);
	assert(lookup->key[0]);
	(void)lookup; /* without asserts nothing uses it */
}

static void lookup_read_work(struct cache *cache, void *arg)
{
	struct cache_read *read = arg;
	char error[KERNEL_ERROR_MAX];
	read->status = read->beside ? cache_has(cache, read->key, read->error)
								: cache_get(cache, read->key, &read->row, read->error);
	if (read->status == KILN_ENOENT && !read->beside)
		cache_failure_get(cache, read->key, &read->failure, error);
}

void lookup_trace(struct lookup *lookup, const char *name)
{
	struct trace *trace = lookup->broker->trace;
	const uint64_t end_us = util_now_us();
	if (trace_shows_key(trace, lookup->key)) {
		const uint64_t all = trace_track(trace, 0, TRACK_LOOKUPS, "lookups");
		const uint64_t track = trace_track(trace, all, ~trace->spans, "lookups");
		trace_add(trace, track,
				  &(struct trace_span){.name = name,
									   .begin_ns = lookup->step_us * 1000,
									   .end_ns = end_us * 1000,
									   .flow = trace_flow(lookup->key),
									   .about = lookup->ref->plan.op});
		if (lookup->put_us[1])
			trace_add(trace, track,
					  &(struct trace_span){.name = "write",
										   .begin_ns = lookup->put_us[0] * 1000,
										   .end_ns = lookup->put_us[1] * 1000,
										   .depth = 1});
	}
	lookup->step_us = end_us;
}

static void fetched(void *arg, struct cache_row *row)
{
	struct lookup *lookup = arg;
	struct broker *broker = lookup->broker;
	lookup->fetch = NULL;
	lookup_trace(lookup, "remote");
	if (!row) {
		lookup_compile(lookup);
		return;
	}
	lookup->row = *row;
	/* Another host's uses say nothing about this cache. */
	lookup->row.used = util_wall_s();
	lookup->row.hits = 0;
	*row = (struct cache_row){{0}};
	lookup_unlink(lookup);
	lookup_finish(lookup, KILN_OK, JOB_REMOTE, NULL, NULL);
	lookup_keep_row(lookup);
	broker_progress(broker);
}

static bool may_compile(const struct lookup *lookup)
{
	const struct job_wait *wait = lookup->waits;
	while (wait && (wait->terms.purpose == JOB_LOOK || freeze_refuses(&wait->terms)))
		wait = wait->next;
	return wait != NULL;
}

/* The cache has answered, or its deadline has passed. */
static void after_cache(struct lookup *lookup)
{
	struct broker *broker = lookup->broker;
	lookup->looking = NULL;
	lookup_trace(lookup, "look");
	const struct cache_failure *failure = &lookup->failure;
	if (failure->status != KILN_OK) {
		broker->counters.lookup_failures++;
		lookup_unlink(lookup);
		lookup_finish(lookup, failure->status, JOB_HIT, failure->error, failure->row.log);
		lookup_free(lookup);
		return;
	}
	if (lookup->cache_status == KILN_OK || !lookup->waits) {
		*(lookup->cache_status == KILN_OK ? &broker->counters.lookup_hits
										  : &broker->counters.lookups_left) += 1;
		lookup_unlink(lookup);
		lookup_finish(lookup, lookup->cache_status, JOB_HIT, lookup->error, "");
		lookup_free(lookup);
		return;
	}
	if (lookup->purpose == JOB_RECOMPILE) {
		lookup_compile(lookup);
		return;
	}
	lookup->state = LOOKUP_REMOTE;
	const struct remote_want want = {.key = lookup->key,
									 .op = lookup->ref->plan.op,
									 .target = lookup->ref->target,
									 .owner = session_turn(lookup->waits->terms.asker),
									 .compiles = may_compile(lookup)};
	lookup->fetch = remote_fetch(broker, &want, fetched, lookup);
	if (lookup->fetch)
		lookup->remote_us = lookup->step_us;
	else
		lookup_compile(lookup);
}

/* A slow disk costs a compile, not the kernel. */
static void read_late(struct broker *broker, void *arg, const char *why)
{
	struct cache_read *read = arg;
	struct lookup *lookup = read->lookup;
	(void)why;
	broker->counters.lookups_late++;
	read->lookup = NULL;
	lookup->cache_status = KILN_ETIMEDOUT;
	after_cache(lookup);
}

static void lookup_read_done(struct broker *broker, void *arg)
{
	struct cache_read *read = arg;
	struct lookup *lookup = read->lookup;
	(void)broker;
	/* An unreadable cache costs a compile, too; the cache has logged why. */
	if (lookup) {
		lookup->row = read->row;
		lookup->failure = read->failure;
		lookup->cache_status = read->status;
		memcpy(lookup->error, read->error, sizeof(lookup->error));
		after_cache(lookup);
	} else {
		cache_row_free(&read->row);
		cache_failure_free(&read->failure);
	}
	free(read);
}

static bool lookup_look(struct lookup *lookup, struct turn_owner owner)
{
	struct cache_read *read = calloc(1, sizeof(*read));
	if (!read)
		return false;
	read->lookup = lookup;
	read->beside = is_beside(lookup->purpose);
	read->status = KILN_ETIMEDOUT; /* unless it is done */
	memcpy(read->key, lookup->key, sizeof(read->key));
	if (store_wait(lookup->broker, owner, lookup_read_work, lookup_read_done, read_late, read,
				   &lookup->looking) == KILN_OK)
		return true;
	free(read);
	return false;
}

struct lookup *lookup_open(const struct job_wait *wait)
{
	struct broker *broker = wait->broker;
	const struct kernel_ref *ref = wait->ref;
	struct lookup *lookup = calloc(1, sizeof(*lookup));
	if (!lookup)
		return NULL;
	lookup->broker = broker;
	lookup->began_us = lookup->step_us = util_now_us();
	lookup->ref = kernel_hold(wait->ref);
	lookup->purpose = is_beside(wait->terms.purpose) ? wait->terms.purpose : JOB_CALL;
	memcpy(lookup->key, ref->key, sizeof(lookup->key));
	memcpy(lookup->compiler, ref->compiler, sizeof(lookup->compiler));
	lookup->key_text = strdup(ref->key_text);
	if (!lookup->key_text ||
		(!is_beside(lookup->purpose) &&
		 map_put(&broker->lookups_by_key, lookup->key, KERNEL_KEY_HEX - 1, lookup) < 0)) {
		lookup_free(lookup);
		return NULL;
	}
	LIST_PUSH(broker->lookups, lookup);
	if (lookup->purpose != JOB_VERIFY && !lookup_look(lookup, session_turn(wait->terms.asker))) {
		lookup_unlink(lookup);
		lookup_free(lookup);
		return NULL;
	}
	broker->counters.lookups++;
	return lookup;
}

bool lookup_take(struct broker *broker, const char *key, struct cache_row *row)
{
	/* The store's thread takes what is distrusted out of the cache first. */
	return broker->distrusted == 0 && store_take(broker, key, row);
}

void lookup_answer_kept(struct job_wait *wait, struct cache_row *row)
{
	struct job_answer answer = {.origin = JOB_HIT, .row = row, .log = ""};
	wait->broker->counters.lookups++;
	wait->broker->counters.lookup_hits++;
	wait_answer(wait, &answer);
	cache_row_free(row);
}

const char *lookup_key_of(const struct broker *broker, const struct compile_job *job)
{
	for (const struct lookup *lookup = broker->lookups; lookup; lookup = lookup->next)
		if (&lookup->ref->job == job)
			return lookup->key;
	return "";
}
