/* peer.c: reads, queues replies, ends. */
#include "peer.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/base/closer.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "peer_descriptors.h"

/* These bound the turn of a peer at the loop; then the others have theirs. */
#define FRAMES_A_TURN 64
#define BYTES_A_TURN ((size_t)64 << 10)
#define BYTES_A_DESCRIPTOR 256 /* a descriptor costs as much as these, in a turn */
#define MEMBERS_MOST 64        /* of a request; a look-up of any one walks over all */

enum peer_state { PEER_OPEN, PEER_HELD, PEER_ENDING, PEER_CLOSED };

struct peer {
	struct broker *broker;
	const struct peer_owner *owner;
	void *arg;
	enum peer_state state;
	uint64_t number; /* in the log: its session's */
	struct peer_identity who;
	int sock;
	uv_poll_t poll;
	int watched;      /* events that the poll is started for */
	uv_timer_t timer; /* the deadline of hello while it is silent, and of the closer while HELD */
	int open_handles;
	bool silent;                /* hello has not come */
	struct frame_closer closer; /* of descriptors that came from this client */
	struct frame_queue queue;
	uint64_t opened_us;
	uint64_t deaf_us; /* when it began to take no replies; 0: it has taken all */
};

static void peer_assert_valid(const struct peer *peer)
{
	(void)peer;
	assert(peer->open_handles > 0 && peer->sock >= 0);
	assert((peer->state == PEER_CLOSED) == uv_is_closing((const uv_handle_t *)&peer->poll));
	assert(peer->state >= PEER_ENDING || !peer->deaf_us == !peer->queue.count);
}

bool peer_is_ending(const struct peer *peer)
{
	return peer->state >= PEER_ENDING;
}

/* ---- Errors that answer no request ---- */

__attribute__((format(printf, 4, 5))) static void peer_fail(struct peer *peer, uint64_t id,
															int status, const char *format, ...)
{
	struct wire_out out;
	char text[KERNEL_ERROR_MAX];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	plain_clean(text, sizeof(text), PLAIN_LINE); /* it may quote the client */
	wire_begin(&out, "reply", id);
	out.for_people = true;
	wire_put_int(&out, "st", status);
	wire_put_str(&out, "err", text);
	peer_send(peer, &out, NULL, 0);
	peer->broker->counters.protocol_errors += status == KILN_EPROTO;
}

/* ---- Clocks ---- */

static void peer_watch(struct peer *peer);

static uint32_t hello_deadline(const struct broker *broker)
{
	uint32_t wanted = broker->test.hello_deadline_ms;
	return wanted ? wanted : DEADLINE_HELLO_MS;
}

static void on_silent(uv_timer_t *timer)
{
	struct peer *peer = timer->data;
	peer_fail(peer, 0, KILN_ETIMEDOUT, "no hello came within %u ms", hello_deadline(peer->broker));
	peer->owner->on_end(peer->arg);
}

static void await_hello(struct peer *peer)
{
	uv_timer_start(&peer->timer, on_silent, hello_deadline(peer->broker), 0);
}

void peer_stop_clock(struct peer *peer)
{
	peer->silent = false;
	uv_timer_stop(&peer->timer);
}

static void on_held(uv_timer_t *timer)
{
	struct peer *peer = timer->data;
	char text[KERNEL_ERROR_MAX];
	util_fail(text, sizeof(text), 0,
			  "kilnd cannot close the descriptors that programs of uid %u have sent: "
			  "they are sockets that linger, or files of a file system that does not "
			  "answer; end those programs",
			  (unsigned)peer->who.uid);
	util_log(UTIL_WARN, "session %llu (pid %d) was ended: %s", (unsigned long long)peer->number,
			 peer->who.pid, text);
	peer_fail(peer, 0, KILN_ELIMIT, "%s", text);
	peer->owner->on_end(peer->arg);
}

/* Returns true when nothing more may be read: its uid has too much to be closed already. */
static bool hold(struct peer *peer)
{
	if (!closer_is_full(peer->who.uid))
		return false;
	peer->state = PEER_HELD;
	uv_timer_start(&peer->timer, on_held, DEADLINE_CLOSER_MS, 0);
	return true;
}

void peer_release(struct peer *peer)
{
	if (peer->state != PEER_HELD || closer_is_full(peer->who.uid))
		return;
	peer->state = PEER_OPEN;
	if (peer->silent)
		await_hello(peer);
	else
		uv_timer_stop(&peer->timer);
	peer_watch(peer);
}

/* ---- Messages in ---- */

/* Handles one message; false when the peer is to end. */
static bool peer_take(struct peer *peer, struct frame *frame)
{
	struct wire_in message;
	int status = wire_parse_asked(&message, frame->data, frame->size);
	if (status != KILN_OK) {
		util_log(UTIL_WARN, "session %llu (pid %d): %s", (unsigned long long)peer->number,
				 peer->who.pid, message.why);
		peer_fail(peer, 0, KILN_EPROTO, "the message cannot be read: %s", message.why);
		return false;
	}
	uint32_t members = wire_count(&message.root);
	if (members > MEMBERS_MOST) {
		peer_fail(peer, wire_id(&message), KILN_EPROTO, "a request with %u members; the most is %d",
				  members, MEMBERS_MOST);
		wire_in_free(&message);
		return false;
	}
	if (frame->lost) {
		peer_fail(peer, wire_id(&message), KILN_ELIMIT,
				  "the descriptors of %.*s were lost: %s; try again later",
				  PLAIN_CUT(wire_type(&message), 40), rights_full_text(peer->who.uid));
	} else {
		peer->owner->on_message(peer->arg, &message, frame);
	}
	wire_in_free(&message);
	return true;
}

/* Receives one frame, and tells the peer what is wrong with it. */
static int receive(struct peer *peer, struct frame *frame, size_t *bytes)
{
	uint64_t most = peer->broker->options.max_message;
	int status = frame_recv_foreign(peer->sock, frame, most);
	if (status == KILN_EAGAIN)
		return status;
	*bytes += (size_t)(frame->fd_count + frame->rest_count) * BYTES_A_DESCRIPTOR;
	closer_sift(peer->who.uid, frame);
	for (int k = 0; k < frame->fd_count; k++)
		frame->lost = frame->lost || !rights_allow(peer->who.uid, frame->fds[k]);
	if (frame->lost)
		status = KILN_OK; /* the request can be told */
	if (status == KILN_ELIMIT) {
		peer_fail(peer, 0, status,
				  "a message is larger than %llu bytes, the most kilnd takes (--max-message)",
				  (unsigned long long)most);
		peer->broker->counters.protocol_errors++;
	} else if (status == KILN_EPROTO) {
		peer_fail(peer, 0, status, "the message cannot be read: %s", frame->why);
	}
	return status;
}

/* Reads what is there, for one turn; false when the peer is to end. */
static bool read_messages(struct peer *peer)
{
	size_t bytes = 0;
	for (int i = 0; i < FRAMES_A_TURN && bytes < BYTES_A_TURN; i++) {
		struct frame frame;
		bool go_on = false;
		if (hold(peer))
			return true;
		int status = receive(peer, &frame, &bytes);
		if (status == KILN_EAGAIN)
			return true;
		if (status == KILN_OK) {
			bytes += frame.size;
			go_on = peer_take(peer, &frame);
		}
		frame_free_by(&frame, &peer->closer);
		if (!go_on || peer->state >= PEER_ENDING)
			return false;
	}
	return true;
}

static void on_peer_ready(uv_poll_t *poll, int status, int events)
{
	struct peer *peer = poll->data;
	bool alive = status == 0 && peer->state < PEER_ENDING;
	/* A peer that takes no more leaves the socket writable for ever. */
	if (alive && (events & UV_WRITABLE)) {
		int flushed = frame_queue_flush(&peer->queue, peer->sock);
		alive = flushed == KILN_OK || flushed == KILN_EAGAIN || flushed == KILN_ENOMEM;
	}
	if (alive && (events & (UV_READABLE | UV_DISCONNECT)))
		alive = read_messages(peer);
	if (alive)
		peer_watch(peer);
	else
		peer->owner->on_end(peer->arg);
}

/* Sees that the poll is started for what the state and the queue need. */
static void peer_watch(struct peer *peer)
{
	bool reads = peer->state != PEER_HELD;
	int events = (reads ? UV_READABLE | UV_DISCONNECT : 0) | (peer->queue.count ? UV_WRITABLE : 0);
	if (!peer->queue.count)
		peer->deaf_us = 0;
	else if (!peer->deaf_us)
		peer->deaf_us = util_now_us();
	/* Starting it again for the same would take system calls. */
	if (peer->state != PEER_CLOSED && events != peer->watched && !events)
		uv_poll_stop(&peer->poll);
	else if (peer->state != PEER_CLOSED && events != peer->watched)
		uv_poll_start(&peer->poll, events, on_peer_ready);
	peer->watched = events;
	peer_assert_valid(peer);
}

/* ---- Replies out ---- */

static void warn_deaf(const struct peer *peer, int status, int why)
{
	if (status == KILN_ELIMIT)
		util_log(UTIL_WARN,
				 "session %llu (pid %d) does not read its replies: more than %llu bytes are queued "
				 "(--max-queued); it was ended",
				 (unsigned long long)peer->number, peer->who.pid,
				 (unsigned long long)peer->broker->options.max_queued);
	else if (status == KILN_EIO)
		util_log(UTIL_WARN,
				 "session %llu (pid %d) does not read its replies, and no more can be queued: %s; "
				 "it was ended",
				 (unsigned long long)peer->number, peer->who.pid, strerror(why));
}

void peer_send(struct peer *peer, struct wire_out *out, const int *fds, int fd_count)
{
	int status = wire_end(out);
	bool deaf = peer->state >= PEER_ENDING;
	if (status == KILN_OK && !deaf)
		status = frame_queue_send(&peer->queue, peer->sock, out->buffer.data, out->buffer.size, fds,
								  fd_count, peer->broker->options.max_queued);
	int why = errno;
	wire_out_free(out);
	if (deaf)
		return;
	if (status == KILN_OK && peer->queue.count) {
		peer_watch(peer);
	} else if (status != KILN_OK) {
		warn_deaf(peer, status, why);
		peer_end(peer);
	}
}

size_t peer_queued(const struct peer *peer)
{
	return peer->queue.bytes;
}

/* ---- Life ---- */

static void put_away(void *arg, int fd)
{
	const struct peer *peer = arg;
	closer_put(peer->who.uid, fd);
}

struct peer *peer_open(struct broker *broker, int sock, uint64_t number,
					   const struct peer_identity *who, const struct peer_owner *owner, void *arg)
{
	struct peer *peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->broker = broker;
	peer->owner = owner;
	peer->arg = arg;
	peer->number = number;
	peer->who = *who;
	peer->sock = sock;
	peer->silent = true;
	peer->closer = (struct frame_closer){put_away, peer};
	peer->queue.closer = &peer->closer;
	peer->queue.fd_below = rights_below(who->uid);
	peer->opened_us = util_now_us();
	peer->poll.data = peer->timer.data = peer;
	peer->open_handles = 2;
	uv_poll_init(&broker->loop, &peer->poll, sock);
	uv_timer_init(&broker->loop, &peer->timer);
	await_hello(peer);
	/* Its uid may have too much to be closed already, and it may bring more. */
	hold(peer);
	peer_watch(peer);
	return peer;
}

void peer_take_descriptors(struct peer *peer)
{
	rights_admit(peer->sock);
}

void peer_end(struct peer *peer)
{
	/* The loop sees the end of the socket and closes: the callers up the stack keep the peer. */
	if (peer->state >= PEER_ENDING)
		return;
	peer->state = PEER_ENDING;
	frame_queue_flush(&peer->queue, peer->sock);
	shutdown(peer->sock, SHUT_RDWR);
	peer_watch(peer);
}

static void on_peer_closed(uv_handle_t *handle)
{
	struct peer *peer = handle->data;
	if (--peer->open_handles > 0)
		return;
	frame_queue_free(&peer->queue);
	closer_put_socket(peer->sock);
	peer->owner->on_freed(peer->arg);
	free(peer);
}

void peer_close(struct peer *peer)
{
	if (peer->state == PEER_CLOSED)
		return;
	if (peer->state != PEER_ENDING)
		frame_queue_flush(&peer->queue, peer->sock);
	peer->state = PEER_CLOSED;
	uv_poll_stop(&peer->poll);
	uv_timer_stop(&peer->timer);
	uv_close((uv_handle_t *)&peer->poll, on_peer_closed);
	uv_close((uv_handle_t *)&peer->timer, on_peer_closed);
	peer_assert_valid(peer);
}

int peer_waits(const struct peer *peer, struct wait_note notes[PEER_NOTES])
{
	int count = 0;
	if (peer->silent && peer->state < PEER_ENDING) {
		notes[count] = (struct wait_note){.what = "hello",
										  .of = "client",
										  .pid = peer->who.pid,
										  .since_us = peer->opened_us,
										  .left_ms = waits_timer_left(&peer->timer)};
		waits_say(&notes[count++], "its first message");
	}
	if (peer->deaf_us) {
		notes[count] = (struct wait_note){.what = "reader",
										  .of = "client",
										  .pid = peer->who.pid,
										  .since_us = peer->deaf_us,
										  .count = (uint64_t)peer->queue.count,
										  .left_ms = WAITS_NO_DEADLINE};
		waits_say(&notes[count++], "it to take its answers");
	}
	return count;
}
