/*
 * run.c: kiln_run: an operator prepared, submitted and waited for in one.
 */
#include "client/local.h"

static int submit_and_wait(kiln_call *call, const kiln_tensor *tensors, int count, int64_t deadline)
{
	kiln_client *client = call->client;
	kiln_operand operands[KILN_MAX_OPERANDS];
	kiln_ticket ticket;

	for (int i = 0; i < count; i++) {
		operands[i] = (kiln_operand){tensors[i].buffer, tensors[i].offset};
	}
	int status = call_submit(call, operands, count, 0, false, &ticket);
	if (status != KILN_OK) {
		return status;
	}
	status = call_finish(client, ticket, deadline, NULL);
	struct ticket *left = ticket_find(&client->tickets, ticket);
	if (status == KILN_ETIMEDOUT && left != NULL) {
		call_give_up(client, left);
		return error_set(status, "kilnd at %s did not finish the call before the deadline",
						 client->path);
	}
	return status;
}

int kiln_run(kiln_client *client, const char *op, const kiln_tensor *tensors, int tensor_count,
			 const kiln_attr *attrs, int attr_count)
{
	kiln_call *call = NULL;
	int status = client_enter(client);
	if (status != KILN_OK) {
		return status;
	}
	int64_t deadline = client_deadline(client);
	status = call_prepare(client, op, tensors, tensor_count, attrs, attr_count, deadline, &call);
	if (status == KILN_OK) {
		status = submit_and_wait(call, tensors, tensor_count, deadline);
		call_release(call);
	}
	return client_leave(client, status);
}
