/* request.c: open requests, and replies. */
#include "request.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

#include "daemon/base/list.h"
#include "daemon/base/trace.h"
#include "daemon/base/util.h"

/* ---- Replies ---- */

void reply_begin(struct wire_out *out, uint64_t id)
{
	reply_begin_with(out, id, KILN_OK);
}

void reply_begin_with(struct wire_out *out, uint64_t id, int status)
{
	wire_begin(out, "reply", id);
	out->for_people = true;
	wire_put_int(out, "st", status);
}

void reply_send(struct session *session, struct wire_out *out, const int *fds, int fd_count)
{
	session->send(session->peer, out, fds, fd_count);
}

void reply_ok(struct session *session, uint64_t id)
{
	struct wire_out out;
	reply_begin(&out, id);
	reply_send(session, &out, NULL, 0);
}

void reply_error(struct session *session, uint64_t id, int status, const char *format, ...)
{
	struct wire_out out;
	char text[REPLY_TEXT_MAX];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	plain_clean(text, sizeof(text), PLAIN_LINE); /* it may quote the client */
	reply_begin_with(&out, id, status);
	wire_put_str(&out, "err", text);
	reply_send(session, &out, NULL, 0);
}

/* ---- Open requests ---- */

static void request_assert_valid(const struct request *request)
{
	(void)request;
	assert((request->state == REQUEST_OPEN) == (request->session != NULL));
	assert(request->state == REQUEST_OPEN || (!request->previous && !request->next));
	assert(request->state != REQUEST_OPEN || request->abandon);
}

bool request_open(struct session *session, uint64_t id, struct request *request,
				  void (*abandon)(struct request *request))
{
	uint64_t most = session->broker->options.max_inflight;
	if ((uint64_t)(session->request_count + session->work_count) >= most) {
		reply_error(session, id, KILN_ELIMIT,
					"this session has %llu requests in flight, the most it may have "
					"(--max-inflight); wait for some first",
					(unsigned long long)most);
		return false;
	}
	*request = (struct request){.state = REQUEST_OPEN,
								.session = session,
								.id = id,
								.abandon = abandon,
								.name = session->asks,
								.since_us = util_now_us()};
	LIST_PUSH(session->requests, request);
	session->request_count++;
	request_assert_valid(request);
	return true;
}

void request_close(struct request *request)
{
	struct session *session = request->session;
	if (request->state != REQUEST_OPEN)
		return;
	request_assert_valid(request);
	if (trace_shows(session->broker->trace, session->id))
		trace_add(session->broker->trace, session_track(session, request->id),
				  &(struct trace_span){.name = request->name,
									   .begin_ns = request->since_us * 1000,
									   .end_ns = trace_now_ns()});
	LIST_REMOVE(session->requests, request);
	request->session = NULL;
	request->state = REQUEST_CLOSED;
	session->request_count--;
	request_assert_valid(request);
}

static void abandon(struct request *request)
{
	request_close(request);
	request->abandon(request);
}

void requests_abandon(struct session *session)
{
	while (session->requests)
		abandon(session->requests);
}

/* ---- Requests that the store's thread answers ---- */

static void answer_late(struct broker *broker, void *arg, const char *why)
{
	struct request *request = arg;
	(void)broker;
	if (request->state != REQUEST_OPEN)
		return;
	reply_error(request->session, request->id, KILN_ETIMEDOUT, "%s", why);
	abandon(request);
}

int request_store(struct request *request, store_work work, store_done done)
{
	const struct session *session = request->session;
	return store_wait(session->broker, session_turn(session), work, done, answer_late, request,
					  NULL);
}
