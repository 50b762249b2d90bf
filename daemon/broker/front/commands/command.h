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

typedef void (*command_handler)(struct session *session, struct wire_in *message,
								struct frame *frame);
/* Handles a message by the table of requests. */
void serve(struct session *session, struct wire_in *message, struct frame *frame);

/* command_hello.c */
void serve_hello(struct session *session, struct wire_in *message, struct frame *frame);
/* command_info.c */
void serve_info(struct session *session, struct wire_in *message, struct frame *frame);
void serve_devices(struct session *session, struct wire_in *message, struct frame *frame);
void serve_ops(struct session *session, struct wire_in *message, struct frame *frame);
void serve_stop(struct session *session, struct wire_in *message, struct frame *frame);
/* command_memory.c */
void serve_alloc(struct session *session, struct wire_in *message, struct frame *frame);
void serve_lend(struct session *session, struct wire_in *message, struct frame *frame);
void serve_free(struct session *session, struct wire_in *message, struct frame *frame);
void serve_write(struct session *session, struct wire_in *message, struct frame *frame);
void serve_read(struct session *session, struct wire_in *message, struct frame *frame);
/* command_explain.c */
void serve_explain(struct session *session, struct wire_in *message, struct frame *frame);
/* command_call.c */
void serve_compile(struct session *session, struct wire_in *message, struct frame *frame);
void serve_prepare(struct session *session, struct wire_in *message, struct frame *frame);
/* command_raw.c */
void serve_raw_prepare(struct session *session, struct wire_in *message, struct frame *frame);
void serve_raw_explain(struct session *session, struct wire_in *message, struct frame *frame);
void serve_raw_compile(struct session *session, struct wire_in *message, struct frame *frame);
void serve_raw_submit(struct session *session, struct wire_in *message, struct frame *frame);
/* command_submit.c */
void serve_submit(struct session *session, struct wire_in *message, struct frame *frame);
void serve_release(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cancel(struct session *session, struct wire_in *message, struct frame *frame);
/* command_graph.c */
void serve_graph(struct session *session, struct wire_in *message, struct frame *frame);
/* command_object.c */
void serve_object(struct session *session, struct wire_in *message, struct frame *frame);
/* command_cache.c */
void serve_cache_ls(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_failed(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_retry(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_show(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_get(struct session *session, struct wire_in *message, struct frame *frame);
/* command_upkeep.c */
void serve_cache_verify(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_pin(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_unpin(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_trim(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_clear(struct session *session, struct wire_in *message, struct frame *frame);
/* command_recompile.c */
void serve_cache_recompile(struct session *session, struct wire_in *message, struct frame *frame);
/* command_pack.c */
void serve_cache_export(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_import(struct session *session, struct wire_in *message, struct frame *frame);
/* command_warm.c */
void serve_warm(struct session *session, struct wire_in *message, struct frame *frame);
/* command_record.c */
void serve_record(struct session *session, struct wire_in *message, struct frame *frame);
/* command_key.c */
void serve_key_new(struct session *session, struct wire_in *message, struct frame *frame);
void serve_key_ls(struct session *session, struct wire_in *message, struct frame *frame);
void serve_key_trust(struct session *session, struct wire_in *message, struct frame *frame);
void serve_key_distrust(struct session *session, struct wire_in *message, struct frame *frame);
/* command_tune.c */
void serve_tuned_ls(struct session *session, struct wire_in *message, struct frame *frame);
void serve_tuned_put(struct session *session, struct wire_in *message, struct frame *frame);
void serve_tuned_rm(struct session *session, struct wire_in *message, struct frame *frame);
/* command_waits.c */
void serve_waits(struct session *session, struct wire_in *message, struct frame *frame);
/* command_fault.c */
void serve_fault_ls(struct session *session, struct wire_in *message, struct frame *frame);
void serve_fault_show(struct session *session, struct wire_in *message, struct frame *frame);
void serve_fault_now(struct session *session, struct wire_in *message, struct frame *frame);
/* command_debug.c */
#ifdef KILN_TEST_HOOKS
void serve_debug(struct session *session, struct wire_in *message, struct frame *frame);
#else
#define serve_debug NULL /* refused before it would be called: --test-requests is refused */
#endif

/* Members counters, busy and identities; operators, sessions, older_sessions and flights. */
void command_put_counters(struct wire_out *out, struct broker *broker);
/* Member remote: the second tier. */
void command_put_remote(struct wire_out *out, const struct broker *broker);
void command_put_tallies(struct wire_out *out, const struct broker *broker);
/* Explains a user's kernel; answers the request.  Takes ref over. */
void command_explain_raw(struct session *session, uint64_t id, struct kernel_ref *ref);
/* A user's kernel on its way to a prepared call in the executor, or (NULL) into the cache; answers
 * the request.  Takes ref over. */
void command_ask_raw(struct session *session, uint64_t id, struct kernel_ref *ref,
					 struct device_handle *executor);
/* What a program needs to tune a problem: its operands as they were inferred, the candidates, what
 * a winner is found by, and the winner there is. */
void command_put_tuning(struct wire_out *out, const struct kernel_ref *ref,
						const struct kernel_problem *problem, const struct kernel_limits *limits);

/* "--test-misdeed=hang", as a child that starts now is told; NULL: nothing. */
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
