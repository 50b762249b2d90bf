/* command.h: the handlers of the requests, one for each row of protocol.h's table; command.c
 * dispatches. */
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

/* info.c */
void serve_hello(struct session *session, struct wire_in *message, struct frame *frame);
void serve_info(struct session *session, struct wire_in *message, struct frame *frame);
void serve_devices(struct session *session, struct wire_in *message, struct frame *frame);
void serve_ops(struct session *session, struct wire_in *message, struct frame *frame);
/* memory.c */
void serve_alloc(struct session *session, struct wire_in *message, struct frame *frame);
void serve_lend(struct session *session, struct wire_in *message, struct frame *frame);
void serve_free(struct session *session, struct wire_in *message, struct frame *frame);
void serve_write(struct session *session, struct wire_in *message, struct frame *frame);
void serve_read(struct session *session, struct wire_in *message, struct frame *frame);
/* explain.c */
void serve_explain(struct session *session, struct wire_in *message, struct frame *frame);
/* call.c */
void serve_compile(struct session *session, struct wire_in *message, struct frame *frame);
void serve_prepare(struct session *session, struct wire_in *message, struct frame *frame);
/* raw.c */
void serve_raw_prepare(struct session *session, struct wire_in *message, struct frame *frame);
void serve_raw_explain(struct session *session, struct wire_in *message, struct frame *frame);
void serve_raw_compile(struct session *session, struct wire_in *message, struct frame *frame);
void serve_raw_submit(struct session *session, struct wire_in *message, struct frame *frame);
/* submit.c */
void serve_submit(struct session *session, struct wire_in *message, struct frame *frame);
void serve_release(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cancel(struct session *session, struct wire_in *message, struct frame *frame);
/* graph.c */
void serve_graph(struct session *session, struct wire_in *message, struct frame *frame);
/* object.c */
void serve_object(struct session *session, struct wire_in *message, struct frame *frame);
/* cache.c */
void serve_cache_ls(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_failed(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_retry(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_show(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_get(struct session *session, struct wire_in *message, struct frame *frame);
/* upkeep.c */
void serve_cache_verify(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_pin(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_unpin(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_trim(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_clear(struct session *session, struct wire_in *message, struct frame *frame);
/* recompile.c */
void serve_cache_recompile(struct session *session, struct wire_in *message, struct frame *frame);
/* pack.c */
void serve_cache_export(struct session *session, struct wire_in *message, struct frame *frame);
void serve_cache_import(struct session *session, struct wire_in *message, struct frame *frame);
/* warm.c */
void serve_warm(struct session *session, struct wire_in *message, struct frame *frame);
/* record.c */
void serve_record(struct session *session, struct wire_in *message, struct frame *frame);
/* key.c */
void serve_key_new(struct session *session, struct wire_in *message, struct frame *frame);
void serve_key_ls(struct session *session, struct wire_in *message, struct frame *frame);
void serve_key_trust(struct session *session, struct wire_in *message, struct frame *frame);
void serve_key_distrust(struct session *session, struct wire_in *message, struct frame *frame);
/* tune.c */
void serve_tuned_ls(struct session *session, struct wire_in *message, struct frame *frame);
void serve_tuned_put(struct session *session, struct wire_in *message, struct frame *frame);
void serve_tuned_rm(struct session *session, struct wire_in *message, struct frame *frame);
/* waits.c */
void serve_waits(struct session *session, struct wire_in *message, struct frame *frame);
/* fault.c */
void serve_fault_ls(struct session *session, struct wire_in *message, struct frame *frame);
void serve_fault_show(struct session *session, struct wire_in *message, struct frame *frame);
void serve_fault_now(struct session *session, struct wire_in *message, struct frame *frame);
/* debug.c */
#ifdef KILN_TEST_HOOKS
void serve_debug(struct session *session, struct wire_in *message, struct frame *frame);
#else
#define serve_debug NULL /* refused before it would be called: --test-requests is refused */
#endif
void serve_stop(struct session *session, struct wire_in *message, struct frame *frame);

/* Members counters, busy and identities; operators, sessions, older_sessions and flights. */
void command_put_counters(struct wire_out *out, struct broker *broker);
/* Member remote: the second tier. */
void command_put_remote(struct wire_out *out, const struct broker *broker);
void command_put_tallies(struct wire_out *out, const struct broker *broker);
/* The limits to plan for, and the model: the session's device, or a target that may not be here. */
int command_limits(struct session *session, const char *target, struct kernel_limits *limits,
				   const char **model, char error[KERNEL_ERROR_MAX]);
/* False: the session may have no further call, and was told so. */
bool command_may_prepare(struct session *session, uint64_t id);
/* A problem as it came, and its plan.  The holder of ref is whoever asked for it. */
struct command_planned {
	struct kernel_problem problem;
	int given; /* tensors of the request; the problem has all of the operator's */
	struct kernel_limits limits;
	struct kernel_ref *ref;
	struct work_operand
		operands[KERNEL_MAX_OPERANDS]; /* of ref's plan, as far as they were named */
	bool placed;                       /* all that it needs */
	bool made;                         /* and those buffers are there */
};
/* Plans the problem of a message; KILN_OK, or a status with a sentence.  launched: it is to be
 * launched, so no output may be left out that follows from the inputs. */
int command_plan(struct session *session, struct wire_in *message, const char *target,
				 bool launched, struct command_planned *out, char error[KERNEL_ERROR_MAX]);
/* Explains a user's kernel; answers the request.  Takes ref over. */
void command_explain_raw(struct session *session, uint64_t id, struct kernel_ref *ref);
/* A user's kernel on its way to a prepared call in the executor, or (NULL) into the cache; answers
 * the request.  Takes ref over. */
void command_ask_raw(struct session *session, uint64_t id, struct kernel_ref *ref,
					 struct device_handle *executor);
/* An optional operand that the problem does without. */
bool command_left_out(const struct kernel_problem *problem, int i);
/* Where the tensors lie must hold what the plan touches, and outputs must not overlap anything. */
int command_check_operands(const struct kernel_plan *plan, const struct work_operand *operands,
						   char error[KERNEL_ERROR_MAX]);
/* The variant of the call for operands that are so aligned, each 1, 2, 4, 8 or 16 bytes, 0 where it
 * has no memory; planned anew when none fits.  The holder is the caller. */
int command_choose_variant(struct session *session, struct call *call,
						   const uint32_t alignments[KERNEL_MAX_OPERANDS], struct kernel_ref **out,
						   char error[KERNEL_ERROR_MAX]);
/* Where a launch of the call lies, by a list of [buffer, offset], and the variant for that; the
 * holder is the caller. */
int command_place(struct session *session, const msgpack_object *list, struct call *call,
				  struct work_operand operands[KERNEL_MAX_OPERANDS], struct kernel_ref **out,
				  char error[KERNEL_ERROR_MAX]);
/* "nothing", "copy" or "launch" */
const char *command_kind_name(const struct kernel_plan *plan);
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
