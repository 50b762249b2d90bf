/* session.c: the table of sessions. */
#include "session.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/base/list.h"
#include "daemon/base/trace.h"

struct session *session_new(struct broker *broker, uint32_t uid, uint32_t gid, int32_t pid)
{
	struct session *session = calloc(1, sizeof(*session));
	uint64_t id = broker_id(broker);
	if (!session || map_put_id(&broker->sessions_by_id, id, session) < 0) {
		free(session);
		return NULL;
	}
	session->broker = broker;
	session->id = session->stream = id;
	session->uid = uid;
	session->gid = gid;
	session->pid = pid;
	session->asks = "";
	LIST_PUSH(broker->sessions, session);
	return session;
}

void session_unlink(struct session *session)
{
	struct broker *broker = session->broker;
	LIST_REMOVE(broker->sessions, session);
	map_remove_id(&broker->sessions_by_id, session->id);
}

struct session *session_find(const struct broker *broker, uint64_t id)
{
	return map_get_id(&broker->sessions_by_id, id);
}

struct turn_owner session_turn(const struct session *session)
{
	return session ? (struct turn_owner){session->uid, session->id} : TURN_NOBODY;
}

bool session_is_owner(const struct session *session)
{
	return session->uid == getuid() || session->uid == 0;
}

uint64_t session_track(const struct session *session, uint64_t number)
{
	struct trace *trace = session->broker->trace;
	char name[64];
	snprintf(name, sizeof(name), "session %llu (pid %d, uid %u)", (unsigned long long)session->id,
			 session->pid, session->uid);
	uint64_t parent = trace_track(trace, 0, session->id, name);
	return number ? trace_track(trace, parent, number, name) : parent;
}

void session_assert_valid(const struct session *session)
{
	bool is_seated = session->state == SESSION_SEATED || session->state == SESSION_GREETED;
	(void)is_seated;
	assert(is_seated == (session->place != PLACE_NONE) || session->state == SESSION_CLOSED);
	assert(!session->device == !session->executor);
	assert(session->state == SESSION_CLOSED ||
		   session_find(session->broker, session->id) == session);
	assert(session->state != SESSION_CLOSED || !session->request_count);
	assert(!session->request_count == !session->requests);
}
