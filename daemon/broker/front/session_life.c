/* session_life.c: how a session begins and ends. */
#include "session_life.h"

#include <stdlib.h>

#include "peer_admit.h"
#include "daemon/base/closer.h"
#include "daemon/base/util.h"
#include "daemon/broker/calls/lane.h"
#include "daemon/broker/calls/work.h"
#include "daemon/broker/devices/events.h"
#include "daemon/broker/devices/handle.h"
#include "daemon/broker/devices/pool/alt_compiler.h"
#include "daemon/broker/kernels/raw.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/broker/requests/request.h"
#include "peer.h"
#include "peer_descriptors.h"

/* ---- Ending ---- */

static void leave_executor(struct session *session)
{
	struct device_handle *executor = session->executor;
	struct wire_out message;
	if (!executor)
		return;
	handle_forget(executor, session);
	handle_disown(executor, session);
	if (!handle_is_ready(executor))
		return;
	uint64_t id = handle_begin(executor, &message, "end");
	wire_put_uint(&message, "stream", session->stream);
	handle_post(executor, &message, id);
}

/* The order matters: works use buffers and calls, and all of them the device processes. */
static void free_owned(struct session *session)
{
	requests_abandon(session);
	works_free(session);
	shapes_free(session);
	owned_free(session);
	raw_close_budget(session);
	alt_compiler_close(session->alt_compiler);
	session->alt_compiler = NULL;
	if (session->own)
		handle_end(session->own);
	session->own = NULL;
	lane_drop(session);
	leave_executor(session);
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

void session_end(struct session *session)
{
	peer_end(session->peer);
}

void session_close(struct session *session)
{
	if (session->state == SESSION_CLOSED)
		return;
	session_assert_valid(session);
	session->state = SESSION_CLOSED;
	peer_close(session->peer);
	session_unlink(session);
	free_owned(session);
	admit_leave(session);
	if (session->executor)
		handle_left(session->executor);
	keep_tally(session);
	session_assert_valid(session);
}

/* ---- Beginning ---- */

static void on_message(void *arg, struct wire_in *message, struct frame *frame)
{
	struct session *session = arg;
	session->broker->events->message(session, message, frame);
}

static void on_end(void *arg)
{
	session_close(arg);
}

static void on_freed(void *arg)
{
	struct session *session = arg;
	struct broker *broker = session->broker;
	free(session);
	broker_progress(broker);
}

static const struct peer_owner owner = {on_message, on_end, on_freed};

static struct session *session_life_make(struct broker *broker, int sock,
										 const struct peer_identity *who)
{
	struct session *session = session_new(broker, who->uid, who->gid, who->pid);
	if (!session)
		return NULL;
	if (works_open(session) && owned_open(session))
		session->peer = peer_open(broker, sock, session->id, who, &owner, session);
	if (session->peer) {
		session->send = peer_send;
		return session;
	}
	works_free(session);
	owned_free(session);
	session_unlink(session);
	free(session);
	return NULL;
}

void session_open(struct broker *broker, int sock)
{
	struct peer_identity who;
	char error[KERNEL_ERROR_MAX];
	struct session *crowded;
	int status = admit_peer(&broker->options, sock, &who, error);
	if (status == KILN_OK && !rights_allow(who.uid, sock))
		status = util_fail(error, sizeof(error), KILN_ELIMIT, "%s; try again later",
						   rights_full_text(who.uid));
	if (status != KILN_OK) {
		admit_turn_away(broker, sock, status, error);
		return;
	}
	while ((crowded = admit_crowded_out(broker)))
		session_close(crowded);
	if (!session_life_make(broker, sock, &who)) {
		closer_put_socket(sock);
		return;
	}
	broker->silent_count++;
	broker->counters.sessions++;
}
