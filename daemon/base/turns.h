/*
 * turns: many wait for few, and nobody waits longer for how much another has asked for.  Users take
 * turns; within a user its sessions do; a session's own come in their order.  Where several
 * sessions wait for one thing it is next as soon as one of them has its turn.  Knows nothing of
 * what is waited for.  Every step takes the same time, however many wait.
 */
#ifndef KILN_DAEMON_UTIL_TURNS_H
#define KILN_DAEMON_UTIL_TURNS_H

#include <stdint.h>

#include "map.h"

struct turn_line;

/* Whose turn it is to be. */
struct turn_owner {
	uint32_t uid;
	uint64_t session;
};

/* Work that no session asked for takes turns with the users. */
#define TURN_NOBODY ((struct turn_owner){UINT32_MAX, 0})

/* One thing that is waited for, by all who wait for it.  Zeroed: by nobody. */
struct turn_item {
	struct turn_place *places;
};

/* One session's wait for it.  Zeroed: it does not wait. */
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
/* It waits no longer; nothing where it does not. */
void turns_leave(struct turn_place *place);
/* Nobody waits for the item any longer: in none of the lists that it is in. */
void turns_leave_all(struct turn_item *item);
/* Whose turn is next; NULL: nobody waits. */
struct turn_item *turns_next(const struct turns *turns);
/* The same; it is not waited for any longer, and the turn goes on. */
struct turn_item *turns_take(struct turns *turns);
/* Frees what an empty list still has. */
void turns_free(struct turns *turns);

#endif
