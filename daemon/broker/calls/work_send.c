/*
 * work_send.c: takes a work from the head of the queue (work.c) to the device process.  Its message
 * is sent when all that it needs is there (work_need.c), and when the ticket that it follows has
 * ended.
 */
#include <stdlib.h>

#include "daemon/broker/kernels/raw.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/base/util.h"
#include "launch_encode.h"
#include "work_state.h"

enum work_step work_refuse(struct work *work, int status, const char *error)
{
	work_end(work, status, error, 0);
	return STEP_ENDED;
}

enum work_step work_sent(struct work *work, int status)
{
	if (status == KILN_OK) {
		work_mark_sent(work);
		return STEP_SENT;
	}
	/* The process has just died: work_pump() will start its successor. */
	if (status == KILN_EDEVICE)
		return STEP_WAITS;
	return work_refuse(work, status, "the request could not be sent to the device process");
}

bool work_writes_all(const struct work_operand *operand, const struct kernel_extent *extent)
{
	return extent->written && !extent->kept && operand->offset == 0 &&
		   extent->bytes >= operand->buffer->bytes;
}

/* A launch that writes all of a lost buffer restores it; any other use of one is refused. */
static bool check_lost(struct work *work, char *error, size_t size)
{
	const struct kernel_plan *plan = &work->variant->plan;
	char label[96], name[24];
	for (int i = 0; i < work->operand_count; i++) {
		struct buffer *buffer = work->operands[i].buffer;
		const struct kernel_extent *extent = &work->extents[i];
		if (!buffer || !buffer->lost || !extent->bytes ||
			work_writes_all(&work->operands[i], extent))
			continue;
		snprintf(error, size,
				 "the contents of %s (%s) were lost when the device process ended; write it again",
				 buffer_label(buffer, label), kernel_operand_name(plan->operands, i, name));
		return false;
	}
	for (int i = 0; i < work->operand_count; i++)
		if (work->operands[i].buffer && work_writes_all(&work->operands[i], &work->extents[i]))
			work->operands[i].buffer->lost = false;
	return true;
}

static void put_arguments(struct wire_out *message, const struct work *work, bool placed)
{
	const struct kernel_plan *plan = &work->kernel->plan;
	if (work->raw) {
		wire_list_begin(message, "args");
		for (int i = 0; i < work->raw->arg_count; i++)
			launch_put_argument(message, &work->raw->args[i]);
		wire_list_end(message);
	} else {
		/* A planned call has up to some forty arguments: they go as they lie in memory. */
		wire_put_bin(message, "args", plan->args, (size_t)plan->arg_count * sizeof(*plan->args));
	}
	launch_put_scratch(message, &plan->scratch);
	if (plan->report.indices) {
		wire_list_begin(message, "report");
		wire_put_uint(message, NULL, plan->report.indices);
		wire_put_uint(message, NULL, plan->report.end);
		wire_list_end(message);
	}
	wire_list_begin(message, "ops");
	for (int i = 0; i < work->operand_count; i++) {
		const struct kernel_extent *extent = &work->extents[i];
		const struct buffer *buffer = work->operands[i].buffer; /* NULL: left out */
		wire_list_begin(message, NULL);
		wire_put_uint(message, NULL, buffer && placed ? buffer->id : 0);
		wire_put_uint(message, NULL, placed ? work->operands[i].offset : 0);
		wire_put_uint(message, NULL, extent->bytes);
		wire_put_uint(message, NULL, extent->alignment ? extent->alignment : 1);
		wire_put_int(message, NULL, extent->written);
		if (extent->over || extent->period) {
			wire_put_uint(message, NULL, extent->over);
			wire_put_uint(message, NULL, extent->period);
			wire_put_uint(message, NULL, extent->width);
		}
		wire_list_end(message);
	}
	wire_list_end(message);
}

/* Operators read whole vectors (kernel_src/common/row.cuh). */
#define GRANULE 16

/* Sentences about a checked kernel name its operands as its caller does. */
static void put_check(struct wire_out *message, const struct work *work)
{
	const struct kernel_plan *plan = &work->variant->plan;
	char name[24] = "";
	if (!work->raw)
		wire_put_uint(message, "granule", GRANULE);
	wire_list_begin(message, "names");
	for (int i = 0; i < work->operand_count; i++) {
		for (int k = 0; work->raw && k < work->raw->arg_count; k++)
			if (work->raw->args[k].kind == KERNEL_ARG_POINTER && work->raw->args[k].operand == i)
				snprintf(name, sizeof(name), "argument %d", k);
		wire_map_begin(message, NULL);
		wire_put_str(message, "n", work->raw ? name : kernel_operand_name(plan->operands, i, name));
		wire_map_end(message);
	}
	wire_list_end(message);
}

void work_put_launch(struct wire_out *message, const struct work *work, uint64_t module,
					 bool placed, bool named)
{
	const struct kernel_plan *plan = &work->kernel->plan;
	const struct raw_launch *raw = work->raw;
	if (plan->kind == KERNEL_COPY)
		wire_put_uint(message, "copy", plan->copy_bytes);
	else
		wire_put_uint(message, "mod", module);
	wire_put_uint(message, "stream", work->session->stream);
	if (raw) {
		wire_put_ints(message, "grid", raw->grid, 3);
		wire_put_ints(message, "block", raw->block, 3);
		wire_put_uint(message, "shared", raw->shared_bytes);
	} else {
		launch_put_shape(message, plan);
	}
	put_arguments(message, work, placed);
	if (named || work->raw || work->session->broker->options.memcheck)
		put_check(message, work);
}

void work_put_lane(struct wire_out *message, const struct work *work)
{
	if (!work->lane_tail)
		return;
	wire_put_uint(message, "lane", work->session->stream);
	wire_put_uint(message, "tail", work->lane_tail);
	wire_put_uint(message, "follows", work->lane_follows);
}

/* Notes the work for a post-mortem of the device process. */
static void note(const struct work *work, uint64_t id)
{
	struct handle_about *about = handle_note(work_executor(work), HANDLE_MESSAGE, id);
	about->session = work->session->id;
	about->pid = work->session->pid;
	about->account = work->session->account;
	about->copied = work->bytes;
	if (!work->kernel)
		return;
	kernel_describe(about, work->kernel, work->variant);
	for (int i = 0; i < 3 && work->raw; i++) {
		about->grid[i] = work->raw->grid[i];
		about->block[i] = work->raw->block[i];
	}
}

static int send_launch(struct work *work, uint64_t module)
{
	struct session *session = work->session;
	struct wire_out message;
	uint64_t deadline = session->broker->options.launch_timeout_ms;
	if (work->kernel != work->variant)
		tier_used(session, work->variant, 1);
	const bool binds = lane_bind(work);
	uint64_t id = handle_begin(work_executor(work), &message, binds ? "lane.bind" : "launch");
	if (binds) {
		wire_put_bool(&message, "run", true);
		lane_put_bind(work, &message);
	}
	work_put_launch(&message, work, module, true, binds);
	wire_put_uint(&message, "sub", work->order.stream);
	wire_put_uint(&message, "account", session->account);
	wire_put_uint(&message, "delay", session->broker->test.delay_launch_ms);
	work_put_lane(&message, work);
	work->executor_call = id;
	note(work, id);
	/* A deadline ends the process.  Sessions share it, so no client sets the deadline; but a user's
	 * kernel has a process of its own. */
	if (work->raw && work->raw->timeout_ms)
		deadline = work->raw->timeout_ms;
	wire_put_uint(&message, "deadline", deadline * handle_patience(work_executor(work)));
	int status = handle_send(work_executor(work), &message, id, NULL, 0, (uint32_t)deadline,
							 work_done, work);
	if (binds && status == KILN_OK)
		lane_bound(work);
	return status;
}

static enum work_step advance_launch(struct work *work)
{
	struct session *session = work->session;
	char error[KERNEL_ERROR_MAX + 128];
	enum work_step step = STEP_READY;
	uint64_t module;
	if (work->order.after && work_pending(session, work->order.after))
		return STEP_WAITS;
	if (work->order.after && work_ticket_failed(session, work->order.after)) {
		snprintf(error, sizeof(error), "ticket %llu, which this call follows, did not succeed",
				 (unsigned long long)work->order.after);
		return work_refuse(work, KILN_ECANCELED, error);
	}
	if (device_check(session, work->device, "the call", "submit it again", error) != KILN_OK)
		return work_refuse(work, KILN_EDEVICE, error);
	if (work->call->graph)
		return graph_advance(work);
	if (work->variant->plan.kind == KERNEL_NOTHING) {
		work_end(work, KILN_OK, NULL, 0);
		return STEP_ENDED;
	}
	for (int i = 0, count = work->operand_count; i < count; i++) {
		if (work->operands[i].buffer)
			step = work_need_buffer(work, work->operands[i].buffer);
		if (step != STEP_READY)
			return step;
	}
	if (work->state == WORK_QUEUED)
		work->kernel = tier_choose(session, work->variant);
	step = work_need_kernel(work, &module);
	if (step != STEP_READY)
		return step;
	if (!check_lost(work, error, sizeof(error)))
		return work_refuse(work, KILN_ELOST, error);
	return work_sent(work, send_launch(work, module));
}

static enum work_step advance_copy(struct work *work)
{
	struct session *session = work->session;
	struct buffer *buffer = work->buffer;
	struct wire_out message;
	char error[KERNEL_ERROR_MAX], label[96];
	enum work_step step = work_need_buffer(work, buffer);
	if (step != STEP_READY)
		return step;
	if (buffer->lost && work->kind == WORK_READ) {
		snprintf(error, sizeof(error),
				 "the contents of %s were lost when the device process ended; write it again",
				 buffer_label(buffer, label));
		return work_refuse(work, KILN_ELOST, error);
	}
	uint64_t id = handle_begin(session->executor, &message, "copy");
	wire_put_uint(&message, "buf", buffer->id);
	wire_put_uint(&message, "offset", work->offset);
	wire_put_uint(&message, "bytes", work->bytes);
	wire_put_bool(&message, "to", work->kind == WORK_WRITE);
	wire_put_uint(&message, "stream", session->stream);
	wire_put_uint(&message, "account", session->account);
	work_put_lane(&message, work);
	work->executor_call = id;
	note(work, id);
	wire_put_uint(&message, "deadline",
				  session->broker->options.launch_timeout_ms * handle_patience(session->executor));
	int status = handle_send(session->executor, &message, id, &work->fd, 1,
							 (uint32_t)session->broker->options.launch_timeout_ms, work_done, work);
	if (status == KILN_OK && work->kind == WORK_WRITE) {
		uint64_t end = work->offset + work->bytes;
		if (work->offset <= buffer->covered && end > buffer->covered)
			buffer->covered = end;
		if (buffer->covered >= buffer->bytes)
			buffer->lost = false;
	}
	return work_sent(work, status);
}

/* It is answered by the broker, once the device process has given the descriptor. */
static enum work_step advance_share(struct work *work)
{
	struct buffer *buffer = work->buffer;
	char error[KERNEL_ERROR_MAX + 128], label[96];
	enum work_step step = work_need_buffer(work, buffer);
	if (step != STEP_READY)
		return step;
	if (buffer->lost) {
		snprintf(error, sizeof(error),
				 "the contents of %s were lost when the device process ended; write it again",
				 buffer_label(buffer, label));
		return work_refuse(work, KILN_ELOST, error);
	}
	switch (buffer_share(buffer)) {
	case BUFFER_PLACED:
		work_end(work, KILN_OK, NULL, 0);
		return STEP_ENDED;
	case BUFFER_PLACING:
		return STEP_WAITS;
	default:
		buffer->at[BUFFER_OWN].place = BUFFER_ABSENT; /* the next work tries once more */
		snprintf(error, sizeof(error), "%s: %s", buffer_label(buffer, label),
				 buffer->at[BUFFER_OWN].error);
		return work_refuse(work, KILN_ENOTSUP, error);
	}
}

/* If the process has ended, the buffer is as good as freed. */
static void on_own_freed(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct work *work = arg;
	(void)status, (void)error, (void)reply;
	work->state = WORK_QUEUED;
	work->buffer->at[BUFFER_OWN].generation = 0;
	work->buffer->at[BUFFER_OWN].place = BUFFER_ABSENT;
	work_pump(work->session);
}

/* A free is answered when no process has the buffer any more. */
static enum work_step free_own(struct work *work)
{
	struct device_handle *own = work->session->own;
	struct wire_out message;
	if (work->state == WORK_FREEING || work->buffer->at[BUFFER_OWN].place == BUFFER_PLACING)
		return STEP_WAITS;
	if (!buffer_is_in(work->buffer, BUFFER_OWN) || !handle_is_ready(own))
		return STEP_READY;
	uint64_t id = handle_begin(own, &message, "free");
	wire_put_uint(&message, "buf", work->buffer->id);
	if (handle_send_waiting(own, &message, id, on_own_freed, work) != KILN_OK)
		return STEP_READY;
	work->state = WORK_FREEING;
	return STEP_WAITS;
}

static enum work_step advance_free(struct work *work)
{
	struct session *session = work->session;
	struct wire_out message;
	if (work->buffer->at[BUFFER_HOME].place == BUFFER_PLACING ||
		work->buffer->at[BUFFER_OWN].place == BUFFER_SHARING || free_own(work) == STEP_WAITS)
		return STEP_WAITS;
	if (!buffer_is_in(work->buffer, BUFFER_HOME)) {
		work_end(work, KILN_OK, NULL, 0);
		return STEP_ENDED;
	}
	uint64_t id = handle_begin(session->executor, &message, "free");
	wire_put_uint(&message, "buf", work->buffer->id);
	work_put_lane(&message, work);
	return work_sent(work, handle_send_waiting(session->executor, &message, id, work_done, work));
}

/* The order of submission holds over both device processes: one ends all its works before the other
 * begins.  Copies and frees follow the launches of all streams. */
bool work_must_let_finish(const struct work *work)
{
	for (const struct work *sent = work->session->works->sent; sent; sent = sent->next)
		if (work->kind == WORK_SHARE || work_executor(sent) != work_executor(work) ||
			(work->kind != WORK_LAUNCH && sent->order.stream))
			return true;
	return false;
}

enum work_step work_advance(struct work *work)
{
	if (work_must_let_finish(work))
		return STEP_WAITS;
	switch (work->kind) {
	case WORK_LAUNCH:
		return advance_launch(work);
	case WORK_READ:
	case WORK_WRITE:
		return advance_copy(work);
	case WORK_GRAPH:
		return graph_advance(work);
	case WORK_SHARE:
		return advance_share(work);
	default:
		return advance_free(work);
	}
}
