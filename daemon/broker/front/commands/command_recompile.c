/*
 * command_recompile.c: cache.recompile: verifies that a kernel of the cache compiles to the same
 * bits once more.  One a request, so that a compile for a launch waits for one at most.
 */
#include "kernel_request.h"

static void on_verified(void *arg, const struct recompile_answer *found)
{
	static const char *const results[] = {[RECOMPILE_SKIPPED] = "skipped",
										  [RECOMPILE_SAME] = "same",
										  [RECOMPILE_DIFFERS] = "differs",
										  [RECOMPILE_FAILED] = "failed"};
	struct kernel_request *asked = arg;
	struct session *session = asked->request.session;
	struct wire_out out;
	kernel_request_arrived(asked);
	if (found->status != KILN_OK) {
		reply_error(session, asked->request.id, found->status, "%s", found->error);
	} else {
		reply_begin(&out, asked->request.id);
		wire_put_str(&out, "key", found->key);
		wire_put_str(&out, "op", found->op);
		wire_put_str(&out, "target", found->target);
		wire_put_str(&out, "instantiation", found->instantiation);
		wire_put_str(&out, "result", results[found->outcome]);
		wire_put_str(&out, "why", found->why);
		wire_put_int(&out, "compile_micros", found->micros);
		reply_send(session, &out, NULL, 0);
	}
	kernel_request_end(asked);
}

void serve_cache_recompile(struct session *session, struct wire_in *message)
{
	struct recompile_want want = {
		.verify = true, .priority = POOL_BACKGROUND, .owner = session_turn(session)};
	const char *key = wire_get_str(message, &message->root, "key");
	struct kernel_request *asked =
		kernel_request_open(session, wire_id(message), NULL, sizeof(*asked));
	if (!asked)
		return;
	snprintf(want.key, sizeof(want.key), "%s", key ? key : "");
	kernel_request_recompile(asked, &want, on_verified);
}
