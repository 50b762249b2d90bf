/*
 * call.c: prepared calls and submitted ones: prepare, wait, cancel, dispatch.  Must not
 * know how messages travel.
 */
#include "local.h"
#include "client/wire/protocol.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Preparing ---- */

static int put_left_out(struct wire_out *out, const kiln_tensor *tensor, int i)
{
	if (tensor->buffer) {
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
	if (tensor->dtype == KILN_DTYPE_NONE)
		return put_left_out(out, tensor, i);
	if (tensor->rank < 0 || tensor->rank > KILN_MAX_RANK) {
		return error_set(KILN_EINVAL, "tensor %d has rank %d; it must be 0 to %d", i, tensor->rank,
						 KILN_MAX_RANK);
	}
	if (tensor->buffer && tensor->buffer->client != client)
		return error_set(KILN_EINVAL, "tensor %d lies in a buffer of another client", i);
	wire_map_begin(out, NULL);
	wire_put_int(out, "d", (int64_t)tensor->dtype);
	wire_put_ints(out, "s", tensor->shape, tensor->rank);
	if (tensor->contiguous == 0)
		wire_put_ints(out, "t", tensor->stride, tensor->rank);
	if (tensor->buffer)
		wire_put_uint(out, "b", tensor->buffer->id);
	wire_put_uint(out, "o", tensor->offset);
	wire_map_end(out);
	return KILN_OK;
}

int call_put(kiln_client *client, struct wire_out *out, const char *op, const kiln_tensor *tensors,
			 int tensor_count, const kiln_attr *attrs, int attr_count)
{
	int status = KILN_OK;
	if (!op || op[0] == 0)
		return error_set(KILN_EINVAL, "the operator has no name");
	if (tensor_count > 0 && !tensors) {
		return error_set(KILN_EINVAL, "%s was given %d tensors, but tensors is NULL", op,
						 tensor_count);
	}
	if (tensor_count < 0 || tensor_count > KILN_MAX_OPERANDS) {
		return error_set(KILN_EINVAL, "%s was given %d tensors; there must be 0 to %d", op,
						 tensor_count, KILN_MAX_OPERANDS);
	}
	wire_put_str(out, "op", op);
	wire_list_begin(out, "tensors");
	for (int i = 0; i < tensor_count && status == KILN_OK; i++)
		status = put_tensor(client, out, &tensors[i], i);
	wire_list_end(out);
	wire_map_begin(out, "attrs");
	if (status == KILN_OK)
		status = request_put_attrs(out, attrs, attr_count);
	wire_map_end(out);
	return status;
}

int call_make(kiln_client *client, struct request *request, int64_t deadline, bool *ran,
			  kiln_call **out)
{
	struct answer answer;
	kiln_call *call = calloc(1, sizeof(*call));
	if (!call) {
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
	call->plan = strdup(text ? text : "");
	snprintf(call->origin, sizeof(call->origin), "%s", origin ? origin : "");
	if (ran)
		*ran = wire_get_bool(&answer.in.root, "ran", false);
	atomic_fetch_add(&client->refs, 1);
	answer_free(&answer);
	if (call->id == 0 || !call->plan) {
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

/* What is given up is not to begin; the daemon's sentence about that is no news. */
static void stop(kiln_client *client, uint64_t ticket)
{
	struct request request;
	char text[LOCAL_ERROR_MAX];
	snprintf(text, sizeof(text), "%s", kiln_errmsg());
	link_begin(client, &request, "cancel");
	wire_put_uint(&request.out, "ticket", ticket);
	(void)link_post(client, &request, SIZE_MAX);
	error_set(KILN_ETIMEDOUT, "%s", text);
}

static int prepare(kiln_client *client, const char *op, const kiln_tensor *tensors,
				   int tensor_count, const kiln_attr *attrs, int attr_count, int64_t deadline,
				   bool *ran, kiln_call **out)
{
	struct request request;

	/* What goes before a launch by message. */
	int status = ran ? lane_settle(client, 0, false, deadline) : KILN_OK;
	if (status != KILN_OK)
		return status;
	link_begin(client, &request, "prepare");
	status = call_put(client, &request.out, op, tensors, tensor_count, attrs, attr_count);
	if (status != KILN_OK) {
		wire_out_free(&request.out);
		return status;
	}
	if (ran) {
		wire_put_bool(&request.out, "run", true);
		lane_put_tail(client, &request.out);
	}
	status = call_make(client, &request, deadline, ran, out);
	if (status == KILN_ETIMEDOUT && ran)
		stop(client, request.id);
	if (status != KILN_OK)
		return status;
	(*out)->tensor_count = tensor_count;
	for (int i = 0; i < tensor_count; i++)
		(*out)->left_out |= (uint32_t)(tensors[i].dtype == KILN_DTYPE_NONE) << i;
	return KILN_OK;
}

int call_prepare(kiln_client *client, const char *op, const kiln_tensor *tensors, int tensor_count,
				 const kiln_attr *attrs, int attr_count, int64_t deadline, bool *ran,
				 kiln_call **out)
{
	int status = prepare(client, op, tensors, tensor_count, attrs, attr_count, deadline, ran, out);
	if (status == KILN_ELIMIT && run_forget_oldest(client))
		status = prepare(client, op, tensors, tensor_count, attrs, attr_count, deadline, ran, out);
	return status;
}

int kiln_prepare(kiln_client *client, const char *op, const kiln_tensor *tensors, int tensor_count,
				 const kiln_attr *attrs, int attr_count, kiln_call **out)
{
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	if (!out) {
		status = error_set(KILN_EINVAL, "out is NULL; the call cannot be returned");
	} else {
		status = call_prepare(client, op, tensors, tensor_count, attrs, attr_count,
							  client_deadline(client), NULL, out);
	}
	return client_leave(client, status);
}

const char *kiln_call_plan(const kiln_call *call)
{
	return call ? call->plan : "";
}

const char *kiln_call_origin(const kiln_call *call)
{
	return call ? call->origin : "";
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
	local_forget(call, client->pid != getpid());
	free(call->plan);
	free(call);
	client_unref(client);
}

void kiln_call_free(kiln_call *call)
{
	if (!call)
		return;
	kiln_client *client = call->client;
	int status = client_try(client);
	switch (status) {
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
		local_forget(call, status == KILN_EFORK);
		free(call->plan);
		free(call);
		client_unref(client);
		break;
	}
}

/* ---- Waiting ---- */

int call_await(kiln_client *client, kiln_ticket id, int64_t deadline)
{
	struct ticket *ticket = ticket_find(&client->tickets, id);
	if (!ticket->lane) {
		(void)link_drain(client);
		ticket = ticket_find(&client->tickets, id);
	}
	while (!ticket->done) {
		int status = ticket->lane ? lane_wait(client, ticket->first,
											  ticket->first + (uint64_t)ticket->parts - 1, deadline)
								  : link_wait(client, deadline);
		ticket = ticket_find(&client->tickets, id);
		if (!ticket->done && status != KILN_OK)
			return status;
	}
	return KILN_OK;
}

/* The caller's ticket: a part of a batch is nobody's. */
static struct ticket *find_outstanding(const kiln_client *client, kiln_ticket id)
{
	struct ticket *ticket = ticket_find(&client->tickets, id);
	if (ticket && ticket->batch == 0 && !ticket->given_up)
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

/* By message or from the lane: what is asked not to be run. */
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

/* The calls of a batch that went by message have the ids that follow its own; others are in one
 * piece.  Those that have ended are NULL. */
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

static int cancel_one(kiln_client *client, const struct ticket *ticket)
{
	struct request request;
	cancel_begin(client, &request, ticket);
	int status = link_ask(client, &request, client_deadline(client), NULL);
	/* It may have finished while the request was on its way: then there was nothing to cancel. */
	return status == KILN_ENOENT ? KILN_OK : status;
}

static int cancel(kiln_client *client, kiln_ticket id)
{
	(void)link_drain(client);
	const struct ticket *ticket = find_outstanding(client, id);
	if (!ticket)
		return KILN_ENOENT;
	if (ticket->done)
		return KILN_OK;
	const struct ticket whole = *ticket; /* answers may move the table */
	int status = KILN_OK;
	for (int i = 0; i < pieces(&whole) && status == KILN_OK; i++) {
		const struct ticket *piece = piece_of(client, &whole, i);
		status = piece ? cancel_one(client, piece) : KILN_OK;
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

/* These two look only, so they do not enter; a child of fork() is told all the same. */
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
	/* The tickets that the end of the daemon finished are reported before the end itself. */
	if (client->tickets.done > 0)
		status = client->tickets.done > INT32_MAX ? INT32_MAX : (int)client->tickets.done;
	else if (status != KILN_OK)
		status = link_dead(client);
	return client_leave(client, status);
}
