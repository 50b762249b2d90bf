/*
 * ticket.h: the table of submitted calls, by rising id.  It knows nothing of messages.
 *
 *              ticket_finish()          ticket_remove(): its result was taken
 *   UNDERWAY ------------------> DONE --------------------------------------> gone
 *      |                                                                       ^
 *      | ticket_give_up()              ticket_finish(): nobody is told         |
 *      +-----------------> GIVEN_UP -------------------------------------------+
 *
 * A ticket of the lane is gone as soon as it is given up.  A ticket by message stays GIVEN_UP until
 * its call has ended, since no launch of the lane may overtake the call.
 *
 * Pointers to tickets are valid until the next call that adds, finishes or removes a ticket.
 */
#ifndef KILN_CLIENT_TICKET_H
#define KILN_CLIENT_TICKET_H

#include <kiln/kiln.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ticket_state { TICKET_UNDERWAY, TICKET_GIVEN_UP, TICKET_DONE };

struct ticket {
	uint64_t id;
	enum ticket_state state;
	bool lane; /* the calls went through the lane, as entries from `first` on; else by message */
	uint64_t first;
	int parts, left, failed_part; /* calls of a batch, and how many of them have not ended */
	uint64_t batch;               /* a call of a batch by message: the batch's id; else 0 */
	int part;                     /* which call of that batch */
	int status;                   /* of a ticket that is DONE; of a batch, of its first bad part */
	double micros;                /* on the device; 0 where the device cannot tell */
	char *error, *log;            /* sentence and log of a failure, malloc'd; or NULL */
};

#define TICKET_FAILED 256

struct ticket_table {
	struct ticket *items; /* items[head .. end) are in use, sorted by id */
	size_t head, end, capacity;
	size_t done;                    /* tickets that are DONE */
	size_t messages;                /* tickets by message that are not */
	uint64_t failed[TICKET_FAILED]; /* the ids that failed last; the newest overwrites the oldest */
	unsigned failed_at;
};

/* Each adds a ticket with an id above all others; ENOMEM without a message. */
int ticket_add(struct ticket_table *table, uint64_t id);
int ticket_add_lane(struct ticket_table *table, uint64_t id, uint64_t first, int count);
/* A batch by message ends with its parts, which have tickets of their own. */
int ticket_add_batch(struct ticket_table *table, uint64_t id, int count);
int ticket_add_part(struct ticket_table *table, uint64_t id, uint64_t batch, int part);
/* Whether the id is among those that failed last. */
bool ticket_failed(const struct ticket_table *table, uint64_t id);
struct ticket *ticket_find(const struct ticket_table *table, uint64_t id);
/* Ends the ticket; takes copies of the texts, either of which may be NULL. */
void ticket_finish(struct ticket_table *table, struct ticket *ticket, int status, const char *error,
				   const char *log);
/* Ends one call of a batch; the last one ends the ticket. */
void ticket_finish_part(struct ticket_table *table, struct ticket *ticket, int part, int status,
						const char *error, double micros);
/* Ends every ticket that has not ended. */
void ticket_finish_all(struct ticket_table *table, int status, const char *error);
void ticket_remove(struct ticket_table *table, struct ticket *ticket);
/* Gives up a ticket that nobody waits for any more. */
void ticket_give_up(struct ticket_table *table, struct ticket *ticket);
void ticket_table_free(struct ticket_table *table);

#endif
