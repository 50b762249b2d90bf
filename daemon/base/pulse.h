/*
 * pulse: watches for the signs of life of a child that works.  It does not time the work: a compile
 * or a launch may take as long as its own deadline allows, while the process lives.
 */
#ifndef KILN_DAEMON_PULSE_H
#define KILN_DAEMON_PULSE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct pulse {
	uv_timer_t timer;
	uint64_t deadline_ms, alive_us;
	bool suspected;
	void (*lost)(void *owner);
	void *owner;
};

/* lost() is called once nothing was heard for the deadline, though this process had the time to
 * listen. */
void pulse_open(struct pulse *pulse, uv_loop_t *loop, void (*lost)(void *owner), void *owner);
/* Expects signs from now on; if it does already, nothing changes.  deadline_ms 0: never. */
void pulse_begin(struct pulse *pulse, uint64_t deadline_ms);
/* Notes a sign of life. */
void pulse_beat(struct pulse *pulse);
/* Expects none any more. */
void pulse_end(struct pulse *pulse);
/* Whether signs are expected. */
bool pulse_is_due(const struct pulse *pulse);
/* Closes the timer; its owner may be freed in closed(). */
void pulse_close(struct pulse *pulse, uv_close_cb closed);

/* Returns the pause between two beats of a child, so that several may be late. */
uint32_t pulse_every_ms(uint64_t deadline_ms);

#endif
