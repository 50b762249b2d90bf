/*
 * buffer_make.c: a request that makes a buffer: alloc or lend.  It is answered when the session's
 * device process has the buffer.
 *
 *   WAITING <--the device process is not ready-- LOOKING --it has the buffer--> answered and freed
 *      |                                          |   |
 *      +--------------it is ready-----------------+   +--it cannot, or the process ends--> refused;
 *                                                          the buffer is deleted
 *
 * `asked` says which: the process that a WAITING one waits for, or NULL.  The buffer knows its
 * making until that is freed, and belongs to the session all the time.
 */
#include <stdlib.h>

#include "buffer_state.h"
#include "daemon/broker/requests/request.h"

struct making {
	struct request request;
	struct buffer *buffer;
	struct device_handle *asked;
};

static void making_abandon(struct request *request)
{
	struct making *making = (struct making *)request;
	/* The buffer is the session's and goes with it. */
	if (making->asked)
		handle_forget(making->asked, making);
	making->buffer->making = NULL;
	free(making);
}

static void making_end(struct making *making)
{
	making->buffer->making = NULL;
	request_close(&making->request);
	free(making);
}

static void making_fail(struct making *making, int status, const char *error)
{
	struct buffer *buffer = making->buffer;
	char label[96];
	reply_error(making->request.session, making->request.id, status,
				"%s of %llu bytes could not be made: %s", buffer_label(buffer, label),
				(unsigned long long)buffer->bytes, error);
	making_end(making);
	buffer_delete(buffer);
}

static void making_on_ready(void *arg, int status, const char *error);

/* Looks where the buffer is; called again when something changed. */
static void making_step(struct making *making)
{
	struct session *session = making->request.session;
	struct buffer *buffer = making->buffer;
	bool shared = buffer->kind == BUFFER_SHARED;
	struct wire_out out;
	if (!handle_is_ready(session->executor)) {
		making->asked = session->executor;
		handle_when_ready(session->executor, making_on_ready, making);
		return;
	}
	switch (buffer_place(buffer, BUFFER_HOME)) {
	case BUFFER_PLACING:
		return;
	case BUFFER_FAILED:
		making_fail(making, buffer->at[BUFFER_HOME].status, buffer->at[BUFFER_HOME].error);
		return;
	default:
		break;
	}
	reply_begin(&out, making->request.id);
	wire_put_uint(&out, "buf", buffer->id);
	wire_put_uint(&out, "offset", shared ? buffer->memory.offset : 0);
	wire_put_uint(&out, "bytes", buffer->bytes);
	wire_put_uint(&out, "generation", buffer->at[BUFFER_HOME].generation);
	reply_send(session, &out, &buffer->memory.fd, shared ? 1 : 0);
	making_end(making);
}

static void making_on_ready(void *arg, int status, const char *error)
{
	struct making *making = arg;
	making->asked = NULL;
	if (status == KILN_OK)
		making_step(making);
	else
		making_fail(making, status, error);
}

void making_look(struct making *making)
{
	const struct buffer_place_state *home = &making->buffer->at[BUFFER_HOME];
	if (making->asked)
		return;
	/* A device process that ends meanwhile fails the request now, not when the next one is up. */
	if (home->status != KILN_OK)
		making_fail(making, home->status, home->error);
	else
		making_step(making);
}

void buffer_make(struct session *session, uint64_t id, struct buffer *buffer)
{
	struct making *making = calloc(1, sizeof(*making));
	if (!making)
		reply_error(session, id, KILN_ENOMEM, "out of memory for a buffer");
	if (!making || !request_open(session, id, &making->request, making_abandon)) {
		free(making);
		buffer_delete(buffer);
		return;
	}
	making->buffer = buffer;
	making->request.doing = buffer;
	buffer->making = making;
	making_step(making);
}
