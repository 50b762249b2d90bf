/*
 * work.c: what a session has asked its device to do, in order.  A launch, a copy or a free waits at
 * the head of the queue until all it needs is there (device process, buffers, kernel, the ticket it
 * follows), then goes to the executor, which keeps the order from there on.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "session.h"
#include "util/util.h"

enum work_kind { WORK_LAUNCH, WORK_COPY, WORK_FREE };
enum work_step { WORK_WAITS, WORK_GONE }; /* GONE: sent, or ended */

struct work {
	enum work_kind kind;
	uint64_t ticket;
	struct session *session; /* NULL: nobody waits any more */
	bool sent;
	struct work *previous, *next;
	/* LAUNCH */
	struct call *call;
	struct kernel_ref *variant;
	struct work_operand operands[KERNEL_MAX_OPERANDS];
	int operand_count;
	uint64_t after;
	uint64_t executor_call;    /* its id there, once sent */
	struct job_wait *fetching; /* the kernel, from cache or compiler */
	bool loading;
	int load_status;
	char load_error[KERNEL_ERROR_MAX];
	/* COPY, FREE */
	struct buffer *buffer;
	uint64_t offset, bytes;
	int fd;
	bool to_device;
};

struct call *call_hold(struct call *call)
{
	call->holders++;
	return call;
}

void call_drop(struct call *call)
{
	if (!call || --call->holders > 0)
		return;
	for (int i = 0; i < call->variant_count; i++)
		kernel_drop(call->variants[i]);
	free(call);
}

/* ---- The lists ---- */

static void unlink_work(struct work *work)
{
	struct session *session = work->session;
	if (work->previous)
		work->previous->next = work->next;
	else if (work->sent)
		session->sent = work->next;
	else
		session->queued = work->next;
	if (work->next)
		work->next->previous = work->previous;
	else if (!work->sent)
		session->queued_last = work->previous;
	work->previous = work->next = NULL;
}

static void free_work(struct work *work)
{
	if (work->fetching)
		job_leave(work->session->broker, work->fetching);
	if (work->fd >= 0)
		close(work->fd);
	call_drop(work->call);
	kernel_drop(work->variant);
	free(work);
}

static void remember_failure(struct session *session, uint64_t ticket)
{
	session->failed[session->failed_at++ % SESSION_FAILED_TICKETS] = ticket;
}

static void count_end(const struct work *work, int status)
{
	struct counters *counters = &work->session->broker->counters;
	if (work->kind == WORK_LAUNCH && status == KILN_OK)
		counters->launches++;
	else if (work->kind == WORK_LAUNCH)
		counters->launch_failures++;
	else if (work->kind == WORK_COPY && work->to_device)
		counters->writes++;
	else if (work->kind == WORK_COPY)
		counters->reads++;
}

/* Answers and frees a work that is in one of the lists. */
static void end_work(struct work *work, int status, const char *error, uint64_t micros)
{
	struct session *session = work->session;
	struct wire_out out;
	unlink_work(work);
	map_remove_id(&session->works, work->ticket);
	session->work_count--;
	count_end(work, status);
	if (status == KILN_OK) {
		reply_begin(&out, work->ticket);
		if (work->kind == WORK_LAUNCH)
			wire_put_uint(&out, "micros", micros);
		reply_send(session, &out, NULL, 0);
	} else {
		remember_failure(session, work->ticket);
		reply_error(session, work->ticket, status, "%s", error);
	}
	if (work->kind == WORK_FREE)
		buffer_delete(work->buffer);
	free_work(work);
}

bool work_pending(const struct session *session, uint64_t ticket)
{
	return map_get_id(&session->works, ticket) != NULL;
}

static bool ticket_failed(const struct session *session, uint64_t ticket)
{
	for (int i = 0; i < SESSION_FAILED_TICKETS; i++)
		if (session->failed[i] == ticket)
			return true;
	return false;
}

/* ---- Ends reported by the executor ---- */

static void cover(struct buffer *buffer, uint64_t offset, uint64_t bytes)
{
	if (offset <= buffer->covered && offset + bytes > buffer->covered)
		buffer->covered = offset + bytes;
	if (buffer->covered >= buffer->bytes)
		buffer->lost = false;
}

static void on_done(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct work *work = arg;
	struct session *session = work->session;
	char sentence[KERNEL_ERROR_MAX + 64];
	if (!session) {
		if (work->fd >= 0)
			close(work->fd);
		call_drop(work->call);
		kernel_drop(work->variant);
		free(work);
		return;
	}
	/* Freed with its process: as good as freed. */
	if (work->kind == WORK_FREE && status == KILN_EDEVICE)
		status = KILN_OK;
	if (work->kind == WORK_LAUNCH && status != KILN_OK)
		snprintf(sentence, sizeof sentence, "%s: %s", work->call->problem.op, error);
	else
		snprintf(sentence, sizeof sentence, "%s", error ? error : "");
	end_work(work, status, sentence, reply ? wire_get_uint(&reply->root, "us", 0) : 0);
	work_pump(session);
}

/* ---- What a work needs ---- */

static enum work_step refuse(struct work *work, int status, const char *error)
{
	end_work(work, status, error, 0);
	return WORK_GONE;
}

static void mark_sent(struct work *work)
{
	struct session *session = work->session;
	unlink_work(work);
	work->sent = true;
	work->next = session->sent;
	if (session->sent)
		session->sent->previous = work;
	session->sent = work;
}

static enum work_step sent_or_refused(struct work *work, int status)
{
	if (status == KILN_OK) {
		mark_sent(work);
		return WORK_GONE;
	}
	/* The process died between two looks at it: its successor will be waited for. */
	if (status == KILN_EDEVICE)
		return WORK_WAITS;
	return refuse(work, status, "the request could not be sent to the device process");
}

static enum work_step need_buffer(struct work *work, struct buffer *buffer)
{
	char error[KERNEL_ERROR_MAX + 128], label[96];
	switch (buffer_place(buffer)) {
	case BUFFER_PLACED:
		return WORK_GONE;
	case BUFFER_PLACING:
		return WORK_WAITS;
	default:
		break;
	}
	int status = buffer->place_status;
	buffer->place_status = KILN_OK;
	snprintf(error, sizeof error, "%s cannot be used: %s", buffer_label(buffer, label),
			 buffer->place_error);
	end_work(work, status, error, 0);
	return WORK_WAITS;
}

static void on_loaded(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct work *work = arg;
	(void)reply;
	work->loading = false;
	work->load_status = status;
	if (status != KILN_OK)
		snprintf(work->load_error, sizeof work->load_error, "%s", error);
	work_pump(work->session);
}

static void on_fetched(void *arg, const struct job_answer *answer)
{
	struct work *work = arg;
	struct session *session = work->session;
	work->fetching = NULL;
	if (answer->status != KILN_OK) {
		work->load_status = answer->status;
		snprintf(work->load_error, sizeof work->load_error, "%s", answer->error);
	} else {
		work->loading = true;
		int status = executor_load(session->executor, answer->row->key, answer->row,
								   work->variant->plan.shared_bytes, on_loaded, work);
		/* A process that is gone is noticed by the pump; other failures are this work's. */
		if (status != KILN_OK)
			work->loading = false;
		if (status != KILN_OK && status != KILN_EDEVICE)
			work->load_status = status;
	}
	work_pump(session);
}

/* GONE: the kernel is there. */
static enum work_step need_kernel(struct work *work, uint64_t *module)
{
	struct session *session = work->session;
	*module = 0;
	if (work->variant->plan.kind != KERNEL_LAUNCH)
		return WORK_GONE;
	if (work->fetching || work->loading)
		return WORK_WAITS;
	if (work->load_status == KILN_EDEVICE) {
		work->load_status = KILN_OK; /* lost with its process: fetched again for the next */
	} else if (work->load_status != KILN_OK) {
		end_work(work, work->load_status, work->load_error, 0);
		return WORK_WAITS;
	}
	if (work->variant->key[0])
		*module = executor_module(session->executor, work->variant->key);
	if (*module)
		return WORK_GONE;
	/* Never asked for before: a call at addresses that it was not prepared for. */
	bool counted = !work->variant->key[0];
	session->broker->counters.reloads += !counted;
	work->fetching = job_resolve(session->broker, work->variant, counted, on_fetched, work);
	if (!work->fetching)
		end_work(work, KILN_ENOMEM, "out of memory for a compile job", 0);
	return WORK_WAITS;
}

static bool writes_all(const struct work_operand *operand, const struct kernel_extent *extent)
{
	return extent->written && operand->offset == 0 && extent->bytes >= operand->buffer->bytes;
}

/* A launch that writes a whole lost buffer brings it back; any other use of one is refused. */
static bool check_lost(struct work *work, char *error, size_t size)
{
	const struct kernel_plan *plan = &work->variant->plan;
	char label[96], name[24];
	for (int i = 0; i < work->operand_count; i++) {
		struct buffer *buffer = work->operands[i].buffer;
		const struct kernel_extent *extent = &plan->extents[i];
		if (!buffer || !buffer->lost || !extent->bytes || writes_all(&work->operands[i], extent))
			continue;
		snprintf(error, size,
				 "the contents of %s (%s) were lost when the device process ended; write it again",
				 buffer_label(buffer, label), decode_operand_name(plan->op, i, name));
		return false;
	}
	for (int i = 0; i < work->operand_count; i++)
		if (work->operands[i].buffer && writes_all(&work->operands[i], &plan->extents[i]))
			work->operands[i].buffer->lost = false;
	return true;
}

/* [0, operand], [1, bytes, value], [2] */
static void put_argument(struct wire_out *message, const struct kernel_arg *arg)
{
	wire_list_begin(message, NULL);
	switch (arg->kind) {
	case KERNEL_ARG_POINTER:
		wire_put_int(message, NULL, 0);
		wire_put_int(message, NULL, arg->operand);
		break;
	case KERNEL_ARG_SCALAR:
		wire_put_int(message, NULL, 1);
		wire_put_uint(message, NULL, arg->bytes);
		wire_put_uint(message, NULL, arg->value);
		break;
	case KERNEL_ARG_SCRATCH:
		wire_put_int(message, NULL, 2);
		break;
	}
	wire_list_end(message);
}

static void put_arguments(struct wire_out *message, const struct work *work)
{
	const struct kernel_plan *plan = &work->variant->plan;
	wire_list_begin(message, "args");
	for (int i = 0; i < plan->arg_count; i++)
		put_argument(message, &plan->args[i]);
	wire_list_end(message);
	if (plan->scratch.bytes) {
		wire_list_begin(message, "scratch");
		wire_put_uint(message, NULL, plan->scratch.bytes);
		wire_put_uint(message, NULL, plan->scratch.counters);
		wire_list_end(message);
	}
	wire_list_begin(message, "ops");
	for (int i = 0; i < work->operand_count; i++) {
		const struct kernel_extent *extent = &plan->extents[i];
		const struct buffer *buffer = work->operands[i].buffer; /* NULL: left out */
		wire_list_begin(message, NULL);
		wire_put_uint(message, NULL, buffer ? buffer->id : 0);
		wire_put_uint(message, NULL, work->operands[i].offset);
		wire_put_uint(message, NULL, extent->bytes);
		wire_put_uint(message, NULL, extent->alignment ? extent->alignment : 1);
		wire_put_int(message, NULL, extent->written);
		wire_list_end(message);
	}
	wire_list_end(message);
}

static int send_launch(struct work *work, uint64_t module)
{
	const struct kernel_plan *plan = &work->variant->plan;
	struct session *session = work->session;
	struct wire_out message;
	int64_t grid[3], block[3];
	for (int i = 0; i < 3; i++) {
		grid[i] = plan->grid[i];
		block[i] = plan->block[i];
	}
	uint64_t id = executor_begin(session->executor, &message, "launch");
	wire_put_uint(&message, "mod", module);
	wire_put_uint(&message, "stream", session->stream);
	wire_put_ints(&message, "grid", grid, 3);
	wire_put_ints(&message, "block", block, 3);
	wire_put_uint(&message, "shared", plan->shared_bytes);
	wire_put_uint(&message, "copy", plan->copy_bytes);
	wire_put_uint(&message, "delay", session->broker->test.delay_launch_ms);
	put_arguments(&message, work);
	work->executor_call = id;
	/* How long the client waits is its own affair: the process that a deadline ends is shared. */
	return executor_send(session->executor, &message, id, NULL, 0,
						 (uint32_t)session->broker->options.launch_timeout_ms, on_done, work);
}

static enum work_step advance_launch(struct work *work)
{
	struct session *session = work->session;
	char error[KERNEL_ERROR_MAX + 128];
	uint64_t module;
	if (work->after && work_pending(session, work->after))
		return WORK_WAITS;
	if (work->after && ticket_failed(session, work->after)) {
		snprintf(error, sizeof error, "ticket %llu, which this call follows, did not succeed",
				 (unsigned long long)work->after);
		return refuse(work, KILN_ECANCELED, error);
	}
	if (work->variant->plan.kind == KERNEL_NOTHING) {
		end_work(work, KILN_OK, NULL, 0);
		return WORK_GONE;
	}
	for (int i = 0; i < work->operand_count; i++)
		if (work->operands[i].buffer && need_buffer(work, work->operands[i].buffer) == WORK_WAITS)
			return WORK_WAITS;
	if (need_kernel(work, &module) == WORK_WAITS)
		return WORK_WAITS;
	if (!check_lost(work, error, sizeof error))
		return refuse(work, KILN_ELOST, error);
	return sent_or_refused(work, send_launch(work, module));
}

static enum work_step advance_copy(struct work *work)
{
	struct session *session = work->session;
	struct buffer *buffer = work->buffer;
	struct wire_out message;
	char error[KERNEL_ERROR_MAX], label[96];
	if (need_buffer(work, buffer) == WORK_WAITS)
		return WORK_WAITS;
	if (buffer->lost && !work->to_device) {
		snprintf(error, sizeof error,
				 "the contents of %s were lost when the device process ended; write it again",
				 buffer_label(buffer, label));
		return refuse(work, KILN_ELOST, error);
	}
	uint64_t id = executor_begin(session->executor, &message, "copy");
	wire_put_uint(&message, "buf", buffer->id);
	wire_put_uint(&message, "offset", work->offset);
	wire_put_uint(&message, "bytes", work->bytes);
	wire_put_bool(&message, "to", work->to_device);
	wire_put_uint(&message, "stream", session->stream);
	int status = executor_send(session->executor, &message, id, &work->fd, 1,
							   (uint32_t)session->broker->options.launch_timeout_ms, on_done, work);
	if (status == KILN_OK && work->to_device)
		cover(buffer, work->offset, work->bytes);
	return sent_or_refused(work, status);
}

static enum work_step advance_free(struct work *work)
{
	struct session *session = work->session;
	struct wire_out message;
	if (work->buffer->placing)
		return WORK_WAITS;
	if (work->buffer->generation != executor_generation(session->executor)) {
		end_work(work, KILN_OK, NULL, 0);
		return WORK_GONE;
	}
	uint64_t id = executor_begin(session->executor, &message, "free");
	wire_put_uint(&message, "buf", work->buffer->id);
	return sent_or_refused(work, executor_send(session->executor, &message, id, NULL, 0,
											   (uint32_t)session->broker->options.launch_timeout_ms,
											   on_done, work));
}

/* ---- The queue ---- */

static void on_executor(void *arg, int status, const char *error)
{
	struct session *session = arg;
	session->waiting_ready = false;
	/* No device process is to be had: whoever waits at the head is told, the next one asks again.
	 */
	if (status != KILN_OK && session->queued)
		end_work(session->queued, status, error, 0);
	work_pump(session);
}

static enum work_step advance(struct work *work)
{
	switch (work->kind) {
	case WORK_LAUNCH:
		return advance_launch(work);
	case WORK_COPY:
		return advance_copy(work);
	default:
		return advance_free(work);
	}
}

/* What it calls may call it again, as when a device that is not there is told of at once: the
 * outermost goes on with the queue, however long that is. */
void work_pump(struct session *session)
{
	if (session->pumping) {
		session->pump_again = true;
		return;
	}
	session->pumping = true;
	while (session->queued && !session->closing && !session->waiting_ready) {
		struct work *work = session->queued;
		session->pump_again = false;
		if (!executor_is_ready(session->executor)) {
			session->waiting_ready = true;
			executor_when_ready(session->executor, on_executor, session);
			continue;
		}
		/* A work that ended while it was looked at has left the head to the next. */
		if (advance(work) == WORK_WAITS && session->queued == work && !session->pump_again)
			break;
	}
	session->pumping = false;
}

static struct work *add(struct session *session, enum work_kind kind, uint64_t ticket,
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
	else if (map_get_id(&session->works, ticket))
		*status = util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO, "request id %llu is in use",
							(unsigned long long)ticket);
	else if (!(work = calloc(1, sizeof *work)) || map_put_id(&session->works, ticket, work) < 0)
		*status = util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a call");
	if (*status != KILN_OK) {
		free(work);
		return NULL;
	}
	work->kind = kind;
	work->ticket = ticket;
	work->session = session;
	work->fd = -1;
	work->previous = session->queued_last;
	if (session->queued_last)
		session->queued_last->next = work;
	else
		session->queued = work;
	session->queued_last = work;
	session->work_count++;
	return work;
}

int work_launch(struct session *session, uint64_t ticket, struct call *call,
				struct kernel_ref *variant, const struct work_operand *operands, uint64_t after,
				char error[KERNEL_ERROR_MAX])
{
	int status;
	struct work *work = add(session, WORK_LAUNCH, ticket, error, &status);
	if (!work)
		return status;
	work->call = call_hold(call);
	work->variant = kernel_hold(variant);
	work->operand_count = variant->plan.operand_count;
	memcpy(work->operands, operands, sizeof *operands * (size_t)work->operand_count);
	work->after = after;
	work_pump(session);
	return KILN_OK;
}

int work_copy(struct session *session, uint64_t ticket, struct buffer *buffer, uint64_t offset,
			  uint64_t bytes, int fd, bool to_device, char error[KERNEL_ERROR_MAX])
{
	int status;
	struct work *work = add(session, WORK_COPY, ticket, error, &status);
	if (!work)
		return status;
	work->buffer = buffer;
	work->offset = offset;
	work->bytes = bytes;
	work->fd = fd;
	work->to_device = to_device;
	work_pump(session);
	return KILN_OK;
}

int work_free(struct session *session, uint64_t id, struct buffer *buffer,
			  char error[KERNEL_ERROR_MAX])
{
	int status;
	struct work *work = add(session, WORK_FREE, id, error, &status);
	if (!work)
		return status;
	work->buffer = buffer;
	/* From here on the name is gone; the works before it still hold the buffer. */
	map_remove_id(&session->buffers, buffer->id);
	work_pump(session);
	return KILN_OK;
}

void work_cancel(struct session *session, uint64_t ticket)
{
	struct work *work = map_get_id(&session->works, ticket);
	struct wire_out message;
	if (!work || work->kind != WORK_LAUNCH)
		return;
	if (work->sent) {
		uint64_t id = executor_begin(session->executor, &message, "cancel");
		wire_put_uint(&message, "ticket", work->executor_call);
		executor_post(session->executor, &message, id);
		return;
	}
	if (work->loading)
		executor_disown(session->executor, work);
	end_work(work, KILN_ECANCELED, "the call was canceled before it started", 0);
	work_pump(session);
}

void work_abandon(struct session *session)
{
	while (session->queued) {
		struct work *work = session->queued;
		if (work->loading)
			executor_disown(session->executor, work);
		unlink_work(work);
		if (work->kind == WORK_FREE) {
			buffer_release(work->buffer);
			buffer_delete(work->buffer);
		}
		free_work(work);
	}
	while (session->sent) {
		struct work *work = session->sent;
		unlink_work(work);
		if (work->kind == WORK_FREE)
			buffer_delete(work->buffer);
		work->session = NULL;
	}
	session->work_count = 0;
}
