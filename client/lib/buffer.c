/*
 * buffer.c: memory that calls use: held by the daemon, shared with it, or lent by descriptor; and
 * kiln_read() and kiln_write().  It must not include CUDA (cuda_ipc.c does).
 *
 * kiln_read() and kiln_write() go through one staging memfd that both sides map, and that is kept
 * for the next time.  After a deadline the daemon may still use the staging memory, so the client
 * drops it and makes another.
 */
#include "buffer.h"
#include "client.h"
#include "error.h"
#include "lane.h"
#include "link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STAGING_MIN ((size_t)64 << 10)
#define STAGING_MAX ((size_t)16 << 20)

/* ---- Making ---- */

/* Frees the handle without telling the daemon. */
static void discard(kiln_buffer *buffer)
{
	kiln_client *client = buffer->client;
	while (buffer->peers)
		buffer_free_peer(&buffer->peers);
	if (client->lane)
		lane_forget_buffer(client, buffer);
	if (buffer->map)
		munmap(buffer->map, buffer->map_bytes);
	free(buffer);
	client_unref(client);
}

void buffer_free_peer(kiln_buffer **at)
{
	kiln_buffer *peer = *at;
	*at = peer->next;
	if (kiln_free(peer) == KILN_EBUSY)
		client_adopt_buffer(peer->client, peer);
}

void buffer_give_back(kiln_buffer *buffer)
{
	struct request request;
	if (buffer->id != 0 && buffer->client->link != LINK_DEAD) {
		link_begin(buffer->client, &request, "free");
		wire_put_uint(&request.out, "buf", buffer->id);
		(void)link_post(buffer->client, &request, SIZE_MAX);
	}
	discard(buffer);
}

/* Maps the whole memfd of a shared buffer, which lies at the memfd's end. */
static int map_shared(kiln_buffer *buffer, struct answer *answer)
{
	uint64_t offset = wire_get_uint(&answer->in.root, "offset", 0);
	struct stat stat_;
	int fd = frame_take_fd(&answer->frame, 0);
	int status = KILN_OK;

	if (fd < 0 || offset > INT64_MAX - buffer->bytes ||
		!frame_fd_is_safe(fd, offset + buffer->bytes) || fstat(fd, &stat_) != 0 ||
		(uint64_t)stat_.st_size > SIZE_MAX) {
		status = error_set(KILN_EPROTO,
						   "kilnd at %s gave no memory that can be mapped for a shared buffer",
						   buffer->client->path);
	} else if (stat_.st_size > 0) {
		void *map = mmap(NULL, (size_t)stat_.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (map == MAP_FAILED) {
			status = error_set(KILN_ENOMEM, "a shared buffer of %llu bytes cannot be mapped: %s",
							   (unsigned long long)buffer->bytes, strerror(errno));
		} else {
			buffer->map = map;
			buffer->map_bytes = (size_t)stat_.st_size;
			buffer->map_offset = (size_t)offset;
		}
	}
	if (fd >= 0)
		close(fd);
	return status;
}

/* Asks for a buffer; frees the request in any case. */
static int buffer_make(kiln_client *client, struct request *request, uint64_t bytes, uint64_t phase,
					   const char *name, bool shared, kiln_buffer **out)
{
	struct answer answer;
	kiln_buffer *buffer = calloc(1, sizeof(*buffer));
	if (!buffer) {
		wire_out_free(&request->out);
		return error_set(KILN_ENOMEM, "no memory for a buffer's handle");
	}
	request->undo = UNDO_BUFFER;
	wire_put_str(&request->out, "name", name);
	int status = link_ask(client, request, client_deadline(client), &answer);
	if (status != KILN_OK) {
		free(buffer);
		return status;
	}
	atomic_fetch_add(&client->refs, 1);
	buffer->client = client;
	buffer->bytes = bytes;
	buffer->phase = shared ? wire_get_uint(&answer.in.root, "offset", 0) : phase;
	buffer->id = wire_get_uint(&answer.in.root, "buf", 0);
	/* A daemon of an earlier version says nothing: then the first launch by message does. */
	buffer->generation = wire_get_uint(&answer.in.root, "generation", 0);
	if (name)
		snprintf(buffer->name, sizeof(buffer->name), "buffer \"%.40s\"", name);
	else
		snprintf(buffer->name, sizeof(buffer->name), "buffer %llu", (unsigned long long)buffer->id);
	if (buffer->id == 0)
		status = error_set(KILN_EPROTO, "kilnd at %s made a buffer without a number", client->path);
	else if (shared)
		status = map_shared(buffer, &answer);
	answer_free(&answer);
	if (status != KILN_OK) {
		buffer_give_back(buffer);
		return status;
	}
	*out = buffer;
	return KILN_OK;
}

int buffer_lend(kiln_client *client, struct request *request, uint64_t offset, uint64_t bytes,
				const char *name, kiln_buffer **out)
{
	wire_put_uint(&request->out, "offset", offset);
	wire_put_uint(&request->out, "bytes", bytes);
	wire_put_int(&request->out, "pid", client->pid);
	return buffer_make(client, request, bytes, offset, name, false, out);
}

static int alloc(kiln_client *client, uint64_t bytes, unsigned flags, const char *name,
				 kiln_buffer **out)
{
	struct request request;
	if (!out)
		return error_set(KILN_EINVAL, "out is NULL; the buffer cannot be returned");
	if ((flags & ~KILN_BUFFER_SHARED) != 0) {
		return error_set(KILN_EINVAL, "flags is 0x%x; this libkiln %s knows 0x%x", flags,
						 KILN_VERSION_STRING, KILN_BUFFER_SHARED);
	}
	link_begin(client, &request, "alloc");
	wire_put_uint(&request.out, "bytes", bytes);
	wire_put_uint(&request.out, "flags", flags);
	return buffer_make(client, &request, bytes, 0, name, (flags & KILN_BUFFER_SHARED) != 0, out);
}

int kiln_alloc(kiln_client *client, uint64_t bytes, unsigned flags, const char *name,
			   kiln_buffer **out)
{
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	return client_leave(client, alloc(client, bytes, flags, name, out));
}

static int lend_fd(kiln_client *client, int fd, uint64_t offset, uint64_t bytes, const char *name,
				   kiln_buffer **out)
{
	struct request request;
	struct stat stat_;
	if (!out)
		return error_set(KILN_EINVAL, "out is NULL; the buffer cannot be returned");
	if (fstat(fd, &stat_) != 0)
		return error_set(KILN_EINVAL, "descriptor %d cannot be lent: %s", fd, strerror(errno));
	if (offset > INT64_MAX || bytes > INT64_MAX - offset) {
		return error_set(KILN_EINVAL, "offset %llu and %llu bytes are beyond any memory",
						 (unsigned long long)offset, (unsigned long long)bytes);
	}
	if (strcmp(client->device, "cpu") == 0 && !frame_fd_is_safe(fd, offset + bytes)) {
		return error_set(
			KILN_EINVAL,
			"descriptor %d cannot be lent to the cpu device: it must be a memfd sealed "
			"with F_SEAL_SHRINK that has at least %llu bytes",
			fd, (unsigned long long)(offset + bytes));
	}
	link_begin(client, &request, "lend");
	request.fd = fd;
	wire_put_str(&request.out, "kind", "fd");
	wire_put_uint(&request.out, "span", 0);
	return buffer_lend(client, &request, offset, bytes, name, out);
}

int kiln_lend_fd(kiln_client *client, int fd, uint64_t offset, uint64_t bytes, const char *name,
				 kiln_buffer **out)
{
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	return client_leave(client, lend_fd(client, fd, offset, bytes, name, out));
}

/* ---- Moving bytes ---- */

void buffer_drop_staging(kiln_client *client)
{
	if (client->staging_map)
		munmap(client->staging_map, client->staging_bytes);
	if (client->staging >= 0)
		close(client->staging);
	client->staging_map = NULL;
	client->staging = -1;
	client->staging_bytes = 0;
}

int buffer_need_staging(kiln_client *client, uint64_t bytes)
{
	size_t size = STAGING_MIN;
	while (size < bytes && size < STAGING_MAX)
		size *= 2;
	if (client->staging_bytes >= size)
		return KILN_OK;
	buffer_drop_staging(client);
	int fd = frame_memfd("kiln-staging", size);
	void *map = fd >= 0 ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (map == MAP_FAILED) {
		int error = errno;
		if (fd >= 0)
			close(fd);
		return error_set(KILN_ENOMEM, "no memory of %zu bytes to move data through: %s", size,
						 strerror(error));
	}
	client->staging = fd;
	client->staging_map = map;
	client->staging_bytes = size;
	return KILN_OK;
}

int buffer_move_piece(kiln_buffer *buffer, const char *name, int fd, uint64_t offset,
					  uint64_t bytes, int64_t deadline)
{
	kiln_client *client = buffer->client;
	struct request request;
	int status = lane_settle(client, 0, true, deadline);
	if (status != KILN_OK)
		return status;
	link_begin(client, &request, name);
	request.fd = fd;
	wire_put_uint(&request.out, "buf", buffer->id);
	wire_put_uint(&request.out, "offset", offset);
	wire_put_uint(&request.out, "bytes", bytes);
	lane_put_tail(client, &request.out);
	return link_ask(client, &request, deadline, NULL);
}

static int move(kiln_buffer *buffer, uint64_t offset, void *into, const void *from, uint64_t bytes)
{
	kiln_client *client = buffer->client;
	int64_t deadline = client_deadline(client);

	if (offset > buffer->bytes || bytes > buffer->bytes - offset) {
		return error_set(KILN_EINVAL, "%llu bytes at offset %llu are not inside %s of %llu bytes",
						 (unsigned long long)bytes, (unsigned long long)offset, buffer->name,
						 (unsigned long long)buffer->bytes);
	}
	if (bytes > 0 && !into && !from) {
		return error_set(KILN_EINVAL, "the host memory for %llu bytes of %s is NULL",
						 (unsigned long long)bytes, buffer->name);
	}
	int status = bytes > 0 ? buffer_need_staging(client, bytes) : KILN_OK;
	for (uint64_t done = 0; done < bytes && status == KILN_OK;) {
		uint64_t left = bytes - done;
		size_t n = left < client->staging_bytes ? (size_t)left : client->staging_bytes;
		if (from)
			memcpy(client->staging_map, (const char *)from + done, n);
		status = buffer_move_piece(buffer, from ? "write" : "read", client->staging, offset + done,
								   n, deadline);
		if (status == KILN_OK && into)
			memcpy((char *)into + done, client->staging_map, n);
		done += n;
	}
	if (status == KILN_ETIMEDOUT)
		buffer_drop_staging(client);
	return status;
}

static int enter_buffer(const kiln_buffer *buffer)
{
	if (!buffer)
		return error_set(KILN_EINVAL, "buffer is NULL; it must come from kiln_alloc() or a lend");
	return client_enter(buffer->client);
}

int kiln_write(kiln_buffer *buffer, uint64_t offset, const void *source, uint64_t bytes)
{
	int status = enter_buffer(buffer);
	if (status != KILN_OK)
		return status;
	return client_leave(buffer->client, move(buffer, offset, NULL, source, bytes));
}

int kiln_read(kiln_buffer *buffer, uint64_t offset, void *destination, uint64_t bytes)
{
	int status = enter_buffer(buffer);
	if (status != KILN_OK)
		return status;
	return client_leave(buffer->client, move(buffer, offset, destination, NULL, bytes));
}

int kiln_map(kiln_buffer *buffer, void **out)
{
	int status = enter_buffer(buffer);
	if (status != KILN_OK)
		return status;
	if (!out) {
		status = error_set(KILN_EINVAL, "out is NULL; the address cannot be returned");
	} else if (!buffer->map) {
		status = error_set(KILN_ENOTSUP,
						   "%s is not mapped in this process: make it with KILN_BUFFER_SHARED on "
						   "the cpu device, or use kiln_read() and kiln_write()",
						   buffer->name);
	} else {
		*out = (char *)buffer->map + buffer->map_offset;
	}
	return client_leave(buffer->client, status);
}

uint64_t kiln_buffer_bytes(const kiln_buffer *buffer)
{
	return buffer ? buffer->bytes : 0;
}

int kiln_free(kiln_buffer *buffer)
{
	struct request request;
	if (!buffer)
		return KILN_OK;
	kiln_client *client = buffer->client;
	int status = client_try(client);
	if (status == KILN_EBUSY)
		return client_refuse(client, status);
	/* The thread that is inside, and ends the client as it leaves, has the lane until then. */
	if (status == KILN_ECONN && atomic_load(&client->state) != CLIENT_CLOSED) {
		client_adopt_buffer(client, buffer);
		return KILN_OK;
	}
	if (status != KILN_OK) {
		/* ECONN: the daemon freed the buffer when the client closed.  EFORK: the buffer is the
		 * parent's. */
		status = status == KILN_ECONN ? KILN_OK : client_refuse(client, status);
		discard(buffer);
		return status;
	}
	int64_t deadline = client_deadline(client);
	status = lane_settle(client, 0, true, deadline);
	link_begin(client, &request, "free");
	wire_put_uint(&request.out, "buf", buffer->id);
	lane_put_tail(client, &request.out);
	if (status == KILN_OK)
		status = link_ask(client, &request, deadline, NULL);
	else
		(void)link_post(client, &request, SIZE_MAX);
	discard(buffer);
	return client_leave(client, status);
}
