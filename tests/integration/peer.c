/* peer.c: a client without the library. */
#include "peer.h"

#include <client/wire/protocol.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void peer_begin(struct peer *peer, struct wire_out *out, const char *type)
{
	wire_begin(out, type, ++peer->id);
}

void peer_send(struct peer *peer, struct wire_out *out, int fd)
{
	assert_int_equal(wire_end(out), KILN_OK);
	assert_int_equal(frame_send_wait(peer->sock, out->buffer.data, out->buffer.size, &fd, fd >= 0,
									 CALL_TIMEOUT_MS),
					 KILN_OK);
	wire_out_free(out);
}

int peer_take(struct peer *peer, uint64_t *id)
{
	struct frame frame = {0};
	struct wire_in in;

	assert_int_equal(frame_recv_wait(peer->sock, &frame, 1 << 20, CALL_TIMEOUT_MS), KILN_OK);
	assert_int_equal(wire_parse(&in, frame.data, frame.size), KILN_OK);
	*id = wire_id(&in);
	int status = (int)wire_get_int(&in.root, "st", 1);
	const char *error = wire_get_str(&in, &in.root, "err");
	snprintf(peer->sentence, sizeof(peer->sentence), "%s", error ? error : "");
	peer->made = wire_get_uint(&in.root, "call", wire_get_uint(&in.root, "buf", 0));
	wire_in_free(&in);
	frame_free(&frame);
	return status;
}

int peer_ask(struct peer *peer, struct wire_out *out, int fd)
{
	uint64_t id;

	peer_send(peer, out, fd);
	int status = peer_take(peer, &id);
	assert_int_equal(id, peer->id);
	return status;
}

void peer_expect(struct peer *peer, struct wire_out *out, int fd, int status, const char *word)
{
	int got = peer_ask(peer, out, fd);
	if (got != status || !strstr(peer->sentence, word))
		fail_msg("%s: \"%s\", not %s with \"%s\"", kiln_status_name(got), peer->sentence,
				 kiln_status_name(status), word);
}

void peer_open(struct peer *peer, const struct kilnd *daemon, const char *source)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	ssize_t bytes = (ssize_t)strlen(source);
	struct wire_out out;

	*peer = (struct peer){.sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", daemon->socket);
	assert_int_equal(connect(peer->sock, (struct sockaddr *)&address, sizeof(address)), 0);
	peer_begin(peer, &out, "hello");
	wire_put_int(&out, "proto", PROTOCOL_VERSION);
	wire_put_str(&out, "version", "0.1.0");
	wire_put_int(&out, "pid", getpid());
	wire_put_str(&out, "device", "cpu");
	peer_expect(peer, &out, -1, KILN_OK, "");
	peer->texts = frame_memfd("texts", (uint64_t)bytes);
	assert_int_equal(pwrite(peer->texts, source, (size_t)bytes, 0), bytes);
}

void peer_close(struct peer *peer)
{
	close(peer->texts);
	close(peer->sock);
}
