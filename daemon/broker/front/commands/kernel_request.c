/* kernel_request.c: opens, stops and frees requests that wait for a kernel. */
#include "kernel_request.h"

#include <assert.h>
#include <stdlib.h>

#include "daemon/base/util.h"

static void kernel_request_assert_valid(const struct kernel_request *asked)
{
	assert(asked->request.session && asked->request.session->broker == asked->broker);
	assert(asked->state != KERNEL_REQUEST_IDLE || !asked->executor);
	assert(asked->ref || asked->state == KERNEL_REQUEST_IDLE ||
		   asked->state == KERNEL_REQUEST_READING);
	(void)asked; /* without asserts nothing uses it */
}

static void free_request(struct kernel_request *asked)
{
	if (asked->compiler)
		alt_compiler_give(asked->compiler);
	cache_row_free(&asked->row);
	kernel_drop(asked->ref);
	free(asked);
}

static void stop_and_free(struct request *request)
{
	struct kernel_request *asked = (struct kernel_request *)request;
	switch (asked->state) {
	case KERNEL_REQUEST_IDLE:
		break;
	case KERNEL_REQUEST_READING:
		/* The session's end closes the compiler before the store's thread is done. */
		if (asked->compiler)
			alt_compiler_give(asked->compiler);
		asked->compiler = NULL;
		return;
	case KERNEL_REQUEST_STARTING:
		handle_forget(asked->executor, asked);
		break;
	case KERNEL_REQUEST_RESOLVING:
		job_leave(asked->broker, asked->wait);
		break;
	case KERNEL_REQUEST_LOADING:
		handle_disown(asked->executor, asked);
		break;
	}
	free_request(asked);
}

void *kernel_request_open(struct session *session, uint64_t id, struct kernel_ref *ref, size_t size)
{
	struct kernel_request *asked = calloc(1, size);
	if (!asked)
		reply_error(session, id, KILN_ENOMEM, "out of memory for a kernel");
	if (!asked || !request_open(session, id, &asked->request, stop_and_free)) {
		kernel_drop(ref);
		free(asked);
		return NULL;
	}
	asked->ref = ref;
	asked->broker = session->broker;
	asked->began_us = util_now_us();
	asked->parts.us[RECENT_PLAN] = session->broker->planned_us;
	return asked;
}

void kernel_request_end(struct kernel_request *asked)
{
	kernel_request_assert_valid(asked);
	assert(asked->state == KERNEL_REQUEST_IDLE);
	if (asked->noted && asked->ref) {
		const struct kernel_plan *plan = &asked->ref->plan;
		recent_add(asked->request.session,
				   &(struct recent_about){.asked = asked->request.name,
										  .op = plan->op,
										  .choice = asked->choice ? asked->choice : plan->choice,
										  .manifest = asked->ref->manifest,
										  .began_us = asked->began_us,
										  .status = asked->status},
				   &asked->parts);
	}
	request_close(&asked->request);
	free_request(asked);
}

void kernel_request_fail(struct kernel_request *asked, int status, const char *error,
						 const char *log)
{
	struct wire_out out;
	reply_begin_with(&out, asked->request.id, status);
	wire_put_str(&out, "err", error);
	wire_put_str(&out, "log", log);
	asked->status = status;
	reply_send(asked->request.session, &out, NULL, 0);
	kernel_request_end(asked);
}

void kernel_request_start(struct kernel_request *asked, struct device_handle *executor,
						  handle_ready ready)
{
	kernel_request_assert_valid(asked);
	asked->state = KERNEL_REQUEST_STARTING;
	asked->executor = executor;
	handle_when_ready(executor, ready, asked);
}

void kernel_request_resolve(struct kernel_request *asked, struct kernel_ref *kernel,
							const struct job_terms *terms, job_done done)
{
	kernel_request_assert_valid(asked);
	asked->wait = job_resolve(asked->broker, kernel, terms, done, asked);
	if (asked->wait)
		asked->state = KERNEL_REQUEST_RESOLVING;
	else
		kernel_request_fail(asked, KILN_ENOMEM, "out of memory for a compile job", "");
}

bool kernel_request_load(struct kernel_request *asked, struct device_handle *executor,
						 const struct cache_row *row, const struct kernel_plan *plan,
						 handle_done loaded)
{
	kernel_request_assert_valid(asked);
	/* A load that ends at once frees the request inside handle_load(). */
	asked->state = KERNEL_REQUEST_LOADING;
	asked->executor = executor;
	if (handle_load(executor, row->key, row, plan, loaded, asked) == KILN_OK)
		return true;
	kernel_request_arrived(asked);
	return false;
}

static void read_row_work(struct cache *cache, void *arg)
{
	struct row_request *request = arg;
	request->status = cache_peek(cache, request->key, &request->asked.row, request->error);
}

void kernel_request_read(struct row_request *request, const char *key, store_done done)
{
	struct kernel_request *asked = &request->asked;
	kernel_request_assert_valid(asked);
	snprintf(request->key, sizeof(request->key), "%s", key);
	if (request_store(&asked->request, read_row_work, done) == KILN_OK)
		asked->state = KERNEL_REQUEST_READING;
	else
		kernel_request_fail(asked, KILN_ENOMEM, "out of memory for a kernel", "");
}

bool kernel_request_arrived(struct kernel_request *asked)
{
	asked->state = KERNEL_REQUEST_IDLE;
	asked->executor = NULL;
	if (asked->request.session)
		return true;
	free_request(asked);
	return false;
}
