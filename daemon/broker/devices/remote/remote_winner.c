/*
 * remote_winner.c: winners of tuning in the second tier.
 *
 *   remote_winner_look() ---> LOOKING --an answer--> CHECKING --the seal fits---> done(row)
 *                                |                       |
 *                                +--none, or it is lost--+--it does not---------> done(NULL)
 *
 * Nobody waits for a look: whoever plans goes on with what is known here, and the next plan of the
 * class finds what came.  Looks end with their connection, which ends when it answers none of them.
 */
#include "remote_state.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"

#define LOOKS_MOST \
	64 /* under way; the classes of further plans are looked for when planned again */
#define CLASS_DIGITS (KERNEL_KEY_HEX - 1)

struct look {
	struct remote *remote;
	struct cache_tuned place;
	char name[REMOTE_NAME_MAX];
	remote_winner_done done;
	void *arg;
	void *entry; /* CHECKING */
	size_t bytes;
	struct cache_tuned row;
	int status;
	char error[KERNEL_ERROR_MAX];
};

/* ---- When to look ---- */

static const char *class_of(const char *name)
{
	return name + sizeof("kiln:1:winner:") - 1;
}

/* The map has times in place of values: microseconds, of which none is 0. */
static void note_look(struct remote *remote, const char *name)
{
	struct map *seen = &remote->winners_seen;
	if (seen->count >= CACHE_TUNED_MOST)
		(void)map_take(seen);
	/* Without memory for it, the class is looked for again. */
	(void)map_put(seen, class_of(name), CLASS_DIGITS, (void *)(uintptr_t)util_now_us());
}

bool remote_winner_due(const struct broker *broker, const struct cache_tuned *place)
{
	const struct remote *remote = broker->remote;
	char name[REMOTE_NAME_MAX];
	if (!remote || !remote_usable(remote) || remote->winners_looking >= LOOKS_MOST)
		return false;
	remote_winner_name(place, name);
	uint64_t last = (uintptr_t)map_get(&remote->winners_seen, class_of(name), CLASS_DIGITS);
	uint32_t wanted = broker->test.remote_look_ms;
	uint64_t pause = wanted ? wanted * (uint64_t)1000 : PAUSE_REMOTE_LOOK_US;
	return !last || util_now_us() - last >= pause;
}

/* Sets when the next answer must have come. */
static void expect_answer(struct remote *remote)
{
	remote->look_due_us =
		remote->looks_sent ? util_now_us() + DEADLINE_REMOTE_LOOK_US : REMOTE_NEVER;
	remote_arm(remote);
}

void remote_winner_tick(struct remote *remote, uint64_t now)
{
	if (now >= remote->look_due_us)
		remote_give_up(remote, "it does not answer whether it has a winner of tuning");
}

uint64_t remote_winner_tick_due(const struct remote *remote)
{
	return remote->look_due_us;
}

/* ---- A look ---- */

/* Answers and frees.  The owner counts a row. */
static void end_look(struct look *look, uint64_t *counter)
{
	struct remote *remote = look->remote;
	remote->winners_looking--;
	if (counter)
		(*counter)++;
	look->done(remote->broker, look->arg, counter ? NULL : &look->row);
	free(look->entry);
	free(look);
}

static void refuse_winner(struct look *look, const char *why)
{
	struct broker *broker = look->remote->broker;
	util_log(UTIL_WARN, "from %s: %s; it is not used", broker->options.remote.shown, why);
	end_look(look, &broker->counters.winner_refused);
}

/* A winner that somebody uses stays there. */
static void renew_winner(const struct look *look)
{
	struct remote *remote = look->remote;
	uint64_t seconds = remote->broker->options.remote_ttl_seconds;
	struct remote_command command = {0};
	char lasts[24];
	if (!seconds || !remote_usable(remote))
		return;
	snprintf(lasts, sizeof(lasts), "%llu", (unsigned long long)seconds * 1000);
	remote_word(&command, "PEXPIRE");
	remote_word(&command, look->name);
	remote_word(&command, lasts);
	(void)remote_link_send(remote->asks, &command, NULL, NULL);
}

static void check_work(struct cache *cache, void *arg)
{
	struct look *look = arg;
	struct seal_ring *trusted = NULL;
	(void)cache;
	look->status = seal_ring_open(look->remote->broker->options.trust_dir, &trusted, look->error);
	if (look->status != KILN_OK)
		return;
	look->status = remote_winner_open(trusted, &look->place, look->entry, look->bytes,
									  util_wall_s(), &look->row, look->error);
	seal_ring_free(trusted);
}

static void check_done(struct broker *broker, void *arg)
{
	struct look *look = arg;
	(void)broker;
	if (look->status != KILN_OK) {
		refuse_winner(look, look->error);
		return;
	}
	renew_winner(look);
	end_look(look, NULL);
}

static void check_winner(struct look *look, const struct remote_reply *reply)
{
	struct broker *broker = look->remote->broker;
	look->entry = malloc(reply->size);
	look->bytes = reply->size;
	if (look->entry)
		memcpy(look->entry, reply->bytes, reply->size);
	if (!look->entry || store_aside(broker, TURN_NOBODY, check_work, check_done, look) != KILN_OK)
		end_look(look, &broker->counters.winner_failures);
}

static void on_winner(void *arg, const struct remote_reply *reply)
{
	struct look *look = arg;
	struct remote *remote = look->remote;
	struct counters *counters = &remote->broker->counters;
	remote->looks_sent--;
	expect_answer(remote);
	if (reply->kind == REMOTE_BYTES && reply->size > REMOTE_WINNER_MOST)
		refuse_winner(look, "a winner of tuning is larger than winners are");
	else if (reply->kind == REMOTE_BYTES && reply->size)
		check_winner(look, reply);
	else if (reply->kind == REMOTE_BYTES)
		end_look(look, &counters->winner_misses);
	else if (reply->kind == REMOTE_ERROR && !strncmp(reply->bytes, "WRONGTYPE", 9))
		refuse_winner(look, "in place of a winner of tuning there is a value of another type");
	else {
		/* It was not there to be asked: the next plan asks again. */
		if (reply->kind == REMOTE_LOST)
			(void)map_remove(&remote->winners_seen, class_of(look->name), CLASS_DIGITS);
		end_look(look, &counters->winner_failures);
	}
}

bool remote_winner_look(struct broker *broker, const struct cache_tuned *place,
						remote_winner_done done, void *arg)
{
	struct remote *remote = broker->remote;
	struct remote_command command = {0};
	char most[24];
	struct look *look = calloc(1, sizeof(*look));
	if (!look)
		return false;
	look->remote = remote;
	look->place = *place;
	look->done = done;
	look->arg = arg;
	remote_winner_name(place, look->name);
	/* One byte more than a winner may have shows a larger one. */
	snprintf(most, sizeof(most), "%zu", REMOTE_WINNER_MOST);
	remote_word(&command, "GETRANGE");
	remote_word(&command, look->name);
	remote_word(&command, "0");
	remote_word(&command, most);
	if (!remote_link_send(remote->asks, &command, on_winner, look)) {
		free(look);
		return false;
	}
	note_look(remote, look->name);
	remote->winners_looking++;
	if (remote->looks_sent++ == 0)
		expect_answer(remote);
	broker->counters.winner_asks++;
	return true;
}

uint64_t remote_winner_looking(const struct broker *broker)
{
	return broker->remote ? (uint64_t)broker->remote->winners_looking : 0;
}

/* ---- Writing ---- */

/* The class counts as looked for: an older winner may be there for a moment yet. */
static void write_winner(struct broker *broker, const struct cache_tuned *place,
						 const struct cache_tuned *row)
{
	struct remote *remote = broker->remote;
	char name[REMOTE_NAME_MAX];
	if (!remote)
		return;
	remote_winner_name(place, name);
	note_look(remote, name);
	if (remote->seals)
		remote_write_winner(remote, name, row);
}

void remote_winner_put(struct broker *broker, const struct cache_tuned *row)
{
	write_winner(broker, row, row);
}

void remote_winner_remove(struct broker *broker, const struct cache_tuned *place)
{
	write_winner(broker, place, NULL);
}
