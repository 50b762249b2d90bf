/*
 * remote_link.c: hiredis on the broker's loop.  remote_name.c looks up names, for hiredis would
 * block.  Every callback of hiredis comes with a call that holds the link, so the link outlives
 * hiredis's use of it.
 */
#include "remote_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <hiredis/async.h>
#include <stdlib.h>
#include <string.h>

#include "reply_guard.h"
#include "remote_name.h"
#include "remote_poll.h"
#include "daemon/base/util.h"

#define PINGS 3

struct remote_link {
	struct remote_url url;
	struct remote_link_events events;
	void *owner; /* NULL: the link was lost or closed */
	uv_loop_t *loop;
	struct remote_name *name; /* NULL unless the address is looked up */
	uv_timer_t *soon;         /* begins to connect; NULL once it has fired */
	redisAsyncContext *context;
	int holders, pending;
	uint64_t pinged_us, best_us;
	int pings;
	char why[KERNEL_ERROR_MAX];
};

struct call {
	struct remote_link *link;
	remote_answered answered;
	void *arg;
};

static void drop(struct remote_link *link)
{
	if (--link->holders == 0)
		free(link);
}

static void disconnect(struct remote_link *link)
{
	redisAsyncContext *context = link->context;
	link->context = NULL;
	if (!context)
		return;
	context->data = NULL;
	redisAsyncFree(context);
}

static void on_timer_closed(uv_handle_t *handle)
{
	free(handle);
}

static void close_timer(struct remote_link *link)
{
	if (link->soon)
		uv_close((uv_handle_t *)link->soon, on_timer_closed);
	link->soon = NULL;
}

/* Tells the owner, which is still there, once; the owner then closes the link. */
static void remote_link_fail(struct remote_link *link, const char *why)
{
	void *owner = link->owner;
	char text[KERNEL_ERROR_MAX];
	snprintf(text, sizeof(text), "%s", why);
	plain_clean(text, sizeof(text), PLAIN_LINE); /* the Redis may have said it */
	link->owner = NULL;
	disconnect(link);
	link->events.lost(owner, text);
}

/* ---- Commands ---- */

static void on_reply(redisAsyncContext *context, void *reply, void *arg)
{
	const redisReply *from = reply;
	struct call *call = arg;
	struct remote_link *link = call->link;
	struct remote_reply to = {.kind = REMOTE_LOST};
	(void)context;
	if (from && from->type == REDIS_REPLY_NIL)
		to.kind = REMOTE_NIL;
	else if (from && from->type == REDIS_REPLY_INTEGER)
		to = (struct remote_reply){.kind = REMOTE_NUMBER, .number = from->integer};
	else if (from && (from->type == REDIS_REPLY_STRING || from->type == REDIS_REPLY_STATUS))
		to = (struct remote_reply){REMOTE_BYTES, from->str, from->len, 0};
	else if (from && from->type == REDIS_REPLY_ERROR)
		to = (struct remote_reply){REMOTE_ERROR, from->str, from->len, 0};
	else if (from)
		to = (struct remote_reply){.kind = REMOTE_ERROR, .bytes = "an answer of an unknown kind"};
	link->pending--;
	if (call->answered)
		call->answered(call->arg, &to);
	free(call);
	drop(link);
}

void remote_word_bytes(struct remote_command *command, const void *bytes, size_t size)
{
	command->words[command->count].bytes = bytes;
	command->words[command->count++].size = size;
}

void remote_word(struct remote_command *command, const char *text)
{
	remote_word_bytes(command, text, strlen(text));
}

bool remote_link_send(struct remote_link *link, const struct remote_command *command,
					  remote_answered answered, void *arg)
{
	struct call *call = link->context ? malloc(sizeof(*call)) : NULL;
	const char *words[REMOTE_WORDS];
	size_t sizes[REMOTE_WORDS];
	if (!call)
		return false;
	for (int i = 0; i < command->count; i++) {
		words[i] = command->words[i].bytes;
		sizes[i] = command->words[i].size;
	}
	*call = (struct call){link, answered, arg};
	if (redisAsyncCommandArgv(link->context, on_reply, call, command->count, words, sizes) !=
		REDIS_OK) {
		free(call);
		return false;
	}
	link->pending++;
	link->holders++;
	return true;
}

int remote_link_pending(const struct remote_link *link)
{
	return link->pending;
}

/* ---- Logging in ---- */

/* Shows only the first word of the error: the rest may repeat the password. */
static void on_login(void *arg, const struct remote_reply *reply)
{
	struct remote_link *link = arg;
	char why[KERNEL_ERROR_MAX];
	if (reply->kind != REMOTE_ERROR || !link->owner)
		return;
	snprintf(why, sizeof(why), "it refused user and password (%.*s)",
			 (int)strcspn(reply->bytes, " "), reply->bytes);
	remote_link_fail(link, why);
}

static void on_select(void *arg, const struct remote_reply *reply)
{
	struct remote_link *link = arg;
	char why[KERNEL_ERROR_MAX];
	if (reply->kind != REMOTE_ERROR || !link->owner)
		return;
	snprintf(why, sizeof(why), "it refused database %d: %.*s", link->url.database,
			 PLAIN_CUT(reply->bytes, 160));
	remote_link_fail(link, why);
}

static void ping(struct remote_link *link);

/* Keeps the best time, for this process may have been slow itself. */
static void on_ping(void *arg, const struct remote_reply *reply)
{
	struct remote_link *link = arg;
	uint64_t took = util_now_us() - link->pinged_us;
	char why[KERNEL_ERROR_MAX];
	if (!link->owner || reply->kind == REMOTE_LOST)
		return;
	if (reply->kind == REMOTE_ERROR) {
		snprintf(why, sizeof(why), "it answers %.*s", PLAIN_CUT(reply->bytes, 200));
		remote_link_fail(link, why);
		return;
	}
	if (!link->pings || took < link->best_us)
		link->best_us = took;
	if (++link->pings < PINGS)
		ping(link);
	else
		link->events.ready(link->owner, link->best_us);
}

/* Without memory no answer comes, and the owner's deadline passes.  The link cannot fail here, for
 * hiredis may still need its context. */
static void ping(struct remote_link *link)
{
	struct remote_command command = {0};
	remote_word(&command, "PING");
	link->pinged_us = util_now_us();
	(void)remote_link_send(link, &command, on_ping, link);
}

static void log_in(struct remote_link *link)
{
	const struct remote_url *url = &link->url;
	char number[16];
	bool sent = true;
	if (url->password[0]) {
		struct remote_command command = {0};
		remote_word(&command, "AUTH");
		if (url->user[0])
			remote_word(&command, url->user);
		remote_word(&command, url->password);
		sent = remote_link_send(link, &command, on_login, link);
	}
	if (url->database) {
		struct remote_command command = {0};
		snprintf(number, sizeof(number), "%d", url->database);
		remote_word(&command, "SELECT");
		remote_word(&command, number);
		sent = sent && remote_link_send(link, &command, on_select, link);
	}
	if (sent)
		ping(link);
}

/* ---- Connecting ---- */

static void on_connect(const redisAsyncContext *context, int status)
{
	struct remote_link *link = context->data;
	char why[KERNEL_ERROR_MAX];
	if (!link)
		return;
	if (status == REDIS_OK) {
		log_in(link);
		return;
	}
	/* hiredis frees the context by itself. */
	link->context = NULL;
	snprintf(why, sizeof(why), "it cannot be reached: %s", context->errstr);
	remote_link_fail(link, why);
}

static void on_disconnect(const redisAsyncContext *context, int status)
{
	struct remote_link *link = context->data;
	char why[KERNEL_ERROR_MAX];
	if (!link)
		return;
	link->context = NULL;
	/* hiredis takes an answer that the guard refused for a lack of memory. */
	snprintf(why, sizeof(why), "the connection ended: %s",
			 status == REDIS_OK              ? "closed"
			 : context->err == REDIS_ERR_OOM ? "it answers what was not asked (or no memory)"
											 : context->errstr);
	remote_link_fail(link, why);
}

static bool expects(const redisAsyncContext *context)
{
	const struct remote_link *link = context->data;
	return link && link->pending > 0;
}

static void connect_to(struct remote_link *link, const char *address)
{
	const struct remote_url *url = &link->url;
	char why[KERNEL_ERROR_MAX];
	redisAsyncContext *context =
		url->is_path ? redisAsyncConnectUnix(address) : redisAsyncConnect(address, url->port);
	if (!context || context->err) {
		snprintf(why, sizeof(why), "it cannot be reached: %s",
				 context ? context->errstr : "out of memory");
		if (context)
			redisAsyncFree(context);
		remote_link_fail(link, why);
		return;
	}
	context->data = link;
	link->context = context;
	/* Children run users' kernels, and must not inherit a connection that is logged in. */
	fcntl(context->c.fd, F_SETFD, FD_CLOEXEC);
	if (!remote_poll_attach(context, link->loop)) {
		remote_link_fail(link, "out of memory for a connection");
		return;
	}
	remote_guard(context, expects);
	redisAsyncSetDisconnectCallback(context, on_disconnect);
	redisAsyncSetConnectCallback(context, on_connect);
}

static void on_named(void *arg, const char *address, const char *reason)
{
	struct remote_link *link = arg;
	char why[KERNEL_ERROR_MAX];
	link->name = NULL;
	if (address[0]) {
		connect_to(link, address);
		return;
	}
	snprintf(why, sizeof(why), "host %.100s is not known: %s", link->url.host, reason);
	remote_link_fail(link, why);
}

static void on_soon(uv_timer_t *timer)
{
	struct remote_link *link = timer->data;
	struct in6_addr address;
	const char *host = link->url.host;
	close_timer(link);
	/* An address in numbers needs no lookup. */
	if (link->url.is_path || inet_pton(AF_INET, host, &address) == 1 ||
		inet_pton(AF_INET6, host, &address) == 1) {
		connect_to(link, host);
		return;
	}
	link->name = remote_name_look(link->loop, host, on_named, link);
	if (!link->name)
		remote_link_fail(link, "its name cannot be looked up: there is no memory or thread for it");
}

struct remote_link *remote_link_open(uv_loop_t *loop, const struct remote_url *url,
									 const struct remote_link_events *events, void *owner)
{
	struct remote_link *link = calloc(1, sizeof(*link));
	uv_timer_t *soon = calloc(1, sizeof(*soon));
	if (!link || !soon) {
		free(link);
		free(soon);
		return NULL;
	}
	*link = (struct remote_link){
		.url = *url, .events = *events, .owner = owner, .loop = loop, .soon = soon, .holders = 1};
	uv_timer_init(loop, soon);
	soon->data = link;
	/* The loop begins, so that no event comes before this returns. */
	uv_timer_start(soon, on_soon, 0, 0);
	return link;
}

void remote_link_close(struct remote_link *link)
{
	if (!link)
		return;
	link->owner = NULL;
	close_timer(link);
	remote_name_leave(link->name);
	link->name = NULL;
	disconnect(link);
	drop(link);
}
