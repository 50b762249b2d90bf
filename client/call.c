/*
 * call.c: prepared calls and submitted ones: prepare, submit, wait, cancel, dispatch.  Must not
 * know how messages travel.
 */
#include "client/local.h"
#include "client/protocol.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Preparing ---- */

static int put_left_out(struct wire_out *out, const kiln_tensor *tensor, int i)
{
	if (tensor->buffer != NULL) {
		return error_set(KILN_EINVAL,
						 "tensor %d is left out (its dtype is KILN_DTYPE_NONE) and has a buffer; "
						 "give it a dtype, or NULL for a buffer",
						 i);
	}
	wire_map_begin(out, NULL);
	wire_put_int(out, "d", KILN_DTYPE_NONE);
	wire_map_end(out);
	return KILN_OK;
}

static int put_tensor(kiln_client *client, struct wire_out *out, const kiln_tensor *tensor, int i)
{
	if (tensor->dtype == KILN_DTYPE_NONE) {
		return put_left_out(out, tensor, i);
	}
	if (tensor->rank < 0 || tensor->rank > KILN_MAX_RANK) {
		return error_set(KILN_EINVAL, "tensor %d has rank %d; it must be 0 to %d", i, tensor->rank,
						 KILN_MAX_RANK);
	}
	if (tensor->buffer != NULL && tensor->buffer->client != client) {
		return error_set(KILN_EINVAL, "tensor %d lies in a buffer of another client", i);
	}
	wire_map_begin(out, NULL);
	wire_put_int(out, "d", (int64_t)tensor->dtype);
	wire_put_ints(out, "s", tensor->shape, tensor->rank);
	if (tensor->contiguous == 0) {
		wire_put_ints(out, "t", tensor->stride, tensor->rank);
	}
	if (tensor->buffer != NULL) {
		wire_put_uint(out, "b", tensor->buffer->id);
	}
	wire_put_uint(out, "o", tensor->offset);
	wire_map_end(out);
	return KILN_OK;
}

int call_put(kiln_client *client, struct wire_out *out, const char *op, const kiln_tensor *tensors,
			 int tensor_count, const kiln_attr *attrs, int attr_count)
{
	int status = KILN_OK;
	if (op == NULL || op[0] == 0) {
		return error_set(KILN_EINVAL, "the operator has no name");
	}
	if (tensor_count > 0 && tensors == NULL) {
		return error_set(KILN_EINVAL, "%s was given %d tensors, but tensors is NULL", op,
						 tensor_count);
	}
	if (tensor_count < 0 || tensor_count > KILN_MAX_OPERANDS) {
		return error_set(KILN_EINVAL, "%s was given %d tensors; there must be 0 to %d", op,
						 tensor_count, KILN_MAX_OPERANDS);
	}
	wire_put_str(out, "op", op);
	wire_list_begin(out, "tensors");
	for (int i = 0; i < tensor_count && status == KILN_OK; i++) {
		status = put_tensor(client, out, &tensors[i], i);
	}
	wire_list_end(out);
	wire_map_begin(out, "attrs");
	if (status == KILN_OK) {
		status = request_put_attrs(out, attrs, attr_count);
	}
	wire_map_end(out);
	return status;
}

int call_make(kiln_client *client, struct request *request, int64_t deadline, kiln_call **out)
{
	struct answer answer;
	kiln_call *call = calloc(1, sizeof(*call));
	if (call == NULL) {
		wire_out_free(&request->out);
		return error_set(KILN_ENOMEM, "no memory for a call");
	}
	request->undo = UNDO_CALL;
	int status = link_ask(client, request, deadline, &answer);
	if (status != KILN_OK) {
		free(call);
		return status;
	}
	const char *text = wire_get_str(&answer.in, &answer.in.root, "text");
	const char *origin = wire_get_str(&answer.in, &answer.in.root, "origin");
	call->client = client;
	call->id = wire_get_uint(&answer.in.root, "call", 0);
	call->param_count = wire_get_ints(&answer.in.root, "params", call->params, KILN_MAX_RAW_ARGS);
	call->plan = strdup(text != NULL ? text : "");
	snprintf(call->origin, sizeof(call->origin), "%s", origin != NULL ? origin : "");
	atomic_fetch_add(&client->refs, 1);
	answer_free(&answer);
	if (call->id == 0 || call->plan == NULL) {
		status = call->id == 0
					 ? error_set(KILN_EPROTO, "kilnd at %s prepared a call without a number",
								 client->path)
					 : error_set(KILN_ENOMEM, "no memory for a call");
		call_release(call);
		return status;
	}
	*out = call;
	return KILN_OK;
}

int call_prepare(kiln_client *client, const char *op, const kiln_tensor *tensors, int tensor_count,
				 const kiln_attr *attrs, int attr_count, int64_t deadline, kiln_call **out)
{
	struct request request;

	link_begin(client, &request, "prepare");
	int status = call_put(client, &request.out, op, tensors, tensor_count, attrs, attr_count);
	if (status != KILN_OK) {
		wire_out_free(&request.out);
		return status;
	}
	status = call_make(client, &request, deadline, out);
	if (status != KILN_OK) {
		return status;
	}
	(*out)->tensor_count = tensor_count;
	for (int i = 0; i < tensor_count; i++) {
		(*out)->left_out |= (uint32_t)(tensors[i].dtype == KILN_DTYPE_NONE) << i;
	}
	return KILN_OK;
}

int kiln_prepare(kiln_client *client, const char *op, const kiln_tensor *tensors, int tensor_count,
				 const kiln_attr *attrs, int attr_count, kiln_call **out)
{
	int status = client_enter(client);
	if (status != KILN_OK) {
		return status;
	}
	if (out == NULL) {
		status = error_set(KILN_EINVAL, "out is NULL; the call cannot be returned");
	} else {
		status = call_prepare(client, op, tensors, tensor_count, attrs, attr_count,
							  client_deadline(client), out);
	}
	return client_leave(client, status);
}

const char *kiln_call_plan(const kiln_call *call)
{
	return call != NULL ? call->plan : "";
}

const char *kiln_call_origin(const kiln_call *call)
{
	return call != NULL ? call->origin : "";
}

void call_release(kiln_call *call)
{
	kiln_client *client = call->client;
	if (!client->dead && call->id != 0) {
		struct request request;
		link_begin(client, &request, "release");
		wire_put_uint(&request.out, "call", call->id);
		lane_put_tail(client, &request.out);
		(void)link_post(client, &request, SIZE_MAX);
	}
	lane_forget_call(client, call);
	free(call->plan);
	free(call);
	client_unref(client);
}

void kiln_call_free(kiln_call *call)
{
	if (call == NULL) {
		return;
	}
	kiln_client *client = call->client;
	switch (client_try(client)) {
	case KILN_OK:
		call_release(call);
		client_leave(client, KILN_OK);
		break;
	case KILN_EBUSY:
		/* The thread inside tells the daemon when it leaves. */
		call->next = atomic_load(&client->orphans);
		while (!atomic_compare_exchange_weak(&client->orphans, &call->next, call)) {
		}
		break;
	default:
		free(call->plan);
		free(call);
		client_unref(client);
		break;
	}
}

/* ---- Submitting ---- */

static int check_operands(const kiln_call *call, const kiln_operand *operands, int count)
{
	if (count != call->tensor_count || (count > 0 && operands == NULL)) {
		return error_set(KILN_EINVAL,
						 "the call was prepared for %d tensors and is submitted with %d operands",
						 call->tensor_count, count);
	}
	for (int i = 0; i < count; i++) {
		const kiln_buffer *buffer = operands[i].buffer;
		bool left_out = call->left_out >> i & 1;
		if (left_out != (buffer == NULL)) {
			return error_set(KILN_EINVAL, "operand %d %s", i,
							 left_out ? "has a buffer, and the call was prepared without it: pass "
										"NULL, or prepare a call with it"
									  : "has no buffer");
		}
		if (buffer != NULL && buffer->client != call->client) {
			return error_set(KILN_EINVAL, "operand %d lies in a buffer of another client", i);
		}
	}
	return KILN_OK;
}

static void put_operands(struct wire_out *out, const kiln_operand *operands, int count)
{
	wire_list_begin(out, "operands");
	for (int i = 0; i < count; i++) {
		const kiln_buffer *buffer = operands[i].buffer;
		wire_list_begin(out, NULL);
		wire_put_uint(out, NULL, buffer == NULL ? 0 : buffer->id);
		wire_put_uint(out, NULL, buffer == NULL ? 0 : operands[i].offset);
		wire_list_end(out);
	}
	wire_list_end(out);
}

int call_check_after(const kiln_client *client, kiln_ticket after)
{
	return after <= client->next_id
			   ? KILN_OK
			   : error_set(KILN_ENOENT,
						   "after is %llu, which no call of this client had for a ticket",
						   (unsigned long long)after);
}

int call_post(kiln_client *client, struct request *request, kiln_ticket after, kiln_ticket *out)
{
	if (after != 0) {
		wire_put_uint(&request->out, "after", after);
	}
	if (ticket_add(&client->tickets, request->id) != KILN_OK) {
		wire_out_free(&request->out);
		return error_set(KILN_ENOMEM, "no memory for a ticket");
	}
	int status = link_post(client, request, LOCAL_QUEUE_MAX);
	if (status != KILN_OK) {
		ticket_remove(&client->tickets, ticket_find(&client->tickets, request->id));
		return status;
	}
	*out = request->id;
	return KILN_OK;
}

static int submit_message(kiln_call *call, const kiln_operand *operands, int count,
						  kiln_ticket after, uint64_t follows, bool again, kiln_ticket *out)
{
	struct request request;
	link_begin(call->client, &request, "submit");
	wire_put_uint(&request.out, "call", call->id);
	put_operands(&request.out, operands, count);
	if (again) {
		lane_ask(call, &request, operands, count);
	}
	lane_put_tail(call->client, &request.out);
	if (follows != 0) {
		wire_put_uint(&request.out, "follows", follows);
	}
	return call_post(call->client, &request, after, out);
}

/* A ticket of what is not even begun. */
static int submit_canceled(kiln_client *client, kiln_ticket after, kiln_ticket *out)
{
	char text[96];
	kiln_ticket id = ++client->next_id;
	if (ticket_add(&client->tickets, id) != KILN_OK) {
		return error_set(KILN_ENOMEM, "no memory for a ticket");
	}
	snprintf(text, sizeof(text), "ticket %llu, which this call follows, did not succeed",
			 (unsigned long long)after);
	ticket_finish(&client->tickets, ticket_find(&client->tickets, id), KILN_ECANCELED, text, NULL);
	*out = id;
	return KILN_OK;
}

int call_submit(kiln_call *call, const kiln_operand *operands, int count, kiln_ticket after,
				bool again, kiln_ticket *out)
{
	kiln_client *client = call->client;
	uint64_t follows = 0;

	int status = call_check_after(client, after);
	if (status == KILN_OK && call->raw) {
		status =
			error_set(KILN_EINVAL, "the call is a kernel of the program's own: it is submitted "
								   "with kiln_submit_raw()");
	}
	if (status == KILN_OK) {
		status = check_operands(call, operands, count);
	}
	if (status != KILN_OK) {
		return status;
	}
	const struct ticket *earlier = after != 0 ? ticket_find(&client->tickets, after) : NULL;
	if (ticket_lane_failed(&client->tickets, after)) {
		return submit_canceled(client, after, out);
	}
	if (earlier != NULL && earlier->lane) {
		follows = earlier->number + 1;
		after = 0;
	}
	if (lane_submit(call, operands, count, follows, client->next_id + 1)) {
		*out = ++client->next_id;
		return KILN_OK;
	}
	return submit_message(call, operands, count, after, follows, again, out);
}

int kiln_submit(kiln_call *call, const kiln_operand *operands, int operand_count, kiln_ticket after,
				kiln_ticket *out)
{
	if (call == NULL || out == NULL) {
		return error_set(KILN_EINVAL, "%s is NULL", call == NULL ? "call" : "out");
	}
	kiln_client *client = call->client;
	int status = client_enter(client);
	if (status != KILN_OK) {
		return status;
	}
	return client_leave(client, call_submit(call, operands, operand_count, after, true, out));
}

/* ---- Waiting ---- */

int call_finish(kiln_client *client, kiln_ticket id, int64_t deadline, double *micros)
{
	struct ticket *ticket = ticket_find(&client->tickets, id);
	if (ticket == NULL) {
		return error_set(KILN_ENOENT,
						 "ticket %llu is not outstanding: it was waited for before, or never given",
						 (unsigned long long)id);
	}
	if (!ticket->lane) {
		(void)link_drain(client);
		ticket = ticket_find(&client->tickets, id);
	}
	while (!ticket->done) {
		int status = ticket->lane ? lane_wait(client, ticket->number, deadline)
								  : link_wait(client, deadline);
		ticket = ticket_find(&client->tickets, id);
		if (ticket->done) {
			break;
		}
		if (status != KILN_OK) {
			return status;
		}
	}
	int status = ticket->status;
	if (status != KILN_OK) {
		error_set_peer(status, ticket->error, ticket->log);
	} else if (micros != NULL) {
		*micros = ticket->micros;
	}
	ticket_remove(&client->tickets, ticket);
	return status;
}

int kiln_wait_time(kiln_client *client, kiln_ticket id, int timeout_ms, double *micros)
{
	int status = client_enter(client);
	if (status != KILN_OK) {
		return status;
	}
	client->times = client->times || micros != NULL;
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

static void put_canceled(struct wire_out *out, const struct ticket *ticket)
{
	if (ticket->lane) {
		wire_put_uint(out, "entry", ticket->number + 1);
	} else {
		wire_put_uint(out, "ticket", ticket->id);
	}
}

void call_give_up(kiln_client *client, struct ticket *ticket)
{
	struct request request;
	link_begin(client, &request, "cancel");
	put_canceled(&request.out, ticket);
	lane_forget(client, ticket);
	ticket_remove(&client->tickets, ticket);
	(void)link_post(client, &request, SIZE_MAX);
}

static int cancel(kiln_client *client, kiln_ticket id)
{
	struct request request;
	(void)link_drain(client);
	struct ticket *ticket = ticket_find(&client->tickets, id);
	if (ticket == NULL) {
		return error_set(KILN_ENOENT,
						 "ticket %llu is not outstanding: it was waited for before, or never given",
						 (unsigned long long)id);
	}
	if (ticket->done) {
		return KILN_OK;
	}
	link_begin(client, &request, "cancel");
	put_canceled(&request.out, ticket);
	int status = link_ask(client, &request, client_deadline(client), NULL);
	/* It may have finished while the request was on its way: then there was nothing to cancel. */
	return status == KILN_ENOENT ? KILN_OK : status;
}

int kiln_cancel(kiln_client *client, kiln_ticket ticket)
{
	int status = client_enter(client);
	if (status != KILN_OK) {
		return status;
	}
	return client_leave(client, cancel(client, ticket));
}

/* ---- Event loops ---- */

/* These two look only, so they do not enter; a child of fork() is told all the same. */
static int check_look(const kiln_client *client)
{
	if (client == NULL) {
		return error_set(KILN_EINVAL, "client is NULL; it must come from kiln_connect()");
	}
	return client->pid == getpid() ? KILN_OK : client_refuse(client, KILN_EFORK);
}

int kiln_fd(const kiln_client *client)
{
	int status = check_look(client);
	if (status != KILN_OK) {
		return status;
	}
	int fd = client->lane != NULL ? lane_fd(client->lane) : -1;
	return fd >= 0 ? fd : client->sock;
}

int kiln_events(const kiln_client *client)
{
	int status = check_look(client);
	if (status != KILN_OK) {
		return status;
	}
	return POLLIN | (client->queue.count > 0 ? POLLOUT : 0);
}

int kiln_dispatch(kiln_client *client)
{
	int status = client_enter(client);
	if (status != KILN_OK) {
		return status;
	}
	status = link_drain(client);
	lane_watch(client);
	lane_collect(client);
	/* The tickets that the end of the daemon finished are reported before the end itself. */
	if (client->tickets.done > 0) {
		status = client->tickets.done > INT32_MAX ? INT32_MAX : (int)client->tickets.done;
	} else if (status != KILN_OK) {
		status = link_dead(client);
	}
	return client_leave(client, status);
}
