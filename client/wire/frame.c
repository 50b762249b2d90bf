/* frame.c: sends messages with their descriptors, waits for them and queues them; one message is
 * one datagram.  It must not look into a payload. */
#include "frame.h"

#include <errno.h>
#include <fcntl.h>
#include <kiln/kiln.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "frame_parts.h"

#define SENT_FDS (FRAME_MAX_FDS + 1)

struct frame_node {
	struct frame_node *next;
	size_t size; /* payload */
	int bulk;    /* memfd that holds the payload, or -1 */
	int fds[FRAME_MAX_FDS];
	int fd_count;
	uint8_t data[]; /* payload, unless bulk */
};

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * SENT_FDS)];
};

/* ---- Sending ---- */

int frame_pair(int pair[2])
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
		return KILN_EIO;
	for (int i = 0; i < 2; i++) {
		int have = 0, wanted = 4 * (int)FRAME_INLINE_MAX;
		socklen_t length = sizeof(have);
		if (getsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &have, &length) != 0 || have < wanted)
			(void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &wanted, sizeof(wanted));
	}
	return KILN_OK;
}

static int send_status(int error)
{
	switch (error) {
	case EAGAIN:
		return KILN_EAGAIN;
	case EPIPE:
	case ECONNRESET:
	case ENOTCONN:
	case ECONNREFUSED:
		return KILN_ECONN;
	case ENOMEM:
	case ENOBUFS:
	case ENOSPC:
		return KILN_ENOMEM;
	default:
		return KILN_EIO;
	}
}

/* bulk: the memfd that holds the payload; -1: data holds it. */
static int send_datagram(int sock, const void *data, size_t size, int bulk, const int *fds,
						 int fd_count)
{
	uint8_t header[HEADER_BYTES] = {'K',
									'F',
									bulk >= 0 ? FLAG_BULK : 0,
									(uint8_t)fd_count,
									(uint8_t)size,
									(uint8_t)(size >> 8),
									(uint8_t)(size >> 16),
									(uint8_t)(size >> 24)};
	struct iovec parts[2] = {{header, sizeof(header)}, {(void *)(uintptr_t)data, size}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = bulk >= 0 || size == 0 ? 1 : 2};
	union control control;
	int all[SENT_FDS], count = 0;

	for (int i = 0; i < fd_count; i++)
		all[count++] = fds[i];
	if (bulk >= 0)
		all[count++] = bulk;
	if (count > 0) {
		size_t bytes = sizeof(int) * (size_t)count;
		memset(&control, 0, sizeof(control));
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(bytes);
		struct cmsghdr *head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(head), all, bytes);
	}
	ssize_t n;
	do {
		n = sendmsg(sock, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? send_status(errno) : KILN_OK;
}

static int send_check(size_t size, int fd_count)
{
	if (fd_count < 0 || fd_count > FRAME_MAX_FDS)
		return KILN_EINVAL;
	return size > UINT32_MAX ? KILN_ELIMIT : KILN_OK;
}

int frame_send(int sock, const void *data, size_t size, const int *fds, int fd_count)
{
	int status = send_check(size, fd_count);
	if (status != KILN_OK)
		return status;
	if (size <= FRAME_INLINE_MAX)
		return send_datagram(sock, data, size, -1, fds, fd_count);
	int bulk = frame_sealed("kiln-message", data, size);
	if (bulk < 0)
		return send_status(errno);
	status = send_datagram(sock, data, size, bulk, fds, fd_count);
	int saved = errno;
	close(bulk);
	errno = saved;
	return status;
}

/* ---- Waiting ---- */

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits for the socket.  KILN_OK when it may be ready, KILN_ETIMEDOUT, or KILN_EIO. */
static int wait_for(int sock, short events, int timeout_ms, int64_t deadline)
{
	struct pollfd watch = {.fd = sock, .events = events};
	for (;;) {
		int64_t left = timeout_ms < 0 ? -1 : deadline - now_ms();
		int n = poll(&watch, 1, timeout_ms < 0 ? -1 : left > 0 ? (int)left : 0);
		if (n > 0)
			return KILN_OK;
		if (n < 0 && errno != EINTR)
			return KILN_EIO;
		if (timeout_ms >= 0 && left <= 0)
			return KILN_ETIMEDOUT;
	}
}

int frame_send_wait(int sock, const void *data, size_t size, const int *fds, int fd_count,
					int timeout_ms)
{
	int64_t deadline = now_ms() + timeout_ms;
	for (;;) {
		int status = frame_send(sock, data, size, fds, fd_count);
		if (status != KILN_EAGAIN)
			return status;
		status = wait_for(sock, POLLOUT, timeout_ms, deadline);
		if (status != KILN_OK)
			return status;
	}
}

int frame_recv_wait(int sock, struct frame *frame, size_t limit, int timeout_ms)
{
	int64_t deadline = now_ms() + timeout_ms;
	for (;;) {
		int status = frame_recv(sock, frame, limit);
		if (status != KILN_EAGAIN)
			return status;
		status = wait_for(sock, POLLIN, timeout_ms, deadline);
		if (status != KILN_OK)
			return status;
	}
}

/* ---- Queue ---- */

static void node_free(struct frame_node *node, const struct frame_closer *closer)
{
	if (node->bulk >= 0)
		close(node->bulk);
	for (int i = 0; i < node->fd_count; i++)
		frame_close_by(closer, node->fds[i]);
	free(node);
}

/* Queued messages hold descriptors, so a peer that does not read must not exhaust them. */
static bool may_open(const struct frame_queue *queue, int fd)
{
	return queue->fd_below <= 0 || fd < queue->fd_below;
}

static int node_make(const struct frame_queue *queue, const void *data, size_t size, const int *fds,
					 int fd_count, struct frame_node **out)
{
	bool inside = size <= FRAME_INLINE_MAX;
	struct frame_node *node = malloc(sizeof(*node) + (inside ? size : 0));
	if (!node)
		return KILN_ENOMEM;
	*node = (struct frame_node){.size = size, .bulk = -1};
	if (inside && size > 0)
		memcpy(node->data, data, size);
	if (!inside && (node->bulk = frame_sealed("kiln-message", data, size)) < 0)
		goto fail;
	bool may = inside || may_open(queue, node->bulk);
	for (int i = 0; i < fd_count && may; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			goto fail;
		node->fds[node->fd_count++] = fd;
		may = may_open(queue, fd);
	}
	if (!may) {
		errno = EMFILE;
		goto fail;
	}
	*out = node;
	return KILN_OK;
fail:;
	int saved = errno, status = send_status(saved);
	node_free(node, queue->closer);
	errno = saved;
	return status == KILN_EAGAIN ? KILN_EIO : status;
}

int frame_queue_send(struct frame_queue *queue, int sock, const void *data, size_t size,
					 const int *fds, int fd_count, size_t limit)
{
	struct frame_node *node = NULL;
	int status = send_check(size, fd_count);
	if (status != KILN_OK)
		return status;
	if (!queue->head) {
		status = frame_send(sock, data, size, fds, fd_count);
		if (status != KILN_EAGAIN)
			return status;
	}
	if (queue->bytes > limit || size > limit - queue->bytes)
		return KILN_ELIMIT;
	status = node_make(queue, data, size, fds, fd_count, &node);
	if (status != KILN_OK)
		return status;
	if (queue->tail)
		queue->tail->next = node;
	else
		queue->head = node;
	queue->tail = node;
	queue->bytes += size;
	queue->count++;
	return KILN_OK;
}

static void queue_pop(struct frame_queue *queue)
{
	struct frame_node *node = queue->head;
	queue->head = node->next;
	if (!queue->head)
		queue->tail = NULL;
	queue->bytes -= node->size;
	queue->count--;
	node_free(node, queue->closer);
}

int frame_queue_flush(struct frame_queue *queue, int sock)
{
	while (queue->head) {
		struct frame_node *node = queue->head;
		int status =
			send_datagram(sock, node->data, node->size, node->bulk, node->fds, node->fd_count);
		if (status != KILN_OK)
			return status;
		queue_pop(queue);
	}
	return KILN_OK;
}

void frame_queue_free(struct frame_queue *queue)
{
	while (queue->head)
		queue_pop(queue);
}
