/*
 * scrape.c: see scrape.h.  A peer may be anybody on this host, slow or hostile.  It gets
 * DEADLINE_SCRAPE_MS from its connection to its last byte, and SCRAPE_REQUEST_MAX bytes for its
 * request.  When there are SCRAPES_MOST peers, it loses its place to a newer one.  The text is made
 * anew at most every PAUSE_SCRAPE_MS.
 *
 *   READING --the request is whole, or wrong--> WRITING --written--> CLOSED
 *   READING, WRITING --the deadline, an error, a newer peer--> CLOSED
 */
#include "scrape.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/deadlines.h"
#include "daemon/base/list.h"
#include "daemon/base/util.h"
#include "metrics.h"

#define SCRAPES_MOST 8
#define SCRAPE_REQUEST_MAX 8192

enum scrape_state { SCRAPE_READING, SCRAPE_WRITING, SCRAPE_CLOSED };

struct scrape_peer {
	struct scrape *scrape;
	enum scrape_state state;
	uv_pipe_t stream;
	uv_timer_t clock;
	uv_write_t write;
	int open_handles;
	char request[SCRAPE_REQUEST_MAX + 1];
	size_t used;
	struct util_text answer;
	struct scrape_peer *previous, *next;
};

struct scrape {
	struct broker *broker;
	uv_pipe_t listener; /* libuv takes any stream socket for a pipe */
	char address[sizeof(((struct options_metrics *)0)->text)];
	struct scrape_peer *peers; /* the newest first, none of them CLOSED */
	int count;
	int open_handles;         /* the listener's and peers', CLOSED ones too */
	struct util_text kept[2]; /* by format */
	uint64_t kept_us[2];
};

static void scrape_assert_valid(const struct scrape *scrape)
{
	int count = 0;
	for (const struct scrape_peer *peer = scrape->peers; peer; peer = peer->next)
		count += peer->state != SCRAPE_CLOSED;
	(void)count;
	assert(count == scrape->count && count <= SCRAPES_MOST);
}

/* ---- Ends ---- */

static void scrape_let_go(struct scrape *scrape)
{
	if (--scrape->open_handles > 0)
		return;
	util_text_free(&scrape->kept[0]);
	util_text_free(&scrape->kept[1]);
	free(scrape);
}

static void on_scrape_closed(uv_handle_t *handle)
{
	struct scrape_peer *peer = handle->data;
	if (--peer->open_handles > 0)
		return;
	scrape_let_go(peer->scrape);
	util_text_free(&peer->answer);
	free(peer);
}

static void scrape_drop(struct scrape_peer *peer)
{
	if (peer->state == SCRAPE_CLOSED)
		return;
	peer->state = SCRAPE_CLOSED;
	LIST_REMOVE(peer->scrape->peers, peer);
	peer->scrape->count--;
	uv_close((uv_handle_t *)&peer->stream, on_scrape_closed);
	uv_close((uv_handle_t *)&peer->clock, on_scrape_closed);
	scrape_assert_valid(peer->scrape);
}

static void on_scrape_deadline(uv_timer_t *timer)
{
	scrape_drop(timer->data);
}

static void on_scrape_written(uv_write_t *write, int status)
{
	(void)status;
	scrape_drop(write->data);
}

/* ---- Answers ---- */

static const struct util_text *scrape_text(struct scrape *scrape, enum metrics_format format)
{
	struct util_text *kept = &scrape->kept[format];
	uint64_t now = util_now_us();
	if (kept->text && now - scrape->kept_us[format] < PAUSE_SCRAPE_MS * 1000)
		return kept;
	util_text_free(kept);
	metrics_put(scrape->broker, format, kept);
	scrape->kept_us[format] = now;
	return kept;
}

/* Returns the status line's end of a whole request, or NULL if more has to come. */
static const char *scrape_judge(const struct scrape_peer *peer)
{
	const char *line = peer->request;
	bool whole = strstr(line, "\r\n\r\n") || strstr(line, "\n\n");
	if (strlen(line) != peer->used)
		return "400 Bad Request";
	if (!whole)
		return peer->used < SCRAPE_REQUEST_MAX ? NULL : "431 Request Header Fields Too Large";
	bool head = !strncmp(line, "HEAD ", 5);
	if (!head && strncmp(line, "GET ", 4) != 0)
		return "405 Method Not Allowed";
	line += head ? 5 : 4;
	size_t path = strcspn(line, " \r\n");
	if (strncmp(line + path, " HTTP/1.", 8) != 0)
		return "400 Bad Request";
	return strcspn(line, " ?") == 8 && !strncmp(line, "/metrics", 8) ? "200 OK" : "404 Not Found";
}

static void scrape_answer(struct scrape_peer *peer, const char *status)
{
	static const char *const kinds[] = {
		[METRICS_OPEN] = "application/openmetrics-text; version=1.0.0; charset=utf-8",
		[METRICS_PLAIN] = "text/plain; version=0.0.4; charset=utf-8",
	};
	const bool open = strstr(peer->request, "application/openmetrics-text");
	const enum metrics_format format = open ? METRICS_OPEN : METRICS_PLAIN;
	const struct util_text refusal = {.text = (char *)status, .size = strlen(status)}, *body;
	const bool good = !strncmp(status, "200", 3);
	body = good ? scrape_text(peer->scrape, format) : &refusal;
	util_text_add(&peer->answer,
				  "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: "
				  "close\r\n\r\n",
				  status, good ? kinds[format] : "text/plain", body->size);
	if (strncmp(peer->request, "HEAD ", 5) != 0)
		util_text_bytes(&peer->answer, body->text, body->size);
	const uv_buf_t piece = uv_buf_init(peer->answer.text, (unsigned)peer->answer.size);
	peer->state = SCRAPE_WRITING;
	peer->write.data = peer;
	uv_read_stop((uv_stream_t *)&peer->stream);
	if (body->failed || peer->answer.failed ||
		uv_write(&peer->write, (uv_stream_t *)&peer->stream, &piece, 1, on_scrape_written) < 0)
		scrape_drop(peer);
}

/* ---- Requests ---- */

static void scrape_room(uv_handle_t *handle, size_t wanted, uv_buf_t *room)
{
	struct scrape_peer *peer = handle->data;
	(void)wanted;
	*room = uv_buf_init(peer->request + peer->used, (unsigned)(SCRAPE_REQUEST_MAX - peer->used));
}

static void on_scrape_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *room)
{
	struct scrape_peer *peer = stream->data;
	(void)room;
	if (got < 0) {
		scrape_drop(peer);
		return;
	}
	peer->used += (size_t)got;
	peer->request[peer->used] = 0;
	const char *status = scrape_judge(peer);
	if (status)
		scrape_answer(peer, status);
}

static void on_scrape(uv_stream_t *listener, int status)
{
	struct scrape *scrape = listener->data;
	struct scrape_peer *peer = calloc(1, sizeof(*peer)), *oldest = scrape->peers;
	if (status < 0 || !peer) {
		free(peer);
		return;
	}
	while (oldest && oldest->next)
		oldest = oldest->next;
	if (scrape->count == SCRAPES_MOST)
		scrape_drop(oldest);
	peer->scrape = scrape;
	peer->stream.data = peer->clock.data = peer;
	peer->open_handles = 2;
	scrape->open_handles++;
	uv_pipe_init(listener->loop, &peer->stream, 0);
	uv_timer_init(listener->loop, &peer->clock);
	LIST_PUSH(scrape->peers, peer);
	scrape->count++;
	uv_timer_start(&peer->clock, on_scrape_deadline, DEADLINE_SCRAPE_MS, 0);
	if (uv_accept(listener, (uv_stream_t *)&peer->stream) < 0 ||
		uv_read_start((uv_stream_t *)&peer->stream, scrape_room, on_scrape_read) < 0)
		scrape_drop(peer);
}

/* ---- Listening ---- */

/* Binds a Unix socket, for the daemon's user alone, in place of one that nobody listens at. */
static int bind_local(int fd, const struct options_metrics *where)
{
	const struct sockaddr_un *at = &where->at.local;
	struct stat status;
	int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (lstat(at->sun_path, &status) == 0 && S_ISSOCK(status.st_mode) &&
		connect(probe, &where->at.any, where->size) < 0 && errno == ECONNREFUSED)
		unlink(at->sun_path);
	close(probe);
	mode_t mask = umask(0177);
	int bound = bind(fd, &where->at.any, where->size), why = errno;
	umask(mask);
	errno = why;
	return bound;
}

/* Writes where the socket is: the port of an address that left it to the system. */
static void say_address(const struct options_metrics *where, int fd, struct scrape *scrape)
{
	union options_address at = {.ip4 = {.sin_family = AF_UNSPEC}};
	socklen_t size = sizeof(at);
	const char *colon = strrchr(where->text, ':');
	getsockname(fd, &at.any, &size);
	if (where->at.any.sa_family == AF_UNIX)
		snprintf(scrape->address, sizeof(scrape->address), "%s", where->text);
	else
		snprintf(scrape->address, sizeof(scrape->address), "%.*s:%u", (int)(colon - where->text),
				 where->text,
				 ntohs(at.any.sa_family == AF_INET ? at.ip4.sin_port : at.ip6.sin6_port));
}

int scrape_open(struct broker *broker, char error[KERNEL_ERROR_MAX])
{
	const struct options_metrics *where = &broker->options.metrics;
	if (!where->text[0])
		return KILN_OK;
	int on = 1, fd = socket(where->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct scrape *scrape = util_alloc(sizeof(*scrape));
	scrape->broker = broker;
	scrape->listener.data = scrape;
	scrape->open_handles = 1;
	broker->scrape = scrape;
	uv_pipe_init(&broker->loop, &scrape->listener, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	int bound = where->at.any.sa_family == AF_UNIX ? bind_local(fd, where)
												   : bind(fd, &where->at.any, where->size);
	int status = bound < 0 ? -errno : uv_pipe_open(&scrape->listener, fd);
	if (status == 0)
		status = uv_listen((uv_stream_t *)&scrape->listener, SCRAPES_MOST, on_scrape);
	if (status < 0) {
		if (fd >= 0 && bound < 0)
			close(fd);
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EIO, "--metrics %s: cannot listen there: %s",
						 where->text, uv_strerror(status));
	}
	say_address(where, fd, scrape);
	util_log(UTIL_INFO, "metrics are at %s", scrape->address);
	return KILN_OK;
}

static void on_listener_closed(uv_handle_t *handle)
{
	scrape_let_go(handle->data);
}

void scrape_close(struct broker *broker)
{
	struct scrape *scrape = broker->scrape;
	if (!scrape)
		return;
	while (scrape->peers)
		scrape_drop(scrape->peers);
	if (scrape->address[0] && broker->options.metrics.at.any.sa_family == AF_UNIX)
		unlink(broker->options.metrics.at.local.sun_path);
	broker->scrape = NULL;
	uv_close((uv_handle_t *)&scrape->listener, on_listener_closed);
}

const char *scrape_address(const struct broker *broker)
{
	return broker->scrape ? broker->scrape->address : "";
}
