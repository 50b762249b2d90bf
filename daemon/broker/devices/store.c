/* store.c: the cache calls that wait in front of libuv's thread pool, one in flight; and between
 * them what the cache put off.  A second line has what does not need the cache. */
#include "store.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/events.h"
#include "daemon/base/util.h"

#define STORE_CROWD 256 /* calls */

struct store_item {
	struct turn_item waiting; /* the first member: what turns_take() gives */
	struct turn_place place;  /* of the owner; a call of the daemon's own has none */
	uv_work_t request;
	struct broker *broker;
	struct store_line *line;
	store_work work;
	store_done done;
	store_late late; /* NULL: nobody is to be told, or he was */
	void *arg;
	uint64_t due_us;
	struct cache_stats stats;
	uint32_t delay_ms;                  /* for tests */
	uint64_t since_us;                  /* asked for; once it is begun, that */
	struct store_item *previous, *next; /* of all in the line, in the order of asking */
	struct store_item *own_next;        /* of the daemon's own that wait */
};

struct store_line {
	struct store_item *running;        /* in flight; NULL: none */
	struct store_item *first, *last;   /* all, the one in flight as well */
	struct store_item *own, *own_last; /* of those that wait: the daemon's own */
	struct turns turns;                /* and those of sessions */
	int count;
};

struct store {
	struct cache *cache; /* NULL: closed; the store's thread's, while a call is in flight */
	struct store_line calls, aside;
	struct cache_stats stats;
	uv_timer_t tend, look, patience;
	bool ending, stuck; /* the disk does not answer, and that was said */
};

static uint64_t patience_us(const struct broker *broker)
{
	uint32_t ms = broker->test.store_deadline_ms;
	return (uint64_t)(ms ? ms : DEADLINE_STORE_MS) * 1000;
}

/* For how long the call under way has kept the others; 0: not yet too long. */
static uint64_t stuck_us(const struct broker *broker)
{
	const struct store_line *calls = &broker->store->calls;
	uint64_t taken = calls->running ? util_now_us() - calls->running->since_us : 0;
	return taken >= patience_us(broker) ? taken : 0;
}

static void say_stuck(const struct broker *broker, char text[KERNEL_ERROR_MAX])
{
	if (!stuck_us(broker))
		util_fail(text, KERNEL_ERROR_MAX, 0,
				  "the cache %.200s was busy with other requests for %.1f s: ask again",
				  broker->options.cache_dir, (double)patience_us(broker) / 1e6);
	else
		util_fail(text, KERNEL_ERROR_MAX, 0,
				  "the disk of the cache %.200s has not answered for %.1f s: see to it; until "
				  "then kernels are compiled again, and not kept",
				  broker->options.cache_dir, (double)stuck_us(broker) / 1e6);
}

/* ---- The queues ---- */

static void run_item(uv_work_t *request)
{
	struct store_item *item = request->data;
	struct store *store = item->broker->store;
	bool aside = item->line == &store->aside;
	if (item->delay_ms)
		uv_sleep(item->delay_ms);
	item->work(aside ? NULL : store->cache, item->arg);
	if (!aside && store->cache)
		cache_stats(store->cache, &item->stats);
}

static void on_patience(uv_timer_t *timer);

/* Looks who has waited too long, then at the latest. */
static void watch_until(struct broker *broker, uint64_t due_us)
{
	uv_timer_t *timer = &broker->store->patience;
	uint64_t now = util_now_us(), ms = due_us > now ? (due_us - now) / 1000 + 1 : 0;
	if (!uv_is_active((uv_handle_t *)timer) || uv_timer_get_due_in(timer) > ms)
		uv_timer_start(timer, on_patience, ms, 0);
}

static void finished(uv_work_t *request, int status);

static void store_start(struct store_item *item)
{
	struct broker *broker = item->broker;
	item->request.data = item;
	item->since_us = util_now_us();
	item->delay_ms = broker->test.delay_store_ms;
	if (item->line == &broker->store->calls)
		watch_until(broker, item->since_us + patience_us(broker));
	uv_queue_work(&broker->loop, &item->request, run_item, finished);
}

static void nothing(struct broker *broker, void *arg)
{
	(void)broker;
	(void)arg;
}

static void tend_work(struct cache *cache, void *arg)
{
	(void)arg;
	cache_tend(cache);
}

static void look_work(struct cache *cache, void *arg)
{
	(void)arg;
	cache_look(cache);
}

static void on_tend(uv_timer_t *timer)
{
	/* Without memory the next call that ends tries again. */
	(void)store_run(timer->data, tend_work, nothing, NULL);
}

static void on_store_look(uv_timer_t *timer)
{
	struct broker *broker = timer->data;
	if (!broker->store->calls.first && !broker->draining)
		(void)store_run(broker, look_work, nothing, NULL);
}

/* Only when nothing is waiting: what the cache put off is done for nobody. */
static void tend(struct broker *broker)
{
	struct store *store = broker->store;
	if (store->calls.first || broker->draining)
		return;
	if (broker->events->cache_idle(broker))
		return;
	if (store->stats.due)
		(void)store_run(broker, tend_work, nothing, NULL);
	else if (store->stats.waiting && !uv_is_active((uv_handle_t *)&store->tend))
		uv_timer_start(&store->tend, on_tend, PAUSE_STORE_TEND_MS, 0);
}

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

static struct store_item *take_own(struct store_line *line)
{
	struct store_item *item = line->own;
	line->own = item->own_next;
	if (!line->own)
		line->own_last = NULL;
	return item;
}

static void start_next(struct store_line *line)
{
	line->running = line->own ? take_own(line) : (struct store_item *)turns_take(&line->turns);
	if (line->running)
		store_start(line->running);
}

static void link_item(struct store_line *line, struct store_item *item)
{
	item->previous = line->last;
	if (line->last)
		line->last->next = item;
	else
		line->first = item;
	line->last = item;
	line->count++;
}

static void unlink_item(struct store_line *line, struct store_item *item)
{
	turns_leave_all(&item->waiting);
	if (item->previous)
		item->previous->next = item->next;
	else
		line->first = item->next;
	if (item->next)
		item->next->previous = item->previous;
	else
		line->last = item->previous;
	line->count--;
}

static void finished(uv_work_t *request, int status)
{
	struct store_item *item = request->data;
	struct broker *broker = item->broker;
	struct store *store = broker->store;
	struct store_line *line = item->line;
	(void)status; /* nothing here is ever canceled */
	const struct cache_stats before = store->stats;
	if (line == &store->calls) {
		store->stats = item->stats;
		if (store->stuck)
			util_log(UTIL_INFO, "the disk of the cache answered after %.1f s",
					 (double)(util_now_us() - item->since_us) / 1e6);
		store->stuck = false;
	}
	unlink_item(line, item);
	start_next(line);
	item->done(broker, item->arg);
	free(item);
	look_for_damage(broker, &before);
	tend(broker);
	broker_progress(broker);
}

/* owner NULL: the daemon itself.  *out NULL, or where the item is wanted. */
static int store_enter(struct broker *broker, struct store_line *line,
					   const struct turn_owner *owner, const struct store_item *what,
					   struct store_item **out)
{
	struct store_item *item = malloc(sizeof(*item));
	if (!item)
		return KILN_ENOMEM;
	*item = *what;
	item->broker = broker;
	item->line = line;
	item->since_us = util_now_us();
	item->stats = broker->store->stats;
	if (owner && turns_join(&line->turns, &item->waiting, &item->place, *owner) < 0) {
		free(item);
		return KILN_ENOMEM;
	}
	if (!owner && line->own)
		line->own_last->own_next = item;
	else if (!owner)
		line->own = item;
	if (!owner)
		line->own_last = item;
	link_item(line, item);
	if (out)
		*out = item;
	if (!line->running)
		start_next(line);
	return KILN_OK;
}

int store_run(struct broker *broker, store_work work, store_done done, void *arg)
{
	return store_enter(broker, &broker->store->calls, NULL,
					   &(struct store_item){.work = work, .done = done, .arg = arg}, NULL);
}

int store_run_for(struct broker *broker, struct turn_owner owner, store_work work, store_done done,
				  void *arg)
{
	return store_enter(broker, &broker->store->calls, &owner,
					   &(struct store_item){.work = work, .done = done, .arg = arg}, NULL);
}

int store_aside(struct broker *broker, store_work work, store_done done, void *arg)
{
	return store_enter(broker, &broker->store->aside, NULL,
					   &(struct store_item){.work = work, .done = done, .arg = arg}, NULL);
}

int store_aside_for(struct broker *broker, struct turn_owner owner, store_work work,
					store_done done, void *arg)
{
	return store_enter(broker, &broker->store->aside, &owner,
					   &(struct store_item){.work = work, .done = done, .arg = arg}, NULL);
}

/* ---- Who waits ---- */

/* Somebody whose time is over, taken off the list of those who wait; NULL.  *left: the work has not
 * begun, and the item is the caller's. */
static struct store_item *take_late(struct store_line *line, uint64_t now, bool stuck, bool *left)
{
	struct store_item *item = line->first;
	while (item && !(item->late && (stuck || item->due_us <= now)))
		item = item->next;
	*left = item && item != line->running;
	if (*left)
		unlink_item(line, item);
	return item;
}

/* Of those who are left the first is the first to be late, but that a test may have shortened what
 * later ones wait. */
static void watch_others(struct broker *broker)
{
	const struct store_item *item = broker->store->calls.first;
	uint64_t at_most = util_now_us() + patience_us(broker);
	while (item && !item->late)
		item = item->next;
	if (item)
		watch_until(broker, item->due_us < at_most ? item->due_us : at_most);
}

static void on_patience(uv_timer_t *timer)
{
	struct broker *broker = timer->data;
	struct store *store = broker->store;
	struct store_item *item;
	char text[KERNEL_ERROR_MAX];
	bool left;
	if (!store->stuck && stuck_us(broker)) {
		store->stuck = true;
		say_stuck(broker, text);
		util_log(UTIL_WARN, "%s", text);
	}
	/* Those who are told may ask for more. */
	uint64_t now = util_now_us();
	while ((item = take_late(&store->calls, now, store->stuck, &left))) {
		store_late late = item->late;
		item->late = NULL;
		say_stuck(broker, text);
		late(broker, item->arg, text);
		if (left) {
			item->done(broker, item->arg);
			free(item);
		}
	}
	if (store->calls.running && !store->stuck)
		watch_until(broker, store->calls.running->since_us + patience_us(broker));
	watch_others(broker);
	broker_progress(broker);
}

int store_wait(struct broker *broker, struct turn_owner owner, store_work work, store_done done,
			   store_late late, void *arg, struct store_item **item)
{
	struct store *store = broker->store;
	uint64_t due = util_now_us() + (stuck_us(broker) ? 0 : patience_us(broker));
	int status = store_enter(
		broker, &store->calls, &owner,
		&(struct store_item){.work = work, .done = done, .late = late, .arg = arg, .due_us = due},
		item);
	if (status == KILN_OK)
		watch_until(broker, due);
	return status;
}

void store_join(struct store_item *item, struct turn_owner owner, struct turn_place *place)
{
	/* Without memory for a turn of one's own there is that of the first who asked. */
	if (item != item->line->running)
		(void)turns_join(&item->line->turns, &item->waiting, place, owner);
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
	uv_timer_t *const timers[] = {&store->tend, &store->look, &store->patience};
	for (int i = 0; i < 3; i++) {
		uv_timer_init(&broker->loop, timers[i]);
		uv_unref((uv_handle_t *)timers[i]);
		timers[i]->data = broker;
	}
	broker->store = store;
	uv_timer_start(&store->look, on_store_look, PAUSE_STORE_LOOK_MS, PAUSE_STORE_LOOK_MS);
	/* The last to use the cache here: a report is written by the store's thread. */
	broker->events->cache_opened(broker, store->cache);
	look_for_damage(broker, &(struct cache_stats){0});
	/* A cap that is lower than last time leaves work behind. */
	tend(broker);
	return status;
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
	/* What was put off is done by closing. */
	uv_timer_stop(&store->tend);
	if (!store->ending)
		store->ending = store_run(broker, close_work, nothing, store) == KILN_OK;
	return store->ending && !store->calls.first;
}

void store_close(struct broker *broker)
{
	struct store *store = broker->store;
	if (!store)
		return;
	/* The loop has ended: one more turn lets go of the timers. */
	uv_close((uv_handle_t *)&store->tend, NULL);
	uv_close((uv_handle_t *)&store->look, NULL);
	uv_close((uv_handle_t *)&store->patience, NULL);
	uv_run(&broker->loop, UV_RUN_NOWAIT);
	cache_close(store->cache);
	turns_free(&store->calls.turns);
	turns_free(&store->aside.turns);
	free(store);
	broker->store = NULL;
}

/* ---- What is said of it ---- */

bool store_busy(const struct broker *broker)
{
	const struct store *store = broker->store;
	return store && (store->calls.first || store->aside.first);
}

bool store_is_crowded(const struct broker *broker)
{
	return broker->store->calls.count >= STORE_CROWD && stuck_us(broker);
}

static void tell_waits(const struct store_line *line, const char *what, waits_visit visit,
					   void *arg)
{
	uint64_t now = util_now_us();
	struct wait_note note = {.what = "store", .of = "store"};
	for (const struct store_item *item = line->first; item; item = item->next) {
		note.owner = item->arg;
		note.since_us = item->since_us;
		note.left_ms = item->late ? waits_left(item->due_us, now) : WAITS_NO_DEADLINE;
		if (item == line->running)
			waits_say(&note, "%s", what);
		else
			waits_say(&note, "its turn at %s, with %d others", what, line->count - 1);
		visit(arg, &note);
	}
}

void store_waits(const struct broker *broker, waits_visit visit, void *arg)
{
	const struct store_line *calls = &broker->store->calls;
	tell_waits(calls, "the cache", visit, arg);
	tell_waits(&broker->store->aside, "a thread", visit, arg);
	if (!calls->running)
		return;
	struct wait_note note = {.what = "store",
							 .of = "store",
							 .left_ms = WAITS_NO_DEADLINE,
							 .since_us = calls->running->since_us,
							 .count = (uint64_t)calls->count};
	waits_say(&note, "the disk of the cache");
	visit(arg, &note);
}

const struct cache_stats *store_stats(const struct broker *broker)
{
	return &broker->store->stats;
}

const char *store_trouble(const struct broker *broker, char text[KERNEL_ERROR_MAX])
{
	snprintf(text, KERNEL_ERROR_MAX, "%s", broker->store->stats.trouble);
	if (stuck_us(broker))
		say_stuck(broker, text);
	return text;
}
