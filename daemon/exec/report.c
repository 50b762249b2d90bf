/*
 * report: what becomes of a count of indices that are out of range, the same on every device.
 */
#include "daemon/base/util.h"
#include "device.h"

#include <inttypes.h>

int device_report(const struct kernel_report *report, uint64_t count, char error[KERNEL_ERROR_MAX])
{
	if (count == 0)
		return KILN_OK;
	if (report->end == UINT64_MAX) /* what the number says is its planner's affair */
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
