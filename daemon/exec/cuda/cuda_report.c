/*
 * cuda_report: counts that kernels leave for the host, in a cell of its own for every launch in
 * flight: a kernel with nothing to report never touches it.
 */
#include "daemon/exec/device.h"

#ifdef KILN_HAVE_CUDA_H

#include "cuda_cell.h"
#include "cuda_work.h"

/* With one address space for both, as on all these GPUs, the host's address is the kernel's too. */
int cuda_report_give(struct device *device, struct cuda_work *work, char error[KERNEL_ERROR_MAX])
{
	CUresult result = cuda_cell_take(device, &work->reported);
	if (result == CUDA_SUCCESS)
		return KILN_OK;
	return cuda_fail(device, error, KILN_ENOMEM, result,
					 "%s cannot give host memory for what kernels report", device->name);
}

int cuda_report_read(const struct cuda_work *work, char error[KERNEL_ERROR_MAX])
{
	if (!work->reported)
		return KILN_OK;
	return device_report(&work->report, *(const volatile uint64_t *)&work->reported->value, error);
}

void cuda_report_keep(struct device *device, struct cuda_work *work)
{
	if (work->reported)
		cuda_cell_keep(device, work->reported);
	work->reported = NULL;
}

#endif
