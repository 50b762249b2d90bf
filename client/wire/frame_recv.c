/*
 * frame_recv.c: the receiving half of frame.  It must not look into a payload.
 *
 * Another process chooses the descriptors that come in, and to close one may block.  So this file
 * closes no descriptor.  The caller gets all of them, also those of a refused frame.  The kernel
 * closes descriptors that find no room, so there is room for as many as one datagram can carry.  A
 * bulk payload is read, not mapped, and only from memory that its seals and its file system keep as
 * it is.
 */
#include "frame.h"

#include <errno.h>
#include <fcntl.h>
#include <kiln/kiln.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frame_parts.h"

union any_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * FRAME_RIGHTS_MOST)];
};

/* The head of a datagram that peek() has looked at. */
struct head {
	uint8_t bytes[HEADER_BYTES];
	size_t length;
	bool has_fds;
};

/* Makes all descriptors part of the rest: they stay in the frame, but belong to no message. */
static int refuse(struct frame *frame, int status, const char *why)
{
	free(frame->data);
	frame->data = NULL;
	frame->size = 0;
	frame->rest_count += frame->fd_count;
	frame->fd_count = 0;
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

/* A peer that closes while it has unread data of ours resets the socket.  The kernel reports the
 * reset once, ahead of messages that the peer still sent. */
static ssize_t receive(int sock, struct msghdr *message, int flags)
{
	ssize_t n;
	int resets = 0;

	do {
		n = recvmsg(sock, message, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
	return n;
}

/* Looks at the next datagram without taking it.  There is no room for control data, whose
 * truncation tells that the datagram has descriptors. */
static int peek(int sock, struct head *head)
{
	struct iovec part = {head->bytes, sizeof(head->bytes)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t n = receive(sock, &message, MSG_PEEK | MSG_TRUNC);

	if (n < 0)
		return recv_status(errno);
	head->length = (size_t)n;
	head->has_fds = (message.msg_flags & MSG_CTRUNC) != 0;
	return n == 0 ? KILN_ECONN : KILN_OK; /* nobody sends an empty datagram, so this is the end */
}

static void collect_fds(struct msghdr *message, struct frame *frame)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n && frame->rest_count < FRAME_RIGHTS_MOST; i++)
			memcpy(&frame->fds[frame->rest_count++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
}

/* Takes the datagram, and all its descriptors as the rest.  *beyond: without the reserve some of
 * them would have found no room. */
static ssize_t frame_recv_take(int sock, struct frame *frame, struct msghdr *message, bool reserve,
							   bool *beyond)
{
	union any_control control;
	struct rlimit usual, most;

	message->msg_control = control.bytes;
	message->msg_controllen = sizeof(control.bytes);
	reserve = reserve && getrlimit(RLIMIT_NOFILE, &usual) == 0;
	if (reserve) {
		most = (struct rlimit){.rlim_cur = usual.rlim_max, .rlim_max = usual.rlim_max};
		(void)setrlimit(RLIMIT_NOFILE, &most);
	}
	ssize_t n = receive(sock, message, 0);
	if (reserve)
		(void)setrlimit(RLIMIT_NOFILE, &usual);
	if (n >= 0)
		collect_fds(message, frame);
	for (int i = 0; i < frame->rest_count; i++)
		*beyond = *beyond || (reserve && (rlim_t)frame->fds[i] >= usual.rlim_cur);
	return n;
}

/* Takes a datagram that its header refuses. */
static int discard(int sock, struct frame *frame, const struct head *head, bool reserve, int status,
				   const char *why)
{
	uint8_t byte;
	bool beyond = false;
	struct iovec part = {&byte, sizeof(byte)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	(void)frame_recv_take(sock, frame, &message, reserve && head->has_fds, &beyond);
	return refuse(frame, status, why);
}

/* Reads the payload from the last descriptor. */
static int read_bulk(struct frame *frame, size_t size)
{
	struct stat stat;
	int fd = frame->fds[frame->fd_count];
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & BULK_SEALS) != BULK_SEALS || !frame_fd_is_safe(fd, 0)) {
		return refuse(frame, KILN_EPROTO,
					  "the descriptor of a bulk message is no memfd of ordinary pages that is "
					  "sealed against every change");
	}
	if (size == 0 || fstat(fd, &stat) != 0 || (uint64_t)stat.st_size != size) {
		return refuse(frame, KILN_EPROTO,
					  "the descriptor of a bulk message is not of the size in the header");
	}
	frame->data = malloc(size);
	if (!frame->data)
		return refuse(frame, KILN_ENOMEM, "no memory for a message");
	frame->size = size;
	if (!frame_read_fd(fd, frame->data, size))
		return refuse(frame, KILN_EPROTO, "a bulk message could not be read");
	return KILN_OK;
}

/* Takes the datagram that was looked at: payload to frame->data, descriptors to frame. */
static int take_message(int sock, struct frame *frame, const struct head *head, size_t size,
						bool reserve)
{
	uint8_t header[HEADER_BYTES];
	struct iovec parts[2] = {{header, sizeof(header)}, {frame->data, size}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = size > 0 ? 2 : 1};
	int expected = head->bytes[3], bulk = (head->bytes[2] & FLAG_BULK) != 0;
	bool beyond = false;

	ssize_t n = frame_recv_take(sock, frame, &message, reserve && head->has_fds, &beyond);
	if (n < 0)
		return refuse(frame, recv_status(errno), "");
	bool whole = (message.msg_flags & MSG_CTRUNC) == 0;
	if ((message.msg_flags & MSG_TRUNC) != 0 || (size_t)n != HEADER_BYTES + size)
		return refuse(frame, KILN_EPROTO, "a message is not of the size its header says");
	if (!bulk &&
		((!whole && frame->rest_count < expected) || (beyond && frame->rest_count == expected))) {
		/* This process may have no more descriptors. */
		frame->lost = true;
		snprintf(frame->why, sizeof(frame->why), "%s",
				 "the descriptors of a message were lost: this process has as many files open as "
				 "it may have (ulimit -n)");
		return KILN_EPROTO;
	}
	if (!whole) {
		return refuse(frame, KILN_EPROTO,
					  "descriptors of a message were lost: the limit of open files (ulimit -n) "
					  "leaves no room for them");
	}
	if (frame->rest_count != expected + bulk) {
		return refuse(frame, KILN_EPROTO,
					  "a message does not carry as many descriptors as its header says");
	}
	frame->fd_count = expected;
	frame->rest_count = bulk;
	return KILN_OK;
}

static int recv_one(int sock, struct frame *frame, size_t limit, bool reserve)
{
	struct head head;

	frame->data = NULL;
	frame->size = 0;
	frame->fd_count = frame->rest_count = 0;
	frame->lost = false;
	frame->why[0] = 0;
	int status = peek(sock, &head);
	if (status != KILN_OK)
		return status;
	const uint8_t *h = head.bytes;
	if (head.length < HEADER_BYTES || h[0] != 'K' || h[1] != 'F' || (h[2] & ~FLAG_BULK) != 0 ||
		h[3] > FRAME_MAX_FDS) {
		return discard(sock, frame, &head, reserve, KILN_EPROTO,
					   "a message does not begin with a frame header");
	}
	bool with_bulk = (h[2] & FLAG_BULK) != 0;
	size_t size = (size_t)h[4] | (size_t)h[5] << 8 | (size_t)h[6] << 16 | (size_t)h[7] << 24;
	size_t inside = with_bulk ? 0 : size;
	if (head.length != HEADER_BYTES + inside || inside > FRAME_INLINE_MAX) {
		return discard(sock, frame, &head, reserve, KILN_EPROTO,
					   "a message is not of the size its header says");
	}
	if (size > limit) {
		discard(sock, frame, &head, reserve, KILN_ELIMIT, "");
		snprintf(frame->why, sizeof(frame->why), "a message of %zu bytes is over the limit of %zu",
				 size, limit);
		return KILN_ELIMIT;
	}
	if (!with_bulk) {
		frame->data = malloc(size > 0 ? size : 1);
		if (!frame->data)
			return discard(sock, frame, &head, reserve, KILN_ENOMEM, "no memory for a message");
		frame->size = size;
	}
	status = take_message(sock, frame, &head, inside, reserve);
	return status == KILN_OK && with_bulk ? read_bulk(frame, size) : status;
}

int frame_recv(int sock, struct frame *frame, size_t limit)
{
	return recv_one(sock, frame, limit, false);
}

int frame_recv_foreign(int sock, struct frame *frame, size_t limit)
{
	return recv_one(sock, frame, limit, true);
}

void frame_reserve(void)
{
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) != 0)
		return;
	bool many = files.rlim_max / 4 > FRAME_RESERVE;
	files.rlim_cur = files.rlim_max - (many ? FRAME_RESERVE : files.rlim_max / 4);
	(void)setrlimit(RLIMIT_NOFILE, &files);
}

int frame_take_fd(struct frame *frame, int i)
{
	if (i < 0 || i >= frame->fd_count)
		return -1;
	int fd = frame->fds[i];
	frame->fds[i] = -1;
	return fd;
}

void frame_close_by(const struct frame_closer *closer, int fd)
{
	if (closer)
		closer->close(closer->arg, fd);
	else
		close(fd);
}

void frame_free_by(struct frame *frame, const struct frame_closer *closer)
{
	for (int i = 0; i < frame->fd_count + frame->rest_count; i++)
		if (frame->fds[i] >= 0)
			frame_close_by(closer, frame->fds[i]);
	free(frame->data);
	frame->data = NULL;
	frame->size = 0;
	frame->fd_count = frame->rest_count = 0;
}

void frame_free(struct frame *frame)
{
	frame_free_by(frame, NULL);
}
