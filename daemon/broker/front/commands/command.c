/* command.c: the table of requests: names, and the flags of the protocol, with their handlers or
 * queries; and the rules that hold for each of them. */
#include "query.h"
#include "daemon/base/trace.h"
#include "daemon/broker/front/session_life.h"

#include <client/wire/protocol.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	command_handler handler; /* or, of a query: */
	query_take take;
	store_work work;
} commands[] = {
#ifdef KILN_TEST_HOOKS
	{"debug", serve_debug, NULL, NULL},
#else
	{"debug", NULL, NULL, NULL}, /* never called: --test-requests is refused */
#endif
#define COMMAND_ROW(name, handler) {name, handler, NULL, NULL},
	COMMANDS(COMMAND_ROW)
#undef COMMAND_ROW
#define QUERY_ROW(name, take, work) {name, NULL, take, work},
		QUERIES(QUERY_ROW)
#undef QUERY_ROW
};

static const struct {
	const char *name, *flags;
} requests[] = {
#define REQUEST_ROW(name, flags, arguments, reply) {name, flags},
	PROTOCOL_REQUESTS(REQUEST_ROW)
#undef REQUEST_ROW
};

_Static_assert(sizeof(commands) / sizeof(*commands) == sizeof(requests) / sizeof(*requests),
			   "every request of the protocol has a row");

static const char *flags_of(const char *name)
{
	for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++)
		if (requests[i].name[0] == name[0] && !strcmp(requests[i].name, name))
			return requests[i].flags;
	return "";
}

/* False: it is refused, and answered. */
static bool allowed(struct session *session, uint64_t id, const char *name)
{
	const char *flags = flags_of(name);
	bool hello = !strcmp(name, "hello");
	if (session->state != SESSION_GREETED && !hello)
		reply_error(session, id, KILN_EPROTO, "the first request must be hello, not %s", name);
	else if (session->state != SESSION_SILENT && hello)
		reply_error(session, id, KILN_EPROTO, "hello was said before");
	else if (strchr(flags, 'O') && !session_is_owner(session))
		reply_error(session, id, KILN_EPERM,
					"%s is for uid %u, whose kilnd this is, not for uid %u", name,
					(unsigned)getuid(), session->uid);
	else if (strchr(flags, 'T') && !session->broker->options.test_requests)
		reply_error(session, id, KILN_EPERM,
					"%s is for tests; start kilnd with --test-requests to allow it", name);
	else
		return true;
	return false;
}

/* A library of another release may have a request that came, or went, between the two. */
static void refuse_unknown(struct session *session, uint64_t id, const char *name)
{
	if (session->state != SESSION_GREETED || !strcmp(session->version, KILN_VERSION_STRING))
		reply_error(session, id, KILN_EINVAL, "kilnd %s knows no request %.*s", KILN_VERSION_STRING,
					PLAIN_CUT(name, 40));
	else
		reply_error(session, id, KILN_EVERSION,
					"kilnd %s knows no request %.*s, which libkiln %s has: stop this kilnd and "
					"start the one of that version",
					KILN_VERSION_STRING, PLAIN_CUT(name, 40), session->version);
	if (session->state != SESSION_GREETED)
		session_end(session);
}

void serve(struct session *session, struct wire_in *message, struct frame *frame)
{
	const char *name = wire_type(message);
	uint64_t id = wire_id(message);
	if (!id) {
		reply_error(session, 0, KILN_EPROTO, "request %.*s has no id", PLAIN_CUT(name, 40));
		session->broker->counters.protocol_errors++;
		session_end(session);
		return;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		if (commands[i].name[0] != name[0] || strcmp(commands[i].name, name) != 0)
			continue;
		session->asks = commands[i].name;
		session->frame = frame;
		session->lane_tail = wire_get_uint(&message->root, "tail", 0);
		session->lane_follows = wire_get_uint(&message->root, "follows", 0);
		struct broker *broker = session->broker;
		const uint64_t began_ns = broker->trace ? trace_now_ns() : 0;
		broker->serving = session->id;
		broker->planned_us = 0;
		bool may = allowed(session, id, name);
		if (may && commands[i].work)
			query_serve(session, message, commands[i].take, commands[i].work);
		else if (may)
			commands[i].handler(session, message);
		else if (session->state != SESSION_GREETED)
			session_end(session);
		session->frame = NULL;
		if (trace_shows(broker->trace, broker->serving) && began_ns)
			trace_add(broker->trace, trace_track(broker->trace, 0, TRACK_LOOP, "loop"),
					  &(struct trace_span){.name = commands[i].name,
										   .begin_ns = began_ns,
										   .end_ns = trace_now_ns()});
		broker->serving = 0;
		broker->planned_us = 0;
		return;
	}
	refuse_unknown(session, id, name);
}
