/*
 * buffer.h: memory that calls use.
 */
#ifndef KILN_CLIENT_BUFFER_H
#define KILN_CLIENT_BUFFER_H

#include "link.h"

struct kiln_buffer {
	struct kiln_client *client;
	uint64_t id, bytes;
	uint64_t phase;      /* where its first byte lies in an aligned allocation */
	uint64_t generation; /* of the device process known to have the buffer; 0: none */
	void *map;           /* KILN_BUFFER_SHARED: the whole memfd; the buffer starts at map_offset */
	size_t map_bytes, map_offset;
	char name[64]; /* for messages: "buffer \"x\"" or "buffer 3" */
	/* kiln_copy() keeps these: a connection to another GPU maps this buffer as one of them. */
	struct kiln_buffer *peers;
	struct kiln_buffer *next; /* of those, or of a client's orphans */
	uint64_t shared;          /* of a peer: the number of the memory that it maps; 0: unknown */
};

/* Lends memory by the request, which it frees.  offset: where the buffer begins in the
 * allocation. */
int buffer_lend(struct kiln_client *client, struct request *request, uint64_t offset,
				uint64_t bytes, const char *name, struct kiln_buffer **out);
/* Makes the memory that kiln_read() and kiln_write() go through, for that many bytes, or for as
 * many as move at once. */
int buffer_need_staging(struct kiln_client *client, uint64_t bytes);
/* Moves bytes between the beginning of such memory, the descriptor fd, and the buffer.  name: the
 * request, "read" or "write".  After ETIMEDOUT the daemon may still use the memory. */
int buffer_move_piece(struct kiln_buffer *buffer, const char *name, int fd, uint64_t offset,
					  uint64_t bytes, int64_t deadline);
/* Frees the first of a list of peers, as soon as nobody is inside its client. */
void buffer_free_peer(struct kiln_buffer **peer);
/* Frees a buffer and tells the daemon without waiting. */
void buffer_give_back(struct kiln_buffer *buffer);
/* Frees the memory that kiln_read() and kiln_write() go through; the next one makes it anew. */
void buffer_drop_staging(struct kiln_client *client);

#endif
