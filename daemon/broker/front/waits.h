/*
 * waits: who waits now, for what, and of whom.  Each module that keeps somebody waiting tells of
 * those that it keeps; what the broker knows is enough, and nobody is asked.
 */
#ifndef KILN_DAEMON_WAITS_H
#define KILN_DAEMON_WAITS_H

#include "daemon/broker/broker.h"

#define WAITS_TEXT 160
#define WAITS_NO_DEADLINE (-1)

/* What is told of one who waits.  Strings live as long as the broker, but for text. */
struct wait_note {
	const void *owner; /* who is called back: the argument of that; NULL: it is the daemon itself */
	const char *what;  /* a word */
	char text[WAITS_TEXT]; /* "the compile of 3fa9c1d2e4b0" */
	char key[KERNEL_KEY_HEX];
	const char *of; /* "compiler", "executor", "store", "redis", "host", "client"; "": nobody's */
	int pid;        /* of that process; 0: there is none, or it is not known */
	const char *device;
	bool alone;     /* it is shown though nobody in a session waits for it */
	uint64_t count; /* that wait for it alike; 0 is 1 */
	uint64_t since_us;
	int64_t left_ms; /* until the deadline, 0 when it has passed; or WAITS_NO_DEADLINE */
};

/* The note is the caller's. */
typedef void (*waits_visit)(void *arg, const struct wait_note *note);

/* One who waits, and what for.  session 0: the daemon itself. */
struct wait_row {
	uint64_t session;
	uint32_t uid;
	int pid;
	const char *asked; /* its request: "prepare"; "": none */
	uint64_t request;  /* and its number, which is the ticket of a call; 0: none */
	struct wait_note note;
};

/* Those who have waited longest, these first; returns how many, and *all how many there are. */
int waits_collect(struct broker *broker, struct wait_row *rows, int most, uint64_t *all);

/* ---- What modules tell ---- */

struct pool_job;
struct remote_fetch;
struct second;
struct session;

void job_waits(const struct broker *broker, waits_visit visit, void *arg);
void store_waits(const struct broker *broker, waits_visit visit, void *arg);
void executors_waits(const struct broker *broker, waits_visit visit, void *arg);
/* Also of workers that are started. */
void pool_waits(const struct broker *broker, waits_visit visit, void *arg);
void remote_waits(const struct broker *broker, waits_visit visit, void *arg);
void server_waits(const struct broker *broker, waits_visit visit, void *arg);
/* Fills in what is known of this one. */
void pool_note(const struct broker *broker, const struct pool_job *job, struct wait_note *note);
void remote_note(const struct remote_fetch *fetch, struct wait_note *note);
/* False: nobody waits for it. */
bool second_note(const struct second *second, struct wait_note *note);
/* Of a session's lane: launches under way, entries that wait for a ready word, and for another. */
#define LANE_NOTES 3
int lane_waits(const struct session *session, struct wait_note notes[LANE_NOTES]);

/* Milliseconds until then, 0 if it has passed. */
int64_t waits_left(uint64_t until_us, uint64_t now_us);
int64_t waits_timer_left(const uv_timer_t *timer);
void waits_say(struct wait_note *note, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
