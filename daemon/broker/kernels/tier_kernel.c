/*
 * tier_kernel.c: the kernels that tiers know, exact and generic ones: found by what they are made
 * of, with the key and the compiler that a job learned.
 */
#include "tier.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/util.h"

#define KERNELS_MOST 16384 /* found without their keys */

static void name_kernel(struct kernel_ref *ref)
{
	const char *const parts[] = {ref->target, ref->plan.source, ref->plan.instantiation,
								 ref->plan.generated};
	struct util_hash hash;
	if (ref->named)
		return;
	util_hash_begin(&hash);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		util_hash_add(&hash, parts[i], strlen(parts[i]) + 1);
	util_hash_end(&hash, ref->name);
	ref->named = true;
}

void tier_kernel_assert_valid(const struct tier_kernel *kernel)
{
	assert((kernel->fetch == TIER_FETCH_QUEUED) == (kernel->waiting.places != NULL));
	assert((kernel->fetch == TIER_FETCH_UNDER_WAY) == (kernel->wait != NULL));
	assert((kernel->fetch == TIER_FETCH_NONE) == !kernel->fetching);
	assert(!kernel->tiers || kernel->holders > 0);
	(void)kernel; /* without asserts nothing uses it */
}

void tier_object_drop(struct tiers *tiers, struct tier_kernel *kernel)
{
	if (!kernel->object)
		return;
	tiers->kept_bytes -= kernel->object->object_bytes;
	cache_row_free(kernel->object);
	free(kernel->object);
	kernel->object = NULL;
}

/* Forgets idle kernels: they are learned anew. */
static void make_room(struct tiers *tiers)
{
	struct tier_kernel *kernel;
	size_t cursor = 0;
	if (tiers->kernels.count < KERNELS_MOST || tiers->kernels.count < 2 * tiers->kept)
		return;
	while ((kernel = map_next(&tiers->kernels, &cursor)))
		if (!kernel->holders && kernel->fetch == TIER_FETCH_NONE && !kernel->loads) {
			map_remove(&tiers->kernels, kernel->name, sizeof(kernel->name));
			tier_object_drop(tiers, kernel);
			free(kernel);
		}
	tiers->kept = tiers->kernels.count;
}

struct tier_kernel *tier_find(struct broker *broker, struct kernel_ref *ref)
{
	struct tiers *tiers = broker->tiers;
	name_kernel(ref);
	struct tier_kernel *kernel = map_get(&tiers->kernels, ref->name, sizeof(ref->name));
	if (kernel)
		return kernel;
	make_room(tiers);
	kernel = util_alloc(sizeof(*kernel));
	memcpy(kernel->name, ref->name, sizeof(ref->name));
	memcpy(kernel->op, ref->plan.op, sizeof(kernel->op));
	kernel->broker = broker;
	if (map_put(&tiers->kernels, kernel->name, sizeof(kernel->name), kernel) == 0)
		return kernel;
	free(kernel);
	return NULL;
}

void tier_know(struct broker *broker, struct kernel_ref *ref, int64_t object_bytes)
{
	struct tier_kernel *kernel = tier_find(broker, ref);
	if (!kernel)
		return;
	memcpy(kernel->key, ref->key, sizeof(kernel->key));
	memcpy(kernel->compiler, ref->compiler, sizeof(kernel->compiler));
	kernel->object_bytes = object_bytes;
	kernel->stage = TIER_READY;
}

uint64_t tier_module(struct broker *broker, struct device_handle *executor,
					 const struct tier_kernel *kernel)
{
	const char *target = handle_device(executor)->info.limits.target;
	if (!kernel->key[0] || strcmp(kernel->compiler, job_compiler(broker, target)) != 0)
		return 0;
	return handle_module(executor, kernel->key);
}

void tier_take_key(struct kernel_ref *ref, const struct tier_kernel *kernel)
{
	if (!strcmp(ref->key, kernel->key))
		return;
	free(ref->key_text);
	ref->key_text = NULL; /* made when it is asked for */
	memcpy(ref->key, kernel->key, sizeof(ref->key));
}
