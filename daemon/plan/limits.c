/*
 * limits.c: what the targets can do, for planning where there is no such device.  A device that is
 * there says so itself.
 */
#include "internal.h"

#include <string.h>

/* Shared memory: what a block may have on request.  Multiprocessors: of the largest common part. */
static const struct {
	const char *target;
	uint32_t shared_optin, multiprocessors;
} targets[] = {
	{"cpu", 163 * 1024, 1},      {"sm_75", 64 * 1024, 72},   {"sm_80", 163 * 1024, 108},
	{"sm_86", 99 * 1024, 84},    {"sm_87", 163 * 1024, 16},  {"sm_88", 99 * 1024, 16},
	{"sm_89", 99 * 1024, 142},   {"sm_90", 227 * 1024, 132}, {"sm_100", 227 * 1024, 148},
	{"sm_103", 227 * 1024, 160}, {"sm_110", 227 * 1024, 20}, {"sm_120", 99 * 1024, 188},
	{"sm_121", 99 * 1024, 48},
};

int plan_limits_for(const char *target, struct kernel_limits *out, char error[KERNEL_ERROR_MAX])
{
	char names[128] = "";
	struct plan_text known = {.text = names, .size = sizeof(names)};

	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		if (strcmp(targets[i].target, target) == 0) {
			memset(out, 0, sizeof(*out));
			memcpy(out->target, target, strlen(target) + 1);
			out->max_threads = 1024;
			out->shared_default = 48 * 1024;
			out->shared_optin = targets[i].shared_optin;
			out->grid_x = INT32_MAX;
			out->grid_y = out->grid_z = 65535;
			out->multiprocessors = targets[i].multiprocessors;
			out->warp = 32;
			return KILN_OK;
		}
		plan_print(&known, "%s%s", i ? " " : "", targets[i].target);
	}
	return plan_refuse(error, KILN_EINVAL, "\"%.32s\" is no known target; known are %s", target,
					   names);
}
