/* tier.c: chooses between the two kernels of a call. */
#include "tier.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cli_line.h"
#include "daemon/broker/devices/events.h"
#include "daemon/plan/plan.h"
#include "daemon/base/trace.h"
#include "daemon/base/util.h"

/* ---- A call's two kernels ---- */

/* A session that may have nothing compiled (freeze.h) gets generic kernels, or only exact ones that
 * the cache has. */
enum options_specialize tier_policy(const struct session *session)
{
	enum options_specialize specialize = session->broker->options.specialize;
	if (session->on_miss == OPTIONS_MISS_ERROR)
		return OPTIONS_EAGER;
	return session->on_miss == OPTIONS_MISS_FALLBACK && specialize == OPTIONS_EAGER ? OPTIONS_LAZY
																					: specialize;
}

static bool may_compile(const struct session *session)
{
	return session->broker->options.specialize == OPTIONS_LAZY &&
		   session->on_miss < OPTIONS_MISS_FALLBACK;
}

/* A client cannot tell which of the two kernels runs: each gets the stricter demands of both on
 * addresses, and both report indices alike. */
static bool agree(struct kernel_plan *exact, struct kernel_plan *generic)
{
	if (generic->kind != KERNEL_LAUNCH || exact->operand_count != generic->operand_count ||
		!exact->report.indices != !generic->report.indices ||
		exact->report.end != generic->report.end)
		return false;
	for (int i = 0; i < exact->operand_count; i++) {
		struct kernel_extent *a = &exact->extents[i], *b = &generic->extents[i];
		uint32_t alignment = a->alignment > b->alignment ? a->alignment : b->alignment;
		uint64_t bytes = a->bytes > b->bytes ? a->bytes : b->bytes;
		a->alignment = b->alignment = alignment;
		a->bytes = b->bytes = bytes;
		a->written = b->written = a->written || b->written;
	}
	return true;
}

static bool is_same(const struct kernel_plan *a, const struct kernel_plan *b)
{
	return !strcmp(a->instantiation, b->instantiation) && !strcmp(a->source, b->source);
}

static struct kernel_ref *open_generic(struct session *session,
									   const struct kernel_problem *problem, struct kernel_ref *ref)
{
	const struct kernel_limits *limits = &session->device->info.limits;
	struct kernel_problem named;
	struct kernel_ref *generic = NULL;
	struct kernel_plan plan;
	char error[KERNEL_ERROR_MAX];
	kernel_problem_copy(&named, problem);
	if (plan_as_generic(&named, limits, &plan, error) != KILN_OK)
		return NULL;
	if (is_same(&plan, &ref->plan) || !agree(&ref->plan, &plan) ||
		job_open_plan(session->broker, &plan, limits, &generic, error) != KILN_OK)
		return NULL;
	if (session->on_miss)
		generic->line = line_of_problem(&named);
	/* The usage log counts the problem, whichever of its kernels answers. */
	generic->manifest = ref->manifest ? strdup(ref->manifest) : NULL;
	return generic;
}

/* Takes over the hold of generic.  Holds the exact kernel, for the next tier_find() may make
 * room. */
static struct tier *new_tier(struct broker *broker, struct kernel_ref *ref,
							 struct kernel_ref *generic)
{
	struct tier_kernel *exact = tier_find(broker, ref);
	struct tier *tier = exact ? calloc(1, sizeof(*tier)) : NULL;
	if (!tier) {
		kernel_drop(generic);
		return NULL;
	}
	*tier = (struct tier){.ref = ref, .generic = generic, .exact = exact};
	exact->holders++;
	return tier;
}

static void unlink_tier(struct tier *tier)
{
	if (!tier->link)
		return;
	*tier->link = tier->next;
	if (tier->next)
		tier->next->link = tier->link;
	tier->link = NULL;
}

static void close_tier(struct tier *tier)
{
	if (!tier)
		return;
	unlink_tier(tier);
	tier->exact->holders--;
	kernel_drop(tier->generic);
	free(tier);
}

/* ---- Shapes whose exact kernel is there ---- */

/* Each device process learns once of a shape, which its desks leave to the broker. */
static void note_promoted(struct session *session, const struct tier *tier, bool took_over)
{
	uint64_t *place = plan_hash_place(session->broker->tiers->promoted, tier->shape);
	const bool known = *place == tier->shape;
	*place = tier->shape;
	if (took_over || !known)
		handle_note_shape(session->executor, tier->shape);
}

static bool was_promoted(struct tiers *tiers, const struct kernel_problem *problem)
{
	const uint64_t shape = plan_problem_hash(problem);
	return *plan_hash_place(tiers->promoted, shape) == shape;
}

/* ---- Opening ---- */

struct kernel_ref *tier_first(struct session *session, const struct kernel_problem *problem)
{
	struct broker *broker = session->broker;
	const uint64_t began_ns = trace_now_ns();
	struct kernel_problem named;
	struct kernel_plan plan;
	struct kernel_ref *generic;
	char error[KERNEL_ERROR_MAX];
	if (tier_policy(session) == OPTIONS_EAGER || session->on_miss || !session->executor ||
		plan_attr(problem, PLAN_CHOICE) || was_promoted(broker->tiers, problem))
		return NULL;
	kernel_problem_copy(&named, problem);
	const struct kernel_limits *limits = &session->device->info.limits;
	if (plan_as_generic(&named, limits, &plan, error) != KILN_OK || plan.kind != KERNEL_LAUNCH ||
		job_open_generic(broker, problem, &plan, limits, &generic, error) != KILN_OK)
		return NULL;
	const struct tier_kernel *kernel = tier_find(broker, generic);
	if (!kernel || !tier_module(broker, session->executor, kernel)) {
		kernel_drop(generic);
		return NULL;
	}
	tier_take_key(generic, kernel);
	job_note_plan(broker, began_ns, problem->op);
	return generic;
}

enum tier_answer tier_open(struct session *session, const struct kernel_problem *problem,
						   struct kernel_ref *ref, struct kernel_ref *given)
{
	struct broker *broker = session->broker;
	enum options_specialize policy = tier_policy(session);
	if (policy == OPTIONS_EAGER || !session->executor || ref->raw ||
		ref->plan.kind != KERNEL_LAUNCH || plan_attr(problem, PLAN_CHOICE))
		return TIER_NONE;
	struct kernel_ref *generic = NULL;
	if (!given)
		generic = open_generic(session, problem, ref);
	else if (!is_same(&given->plan, &ref->plan) && agree(&ref->plan, &given->plan))
		generic = kernel_hold(given);
	struct tier *tier = generic ? new_tier(broker, ref, generic) : NULL;
	struct tier_kernel *known = tier ? tier_find(broker, generic) : NULL;
	if (!known) {
		close_tier(tier);
		return TIER_NONE;
	}
	struct tier_kernel *exact = tier->exact;
	double us;
	tier->ratio = plan_gain(&ref->plan, &session->device->info.limits, &us);
	tier->saving_us = tier->ratio > 1 ? us * (tier->ratio - 1) : 0;
	tier->shape = plan_problem_hash(problem);
	ref->tier = tier;
	ref->close_tier = close_tier;
	shapes_note(session, problem, ref);
	if (policy != OPTIONS_NEVER && tier_module(broker, session->executor, exact)) {
		tier_take_key(ref, exact);
		tier->state = TIER_PROMOTED;
		note_promoted(session, tier, false);
		broker->counters.promoted += given != NULL;
		return TIER_EXACT;
	}
	if (!tier_module(broker, session->executor, known)) {
		tier_warm_first(broker, session->executor, problem->op);
		return TIER_WAIT;
	}
	tier_take_key(generic, known);
	return TIER_GENERIC;
}

static void link_tier(struct tier *tier)
{
	tier->state = TIER_WAITING;
	tier->link = &tier->exact->tiers;
	tier->next = *tier->link;
	if (tier->next)
		tier->next->link = &tier->next;
	*tier->link = tier;
}

static void tier_assert_valid(const struct tier *tier)
{
	assert((tier->state == TIER_WAITING) == (tier->link != NULL));
	assert(tier->state != TIER_WAITING || tier->call);
	assert(tier->ref->tier == tier && tier->exact->holders > 0);
	tier_kernel_assert_valid(tier->exact);
}

void tier_attach(struct session *session, uint64_t call, struct kernel_ref *ref)
{
	struct broker *broker = session->broker;
	struct tier *tier = ref->tier;
	if (!tier || tier->call || tier_policy(session) == OPTIONS_NEVER)
		return;
	tier->session = session->id;
	tier->call = call;
	if (tier->state == TIER_LOOSE && tier_module(broker, session->executor, tier->exact)) {
		tier_take_key(ref, tier->exact);
		tier->state = TIER_PROMOTED;
	}
	if (tier->state == TIER_PROMOTED)
		return;
	link_tier(tier);
	if (tier->exact->stage == TIER_NEW || tier->exact->stage == TIER_READY)
		tier_enqueue(session, ref, JOB_LOOK);
	broker->counters.no_gain += tier->saving_us <= 0;
}

void tier_take_over(struct session *session, struct tier *tier)
{
	struct broker *broker = session->broker;
	tier_assert_valid(tier);
	unlink_tier(tier);
	tier->state = TIER_PROMOTED;
	tier_take_key(tier->ref, tier->exact);
	note_promoted(session, tier, true);
	broker->counters.promoted++;
	util_debug("session %llu: a call of %s takes the exact kernel, key %.12s, from now on",
			   (unsigned long long)session->id, tier->exact->op, tier->exact->key);
	broker->events->call_promoted(session, tier->call, tier->ref);
}

/* The exact kernel has left the device process, which died or needed the room.  The cache may have
 * lost it, too.  The generic kernel, where it is loaded, launches until the exact one is back. */
static bool hand_back(struct session *session, struct tier *tier)
{
	struct broker *broker = session->broker;
	if (!tier->call || tier_module(broker, session->executor, tier->exact))
		return false;
	const struct tier_kernel *generic = tier_find(broker, tier->generic);
	if (!generic || !tier_module(broker, session->executor, generic))
		return false;
	tier_take_key(tier->generic, generic);
	link_tier(tier);
	tier_enqueue(session, tier->ref, JOB_LOOK);
	return true;
}

struct kernel_ref *tier_choose(struct session *session, struct kernel_ref *ref)
{
	struct tier *tier = ref->tier;
	if (!tier)
		return ref;
	tier_assert_valid(tier);
	if (tier->state == TIER_PROMOTED && !hand_back(session, tier))
		return ref;
	if (tier->state == TIER_WAITING &&
		tier_module(session->broker, session->executor, tier->exact)) {
		tier_take_over(session, tier);
		return ref;
	}
	return tier->generic;
}

struct kernel_ref *tier_choose_lasting(struct session *session, struct kernel_ref *ref)
{
	struct tier *tier = ref->tier;
	bool generic = tier && tier->state != TIER_PROMOTED &&
				   (tier_policy(session) == OPTIONS_NEVER || !may_compile(session) ||
					tier->exact->stage == TIER_FAILED || shapes_widened(session, ref->plan.op));
	return generic ? tier->generic : ref;
}

/* ---- Uses ---- */

static double saving_us(const struct session *session, const struct tier *tier)
{
	double test_us = session->broker->test.gain_us;
	return test_us > 0 ? test_us : tier->saving_us;
}

void tier_consider(struct session *session, struct kernel_ref *ref)
{
	const struct tier *tier = ref->tier;
	const struct tier_kernel *exact = tier->exact;
	if (tier->state == TIER_PROMOTED || !may_compile(session) || exact->stage != TIER_MISSING ||
		exact->fetch != TIER_FETCH_NONE || exact->uses < TIER_MIN_USES ||
		saving_us(session, tier) <= 0 ||
		exact->lost_us < tier_compile_cost(session->broker, ref->target))
		return;
	if (shapes_may_specialize(session, ref->plan.op))
		tier_enqueue(session, ref, JOB_CALL);
}

void tier_used(struct session *session, struct kernel_ref *ref, uint64_t launches)
{
	struct tier *tier = ref->tier;
	if (!tier || tier->state == TIER_PROMOTED)
		return;
	tier->exact->uses += launches;
	tier->exact->lost_us += (double)launches * saving_us(session, tier);
	tier_consider(session, ref);
}

uint64_t tier_notice(struct session *session, const struct kernel_ref *ref)
{
	struct broker *broker = session->broker;
	const struct tier *tier = ref->tier;
	if (!tier || tier->state == TIER_PROMOTED || !may_compile(session))
		return 0;
	double saving = saving_us(session, tier);
	if (saving <= 0)
		return 0;
	/* Several calls may launch in the stead of one kernel: each reports a few times on the way. */
	double launches = tier_compile_cost(broker, ref->target) / saving / 4 + 1;
	return launches < TIER_MIN_USES ? TIER_MIN_USES
		   : launches > 1e9         ? 1000000000
									: (uint64_t)launches;
}

uint64_t tier_first_notice(const struct session *session)
{
	return may_compile(session) ? TIER_MIN_USES : 0;
}

/* ---- For people ---- */

void tier_explain(struct session *session, const struct kernel_problem *problem,
				  const struct kernel_limits *limits, const struct kernel_ref *ref,
				  struct wire_out *out, char *text, size_t size)
{
	static const char *const policies[] = {"lazy", "eager", "never"};
	struct broker *broker = session->broker;
	enum options_specialize policy = tier_policy(session);
	struct kernel_problem named = *problem;
	struct kernel_plan generic;
	char why[KERNEL_ERROR_MAX] = "";
	double us, ratio = plan_gain(&ref->plan, limits, &us);
	double saving = ratio > 1 ? us * (ratio - 1) : 0, cost = tier_compile_cost(broker, ref->target);
	int status = plan_as_generic(&named, limits, &generic, why);
	uint64_t after = saving > 0 ? (uint64_t)(cost / saving) + 1 : 0;
	after = after && after < TIER_MIN_USES ? TIER_MIN_USES : after;
	wire_map_begin(out, "tiers");
	wire_put_str(out, "specialize", policies[policy]);
	wire_put_str(out, "generic", status == KILN_OK ? generic.instantiation : "");
	wire_put_real(out, "ratio", ratio);
	wire_put_real(out, "saving_us", saving);
	wire_put_real(out, "compile_us", cost);
	wire_put_uint(out, "after", after);
	wire_map_end(out);
	if (policy == OPTIONS_EAGER || plan_attr(problem, PLAN_CHOICE))
		return;
	if (status != KILN_OK)
		snprintf(text, size, "tiers          exact only: %s\n", why);
	else if (policy == OPTIONS_NEVER)
		snprintf(text, size, "tiers          generic always (--specialize never): %s\n",
				 generic.instantiation);
	else if (saving <= 0)
		snprintf(text, size, "tiers          generic, as fast as this one: %s\n",
				 generic.instantiation);
	else
		snprintf(text, size,
				 "tiers          generic first: %s; this one saves about %.1f us a launch (%.2f "
				 "times) and is compiled after %llu launches\n",
				 generic.instantiation, saving, ratio, (unsigned long long)after);
}
