/*
 * command_explain.c: explain and raw.explain say what would be done, whether the cache has it, and
 * what it has instead.  They compile nothing.
 *
 *   ASKING --------------------------> READING ------------------> answered and freed
 *   (which compilers are here)         (the store's thread looks for the key and its like)
 *
 *   ASKING --a plan without a key--> answered and freed
 *   ASKING --the session ends--> freed
 *   READING --the session ends--> the thread ends its work; freed
 */
#include <stdlib.h>

#include "command.h"
#include "daemon/broker/calls/launch_encode.h"
#include "daemon/broker/devices/pool/pool.h"
#include "daemon/broker/devices/store.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/base/util.h"
#include "daemon/broker/kernels/miss_explain.h"
#include "planned.h"

struct explaining {
	struct request request;
	struct broker *broker;
	struct planned planned;
	enum { EXPLAIN_ASKING, EXPLAIN_READING } state;
	struct miss_explain why;
};

static void explaining_free(struct explaining *explaining)
{
	kernel_drop(explaining->planned.ref);
	free(explaining);
}

static void put_plan(struct wire_out *out, const struct kernel_plan *plan)
{
	wire_map_begin(out, "plan");
	wire_put_str(out, "op", plan->op);
	wire_put_str(out, "kind", planned_kind_name(plan));
	wire_put_str(out, "variant", plan->variant);
	wire_put_str(out, "choice", plan->choice);
	wire_put_str(out, "source", plan->source);
	wire_put_str(out, "instantiation", plan->instantiation);
	launch_put_shape(out, plan);
	wire_put_uint(out, "scratch", plan->scratch.bytes);
	wire_put_uint(out, "bytes_moved", plan->bytes_moved);
	wire_put_str(out, "note", plan->note);
	wire_map_end(out);
}

/* ---- In the cache ---- */

static void explain_work(struct cache *cache, void *arg)
{
	struct explaining *explaining = arg;
	miss_explain_find(cache, explaining->planned.ref, &explaining->why);
}

static void explain_done(struct broker *broker, void *arg)
{
	struct explaining *explaining = arg;
	struct session *session = explaining->request.session;
	struct kernel_ref *ref = explaining->planned.ref;
	struct wire_out out;
	struct util_text text = {0};
	char tiers[2048] = "";
	(void)broker;
	if (session) {
		reply_begin(&out, explaining->request.id);
		put_plan(&out, &ref->plan);
		if (!ref->raw && ref->plan.kind == KERNEL_LAUNCH)
			tier_explain(session, &explaining->planned.problem, &explaining->planned.limits, ref,
						 &out, tiers, sizeof(tiers));
		util_text_add(&text, "%s%s", kernel_text(ref), tiers);
		wire_put_str(&out, "text", text.text ? text.text : "");
		util_text_free(&text);
		wire_put_str(&out, "target", ref->target);
		wire_put_str(&out, "key", ref->key);
		wire_put_str(&out, "key_text", ref->key_text);
		miss_explain_put(&out, &explaining->why);
		if (!ref->raw)
			command_put_tuning(&out, ref, &explaining->planned.problem,
							   &explaining->planned.limits);
		reply_send(session, &out, NULL, 0);
		request_close(&explaining->request);
	}
	explaining_free(explaining);
}

static void explain_abandon(struct request *request)
{
	struct explaining *explaining = (struct explaining *)request;
	if (explaining->state == EXPLAIN_READING)
		return;
	pool_forget(explaining->broker, explaining);
	explaining_free(explaining);
}

static void explain_known(void *arg, const struct compile_toolchains *toolchains, const char *error)
{
	struct explaining *explaining = arg;
	struct broker *broker = explaining->broker;
	struct kernel_ref *ref = explaining->planned.ref;
	(void)toolchains;
	(void)error; /* no compiler: a plan without a key */
	if (ref->plan.kind == KERNEL_LAUNCH)
		job_key(broker, ref);
	(void)kernel_text(ref); /* which the store's thread reads */
	explaining->state = EXPLAIN_READING;
	if (!ref->key[0] || request_store(&explaining->request, explain_work, explain_done) != KILN_OK)
		explain_done(broker, explaining);
}

/* ---- Asking ---- */

/* Answers later.  Takes over planned->ref. */
static void explain(struct session *session, uint64_t id, const struct planned *planned)
{
	struct explaining *explaining = calloc(1, sizeof(*explaining));
	if (!explaining)
		reply_error(session, id, KILN_ENOMEM, "out of memory for a kernel");
	if (!explaining || !request_open(session, id, &explaining->request, explain_abandon)) {
		kernel_drop(planned->ref);
		free(explaining);
		return;
	}
	explaining->broker = session->broker;
	explaining->planned = *planned;
	pool_when_known(session->broker, explain_known, explaining);
}

void serve_explain(struct session *session, struct wire_in *message)
{
	const char *target = wire_get_str(message, &message->root, "target");
	struct planned planned = {.ref = NULL};
	char error[KERNEL_ERROR_MAX];
	int status = planned_open(session, message, target, false, &planned, error);
	if (status == KILN_OK)
		explain(session, wire_id(message), &planned);
	else
		reply_error(session, wire_id(message), status, "%s", error);
}

void command_explain_raw(struct session *session, uint64_t id, struct kernel_ref *ref)
{
	explain(session, id, &(struct planned){.ref = ref});
}
