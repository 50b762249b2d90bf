/*
 * pulse: whether a child that works gives signs of life.  It is no clock of what the child does: a
 * compile or a launch may take as long as its own deadline allows, while its process lives.
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

/* lost: nothing was heard for the deadline, though this process had the time to listen. */
void pulse_open(struct pulse *pulse, uv_loop_t *loop, void (*lost)(void *owner), void *owner);
/* From now on signs are due; if they are already, nothing changes.  deadline_ms 0: never. */
void pulse_begin(struct pulse *pulse, uint64_t deadline_ms);
/* One came. */
void pulse_beat(struct pulse *pulse);
void pulse_end(struct pulse *pulse);
bool pulse_is_due(const struct pulse *pulse);
void pulse_close(struct pulse *pulse, uv_close_cb closed);

/* How often a child beats, so that several may be late. */
uint32_t pulse_every_ms(uint64_t deadline_ms);

#endif
