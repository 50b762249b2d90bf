/*
 * frame.c: one message, one datagram, with its descriptors.  Must not look into a payload.
 *
 * What comes in is another process's doing: a descriptor that arrives with a frame we refuse is
 * closed before the refusal is reported, and a bulk payload is mapped only when its seals promise
 * that nobody can change or cut it while we read.
 */
#include "client/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <kiln/kiln.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEADER_BYTES 8
#define FLAG_BULK 1u
#define ALL_FDS (FRAME_MAX_FDS + 1)
#define BULK_SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

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
	char bytes[CMSG_SPACE(sizeof(int) * ALL_FDS)];
};

/* ---- Sending ---- */

int frame_pair(int pair[2])
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
		return KILN_EIO;
	}
	for (int i = 0; i < 2; i++) {
		int have = 0, wanted = 4 * (int)FRAME_INLINE_MAX;
		socklen_t length = sizeof(have);
		if (getsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &have, &length) != 0 || have < wanted) {
			(void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &wanted, sizeof(wanted));
		}
	}
	return KILN_OK;
}

static int memfd_new(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL) {
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING); /* kernels before 6.3 */
	}
	return fd;
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

int frame_sealed(const char *name, const void *data, size_t size)
{
	int fd = memfd_new(name);
	if (fd < 0) {
		return -1;
	}
	for (size_t done = 0; done < size;) {
		ssize_t n = write(fd, (const char *)data + done, size - done);
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			goto fail;
		}
		done += (size_t)n;
	}
	if (fcntl(fd, F_ADD_SEALS, BULK_SEALS | F_SEAL_SEAL) != 0) {
		goto fail;
	}
	return fd;
fail:;
	int saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

/* bulk: the memfd that holds the payload instead of data, or -1. */
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
	int all[ALL_FDS], count = 0;

	for (int i = 0; i < fd_count; i++) {
		all[count++] = fds[i];
	}
	if (bulk >= 0) {
		all[count++] = bulk;
	}
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
	if (fd_count < 0 || fd_count > FRAME_MAX_FDS) {
		return KILN_EINVAL;
	}
	return size > UINT32_MAX ? KILN_ELIMIT : KILN_OK;
}

int frame_send(int sock, const void *data, size_t size, const int *fds, int fd_count)
{
	int status = send_check(size, fd_count);
	if (status != KILN_OK) {
		return status;
	}
	if (size <= FRAME_INLINE_MAX) {
		return send_datagram(sock, data, size, -1, fds, fd_count);
	}
	int bulk = frame_sealed("kiln-message", data, size);
	if (bulk < 0) {
		return send_status(errno);
	}
	status = send_datagram(sock, data, size, bulk, fds, fd_count);
	int saved = errno;
	close(bulk);
	errno = saved;
	return status;
}

/* ---- Receiving ---- */

static int refuse(struct frame *frame, int status, const char *why)
{
	frame_free(frame);
	snprintf(frame->why, sizeof(frame->why), "%s", why);
	return status;
}

static int recv_status(int error)
{
	switch (error) {
	case EAGAIN:
		return KILN_EAGAIN;
	case ENOMEM:
		return KILN_ENOMEM;
	default:
		return KILN_ECONN;
	}
}

/* Takes the datagram out of the socket without looking at it: it was refused by its header. */
static int discard(int sock, struct frame *frame, int status, const char *why)
{
	uint8_t byte;
	(void)recv(sock, &byte, sizeof(byte), MSG_DONTWAIT);
	return refuse(frame, status, why);
}

/* Collects the descriptors of a received message; false if there were more than fit. */
static bool collect_fds(struct msghdr *message, int all[ALL_FDS], int *count)
{
	bool fits = true;
	*count = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
			continue;
		}
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (*count < ALL_FDS) {
				all[(*count)++] = fd;
			} else {
				close(fd);
				fits = false;
			}
		}
	}
	return fits;
}

static int map_bulk(struct frame *frame, int fd, size_t size)
{
	struct stat stat;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & BULK_SEALS) != BULK_SEALS) {
		return refuse(frame, KILN_EPROTO,
					  "the descriptor of a bulk message is no memfd sealed against every change");
	}
	if (size == 0 || fstat(fd, &stat) != 0 || (uint64_t)stat.st_size != size) {
		return refuse(frame, KILN_EPROTO,
					  "the descriptor of a bulk message is not of the size in the header");
	}
	/* Private: kernels before 6.7 refuse any shared mapping of a write-sealed memfd. */
	void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED) {
		return refuse(frame, KILN_ENOMEM, "a bulk message could not be mapped");
	}
	frame->data = data;
	frame->size = frame->mapped = size;
	return KILN_OK;
}

/* Looks at the next datagram's header and length without taking it. */
static int peek(int sock, uint8_t header[HEADER_BYTES], size_t *length)
{
	ssize_t n;
	int resets = 0;
	/* A peer that closes with unread data of ours resets the socket; the kernel reports that once,
	 * ahead of the messages that the peer still sent. */
	do {
		n = recv(sock, header, HEADER_BYTES, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
	} while (n < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
	if (n < 0) {
		return recv_status(errno);
	}
	*length = (size_t)n;
	return n == 0 ? KILN_ECONN : KILN_OK; /* we never send an empty datagram: it is the end */
}

/* Takes the datagram that was looked at: payload to frame->data, descriptors to frame and *bulk. */
static int take(int sock, struct frame *frame, size_t size, int expected, bool with_bulk, int *bulk)
{
	uint8_t header[HEADER_BYTES];
	union control control;
	struct iovec parts[2] = {{header, sizeof(header)}, {frame->data, size}};
	struct msghdr message = {.msg_iov = parts,
							 .msg_iovlen = size > 0 ? 2 : 1,
							 .msg_control = control.bytes,
							 .msg_controllen = sizeof(control.bytes)};
	int all[ALL_FDS], count, resets = 0;
	ssize_t n;

	do {
		n = recvmsg(sock, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
	if (n < 0) {
		return refuse(frame, recv_status(errno), "");
	}
	bool whole = collect_fds(&message, all, &count) && (message.msg_flags & MSG_CTRUNC) == 0;
	for (int i = 0; i < count; i++) {
		if (with_bulk && i == count - 1) {
			*bulk = all[i];
		} else if (frame->fd_count < FRAME_MAX_FDS) {
			frame->fds[frame->fd_count++] = all[i];
		} else {
			close(all[i]);
		}
	}
	/* Fewer than the header says, and cut: this process may have no more of them. */
	frame->lost = !whole && !with_bulk && count < expected && expected <= FRAME_MAX_FDS &&
				  (message.msg_flags & MSG_TRUNC) == 0 && (size_t)n == HEADER_BYTES + size;
	if (frame->lost) {
		snprintf(frame->why, sizeof(frame->why), "%s",
				 "the descriptors of a message were lost: this process has as many files open as "
				 "it may have (ulimit -n)");
		return KILN_EPROTO;
	}
	if (!whole) {
		return refuse(frame, KILN_EPROTO,
					  "descriptors of a message were lost: more than a message may carry, or more "
					  "than the limit of open files (ulimit -n) leaves room for");
	}
	if ((message.msg_flags & MSG_TRUNC) != 0 || (size_t)n != HEADER_BYTES + size) {
		return refuse(frame, KILN_EPROTO, "a message is not of the size its header says");
	}
	if (count != expected + (with_bulk ? 1 : 0)) {
		return refuse(frame, KILN_EPROTO,
					  "a message does not carry as many descriptors as its header says");
	}
	return KILN_OK;
}

int frame_recv(int sock, struct frame *frame, size_t limit)
{
	uint8_t h[HEADER_BYTES];
	size_t length = 0;
	int bulk = -1;

	memset(frame, 0, sizeof(*frame));
	int status = peek(sock, h, &length);
	if (status != KILN_OK) {
		return status;
	}
	if (length < HEADER_BYTES || h[0] != 'K' || h[1] != 'F' || (h[2] & ~FLAG_BULK) != 0 ||
		h[3] > FRAME_MAX_FDS) {
		return discard(sock, frame, KILN_EPROTO, "a message does not begin with a frame header");
	}
	bool with_bulk = (h[2] & FLAG_BULK) != 0;
	size_t size = (size_t)h[4] | (size_t)h[5] << 8 | (size_t)h[6] << 16 | (size_t)h[7] << 24;
	size_t inside = with_bulk ? 0 : size;
	if (length != HEADER_BYTES + inside || inside > FRAME_INLINE_MAX) {
		return discard(sock, frame, KILN_EPROTO, "a message is not of the size its header says");
	}
	if (size > limit) {
		discard(sock, frame, KILN_ELIMIT, "");
		snprintf(frame->why, sizeof(frame->why), "a message of %zu bytes is over the limit of %zu",
				 size, limit);
		return KILN_ELIMIT;
	}
	if (!with_bulk) {
		frame->data = malloc(size > 0 ? size : 1);
		if (frame->data == NULL) {
			return discard(sock, frame, KILN_ENOMEM, "no memory for a message");
		}
		frame->size = size;
	}
	status = take(sock, frame, inside, h[3], with_bulk, &bulk);
	if (status == KILN_OK && with_bulk) {
		status = map_bulk(frame, bulk, size);
	}
	if (bulk >= 0) {
		close(bulk);
	}
	return status;
}

int frame_take_fd(struct frame *frame, int i)
{
	if (i < 0 || i >= frame->fd_count) {
		return -1;
	}
	int fd = frame->fds[i];
	frame->fds[i] = -1;
	return fd;
}

void frame_free(struct frame *frame)
{
	if (frame->mapped > 0) {
		munmap(frame->data, frame->mapped);
	} else {
		free(frame->data);
	}
	for (int i = 0; i < frame->fd_count; i++) {
		if (frame->fds[i] >= 0) {
			close(frame->fds[i]);
		}
	}
	frame->data = NULL;
	frame->size = frame->mapped = 0;
	frame->fd_count = 0;
}

/* ---- Waiting ---- */

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* KILN_OK when the socket may be ready, KILN_ETIMEDOUT, or KILN_EIO. */
static int wait_for(int sock, short events, int timeout_ms, int64_t deadline)
{
	struct pollfd watch = {.fd = sock, .events = events};
	for (;;) {
		int64_t left = timeout_ms < 0 ? -1 : deadline - now_ms();
		int n = poll(&watch, 1, timeout_ms < 0 ? -1 : left > 0 ? (int)left : 0);
		if (n > 0) {
			return KILN_OK;
		}
		if (n < 0 && errno != EINTR) {
			return KILN_EIO;
		}
		if (timeout_ms >= 0 && left <= 0) {
			return KILN_ETIMEDOUT;
		}
	}
}

int frame_send_wait(int sock, const void *data, size_t size, const int *fds, int fd_count,
					int timeout_ms)
{
	int64_t deadline = now_ms() + timeout_ms;
	for (;;) {
		int status = frame_send(sock, data, size, fds, fd_count);
		if (status != KILN_EAGAIN) {
			return status;
		}
		status = wait_for(sock, POLLOUT, timeout_ms, deadline);
		if (status != KILN_OK) {
			return status;
		}
	}
}

int frame_recv_wait(int sock, struct frame *frame, size_t limit, int timeout_ms)
{
	int64_t deadline = now_ms() + timeout_ms;
	for (;;) {
		int status = frame_recv(sock, frame, limit);
		if (status != KILN_EAGAIN) {
			return status;
		}
		status = wait_for(sock, POLLIN, timeout_ms, deadline);
		if (status != KILN_OK) {
			return status;
		}
	}
}

/* ---- Memory files ---- */

int frame_memfd(const char *name, uint64_t bytes)
{
	if (bytes > INT64_MAX) {
		errno = EFBIG;
		return -1;
	}
	int fd = memfd_new(name);
	if (fd < 0) {
		return -1;
	}
	if (ftruncate(fd, (off_t)bytes) != 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
		int saved = errno;
		close(fd);
		errno = saved;
		return -1;
	}
	return fd;
}

int frame_fd_is_safe(int fd, uint64_t bytes)
{
	struct stat stat;
	int seals = fcntl(fd, F_GET_SEALS);
	return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &stat) == 0 &&
		   S_ISREG(stat.st_mode) && stat.st_size >= 0 && (uint64_t)stat.st_size >= bytes;
}

/* ---- Queue ---- */

static void node_free(struct frame_node *node)
{
	if (node->bulk >= 0) {
		close(node->bulk);
	}
	for (int i = 0; i < node->fd_count; i++) {
		close(node->fds[i]);
	}
	free(node);
}

static int node_make(const void *data, size_t size, const int *fds, int fd_count,
					 struct frame_node **out)
{
	bool inside = size <= FRAME_INLINE_MAX;
	struct frame_node *node = malloc(sizeof(*node) + (inside ? size : 0));
	if (node == NULL) {
		return KILN_ENOMEM;
	}
	*node = (struct frame_node){.size = size, .bulk = -1};
	if (inside && size > 0) {
		memcpy(node->data, data, size);
	}
	if (!inside && (node->bulk = frame_sealed("kiln-message", data, size)) < 0) {
		goto fail;
	}
	for (int i = 0; i < fd_count; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
		if (fd < 0) {
			goto fail;
		}
		node->fds[node->fd_count++] = fd;
	}
	*out = node;
	return KILN_OK;
fail:;
	int status = send_status(errno);
	node_free(node);
	return status == KILN_EAGAIN ? KILN_EIO : status;
}

int frame_queue_send(struct frame_queue *queue, int sock, const void *data, size_t size,
					 const int *fds, int fd_count, size_t limit)
{
	struct frame_node *node = NULL;
	int status = send_check(size, fd_count);
	if (status != KILN_OK) {
		return status;
	}
	if (queue->head == NULL) {
		status = frame_send(sock, data, size, fds, fd_count);
		if (status != KILN_EAGAIN) {
			return status;
		}
	}
	if (queue->bytes > limit || size > limit - queue->bytes) {
		return KILN_ELIMIT;
	}
	status = node_make(data, size, fds, fd_count, &node);
	if (status != KILN_OK) {
		return status;
	}
	if (queue->tail != NULL) {
		queue->tail->next = node;
	} else {
		queue->head = node;
	}
	queue->tail = node;
	queue->bytes += size;
	queue->count++;
	return KILN_OK;
}

static void queue_pop(struct frame_queue *queue)
{
	struct frame_node *node = queue->head;
	queue->head = node->next;
	if (queue->head == NULL) {
		queue->tail = NULL;
	}
	queue->bytes -= node->size;
	queue->count--;
	node_free(node);
}

int frame_queue_flush(struct frame_queue *queue, int sock)
{
	while (queue->head != NULL) {
		struct frame_node *node = queue->head;
		int status =
			send_datagram(sock, node->data, node->size, node->bulk, node->fds, node->fd_count);
		if (status != KILN_OK) {
			return status;
		}
		queue_pop(queue);
	}
	return KILN_OK;
}

void frame_queue_free(struct frame_queue *queue)
{
	while (queue->head != NULL) {
		queue_pop(queue);
	}
}
