/*
 * ticket.h: the table of submitted calls, by rising id.
 */
#ifndef KILN_CLIENT_TICKET_H
#define KILN_CLIENT_TICKET_H

#include <kiln/kiln.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ticket {
	uint64_t id;
	bool done;
	bool given_up;  /* nobody's: it stays until it has ended, and is not told of then */
	bool lane;      /* went through the lane, as entries from first on; else by message */
	uint64_t first; /* its parts are numbers from there on */
	int parts, left, failed_part; /* calls of a batch, and how many have not ended */
	uint64_t batch;               /* by message: nobody's ticket, but a part of that one; else 0 */
	int part;
	int status;    /* once done, or of the first part that failed */
	double micros; /* on the device; 0 where it cannot tell */
	char *error;   /* sentence and log of a failure, or NULL */
	char *log;
};

#define TICKET_FAILED 256

struct ticket_table {
	struct ticket *items; /* items[head .. end) are in use, sorted by id */
	size_t head, end, capacity;
	size_t done;                    /* how many of them are finished */
	size_t messages;                /* how many went by message and are not */
	uint64_t failed[TICKET_FAILED]; /* the last that failed: newest overwrite */
	unsigned failed_at;
};

int ticket_add(struct ticket_table *table, uint64_t id);
int ticket_add_lane(struct ticket_table *table, uint64_t id, uint64_t first, int count);
/* By message: a ticket that ends with its parts, which have ids of their own. */
int ticket_add_batch(struct ticket_table *table, uint64_t id, int count);
int ticket_add_part(struct ticket_table *table, uint64_t id, uint64_t batch, int part);
bool ticket_failed(const struct ticket_table *table, uint64_t id);
struct ticket *ticket_find(const struct ticket_table *table, uint64_t id);
/* Marks it finished; takes copies of the texts (either may be NULL). */
void ticket_finish(struct ticket_table *table, struct ticket *ticket, int status, const char *error,
				   const char *log);
/* One of its parts has ended; the last one finishes it. */
void ticket_finish_part(struct ticket_table *table, struct ticket *ticket, int part, int status,
						const char *error, double micros);
/* Finishes all that are not finished. */
void ticket_finish_all(struct ticket_table *table, int status, const char *error);
void ticket_remove(struct ticket_table *table, struct ticket *ticket);
/* Nobody waits for it any more.  A call that went by message stays in the table until it has ended:
 * until then no launch may overtake it. */
void ticket_give_up(struct ticket_table *table, struct ticket *ticket);
void ticket_table_free(struct ticket_table *table);

#endif
