/*
 * waits_seen: part of the harness: what "waits" says, which kiln debug waits prints.
 */
#ifndef KILN_TESTS_WAITS_SEEN_H
#define KILN_TESTS_WAITS_SEEN_H

#include "harness.h"

/* A row; what the daemon left out is 0, "", and left_ms -1. */
struct wait_seen {
	int64_t session, uid, pid, of_pid, count, age_ms, left_ms;
	char asked[32], what[16], text[160], key[72], of[16], device[16];
};

/* How many wait for this; *seen is the one that has waited longest. */
int waits_count(kiln_client *observer, const char *what, struct wait_seen *seen);
/* Until somebody waits for this, or nobody does. */
struct wait_seen await_wait(kiln_client *observer, const char *what);
void await_no_wait(kiln_client *observer, const char *what);
/* A client that needs no device: it is answered though every device process stands still. */
kiln_client *observer_open(const struct kilnd *daemon);

#endif
