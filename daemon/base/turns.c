/* turns.c: a ring of users, each with a ring of its sessions, each with a line of its places. */
#include "turns.h"

#include <stdlib.h>

/* A user or a session with places; freed with the last of them. */
struct turn_line {
	struct turns *turns;
	uint64_t id;
	struct turn_line *user;             /* NULL: it is a user */
	struct turn_line *previous, *after; /* in its ring */
	struct turn_line *next;             /* of a user: the session whose turn is next */
	struct turn_place *first, *last;    /* of a session */
};

/* ---- Rings ---- */

/* Puts a line behind all others of the ring. */
static void enter_ring(struct turn_line **next, struct turn_line *line)
{
	line->previous = line->after = line;
	if (*next) {
		line->after = *next;
		line->previous = (*next)->previous;
		line->previous->after = line;
		line->after->previous = line;
	} else {
		*next = line;
	}
}

static void leave_ring(struct turn_line **next, struct turn_line *line)
{
	if (*next == line)
		*next = line->after == line ? NULL : line->after;
	line->previous->after = line->after;
	line->after->previous = line->previous;
}

/* ---- Lines ---- */

static struct turn_line *find_line(struct turns *turns, struct map *map, uint64_t id)
{
	struct turn_line *line = map_get_id(map, id);
	if (line)
		return line;
	line = calloc(1, sizeof(*line));
	if (!line || map_put_id(map, id, line) < 0) {
		free(line);
		return NULL;
	}
	line->turns = turns;
	line->id = id;
	return line;
}

static void drop_if_empty(struct turn_line *line)
{
	struct turns *turns = line->turns;
	struct turn_line *user = line->user;
	if (line->first || line->next)
		return;
	if (line->previous)
		leave_ring(user ? &user->next : &turns->next, line);
	map_remove_id(user ? &turns->lines : &turns->users, line->id);
	free(line);
	if (user)
		drop_if_empty(user);
}

/* Returns the line of a session in its user's ring; makes both where they are missing. */
static struct turn_line *open_line(struct turns *turns, struct turn_owner owner)
{
	struct turn_line *user = find_line(turns, &turns->users, owner.uid);
	struct turn_line *line = user ? find_line(turns, &turns->lines, owner.session) : NULL;
	if (line && !line->user) {
		line->user = user;
		enter_ring(&user->next, line);
	}
	if (line && !user->previous)
		enter_ring(&turns->next, user);
	if (user && !line)
		drop_if_empty(user);
	return line;
}

/* ---- What waits ---- */

int turns_join(struct turns *turns, struct turn_item *item, struct turn_place *place,
			   struct turn_owner owner)
{
	struct turn_line *line = open_line(turns, owner);
	if (!line)
		return -1;
	*place =
		(struct turn_place){.line = line, .item = item, .before = line->last, .next = item->places};
	if (line->last)
		line->last->behind = place;
	else
		line->first = place;
	line->last = place;
	if (item->places)
		item->places->previous = place;
	item->places = place;
	return 0;
}

void turns_leave(struct turn_place *place)
{
	struct turn_line *line = place->line;
	if (!line)
		return;
	if (place->before)
		place->before->behind = place->behind;
	else
		line->first = place->behind;
	if (place->behind)
		place->behind->before = place->before;
	else
		line->last = place->before;
	if (place->previous)
		place->previous->next = place->next;
	else
		place->item->places = place->next;
	if (place->next)
		place->next->previous = place->previous;
	*place = (struct turn_place){NULL};
	drop_if_empty(line);
}

void turns_leave_all(struct turn_item *item)
{
	while (item->places)
		turns_leave(item->places);
}

struct turn_item *turns_next(const struct turns *turns)
{
	return turns->next ? turns->next->next->first->item : NULL;
}

struct turn_item *turns_take(struct turns *turns)
{
	struct turn_line *user = turns->next;
	if (!user)
		return NULL;
	struct turn_item *item = user->next->first->item;
	/* The next items of this user and session come after one of each other user and session. */
	user->next = user->next->after;
	turns->next = user->after;
	turns_leave_all(item);
	return item;
}

void turns_free(struct turns *turns)
{
	map_free(&turns->users);
	map_free(&turns->lines);
}
