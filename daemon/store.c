/* store.c: a queue of cache calls in front of libuv's thread pool, one in flight; and between them
 * what the cache put off. */
#include "store.h"

#include <stdlib.h>
#include <string.h>

#include "deadlines.h"
#include "tuned.h"
#include "util/util.h"
#include "waits.h"

struct store_item {
	uv_work_t request;
	struct broker *broker;
	store_work work;
	store_done done;
	void *arg;
	struct cache_stats stats;
	uint32_t delay_ms; /* for tests */
	uint64_t since_us; /* asked for; once it is begun, that */
	struct store_item *next;
};

struct store {
	struct cache *cache;
	struct store_item *head, *tail; /* head is in flight */
	struct cache_stats stats;
	uv_timer_t timer;
};

static void start(struct store_item *item);

static void run(uv_work_t *request)
{
	struct store_item *item = request->data;
	struct store *store = item->broker->store;
	if (item->delay_ms)
		uv_sleep(item->delay_ms);
	item->work(store->cache, item->arg);
	cache_stats(store->cache, &item->stats);
}

static void tend_work(struct cache *cache, void *arg)
{
	(void)arg;
	cache_tend(cache);
}

static void tend_done(struct broker *broker, void *arg)
{
	(void)broker;
	(void)arg;
}

static void on_timer(uv_timer_t *timer)
{
	/* Without memory the next call that ends tries again. */
	(void)store_run(timer->data, tend_work, tend_done, NULL);
}

/* Only when nothing is waiting: what the cache put off is done for nobody. */
static void tend(struct broker *broker)
{
	struct store *store = broker->store;
	if (store->head || broker->draining)
		return;
	if (store->stats.due)
		(void)store_run(broker, tend_work, tend_done, NULL);
	else if (store->stats.waiting && !uv_is_active((uv_handle_t *)&store->timer))
		uv_timer_start(&store->timer, on_timer, PAUSE_STORE_TEND_MS, 0);
}

static void finished(uv_work_t *request, int status)
{
	struct store_item *item = request->data;
	struct broker *broker = item->broker;
	struct store *store = broker->store;
	(void)status; /* nothing here is ever canceled */
	store->stats = item->stats;
	store->head = item->next;
	if (store->head)
		start(store->head);
	else
		store->tail = NULL;
	item->done(broker, item->arg);
	free(item);
	tend(broker);
	server_progress(broker);
}

static void start(struct store_item *item)
{
	item->request.data = item;
	item->since_us = util_now_us();
	item->delay_ms = item->broker->test.delay_store_ms;
	uv_queue_work(&item->broker->loop, &item->request, run, finished);
}

int store_run(struct broker *broker, store_work work, store_done done, void *arg)
{
	struct store *store = broker->store;
	struct store_item *item = calloc(1, sizeof *item);
	if (!item)
		return KILN_ENOMEM;
	*item = (struct store_item){
		.broker = broker, .work = work, .done = done, .arg = arg, .since_us = util_now_us()};
	if (store->tail)
		store->tail->next = item;
	else
		store->head = item;
	store->tail = item;
	if (store->head == item)
		start(item);
	return KILN_OK;
}

int store_open(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	struct cache_options options = {
		.directory = broker->options.cache_dir,
		.cap_bytes = broker->options.cache_bytes,
		.cap_rows = broker->options.cache_rows,
		.memory_bytes = broker->options.memory_cache_bytes,
	};
	struct store *store = util_alloc(sizeof *store);
	int status = cache_open(&options, &store->cache, error);
	if (status != KILN_OK) {
		free(store);
		return status;
	}
	cache_stats(store->cache, &store->stats);
	uv_timer_init(&broker->loop, &store->timer);
	uv_unref((uv_handle_t *)&store->timer);
	store->timer.data = broker;
	broker->store = store;
	status = tuned_open(broker, store->cache, error);
	/* A cap that is lower than last time leaves work behind. */
	if (status == KILN_OK)
		tend(broker);
	return status;
}

void store_close(struct broker *broker)
{
	if (!broker->store)
		return;
	tuned_close(broker);
	/* The loop has ended: one more turn lets go of the timer. */
	uv_close((uv_handle_t *)&broker->store->timer, NULL);
	uv_run(&broker->loop, UV_RUN_NOWAIT);
	cache_close(broker->store->cache);
	free(broker->store);
	broker->store = NULL;
}

bool store_busy(const struct broker *broker)
{
	return broker->store && broker->store->head;
}

void store_waits(const struct broker *broker, waits_visit visit, void *arg)
{
	const struct store_item *first = broker->store->head;
	uint64_t before = 0;
	struct wait_note note = {.what = "store", .of = "store", .left_ms = WAITS_NO_DEADLINE};
	for (const struct store_item *item = first; item; item = item->next, before++) {
		note.owner = item->arg;
		note.since_us = item->since_us;
		waits_say(&note, "the cache, behind %llu others", (unsigned long long)before);
		visit(arg, &note);
	}
	if (!first)
		return;
	note.owner = NULL;
	note.since_us = first->since_us;
	note.count = before;
	waits_say(&note, "the disk of the cache");
	visit(arg, &note);
}

const struct cache_stats *store_stats(const struct broker *broker)
{
	return &broker->store->stats;
}
