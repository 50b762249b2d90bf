/*
 * broker.h: the state of the broker.  One thread, the loop's, owns all of it.  Each room keeps its
 * own in a struct that this one points to.
 */
#ifndef KILN_DAEMON_BROKER_H
#define KILN_DAEMON_BROKER_H

#include <uv.h>

#include "daemon/cache/cache.h"
#include "daemon/compile/compile.h"
#include "daemon/base/counters.h"
#include "daemon/broker/devices/fault/fault.h"
#include "daemon/plan/kernel.h"
#include "daemon/base/map.h"
#include "daemon/options/options.h"
#include "daemon/broker/kernels/usage_log.h"
#include "daemon/broker/test_state.h"

struct acceptor;
struct broker_events;
struct drain;
struct server;
struct store;
struct remote;
struct pool;
struct session;
struct device_entry;
struct lookup;
struct recent;
struct trace;
struct scrape;
struct job_wait;
struct raw_budget;
struct tiers;

struct broker {
	const struct broker_events *events; /* the news that go up: devices/events.h */
	uv_loop_t loop;
	struct options options;
	struct sandbox_host sandbox; /* what this host has for one */
	struct counters counters;
	uint64_t waiting; /* gauge: kernels asked for and not answered */
	struct operator_tallies operators;
	struct ended_sessions ended;
	struct accounts accounts;
	struct usage_log usage_log;
	struct faults faults;
	struct trace *trace;   /* NULL: nobody asked for one */
	uint64_t serving;      /* the session whose message is handled; 0: none */
	uint64_t planned_us;   /* that planning took for that message */
	struct recent *recent; /* NULL: nothing was asked for yet */
	struct test_state test;
	struct {
		uint64_t launches, blocks, accesses;
	} checked; /* with --memcheck */
	uint64_t started_us;
	uint64_t next_id; /* buffers, modules, streams, sessions: unique over the broker's life */

	struct compile_sources *sources;
	struct store *store;
	struct remote *remote; /* NULL: there is no second tier */
	struct map tuned;      /* winners of tuning: tuned.c */
	bool tuned_unread;     /* those that are on disk */
	struct pool *pool;
	struct device_entry *devices;
	struct session *sessions;
	struct map sessions_by_id;
	int session_count; /* that have said hello, on kept places too */
	int kept_count, silent_count;
	struct lookup *lookups;
	struct map lookups_by_key;
	struct job_wait *waits; /* all that ask for kernels */
	int distrusted;         /* kernels that the store has still to take out of the cache */
	struct tiers *tiers;
	struct raw_budget *raw_budgets; /* texts of users' kernels that are held, by session */
	struct {
		struct histogram micros;
		double sum;
	} compiles[2];     /* that gave a kernel: NVRTC's, the host compiler's */
	int alt_compilers; /* compilers beside the pool's */

	struct server *server;
	struct acceptor *acceptor;
	struct scrape *scrape; /* NULL: no --metrics */
	struct drain *drain;
	bool draining;
};

/* A test sets these in place of the usual values; 0 sets nothing. */
static inline uint64_t broker_deadline(uint32_t wanted_ms, uint64_t usual_ms)
{
	return wanted_ms && wanted_ms < usual_ms ? wanted_ms : usual_ms;
}

static inline uint64_t broker_id(struct broker *broker)
{
	return ++broker->next_id;
}

#endif
