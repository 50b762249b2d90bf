/* query.c: how a request that the store's thread answers begins and ends. */
#include "query.h"

#include <stdlib.h>

#include "daemon/base/util.h"

/* The store's thread may hold it: the end frees it. */
static void query_abandon(struct request *request)
{
	(void)request;
}

static void query_done(struct broker *broker, void *arg)
{
	struct query *query = arg;
	struct session *session = query->request.session;
	(void)broker;
	if (!session) {
		wire_out_free(&query->out);
		free(query);
		return;
	}
	if (query->status == KILN_OK) {
		reply_send(session, &query->out, NULL, 0);
	} else {
		wire_out_free(&query->out);
		reply_error(session, query->request.id, query->status, "%s", query->error);
	}
	request_close(&query->request);
	free(query);
}

struct query *query_open(struct session *session, struct wire_in *message)
{
	const char *key = wire_get_str(message, &message->root, "key");
	struct query *query = calloc(1, sizeof(*query));
	if (!query) {
		reply_error(session, wire_id(message), KILN_ENOMEM, "out of memory");
		return NULL;
	}
	if (!request_open(session, wire_id(message), &query->request, query_abandon)) {
		free(query);
		return NULL;
	}
	snprintf(query->key, sizeof(query->key), "%s", key ? key : "");
	query->options = &session->broker->options;
	reply_begin(&query->out, query->request.id);
	return query;
}

void query_run(struct query *query, store_work work)
{
	struct broker *broker = query->request.session->broker;
	if (request_store(&query->request, work, query_done) != KILN_OK) {
		query->status = util_fail(query->error, sizeof(query->error), KILN_ENOMEM, "out of memory");
		query_done(broker, query);
	}
}

void query_drop(struct query *query)
{
	wire_out_free(&query->out);
	request_close(&query->request);
	free(query);
}
