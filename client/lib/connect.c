/*
 * connect.c: connects a client: the path of the socket, the daemon that is started where none
 * answers, and "hello", which is all that it knows of the protocol.
 */
#include "autostart.h"
#include "client.h"
#include "clock.h"
#include "deadlines.h"
#include "error.h"
#include "link.h"
#include "client/wire/protocol.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *env(const char *name)
{
	const char *value = secure_getenv(name);
	return value && value[0] != 0 ? value : NULL;
}

/* Finds the socket's path.  *shared: its directory is in /tmp, where another user may have made it.
 * *usual: nobody has named the path. */
static int find_path(const char *given, char path[sizeof(((struct sockaddr_un *)0)->sun_path)],
					 bool *shared, bool *usual)
{
	char text[4200];
	size_t room = sizeof(((struct sockaddr_un *)0)->sun_path);
	const char *runtime = env("XDG_RUNTIME_DIR");

	*shared = false;
	if (!given)
		given = env("KILN_SOCKET");
	*usual = given == NULL;
	if (given) {
		snprintf(text, sizeof(text), "%s", given);
	} else if (runtime) {
		snprintf(text, sizeof(text), "%s/kiln/kiln.sock", runtime);
	} else {
		snprintf(text, sizeof(text), "/tmp/kiln-%u/kiln.sock", (unsigned)getuid());
		*shared = true;
	}
	if (text[0] == 0)
		return error_set(KILN_EINVAL, "the socket path is empty");
	if (strlen(text) >= room) {
		return error_set(KILN_EINVAL,
						 "the socket path \"%.60s...\" has %zu bytes and a Unix socket can have "
						 "%zu: set KILN_SOCKET to a shorter one",
						 text, strlen(text), room - 1);
	}
	memcpy(path, text, strlen(text) + 1);
	return KILN_OK;
}

/* Tries once.  KILN_OK; KILN_EAGAIN (nobody listens yet, errno says why); or a failure. */
static int try_connect(struct kiln_client *client)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int wanted = 4 * (int)FRAME_INLINE_MAX, have = 0;
	socklen_t length = sizeof(have);

	memcpy(address.sun_path, client->path, sizeof(address.sun_path));
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return error_set(KILN_EIO, "no socket can be made: %s", strerror(errno));
	if (getsockopt(sock, SOL_SOCKET, SO_SNDBUF, &have, &length) != 0 || have < wanted)
		(void)setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof(wanted));
	if (connect(sock, (struct sockaddr *)&address, sizeof(address)) == 0) {
		client->sock = sock;
		return KILN_OK;
	}
	int error = errno;
	close(sock);
	errno = error;
	switch (error) {
	case EAGAIN: /* the daemon's queue of new connections is full */
	case EINTR:
	case ENOENT:
	case ECONNREFUSED:
		return KILN_EAGAIN;
	case EACCES:
	case EPERM:
		return error_set(KILN_EPERM,
						 "the socket %s may not be used by this user: kilnd must run as the same "
						 "user, or allow it (--allow-uid, --allow-gid)",
						 client->path);
	case EPROTOTYPE:
		return error_set(KILN_EPROTO, "%s is a socket of another program, not of kilnd",
						 client->path);
	default:
		return error_set(KILN_ECONN, "the socket %s cannot be connected to: %s", client->path,
						 strerror(error));
	}
}

static int nobody(const struct kiln_client *client, int error)
{
	struct stat found;
	if (stat(client->path, &found) == 0 && !S_ISSOCK(found.st_mode)) {
		return error_set(KILN_ECONN, "%s is no socket: set KILN_SOCKET to where kilnd listens",
						 client->path);
	}
	if (error == EAGAIN) {
		return error_set(KILN_ETIMEDOUT, "kilnd at %s did not accept before the deadline",
						 client->path);
	}
	return error_set(KILN_ECONN,
					 "no kilnd answers at %s (%s): start one with \"kilnd --socket %s\"",
					 client->path, strerror(error), client->path);
}

#define REASON_SIZE 700

static void nap(int ms)
{
	struct timespec t = {.tv_nsec = (long)ms * 1000000};
	nanosleep(&t, NULL);
}

static int ended_at_once(const struct kiln_client *client, const struct started *started)
{
	char why[REASON_SIZE];
	autostart_reason(client->path, started, why, sizeof(why));
	return error_set(KILN_ECONN, "the kilnd that was started for %s ended at once: %s",
					 client->path, why);
}

/* Waits for the daemon that was started.  If that one ends, another daemon may have won the race
 * for the socket, so connecting goes on for a moment. */
static int connect_started(struct kiln_client *client, const struct started *started,
						   int64_t deadline)
{
	int64_t patience = TIME_NEVER;
	char why[REASON_SIZE];
	for (int pause = PAUSE_CONNECT_FIRST_MS;;
		 pause = pause * 2 < PAUSE_CONNECT_LAST_MS ? pause * 2 : PAUSE_CONNECT_LAST_MS) {
		int status = try_connect(client);
		int error = errno;
		if (status != KILN_EAGAIN)
			return status;
		if (patience == TIME_NEVER && autostart_ended(started, 0))
			patience = time_deadline(DEADLINE_AUTOSTART_MS);
		if (time_left(patience) == 0)
			return ended_at_once(client, started);
		if (time_left(deadline) == 0) {
			autostart_reason(client->path, started, why, sizeof(why));
			return error_set(KILN_ETIMEDOUT,
							 "the kilnd that was started for %s does not answer (%s): %s",
							 client->path, strerror(error), why);
		}
		nap(pause);
	}
}

static int open_socket(struct kiln_client *client, const kiln_connect_options *options, bool usual,
					   int64_t deadline, struct started *started)
{
	int status = try_connect(client);
	while (status == KILN_EAGAIN && (errno == EAGAIN || errno == EINTR) &&
		   time_left(deadline) != 0) {
		nap(PAUSE_CONNECT_FIRST_MS);
		status = try_connect(client);
	}
	if (status != KILN_EAGAIN)
		return status;
	if ((options->flags & KILN_CONNECT_AUTOSTART) == 0 || errno == EAGAIN)
		return nobody(client, errno);
	const char *daemon = options->daemon ? options->daemon : env("KILN_DAEMON");
	status = autostart(client->path, daemon, usual, deadline, started);
	return status == KILN_OK ? connect_started(client, started, deadline) : status;
}

/* Anybody may have put a socket there, so its server must be this user or root. */
static int check_peer(const struct kiln_client *client)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);
	if (getsockopt(client->sock, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
		return error_set(KILN_EIO, "who serves %s cannot be found out: %s", client->path,
						 strerror(errno));
	}
	if (peer.uid != getuid() && peer.uid != 0) {
		return error_set(KILN_EPERM,
						 "%s is served by user %u, not by this user: set KILN_SOCKET if that is "
						 "wanted",
						 client->path, (unsigned)peer.uid);
	}
	return KILN_OK;
}

static int hello(struct kiln_client *client, const kiln_connect_options *options, int64_t deadline)
{
	struct request request;
	struct answer answer;

	link_begin(client, &request, "hello");
	wire_put_int(&request.out, "proto", PROTOCOL_VERSION);
	wire_put_int(&request.out, "oldest", PROTOCOL_OLDEST);
	wire_put_str(&request.out, "version", KILN_VERSION_STRING);
	wire_put_int(&request.out, "pid", getpid());
	wire_put_str(&request.out, "device", options->device);
	wire_put_str(&request.out, "on_miss", options->on_miss);
	wire_put_str(&request.out, "name", getenv("KILN_NAME"));
	if ((options->flags & KILN_CONNECT_BACKGROUND) != 0)
		wire_put_bool(&request.out, "background", true);
	int status = link_ask(client, &request, deadline, &answer);
	if (status != KILN_OK)
		return status;
	const msgpack_object *root = &answer.in.root;
	int64_t proto = wire_get_int(root, "proto", 0);
	const char *version = wire_get_str(&answer.in, root, "version");
	const char *name = wire_get_str(&answer.in, root, "device");
	if (proto < PROTOCOL_OLDEST || proto > PROTOCOL_VERSION) {
		status = error_set(KILN_EVERSION,
						   "kilnd at %s is version %s and speaks protocol %lld; this libkiln is %s "
						   "and speaks %d: stop that kilnd and start the one of this version",
						   client->path, version ? version : "unknown", (long long)proto,
						   KILN_VERSION_STRING, PROTOCOL_VERSION);
	} else if (options->on_miss && wire_get(root, "on_miss") == NULL) {
		status = error_set(KILN_EVERSION,
						   "kilnd at %s is version %s, which knows no on_miss: it would compile",
						   client->path, version ? version : "unknown");
	} else if (!name || strlen(name) >= sizeof(client->device)) {
		status =
			error_set(KILN_EPROTO, "kilnd at %s does not say which device it gives", client->path);
	} else {
		memcpy(client->device, name, strlen(name) + 1);
		client->max_message = wire_get_uint(root, "max_message", 0);
		client->newest_dtype = wire_get_int(root, "dtypes", KILN_C128);
		client->link = LINK_OPEN;
	}
	answer_free(&answer);
	return status;
}

static int client_read_options(const kiln_connect_options *given, kiln_connect_options *options)
{
	*options = (kiln_connect_options){.size = sizeof(*options)};
	if (given) {
		/* Programs built before on_miss pass a shorter struct. */
		if (given->size < offsetof(kiln_connect_options, on_miss)) {
			return error_set(KILN_EINVAL,
							 "options->size is %zu; it must be sizeof(kiln_connect_options), which "
							 "is %zu here",
							 given->size, sizeof(*options));
		}
		int status = error_if_newer(given, sizeof(*options), "kiln_connect_options");
		if (status != KILN_OK)
			return status;
		memcpy(options, given, given->size < sizeof(*options) ? given->size : sizeof(*options));
	}
	const unsigned known = KILN_CONNECT_AUTOSTART | KILN_CONNECT_BACKGROUND;
	if ((options->flags & ~known) != 0) {
		return error_set(KILN_EINVAL, "options->flags is 0x%x; this libkiln %s knows 0x%x",
						 options->flags, KILN_VERSION_STRING, known);
	}
	if (options->timeout_ms < KILN_FOREVER) {
		return error_set(KILN_EINVAL,
						 "options->timeout_ms is %d; it must be milliseconds, 0 for %d, or "
						 "KILN_FOREVER",
						 options->timeout_ms, DEADLINE_CALL_MS);
	}
	if (options->timeout_ms == 0)
		options->timeout_ms = DEADLINE_CALL_MS;
	if (!options->device)
		options->device = env("KILN_DEVICE");
	if (!options->on_miss)
		options->on_miss = env("KILN_CLIENT_ON_MISS");
	return KILN_OK;
}

/* Whether "wire" is among the words of KILN_DEBUG. */
static bool debug_wire(void)
{
	const char *words = env("KILN_DEBUG");
	while (words && *words != 0) {
		size_t n = strcspn(words, ", ");
		if (n == 4 && memcmp(words, "wire", 4) == 0)
			return true;
		words += n + strspn(words + n, ", ");
	}
	return false;
}

int kiln_connect(const kiln_connect_options *given, kiln_client **out)
{
	kiln_connect_options options;
	struct started started = {.watch = -1};
	bool shared = false, usual = false;

	int status = client_read_options(given, &options);
	if (status != KILN_OK)
		return status;
	if (!out)
		return error_set(KILN_EINVAL, "out is NULL; the client cannot be returned");
	struct kiln_client *client = client_new();
	if (!client)
		return error_set(KILN_ENOMEM, "no memory for a client");
	client->debug = debug_wire();
	client->timeout_ms = options.timeout_ms;
	int64_t deadline = client_deadline(client);
	status = find_path(options.socket, client->path, &shared, &usual);
	if (status == KILN_OK)
		status = open_socket(client, &options, usual, deadline, &started);
	if (status == KILN_OK && shared)
		status = check_peer(client);
	if (status == KILN_OK)
		status = hello(client, &options, deadline);
	/* A daemon that listened already may end before it serves: the reason is in its log. */
	if (status == KILN_ECONN && client->link != LINK_OPEN && client->sock >= 0 &&
		autostart_ended(&started, time_deadline(DEADLINE_AUTOSTART_MS)))
		status = ended_at_once(client, &started);
	autostart_end(&started);
	if (status != KILN_OK) {
		kiln_close(client);
		return status;
	}
	*out = client;
	return KILN_OK;
}
