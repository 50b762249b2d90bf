/*
 * frame.h: sends and receives one message at a time over a SOCK_SEQPACKET socket, with
 * descriptors.  It knows nothing of a message's contents.
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
#define FRAME_MAX_FDS 4 /* the caller's descriptors of one message, besides the bulk descriptor */
#define FRAME_RIGHTS_MOST 253 /* most descriptors of a datagram (SCM_MAX_FD of the kernel) */
#define FRAME_RESERVE 320     /* open files that are kept free for the descriptors of one message */

/* Closes a descriptor that came from outside: close() may take as long as its sender likes. */
struct frame_closer {
	void (*close)(void *arg, int fd);
	void *arg;
};

struct frame {
	uint8_t *data; /* payload; frame_free() frees it */
	size_t size;
	/* Received descriptors, close-on-exec; -1 where frame_take_fd() took one.  First come the
	 * descriptors of the message, then the rest: the bulk descriptor, or all descriptors of a
	 * refused message. */
	int fds[FRAME_RIGHTS_MOST];
	int fd_count, rest_count;
	/* After KILN_EPROTO: the message is whole, but some of its descriptors found no room and are
	 * gone. */
	bool lost;
	char why[160]; /* after KILN_EPROTO: one sentence */
};

/* Makes a socket pair for parent and child, both close-on-exec and non-blocking.  KILN_OK or
 * KILN_EIO. */
int frame_pair(int pair[2]);
/*
 * Sends without blocking (MSG_DONTWAIT | MSG_NOSIGNAL).  The descriptors stay the caller's.
 * KILN_OK; KILN_EAGAIN (socket full: nothing was sent); KILN_ECONN (peer gone); KILN_ENOMEM;
 * KILN_EIO (errno).
 */
int frame_send(int sock, const void *data, size_t size, const int *fds, int fd_count);
/*
 * Receives without blocking.  KILN_OK; KILN_EAGAIN; KILN_ECONN (end or reset); KILN_EPROTO;
 * KILN_ELIMIT (over limit bytes); KILN_ENOMEM.  The frame has the descriptors also if the message
 * was refused, so the caller always calls frame_free().
 */
int frame_recv(int sock, struct frame *frame, size_t limit);
/* Like frame_recv(), for a sender that is not trusted, in a process that has called
 * frame_reserve().  Descriptors beyond the usual limit go into the reserve: else the kernel would
 * close them here, and closing may take as long as their sender likes. */
int frame_recv_foreign(int sock, struct frame *frame, size_t limit);
/* Lowers the limit of open files to FRAME_RESERVE below the most that this process may have (three
 * quarters of it, where that is few). */
void frame_reserve(void);
/* Like frame_send(), but waits up to timeout_ms (KILN_FOREVER: for ever); KILN_ETIMEDOUT. */
int frame_send_wait(int sock, const void *data, size_t size, const int *fds, int fd_count,
					int timeout_ms);
int frame_recv_wait(int sock, struct frame *frame, size_t limit, int timeout_ms);
/* Returns descriptor i, which becomes the caller's; -1 if there is none. */
int frame_take_fd(struct frame *frame, int i);
/* Frees the payload and closes the descriptors that nobody took.  Fine on a zeroed frame. */
void frame_free(struct frame *frame);
/* Like frame_free(), but closes by closer; NULL: close(). */
void frame_free_by(struct frame *frame, const struct frame_closer *closer);

/* Makes a memfd of this size, close-on-exec, sealed against shrinking and growing (not against
 * writing); -1 with errno. */
int frame_memfd(const char *name, uint64_t bytes);
/* Makes a memfd of these bytes, sealed against every change, close-on-exec; -1 with errno. */
int frame_sealed(const char *name, const void *data, size_t size);
/* Tells whether the descriptor is safe to map: a memfd of ordinary pages that cannot shrink and has
 * at least this size.  Never waits, whatever the descriptor is. */
int frame_fd_is_safe(int fd, uint64_t bytes);
/* Reads the first size bytes of such a memfd; false if that fails. */
bool frame_read_fd(int fd, void *data, size_t size);

/* Messages that could not be sent yet, in their order.  The queue owns copies of their payloads and
 * duplicates of their descriptors, until frame_queue_free(). */
struct frame_queue {
	struct frame_node *head, *tail;
	size_t bytes; /* bytes of queued payload */
	int count;
	const struct frame_closer *closer; /* closes the duplicates; NULL: close() */
	int fd_below;                      /* duplicates have numbers below this; 0: any number */
};

/* Sends at once if nothing is queued, else queues.  KILN_OK, KILN_ELIMIT (over limit bytes: nothing
 * was queued), or as frame_send() (KILN_EIO with EMFILE: over fd_below). */
int frame_queue_send(struct frame_queue *queue, int sock, const void *data, size_t size,
					 const int *fds, int fd_count, size_t limit);
/* Sends queued messages.  KILN_OK when the queue is empty, KILN_EAGAIN when messages are left, or
 * as frame_send(). */
int frame_queue_flush(struct frame_queue *queue, int sock);
void frame_queue_free(struct frame_queue *queue);

#endif
