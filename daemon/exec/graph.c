/*
 * graph: what a list of launches must be to become a graph, the same on every device.
 */
#include "daemon/base/util.h"
#include "device.h"

#include <stdio.h>
#include <string.h>

void device_graph_blame(int index, int count, char error[KERNEL_ERROR_MAX])
{
	char sentence[KERNEL_ERROR_MAX];
	snprintf(sentence, sizeof(sentence), "%s", error);
	size_t used = util_append(error, KERNEL_ERROR_MAX, 0, "launch %d of %d: ", index + 1, count);
	util_append(error, KERNEL_ERROR_MAX, used, "%s", sentence);
}

static bool reports(const struct device_launch *launch)
{
	for (int i = 0; i < launch->arg_count && i < KERNEL_MAX_ARGS; i++)
		if (launch->args[i].kind == KERNEL_ARG_REPORT)
			return true;
	return launch->report.indices > 0;
}

int device_graph_check(const struct device_launch *launches, int count,
					   char error[KERNEL_ERROR_MAX])
{
	if (count < 1)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINVAL,
						 "a graph of %d launches is none: it needs at least one", count);
	for (int i = 0; i < count; i++) {
		if (!reports(&launches[i]))
			continue;
		util_fail(error, KERNEL_ERROR_MAX, KILN_ENOTSUP,
				  "its kernel counts indices that are out of range, for the end of each launch, "
				  "and a graph has one end for all: submit that call by itself");
		device_graph_blame(i, count, error);
		return KILN_ENOTSUP;
	}
	return KILN_OK;
}
