/*
 * link.c: the traffic of one connection: numbers requests, matches replies, queues what the socket
 * does not take yet, and notices that the daemon is gone.  It must not know what requests mean.
 */
#include "link.h"
#include "client.h"
#include "clock.h"
#include "error.h"
#include "lane.h"
#include "printed.h"
#include "ticket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- KILN_DEBUG=wire ---- */

static void show(const struct kiln_client *client, const char *arrow, const msgpack_object *root)
{
	char line[2048], text[1900];
	double since = (double)(time_now_us() - client->born_us);
	wire_print(root, text, sizeof(text));
	int n = snprintf(line, sizeof(line), "kiln[%d] %+.6f %s %s\n", (int)client->pid, since / 1e6,
					 arrow, text);
	/* One write() for a line, so that lines of several processes do not mix. */
	if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

static void show_sent(const struct kiln_client *client, const struct wire_out *out)
{
	struct wire_in in;
	if (wire_parse(&in, out->buffer.data, out->buffer.size) == KILN_OK) {
		show(client, "->", &in.root);
		wire_in_free(&in);
	}
}

/* ---- Questions ---- */

void link_expect(struct kiln_client *client, struct question *question)
{
	question->next = client->questions;
	client->questions = question;
}

void link_withdraw(struct kiln_client *client, const struct question *question)
{
	struct question **link = &client->questions;
	while (*link && *link != question)
		link = &(*link)->next;
	if (*link)
		*link = question->next;
}

/* Hands the reply to its question; false: it answers none. */
static bool answer_question(struct kiln_client *client, uint64_t id, int64_t status,
							struct answer *answer)
{
	struct question *question = client->questions;
	while (question && question->id != id)
		question = question->next;
	if (!question)
		return false;
	link_withdraw(client, question);
	question->take(question, status, answer);
	return true;
}

/* ---- The end ---- */

/* Ends the link, every ticket and every question. */
static int lost(struct kiln_client *client, int status, const char *how)
{
	char text[sizeof(client->dead_text) + 96];
	client->link = LINK_DEAD;
	snprintf(client->dead_text, sizeof(client->dead_text), "kilnd at %s %s", client->path, how);
	snprintf(text, sizeof(text),
			 "%s while the call was in flight; close this client and connect again",
			 client->dead_text);
	lane_lost(client, KILN_ECONN, text);
	ticket_finish_all(&client->tickets, KILN_ECONN, text);
	while (client->questions)
		(void)answer_question(client, client->questions->id, KILN_ECONN, NULL);
	frame_queue_free(&client->queue);
	return status;
}

/* ---- Receiving ---- */

static const char *answer_str(struct answer *answer, const char *key)
{
	return wire_get_str(&answer->in, &answer->in.root, key);
}

/* Gives back what the reply to a request that timed out has brought. */
static void late_reply(struct kiln_client *client, struct answer *answer, uint64_t id, int64_t st)
{
	for (size_t i = 0; i < client->late_count; i++) {
		if (client->late[i].id != id)
			continue;
		bool buffer = client->late[i].undo == UNDO_BUFFER;
		const char *key = buffer ? "buf" : "call";
		uint64_t object = wire_get_uint(&answer->in.root, key, 0);
		client->late[i] = client->late[--client->late_count];
		if (st == KILN_OK && object != 0) {
			struct request request;
			link_begin(client, &request, buffer ? "free" : "release");
			wire_put_uint(&request.out, key, object);
			(void)link_post(client, &request, SIZE_MAX);
		}
		return;
	}
}

/* Remembers to give back what the reply brings when it comes. */
static void link_give_up(struct kiln_client *client, const struct request *request)
{
	if (request->undo == UNDO_NOTHING)
		return;
	struct late *late = realloc(client->late, (client->late_count + 1) * sizeof(*late));
	if (late) {
		late[client->late_count++] = (struct late){request->id, request->undo};
		client->late = late;
	}
}

/* Handles an event; unknown ones mean nothing to this version. */
static void handle_event(struct kiln_client *client, struct answer *event)
{
	const char *what = answer_str(event, "what"), *why = answer_str(event, "err");
	int64_t status = wire_get_int(&event->in.root, "st", KILN_EDEVICE);
	if (what && strcmp(what, "printed") == 0)
		printed_keep(client, &event->in.root);
	if (what && strcmp(what, "lane.lost") == 0) {
		lane_lost(client, status < 0 && status > INT32_MIN ? (int)status : KILN_EDEVICE,
				  why != NULL ? why : "the device process ended");
	}
}

/* Receives one message.  KILN_OK: it was handled, or it is the reply to `want` and is in *answer.
 */
static int receive(struct kiln_client *client, uint64_t want, struct answer *answer, bool *matched)
{
	struct answer got;
	char how[200];

	memset(&got, 0, sizeof(got));
	*matched = false;
	int status = frame_recv(client->sock, &got.frame, LINK_REPLY_MAX);
	if (status == KILN_EAGAIN)
		return status;
	if (status == KILN_ECONN)
		return lost(client, KILN_ECONN, "went away");
	if (status != KILN_OK) {
		snprintf(how, sizeof(how), "sent what cannot be read: %s", got.frame.why);
		frame_free(&got.frame);
		return lost(client, status == KILN_ELIMIT ? KILN_EPROTO : status, how);
	}
	status = wire_parse(&got.in, got.frame.data, got.frame.size);
	if (status != KILN_OK) {
		snprintf(how, sizeof(how), "sent what cannot be read: %s", got.in.why);
		answer_free(&got);
		return lost(client, status, how);
	}
	if (client->debug)
		show(client, "<-", &got.in.root);
	bool reply = strcmp(wire_type(&got.in), "reply") == 0;
	int64_t st = wire_get_int(&got.in.root, "st", 1);
	uint64_t id = wire_id(&got.in);
	/* A daemon that turns the client away says so before it reads hello, so this is hello's answer.
	 */
	if (id == 0 && st < 0 && client->link == LINK_GREETING)
		id = want;
	/* The daemon ends the connection because of a request that it could not read. */
	if (reply && id == 0 && st < 0 && st >= INT32_MIN && answer_str(&got, "err") != NULL) {
		snprintf(how, sizeof(how), "ended the connection: %s", answer_str(&got, "err"));
		answer_free(&got);
		return lost(client, (int)st, how);
	}
	if (reply && (id == 0 || st > 0 || st < INT32_MIN)) {
		answer_free(&got);
		return lost(client, KILN_EPROTO, "sent a reply without id or status");
	}
	if (reply && id == want) {
		*answer = got;
		*matched = true;
		return KILN_OK;
	}
	struct ticket *ticket = reply ? ticket_find(&client->tickets, id) : NULL;
	if (ticket) {
		ticket->micros = wire_get_real(&got.in.root, "micros", 0);
		lane_answer(client, id, &got);
		ticket_finish(&client->tickets, ticket, (int)st, st < 0 ? answer_str(&got, "err") : NULL,
					  st < 0 ? answer_str(&got, "log") : NULL);
	} else if (reply && !answer_question(client, id, st, &got)) {
		late_reply(client, &got, id, st);
	}
	if (!reply)
		handle_event(client, &got);
	answer_free(&got);
	return KILN_OK;
}

static int flush(struct kiln_client *client)
{
	int status = frame_queue_flush(&client->queue, client->sock);
	if (status == KILN_OK || status == KILN_EAGAIN || status == KILN_ECONN)
		return KILN_OK; /* reading notices the end, after the last messages of the daemon */
	return lost(client, KILN_ECONN, "cannot be sent to any more");
}

/* Handles all messages that have arrived, or those up to the reply to `want`. */
static int drain_until(struct kiln_client *client, uint64_t want, struct answer *answer,
					   bool *matched)
{
	*matched = false;
	if (client->link == LINK_DEAD)
		return KILN_ECONN;
	int status = flush(client);
	while (status == KILN_OK && !*matched)
		status = receive(client, want, answer, matched);
	return status == KILN_EAGAIN ? KILN_OK : status;
}

int link_drain(struct kiln_client *client)
{
	bool matched;
	int status = drain_until(client, 0, NULL, &matched);
	return status == KILN_OK ? KILN_OK : KILN_ECONN;
}

/* Waits until the socket may have something.  KILN_OK or KILN_ETIMEDOUT. */
static int wait_ready(struct kiln_client *client, int64_t deadline)
{
	for (;;) {
		short events = (short)(POLLIN | (client->queue.count > 0 ? POLLOUT : 0));
		struct pollfd watch = {.fd = client->sock, .events = events};
		int left = time_left(deadline);
		int n = poll(&watch, 1, left);
		if (n > 0)
			return KILN_OK;
		if (n < 0 && errno != EINTR)
			return lost(client, KILN_ECONN, "cannot be waited for");
		if (left == 0)
			return KILN_ETIMEDOUT;
	}
}

int link_wait(struct kiln_client *client, int64_t deadline)
{
	if (client->link == LINK_DEAD)
		return KILN_ECONN;
	int status = wait_ready(client, deadline);
	return status == KILN_OK ? link_drain(client) : status;
}

/* ---- Sending ---- */

void link_begin(struct kiln_client *client, struct request *request, const char *name)
{
	request->name = name;
	request->id = ++client->next_id;
	request->fd = -1;
	request->undo = UNDO_NOTHING;
	wire_begin(&request->out, name, request->id);
}

int link_dead(const struct kiln_client *client)
{
	return error_set(KILN_ECONN, "%s; close this client and connect again", client->dead_text);
}

static int dead_error(const struct kiln_client *client, const struct request *request, int status)
{
	return error_set(status, "%s while \"%s\" was in flight; close this client and connect again",
					 client->dead_text, request->name);
}

/* Sends or queues.  ECONN sets no message: the daemon has closed the socket, but its last messages
 * have not been read. */
static int send_request(struct kiln_client *client, struct request *request, size_t queue_limit)
{
	struct wire_out *out = &request->out;
	int status = wire_end(out);
	if (status != KILN_OK) {
		return error_set(status, "the request \"%s\" could not be built: %s", request->name,
						 kiln_status_text(status));
	}
	if (client->max_message > 0 && out->buffer.size > client->max_message) {
		return error_set(
			KILN_ELIMIT, "the request \"%s\" has %zu bytes; kilnd at %s takes at most %llu",
			request->name, out->buffer.size, client->path, (unsigned long long)client->max_message);
	}
	if (client->debug)
		show_sent(client, out);
	status = frame_queue_send(&client->queue, client->sock, out->buffer.data, out->buffer.size,
							  &request->fd, request->fd >= 0 ? 1 : 0, queue_limit);
	if (status == KILN_ELIMIT) {
		return error_set(KILN_EAGAIN,
						 "kilnd at %s has not read %d calls submitted before: wait for some first",
						 client->path, client->queue.count);
	}
	if (status != KILN_OK && status != KILN_ECONN) {
		return error_set(status, "the request \"%s\" could not be sent: %s", request->name,
						 strerror(errno));
	}
	return status;
}

int link_post(struct kiln_client *client, struct request *request, size_t queue_limit)
{
	int status = KILN_ECONN;
	if (client->link == LINK_DEAD) {
		link_dead(client);
	} else {
		status = send_request(client, request, queue_limit);
		if (status == KILN_ECONN) {
			(void)link_drain(client);
			if (client->link != LINK_DEAD)
				lost(client, KILN_ECONN, "went away");
			dead_error(client, request, status);
		}
	}
	wire_out_free(&request->out);
	return status;
}

/* Waits for the reply to a request that was sent. */
static int await(struct kiln_client *client, struct request *request, int64_t deadline,
				 struct answer *answer)
{
	for (;;) {
		bool matched;
		int status = drain_until(client, request->id, answer, &matched);
		if (status != KILN_OK)
			return dead_error(client, request, status);
		if (matched)
			return KILN_OK;
		status = wait_ready(client, deadline);
		if (status == KILN_ETIMEDOUT) {
			link_give_up(client, request);
			return error_set(status, "kilnd at %s did not answer \"%s\" before the deadline",
							 client->path, request->name);
		}
		if (status != KILN_OK)
			return dead_error(client, request, status);
	}
}

int link_ask(struct kiln_client *client, struct request *request, int64_t deadline,
			 struct answer *answer)
{
	struct answer got;
	if (client->link == LINK_DEAD) {
		wire_out_free(&request->out);
		return link_dead(client);
	}
	int status = send_request(client, request, SIZE_MAX);
	wire_out_free(&request->out);
	if (status == KILN_OK || status == KILN_ECONN)
		status = await(client, request, deadline, &got);
	if (status != KILN_OK)
		return status;
	status = (int)wire_get_int(&got.in.root, "st", KILN_EPROTO);
	if (status != KILN_OK) {
		error_set_peer(status, answer_str(&got, "err"), answer_str(&got, "log"));
		answer_free(&got);
	} else if (answer) {
		*answer = got;
	} else {
		answer_free(&got);
	}
	return status;
}
