/*
 * run.c: kiln_run(): prepares an operator, submits it and waits.  The prepared call is kept for the
 * next time (client/lib/signature.h), when it is launched like any other, through the lane.
 */
#include "call.h"
#include "client.h"
#include "error.h"
#include "signature.h"
#include "submit.h"
#include "ticket.h"

#include <stdlib.h>

/* Takes the call over, whose signature was asked for last. */
static void run_keep(kiln_client *client, kiln_call *call)
{
	while (signature_is_full(client->signatures) && call_forget_oldest(client)) {
	}
	/* The library alone has the handle, so nobody asks for its plan. */
	free(call->plan);
	call->plan = NULL;
	if (!signature_remember(client->signatures, call))
		call_release(call);
}

/* again: the call has run before, and is likely to run once more. */
static int submit_and_wait(kiln_call *call, const kiln_tensor *tensors, int count, bool again,
						   int64_t deadline)
{
	kiln_client *client = call->client;
	kiln_operand operands[KILN_MAX_OPERANDS];
	kiln_ticket ticket;

	for (int i = 0; i < count; i++)
		operands[i] = (kiln_operand){tensors[i].buffer, tensors[i].offset};
	int status = call_submit(call, operands, count, 0, again, &ticket);
	if (status != KILN_OK)
		return status;
	status = call_finish(client, ticket, deadline, NULL);
	struct ticket *left = ticket_find(&client->tickets, ticket);
	return status == KILN_ETIMEDOUT && left ? call_overdue(client, left) : status;
}

/* Runs the call that is kept for the current signature.  CALL_REFUSED: there is none, or none any
 * more. */
static int run_kept(kiln_client *client, const kiln_tensor *tensors, int count, int64_t deadline)
{
	kiln_call *call = signature_find(client->signatures);
	int status = call ? submit_and_wait(call, tensors, count, true, deadline) : CALL_REFUSED;
	if (call && status == CALL_REFUSED) {
		signature_forget_newest(client->signatures);
		call_release(call);
	}
	return status;
}

/* Prepares and runs the call.  After the daemon has refused one that the device process planned,
 * the next one is its own. */
static int run_new(kiln_client *client, const char *op, const kiln_tensor *tensors,
				   int tensor_count, const kiln_attr *attrs, int attr_count, int64_t deadline,
				   kiln_call **out)
{
	int status;
	do {
		bool ran = false;
		status =
			call_prepare(client, op, tensors, tensor_count, attrs, attr_count, deadline, &ran, out);
		if (status != KILN_OK) {
			*out = NULL;
			return status;
		}
		if (!ran)
			status = submit_and_wait(*out, tensors, tensor_count, false, deadline);
		if (status == CALL_REFUSED)
			call_release(*out);
	} while (status == CALL_REFUSED);
	return status;
}

static int run_run(kiln_client *client, const char *op, const kiln_tensor *tensors,
				   int tensor_count, const kiln_attr *attrs, int attr_count)
{
	int64_t deadline = client_deadline(client);
	kiln_call *call = NULL;
	bool keyed =
		signature_ask(client->signatures, client, op, tensors, tensor_count, attrs, attr_count);
	int status = keyed ? run_kept(client, tensors, tensor_count, deadline) : CALL_REFUSED;
	if (status != CALL_REFUSED)
		return status;
	status = run_new(client, op, tensors, tensor_count, attrs, attr_count, deadline, &call);
	if (call && keyed)
		run_keep(client, call);
	else if (call)
		call_release(call);
	return status;
}

int kiln_run(kiln_client *client, const char *op, const kiln_tensor *tensors, int tensor_count,
			 const kiln_attr *attrs, int attr_count)
{
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	return client_leave(client, run_run(client, op, tensors, tensor_count, attrs, attr_count));
}
