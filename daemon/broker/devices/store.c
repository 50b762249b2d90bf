/*
 * store.c: two lines of calls in front of libuv's threads, each with one call in flight: `calls`
 * has the cache, `aside` needs none.  Between the calls the cache does what it has put off.
 *
 *   QUEUED --its turn--> RUNNING --the thread is done--> done(), freed
 *     |                     |
 *     |                     +--its time is over--> TOLD --the thread is done--> done(), freed
 *     +--its time is over--> late(), done(), freed
 *
 * Invariants: exactly one item of a line that has any is RUNNING or TOLD: line->running.  The
 * thread writes that item's stats, and uses store->cache when its line is `calls`.  All items of a
 * line are in its list, oldest first.  A QUEUED item is besides in the line's own list (the
 * daemon's own) or has places in its turns.  late() is called at most once.
 */
#include "store_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/deadlines.h"
#include "daemon/base/list.h"
#include "daemon/broker/devices/events.h"
#include "daemon/base/util.h"

#define STORE_CROWD 256 /* calls */

static void item_assert_valid(const struct store_item *item)
{
	const struct store_line *line = item->line;
	assert((item->state == ITEM_QUEUED) == (item != line->running));
	assert(item->state == ITEM_QUEUED || (!item->waiting.places && !item->own_next));
	assert(item->state != ITEM_TOLD || item->late);
	assert(line->count > 0 && line->first && line->last);
	(void)item, (void)line; /* without asserts nothing uses them */
}

/* ---- A disk that takes its time ---- */

static uint64_t patience_us(const struct broker *broker)
{
	uint32_t ms = broker->test.store_deadline_ms;
	return (uint64_t)(ms ? ms : DEADLINE_STORE_MS) * 1000;
}

/* Returns how long the call in flight has kept the others; 0: not too long yet. */
static uint64_t stuck_us(const struct broker *broker)
{
	const struct store_item *running = broker->store->calls.running;
	uint64_t taken = running ? util_now_us() - running->since_us : 0;
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

static void on_patience(uv_timer_t *timer);

/* Has on_patience() look for overdue calls then, or earlier. */
static void watch_until(struct broker *broker, uint64_t due_us)
{
	uv_timer_t *timer = &broker->store->timers[TIMER_PATIENCE];
	uint64_t now = util_now_us(), ms = due_us > now ? (due_us - now) / 1000 + 1 : 0;
	if (!uv_is_active((uv_handle_t *)timer) || uv_timer_get_due_in(timer) > ms)
		uv_timer_start(timer, on_patience, ms, 0);
}

/* ---- The lines ---- */

/* As long as a test wants it. */
static void delay(struct broker *broker)
{
	for (uint32_t ms = 0; ms < broker->test.delay_store_ms; ms += PAUSE_FAULT_LOOK_MS)
		uv_sleep(PAUSE_FAULT_LOOK_MS);
}

static void run_item(uv_work_t *request)
{
	struct store_item *item = request->data;
	struct store *store = item->broker->store;
	bool aside = item->line == &store->aside;
	delay(item->broker);
	item->work(aside ? NULL : store->cache, item->arg);
	if (!aside && store->cache)
		cache_stats(store->cache, &item->stats);
}

static void finished(uv_work_t *request, int status);

/* Begins the next call: the daemon's own before those of sessions. */
static void start_next(struct broker *broker, struct store_line *line)
{
	struct store_item *item = line->own;
	if (item) {
		line->own = item->own_next;
		if (!line->own)
			line->own_end = &line->own;
		item->own_next = NULL;
	} else {
		item = (struct store_item *)turns_take(&line->turns);
	}
	line->running = item;
	if (!item)
		return;
	item->state = ITEM_RUNNING;
	item->request.data = item;
	item->since_us = util_now_us();
	item_assert_valid(item);
	if (line == &broker->store->calls)
		watch_until(broker, item->since_us + patience_us(broker));
	uv_queue_work(&broker->loop, &item->request, run_item, finished);
}

static void unlink_item(struct store_item *item)
{
	struct store_line *line = item->line;
	turns_leave_all(&item->waiting);
	QUEUE_REMOVE(line->first, line->last, item);
	line->count--;
}

static void end_item(struct store_item *item)
{
	if (item->done)
		item->done(item->broker, item->arg);
	free(item);
}

static void finished(uv_work_t *request, int status)
{
	struct store_item *item = request->data;
	struct broker *broker = item->broker;
	struct store *store = broker->store;
	struct store_line *line = item->line;
	(void)status; /* nothing here is ever canceled */
	item_assert_valid(item);
	const struct cache_stats before = store->stats;
	if (line == &store->calls) {
		store->stats = item->stats;
		if (store->stuck)
			util_log(UTIL_INFO, "the disk of the cache answered after %.1f s",
					 (double)(util_now_us() - item->since_us) / 1e6);
		store->stuck = false;
	}
	unlink_item(item);
	start_next(broker, line);
	end_item(item);
	store_tend(broker, &before);
	broker_progress(broker);
}

/* Queues a copy of `call`.  owner NULL: the daemon itself.  NULL without memory. */
static struct store_item *store_enter(struct broker *broker, struct store_line *line,
									  const struct turn_owner *owner, const struct store_item *call)
{
	struct store_item *item = malloc(sizeof(*item));
	if (!item)
		return NULL;
	*item = *call;
	item->broker = broker;
	item->line = line;
	item->since_us = util_now_us();
	item->stats = broker->store->stats;
	if (owner && turns_join(&line->turns, &item->waiting, &item->place, *owner) < 0) {
		free(item);
		return NULL;
	}
	if (!owner) {
		*line->own_end = item;
		line->own_end = &item->own_next;
	}
	QUEUE_APPEND(line->first, line->last, item);
	line->count++;
	if (!line->running)
		start_next(broker, line);
	item_assert_valid(item);
	return item;
}

int store_run(struct broker *broker, store_work work, store_done done, void *arg)
{
	const struct store_item call = {.work = work, .done = done, .arg = arg};
	return store_enter(broker, &broker->store->calls, NULL, &call) ? KILN_OK : KILN_ENOMEM;
}

int store_aside(struct broker *broker, struct turn_owner owner, store_work work, store_done done,
				void *arg)
{
	const struct store_item call = {.work = work, .done = done, .arg = arg};
	return store_enter(broker, &broker->store->aside, &owner, &call) ? KILN_OK : KILN_ENOMEM;
}

int store_wait(struct broker *broker, struct turn_owner owner, store_work work, store_done done,
			   store_late late, void *arg, struct store_item **out)
{
	uint64_t due_us = util_now_us() + (stuck_us(broker) ? 0 : patience_us(broker));
	const struct store_item call = {
		.work = work, .done = done, .late = late, .arg = arg, .due_us = due_us};
	struct store_item *item = store_enter(broker, &broker->store->calls, &owner, &call);
	if (!item)
		return KILN_ENOMEM;
	if (late)
		watch_until(broker, due_us);
	if (out)
		*out = item;
	return KILN_OK;
}

void store_join(struct store_item *item, struct turn_owner owner, struct turn_place *place)
{
	/* Without memory for a turn of its own, this owner has the turn of the first who asked. */
	if (item->state == ITEM_QUEUED)
		(void)turns_join(&item->line->turns, &item->waiting, place, owner);
}

/* ---- Deadlines ---- */

static bool has_deadline(const struct store_item *item)
{
	return item->late && item->state != ITEM_TOLD;
}

static void on_patience(uv_timer_t *timer)
{
	struct broker *broker = timer->data;
	struct store *store = broker->store;
	struct store_line *calls = &store->calls;
	char text[KERNEL_ERROR_MAX];
	if (!store->stuck && stuck_us(broker)) {
		store->stuck = true;
		say_stuck(broker, text);
		util_log(UTIL_WARN, "%s", text);
	}
	uint64_t now = util_now_us();
	struct store_item *item = calls->first;
	while (item) {
		if (!has_deadline(item) || (!store->stuck && item->due_us > now)) {
			item = item->next;
			continue;
		}
		bool left = item->state == ITEM_QUEUED;
		if (left)
			unlink_item(item);
		else
			item->state = ITEM_TOLD;
		say_stuck(broker, text);
		item->late(broker, item->arg, text);
		if (left)
			end_item(item);
		item = calls->first; /* the callbacks may have asked for more */
	}
	if (calls->running && !store->stuck)
		watch_until(broker, calls->running->since_us + patience_us(broker));
	/* The oldest deadline is the next, unless a test has shortened those of later calls. */
	for (item = calls->first; item && !has_deadline(item);)
		item = item->next;
	uint64_t at_most = util_now_us() + patience_us(broker);
	if (item)
		watch_until(broker, item->due_us < at_most ? item->due_us : at_most);
	broker_progress(broker);
}

/* ---- Figures ---- */

bool store_busy(const struct broker *broker)
{
	const struct store *store = broker->store;
	return store && (store->calls.first || store->aside.first);
}

bool store_is_crowded(const struct broker *broker)
{
	return broker->store->calls.count >= STORE_CROWD && stuck_us(broker);
}

static void note_line(const struct store_line *line, const char *what, waits_visit visit, void *arg)
{
	uint64_t now = util_now_us();
	struct wait_note note = {.what = "store", .of = "store"};
	for (const struct store_item *item = line->first; item; item = item->next) {
		note.owner = item->arg;
		note.since_us = item->since_us;
		note.left_ms = has_deadline(item) ? waits_left(item->due_us, now) : WAITS_NO_DEADLINE;
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
	note_line(calls, "the cache", visit, arg);
	note_line(&broker->store->aside, "a thread", visit, arg);
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

const char *store_trouble(const struct broker *broker, char text[KERNEL_ERROR_MAX])
{
	snprintf(text, KERNEL_ERROR_MAX, "%s", broker->store->stats.trouble);
	if (stuck_us(broker))
		say_stuck(broker, text);
	return text;
}
