/*
 * submit.h: submitting calls (submit.c), and waiting for their tickets (wait.c).
 */
#ifndef KILN_CLIENT_SUBMIT_H
#define KILN_CLIENT_SUBMIT_H

#include "call.h"

/* again: the call may be submitted again, and should then need no message. */
int call_submit(kiln_call *call, const kiln_operand *operands, int count, kiln_ticket after,
				bool again, kiln_ticket *out);
/* Posts a request whose answer is a ticket's; frees it in any case. */
int call_post(struct kiln_client *client, struct request *request, kiln_ticket after,
			  kiln_ticket *out);
/* ENOENT with a message for a ticket that no call had. */
int call_check_after(const struct kiln_client *client, kiln_ticket after);
/* Whether it is known that what follows this ticket must not be run; and a ticket for that, which
 * has ended. */
bool call_follows_failure(const struct kiln_client *client, kiln_ticket after);
int call_canceled(struct kiln_client *client, kiln_ticket after, kiln_ticket *out);
/* What the call was prepared for, in buffers of its client. */
int call_check_operands(const kiln_call *call, const kiln_operand *operands, int count);
/* The last sentence says of which of several calls it is. */
int call_blame(int status, int i);
void call_put_operands(struct wire_out *out, const kiln_operand *operands, int count);

/* ---- wait.c ---- */

/* Waits until the ticket, which is in the table, is done.  KILN_ETIMEDOUT sets no message. */
int call_await(kiln_client *client, kiln_ticket id, int64_t deadline);
/* Waits until the ticket is finished and takes its result; KILN_ETIMEDOUT without a message. */
int call_finish(kiln_client *client, kiln_ticket id, int64_t deadline, double *micros);
/* Cancels what is not finished, without waiting, and forgets the ticket. */
void call_give_up(kiln_client *client, struct ticket *ticket);

#endif
