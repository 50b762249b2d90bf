/*
 * call_exact.c: plans the exact kernel of a call that was launched before it had one.  The generic
 * kernel launches the first call of a shape (tier_first); meanwhile a worker thread plans, which
 * needs no state.  The second use of the call by message settles it: what the thread has not done
 * by then, the loop does.  Its lane is bound to the generic kernel, until the exact one takes over.
 *
 *   FIRST --the thread's plan comes, or call_settle--> the exact kernel, with a tier
 *   FIRST --there is no exact kernel, or it is the same one--> the generic kernel, for good
 *
 * The thread has one call of a session at a time.  The others wait in the session's list, which a
 * released call leaves: so a client that makes calls faster than the thread plans fills no memory.
 *
 * The thread reads the call's problem, which never changes, and holds the call; only the loop
 * touches anything else of it.
 */
#include <stdlib.h>
#include <string.h>

#include "call_state.h"
#include "lane.h"
#include "daemon/broker/devices/store.h"
#include "daemon/broker/kernels/tier.h"
#include "daemon/plan/plan.h"
#include "daemon/base/list.h"
#include "daemon/base/util.h"

struct planning {
	struct call *call; /* held */
	uint64_t session;
	struct kernel_limits limits;
	int status;
	char error[KERNEL_ERROR_MAX];
	struct kernel_plan plan;
};

/* Makes the plan the call's exact kernel.  The two kernels may be one: then the call stays with
 * what it has. */
static void take_plan(struct session *session, struct call *call,
					  const struct kernel_limits *limits, struct kernel_plan *plan)
{
	struct kernel_ref *generic = call->variants[0], *ref;
	char error[KERNEL_ERROR_MAX];
	if (job_open_exact(session->broker, &call->problem, limits, session->device->info.model, plan,
					   &ref, error) != KILN_OK)
		return;
	if (!strcmp(ref->plan.instantiation, generic->plan.instantiation) &&
		!strcmp(ref->plan.source, generic->plan.source)) {
		kernel_drop(ref);
		return;
	}
	ref->manifest = generic->manifest ? strdup(generic->manifest) : NULL;
	(void)tier_open(session, &call->problem, ref, generic);
	call->variants[0] = ref;
	kernel_drop(generic);
	tier_attach(session, call->id, ref);
	if (ref->tier && ref->tier->state == TIER_PROMOTED)
		lane_promote(session, call->id, ref);
}

static void plan_work(struct cache *cache, void *arg)
{
	struct planning *planning = arg;
	(void)cache;
	planning->status =
		plan_problem(&planning->call->problem, &planning->limits, &planning->plan, planning->error);
}

static void plan_next(struct session *session);

static void plan_done(struct broker *broker, void *arg)
{
	struct planning *planning = arg;
	struct call *call = planning->call;
	struct session *session = session_find(broker, planning->session);
	if (call->first && session && call_find(session, call->id) == call &&
		call->device == session->device->kind) {
		call->first = false;
		if (planning->status == KILN_OK)
			take_plan(session, call, &planning->limits, &planning->plan);
	}
	call_drop(call);
	free(planning);
	if (session) {
		session->owned->plans = false;
		plan_next(session);
	}
}

/* Without memory the second use of a call plans. */
static void plan_next(struct session *session)
{
	struct owned *owned = session->owned;
	struct call *call = owned->plans ? NULL : owned->unplanned;
	struct planning *planning = call ? malloc(sizeof(*planning)) : NULL;
	if (!planning)
		return;
	call_leave_queue(session, call);
	planning->call = call_hold(call);
	planning->session = session->id;
	planning->limits = session->device->info.limits;
	owned->plans = store_aside(session->broker, session_turn(session), plan_work, plan_done,
							   planning) == KILN_OK;
	if (owned->plans)
		return;
	call_drop(call);
	free(planning);
}

void call_begin_first(struct call *call)
{
	call->first = true;
}

void call_plan_exact(struct session *session, struct call *call)
{
	QUEUE_APPEND(session->owned->unplanned, session->owned->last_unplanned, call);
	call->waits = true;
	plan_next(session);
}

void call_settle(struct session *session, struct call *call)
{
	const struct kernel_limits *limits = session->device ? &session->device->info.limits : NULL;
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX];
	if (!call->first || !limits)
		return;
	call->first = false;
	call_leave_queue(session, call);
	if (plan_problem(&call->problem, limits, &plan, error) == KILN_OK)
		take_plan(session, call, limits, &plan);
}
