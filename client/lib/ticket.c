/*
 * ticket.c: the table of submitted calls.
 *
 * Ids rise, so appending keeps the table sorted.  Programs mostly wait in the order of submission,
 * so removing at the front is the usual case and costs nothing.
 */
#include "ticket.h"
#include "error.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void ticket_assert_valid(const struct ticket_table *table, const struct ticket *ticket)
{
	(void)table, (void)ticket;
	assert(ticket >= table->items + table->head && ticket < table->items + table->end);
	assert(!ticket->lane || (ticket->state != TICKET_GIVEN_UP && ticket->batch == 0));
	assert(ticket->left >= 0 && ticket->left <= ticket->parts);
	assert(ticket->batch < ticket->id);
	assert(table->done + table->messages <= table->end - table->head);
}

static int add_to_table(struct ticket_table *table, struct ticket ticket)
{
	if (table->end == table->capacity) {
		size_t used = table->end - table->head;
		if (table->head > used) {
			memmove(table->items, table->items + table->head, used * sizeof(*table->items));
			table->head = 0;
			table->end = used;
		} else {
			size_t capacity = table->capacity > 0 ? table->capacity * 2 : 16;
			struct ticket *items = realloc(table->items, capacity * sizeof(*items));
			if (!items)
				return KILN_ENOMEM;
			table->items = items;
			table->capacity = capacity;
		}
	}
	table->items[table->end++] = ticket;
	table->messages += !ticket.lane;
	return KILN_OK;
}

int ticket_add(struct ticket_table *table, uint64_t id)
{
	return add_to_table(table, (struct ticket){.id = id});
}

int ticket_add_lane(struct ticket_table *table, uint64_t id, uint64_t first, int count)
{
	return add_to_table(
		table,
		(struct ticket){.id = id, .lane = true, .first = first, .parts = count, .left = count});
}

int ticket_add_batch(struct ticket_table *table, uint64_t id, int count)
{
	return add_to_table(table, (struct ticket){.id = id, .parts = count, .left = count});
}

int ticket_add_part(struct ticket_table *table, uint64_t id, uint64_t batch, int part)
{
	return add_to_table(table, (struct ticket){.id = id, .batch = batch, .part = part});
}

bool ticket_failed(const struct ticket_table *table, uint64_t id)
{
	for (int i = 0; i < TICKET_FAILED && id != 0; i++)
		if (table->failed[i] == id)
			return true;
	return false;
}

/* Index of the first ticket whose id is not below this one. */
static size_t find_at_least(const struct ticket_table *table, uint64_t id)
{
	size_t low = table->head, high = table->end;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (table->items[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct ticket *ticket_find(const struct ticket_table *table, uint64_t id)
{
	size_t at = find_at_least(table, id);
	return at < table->end && table->items[at].id == id ? &table->items[at] : NULL;
}

static void keep_failure(struct ticket_table *table, uint64_t id)
{
	table->failed[table->failed_at++ % TICKET_FAILED] = id;
}

void ticket_finish(struct ticket_table *table, struct ticket *ticket, int status, const char *error,
				   const char *log)
{
	if (ticket->batch != 0) {
		struct ticket part = *ticket;
		if (status != KILN_OK)
			keep_failure(table, part.id);
		ticket_remove(table, ticket);
		struct ticket *batch = ticket_find(table, part.batch);
		if (batch)
			ticket_finish_part(table, batch, part.part, status, error, part.micros);
		return;
	}
	ticket_assert_valid(table, ticket);
	if (ticket->state == TICKET_DONE)
		return;
	if (status != KILN_OK)
		keep_failure(table, ticket->id);
	if (ticket->state == TICKET_GIVEN_UP) {
		ticket_remove(table, ticket);
		return;
	}
	ticket->state = TICKET_DONE;
	ticket->status = status;
	ticket->error = error ? strdup(error) : NULL;
	ticket->log = log ? strdup(log) : NULL;
	table->done++;
	table->messages -= !ticket->lane;
}

/* The first part that failed gives the batch its status; parts after it were canceled because of
 * it. */
void ticket_finish_part(struct ticket_table *table, struct ticket *ticket, int part, int status,
						const char *error, double micros)
{
	char text[ERROR_MAX];
	if (ticket->state == TICKET_DONE)
		return; /* all tickets were given up together */
	ticket->micros += micros;
	if (status != KILN_OK && (ticket->status == KILN_OK || part < ticket->failed_part)) {
		if (ticket->parts > 1) {
			snprintf(text, sizeof(text), "call %d of %d: %s", part + 1, ticket->parts,
					 error != NULL ? error : "");
			error = text;
		}
		free(ticket->error);
		ticket->error = error ? strdup(error) : NULL;
		ticket->status = status;
		ticket->failed_part = part;
	}
	if (--ticket->left > 0)
		return;
	char *kept = ticket->error;
	ticket->error = NULL;
	ticket_finish(table, ticket, ticket->status, kept, NULL);
	free(kept);
}

void ticket_finish_all(struct ticket_table *table, int status, const char *error)
{
	/* A ticket that leaves the table moves others, and the last part of a batch ends a ticket with
	 * a lower id. */
	for (size_t at = table->end; at > table->head;) {
		uint64_t id = table->items[at - 1].id;
		ticket_finish(table, &table->items[at - 1], status, error, NULL);
		at = find_at_least(table, id);
	}
}

static void texts_free(struct ticket *ticket)
{
	free(ticket->error);
	free(ticket->log);
}

void ticket_remove(struct ticket_table *table, struct ticket *ticket)
{
	size_t at = (size_t)(ticket - table->items);
	ticket_assert_valid(table, ticket);
	table->done -= ticket->state == TICKET_DONE;
	table->messages -= ticket->state != TICKET_DONE && !ticket->lane;
	texts_free(ticket);
	if (at == table->head) {
		table->head++;
	} else {
		memmove(ticket, ticket + 1, (table->end - at - 1) * sizeof(*ticket));
		table->end--;
	}
	if (table->head == table->end)
		table->head = table->end = 0;
}

void ticket_give_up(struct ticket_table *table, struct ticket *ticket)
{
	if (ticket->lane || ticket->state == TICKET_DONE)
		ticket_remove(table, ticket);
	else
		ticket->state = TICKET_GIVEN_UP;
}

void ticket_table_free(struct ticket_table *table)
{
	for (size_t i = table->head; i < table->end; i++)
		texts_free(&table->items[i]);
	free(table->items);
	memset(table, 0, sizeof(*table));
}
