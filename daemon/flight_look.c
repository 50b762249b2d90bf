/* flight_look.c: a kernel is looked for in the cache, and then in the other tier. */
#include "flight.h"

#include <stdlib.h>
#include <string.h>

#include "freeze.h"
#include "remote/remote.h"
#include "store.h"
#include "util/util.h"

static void lookup_work(struct cache *cache, void *arg)
{
	struct flight *flight = arg;
	char error[KERNEL_ERROR_MAX];
	flight->lookup_status = cache_get(cache, flight->key, &flight->row, flight->error);
	if (flight->lookup_status == KILN_ENOENT)
		cache_failure_get(cache, flight->key, &flight->failure, error);
}

static void answer_remembered(struct flight *flight)
{
	const struct cache_failure *failure = &flight->failure;
	flight->broker->counters.lookup_failures++;
	flight_unlink(flight);
	flight_finish(flight, failure->status, JOB_HIT, failure->error, failure->row.log);
	flight_free(flight);
}

static void fetched(void *arg, struct cache_row *row)
{
	struct flight *flight = arg;
	struct broker *broker = flight->broker;
	flight->fetch = NULL;
	if (!row) {
		flight_compile(flight);
		return;
	}
	flight->row = *row;
	/* How often and when it was used elsewhere says nothing here. */
	flight->row.used = (int64_t)time(NULL);
	flight->row.hits = 0;
	*row = (struct cache_row){{0}};
	flight_unlink(flight);
	flight_finish(flight, KILN_OK, JOB_REMOTE, NULL, NULL);
	flight_keep_row(flight);
	server_progress(broker);
}

static bool may_compile(const struct flight *flight)
{
	const struct job_wait *wait = flight->waits;
	while (wait && (wait->terms.look || freeze_refuses(&wait->terms)))
		wait = wait->next;
	return wait != NULL;
}

static void lookup_done(struct broker *broker, void *arg)
{
	struct flight *flight = arg;
	/* A cache that cannot be read costs a compile, not the kernel. */
	if (flight->lookup_status != KILN_OK && flight->lookup_status != KILN_ENOENT)
		util_log(UTIL_WARN, "%s", flight->error);
	if (flight->failure.status != KILN_OK) {
		answer_remembered(flight);
		return;
	}
	if (flight->lookup_status == KILN_OK || !flight->waits) {
		*(flight->lookup_status == KILN_OK ? &broker->counters.lookup_hits
										   : &broker->counters.lookups_left) += 1;
		flight_unlink(flight);
		flight_finish(flight, flight->lookup_status, JOB_HIT, flight->error, "");
		flight_free(flight);
		return;
	}
	flight->phase = FLIGHT_REMOTE;
	flight->fetch = remote_fetch(broker, flight->key, flight->ref->plan.op, flight->ref->target,
								 may_compile(flight), fetched, flight);
	if (!flight->fetch)
		flight_compile(flight);
}

struct flight *flight_open(struct broker *broker, struct kernel_ref *ref)
{
	struct flight *flight = calloc(1, sizeof *flight);
	if (!flight)
		return NULL;
	flight->broker = broker;
	flight->began_us = util_now_us();
	flight->ref = kernel_hold(ref);
	memcpy(flight->key, ref->key, sizeof flight->key);
	memcpy(flight->compiler, ref->compiler, sizeof flight->compiler);
	flight->key_text = strdup(ref->key_text);
	if (!flight->key_text || store_run(broker, lookup_work, lookup_done, flight) != KILN_OK) {
		flight_free(flight);
		return NULL;
	}
	broker->counters.lookups++;
	flight->next = broker->flights;
	broker->flights = flight;
	return flight;
}
