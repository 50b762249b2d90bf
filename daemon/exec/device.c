/*
 * device: the rules that all devices share: how a GPU's number is written, which status a count of
 * indices out of range becomes, and which launches can be a graph.
 */
#include "device.h"
#include "daemon/base/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void device_uuid_text(const void *uuid, char text[DEVICE_UUID_TEXT])
{
	char hex[2 * DEVICE_UUID_BYTES + 1];
	util_hex(uuid, DEVICE_UUID_BYTES, hex);
	snprintf(text, DEVICE_UUID_TEXT, "GPU-%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
			 hex + 16, hex + 20);
}

int device_report(const struct kernel_report *report, uint64_t count, char error[KERNEL_ERROR_MAX])
{
	if (count == 0)
		return KILN_OK;
	if (report->end == UINT64_MAX) /* the planner of the operator knows what the number means */
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINDEX,
						 "subscripts are out of range: the kernel reported %" PRIu64, count);
	if (report->end == 0)
		return util_fail(error, KERNEL_ERROR_MAX, KILN_EINDEX,
						 "%" PRIu64 " of %" PRIu64
						 " indices are out of range: there is nothing that they could name",
						 count, report->indices);
	return util_fail(error, KERNEL_ERROR_MAX, KILN_EINDEX,
					 "%" PRIu64 " of %" PRIu64 " indices are out of range, which is 0 to %" PRIu64,
					 count, report->indices, report->end - 1);
}

/* ---- Graphs ---- */

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
