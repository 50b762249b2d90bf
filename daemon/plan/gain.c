/*
 * gain.c: what an exact kernel would save over the generic one: the time that a launch takes at the
 * device's roof, times the ratio of both kernels' times in the operator's row.  The ratios are
 * medians of `bench_kernels --generic` on an H200.  The estimate decides which kernels are worth
 * compiling; results do not depend on it.
 */
#include "internal.h"

#include <string.h>

#define LAUNCH_US 2.0 /* a launch of nothing */
#define UNKNOWN 1.2   /* where nothing was measured */
#define L2_BYTES (32u << 20)

/* Bytes a microsecond, of devices whose name has the word; NULL ends it. */
static const struct {
	const char *target;
	double from_memory, from_cache;
} roofs[] = {
	{"sm_75", 0.25e6, 0.6e6}, {"sm_80", 1.5e6, 3.0e6}, {"sm_86", 0.7e6, 1.5e6},
	{"sm_89", 0.8e6, 2.5e6},  {"sm_90", 4.0e6, 5.5e6}, {"sm_100", 7.0e6, 10e6},
	{"sm_103", 7.0e6, 10e6},  {"sm_12", 1.5e6, 4.0e6}, {"cpu", 500, 500},
	{NULL, 1.0e6, 2.0e6},
};

/* The figure of the variant in the row of the operator. */
static struct op_gain find_gain(const struct kernel_plan *exact)
{
	const struct plan_op *op = plan_find(exact->op);
	const struct op_gain *gain = op ? op->gains : NULL;

	while (gain && gain->variant && strcmp(gain->variant, exact->variant) != 0)
		gain++;
	return gain && gain->in_cache > 0 ? *gain : (struct op_gain){NULL, UNKNOWN, UNKNOWN};
}

double plan_gain(const struct kernel_plan *exact, const struct kernel_limits *limits, double *us)
{
	bool in_cache = exact->bytes_moved <= L2_BYTES;
	struct op_gain gain = find_gain(exact);
	int roof = 0;

	while (roofs[roof].target &&
		   strncmp(limits->target, roofs[roof].target, strlen(roofs[roof].target)) != 0)
		roof++;
	*us = LAUNCH_US + (double)exact->bytes_moved /
						  (in_cache ? roofs[roof].from_cache : roofs[roof].from_memory);
	return in_cache ? gain.in_cache : gain.in_memory;
}
