/*
 * submit.h: submits calls (submit.c), and waits for their tickets (wait.c).
 */
#ifndef KILN_CLIENT_SUBMIT_H
#define KILN_CLIENT_SUBMIT_H

#include "call.h"

/* The daemon does not take the call, which is to be prepared anew: call_submit() did nothing. */
#define CALL_REFUSED 3
/* again: the program may submit the call again, which should then need no message. */
int call_submit(kiln_call *call, const kiln_operand *operands, int count, kiln_ticket after,
				bool again, kiln_ticket *out);
/* Posts a request that is answered when its call ends; frees it in any case. */
int call_post(struct kiln_client *client, struct request *request, kiln_ticket after,
			  kiln_ticket *out);
/* ENOENT with a message for a ticket that the client never gave. */
int call_check_after(const struct kiln_client *client, kiln_ticket after);
/* Whether the ticket is known to have failed, so that calls which follow it must not run. */
bool call_follows_failure(const struct kiln_client *client, kiln_ticket after);
/* Gives a ticket that has ended in KILN_ECANCELED, for such a call. */
int call_canceled(struct kiln_client *client, kiln_ticket after, kiln_ticket *out);
/* Whether the operands are those that the call was prepared for, in buffers of its client. */
int call_check_operands(const kiln_call *call, const kiln_operand *operands, int count);
/* EINVAL with a message where works[i] has no call, or one of another client. */
int call_check_work(const kiln_client *client, const kiln_work *works, int i);
/* Adds to this thread's message that it is about works[i]; returns status. */
int call_blame(int status, int i);
void call_put_operands(struct wire_out *out, const kiln_operand *operands, int count);

/* ---- wait.c ---- */

/* Waits until the ticket, which is in the table, is DONE.  KILN_ETIMEDOUT sets no message. */
int call_await(kiln_client *client, kiln_ticket id, int64_t deadline);
/* Waits until the ticket is DONE and takes its result.  KILN_ETIMEDOUT sets no message. */
int call_finish(kiln_client *client, kiln_ticket id, int64_t deadline, double *micros);
/* Cancels calls that have not ended, without waiting, and forgets the ticket. */
void call_give_up(kiln_client *client, struct ticket *ticket);
/* Gives up a call that has not ended before its deadline; returns KILN_ETIMEDOUT with a message. */
int call_overdue(kiln_client *client, struct ticket *ticket);

#endif
