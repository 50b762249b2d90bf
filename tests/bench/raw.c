/*
 * raw: see raw.h.
 */
#include "raw.h"

#include "client/frame.h"
#include "client/protocol.h"
#include "client/wire.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DEADLINE_MS 120000
#define REPLY_MAX (64u << 20)
#define BLOCK (32u << 20) /* of random bytes */

static bool fail(struct raw *raw, const char *what, const char *sentence)
{
	snprintf(raw->why, sizeof raw->why, "%s: %s", what, sentence);
	return false;
}

static bool send_message(struct raw *raw, struct wire_out *out, const char *what, int fd)
{
	int status = wire_end(out);
	if (status == KILN_OK)
		status = frame_send_wait(raw->sock, out->buffer.data, out->buffer.size, &fd, fd >= 0,
								 DEADLINE_MS);
	wire_out_free(out);
	return status == KILN_OK || fail(raw, what, "cannot be sent");
}

struct reply {
	struct frame frame;
	struct wire_in in;
};

static void reply_free(struct reply *reply)
{
	wire_in_free(&reply->in);
	frame_free(&reply->frame);
}

/* The next reply, whichever; events are passed over.  False leaves nothing to free. */
static bool next_reply(struct raw *raw, struct reply *reply)
{
	for (;;) {
		memset(reply, 0, sizeof *reply);
		if (frame_recv_wait(raw->sock, &reply->frame, REPLY_MAX, DEADLINE_MS) != KILN_OK)
			return fail(raw, "waiting for a reply", "nothing came, or the daemon is gone");
		if (wire_parse(&reply->in, reply->frame.data, reply->frame.size) != KILN_OK) {
			fail(raw, "a reply", reply->in.why);
			reply_free(reply);
			return false;
		}
		if (strcmp(wire_type(&reply->in), "reply") == 0)
			return true;
		reply_free(reply);
	}
}

static bool is_good(struct raw *raw, struct reply *reply, const char *what)
{
	if (wire_get_int(&reply->in.root, "st", KILN_EPROTO) == KILN_OK)
		return true;
	const char *sentence = wire_get_str(&reply->in, &reply->in.root, "err");
	return fail(raw, what, sentence ? sentence : "no reason given");
}

/* Sends, and waits for the reply, which must be good; then the caller frees it. */
static bool call(struct raw *raw, struct wire_out *out, const char *what, int fd,
				 struct reply *reply)
{
	if (!send_message(raw, out, what, fd))
		return false;
	for (;;) {
		if (!next_reply(raw, reply))
			return false;
		bool ours = wire_id(&reply->in) == raw->last_id;
		if (ours && is_good(raw, reply, what))
			return true;
		reply_free(reply);
		if (ours)
			return false;
	}
}

bool raw_open(struct raw *raw, const char *socket_path, const char *device)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct wire_out out;
	struct reply reply;
	memset(raw, 0, sizeof *raw);
	if (strlen(socket_path) >= sizeof address.sun_path)
		return fail(raw, socket_path, "the path is too long for a socket");
	memcpy(address.sun_path, socket_path, strlen(socket_path));
	raw->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (raw->sock < 0 || connect(raw->sock, (const struct sockaddr *)&address, sizeof address) != 0)
		return fail(raw, socket_path, "nobody answers there");
	wire_begin(&out, "hello", ++raw->last_id);
	wire_put_int(&out, "proto", PROTOCOL_VERSION);
	wire_put_str(&out, "version", KILN_VERSION_STRING);
	wire_put_int(&out, "pid", getpid());
	wire_put_str(&out, "device", device);
	if (!call(raw, &out, "hello", -1, &reply))
		return false;
	reply_free(&reply);
	return true;
}

void raw_close(struct raw *raw)
{
	if (raw->sock > 0)
		close(raw->sock);
}

bool raw_alloc(struct raw *raw, uint64_t bytes, const char *name, uint64_t *buffer)
{
	struct wire_out out;
	struct reply reply;
	wire_begin(&out, "alloc", ++raw->last_id);
	wire_put_uint(&out, "bytes", bytes);
	wire_put_uint(&out, "flags", 0);
	wire_put_str(&out, "name", name);
	if (!call(raw, &out, "alloc", -1, &reply))
		return false;
	*buffer = wire_get_uint(&reply.in.root, "buf", 0);
	reply_free(&reply);
	return true;
}

bool raw_fill(struct raw *raw, uint64_t buffer, uint64_t bytes, uint64_t seed)
{
	int fd = frame_memfd("bench", BLOCK);
	void *block =
		fd < 0 ? MAP_FAILED : mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (block == MAP_FAILED) {
		if (fd >= 0)
			close(fd);
		return fail(raw, "random bytes", "no memory");
	}
	cases_fill(block, 0, BLOCK, seed);
	munmap(block, BLOCK);
	bool good = true;
	for (uint64_t at = 0; at < bytes && good; at += BLOCK) {
		struct wire_out out;
		struct reply reply;
		wire_begin(&out, "write", ++raw->last_id);
		wire_put_uint(&out, "buf", buffer);
		wire_put_uint(&out, "offset", at);
		wire_put_uint(&out, "bytes", bytes - at < BLOCK ? bytes - at : BLOCK);
		good = call(raw, &out, "write", fd, &reply);
		if (good)
			reply_free(&reply);
	}
	close(fd);
	return good;
}

/* One word of the plan's text, behind "variant". */
static void find_variant(const char *text, char *variant, size_t size)
{
	const char *at = text ? strstr(text, "variant") : NULL;
	snprintf(variant, size, "?");
	if (!at)
		return;
	at += strlen("variant");
	at += strspn(at, " :\t=");
	snprintf(variant, size, "%.*s", (int)strcspn(at, " \n,;"), at);
}

bool raw_prepare(struct raw *raw, const struct cases_case *c, uint64_t *number, char *variant,
				 size_t size)
{
	kiln_tensor tensors[2];
	struct wire_out out;
	struct reply reply;
	cases_tensors(c, tensors);
	wire_begin(&out, "prepare", ++raw->last_id);
	wire_put_str(&out, "op", c->op);
	wire_list_begin(&out, "tensors");
	for (int i = 0; i < 2; i++) {
		wire_map_begin(&out, NULL);
		wire_put_int(&out, "d", tensors[i].dtype);
		wire_put_ints(&out, "s", tensors[i].shape, tensors[i].rank);
		if (!tensors[i].contiguous)
			wire_put_ints(&out, "t", tensors[i].stride, tensors[i].rank);
		wire_map_end(&out);
	}
	wire_list_end(&out);
	wire_map_begin(&out, "attrs");
	wire_put_ints(&out, "perm", c->perm, c->rank);
	wire_map_end(&out);
	if (!call(raw, &out, "prepare", -1, &reply))
		return false;
	*number = wire_get_uint(&reply.in.root, "call", 0);
	find_variant(wire_get_str(&reply.in, &reply.in.root, "text"), variant, size);
	reply_free(&reply);
	return true;
}

bool raw_release(struct raw *raw, uint64_t number)
{
	struct wire_out out;
	struct reply reply;
	wire_begin(&out, "release", ++raw->last_id);
	wire_put_uint(&out, "call", number);
	if (!call(raw, &out, "release", -1, &reply))
		return false;
	reply_free(&reply);
	return true;
}

bool raw_submit(struct raw *raw, uint64_t number, const struct raw_operand operands[2],
				uint64_t *ticket)
{
	struct wire_out out;
	*ticket = ++raw->last_id;
	wire_begin(&out, "submit", *ticket);
	wire_put_uint(&out, "call", number);
	wire_list_begin(&out, "operands");
	for (int i = 0; i < 2; i++) {
		wire_list_begin(&out, NULL);
		wire_put_uint(&out, NULL, operands[i].buffer);
		wire_put_uint(&out, NULL, operands[i].offset);
		wire_list_end(&out);
	}
	wire_list_end(&out);
	return send_message(raw, &out, "submit", -1);
}

bool raw_collect(struct raw *raw, uint64_t first, int count, double *micros)
{
	for (int got = 0; got < count;) {
		struct reply reply;
		if (!next_reply(raw, &reply))
			return false;
		uint64_t id = wire_id(&reply.in);
		bool ours = id >= first && id - first < (uint64_t)count;
		bool good = !ours || is_good(raw, &reply, "submit");
		if (ours)
			micros[id - first] = (double)wire_get_uint(&reply.in.root, "micros", 0);
		reply_free(&reply);
		if (!good)
			return false;
		got += ours;
	}
	return true;
}
