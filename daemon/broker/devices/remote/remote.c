/* remote.c: opens and closes the second tier; its timer, its names and its figures. */
#include "remote.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/broker/devices/events.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "remote_state.h"

static const char *const breaker_names[] = {"closed", "open", "half-open"};

static const char *shown(const struct remote *remote)
{
	return remote->broker->options.remote.shown;
}

void remote_entry_name(const char *key, char name[REMOTE_NAME_MAX])
{
	snprintf(name, REMOTE_NAME_MAX, "kiln:1:entry:%s", key);
}

void remote_claim_name(const char *key, char name[REMOTE_NAME_MAX])
{
	snprintf(name, REMOTE_NAME_MAX, "kiln:1:claim:%s", key);
}

void remote_winner_name(const struct cache_tuned *place, char name[REMOTE_NAME_MAX])
{
	const char *const texts[] = {place->model, place->target, place->signature};
	unsigned char digest[32];
	char hex[KERNEL_KEY_HEX];
	struct util_hash hash;
	util_hash_begin(&hash);
	for (int i = 0; i < 3; i++)
		util_hash_add(&hash, texts[i], strlen(texts[i]) + 1);
	util_hash_end(&hash, digest);
	util_hex(digest, sizeof(digest), hex);
	snprintf(name, REMOTE_NAME_MAX, "kiln:1:winner:%s", hex);
}

/* ---- Time ---- */

static void on_remote_timer(uv_timer_t *timer)
{
	struct remote *remote = timer->data;
	uint64_t now = util_now_us();
	remote_fetch_tick(remote, now);
	remote_claim_tick(remote, now);
	remote_write_tick(remote, now);
	remote_winner_tick(remote, now);
	remote_arm(remote);
}

void remote_arm(struct remote *remote)
{
	uint64_t now = util_now_us();
	uint64_t due = remote_fetch_due(remote);
	if (remote_claim_due(remote) < due)
		due = remote_claim_due(remote);
	if (remote_write_due(remote) < due)
		due = remote_write_due(remote);
	if (remote_winner_tick_due(remote) < due)
		due = remote_winner_tick_due(remote);
	if (due == REMOTE_NEVER)
		uv_timer_stop(&remote->timer);
	else
		uv_timer_start(&remote->timer, on_remote_timer, due > now ? (due - now + 999) / 1000 : 0,
					   0);
}

/* ---- Opening and closing ---- */

static int open_keys(struct remote *remote, char error[KERNEL_ERROR_MAX])
{
	const struct options *options = &remote->broker->options;
	const char *name = options->sign_key[0] ? options->sign_key : NULL;
	struct seal_ring *trusted = NULL;
	int status = seal_ring_open(options->trust_dir, &trusted, error);
	if (status != KILN_OK)
		return status;
	remote->trusted = seal_ring_count(trusted);
	seal_ring_free(trusted);
	if (!remote->trusted)
		util_log(UTIL_WARN, "nothing is taken from %s: no key is trusted (kiln key trust FILE)",
				 shown(remote));
	status = seal_open(options->key_dir, name, &remote->secret, error);
	remote->seals = status == KILN_OK;
	if (status != KILN_ENOENT || name)
		return status;
	util_log(UTIL_WARN, "nothing is written to %s until kilnd starts again: %s", shown(remote),
			 error);
	return KILN_OK;
}

int remote_open(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	if (!broker->options.remote.host[0])
		return KILN_OK;
	struct remote *remote = util_alloc(sizeof(*remote));
	char host[64] = "";
	*remote = (struct remote){.broker = broker,
							  .backoff_ms = PAUSE_REMOTE_TRY_LEAST_MS,
							  .changed_us = util_now_us(),
							  .write_due_us = REMOTE_NEVER,
							  .look_due_us = REMOTE_NEVER};
	int status = open_keys(remote, error);
	if (status != KILN_OK) {
		free(remote);
		return status;
	}
	gethostname(host, sizeof(host) - 1);
	snprintf(remote->claimant, sizeof(remote->claimant), "%s %d", host, (int)getpid());
	uv_timer_init(&broker->loop, &remote->timer);
	uv_timer_init(&broker->loop, &remote->probe);
	remote->timer.data = remote->probe.data = remote;
	broker->remote = remote;
	remote_try_again(remote);
	return KILN_OK;
}

void remote_close(struct broker *broker)
{
	struct remote *remote = broker->remote;
	if (!remote)
		return;
	remote->breaker = REMOTE_OPEN;
	remote_link_close(remote->asks);
	remote->asks = NULL;
	remote_write_stop(remote);
	remote_claim_forget_all(remote);
	uv_close((uv_handle_t *)&remote->timer, NULL);
	uv_close((uv_handle_t *)&remote->probe, NULL);
}

void remote_free(struct broker *broker)
{
	struct remote *remote = broker->remote;
	if (!remote)
		return;
	remote_write_free(remote);
	map_free(&remote->winners_seen);
	seal_forget(&remote->secret);
	free(remote);
	broker->remote = NULL;
}

bool remote_finished(struct broker *broker)
{
	struct remote *remote = broker->remote;
	uint64_t now = util_now_us();
	if (!remote || !remote_usable(remote))
		return true;
	if (!remote->finish_us)
		remote->finish_us = now + DEADLINE_REMOTE_FINISH_US;
	bool busy = remote_queued(broker) || remote_link_pending(remote->asks) ||
				(remote->writes && remote_link_pending(remote->writes));
	return !busy || now > remote->finish_us;
}

/* ---- Figures ---- */

bool remote_stats(const struct broker *broker, struct remote_stats *out)
{
	const struct remote *remote = broker->remote;
	if (!remote)
		return false;
	bool tried = remote->met || remote->why[0];
	*out = (struct remote_stats){
		.state = remote_usable(remote) ? "connected"
				 : tried               ? "away"
									   : "connecting",
		.url = shown(remote),
		.breaker = breaker_names[remote->breaker],
		.reason = remote->why,
		.seals = remote->seals ? remote->secret.key.name : "",
		.trusted = remote->trusted,
		.state_ms = (util_now_us() - remote->changed_us) / 1000,
		.queued = remote_queued(broker),
		.queued_bytes = remote->queued_bytes,
		.ask = &remote->ask_times,
		.write = &remote->write_times,
		.miss = &remote->miss_times,
	};
	return true;
}
