/*
 * work_end.c: how a work ends: it is counted, added to the trace and to the recent ones, answered
 * and freed.  A session that ends before its works answers none of them.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/base/closer.h"
#include "daemon/base/trace.h"
#include "daemon/broker/kernels/raw.h"
#include "daemon/plan/plan.h"
#include "daemon/base/util.h"
#include "daemon/broker/requests/request.h"
#include "work_state.h"

static void release(struct work *work)
{
	if (work->session)
		closer_put(work->session->uid, work->fd);
	call_drop(work->call);
	kernel_drop(work->variant);
	free(work->raw);
	free(work);
}

/* Frees a work, and stops what is under way for it. */
static void free_work(struct work *work)
{
	switch (work->state) {
	case WORK_FETCHING:
		job_leave(work->session->broker, work->fetching);
		break;
	case WORK_LOADING:
		handle_disown(work_executor(work), work);
		break;
	case WORK_FREEING:
		handle_disown(work->session->own, work);
		break;
	default:
		break;
	}
	release(work);
}

/* ---- Figures ---- */

static void count_launch(const struct work *work, bool well)
{
	struct session *session = work->session;
	struct counters *counters = &session->broker->counters;
	struct tally *of_operator =
		work->call->graph ? operator_tally(&session->broker->operators, work->call->problem.op)
						  : job_tally(session->broker, work->variant);
	if (well) {
		counters->launches++;
		counters->message_launches++;
		session->tally.launches++;
		of_operator->launches++;
	} else {
		counters->launch_failures++;
		counters->message_failures++;
		session->tally.launch_failures++;
		of_operator->launch_failures++;
	}
}

static void count_end(const struct work *work, int status)
{
	struct counters *counters = &work->session->broker->counters;
	if (work->kind == WORK_LAUNCH)
		count_launch(work, status == KILN_OK);
	else if (work_is_copy(work) && status != KILN_OK)
		counters->transfers_failed++;
	else if (work_is_copy(work))
		*(work->kind == WORK_WRITE ? &counters->writes : &counters->reads) += 1;
}

/* Counts a work whose session ends before it. */
static void count_lost(const struct work *work)
{
	struct counters *counters = &work->session->broker->counters;
	counters->message_lost += work->kind == WORK_LAUNCH;
	counters->transfers_lost += work_is_copy(work);
}

/* Adds the work to the trace, from its request to its end, with the time that it waited in the
 * queue.  No device shows a free, so the trace has its wait for the last use of the buffer, too. */
static void work_trace(const struct work *work)
{
	struct trace *trace = work->session->broker->trace;
	const uint64_t track = session_track(work->session, work->ticket),
				   begin = work->since_us * 1000;
	const uint64_t end = trace_now_ns(), flow = work->executor_call;
	const bool sent = work->state == WORK_SENT;
	char bytes[40];
	if (!work->call)
		snprintf(
			bytes, sizeof(bytes), "%llu bytes",
			(unsigned long long)(work_is_copy(work) ? work->bytes : buffer_bytes(work->buffer)));
	trace_add(trace, track,
			  &(struct trace_span){.name = work->asked,
								   .begin_ns = begin,
								   .end_ns = end,
								   .flow = flow ? handle_flow(work_executor(work), flow) : 0,
								   .about = work->call ? work->call->problem.op : bytes});
	trace_add(trace, track,
			  &(struct trace_span){.name = "queue",
								   .begin_ns = begin,
								   .end_ns = sent ? work->sent_us * 1000 : end,
								   .depth = 1});
	if (sent && work->kind == WORK_FREE)
		trace_add(
			trace, track,
			&(struct trace_span){
				.name = "last use", .begin_ns = work->sent_us * 1000, .end_ns = end, .depth = 1});
}

static void note_recent(struct work *work, int status)
{
	const struct kernel_ref *asked = work->call->graph ? NULL : work->variant;
	if (asked && !strcmp(work->kernel->plan.choice, "generic"))
		work->parts.origin = "generic";
	else if (asked && !work->parts.origin)
		work->parts.origin = "loaded";
	if (work->state == WORK_SENT)
		work->parts.us[RECENT_DEVICE] = util_now_us() - work->sent_us;
	recent_add(work->session,
			   &(struct recent_about){.asked = work->asked,
									  .op = work->call->problem.op,
									  .choice = asked ? work->kernel->plan.choice : "",
									  .manifest = asked ? asked->manifest : NULL,
									  .began_us = work->since_us,
									  .status = status},
			   &work->parts);
}

/* ---- The end ---- */

void work_end(struct work *work, int status, const char *error, uint64_t micros)
{
	struct session *session = work->session;
	struct wire_out out;
	work_assert_valid(work);
	if (trace_shows(session->broker->trace, session->id))
		work_trace(work);
	if (work->kind == WORK_LAUNCH)
		note_recent(work, status);
	/* The session's table holds a new graph from now on. */
	if (status == KILN_OK && work->kind == WORK_GRAPH && !call_keep(session, work->call)) {
		status = KILN_ENOMEM;
		error = "out of memory for a graph";
	} else if (status == KILN_OK && work->kind == WORK_GRAPH) {
		call_hold(work->call);
	}
	work_unlink(work);
	map_remove_id(&session->works->by_ticket, work->ticket);
	session->work_count--;
	count_end(work, status);
	if (status == KILN_OK) {
		reply_begin(&out, work->ticket);
		if (work->kind == WORK_LAUNCH)
			wire_put_uint(&out, "micros", micros);
		if (work->order.first) {
			wire_put_uint(&out, "call", work->call->id);
			wire_put_bool(&out, "ran", true);
		}
		if (work->kind == WORK_GRAPH)
			graph_put(work->call, &out);
		int fds[LANE_DESCRIPTORS], fd_count = work->bound ? lane_put(work, &out, fds) : 0;
		if (work->kind == WORK_SHARE) {
			wire_put_uint(&out, "span", work->buffer->memory.span);
			wire_put_uint(&out, "offset", work->buffer->memory.offset);
			wire_put_uint(&out, "memory", work->buffer->memory.shared);
			fds[fd_count++] = work->buffer->memory.fd;
		}
		reply_send(session, &out, fds, fd_count);
	} else {
		session->works->failed[session->works->failed_at++ % FAILED_TICKETS] = work->ticket;
		if (work->order.first) {
			lane_unbind(session, work->call);
			call_forget(session, work->call->id);
		}
		reply_error(session, work->ticket, status, "%s", error);
	}
	if (work->kind == WORK_FREE)
		buffer_delete(work->buffer);
	free_work(work);
}

bool work_ticket_failed(const struct session *session, uint64_t ticket)
{
	for (int i = 0; i < FAILED_TICKETS; i++)
		if (session->works->failed[i] == ticket)
			return true;
	return false;
}

void work_done(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct work *work = arg;
	struct session *session = work->session;
	char sentence[KERNEL_ERROR_MAX + 192], label[160], own[KERNEL_ERROR_MAX];
	if (work->state == WORK_LOST) {
		release(work);
		return;
	}
	if (work->kind == WORK_LAUNCH && status == KILN_EINDEX && reply && !work->raw) {
		snprintf(own, sizeof(own), "%s", error);
		plan_report(&work->call->problem, wire_get_uint(&reply->root, "reported", 0), own);
		error = own;
	}
	if (reply) {
		uint64_t accesses = wire_get_uint(&reply->root, "accesses", 0);
		session->broker->checked.launches += accesses > 0;
		session->broker->checked.blocks += wire_get_uint(&reply->root, "blocks", 0);
		session->broker->checked.accesses += accesses;
	}
	/* The memory ended with its process: that is as good as freed. */
	if (work->kind == WORK_FREE && (status == KILN_EDEVICE || status == KILN_ETIMEDOUT))
		status = KILN_OK;
	if (work->raw && status != KILN_OK)
		snprintf(sentence, sizeof(sentence), "%s: %s", raw_label(&work->variant->plan, label),
				 error);
	else if (work->kind == WORK_LAUNCH && status != KILN_OK)
		snprintf(sentence, sizeof(sentence), "%s: %s", work->call->problem.op, error);
	else if (error)
		snprintf(sentence, sizeof(sentence), "%s", error);
	else
		sentence[0] = 0;
	work_end(work, status, sentence, reply ? wire_get_uint(&reply->root, "us", 0) : 0);
	work_pump(session);
}

void works_free(struct session *session)
{
	if (!session->works)
		return;
	while (session->works->queued) {
		struct work *work = session->works->queued;
		count_lost(work);
		work_unlink(work);
		if (work->kind == WORK_FREE) {
			buffer_release(work->buffer);
			buffer_delete(work->buffer);
		}
		graph_orphan(work->call);
		free_work(work);
	}
	while (session->works->sent) {
		struct work *work = session->works->sent;
		count_lost(work);
		work_unlink(work);
		if (work->kind == WORK_FREE)
			buffer_delete(work->buffer);
		graph_orphan(work->call);
		closer_put(session->uid, work->fd);
		work->fd = -1;
		work->session = NULL;
		work->state = WORK_LOST;
	}
	session->work_count = 0;
	map_free(&session->works->by_ticket);
	free(session->works);
	session->works = NULL;
}
