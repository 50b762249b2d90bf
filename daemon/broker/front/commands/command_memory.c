/* command_memory.c: alloc, lend, free, write, read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "daemon/broker/calls/work.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/front/rights.h"
#include "daemon/base/util.h"

#define SHARED_ALIGNMENT 16u
#define FLAG_SHARED 1u
#define BYTES_MOST ((uint64_t)1 << 46)

/* ---- alloc and lend: answered when the device process has the buffer ---- */

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
	making->buffer->on_change = NULL;
	free(making);
}

static void making_end(struct making *making)
{
	making->buffer->on_change = NULL;
	request_close(&making->request);
	free(making);
}

static void making_fail(struct making *making, int status, const char *error)
{
	struct session *session = making->request.session;
	struct buffer *buffer = making->buffer;
	uint64_t id = making->request.id;
	char label[96];
	reply_error(session, id, status, "%s of %llu bytes could not be made: %s",
				buffer_label(buffer, label), (unsigned long long)buffer->bytes, error);
	making_end(making);
	buffer_delete(buffer);
}

static void making_on_ready(void *arg, int status, const char *error);

/* Looks where the buffer is; called again when something changed. */
static void making_step(struct making *making)
{
	struct session *session = making->request.session;
	struct buffer *buffer = making->buffer;
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
	wire_put_uint(&out, "offset", buffer->kind == BUFFER_SHARED ? buffer->offset : 0);
	wire_put_uint(&out, "bytes", buffer->bytes);
	reply_send(session, &out, &buffer->fd, buffer->kind == BUFFER_SHARED ? 1 : 0);
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

static void making_on_change(struct buffer *buffer, void *arg)
{
	const struct buffer_place_state *home = &buffer->at[BUFFER_HOME];
	struct making *making = arg;
	if (making->asked)
		return;
	/* An end of the device process in the middle of it is told now, not when the next one is up. */
	if (home->status != KILN_OK)
		making_fail(making, home->status, home->error);
	else
		making_step(making);
}

static void memory_make(struct session *session, uint64_t id, struct buffer *buffer)
{
	struct making *making = calloc(1, sizeof(*making));
	if (!making || !request_open(session, id, &making->request, making_abandon)) {
		if (!making)
			reply_error(session, id, KILN_ENOMEM, "out of memory for a buffer");
		free(making);
		buffer_delete(buffer);
		return;
	}
	making->buffer = buffer;
	making->request.doing = buffer;
	buffer->on_change = making_on_change;
	buffer->on_change_arg = making;
	making_step(making);
}

/* False: refused, and answered. */
static bool may_have(struct session *session, uint64_t id, uint64_t bytes, bool held)
{
	const struct owned_counts owned = owned_count(session);
	const struct options *options = &session->broker->options;
	if (!session->executor)
		reply_error(session, id, KILN_ENOTSUP,
					"this kilnd has no device (--device none); it only compiles");
	else if (session->broker->draining)
		reply_error(session, id, KILN_ECANCELED, "kilnd is shutting down");
	else if (bytes > BYTES_MOST)
		reply_error(session, id, KILN_EINVAL, "a buffer of %llu bytes; the most is %llu",
					(unsigned long long)bytes, (unsigned long long)BYTES_MOST);
	else if (owned.buffers >= options->max_buffers)
		reply_error(session, id, KILN_ELIMIT,
					"this session has %llu buffers, the most it may have (--max-buffers)",
					(unsigned long long)options->max_buffers);
	else if (held && options->max_bytes && owned.held_bytes + bytes > options->max_bytes)
		reply_error(session, id, KILN_ELIMIT,
					"this session holds %llu bytes and asks for %llu more; the most it may hold is "
					"%llu (--max-bytes)",
					(unsigned long long)owned.held_bytes, (unsigned long long)bytes,
					(unsigned long long)options->max_bytes);
	else
		return true;
	return false;
}

/* Host memory for both sides, its end against the end of the mapping, so that what lies beyond is a
 * fault. */
static bool make_shared(struct buffer *buffer)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t padded = (buffer->bytes + SHARED_ALIGNMENT - 1) / SHARED_ALIGNMENT * SHARED_ALIGNMENT;
	buffer->span = (padded + page - 1) / page * page;
	if (!buffer->span)
		buffer->span = page;
	buffer->offset = buffer->span - padded;
	buffer->fd = frame_memfd("kiln-shared", buffer->span);
	if (buffer->fd >= 0 && rights_allow(buffer->session->uid, buffer->fd))
		return true;
	errno = buffer->fd >= 0 ? EMFILE : errno;
	return false;
}

void serve_alloc(struct session *session, struct wire_in *message)
{
	uint64_t id = wire_id(message);
	uint64_t bytes = wire_get_uint(&message->root, "bytes", UINT64_MAX);
	bool shared = wire_get_uint(&message->root, "flags", 0) & FLAG_SHARED;
	if (!may_have(session, id, bytes, true))
		return;
	if (shared && !device_is_cpu(session->device)) {
		reply_error(session, id, KILN_ENOTSUP,
					"memory shared with the client is there on device cpu only, not on %s; use "
					"kiln_write and kiln_read, or lend CUDA memory",
					session->device->info.name);
		return;
	}
	struct buffer *buffer = buffer_new(session, shared ? BUFFER_SHARED : BUFFER_HELD, bytes,
									   wire_get_str(message, &message->root, "name"));
	if (!buffer || (shared && !make_shared(buffer))) {
		int why = buffer ? errno : ENOMEM;
		if (buffer)
			buffer_delete(buffer);
		if (why == EMFILE || why == ENFILE)
			reply_error(session, id, KILN_ELIMIT, "%s: none is left for a shared buffer",
						rights_full_text(session->uid));
		else
			reply_error(session, id, KILN_ENOMEM, "out of memory for a buffer of %llu bytes",
						(unsigned long long)bytes);
		return;
	}
	memory_make(session, id, buffer);
}

/* Of a memfd; 0 for a descriptor that has no size, such as CUDA's. */
static uint64_t descriptor_bytes(int fd)
{
	struct stat status;
	return fstat(fd, &status) == 0 && status.st_size > 0 ? (uint64_t)status.st_size : 0;
}

/* Whether what is lent hangs together; the device checks what only it can know. */
static bool lend_is_sound(struct session *session, uint64_t id, const struct buffer *buffer)
{
	bool fd = buffer->kind == BUFFER_LENT_FD || buffer->kind == BUFFER_LENT_POOL;
	if (buffer->span &&
		(buffer->offset > buffer->span || buffer->bytes > buffer->span - buffer->offset))
		reply_error(
			session, id, KILN_EINVAL,
			"%llu bytes at offset %llu lie beyond the %llu bytes of the memory that is lent",
			(unsigned long long)buffer->bytes, (unsigned long long)buffer->offset,
			(unsigned long long)buffer->span);
	else if (fd && buffer->fd < 0)
		reply_error(session, id, KILN_EPROTO,
					"no descriptor of a memfd, or of memory that CUDA exported, came with what is "
					"lent");
	else
		return true;
	return false;
}

/* False: there is no such kind. */
static bool lend_kind(const char *name, enum buffer_kind *out)
{
	static const struct {
		const char *name;
		enum buffer_kind kind;
	} kinds[] = {{"ipc", BUFFER_LENT_IPC}, {"fd", BUFFER_LENT_FD}, {"pool", BUFFER_LENT_POOL}};
	for (size_t i = 0; name && i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (!strcmp(name, kinds[i].name)) {
			*out = kinds[i].kind;
			return true;
		}
	}
	return false;
}

/* What the message says of the memory; false when it lacks what the kind needs. */
static bool lend_read(struct buffer *buffer, struct wire_in *message)
{
	const msgpack_object *root = &message->root;
	size_t handle_bytes = 0, gpu_bytes = 0;
	const void *handle = wire_get_bin(root, "handle", &handle_bytes);
	const void *gpu = wire_get_bin(root, "gpu", &gpu_bytes);
	if (gpu_bytes == DEVICE_UUID_BYTES)
		device_uuid_text(gpu, buffer->gpu);
	else
		memcpy(buffer->gpu, buffer->session->device->info.uuid, sizeof(buffer->gpu));
	buffer->span = wire_get_uint(root, "span", 0);
	buffer->offset = wire_get_uint(root, "offset", 0);
	buffer->bufid = wire_get_uint(root, "bufid", 0);
	buffer->pool = wire_get_uint(root, "pool", 0);
	buffer->pid = buffer->session->pid; /* as the kernel says, not as the client does */
	/* A client of another PID namespace: its pools must not be taken for another's. */
	if (buffer->kind == BUFFER_LENT_POOL && buffer->pid <= 0)
		buffer->pid = -(int64_t)buffer->session->id;
	if (buffer->kind != BUFFER_LENT_IPC)
		buffer->fd = frame_take_fd(buffer->session->frame, 0);
	if (buffer->kind == BUFFER_LENT_FD) {
		if (!buffer->span && buffer->fd >= 0)
			buffer->span = descriptor_bytes(buffer->fd);
		return true;
	}
	if (handle_bytes == sizeof(buffer->handle))
		memcpy(buffer->handle, handle, sizeof(buffer->handle));
	else
		reply_error(buffer->session, wire_id(message), KILN_EPROTO,
					"the handle of lent memory has %zu bytes, not %zu", sizeof(buffer->handle),
					handle_bytes);
	return handle_bytes == sizeof(buffer->handle);
}

/* The GPU of the memory is the session's. */
static bool is_here(struct session *session, uint64_t id, const struct buffer *buffer)
{
	const struct device_info *info = &session->device->info;
	char label[96];
	if (!info->uuid[0] || !strcmp(buffer->gpu, info->uuid))
		return true;
	reply_error(session, id, KILN_EINVAL,
				"%s is memory of %s, and this client's device %s is %s: connect to the device that "
				"`kiln devices` lists with that UUID",
				buffer_label(buffer, label), buffer->gpu, info->name, info->uuid);
	return false;
}

void serve_lend(struct session *session, struct wire_in *message)
{
	const msgpack_object *root = &message->root;
	uint64_t id = wire_id(message);
	uint64_t bytes = wire_get_uint(root, "bytes", UINT64_MAX);
	const char *name = wire_get_str(message, root, "kind");
	enum buffer_kind kind;
	if (!may_have(session, id, bytes, false))
		return;
	if (!lend_kind(name, &kind)) {
		reply_error(session, id, KILN_EINVAL, "memory is lent by kind ipc, fd or pool, not %.*s",
					PLAIN_CUT(name ? name : "(none)", 20));
		return;
	}
	if (kind != BUFFER_LENT_FD && device_is_cpu(session->device)) {
		reply_error(session, id, KILN_ENOTSUP,
					"CUDA memory cannot be lent to device cpu; use kiln_write and kiln_read, or "
					"KILN_BUFFER_SHARED");
		return;
	}
	struct buffer *buffer = buffer_new(session, kind, bytes, wire_get_str(message, root, "name"));
	if (!buffer)
		reply_error(session, id, KILN_ENOMEM, "out of memory for a buffer");
	else if (lend_read(buffer, message) && lend_is_sound(session, id, buffer) &&
			 is_here(session, id, buffer))
		memory_make(session, id, buffer);
	else
		buffer_delete(buffer);
}

/* ---- free, write, read ---- */

static struct buffer *named(struct session *session, struct wire_in *message)
{
	uint64_t number = wire_get_uint(&message->root, "buf", 0);
	struct buffer *buffer = buffer_find(session, number);
	if (!buffer)
		reply_error(session, wire_id(message), KILN_ENOENT, "this session has no buffer %llu",
					(unsigned long long)number);
	else if (buffer_is_making(buffer)) {
		reply_error(session, wire_id(message), KILN_EBUSY, "buffer %llu is still being made",
					(unsigned long long)number);
		buffer = NULL;
	}
	return buffer;
}

void serve_free(struct session *session, struct wire_in *message)
{
	char error[KERNEL_ERROR_MAX];
	uint64_t id = wire_id(message);
	struct buffer *buffer = named(session, message);
	if (!buffer)
		return;
	int status = work_free(session, id, buffer, error);
	if (status != KILN_OK)
		reply_error(session, id, status, "%s", error);
}

static void copy(struct session *session, struct wire_in *message, bool to_device)
{
	struct frame *frame = session->frame;
	char error[KERNEL_ERROR_MAX], label[96];
	uint64_t id = wire_id(message);
	uint64_t offset = wire_get_uint(&message->root, "offset", 0);
	uint64_t bytes = wire_get_uint(&message->root, "bytes", 0);
	struct buffer *buffer = named(session, message);
	if (!buffer)
		return;
	if (offset > buffer->bytes || bytes > buffer->bytes - offset) {
		reply_error(session, id, KILN_EINVAL,
					"%llu bytes at offset %llu lie beyond the end of %s, which has %llu bytes",
					(unsigned long long)bytes, (unsigned long long)offset,
					buffer_label(buffer, label), (unsigned long long)buffer->bytes);
		return;
	}
	if (!frame->fd_count || !frame_fd_is_safe(frame->fds[0], bytes)) {
		reply_error(
			session, id, KILN_EPROTO,
			"the bytes must come in a memfd sealed against shrinking, without huge pages, of at "
			"least %llu bytes",
			(unsigned long long)bytes);
		return;
	}
	int status = work_copy(session, id, buffer, offset, bytes, frame->fds[0], to_device, error);
	if (status == KILN_OK)
		frame_take_fd(frame, 0);
	else
		reply_error(session, id, status, "%s", error);
}

void serve_write(struct session *session, struct wire_in *message)
{
	copy(session, message, true);
}

void serve_read(struct session *session, struct wire_in *message)
{
	copy(session, message, false);
}
