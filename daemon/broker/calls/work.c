/*
 * work.c: the queue of what a session has submitted, in order.  A work waits at the head until all
 * it needs is there, then goes to the device process (work_send.c), which keeps the order from
 * there; work_end.c answers it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/list.h"
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

bool work_is_copy(const struct work *work)
{
	return work->kind == WORK_READ || work->kind == WORK_WRITE;
}

void work_unlink(struct work *work)
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
	work_unlink(work);
	work->state = WORK_SENT;
	work->sent_us = util_now_us();
	LIST_PUSH(works->sent, work);
	works->sent_count++;
}

bool work_pending(const struct session *session, uint64_t ticket)
{
	return map_get_id(&session->works->by_ticket, ticket) != NULL;
}

void work_count(const struct session *session, uint64_t *launches, uint64_t *copies)
{
	const struct work *const lists[] = {session->works->queued, session->works->sent};
	*launches = *copies = 0;
	for (int i = 0; i < 2; i++)
		for (const struct work *work = lists[i]; work; work = work->next) {
			*launches += work->kind == WORK_LAUNCH;
			*copies += work_is_copy(work);
		}
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
	session->broker->counters.transfers += work_is_copy(work);
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
	if (work->state == WORK_SENT && work->canceled)
		return;
	if (work->state == WORK_SENT) {
		work->canceled = true;
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
