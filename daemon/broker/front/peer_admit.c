/*
 * peer_admit.c: which clients may connect, and which have a place.
 *
 * Four bounds keep one peer from taking what all others need: silent connections, of which the
 * oldest of the user that has the most goes first; a share of the places for each guest, and one
 * that is left to the operator; a few more places that only the operator's commands can take, so
 * that a full daemon can still be looked at and stopped; and descriptors, of which guests leave
 * the operator a share as well.
 */
#include "peer_admit.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/closer.h"
#include "daemon/broker/devices/events.h"
#include "daemon/broker/requests/request.h"
#include "peer_descriptors.h"

#define SILENT_MOST 256 /* and no more than a quarter of the descriptors that there may be */
#define KEPT_PLACES 8   /* beyond --max-sessions */
#define ERROR(status, ...) util_fail(error, KERNEL_ERROR_MAX, status, __VA_ARGS__)

/* ---- Identities ---- */

static bool is_listed(const struct options_ids *ids, uint32_t id)
{
	for (int i = 0; i < ids->count; i++)
		if (ids->ids[i] == id)
			return true;
	return false;
}

/* Asks the kernel for all groups of the peer but its primary one: a name service may be slow or
 * away.  NULL: it has none, or they cannot be had.  The caller frees them. */
static gid_t *groups_of(int sock, int *count)
{
	socklen_t bytes = 0;
	gid_t *groups = NULL;
	*count = 0;
	/* Without room the kernel says how much they need. */
	if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, NULL, &bytes) == 0 || errno != ERANGE)
		return NULL;
	groups = malloc(bytes);
	if (groups && getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) == 0)
		*count = (int)(bytes / sizeof(*groups));
	return groups;
}

static bool is_in_allowed_group(const struct options *options, int sock, uint32_t gid)
{
	int count = 0;
	if (!options->allow_gids.count)
		return false;
	if (is_listed(&options->allow_gids, gid))
		return true;
	gid_t *groups = groups_of(sock, &count);
	bool is_in = false;
	for (int i = 0; i < count && !is_in; i++)
		is_in = is_listed(&options->allow_gids, groups[i]);
	free(groups);
	return is_in;
}

int admit_peer(const struct options *options, int sock, struct peer_identity *peer,
			   char error[KERNEL_ERROR_MAX])
{
	struct ucred cred;
	socklen_t length = sizeof(cred);
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &length) < 0)
		return ERROR(KILN_EPERM, "the peer's identity cannot be had: %s", strerror(errno));
	*peer = (struct peer_identity){.uid = cred.uid, .gid = cred.gid, .pid = cred.pid};
	if (cred.uid == getuid() || cred.uid == 0 || is_listed(&options->allow_uids, cred.uid) ||
		is_in_allowed_group(options, sock, cred.gid))
		return KILN_OK;
	return ERROR(
		KILN_EPERM,
		"uid %u may not use this kilnd of uid %u; start it with --allow-uid %u to allow it",
		(unsigned)cred.uid, (unsigned)getuid(), (unsigned)cred.uid);
}

void admit_turn_away(struct broker *broker, int sock, int status, const char *error)
{
	struct wire_out out;
	wire_begin(&out, "reply", 0);
	wire_put_int(&out, "st", status);
	wire_put_str(&out, "err", error);
	/* A new socket takes it; nobody waits for one that does not. */
	if (wire_end(&out) == KILN_OK)
		frame_send(sock, out.buffer.data, out.buffer.size, NULL, 0);
	wire_out_free(&out);
	broker->counters.refused++;
	closer_put_socket(sock);
}

/* ---- Silent connections ---- */

static int silent_most(void)
{
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur / 4 >= SILENT_MOST)
		return SILENT_MOST;
	return files.rlim_cur < 4 ? 1 : (int)(files.rlim_cur / 4);
}

/* Finds the oldest silent connection of the user that has the most; NULL: there is none. */
static struct session *oldest_of_the_most(const struct broker *broker)
{
	struct {
		uint32_t uid;
		int count;
		struct session *oldest;
	} users[SILENT_MOST];
	int known = 0, most = 0;
	/* The list begins with the newest. */
	for (struct session *session = broker->sessions; session; session = session->next) {
		int i = 0;
		if (session->place != PLACE_NONE)
			continue;
		while (i < known && users[i].uid != session->uid)
			i++;
		if (i == SILENT_MOST)
			continue;
		if (i == known) {
			users[i].uid = session->uid;
			users[known++].count = 0;
		}
		users[i].count++;
		users[i].oldest = session;
		most = users[i].count > users[most].count ? i : most;
	}
	return known ? users[most].oldest : NULL;
}

struct session *admit_crowded_out(struct broker *broker)
{
	int most = silent_most();
	struct session *session = broker->silent_count >= most ? oldest_of_the_most(broker) : NULL;
	if (session)
		reply_error(session, 0, KILN_ELIMIT,
					"%d connections have said no hello, the most that kilnd keeps, and uid %u has "
					"most of them; this was its oldest",
					most, session->uid);
	return session;
}

/* ---- Places ---- */

static int check_shares(const struct session *asker, char error[KERNEL_ERROR_MAX])
{
	const struct broker *broker = asker->broker;
	uint64_t most = broker->options.max_sessions, share = most / GUEST_SHARES, own = 0, all = 0;
	for (const struct session *session = broker->sessions; session; session = session->next) {
		bool counts = session->place != PLACE_NONE && !session_is_owner(session);
		all += counts;
		own += counts && session->uid == asker->uid;
	}
	if (own >= (share ? share : 1))
		return ERROR(KILN_ELIMIT,
					 "uid %u has %llu sessions, the most that a guest of this kilnd may have: one "
					 "in %d of --max-sessions %llu",
					 asker->uid, (unsigned long long)own, GUEST_SHARES, (unsigned long long)most);
	if (all >= most - share)
		return ERROR(KILN_ELIMIT,
					 "the guests of this kilnd have %llu sessions, the most that they may have "
					 "together: the others of --max-sessions %llu are for uid %u",
					 (unsigned long long)all, (unsigned long long)most, (unsigned)getuid());
	return KILN_OK;
}

/* The operator's next command always finds a kept place: the session that has had one longest gives
 * it up. */
static void free_kept_place(struct broker *broker)
{
	struct session *oldest = NULL;
	int count = 0;
	for (struct session *session = broker->sessions; session; session = session->next) {
		if (session->place != PLACE_KEPT || peer_is_ending(session->peer))
			continue;
		count++;
		oldest = session;
	}
	if (count < KEPT_PLACES)
		return;
	reply_error(oldest, 0, KILN_ELIMIT,
				"kilnd has all its sessions (--max-sessions), and another command of the operator "
				"took the place of this one");
	peer_end(oldest->peer);
}

int admit_seat(struct session *session, bool wants_device, char error[KERNEL_ERROR_MAX])
{
	struct broker *broker = session->broker;
	const struct options *options = &broker->options;
	bool is_owner = session_is_owner(session);
	bool is_full = (uint64_t)(broker->session_count - broker->kept_count) >= options->max_sessions;
	if (broker->draining)
		return ERROR(KILN_ECONN, "kilnd is shutting down");
	if (!is_owner && check_shares(session, error) != KILN_OK)
		return KILN_ELIMIT;
	if (is_full && (!is_owner || wants_device))
		return ERROR(KILN_ELIMIT, "kilnd has %llu sessions, the most it allows (--max-sessions)",
					 (unsigned long long)options->max_sessions);
	if (is_full) {
		free_kept_place(broker);
		broker->kept_count++;
	}
	session->place = is_full ? PLACE_KEPT : PLACE_ORDINARY;
	session->state = SESSION_SEATED;
	broker->silent_count--;
	broker->session_count++;
	broker->events->sessions_changed(broker);
	return KILN_OK;
}

void admit_leave(struct session *session)
{
	struct broker *broker = session->broker;
	if (session->place == PLACE_NONE) {
		broker->silent_count--;
		return;
	}
	broker->session_count--;
	broker->kept_count -= session->place == PLACE_KEPT;
	broker->events->sessions_changed(broker);
}
