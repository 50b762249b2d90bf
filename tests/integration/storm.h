/*
 * storm: client processes that do random things to a daemon, well and badly, from a seed; and the
 * raw protocol that the bad ones speak.  They assert nothing: what was wrong is written where the
 * test sees it.
 */
#ifndef KILN_TESTS_STORM_H
#define KILN_TESTS_STORM_H

#include "harness.h"

#include <client/wire/frame.h>
#include <client/wire/wire.h>
#include <stdatomic.h>

#define STORM_CALL_MS 60000 /* an answer that takes longer is one that never comes */

/* In memory shared by the test and its processes. */
struct storm {
	uint64_t seed;
	atomic_int stop;
	atomic_int steps;    /* requests made, in all */
	atomic_int answered; /* of those that were counted one by one */
	atomic_int wrong;
	char why[400]; /* the first thing that was wrong */
};

struct storm_seat {
	struct storm *storm;
	int number; /* gives every process a sequence of its own */
};

/* ---- Chance ---- */

uint64_t storm_next(uint64_t *state);
/* 0 .. count - 1 */
int storm_pick(uint64_t *state, int count);
uint64_t storm_start(const struct storm_seat *seat);
void storm_wrong(struct storm *storm, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- The raw protocol: statuses, KILN_OK or negative ---- */

/* A connected socket, or -1. */
int raw_open(const struct kilnd *daemon);
/* Ends the message, sends and frees it. */
int raw_put(int sock, struct wire_out *out, const int *fds, int fd_count);
/* Sends bytes as they are, with at most FRAME_RIGHTS_MOST descriptors, and waits for nothing: 0 or
 * errno. */
int raw_bytes(int sock, const void *bytes, size_t size, const int *fds, int count);
void raw_hello(struct wire_out *out, uint64_t id);
/* The next reply's status (KILN_ECONN when the daemon hung up); *id, *buf and *call (may be NULL)
 * are what it says. */
int raw_take(int sock, int timeout_ms, uint64_t *id, uint64_t *buf, uint64_t *call);
/* The same with what the daemon says: sentence gets it, "" if it says none. */
int raw_said(int sock, int timeout_ms, char *sentence, size_t size);
/* A socket whose hello was answered well, or -1. */
int raw_greeted(const struct kilnd *daemon);
/* "prepare" of a transpose, or an explain, a compile of it. */
void raw_problem(struct wire_out *out, const char *type, uint64_t id, int64_t rows,
				 int64_t columns);

/* ---- Bodies for process_start(); arg is a struct storm_seat ---- */

/* Requests that are well-formed frames with whatever inside: each is answered exactly once. */
int storm_polite(const struct kilnd *daemon, void *arg);
/* Anything at all, and leaves at any moment. */
int storm_rude(const struct kilnd *daemon, void *arg);

#endif
