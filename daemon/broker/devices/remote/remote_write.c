/*
 * remote_write.c: writes entries to the second tier.  The store's thread seals an entry, and a
 * queue of bounded bytes keeps it.  A connection for entries alone takes one at a time, so that no
 * ask waits behind an entry.  The command that gives up the claim follows the entry at once.
 * Winners of tuning go the same way, in the order in which they came; so do those that are taken
 * away.
 */
#include "remote_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/broker/devices/events.h"
#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/store.h"
#include "daemon/base/util.h"

#define TRIES 3 /* of one entry, over as many connections */

/*
 *     remote_compiled() etc.   sealed                  the connection is ready
 *   -----------------> SEALING ------> QUEUED --------------------------------> SENT --> freed
 *                         |              ^ |                                      |
 *                         |              | +-- no room, or TRIES connections -----+--> given up
 *                         +--> given up  +-------- the connection is lost --------+
 *
 * SEALING has the row or the winner, QUEUED and SENT the entry, if any.  The remote holds QUEUED
 * and SENT in its queue, whose first alone may be SENT; a SEALING one belongs to the store's work.
 */
enum write_state { WRITE_SEALING, WRITE_QUEUED, WRITE_SENT };

struct remote_write {
	struct remote *remote;
	char name[REMOTE_NAME_MAX]; /* of the entry or winner */
	char key[KERNEL_KEY_HEX];   /* whose claim is given up; "": a winner, which has none */
	enum write_state state;
	struct cache_row row;       /* SEALING: a kernel */
	struct cache_tuned *winner; /* SEALING: a winner; NULL: a kernel, or a winner to take away */
	int status;
	void *entry; /* QUEUED, SENT; NULL: what has the name is taken away */
	size_t bytes;
	int tries;
	uint64_t sent_us;
	struct remote_write *next;
};

static void remote_write_assert_valid(const struct remote_write *write)
{
	assert(write->state != WRITE_SEALING || !write->entry);
	assert(write->entry || !write->key[0] || write->state == WRITE_SEALING);
	assert(write->state != WRITE_SENT || write == write->remote->first);
	(void)write;
}

static void free_write(struct remote_write *write)
{
	cache_row_free(&write->row);
	free(write->winner);
	free(write->entry);
	free(write);
}

/* Drops an entry; another host may compile the kernel. */
static void remote_write_give_up(struct remote_write *write, uint64_t *counter)
{
	(*counter)++;
	remote_claim_release(write->remote, write->key);
	free_write(write);
}

/* ---- The queue ---- */

static struct remote_write *take_first(struct remote *remote)
{
	struct remote_write *write = remote->first;
	remote->first = write->next;
	if (!remote->first)
		remote->last = NULL;
	remote->queued--;
	remote->queued_bytes -= write->bytes;
	return write;
}

static void on_written(void *arg, const struct remote_reply *reply)
{
	struct remote *remote = arg;
	/* remote_write_stop() sees to the entries of a lost connection. */
	if (reply->kind == REMOTE_LOST || !remote->first || remote->first->state != WRITE_SENT)
		return;
	struct remote_write *write = take_first(remote);
	remote->write_due_us = REMOTE_NEVER;
	if (reply->kind == REMOTE_ERROR) {
		util_log(UTIL_WARN, "%s does not take %.26s: %.200s", remote->broker->options.remote.shown,
				 write->name, reply->bytes);
		remote_write_give_up(write, &remote->broker->counters.remote_write_failures);
	} else {
		remote->broker->counters.remote_written++;
		histogram_note(&remote->write_times, util_now_us() - write->sent_us);
		remote_claim_forget(remote, write->key);
		free_write(write);
	}
	remote_write_pump(remote);
	broker_progress(remote->broker);
}

static bool send_entry(struct remote *remote, const struct remote_write *write)
{
	uint64_t seconds = remote->broker->options.remote_ttl_seconds;
	struct remote_command set = {0}, del = {0};
	char claim[REMOTE_NAME_MAX], lasts[24];
	remote_claim_name(write->key, claim);
	snprintf(lasts, sizeof(lasts), "%llu", (unsigned long long)seconds);
	remote_word(&set, write->entry ? "SET" : "DEL");
	remote_word(&set, write->name);
	if (write->entry)
		remote_word_bytes(&set, write->entry, write->bytes);
	if (write->entry && seconds) {
		remote_word(&set, "EX");
		remote_word(&set, lasts);
	}
	remote_word(&del, "DEL");
	remote_word(&del, claim);
	return remote_link_send(remote->writes, &set, on_written, remote) &&
		   (!write->key[0] || remote_link_send(remote->writes, &del, NULL, NULL));
}

void remote_write_stop(struct remote *remote)
{
	struct remote_link *link = remote->writes;
	struct remote_write *write = remote->first;
	remote->writes = NULL;
	remote->writes_ready = false;
	remote->write_due_us = REMOTE_NEVER;
	bool gone = write && write->state == WRITE_SENT && write->tries >= TRIES;
	if (write)
		write->state = WRITE_QUEUED;
	if (gone)
		remote_write_give_up(take_first(remote), &remote->broker->counters.remote_write_failures);
	remote_link_close(link);
}

static void on_remote_write_ready(void *owner, uint64_t micros)
{
	struct remote *remote = owner;
	(void)micros;
	remote->writes_ready = true;
	remote->write_due_us = REMOTE_NEVER;
	remote_write_pump(remote);
}

static void on_remote_write_lost(void *owner, const char *why)
{
	struct remote *remote = owner;
	util_log(UTIL_DEBUG, "%s: %s", remote->broker->options.remote.shown, why);
	remote_write_stop(remote);
	/* Tries once more.  The next ask finds out whether the Redis can be reached at all. */
	remote_write_pump(remote);
}

/* Each try of the first entry costs one of its tries, so that no entry is tried for ever. */
static void connect_again(struct remote *remote)
{
	static const struct remote_link_events events = {on_remote_write_ready, on_remote_write_lost};
	struct remote_write *write = remote->first;
	if (write->tries >= TRIES) {
		remote_write_give_up(take_first(remote), &remote->broker->counters.remote_write_failures);
		remote_write_pump(remote);
		return;
	}
	write->tries++;
	remote->writes =
		remote_link_open(&remote->broker->loop, &remote->broker->options.remote, &events, remote);
	remote->write_due_us = remote->writes ? util_now_us() + DEADLINE_REMOTE_WRITE_US : REMOTE_NEVER;
	remote_arm(remote);
}

void remote_write_pump(struct remote *remote)
{
	struct remote_write *write = remote->first;
	if (write)
		remote_write_assert_valid(write);
	if (!write || write->state == WRITE_SENT || !remote_usable(remote))
		return;
	if (!remote->writes) {
		connect_again(remote);
	} else if (remote->writes_ready) {
		write->state = WRITE_SENT;
		write->sent_us = util_now_us();
		remote->write_due_us = write->sent_us + DEADLINE_REMOTE_WRITE_US;
		if (!send_entry(remote, write))
			remote_write_stop(remote);
		remote_arm(remote);
	}
}

uint64_t remote_write_since(const struct remote *remote, uint64_t now)
{
	return remote->first && remote->first->state == WRITE_SENT ? remote->first->sent_us : now;
}

void remote_write_tick(struct remote *remote, uint64_t now)
{
	if (now >= remote->write_due_us)
		remote_give_up(remote, "it does not take an entry in time");
}

uint64_t remote_write_due(const struct remote *remote)
{
	return remote->write_due_us;
}

void remote_write_free(struct remote *remote)
{
	while (remote->first)
		remote_write_give_up(take_first(remote), &remote->broker->counters.remote_write_failures);
}

/* ---- Sealing ---- */

static void seal_work(struct cache *cache, void *arg)
{
	struct remote_write *write = arg;
	struct remote *remote = write->remote;
	(void)cache;
	if (write->winner)
		write->status = remote_winner_make(&remote->secret, write->winner, util_wall_s(),
										   &write->entry, &write->bytes);
	else if (write->key[0])
		write->status = remote_entry_make(&remote->secret, &write->row, util_wall_s(),
										  remote->broker->options.remote_ttl_seconds, &write->entry,
										  &write->bytes);
}

static void seal_done(struct broker *broker, void *arg)
{
	struct remote_write *write = arg;
	struct remote *remote = write->remote;
	bool room = write->bytes <= broker->options.remote_queue_bytes - remote->queued_bytes;
	remote->sealing--;
	cache_row_free(&write->row);
	free(write->winner);
	write->winner = NULL;
	if (write->status != KILN_OK || !room) {
		remote_write_give_up(write, &broker->counters.remote_dropped);
		return;
	}
	write->state = WRITE_QUEUED;
	if (remote->last)
		remote->last->next = write;
	else
		remote->first = write;
	remote->last = write;
	remote->queued++;
	remote->queued_bytes += write->bytes;
	remote_write_pump(remote);
}

static void begin_write(struct remote_write *write, struct remote *remote)
{
	struct broker *broker = remote->broker;
	write->remote = remote;
	broker->counters.remote_writes++;
	remote->sealing++;
	if (store_aside(broker, TURN_NOBODY, seal_work, seal_done, write) != KILN_OK) {
		remote->sealing--;
		remote_write_give_up(write, &broker->counters.remote_dropped);
	}
}

void remote_compiled(struct broker *broker, struct cache_row *row)
{
	struct remote *remote = broker->remote;
	struct remote_write *write = remote && remote->seals ? calloc(1, sizeof(*write)) : NULL;
	if (!write)
		return;
	write->row = *row;
	memcpy(write->key, row->key, sizeof(write->key));
	remote_entry_name(write->key, write->name);
	*row = (struct cache_row){{0}};
	begin_write(write, remote);
}

void remote_write_winner(struct remote *remote, const char name[REMOTE_NAME_MAX],
						 const struct cache_tuned *row)
{
	struct remote_write *write = calloc(1, sizeof(*write));
	if (write && row && !(write->winner = malloc(sizeof(*row)))) {
		free(write);
		write = NULL;
	}
	if (!write)
		return;
	if (row)
		*write->winner = *row;
	memcpy(write->name, name, REMOTE_NAME_MAX);
	begin_write(write, remote);
}

void remote_not_compiled(struct broker *broker, const char *key)
{
	if (broker->remote)
		remote_claim_release(broker->remote, key);
}

uint64_t remote_queued(const struct broker *broker)
{
	const struct remote *remote = broker->remote;
	return remote ? remote->queued + (uint64_t)remote->sealing : 0;
}
