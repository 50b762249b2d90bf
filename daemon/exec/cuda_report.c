/*
 * cuda_report: counts that kernels leave for the host.  They lie in host memory that the GPU can
 * write to, one of its own for every launch in flight: a kernel with nothing to report never
 * touches it, and reading it when the launch has ended takes no copy and no waiting.
 */
#include "device.h"

#ifdef KILN_HAVE_CUDA_H

#include "cuda_device.h"

#define REPORTS_OF_A_PAGE 256

/* A page is kept as long as the device is open. */
static int add_page(struct device *device, char error[KERNEL_ERROR_MAX])
{
	void *memory = NULL;
	CUresult result =
		device->cu.cuMemHostAlloc(&memory, REPORTS_OF_A_PAGE * sizeof(struct cuda_report),
								  CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (result != CUDA_SUCCESS)
		return cuda_fail(device, error, KILN_ENOMEM, result,
						 "%s cannot give host memory for what kernels report", device->name);
	struct cuda_report *page = memory;
	page[0].next = device->report_pages;
	device->report_pages = page;
	for (int i = 1; i < REPORTS_OF_A_PAGE; i++) {
		page[i].next = device->spare_reports;
		device->spare_reports = &page[i];
	}
	return KILN_OK;
}

/* With one address space for both, as on all these GPUs, the host's address is the kernel's too. */
int cuda_report_give(struct device *device, struct cuda_work *work, char error[KERNEL_ERROR_MAX])
{
	int status = device->spare_reports ? KILN_OK : add_page(device, error);
	if (status != KILN_OK)
		return status;
	work->reported = device->spare_reports;
	device->spare_reports = work->reported->next;
	work->reported->count = 0;
	return KILN_OK;
}

int cuda_report_read(const struct cuda_work *work, char error[KERNEL_ERROR_MAX])
{
	if (!work->reported)
		return KILN_OK;
	return device_report(&work->report, *(const volatile uint64_t *)&work->reported->count, error);
}

void cuda_report_keep(struct device *device, struct cuda_work *work)
{
	if (!work->reported)
		return;
	work->reported->next = device->spare_reports;
	device->spare_reports = work->reported;
	work->reported = NULL;
}

void cuda_reports_close(struct device *device)
{
	while (device->report_pages) {
		struct cuda_report *page = device->report_pages;
		device->report_pages = page[0].next;
		device->cu.cuMemFreeHost(page);
	}
	device->spare_reports = NULL;
}

#endif
