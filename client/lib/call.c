/*
 * call.c: prepares calls, and frees them.  It must not know how messages travel.
 */
#include "call.h"
#include "client.h"
#include "error.h"
#include "lane.h"
#include "link.h"
#include "local_launch.h"
#include "problem.h"
#include "signature.h"
#include "client/wire/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Preparing ---- */

int call_make(kiln_client *client, struct request *request, int64_t deadline,
			  struct call_first *first, kiln_call **out)
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
	if (first)
		first->ran = wire_get_bool(&answer.in.root, "ran", false);
	if (first)
		lane_answer_new(call, first->tensors, first->count, &answer);
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

/* Cancels a call that timed out, and keeps this thread's message. */
static void stop(kiln_client *client, uint64_t ticket)
{
	struct request request;
	char text[ERROR_MAX];
	snprintf(text, sizeof(text), "%s", kiln_errmsg());
	link_begin(client, &request, "cancel");
	wire_put_uint(&request.out, "ticket", ticket);
	(void)link_post(client, &request, SIZE_MAX);
	error_set(KILN_ETIMEDOUT, "%s", text);
}

/* Has the device process plan the call, which is then to be launched; LANE_NOT: the request goes by
 * message. */
static int plan_call(kiln_client *client, struct request *request, const kiln_tensor *tensors,
					 int count, int64_t deadline, kiln_call **out)
{
	kiln_call *call = calloc(1, sizeof(*call));
	int status = call ? lane_plan(client, request, tensors, count, deadline, call) : LANE_NOT;
	if (status != KILN_OK) {
		free(call);
		return status;
	}
	call->client = client;
	atomic_fetch_add(&client->refs, 1);
	if (!lane_note_planned(call, request)) {
		call_release(call);
		return error_set(KILN_ENOMEM, "no memory for a call");
	}
	*out = call;
	return KILN_OK;
}

static int prepare_call(kiln_client *client, const char *op, const kiln_tensor *tensors,
						int tensor_count, const kiln_attr *attrs, int attr_count, int64_t deadline,
						bool *ran, kiln_call **out)
{
	struct call_first first = {tensors, tensor_count, false};
	struct request request;

	/* The lane's earlier launches come before a launch by message. */
	int status = ran ? lane_settle(client, 0, false, deadline) : KILN_OK;
	if (status != KILN_OK)
		return status;
	link_begin(client, &request, "prepare");
	status = problem_put(client, &request.out, op, tensors, tensor_count, attrs, attr_count);
	if (status != KILN_OK) {
		wire_out_free(&request.out);
		return status;
	}
	if (ran) {
		wire_put_bool(&request.out, "run", true);
		lane_ask_new(client, &request);
		lane_put_tail(client, &request.out);
	}
	status = ran ? plan_call(client, &request, tensors, tensor_count, deadline, out) : LANE_NOT;
	if (status == LANE_NOT) {
		status = call_make(client, &request, deadline, ran ? &first : NULL, out);
		if (status == KILN_ETIMEDOUT && ran)
			stop(client, request.id);
	} else if (status != KILN_OK) {
		wire_out_free(&request.out);
	}
	if (status != KILN_OK)
		return status;
	if (ran)
		*ran = first.ran;
	(*out)->tensor_count = tensor_count;
	for (int i = 0; i < tensor_count; i++)
		(*out)->left_out |= (uint32_t)(tensors[i].dtype == KILN_DTYPE_NONE) << i;
	return KILN_OK;
}

int call_prepare(kiln_client *client, const char *op, const kiln_tensor *tensors, int tensor_count,
				 const kiln_attr *attrs, int attr_count, int64_t deadline, bool *ran,
				 kiln_call **out)
{
	int status =
		prepare_call(client, op, tensors, tensor_count, attrs, attr_count, deadline, ran, out);
	/* The daemon may have refused some of those that the device process planned. */
	while (status == KILN_ELIMIT && call_forget_oldest(client))
		status =
			prepare_call(client, op, tensors, tensor_count, attrs, attr_count, deadline, ran, out);
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

void call_drop(kiln_call *call)
{
	kiln_client *client = call->client;
	local_forget(call, client->pid != getpid());
	lane_forget_told(call);
	free(call->plan);
	free(call);
	client_unref(client);
}

void call_release(kiln_call *call)
{
	kiln_client *client = call->client;
	if (client->link != LINK_DEAD && call->id != 0) {
		struct request request;
		link_begin(client, &request, "release");
		wire_put_uint(&request.out, "call", call->id);
		lane_put_tail(client, &request.out);
		(void)link_post(client, &request, SIZE_MAX);
	}
	lane_forget_call(client, call);
	call_drop(call);
}

bool call_forget_oldest(kiln_client *client)
{
	struct kiln_call *call = signature_forget_oldest(client->signatures);
	if (!call)
		return false;
	call_release(call);
	return true;
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
		client_adopt(client, call);
		break;
	default:
		if (status == KILN_ECONN && atomic_load(&client->state) != CLIENT_CLOSED) {
			client_adopt(client, call);
			break;
		}
		call_drop(call);
		break;
	}
}
