/*
 * wait_note.h: one that waits, and what it waits for.  Every room that keeps somebody waiting
 * visits a list of these, and asks no process that may stand still.
 */
#ifndef KILN_DAEMON_WAIT_NOTE_H
#define KILN_DAEMON_WAIT_NOTE_H

#include <uv.h>

#include "daemon/plan/kernel.h"

#define WAITS_TEXT 160
#define WAITS_NO_DEADLINE (-1)

/* Strings other than text live as long as the broker. */
struct wait_note {
	const void *owner;     /* argument of the callback that ends the wait; NULL: the daemon waits */
	const char *what;      /* a word */
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

/* Milliseconds until then, 0 if it has passed. */
int64_t waits_left(uint64_t until_us, uint64_t now_us);
int64_t waits_timer_left(const uv_timer_t *timer);
void waits_say(struct wait_note *note, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
