/* waits.c: goes over all sessions and asks the rooms what keeps each request. */
#include "waits.h"

#include <stdlib.h>

#include "daemon/broker/devices/handle.h"
#include "daemon/broker/devices/pool/alt_compiler.h"
#include "daemon/broker/devices/remote/remote.h"
#include "daemon/broker/devices/store.h"
#include "daemon/broker/calls/lane.h"
#include "daemon/broker/calls/work_waits.h"
#include "daemon/broker/requests/request.h"
#include "drain.h"
#include "peer.h"

#define NOTES_MOST 65536

struct collecting {
	struct broker *broker;
	struct wait_note *notes; /* by owner, once all are there */
	bool *claimed;
	size_t count, room;
	struct wait_row *rows;
	int most, shown, youngest;
	uint64_t all;
};

/* ---- Rows: the oldest ones stay ---- */

static void add_row(struct collecting *all, const struct wait_row *row)
{
	all->all++;
	if (all->shown < all->most)
		all->rows[all->shown++] = *row;
	else if (row->note.since_us < all->rows[all->youngest].note.since_us)
		all->rows[all->youngest] = *row;
	else
		return;
	if (all->shown < all->most)
		return;
	all->youngest = 0;
	for (int i = 1; i < all->shown; i++)
		if (all->rows[i].note.since_us > all->rows[all->youngest].note.since_us)
			all->youngest = i;
}

static void waits_add(struct collecting *all, const struct session *session, const char *asked,
					  uint64_t request, const struct wait_note *note)
{
	struct wait_row row = {.asked = asked, .request = request, .note = *note};
	if (session) {
		row.session = session->id;
		row.uid = session->uid;
		row.pid = session->pid;
	}
	add_row(all, &row);
}

/* ---- Notes ---- */

static void keep_note(void *arg, const struct wait_note *note)
{
	struct collecting *all = arg;
	if (!note->owner) {
		waits_add(all, NULL, "", 0, note);
		return;
	}
	if (all->count == all->room) {
		size_t room = all->room ? 2 * all->room : 256;
		struct wait_note *more =
			room <= NOTES_MOST ? realloc(all->notes, room * sizeof(*more)) : NULL;
		if (!more)
			return;
		all->notes = more;
		all->room = room;
	}
	all->notes[all->count++] = *note;
}

static int by_owner(const void *a, const void *b)
{
	const struct wait_note *x = a, *y = b;
	return x->owner < y->owner ? -1 : x->owner > y->owner;
}

/* Finds the note of this owner and claims it; NULL: there is none. */
static const struct wait_note *waits_find(struct collecting *all, const void *owner)
{
	struct wait_note key = {.owner = owner};
	const struct wait_note *found =
		all->count ? bsearch(&key, all->notes, all->count, sizeof(key), by_owner) : NULL;
	if (found)
		all->claimed[found - all->notes] = true;
	return found;
}

/* ---- Sessions ---- */

static void add_request(struct collecting *all, const struct session *session,
						const struct request *request)
{
	const struct wait_note *found = request->doing ? waits_find(all, request->doing) : NULL;
	struct wait_note note = {.what = "loop", .of = "", .left_ms = WAITS_NO_DEADLINE};
	if (!found)
		found = waits_find(all, request);
	if (found)
		note = *found;
	else
		waits_say(&note, "its turn");
	note.since_us = request->since_us;
	waits_add(all, session, request->name, request->id, &note);
}

struct adding {
	struct collecting *all;
	const struct session *session;
};

static void add_work(void *arg, const struct work_wait *wait)
{
	const struct adding *adding = arg;
	const struct wait_note *found = wait->owner ? waits_find(adding->all, wait->owner) : NULL;
	struct wait_note note = found ? *found : wait->note;
	note.since_us = wait->since_us;
	waits_add(adding->all, adding->session, wait->asked, wait->ticket, &note);
}

static void add_session(struct collecting *all, const struct session *session)
{
	struct wait_note peers[PEER_NOTES], lanes[LANE_NOTES];
	int peer_count = peer_waits(session->peer, peers), lane_count = lane_waits(session, lanes);
	for (int i = 0; i < peer_count; i++)
		waits_add(all, session, "", 0, &peers[i]);
	for (const struct request *request = session->requests; request; request = request->next)
		add_request(all, session, request);
	works_wait(session, add_work, &(struct adding){all, session});
	for (int i = 0; i < lane_count; i++)
		waits_add(all, session, "lane", 0, &lanes[i]);
}

/* ---- All ---- */

static void ask_rooms(struct collecting *all)
{
	struct broker *broker = all->broker;
	job_waits(broker, keep_note, all);
	store_waits(broker, keep_note, all);
	pool_waits(broker, keep_note, all);
	remote_waits(broker, keep_note, all);
	handle_waits(broker, keep_note, all);
	drain_waits(broker, keep_note, all);
}

static int by_age(const void *a, const void *b)
{
	const struct wait_row *x = a, *y = b;
	return x->note.since_us < y->note.since_us ? -1 : x->note.since_us > y->note.since_us;
}

int waits_collect(struct broker *broker, struct wait_row *rows, int most, uint64_t *count)
{
	struct collecting all = {.broker = broker, .rows = rows, .most = most};
	ask_rooms(&all);
	if (all.count)
		qsort(all.notes, all.count, sizeof(*all.notes), by_owner);
	all.claimed = calloc(all.count + 1, sizeof(*all.claimed));
	for (const struct session *session = broker->sessions; session && all.claimed;
		 session = session->next)
		add_session(&all, session);
	for (size_t i = 0; i < all.count && all.claimed; i++)
		if (!all.claimed[i] && all.notes[i].alone)
			waits_add(&all, NULL, "", 0, &all.notes[i]);
	qsort(rows, (size_t)all.shown, sizeof(*rows), by_age);
	free(all.notes);
	free(all.claimed);
	*count = all.all;
	return all.shown;
}
