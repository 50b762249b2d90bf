/*
 * gain.c: what an exact kernel would save over the generic one: the time a launch takes at the
 * device's roof, times what was measured of the two kernels of such problems.  Estimates: they
 * decide what is worth compiling, never what is right.
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

/*
 * Time of the generic kernel to that of the exact one, by operator and the variant that the exact
 * one would be, for problems that stay in the cache and for those that do not: the medians of
 * `bench_kernels --generic` on an H200 (tests/bench/HISTORY.md); where only one of the two was
 * measured, it stands for both.  variant NULL: any other of the operator.
 */
static const struct {
	const char *op, *variant;
	double in_cache, in_memory;
} ratios[] = {
	{"permute", "tile", 1.16, 1.01},
	{"permute", "vector", 1.06, 1.01},
	{"permute", "interleave", 1.14, 1.58},
	{"permute", "shift", 2.99, 2.99},
	{"permute", NULL, UNKNOWN, UNKNOWN},
	{"softmax", "strided-twice", 1.0, 1.0},
	{"softmax", "rows", 1.15, 1.15},
	{"softmax", "skewed", 2.3, 2.3},
	{"softmax", NULL, 1.7, 1.7},
	{"log_softmax", "rows", 1.06, 1.06},
	{"log_softmax", NULL, 1.85, 1.85},
	{"softmax_backward", NULL, 1.5, 1.5},
	{"log_softmax_backward", NULL, 1.5, 1.5},
	{"masked_softmax", NULL, 1.5, 1.5},
	{"masked_softmax_backward", NULL, 1.6, 1.6},
	{"layer_norm", "rows", 1.4, 1.4},
	{"layer_norm", "wrap", 6.7, 6.7},
	{"layer_norm", NULL, 3.2, 3.2},
	{"rms_norm", "rows", 1.15, 1.15},
	{"rms_norm", NULL, 3.2, 3.2},
	{"layer_norm_backward", NULL, 2.9, 2.9},
	{"rms_norm_backward", NULL, 3.4, 3.4},
	{"gather", NULL, 1.46, 1.46},
	{"gather_backward", NULL, 1.21, 1.21},
	{"giou", NULL, 1.06, 1.06},
	{"giou_backward", NULL, 1.11, 1.11},
	{"giou_loss", NULL, 1.14, 1.25},
	{"giou_loss_backward", NULL, 1.24, 1.24},
	{"map", NULL, 1.0, 1.0},
	{NULL, NULL, UNKNOWN, UNKNOWN},
};

double plan_gain(const struct kernel_plan *exact, const struct kernel_limits *limits, double *us)
{
	bool in_cache = exact->bytes_moved <= L2_BYTES;
	int roof = 0, row = 0;

	while (roofs[roof].target &&
		   strncmp(limits->target, roofs[roof].target, strlen(roofs[roof].target)) != 0)
		roof++;
	while (ratios[row].op && (strcmp(ratios[row].op, exact->op) != 0 ||
							  (ratios[row].variant && strcmp(ratios[row].variant, exact->variant))))
		row++;
	*us = LAUNCH_US + (double)exact->bytes_moved /
						  (in_cache ? roofs[roof].from_cache : roofs[roof].from_memory);
	return in_cache ? ratios[row].in_cache : ratios[row].in_memory;
}
