/*
 * buffer: memory that a session may name.  A buffer belongs to its session; works that use it end,
 * or are LOST, before it is freed (work_state.h).  buffer_delete() frees it: after a free, after a
 * failed making, or at the session's end.  buffer_state.h draws how it comes into device processes.
 */
#ifndef KILN_DAEMON_BUFFER_H
#define KILN_DAEMON_BUFFER_H

#include "daemon/broker/devices/handle.h"
#include "daemon/broker/requests/session.h"

struct buffer;

enum buffer_kind { BUFFER_HELD, BUFFER_SHARED, BUFFER_LENT_IPC, BUFFER_LENT_FD, BUFFER_LENT_POOL };

/* The device processes that a buffer can be in: that of the session's device, and that of its own
 * kernels. */
enum buffer_where { BUFFER_HOME, BUFFER_OWN, BUFFER_PLACES };

/* A device process needs this to import the memory; it is kept for the next process. */
struct buffer_memory {
	unsigned char handle[64];
	uint64_t bufid, pool, span, offset;
	int64_t pid;
	char gpu[DEVICE_UUID_TEXT]; /* UUID of the GPU that lent or shared memory is on; "": unknown */
	int fd;                     /* -1: none */
	uint64_t shared;            /* counts what fd has been of a HELD one; 0: nothing yet */
};

/* The place of an operand in memory; without a buffer the operand is left out. */
struct work_operand {
	struct buffer *buffer;
	uint64_t offset;
};

/* A new buffer of the session; NULL without memory.  Takes over memory->fd, also when it fails.
 * memory: NULL for a HELD one. */
struct buffer *buffer_new(struct session *session, enum buffer_kind kind, uint64_t bytes,
						  const char *name, const struct buffer_memory *memory);
/* Answers this request when the session's device process has the buffer; a buffer that it cannot
 * have is deleted.  Until then buffer_is_making(): the client does not know the buffer's id. */
void buffer_make(struct session *session, uint64_t id, struct buffer *buffer);
void buffer_delete(struct buffer *buffer); /* on the broker's side only */
struct buffer *buffer_find(const struct session *session, uint64_t id);
bool buffer_is_making(const struct buffer *buffer);
uint64_t buffer_bytes(const struct buffer *buffer);
bool buffer_is_held(const struct buffer *buffer); /* a device process made it, and it has bytes */
const char *buffer_label(const struct buffer *buffer, char label[96]); /* "buffer 7 (weights)" */

struct buffer_sums {
	int buffers;
	uint64_t held, lent; /* bytes: of memory that the device process made, and of other memory */
};
/* Adds up the session's buffers that are in this device process now. */
void buffers_add_up(const struct session *session, const struct device_handle *executor,
					struct buffer_sums *sums);
/* The device process is a new one: requests that make buffers go on. */
void buffers_remake(struct session *session);

#endif
