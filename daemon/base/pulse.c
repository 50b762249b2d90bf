/* pulse.c: a timer looks several times within the deadline. */
#include "pulse.h"

#include "deadlines.h"
#include "util.h"

#define LOOKS 8

uint32_t pulse_every_ms(uint64_t deadline_ms)
{
	uint64_t every = deadline_ms / LOOKS;
	if (deadline_ms && every < PAUSE_BEAT_LEAST_MS)
		every = PAUSE_BEAT_LEAST_MS;
	return every < PAUSE_BEAT_MOST_MS ? (uint32_t)every : PAUSE_BEAT_MOST_MS;
}

/* The first late look only suspects the child: this process may have stood still itself, and reads
 * the child's messages before the next look. */
static void on_pulse_look(uv_timer_t *timer)
{
	struct pulse *pulse = timer->data;
	bool late = util_now_us() - pulse->alive_us > pulse->deadline_ms * 1000;
	if (late && pulse->suspected) {
		pulse_end(pulse);
		pulse->lost(pulse->owner);
	} else {
		pulse->suspected = late;
	}
}

void pulse_open(struct pulse *pulse, uv_loop_t *loop, void (*lost)(void *owner), void *owner)
{
	pulse->lost = lost;
	pulse->owner = owner;
	pulse->timer.data = pulse;
	uv_timer_init(loop, &pulse->timer);
}

void pulse_begin(struct pulse *pulse, uint64_t deadline_ms)
{
	uint32_t every = pulse_every_ms(deadline_ms);
	if (!deadline_ms || pulse_is_due(pulse))
		return;
	pulse->deadline_ms = deadline_ms;
	pulse_beat(pulse);
	uv_timer_start(&pulse->timer, on_pulse_look, every, every);
}

void pulse_beat(struct pulse *pulse)
{
	pulse->alive_us = util_now_us();
	pulse->suspected = false;
}

void pulse_end(struct pulse *pulse)
{
	uv_timer_stop(&pulse->timer);
}

bool pulse_is_due(const struct pulse *pulse)
{
	return uv_is_active((const uv_handle_t *)&pulse->timer);
}

void pulse_close(struct pulse *pulse, uv_close_cb closed)
{
	uv_close((uv_handle_t *)&pulse->timer, closed);
}
