/*
 * command.h: the handlers of the requests, one for each row of protocol.h's table, and the few
 * things that one command does for another.
 */
#ifndef KILN_DAEMON_COMMAND_H
#define KILN_DAEMON_COMMAND_H

#include "daemon/broker/calls/buffer.h"
#include "daemon/broker/calls/call.h"
#include "daemon/broker/front/session_life.h"
#include "daemon/broker/requests/request.h"

/* Answers the message, or begins a request that answers it later.  session->frame has the
 * descriptors that came with it. */
typedef void (*command_handler)(struct session *session, struct wire_in *message);
/* Handles a message by the table of requests. */
void serve(struct session *session, struct wire_in *message, struct frame *frame);

/* The requests of protocol.h and their handlers; query.h has those that the store's thread answers,
 * and "debug" has a row of its own (command.c). */
#define COMMANDS(ROW)                             \
	ROW("hello", serve_hello)                     \
	ROW("info", serve_info)                       \
	ROW("metrics", serve_metrics)                 \
	ROW("devices", serve_devices)                 \
	ROW("ops", serve_ops)                         \
	ROW("explain", serve_explain)                 \
	ROW("compile", serve_compile)                 \
	ROW("alloc", serve_alloc)                     \
	ROW("lend", serve_lend)                       \
	ROW("share", serve_share)                     \
	ROW("free", serve_free)                       \
	ROW("write", serve_write)                     \
	ROW("read", serve_read)                       \
	ROW("prepare", serve_prepare)                 \
	ROW("graph", serve_graph)                     \
	ROW("submit", serve_submit)                   \
	ROW("raw.prepare", serve_raw_prepare)         \
	ROW("raw.compile", serve_raw_compile)         \
	ROW("raw.explain", serve_raw_explain)         \
	ROW("raw.submit", serve_raw_submit)           \
	ROW("object", serve_object)                   \
	ROW("release", serve_release)                 \
	ROW("cancel", serve_cancel)                   \
	ROW("cache.recompile", serve_cache_recompile) \
	ROW("cache.export", serve_cache_export)       \
	ROW("cache.import", serve_cache_import)       \
	ROW("cache.backup", serve_cache_backup)       \
	ROW("cache.restore", serve_cache_restore)     \
	ROW("warm", serve_warm)                       \
	ROW("record", serve_record)                   \
	ROW("tuned.ls", serve_tuned_ls)               \
	ROW("fault.now", serve_fault_now)             \
	ROW("waits", serve_waits)                     \
	ROW("trace", serve_trace)                     \
	ROW("trace.begin", serve_trace_begin)         \
	ROW("trace.end", serve_trace_end)             \
	ROW("recent", serve_recent)                   \
	ROW("slow", serve_slow)                       \
	ROW("stop", serve_stop)

#define DECLARE(name, handler) void handler(struct session *session, struct wire_in *message);
COMMANDS(DECLARE)
#ifdef KILN_TEST_HOOKS
DECLARE("debug", serve_debug)
#endif
#undef DECLARE

/* Reads the gauges, and first the counters of lanes, so that the equations hold. */
void command_gauges(struct broker *broker, struct gauges *gauges);
/* Puts members counters, busy and identities. */
void command_put_counters(struct wire_out *out, struct broker *broker);
/* Puts member remote: the second tier. */
void command_put_remote(struct wire_out *out, const struct broker *broker);
void command_put_tallies(struct wire_out *out, const struct broker *broker);
/* Explains a user's kernel; answers the request.  Takes ref over. */
void command_explain_raw(struct session *session, uint64_t id, struct kernel_ref *ref);
/* Gets a user's kernel for a prepared call in this device process, or (NULL) into the cache,
 * and answers the request; local: for a call that its program launches.  Takes ref over. */
void command_ask_raw(struct session *session, uint64_t id, struct kernel_ref *ref,
					 struct device_handle *executor, bool local);
/* Puts what a program needs to tune a problem: its operands as they were inferred, the
 * candidates, what a winner is found by, and the winner there is. */
void command_put_tuning(struct wire_out *out, const struct kernel_ref *ref,
						const struct kernel_problem *problem, const struct kernel_limits *limits);

/* Writes the argument for a child that starts now, "--test-misdeed=hang"; NULL: none. */
#ifdef KILN_TEST_HOOKS
const char *debug_start_misdeed(struct broker *broker, bool compiler, char argument[40]);
#else
static inline const char *debug_start_misdeed(struct broker *broker, bool compiler,
											  char argument[40])
{
	(void)broker, (void)compiler, (void)argument;
	return NULL;
}
#endif

#endif
