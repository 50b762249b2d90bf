/*
 * command_trace.c: trace has spans made for a while, and answers with them; trace.begin has those
 * of its own session made, until trace.end asks for them.  The rooms add theirs to broker->trace
 * where something ends; what device processes did is read from their trails.
 *
 *   TIMED --its time is over--> answered and freed
 *   BEGUN --trace.end--> TIMED, for PAUSE_TRACE_LAST_MS: of the last call the end is to be read
 *   BEGUN --its time is over--> FULL --trace.end--> answered and freed
 *   (any) --the session ends--> freed
 */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/trace.h"
#include "daemon/base/util.h"
#include "daemon/broker/devices/handle.h"

#define TRACE_MOST ((uint64_t)8 << 20) /* bytes */
#define TRACE_LONGEST_MS 60000

enum tracing_state { TRACING_TIMED, TRACING_BEGUN, TRACING_FULL };

/* The request of trace.begin is answered, and stays open all the same: so it ends with its session,
 * and is seen where waits are looked at. */
struct tracing {
	struct request request;
	enum tracing_state state;
	struct broker *broker;
	struct trace *trace; /* owned; broker->trace unless FULL */
	uv_timer_t clock;
	uint64_t until_us;
};

static void on_tracing_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void tracing_stop(struct tracing *tracing)
{
	if (tracing->state == TRACING_FULL)
		return;
	tracing->state = TRACING_FULL;
	tracing->broker->trace = NULL;
	handles_trace(tracing->broker);
	uv_timer_stop(&tracing->clock);
}

static void tracing_free(struct tracing *tracing)
{
	tracing_stop(tracing);
	trace_free(tracing->trace);
	uv_close((uv_handle_t *)&tracing->clock, on_tracing_closed);
}

static void tracing_abandon(struct request *request)
{
	tracing_free((struct tracing *)request);
}

static void tracing_answer(struct tracing *tracing)
{
	struct session *session = tracing->request.session;
	const struct trace *trace = tracing->trace;
	struct wire_out out;
	/* A span of its own ends with the request. */
	request_close(&tracing->request);
	if (trace->text.failed) {
		reply_error(session, tracing->request.id, KILN_ENOMEM, "out of memory for a trace");
	} else {
		reply_begin(&out, tracing->request.id);
		wire_put_bin(&out, "trace", trace->text.text, trace->text.size);
		wire_put_uint(&out, "spans", trace->spans);
		wire_put_uint(&out, "dropped", trace->dropped);
		wire_put_uint(&out, "missed", trace->missed);
		reply_send(session, &out, NULL, 0);
	}
	tracing_free(tracing);
}

static void on_tracing_clock(uv_timer_t *clock)
{
	struct tracing *tracing = clock->data;
	handles_trace(tracing->broker);
	if (util_now_us() < tracing->until_us && !tracing->broker->draining)
		return;
	if (tracing->state == TRACING_TIMED) {
		tracing_answer(tracing);
	} else if (tracing->broker->draining) {
		request_close(&tracing->request);
		tracing_free(tracing);
	} else {
		tracing_stop(tracing);
	}
}

/* Begins a trace of all, or of the session alone.  NULL: it is refused, and answered. */
static struct tracing *tracing_open(struct session *session, uint64_t id, uint64_t ms, bool alone)
{
	struct broker *broker = session->broker;
	uint64_t room = broker->options.max_queued / 2;
	if (broker->trace) {
		reply_error(session, id, KILN_EBUSY, "another trace is being made; wait for its end");
		return NULL;
	}
	struct tracing *tracing = calloc(1, sizeof(*tracing));
	struct trace *trace =
		trace_new((size_t)(room < TRACE_MOST ? room : TRACE_MOST), alone ? session->id : 0);
	if (!tracing || !trace) {
		reply_error(session, id, KILN_ENOMEM, "out of memory for a trace");
	} else if (request_open(session, id, &tracing->request, tracing_abandon)) {
		tracing->trace = broker->trace = trace;
		tracing->broker = broker;
		tracing->until_us = util_now_us() + ms * 1000;
		tracing->clock.data = tracing;
		uv_timer_init(&broker->loop, &tracing->clock);
		uv_timer_start(&tracing->clock, on_tracing_clock, PAUSE_TRACE_MS, PAUSE_TRACE_MS);
		handles_trace(broker);
		return tracing;
	}
	trace_free(trace);
	free(tracing);
	return NULL;
}

void serve_trace(struct session *session, struct wire_in *message)
{
	uint64_t id = wire_id(message), ms = wire_get_uint(&message->root, "ms", 0);
	if (ms < 1 || ms > TRACE_LONGEST_MS)
		reply_error(session, id, KILN_EINVAL, "a trace takes 1 to %d ms", TRACE_LONGEST_MS);
	else
		tracing_open(session, id, ms, false);
}

static struct tracing *find_begun(const struct session *session)
{
	for (struct request *request = session->requests; request; request = request->next)
		if (request->abandon == tracing_abandon &&
			((struct tracing *)request)->state != TRACING_TIMED)
			return (struct tracing *)request;
	return NULL;
}

void serve_trace_begin(struct session *session, struct wire_in *message)
{
	uint64_t id = wire_id(message);
	struct tracing *begun = find_begun(session);
	if (begun) {
		reply_error(session, id, KILN_EBUSY, "this session has begun a trace: trace.end ends it");
		return;
	}
	struct tracing *tracing = tracing_open(session, id, TRACE_LONGEST_MS, true);
	if (!tracing)
		return;
	tracing->state = TRACING_BEGUN;
	reply_ok(session, id);
}

void serve_trace_end(struct session *session, struct wire_in *message)
{
	struct tracing *tracing = find_begun(session);
	if (!tracing) {
		reply_error(session, wire_id(message), KILN_ENOENT,
					"this session has no trace; trace.begin begins one");
		return;
	}
	tracing->request.id = wire_id(message);
	if (tracing->state == TRACING_FULL) {
		tracing_answer(tracing);
		return;
	}
	tracing->state = TRACING_TIMED;
	tracing->until_us = util_now_us() + PAUSE_TRACE_LAST_MS * 1000;
}
