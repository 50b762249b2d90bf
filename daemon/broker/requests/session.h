/*
 * session: one connected client as the rooms below the socket know it: who it is, what its requests
 * may cost, which device serves it.  A room that keeps more for a session keeps it in a struct of
 * its own, behind a pointer here.  Knows no socket and no command.
 *
 *     SILENT --seat--> SEATED --greet--> GREETED
 *        |               |                 |
 *        +---------------+-----------------+--close--> CLOSED
 *
 *   SILENT   connected; hello has not come
 *   SEATED   hello has come, and waits for the device process
 *   GREETED  hello is answered; any request may come
 *   CLOSED   unlinked; gives back what it owns, and no reply leaves; session_life.c frees it with
 *            its socket, on the loop
 *
 * Invariants: session_find() and the list of sessions lead to sessions that are not CLOSED.  A
 * session has a place if, and only if, it is SEATED or GREETED.  It has a device if, and only if,
 * it has a device process to be served by.
 */
#ifndef KILN_DAEMON_SESSION_H
#define KILN_DAEMON_SESSION_H

#include "daemon/base/turns.h"
#include "daemon/broker/broker.h"

#define GUEST_SHARES 4 /* of descriptors, places and texts: one is no guest's */

enum session_state { SESSION_SILENT, SESSION_SEATED, SESSION_GREETED, SESSION_CLOSED };

/* The place that a session has: one of --max-sessions, or one kept for the operator. */
enum session_place { PLACE_NONE, PLACE_ORDINARY, PLACE_KEPT };

struct lane;
struct owned;
struct peer;
struct request;
struct alt_compiler;
struct frame;
struct shapes;
struct wire_out;
struct work_queue;

struct session {
	struct broker *broker;
	enum session_state state;
	enum session_place place;
	uint64_t id;
	uint64_t stream; /* its number in the device process */
	uint32_t uid, gid;
	int32_t pid;
	char version[24]; /* of its library */
	struct tally tally;
	uint32_t account;          /* whose device time it is: broker->accounts */
	enum options_miss on_miss; /* the stricter of the daemon's and its own */
	bool background;           /* its kernels are compiled when no other session waits */

	/* The message that is being handled: its name (a literal, so it lives for ever), its
	 * descriptors, the lane entries that it follows. */
	const char *asks;
	struct frame *frame; /* NULL: no handler runs */
	uint64_t lane_tail, lane_follows;

	struct device_entry *device;    /* NULL: compile only */
	struct device_handle *executor; /* the device process of its uid */
	struct device_handle
		*own; /* a device process of its own, for kernels that it brings; or NULL */

	struct peer *peer; /* front: the socket */
	/* Sends a reply or an event, and ends it (wire_end); descriptors are duplicated. */
	void (*send)(struct peer *peer, struct wire_out *out, const int *fds, int fd_count);
	struct request *requests; /* open ones, the newest first */
	int request_count;
	int work_count;   /* works under way; with the requests these are "in flight" */
	int offer_count;  /* calls that are bound to its lane, which the device process has to take */
	int cancel_count; /* cancels of lane entries, which the device process has to take */
	struct owned *owned;               /* calls: buffers and prepared calls */
	struct work_queue *works;          /* calls: launches, copies and frees under way */
	struct lane *lane;                 /* calls: in executor; NULL: none yet, or none more */
	struct raw_budget *raw_budget;     /* kernels: texts that are held for it; NULL: none yet */
	struct shapes *shapes;             /* kernels: what its problems vary in, by operator */
	struct alt_compiler *alt_compiler; /* devices: the compiler that it named; NULL: none */
	struct session *previous, *next;
};

/* A silent session, linked; NULL without memory. */
struct session *session_new(struct broker *broker, uint32_t uid, uint32_t gid, int32_t pid);
/* Nobody finds it from here on. */
void session_unlink(struct session *session);
/* Returns NULL when the session has ended. */
struct session *session_find(const struct broker *broker, uint64_t id);
/* The owner of a turn at a queue: the session, or nobody for NULL. */
struct turn_owner session_turn(const struct session *session);
/* Says whether the client runs as the daemon's own user, or as root. */
bool session_is_owner(const struct session *session);
/* Returns the session's track in the broker's trace, or a track below it for something that others
 * may overlap, by a number of its own. */
uint64_t session_track(const struct session *session, uint64_t number);
/* Checks the invariants above; the dev preset runs it. */
void session_assert_valid(const struct session *session);

#endif
