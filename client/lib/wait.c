/*
 * wait.c: tickets: wait, cancel, give up, and event loops.
 */
#include "client.h"
#include "clock.h"
#include "error.h"
#include "lane.h"
#include "link.h"
#include "submit.h"
#include "ticket.h"

#include <unistd.h>

/* ---- Waiting ---- */

int call_await(kiln_client *client, kiln_ticket id, int64_t deadline)
{
	struct ticket *ticket = ticket_find(&client->tickets, id);
	if (!ticket->lane) {
		(void)link_drain(client);
		ticket = ticket_find(&client->tickets, id);
	}
	while (ticket->state != TICKET_DONE) {
		int status = ticket->lane ? lane_wait(client, ticket->first,
											  ticket->first + (uint64_t)ticket->parts - 1, deadline)
								  : link_wait(client, deadline);
		ticket = ticket_find(&client->tickets, id);
		if (ticket->state != TICKET_DONE && status != KILN_OK)
			return status;
	}
	return KILN_OK;
}

/* Finds a ticket of the program's; parts of a batch and tickets given up are not. */
static struct ticket *find_outstanding(const kiln_client *client, kiln_ticket id)
{
	struct ticket *ticket = ticket_find(&client->tickets, id);
	if (ticket && ticket->batch == 0 && ticket->state != TICKET_GIVEN_UP)
		return ticket;
	error_set(KILN_ENOENT,
			  "ticket %llu is not outstanding: it was waited for before, or never given",
			  (unsigned long long)id);
	return NULL;
}

int call_finish(kiln_client *client, kiln_ticket id, int64_t deadline, double *micros)
{
	struct ticket *ticket = find_outstanding(client, id);
	if (!ticket)
		return KILN_ENOENT;
	int status = call_await(client, id, deadline);
	if (status != KILN_OK)
		return status;
	ticket = ticket_find(&client->tickets, id);
	status = ticket->status;
	if (status != KILN_OK)
		error_set_peer(status, ticket->error, ticket->log);
	else if (micros)
		*micros = ticket->micros;
	ticket_remove(&client->tickets, ticket);
	return status;
}

int kiln_wait_time(kiln_client *client, kiln_ticket id, int timeout_ms, double *micros)
{
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	client->times = client->times || micros;
	status = call_finish(client, id, time_deadline(timeout_ms), micros);
	if (status == KILN_ETIMEDOUT && ticket_find(&client->tickets, id) != NULL) {
		status = error_set(KILN_EAGAIN, "the call of ticket %llu is not finished",
						   (unsigned long long)id);
	}
	return client_leave(client, status);
}

int kiln_wait(kiln_client *client, kiln_ticket ticket, int timeout_ms)
{
	return kiln_wait_time(client, ticket, timeout_ms, NULL);
}

/* Asks the daemon not to run what has not begun. */
static void cancel_begin(kiln_client *client, struct request *request, const struct ticket *ticket)
{
	link_begin(client, request, "cancel");
	if (ticket->lane) {
		wire_put_uint(&request->out, "entry", ticket->first + 1);
		wire_put_uint(&request->out, "count", (uint64_t)ticket->parts);
	} else {
		wire_put_uint(&request->out, "ticket", ticket->id);
	}
}

/* A batch by message has a ticket for each of its calls, with the ids that follow its own; NULL if
 * that call has ended.  Other tickets are one piece. */
static const struct ticket *piece_of(const kiln_client *client, const struct ticket *ticket, int i)
{
	if (ticket->lane || ticket->parts == 0)
		return ticket;
	const struct ticket *part = ticket_find(&client->tickets, ticket->id + 1 + (uint64_t)i);
	return part && part->batch == ticket->id ? part : NULL;
}

static int pieces(const struct ticket *ticket)
{
	return ticket->lane || ticket->parts == 0 ? 1 : ticket->parts;
}

void call_give_up(kiln_client *client, struct ticket *ticket)
{
	struct ticket given_up = *ticket;
	lane_forget(client, ticket);
	ticket_give_up(&client->tickets, ticket);
	for (int i = 0; i < pieces(&given_up); i++) {
		struct request request;
		const struct ticket *piece = piece_of(client, &given_up, i);
		if (piece) {
			cancel_begin(client, &request, piece);
			(void)link_post(client, &request, SIZE_MAX);
		}
	}
}

int call_overdue(kiln_client *client, struct ticket *ticket)
{
	call_give_up(client, ticket);
	return error_set(KILN_ETIMEDOUT, "kilnd at %s did not finish the call before the deadline",
					 client->path);
}

static int cancel(kiln_client *client, kiln_ticket id)
{
	(void)link_drain(client);
	const struct ticket *ticket = find_outstanding(client, id);
	if (!ticket)
		return KILN_ENOENT;
	if (ticket->state == TICKET_DONE)
		return KILN_OK;
	const struct ticket whole = *ticket; /* answers may move the table's tickets */
	int status = KILN_OK;
	for (int i = 0; i < pieces(&whole) && status == KILN_OK; i++) {
		const struct ticket *piece = piece_of(client, &whole, i);
		struct request request;
		if (!piece)
			continue;
		cancel_begin(client, &request, piece);
		status = link_ask(client, &request, client_deadline(client), NULL);
		/* The call ended while the request was on its way, so there was nothing to cancel. */
		status = status == KILN_ENOENT ? KILN_OK : status;
	}
	return status;
}

int kiln_cancel(kiln_client *client, kiln_ticket ticket)
{
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	return client_leave(client, cancel(client, ticket));
}

/* ---- Event loops ---- */

/* kiln_fd() and kiln_events() only look, so they do not enter. */
static int check_look(const kiln_client *client)
{
	if (!client)
		return error_set(KILN_EINVAL, "client is NULL; it must come from kiln_connect()");
	return client->pid == getpid() ? KILN_OK : client_refuse(client, KILN_EFORK);
}

int kiln_fd(const kiln_client *client)
{
	int status = check_look(client);
	if (status != KILN_OK)
		return status;
	return lane_fd(client->lane, client->sock);
}

int kiln_events(const kiln_client *client)
{
	int status = check_look(client);
	if (status != KILN_OK)
		return status;
	return lane_events(client->lane, client->sock, client->queue.count > 0);
}

int kiln_dispatch(kiln_client *client)
{
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	status = link_drain(client);
	lane_watch(client);
	lane_collect(client);
	/* Tickets that the daemon's end has finished are reported before that end. */
	if (client->tickets.done > 0)
		status = client->tickets.done > INT32_MAX ? INT32_MAX : (int)client->tickets.done;
	else if (status != KILN_OK)
		status = link_dead(client);
	return client_leave(client, status);
}
