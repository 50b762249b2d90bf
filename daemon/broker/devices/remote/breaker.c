/*
 * breaker.c: a circuit breaker over one connection.  Three late asks in a row, or the end of the
 * connection, open it.  While it is open nobody asks, and the broker tries a new connection in the
 * background, less and less often, until one answers within the deadline.
 */
#include "daemon/broker/devices/events.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "remote_state.h"

#include <string.h>

#define FAILURES_MOST 3

static void on_pause_over(uv_timer_t *timer);

bool remote_usable(const struct remote *remote)
{
	return remote->breaker == REMOTE_CLOSED;
}

void remote_give_up(struct remote *remote, const char *why)
{
	struct remote_link *asks = remote->asks;
	bool was_used = remote->breaker == REMOTE_CLOSED;
	char first[KERNEL_ERROR_MAX];
	if (remote->breaker == REMOTE_OPEN)
		return;
	/* The log warns once that it is away; further reasons are for debugging. */
	snprintf(first, sizeof(first), "%s", why);
	bool news = was_used || (!remote->met && !remote->why[0]);
	util_log(news ? UTIL_WARN : UTIL_DEBUG, "%s is away, kernels are compiled here: %s",
			 remote->broker->options.remote.shown, first);
	memcpy(remote->why, first, sizeof(remote->why));
	if (was_used)
		remote->changed_us = util_now_us();
	remote->breaker = REMOTE_OPEN;
	remote->asks = NULL;
	remote_link_close(asks);
	remote_write_stop(remote);
	remote_claim_forget_all(remote);
	remote_fetch_end_all(remote);
	uv_timer_start(&remote->probe, on_pause_over, remote->backoff_ms, 0);
	remote->backoff_ms = remote->backoff_ms * 2 < PAUSE_REMOTE_TRY_MOST_MS
							 ? remote->backoff_ms * 2
							 : PAUSE_REMOTE_TRY_MOST_MS;
	broker_progress(remote->broker);
}

static void on_remote_ready(void *owner, uint64_t micros)
{
	struct remote *remote = owner;
	uint64_t most = remote->broker->options.remote_deadline_ms * 1000;
	char why[KERNEL_ERROR_MAX];
	if (micros > most) {
		snprintf(why, sizeof(why), "it answers within %.1f ms, and --remote-deadline is %.0f",
				 (double)micros / 1000, (double)most / 1000);
		remote_give_up(remote, why);
		return;
	}
	uv_timer_stop(&remote->probe);
	util_log(UTIL_INFO, "%s is %s", remote->broker->options.remote.shown,
			 remote->met ? "back" : "there");
	remote->breaker = REMOTE_CLOSED;
	remote->changed_us = util_now_us();
	remote->failures = 0;
	remote->met = true;
	remote->why[0] = 0;
	remote_write_pump(remote);
}

static void on_remote_lost(void *owner, const char *why)
{
	remote_give_up(owner, why);
}

static void on_patience(uv_timer_t *timer)
{
	remote_give_up(timer->data, "it does not answer");
}

void remote_try_again(struct remote *remote)
{
	static const struct remote_link_events events = {on_remote_ready, on_remote_lost};
	remote->breaker = REMOTE_HALF_OPEN;
	remote->asks =
		remote_link_open(&remote->broker->loop, &remote->broker->options.remote, &events, remote);
	if (remote->asks)
		uv_timer_start(&remote->probe, on_patience, DEADLINE_REMOTE_CONNECT_MS, 0);
	else
		remote_give_up(remote, "out of memory for a connection");
}

static void on_pause_over(uv_timer_t *timer)
{
	remote_try_again(timer->data);
}

void remote_answer_came(struct remote *remote, uint64_t micros)
{
	histogram_note(&remote->ask_times, micros);
	remote->failures = 0;
	remote->backoff_ms = PAUSE_REMOTE_TRY_LEAST_MS;
}

void remote_trouble(struct remote *remote, const char *why)
{
	if (remote_usable(remote) && ++remote->failures >= FAILURES_MOST)
		remote_give_up(remote, why);
}
