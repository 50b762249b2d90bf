/* store_cache.c: opens and closes the cache, and lets it do between calls what it has put off. */
#include "store_state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/events.h"
#include "daemon/base/util.h"

static void tend_work(struct cache *cache, void *arg)
{
	(void)arg;
	cache_tend(cache);
}

static void on_tend(uv_timer_t *timer)
{
	/* Without memory the next call that ends tries again. */
	(void)store_run(timer->data, tend_work, NULL, NULL);
}

static void look_work(struct cache *cache, void *arg)
{
	(void)arg;
	cache_look(cache);
}

static void on_store_look(uv_timer_t *timer)
{
	struct broker *broker = timer->data;
	if (!broker->store->calls.first && !broker->draining)
		(void)store_run(broker, look_work, NULL, NULL);
}

/* Reports a database that a call has set aside. */
static void look_for_damage(struct broker *broker, const struct cache_stats *before)
{
	const struct cache_stats *stats = &broker->store->stats;
	char sentence[KERNEL_ERROR_MAX + 96];
	if (stats->set_aside == before->set_aside)
		return;
	snprintf(sentence, sizeof(sentence), "%s", stats->damage);
	const struct fault fault = {.kind = FAULT_STORE, .sentence = stats->damage, .uid = getuid()};
	broker->events->fault(broker, &fault, sentence, sizeof(sentence));
	util_log(UTIL_WARN, "%s", sentence);
}

/* Has the cache do what it has put off, once nobody waits for it. */
static void tend(struct broker *broker)
{
	struct store *store = broker->store;
	uv_timer_t *timer = &store->timers[TIMER_TEND];
	if (store->calls.first || broker->draining || broker->events->cache_idle(broker))
		return;
	if (store->stats.due)
		on_tend(timer);
	else if (store->stats.waiting && !uv_is_active((uv_handle_t *)timer))
		uv_timer_start(timer, on_tend, PAUSE_STORE_TEND_MS, 0);
}

void store_tend(struct broker *broker, const struct cache_stats *before)
{
	look_for_damage(broker, before);
	tend(broker);
}

/* ---- Opening and closing ---- */

int store_open(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	struct cache_options options = {
		.directory = broker->options.cache_dir,
		.cap_bytes = broker->options.cache_bytes,
		.cap_rows = broker->options.cache_rows,
		.memory_bytes = broker->options.memory_cache_bytes,
		.faults = broker->options.test_requests,
	};
	struct store *store = util_alloc(sizeof(*store));
	int status = cache_open(&options, &store->cache, error);
	if (status != KILN_OK) {
		free(store);
		return status;
	}
	cache_stats(store->cache, &store->stats);
	store->calls.own_end = &store->calls.own;
	store->aside.own_end = &store->aside.own;
	for (int i = 0; i < STORE_TIMERS; i++) {
		uv_timer_init(&broker->loop, &store->timers[i]);
		uv_unref((uv_handle_t *)&store->timers[i]);
		store->timers[i].data = broker;
	}
	broker->store = store;
	uv_timer_start(&store->timers[TIMER_LOOK], on_store_look, PAUSE_STORE_LOOK_MS,
				   PAUSE_STORE_LOOK_MS);
	/* This comes before any call, for a report is written by the store's thread. */
	broker->events->cache_opened(broker, store->cache);
	/* A cap that is lower than last time leaves work behind. */
	store_tend(broker, &(struct cache_stats){0});
	return status;
}

bool store_take(struct broker *broker, const char *key, struct cache_row *row)
{
	struct store *store = broker->store;
	if (store->ending || !store->cache || !cache_get_kept(store->cache, key, row))
		return false;
	/* The figures are of the last call on the store's thread, which has not heard of this use. */
	store->stats.waiting++;
	tend(broker);
	return true;
}

static void close_work(struct cache *cache, void *arg)
{
	struct store *store = arg;
	store->cache = NULL;
	cache_close(cache);
}

bool store_end(struct broker *broker)
{
	struct store *store = broker->store;
	if (!store)
		return true;
	if (store_busy(broker))
		return false;
	/* To close the cache does what was put off. */
	uv_timer_stop(&store->timers[TIMER_TEND]);
	if (!store->ending)
		store->ending = store_run(broker, close_work, NULL, store) == KILN_OK;
	return store->ending && !store->calls.first;
}

void store_close(struct broker *broker)
{
	struct store *store = broker->store;
	if (!store)
		return;
	/* The loop has ended: one more turn lets go of the timers. */
	for (int i = 0; i < STORE_TIMERS; i++)
		uv_close((uv_handle_t *)&store->timers[i], NULL);
	uv_run(&broker->loop, UV_RUN_NOWAIT);
	cache_close(store->cache);
	turns_free(&store->calls.turns);
	turns_free(&store->aside.turns);
	free(store);
	broker->store = NULL;
}

const struct cache_stats *store_stats(const struct broker *broker)
{
	return &broker->store->stats;
}
