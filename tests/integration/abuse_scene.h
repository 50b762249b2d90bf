/*
 * abuse_scene: what the tests of peers that cost much and give nothing share: what a daemon holds
 * before and after, a client that works meanwhile, and frames that are wrong.
 */
#ifndef KILN_TESTS_ABUSE_SCENE_H
#define KILN_TESTS_ABUSE_SCENE_H

#include "storm.h"

#define ABUSE_ANSWERS 2000 /* of one client, whose times are kept */
#define ABUSE_FDS 253      /* of one message: the most that the system takes */

/* ---- What a daemon holds ---- */

struct abuse_held {
	int fds;
	int64_t kib;
};

/* After a first kernel, with all workers there. */
struct abuse_held abuse_settle(struct kilnd *daemon, kiln_client *client);
/* One client is left, which is served; descriptors and memory are what they were, or nearly. */
void abuse_assert_over(struct kilnd *daemon, kiln_client *client, struct abuse_held before);
void abuse_assert_logged(const struct kilnd *daemon, const char *words);

/* ---- A client that works meanwhile ---- */

struct abuse_times {
	double ms[ABUSE_ANSWERS];
	int count;
};

/* One request. */
void abuse_work(kiln_client *client, struct abuse_times *times);
/* Prints the times, which are not those of a client that was kept waiting.  So many requests of
 * others may have come before one of its own, and take as long as those do. */
void abuse_assert_served(const char *during, struct abuse_times *times, int ahead);

/* ---- Frames ---- */

/* A frame with whatever header, payload and descriptors.  False: it could not be sent. */
bool raw_send(int sock, const void *bytes, size_t size, const int *fds, int count);
/* The daemon says so, hangs up, and the socket is closed. */
void raw_expect_refused(int sock, int status, const char *words);

#endif
