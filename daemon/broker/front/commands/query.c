/* query.c: how a request that the store's thread answers begins and ends. */
#include "query.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/util.h"

/* The store's thread may hold the query: query_done() frees it. */
static void query_abandon(struct request *request)
{
	(void)request;
}

/* Answers, unless the session has ended, and frees. */
static void query_end(struct query *query)
{
	struct session *session = query->request.session;
	if (session && query->status == KILN_OK) {
		reply_send(session, &query->out, NULL, 0);
	} else {
		wire_out_free(&query->out);
		if (session)
			reply_error(session, query->request.id, query->status, "%s", query->error);
	}
	request_close(&query->request);
	free(query);
}

static void query_done(struct broker *broker, void *arg)
{
	struct query *query = arg;
	if (query->status == KILN_OK && query->after)
		query->after(broker, query);
	query_end(query);
}

void query_serve(struct session *session, struct wire_in *message, query_take take, store_work work)
{
	struct query *query = calloc(1, sizeof(*query));
	if (!query)
		reply_error(session, wire_id(message), KILN_ENOMEM, "out of memory");
	if (!query || !request_open(session, wire_id(message), &query->request, query_abandon)) {
		free(query);
		return;
	}
	query_copy_text(message, "key", query->key, sizeof(query->key));
	query->options = &session->broker->options;
	reply_begin(&query->out, query->request.id);
	int status = take(message, query);
	query->status = KILN_ETIMEDOUT; /* until the work is done */
	if (status == KILN_OK && request_store(&query->request, work, query_done) != KILN_OK)
		status = util_fail(query->error, sizeof(query->error), KILN_ENOMEM, "out of memory");
	if (status == KILN_OK)
		return;
	query->status = status;
	query_end(query);
}

int query_take_key(struct wire_in *message, struct query *query)
{
	(void)message, (void)query;
	return KILN_OK;
}

int query_take_text(struct wire_in *message, const char *name, const char *what, char *room,
					size_t size, char error[KERNEL_ERROR_MAX])
{
	const char *text = wire_get_str(message, &message->root, name);
	if (!text || strlen(text) >= size)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "\"%.*s\" is no %s: it has 1 to %zu bytes",
						 PLAIN_CUT(text ? text : "", 80), what, size - 1);
	memcpy(room, text, strlen(text) + 1);
	return KILN_OK;
}

void query_copy_text(struct wire_in *message, const char *name, char *room, size_t size)
{
	const char *text = wire_get_str(message, &message->root, name);
	snprintf(room, size, "%s", text ? text : "");
}
