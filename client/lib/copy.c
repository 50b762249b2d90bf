/*
 * copy.c: kiln_copy(): from one buffer to another, of any two connections of this process.
 *
 * Between GPUs the device process of the source shares its memory, that of the destination maps it
 * and copies, where the hardware lets one GPU reach the other.  Else, and for little, the bytes go
 * through host memory that both processes map, a piece at a time.
 */
#include "buffer.h"
#include "client.h"
#include "error.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* To map memory takes longer than to move so little through the host. */
#define DIRECT_LEAST ((uint64_t)4 << 20)

static int check_part(const kiln_buffer *buffer, const char *what, uint64_t offset, uint64_t bytes)
{
	if (!buffer)
		return error_set(KILN_EINVAL, "%s is NULL; it must come from kiln_alloc() or a lend", what);
	if (offset <= buffer->bytes && bytes <= buffer->bytes - offset)
		return KILN_OK;
	return error_set(KILN_EINVAL, "%llu bytes at offset %llu are not inside %s of %llu bytes",
					 (unsigned long long)bytes, (unsigned long long)offset, buffer->name,
					 (unsigned long long)buffer->bytes);
}

/* On the device of both: the operator that moves elements, without moving any. */
static int copy_there(kiln_buffer *to, uint64_t to_offset, kiln_buffer *from, uint64_t from_offset,
					  uint64_t bytes)
{
	const int64_t axis = 0;
	const kiln_attr perm = {.name = "perm", .kind = KILN_ATTR_INTS, .ints = &axis, .count = 1};
	kiln_tensor tensors[2] = {{.buffer = from, .offset = from_offset},
							  {.buffer = to, .offset = to_offset}};
	for (int i = 0; i < 2; i++) {
		tensors[i].dtype = KILN_U8;
		tensors[i].rank = 1;
		tensors[i].contiguous = 1;
		tensors[i].shape[0] = (int64_t)bytes;
	}
	return kiln_run(to->client, "permute", tensors, 2, &perm, 1);
}

/* ---- From GPU to GPU ---- */

/* Asks the daemon for a descriptor of the memory.  No call may use it meanwhile, so the source is
 * read first, which waits for all calls. */
static int share(kiln_buffer *from, int *fd, uint64_t *span, uint64_t *offset)
{
	kiln_client *client = from->client;
	struct request request;
	struct answer answer;
	uint8_t byte;
	int status = kiln_read(from, 0, &byte, 1);
	if (status == KILN_OK)
		status = client_enter(client);
	if (status != KILN_OK)
		return status;
	link_begin(client, &request, "share");
	wire_put_uint(&request.out, "buf", from->id);
	status = link_ask(client, &request, client_deadline(client), &answer);
	if (status == KILN_OK) {
		*span = wire_get_uint(&answer.in.root, "span", 0);
		*offset = wire_get_uint(&answer.in.root, "offset", 0);
		*fd = frame_take_fd(&answer.frame, 0);
		answer_free(&answer);
		if (*fd < 0)
			status = error_set(KILN_EPROTO, "kilnd at %s shared %s without a descriptor",
							   client->path, from->name);
	}
	return client_leave(client, status);
}

/* Lends the destination's device what the source's has shared. */
static int lend_peer(kiln_client *client, int fd, uint64_t span, uint64_t offset, uint64_t bytes,
					 kiln_buffer **out)
{
	struct request request;
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	link_begin(client, &request, "lend");
	request.fd = fd;
	wire_put_str(&request.out, "kind", "fd");
	wire_put_uint(&request.out, "span", span);
	wire_put_bool(&request.out, "peer", true);
	return client_leave(client, buffer_lend(client, &request, offset, bytes, "a peer's", out));
}

static bool is_on_gpu(const kiln_buffer *buffer)
{
	return strncmp(buffer->client->device, "cuda", 4) == 0;
}

/* ENOTSUP: these two cannot reach each other. */
static int copy_direct(kiln_buffer *to, uint64_t to_offset, kiln_buffer *from, uint64_t from_offset,
					   uint64_t bytes)
{
	uint64_t span = 0, offset = 0;
	kiln_buffer *peer;
	int fd = -1;
	int status = share(from, &fd, &span, &offset);
	/* A daemon that knows no such request; memory that cannot be shared. */
	if (status == KILN_EINVAL || status == KILN_EVERSION || status == KILN_EPROTO ||
		status == KILN_ELIMIT)
		return KILN_ENOTSUP;
	if (status != KILN_OK)
		return status;
	status = lend_peer(to->client, fd, span, offset + from_offset, bytes, &peer);
	close(fd);
	if (status == KILN_EINVAL || status == KILN_ENOMEM)
		return KILN_ENOTSUP;
	if (status != KILN_OK)
		return status;
	status = copy_there(to, to_offset, peer, 0, bytes);
	int freed = kiln_free(peer);
	return status == KILN_OK ? freed : status;
}

/* ---- Through the host ---- */

/* Enters both; the caller leaves both on success. */
static int enter_both(kiln_client *one, kiln_client *other)
{
	int status = client_enter(one);
	if (status != KILN_OK)
		return status;
	status = client_enter(other);
	return status == KILN_OK ? status : client_leave(one, status);
}

static int copy_through_host(kiln_buffer *to, uint64_t to_offset, kiln_buffer *from,
							 uint64_t from_offset, uint64_t bytes)
{
	kiln_client *source = from->client;
	int status = enter_both(source, to->client);
	if (status != KILN_OK)
		return status;
	int64_t from_deadline = client_deadline(source), to_deadline = client_deadline(to->client);
	status = buffer_need_staging(source, bytes);
	for (uint64_t done = 0; done < bytes && status == KILN_OK;) {
		uint64_t left = bytes - done;
		size_t n = left < source->staging_bytes ? (size_t)left : source->staging_bytes;
		int fd = source->staging;
		status = buffer_move_piece(from, "read", fd, from_offset + done, n, from_deadline);
		if (status == KILN_OK)
			status = buffer_move_piece(to, "write", fd, to_offset + done, n, to_deadline);
		done += n;
	}
	/* The daemon may still use the memory after a deadline. */
	if (status == KILN_ETIMEDOUT)
		buffer_drop_staging(source);
	return client_leave(source, client_leave(to->client, status));
}

int kiln_copy(kiln_buffer *to, uint64_t to_offset, kiln_buffer *from, uint64_t from_offset,
			  uint64_t bytes)
{
	int status = check_part(to, "to", to_offset, bytes);
	if (status == KILN_OK)
		status = check_part(from, "from", from_offset, bytes);
	if (status != KILN_OK || bytes == 0)
		return status;
	if (to->client == from->client)
		return copy_there(to, to_offset, from, from_offset, bytes);
	if (bytes >= DIRECT_LEAST && is_on_gpu(to) && is_on_gpu(from)) {
		status = copy_direct(to, to_offset, from, from_offset, bytes);
		if (status != KILN_ENOTSUP)
			return status;
	}
	return copy_through_host(to, to_offset, from, from_offset, bytes);
}
