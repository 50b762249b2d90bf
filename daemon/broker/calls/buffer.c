/*
 * buffer.c: brings buffers into device processes.  A buffer keeps what a device process needs to
 * import it.  A new device process, or the one of the session's own kernels, gets the buffer when
 * it is next used there.
 */
#include "buffer_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/closer.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "call_state.h"
#include "client/wire/byte_range.h"
#include "work.h"

struct buffer *buffer_new(struct session *session, enum buffer_kind kind, uint64_t bytes,
						  const char *name, const struct buffer_memory *memory)
{
	struct buffer *buffer = calloc(1, sizeof(*buffer));
	uint64_t id = broker_id(session->broker);
	if (!buffer || map_put_id(&session->owned->buffers, id, buffer) < 0) {
		closer_put(session->uid, memory ? memory->fd : -1);
		free(buffer);
		return NULL;
	}
	buffer->id = id;
	buffer->kind = kind;
	buffer->bytes = bytes;
	buffer->memory = memory ? *memory : (struct buffer_memory){.fd = -1};
	buffer->session = session;
	snprintf(buffer->name, sizeof(buffer->name), "%s", name ? name : "");
	if (kind == BUFFER_HELD || kind == BUFFER_SHARED)
		session->owned->held_bytes += bytes;
	return buffer;
}

void buffer_delete(struct buffer *buffer)
{
	struct session *session = buffer->session;
	if (buffer->kind == BUFFER_HELD || buffer->kind == BUFFER_SHARED)
		session->owned->held_bytes -= buffer->bytes;
	if (map_get_id(&session->owned->buffers, buffer->id) == buffer)
		map_remove_id(&session->owned->buffers, buffer->id);
	if (buffer->at[BUFFER_HOME].place == BUFFER_PLACING ||
		buffer->at[BUFFER_OWN].place == BUFFER_SHARING)
		handle_disown(session->executor, buffer);
	if (buffer->at[BUFFER_OWN].place == BUFFER_PLACING && session->own)
		handle_disown(session->own, buffer);
	closer_put(session->uid, buffer->memory.fd);
	explicit_bzero(buffer->memory.handle, sizeof(buffer->memory.handle));
	free(buffer);
}

struct buffer *buffer_find(const struct session *session, uint64_t id)
{
	return map_get_id(&session->owned->buffers, id);
}

bool buffer_is_making(const struct buffer *buffer)
{
	return buffer->making != NULL;
}

uint64_t buffer_bytes(const struct buffer *buffer)
{
	return buffer->bytes;
}

bool buffer_is_held(const struct buffer *buffer)
{
	return buffer->kind == BUFFER_HELD && buffer->bytes > 0;
}

/* Returns the session's buffers one by one, then NULL; *cursor begins as 0. */
static struct buffer *buffer_next(const struct session *session, size_t *cursor)
{
	return map_next(&session->owned->buffers, cursor);
}

void buffer_unname(struct buffer *buffer)
{
	map_remove_id(&buffer->session->owned->buffers, buffer->id);
}

const char *buffer_label(const struct buffer *buffer, char label[96])
{
	if (buffer->name[0])
		snprintf(label, 96, "buffer %s", buffer->name);
	else
		snprintf(label, 96, "buffer %llu", (unsigned long long)buffer->id);
	return label;
}

uint32_t buffer_alignment(const struct buffer *buffer, uint64_t offset)
{
	uint64_t address = (buffer ? buffer->memory.offset : 0) + offset;
	uint32_t alignment = 16;
	while (address % alignment)
		alignment /= 2;
	return alignment;
}

bool buffer_overlap(const struct work_operand *a, const struct kernel_extent *a_extent,
					const struct work_operand *b, const struct kernel_extent *b_extent)
{
	const struct buffer *x = a->buffer, *y = b->buffer;
	struct byte_range one = {a->offset, a_extent->bytes, a_extent->period, a_extent->width};
	struct byte_range other = {b->offset, b_extent->bytes, b_extent->period, b_extent->width};
	if (x != y) {
		bool numbered = x->kind == BUFFER_LENT_IPC || x->kind == BUFFER_LENT_POOL;
		bool one_allocation = numbered && x->kind == y->kind &&
							  x->memory.bufid == y->memory.bufid &&
							  !memcmp(x->memory.handle, y->memory.handle, sizeof(x->memory.handle));
		if (!one_allocation)
			return false;
		one.at += x->memory.offset;
		other.at += y->memory.offset;
	}
	return byte_range_meets(&one, &other);
}

/* ---- Places ---- */

static struct device_handle *buffer_executor(const struct buffer *buffer, enum buffer_where where)
{
	return where == BUFFER_OWN ? buffer->session->own : buffer->session->executor;
}

bool buffer_is_in(const struct buffer *buffer, enum buffer_where where)
{
	const struct device_handle *executor = buffer_executor(buffer, where);
	return executor && buffer->at[where].generation == handle_generation(executor);
}

/* The contents are gone: the next place has new memory. */
static void lose(struct buffer *buffer)
{
	buffer->lost = buffer->bytes > 0;
	buffer->covered = 0;
}

static void send_free(struct buffer *buffer, enum buffer_where where)
{
	struct device_handle *executor = buffer_executor(buffer, where);
	struct wire_out message;
	bool there = executor && handle_is_ready(executor) &&
				 (buffer->at[where].place == BUFFER_PLACING || buffer_is_in(buffer, where));
	if (!there)
		return;
	uint64_t id = handle_begin(executor, &message, "free");
	wire_put_uint(&message, "buf", buffer->id);
	handle_post(executor, &message, id);
}

/* A third process cannot import what two processes shared: HOME gets new memory. */
static void begin_anew(struct buffer *buffer)
{
	send_free(buffer, BUFFER_OWN);
	buffer->at[BUFFER_OWN].generation = 0;
	closer_put(buffer->session->uid, buffer->memory.fd);
	buffer->memory.fd = -1;
	buffer->memory.gpu[0] = 0;
	lose(buffer);
}

static enum buffer_place buffer_fail(struct buffer_place_state *at, int status)
{
	at->status = status;
	at->place = BUFFER_FAILED;
	return BUFFER_FAILED;
}

static void placed(struct buffer *buffer, enum buffer_where where, int status, const char *error)
{
	struct session *session = buffer->session;
	struct buffer_place_state *at = &buffer->at[where];
	bool shared = buffer->kind == BUFFER_HELD && buffer->memory.fd >= 0;
	assert(at->place == BUFFER_PLACING);
	at->place = BUFFER_ABSENT;
	if (where == BUFFER_HOME && shared && status != KILN_OK && status != KILN_EDEVICE) {
		begin_anew(buffer);
	} else if (status == KILN_OK) {
		at->place = BUFFER_PLACED;
		at->generation = handle_generation(buffer_executor(buffer, where));
	} else {
		buffer_fail(at, util_fail(at->error, sizeof(at->error), status, "%s", error));
	}
	if (buffer->making)
		making_look(buffer->making);
	work_pump(session);
}

static void on_home(void *arg, int status, const char *error, struct wire_in *reply)
{
	(void)reply;
	placed(arg, BUFFER_HOME, status, error);
}

static void on_own(void *arg, int status, const char *error, struct wire_in *reply)
{
	(void)reply;
	placed(arg, BUFFER_OWN, status, error);
}

/* Returns a number for the allocation that the buffer lies in, equal for all buffers in it;
 * never 0. */
static uint64_t origin_of(const struct buffer *buffer)
{
	struct util_hash hash;
	unsigned char digest[32];
	uint64_t number;
	util_hash_begin(&hash);
	util_hash_add(&hash, &buffer->kind, sizeof(buffer->kind));
	util_hash_add(&hash, &buffer->memory.bufid, sizeof(buffer->memory.bufid));
	util_hash_add(&hash, buffer->memory.handle, sizeof(buffer->memory.handle));
	util_hash_end(&hash, digest);
	memcpy(&number, digest, sizeof(number));
	return number | 1;
}

static int send_place(struct buffer *buffer, enum buffer_where where)
{
	struct device_handle *executor = buffer_executor(buffer, where);
	struct wire_out message;
	bool held = buffer->kind == BUFFER_HELD && buffer->memory.fd < 0;
	bool pool = buffer->kind == BUFFER_LENT_POOL;
	bool by_handle = buffer->kind == BUFFER_LENT_IPC || pool;
	bool by_fd = !held && buffer->kind != BUFFER_LENT_IPC;
	uint64_t id = handle_begin(executor, &message, held ? "alloc" : "import");
	wire_put_uint(&message, "buf", buffer->id);
	wire_put_uint(&message, "bytes", buffer->bytes);
	wire_put_uint(&message, "stream", buffer->session->stream);
	if (!held) {
		wire_put_str(&message, "kind", pool ? "pool" : by_fd ? "fd" : "ipc");
		wire_put_uint(&message, "span", buffer->memory.span);
		wire_put_uint(&message, "offset", buffer->memory.offset);
	}
	if (by_handle) {
		wire_put_uint(&message, "origin", origin_of(buffer));
		wire_put_bin(&message, "handle", buffer->memory.handle, sizeof(buffer->memory.handle));
		wire_put_uint(&message, "bufid", buffer->memory.bufid);
		wire_put_int(&message, "pid", buffer->memory.pid);
	}
	if (pool)
		wire_put_uint(&message, "pool", buffer->memory.pool);
	return handle_send(executor, &message, id, &buffer->memory.fd, by_fd ? 1 : 0, DEADLINE_PLACE_MS,
					   where == BUFFER_OWN ? on_own : on_home, buffer);
}

/* A request to place or share it was sent with this status. */
static enum buffer_place sent(struct buffer *buffer, enum buffer_where where,
							  enum buffer_place under_way, int status)
{
	struct buffer_place_state *at = &buffer->at[where];
	/* When the process is gone, buffers_remake() looks at the buffer again. */
	if (status == KILN_OK || status == KILN_EDEVICE) {
		at->place = status == KILN_OK ? under_way : BUFFER_ABSENT;
		return BUFFER_PLACING;
	}
	return buffer_fail(at, util_fail(at->error, sizeof(at->error), status,
									 "the device process of %s cannot be reached",
									 handle_device(buffer_executor(buffer, where))->info.name));
}

/* ---- Held memory in OWN: HOME exports a descriptor ---- */

static void on_shared(void *arg, int status, const char *error, struct wire_in *reply)
{
	struct buffer *buffer = arg;
	struct buffer_place_state *at = &buffer->at[BUFFER_OWN];
	assert(at->place == BUFFER_SHARING);
	at->place = BUFFER_ABSENT;
	if (status == KILN_OK) {
		buffer->memory.fd = handle_take_fd(buffer->session->executor);
		buffer->memory.shared++;
		buffer->memory.span = wire_get_uint(&reply->root, "span", 0);
		buffer->memory.offset = wire_get_uint(&reply->root, "offset", 0);
		memcpy(buffer->memory.gpu, buffer->session->device->info.uuid, sizeof(buffer->memory.gpu));
		if (buffer->memory.fd < 0)
			status = KILN_EPROTO;
	}
	/* After EDEVICE the next home process gets new memory first, and is asked to share that. */
	if (status != KILN_OK && status != KILN_EDEVICE)
		buffer_fail(at, util_fail(at->error, sizeof(at->error), status,
								  "it cannot be shared between two processes: %s", error));
	work_pump(buffer->session);
}

/* Says whether the memory is on a GPU that the device process does not have now. */
static bool is_of_another(const struct buffer *buffer)
{
	const struct device_info *info = &buffer->session->device->info;
	return buffer->memory.gpu[0] && info->uuid[0] &&
		   !device_uuid_same(buffer->memory.gpu, info->uuid);
}

static enum buffer_place send_share(struct buffer *buffer)
{
	struct device_handle *home = buffer->session->executor;
	struct wire_out message;
	uint64_t id = handle_begin(home, &message, "share");
	wire_put_uint(&message, "buf", buffer->id);
	int status = handle_send(home, &message, id, NULL, 0, DEADLINE_PLACE_MS, on_shared, buffer);
	return sent(buffer, BUFFER_OWN, BUFFER_SHARING, status);
}

enum buffer_place buffer_share(struct buffer *buffer)
{
	enum buffer_place place = buffer->at[BUFFER_OWN].place;
	if (buffer->memory.fd >= 0)
		return BUFFER_PLACED;
	if (place == BUFFER_PLACING || place == BUFFER_SHARING)
		return BUFFER_PLACING;
	return place == BUFFER_FAILED ? BUFFER_FAILED : send_share(buffer);
}

enum buffer_place buffer_place(struct buffer *buffer, enum buffer_where where)
{
	struct buffer_place_state *at = &buffer->at[where];
	if (buffer_is_in(buffer, where))
		return BUFFER_PLACED;
	if (at->place == BUFFER_PLACING || at->place == BUFFER_SHARING)
		return BUFFER_PLACING;
	if (at->place == BUFFER_FAILED)
		return BUFFER_FAILED;
	if (buffer->kind == BUFFER_HELD && is_of_another(buffer))
		begin_anew(buffer);
	bool held = buffer->kind == BUFFER_HELD && buffer->memory.fd < 0;
	if (where == BUFFER_OWN && held && buffer->bytes) {
		enum buffer_place in_home = buffer_place(buffer, BUFFER_HOME);
		if (in_home != BUFFER_PLACED)
			return in_home;
		return send_share(buffer);
	}
	if (at->generation && held)
		lose(buffer);
	if (is_of_another(buffer))
		return buffer_fail(at, util_fail(at->error, sizeof(at->error), KILN_ELOST,
										 "it was lent from %s, and %s is %s now: lend it again",
										 buffer->memory.gpu,
										 handle_device(buffer_executor(buffer, where))->info.name,
										 buffer->session->device->info.uuid));
	return sent(buffer, where, BUFFER_PLACING, send_place(buffer, where));
}

void buffers_remake(struct session *session)
{
	size_t cursor = 0;
	struct buffer *buffer;
	while ((buffer = buffer_next(session, &cursor)))
		if (buffer->making)
			making_look(buffer->making);
}

void buffers_add_up(const struct session *session, const struct device_handle *executor,
					struct buffer_sums *sums)
{
	enum buffer_where where = session->own == executor ? BUFFER_OWN : BUFFER_HOME;
	const struct buffer *buffer;
	size_t cursor = 0;
	if (where == BUFFER_HOME && session->executor != executor)
		return;
	while ((buffer = buffer_next(session, &cursor))) {
		if (!buffer_is_in(buffer, where))
			continue;
		/* A session's own process makes no memory: all that it has is imported. */
		bool held = buffer->kind == BUFFER_HELD && where == BUFFER_HOME;
		sums->buffers++;
		*(held ? &sums->held : &sums->lent) += buffer->bytes;
	}
}

void buffer_release(struct buffer *buffer)
{
	send_free(buffer, BUFFER_HOME);
	send_free(buffer, BUFFER_OWN);
}
