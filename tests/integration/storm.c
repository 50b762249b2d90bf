/* storm.c: the raw clients of a storm. */
#include "storm.h"

#include <client/wire/frame.h>
#include <client/wire/protocol.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define REQUESTS_MOST 48

/* ---- Chance ---- */

uint64_t storm_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

int storm_pick(uint64_t *state, int count)
{
	return (int)(storm_next(state) % (uint64_t)count);
}

uint64_t storm_start(const struct storm_seat *seat)
{
	uint64_t state = seat->storm->seed + (uint64_t)seat->number * 7919;
	return storm_next(&state);
}

void storm_wrong(struct storm *storm, const char *format, ...)
{
	va_list arguments;
	if (atomic_fetch_add(&storm->wrong, 1))
		return;
	va_start(arguments, format);
	vsnprintf(storm->why, sizeof(storm->why), format, arguments);
	va_end(arguments);
}

/* ---- The raw protocol ---- */

int raw_open(const struct kilnd *daemon)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", daemon->socket);
	if (sock >= 0 && connect(sock, (struct sockaddr *)&address, sizeof(address)) == 0)
		return sock;
	if (sock >= 0)
		close(sock);
	return -1;
}

int raw_put(int sock, struct wire_out *out, const int *fds, int fd_count)
{
	int status = wire_end(out);
	if (status == KILN_OK)
		status =
			frame_send_wait(sock, out->buffer.data, out->buffer.size, fds, fd_count, STORM_CALL_MS);
	wire_out_free(out);
	return status;
}

int raw_bytes(int sock, const void *bytes, size_t size, const int *fds, int count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * FRAME_RIGHTS_MOST)];
	} control;
	struct iovec part = {(void *)(uintptr_t)bytes, size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	memset(&control, 0, sizeof(control));
	if (count) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
		struct cmsghdr *head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
		memcpy(CMSG_DATA(head), fds, sizeof(int) * (size_t)count);
	}
	return sendmsg(sock, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size ? 0 : errno;
}

void raw_hello(struct wire_out *out, uint64_t id)
{
	wire_begin(out, "hello", id);
	wire_put_int(out, "proto", PROTOCOL_VERSION);
	wire_put_str(out, "version", KILN_VERSION_STRING);
	wire_put_str(out, "device", "cpu");
}

int raw_take(int sock, int timeout_ms, uint64_t *id, uint64_t *buf, uint64_t *call)
{
	struct frame frame = {0};
	struct wire_in in;
	int status = frame_recv_wait(sock, &frame, 64u << 20, timeout_ms);

	*id = 0;
	if (status)
		return status;
	status = wire_parse(&in, frame.data, frame.size);
	if (status == KILN_OK) {
		*id = wire_id(&in);
		status = (int)wire_get_int(&in.root, "st", KILN_EPROTO);
		if (buf)
			*buf = wire_get_uint(&in.root, "buf", 0);
		if (call)
			*call = wire_get_uint(&in.root, "call", 0);
	}
	wire_in_free(&in);
	frame_free(&frame);
	return status;
}

int raw_said(int sock, int timeout_ms, char *sentence, size_t size)
{
	struct frame frame = {0};
	struct wire_in in;
	int status = frame_recv_wait(sock, &frame, 64u << 20, timeout_ms);

	sentence[0] = 0;
	if (status)
		return status;
	status = wire_parse(&in, frame.data, frame.size);
	if (status == KILN_OK) {
		const char *said = wire_get_str(&in, &in.root, "err");
		status = (int)wire_get_int(&in.root, "st", KILN_EPROTO);
		snprintf(sentence, size, "%s", said ? said : "");
	}
	wire_in_free(&in);
	frame_free(&frame);
	return status;
}

int raw_greeted(const struct kilnd *daemon)
{
	struct wire_out out;
	uint64_t id;
	int sock = raw_open(daemon);

	if (sock < 0)
		return -1;
	raw_hello(&out, 1);
	if (raw_put(sock, &out, NULL, 0) == KILN_OK &&
		raw_take(sock, STORM_CALL_MS, &id, NULL, NULL) == KILN_OK)
		return sock;
	close(sock);
	return -1;
}

void raw_problem(struct wire_out *out, const char *type, uint64_t id, int64_t rows, int64_t columns)
{
	const int64_t x[] = {rows, columns}, y[] = {columns, rows}, perm[] = {1, 0};

	wire_begin(out, type, id);
	wire_put_str(out, "op", "permute");
	wire_list_begin(out, "tensors");
	for (int i = 0; i < 2; i++) {
		wire_map_begin(out, NULL);
		wire_put_int(out, "d", KILN_F32);
		wire_put_ints(out, "s", i ? y : x, 2);
		wire_map_end(out);
	}
	wire_list_end(out);
	wire_map_begin(out, "attrs");
	wire_put_ints(out, "perm", perm, 2);
	wire_map_end(out);
}

/* ---- Requests with whatever inside ---- */

/* A client of this kind knows these; ids are those of its buffers and calls, or nearly. */
struct knows {
	uint64_t state;
	uint64_t bufs[4], calls[2];
	uint64_t next_id;
	int memory; /* a sealed memfd */
};

static uint64_t odd_number(struct knows *k)
{
	static const uint64_t odd[] = {0,         1,          2,          7,         255,       4096,
								   INT32_MAX, UINT32_MAX, 1ull << 46, INT64_MAX, UINT64_MAX};
	return odd[storm_pick(&k->state, sizeof(odd) / sizeof(odd[0]))];
}

static void put_odd(struct knows *k, struct wire_out *out, const char *key, int depth)
{
	static const char bytes[64] = "odd";
	switch (storm_pick(&k->state, depth > 3 ? 7 : 10)) {
	case 0:
		wire_put_uint(out, key, odd_number(k));
		return;
	case 1:
		wire_put_int(out, key, -(int64_t)(odd_number(k) / 2));
		return;
	case 2:
		wire_put_uint(out, key, k->bufs[storm_pick(&k->state, 4)]);
		return;
	case 3:
		wire_put_uint(out, key, k->calls[storm_pick(&k->state, 2)]);
		return;
	case 4:
		wire_put_real(out, key, (double)odd_number(k) * 1.5);
		return;
	case 5:
		wire_put_str(out, key, storm_pick(&k->state, 2) ? "permute" : "no\tsuch %s%n thing");
		return;
	case 6:
		wire_put_bin(out, key, bytes, (size_t)storm_pick(&k->state, sizeof(bytes) + 1));
		return;
	case 7:
		wire_list_begin(out, key);
		for (int i = storm_pick(&k->state, 20); i > 0; i--)
			put_odd(k, out, NULL, depth + 1);
		wire_list_end(out);
		return;
	case 8:
		wire_map_begin(out, key);
		put_odd(k, out, "s", depth + 1);
		put_odd(k, out, "d", depth + 1);
		put_odd(k, out, "perm", depth + 1);
		wire_map_end(out);
		return;
	default:
		wire_put_bool(out, key, true);
	}
}

/* Not among them: stop and debug, which are the test's. */
static void begin_odd(struct knows *k, struct wire_out *out, uint64_t id)
{
	static const char *const names[] = {"info",       "devices",     "ops",
										"explain",    "compile",     "alloc",
										"lend",       "free",        "write",
										"read",       "prepare",     "submit",
										"release",    "cancel",      "cache.ls",
										"cache.show", "cache.get",   "cache.verify",
										"cache.trim", "make.coffee", "cache.recompile",
										"cache.pin",  "cache.unpin"};
	static const char *const keys[] = {"op",   "tensors", "attrs", "target",   "bytes", "flags",
									   "name", "buf",     "kind",  "handle",   "bufid", "offset",
									   "span", "call",    "after", "operands", "key",   "limit",
									   "sort", "ticket",  "pid",   "section",  "pool"};
	const char *name = names[storm_pick(&k->state, sizeof(names) / sizeof(names[0]))];

	if (!strcmp(name, "explain") && storm_pick(&k->state, 2)) {
		raw_problem(out, name, id, 1 + storm_pick(&k->state, 6), 1 + storm_pick(&k->state, 6));
		return;
	}
	/* It would be nothing but compiles. */
	if (!strcmp(name, "cache.trim") && storm_pick(&k->state, 8))
		name = "info";
	wire_begin(out, name, id);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (storm_pick(&k->state, 2))
			put_odd(k, out, keys[i], 0);
}

static void put_operands(struct knows *k, struct wire_out *out)
{
	wire_list_begin(out, "operands");
	for (int i = 0; i < 2; i++) {
		wire_list_begin(out, NULL);
		wire_put_uint(out, NULL, k->bufs[i]);
		wire_put_uint(out, NULL, storm_pick(&k->state, 8) ? 0 : odd_number(k));
		wire_list_end(out);
	}
	wire_list_end(out);
}

/* Work that a device does, most of it right. */
static int send_work(struct knows *k, int sock, uint64_t id)
{
	struct wire_out out;
	uint64_t bytes = storm_pick(&k->state, 8) ? 64 : odd_number(k);
	bool write = storm_pick(&k->state, 2);
	switch (storm_pick(&k->state, 6)) {
	case 0:
		wire_begin(&out, "alloc", id);
		wire_put_uint(&out, "bytes", bytes % 100000);
		wire_put_uint(&out, "flags", (uint64_t)storm_pick(&k->state, 2));
		return raw_put(sock, &out, NULL, 0);
	case 1:
		raw_problem(&out, storm_pick(&k->state, 3) ? "prepare" : "compile", id,
					2 + storm_pick(&k->state, 4), 2 + storm_pick(&k->state, 4));
		return raw_put(sock, &out, NULL, 0);
	case 2:
		wire_begin(&out, write ? "write" : "read", id);
		wire_put_uint(&out, "buf", k->bufs[storm_pick(&k->state, 4)]);
		wire_put_uint(&out, "offset", storm_pick(&k->state, 8) ? 0 : odd_number(k));
		wire_put_uint(&out, "bytes", bytes);
		return raw_put(sock, &out, &k->memory, storm_pick(&k->state, 8) ? 1 : 0);
	case 3:
		wire_begin(&out, storm_pick(&k->state, 4) ? "cancel" : "free", id);
		wire_put_uint(&out, "ticket", id > 3 ? id - 1 - (uint64_t)storm_pick(&k->state, 3) : id);
		wire_put_uint(&out, "buf", k->bufs[storm_pick(&k->state, 4)]);
		return raw_put(sock, &out, NULL, 0);
	default:
		wire_begin(&out, "submit", id);
		wire_put_uint(&out, "call", k->calls[0]);
		wire_put_uint(&out, "after", storm_pick(&k->state, 3) ? 0 : id - 1);
		put_operands(k, &out);
		return raw_put(sock, &out, NULL, 0);
	}
}

/* ---- Sessions ---- */

/* Hello, two buffers, two calls.  KILN_OK, or why there is no such session; *heard: the id of the
 * last answer, 0 when none came. */
static int settle_in(struct knows *k, int sock, uint64_t *heard)
{
	struct wire_out out;
	uint64_t none;
	raw_hello(&out, 1);
	int status = raw_put(sock, &out, NULL, 0);
	if (status == KILN_OK)
		status = raw_take(sock, STORM_CALL_MS, heard, NULL, NULL);
	for (int i = 0; status == KILN_OK && i < 4; i++) {
		if (i < 2) {
			wire_begin(&out, "alloc", 2 + (uint64_t)i);
			wire_put_uint(&out, "bytes", 4096);
			wire_put_uint(&out, "flags", (uint64_t)i);
		} else {
			raw_problem(&out, "prepare", 2 + (uint64_t)i, 4 + i, 9);
		}
		status = raw_put(sock, &out, NULL, 0);
		if (status == KILN_OK)
			status = raw_take(sock, STORM_CALL_MS, heard, i < 2 ? &k->bufs[i] : &none,
							  i < 2 ? &none : &k->calls[i - 2]);
	}
	k->bufs[2] = k->bufs[0] + 1;
	k->next_id = 6;
	return status;
}

/* Sends some, then takes as many answers: each once, in any order. */
static void polite_round(struct storm *storm, struct knows *k, int sock)
{
	bool seen[REQUESTS_MOST] = {false};
	int sent = 0, count = 1 + storm_pick(&k->state, REQUESTS_MOST);
	uint64_t first = k->next_id, id;

	for (; sent < count; sent++) {
		struct wire_out out;
		int status;
		if (storm_pick(&k->state, 3)) {
			status = send_work(k, sock, first + (uint64_t)sent);
		} else {
			begin_odd(k, &out, first + (uint64_t)sent);
			status = raw_put(sock, &out, &k->memory, storm_pick(&k->state, 2));
		}
		if (status != KILN_OK) {
			storm_wrong(storm, "a request could not be sent: %s", kiln_status_name(status));
			return;
		}
		atomic_fetch_add(&storm->steps, 1);
	}
	k->next_id += (uint64_t)count;
	for (int i = 0; i < count; i++) {
		int status = raw_take(sock, STORM_CALL_MS, &id, NULL, NULL);
		if (id < first || id >= first + (uint64_t)count || seen[id - first]) {
			storm_wrong(storm, "answer %d of %d is for id %llu (%s), asked for were %llu and on", i,
						count, (unsigned long long)id, kiln_status_name(status),
						(unsigned long long)first);
			return;
		}
		seen[id - first] = true;
		atomic_fetch_add(&storm->answered, 1);
	}
}

int storm_polite(const struct kilnd *daemon, void *arg)
{
	const struct storm_seat *seat = arg;
	struct storm *storm = seat->storm;
	struct knows k = {.state = storm_start(seat), .memory = frame_memfd("storm", 65536)};

	while (!atomic_load(&storm->stop) && !atomic_load(&storm->wrong)) {
		int sock = raw_open(daemon);
		if (sock < 0) {
			storm_wrong(storm, "the daemon does not accept");
			return 1;
		}
		uint64_t heard = 0;
		int status = settle_in(&k, sock, &heard);
		if (!heard)
			storm_wrong(storm, "no session: %s", kiln_status_name(status));
		for (int i = storm_pick(&k.state, 4); status == KILN_OK && i >= 0; i--)
			if (!atomic_load(&storm->stop))
				polite_round(storm, &k, sock);
		close(sock);
	}
	close(k.memory);
	return 0;
}

/* Bytes that are no frame, or a frame that lies about its descriptors. */
static void send_garbage(struct knows *k, int sock)
{
	uint8_t bytes[64] = {'K', 'F', (uint8_t)storm_pick(&k->state, 3),
						 (uint8_t)storm_pick(&k->state, 7)};
	size_t size = 1 + (size_t)storm_pick(&k->state, sizeof(bytes));
	int fds[7], count = storm_pick(&k->state, 8);

	for (size_t i = 8; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)storm_next(&k->state);
	if (size >= 8 && storm_pick(&k->state, 2))
		bytes[4] = (uint8_t)(size - 8);
	for (int i = 0; i < count; i++)
		fds[i] = k->memory;
	(void)raw_bytes(sock, bytes, size, fds, count);
}

static int rude_step(struct knows *k, int sock)
{
	struct wire_out out;
	uint64_t id = storm_pick(&k->state, 16) ? k->next_id++ : (uint64_t)storm_pick(&k->state, 4);
	int fds[4] = {k->memory, k->memory, k->memory, k->memory};

	switch (storm_pick(&k->state, 16)) {
	case 0:
		send_garbage(k, sock);
		return KILN_OK;
	case 1:
		raw_hello(&out, id);
		break;
	case 2:
		(void)shutdown(sock, storm_pick(&k->state, 2) ? SHUT_RD : SHUT_WR);
		return KILN_OK;
	case 3:
	case 4:
	case 5:
		begin_odd(k, &out, id);
		break;
	default:
		return send_work(k, sock, id);
	}
	return raw_put(sock, &out, fds, storm_pick(&k->state, 5));
}

int storm_rude(const struct kilnd *daemon, void *arg)
{
	const struct storm_seat *seat = arg;
	struct storm *storm = seat->storm;
	struct knows k = {.state = storm_start(seat), .memory = frame_memfd("storm", 65536)};

	while (!atomic_load(&storm->stop)) {
		int sock = raw_open(daemon), steps = storm_pick(&k.state, 40), status = KILN_OK;
		if (sock < 0) {
			storm_wrong(storm, "the daemon does not accept");
			return 1;
		}
		/* Some do not wait for anything, not even for hello's answer. */
		if (storm_pick(&k.state, 3)) {
			uint64_t heard;
			status = settle_in(&k, sock, &heard);
		} else if (storm_pick(&k.state, 4)) {
			struct wire_out out;
			raw_hello(&out, 1);
			status = raw_put(sock, &out, NULL, 0);
		}
		for (int i = 0; i < steps && status == KILN_OK; i++) {
			status = rude_step(&k, sock);
			atomic_fetch_add(&storm->steps, 1);
		}
		close(sock);
	}
	close(k.memory);
	return 0;
}
