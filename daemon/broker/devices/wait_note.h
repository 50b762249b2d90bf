/*
 * wait_note.h: a note of somebody who waits, and what for.  Every room that keeps somebody waiting
 * visits such notes.  It makes them from memory, and asks no process that may stand still.
 */
#ifndef KILN_DAEMON_WAIT_NOTE_H
#define KILN_DAEMON_WAIT_NOTE_H

#include <uv.h>

#include "daemon/plan/kernel.h"

#define WAITS_TEXT 160
#define WAITS_NO_DEADLINE (-1)

/* Strings other than text live as long as the broker. */
struct wait_note {
	const void *owner;     /* argument of the callback that ends the wait; NULL: the daemon's */
	const char *what;      /* a word */
	char text[WAITS_TEXT]; /* "the compile of 3fa9c1d2e4b0" */
	char key[KERNEL_KEY_HEX];
	const char *of; /* "compiler", "executor", "store", "redis", "host", "client"; "": nobody's */
	int pid;        /* of that process; 0: none, or unknown */
	const char *device;
	bool alone;     /* shown also when no session waits for it */
	uint64_t count; /* of equal waits; 0 is 1 */
	uint64_t since_us;
	int64_t left_ms; /* until the deadline, 0 past it; or WAITS_NO_DEADLINE */
};

/* The note lives until the callback returns. */
typedef void (*waits_visit)(void *arg, const struct wait_note *note);

/* Both return milliseconds until then, 0 past it. */
int64_t waits_left(uint64_t until_us, uint64_t now_us);
int64_t waits_timer_left(const uv_timer_t *timer);
void waits_say(struct wait_note *note, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
