/* command.c: the table of requests, made from the protocol's: names, flags, handlers; and the rules
 * that hold for each of them. */
#include "command.h"
#include "daemon/broker/front/session_life.h"

#include <client/wire/protocol.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	command_handler handler;
} handlers[] = {
	{"hello", serve_hello},
	{"info", serve_info},
	{"devices", serve_devices},
	{"ops", serve_ops},
	{"explain", serve_explain},
	{"compile", serve_compile},
	{"alloc", serve_alloc},
	{"lend", serve_lend},
	{"free", serve_free},
	{"write", serve_write},
	{"read", serve_read},
	{"prepare", serve_prepare},
	{"graph", serve_graph},
	{"submit", serve_submit},
	{"raw.prepare", serve_raw_prepare},
	{"raw.compile", serve_raw_compile},
	{"raw.explain", serve_raw_explain},
	{"raw.submit", serve_raw_submit},
	{"object", serve_object},
	{"release", serve_release},
	{"cancel", serve_cancel},
	{"cache.ls", serve_cache_ls},
	{"cache.failed", serve_cache_failed},
	{"cache.retry", serve_cache_retry},
	{"cache.show", serve_cache_show},
	{"cache.get", serve_cache_get},
	{"cache.verify", serve_cache_verify},
	{"cache.recompile", serve_cache_recompile},
	{"cache.pin", serve_cache_pin},
	{"cache.unpin", serve_cache_unpin},
	{"cache.trim", serve_cache_trim},
	{"cache.clear", serve_cache_clear},
	{"cache.export", serve_cache_export},
	{"cache.import", serve_cache_import},
	{"warm", serve_warm},
	{"record", serve_record},
	{"key.new", serve_key_new},
	{"key.ls", serve_key_ls},
	{"key.trust", serve_key_trust},
	{"key.distrust", serve_key_distrust},
	{"tuned.ls", serve_tuned_ls},
	{"tuned.put", serve_tuned_put},
	{"tuned.rm", serve_tuned_rm},
	{"fault.ls", serve_fault_ls},
	{"fault.show", serve_fault_show},
	{"fault.now", serve_fault_now},
	{"debug", serve_debug},
	{"waits", serve_waits},
	{"stop", serve_stop},
};

static const struct {
	const char *name, *flags;
} requests[] = {
#define REQUEST_ROW(name, flags, arguments, reply) {name, flags},
	PROTOCOL_REQUESTS(REQUEST_ROW)
#undef REQUEST_ROW
};

_Static_assert(sizeof(handlers) / sizeof(*handlers) == sizeof(requests) / sizeof(*requests),
			   "every request of the protocol has a handler");

static const char *flags_of(const char *name)
{
	for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++)
		if (!strcmp(requests[i].name, name))
			return requests[i].flags;
	return "";
}

/* False: refused, and answered. */
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
	for (size_t i = 0; i < sizeof(handlers) / sizeof(*handlers); i++) {
		if (strcmp(handlers[i].name, name) != 0)
			continue;
		session->asks = handlers[i].name;
		session->lane_tail = wire_get_uint(&message->root, "tail", 0);
		session->lane_follows = wire_get_uint(&message->root, "follows", 0);
		if (allowed(session, id, name))
			handlers[i].handler(session, message, frame);
		else if (session->state != SESSION_GREETED)
			session_end(session);
		return;
	}
	refuse_unknown(session, id, name);
}
