/*
 * executor_buffer: buffers: takes and frees them, lets another process import them, and binds them
 * to launches.
 *
 *   NAMED --(request free)--> LEAVING --(the last use ends)--> FREEING --(freed)--> gone
 *
 * - NAMED: executor->buffers has the buffer, and requests and entries may use it.
 * - LEAVING: its uses alone have it.
 * - FREEING: free_now() has it, at once or as a task.  Only then is the request free answered.
 */
#include "daemon/base/util.h"
#include "executor.h"
#include "executor_buffer.h"
#include "executor_graph.h"
#include "executor_module.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void buffer_assert_valid(const struct exec_buffer *buffer)
{
	assert(buffer->state == BUFFER_FREEING ? buffer->uses == 0
										   : buffer->uses >= (buffer->state == BUFFER_LEAVING));
	(void)buffer;
}

/* ---- Binding ---- */

void exec_find_buffers(const struct launcher *launcher, struct exec_place *places, int count)
{
	for (int i = 0; i < count; i++)
		places[i].found = map_get_id(&launcher->executor->buffers, places[i].buffer);
}

void exec_hold_buffer(struct exec_held held, struct exec_buffer *buffer)
{
	buffer_assert_valid(buffer);
	buffer->uses++;
	held.buffers[(*held.count)++] = buffer;
}

/* Binds one operand to its place: within its buffer, which owner may name (0: anybody may), and
 * aligned.  *out_buffer is NULL if the operand is left out. */
static int bind_operand(const struct exec_operand *operand, const struct exec_place *place,
						uint64_t owner, int number, struct exec_buffer **out_buffer,
						struct device_operand *out, char error[KERNEL_ERROR_MAX])
{
	*out_buffer = NULL;
	*out = (struct device_operand){.name = operand->name};
	if (place->buffer == 0 && operand->bytes == 0)
		return KILN_OK;
	struct exec_buffer *buffer = place->found;
	if (!buffer || (owner && buffer->owner != owner))
		return util_fail(error, KERNEL_ERROR_MAX, KILN_ENOENT,
						 "operand %d: there is no buffer %" PRIu64
						 ": it was freed, or is another client's",
						 number, place->buffer);
	if (place->offset > buffer->bytes || operand->bytes > buffer->bytes - place->offset)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "operand %d: %" PRIu64 " bytes at %" PRIu64
						 " are not within its buffer of %" PRIu64 " bytes",
						 number, operand->bytes, place->offset, buffer->bytes);
	if ((buffer->misaligned + place->offset) % operand->alignment != 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "operand %d begins at byte %" PRIu64
						 " of its buffer, which is not a multiple of %u in memory",
						 number, place->offset, operand->alignment);
	*out_buffer = buffer;
	out->memory = buffer->memory;
	out->offset = place->offset;
	out->bytes = operand->bytes;
	return KILN_OK;
}

int exec_bind(const struct exec_template *what, const struct exec_place *places, uint64_t owner,
			  struct exec_held held, struct device_operand *operands, struct device_launch *launch,
			  char error[KERNEL_ERROR_MAX])
{
	*launch = (struct device_launch){
		.copies = what->copies,
		.module = what->copies ? NULL : what->module->module,
		.grid = {what->grid[0], what->grid[1], what->grid[2]},
		.block = {what->block[0], what->block[1], what->block[2]},
		.shared_bytes = what->shared_bytes,
		.args = what->args,
		.arg_count = what->arg_count,
		.operands = operands,
		.operand_count = what->operand_count,
		.scratch = what->scratch,
		.report = what->report,
		.copy_bytes = what->copy_bytes,
		.granule = what->granule,
	};
	for (int i = 0; i < what->operand_count; i++) {
		struct exec_buffer *buffer;
		int status =
			bind_operand(&what->operands[i], &places[i], owner, i, &buffer, &operands[i], error);
		if (status != KILN_OK)
			return status;
		if (buffer)
			exec_hold_buffer(held, buffer);
	}
	return KILN_OK;
}

/* ---- Freeing ---- */

static void free_now(struct exec *executor, void *what)
{
	struct exec_buffer *buffer = what;
	buffer_assert_valid(buffer);
	executor->ops->free(executor->device, buffer->memory);
	exec_reply(executor, buffer->free_id, KILN_OK, NULL);
	free(buffer);
}

void exec_release_buffer(struct launcher *launcher, struct exec_buffer *buffer)
{
	buffer_assert_valid(buffer);
	if (atomic_fetch_sub(&buffer->uses, 1) > 1 || buffer->state != BUFFER_LEAVING)
		return;
	buffer->state = BUFFER_FREEING;
	buffer->task = (struct exec_task){.kind = EXEC_TASK_FREE, .perform = free_now, .what = buffer};
	exec_quiet_hand_over(launcher, &buffer->task, buffer->memory);
}

/* ---- Requests ---- */

static int check_new_buffer(struct launcher *launcher, struct exec_request *request,
							uint64_t *bytes)
{
	uint64_t id = wire_get_uint(request->root, "buf", 0);
	*bytes = wire_get_uint(request->root, "bytes", UINT64_MAX);
	if (id == 0 || map_get_id(&launcher->executor->buffers, id))
		return exec_refuse(request, KILN_EPROTO, "buffer %" PRIu64 " is there already, or no id",
						   id);
	if (launcher->executor->buffers.count >= EXEC_MAX_BUFFERS)
		return exec_refuse(request, KILN_ELIMIT,
						   "a device process has room for %d buffers, of all sessions that it "
						   "works for: free some",
						   EXEC_MAX_BUFFERS);
	return KILN_OK;
}

/* Takes the memory over also when this fails. */
static int keep_buffer(struct launcher *launcher, struct exec_request *request,
					   struct device_memory *memory, uint64_t bytes, uint64_t offset,
					   bool allocated)
{
	uint64_t id = wire_get_uint(request->root, "buf", 0);
	struct exec_buffer *buffer = calloc(1, sizeof(*buffer));
	if (!buffer || map_put_id(&launcher->executor->buffers, id, buffer) < 0) {
		free(buffer);
		launcher->ops->free(launcher->executor->device, memory);
		return exec_refuse(request, KILN_ENOMEM, "out of memory for a buffer's record");
	}
	*buffer = (struct exec_buffer){
		.state = BUFFER_NAMED,
		.memory = memory,
		.bytes = bytes,
		.misaligned = (uint32_t)(offset % 256),
		.allocated = allocated,
		.owner = request->stream,
		.origin = wire_get_uint(request->root, "origin", 0),
		.at = offset,
	};
	return KILN_OK;
}

int exec_alloc(struct launcher *launcher, struct exec_request *request)
{
	uint64_t bytes;
	struct device_memory *memory;
	int status = check_new_buffer(launcher, request, &bytes);
	if (status == KILN_OK)
		status = launcher->ops->alloc(launcher->executor->device, bytes, &memory, request->error);
	return status == KILN_OK ? keep_buffer(launcher, request, memory, bytes, 0, true) : status;
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

static int read_import(struct exec_request *request, struct device_import *what)
{
	const char *kind = wire_get_str(request->message, request->root, "kind");
	const struct import_form *form = NULL;
	for (size_t i = 0; kind && i < sizeof(import_forms) / sizeof(import_forms[0]); i++)
		if (strcmp(kind, import_forms[i].name) == 0)
			form = &import_forms[i];
	if (!form)
		return exec_refuse(request, KILN_EPROTO,
						   "an import is of kind \"ipc\", \"fd\" or \"pool\"");
	size_t size = 0;
	const void *handle = wire_get_bin(request->root, "handle", &size);
	what->kind = form->kind;
	if (form->handle && (!handle || size != sizeof(what->handle)))
		return exec_refuse(request, KILN_EPROTO,
						   "the handle of an import of kind \"%s\" has %zu bytes", form->name,
						   sizeof(what->handle));
	if (form->descriptor && request->frame->fd_count != 1)
		return exec_refuse(request, KILN_EPROTO, "an import by descriptor came with %d descriptors",
						   request->frame->fd_count);
	if (form->handle)
		memcpy(what->handle, handle, size);
	if (form->descriptor)
		what->fd = request->frame->fds[0];
	return KILN_OK;
}

int exec_import(struct launcher *launcher, struct exec_request *request)
{
	const msgpack_object *root = request->root;
	struct device_import what = {
		.fd = -1,
		.buffer_id = wire_get_uint(root, "bufid", 0),
		.pool_id = wire_get_uint(root, "pool", 0),
		.pid = wire_get_int(root, "pid", 0),
		.span = wire_get_uint(root, "span", 0),
		.offset = wire_get_uint(root, "offset", 0),
	};
	struct device_memory *memory;
	int status = check_new_buffer(launcher, request, &what.bytes);
	if (status == KILN_OK)
		status = read_import(request, &what);
	if (status != KILN_OK)
		return status;
	/* CUDA's descriptors do not tell their size; the driver checks it. */
	bool size_known = what.span || what.kind != DEVICE_IMPORT_FD;
	if (size_known && (what.offset > what.span || what.bytes > what.span - what.offset))
		return exec_refuse(request, KILN_EINVAL,
						   "%" PRIu64 " bytes at %" PRIu64
						   " are not within an allocation of %" PRIu64 " bytes",
						   what.bytes, what.offset, what.span);
	status = launcher->ops->import(launcher->executor->device, &what, &memory, request->error);
	if (status != KILN_OK)
		return status;
	return keep_buffer(launcher, request, memory, what.bytes, what.offset, false);
}

int exec_share(struct launcher *launcher, struct exec_request *request)
{
	uint64_t id = wire_get_uint(request->root, "buf", 0);
	struct exec_buffer *buffer = map_get_id(&launcher->executor->buffers, id);
	struct device_shared shared;
	struct wire_out reply;
	if (buffer)
		exec_graphs_unmake(launcher->executor, buffer);
	if (!buffer || !buffer->allocated || buffer->uses)
		return exec_refuse(request, KILN_EPROTO, "buffer %" PRIu64 " cannot be shared: it %s", id,
						   !buffer              ? "does not exist"
						   : !buffer->allocated ? "was not allocated here"
												: "is in use");
	int status =
		launcher->ops->share(launcher->executor->device, buffer->memory, &shared, request->error);
	if (status != KILN_OK)
		return status;
	wire_begin(&reply, "reply", request->id);
	wire_put_int(&reply, "st", KILN_OK);
	wire_put_uint(&reply, "span", shared.span);
	wire_put_uint(&reply, "offset", shared.offset);
	exec_send(launcher->executor, &reply, shared.fd);
	close(shared.fd);
	return KILN_OK;
}

int exec_free(struct launcher *launcher, struct exec_request *request)
{
	uint64_t id = wire_get_uint(request->root, "buf", 0);
	struct exec_buffer *buffer = map_remove_id(&launcher->executor->buffers, id);
	if (!buffer)
		return exec_refuse(request, KILN_ENOENT, "there is no buffer %" PRIu64, id);
	buffer->uses++; /* so that graphs that are unmade are not the last */
	buffer->state = BUFFER_LEAVING;
	buffer->free_id = request->id;
	exec_graphs_unmake(launcher->executor, buffer);
	exec_release_buffer(launcher, buffer);
	return KILN_OK;
}
