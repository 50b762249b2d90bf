/*
 * command_trace.c: trace has spans made for a while, and answers with them.  The rooms add theirs
 * to broker->trace where something ends; what device processes did is read from their trails.
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

struct tracing {
	struct request request;
	struct broker *broker;
	uv_timer_t clock;
	uint64_t until_us;
};

static void on_tracing_closed(uv_handle_t *handle)
{
	free(handle->data);
}

/* Ends the trace, which the caller frees. */
static struct trace *tracing_end(struct tracing *tracing)
{
	struct broker *broker = tracing->broker;
	struct trace *trace = broker->trace;
	broker->trace = NULL;
	handles_trace(broker);
	uv_close((uv_handle_t *)&tracing->clock, on_tracing_closed);
	return trace;
}

static void tracing_abandon(struct request *request)
{
	struct tracing *tracing = (struct tracing *)request;
	trace_free(tracing_end(tracing));
}

static void on_tracing_clock(uv_timer_t *clock)
{
	struct tracing *tracing = clock->data;
	struct session *session = tracing->request.session;
	struct wire_out out;
	handles_trace(session->broker);
	if (util_now_us() < tracing->until_us)
		return;
	request_close(&tracing->request);
	struct trace *trace = tracing_end(tracing);
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
	trace_free(trace);
}

void serve_trace(struct session *session, struct wire_in *message)
{
	struct broker *broker = session->broker;
	uint64_t id = wire_id(message), ms = wire_get_uint(&message->root, "ms", 0);
	uint64_t room = broker->options.max_queued / 2;
	if (ms < 1 || ms > TRACE_LONGEST_MS) {
		reply_error(session, id, KILN_EINVAL, "a trace takes 1 to %d ms", TRACE_LONGEST_MS);
		return;
	}
	if (broker->trace) {
		reply_error(session, id, KILN_EBUSY, "another trace is being made; wait for its end");
		return;
	}
	struct tracing *tracing = calloc(1, sizeof(*tracing));
	struct trace *trace = trace_new((size_t)(room < TRACE_MOST ? room : TRACE_MOST));
	if (!tracing || !trace) {
		reply_error(session, id, KILN_ENOMEM, "out of memory for a trace");
	} else if (request_open(session, id, &tracing->request, tracing_abandon)) {
		broker->trace = trace;
		tracing->broker = broker;
		tracing->until_us = util_now_us() + ms * 1000;
		tracing->clock.data = tracing;
		uv_timer_init(&broker->loop, &tracing->clock);
		uv_timer_start(&tracing->clock, on_tracing_clock, PAUSE_TRACE_MS, PAUSE_TRACE_MS);
		handles_trace(broker);
		return;
	}
	trace_free(trace);
	free(tracing);
}
