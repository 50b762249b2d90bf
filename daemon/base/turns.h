/*
 * turns: a queue in which one client's many requests do not delay another's.  Users take turns;
 * within a user its sessions do; the items of a session come in their order.  An item that several
 * sessions wait for is next as soon as one of them has its turn.  Knows nothing of the
 * items.  Every step takes the same time, however many wait.
 *
 * Ownership: items and places are the callers', who leave before they free them; the lines of users
 * and sessions are freed with their last place.
 */
#ifndef KILN_DAEMON_UTIL_TURNS_H
#define KILN_DAEMON_UTIL_TURNS_H

#include <stdint.h>

#include "map.h"

struct turn_line;

/* The user and session that a place waits for. */
struct turn_owner {
	uint32_t uid;
	uint64_t session;
};

/* Work that no session asked for takes turns with the users. */
#define TURN_NOBODY ((struct turn_owner){UINT32_MAX, 0})

/* One thing, with the places of all who wait for it.  Zeroed, it has none. */
struct turn_item {
	struct turn_place *places;
};

/* One session's wait for an item.  Zeroed, it does not wait. */
struct turn_place {
	struct turn_line *line;
	struct turn_item *item;
	struct turn_place *before, *behind; /* in the line of the session */
	struct turn_place *previous, *next; /* of the same item */
};

/* Zeroed: empty. */
struct turns {
	struct turn_line *next;  /* the user whose turn is next */
	struct map users, lines; /* by uid; by session */
};

/* The place waits for the item.  0, or -1 without memory. */
int turns_join(struct turns *turns, struct turn_item *item, struct turn_place *place,
			   struct turn_owner owner);
/* Ends the wait of a place; does nothing where it does not wait. */
void turns_leave(struct turn_place *place);
/* Ends all waits for the item. */
void turns_leave_all(struct turn_item *item);
/* Returns the item whose turn is next; NULL: nobody waits. */
struct turn_item *turns_next(const struct turns *turns);
/* Takes that item out, which ends all waits for it, and passes the turn on. */
struct turn_item *turns_take(struct turns *turns);
/* Frees the maps of an empty queue. */
void turns_free(struct turns *turns);

#endif
