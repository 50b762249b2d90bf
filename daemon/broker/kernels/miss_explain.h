/*
 * miss_explain: why a planned kernel is not in the cache: a failure is remembered for its key, or
 * rows of the cache have nearly its key, and differ in these respects.
 */
#ifndef KILN_DAEMON_MISS_EXPLAIN_H
#define KILN_DAEMON_MISS_EXPLAIN_H

#include "job.h"

#define MISS_EXPLAIN_NEAR 3

struct miss_explain_near {
	char key[KERNEL_KEY_HEX], target[KERNEL_TARGET_MAX];
	char instantiation[KERNEL_INSTANTIATION_MAX];
	bool failed; /* a remembered failure, not a kernel */
	int64_t used;
	struct compile_differences differences;
};

struct miss_explain {
	bool cached, failed;
	int status; /* of the remembered failure */
	char error[KERNEL_ERROR_MAX];
	struct miss_explain_near near[MISS_EXPLAIN_NEAR]; /* unless cached: the nearest first */
	int near_count;
};

/* Runs on the store's thread and counts no use.  The ref has its key. */
void miss_explain_find(struct cache *cache, const struct kernel_ref *ref, struct miss_explain *out);
/* Puts members cached, failed, status, error and near. */
void miss_explain_put(struct wire_out *out, const struct miss_explain *why);

#endif
