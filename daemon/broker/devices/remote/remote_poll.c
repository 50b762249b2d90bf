/* remote_poll.c: the functions by which hiredis says what it waits for on its socket. */
#include "remote_poll.h"

#include <hiredis/async.h>
#include <stdlib.h>

#include "reply_guard.h"

struct remote_poll {
	redisAsyncContext *context; /* NULL: hiredis has freed it */
	uv_poll_t handle;
	int events; /* that hiredis waits for */
};

static void on_poll(uv_poll_t *handle, int status, int events)
{
	struct remote_poll *poll = handle->data;
	/* The socket has an error, and libuv watches it no more: reading or writing tells hiredis. */
	if (status < 0)
		events = poll->events;
	if (poll->context && (events & UV_READABLE))
		redisAsyncHandleRead(poll->context);
	if (poll->context && (events & UV_WRITABLE))
		redisAsyncHandleWrite(poll->context);
}

static void watch(struct remote_poll *poll, int events)
{
	poll->events = events;
	if (events)
		uv_poll_start(&poll->handle, events, on_poll);
	else
		uv_poll_stop(&poll->handle);
}

/* hiredis calls this after each read, before it parses. */
static void add_read(void *arg)
{
	struct remote_poll *poll = arg;
	watch(poll, poll->events | UV_READABLE);
	remote_guard_size(poll->context);
}

static void end_read(void *arg)
{
	struct remote_poll *poll = arg;
	watch(poll, poll->events & ~UV_READABLE);
}

static void add_write(void *arg)
{
	struct remote_poll *poll = arg;
	watch(poll, poll->events | UV_WRITABLE);
}

static void end_write(void *arg)
{
	struct remote_poll *poll = arg;
	watch(poll, poll->events & ~UV_WRITABLE);
}

static void on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void clean_up(void *arg)
{
	struct remote_poll *poll = arg;
	poll->context = NULL;
	uv_close((uv_handle_t *)&poll->handle, on_closed);
}

bool remote_poll_attach(redisAsyncContext *context, uv_loop_t *loop)
{
	struct remote_poll *poll = calloc(1, sizeof(*poll));
	if (!poll || uv_poll_init(loop, &poll->handle, context->c.fd) != 0) {
		free(poll);
		return false;
	}
	poll->context = context;
	poll->handle.data = poll;
	context->ev.data = poll;
	context->ev.addRead = add_read;
	context->ev.delRead = end_read;
	context->ev.addWrite = add_write;
	context->ev.delWrite = end_write;
	context->ev.cleanup = clean_up;
	return true;
}
