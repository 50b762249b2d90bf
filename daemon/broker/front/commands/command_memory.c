/* command_memory.c: alloc, lend, share, free, write, read. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "daemon/broker/calls/work.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/front/peer_descriptors.h"
#include "daemon/base/closer.h"

#define SHARED_ALIGNMENT 16u
#define FLAG_SHARED 1u
#define BYTES_MOST ((uint64_t)1 << 46)

/* ---- alloc and lend ---- */

/* False: it is refused, and answered. */
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

/* Makes host memory for both sides.  It ends where its mapping ends, so that what lies beyond is a
 * fault.  False, with errno, without memory or descriptors. */
static bool make_shared(const struct session *session, uint64_t bytes, struct buffer_memory *memory)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t padded = (bytes + SHARED_ALIGNMENT - 1) / SHARED_ALIGNMENT * SHARED_ALIGNMENT;
	memory->span = (padded + page - 1) / page * page;
	if (!memory->span)
		memory->span = page;
	memory->offset = memory->span - padded;
	memory->fd = frame_memfd("kiln-shared", memory->span);
	if (memory->fd < 0 || rights_allow(session->uid, memory->fd))
		return memory->fd >= 0;
	closer_put(session->uid, memory->fd);
	errno = EMFILE;
	return false;
}

void serve_alloc(struct session *session, struct wire_in *message)
{
	uint64_t id = wire_id(message);
	uint64_t bytes = wire_get_uint(&message->root, "bytes", UINT64_MAX);
	bool shared = wire_get_uint(&message->root, "flags", 0) & FLAG_SHARED;
	const char *name = wire_get_str(message, &message->root, "name");
	struct buffer_memory memory = {.fd = -1};
	struct buffer *buffer = NULL;
	if (!may_have(session, id, bytes, true))
		return;
	if (shared && !device_is_cpu(session->device)) {
		reply_error(session, id, KILN_ENOTSUP,
					"memory shared with the client is there on device cpu only, not on %s; use "
					"kiln_write and kiln_read, or lend CUDA memory",
					session->device->info.name);
		return;
	}
	int why = shared && !make_shared(session, bytes, &memory) ? errno : 0;
	if (!why)
		buffer = buffer_new(session, shared ? BUFFER_SHARED : BUFFER_HELD, bytes, name, &memory);
	if (buffer)
		buffer_make(session, id, buffer);
	else if (why == EMFILE || why == ENFILE)
		reply_error(session, id, KILN_ELIMIT, "%s: none is left for a shared buffer",
					rights_full_text(session->uid));
	else
		reply_error(session, id, KILN_ENOMEM, "out of memory for a buffer of %llu bytes",
					(unsigned long long)bytes);
}

/* Says whether what is lent hangs together, or answers; the device process checks what only it can
 * know. */
static bool lend_is_sound(struct session *session, uint64_t id, uint64_t bytes,
						  const struct buffer_memory *memory, bool wants_fd)
{
	if (memory->span && (memory->offset > memory->span || bytes > memory->span - memory->offset))
		reply_error(
			session, id, KILN_EINVAL,
			"%llu bytes at offset %llu lie beyond the %llu bytes of the memory that is lent",
			(unsigned long long)bytes, (unsigned long long)memory->offset,
			(unsigned long long)memory->span);
	else if (wants_fd && memory->fd < 0)
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

/* Reads what the message says of the memory; false, and answered, when it lacks what the kind
 * needs.  The descriptor stays the message's. */
static bool lend_read(struct session *session, struct wire_in *message, enum buffer_kind kind,
					  struct buffer_memory *memory)
{
	const msgpack_object *root = &message->root;
	const struct frame *frame = session->frame;
	size_t handle_bytes = 0, gpu_bytes = 0;
	struct stat status;
	const void *handle = wire_get_bin(root, "handle", &handle_bytes);
	const void *gpu = wire_get_bin(root, "gpu", &gpu_bytes);
	if (gpu_bytes == DEVICE_UUID_BYTES)
		device_uuid_text(gpu, memory->gpu);
	else
		memcpy(memory->gpu, session->device->info.uuid, sizeof(memory->gpu));
	memory->span = wire_get_uint(root, "span", 0);
	memory->offset = wire_get_uint(root, "offset", 0);
	memory->bufid = wire_get_uint(root, "bufid", 0);
	memory->pool = wire_get_uint(root, "pool", 0);
	memory->pid = session->pid; /* as the kernel says, not as the client does */
	/* A client of another PID namespace: its pools must not be taken for another's. */
	if (kind == BUFFER_LENT_POOL && memory->pid <= 0)
		memory->pid = -(int64_t)session->id;
	memory->fd = kind != BUFFER_LENT_IPC && frame->fd_count ? frame->fds[0] : -1;
	/* The size of a memfd; what CUDA exports has none. */
	if (kind == BUFFER_LENT_FD && !memory->span && memory->fd >= 0 &&
		fstat(memory->fd, &status) == 0 && status.st_size > 0)
		memory->span = (uint64_t)status.st_size;
	if (kind == BUFFER_LENT_FD)
		return true;
	if (handle_bytes == sizeof(memory->handle))
		memcpy(memory->handle, handle, sizeof(memory->handle));
	else
		reply_error(session, wire_id(message), KILN_EPROTO,
					"the handle of lent memory has %zu bytes, not %zu", sizeof(memory->handle),
					handle_bytes);
	return handle_bytes == sizeof(memory->handle);
}

/* Says whether the memory is on the session's GPU, or answers. */
static bool is_here(struct session *session, uint64_t id, const struct buffer *buffer,
					const char *gpu)
{
	const struct device_info *info = &session->device->info;
	char label[96];
	if (!info->uuid[0] || device_uuid_same(gpu, info->uuid))
		return true;
	reply_error(session, id, KILN_EINVAL,
				"%s is memory of %s, and this client's device %s is %s: connect to the device that "
				"`kiln devices` lists with that UUID",
				buffer_label(buffer, label), gpu, info->name, info->uuid);
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
	struct buffer_memory memory = {.fd = -1};
	if (!lend_read(session, message, kind, &memory) ||
		!lend_is_sound(session, id, bytes, &memory, kind != BUFFER_LENT_IPC))
		return;
	if (memory.fd >= 0)
		memory.fd = frame_take_fd(session->frame, 0);
	/* Another GPU's memory, to be copied from: no device of this session need have its UUID. */
	bool peer = kind == BUFFER_LENT_FD && wire_get_bool(root, "peer", false);
	if (peer)
		memory.gpu[0] = 0;
	struct buffer *buffer =
		buffer_new(session, kind, bytes, wire_get_str(message, root, "name"), &memory);
	if (!buffer)
		reply_error(session, id, KILN_ENOMEM, "out of memory for a buffer");
	else if (peer || is_here(session, id, buffer, memory.gpu))
		buffer_make(session, id, buffer);
	else
		buffer_delete(buffer);
}

/* ---- free, write, read ---- */

static struct buffer *take_buffer(struct session *session, struct wire_in *message)
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
	struct buffer *buffer = take_buffer(session, message);
	if (!buffer)
		return;
	int status = work_free(session, id, buffer, error);
	if (status != KILN_OK)
		reply_error(session, id, status, "%s", error);
}

void serve_share(struct session *session, struct wire_in *message)
{
	char error[KERNEL_ERROR_MAX], label[96];
	uint64_t id = wire_id(message);
	struct buffer *buffer = take_buffer(session, message);
	if (!buffer)
		return;
	if (!buffer_is_held(buffer) || device_is_cpu(session->device)) {
		reply_error(session, id, KILN_ENOTSUP,
					"%s cannot be shared: only memory of a GPU that kiln_alloc() made can",
					buffer_label(buffer, label));
		return;
	}
	/* The daemon keeps the descriptor: a guest has none of the last quarter. */
	int next = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	bool full = next < 0 || !rights_allow(session->uid, next);
	if (next >= 0)
		close(next);
	if (full) {
		reply_error(session, id, KILN_ELIMIT, "%s: none is left to share %s",
					rights_full_text(session->uid), buffer_label(buffer, label));
		return;
	}
	int status = work_share(session, id, buffer, error);
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
	struct buffer *buffer = take_buffer(session, message);
	if (!buffer)
		return;
	uint64_t most = buffer_bytes(buffer);
	if (offset > most || bytes > most - offset) {
		reply_error(session, id, KILN_EINVAL,
					"%llu bytes at offset %llu lie beyond the end of %s, which has %llu bytes",
					(unsigned long long)bytes, (unsigned long long)offset,
					buffer_label(buffer, label), (unsigned long long)most);
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
