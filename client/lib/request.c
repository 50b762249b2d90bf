/*
 * request.c: kiln_explain(), kiln_compile(), and kiln_request() for requests without a function of
 * their own.
 */
#include "client.h"
#include "error.h"
#include "link.h"
#include "problem.h"
#include "reply.h"
#include "client/wire/protocol.h"

#include <string.h>

static int check_out(const void *out)
{
	return out ? KILN_OK : error_set(KILN_EINVAL, "out is NULL; nothing can be returned");
}

/* Asks, and hands the whole answer to the program. */
static int ask_reply(kiln_client *client, struct request *request, kiln_reply **out)
{
	struct answer answer;
	int status = link_ask(client, request, client_deadline(client), &answer);
	return status == KILN_OK ? reply_make(&answer, out) : status;
}

/* "explain" and "compile" take the same arguments. */
static int ask_about(kiln_client *client, const char *name, const char *op,
					 const kiln_tensor *tensors, int tensor_count, const kiln_attr *attrs,
					 int attr_count, const char *target, kiln_reply **out)
{
	struct request request;
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	status = check_out(out);
	if (status == KILN_OK) {
		link_begin(client, &request, name);
		status = problem_put(client, &request.out, op, tensors, tensor_count, attrs, attr_count);
		wire_put_str(&request.out, "target", target);
		if (status == KILN_OK)
			status = ask_reply(client, &request, out);
		else
			wire_out_free(&request.out);
	}
	return client_leave(client, status);
}

int kiln_explain(kiln_client *client, const char *op, const kiln_tensor *tensors, int tensor_count,
				 const kiln_attr *attrs, int attr_count, const char *target, kiln_reply **out)
{
	return ask_about(client, "explain", op, tensors, tensor_count, attrs, attr_count, target, out);
}

int kiln_compile(kiln_client *client, const char *op, const kiln_tensor *tensors, int tensor_count,
				 const kiln_attr *attrs, int attr_count, const char *target, kiln_reply **out)
{
	return ask_about(client, "compile", op, tensors, tensor_count, attrs, attr_count, target, out);
}

static int check_request(const char *name, const kiln_attr *args, int count)
{
	if (!name || name[0] == 0)
		return error_set(KILN_EINVAL, "the request has no name");
	for (int i = 0; args != NULL && i < count && i < KILN_MAX_ATTRS; i++) {
		const char *key = args[i].name;
		if (key && (strcmp(key, "t") == 0 || strcmp(key, "id") == 0)) {
			return error_set(KILN_EINVAL,
							 "\"%s\" cannot be an argument of \"%s\": every message has one", key,
							 name);
		}
	}
	return KILN_OK;
}

int kiln_request(kiln_client *client, const char *name, const kiln_attr *args, int arg_count,
				 kiln_reply **out)
{
	struct request request;
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	status = check_out(out);
	if (status == KILN_OK)
		status = check_request(name, args, arg_count);
	if (status == KILN_OK) {
		link_begin(client, &request, name);
		status = problem_put_attrs(&request.out, args, arg_count);
		if (status == KILN_OK)
			status = ask_reply(client, &request, out);
		else
			wire_out_free(&request.out);
	}
	return client_leave(client, status);
}
