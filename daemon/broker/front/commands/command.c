/* command.c: one table of requests, made from the protocol's: names, flags, handlers; and the rules
 * for all of them. */
#include "command.h"

#include <client/wire/protocol.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	command_handler handler;
} handlers[] = {
	{"hello", command_hello},
	{"info", command_info},
	{"devices", command_devices},
	{"ops", command_ops},
	{"explain", command_explain},
	{"compile", command_compile},
	{"alloc", command_alloc},
	{"lend", command_lend},
	{"free", command_free},
	{"write", command_write},
	{"read", command_read},
	{"prepare", command_prepare},
	{"graph", command_graph},
	{"submit", command_submit},
	{"raw.prepare", command_raw_prepare},
	{"raw.compile", command_raw_compile},
	{"raw.explain", command_raw_explain},
	{"raw.submit", command_raw_submit},
	{"object", command_object},
	{"release", command_release},
	{"cancel", command_cancel},
	{"cache.ls", command_cache_ls},
	{"cache.failed", command_cache_failed},
	{"cache.retry", command_cache_retry},
	{"cache.show", command_cache_show},
	{"cache.get", command_cache_get},
	{"cache.verify", command_cache_verify},
	{"cache.recompile", command_cache_recompile},
	{"cache.pin", command_cache_pin},
	{"cache.unpin", command_cache_unpin},
	{"cache.trim", command_cache_trim},
	{"cache.clear", command_cache_clear},
	{"cache.export", command_cache_export},
	{"cache.import", command_cache_import},
	{"warm", command_warm},
	{"record", command_record},
	{"key.new", command_key_new},
	{"key.ls", command_key_ls},
	{"key.trust", command_key_trust},
	{"key.distrust", command_key_distrust},
	{"tuned.ls", command_tuned_ls},
	{"tuned.put", command_tuned_put},
	{"tuned.rm", command_tuned_rm},
	{"fault.ls", command_fault_ls},
	{"fault.show", command_fault_show},
	{"fault.now", command_fault_now},
	{"debug", command_debug},
	{"waits", command_waits},
	{"stop", command_stop},
};

static const struct {
	const char *name, *flags, *arguments, *reply;
} requests[] = {
#define REQUEST_ROW(name, flags, arguments, reply) {name, flags, arguments, reply},
	PROTOCOL_REQUESTS(REQUEST_ROW)
#undef REQUEST_ROW
};

_Static_assert(sizeof(handlers) / sizeof(*handlers) == sizeof(requests) / sizeof(*requests),
			   "every request of the protocol has a handler");

void command_put_requests(struct wire_out *out)
{
	wire_list_begin(out, "requests");
	for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
		wire_map_begin(out, NULL);
		wire_put_str(out, "name", requests[i].name);
		wire_put_str(out, "flags", requests[i].flags);
		wire_put_str(out, "arguments", requests[i].arguments);
		wire_put_str(out, "reply", requests[i].reply);
		wire_map_end(out);
	}
	wire_list_end(out);
}

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
	if (!session->greeted && !hello)
		reply_error(session, id, KILN_EPROTO, "the first request must be hello, not %s", name);
	else if (session->place != PLACE_NONE && hello)
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

/* Of another release's library it may be one that came, or went, between the two. */
static void refuse_unknown(struct session *session, uint64_t id, const char *name)
{
	if (!session->greeted || !strcmp(session->version, KILN_VERSION_STRING))
		reply_error(session, id, KILN_EINVAL, "kilnd %s knows no request %.*s", KILN_VERSION_STRING,
					PLAIN_CUT(name, 40));
	else
		reply_error(session, id, KILN_EVERSION,
					"kilnd %s knows no request %.*s, which libkiln %s has: stop this kilnd and "
					"start the one of that version",
					KILN_VERSION_STRING, PLAIN_CUT(name, 40), session->version);
	if (!session->greeted)
		session_end(session);
}

void command_run(struct session *session, struct wire_in *message, struct frame *frame)
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
		else if (!session->greeted)
			session_end(session);
		return;
	}
	refuse_unknown(session, id, name);
}
