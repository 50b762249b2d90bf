/*
 * copy.c: kiln_copy(): from one buffer to another, of any two connections of this process.
 *
 * Between GPUs the device process of the source shares its memory, that of the destination maps it
 * and copies, where the hardware lets one GPU reach the other.  To map takes some milliseconds, so
 * what is mapped stays a peer of the source until that is freed.  Else, and for little, the bytes
 * go through host memory that both processes map, a piece at a time.
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

/* Waits for the calls of the source's client, which the caller is inside of. */
static int await_calls(kiln_buffer *from)
{
	kiln_client *client = from->client;
	int status = buffer_need_staging(client, 1);
	if (status == KILN_OK)
		status = buffer_move_piece(from, "read", client->staging, 0, 1, client_deadline(client));
	if (status == KILN_ETIMEDOUT)
		buffer_drop_staging(client);
	return status;
}

struct shared {
	int fd;
	uint64_t span, offset;
	uint64_t number; /* of the memory, which may be another after its process ended; 0: unknown */
};

/* Asks the daemon for a descriptor of the memory; no call may use it meanwhile. */
static int share(kiln_buffer *from, struct shared *out)
{
	kiln_client *client = from->client;
	struct request request;
	struct answer answer;
	int status = await_calls(from);
	if (status != KILN_OK)
		return status;
	link_begin(client, &request, "share");
	wire_put_uint(&request.out, "buf", from->id);
	status = link_ask(client, &request, client_deadline(client), &answer);
	if (status != KILN_OK)
		return status;
	out->span = wire_get_uint(&answer.in.root, "span", 0);
	out->offset = wire_get_uint(&answer.in.root, "offset", 0);
	out->number = wire_get_uint(&answer.in.root, "memory", 0);
	out->fd = frame_take_fd(&answer.frame, 0);
	answer_free(&answer);
	return out->fd >= 0 ? KILN_OK
						: error_set(KILN_EPROTO, "kilnd at %s shared %s without a descriptor",
									client->path, from->name);
}

/* Lends the destination's device what the source's has shared, all of it. */
static int lend_peer(kiln_client *client, const kiln_buffer *from, const struct shared *shared,
					 kiln_buffer **out)
{
	struct request request;
	int status = client_enter(client);
	if (status != KILN_OK)
		return status;
	link_begin(client, &request, "lend");
	request.fd = shared->fd;
	wire_put_str(&request.out, "kind", "fd");
	wire_put_uint(&request.out, "span", shared->span);
	wire_put_bool(&request.out, "peer", true);
	return client_leave(
		client, buffer_lend(client, &request, shared->offset, from->bytes, "a peer's", out));
}

static bool is_on_gpu(const kiln_buffer *buffer)
{
	return strncmp(buffer->client->device, "cuda", 4) == 0;
}

/* Returns where a client's peer of the buffer is in its list, or is to be put. */
static kiln_buffer **find_peer(kiln_buffer *from, const kiln_client *client)
{
	kiln_buffer **at = &from->peers;
	while (*at && (*at)->client != client)
		if (atomic_load(&(*at)->client->state) & CLIENT_CLOSED)
			buffer_free_peer(at);
		else
			at = &(*at)->next;
	return at;
}

/* Finds the source's memory among what the destination's device has mapped, or maps it. */
static int map_peer(kiln_client *client, kiln_buffer *from, kiln_buffer ***out)
{
	struct shared shared = {.fd = -1};
	int status = share(from, &shared);
	/* A daemon that knows no such request; memory that cannot be shared. */
	if (status == KILN_EINVAL || status == KILN_EVERSION || status == KILN_EPROTO ||
		status == KILN_ELIMIT)
		return KILN_ENOTSUP;
	if (status != KILN_OK)
		return status;
	kiln_buffer **at = find_peer(from, client), *peer = NULL;
	if (*at && (*at)->shared != shared.number) {
		buffer_free_peer(at);
		at = find_peer(from, client);
	}
	if (!*at) {
		status = lend_peer(client, from, &shared, &peer);
		if (status == KILN_OK) {
			peer->shared = shared.number;
			*at = peer;
		}
	}
	close(shared.fd);
	*out = at;
	return status == KILN_EINVAL || status == KILN_ENOMEM ? KILN_ENOTSUP : status;
}

/* Inside the source's client.  ENOTSUP: these two cannot reach each other. */
static int copy_direct(kiln_buffer *to, uint64_t to_offset, kiln_buffer *from, uint64_t from_offset,
					   uint64_t bytes)
{
	kiln_buffer **peer;
	int status = map_peer(to->client, from, &peer);
	if (status != KILN_OK)
		return status;
	status = copy_there(to, to_offset, *peer, from_offset, bytes);
	/* The peer may have ended with its device process; an older daemon does not say which memory
	 * it is. */
	if (status != KILN_OK || !(*peer)->shared)
		buffer_free_peer(peer);
	return status;
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
		status = client_enter(from->client);
		if (status == KILN_OK)
			status =
				client_leave(from->client, copy_direct(to, to_offset, from, from_offset, bytes));
		if (status != KILN_ENOTSUP)
			return status;
	}
	return copy_through_host(to, to_offset, from, from_offset, bytes);
}
