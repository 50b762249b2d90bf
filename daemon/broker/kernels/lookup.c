/* lookup.c: a kernel is looked for in the cache, and then in the other tier. */
#include "lookup.h"

#include <stdlib.h>
#include <string.h>

#include "freeze.h"
#include "daemon/broker/devices/remote/remote.h"
#include "daemon/broker/front/session.h"
#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"

/* The store's thread has it, and a disk that does not answer may keep it. */
struct lookup {
	struct flight *flight; /* NULL: it has gone on without */
	char key[KERNEL_KEY_HEX];
	struct cache_row row;
	struct cache_failure failure;
	int status;
	char error[KERNEL_ERROR_MAX];
};

static void lookup_work(struct cache *cache, void *arg)
{
	struct lookup *lookup = arg;
	char error[KERNEL_ERROR_MAX];
	lookup->status = cache_get(cache, lookup->key, &lookup->row, lookup->error);
	if (lookup->status == KILN_ENOENT)
		cache_failure_get(cache, lookup->key, &lookup->failure, error);
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
	flight->row.used = util_wall_s();
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

/* The cache has answered, or is not waited for any longer. */
static void go_on(struct flight *flight)
{
	struct broker *broker = flight->broker;
	flight->looking = NULL;
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
	const struct remote_want want = {.key = flight->key,
									 .op = flight->ref->plan.op,
									 .target = flight->ref->target,
									 .owner = session_turn(flight->waits->terms.asker),
									 .compiles = may_compile(flight)};
	flight->fetch = remote_fetch(broker, &want, fetched, flight);
	if (!flight->fetch)
		flight_compile(flight);
}

/* A disk that takes its time costs a compile, not the kernel. */
static void lookup_late(struct broker *broker, void *arg)
{
	struct lookup *lookup = arg;
	struct flight *flight = lookup->flight;
	broker->counters.lookups_late++;
	lookup->flight = NULL;
	flight->lookup_status = KILN_ETIMEDOUT;
	go_on(flight);
}

static void lookup_done(struct broker *broker, void *arg)
{
	struct lookup *lookup = arg;
	struct flight *flight = lookup->flight;
	(void)broker;
	/* And so does a cache that cannot be read; it says why by itself. */
	if (flight) {
		flight->row = lookup->row;
		flight->failure = lookup->failure;
		flight->lookup_status = lookup->status;
		memcpy(flight->error, lookup->error, sizeof(flight->error));
		go_on(flight);
	} else {
		cache_row_free(&lookup->row);
		cache_failure_free(&lookup->failure);
	}
	free(lookup);
}

static bool look(struct flight *flight, struct turn_owner owner)
{
	struct lookup *lookup = calloc(1, sizeof(*lookup));
	if (!lookup)
		return false;
	lookup->flight = flight;
	lookup->status = KILN_ETIMEDOUT; /* unless it is done */
	memcpy(lookup->key, flight->key, sizeof(lookup->key));
	if (store_wait(flight->broker, owner, lookup_work, lookup_done, lookup_late, lookup,
				   &flight->looking) == KILN_OK)
		return true;
	free(lookup);
	return false;
}

struct flight *flight_open(struct broker *broker, struct kernel_ref *ref, struct turn_owner owner)
{
	struct flight *flight = calloc(1, sizeof(*flight));
	if (!flight)
		return NULL;
	flight->broker = broker;
	flight->began_us = util_now_us();
	flight->ref = kernel_hold(ref);
	memcpy(flight->key, ref->key, sizeof(flight->key));
	memcpy(flight->compiler, ref->compiler, sizeof(flight->compiler));
	flight->key_text = strdup(ref->key_text);
	if (!flight->key_text ||
		map_put(&broker->flights_by_key, flight->key, KERNEL_KEY_HEX - 1, flight) < 0) {
		flight_free(flight);
		return NULL;
	}
	flight->next = broker->flights;
	if (broker->flights)
		broker->flights->previous = flight;
	broker->flights = flight;
	if (!look(flight, owner)) {
		flight_unlink(flight);
		flight_free(flight);
		return NULL;
	}
	broker->counters.lookups++;
	return flight;
}
