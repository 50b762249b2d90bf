/*
 * exec_request: the requests an executor serves, by name, and the short ones of them.  Launches
 * and copies are in executor_launch.c, kernels in executor_module.c.
 */
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_buffer.h"
#include "executor_flight.h"
#include "executor_graph.h"
#include "executor_lane.h"
#include "executor_module.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* KILN_OK: it is done; exec_request() answers unless the row says later. */
typedef int request_handler(struct exec *executor, struct wire_in *message, struct frame *frame,
							char error[KERNEL_ERROR_MAX]);

/* ---- Buffers ---- */

static int check_new_buffer(struct exec *executor, const msgpack_object *root, uint64_t *id,
							uint64_t *bytes, char error[KERNEL_ERROR_MAX])
{
	*id = wire_get_uint(root, "buf", 0);
	*bytes = wire_get_uint(root, "bytes", UINT64_MAX);
	if (*id == 0 || map_get_id(&executor->buffers, *id))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "buffer %" PRIu64 " is there already, or no id", *id);
	if (executor->buffers.count >= EXEC_MAX_BUFFERS)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ELIMIT,
						 "a device process has room for %d buffers, of all sessions that it works "
						 "for: free some",
						 EXEC_MAX_BUFFERS);
	return KILN_OK;
}

/* root: the request, which names the buffer and its owner. */
static int keep_buffer(struct exec *executor, const msgpack_object *root,
					   struct device_memory *memory, uint64_t bytes, uint64_t offset,
					   bool allocated, char error[KERNEL_ERROR_MAX])
{
	uint64_t id = wire_get_uint(root, "buf", 0);
	struct exec_buffer *buffer = calloc(1, sizeof(*buffer));
	if (buffer && map_put_id(&executor->buffers, id, buffer) == 0) {
		buffer->memory = memory;
		buffer->bytes = bytes;
		buffer->misaligned = (uint32_t)(offset % 256);
		buffer->allocated = allocated;
		buffer->owner = wire_get_uint(root, "stream", 0);
		buffer->origin = wire_get_uint(root, "origin", 0);
		buffer->at = offset;
		return KILN_OK;
	}
	free(buffer);
	executor->ops->free(executor->device, memory);
	return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOMEM, "out of memory for a buffer's record");
}

static int on_alloc(struct exec *executor, struct wire_in *message, struct frame *frame,
					char error[KERNEL_ERROR_MAX])
{
	(void)frame;
	uint64_t id, bytes;
	struct device_memory *memory;
	int status = check_new_buffer(executor, &message->root, &id, &bytes, error);
	if (status == KILN_OK)
		status = executor->ops->alloc(executor->device, bytes, &memory, error);
	if (status != KILN_OK)
		return status;
	return keep_buffer(executor, &message->root, memory, bytes, 0, true, error);
}

/* Each kind of import comes with a handle, a descriptor, or both. */
static const struct import_form {
	const char *name;
	enum device_import_kind kind;
	bool handle, descriptor;
} import_forms[] = {
	{"ipc", DEVICE_IMPORT_IPC, true, false},
	{"fd", DEVICE_IMPORT_FD, false, true},
	{"pool", DEVICE_IMPORT_POOL, true, true},
};

static int read_import(const msgpack_object *root, const char *kind, const struct frame *frame,
					   struct device_import *what, char error[KERNEL_ERROR_MAX])
{
	const struct import_form *form = NULL;
	for (size_t i = 0; kind && i < sizeof(import_forms) / sizeof(import_forms[0]); i++)
		if (strcmp(kind, import_forms[i].name) == 0)
			form = &import_forms[i];
	if (!form)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "an import is of kind \"ipc\", \"fd\" or \"pool\"");
	size_t size = 0;
	const void *handle = wire_get_bin(root, "handle", &size);
	what->kind = form->kind;
	if (form->handle && (!handle || size != sizeof(what->handle)))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "the handle of an import of kind \"%s\" has %zu bytes", form->name,
						 sizeof(what->handle));
	if (form->descriptor && frame->fd_count != 1)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "an import by descriptor came with %d descriptors", frame->fd_count);
	if (form->handle)
		memcpy(what->handle, handle, size);
	if (form->descriptor)
		what->fd = frame->fds[0];
	return KILN_OK;
}

static int on_import(struct exec *executor, struct wire_in *message, struct frame *frame,
					 char error[KERNEL_ERROR_MAX])
{
	const msgpack_object *root = &message->root;
	struct device_import what = {
		.fd = -1,
		.buffer_id = wire_get_uint(root, "bufid", 0),
		.pool_id = wire_get_uint(root, "pool", 0),
		.pid = wire_get_int(root, "pid", 0),
		.span = wire_get_uint(root, "span", 0),
		.offset = wire_get_uint(root, "offset", 0),
	};
	uint64_t id;
	struct device_memory *memory;
	int status = check_new_buffer(executor, root, &id, &what.bytes, error);
	if (status == KILN_OK)
		status = read_import(root, wire_get_str(message, root, "kind"), frame, &what, error);
	if (status != KILN_OK)
		return status;
	/* CUDA's descriptors do not tell their size; the driver checks it. */
	bool size_known = what.span || what.kind != DEVICE_IMPORT_FD;
	if (size_known && (what.offset > what.span || what.bytes > what.span - what.offset))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "%" PRIu64 " bytes at %" PRIu64 " are not within an allocation of %" PRIu64
						 " bytes",
						 what.bytes, what.offset, what.span);
	status = executor->ops->import(executor->device, &what, &memory, error);
	if (status != KILN_OK)
		return status;
	return keep_buffer(executor, root, memory, what.bytes, what.offset, false, error);
}

static int on_share(struct exec *executor, struct wire_in *message, struct frame *frame,
					char error[KERNEL_ERROR_MAX])
{
	(void)frame;
	uint64_t id = wire_get_uint(&message->root, "buf", 0);
	struct exec_buffer *buffer = map_get_id(&executor->buffers, id);
	struct device_shared shared;
	struct wire_out reply;
	if (buffer)
		exec_graphs_unmake(executor, buffer);
	if (!buffer || !buffer->allocated || buffer->uses)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EPROTO,
						 "buffer %" PRIu64 " cannot be shared: it %s", id,
						 !buffer              ? "does not exist"
						 : !buffer->allocated ? "was not allocated here"
											  : "is in use");
	int status = executor->ops->share(executor->device, buffer->memory, &shared, error);
	if (status != KILN_OK)
		return status;
	wire_begin(&reply, "reply", wire_id(message));
	wire_put_int(&reply, "st", KILN_OK);
	wire_put_uint(&reply, "span", shared.span);
	wire_put_uint(&reply, "offset", shared.offset);
	exec_send(executor, &reply, shared.fd);
	close(shared.fd);
	return KILN_OK;
}

/* Takes the name away at once.  The last use frees the memory and answers. */
static int on_free(struct exec *executor, struct wire_in *message, struct frame *frame,
				   char error[KERNEL_ERROR_MAX])
{
	(void)frame;
	uint64_t id = wire_get_uint(&message->root, "buf", 0);
	struct exec_buffer *buffer = map_remove_id(&executor->buffers, id);
	if (!buffer)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT, "there is no buffer %" PRIu64, id);
	buffer->free_id = wire_id(message);
	buffer->uses++; /* so that graphs that are unmade are not the last */
	exec_graphs_unmake(executor, buffer);
	exec_release_buffer(executor, buffer);
	return KILN_OK;
}

/* ---- The rest ---- */

static int on_launch(struct exec *executor, struct wire_in *message, struct frame *frame,
					 char error[KERNEL_ERROR_MAX])
{
	(void)frame;
	return exec_launch(executor, message, error);
}

static int on_end(struct exec *executor, struct wire_in *message, struct frame *frame,
				  char error[KERNEL_ERROR_MAX])
{
	(void)frame;
	(void)error;
	uint64_t stream = wire_get_uint(&message->root, "stream", 0);
	exec_lane_close(executor, stream, 0);
	exec_graphs_drop(executor, stream);
	for (uint64_t i = 0; i < KILN_STREAMS; i++)
		executor->ops->stream_end(executor->device, exec_stream(stream, i));
	exec_unmap_kept(executor);
	return KILN_OK;
}

/* Parked entries may still name the graph: then it leaves behind them. */
static int on_graph_free(struct exec *executor, struct wire_in *message, struct frame *frame,
						 char error[KERNEL_ERROR_MAX])
{
	uint64_t owner = wire_get_uint(&message->root, "stream", 0);
	struct exec_graph *graph =
		exec_graph_find(executor, owner, wire_get_uint(&message->root, "graph", 0));
	(void)frame, (void)error;
	if (graph)
		exec_graph_leave(executor, graph, exec_lane_leave(executor, owner));
	return KILN_OK;
}

static int on_lane_close(struct exec *executor, struct wire_in *message, struct frame *frame,
						 char error[KERNEL_ERROR_MAX])
{
	(void)frame;
	(void)error;
	exec_lane_close(executor, wire_get_uint(&message->root, "stream", 0), wire_id(message));
	return KILN_OK;
}

static int on_cancel(struct exec *executor, struct wire_in *message, struct frame *frame,
					 char error[KERNEL_ERROR_MAX])
{
	(void)frame;
	(void)error;
	uint64_t ticket = wire_get_uint(&message->root, "ticket", 0);
	executor->ops->cancel(executor->device, &ticket, 1);
	return KILN_OK;
}

static int on_ping(struct exec *executor, struct wire_in *message, struct frame *frame,
				   char error[KERNEL_ERROR_MAX])
{
	(void)frame;
	(void)error;
	struct wire_out reply;
	wire_begin(&reply, "reply", wire_id(message));
	wire_put_int(&reply, "st", KILN_OK);
	wire_put_uint(&reply, "inflight", exec_in_flight(executor));
	exec_send(executor, &reply, -1);
	return KILN_OK;
}

/* later: the handler, or the end of what it began, answers a success. */
static const struct {
	const char *name;
	request_handler *handler;
	bool later;
} requests[] = {
	{"launch", on_launch, true},
	{"copy", exec_copy, true},
	{"graph", exec_graph_new, false},
	{"graph.launch", exec_launch_graph, true},
	{"graph.free", on_graph_free, false},
	{"alloc", on_alloc, false},
	{"import", on_import, false},
	{"free", on_free, true},
	{"load", exec_load, true},
	{"unload", exec_unload, true},
	{"end", on_end, false},
	{"ping", on_ping, true},
#ifdef KILN_TEST_HOOKS
	{"misdeed", exec_misdeed_arm, false},
#endif
	{"cancel", on_cancel, false},
	{"share", on_share, true},
	{"lane.open", exec_lane_open, false},
	{"lane.close", on_lane_close, true},
	{"lane.bind", exec_lane_bind, false},
	{"lane.rebind", exec_lane_rebind, false},
	{"lane.unbind", exec_lane_unbind, false},
	{"lane.cancel", exec_lane_cancel, false},
};

void exec_request(struct exec *executor, struct wire_in *message, struct frame *frame)
{
	const char *type = wire_type(message);
	char error[KERNEL_ERROR_MAX] = "";
	if (exec_misdeed(executor, type, wire_id(message)))
		return;
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		if (strcmp(type, requests[i].name) != 0)
			continue;
		int status = exec_lane_catch_up(executor, message, error);
		if (status == KILN_OK)
			status = requests[i].handler(executor, message, frame, error);
		if (status != KILN_OK || !requests[i].later)
			exec_reply(executor, wire_id(message), status, error);
		return;
	}
	util_fail(error, sizeof(error), KILN_EPROTO, "an executor does not know the request \"%.40s\"",
			  type);
	exec_reply(executor, wire_id(message), KILN_EPROTO, error);
}
