/*
 * buffer.c: memory that a session may name, and where it is.  A buffer remembers how to bring
 * itself into an executor, so that a new device process gets it again when it is next used.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "session.h"
#include "util/util.h"

#define PLACE_DEADLINE_MS 30000

struct buffer *buffer_new(struct session *session, enum buffer_kind kind, uint64_t bytes,
						  const char *name)
{
	struct buffer *buffer = calloc(1, sizeof *buffer);
	if (!buffer)
		return NULL;
	buffer->id = broker_id(session->broker);
	buffer->kind = kind;
	buffer->bytes = bytes;
	buffer->fd = -1;
	buffer->session = session;
	snprintf(buffer->name, sizeof buffer->name, "%s", name ? name : "");
	if (map_put_id(&session->buffers, buffer->id, buffer) < 0) {
		free(buffer);
		return NULL;
	}
	if (kind == BUFFER_HELD || kind == BUFFER_SHARED)
		session->held_bytes += bytes;
	return buffer;
}

void buffer_delete(struct buffer *buffer)
{
	struct session *session = buffer->session;
	if (buffer->kind == BUFFER_HELD || buffer->kind == BUFFER_SHARED)
		session->held_bytes -= buffer->bytes;
	if (map_get_id(&session->buffers, buffer->id) == buffer)
		map_remove_id(&session->buffers, buffer->id);
	if (buffer->placing)
		executor_disown(session->executor, buffer);
	if (buffer->fd >= 0)
		close(buffer->fd);
	explicit_bzero(buffer->handle, sizeof buffer->handle);
	free(buffer);
}

struct buffer *buffer_find(struct session *session, uint64_t id)
{
	return map_get_id(&session->buffers, id);
}

const char *buffer_label(const struct buffer *buffer, char label[96])
{
	if (buffer->name[0])
		snprintf(label, 96, "buffer %s", buffer->name);
	else
		snprintf(label, 96, "buffer %llu", (unsigned long long)buffer->id);
	return label;
}

bool buffer_overlap(const struct work_operand *a, uint64_t a_bytes, const struct work_operand *b,
					uint64_t b_bytes)
{
	const struct buffer *x = a->buffer, *y = b->buffer;
	uint64_t x_at = a->offset, y_at = b->offset;
	if (x != y) {
		bool numbered = x->kind == BUFFER_LENT_IPC || x->kind == BUFFER_LENT_POOL;
		bool one_allocation = numbered && x->kind == y->kind && x->bufid == y->bufid &&
							  !memcmp(x->handle, y->handle, sizeof x->handle);
		if (!one_allocation)
			return false;
		x_at += x->offset;
		y_at += y->offset;
	}
	return a_bytes && b_bytes && x_at < y_at + b_bytes && y_at < x_at + a_bytes;
}

static void on_placed(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct buffer *buffer = arg;
	struct session *session = buffer->session;
	(void)reply;
	buffer->placing = false;
	buffer->place_status = status;
	if (status == KILN_OK)
		buffer->generation = executor_generation(session->executor);
	else
		snprintf(buffer->place_error, sizeof buffer->place_error, "%s", error);
	buffer_made(buffer);
	work_pump(session);
}

static int send_place(struct buffer *buffer)
{
	struct executor *executor = buffer->session->executor;
	struct wire_out message;
	bool held = buffer->kind == BUFFER_HELD;
	bool pool = buffer->kind == BUFFER_LENT_POOL;
	bool by_handle = buffer->kind == BUFFER_LENT_IPC || pool;
	bool by_fd = buffer->kind == BUFFER_SHARED || buffer->kind == BUFFER_LENT_FD || pool;
	uint64_t id = executor_begin(executor, &message, held ? "alloc" : "import");
	wire_put_uint(&message, "buf", buffer->id);
	wire_put_uint(&message, "bytes", buffer->bytes);
	if (!held) {
		wire_put_str(&message, "kind", pool ? "pool" : by_fd ? "fd" : "ipc");
		wire_put_uint(&message, "span", buffer->span);
		wire_put_uint(&message, "offset", buffer->offset);
	}
	if (by_handle) {
		wire_put_bin(&message, "handle", buffer->handle, sizeof buffer->handle);
		wire_put_uint(&message, "bufid", buffer->bufid);
		wire_put_int(&message, "pid", buffer->pid);
	}
	if (pool)
		wire_put_uint(&message, "pool", buffer->pool);
	return executor_send(executor, &message, id, &buffer->fd, by_fd ? 1 : 0, PLACE_DEADLINE_MS,
						 on_placed, buffer);
}

enum buffer_place buffer_place(struct buffer *buffer)
{
	struct executor *executor = buffer->session->executor;
	if (buffer->generation == executor_generation(executor))
		return BUFFER_PLACED;
	if (buffer->placing)
		return BUFFER_PLACING;
	if (buffer->place_status != KILN_OK) {
		/* The failure was told by the work at the head of the queue; the next one tries again. */
		return BUFFER_FAILED;
	}
	if (buffer->generation && buffer->kind == BUFFER_HELD) {
		buffer->lost = buffer->bytes > 0;
		buffer->covered = 0;
	}
	int status = send_place(buffer);
	/* A process that is gone: server_executor_changed() looks at the buffer again. */
	if (status == KILN_EDEVICE)
		return BUFFER_PLACING;
	if (status != KILN_OK) {
		buffer->place_status = status;
		snprintf(buffer->place_error, sizeof buffer->place_error,
				 "the device process of %s cannot be reached",
				 executor_device(executor)->info.name);
		return BUFFER_FAILED;
	}
	buffer->placing = true;
	return BUFFER_PLACING;
}

void buffer_release(struct buffer *buffer)
{
	struct executor *executor = buffer->session->executor;
	struct wire_out message;
	bool there = executor && executor_is_ready(executor) &&
				 (buffer->placing || buffer->generation == executor_generation(executor));
	if (!there)
		return;
	uint64_t id = executor_begin(executor, &message, "free");
	wire_put_uint(&message, "buf", buffer->id);
	executor_post(executor, &message, id);
}
