/* accept.c: the listening socket in the loop. */
#include "accept.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/closer.h"
#include "daemon/base/deadlines.h"
#include "daemon/base/util.h"
#include "listen.h"
#include "peer_admit.h"
#include "peer_descriptors.h"
#include "session_life.h"

#define ACCEPTS_A_TURN 32

enum accept_state { ACCEPT_CLOSED, ACCEPT_LISTENING, ACCEPT_RESTING };

struct acceptor {
	enum accept_state state;
	struct listen_socket socket;
	uv_poll_t poll;
	uv_timer_t rest, look;
	int spare; /* a descriptor to give up when there are none left: a client can be turned away */
	bool lost; /* the socket's path is gone, and the log says so */
	bool crowded; /* strangers' descriptors cannot be closed, and the log says so */
};

static void accept_assert_valid(const struct acceptor *acceptor)
{
	(void)acceptor;
	assert((acceptor->state == ACCEPT_LISTENING) ==
		   (uv_is_active((const uv_handle_t *)&acceptor->poll) != 0));
	assert((acceptor->state == ACCEPT_RESTING) ==
		   (uv_is_active((const uv_handle_t *)&acceptor->rest) != 0));
}

const char *accept_path(const struct broker *broker)
{
	return broker->acceptor->socket.path;
}

/* Turns a client away for want of descriptors, instead of spinning on a socket that stays readable.
 * False if nobody waited: without a descriptor to give, accept4 says EMFILE before it looks. */
static bool turn_away(struct broker *broker)
{
	struct acceptor *acceptor = broker->acceptor;
	char error[KERNEL_ERROR_MAX];
	if (acceptor->spare >= 0)
		close(acceptor->spare);
	int fd = accept4(acceptor->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		int status = util_fail(error, sizeof(error), KILN_ELIMIT, "%s; try again later",
							   rights_full_text(getuid()));
		admit_turn_away(broker, fd, status, error);
		util_log(UTIL_WARN, "a client was turned away: %s", strerror(EMFILE));
	}
	acceptor->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return fd >= 0;
}

static void on_connection(uv_poll_t *poll, int status, int events);

static void listen_now(struct acceptor *acceptor)
{
	acceptor->state = ACCEPT_LISTENING;
	uv_timer_stop(&acceptor->rest);
	uv_poll_start(&acceptor->poll, UV_READABLE, on_connection);
	accept_assert_valid(acceptor);
}

static void on_rested(uv_timer_t *timer)
{
	struct broker *broker = timer->data;
	listen_now(broker->acceptor);
}

static void rest(struct acceptor *acceptor)
{
	acceptor->state = ACCEPT_RESTING;
	uv_poll_stop(&acceptor->poll);
	uv_timer_start(&acceptor->rest, on_rested, PAUSE_SERVER_ACCEPT_MS, 0);
	accept_assert_valid(acceptor);
}

/* Descriptors that strangers send into sockets that are turned away have no bound there: before
 * Linux 6.16 they come with the connection. */
static bool is_crowded(struct acceptor *acceptor)
{
	uint32_t uid;
	bool is_now = closer_is_crowded(&uid);
	if (is_now && !acceptor->crowded)
		util_log(UTIL_WARN,
				 "no new connections are taken until old ones are closed: programs of uid %u have "
				 "sent descriptors there that cannot be closed (sockets that linger, files of a "
				 "file system that does not answer); end those programs",
				 (unsigned)uid);
	else if (!is_now && acceptor->crowded)
		util_log(UTIL_INFO, "new connections are taken again");
	acceptor->crowded = is_now;
	return is_now;
}

/* Returns false when no other client waits, or none can be taken in for a while. */
static bool take_one(struct broker *broker)
{
	struct acceptor *acceptor = broker->acceptor;
	int fd = is_crowded(acceptor)
				 ? -1
				 : accept4(acceptor->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		session_open(broker, fd);
		return true;
	}
	if (!acceptor->crowded && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
		return errno != EAGAIN;
	if (!acceptor->crowded && (errno == EMFILE || errno == ENFILE) && turn_away(broker))
		return true;
	rest(acceptor);
	return false;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct broker *broker = poll->data;
	(void)events;
	for (int i = 0; status == 0 && i < ACCEPTS_A_TURN && take_one(broker); i++)
		;
}

/* A program that tidies up may remove the socket of a daemon that runs, or its directory: no new
 * client would find the daemon, and no other daemon could take its place. */
void accept_look(struct broker *broker)
{
	struct acceptor *acceptor = broker->acceptor;
	char error[KERNEL_ERROR_MAX];
	if (acceptor->state == ACCEPT_CLOSED || !listen_is_lost(&acceptor->socket))
		return;
	/* The loop must not watch a descriptor that becomes another socket. */
	uv_poll_stop(&acceptor->poll);
	int status = listen_again(&acceptor->socket, error);
	listen_now(acceptor);
	if (status == KILN_OK)
		util_log(UTIL_WARN, "the socket %s was removed; it was made anew", acceptor->socket.path);
	else if (!acceptor->lost)
		util_log(UTIL_WARN, "the socket %s was removed: %s", acceptor->socket.path, error);
	acceptor->lost = status != KILN_OK;
}

static void on_accept_look(uv_timer_t *timer)
{
	accept_look(timer->data);
}

#ifdef KILN_TEST_HOOKS
void accept_admit_rights(struct broker *broker)
{
	rights_admit(broker->acceptor->socket.fd);
}
#endif

/* ---- Life ---- */

void accept_open(struct broker *broker)
{
	struct acceptor *acceptor = util_alloc(sizeof(*acceptor));
	broker->acceptor = acceptor;
	acceptor->socket.fd = acceptor->socket.lock = -1;
	acceptor->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	acceptor->poll.data = acceptor->rest.data = acceptor->look.data = broker;
	uv_timer_init(&broker->loop, &acceptor->rest);
	uv_timer_init(&broker->loop, &acceptor->look);
}

int accept_bind(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	return listen_open(&broker->acceptor->socket, &broker->options, error);
}

void accept_start(struct broker *broker)
{
	struct acceptor *acceptor = broker->acceptor;
	uv_poll_init(&broker->loop, &acceptor->poll, acceptor->socket.fd);
	listen_now(acceptor);
	uv_timer_start(&acceptor->look, on_accept_look, PAUSE_SERVER_LOOK_MS, PAUSE_SERVER_LOOK_MS);
}

void accept_stop(struct broker *broker)
{
	struct acceptor *acceptor = broker->acceptor;
	acceptor->state = ACCEPT_CLOSED;
	uv_timer_stop(&acceptor->rest);
	uv_close((uv_handle_t *)&acceptor->poll, NULL);
	listen_close(&acceptor->socket);
}

void accept_close(struct broker *broker)
{
	uv_close((uv_handle_t *)&broker->acceptor->rest, NULL);
	uv_close((uv_handle_t *)&broker->acceptor->look, NULL);
}

void accept_free(struct broker *broker)
{
	struct acceptor *acceptor = broker->acceptor;
	listen_close(&acceptor->socket);
	close(acceptor->spare);
	free(acceptor);
	broker->acceptor = NULL;
}
