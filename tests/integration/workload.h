/*
 * workload: a client process's worth of mixed permutes, the same in every run, each checked byte
 * for byte; what happened is written where the test can see it while it goes on.
 */
#ifndef KILN_TESTS_WORKLOAD_H
#define KILN_TESTS_WORKLOAD_H

#include "harness.h"

#include <stdatomic.h>

#define WORKLOAD_CLIENTS 4
#define WORKLOAD_CALLS 200

/* One client process did this; it lies in memory shared with the test. */
struct workload_end {
	atomic_int done;   /* calls answered, well or not */
	atomic_int failed; /* with a status that the test allows */
	int hits, shared, compiled, copies;
	int last_status;
	int64_t latest_failure; /* now_ms() of it */
	char why[400];          /* why the process gave up, or its last failure */
};

struct workload {
	int allowed[4]; /* statuses that a call may end with besides KILN_OK; 0 ends the list */
	bool ends_on_failure;
	struct workload_end ends[WORKLOAD_CLIENTS];
};

/* The i-th problem of a client. */
void workload_problem(int client, int i, struct permute *problem);

struct workload *workload_new(void);
void workload_free(struct workload *workload);
/* Starts the client processes. */
void workload_start(const struct kilnd *daemon, struct workload *workload,
					pid_t pids[WORKLOAD_CLIENTS]);
/* Waits until so many calls are answered in all. */
void workload_await(const struct workload *workload, int calls);
/* Waits until the calls that are under way now are answered. */
void workload_await_round(const struct workload *workload);
int workload_done(const struct workload *workload);
/* Waits for the processes; all must have ended well, but for the one at index except (-1: none). */
void workload_join(const struct workload *workload, const pid_t pids[WORKLOAD_CLIENTS], int except);

#endif
