/*
 * work.c: the queue of what a session has submitted, in order.  A work waits at the head until all
 * it needs is there, then goes to the device process (work_send.c), which keeps the order from
 * there.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/closer.h"
#include "daemon/base/list.h"
#include "daemon/base/trace.h"
#include "daemon/broker/kernels/raw.h"
#include "daemon/plan/plan.h"
#include "daemon/base/util.h"
#include "daemon/broker/requests/request.h"
#include "work_state.h"

#define SENT_MOST 64 /* works of a session that are with its device processes */

/* ---- The lists ---- */

void work_assert_valid(const struct work *work)
{
	(void)work;
	assert((work->state == WORK_LOST) == !work->session);
	assert((work->state == WORK_FETCHING) == (work->fetching != NULL));
	assert(work->state != WORK_FREEING || work->kind == WORK_FREE);
	assert((work->kind == WORK_LAUNCH || work->kind == WORK_GRAPH) == (work->call != NULL));
	assert((work->kind >= WORK_READ && work->kind <= WORK_FREE) == (work->buffer != NULL));
	assert(work->state == WORK_QUEUED || work->state >= WORK_SENT ||
		   work == work->session->works->queued);
}

static bool is_copy(const struct work *work)
{
	return work->kind == WORK_READ || work->kind == WORK_WRITE;
}

static void unlink_work(struct work *work)
{
	struct work_queue *works = work->session->works;
	if (work->state == WORK_SENT) {
		LIST_REMOVE(works->sent, work);
		works->sent_count--;
	} else {
		QUEUE_REMOVE(works->queued, works->queued_last, work);
	}
}

struct device_handle *work_executor(const struct work *work)
{
	return work->raw ? work->session->own : work->session->executor;
}

void work_mark_sent(struct work *work)
{
	struct work_queue *works = work->session->works;
	unlink_work(work);
	work->state = WORK_SENT;
	work->sent_us = util_now_us();
	LIST_PUSH(works->sent, work);
	works->sent_count++;
}

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
	else if (is_copy(work) && status != KILN_OK)
		counters->transfers_failed++;
	else if (is_copy(work))
		*(work->kind == WORK_WRITE ? &counters->writes : &counters->reads) += 1;
}

/* Counts a work whose session ends before it. */
static void count_lost(const struct work *work)
{
	struct counters *counters = &work->session->broker->counters;
	counters->message_lost += work->kind == WORK_LAUNCH;
	counters->transfers_lost += is_copy(work);
}

void work_count(const struct session *session, uint64_t *launches, uint64_t *copies)
{
	const struct work *const lists[] = {session->works->queued, session->works->sent};
	*launches = *copies = 0;
	for (int i = 0; i < 2; i++)
		for (const struct work *work = lists[i]; work; work = work->next) {
			*launches += work->kind == WORK_LAUNCH;
			*copies += is_copy(work);
		}
}

/* Adds the work to the trace: from its request to its end, how long it waited in the queue, and
 * then, for a free, which no device shows, how long for the last use of its buffer. */
static void work_trace(const struct work *work)
{
	struct trace *trace = work->session->broker->trace;
	const uint64_t track = session_track(work->session, work->ticket),
				   begin = work->since_us * 1000;
	const uint64_t end = trace_now_ns(), flow = work->executor_call;
	const bool sent = work->state == WORK_SENT;
	char bytes[40];
	if (!work->call)
		snprintf(bytes, sizeof(bytes), "%llu bytes",
				 (unsigned long long)(is_copy(work) ? work->bytes : buffer_bytes(work->buffer)));
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
	unlink_work(work);
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

bool work_pending(const struct session *session, uint64_t ticket)
{
	return map_get_id(&session->works->by_ticket, ticket) != NULL;
}

bool work_ticket_failed(const struct session *session, uint64_t ticket)
{
	for (int i = 0; i < FAILED_TICKETS; i++)
		if (session->works->failed[i] == ticket)
			return true;
	return false;
}

/* ---- Answers of the device process ---- */

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

/* ---- The queue ---- */

static void on_executor(void *arg, int status, const char *error)
{
	struct session *session = arg;
	struct work *work = session->works->queued;
	session->works->waiting_ready = false;
	/* No device process can be had.  That ends the head of the queue; the next work asks once more.
	 * Memory that is to be freed went with the process before. */
	if (status != KILN_OK && work)
		work_end(work, work->kind == WORK_FREE ? KILN_OK : status, error, 0);
	work_pump(session);
}

/* A device process takes messages in order.  A session has at most SENT_MOST works there; the rest
 * waits here, where it delays no other session.  Functions called from here may call work_pump():
 * the outermost one goes on with the queue, so that the stack does not grow with the queue. */
void work_pump(struct session *session)
{
	if (session->state == SESSION_CLOSED)
		return;
	if (session->works->pump != PUMP_IDLE) {
		session->works->pump = PUMP_AGAIN;
		return;
	}
	while (session->works->queued && !session->works->waiting_ready &&
		   session->works->sent_count < SENT_MOST) {
		struct work *work = session->works->queued;
		session->works->pump = PUMP_RUNNING;
		work_assert_valid(work);
		/* A user's kernel needs both processes: the common one may have to share its buffers. */
		struct device_handle *missing =
			!handle_is_ready(session->executor) ? session->executor : work_executor(work);
		if (!handle_is_ready(missing)) {
			session->works->waiting_ready = true;
			handle_when_ready(missing, on_executor, session);
			continue;
		}
		if (work_advance(work) == STEP_WAITS && session->works->pump != PUMP_AGAIN)
			break;
	}
	session->works->pump = PUMP_IDLE;
}

static struct work *work_add(struct session *session, enum work_kind kind, uint64_t ticket,
							 char error[KERNEL_ERROR_MAX], int *status)
{
	uint64_t most = session->broker->options.max_inflight;
	struct work *work = NULL;
	*status = KILN_OK;
	if (session->broker->draining && kind != WORK_FREE)
		*status = util_fail(error, KERNEL_ERROR_MAX, KILN_ECANCELED, "kilnd is shutting down");
	else if ((uint64_t)(session->work_count + session->request_count) >= most)
		*status = util_fail(error, KERNEL_ERROR_MAX, KILN_ELIMIT,
							"this session has %llu requests in flight, the most it may have "
							"(--max-inflight); wait for some first",
							(unsigned long long)most);
	else if (!session->executor)
		*status = util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
							"this kilnd has no device (--device none); it only compiles");
	else if (map_get_id(&session->works->by_ticket, ticket))
		*status = util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO, "request id %llu is in use",
							(unsigned long long)ticket);
	else if (!(work = calloc(1, sizeof(*work))) ||
			 map_put_id(&session->works->by_ticket, ticket, work) < 0)
		*status = util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a call");
	if (*status != KILN_OK) {
		free(work);
		return NULL;
	}
	work->kind = kind;
	work->ticket = ticket;
	work->lane_tail = session->lane_tail;
	work->lane_follows = session->lane_follows;
	work->session = session;
	work->asked = session->asks;
	work->since_us = util_now_us();
	work->parts.us[RECENT_PLAN] = session->broker->planned_us;
	work->device = session->device ? session->device->kind : 0;
	work->fd = -1;
	QUEUE_APPEND(session->works->queued, session->works->queued_last, work);
	session->work_count++;
	session->broker->counters.submitted += kind == WORK_LAUNCH;
	session->broker->counters.transfers += is_copy(work);
	return work;
}

int work_launch(struct session *session, uint64_t ticket, struct call *call,
				struct kernel_ref *variant, const struct work_operand *operands,
				const struct work_order *order, char error[KERNEL_ERROR_MAX])
{
	int status;
	struct work *work = work_add(session, WORK_LAUNCH, ticket, error, &status);
	if (!work)
		return status;
	work->call = call_hold(call);
	work->kernel = work->variant = kernel_hold(variant);
	work->order = *order;
	work->operand_count = variant->plan.operand_count;
	work->extents = variant->plan.extents;
	memcpy(work->operands, operands, sizeof(*operands) * (size_t)work->operand_count);
	work_pump(session);
	return KILN_OK;
}

int work_launch_graph(struct session *session, uint64_t ticket, struct call *call,
					  const struct work_order *order, char error[KERNEL_ERROR_MAX])
{
	int status = call_check_device(session, call, "the graph",
								   "make one of calls that are prepared now", error);
	if (status == KILN_OK)
		status = graph_resolve(call->graph, error);
	struct work *work =
		status == KILN_OK ? work_add(session, WORK_LAUNCH, ticket, error, &status) : NULL;
	if (!work)
		return status;
	work->call = call_hold(call);
	work->order = *order;
	work_pump(session);
	return KILN_OK;
}

int work_graph(struct session *session, uint64_t ticket, struct call *call,
			   char error[KERNEL_ERROR_MAX])
{
	int status;
	struct work *work = work_add(session, WORK_GRAPH, ticket, error, &status);
	if (!work)
		return status;
	work->call = call;
	work_pump(session);
	return KILN_OK;
}

int work_launch_raw(struct session *session, uint64_t ticket, struct call *call,
					struct raw_launch *launch, uint64_t after, char error[KERNEL_ERROR_MAX])
{
	int status;
	struct work *work = work_add(session, WORK_LAUNCH, ticket, error, &status);
	if (!work)
		return status;
	work->call = call_hold(call);
	work->kernel = work->variant = kernel_hold(call->variants[0]);
	work->raw = launch;
	work->operand_count = launch->operand_count;
	work->extents = launch->extents;
	memcpy(work->operands, launch->operands, sizeof(work->operands));
	work->order.after = after;
	work_pump(session);
	return KILN_OK;
}

int work_copy(struct session *session, uint64_t ticket, struct buffer *buffer, uint64_t offset,
			  uint64_t bytes, int fd, bool to_device, char error[KERNEL_ERROR_MAX])
{
	int status;
	struct work *work =
		work_add(session, to_device ? WORK_WRITE : WORK_READ, ticket, error, &status);
	if (!work)
		return status;
	work->buffer = buffer;
	work->offset = offset;
	work->bytes = bytes;
	work->fd = fd;
	work_pump(session);
	return KILN_OK;
}

int work_share(struct session *session, uint64_t id, struct buffer *buffer,
			   char error[KERNEL_ERROR_MAX])
{
	int status;
	struct work *work = work_add(session, WORK_SHARE, id, error, &status);
	if (!work)
		return status;
	work->buffer = buffer;
	work_pump(session);
	return KILN_OK;
}

int work_free(struct session *session, uint64_t id, struct buffer *buffer,
			  char error[KERNEL_ERROR_MAX])
{
	int status;
	struct work *work = work_add(session, WORK_FREE, id, error, &status);
	if (!work)
		return status;
	work->buffer = buffer;
	/* The client can name it no more; works before this one still use it. */
	buffer_unname(buffer);
	work_pump(session);
	return KILN_OK;
}

void work_cancel(struct session *session, uint64_t ticket)
{
	struct work *work = map_get_id(&session->works->by_ticket, ticket);
	struct wire_out message;
	if (!work || work->kind != WORK_LAUNCH)
		return;
	if (work->state == WORK_SENT) {
		uint64_t id = handle_begin(work_executor(work), &message, "cancel");
		wire_put_uint(&message, "ticket", work->executor_call);
		handle_post(work_executor(work), &message, id);
		return;
	}
	work_end(work, KILN_ECANCELED, "the call was canceled before it started", 0);
	work_pump(session);
}

bool works_open(struct session *session)
{
	session->works = calloc(1, sizeof(*session->works));
	return session->works != NULL;
}

void works_free(struct session *session)
{
	if (!session->works)
		return;
	while (session->works->queued) {
		struct work *work = session->works->queued;
		count_lost(work);
		unlink_work(work);
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
		unlink_work(work);
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
