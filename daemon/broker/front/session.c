/* session.c: the socket of one client: accepts, reads, queues replies, ends. */
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admit.h"
#include "daemon/broker/devices/events.h"
#include "daemon/base/closer.h"
#include "daemon/base/deadlines.h"
#include "daemon/broker/devices/pool/alt_compiler.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/base/util.h"

/* Then the others have their turn. */
#define FRAMES_A_TURN 64
#define BYTES_A_TURN ((size_t)64 << 10)
#define BYTES_A_DESCRIPTOR 256 /* it costs as much as these, in a turn */
#define MEMBERS_MOST 64        /* of a request; every one that is looked up costs a walk over all */

static void on_closed(uv_handle_t *handle)
{
	struct session *session = handle->data;
	if (--session->open_handles > 0)
		return;
	struct broker *broker = session->broker;
	frame_queue_free(&session->queue);
	closer_put_socket(session->sock);
	map_free(&session->buffers);
	map_free(&session->calls);
	map_free(&session->works);
	free(session);
	broker_progress(broker);
}

static void forget_owned(struct session *session)
{
	size_t cursor = 0;
	struct buffer *buffer;
	struct call *call;
	while (session->requests) {
		struct request *request = session->requests;
		request_close(request);
		request->abandon(request);
	}
	work_abandon(session);
	shapes_free(session);
	while ((buffer = map_next(&session->buffers, &cursor))) {
		buffer_release(buffer);
		buffer_delete(buffer);
	}
	cursor = 0;
	while ((call = map_next(&session->calls, &cursor))) {
		graph_orphan(call);
		call_drop(call);
	}
	alt_compiler_close(session->alt_compiler);
	session->alt_compiler = NULL;
	if (session->own)
		handle_end(session->own);
	session->own = NULL;
	lane_drop(session);
	if (!session->executor)
		return;
	handle_forget(session->executor, session);
	handle_disown(session->executor, session);
	if (handle_is_ready(session->executor)) {
		struct wire_out message;
		uint64_t id = handle_begin(session->executor, &message, "end");
		wire_put_uint(&message, "stream", session->stream);
		handle_post(session->executor, &message, id);
	}
}

static void keep_tally(const struct session *session)
{
	struct broker *broker = session->broker;
	struct ended_session ended = {session->id, session->uid, session->pid, session->tally};
	broker->counters.sessions_ended++;
	util_debug("session %llu (pid %d, uid %u) ends: %llu kernels asked for, %llu launches",
			   (unsigned long long)session->id, session->pid, session->uid,
			   (unsigned long long)session->tally.requests,
			   (unsigned long long)session->tally.launches);
	ended_sessions_add(&broker->ended, &ended);
}

struct job_terms session_terms(struct session *session)
{
	return (struct job_terms){
		.asker = session,
		.priority = session->background ? POOL_BACKGROUND : POOL_INTERACTIVE,
		.on_miss = session->on_miss,
		.device = session->device ? &session->device->info : NULL,
	};
}

struct turn_owner session_turn(const struct session *session)
{
	return session ? (struct turn_owner){session->uid, session->id} : TURN_NOBODY;
}

bool session_is_owner(const struct session *session)
{
	return session->uid == getuid() || session->uid == 0;
}

void session_note_load(struct session *session, struct kernel_ref *ref, uint64_t began_us)
{
	uint64_t micros = util_now_us() - began_us;
	histogram_note(&session->tally.load, micros);
	histogram_note(&job_tally(session->broker, ref)->load, micros);
}

void session_close(struct session *session)
{
	struct broker *broker = session->broker;
	if (session->closing)
		return;
	session->closing = true;
	if (!session->ending)
		frame_queue_flush(&session->queue, session->sock);
	forget_owned(session);
	if (session->previous)
		session->previous->next = session->next;
	else
		broker->sessions = session->next;
	if (session->next)
		session->next->previous = session->previous;
	map_remove_id(&broker->sessions_by_id, session->id);
	admit_leave(session);
	if (session->executor)
		handle_left(session->executor);
	keep_tally(session);
	uv_poll_stop(&session->poll);
	uv_timer_stop(&session->hello_timer);
	uv_close((uv_handle_t *)&session->poll, on_closed);
	uv_close((uv_handle_t *)&session->hello_timer, on_closed);
}

struct session *session_find(const struct broker *broker, uint64_t id)
{
	return map_get_id(&broker->sessions_by_id, id);
}

void session_end(struct session *session)
{
	/* The loop sees the end of the socket and closes; nobody up the stack loses the session under
	 * their feet. */
	if (session->closing || session->ending)
		return;
	session->ending = true;
	frame_queue_flush(&session->queue, session->sock);
	shutdown(session->sock, SHUT_RDWR);
	session_watch(session);
}

/* One message; false when the session is to end. */
static bool take(struct session *session, struct frame *frame)
{
	struct wire_in message;
	int status = wire_parse_asked(&message, frame->data, frame->size);
	if (status != KILN_OK) {
		util_log(UTIL_WARN, "session %llu (pid %d): %s", (unsigned long long)session->id,
				 session->pid, message.why);
		reply_error(session, 0, KILN_EPROTO, "the message cannot be read: %s", message.why);
		session->broker->counters.protocol_errors++;
		return false;
	}
	if (wire_count(&message.root) > MEMBERS_MOST) {
		reply_error(session, wire_id(&message), KILN_EPROTO,
					"a request with %u members; the most is %d", wire_count(&message.root),
					MEMBERS_MOST);
		session->broker->counters.protocol_errors++;
		wire_in_free(&message);
		return false;
	}
	if (frame->lost)
		reply_error(session, wire_id(&message), KILN_ELIMIT,
					"the descriptors of %.*s were lost: %s; try again later",
					PLAIN_CUT(wire_type(&message), 40), admit_files_text(session->uid));
	else
		command_run(session, &message, frame);
	wire_in_free(&message);
	return true;
}

static bool read_messages(struct session *session)
{
	size_t bytes = 0;
	for (int i = 0; i < FRAMES_A_TURN && bytes < BYTES_A_TURN; i++) {
		struct frame frame;
		if (rights_hold(session))
			return true;
		int status =
			frame_recv_foreign(session->sock, &frame, session->broker->options.max_message);
		if (status == KILN_EAGAIN)
			return true;
		bytes += (size_t)(frame.fd_count + frame.rest_count) * BYTES_A_DESCRIPTOR;
		closer_sift(session->uid, &frame);
		for (int k = 0; k < frame.fd_count; k++)
			frame.lost = frame.lost || !admit_descriptor(session->uid, frame.fds[k]);
		if (frame.lost)
			status = KILN_OK; /* the request can be told */
		if (status == KILN_ELIMIT)
			reply_error(session, 0, KILN_ELIMIT,
						"a message is larger than %llu bytes, the most kilnd takes "
						"(--max-message)",
						(unsigned long long)session->broker->options.max_message);
		else if (status == KILN_EPROTO)
			reply_error(session, 0, KILN_EPROTO, "the message cannot be read: %s", frame.why);
		if (status == KILN_EPROTO || status == KILN_ELIMIT)
			session->broker->counters.protocol_errors++;
		if (status != KILN_OK) {
			frame_free_by(&frame, &session->closer);
			return false;
		}
		bytes += frame.size;
		bool go_on = take(session, &frame);
		frame_free_by(&frame, &session->closer);
		if (!go_on || session->ending)
			return false;
	}
	return true;
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
	struct session *session = poll->data;
	bool alive = status == 0 && !session->ending;
	/* A peer that takes no more leaves the socket writable for ever. */
	if (alive && (events & UV_WRITABLE)) {
		int flushed = frame_queue_flush(&session->queue, session->sock);
		alive = flushed == KILN_OK || flushed == KILN_EAGAIN || flushed == KILN_ENOMEM;
	}
	if (alive && (events & (UV_READABLE | UV_DISCONNECT)))
		alive = read_messages(session);
	if (alive)
		session_watch(session);
	else
		session_close(session);
}

void session_watch(struct session *session)
{
	bool reads = !session->held || session->ending;
	int events =
		(reads ? UV_READABLE | UV_DISCONNECT : 0) | (session->queue.count ? UV_WRITABLE : 0);
	if (!session->queue.count)
		session->deaf_us = 0;
	else if (!session->deaf_us)
		session->deaf_us = util_now_us();
	/* Starting it again for the same would take system calls. */
	if (!session->closing && events != session->watched && !events)
		uv_poll_stop(&session->poll);
	else if (!session->closing && events != session->watched)
		uv_poll_start(&session->poll, events, on_ready);
	session->watched = events;
}

static uint32_t hello_deadline(const struct broker *broker)
{
	uint32_t wanted = broker->test.hello_deadline_ms;
	return wanted ? wanted : DEADLINE_HELLO_MS;
}

static void on_silent(uv_timer_t *timer)
{
	struct session *session = timer->data;
	reply_error(session, 0, KILN_ETIMEDOUT, "no hello came within %u ms",
				hello_deadline(session->broker));
	session_close(session);
}

void session_await_hello(struct session *session)
{
	uv_timer_start(&session->hello_timer, on_silent, hello_deadline(session->broker), 0);
}

void session_open(struct broker *broker, int sock)
{
	struct admit_peer peer;
	char error[KERNEL_ERROR_MAX];
	int status = admit_peer(&broker->options, sock, &peer, error);
	if (status == KILN_OK && !admit_descriptor(peer.uid, sock))
		status = util_fail(error, sizeof(error), KILN_ELIMIT, "%s; try again later",
						   admit_files_text(peer.uid));
	if (status != KILN_OK) {
		admit_turn_away(broker, sock, status, error);
		return;
	}
	admit_silent(broker);
	uint64_t id = broker_id(broker);
	struct session *session = calloc(1, sizeof(*session));
	if (!session || map_put_id(&broker->sessions_by_id, id, session) < 0) {
		free(session);
		closer_put_socket(sock);
		return;
	}
	session->broker = broker;
	session->id = id;
	session->opened_us = util_now_us();
	session->asks = "";
	session->stream = session->id;
	session->sock = sock;
	session->uid = peer.uid;
	session->gid = peer.gid;
	session->pid = peer.pid;
	rights_open(session);
	session->poll.data = session;
	session->hello_timer.data = session;
	session->open_handles = 2;
	session->next = broker->sessions;
	if (broker->sessions)
		broker->sessions->previous = session;
	broker->sessions = session;
	broker->silent_count++;
	broker->counters.sessions++;
	uv_poll_init(&broker->loop, &session->poll, sock);
	uv_timer_init(&broker->loop, &session->hello_timer);
	session_await_hello(session);
	/* Nothing of it is read while its uid has too much to be closed: it may bring more. */
	rights_hold(session);
	session_watch(session);
}

/* ---- Replies ---- */

void reply_begin(struct wire_out *out, uint64_t id)
{
	reply_begin_with(out, id, KILN_OK);
}

void reply_begin_with(struct wire_out *out, uint64_t id, int status)
{
	wire_begin(out, "reply", id);
	out->for_people = true;
	wire_put_int(out, "st", status);
}

void reply_send(struct session *session, struct wire_out *out, const int *fds, int fd_count)
{
	int status = wire_end(out);
	bool deaf = session->closing || session->ending;
	if (status == KILN_OK && !deaf)
		status =
			frame_queue_send(&session->queue, session->sock, out->buffer.data, out->buffer.size,
							 fds, fd_count, session->broker->options.max_queued);
	int why = errno;
	wire_out_free(out);
	if (deaf)
		return;
	if (status == KILN_OK && session->queue.count) {
		session_watch(session);
	} else if (status != KILN_OK) {
		if (status == KILN_ELIMIT)
			util_log(UTIL_WARN,
					 "session %llu (pid %d) does not read its replies: more than %llu bytes are "
					 "queued (--max-queued); it was ended",
					 (unsigned long long)session->id, session->pid,
					 (unsigned long long)session->broker->options.max_queued);
		else if (status == KILN_EIO)
			util_log(UTIL_WARN,
					 "session %llu (pid %d) does not read its replies, and no more can be queued: "
					 "%s; it was ended",
					 (unsigned long long)session->id, session->pid, strerror(why));
		session_end(session);
	}
}

void reply_ok(struct session *session, uint64_t id)
{
	struct wire_out out;
	reply_begin(&out, id);
	reply_send(session, &out, NULL, 0);
}

void reply_error(struct session *session, uint64_t id, int status, const char *format, ...)
{
	struct wire_out out;
	char text[JOB_ERROR_MAX];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	plain_clean(text, sizeof(text), PLAIN_LINE); /* it may quote the client */
	reply_begin_with(&out, id, status);
	wire_put_str(&out, "err", text);
	reply_send(session, &out, NULL, 0);
}

bool request_open(struct session *session, uint64_t id, struct request *request,
				  void (*abandon)(struct request *request))
{
	const struct options *options = &session->broker->options;
	if ((uint64_t)(session->request_count + session->work_count) >= options->max_inflight) {
		reply_error(session, id, KILN_ELIMIT,
					"this session has %llu requests in flight, the most it may have "
					"(--max-inflight); wait for some first",
					(unsigned long long)options->max_inflight);
		return false;
	}
	*request = (struct request){.session = session,
								.id = id,
								.abandon = abandon,
								.next = session->requests,
								.name = session->asks,
								.since_us = util_now_us()};
	if (session->requests)
		session->requests->previous = request;
	session->requests = request;
	session->request_count++;
	return true;
}

void request_close(struct request *request)
{
	struct session *session = request->session;
	if (!session)
		return;
	if (request->previous)
		request->previous->next = request->next;
	else
		session->requests = request->next;
	if (request->next)
		request->next->previous = request->previous;
	request->previous = request->next = NULL;
	request->session = NULL;
	session->request_count--;
}

static void answer_late(struct broker *broker, void *arg, const char *why)
{
	struct request *request = arg;
	(void)broker;
	if (!request->session)
		return;
	reply_error(request->session, request->id, KILN_ETIMEDOUT, "%s", why);
	request_close(request);
	request->abandon(request);
}

int request_store(struct request *request, store_work work, store_done done)
{
	const struct session *session = request->session;
	return store_wait(session->broker, session_turn(session), work, done, answer_late, request,
					  NULL);
}
