/*
 * why: what the cache has for a planned kernel: the kernel itself, a failure that is remembered, or
 * else the rows whose keys are nearest to its own, and what they differ in.
 */
#ifndef KILN_DAEMON_WHY_H
#define KILN_DAEMON_WHY_H

#include "job.h"

#define WHY_NEAR 3

struct why_near {
	char key[KERNEL_KEY_HEX], target[KERNEL_TARGET_MAX];
	char instantiation[KERNEL_INSTANTIATION_MAX];
	bool failed; /* it is a failure that is remembered */
	int64_t used;
	struct compile_differences differences;
};

struct why {
	bool cached, failed;
	int status; /* of the failure, and its sentence */
	char error[KERNEL_ERROR_MAX];
	struct why_near near[WHY_NEAR]; /* of a miss, the nearest first */
	int near_count;
};

/* On the store's thread; counts no use.  The ref has its key. */
void why_find(struct cache *cache, const struct kernel_ref *ref, struct why *out);
/* As members of a reply: cached, failed, error, near. */
void why_put(struct wire_out *out, const struct why *why);
/* What the planner's texts of two kernels differ in that the keys only show as numbers of a
 * template: how operands must be aligned.  Goes before the other differences. */
void why_alignments(const char *asked, const char *other, struct compile_differences *out);

#endif
