/*
 * test_frame.c: messages and descriptors arrive whole or not at all, what is refused leaks nothing,
 * and what the socket does not take keeps its order.
 */
#include "client/wire/frame.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <kiln/kiln.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT ((size_t)8 << 20)

static int open_fds(void)
{
	int count = 0;
	DIR *directory = opendir("/proc/self/fd");
	assert_non_null(directory);
	while (readdir(directory) != NULL)
		count++;
	closedir(directory);
	return count;
}

/* Every test gets a pair, and must leave as many descriptors open as it found. */
struct world {
	int pair[2];
	int before;
};

static int setup(void **state)
{
	static struct world world;
	world.before = open_fds();
	*state = &world;
	return frame_pair(world.pair);
}

static int teardown(void **state)
{
	struct world *world = *state;
	close(world->pair[0]);
	close(world->pair[1]);
	return open_fds() == world->before ? 0 : -1;
}

static void send_fds(int sock, const void *data, size_t size, const int *fds, int count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * 16)];
	} control;
	struct iovec part = {(void *)(uintptr_t)data, size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	memset(&control, 0, sizeof(control));
	if (count > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
		struct cmsghdr *head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
		memcpy(CMSG_DATA(head), fds, sizeof(int) * (size_t)count);
	}
	assert_true(sendmsg(sock, &message, 0) == (ssize_t)size);
}

static void test_sizes(void **state)
{
	struct world *world = *state;
	static const size_t sizes[] = {0, 1, FRAME_INLINE_MAX, FRAME_INLINE_MAX + 1, (size_t)3 << 20};
	char *data = malloc((size_t)3 << 20);
	assert_non_null(data);
	for (size_t i = 0; i < (size_t)3 << 20; i++)
		data[i] = (char)(i * 31 + i / 251);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct frame frame;
		assert_int_equal(frame_send(world->pair[0], data, sizes[i], NULL, 0), KILN_OK);
		assert_int_equal(frame_recv(world->pair[1], &frame, LIMIT), KILN_OK);
		assert_int_equal(frame.size, sizes[i]);
		assert_int_equal(memcmp(frame.data, data, sizes[i]), 0);
		assert_int_equal(frame.fd_count, 0);
		frame_free(&frame);
		frame_free(&frame);
	}
	free(data);
}

static void test_descriptors(void **state)
{
	struct world *world = *state;
	for (size_t size = 8; size <= FRAME_INLINE_MAX + 8; size += FRAME_INLINE_MAX) {
		char *data = calloc(1, size);
		int fds[FRAME_MAX_FDS];
		struct frame frame;
		struct stat sent, got;
		for (int i = 0; i < FRAME_MAX_FDS; i++)
			fds[i] = frame_memfd("test", (uint64_t)i + 1);
		assert_int_equal(frame_send(world->pair[0], data, size, fds, FRAME_MAX_FDS), KILN_OK);
		assert_int_equal(frame_recv(world->pair[1], &frame, LIMIT), KILN_OK);
		assert_int_equal(frame.fd_count, FRAME_MAX_FDS);
		for (int i = 0; i < FRAME_MAX_FDS; i++) {
			assert_int_equal(fstat(fds[i], &sent), 0);
			assert_int_equal(fstat(frame.fds[i], &got), 0);
			assert_true(sent.st_ino == got.st_ino);
			assert_int_equal(fcntl(frame.fds[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
			close(fds[i]);
		}
		int taken = frame_take_fd(&frame, 1);
		assert_true(taken >= 0);
		assert_int_equal(frame_take_fd(&frame, 1), -1);
		assert_int_equal(frame_take_fd(&frame, FRAME_MAX_FDS), -1);
		assert_int_equal(frame_take_fd(&frame, -1), -1);
		frame_free(&frame);
		assert_int_equal(fcntl(taken, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
		close(taken);
		free(data);
	}
	int one = 0;
	assert_int_equal(frame_send(world->pair[0], "x", 1, &one, FRAME_MAX_FDS + 1), KILN_EINVAL);
}

/* Headers that lie.  The frame after each still arrives: a refusal takes exactly one datagram. */
static void test_refusals(void **state)
{
	struct world *world = *state;
	static const struct {
		char header[9];
		size_t extra;
		int fds;
		const char *why;
	} all[] = {
		{"KF\0\0\4\0\0\0", 3, 0, "size"},         {"KF\0\0\4\0\0\0", 5, 0, "size"},
		{"XF\0\0\4\0\0\0", 4, 0, "frame header"}, {"KF\2\0\4\0\0\0", 4, 0, "frame header"},
		{"KF\0\5\4\0\0\0", 4, 5, "frame header"}, {"KF\0\0\4\0\0\0", 4, 1, "as many"},
		{"KF\0\2\4\0\0\0", 4, 1, "as many"},      {"KF\0\4\4\0\0\0", 4, 9, "as many"},
		{"KF\1\0\4\0\0\0", 4, 1, "size"},         {"KF\1\0\4\0\0\0", 0, 0, "as many"},
		{"KF\1\0\4\0\0\0", 0, 1, "sealed"},       {"KF\1\1\4\0\0\0", 0, 2, "sealed"},
	};
	int fds[9];
	for (int i = 0; i < 9; i++) {
		fds[i] = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		assert_int_equal(ftruncate(fds[i], 4), 0);
	}
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		char datagram[16] = {0};
		struct frame frame;
		memcpy(datagram, all[i].header, 8);
		send_fds(world->pair[0], datagram, 8 + all[i].extra, fds, all[i].fds);
		assert_int_equal(frame_send(world->pair[0], "next", 4, NULL, 0), KILN_OK);
		assert_int_equal(frame_recv(world->pair[1], &frame, LIMIT), KILN_EPROTO);
		if (strstr(frame.why, all[i].why) == NULL)
			fail_msg("sample %zu: \"%s\" does not say \"%s\"", i, frame.why, all[i].why);
		assert_null(frame.data);
		assert_int_equal(frame.fd_count, 0);
		assert_int_equal(frame.rest_count, all[i].fds);
		frame_free(&frame);
		assert_int_equal(frame_recv(world->pair[1], &frame, LIMIT), KILN_OK);
		assert_memory_equal(frame.data, "next", 4);
		frame_free(&frame);
	}
	for (int i = 0; i < 9; i++)
		close(fds[i]);
}

/* A bulk payload must be sealed against writing too, and be of the size that the header says. */
static void test_bulk_seals(void **state)
{
	struct world *world = *state;
	static const int seals[] = {F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_WRITE | F_SEAL_GROW,
								F_SEAL_WRITE | F_SEAL_SHRINK,
								F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW};
	for (size_t i = 0; i < 5; i++) {
		struct frame frame;
		int fd = memfd_create("bulk", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		assert_int_equal(write(fd, "data", 4), 4);
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals[i < 4 ? i : 3]), 0);
		send_fds(world->pair[0], i < 4 ? "KF\1\0\4\0\0\0" : "KF\1\0\5\0\0\0", 8, &fd, 1);
		int status = frame_recv(world->pair[1], &frame, LIMIT);
		assert_int_equal(status, i == 3 ? KILN_OK : KILN_EPROTO);
		if (i == 3)
			assert_memory_equal(frame.data, "data", 4);
		frame_free(&frame);
		close(fd);
	}
}

static void test_limit_and_end(void **state)
{
	struct world *world = *state;
	struct frame frame;
	char *data = calloc(1, FRAME_INLINE_MAX + 1);

	assert_int_equal(frame_recv(world->pair[1], &frame, LIMIT), KILN_EAGAIN);
	assert_int_equal(frame_recv_wait(world->pair[1], &frame, LIMIT, 0), KILN_ETIMEDOUT);
	assert_int_equal(frame_recv_wait(world->pair[1], &frame, LIMIT, 5), KILN_ETIMEDOUT);
	assert_int_equal(frame_send(world->pair[0], data, 101, NULL, 0), KILN_OK);
	assert_int_equal(frame_send(world->pair[0], data, FRAME_INLINE_MAX + 1, NULL, 0), KILN_OK);
	assert_int_equal(frame_send(world->pair[0], data, 100, NULL, 0), KILN_OK);
	assert_int_equal(frame_recv(world->pair[1], &frame, 100), KILN_ELIMIT);
	assert_non_null(strstr(frame.why, "101 bytes"));
	assert_int_equal(frame_recv(world->pair[1], &frame, 100), KILN_ELIMIT);
	assert_int_equal(frame.rest_count, 1); /* the bulk descriptor */
	frame_free(&frame);
	assert_int_equal(frame_recv(world->pair[1], &frame, 100), KILN_OK);
	assert_int_equal(frame.size, 100);
	frame_free(&frame);

	/* The peer leaves with something unread: what it said before is still heard. */
	assert_int_equal(frame_send(world->pair[0], "unread", 6, NULL, 0), KILN_OK);
	assert_int_equal(frame_send(world->pair[1], "last", 4, NULL, 0), KILN_OK);
	close(world->pair[1]);
	assert_int_equal(frame_recv(world->pair[0], &frame, LIMIT), KILN_OK);
	assert_memory_equal(frame.data, "last", 4);
	frame_free(&frame);
	assert_int_equal(frame_recv(world->pair[0], &frame, LIMIT), KILN_ECONN);
	assert_int_equal(frame_recv_wait(world->pair[0], &frame, LIMIT, 1000), KILN_ECONN);
	assert_int_equal(frame_send(world->pair[0], "x", 1, NULL, 0), KILN_ECONN);
	assert_int_equal(frame_send_wait(world->pair[0], "x", 1, NULL, 0, 1000), KILN_ECONN);
	world->pair[1] = dup(world->pair[0]);
	free(data);
}

static void test_queue(void **state)
{
	struct world *world = *state;
	struct frame_queue queue = {0};
	struct frame frame;
	int sent = 0, fd = frame_memfd("passed", 1);
	char *data = malloc(FRAME_INLINE_MAX + 1);
	struct stat original, got;

	assert_non_null(data);
	assert_int_equal(fstat(fd, &original), 0);
	while (queue.count < 3) {
		memset(data, sent, FRAME_INLINE_MAX);
		assert_int_equal(frame_queue_send(&queue, world->pair[0], data, FRAME_INLINE_MAX, NULL, 0,
										  (size_t)16 << 20),
						 KILN_OK);
		sent++;
	}
	assert_int_equal(queue.bytes, 3 * FRAME_INLINE_MAX);
	assert_int_equal(frame_send(world->pair[0], data, FRAME_INLINE_MAX, NULL, 0), KILN_EAGAIN);
	assert_int_equal(frame_send_wait(world->pair[0], data, FRAME_INLINE_MAX, NULL, 0, 5),
					 KILN_ETIMEDOUT);
	/* One beyond the limit is refused and changes nothing. */
	assert_int_equal(
		frame_queue_send(&queue, world->pair[0], data, 8, NULL, 0, 3 * FRAME_INLINE_MAX + 7),
		KILN_ELIMIT);
	assert_int_equal(queue.count, 3);
	/* One with a bulk payload and a descriptor that the sender closes at once. */
	memset(data, sent, FRAME_INLINE_MAX + 1);
	assert_int_equal(frame_queue_send(&queue, world->pair[0], data, FRAME_INLINE_MAX + 1, &fd, 1,
									  (size_t)16 << 20),
					 KILN_OK);
	sent++;
	close(fd);
	assert_int_equal(frame_queue_flush(&queue, world->pair[0]), KILN_EAGAIN);

	for (int i = 0; i < sent; i++) {
		(void)frame_queue_flush(&queue, world->pair[0]);
		assert_int_equal(frame_recv(world->pair[1], &frame, LIMIT), KILN_OK);
		assert_int_equal(frame.data[0], (uint8_t)i);
		assert_int_equal(frame.data[frame.size - 1], (uint8_t)i);
		if (i == sent - 1) {
			assert_int_equal(frame.size, FRAME_INLINE_MAX + 1);
			assert_int_equal(frame.fd_count, 1);
			assert_int_equal(fstat(frame.fds[0], &got), 0);
			assert_true(got.st_ino == original.st_ino);
		}
		frame_free(&frame);
	}
	assert_int_equal(frame_queue_flush(&queue, world->pair[0]), KILN_OK);
	assert_int_equal(queue.bytes, 0);
	assert_null(queue.head);

	free(data);
}

/* Frames left when a connection ends are freed, descriptors too: teardown counts them. */
static void test_queue_end(void **state)
{
	struct world *world = *state;
	struct frame_queue queue = {0};
	struct frame frame;
	char *data = calloc(1, FRAME_INLINE_MAX + 1);

	assert_non_null(data);
	while (queue.count < 2) {
		assert_int_equal(frame_queue_send(&queue, world->pair[0], data, FRAME_INLINE_MAX + 1,
										  &world->pair[0], 1, (size_t)64 << 20),
						 KILN_OK);
	}
	frame_queue_free(&queue);
	assert_int_equal(queue.count, 0);
	free(data);
	while (frame_recv(world->pair[1], &frame, LIMIT) == KILN_OK)
		frame_free(&frame);
}

/* Descriptors that it would open beyond those that it may have: nothing is queued, none is left. */
static void test_queue_descriptors(void **state)
{
	struct world *world = *state;
	struct frame_queue queue = {0};
	char *data = calloc(1, FRAME_INLINE_MAX + 1);
	int next = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_non_null(data);
	close(next);
	while (queue.count < 1) {
		assert_int_equal(frame_queue_send(&queue, world->pair[0], data, FRAME_INLINE_MAX, NULL, 0,
										  (size_t)64 << 20),
						 KILN_OK);
	}
	queue.fd_below = next + 1;
	assert_int_equal(
		frame_queue_send(&queue, world->pair[0], data, 8, world->pair, 2, (size_t)64 << 20),
		KILN_EIO);
	assert_int_equal(
		frame_queue_send(&queue, world->pair[0], data, 8, world->pair, 1, (size_t)64 << 20),
		KILN_OK);
	assert_int_equal(frame_queue_send(&queue, world->pair[0], data, FRAME_INLINE_MAX + 1, NULL, 0,
									  (size_t)64 << 20),
					 KILN_EIO);
	assert_int_equal(queue.count, 2);
	frame_queue_free(&queue);
	free(data);
}

static void test_memfd(void **state)
{
	(void)state;
	int fd = frame_memfd("test", 5000);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_true(frame_fd_is_safe(fd, 5000));
	assert_false(frame_fd_is_safe(fd, 5001));
	assert_int_equal(ftruncate(fd, 10), -1);
	assert_int_equal(ftruncate(fd, 10000), -1);
	assert_int_equal(write(fd, "ok", 2), 2);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	close(fd);
	fd = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, 10), 0);
	assert_false(frame_fd_is_safe(fd, 10));
	close(fd);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_false(frame_fd_is_safe(fd, 0));
	close(fd);
	assert_false(frame_fd_is_safe(-1, 0));
	assert_int_equal(frame_memfd("huge", UINT64_MAX), -1);
}

/* A page of such one can be taken away below whoever maps it, seals or not.  None is used. */
static void test_huge(void **state)
{
	struct world *world = *state;
	struct frame frame;
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd < 0) {
		fprintf(stderr, "SKIPPED: memfd_create(MFD_HUGETLB): %s\n", strerror(errno));
		skip();
	}
	assert_int_equal(ftruncate(fd, 1 << 30), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_false(frame_fd_is_safe(fd, 4));
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_WRITE), 0);
	send_fds(world->pair[0], "KF\1\0\0\0\0\x40", 8, &fd, 1);
	assert_int_equal(frame_recv(world->pair[1], &frame, (size_t)2 << 30), KILN_EPROTO);
	assert_non_null(strstr(frame.why, "ordinary pages"));
	frame_free(&frame);
	close(fd);
}

/* A file system may hold back the answer to any question; only memory of the kernel is asked. */
static void test_other_files(void **state)
{
	int pipes[2], sock[2];
	(void)state;
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock), 0);
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), path = open("/", O_PATH | O_CLOEXEC);
	const int fds[] = {pipes[0], sock[0], file, path};
	for (size_t i = 0; i < 4; i++) {
		assert_true(fds[i] >= 0);
		assert_false(frame_fd_is_safe(fds[i], 0));
		close(fds[i]);
	}
	close(pipes[1]);
	close(sock[1]);
}

/* All descriptors of a datagram come, also those that its header does not tell of and those that
 * go past the usual limit: the kernel closes none of them here. */
static void test_reserve(void **state)
{
	struct world *world = *state;
	struct rlimit usual, few;
	struct frame frame;
	int fd = frame_memfd("test", 8), next = dup(fd), all[16];

	close(next);
	for (int i = 0; i < 16; i++)
		all[i] = fd;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
	few = usual;
	few.rlim_cur = (rlim_t)next + 1;
	assert_int_equal(frame_send(world->pair[0], "said", 4, all, 2), KILN_OK);
	send_fds(world->pair[0], "KF\0\0\4\0\0\0said", 12, all, 16);
	send_fds(world->pair[0], "XX\0\0\4\0\0\0said", 12, all, 16);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	int status = frame_recv_foreign(world->pair[1], &frame, LIMIT);
	bool lost = frame.lost;
	int count = frame.fd_count, rest = frame.rest_count;
	frame_free(&frame);
	int refused = frame_recv_foreign(world->pair[1], &frame, LIMIT),
		refused_rest = frame.rest_count;
	frame_free(&frame);
	int strange = frame_recv_foreign(world->pair[1], &frame, LIMIT),
		strange_rest = frame.rest_count;
	frame_free(&frame);
	struct rlimit after;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
	assert_true(after.rlim_cur == few.rlim_cur);
	assert_int_equal(status, KILN_EPROTO);
	assert_true(lost);
	assert_int_equal(count, 0);
	assert_int_equal(rest, 2);
	assert_int_equal(refused, KILN_EPROTO);
	assert_int_equal(refused_rest, 16);
	assert_int_equal(strange, KILN_EPROTO);
	assert_int_equal(strange_rest, 16);
	close(fd);
}

/* A process that may open no more files still gets what was said to it. */
static void test_no_room(void **state)
{
	struct world *world = *state;
	struct rlimit usual, none;
	struct frame frame;
	int fd = frame_memfd("test", 8), next = dup(fd);

	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
	none = usual;
	none.rlim_cur = (rlim_t)next;
	assert_int_equal(frame_send(world->pair[0], "said", 4, &fd, 1), KILN_OK);
	assert_int_equal(frame_send(world->pair[0], "said", 4, &fd, 1), KILN_OK);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	int status = frame_recv(world->pair[1], &frame, LIMIT);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
	assert_int_equal(status, KILN_EPROTO);
	assert_true(frame.lost);
	assert_int_equal(frame.fd_count, 0);
	assert_int_equal(frame.size, 4);
	assert_memory_equal(frame.data, "said", 4);
	assert_non_null(strstr(frame.why, "ulimit -n"));
	frame_free(&frame);
	assert_int_equal(frame_recv(world->pair[1], &frame, LIMIT), KILN_OK);
	assert_false(frame.lost);
	assert_int_equal(frame.fd_count, 1);
	frame_free(&frame);
	close(fd);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_sizes),         TEST(test_descriptors),
		TEST(test_refusals),      TEST(test_bulk_seals),
		TEST(test_limit_and_end), TEST(test_queue),
		TEST(test_queue_end),     TEST(test_queue_descriptors),
		TEST(test_memfd),         TEST(test_no_room),
		TEST(test_huge),          TEST(test_other_files),
		TEST(test_reserve),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
