/*
 * exec_peer: how tests speak to an executor: as the broker does, in its messages.
 */
#ifndef KILN_TESTS_EXEC_PEER_H
#define KILN_TESTS_EXEC_PEER_H

#include "client/wire/frame.h"
#include "client/wire/lane_memory.h"
#include "client/wire/wire.h"

#include <kiln/kiln.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <cmocka.h>

#define WAIT_MS 45000 /* passes only where something is wrong; less than LONG_MS */
#define LIMIT (1u << 20)

struct peer {
	pid_t pid;
	int sock;
	uint64_t next_id;
	uint64_t scratch; /* bytes, as it was last told */
};

/* An answer, valid until the next one. */
static struct frame frame;
static struct wire_in answer;

/* ---- Speaking ---- */

static inline void forget_answer(void)
{
	wire_in_free(&answer);
	frame_free(&frame);
	memset(&answer, 0, sizeof(answer));
	memset(&frame, 0, sizeof(frame));
}

static inline bool heard_scratch(struct peer *peer)
{
	const char *what = wire_get_str(&answer, &answer.root, "what");
	if (!what || strcmp(what, "scratch") != 0)
		return false;
	peer->scratch = wire_get_uint(&answer.root, "bytes", 0);
	return true;
}

/* The next message but for those of scratch memory, which come at any time. */
static inline const msgpack_object *receive(struct peer *peer)
{
	do {
		forget_answer();
		assert_int_equal(frame_recv_wait(peer->sock, &frame, LIMIT, WAIT_MS), KILN_OK);
		assert_int_equal(wire_parse(&answer, frame.data, frame.size), KILN_OK);
	} while (heard_scratch(peer));
	return &answer.root;
}

static inline void begin(struct peer *peer, struct wire_out *message, const char *type)
{
	wire_begin(message, type, peer->next_id++);
}

/* Returns the request's id. */
static inline uint64_t post(struct peer *peer, struct wire_out *message, const int *fds, int count)
{
	assert_int_equal(wire_end(message), KILN_OK);
	assert_int_equal(frame_send_wait(peer->sock, message->buffer.data, message->buffer.size, fds,
									 count, WAIT_MS),
					 KILN_OK);
	wire_out_free(message);
	return peer->next_id - 1;
}

/* The status of the next answer, which must be to this request. */
static inline int status_of(struct peer *peer, uint64_t id)
{
	const msgpack_object *root = receive(peer);
	assert_string_equal(wire_type(&answer), "reply");
	assert_int_equal(wire_id(&answer), id);
	return (int)wire_get_int(root, "st", 1);
}

static inline const char *sentence(void)
{
	const char *text = wire_get_str(&answer, &answer.root, "err");
	return text ? text : "";
}

static inline int ask(struct peer *peer, struct wire_out *message)
{
	return status_of(peer, post(peer, message, NULL, 0));
}

static inline int ask_number(struct peer *peer, const char *type, const char *key, uint64_t value)
{
	struct wire_out message;
	begin(peer, &message, type);
	wire_put_uint(&message, key, value);
	return ask(peer, &message);
}

static inline int ask_alloc(struct peer *peer, uint64_t buffer, uint64_t bytes)
{
	struct wire_out message;
	begin(peer, &message, "alloc");
	wire_put_uint(&message, "buf", buffer);
	wire_put_uint(&message, "bytes", bytes);
	return ask(peer, &message);
}

#define SPIN_US 50

/* Maps the memory of a lane without entries, as the broker makes it; the caller unmaps it. */
static inline struct lane_memory *make_lane_memory(int *fd)
{
	struct lane_memory *memory;
	*fd = frame_memfd("lane", sizeof(*memory));
	memory = mmap(NULL, sizeof(*memory), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	assert_true(memory != MAP_FAILED);
	memory->header.magic = LANE_MAGIC;
	memory->header.version = LANE_VERSION;
	memory->header.entries = LANE_ENTRIES;
	memory->header.spin_us = SPIN_US;
	return memory;
}

#endif
