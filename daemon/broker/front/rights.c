/* rights.c: descriptors that clients send (SCM_RIGHTS): whether any may come, those that go on to a
 * command, and the sessions of a uid whose descriptors cannot be closed. */
#include <sys/socket.h>

#include "admit.h"
#include "daemon/base/closer.h"
#include "daemon/base/deadlines.h"
#include "session.h"
#include "daemon/base/util.h"

static void put_away(void *arg, int fd)
{
	const struct session *session = arg;
	closer_put(session->uid, fd);
}

void rights_open(struct session *session)
{
	session->closer = (struct frame_closer){put_away, session};
	session->queue.closer = &session->closer;
	session->queue.fd_below = admit_descriptors(session->uid);
}

void rights_take(struct session *session)
{
	int on = 1;
	setsockopt(session->sock, SOL_SOCKET, CLOSER_PASSRIGHTS, &on, sizeof(on));
}

static int say_full(uint32_t uid, char text[KERNEL_ERROR_MAX])
{
	return util_fail(text, KERNEL_ERROR_MAX, KILN_ELIMIT,
					 "kilnd cannot close the descriptors that programs of uid %u have sent: they "
					 "are sockets that linger, or files of a file system that does not answer; end "
					 "those programs",
					 (unsigned)uid);
}

static void on_held(uv_timer_t *timer)
{
	struct session *session = timer->data;
	char text[KERNEL_ERROR_MAX];
	int status = say_full(session->uid, text);
	util_log(UTIL_WARN, "session %llu (pid %d) was ended: %s", (unsigned long long)session->id,
			 session->pid, text);
	reply_error(session, 0, status, "%s", text);
	session_close(session);
}

bool rights_hold(struct session *session)
{
	if (!closer_is_full(session->uid))
		return false;
	session->held = true;
	uv_timer_start(&session->hello_timer, on_held, DEADLINE_CLOSER_MS, 0);
	return true;
}

void rights_release(struct broker *broker)
{
	for (struct session *session = broker->sessions; session; session = session->next) {
		if (!session->held || closer_is_full(session->uid))
			continue;
		session->held = false;
		if (session->greeted)
			uv_timer_stop(&session->hello_timer);
		else
			session_await_hello(session);
		session_watch(session);
	}
}
