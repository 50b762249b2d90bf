/* tier_object.c: chooses between the two kernels of a launch in a program's own context, where no
 * device process has to load them: the exact one serves as soon as the cache has it. */
#include "tier.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/util.h"

#define KEPT_BYTES_MOST (64u << 20) /* of objects, some thousand generic kernels */

/* Says whether the exact kernel is, or may soon be, in the cache.  It may be promoted while the
 * store reads the generic one for the program. */
static bool is_coming(const struct tier *tier)
{
	const struct tier_kernel *exact = tier->exact;
	return tier->state == TIER_PROMOTED || exact->stage == TIER_READY ||
		   exact->fetch != TIER_FETCH_NONE;
}

enum tier_answer tier_choose_object(struct session *session, struct kernel_ref *ref)
{
	struct broker *broker = session->broker;
	const struct tier *tier = ref->tier;
	if (!tier)
		return TIER_NONE;
	struct tier_kernel *exact = tier->exact;
	if (tier_policy(session) == OPTIONS_NEVER)
		return TIER_GENERIC;
	if (tier->state == TIER_PROMOTED || exact->stage == TIER_READY)
		return TIER_EXACT;
	/* A variant beyond those that a call keeps is attached to none. */
	if (exact->stage == TIER_NEW)
		tier_enqueue(session, ref, JOB_LOOK);
	const struct tier_kernel *generic = tier_find(broker, tier->generic);
	bool there = generic && tier_module(broker, session->executor, generic);
	return there || exact->stage != TIER_NEW ? TIER_GENERIC : TIER_WAIT;
}

uint64_t tier_again(struct session *session, const struct kernel_ref *ref)
{
	const struct tier *tier = ref->tier;
	if (!tier || tier->exact->stage == TIER_FAILED || tier_policy(session) == OPTIONS_NEVER)
		return 0;
	uint64_t notice = tier_notice(session, ref);
	if (is_coming(tier))
		return notice > 0 ? notice : TIER_SELDOM;
	return shapes_widened(session, ref->plan.op) ? 0 : notice;
}

void tier_missed(struct kernel_ref *ref)
{
	struct tier *tier = ref->tier;
	if (tier->state != TIER_PROMOTED && tier->exact->stage == TIER_READY)
		tier->exact->stage = TIER_MISSING;
}

/* ---- Objects of generic kernels ---- */

void tier_keep_object(struct broker *broker, struct kernel_ref *generic,
					  const struct cache_row *row)
{
	struct tiers *tiers = broker->tiers;
	struct tier_kernel *kernel = tier_find(broker, generic);
	if (!kernel)
		return;
	tier_object_drop(tiers, kernel);
	if (row->object_bytes > KEPT_BYTES_MOST - tiers->kept_bytes)
		return;
	struct cache_row *object = util_alloc(sizeof(*object));
	memcpy(object->key, row->key, sizeof(object->key));
	object->entry = strdup(row->entry);
	object->object = malloc(row->object_bytes);
	if (!object->entry || !object->object) {
		cache_row_free(object);
		free(object);
		return;
	}
	memcpy(object->object, row->object, row->object_bytes);
	object->object_bytes = row->object_bytes;
	tiers->kept_bytes += row->object_bytes;
	kernel->object = object;
}

const struct cache_row *tier_object(struct session *session, struct kernel_ref *generic)
{
	struct broker *broker = session->broker;
	const struct tier_kernel *kernel = tier_find(broker, generic);
	const char *compiler = job_compiler(broker, generic->target);
	if (!kernel || !kernel->object || strcmp(kernel->compiler, compiler) != 0 ||
		strcmp(kernel->key, kernel->object->key) != 0)
		return NULL;
	tier_take_key(generic, kernel);
	return kernel->object;
}
