/*
 * frame: sends and receives one message at a time over a SOCK_SEQPACKET socket, with descriptors.
 * Knows nothing of what is inside.
 *
 * A frame starts with an 8-byte header {'K', 'F', flags, descriptor count, u32 payload bytes,
 * little endian}.  Payloads over FRAME_INLINE_MAX travel in a memfd sealed against every change, as
 * the last descriptor (flag FRAME_BULK), so a message of any size is one datagram.
 */
#ifndef KILN_CLIENT_FRAME_H
#define KILN_CLIENT_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_INLINE_MAX (48u << 10)
#define FRAME_MAX_FDS 4       /* of the caller's; the bulk descriptor is not counted */
#define FRAME_RIGHTS_MOST 253 /* that a datagram can carry (SCM_MAX_FD of the kernel) */
#define FRAME_RESERVE 320     /* files kept for those of one message, while it is received */

/* Closes descriptors that came from outside: close() of such one may take as long as its sender
 * likes. */
struct frame_closer {
	void (*close)(void *arg, int fd);
	void *arg;
};

struct frame {
	uint8_t *data; /* payload, malloc'd */
	size_t size;
	/* Received, close-on-exec; -1 where taken by frame_take_fd.  First those of the message, then
	 * the rest: the bulk descriptor, or all that came with a message that was refused. */
	int fds[FRAME_RIGHTS_MOST];
	int fd_count, rest_count;
	/* After KILN_EPROTO: the message is whole, but there was no room for its descriptors, which are
	 * gone; to be freed as one that was received. */
	bool lost;
	char why[160]; /* after KILN_EPROTO: one sentence */
};

/* A socket pair for parent and child, both close-on-exec, both non-blocking.  KILN_OK or KILN_EIO.
 */
int frame_pair(int pair[2]);
/*
 * Sends without blocking (MSG_DONTWAIT | MSG_NOSIGNAL).  The descriptors stay the caller's.
 * KILN_OK; KILN_EAGAIN (socket full: nothing was sent); KILN_ECONN (peer gone); KILN_ENOMEM;
 * KILN_EIO (errno).
 */
int frame_send(int sock, const void *data, size_t size, const int *fds, int fd_count);
/*
 * Receives without blocking.  KILN_OK; KILN_EAGAIN; KILN_ECONN (end or reset); KILN_EPROTO;
 * KILN_ELIMIT (over limit bytes); KILN_ENOMEM.  Descriptors that came are in the frame also where
 * the message was refused: frame_free() it.
 */
int frame_recv(int sock, struct frame *frame, size_t limit);
/* The same from a sender that is not trusted, in a process that has called frame_reserve(): the
 * reserve takes descriptors that go past the usual limit, so that the kernel closes none here. */
int frame_recv_foreign(int sock, struct frame *frame, size_t limit);
/* Lowers the limit of open files to FRAME_RESERVE below the most that this process may have (three
 * quarters of it, where that is few). */
void frame_reserve(void);
/* The same, waiting up to timeout_ms (KILN_FOREVER allowed); KILN_ETIMEDOUT. */
int frame_send_wait(int sock, const void *data, size_t size, const int *fds, int fd_count,
					int timeout_ms);
int frame_recv_wait(int sock, struct frame *frame, size_t limit, int timeout_ms);
/* Descriptor i becomes the caller's; -1 if there is none. */
int frame_take_fd(struct frame *frame, int i);
/* Frees payload and the descriptors not taken.  Fine on a zeroed frame. */
void frame_free(struct frame *frame);
/* The same with another way to close them.  NULL: close(). */
void frame_free_by(struct frame *frame, const struct frame_closer *closer);

/* A memfd of this size, close-on-exec, sealed against shrinking and growing (not against writing);
 * -1 with errno. */
int frame_memfd(const char *name, uint64_t bytes);
/* A memfd with these bytes that nobody can change any more, close-on-exec; -1 with errno. */
int frame_sealed(const char *name, const void *data, size_t size);
/* True if the descriptor is a memfd of ordinary pages that cannot shrink and has at least this
 * size: safe to map.  Never waits, whatever the descriptor is. */
int frame_fd_is_safe(int fd, uint64_t bytes);
/* Reads the first size bytes of such one; false if that fails. */
bool frame_read_fd(int fd, void *data, size_t size);

/* What could not be sent yet.  Frames keep their order; descriptors are duplicated. */
struct frame_queue {
	struct frame_node *head, *tail;
	size_t bytes; /* queued payload */
	int count;
	const struct frame_closer *closer; /* of its duplicates; NULL: close() */
	int fd_below;                      /* numbers of what it opens are; 0: any */
};

/* Sends now if nothing is queued, else queues.  KILN_OK, KILN_ELIMIT (over limit bytes: nothing
 * queued), or as frame_send (KILN_EIO with EMFILE: over fd_below). */
int frame_queue_send(struct frame_queue *queue, int sock, const void *data, size_t size,
					 const int *fds, int fd_count, size_t limit);
/* Sends what it can.  KILN_OK when empty, KILN_EAGAIN when more is left, or as frame_send. */
int frame_queue_flush(struct frame_queue *queue, int sock);
void frame_queue_free(struct frame_queue *queue);

#endif
