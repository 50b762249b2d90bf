/*
 * remote_fetch.c: one key asked of the second tier.
 *
 *                    no entry            ours, or nobody may compile
 *      ASK ----------------------> CLAIM ------------------------> answered: compile here
 *       |                          ^   |
 *       |            in a moment   |   | another host has the claim
 *       |                          |   v
 *       |                          WAIT -------------------------> answered: patience is over
 *       | entry                    | entry (CLAIM finds it)
 *       v                          v
 *      CHECK ----------------------------------------------------> answered: the row, or compile
 *
 * CLAIM asks for the entry once more: the host that had the claim writes the entry first and gives
 * up the claim then, so that a host with the claim and without the entry has to compile.  CHECK
 * verifies the seal on the store's thread; the fetch needs no connection then, which ASK, CLAIM and
 * WAIT end with.  A Redis answers in order; a late answer finds its fetch by number, or nothing.
 */
#include "remote_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"

enum fetch_state { FETCH_ASK, FETCH_CLAIM, FETCH_WAIT, FETCH_CHECK };

/* The claim of the key is held by one of these, as the last answer in CLAIM says. */
enum claimant { CLAIMANT_OTHER, CLAIMANT_NOBODY, CLAIMANT_US };

struct remote_fetch {
	struct remote *remote;
	uint64_t id;
	char key[KERNEL_KEY_HEX];
	char target[KERNEL_TARGET_MAX];
	struct turn_owner owner;
	enum fetch_state state;
	enum claimant claimant;
	bool compiles; /* if there is no entry */
	bool overtime; /* the deadline of the ask has passed, its grace has not */
	uint64_t began_us, sent_us, due_us, give_up_us;
	uint64_t waits_us; /* since when another host has had the claim; 0: none had it */
	remote_done done;
	void *arg;
	struct remote_fetch *next;
};

/* The argument of a reply: the fetch may be gone when it comes. */
struct ask {
	struct remote *remote;
	uint64_t id;
	char key[KERNEL_KEY_HEX];
};

static void remote_fetch_assert_valid(const struct remote_fetch *fetch)
{
	assert(fetch->compiles || fetch->state == FETCH_ASK || fetch->state == FETCH_CHECK);
	assert(fetch->claimant != CLAIMANT_US || fetch->compiles);
	assert((fetch->state == FETCH_CHECK) == (fetch->due_us == REMOTE_NEVER));
	assert(fetch->state != FETCH_WAIT || fetch->waits_us);
	(void)fetch; /* without asserts nothing uses it */
}

static struct remote_fetch *remote_fetch_find(const struct remote *remote, uint64_t id)
{
	struct remote_fetch *fetch = remote->fetches;
	while (fetch && fetch->id != id)
		fetch = fetch->next;
	return fetch;
}

static void unlink_fetch(struct remote_fetch *fetch)
{
	struct remote_fetch **link = &fetch->remote->fetches;
	while (*link != fetch)
		link = &(*link)->next;
	*link = fetch->next;
}

/* Answers and frees.  Without a row this host compiles, with its claim if it has that; with a row
 * no host has to. */
static void end(struct remote_fetch *fetch, uint64_t *counter, struct cache_row *row)
{
	struct remote *remote = fetch->remote;
	remote_fetch_assert_valid(fetch);
	unlink_fetch(fetch);
	(*counter)++;
	if (!row && !fetch->waits_us)
		histogram_note(&remote->miss_times, util_now_us() - fetch->began_us);
	if (fetch->claimant == CLAIMANT_US)
		remote_claim_hold(remote, fetch->key, fetch->sent_us);
	if (fetch->claimant == CLAIMANT_US && row)
		remote_claim_release(remote, fetch->key);
	fetch->done(fetch->arg, row);
	free(fetch);
}

static void end_badly(struct remote_fetch *fetch, const char *why)
{
	struct remote *remote = fetch->remote;
	end(fetch, &remote->broker->counters.remote_failures, NULL);
	remote_trouble(remote, why);
}

/* ---- Checking an entry ---- */

struct check {
	struct ask ask;
	char target[KERNEL_TARGET_MAX];
	int trusted;
	void *entry;
	size_t bytes;
	struct cache_row row;
	int status;
	char error[KERNEL_ERROR_MAX];
};

static void check_work(struct cache *cache, void *arg)
{
	struct check *check = arg;
	struct seal_ring *trusted = NULL;
	(void)cache;
	/* Reads the keys anew each time: distrust takes effect at once. */
	check->status =
		seal_ring_open(check->ask.remote->broker->options.trust_dir, &trusted, check->error);
	if (check->status != KILN_OK)
		return;
	check->trusted = seal_ring_count(trusted);
	check->status = remote_entry_open(trusted, check->ask.key, check->target, check->entry,
									  check->bytes, util_wall_s(), &check->row, check->error);
	seal_ring_free(trusted);
}

static void refuse(struct remote_fetch *fetch, const char *why)
{
	struct remote *remote = fetch->remote;
	util_log(UTIL_WARN, "from %s: %s; kernel %.12s is compiled here",
			 remote->broker->options.remote.shown, why, fetch->key);
	end(fetch, &remote->broker->counters.remote_refused, NULL);
}

static void check_done(struct broker *broker, void *arg)
{
	struct check *check = arg;
	struct remote_fetch *fetch = remote_fetch_find(check->ask.remote, check->ask.id);
	check->ask.remote->trusted = check->trusted;
	if (fetch && check->status == KILN_OK) {
		broker->counters.remote_waits += fetch->waits_us != 0;
		end(fetch, &broker->counters.lookup_remote, &check->row);
	} else if (fetch) {
		refuse(fetch, check->error);
	}
	cache_row_free(&check->row);
	free(check->entry);
	free(check);
}

/* Copies the bytes of the reply, which are gone after this. */
static void check_entry(struct remote_fetch *fetch, const struct remote_reply *reply)
{
	struct check *check = calloc(1, sizeof(*check));
	void *copy = malloc(reply->size);
	if (check && copy) {
		check->ask = (struct ask){.remote = fetch->remote, .id = fetch->id};
		memcpy(check->ask.key, fetch->key, sizeof(check->ask.key));
		memcpy(check->target, fetch->target, sizeof(check->target));
		memcpy(copy, reply->bytes, reply->size);
		check->entry = copy;
		check->bytes = reply->size;
		fetch->state = FETCH_CHECK;
		fetch->due_us = REMOTE_NEVER;
		if (store_aside(fetch->remote->broker, fetch->owner, check_work, check_done, check) ==
			KILN_OK)
			return;
	}
	free(check);
	free(copy);
	end(fetch, &fetch->remote->broker->counters.remote_failures, NULL);
}

/* ---- Asking ---- */

static bool send_ask(struct remote_fetch *fetch, struct remote_command *command,
					 remote_answered answered)
{
	struct ask *ask = malloc(sizeof(*ask));
	if (!ask)
		return false;
	*ask = (struct ask){.remote = fetch->remote, .id = fetch->id};
	memcpy(ask->key, fetch->key, sizeof(ask->key));
	if (remote_link_send(fetch->remote->asks, command, answered, ask))
		return true;
	free(ask);
	return false;
}

static bool send_claim(struct remote_fetch *fetch);
static void on_entry(void *arg, const struct remote_reply *reply);

/* Gets an entry, or "" without one.  One byte more than an entry may have shows a larger one. */
static bool send_get(struct remote_fetch *fetch)
{
	struct remote_command command = {0};
	char name[REMOTE_NAME_MAX], most[24];
	remote_entry_name(fetch->key, name);
	snprintf(most, sizeof(most), "%zu", REMOTE_ENTRY_MOST);
	remote_word(&command, "GETRANGE");
	remote_word(&command, name);
	remote_word(&command, "0");
	remote_word(&command, most);
	fetch->sent_us = util_now_us();
	return send_ask(fetch, &command, on_entry);
}

static void claim(struct remote_fetch *fetch)
{
	fetch->state = FETCH_CLAIM;
	fetch->claimant = CLAIMANT_OTHER;
	fetch->overtime = false;
	if (!send_claim(fetch) || !send_get(fetch))
		end_badly(fetch, "out of memory for an ask");
}

static void wait_for_other(struct remote_fetch *fetch)
{
	uint64_t now = util_now_us();
	if (!fetch->waits_us)
		fetch->waits_us = now;
	uint64_t pause = (now - fetch->waits_us) / 8;
	if (pause < PAUSE_REMOTE_POLL_LEAST_US)
		pause = PAUSE_REMOTE_POLL_LEAST_US;
	if (pause > PAUSE_REMOTE_POLL_MOST_US)
		pause = PAUSE_REMOTE_POLL_MOST_US;
	fetch->state = FETCH_WAIT;
	fetch->due_us = now + pause;
	remote_fetch_assert_valid(fetch);
	remote_arm(fetch->remote);
}

static void on_entry(void *arg, const struct remote_reply *reply)
{
	struct ask *ask = arg;
	struct remote_fetch *fetch = remote_fetch_find(ask->remote, ask->id);
	free(ask);
	/* The breaker hears of a lost connection, and ends the fetch. */
	if (!fetch || reply->kind == REMOTE_LOST)
		return;
	bool wrong_type = reply->kind == REMOTE_ERROR && !strncmp(reply->bytes, "WRONGTYPE", 9);
	if (reply->kind == REMOTE_BYTES || wrong_type)
		remote_answer_came(fetch->remote, util_now_us() - fetch->sent_us);
	if (wrong_type)
		refuse(fetch, "there is no entry but a value of another type");
	else if (reply->kind != REMOTE_BYTES)
		end_badly(fetch, reply->kind == REMOTE_ERROR ? reply->bytes : "an answer of another kind");
	else if (reply->size > REMOTE_ENTRY_MOST)
		refuse(fetch, "the entry is larger than entries are");
	else if (reply->size)
		check_entry(fetch, reply);
	else if (fetch->state == FETCH_ASK && fetch->compiles)
		claim(fetch);
	else if (fetch->state == FETCH_ASK || fetch->claimant != CLAIMANT_OTHER)
		end(fetch, &fetch->remote->broker->counters.remote_misses, NULL);
	else
		wait_for_other(fetch);
}

/* SET answers OK or nil, EXISTS a number.  A Redis that is read-only answers SET with an error. */
static void on_claim(void *arg, const struct remote_reply *reply)
{
	struct ask *ask = arg;
	struct remote_fetch *fetch = remote_fetch_find(ask->remote, ask->id);
	bool ours = reply->kind == REMOTE_BYTES;
	bool nobodys =
		reply->kind == REMOTE_ERROR || (reply->kind == REMOTE_NUMBER && reply->number == 0);
	if (fetch) {
		fetch->claimant = ours ? CLAIMANT_US : nobodys ? CLAIMANT_NOBODY : CLAIMANT_OTHER;
	} else if (ours) {
		/* The fetch was left. */
		remote_claim_hold(ask->remote, ask->key, util_now_us());
		remote_claim_release(ask->remote, ask->key);
	}
	free(ask);
}

/* A host that cannot seal entries claims nothing, and waits for hosts that can. */
static bool send_claim(struct remote_fetch *fetch)
{
	struct remote_command command = {0};
	char name[REMOTE_NAME_MAX], lasts[16];
	remote_claim_name(fetch->key, name);
	snprintf(lasts, sizeof(lasts), "%u", remote_claim_ms(fetch->remote));
	remote_word(&command, fetch->remote->seals ? "SET" : "EXISTS");
	remote_word(&command, name);
	if (fetch->remote->seals) {
		remote_word(&command, fetch->remote->claimant);
		remote_word(&command, "NX");
		remote_word(&command, "PX");
		remote_word(&command, lasts);
	}
	return send_ask(fetch, &command, on_claim);
}

/* ---- Time ---- */

static void poll_again(struct remote_fetch *fetch, uint64_t now)
{
	struct remote *remote = fetch->remote;
	if (now >= fetch->give_up_us) {
		remote->broker->counters.remote_overdue++;
		end(fetch, &remote->broker->counters.remote_misses, NULL);
		return;
	}
	fetch->due_us = now + remote->broker->options.remote_deadline_ms * 1000;
	claim(fetch);
}

static void overdue(struct remote_fetch *fetch, uint64_t now)
{
	char why[KERNEL_ERROR_MAX];
	if (fetch->state == FETCH_WAIT) {
		poll_again(fetch, now);
	} else if (!fetch->overtime) {
		fetch->overtime = true;
		fetch->due_us = now + DEADLINE_REMOTE_GRACE_US;
	} else {
		snprintf(why, sizeof(why), "it does not answer within %llu ms",
				 (unsigned long long)fetch->remote->broker->options.remote_deadline_ms);
		end_badly(fetch, why);
	}
}

void remote_fetch_tick(struct remote *remote, uint64_t now)
{
	struct remote_fetch *fetch = remote->fetches;
	/* The callback of one that ends may end others. */
	while (fetch) {
		if (fetch->due_us > now) {
			fetch = fetch->next;
			continue;
		}
		overdue(fetch, now);
		fetch = remote->fetches;
	}
}

uint64_t remote_fetch_due(const struct remote *remote)
{
	uint64_t first = REMOTE_NEVER;
	for (const struct remote_fetch *fetch = remote->fetches; fetch; fetch = fetch->next)
		if (fetch->due_us < first)
			first = fetch->due_us;
	return first;
}

void remote_fetch_end_all(struct remote *remote)
{
	struct remote_fetch *fetch = remote->fetches;
	while (fetch) {
		if (fetch->state == FETCH_CHECK) {
			fetch = fetch->next;
			continue;
		}
		fetch->claimant = CLAIMANT_OTHER;
		end(fetch, &remote->broker->counters.remote_failures, NULL);
		fetch = remote->fetches;
	}
}

/* Returns how long to wait for another host: twice the time of this operator's compiles here. */
static uint64_t patience(struct remote *remote, const char *op)
{
	const struct broker *broker = remote->broker;
	const struct histogram *times = &operator_tally(&remote->broker->operators, op)->compile;
	uint64_t most = broker->options.compile_timeout_ms * 1000;
	uint64_t wait =
		times->count ? 2 * histogram_quantile(times, 990) : DEADLINE_REMOTE_OTHER_UNKNOWN_US;
	if (broker->test.remote_patience_ms)
		return broker->test.remote_patience_ms * (uint64_t)1000;
	if (wait < DEADLINE_REMOTE_OTHER_LEAST_US)
		wait = DEADLINE_REMOTE_OTHER_LEAST_US;
	return wait < most ? wait : most;
}

/* ---- Opening and leaving ---- */

struct remote_fetch *remote_fetch(struct broker *broker, const struct remote_want *want,
								  remote_done done, void *arg)
{
	struct remote *remote = broker->remote;
	if (!remote)
		return NULL;
	if (!remote_usable(remote)) {
		broker->counters.remote_skipped++;
		return NULL;
	}
	struct remote_fetch *fetch = calloc(1, sizeof(*fetch));
	if (!fetch)
		return NULL;
	uint64_t now = util_now_us();
	*fetch = (struct remote_fetch){.remote = remote,
								   .id = broker_id(broker),
								   .began_us = now,
								   .due_us = now + broker->options.remote_deadline_ms * 1000,
								   .give_up_us = now + patience(remote, want->op),
								   .owner = want->owner,
								   .compiles = want->compiles,
								   .done = done,
								   .arg = arg};
	memcpy(fetch->key, want->key, sizeof(fetch->key));
	snprintf(fetch->target, sizeof(fetch->target), "%s", want->target);
	if (!send_get(fetch)) {
		free(fetch);
		return NULL;
	}
	fetch->next = remote->fetches;
	remote->fetches = fetch;
	broker->counters.remote_asks++;
	remote_arm(remote);
	return fetch;
}

void remote_leave(struct broker *broker, struct remote_fetch *fetch)
{
	struct remote *remote = fetch->remote;
	broker->counters.remote_left++;
	unlink_fetch(fetch);
	if (fetch->claimant == CLAIMANT_US) {
		remote_claim_hold(remote, fetch->key, fetch->sent_us);
		remote_claim_release(remote, fetch->key);
	}
	free(fetch);
}

void remote_note(const struct remote_fetch *fetch, struct wait_note *note)
{
	uint64_t now = util_now_us();
	bool other = fetch->waits_us && fetch->state != FETCH_CHECK;
	note->what = other ? "host" : fetch->state == FETCH_CHECK ? "store" : "remote";
	note->of = other ? "host" : fetch->state == FETCH_CHECK ? "store" : "redis";
	waits_say(note, "%s",
			  other                         ? "another host, which compiles it"
			  : fetch->state == FETCH_CHECK ? "the seal of what another host compiled"
											: "an answer whether another host has it");
	if (other)
		note->left_ms = waits_left(fetch->give_up_us, now);
	else if (fetch->due_us != REMOTE_NEVER)
		note->left_ms = waits_left(fetch->due_us, now);
}

bool remote_is_waiting(const struct remote_fetch *fetch)
{
	return fetch->waits_us != 0;
}

uint64_t remote_asking(const struct broker *broker)
{
	uint64_t count = 0;
	if (broker->remote)
		for (const struct remote_fetch *fetch = broker->remote->fetches; fetch; fetch = fetch->next)
			count++;
	return count;
}
