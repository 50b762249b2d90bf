/*
 * fake_daemon.h: a kilnd of one thread and one connection, on a socket of its own, that answers as
 * the protocol says, or as a test wants.  Knows nothing of the real one.
 *
 * A test sets fake->special to see each request first: it returns true when it has dealt with it.
 */
#ifndef KILN_TESTS_FAKE_DAEMON_H
#define KILN_TESTS_FAKE_DAEMON_H

#include "client/wire/frame.h"
#include "client/wire/protocol.h"
#include "client/wire/wire.h"

#include <kiln/kiln.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FAKE_LIMIT ((size_t)64 << 20)
#define FAKE_WAIT_MS 60000 /* nothing in a test takes longer, unless it hangs */

struct fake {
	pthread_t thread;
	int listener, sock;
	char directory[64], path[96];
	bool (*special)(struct fake *fake, struct wire_in *in, struct frame *frame);
	int proto;       /* in the reply to hello */
	uint8_t *memory; /* the one buffer there is */
	size_t bytes;
	uint64_t last_number; /* of a buffer or call */
	/* The requests that were seen; a test reads them after fake_stop(), or after a later reply. */
	atomic_int count_free, count_release, count_moves, count_cancel;
	_Atomic uint64_t last_freed, held;
	char seen[8][512]; /* the last requests, printed */
	int seen_count;
	sem_t reached, go; /* for tests that hold a reply back */
};

/* ---- Answers ---- */

static inline void fake_send(struct fake *fake, struct wire_out *out, int fd)
{
	if (wire_end(out) == KILN_OK) {
		(void)frame_send_wait(fake->sock, out->buffer.data, out->buffer.size, &fd, fd >= 0,
							  FAKE_WAIT_MS);
	}
	wire_out_free(out);
}

static inline void fake_begin(struct wire_out *out, uint64_t id, int status)
{
	wire_begin(out, "reply", id);
	wire_put_int(out, "st", status);
}

/* A reply with nothing but a status, and the sentence and log if they are given. */
static inline void fake_reply(struct fake *fake, uint64_t id, int status, const char *error,
							  const char *log)
{
	struct wire_out out;
	fake_begin(&out, id, status);
	wire_put_str(&out, "err", error);
	wire_put_str(&out, "log", log);
	fake_send(fake, &out, -1);
}

/* A reply with one number. */
static inline void fake_reply_number(struct fake *fake, uint64_t id, const char *key,
									 uint64_t number)
{
	struct wire_out out;
	fake_begin(&out, id, KILN_OK);
	wire_put_uint(&out, key, number);
	fake_send(fake, &out, -1);
}

static inline void fake_hello(struct fake *fake, uint64_t id)
{
	struct wire_out out;
	fake_begin(&out, id, KILN_OK);
	wire_put_int(&out, "proto", fake->proto);
	wire_put_str(&out, "version", "9.9.9");
	wire_put_int(&out, "session", 5);
	wire_put_str(&out, "device", "cpu");
	wire_put_uint(&out, "max_message", 1 << 20);
	fake_send(fake, &out, -1);
}

static inline void fake_move(struct fake *fake, struct wire_in *in, struct frame *frame, bool write)
{
	uint64_t offset = wire_get_uint(&in->root, "offset", 0);
	uint64_t bytes = wire_get_uint(&in->root, "bytes", 0);
	int fd = frame_take_fd(frame, 0);
	void *map = MAP_FAILED;
	if (frame_fd_is_safe(fd, bytes) && offset <= fake->bytes && bytes <= fake->bytes - offset)
		map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map != MAP_FAILED && write)
		memcpy(fake->memory + offset, map, bytes);
	else if (map != MAP_FAILED)
		memcpy(map, fake->memory + offset, bytes);
	if (map != MAP_FAILED)
		munmap(map, bytes);
	if (fd >= 0)
		close(fd);
	fake->count_moves++;
	fake_reply(fake, wire_id(in), map != MAP_FAILED ? KILN_OK : KILN_EINVAL, "bad move", NULL);
}

static inline void fake_alloc(struct fake *fake, struct wire_in *in)
{
	free(fake->memory);
	fake->bytes = wire_get_uint(&in->root, "bytes", 0);
	fake->memory = calloc(1, fake->bytes + 1);
	fake_reply_number(fake, wire_id(in), "buf", ++fake->last_number);
}

static inline void fake_prepare(struct fake *fake, uint64_t id)
{
	struct wire_out out;
	fake_begin(&out, id, KILN_OK);
	wire_put_uint(&out, "call", ++fake->last_number);
	wire_put_str(&out, "origin", "compiled");
	wire_put_str(&out, "text", "variant tile");
	fake_send(fake, &out, -1);
}

static inline void fake_answer(struct fake *fake, struct wire_in *in, struct frame *frame)
{
	const char *type = wire_type(in);
	uint64_t id = wire_id(in);
	if (strcmp(type, "hello") == 0) {
		fake_hello(fake, id);
	} else if (strcmp(type, "alloc") == 0) {
		fake_alloc(fake, in);
	} else if (strcmp(type, "lend") == 0) {
		fake_reply_number(fake, id, "buf", ++fake->last_number);
	} else if (strcmp(type, "write") == 0 || strcmp(type, "read") == 0) {
		fake_move(fake, in, frame, type[0] == 'w');
	} else if (strcmp(type, "prepare") == 0) {
		fake_prepare(fake, id);
	} else {
		if (strcmp(type, "free") == 0) {
			fake->last_freed = wire_get_uint(&in->root, "buf", 0);
			fake->count_free++;
		}
		fake->count_release += strcmp(type, "release") == 0;
		fake->count_cancel += strcmp(type, "cancel") == 0;
		fake_reply(fake, id, KILN_OK, NULL, NULL);
	}
}

/* ---- The thread ---- */

static inline void *fake_main(void *argument)
{
	struct fake *fake = argument;
	struct pollfd watch = {.fd = fake->listener, .events = POLLIN};
	struct frame frame;
	struct wire_in in;

	if (poll(&watch, 1, FAKE_WAIT_MS) <= 0)
		return NULL;
	fake->sock = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	while (fake->sock >= 0 &&
		   frame_recv_wait(fake->sock, &frame, FAKE_LIMIT, FAKE_WAIT_MS) == KILN_OK) {
		if (wire_parse(&in, frame.data, frame.size) == KILN_OK) {
			int slot = fake->seen_count++ % 8;
			wire_print(&in.root, fake->seen[slot], sizeof(fake->seen[slot]));
			if (!fake->special || !fake->special(fake, &in, &frame))
				fake_answer(fake, &in, &frame);
		}
		wire_in_free(&in);
		frame_free(&frame);
	}
	if (fake->sock >= 0)
		close(fake->sock);
	return NULL;
}

/* Ends the connection from the daemon's side; the thread leaves its loop. */
static inline void fake_hang_up(struct fake *fake)
{
	close(fake->sock);
	fake->sock = -1;
}

static inline struct fake *fake_start(bool (*special)(struct fake *fake, struct wire_in *in,
													  struct frame *frame))
{
	struct fake *fake = calloc(1, sizeof(*fake));
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	fake->proto = PROTOCOL_VERSION;
	fake->special = special;
	fake->sock = -1;
	sem_init(&fake->reached, 0, 0);
	sem_init(&fake->go, 0, 0);
	snprintf(fake->directory, sizeof(fake->directory), "/tmp/kiln-test-XXXXXX");
	if (mkdtemp(fake->directory) == NULL)
		abort();
	snprintf(fake->path, sizeof(fake->path), "%s/s", fake->directory);
	memcpy(address.sun_path, fake->path, strlen(fake->path) + 1);
	fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(fake->listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
		listen(fake->listener, 4) != 0 || pthread_create(&fake->thread, NULL, fake_main, fake) != 0)
		abort();
	return fake;
}

/* Waits for the thread: the client must be closed, or the thread have hung up. */
static inline void fake_stop(struct fake *fake)
{
	pthread_join(fake->thread, NULL);
	close(fake->listener);
	unlink(fake->path);
	rmdir(fake->directory);
	sem_destroy(&fake->reached);
	sem_destroy(&fake->go);
	free(fake->memory);
	free(fake);
}

static inline int fake_connect(struct fake *fake, int timeout_ms, kiln_client **client)
{
	kiln_connect_options options = {
		.size = sizeof(options), .socket = fake->path, .timeout_ms = timeout_ms};
	return kiln_connect(&options, client);
}

/* A semaphore with an end: a test that fails does not hang. */
static inline bool fake_wait(sem_t *sem)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += FAKE_WAIT_MS / 1000;
	return sem_timedwait(sem, &until) == 0;
}

#endif
