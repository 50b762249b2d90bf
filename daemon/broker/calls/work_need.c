/*
 * work_need.c: what a work needs in its device process: its buffers placed, its kernel fetched and
 * loaded.
 */
#include "daemon/broker/kernels/raw.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/base/util.h"
#include "work_state.h"

enum work_step work_need_buffer(struct work *work, struct buffer *buffer)
{
	enum buffer_where where = work->raw ? BUFFER_OWN : BUFFER_HOME;
	char error[KERNEL_ERROR_MAX + 128], label[96];
	switch (buffer_place(buffer, where)) {
	case BUFFER_PLACED:
		return STEP_READY;
	case BUFFER_PLACING:
		return STEP_WAITS;
	default:
		break;
	}
	/* A buffer may have failed in its first process before the second one asked for it. */
	if (buffer->at[where].place != BUFFER_FAILED)
		where = BUFFER_HOME;
	int status = buffer->at[where].status;
	buffer->at[where].place = BUFFER_ABSENT; /* the next work tries once more */
	snprintf(error, sizeof(error), "%s cannot be used: %s", buffer_label(buffer, label),
			 buffer->at[where].error);
	return work_refuse(work, status, error);
}

static void on_kernel_loaded(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct work *work = arg;
	char label[160];
	work->state = WORK_QUEUED;
	work->parts.us[RECENT_LOAD] += util_now_us() - work->load_us;
	if (reply)
		job_note_load(work->session, work->kernel, work->load_us, reply);
	work->load_status = status;
	/* The cache has dropped an object that cannot be loaded: it is compiled anew, once. */
	if (status == KILN_ECOMPILE && !work->remade) {
		work->remade = true;
		work->load_status = KILN_OK;
	} else if (status != KILN_OK && work->raw)
		util_append(work->load_error, sizeof(work->load_error), 0, "%s cannot be loaded: %s",
					raw_label(&work->variant->plan, label), error);
	else if (status != KILN_OK)
		snprintf(work->load_error, sizeof(work->load_error), "%s", error);
	work_pump(work->session);
}

static void on_fetched(void *arg, const struct job_answer *answer)
{
	struct work *work = arg;
	struct session *session = work->session;
	struct device_handle *executor = work_executor(work);
	work->fetching = NULL;
	work->state = WORK_QUEUED;
	job_answer_note(answer, &work->parts);
	if (answer->status != KILN_OK) {
		work->load_status = answer->status;
		snprintf(work->load_error, sizeof(work->load_error), "%s", answer->error);
	} else {
		work->state = WORK_LOADING;
		if (work->variant->tier)
			tier_know(session->broker, work->kernel, (int64_t)answer->row->object_bytes);
		work->load_us = util_now_us();
		int status = handle_load(executor, answer->row->key, answer->row, &work->kernel->plan,
								 on_kernel_loaded, work);
		/* work_pump() notices a process that is gone; other failures are this work's. */
		if (status != KILN_OK)
			work->state = WORK_QUEUED;
		if (status != KILN_OK && status != KILN_EDEVICE)
			work->load_status = status;
	}
	work_pump(session);
}

enum work_step work_need_kernel(struct work *work, uint64_t *module)
{
	struct session *session = work->session;
	*module = 0;
	if (work->kernel->plan.kind != KERNEL_LAUNCH)
		return STEP_READY;
	if (work->state != WORK_QUEUED)
		return STEP_WAITS;
	if (work->load_status == KILN_EDEVICE && !work->raw) {
		/* The load was lost with its process, and is repeated in the next.  A user's kernel is
		 * not: the process may have died of it. */
		work->load_status = KILN_OK;
	} else if (work->load_status != KILN_OK) {
		return work_refuse(work, work->load_status, work->load_error);
	}
	if (work->kernel->key[0])
		*module = handle_module(work_executor(work), work->kernel->key);
	if (*module)
		return STEP_READY;
	/* A kernel without a key is a request: the call was not prepared for these addresses.  One
	 * with a key was counted before; it left the process. */
	struct job_terms terms = job_terms_of(session);
	if (work->kernel->key[0]) {
		terms.asker = NULL;
		session->broker->counters.reloads++;
	}
	work->fetching = job_resolve(session->broker, work->kernel, &terms, on_fetched, work);
	if (!work->fetching)
		return work_refuse(work, KILN_ENOMEM, "out of memory for a compile job");
	work->state = WORK_FETCHING;
	return STEP_WAITS;
}
