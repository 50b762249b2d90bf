/*
 * miss_explain: what the cache has for a planned kernel: the kernel itself, a failure that is remembered, or
 * else the rows whose keys are nearest to its own, and what they differ in.
 */
#ifndef KILN_DAEMON_MISS_EXPLAIN_H
#define KILN_DAEMON_MISS_EXPLAIN_H

#include "job.h"

#define MISS_EXPLAIN_NEAR 3

struct miss_explain_near {
	char key[KERNEL_KEY_HEX], target[KERNEL_TARGET_MAX];
	char instantiation[KERNEL_INSTANTIATION_MAX];
	bool failed; /* it is a failure that is remembered */
	int64_t used;
	struct compile_differences differences;
};

struct miss_explain {
	bool cached, failed;
	int status; /* of the failure, and its sentence */
	char error[KERNEL_ERROR_MAX];
	struct miss_explain_near near[MISS_EXPLAIN_NEAR]; /* of a miss, the nearest first */
	int near_count;
};

/* On the store's thread; counts no use.  The ref has its key. */
void miss_explain_find(struct cache *cache, const struct kernel_ref *ref, struct miss_explain *out);
/* As members of a reply: cached, failed, error, near. */
void miss_explain_put(struct wire_out *out, const struct miss_explain *why);
/* What the planner's texts of two kernels differ in that the keys only show as numbers of a
 * template: how operands must be aligned.  Goes before the other differences. */
void miss_explain_alignments(const char *asked, const char *other, struct compile_differences *out);

#endif
